"""Steps on values and on the query, against the slow way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import slow

import empriv
from empriv import protocols
from empriv.collecting import explain
from empriv.results import Outcome

RAW = "SELECT avg(amount) FROM data"


@pytest.fixture
def frame() -> pd.DataFrame:
    """Duplicates, NULLs, somebody who is all of a database, somebody who is in one only."""
    rng = np.random.default_rng(4)
    rows = pd.DataFrame(
        {
            "day": rng.integers(0, 4, 40),
            "who": rng.choice(["a", "b", "c", "d", "e"], 40),
            "amount": np.rint(rng.gamma(2.0, 200.0, 40)) / 2,
            "kind": rng.choice(["x", "y"], 40),
        }
    )
    rows.loc[3, "amount"] = None
    alone = pd.DataFrame({"day": [4, 4], "who": ["a", "a"], "amount": [10.0, 700.0], "kind": ["x", "x"]})
    once = pd.DataFrame({"day": [1], "who": ["f"], "amount": [900.0], "kind": ["y"]})
    return pd.concat([rows, rows.iloc[:6], alone, once], ignore_index=True)


def data_of(frame: pd.DataFrame) -> empriv.Databases:
    return empriv.databases(frame, database="day", individual="who")


def test_winsorised(frame: pd.DataFrame) -> None:
    results = protocols.winsorised(RAW, "amount", lower=50, upper=250.5).collect(data_of(frame))
    assert results.draws is None
    assert slow.check(results, frame, [slow.clip("amount", 50, 250.5)], slow.average) > 30
    with pytest.raises(AssertionError):
        slow.check(results, frame, [slow.clip("amount", 50, 260)], slow.average)


def test_top_coded(frame: pd.DataFrame) -> None:
    results = protocols.top_coded(RAW, "AMOUNT", at=300).collect(data_of(frame))
    slow.check(results, frame, [slow.clip("amount", -np.inf, 300)], slow.average)


def test_steps_on_values_are_taken_in_the_order_in_which_they_are_added(frame: pd.DataFrame) -> None:
    changes = [slow.clip("amount", -np.inf, 300), slow.clip("amount", 100, 400), slow.clip("amount", -np.inf, 90)]
    protocol = protocols.winsorised(protocols.top_coded(RAW, "amount", at=300), "amount", lower=100, upper=400)
    results = protocols.top_coded(protocol, "amount", at=90).collect(data_of(frame))
    slow.check(results, frame, changes, slow.average)
    with pytest.raises(AssertionError):
        slow.check(results, frame, changes[::-1], slow.average)


@pytest.mark.slow
def test_a_query_that_runs_once_per_individual(frame: pd.DataFrame) -> None:
    query = "SELECT sum(coalesce(amount, 0)) FROM data HAVING avg(coalesce(amount, 0)) > -1000000000"
    assert "once per individual" in explain(data_of(frame), query)

    def total(rows: Sequence[slow.Row]) -> float | None:
        return float(sum(row["amount"] or 0.0 for row in rows)) if rows else None

    results = protocols.top_coded(query, "amount", at=300).collect(data_of(frame))
    slow.check(results, frame, [slow.clip("amount", -np.inf, 300)], total)


def mean_amount(rows: Any) -> float | None:
    values = np.asarray(rows["amount"], float)
    values = values[~np.isnan(values)]
    return float(values.mean()) if len(values) else None


@pytest.mark.slow
def test_a_randomised_function_draws_anew_in_every_draw(frame: pd.DataFrame) -> None:
    def noisy(rows: Any, rng: np.random.Generator) -> float:
        return 0.0 * len(rows["amount"]) + rng.normal()

    alone = protocols.plain(noisy).collect(data_of(frame), draws=3, jobs=1)
    assert alone.q.shape == (5, 3)
    assert len(np.unique(alone.q)) == 15


def test_suppressed_and_thresholded(frame: pd.DataFrame) -> None:
    results = protocols.suppressed(RAW, fewer_than=11).collect(data_of(frame))
    slow.check(results, frame, [], lambda rows: slow.average(rows) if len(rows) >= 11 else None)
    assert 0 < np.count_nonzero(results.entry_outcomes) < results.entry_outcomes.size

    def threshold(rows: Sequence[slow.Row]) -> float | None:
        return slow.average(rows) if len({row["who"] for row in rows}) >= 5 else None

    results = protocols.k_threshold(RAW, k=5).collect(data_of(frame))
    slow.check(results, frame, [], threshold)
    assert 0 < np.count_nonzero(results.outcomes) < results.outcomes.size
    with pytest.raises(AssertionError):
        slow.check(results, frame, [], slow.average)


def test_counts_are_of_the_rows_that_the_query_reads_after_the_steps(frame: pd.DataFrame) -> None:
    query = "SELECT kind, sum(coalesce(amount, 0)), count(*) AS n FROM data WHERE amount > 20 GROUP BY kind"
    protocol = protocols.k_threshold(protocols.suppressed(query, fewer_than=4), k=3)
    results = protocols.winsorised(protocol, "amount", lower=0, upper=300).collect(data_of(frame))

    def answer(rows: Sequence[slow.Row]) -> list[float | None]:
        out: list[float | None] = []
        for kind in "xy":
            part = [row for row in rows if row["kind"] == kind and row["amount"] is not None and row["amount"] > 20]
            enough = len(part) >= 4 and len({row["who"] for row in part}) >= 3
            out += [float(sum(row["amount"] for row in part)), float(len(part))] if enough else [None, None]
        return out

    slow.check(results, frame, [slow.clip("amount", 0, 300)], answer)
    assert (results.outcomes == Outcome.NUMBER).any()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dict", "pandas", "polars", "arrow"])
def test_python_functions_are_guarded_alike(frame: pd.DataFrame, kind: Any) -> None:
    protocol = protocols.k_threshold(protocols.suppressed(mean_amount, fewer_than=11), k=5)
    results = protocol.collect(data_of(frame.fillna({"amount": 0.0})), jobs=1, frame=kind)

    def answer(rows: Sequence[slow.Row]) -> float | None:
        return slow.average(rows) if len(rows) >= 11 and len({row["who"] for row in rows}) >= 5 else None

    slow.check(results, frame.fillna({"amount": 0.0}), [], answer)


def test_individuals_of_several_columns_and_rows_of_nobody(frame: pd.DataFrame) -> None:
    frame["shop"] = 1
    frame.loc[frame["who"] == "b", "who"] = None
    data = empriv.databases(frame, database="day", individual=["who", "shop"], unidentified="keep")
    query = "SELECT count(*) FROM data AS d"
    found = protocols.k_threshold(query, k=4).collect(data)
    counts = frame.dropna(subset="who").groupby("day")["who"].nunique()
    np.testing.assert_array_equal(found.outcomes == Outcome.NULL, counts.to_numpy() < 4)


@pytest.mark.slow
def test_random_databases(frame: pd.DataFrame) -> None:
    data = empriv.subsamples(frame, individual="who", count=6, fraction=0.5)
    results = protocols.winsorised("sum(amount)", "amount", lower=0, upper=100).collect(data)
    np.testing.assert_array_equal(
        results.q, empriv.collect(data, "sum(CASE WHEN amount > 100 THEN 100 ELSE amount END)").q
    )


@pytest.mark.slow
def test_all_other_sql(frame: pd.DataFrame) -> None:
    """A query with a name for its rows, a join, and ``data`` in a subquery."""
    kinds = pd.DataFrame({"kind": ["x", "y"], "price": [1.0, 2.0]})
    data = empriv.databases(frame, database="day", individual="who", tables={"kinds": kinds})
    for query in (
        "SELECT sum(d.amount * k.price) FROM data AS d JOIN kinds AS k ON k.kind = d.kind",
        "WITH t AS (SELECT * FROM data) SELECT sum(t.amount * price) FROM t JOIN kinds USING (kind)",
    ):
        results = protocols.top_coded(query, "amount", at=300).collect(data)

        def priced(rows: Sequence[slow.Row]) -> float | None:
            values = [row["amount"] * {"x": 1, "y": 2}[row["kind"]] for row in rows if row["amount"] is not None]
            return float(sum(values)) if values else None

        slow.check(results, frame, [slow.clip("amount", -np.inf, 300)], priced)


def test_integers_stay_exact_and_nan_is_not_clipped() -> None:
    whole = pd.DataFrame({"day": [1, 1, 2], "who": [1, 2, 1], "n": [2**52 + 1, 5, 7], "x": [float("nan"), 5.0, 7.0]})
    data = empriv.databases(whole, database="day", individual="who")
    found = protocols.winsorised("sum(n)", "n", lower=6, upper=2**52 + 1).collect(data)
    assert found.q.tolist() == [2**52 + 7, 7]
    import pyarrow as pa

    kept = pa.table({"day": [1, 1, 2], "who": [1, 2, 1], "x": [float("nan"), 5.0, 7.0]})
    found = protocols.top_coded("max(x)", "x", at=6).collect(empriv.databases(kept, database="day", individual="who"))
    assert found.outcomes.tolist() == [Outcome.NAN, Outcome.NUMBER]


def test_what_cannot_be_done_is_said(frame: pd.DataFrame) -> None:
    data = data_of(frame)
    with pytest.raises(empriv.QueryError, match="amuont"):
        protocols.top_coded(RAW, "amuont", at=3).collect(data)
    with pytest.raises(empriv.QueryError):
        protocols.top_coded(RAW, "kind", at=1).collect(data)
    with pytest.raises(empriv.QueryError, match="cap in the function"):
        protocols.top_coded(mean_amount, "amount", at=1).collect(data)
    with pytest.raises(empriv.InputError, match="whom a row belongs to"):
        protocols.top_coded(RAW, "WHO", at=3).collect(data)
    with pytest.raises(empriv.QueryError, match="must be of aggregates"):
        protocols.suppressed("SELECT a FROM (SELECT avg(amount) AS a FROM data)", fewer_than=3).collect(data)
    with pytest.raises(empriv.QueryError, match="must read `data` itself"):
        protocols.k_threshold("SELECT avg(a) FROM (SELECT avg(amount) AS a FROM data GROUP BY who)", k=3).collect(data)
    with pytest.raises(empriv.QueryError, match="one SELECT"):
        protocols.suppressed(f"{RAW} UNION ALL {RAW}", fewer_than=3).collect(data)
    with pytest.raises(empriv.QueryError, match="must be a Python function"):
        protocols.plain(RAW, randomised=True)
    with pytest.raises(empriv.QueryError, match="column 'amont'"):
        protocols.top_coded("avg(amont)", "amount", at=3).collect(data)
    with pytest.raises(empriv.InputError, match="`draws` must be a whole number of 1 or more, or None, got 0"):
        protocols.laplace(RAW, sensitivity=1, epsilon=1).collect(data, draws=0)
    with pytest.raises(empriv.InputError, match="`rng` must be a whole number of 0 or more, got -1"):
        protocols.laplace(RAW, sensitivity=1, epsilon=1).collect(data, rng=-1)
    with pytest.raises(empriv.InputError, match="`data` must come from"):
        protocols.plain(RAW).collect(frame)  # type: ignore[arg-type]
