"""What the designer is made of: the quick look, sums over individuals, and the programme, beside plain computations."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import empriv
from empriv.noise.design.constrained_rows import ConstrainedRows, Needs, Totals, component
from empriv.noise.design.constraints import Cases
from empriv.noise.design.programme import calibrate, expected_error, optimise, worst
from empriv.noise.design.quick_look import COARSE, FINE, scores
from empriv.noise.design.search import Aim, gather
from empriv.results import FloatArray

CELL = 0.0625


def cases(seed: int, n: int, individuals: int, size: float, *, weightings: int = 1) -> Cases:
    rng = np.random.default_rng(seed)
    q = rng.normal(size=n)
    less = q - size * rng.lognormal(-0.5, 0.7, (individuals, n)) * (rng.random((individuals, n)) < 0.7)
    risk = empriv.measure(q, less, density=empriv.Kde("laplace", 0.4))
    weights = np.vstack((np.full(n, 1.0 / n), rng.multinomial(n, np.full(n, 1.0 / n), weightings - 1) / n))
    return Cases.of(risk, granularity=CELL, weights=weights)


def noisy(masses: FloatArray, parts: list[tuple[float, float]]) -> FloatArray:
    """Rows of masses with noise, by one long matrix."""
    k = np.arange(-2000, 2001) * CELL
    law = np.zeros(len(k))
    for weight, scale in parts:
        one = np.exp(-np.abs(k) / scale) if scale > 0 else (k == 0.0).astype(float)
        law += weight * one / one.sum()
    return np.array([np.convolve(row, law) for row in masses])


def deltas(rows: ConstrainedRows, parts: list[tuple[float, float]]) -> FloatArray:
    p, q = noisy(rows.p, parts), noisy(rows.q, parts)
    e = rows.e[:, None]
    return np.maximum(np.maximum(p - e * q, 0.0).sum(1), np.maximum(q - e * p, 0.0).sum(1))


@settings(max_examples=15)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 30),
    size=st.floats(0.05, 3.0),
    scale=st.floats(0.0, 3.0),
    epsilon=st.floats(0.05, 1.0),
)
def test_a_look_sees_at_most_what_there_is_and_a_fine_one_most_of_it(
    seed: int, n: int, size: float, scale: float, epsilon: float
) -> None:
    some = cases(seed, n, 4, size, weightings=3)
    parts = [(0.3, 0.0), (0.7, scale if scale > 0.1 else 0.0)]
    labels = [(0, i, s) for i, s in product(range(4), range(3))]
    exact = deltas(gather([Aim(some, epsilon)], labels), parts).reshape(4, 3)
    coarse, fine = (
        scores(some, np.arange(4), parts=parts, epsilon=epsilon, delta=0.01, merged=merged) for merged in (COARSE, FINE)
    )
    for seen in (coarse, fine):
        assert np.all(seen <= exact * 1.02 + 1e-4)  # tables are interpolated
    assert np.all(fine >= 0.7 * exact - 5e-3)


def needs(seed: int, most: float, *, delta: float) -> Needs:
    some = cases(seed, 12, 5, 1.0)
    rows = gather([Aim(some, 0.4)], [(0, i, 0) for i in range(5)])
    share = np.array([1.0, 1.0, 1.0, 2.0, 3.0])
    return Needs(rows, delta, Totals(rows, share, np.zeros(5, np.int64), most))


def test_sums_over_individuals_are_kept_and_used_up() -> None:
    for seed in range(3):
        need = needs(seed, 0.1, delta=0.5)
        scale = calibrate(need, 1.0)
        assert scale is not None
        parts = optimise(need, scale, scale * 2.0 ** np.arange(-4.0, 3.0))
        assert need.totals is not None
        total = float(need.totals.share @ -np.log1p(-deltas(need.rows, parts)))
        assert 0.099 < total <= 0.1 * (1 + 1e-4)  # stretches of the far tails are merged, and hide next to nothing
        assert expected_error(parts, CELL) <= expected_error([(1.0, scale)], CELL)
        assert worst(need, parts) <= 1e-5 < worst(need, [(w, 0.95 * s) for w, s in parts])


@pytest.mark.slow
def test_the_programme_finds_the_least_noise() -> None:
    # Beside every mixture of a point mass and two scales on a fine grid of weights.
    need = needs(7, 0.08, delta=0.05)
    scale = calibrate(need, 1.0)
    assert scale is not None
    scales = np.array([0.5 * scale, scale])
    found = expected_error(optimise(need, scale, scales), CELL)
    best = np.inf
    for first, second in product(np.linspace(0.0, 1.0, 41), repeat=2):
        if first + second <= 1.0:
            parts = [(1.0 - first - second, 0.0), (first, scales[0]), (second, scales[1])]
            if worst(need, parts) <= 0.0:
                best = min(best, expected_error(parts, CELL))
    assert found <= best * (1 + 1e-6)
    assert found >= 0.9 * best  # the grid is not that coarse


@pytest.mark.parametrize("scale", [0.01, 0.7, 6.0, 400.0])
def test_noise_on_many_rows_is_that_of_direct_sums(scale: float) -> None:
    masses = np.random.default_rng(2).random((300, 122)) ** 6  # more rows than are worked on at once
    steps = np.array([1, 2, 5])
    law = np.tanh(0.5 / scale) * np.exp(-np.abs(np.arange(-20_000, 20_001)) / scale)
    rows = (0, 136, 299)
    made = component(masses, scale, numbers=120, steps=steps, pointwise=False)[rows, :]
    single = component(masses, scale, numbers=120, steps=steps, pointwise=True)[rows, :]
    for row, whole, cells in zip(rows, made, single, strict=True):
        direct = np.convolve(masses[row, :120], law)
        last, first = 20_000 + 119, 20_000
        np.testing.assert_allclose(whole[:120], direct[first : last + 1], rtol=1e-10)
        left, right = direct[:first][::-1], direct[last + 1 :]
        stretches = [(0, 1), (1, 4), (4, None)]  # at 1 to 1, 2 to 4, and 5 and more cells beyond
        for place, far in ((120, left), (123, right)):
            np.testing.assert_allclose(whole[place : place + 3], [far[a:b].sum() for a, b in stretches], rtol=1e-9)
            np.testing.assert_allclose(cells[place : place + 3], far[[0, 1, 4]], rtol=1e-9, atol=1e-300)
        np.testing.assert_array_equal(whole[126:], masses[row, 120:])


def test_sums_on_wider_cells_are_nearly_those_on_narrow_ones() -> None:
    narrow = cases(3, 20, 6, 0.6)
    wide = narrow.on_wider_cells(2)
    labels = [(0, i, 0) for i in range(6)]
    fine, merged, far = (gather([Aim(some, 0.3)], labels) for some in (narrow, wide, narrow.on_wider_cells(32)))
    assert merged.cell == 2 * CELL
    np.testing.assert_allclose(merged.q.sum(axis=1), 1.0)
    parts = [(0.2, 0.0), (0.8, 0.7)]
    logs = []
    for rows in (fine, merged, far):
        need = Needs(rows, 1.0, Totals(rows, np.ones(6), np.zeros(6, np.int64), 0.0))
        logs.append(worst(need, parts))
    assert logs[1] == pytest.approx(logs[0], rel=0.02)
    assert abs(logs[2] / logs[0] - 1) > 0.1  # cells of several bandwidths would not do
