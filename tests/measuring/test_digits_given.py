"""Last digits given what is known: they count as they are in the results."""

from __future__ import annotations

import numpy as np
import pytest

import empriv
from empriv.measuring.given.given_risk import atom_curves, atom_epsilons
from empriv.measuring.line.risk import pairs_of
from empriv.results import FloatArray, Results


def comb(n: int, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    return np.round(rng.normal(0, 20, n)) + rng.normal(0, 0.03, n)


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
    others = comb(100, 4)
    moved = others + np.where(np.arange(100) < 60, 0.4, 0.0)
    pairs = pairs_of(Results.from_arrays(moved, [others]), look=True)
    for delta in (0.05, 0.2, 0.4):
        epsilon = atom_epsilons(pairs, delta)
        if np.isfinite(epsilon[0]) and epsilon[0] > 0:
            assert atom_curves(pairs, epsilon)[0, 0] == pytest.approx(delta, abs=1e-9)
            assert atom_curves(pairs, 0.99 * epsilon)[0, 0] > delta
        else:
            assert atom_curves(pairs, np.array([690.0]))[0, 0] > delta
