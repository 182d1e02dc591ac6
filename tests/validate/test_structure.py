"""Parts of the upper bound for structure that one bandwidth cannot see: each is needed, and compiled code changes none.

Laws have a truth that is known. With a part switched off the bound is below it, so that the part is what covers it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import empriv
from empriv.measuring.line.risk import measure_line
from empriv.results import FloatArray, Outcome
from empriv.validate.bounds import analytic, structure
from empriv.validate.bounds.analytic import floor, narrowing, upper_bounds
from empriv.validate.bounds.structure import PARTS, BoundPart, raise_bounds, share_limits
from empriv.validate.checks.robustness import subset
from empriv.validate.ground import Ground, ground_of

Draw = Callable[[np.random.Generator, int], tuple[FloatArray, FloatArray]]


def upper(q: FloatArray, without: FloatArray, epsilon: float = 0.1) -> FloatArray:
    return upper_bounds(ground_of(empriv.measure(q, np.atleast_2d(without))), [epsilon], 0.95).upper_i[:, 0]


def spread_out(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    others = rng.normal(size=n)
    return others + rng.normal(0, 20, n), others


def gap(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    others = rng.normal(size=n)
    return others + 0.6 * (others > 1), others


def comb(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    others = np.rint(rng.normal(0, 30, n)) + rng.normal(0, 0.05, n)
    return others + 0.3, others


def spike(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    others = np.where(rng.random(n) < 0.3, 0.02, 1.0) * rng.normal(size=n)
    return others + 0.05, others


def rare(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
    others = rng.normal(size=n)
    return others + 8.0 * (rng.random(n) < 0.09), others


# Runs in which the part alone covers the truth, at least, and in which a bound without any part does, at most.
CASES = [
    pytest.param(BoundPart.SPREAD, spread_out, 100, 0.8814, 0.95, 0.0, id="spread"),
    pytest.param(BoundPart.COUNTS, rare, 41, 0.0900, 0.93, 0.90, id="counts"),
    pytest.param(BoundPart.GAPS, gap, 365, 0.1039, 0.90, 0.70, id="gaps"),
    pytest.param(BoundPart.RESIDUES, comb, 100, 0.9966, 0.95, 0.0, id="residues"),
    pytest.param(BoundPart.FINE, spike, 100, 0.2051, 0.90, 0.1, id="fine"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("part", "draw", "n", "truth", "at_least", "at_most"), CASES)
def test_every_part_covers_what_the_others_do_not(
    part: BoundPart, draw: Draw, n: int, truth: float, at_least: float, at_most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(1)
    runs = [draw(rng, n) for _ in range(60 if n < 100 else 20)]
    shares = []
    for parts in (part, BoundPart(0)):
        monkeypatch.setattr(structure, "PARTS", parts)
        shares.append(np.mean([upper(*run, 0.5)[0] >= truth for run in runs]))
    assert shares[0] >= at_least
    assert shares[1] <= at_most
    assert shares[0] > shares[1]


def test_truths() -> None:
    """At epsilon 0.5, by integration."""
    x = np.linspace(-120, 120, 2_400_001)
    e, normal = np.exp(0.5), stats.norm.pdf(x)

    def stick(a: FloatArray, b: FloatArray) -> float:
        return float(max(np.maximum(a - e * b, 0).sum(), np.maximum(b - e * a, 0).sum()) * (x[1] - x[0]))

    assert stick(stats.norm.pdf(x, 0, np.hypot(1, 20)), normal) == pytest.approx(0.8814, abs=1e-3)
    assert stats.norm.cdf(1.6) - stats.norm.cdf(1.0) == pytest.approx(0.1039, abs=1e-4)
    peaked = 0.3 * stats.norm.pdf(x, 0, 0.02) + 0.7 * normal
    moved = 0.3 * stats.norm.pdf(x, 0.05, 0.02) + 0.7 * stats.norm.pdf(x, 0.05)
    assert stick(moved, peaked) == pytest.approx(0.2051, abs=1e-4)
    # each tooth of the comb moves by six of its own standard deviations
    assert 1 - (1 + e) * stats.norm.cdf(-3) == pytest.approx(0.9966, abs=3e-4)


def test_rare_points_alone_are_bounded_by_exact_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    q = np.random.default_rng(2).normal(size=60)
    without = q.copy()
    without[:5] += 50.0 + np.arange(5)
    assert upper(q, without)[0] == pytest.approx(stats.beta.ppf(0.95, 6, 55))
    monkeypatch.setattr(structure, "PARTS", PARTS & ~BoundPart.COUNTS)
    assert upper(q, without)[0] < stats.beta.ppf(0.95, 6, 55) - 0.002


def test_limits_of_shares_are_those_of_the_binomial_law() -> None:
    limits = share_limits(30, 0.95)
    assert limits[0] == pytest.approx(floor(30, 0.95))
    assert limits[30] == 1
    for seen in (0, 3, 29):
        assert stats.binom.cdf(seen, 30, limits[seen]) == pytest.approx(0.05)


@pytest.mark.slow
def test_smooth_laws_are_bounded_little_wider(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    runs = [(x + 0.5, x) for x in rng.normal(size=(40, 100))]
    mended = np.array([upper(*run)[0] for run in runs])
    monkeypatch.setattr(structure, "PARTS", BoundPart(0))
    plain = np.array([upper(*run)[0] for run in runs])
    assert np.all(mended >= plain - 1e-12)
    assert mended.mean() < 1.1 * plain.mean()
    assert mended.mean() > plain.mean()  # the parts do look


def people(seed: int, kind: str, n: int) -> Ground:
    """A dozen people who change results in all kinds of ways."""
    rng = np.random.default_rng(seed)
    q = {
        "smooth": lambda: rng.normal(size=n),
        "tied": lambda: np.round(rng.normal(size=n), 1),
        "counts": lambda: rng.poisson(400.0, n).astype(float),
        "clusters": lambda: 0.1 * rng.normal(size=n) + 50.0 * rng.integers(0, 3, n),
        "atoms": lambda: np.where(rng.random(n) < 0.6, 0.0, rng.normal(size=n)),
        "euros": lambda: np.rint(rng.normal(0, 30, n)) + np.where(rng.random(n) < 0.3, rng.random(n), 0.0),
    }[kind]()
    size = 10.0 ** rng.uniform(-3, 0.5, (12, 1)) * q.std()
    without = q - size * rng.exponential(size=(12, n)) * (rng.random((12, n)) < rng.random((12, 1)))
    without[0] = q + 0.5 * q.std() * (q > np.median(q))
    without[1] = np.median(q) + 0.3 * (q - np.median(q))
    without[2] = np.rint(q + 1)
    results = empriv.measure(q, without).results
    values, codes = results.entry_q.copy(), results.entry_outcomes.copy()
    gone = slice(int(results.starts[3]), int(results.starts[3]) + n // 3)  # without the fourth, often no number
    values[gone], codes[gone] = np.nan, Outcome.NULL
    return ground_of(measure_line(replace(results, entry_q=values, entry_outcomes=codes)))


# At epsilon 0 sets of equal merit, and so a bound, may be chosen by rounding.
GRID = np.array([0.02, 0.1, 0.5])
KINDS = ("smooth", "tied", "counts", "clusters", "atoms", "euros")


@pytest.mark.skipif(
    structure.compiled is None, reason="empriv was built without a C compiler: install one, and empriv anew"
)
@pytest.mark.parametrize("part", [*BoundPart, PARTS])
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_parts_are_those_in_numpy(kind: str, part: BoundPart, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, n in ((0, 40), (1, 61)):
        ground = people(seed, kind, n)
        answers = []
        for find in (structure.compiled, None):
            monkeypatch.setattr(structure, "compiled", find)
            answers.append(np.zeros((12, 3)))
            raise_bounds(ground, GRID, 0.95, narrowing(n), answers[-1], part)
            monkeypatch.undo()
        np.testing.assert_allclose(*answers, rtol=1e-9, atol=1e-9)
        assert answers[0].max() > 0


def test_what_is_said_of_somebody_does_not_depend_on_who_else_is_looked_at() -> None:
    rng = np.random.default_rng(5)
    q, _ = spike(rng, 60)
    without = q - np.where(np.arange(30)[:, None] % 3, rng.exponential(0.2, (30, 60)), 0.05)
    without[4] = q + 0.6 * (q > 0)
    results = empriv.measure(q, without).results
    whole = upper_bounds(ground_of(measure_line(results)), [0.0, 0.1], 0.95).upper_i
    for rows in (np.array([4]), np.arange(3, 11), np.arange(30)[::-1]):
        some = upper_bounds(ground_of(measure_line(subset(results, rows), people=30)), [0.0, 0.1], 0.95)
        np.testing.assert_allclose(some.upper_i, whole[rows], rtol=1e-9)


def test_fine_structure_must_be_clearer_among_many() -> None:
    q, without = spike(np.random.default_rng(6), 60)
    results = empriv.measure(q, without[None]).results
    bounds = [
        float(upper_bounds(ground_of(measure_line(results, people=people)), [0.1], 0.95).upper_i[0, 0])
        for people in (1, 100, 10_000_000)
    ]
    assert bounds[0] >= bounds[1] >= bounds[2]
    assert bounds[0] > bounds[2]


def test_ties_that_a_fine_lattice_has_by_chance_are_no_atoms(monkeypatch: pytest.MonkeyPatch) -> None:
    """41 results rounded to a tenth of their sd, and somebody who adds a tenth; then values that are no chance."""
    rng = np.random.default_rng(7)
    rounded = np.round(rng.normal(size=(30, 41)), 1)
    bounds = np.array([upper(q + 0.1, q)[0] for q in rounded])
    assert np.median(bounds) < 0.15
    assert np.mean(bounds >= 0.0089) == 1
    # half of the results are whole numbers, which somebody's tenth leaves at no whole number
    whole = np.where(rng.random((30, 41)) < 0.5, np.rint(rounded), rounded)
    seen = [upper(q + 0.1, q)[0] for q in whole]
    monkeypatch.setattr(analytic, "_chance_ties", lambda _: -1.0)  # all ties are looked at
    np.testing.assert_allclose(seen, [upper(q + 0.1, q)[0] for q in whole])
    assert np.median([upper(q + 0.1, q)[0] for q in rounded]) > 0.25
