"""Last digits given presence, and given what is known: they count as they are in the results."""

from __future__ import annotations

import numpy as np
import pytest

import empriv
from empriv.measuring.given.given_risk import atom_curves, atom_epsilons
from empriv.measuring.given.presence import PresenceRisk, presence_of
from empriv.measuring.line.risk import measure_line, pairs_of
from empriv.results import FloatArray, Results


def comb(n: int, seed: int) -> FloatArray:
    rng = np.random.default_rng(seed)
    return np.round(rng.normal(0, 20, n)) + rng.normal(0, 0.03, n)


@pytest.mark.parametrize("share", [0.03, 0.5])
def test_somebody_who_is_seldom_there_is_told_by_the_digits_when_there(share: float) -> None:
    others = comb(100, 1)
    there = np.arange(100) < 100 * share
    q = others + np.where(there, 0.4, 0.0)
    presence = presence_of(measure_line(Results.from_arrays(q, [others, q - 2.0 * there])))
    delta = presence.delta_i(0.1)
    assert delta[0] > 0.85
    assert delta[1] < 0.1, "whole numbers leave the digits as they are"


def test_no_digits_no_change(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    q = rng.normal(size=100)
    results = Results.from_arrays(q, q - rng.exponential(0.2, (5, 100)))
    looking = presence_of(measure_line(results)).delta_i(0.1)
    monkeypatch.setattr(PresenceRisk, "_digits", {})
    assert np.array_equal(looking, presence_of(measure_line(results)).delta_i(0.1))


def test_digits_count_whatever_is_known() -> None:
    rng = np.random.default_rng(3)
    known = rng.normal(0, 20, 100)
    others = np.round(known + rng.normal(0, 3, 100)) + rng.normal(0, 0.03, 100)
    results = Results.from_arrays(others + 0.4, [others])
    risk = empriv.measure(results, known=empriv.Given(known))
    assert risk.delta(0.1) > 0.85
    assert risk.epsilon(0.5) > 0.5
    assert not risk.pairs.residues, "what a regression leaves over has no last digits"


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
