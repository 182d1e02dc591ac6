"""The chart of a table: a map of its cells with their margins, a list with the riskiest first, and nobody's name."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import empriv
from empriv.errors import InputError
from empriv.measuring.contract import RiskContract
from empriv.report.charts.all_charts import chart
from empriv.report.charts.table_chart import exposures_of, table_chart
from empriv.report.gather import gather
from empriv.results import Cell, FloatArray, Results
from empriv.words.table_words import cells_in_words
from report.cases import NASTY

N = 30


@dataclass(frozen=True, eq=False)
class EachAlone(RiskContract):
    """A table of which each cell's figures are given: person k is exposed by cell k alone."""

    results: Results
    deltas: FloatArray

    def curves(self, epsilons: FloatArray) -> FloatArray:
        return np.repeat(self.deltas.max(axis=0)[:, None], len(epsilons), axis=1)

    @property
    def each_number(self) -> dict[str, Any]:
        names = self.results.components or ()
        return {name: Given(self.results.component(name), row) for name, row in zip(names, self.deltas, strict=True)}


@dataclass(frozen=True, eq=False)
class Given(RiskContract):
    results: Results
    own: FloatArray = field(repr=False)

    def curves(self, epsilons: FloatArray) -> FloatArray:
        return np.repeat(self.own[:, None], len(epsilons), axis=1)


def table_of(cells: tuple[Cell, ...] | None, deltas: Any, names: tuple[str, ...] | None = None) -> empriv.Audit:
    deltas = np.asarray(deltas, float)
    d = len(deltas)
    rng = np.random.default_rng(0)
    parts = {}
    for c in range(d):
        q = rng.normal(10.0, 2.0, N)
        without = np.repeat(q[None], deltas.shape[1], axis=0)
        without[deltas[c] > 0] -= 0.5
        parts[f"cell {c}" if names is None else names[c]] = Results.from_arrays(q, without)
    results = Results.stack(parts)
    results = Results(**{**vars(results), "cells": cells})
    return empriv.Audit(
        results=results, risk=EachAlone(results, deltas), epsilons=(0.1,), query="q", origin=None, density=None
    )


CELLS = tuple(
    Cell("patients", keys)
    for keys in (
        (("ward", "A"), ("age", "0-59")), (("ward", "A"), ("age", "60+")), (("ward", "B"), ("age", "60+")),
        (("ward", "A"),), (("ward", "B"),), (),
    )
)  # fmt: skip
DELTAS = np.diag([0.02, 0.4, 0.0, 0.001, 0.05, 0.2])


def boxes(made: Any, view: int = 0) -> dict[tuple[str, str], str]:
    rows = made.spec["vconcat"][view]["layer"][0]["data"]["values"]
    return {(row["row"], row["column"]): row["text"] for row in rows}


def test_two_columns_make_a_map_with_their_margins_beside_it() -> None:
    made = chart(table_of(CELLS, DELTAS), "table")
    assert boxes(made) == {
        ("A", "0-59"): "0.02", ("A", "60+"): "0.4", ("B", "60+"): "0",
        ("A", "all"): "0.001", ("B", "all"): "0.05", ("all", "all"): "0.2",
    }  # fmt: skip
    assert made.data["cell"][0] == "ward A, age 60+"
    assert made.data["delta"] == ["0.4", "0.2", "0.05", "0.02", "0.001", "0"]
    assert made.data["people exposed"] == [1, 1, 1, 1, 1, 0]
    assert "5 of 6 cells expose somebody at epsilon 0.1" in made.caption
    json.dumps(made.spec, allow_nan=False)
    assert ElementTree.fromstring(made.svg).tag.endswith("svg")


def test_one_column_is_a_list_with_the_riskiest_first() -> None:
    cells = tuple(Cell("n", (("ward", name),)) for name in "ABC")
    made = chart(table_of(cells, np.diag([0.1, 0.3, 0.2])), "table")
    assert made.spec["vconcat"][0]["layer"][0]["encoding"]["y"]["sort"] == ["B", "C", "A"]


def test_numbers_side_by_side_are_maps_one_below_the_other() -> None:
    cells = tuple(Cell(number, (("ward", ward),)) for number in ("sum", "count") for ward in "AB")
    made = chart(table_of(cells, np.diag([0.1, 0.3, 0.2, 0.0])), "table")
    assert [view["title"]["text"] for view in made.spec["vconcat"]] == ["sum", "count"]
    assert made.data["cell"][0] == "sum: ward B"


def test_a_table_too_large_to_draw_is_drawn_in_part_and_listed_whole() -> None:
    cells = tuple(Cell("n", (("code", str(k)),)) for k in range(100))
    made = chart(table_of(cells, np.linspace(0, 0.5, 100)[:, None]), "table")
    assert len(boxes(made)) == 40
    assert "leaves out the 60 cells of least risk" in made.caption
    assert len(made.data["cell"]) == 100


def test_no_table_no_chart() -> None:
    with pytest.raises(InputError, match="nothing to draw"):
        chart(table_of(None, np.diag([0.1, 0.2])), "table")
    assert table_chart(gather(table_of(None, np.diag([0.1, 0.2, 0.3])))) is not None


def test_hostile_names_are_drawn_as_text(tmp_path: Path) -> None:
    values = [*NASTY, "x" * 300, "x" * 301]
    cells = tuple(Cell("<b>n</b>", (("<i>", value),)) for value in values)
    audit = table_of(cells, np.eye(len(values)) * 0.2, tuple(values))
    made = chart(audit, "table")
    assert len(boxes(made)) == len(values)  # two long names that begin alike stay two
    chart(audit, "table").save(tmp_path / "a.html")
    for text in (made.svg, (tmp_path / "a.html").read_text()):
        assert "<script" not in text
        assert "onerror=alert(2)>" not in text.replace("&gt;", "")
        assert "\x1b" not in text
    assert "\u202e" not in cells_in_words(cells)[3]


def test_the_page_lists_cells_with_pseudonyms_and_row_headers(tmp_path: Path) -> None:
    audit = table_of(CELLS, DELTAS)
    people = np.array([f"Ada Lovelace {k}" for k in range(6)])
    results = Results(**{**vars(audit.results), "individuals": people})
    empriv.Audit(
        results=results, risk=EachAlone(results, DELTAS), epsilons=(0.1,), query="q", origin=None, density=None
    ).report(tmp_path / "a.html")
    page = (tmp_path / "a.html").read_text()
    figure = page[page.index('<figure data-chart="table"') :]
    figure = figure[: figure.index("</figure>")]
    assert "Lovelace" not in page
    assert '<th scope="row">ward A, age 60+</th>' in figure
    named = json.loads((tmp_path / "a.key.json").read_text())["individuals"]
    by_name = {who: name for name, who in named.items()}
    assert re.search(rf"ward A, age 60\+</th><td[^>]*>0.4</td>.*?{by_name['Ada Lovelace 1']}", figure)


def test_exposures_of_any_kind_are_those_of_each_number_alone() -> None:
    exposures = exposures_of(table_of(CELLS, DELTAS).risk, 0.1)
    assert exposures.cell.tolist() == exposures.individual.tolist() == [0, 1, 3, 4, 5]
    assert exposures.delta.tolist() == [0.02, 0.4, 0.001, 0.05, 0.2]
