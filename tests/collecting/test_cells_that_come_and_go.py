"""Tables of GROUP BY whose cells come and go, are suppressed, small, or named like anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.collecting.assemble import MOST_CELLS
from empriv.errors import FileFormatError, InputError, QueryError
from empriv.results import Cell, Outcome

TABLE = "SELECT ward, age, count(*) FROM data GROUP BY ward, age"
SLOW = "SELECT ward, age, len(list(hours)) FROM data GROUP BY ward, age"  # run once for each individual


def rows(*, seed: int = 3, days: int = 6, people: int = 20) -> pd.DataFrame:
    """A few visits a day: most cells are absent from some days, and some days have one person in a cell."""
    generator = np.random.default_rng(seed)
    n = days * 12
    return pd.DataFrame(
        {
            "day": generator.integers(0, days, n),
            "who": generator.integers(0, people, n),
            "ward": generator.choice(["A", "B", "C"], n),
            "age": generator.choice(["0-59", "60+"], n),
            "hours": generator.integers(1, 9, n),
        }
    )


def data_of(frame: pd.DataFrame) -> empriv.Databases:
    return empriv.databases(frame, database="day", individual="who")


def by_hand(frame: pd.DataFrame, day: int, left_out: int | None, cell: Cell) -> float | None:
    """The count of a cell: None where the cell has no row left, hence is not in the table."""
    chosen = frame[(frame.day == day) & (frame.who != left_out)]
    for column, value in cell.keys:
        chosen = chosen[chosen[column].astype(str) == value]
    return float(len(chosen)) or None


@pytest.mark.slow
@pytest.mark.parametrize("query", [TABLE, SLOW])
def test_every_cell_is_what_is_left_of_it_and_absent_where_nothing_is(query: str) -> None:
    frame = rows()
    results = empriv.collect(data_of(frame), query, progress=False, notice=lambda _: None)
    assert results.cells is not None
    assert results.components == tuple(f"{w} / {a}" for w in "ABC" for a in ("0-59", "60+"))
    assert results.cells[1].keys == (("ward", "A"), ("age", "60+"))
    assert Outcome.NULL in results.outcomes  # otherwise the data would show nothing
    for i, who in enumerate(results.individuals.tolist()):
        for entry in range(results.starts[i], results.starts[i + 1]):
            for c, cell in enumerate(results.cells):
                expected = by_hand(frame, int(results.databases[results.entry_database[entry]]), who, cell)
                assert (results.entry_outcomes[entry, c] == Outcome.NULL) == (expected is None)
                assert expected is None or results.entry_q[entry, c] == expected


def test_a_cell_that_one_person_makes_is_gone_without_them() -> None:
    frame = pd.DataFrame({"day": [0, 0, 0, 1, 1], "who": [1, 2, 3, 1, 2], "ward": ["A", "A", "B", "A", "A"]})
    results = empriv.collect(data_of(frame), "SELECT ward, count(*) FROM data GROUP BY ward")
    assert results.components == ("A", "B")
    assert results.outcomes.tolist() == [[0, 0], [0, Outcome.NULL]]
    assert np.isnan(results.without(3)[0, 1])
    assert results.without(3)[0, 0] == 2


@pytest.mark.slow
def test_suppressed_cells_are_null_and_zeros_are_zeros() -> None:
    frame = rows()
    suppressed = "SELECT ward, CASE WHEN count(*) >= 4 THEN count(*) END AS visits FROM data GROUP BY ward"
    results = empriv.collect(data_of(frame), suppressed)
    counts = empriv.collect(data_of(frame), "SELECT ward, count(*) FROM data GROUP BY ward")
    assert np.array_equal(results.outcomes == Outcome.NULL, ~(counts.q >= 4))
    zeros = empriv.collect(data_of(frame), "SELECT ward, count(*) FILTER (WHERE hours > 8) FROM data GROUP BY ward")
    assert not zeros.outcomes.any() or np.array_equal(zeros.outcomes, counts.outcomes)
    assert (zeros.q[zeros.outcomes == 0] == 0).all()


@pytest.mark.parametrize("query", ["SELECT code, count(*) FROM data GROUP BY code",
                                   "SELECT code, product(1) FROM data GROUP BY code"])  # fmt: skip
def test_too_many_groups_are_refused_with_the_limit_and_a_hint(query: str) -> None:
    codes = 10_000 if "count" in query else MOST_CELLS + 1
    frame = pd.DataFrame({"day": np.zeros(2 * codes, int), "who": np.arange(2 * codes) % 7,
                          "code": np.arange(2 * codes) % codes})  # fmt: skip
    with pytest.raises(QueryError) as caught:
        empriv.collect(data_of(frame), query, progress=False, notice=lambda _: None)
    assert f"at most {MOST_CELLS:,} cells, got {codes:,}" in str(caught.value)
    assert "Hint: group by coarser values" in str(caught.value)


HOSTILE = ["NULL", None, "", " ", "A / B", "A", "<script>alert(1)</script>", "'A'", "\x1b[31m", "x" * 10_000, "B / C"]


def test_hostile_names_of_groups_stay_apart(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {
            "day": np.repeat([0, 1], 44),
            "who": np.tile(np.arange(4), 22),
            "first": np.tile(np.repeat(np.array(HOSTILE, object), 4), 2),
            "second": np.tile(np.repeat(np.array(HOSTILE[::-1], object), 4), 2),
        }
    )
    results = empriv.collect(data_of(frame), "SELECT first, second, count(*) FROM data GROUP BY first, second")
    assert results.components is not None
    assert len(set(results.components)) == len(HOSTILE)
    results.save(tmp_path / "table.empriv")
    again = empriv.Results.load(tmp_path / "table.empriv")
    assert (again.components, again.cells) == (results.components, results.cells)
    alone = empriv.collect(data_of(frame), "SELECT first, count(*) FROM data GROUP BY first")
    assert {"NULL", "'NULL'", "''", "' '", "'''A'''", "A"} <= set(alone.components or ())


@pytest.mark.slow
def test_cells_that_are_no_cells_are_refused(tmp_path: Path) -> None:
    from empriv.base.storage import write_archive

    meta, arrays = empriv.collect(data_of(rows()), TABLE).to_parts()
    for cells in ([["count(*)"]] * 6, [["count(*)", [["ward", 3]]]] * 6, [["count(*)", []]] * 5, 3):
        write_archive(tmp_path / "t.empriv", kind="results", meta={**meta, "cells": cells}, arrays=arrays)
        with pytest.raises(FileFormatError):
            empriv.Results.load(tmp_path / "t.empriv")
    with pytest.raises(InputError, match="one for each component"):
        empriv.Results(**{**vars(empriv.collect(data_of(rows()), TABLE)), "cells": ()})


@pytest.mark.slow
def test_further_databases_bring_cells_and_lack_some() -> None:
    frame = rows()
    first, more = frame[(frame.day < 3) & (frame.ward != "C")], frame[(frame.day >= 3) & (frame.ward != "A")]
    whole = empriv.collect(data_of(pd.concat((first, more))), TABLE)
    parts = [empriv.collect(data_of(part), TABLE) for part in (first, more)]
    grown = parts[0].with_databases(parts[1])
    assert set(grown.components or ()) == set(whole.components or ())
    same = grown.select(whole.components or ())
    assert same.cells == whole.cells
    assert same.digest == whole.digest


@pytest.mark.slow
def test_several_queries_are_tables_side_by_side() -> None:
    frame = rows()
    results = empriv.collect(data_of(frame), [TABLE, "count(*)"])
    assert results.cells is not None
    assert results.cells[0] == Cell("COUNT(*)", (("ward", "A"), ("age", "0-59")))
    assert results.cells[-1] == Cell("COUNT(*)")
    chosen = results.select((results.components or ())[-2:])
    assert chosen.cells == results.cells[-2:]
    assert results.component((results.components or ())[0]).cells is None
    twice = empriv.collect(data_of(frame), [TABLE, TABLE.replace("GROUP", "WHERE hours > 3 GROUP")])
    assert twice.cells is not None
    assert len(set(twice.cells)) == len(twice.components or ())


@pytest.mark.slow
def test_columns_are_called_as_the_query_calls_them() -> None:
    def columns(query: str) -> list[str]:
        cells: Any = empriv.collect(data_of(rows()), query).cells
        return [column for column, _ in cells[0].keys]

    assert columns("SELECT lower(ward) AS unit, hours // 2, count(*) FROM data GROUP BY ALL")[0] == "unit"
    assert columns("SELECT ward, hours > 4, count(*) FROM data GROUP BY 1, 2") == ["ward", "hours > 4"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "instead"),
    [
        ("SELECT day, sum(hours) FROM data GROUP BY day", "SELECT sum(hours) FROM data"),
        ("SELECT sum(hours) FROM data GROUP BY day", "SELECT sum(hours) FROM data"),
        ("SELECT day, sum(hours) AS s FROM data GROUP BY ALL ORDER BY s", "SELECT sum(hours) AS s FROM data"),
        ("SELECT day % 5, ward, count(*) FROM data GROUP BY 1, ward ORDER BY 1",
         "SELECT ward, count(*) FROM data GROUP BY ward"),
        ("SELECT day, sum(hours) FROM data GROUP BY day HAVING count(*) > 1",
         "SELECT sum(hours) FROM data HAVING count(*) > 1"),
    ],
)  # fmt: skip
def test_a_key_that_says_which_database_it_is_is_refused_with_the_query_to_write(query: str, instead: str) -> None:
    data = data_of(rows())
    with pytest.raises(QueryError, match="says which database") as refused:
        empriv.collect(data, query, progress=False, notice=lambda _: None)
    assert str(refused.value).partition("Hint: write ")[2] == instead
    assert empriv.collect(data, instead, progress=False, notice=lambda _: None).n_databases == 6


@pytest.mark.slow
@pytest.mark.parametrize("number", ["sum(hours)", "sum(DISTINCT hours)"])
def test_keys_are_selected_in_any_order(number: str) -> None:
    rows_of_both = rows().assign(late=lambda frame: frame.hours > 5)
    for keys in ("ward, late", "late, ward"):
        query = f"SELECT late, ward, {number} FROM data GROUP BY {keys}"
        results = empriv.collect(data_of(rows_of_both), query, progress=False, notice=lambda _: None)
        assert results.cells is not None
        assert {cell.keys[1] for cell in results.cells} == {("ward", ward) for ward in rows_of_both.ward.unique()}
        assert {cell.keys[0][0] for cell in results.cells} == {"late"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "database", "said"),
    [
        (
            "SELECT ward, max(age) FROM data GROUP BY ward",
            "day",
            r"its result 'MAX\(age\)' is not one",
        ),
        ("SELECT day, sum(hours) FROM data GROUP BY day", "day // 2", "each group is in one database only"),
        ("SELECT day, sum(hours) FROM data GROUP BY day HAVING count(*) > 0", "day // 2", "in one database only"),
        ("SELECT day, who, sum(hours) FROM data GROUP BY day, who", "day", "identifies individuals"),
        ("SELECT sum(hours) FROM data GROUP BY ward", "day", "must select every key that it groups by"),
    ],
)
def test_groups_are_refused_in_one_sentence(query: str, database: str, said: str) -> None:
    data = empriv.databases(rows(), database=database, individual="who")
    with pytest.raises(QueryError, match=said):
        empriv.collect(data, query, notice=lambda _: None)
