"""Tallies merge in any order and grouping; where memory does not suffice, stretches are halved."""

from __future__ import annotations

import numpy as np
import pyarrow
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import empriv
from empriv.errors import QueryError
from empriv.results import Results
from empriv.scale import cluster, stretches
from empriv.scale.stretches import Yardstick, measure_stretch, measure_within_memory, nobody_listed, yardstick_of
from empriv.scale.tally import EDGES, Tally, from_bytes, merge_all, riskiest_rows, to_bytes, with_absent
from empriv.validate.checks.robustness import subset

EPSILONS = (0.05, 0.2)


def results(people: int = 24, databases: int = 40) -> Results:
    rng = np.random.default_rng(2)
    q = rng.normal(size=databases)
    influence = rng.lognormal(-3.5, 1.5, (people, 1)) * (rng.random((people, databases)) < 0.4)
    return Results.from_arrays(q, q - influence)


def yardstick(found: Results, top: int = 3) -> Yardstick:
    everyone = nobody_listed(found.q, found.outcomes, found.databases)
    return yardstick_of(
        everyone,
        empriv.Kde(),
        epsilons=EPSILONS,
        deltas=(0.0,),
        level=0.95,
        top=top,
        bounds=True,
        people=found.n_individuals,
    )


def same(one: Tally, other: Tally) -> None:
    assert (one.n_individuals, one.n_entries, one.leaks) == (other.n_individuals, other.n_entries, other.leaks)
    for name in ("worst", "exposed", "histogram", "epsilon_at", "not_numbers", "riskiest_delta_i"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in ("kept", "upper"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12, err_msg=name)
    np.testing.assert_array_equal(one.riskiest.individuals, other.riskiest.individuals)
    np.testing.assert_array_equal(one.riskiest.entry_q, other.riskiest.entry_q)


WHOLE = results()
STICK = yardstick(WHOLE)
ALL = measure_stretch(STICK, WHOLE).tally


@settings(max_examples=15)
@given(st.permutations(range(24)), st.sets(st.integers(1, 23), max_size=5))
def test_any_parts_in_any_order_merge_into_the_whole(order: list[int], cuts: set[int]) -> None:
    parts = np.split(np.array(order), sorted(cuts))
    tallies = [measure_stretch(STICK, subset(WHOLE, part)).tally for part in parts]
    same(merge_all(tallies, top=3), ALL)


def test_a_missing_part_is_noticed() -> None:
    with pytest.raises(AssertionError):
        same(measure_stretch(STICK, subset(WHOLE, np.arange(23))).tally, ALL)


def test_bytes_hold_the_whole_tally() -> None:
    same(from_bytes(to_bytes(ALL), STICK.everyone), ALL)


def test_who_is_absent_is_counted_only() -> None:
    more = with_absent(ALL, 7)
    assert more.n_individuals == 31
    assert (more.histogram - ALL.histogram)[:, 0].tolist() == [7, 7]
    assert more.histogram.shape[1] == len(EDGES)


@given(st.integers(1, 9), st.integers(1, 60))
@settings(max_examples=30)
def test_the_riskiest_are_those_of_a_plain_sort(top: int, people: int) -> None:
    rng = np.random.default_rng(people)
    delta_i = np.round(rng.random((people, 2)), 1) * (rng.random((people, 2)) < [0.9, 0.1])  # with many ties and zeros
    influence, labels = np.round(rng.random(people), 1), rng.permutation(people)
    expected = set()
    for column in range(2):
        ordered = sorted(range(people), key=lambda i: (-delta_i[i, column], -influence[i], labels[i]))
        expected |= set(ordered[:top])
    assert set(riskiest_rows(delta_i, influence, labels, top).tolist()) == expected


def test_without_memory_stretches_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    original, sizes = stretches.measure_stretch, []

    def scarce(stick: Yardstick, some: Results, *, each: bool) -> stretches.Measured:
        if some.n_individuals > 7:
            raise MemoryError
        sizes.append(some.n_individuals)
        return original(stick, some, each=each)

    monkeypatch.setattr(stretches, "measure_stretch", scarce)
    same(merge_all((found.tally for found in measure_within_memory(STICK, WHOLE)), top=3), ALL)
    assert sizes == [6, 6, 6, 6]

    def none(*_: object, each: bool) -> stretches.Measured:  # noqa: ARG001 — as it is called
        raise MemoryError

    monkeypatch.setattr(stretches, "measure_stretch", none)
    with pytest.raises(QueryError, match="not enough memory"):
        list(measure_within_memory(STICK, WHOLE))


@pytest.mark.slow
@pytest.mark.parametrize("entries", [1, 50, 10_000])
@pytest.mark.parametrize("integers", [True, False])
def test_batches_of_entries_are_measured_whatever_their_size(entries: int, integers: bool) -> None:
    who = np.repeat(WHOLE.individuals, WHOLE.presence)
    table = pyarrow.table(
        {
            "individual": who if integers else np.char.add("p", np.char.zfill(who.astype(str), 2)),
            "database": WHOLE.entry_database,
            "q": WHOLE.entry_q,
        }
    )
    found = list(
        cluster.measured_batches(STICK, iter(table.to_batches(37)), each=True, integers=integers, entries=entries)
    )
    tally = from_bytes(found[-1]["tally"][0].as_py(), STICK.everyone)
    np.testing.assert_array_equal(tally.worst, ALL.worst)
    delta_i = np.array([row for batch in found[:-1] for row in batch["delta_i"].to_pylist()])
    np.testing.assert_array_equal(delta_i, measure_stretch(STICK, WHOLE).delta_i)
