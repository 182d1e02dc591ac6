"""Random arguments to `measure`: one clear refusal, or figures that keep the laws of delta.

Seeded: a failure names its case. ``EMPRIV_FUZZ=5000`` runs so many cases in place of a few.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

import empriv
from empriv.errors import EmprivError
from empriv.results import Outcome, Results

N_CASES = int(os.environ.get("EMPRIV_FUZZ", "160"))
GROUPS = 8
EPSILONS = np.array([0.0, 1e-9, 0.01, 0.1, 0.5, 1.0, 3.0, 20.0, 800.0, np.inf])
SCALES = [1.0, 1.0, 1.0, 1e-3, 1e6, 1e-20, 1e20, 1e-140, 1e140]
BEYOND = [1e-320, 1e-305, 1e-300, 1e-200, 1e200, 1e300]


@dataclass(frozen=True)
class Case:
    """What `measure` is given, and whether its numbers are such as a double can reckon with."""

    results: Results
    density: Any
    sane: bool


def make(rng: np.random.Generator) -> Case:
    n = int(rng.choice([1, 2, 3, 5, 12, 40]))
    people = int(rng.choice([1, 2, 4, 9]))
    draws = int(rng.choice([0, 0, 0, 2, 3]))
    shape = (n, draws) if draws else (n,)
    sane = bool(rng.random() < 0.85)
    scale = float(rng.choice(SCALES if sane else BEYOND))
    q = _values(rng, shape)
    offset = float(rng.choice([0.0, 0.0, 1.0, -1e3]))
    influence = float(rng.choice([0.0, 1e-12, 0.01, 0.3, 3.0, 1e4]))
    counts = rng.integers(0, n + 1, people)
    entry_database = np.concatenate([np.sort(rng.choice(n, count, replace=False)) for count in counts]).astype(np.int32)
    moved = influence * _values(rng, (len(entry_database), *shape[1:]))
    entry_q = q[entry_database] + moved * (rng.random(moved.shape) < rng.choice([0.2, 1.0]))
    outcomes, entry_outcomes = np.zeros(q.shape, np.int8), np.zeros(entry_q.shape, np.int8)
    if rng.random() < 0.25:
        outcomes = (rng.random(q.shape) < 0.3) * rng.integers(0, len(Outcome), q.shape)
        entry_outcomes = np.where(rng.random(entry_q.shape) < 0.9, outcomes[entry_database], 0)
    q, entry_q = (offset + q) * scale, (offset + entry_q) * scale
    results = Results(
        q=np.where(outcomes == 0, q, np.nan),
        outcomes=outcomes.astype(np.int8),
        databases=np.arange(n),
        individuals=np.array([f"person {i}" for i in range(people)]),
        starts=np.concatenate(([0], np.cumsum(counts))).astype(np.int64),
        entry_database=entry_database,
        entry_q=np.where(entry_outcomes == 0, entry_q, np.nan),
        entry_outcomes=entry_outcomes.astype(np.int8),
        draws=draws or None,
    )
    kernel = str(rng.choice(["laplace", "gaussian", "logistic", "epanechnikov", "student"]))
    bandwidth = float(rng.choice([0.05, 0.5, 4.0])) * scale
    given = empriv.Kde(kernel, bandwidth)
    densities: list[Any] = [None, None, given, given, empriv.Kde(kernel), empriv.Ecdf()]
    return Case(results, densities[int(rng.integers(len(densities)))], sane)


def _values(rng: np.random.Generator, shape: tuple[int, ...]) -> Any:
    match int(rng.integers(6)):
        case 0:
            return rng.integers(-3, 4, shape).astype(float)
        case 1:
            return rng.standard_cauchy(shape)
        case 2:
            return np.full(shape, 0.5)
        case 3:
            return np.round(rng.normal(size=shape), 1)
        case _:
            return rng.normal(size=shape)


def figures(case: Case) -> tuple[Any, Any]:
    risk = empriv.measure(case.results, density=case.density)
    return risk, risk.delta_i(EPSILONS)


@pytest.mark.parametrize("group", range(GROUPS))
def test_what_is_measured_keeps_the_laws(group: int) -> None:
    measured = 0
    for number in range(group, N_CASES, GROUPS):
        case = make(np.random.default_rng([2024, number]))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                risk, delta_i = figures(case)
            except EmprivError:
                continue
            measured += 1
            check(case, risk, delta_i, f"case {number}")
    assert measured > N_CASES // GROUPS // 2, "most cases are measured"


def check(case: Case, risk: Any, delta_i: Any, name: str) -> None:
    results = case.results
    assert delta_i.shape == (results.n_individuals, len(EPSILONS)), name
    assert np.isfinite(delta_i).all(), name
    assert (delta_i >= 0).all(), name
    assert (delta_i <= 1).all(), name
    assert (np.diff(delta_i, axis=1) <= 1e-11).all(), name
    delta, total = risk.delta(EPSILONS), risk.total_risk(EPSILONS)
    assert (delta == delta_i.max(axis=0)).all(), name
    assert (delta <= total).all(), name
    assert (total <= 1).all(), name
    for epsilon, at in zip(EPSILONS[2:7:2].tolist(), delta[2:7:2].tolist(), strict=True):
        if 0 < at < 1:
            # epsilon(delta(e)) <= e, but for the slack that delta is overstated by
            reached = risk.epsilon(min(1.0, at * (1 + 1e-9) + 1e-11))
            assert reached <= epsilon * (1 + 1e-6) + 1e-9, name
    for wanted in (0.0, 0.01):
        reached = risk.epsilon(wanted)
        assert reached >= 0, name
        if reached < 700:  # beyond, e^epsilon is no double, and delta_i is overstated
            assert risk.delta(reached * (1 + 1e-9) + 1e-12) <= wanted + 1e-9, name

    order = np.random.default_rng(0).permutation(results.n_individuals)
    _, permuted = figures(replace(case, results=_reordered(results, order)))
    np.testing.assert_allclose(permuted, delta_i[order], rtol=0, atol=1e-12, err_msg=name)
    if isinstance(case.density, empriv.Ecdf):
        return  # windows of an even number of gaps lean to one side
    _, mirrored = figures(replace(case, results=_mirrored(results)))
    np.testing.assert_allclose(mirrored, delta_i, rtol=0, atol=1e-9, err_msg=name)


def _reordered(results: Results, order: Any) -> Results:
    entries = np.concatenate([np.arange(results.starts[i], results.starts[i + 1]) for i in order]).astype(int)
    return replace(
        results,
        individuals=results.individuals[order],
        starts=np.concatenate(([0], np.cumsum(results.presence[order]))).astype(np.int64),
        entry_database=results.entry_database[entries],
        entry_q=results.entry_q[entries],
        entry_outcomes=results.entry_outcomes[entries],
    )


def _mirrored(results: Results) -> Results:
    return replace(results, q=-results.q, entry_q=-results.entry_q)


def test_a_falsehood_is_seen() -> None:
    """The laws are no empty words: figures that break one are refused."""
    case = next(
        case for case in (make(np.random.default_rng([2024, k])) for k in range(99))
        if case.sane and case.density is None and case.results.n_individuals > 1 and not case.results.outcomes.any()
        and case.results.n_databases > 10 and figures(case)[1][:, 3].max() > 0.01
    )  # fmt: skip
    risk, delta_i = figures(case)
    check(case, risk, delta_i, "as it is")
    for false in (delta_i + 1.0, delta_i[:, ::-1], np.roll(delta_i, 1, axis=0)):
        with pytest.raises(AssertionError):
            check(case, risk, false, "false")


@pytest.mark.parametrize("number", range(60))
def test_arrays_of_any_kind_are_measured_or_refused(number: int) -> None:
    rng = np.random.default_rng([7, number])
    pick: list[Any] = [
        np.asarray, np.asfortranarray, np.ndarray.tolist, lambda a: a + 1j, lambda a: a > 0, lambda a: a[..., None],
        lambda a: a[:0], lambda a: a[0], lambda a: [*a.tolist(), [1.0, [2.0]]], lambda _: None, lambda _: "text",
        lambda a: np.where(rng.random(a.shape) < 0.2, np.nan, a), lambda a: np.where(a > 1.0, np.inf, a),
        lambda a: a.astype(np.longdouble) * np.longdouble("1e400"), lambda a: np.full(a.shape, 10**400, object),
        lambda a: np.ma.masked_greater(a, 0.5), lambda a: a.astype(str).astype(object), lambda a: a * 1e-300,
        *(lambda a, kind=kind: a.astype(kind) for kind in (str, object, "M8[s]", np.float32, [("x", "f8")])),
    ]  # fmt: skip
    q = rng.normal(size=9)
    without = q + 0.2 * rng.normal(size=(3, 9))
    first, second = (pick[int(k)] for k in rng.integers(0, len(pick), 2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            delta = empriv.measure(first(q), second(without)).delta(0.1)
        except EmprivError:
            return
    assert 0 <= delta <= 1
