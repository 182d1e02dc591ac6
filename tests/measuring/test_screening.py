"""Screening clears nobody whose densities differ by more than it says, and its bound is that of its formula."""

from __future__ import annotations

import numpy as np
import pytest

import empriv
from empriv.measuring.line import laplace
from empriv.measuring.line.laplace import log_reach
from empriv.measuring.line.risk import Risk
from empriv.results import FloatArray

COMPILED = pytest.mark.skipif(
    laplace.compiled_reach is None, reason="empriv was built without a C compiler: install one, and empriv anew"
)


def risk_of(seed: int, share: float, size: float, atoms: bool = False, draws: int | None = None) -> Risk:
    """30 databases, 40 individuals who each change a share of the results."""
    rng = np.random.default_rng(seed)
    shape = (30,) if draws is None else (30, draws)
    q = rng.normal(size=shape)
    moved = rng.random((40, 30)) < share
    if atoms:  # most databases have the same result, whoever is left out
        q[:17] = 0.0
        moved[:, :17] = False
    if draws is not None:
        moved = np.repeat(moved[:, :, None], draws, axis=2)
    shifts = size * rng.exponential(size=(40, *shape)) * rng.choice([-1.0, 1.0], (40, *shape))
    return empriv.measure(q, np.where(moved, q + shifts, q))


def reach_of(risk: Risk, bandwidth: float) -> FloatArray:
    shifts = risk.shifts * risk.density.bandwidth / bandwidth  # type: ignore[union-attr]
    return log_reach(risk.pairs, np.arange(40), bandwidth=bandwidth, shifts=shifts)


@COMPILED
@pytest.mark.slow
@pytest.mark.parametrize("atoms", [False, True])
@pytest.mark.parametrize("draws", [None, 3])
@pytest.mark.parametrize(("share", "size"), [(0.05, 0.02), (0.3, 0.1), (1.0, 0.5), (0.1, 30.0)])
def test_nobody_is_cleared_wrongly(share: float, size: float, draws: int | None, atoms: bool) -> None:
    tighter = 0
    for seed in range(5):
        risk = risk_of(seed, share, size, atoms, draws)
        bound, truth = reach_of(risk, risk.density.bandwidth), risk.epsilon_i(0.0)  # type: ignore[union-attr]
        if risk.pairs.ratios is not None:  # who narrows the results has a bandwidth of their own
            truth = np.where(risk.pairs.ratios < 1, 0.0, truth)
        assert np.all(bound >= truth * (1 - 1e-12))
        assert np.all(bound <= risk.shifts)
        assert np.any(0.2 * bound < truth), "a fifth of it would clear somebody wrongly"
        tighter += np.count_nonzero(bound < 0.7 * risk.shifts)
    assert tighter > 0 or size > 1


@COMPILED
@pytest.mark.parametrize("bandwidth", [0.01, 0.1, 10.0])
def test_the_reach_is_the_largest_average_growth_of_the_kernels(bandwidth: float) -> None:
    """log(1 + sum_j k_j (e^(s_j) - 1) / sum_j k_j), the largest over the points, or the largest shift."""
    for seed, share, size, atoms, draws in (
        (1, 0.2, 0.1, False, None),
        (3, 0.5, 1e-3, False, 2),
        (4, 0.2, 0.1, True, 2),
    ):
        pairs = risk_of(seed, share, size, atoms, draws).pairs
        points, without = pairs.points, pairs.dense(np.arange(40))
        here = np.isfinite(points)
        kernels = np.exp(-np.abs(points[here][:, None] - points[here]) / bandwidth)
        changes = np.abs(without[:, here] - points[here]) / bandwidth
        growth = (np.expm1(np.minimum(changes, 100.0)) @ kernels / kernels.sum(axis=0)).max(axis=1)
        found = log_reach(pairs, np.arange(40), bandwidth=bandwidth, shifts=np.full(40, 99.0))
        expected = np.minimum(np.log1p(growth), 99.0)
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-9)
        assert not np.allclose(1.001 * found, expected, rtol=1e-5)


def sparse(seed: int) -> Risk:
    """40 individuals who are in 6 of 30 databases each."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=30)
    where = np.sort(np.stack([rng.permutation(30)[:6] for _ in range(40)]), axis=1)
    found: Risk = empriv.measure(
        empriv.Results(
            q=q,
            outcomes=np.zeros(30, np.int8),
            databases=np.arange(30),
            individuals=np.arange(40),
            starts=np.arange(0, 241, 6),
            entry_database=where.ravel().astype(np.int32),
            entry_q=(q[where] + 0.1 * rng.normal(size=where.shape)).ravel(),
            entry_outcomes=np.zeros(240, np.int8),
        )
    )
    return found


@COMPILED
def test_screening_changes_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        quick, slow = sparse(seed), sparse(seed)
        monkeypatch.setitem(slow.__dict__, "_reaches", slow.shifts)
        for grid in ([0.01, 0.05, 0.1], [0.3]):
            np.testing.assert_array_equal(quick.delta_i(grid), slow.delta_i(grid))
        assert quick.epsilon(0.0) == slow.epsilon(0.0)
        assert len(quick._subject_rows(0.1)) < len(slow._subject_rows(0.1))
