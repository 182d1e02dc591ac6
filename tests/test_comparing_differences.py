"""Which differences are called real: the truth is accepted, falsehoods are not. benchmarks/compare.py counts more."""

from __future__ import annotations

import numpy as np
import pytest

import empriv
from empriv.comparing import compare
from empriv.comparing.differences import normalise
from empriv.errors import InputError
from empriv.measuring.densities.density import Kde, Mixture
from empriv.results import FloatArray, IntArray


def influences(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.exponential(0.1, size=(20, 1)) * rng.exponential(1.0, size=(20, n))


def made(q: FloatArray, changed: FloatArray) -> empriv.Results:
    return empriv.Results.from_arrays(q, q - changed)


def verdicts(first: empriv.Results, second: empriv.Results) -> dict[str, str]:
    found = compare({"first": first, "second": second}, epsilon=0.1).differences()
    return {one.figure: one.verdict for one in found}


@pytest.mark.slow
def test_halved_influence_is_a_real_difference() -> None:
    rng = np.random.default_rng(3)
    q, changed = rng.normal(size=41), influences(rng, 41)
    found = compare({"raw": made(q, changed), "halved": made(q, changed / 2)}, epsilon=0.1).differences()
    by_delta = next(one for one in found if one.figure == "delta")
    assert by_delta.verdict == "real"
    assert 0 < by_delta.lower <= by_delta.difference <= by_delta.upper
    assert "raw has more delta at epsilon 0.1 than halved" in by_delta.sentence
    swapped = compare({"halved": made(q, changed / 2), "raw": made(q, changed)}, epsilon=0.1).differences()
    assert "halved has less delta" in next(one for one in swapped if one.figure == "delta").sentence


@pytest.mark.slow
def test_the_same_law_is_no_real_difference() -> None:
    real = 0
    for seed in range(3):
        rng = np.random.default_rng(seed)
        base, changed = rng.normal(size=41), influences(rng, 41)
        noisy = [made(base + rng.normal(size=41), changed) for _ in range(2)]
        real += "real" in verdicts(*noisy).values()
    assert real == 0  # of three, where each has at most one chance in twenty


@pytest.mark.slow
def test_a_scale_makes_no_difference() -> None:
    """delta is that of sinh(answer) too, but its estimate is not: they agree only once normalised."""
    rng = np.random.default_rng(1)
    q, changed = rng.normal(size=41), influences(rng, 41)
    plain = made(q, changed)
    bent = empriv.Results.from_arrays(np.sinh(2 * q), np.sinh(2 * (q - changed)))
    assert verdicts(plain, bent) == {"delta": "cannot be told", "total_risk": "cannot be told"}
    assert empriv.measure(bent).delta(0.1) > 1.5 * empriv.measure(plain).delta(0.1)
    assert empriv.measure(normalise(bent)).delta(0.1) == pytest.approx(
        empriv.measure(normalise(plain)).delta(0.1), rel=0.1
    )
    linear = made(1000 * q, 1000 * changed)
    assert verdicts(plain, linear)["delta"] == "none"


@pytest.mark.slow
def test_the_same_results_are_exactly_no_difference() -> None:
    rng = np.random.default_rng(2)
    one = made(rng.normal(size=41), influences(rng, 41))
    found = compare({"a": one, "b": one}, epsilon=(0.1, 1.0)).differences()
    assert [(one.difference, one.lower, one.upper, one.verdict) for one in found] == [(0.0, 0.0, 0.0, "none")] * 4
    assert "have the same delta" in found[0].sentence


def test_few_databases_tell_nothing() -> None:
    rng = np.random.default_rng(2)
    q = rng.normal(size=11)
    changed = influences(rng, 11)
    found = compare({"a": made(q, 10 * changed), "b": made(q, 0 * changed)}, epsilon=0.1).differences()
    assert {(one.lower, one.upper, one.verdict) for one in found} == {(-1.0, 1.0, "cannot be told")}
    assert found[0].difference > 0


@pytest.mark.slow
def test_more_pairs_make_intervals_wider() -> None:
    rng = np.random.default_rng(4)
    q, changed = rng.normal(size=41), influences(rng, 41)
    all_of = {f"to {k}": made(q + rng.normal(size=41), changed) for k in range(4)}
    two = {name: all_of[name] for name in list(all_of)[:2]}
    alone = next(one for one in compare(two, epsilon=0.1).differences())
    among = next(one for one in compare(all_of, epsilon=0.1).differences())
    assert (alone.first, alone.second) == (among.first, among.second)
    assert among.upper - among.lower > alone.upper - alone.lower


@pytest.mark.slow
def test_atoms_draws_and_constants() -> None:
    rng = np.random.default_rng(7)
    drawn = rng.normal(size=(30, 8))
    randomised = empriv.Results.from_arrays(drawn, drawn + 0.05 * rng.normal(size=(4, 30, 8)))
    constant = empriv.Results.from_arrays(np.full(30, 7.0), np.full((4, 30), 7.0))
    leak = empriv.Results.from_arrays(np.full(30, 7.0), np.concatenate((np.full((3, 30), 7.0), np.full((1, 30), 8.0))))
    found = compare({"randomised": randomised, "constant": constant, "leak": leak}, epsilon=0.1).differences()
    told = {(one.first, one.second): one for one in found if one.figure == "delta"}
    assert told["constant", "leak"].verdict == "real"
    assert told["constant", "leak"].difference == pytest.approx(-1.0)
    assert told["randomised", "leak"].verdict == "real"


def test_evening_keeps_order_and_what_is_no_number() -> None:
    rng = np.random.default_rng(0)
    q = rng.standard_t(2, size=60)
    results = made(q, np.full((2, 60), 0.1))
    even = normalise(results)
    assert np.array_equal(np.argsort(even.q), np.argsort(results.q))
    assert abs(float(np.median(even.q))) < 0.01
    assert 1.5 < float(even.q[np.argsort(q)[-2]]) < 3.5
    tied = made(np.repeat([1.0, 2.0], 30), np.full((2, 60), 0.1))
    assert normalise(tied) is tied


class Choosy:
    """A density that cannot be fitted to fewer than 30 points."""

    def fit(self, points: FloatArray, databases: IntArray) -> Mixture:
        if len(points) < 30:
            raise InputError("`points` must be 30 or more.")
        return Kde().fit(points, databases)


def test_what_cannot_be_measured_on_halves_may_be_anything() -> None:
    rng = np.random.default_rng(3)
    q, changed = rng.normal(size=41), influences(rng, 41)
    both = {"raw": made(q, changed), "halved": made(q, changed / 2)}
    found = compare(both, epsilon=0.1, density=Choosy()).differences()
    assert {(one.lower, one.upper, one.verdict) for one in found} == {(-1.0, 1.0, "cannot be told")}


def test_a_stated_bandwidth_is_taken_as_stated() -> None:
    rng = np.random.default_rng(3)
    q, changed = rng.normal(size=41), influences(rng, 41)
    both = {"raw": made(q, changed), "halved": made(q, changed / 2)}
    found = compare(both, epsilon=0.1, density=Kde("laplace", 0.5)).differences()
    assert next(one for one in found if one.figure == "delta").verdict == "real"
