"""Every kind of source gives the same databases; what cannot be used is refused in clear words."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pytest

from empriv.collecting import Engine, collect, databases, repeats, splits, subsamples
from empriv.errors import InputError, QueryError, SourceError

ROWS = pd.DataFrame({"day": [1, 1, 1, 2, 2], "who": ["a", "b", "b", "a", "c"], "x": [1.0, 2.0, 4.0, 8.0, 16.0]})
MANY = pd.DataFrame({"who": np.arange(2000) % 500, "x": np.arange(2000) / 7})


def glob(path: Path) -> Any:
    ROWS[:2].to_parquet(path / "part1.parquet")
    ROWS[2:].to_parquet(path / "part2.parquet")
    return str(path / "part*.parquet")


def file(name: str, write: Callable[[Path], Any]) -> Callable[[Path], Path]:
    def made(folder: Path) -> Path:
        write(folder / name)
        return folder / name

    return made


def stored(path: Path) -> Any:
    with duckdb.connect(str(path / "file.duckdb")) as connection:
        connection.register("frame", ROWS)
        connection.execute("CREATE TABLE base AS SELECT * FROM frame")
        connection.execute("CREATE VIEW seen AS SELECT * FROM base WHERE x > 0")
    return f"{path / 'file.duckdb'}::seen"


SOURCES: list[Callable[[Path], Any]] = [
    file("rows.csv", lambda path: ROWS.to_csv(path, index=False)),
    file("rows.csv.gz", lambda path: ROWS.to_csv(path, index=False)),
    file("rows.tsv", lambda path: ROWS.to_csv(path, index=False, sep="\t")),
    file("rows.json", lambda path: ROWS.to_json(path, orient="records")),
    file("rows.ndjson", lambda path: ROWS.to_json(path, orient="records", lines=True)),
    file("rows.parquet", ROWS.to_parquet), glob, stored,
    lambda _: ROWS, lambda _: pl.from_pandas(ROWS), lambda _: pl.from_pandas(ROWS).lazy(),
    lambda _: pl.from_pandas(ROWS).to_arrow(),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("make", SOURCES)
def test_every_source_gives_the_same_databases(make: Callable[[Path], Any], tmp_path: Path, engine: Engine) -> None:
    data = databases(make(tmp_path), database="day", individual="who")
    results = collect(data, "sum(x)", engine=engine)
    assert results.databases.tolist() == [1, 2]
    assert results.individuals.tolist() == ["a", "b", "c"]
    assert results.q.tolist() == [7.0, 24.0]
    assert results.without("b").tolist() == [1.0, 24.0]


@pytest.mark.slow
def test_list_makes_one_database_of_each(tmp_path: Path, engine: Engine) -> None:
    for day, part in ROWS.groupby("day"):
        part.to_csv(tmp_path / f"day{day}.csv", index=False)
    files = databases([tmp_path / "day1.csv", tmp_path / "day2.csv"], individual="who")
    frames = databases([part for _, part in ROWS.groupby("day")], individual="who")
    for data, labels in ((files, ["day1.csv", "day2.csv"]), (frames, [0, 1])):
        results = collect(data, "sum(x)", engine=engine)
        assert results.databases.tolist() == labels
        assert results.q.tolist() == [7.0, 24.0]


def test_sql_text_over_other_tables_is_a_source(engine: Engine) -> None:
    data = databases("SELECT * FROM sales WHERE x < 16", database="day", individual="who", tables={"sales": ROWS})
    assert collect(data, "sum(x)", engine=engine).q.tolist() == [7.0, 8.0]


@pytest.mark.slow
def test_database_may_be_an_expression_and_individual_several_columns(engine: Engine) -> None:
    data = databases(ROWS, database="day % 2 = 1", individual=["who", "day"])
    results = collect(data, "count(*)", engine=engine)
    assert results.databases.tolist() == ["false", "true"]
    assert results.individuals.tolist() == ['["a", 1]', '["a", 2]', '["b", 1]', '["c", 2]']
    assert results.without('["b", 1]').tolist() == [2.0, 1.0]


@pytest.mark.slow
def test_rows_without_individual(engine: Engine) -> None:
    rows = ROWS.assign(who=["a", None, "b", "a", "c"])
    with pytest.raises(SourceError, match="in 1 of 5 rows"):
        collect(databases(rows, database="day", individual="who"), "sum(x)", engine=engine)
    kept = collect(databases(rows, database="day", individual="who", unidentified="keep"), "sum(x)", engine=engine)
    assert kept.q.tolist() == [7.0, 24.0]
    assert kept.without("b").tolist() == [3.0, 24.0]
    dropped = collect(databases(rows, database="day", individual="who", unidentified="drop"), "sum(x)", engine=engine)
    assert dropped.q.tolist() == [5.0, 24.0]


def test_rows_without_database_are_refused(engine: Engine) -> None:
    rows = ROWS.assign(day=[1, None, 1, 2, None])
    with pytest.raises(SourceError, match="`database` must not be NULL, but is in 2 of 5 rows"):
        collect(databases(rows, database="day", individual="who"), "sum(x)", engine=engine)


@pytest.mark.slow
@pytest.mark.parametrize("by", ["individual", "row"])
def test_subsamples_follow_from_the_seed(by: Any, engine: Engine) -> None:
    def drawn(rng: int) -> Any:
        data = subsamples(MANY, individual="who", count=20, fraction=0.3, by=by, rng=rng)
        return collect(data, "SELECT count(*), count(DISTINCT who) FROM data", engine=engine).q

    np.testing.assert_array_equal(drawn(1), drawn(1))
    assert not np.array_equal(drawn(1), drawn(2))
    rows, people = drawn(1).mean(axis=0)
    # 20 databases of 2000 rows: the mean has a deviation of 4.6 (rows) or 9.2 (500 people of 4 rows).
    assert abs(rows - 600) < 40
    assert abs(people - (150 if by == "individual" else 500 * (1 - 0.7**4))) < 12


def test_identical_rows_are_drawn_apart(engine: Engine) -> None:
    rows = pd.DataFrame({"who": ["a"] * 400, "x": [1.0] * 400})
    data = subsamples(rows, individual="who", count=5, fraction=0.5, by="row")
    counts = collect(data, "count(*)", engine=engine).q
    assert ((140 < counts) & (counts < 260)).all()


@pytest.mark.slow
def test_repeats_are_the_same_rows_each_time_and_a_function_draws_anew(engine: Engine) -> None:
    found = collect(repeats(ROWS, individual="who", count=4), "sum(x)", engine=engine)
    assert found.q.tolist() == [31.0] * 4
    assert [found.without(who).tolist() for who in "abc"] == [[22.0] * 4, [25.0] * 4, [15.0] * 4]
    data = repeats(ROWS, individual="who", count=50)
    drawn = collect(data, lambda rows, rng: rows["x"].sum() + rng.normal(), draws=1, jobs=1)
    assert len(np.unique(drawn.q)) == 50
    assert abs(drawn.q.mean() - 31.0) < 1.0
    np.testing.assert_allclose(drawn.without("a") - drawn.q, -9.0)  # the noise is the same without somebody
    rows = pd.DataFrame({"who": ["a", None, "b"], "x": [1.0, 2.0, 4.0]})
    for unidentified, with_everyone in (("keep", 7.0), ("drop", 5.0)):
        data = repeats(rows, individual="who", count=2, unidentified=unidentified)
        found = collect(data, lambda rows: float(rows["x"].sum()), jobs=1)
        assert found.q.tolist() == [with_everyone] * 2
        assert found.without("a").tolist() == [with_everyone - 1.0] * 2


@pytest.mark.parametrize("count", [0, -1, 2.5, True, "many"])
def test_a_number_of_repeats_is_a_positive_integer(count: Any) -> None:
    with pytest.raises(InputError, match="`count` must be a positive integer"):
        repeats(ROWS, individual="who", count=count)


def test_splits_keep_all_rows(engine: Engine) -> None:
    data = splits(MANY, individual="who", count=4, test=0.25)
    query = "SELECT count(*), count(*) FILTER (WHERE is_test), count(DISTINCT who) FILTER (WHERE is_test) FROM data"
    results = collect(data, query, engine=engine)
    assert (results.q[:, 0] == 2000).all()
    assert (results.q[:, 1] == 4 * results.q[:, 2]).all()
    assert ((90 < results.q[:, 2]) & (results.q[:, 2] < 160)).all()


@pytest.mark.slow
def test_awkward_names_and_types(engine: Engine) -> None:
    rows = pd.DataFrame(
        {
            'a "b"': [1, 1, 2],
            "select": ["p", "q", "p"],
            "größe ñ": [1.5, 2.5, 3.5],
            "Flag": [True, False, True],
            "at": pd.to_datetime(["2024-01-01", "2024-01-02", "2024-01-03"]),
        }
    )
    data = databases(rows, database='a "b"', individual="select")
    assert collect(data, 'SELECT sum("größe ñ") FROM data', engine=engine).q.tolist() == [4.0, 3.5]
    assert collect(data, "SELECT bool_or(flag) FROM data", engine=engine).q.tolist() == [1.0, 1.0]
    assert collect(data, 'SELECT max(epoch("at")) FROM data', engine=engine).q[0] == 1704153600.0
    with pytest.raises(QueryError, match="must give numbers"):
        collect(data, 'SELECT max("at") FROM data', engine=engine)
    by_time = databases(rows, database="date_trunc('month', \"at\")", individual="select")
    assert collect(by_time, "count(*)", engine=engine).q.tolist() == [3.0]


def test_wrong_names_come_with_the_nearest(engine: Engine) -> None:
    with pytest.raises(SourceError, match="did you mean 'who'"):
        collect(databases(ROWS, database="day", individual="whom"), "sum(x)", engine=engine)
    with pytest.raises(SourceError, match="`database`"):
        collect(databases(ROWS, database="days", individual="who"), "sum(x)", engine=engine)
    rows = ROWS.rename(columns={"x": "amount"})
    with pytest.raises(QueryError, match=r"'amont' at line 1, column 12 .* did you mean 'amount'"):
        collect(databases(rows, database="day", individual="who"), "SELECT sum(amont) FROM data", engine=engine)


def test_what_is_no_source_is_refused(tmp_path: Path) -> None:
    for source, kind in ((3, InputError), ("file.xyz", SourceError), ("file.duckdb", SourceError), ([], InputError)):
        with pytest.raises(kind):
            databases(source, database=None if source == [] else "day", individual="who")
    with pytest.raises(SourceError, match=r"must exist, got 'no\.parquet'"):
        collect(databases(tmp_path / "no.parquet", database="day", individual="who"), "count(*)")
    twice = pd.DataFrame([[1, 2]], columns=["x", "X"])
    with pytest.raises(SourceError, match="different names"):
        collect(databases(twice, database="x", individual="x"), "count(*)")
