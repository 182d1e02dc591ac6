"""Answers put in order: with a place for every pair, and by sorting, they make the same results."""

from __future__ import annotations

import numpy as np
import pytest

from empriv.collecting import DuckDBEngine, assemble, databases
from empriv.collecting.assemble import Answers
from empriv.collecting.engines.engine import Integers
from empriv.results import Outcome


@pytest.mark.parametrize("pair_type", [np.int32, np.int64])
@pytest.mark.parametrize(("groups", "items"), [(1, 1), (1, 2), (3, 1)])
@pytest.mark.parametrize("share", [0.0, 0.2, 1.0])
def test_places_and_sorting_agree(
    monkeypatch: pytest.MonkeyPatch, groups: int, items: int, share: float, pair_type: type
) -> None:
    rng = np.random.default_rng(3)
    n, people = 7, 40
    cells = np.concatenate(
        (np.arange(n * groups), n * groups + np.flatnonzero(rng.random(people * n * groups) < share))
    )
    rng.shuffle(cells)  # everyone's answers among the others'
    pair, group = np.divmod(cells, groups)
    codes = [rng.choice([Outcome.NUMBER, Outcome.NULL], len(cells), p=[0.8, 0.2]).astype(np.int8) for _ in range(items)]
    values = [np.where(code == 0, rng.random(len(cells)), np.nan) for code in codes]
    answers = Answers((pair - n).astype(pair_type), n, group, tuple(zip(values, codes, strict=True)))
    made = []
    for room in (0, 10**6):
        monkeypatch.setattr(assemble, "_ROOM", room)
        monkeypatch.setattr(assemble, "_ROOM_OF_SEVERAL", room)
        made.append(
            assemble.assemble(
                answers,
                databases=np.arange(n),
                individuals=None,
                integers=Integers(100, people),
                components=None if groups * items == 1 else [str(k) for k in range(groups * items)],
                n_groups=groups,
            )
        )
    assert made[0].digest == made[1].digest
    assert made[0].n_individuals <= people
    if groups * items == 1 and share:
        entries = np.argsort(pair, kind="stable")[n:]
        np.testing.assert_array_equal(made[0].entry_q, values[0][entries])
        np.testing.assert_array_equal(made[0].entry_database, pair[entries] % n)


@pytest.mark.parametrize("most_bits", [10**9, 10])
def test_integers_are_counted_once_each(monkeypatch: pytest.MonkeyPatch, most_bits: int) -> None:
    from empriv.collecting.engines.duckdb import session

    monkeypatch.setattr(session, "_MOST_BITS", most_bits)
    rows = "SELECT 1 AS day, CASE WHEN i % 5 > 0 THEN CAST(i % 40 - 7 AS SMALLINT) END AS who FROM range(200) AS t(i)"
    data = databases(rows, database="day", individual="who", unidentified="keep")
    with DuckDBEngine().session(data) as opened:
        assert opened.integers is not None
        assert opened.count_integers(opened.integers) == len(opened.individuals) == 32
