"""The compiled look at the ends of samples, and the screening before smooth sets, change no upper bound."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import empriv
from empriv.results import FloatArray
from empriv.validate.bounds import ends, present, structure
from empriv.validate.bounds.analytic import Upper, _edges, upper_bounds
from empriv.validate.bounds.ends import Ends
from empriv.validate.bounds.moments import Merged, end_runs
from empriv.validate.ground import Ground, ground_of

pytestmark = pytest.mark.skipif(
    ends.ends is None, reason="empriv was built without a C compiler: install one, and empriv anew"
)
GRID = np.array([0.02, 0.1, 0.5])


def smooth(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.normal(size=n)


def tied(rng: np.random.Generator, n: int) -> FloatArray:
    return np.round(rng.normal(size=n), 1)


def clusters(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.normal(size=n) * 0.1 + 50.0 * rng.integers(0, 3, n)


def heavy(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.standard_t(1.2, size=n)


def atoms(rng: np.random.Generator, n: int) -> FloatArray:
    return np.where(rng.random(n) < 0.6, 0.0, rng.normal(size=n))


SHAPES = (smooth, tied, clusters, heavy, atoms)


def ground(
    seed: int, shape: Callable[[np.random.Generator, int], FloatArray], n: int, share: float, draws: int = 1
) -> Ground:
    """40 individuals who change a share of the results, by little or much, some to what another database has."""
    rng = np.random.default_rng(seed)
    q = shape(rng, n * draws)
    size = 10.0 ** rng.uniform(-4, 0.5, (40, 1))
    other = np.where(rng.random((40, n * draws)) < 0.1, rng.permutation(q), q + size * shape(rng, n * draws))
    without = np.where(np.repeat(rng.random((40, n)) < share, draws, axis=1), other, q)
    if draws > 1:
        q, without = q.reshape(n, draws), without.reshape(40, n, draws)
    return ground_of(empriv.measure(q, without))


def found(where: Ground, inner: int = 0) -> Ends:
    assert ends.ends is not None
    depth = int(0.05 * len(where.values.points))
    return ends.ends(
        where.values, np.arange(40), np.exp(GRID), np.arange(40) < inner, depth=depth, level=0.95,
        gap=5 * where.bandwidth, tolerance=where.tolerance,
    )  # fmt: skip


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    shape=st.sampled_from(SHAPES),
    n=st.sampled_from((30, 41, 90)),
    share=st.sampled_from((0.03, 0.3, 1.0)),
    draws=st.sampled_from((1, 2, 5)),
)
def test_it_sees_what_numpy_sees(
    seed: int, shape: Callable[[np.random.Generator, int], FloatArray], n: int, share: float, draws: int
) -> None:
    where = ground(seed, shape, n, share, draws)
    mine, without = found(where), where.values.dense(np.arange(40))
    edges = _edges(where.values.points, without, np.exp(GRID), draws, 0.95)
    np.testing.assert_allclose(mine.edges - 1 / n, edges, rtol=1e-11, atol=1e-14)
    merged = Merged.of(where.values.points, without, None, where.tolerance)
    np.testing.assert_array_equal(mine.runs, end_runs(merged, 5 * where.bandwidth))
    three = np.any(merged.x[:, 2:] - merged.x[:, :-2] <= merged.tolerance, axis=1)
    np.testing.assert_array_equal(mine.tied, three)
    ties = found(where, inner=30)  # the first thirty are looked at for ties alone
    np.testing.assert_array_equal(ties.tied, three)
    np.testing.assert_array_equal(ties.edges[30:], mine.edges[30:])
    np.testing.assert_array_equal(ties.runs[:30], 0)


def both_ways(where: Ground, monkeypatch: pytest.MonkeyPatch, grid: FloatArray = GRID) -> tuple[Upper, Upper]:
    quick = upper_bounds(where, grid, 0.95)
    with monkeypatch.context() as patch:
        patch.setattr(ends, "ends", None)
        patch.setattr(structure, "compiled", None)
        return quick, upper_bounds(where, grid, 0.95)


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.03, 0.3, 1.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_upper_bound_is_another(
    shape: Callable[[np.random.Generator, int], FloatArray], share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        n, draws = (30, 4) if seed == 2 else (60, 1)
        quick, slow = both_ways(ground(seed, shape, n, share, draws), monkeypatch)
        np.testing.assert_allclose(quick.upper_i, slow.upper_i, rtol=1e-9)
        np.testing.assert_allclose(quick.total, slow.total, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(quick.exponent, slow.exponent, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(quick.spread, slow.spread, rtol=1e-9, atol=1e-9)


def test_a_falsehood_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    where = ground(1, smooth, 60, 1.0)
    quick, _ = both_ways(where, monkeypatch)
    _, slow = both_ways(where, monkeypatch, GRID * 1.01)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(quick.upper_i, slow.upper_i, rtol=1e-11)


def test_the_order_of_epsilons_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    where = ground(2, smooth, 60, 0.3)
    quick, _ = both_ways(where, monkeypatch)
    turned, _ = both_ways(where, monkeypatch, GRID[::-1].copy())
    np.testing.assert_allclose(turned.upper_i[:, ::-1], quick.upper_i, rtol=1e-12)
    np.testing.assert_allclose(turned.exponent[::-1], quick.exponent, rtol=1e-12)


@pytest.mark.parametrize("n", [40, 150])
def test_ends_given_presence_agree_with_numpy(n: int) -> None:
    """People with many influences, with one, and one who is beyond everybody when they are there."""
    rng = np.random.default_rng(n)
    q = rng.normal(100, 5, n)
    amounts = rng.lognormal(0, 1, (8, n)) * (rng.random((8, n)) < rng.uniform(0.05, 0.9, (8, 1)))
    amounts[0] = np.where(np.arange(n) == 3, 1.0, 0.0)
    amounts[1] = np.where(np.arange(n) == 5, 60.0, 0.0)
    people = empriv.measure(q, q - amounts).given_presence().block(np.arange(8))
    assert people is not None
    assert people.weights.shape[1] > np.count_nonzero(people.weights[0]) == 1
    compiled, slow = (look(people, GRID, 0.95) for look in (present._ends, present.ends_in_numpy))
    assert np.allclose(compiled, slow, rtol=0, atol=1e-12)
    assert compiled[1].min() > 0.5 > compiled[0].max()
