"""People given presence where some outcomes are no numbers: a block of them equals each of them, one by one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from empriv.measuring.given import compiled_blocks
from empriv.measuring.given.presence import PresenceRisk, presence_of
from empriv.measuring.line.risk import measure_line
from empriv.results import FloatArray, Results

EPSILONS = np.array([0.0, 0.05, 0.3, 1.0, 3.0])

needs_compiler = pytest.mark.skipif(
    compiled_blocks.compiled is None, reason="a C compiler: pip install -e . where there is one"
)


def cell_of(
    rng: np.random.Generator,
    scale: Callable[[FloatArray], FloatArray],
    *,
    mean: float,
    rest: float = 0.0,
    amounts: Callable[[int], FloatArray] = np.ones,
    kind: int = 1,
) -> Results:
    """A cell that a crowd and some people are in now and then: without anybody in it there is no number.

    ``rest`` is the standard deviation of what other cells foretell, which is taken off.
    """
    days, people = 120, 12
    crowd = rng.poisson(mean, days).astype(float)
    there = rng.random((people, days)) < rng.uniform(0.03, 0.1, people)[:, None]
    count = crowd + there.sum(axis=0)
    amount = np.where(there, amounts(people * days).reshape(people, days), 0.0)
    total = crowd + amount.sum(axis=0)
    owner, at = np.nonzero(there)
    empty, gone = count == 0, (count[at] == 1)
    with np.errstate(invalid="ignore", divide="ignore"):
        taken_off = rng.normal(0.0, rest, days)
        q = np.where(empty, np.nan, scale(total) - taken_off)
        left = np.where(gone, np.nan, scale(total[at] - amount[owner, at]) - taken_off[at])
    return Results(
        q=q,
        outcomes=np.where(empty, kind, 0).astype(np.int8),
        databases=np.arange(days),
        individuals=np.arange(people),
        starts=np.concatenate(([0], np.cumsum(there.sum(axis=1)))).astype(np.int64),
        entry_database=at.astype(np.int32),
        entry_q=left,
        entry_outcomes=np.where(gone, kind, 0).astype(np.int8),
    )


def in_blocks(results: Results, *, digits: bool = False) -> PresenceRisk:
    return replace(presence_of(measure_line(results, digits=digits)), exact=0, digits=digits)


@needs_compiler
@pytest.mark.parametrize(
    ("scale", "mean", "rest", "kind", "digits"),
    [
        (np.asarray, 2.5, 0.0, 1, True),  # counts, which are on a lattice
        (np.asarray, 4.0, 0.0, 3, False),
        (np.asarray, 2.0, 0.5, 1, False),
        (np.sqrt, 2.0, 0.2, 1, False),
        (np.log, 3.0, 0.2, 2, False),
    ],
)
def test_a_block_equals_people_one_by_one(
    scale: Callable[[FloatArray], FloatArray], mean: float, rest: float, kind: int, digits: bool
) -> None:
    rng = np.random.default_rng(int(10 * mean))
    results = cell_of(rng, scale, mean=mean, rest=rest, kind=kind)
    present = in_blocks(results, digits=digits)
    apart = present._outcomes_apart
    assert apart is not None
    rows = np.flatnonzero(np.diff(results.starts) > 0)
    curves, plain = apart.curves(rows, EPSILONS)
    assert plain.sum() >= len(rows) / 2
    one_by_one = np.stack([present.curve_of(int(row), EPSILONS) for row in rows])
    np.testing.assert_allclose(curves[plain], one_by_one[plain], rtol=0, atol=1e-10)
    assert one_by_one.max() > 0.05  # there is something to be equal about
    np.testing.assert_allclose(present.curves(EPSILONS)[rows], one_by_one, rtol=0, atol=1e-10)


@needs_compiler
def test_amounts_that_differ_and_narrow_the_spread() -> None:
    rng = np.random.default_rng(5)
    results = cell_of(rng, np.asarray, mean=3.0, rest=0.3, amounts=lambda k: rng.exponential(6.0, k))
    present = in_blocks(results)
    rows = np.flatnonzero(np.diff(results.starts) > 0)
    one_by_one = np.stack([present.curve_of(int(row), EPSILONS) for row in rows])
    np.testing.assert_allclose(present.curves(EPSILONS)[rows], one_by_one, rtol=0, atol=1e-10)


def with_person(others: FloatArray, change: FloatArray, missing: int) -> Results:
    """One person in every second database, with the first ``missing`` results no numbers for anybody."""
    n = len(others)
    at = np.arange(0, n, 2)
    outcomes = (np.arange(n) < missing).astype(np.int8)
    q = others.copy()
    q[at] += change
    return Results(
        q=np.where(outcomes == 0, q, np.nan),
        outcomes=outcomes,
        databases=np.arange(n),
        individuals=np.array([0]),
        starts=np.array([0, len(at)]),
        entry_database=at.astype(np.int32),
        entry_q=np.where(outcomes[at] == 0, others[at], np.nan),
        entry_outcomes=outcomes[at],
    )


@needs_compiler
@pytest.mark.parametrize("case", ["common", "off the lattice", "round with them", "far away"])
def test_whoever_may_have_an_atom_of_numbers_is_looked_at_alone(case: str) -> None:
    rng = np.random.default_rng(1)
    n = 60
    others, change = rng.normal(50.0, 5.0, n), np.full(n // 2, 3.0)
    if case == "common":
        others[: 2 * n // 3] = 40.0
    elif case == "off the lattice":
        others, change = np.round(others), np.full(n // 2, 0.5)
    elif case == "round with them":
        others, change = np.round(others) + np.sqrt(2) / 3, np.full(n // 2, 3.0 - np.sqrt(2) / 3)
    else:
        change = np.full(n // 2, 1e6)
    present = in_blocks(with_person(others, change, 4))
    apart = present._outcomes_apart
    if apart is not None:
        assert not apart.curves(np.array([0]), EPSILONS)[1].any()
    assert present.curves(EPSILONS)[0] == pytest.approx(present.curve_of(0, EPSILONS), abs=1e-12)


def test_digits_are_looked_for_where_they_are_asked_for() -> None:
    """Most counts of a crowd are even, and one person is odd: their last digit tells, and a regression leaves none."""
    rng = np.random.default_rng(2)
    results = with_person(2.0 * rng.poisson(60.0, 60) + (rng.random(60) < 0.1), np.ones(30), 3)
    looked, not_looked = (in_blocks(results, digits=digits).delta(0.5) for digits in (True, False))
    assert looked > 0.5 > not_looked
