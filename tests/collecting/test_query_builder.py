"""SQL of a statistic put together from choices: what it computes, and that nothing breaks out of its quotes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

import empriv
from empriv.collecting.profile import ColumnProfile, count, gives, in_sql, profile
from empriv.collecting.query_builder import MEASURES, OPERATORS, RowCondition, Statistic, written
from empriv.errors import InputError

HOSTILE = "a \"b\" 'c' <script>; DROP TABLE data --"
O_NEIL = 'O\'Neil "x"; --'


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    """Two days of rows, with NULLs, quotes, dates, moments, and hostile names."""
    people = 12
    rows = people * 6
    return pd.DataFrame({
        "d": [date(2024, 1, 1) + timedelta(days=k % 2) for k in range(rows)],
        "who": [f"p{k % people}" for k in range(rows)],
        "amount": [None if k % 7 == 0 else float(k % 5) - 1.5 for k in range(rows)],
        HOSTILE: [O_NEIL if k % 4 == 0 else None if k % 4 == 1 else "a, b" for k in range(rows)],
        "order": list(range(rows)),
        "ok": [k % 3 == 0 for k in range(rows)],
        "day": [date(2024, 1, 1 + k % 20) for k in range(rows)],
        "t": [datetime(2024, 1, 1 + k % 20, 12) for k in range(rows)],
        "written": [f"2024-01-{1 + k % 20:02}" for k in range(rows)],
    })  # fmt: skip


@pytest.fixture(scope="module")
def columns(frame: pd.DataFrame) -> tuple[ColumnProfile, ...]:
    return profile(empriv.DuckDBEngine(), frame).details


@pytest.fixture(scope="module")
def connection(frame: pd.DataFrame) -> Iterator[Any]:
    with duckdb.connect() as connection:
        connection.register("data", frame)
        yield connection


def answer(connection: Any, sql: str) -> Any:
    """What DuckDB gives of all rows."""
    return connection.execute(sql if sql.startswith("SELECT") else f"SELECT {sql} FROM data").fetchall()


class TestWhatIsComputed:
    @pytest.mark.parametrize(
        ("measure", "of"),
        [
            ("sum", lambda rows: rows["amount"].sum()),
            ("mean", lambda rows: rows["amount"].mean()),
            ("median", lambda rows: rows["amount"].median()),
            ("count", len),
            ("people", lambda rows: rows["who"].nunique()),
        ],
    )
    def test_of_all_rows(self, frame: pd.DataFrame, columns: Any, connection: Any, measure: str, of: Any) -> None:
        ((given,),) = answer(connection, written(Statistic(measure, "amount"), columns, ["who"]))
        assert given == pytest.approx(of(frame))

    @pytest.mark.parametrize(
        ("condition", "holds"),
        [
            (("amount", "≥", "-0.5"), lambda r: r["amount"] >= -0.5),
            (("amount", "≠", "1.5"), lambda r: r["amount"].notna() & (r["amount"] != 1.5)),
            (("amount", "is empty", "ignored"), lambda r: r["amount"].isna()),
            (("amount", "is not empty", ""), lambda r: r["amount"].notna()),
            (("amount", "is one of", "-1.5, 2.5"), lambda r: r["amount"].isin([-1.5, 2.5])),
            ((HOSTILE, "=", O_NEIL), lambda r: r[HOSTILE] == O_NEIL),
            ((HOSTILE, "is one of", '"a, b", nobody'), lambda r: r[HOSTILE] == "a, b"),
            ((HOSTILE, "=", "NULL"), lambda r: r[HOSTILE] == "NULL"),
            (("order", "<", "30"), lambda r: r["order"] < 30),
            (("ok", "=", "Yes"), lambda r: r["ok"]),
            (("ok", "is one of", "no, false"), lambda r: ~r["ok"]),
            (("day", "≤", "2024-01-05"), lambda r: r["day"] <= date(2024, 1, 5)),
            # a day stands for all of its moments, whether it is the first or the last that counts
            (("t", "=", "2024-01-05"), lambda r: r["t"].dt.day == 5),
            (("t", "≤", "2024-01-05"), lambda r: r["t"].dt.day <= 5),
            (("t", ">", "2024-01-05 12:00"), lambda r: r["t"] > datetime(2024, 1, 5, 12)),
            (("t", "is one of", "2024-01-05, 2024-01-06 12:00"), lambda r: r["t"].dt.day.isin([5, 6])),
            (("written", "≥", "2024-01-09"), lambda r: r["day"] >= date(2024, 1, 9)),
        ],
    )
    def test_with_a_condition(
        self, frame: pd.DataFrame, columns: Any, connection: Any, condition: Any, holds: Any
    ) -> None:
        sql = written(Statistic("count", where=(RowCondition(*condition),)), columns, ["who"])
        assert answer(connection, sql) == [(int(holds(frame).sum()),)]
        rate = written(Statistic("rate", holds=RowCondition(*condition)), columns, ["who"])
        assert answer(connection, rate)[0][0] == pytest.approx(holds(frame).mean())
        assert empriv.Query(sql).names
        assert empriv.Query(rate).names

    def test_by_group_with_several_conditions(self, frame: pd.DataFrame, columns: Any, connection: Any) -> None:
        conditions = (RowCondition("order", "≥", "6"), RowCondition("amount", "is not empty"))
        sql = written(Statistic("sum", "amount", by=HOSTILE, where=conditions), columns, ["who"])
        kept = frame[(frame["order"] >= 6) & frame["amount"].notna()]
        sums = kept.fillna({HOSTILE: "NULL"}).groupby(HOSTILE)["amount"].sum().to_dict()
        assert {group or "NULL": given for group, given in answer(connection, sql)} == pytest.approx(sums)
        data = empriv.databases(frame, database="d", individual="who")
        assert set(empriv.collect(data, sql).components or ()) == set(sums)

    def test_people_of_several_columns(self, frame: pd.DataFrame, columns: Any, connection: Any) -> None:
        sql = written(Statistic("people"), columns, ["who", "ok"])
        assert answer(connection, sql) == [(frame[["who", "ok"]].drop_duplicates().shape[0],)]


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("statistic", "field"),
        [
            (Statistic("mean", "who"), "column"),
            (Statistic("mean", "absent"), "column"),
            (Statistic("mean"), "column"),
            (Statistic("variance", "amount"), "measure"),
            (Statistic("rate"), "holds"),
            (Statistic("rate", holds=RowCondition("amount", "=", "1,5")), "holds"),
            (Statistic("count", by="absent"), "by"),
            *(
                (Statistic("count", where=(RowCondition("ok", "=", "yes"), RowCondition(*wrong))), "where_1")
                for wrong in [
                    ("absent", "=", "1"), ("amount", "LIKE", "1"), ("amount", "=", ""), ("amount", "=", "nan"),
                    ("amount", "=", "1 OR TRUE"), ("amount", "=", "1_0"), ("amount", "=", "٣"),
                    ("amount", "is one of", ","), ("amount", "is one of", "1\r2"), ("ok", "=", "perhaps"),
                    ("day", "=", "03/01/2024"), ("day", "=", "2024-13-01"), ("t", ">", "yesterday at noon"),
                ]
            ),
        ],
    )  # fmt: skip
    def test_the_field_is_named(self, columns: Any, statistic: Statistic, field: str) -> None:
        with pytest.raises(InputError, match=f"^`{field}` must") as raised:
            written(statistic, columns, ["who"])
        assert "OR TRUE" not in str(raised.value)

    def test_people_before_it_is_known_who_they_are(self, columns: Any) -> None:
        with pytest.raises(InputError, match="measure"):
            written(Statistic("people"), columns, [])


def test_every_word_of_sql_can_be_the_name_of_a_column() -> None:
    with duckdb.connect() as connection:
        listed = "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'"
        words = [row[0] for row in connection.execute(listed).fetchall()]
        words += [
            *["if", "rollup", "cube", "lock", "current_date", "user", "Day", "ß", "a.b", "1", "*"],
            "zweite Spalte",
            '"',
        ]
        for word in words:
            name = in_sql(word)
            quoted = '"' + word.replace('"', '""') + '"'
            sql = f"SELECT sum({name}) FROM (SELECT 7 AS {quoted}) AS data WHERE {name} = 7"
            assert connection.execute(sql).fetchall() == [(7,)]
            assert empriv.Query(f"sum({name})").select is not None
    assert in_sql("amount") == "amount"


def test_all_measures_and_comparisons_are_listed_for_the_page() -> None:
    statistic = pytest.importorskip("empriv.app.data", reason="install the app's packages: pip install 'empriv[app]'")
    assert set(statistic.MEASURES) == set(MEASURES)
    assert statistic.OPERATORS == OPERATORS


class TestBeforeItIsRun:
    def test_counts_with_rows_of_nobody(self, tmp_path: Path) -> None:
        path = tmp_path / "rows.csv"
        path.write_text("d,who,x\n" + "".join(f"2024-01-0{k},p{k},1\n" for k in range(1, 8)) + "2024-01-09,,1\n")
        counted = {}
        for unidentified in ("error", "keep", "drop"):
            data = empriv.databases(str(path), database="d", individual="who", unidentified=unidentified)  # type: ignore[arg-type]
            counted[unidentified] = count(empriv.DuckDBEngine(), data)
        assert {c.unidentified for c in counted.values()} == {1}
        assert {c.individuals for c in counted.values()} == {7}
        assert [c.databases for c in counted.values()] == [8, 8, 7]  # a day of nobody's rows alone is dropped

    def test_counts_of_random_samples(self, frame: pd.DataFrame) -> None:
        data = empriv.subsamples(frame, individual="who", count=40, fraction=0.5)
        counted = count(empriv.DuckDBEngine(), data)
        assert (counted.databases, counted.individuals, counted.rows) == (40, 12, 72)

    @pytest.mark.slow
    def test_what_a_query_gives(self, frame: pd.DataFrame) -> None:
        data = empriv.databases(frame, database="d", individual="who")
        engine = empriv.DuckDBEngine()
        assert gives(engine, data, "avg(amount)").names is None
        assert gives(engine, data, "SELECT ok, avg(amount) FROM data GROUP BY ok").names == ("false", "true")
        assert gives(engine, data, "SELECT first(amount) FROM data").slow
        for refused in ("avg(absent)", "SELECT who, count(*) FROM data GROUP BY who", "SELECT * FROM read_csv('x')"):
            with pytest.raises(empriv.EmprivError):
                gives(engine, data, refused)

    @pytest.mark.slow
    def test_times_that_are_text_or_moments(self, tmp_path: Path, frame: pd.DataFrame) -> None:
        zoned = frame.assign(zoned=frame["t"].dt.tz_localize("UTC"))
        path = tmp_path / "zoned.parquet"
        zoned.to_parquet(path)
        seen = {column.name: column for column in profile(empriv.DuckDBEngine(), str(path)).details}
        assert seen["zoned"].zoned == len(frame)
        assert seen["t"].zoned == seen["written"].zoned == 0
        assert [seen[name].as_text for name in ("written", "t", "day", "zoned")] == [True, False, False, False]
        for unit in ("day", "week", "month"):
            for name in ("written", "zoned"):
                data = empriv.databases(str(path), database=seen[name].cut(unit), individual="who")
                assert count(empriv.DuckDBEngine(), data).databases == {"day": 20, "week": 3, "month": 1}[unit]
