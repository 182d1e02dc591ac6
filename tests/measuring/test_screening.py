"""Screening clears nobody whose densities differ by more than it says, and the compiled path says what numpy says."""

from __future__ import annotations

import numpy as np
import pytest

import empriv
from empriv.measuring.line import compiled
from empriv.measuring.line.risk import Risk
from empriv.measuring.line.screening import _kernel_sums, kernels_at_points, log_reach
from empriv.results import FloatArray


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


@pytest.mark.parametrize("bandwidth", [1e-4, 0.1, 10.0])
@pytest.mark.skipif(
    compiled.reach is None, reason="empriv was built without a C compiler: install one, and empriv anew"
)
def test_the_compiled_path_agrees_with_numpy(bandwidth: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed, share, size, atoms, draws in (
        (1, 0.2, 0.1, False, None),
        (2, 1.0, 3.0, True, None),
        (3, 0.5, 1e-3, False, 2),
    ):
        risk = risk_of(seed, share, size, atoms, draws)
        mine = reach_of(risk, bandwidth)
        with monkeypatch.context() as patch:
            patch.setattr(compiled, "reach", None)
            theirs = reach_of(risk, bandwidth)
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)
        assert not np.allclose(1.001 * mine, theirs, rtol=1e-5)


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


def test_screening_changes_no_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(4):
        quick, slow = sparse(seed), sparse(seed)
        monkeypatch.setitem(slow.__dict__, "_reaches", slow.shifts)
        for grid in ([0.01, 0.05, 0.1], [0.3]):
            np.testing.assert_array_equal(quick.delta_i(grid), slow.delta_i(grid))
        assert quick.epsilon(0.0) == slow.epsilon(0.0)
        assert len(quick._subject_rows(0.1)) < len(slow._subject_rows(0.1))


def test_kernels_at_points_are_the_sums_of_ones() -> None:
    decay = np.exp(-np.random.default_rng(3).exponential(size=50))
    decay[20], decay[[7, 30, 31, 32, 49]] = 0.0, 1.0  # far from what is before it; tied with it
    found = kernels_at_points(decay)
    np.testing.assert_allclose(found, _kernel_sums(np.ones((50, 1)), decay)[:, 0], rtol=1e-13)
    places = np.concatenate(([0.0], np.cumsum(-np.log(np.maximum(decay[1:], 1e-300)))))
    np.testing.assert_allclose(found, np.exp(-np.abs(places[:, None] - places)).sum(axis=1), rtol=1e-9)
