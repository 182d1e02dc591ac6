"""What would protect the people of a cell: hiding it with others, or adding it to a neighbour."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.measuring.tables import measure_table
from empriv.report.charts.all_charts import chart
from empriv.report.charts.table_chart import _merged, remedies, remedy_sentence
from empriv.results import Results

BY_BOTH = "SELECT ward, age, count(*) AS patients FROM data GROUP BY ward, age"
BY_WARD = "SELECT ward, count(*) AS patients FROM data GROUP BY ward"


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


def test_words() -> None:
    assert remedy_sentence(False, [], None, 1.0) == "Hide it."
    assert remedy_sentence(True, [], None, 1.0) == "Hiding it does not help: it can be had back from the others."
    assert remedy_sentence(True, ["a", "b"], "c", 0.0123) == (
        "Hidden alone it can be had back from the others: hide a and b as well, or add it to c: delta is then 0.012."
    )
    assert "a, b, c and 2 more as well" in remedy_sentence(True, ["a", "b", "c", "d", "e"], None, 1.0)
