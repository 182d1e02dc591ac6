"""Patterns in the last digits, and people without whom results spread less: seen where they are, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import empriv
from empriv.measuring.densities.density import Density
from empriv.measuring.densities.selection import spread
from empriv.measuring.given.given_risk import atom_curves, atom_epsilons
from empriv.measuring.line.atoms import Pairs, spread_ratios
from empriv.measuring.line.last_digits import (
    candidate_steps,
    classes,
    digit_steps,
    pairs_at_step,
    strengths,
    strengths_without,
)
from empriv.measuring.line.risk import Risk, largest_shifts, measure_line, pairs_of
from empriv.results import FloatArray, Results

ALPHA = 0.005


def pairs_made(q: FloatArray, without: FloatArray, people: int | None = None) -> Pairs:
    """Pairs as `measure_line` makes them, without the density, which takes time."""
    return pairs_of(Results.from_arrays(q, np.atleast_2d(without)), look=True, people=people)


def comb(rng: np.random.Generator, n: int) -> FloatArray:
    """Whole numbers ± .05."""
    return np.round(rng.normal(0, 20, n)) + rng.uniform(-0.05, 0.05, n)


def test_the_steps_to_try_are_below_a_quarter_of_the_spread_and_above_the_lattice() -> None:
    rng = np.random.default_rng(0)
    smooth, whole = rng.normal(0, 200, 100), np.round(rng.normal(0, 200, 100))
    for q, own in ((smooth, 0), (whole, 5)):
        tried = candidate_steps(q)
        assert np.all(np.diff(tried.steps) < 0)
        assert tried.steps.max() <= spread(q) / 4
        assert {1.5, 9.0}.isdisjoint(np.round(tried.steps, 9)) or own
        assert {40.0, 25.0, 12.0, 24.0, 5.0}.issubset(np.round(tried.steps, 9))
        # the chances to err add up: .05 for the usual steps, and as much again, less a bit, for those of the lattice
        chance = float((2 * np.exp(-tried.limits)).sum())
        assert chance == pytest.approx(ALPHA * (1 + (1 - 2.0**-own) * (own > 0)), rel=1e-9)
    assert candidate_steps(smooth).steps.min() < 0.01
    assert candidate_steps(whole).steps.min() == pytest.approx(2.0), "a step below 1.5 of the lattice's tells nothing"
    assert len(candidate_steps(np.full(40, 3.0)).steps) == 0


def test_results_far_from_zero_are_not_tried_at_the_scale_of_their_roundings() -> None:
    q = 1e9 + np.random.default_rng(0).normal(0, 1, 100)
    assert candidate_steps(q).steps.min() > 1e4 * np.spacing(1e9)


@pytest.mark.parametrize("draws", [1, 4])
def test_the_statistic_has_the_law_that_its_limits_assume(draws: int) -> None:
    """P(n |mean|^2 > t) = e^-t for one draw; several draws only make it smaller."""
    rng = np.random.default_rng(1)
    values = rng.normal(0, 10, (4000, 41 * draws))
    share = np.mean(strengths(values, np.array([1.0, 0.3]), draws) > 2.0, axis=0)
    truth = np.exp(-2.0 * draws)
    assert np.all(np.abs(share - truth) < 4 * np.sqrt(truth / 4000) + 1e-3)


@pytest.mark.parametrize("n", [41, 365])
def test_strengths_from_what_changes_are_those_of_all_results(n: int) -> None:
    """For people in no database, in one, in a few and in all, and beside atoms."""
    rng = np.random.default_rng(5)
    q = rng.normal(50.0, 10.0, n)
    without = np.tile(q, (12, 1))
    for row, share in enumerate(np.linspace(0.0, 1.0, 12)):
        changed = rng.random(n) < share
        without[row, changed] -= rng.exponential(1.0, int(changed.sum()))
    steps, rows = np.array([7.0, 1.0, 0.25, 1e-3]), np.array([0, 1, 2, 5, 11])
    plain = pairs_of(Results.from_arrays(q, without), look=False)
    for pairs in (plain, replace(plain, points=np.where(np.arange(n) == 3, np.inf, q))):
        truth = strengths(pairs.dense(rows), steps)
        found = strengths_without(pairs, rows, steps)
        np.testing.assert_allclose(found, truth, atol=1e-4 * n)
        assert np.abs(found - strengths(pairs.dense(rows - (rows > 0)), steps)).max() > 0.1


@pytest.mark.parametrize("n", [41, 100, 365])
def test_smooth_laws_are_hardly_ever_called_patterned(n: int) -> None:
    rng = np.random.default_rng(3)
    seen = 0
    for _ in range(60):
        q = rng.normal(0, 1, n)
        seen += bool(pairs_made(q, q - rng.exponential(0.3, (20, n))).digit_steps)
    assert seen <= 2 * ALPHA * 60 + 2.33 * np.sqrt(2 * ALPHA * 60)


def test_each_of_many_people_has_a_share_of_the_chance_to_err() -> None:
    """Without it, somebody among a thousand would be seen to have a pattern of their own nearly every time."""
    rng = np.random.default_rng(4)
    shared, alone = 0, 0
    for _ in range(12):
        q = rng.normal(0, 1, 41)
        pairs = pairs_made(q, q - rng.exponential(0.3, (1000, 41)))
        assert pairs.people == 1000
        shared += bool(pairs.digit_steps)
        alone += bool(digit_steps(replace(pairs, people=1)))
    assert shared <= 3 < 8 <= alone


@pytest.mark.parametrize("n", [41, 100])
def test_patterns_are_seen_where_somebody_breaks_them(n: int) -> None:
    rng = np.random.default_rng(5)
    for _ in range(10):
        q = comb(rng, n)
        (row, step), *more = pairs_made(q, q - 0.3).digit_steps
        assert row == 0
        assert not more
        assert step in (1.0, 0.5)
        assert not pairs_made(q, q - 2.0).digit_steps, "whole numbers leave the pattern as it is"
        parity = np.round(rng.normal(0, 20, n)) * 2 + (rng.random(n) < 0.1)
        assert dict(pairs_made(parity, parity - 1.0).digit_steps)[0] == pytest.approx(2.0)
        assert dict(pairs_made(parity, parity - 4.0).digit_steps).get(0, 0.0) != pytest.approx(2.0)
        # a pattern that is there without somebody alone
        whole = np.where(rng.random(n) < 0.8, np.round(rng.normal(0, 20, n)), rng.normal(0, 20, n))
        assert pairs_made(whole + rng.exponential(3, n), whole).digit_steps


def test_a_literal_density_looks_for_nothing() -> None:
    q = comb(np.random.default_rng(6), 100)
    without = np.stack((q - 0.3, 0.5 * q))
    literal, looking = (
        empriv.measure(q, without, density=density).pairs for density in (empriv.Kde("laplace", 5.0), None)
    )
    assert not literal.digit_steps
    assert literal.ratios is None
    assert len(looking.digit_steps) == 2
    assert looking.ratios is not None
    assert empriv.measure(q, without, density=empriv.Kde("laplace", 5.0)).delta_i(0.1)[0] < 0.1


def test_a_few_changed_results_can_never_be_told_apart() -> None:
    """`digit_steps` passes over people who change fewer than five results."""
    q = comb(np.random.default_rng(7), 100)
    moved = np.stack([np.where(np.arange(100) < count, q - 0.3, q) for count in (4, 60)])
    assert [row for row, _ in pairs_made(q, moved).digit_steps] == [1]
    assert not classes(q, moved[:1], 1.0).any()
    assert classes(q, moved[1:], 1.0).any()


def test_classes_are_where_one_side_has_clearly_more() -> None:
    rng = np.random.default_rng(8)
    q = comb(rng, 100)
    with_all, without = classes(q, (q - 0.3)[None, :], 1.0)[0]
    assert np.all(with_all == 1)
    assert np.all(without == 2)
    assert not classes(q, (q - 3.0)[None, :], 1.0).any()
    uniform = rng.random((2, 400))
    expected = 0.1  # 5% of the windows on either side are uneven by chance
    assert np.mean(classes(uniform[0], uniform[1:], 1.0) > 0) < 4 * expected
    # an atom has no residue
    q[:10] = np.inf
    assert not classes(q, (q - 0.3)[None, :], 1.0)[0, :, :10].any()


def test_rows_do_not_depend_on_who_is_looked_at_with_them() -> None:
    rng = np.random.default_rng(9)
    q = comb(rng, 60)
    without = q - rng.choice([0.0, 1.0, 2.0], (30, 60)) * rng.choice([1.0, 0.7], (30, 1))
    together = dict(pairs_made(q, without).digit_steps)
    alone = {row: dict(pairs_made(q, without[row], people=30).digit_steps).get(0) for row in range(30)}
    assert 0 < len(together) < 30
    assert together == {row: step for row, step in alone.items() if step is not None}


def test_spread_ratios_are_of_those_without_whom_results_spread_less() -> None:
    rng = np.random.default_rng(10)
    others, n = rng.normal(0, 1, 100), 100
    q = others + rng.normal(0, 5, n)
    narrow = pairs_made(q, np.stack([others, q - 3.0, q, q + rng.normal(0, 5, n)])).ratios
    assert narrow is not None
    assert narrow[0] == pytest.approx(spread(others) / spread(q))
    assert np.all(narrow[1:] == 1)
    assert pairs_made(q, q - 1.0).ratios is None


def test_nobody_who_narrows_the_results_is_passed_over() -> None:
    """The shortcut by the largest change agrees with the spread of every row."""
    rng = np.random.default_rng(11)
    q = rng.standard_t(2, 50)
    sizes = np.geomspace(0.03, 0.9, 40)[:, None]
    without = q * (1 - sizes)
    ratios = pairs_made(q, without).ratios
    every = np.array([spread(row) for row in without]) / spread(q)
    assert ratios is not None
    assert np.allclose(ratios, np.where(every < 0.9, every, 1.0), rtol=1e-12)
    assert 0 < np.count_nonzero(ratios < 1) < 40
    entries = measure_line(Results.from_arrays(q, without)).pairs
    assert spread_ratios(replace(entries, points=np.full(50, np.inf))) is None


# The estimate


def blurred(risk: Risk) -> Risk:
    """The same risk without a look at last digits and spreads."""
    pairs = replace(risk.pairs, digit_steps=(), ratios=None)
    return Risk(risk.results, risk.density, pairs, largest_shifts(pairs, risk.density))


KERNELS = [None, empriv.Kde("gaussian"), empriv.Kde("epanechnikov", "silverman"), empriv.Ecdf()]


@pytest.mark.parametrize("density", KERNELS, ids=["default", "gaussian", "epanechnikov", "ecdf"])
def test_whole_numbers_and_a_little_hide_nobody_who_moves_them(density: Density | None) -> None:
    """Whole numbers with noise of sd .05 and somebody who adds .3: the truth is .997."""
    rng = np.random.default_rng(12)
    for n in (41, 100):
        others = np.round(rng.normal(0, 20, n)) + rng.normal(0, 0.05, n)
        risk = empriv.measure(others + 0.3, [others, others - 1.7], density=density)
        delta = risk.delta_i(0.1)
        assert delta[0] > 0.9
        assert blurred(risk).delta_i(0.1)[0] < 0.3, "a kernel alone does not see it"
        assert delta[1] == pytest.approx(blurred(risk).delta_i(0.1)[1], rel=1e-12), (
            "whole numbers leave the digits as they are"
        )
        assert risk.epsilon_i(0.5)[0] > 1.0


def test_parity_is_measured() -> None:
    """Even in 90% without somebody who adds 1: delta = .9 - e^.1 .1 at epsilon .1."""
    rng, errors = np.random.default_rng(13), []
    for _ in range(10):
        others = 2 * np.round(rng.normal(0, 10, 100)) + (rng.random(100) < 0.1)
        errors.append(empriv.measure(others + 1, [others]).delta(0.1) - (0.9 - 0.1 * np.exp(0.1)))
    assert abs(np.mean(errors)) < 0.06


def test_digits_never_lower_a_figure() -> None:
    """Somebody who moves the results far, and changes their digits in some: atoms know nothing of the place."""
    rng = np.random.default_rng(14)
    others = np.where(rng.random(100) < 0.6, np.round(rng.normal(0, 20, 100)), rng.normal(0, 20, 100))
    risk = empriv.measure(others + 500.5, [others])
    assert risk.pairs.digit_steps
    assert risk.delta(0.1) == pytest.approx(1.0, abs=1e-3)
    atoms = pairs_at_step(risk.pairs, *risk.pairs.digit_steps[0])
    assert atoms.mass.max() < 0.9


@pytest.mark.parametrize("sd", [3.0, 20.0])
def test_somebody_who_widens_the_results_is_not_below_what_is_demonstrated(sd: float) -> None:
    rng = np.random.default_rng(15)
    below = 0
    for _ in range(4):
        others = rng.normal(size=365)
        risk = empriv.measure(others + rng.normal(0, sd, 365), [others])
        lower = risk.bounds(0.1).lower
        assert risk.delta(0.1) >= lower
        below += blurred(risk).delta(0.1) < lower
    assert below or sd < 20, "one bandwidth for both falls below"


def test_a_bandwidth_of_their_own_is_as_if_both_samples_were_stretched() -> None:
    rng = np.random.default_rng(16)
    others = rng.normal(size=100)
    q = others + rng.normal(0, 5, 100)
    for density in (None, empriv.Kde("gaussian")):
        risk = empriv.measure(q, np.stack((others, q - 1.0)), density=density)
        assert risk.pairs.ratios is not None
        ratio, h = float(risk.pairs.ratios[0]), risk.density.bandwidth  # type: ignore[union-attr]
        kernel = risk.density.kernel.name  # type: ignore[union-attr]
        stretched = empriv.measure(q / ratio, [others / ratio], density=empriv.Kde(kernel, h))
        epsilons = [0.0, 0.1, 0.5, 3.0]
        assert risk.delta_i(epsilons)[0] == pytest.approx(stretched.delta_i(epsilons)[0], abs=1e-9)
        assert risk.epsilon_i(0.01)[0] == pytest.approx(stretched.epsilon(0.01), rel=1e-6)
        assert risk.epsilon_i(0.01)[1] == blurred(risk).epsilon_i(0.01)[1]


@pytest.mark.parametrize("family", ["gaussian", "gamma", "bimodal", "poisson"])
def test_smooth_laws_keep_their_figures(family: str) -> None:
    """To the bit, in nearly all runs: nothing is seen where there is nothing."""
    rng, same = np.random.default_rng(17), []
    for _ in range(12):
        n = 100
        others = {
            "gaussian": rng.normal(size=n),
            "gamma": rng.gamma(8.0, 1.0, n),
            "bimodal": np.where(rng.random(n) < 0.5, -3.0, 3.0) + rng.normal(size=n),
            "poisson": rng.poisson(50, n).astype(float),
        }[family]
        steps = rng.integers(0, 3, (5, n)) if family == "poisson" else rng.exponential(0.2, (5, n))
        risk = empriv.measure(others, others - steps)
        same.append(np.array_equal(risk.delta_i([0.0, 0.1]), blurred(risk).delta_i([0.0, 0.1])))
    assert np.mean(same) >= 0.9


def test_classes_find_nothing_on_average_where_there_is_nothing() -> None:
    """They would if the results that are classed had chosen the classes: with the halves' verdicts exchanged."""
    rng, fair, same = np.random.default_rng(18), [], []
    for _ in range(200):
        q, without = rng.random((2, 60))
        told = [classes(q, without[None, :], 1.0)[0], classes(np.repeat(q, 2), np.repeat(without, 2)[None, :], 1.0)[0]]
        for excess, found in zip((fair, same), told, strict=True):
            excess.append(np.mean(found[0] == 1) - np.mean(found[1] == 1))
    assert abs(np.mean(fair)) < 4 * np.std(fair) / np.sqrt(200)
    assert np.mean(same) > 10 * np.std(fair) / np.sqrt(200)


