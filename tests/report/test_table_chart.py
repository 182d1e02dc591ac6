"""The chart of a table: a map of what its cells hide with their margins, a list with the furthest first, and nobody's
name; and what would protect the people of a cell: hiding it with others, or adding it to a neighbour."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.errors import InputError
from empriv.measuring.tables import measure_table
from empriv.report.charts.all_charts import chart
from empriv.report.charts.table_chart import _merged, remedies, remedy_sentence, table_chart
from empriv.report.gather import gather
from empriv.results import Cell, Results
from empriv.words.sentences import amount, cells_in_words
from report.cases import NASTY

N = 60
BY_BOTH = "SELECT ward, age, count(*) AS patients FROM data GROUP BY ward, age"
BY_WARD = "SELECT ward, count(*) AS patients FROM data GROUP BY ward"


def table_of(cells: tuple[Cell, ...] | None, moves: Any, names: tuple[str, ...] | None = None) -> empriv.Audit:
    """Person k moves the cells by row k of ``moves``, in every database."""
    moves = np.asarray(moves, float)
    rng = np.random.default_rng(0)
    parts = {}
    for c in range(moves.shape[1]):
        q = rng.normal(10.0, 2.0, N)
        parts[f"cell {c}" if names is None else names[c]] = Results.from_arrays(q, q - moves[:, c : c + 1])
    results = Results.stack(parts)
    return empriv.audit(Results(**{**vars(results), "cells": cells}), epsilon=0.1, paper=True)


CELLS = tuple(
    Cell("patients", keys)
    for keys in (
        (("ward", "A"), ("age", "0-59")), (("ward", "A"), ("age", "60+")), (("ward", "B"), ("age", "60+")),
        (("ward", "A"),), (("ward", "B"),), (),
    )
)  # fmt: skip
MOVES = np.diag([0.001, 5.0, 0.0, 0.01, 0.1, 1.0])


def boxes(made: Any, view: int = 0) -> dict[tuple[str, str], str]:
    rows = made.spec["vconcat"][view]["layer"][0]["data"]["values"]
    return {(row["row"], row["column"]): row["text"] for row in rows}


def test_two_columns_make_a_map_with_their_margins_beside_it() -> None:
    audit = table_of(CELLS, MOVES)
    made = chart(audit, "table")
    found = audit.cover_by_cell(0.1, 0.05)
    assert list(boxes(made)) == [
        ("A", "0-59"), ("A", "60+"), ("B", "60+"), ("A", "all"), ("B", "all"), ("all", "all")
    ]  # fmt: skip
    assert list(boxes(made).values()) == [amount(hidden) for hidden in found.cover.tolist()]
    assert made.data["cell"][0] == "ward A, age 60+"
    assert made.data["furthest moved by"][:2] == ["5", "1"]
    assert made.data["people beyond"] == [int(far) for far in found.beyond[[1, 5, 4, 3, 0, 2]]]
    assert f"In {np.count_nonzero(found.beyond)} of 6 cells somebody moved it by more" in made.caption
    json.dumps(made.spec, allow_nan=False)
    assert ElementTree.fromstring(made.svg).tag.endswith("svg")


def test_one_column_is_a_list_with_the_furthest_first() -> None:
    cells = tuple(Cell("n", (("ward", name),)) for name in "ABC")
    made = chart(table_of(cells, np.diag([0.1, 9.0, 1.0])), "table")
    assert made.spec["vconcat"][0]["layer"][0]["encoding"]["y"]["sort"] == ["B", "C", "A"]


def test_numbers_side_by_side_are_maps_one_below_the_other() -> None:
    cells = tuple(Cell(number, (("ward", ward),)) for number in ("sum", "count") for ward in "AB")
    made = chart(table_of(cells, np.diag([0.1, 9.0, 1.0, 0.0])), "table")
    said = ": the largest move that is hidden"
    assert [view["title"]["text"] for view in made.spec["vconcat"]] == [f"sum{said}", f"count{said}"]
    assert made.data["cell"][0] == "sum: ward B"


@pytest.mark.slow
def test_a_table_too_large_to_draw_is_drawn_in_part_and_listed_whole() -> None:
    cells = tuple(Cell("n", (("code", str(k)),)) for k in range(50))
    made = chart(table_of(cells, np.diag(np.linspace(0, 0.5, 50))), "table")
    assert len(boxes(made)) == 40
    assert "leaves out 10 cells, moved by the least" in made.caption
    assert len(made.data["cell"]) == 50


def test_no_table_no_chart() -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        chart(empriv.audit(Results.from_arrays(np.arange(40.0), [np.arange(40.0) - 0.1])), "table")
    assert table_chart(gather(table_of(None, np.diag([0.1, 0.2])))) is not None


@pytest.mark.slow
def test_hostile_names_are_drawn_as_text(tmp_path: Path) -> None:
    values = [*NASTY, "x" * 300, "x" * 301]
    cells = tuple(Cell("<b>n</b>", (("<i>", value),)) for value in values)
    audit = table_of(cells, np.eye(len(values)) * 0.2, tuple(values))
    made = chart(audit, "table")
    assert len(boxes(made)) == len(values)  # two long names that begin alike stay two
    page = audit.report(tmp_path / "a.html").page.read_text()
    figure = page[page.index('<figure data-chart="table"') :]
    for text in (made.svg, figure[: figure.index("</figure>")]):
        assert "<script" not in text
        assert "onerror=alert(2)>" not in text.replace("&gt;", "")
        assert "\x1b" not in text
    assert "\u202e" not in cells_in_words(cells)[3]


def test_the_page_lists_cells_with_pseudonyms_and_row_headers(tmp_path: Path) -> None:
    results = table_of(CELLS, MOVES).results
    people = np.array([f"Ada Lovelace {k}" for k in range(6)])
    audit = empriv.audit(Results(**{**vars(results), "individuals": people}), epsilon=0.1)
    audit.report(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    figure = page[page.index('<figure data-chart="table"') :]
    figure = figure[: figure.index("</figure>")]
    assert "Lovelace" not in page
    named = json.loads((tmp_path / "a.key.json").read_text())["individuals"]
    by_name = {who: name for name, who in named.items()}
    assert '<th scope="row">ward A, age 60+</th>' in figure
    row = figure[figure.index("ward A, age 60+</th>") :]
    assert by_name["Ada Lovelace 1"] in row[: row.index("</tr>")]


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    """A ward with one child, who is there in most weeks, and many others."""
    rng = np.random.default_rng(1)
    people = pd.DataFrame({"ward": rng.choice(["A", "B"], 160), "age": rng.choice(["18-59", "60+"], 160)})
    people.loc[0] = ["A", "0-17"]
    people.loc[1:3] = ["B", "0-17"]
    there = rng.random((50, 160)) < 0.2
    there[:, 0] = rng.random(50) < 0.8
    there[:, 1:4] = rng.random((50, 3)) < 0.5
    week, patient = np.nonzero(there)
    return pd.DataFrame({"week": week, "patient": patient}).join(people, on="patient")


def collected(rows: pd.DataFrame, *queries: str) -> Results:
    data = empriv.databases(rows, database="week", individual="patient")
    return empriv.collect(data, list(queries) if len(queries) > 1 else queries[0])


def test_a_cell_of_one_child_is_exposed_and_adding_it_to_the_next_age_helps(rows: pd.DataFrame) -> None:
    results = collected(rows, BY_BOTH)
    risk = measure_table(results)
    names = results.components or ()
    alone = risk.each_number["A / 0-17"].delta_i(1.0)
    assert int(np.argmax(alone)) == 0
    remedy = remedies(results, [names.index("A / 0-17")], 1.0)[names.index("A / 0-17")]
    assert not remedy.had_back
    assert remedy.hide == ()
    assert remedy.delta < alone[0] / 3
    assert remedy.neighbour is not None
    assert names[remedy.neighbour] == "A / 18-59"  # the next age, not the same age of another ward


@pytest.mark.slow
def test_beside_a_published_total_one_hidden_cell_changes_nothing(rows: pd.DataFrame) -> None:
    results = collected(rows, BY_BOTH, BY_WARD)
    names = results.components or ()
    child = next(c for c, name in enumerate(names) if name.endswith("A / 0-17"))
    remedy = remedies(results, [child], 1.0)[child]
    assert remedy.had_back
    assert len(remedy.hide) == 1
    audit = empriv.Audit(
        results=results, risk=measure_table(results), epsilons=(1.0,), query="q", origin=None, density=None
    )
    made = chart(audit, "table")
    assert made.data["what would help"][0].startswith("Hidden alone it can be had back from the others: hide ward A")
    rows_and_columns = {(box["row"], box["column"]) for box in made.spec["vconcat"][0]["layer"][0]["data"]["values"]}
    assert ("A", "all") in rows_and_columns


def test_two_counts_as_one_are_the_count_of_both(rows: pd.DataFrame) -> None:
    merged = _merged(collected(rows, BY_BOTH), 0, 1)
    coarser = collected(
        rows, "SELECT ward, CASE WHEN age = '60+' THEN age ELSE '0-59' END AS a, count(*) FROM data GROUP BY ward, a"
    )
    np.testing.assert_array_equal(merged.q[:, 0], coarser.q[:, 0])
    np.testing.assert_array_equal(merged.entry_q[:, 0], coarser.entry_q[:, 0])
    np.testing.assert_array_equal(merged.outcomes[:, 0], coarser.outcomes[:, 0])


def test_averages_are_not_added_up(rows: pd.DataFrame) -> None:
    results = collected(rows, BY_BOTH.replace("count(*)", "avg(patient)"))
    assert remedies(results, [0], 1.0)[0].neighbour is None


def test_remedies_in_words() -> None:
    assert remedy_sentence(False, [], None, 1.0) == "Hide it."
    assert remedy_sentence(True, [], None, 1.0) == "Hiding it does not help: it can be had back from the others."
    assert remedy_sentence(True, ["a", "b"], "c", 0.0123) == (
        "Hidden alone it can be had back from the others: hide a and b as well, or add it to c: delta is then 0.012."
    )
    assert "a, b, c and 2 more as well" in remedy_sentence(True, ["a", "b", "c", "d", "e"], None, 1.0)
