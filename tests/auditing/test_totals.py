"""Totals merge in any order and grouping; where memory does not suffice, chunks are halved."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import empriv
from empriv.auditing import chunked
from empriv.auditing.chunked import (
    ChunkModel,
    ChunkOptions,
    measure_chunk,
    measure_within_memory,
    model_of,
    nobody_listed,
)
from empriv.auditing.totals import EDGES, Totals, merge_all, most_exposed_rows, with_absent
from empriv.errors import QueryError
from empriv.results import Results

EPSILONS = (0.05, 0.2)


def results(people: int = 24, databases: int = 40) -> Results:
    rng = np.random.default_rng(2)
    q = rng.normal(size=databases)
    influence = rng.lognormal(-3.5, 1.5, (people, 1)) * (rng.random((people, databases)) < 0.4)
    return Results.from_arrays(q, q - influence)


def model(found: Results, keep: int = 3) -> ChunkModel:
    everyone = nobody_listed(found.q, found.outcomes, found.databases)
    options = ChunkOptions(EPSILONS, (0.0,), empriv.Kde(), None, True, keep)
    return model_of(
        everyone, options, lambda *_: (None, None), people=found.n_individuals, n_components=None, positive=lambda: True
    )


def same(one: Totals, other: Totals) -> None:
    assert (one.n_individuals, one.n_entries, one.leaks) == (other.n_individuals, other.n_entries, other.leaks)
    for name in ("delta", "exposed", "histogram", "members", "epsilon_at", "not_numbers", "kept_delta_i"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)
    for name in ("log_safe", "upper"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-12, err_msg=name)
    np.testing.assert_array_equal(one.kept.individuals, other.kept.individuals)
    np.testing.assert_array_equal(one.kept.entry_q, other.kept.entry_q)


WHOLE = results()
MODEL = model(WHOLE)
ALL = measure_chunk(MODEL, WHOLE).totals


@pytest.mark.slow
@settings(max_examples=15)
@given(st.permutations(range(24)), st.sets(st.integers(1, 23), max_size=5))
def test_any_parts_in_any_order_merge_into_the_whole(order: list[int], cuts: set[int]) -> None:
    parts = np.split(np.array(order), sorted(cuts))
    parts_of_it = [measure_chunk(MODEL, WHOLE.of_individuals(part)).totals for part in parts]
    same(merge_all(parts_of_it, keep=3), ALL)


def test_a_missing_part_is_noticed() -> None:
    with pytest.raises(AssertionError):
        same(measure_chunk(MODEL, WHOLE.of_individuals(np.arange(23))).totals, ALL)


def test_bytes_hold_all_totals() -> None:
    same(Totals.from_bytes(ALL.to_bytes(), MODEL.everyone), ALL)


def test_who_is_absent_is_counted_only() -> None:
    more = with_absent(ALL, 7)
    assert more.n_individuals == 31
    assert (more.histogram - ALL.histogram)[:, 0].tolist() == [7, 7]
    assert more.histogram.shape[1] == len(EDGES)


@given(st.integers(1, 9), st.integers(1, 60))
@settings(max_examples=30)
def test_the_most_exposed_are_those_of_a_plain_sort(top: int, people: int) -> None:
    rng = np.random.default_rng(people)
    delta_i = np.round(rng.random((people, 2)), 1) * (rng.random((people, 2)) < [0.9, 0.1])  # with many ties and zeros
    influence, labels = np.round(rng.random(people), 1), rng.permutation(people)
    moves = np.round(rng.random((people, 3)), 1)
    by_move = sorted(range(people), key=lambda i: (-moves[i, 0], -moves[i, 1], labels[i]))
    by_weight = sorted(range(people), key=lambda i: (-moves[i, 2], labels[i]))
    expected = {*by_move[:top], *by_weight[: min(top, 3)]}
    for column in range(2):
        ordered = sorted(range(people), key=lambda i: (-delta_i[i, column], -influence[i], labels[i]))
        expected |= set(ordered[:top])
    found = most_exposed_rows(delta_i, influence, moves, labels=labels, keep=top).tolist()
    assert found == sorted(expected, key=lambda i: labels[i])


def test_without_memory_chunks_are_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    original, sizes = chunked.measure_chunk, []

    def scarce(own: ChunkModel, some: Results, *, each: bool) -> chunked.Measured:
        if some.n_individuals > 7:
            raise MemoryError
        sizes.append(some.n_individuals)
        return original(own, some, each=each)

    monkeypatch.setattr(chunked, "measure_chunk", scarce)
    same(merge_all((found.totals for found in measure_within_memory(MODEL, WHOLE)), keep=3), ALL)
    assert sizes == [6, 6, 6, 6]

    def none(*_: object, each: bool) -> chunked.Measured:  # noqa: ARG001 — as it is called
        raise MemoryError

    monkeypatch.setattr(chunked, "measure_chunk", none)
    with pytest.raises(QueryError, match="not enough memory"):
        list(measure_within_memory(MODEL, WHOLE))