# Given what is known


def test_digits_count_whatever_is_known() -> None:
    rng = np.random.default_rng(3)
    known = rng.normal(0, 20, 100)
    others = np.round(known + rng.normal(0, 3, 100)) + rng.normal(0, 0.03, 100)
    results = Results.from_arrays(others + 0.4, [others])
    risk = empriv.measure(results, known=empriv.Given(known))
    assert risk.delta(0.1) > 0.85
    assert risk.epsilon(0.5) > 0.5
    assert not risk.pairs.digit_steps, "what a regression leaves over has no last digits"


def test_epsilons_of_atoms_are_the_inverse_of_their_curves() -> None:
    others = comb(np.random.default_rng(4), 100)
    moved = others + np.where(np.arange(100) < 60, 0.4, 0.0)
    pairs = pairs_of(Results.from_arrays(moved, [others]), look=True)
    for delta in (0.05, 0.2, 0.4):
        epsilon = atom_epsilons(pairs, delta)
        if np.isfinite(epsilon[0]) and epsilon[0] > 0:
            assert atom_curves(pairs, epsilon)[0, 0] == pytest.approx(delta, abs=1e-9)
            assert atom_curves(pairs, 0.99 * epsilon)[0, 0] > delta
        else:
            assert atom_curves(pairs, np.array([690.0]))[0, 0] > delta
