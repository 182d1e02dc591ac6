"""Screening clears nobody whose densities differ by more than it says, and changes no figure."""

from __future__ import annotations

import numpy as np
import pytest

import empriv
from empriv.measuring.line.risk import Risk


def risk_of(seed: int, kernel: str, draws: int) -> Risk:
    """30 databases, 40 individuals who each change a few results, some by little and some by much."""
    rng = np.random.default_rng(seed)
    q = rng.normal(size=(30, draws))
    moved = np.repeat(rng.random((40, 30, 1)) < 0.2, draws, axis=2)
    shifts = rng.exponential(size=(40, 30, draws)) * rng.choice([-1.0, 1.0], (40, 30, draws))
    sizes = np.geomspace(0.0003, 0.5, 40)[:, None, None]
    return empriv.measure(q, np.where(moved, q + sizes * shifts, q), density=empriv.Kde(kernel, 0.4))


@pytest.mark.parametrize("draws", [1, 3])
@pytest.mark.parametrize("kernel", ["laplace", "logistic", "student", "gaussian"])
def test_nobody_is_cleared_wrongly(kernel: str, draws: int, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, slow = risk_of(1, kernel, draws), risk_of(1, kernel, draws)
    cleared = ~np.isin(np.arange(40), quick._subject_rows(0.1))
    assert 3 < cleared.sum() < 37
    monkeypatch.setattr(Risk, "_beyond", lambda self, shifts, epsilon: np.ones(len(shifts), bool))  # noqa: ARG005
    np.testing.assert_allclose(quick.delta_i(0.1), slow.delta_i(0.1), atol=1e-10)
    if kernel != "gaussian":  # whose ratio grows without bound far out, where next to nothing is
        assert np.all(slow.epsilon_i(0.0)[cleared] <= 0.1 + 1e-9)
        assert np.any(slow.epsilon_i(0.0)[~cleared] > 0.1)
