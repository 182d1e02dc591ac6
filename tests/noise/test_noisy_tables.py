"""Gaussian noise on each cell of a table: what it achieves, against sums over the lattice and against known laws."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

import empriv
from empriv.errors import CertificateError, InputError
from empriv.measuring.series.composition import gaussian_delta
from empriv.measuring.tables.fit import fit_table
from empriv.measuring.tables.relations import relations_of
from empriv.noise.certify.noisy_tables import TableCertificate, composed_pairs, noise_alone
from empriv.noise.joint_noise import JointNoise, design_joint_noise
from empriv.noise.touched import Touched, touched_cells
from empriv.results import Outcome, Results

EPSILON, DELTA = 0.2, 0.02


def table_of(q: Any, changes: Any) -> Results:
    """A table (n, d), and what each person changes (people, n, d)."""
    q, changes = np.asarray(q, float), np.asarray(changes, float)
    return Results.stack({f"c{k}": Results.from_arrays(q[:, k], q[:, k] - changes[:, :, k]) for k in range(q.shape[1])})


def factors(n: int = 300, d: int = 6, *, seed: int = 0, spread: float = 4.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.asarray(100 + rng.normal(size=(n, 2)) @ rng.normal(size=(2, d)) + spread * rng.normal(size=(n, d)))


def constant(n: int, d: int, people: list[dict[int, float]]) -> np.ndarray:
    out = np.zeros((len(people), n, d))
    for row, cells in enumerate(people):
        for cell, amount in cells.items():
            out[row, :, cell] = amount
    return out


def lattice_delta(shift: list[int], sigma: list[float], epsilon: float) -> float:
    """The hockey stick of discrete Gaussian noise on each cell, summed over the lattice."""
    axes = [np.arange(-int(9 * s) - 9, int(9 * s) + 10) for s in sigma]
    masses = [np.exp(-0.5 * (x / s) ** 2) for x, s in zip(axes, sigma, strict=True)]
    moved = [np.exp(-0.5 * ((x - k) / s) ** 2) for x, k, s in zip(axes, shift, sigma, strict=True)]
    p, q = masses[0], moved[0]
    for a, b in zip(masses[1:], moved[1:], strict=True):
        p, q = np.multiply.outer(p, a), np.multiply.outer(q, b)
    p, q = p / p.sum(), q / q.sum()
    return float(np.maximum(p - np.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize(
    ("shift", "sigma"),
    [
        ([1], [2.0]), ([1], [2.3]), ([3], [7.1]), ([9], [3.0]),
        ([1, 1], [2.0, 3.1]), ([2, -5], [6.3, 14.0]), ([0, 2], [2.0, 5.0]),
    ],
)  # fmt: skip
def test_the_noise_alone_is_never_understated(shift: list[int], sigma: list[float]) -> None:
    kind = Touched(np.array([0]), np.arange(len(shift)), np.array([shift], float), 1.0)
    for epsilon in (0.0, 0.05, 0.3, 1.0):
        achieved = noise_alone(kind, np.array(sigma), np.ones(len(sigma)), epsilon)
        truth = lattice_delta(shift, sigma, epsilon)
        assert truth <= achieved
        assert achieved < truth + 0.1 * sum(abs(k) / s**3 for k, s in zip(shift, sigma, strict=True)) + 1e-12
        assert noise_alone(kind, 1.3 * np.array(sigma), np.ones(len(sigma)), epsilon) < max(truth, 1e-12) + 0.03


def test_pairs_are_composed_as_by_an_accountant() -> None:
    epsilon, sizes = 0.4, (0.3, 0.8, 0.05)
    edges = np.linspace(-12, 12, 4001)
    pairs = [(np.diff(stats.norm.cdf(edges)), np.diff(stats.norm.cdf(edges, size))) for size in sizes]
    together = float(np.sqrt(sum(size**2 for size in sizes)))
    accountant = pld.from_gaussian_mechanism(1 / together, value_discretization_interval=1e-4)
    truth = accountant.get_delta_for_epsilon(epsilon)
    assert composed_pairs(pairs, epsilon) == pytest.approx(truth, rel=2e-3)
    assert composed_pairs(pairs[:2], epsilon) < 0.999 * truth


def test_noise_and_data_together_are_as_far_apart_as_normal_laws() -> None:
    """What is left is normal here: with noise, variances add up; the certificate lies above, and not far above."""
    rng = np.random.default_rng(1)
    n, spread = 2000, 3.0
    q = np.c_[100 + spread * rng.normal(size=n), 50 + 2 * rng.normal(size=n)]
    for cells in ({0: 1.0}, {0: 1.0, 1: 0.5}):
        results = table_of(q, constant(n, 2, [cells]))
        touched = touched_cells(results, [1 / 64] * 2, fit_table(results))
        scales = np.array([4.0, 5.0])
        certificate = TableCertificate(touched, scales, EPSILON)
        change = np.array([cells.get(k, 0.0) for k in range(2)])
        apart = np.sqrt((change**2 / (scales**2 + np.array([spread, 2.0]) ** 2)).sum())
        truth = float(gaussian_delta(apart, EPSILON))
        (kind,) = touched.people
        achieved = certificate.with_data(kind)
        assert achieved is not None
        assert truth <= achieved <= float(gaussian_delta(1.1 * apart, 0.9 * EPSILON)) * 1.3
        alone = noise_alone(kind, scales[kind.cells], np.full(len(kind.cells), 1 / 64), EPSILON)
        assert certificate.achieved_delta == min(alone, achieved)


def test_a_margin_is_another_look_at_its_cells() -> None:
    """Noise on a margin and on its cell hides what noise of the combined precision on the cell alone hides."""
    q = factors(d=3)
    people = constant(len(q), 3, [{0: 1.0}])
    whole, moved = np.c_[q, q.sum(axis=1)], np.concatenate((people, people.sum(axis=2, keepdims=True)), axis=2)
    beside = touched_cells(table_of(whole, moved), [1 / 64] * 4, fit_table(table_of(whole, moved)))
    scales = np.array([5.0, 5.0, 5.0, 8.0])
    together = TableCertificate(beside, scales, EPSILON).with_data(beside.people[0])
    alone = touched_cells(table_of(q, people), [1 / 64] * 3, fit_table(table_of(q, people)))
    same = np.array([(5.0**-2 + 8.0**-2) ** -0.5, 5.0, 5.0])
    once = TableCertificate(alone, same, EPSILON).with_data(alone.people[0])
    assert together is not None
    assert once is not None
    assert together == pytest.approx(once, rel=0.03)


def test_a_difference_that_is_one_person_has_the_noise_alone() -> None:
    rng = np.random.default_rng(2)
    n = 200
    rest = 100 + 10 * rng.normal(size=n)
    own = rng.uniform(0.5, 1.5, n)
    results = table_of(np.c_[rest + own, rest, 7 * rng.normal(size=n)], np.stack([np.c_[own, 0 * own, 0 * own]]))
    risk = empriv.measure(results)
    noise = design_joint_noise(risk, epsilon=EPSILON, delta=DELTA, granularity=1 / 64)  # type: ignore[arg-type]
    scales = {name: law.parts[0].scale for name, law in noise.laws.items()}
    assert scales["c1"] == scales["c2"] == 0
    alone = np.mean(gaussian_delta(own / scales["c0"], EPSILON))
    assert alone == pytest.approx(DELTA, rel=0.05)  # the 10 by which the total varies do not help
    assert noise.holds


@pytest.fixture(scope="module")
def designed() -> tuple[Results, JointNoise]:
    n, d = 300, 6
    people: list[dict[int, float]] = [{k: 1.5} for k in range(d - 1)] + [{0: 1.0, 1: 1.0}, {2: 0.2}]
    changes = constant(n, d, people)
    changes[0, 50:] = 0.0  # there in all databases, and without any effect in most
    results = table_of(factors(n, d), changes)
    risk = empriv.measure(results)
    return results, design_joint_noise(risk, epsilon=EPSILON, delta=DELTA, granularity=1 / 64)  # type: ignore[arg-type]


def test_the_design_keeps_its_target_with_less_noise_than_the_sum_rule(designed: tuple[Results, JointNoise]) -> None:
    results, noise = designed
    assert noise.holds
    assert 0.9 * DELTA < noise.achieved_delta <= DELTA
    assert {law.parts[0].kind for law in noise.laws.values()} == {"gaussian", "point"}
    assert noise.expected_error["c5"] == 0  # nobody is in it
    pure = design_joint_noise(noise.risk, epsilon=EPSILON, granularity=1 / 64)
    assert {law.parts[0].kind for law in pure.laws.values()} == {"laplace", "point"}
    assert sum(noise.expected_error.values()) < 0.8 * sum(pure.expected_error.values())
    # the truth is normal: the noisy table with everyone against that moved
    rng = np.random.default_rng(0)
    _ = rng.normal(size=(300, 2))
    load = rng.normal(size=(2, 6))
    covariance = load.T @ load + 16.0 * np.eye(6) + np.diag([law.parts[0].scale ** 2 for law in noise.laws.values()])
    for row in range(results.n_individuals):
        entries = slice(results.starts[row], results.starts[row + 1])
        change = results.q[results.entry_database[entries]] - results.entry_q[entries]
        apart = np.sqrt(np.einsum("ka,ab,kb->k", change, np.linalg.inv(covariance), change))
        assert np.mean(gaussian_delta(apart, EPSILON)) <= DELTA


def test_it_is_certified_again_when_read(designed: tuple[Results, JointNoise], tmp_path: Path) -> None:
    results, noise = designed
    noise.save(tmp_path / "noise.empriv")
    again = JointNoise.load(tmp_path / "noise.empriv")
    assert again.achieved_delta == pytest.approx(noise.achieved_delta, rel=1e-9)
    assert again.claim == noise.claim
    released = noise.release(dict.fromkeys(noise.laws, 100.0))
    assert all(value % (1 / 64) == 0 for value in released.values())
    assert released["c5"] == 100.0
    # twice the influence is more than it was certified for
    twice = replace(
        results, entry_q=results.q[results.entry_database] - 2 * (results.q[results.entry_database] - results.entry_q)
    )
    with pytest.raises(CertificateError, match="does not"):
        noise.certified_for(empriv.measure(twice))
    mixed = replace(noise, laws={**noise.laws, "c5": design_joint_noise(noise.risk, epsilon=1.0).laws["c0"]})
    with pytest.raises(CertificateError, match="Gaussian noise for each"):
        mixed.certified_for(noise.risk)


def test_margins_add_up_again() -> None:
    rng = np.random.default_rng(4)
    n = 200
    inner = rng.poisson(40, (n, 4)).astype(float)
    q = np.c_[inner, inner[:, :2].sum(axis=1), inner[:, 2:].sum(axis=1), inner.sum(axis=1)]
    people = constant(n, 7, [{0: 1, 4: 1, 6: 1}, {1: 1, 4: 1, 6: 1}, {2: 1, 5: 1, 6: 1}, {3: 1, 5: 1, 6: 1}])
    risk = empriv.measure(table_of(q, people))
    plain = design_joint_noise(risk, epsilon=1.0, delta=0.05, granularity=0.25)  # type: ignore[arg-type]
    noise = design_joint_noise(risk, epsilon=1.0, delta=0.05, granularity=0.25, consistent=True)  # type: ignore[arg-type]
    values = dict(zip(noise.laws, q[0].tolist(), strict=True))
    out = np.array([list(noise.release(values).values()) for _ in range(400)])
    np.testing.assert_allclose(out[:, 4], out[:, 0] + out[:, 1], atol=1e-6)
    np.testing.assert_allclose(out[:, 6], out[:, :4].sum(axis=1), atol=1e-6)
    errors = np.abs(out - q[0]).mean(axis=0)
    np.testing.assert_allclose(errors, list(noise.expected_error.values()), rtol=0.2)
    assert sum(noise.expected_error.values()) < 0.95 * sum(plain.expected_error.values())
    assert any("add up" in note for note in noise.notes)
    relations = relations_of(noise.risk.results)
    assert relations.weights.shape == (3, 7)
    np.testing.assert_allclose(relations.added_up(q, np.ones(7)), q, atol=1e-6)


def test_what_no_noise_hides_counts_in_delta() -> None:
    n = 100
    results = table_of(factors(n, 3), constant(n, 3, [{0: 0.5}, {1: 0.5}]))
    codes, values = results.entry_outcomes.copy(), results.entry_q.copy()
    codes[3, 2], values[3, 2] = Outcome.NULL, np.nan
    risk = empriv.measure(replace(results, entry_outcomes=codes, entry_q=values))
    with pytest.raises(CertificateError, match="changes whether a result is a number"):
        design_joint_noise(risk, epsilon=EPSILON, delta=0.005, granularity=1 / 64)  # type: ignore[arg-type]
    noise = design_joint_noise(risk, epsilon=EPSILON, delta=0.03, granularity=1 / 64)  # type: ignore[arg-type]
    assert 0.01 < noise.achieved_delta <= 0.03
    with pytest.raises(InputError, match="`consistent` must be"):
        design_joint_noise(risk, epsilon=1.0, consistent=1)  # type: ignore[arg-type]


def test_one_database_one_person_and_nobody() -> None:
    for n, people in itertools.product((1, 2, 5), ([{0: 1.0}], [{}])):
        results = table_of(factors(n, 3), constant(n, 3, people))
        touched = touched_cells(results, [0.25] * 3, fit_table(results))
        certificate = TableCertificate(touched, np.full(3, 50.0), 1.0)
        assert certificate.achieved_delta <= 1e-7
        assert TableCertificate(touched, np.zeros(3), 1.0).achieved_delta == (1.0 if people[0] else 0.0)
