"""Files as people have them: what is read, what is said of it in one sentence, and what `init` makes of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import empriv
from empriv.cli.main import main
from empriv.collecting import DuckDBEngine
from empriv.collecting.profile import missing_days, out_of_order, profile
from empriv.errors import QueryError

RNG = np.random.default_rng(4)


def rows(days: int = 40, people: int = 9) -> pd.DataFrame:
    n = days * people
    moments = pd.to_datetime("2024-01-01") + pd.to_timedelta(np.arange(n) % days, unit="D")
    return pd.DataFrame({"day": moments, "who": RNG.integers(0, people, n), "x": RNG.gamma(2, 500, n).round(2)})


def asked(frame: pd.DataFrame, path: Path, query: str = "sum(x)", who: str = "who") -> tuple[empriv.Results, list[str]]:
    frame.to_csv(path, index=False)
    said: list[str] = []
    data = empriv.databases(str(path), database="day", individual=who, unidentified="drop")
    return empriv.collect(data, query, notice=said.append), said


def test_numbers_that_became_doubles_are_called_what_they_were(tmp_path: Path) -> None:
    frame = rows()
    frame["who"] = frame.who + 17850.0
    frame.loc[::7, "who"] = np.nan
    results, _ = asked(frame, tmp_path / "t.csv")
    assert results.individuals.tolist() == [str(17850 + k) for k in range(9)]
    left = frame[(frame.who != 17853) & frame.who.notna()].groupby("day").x.sum()
    np.testing.assert_allclose(results.without("17853"), left)
    assert profile(DuckDBEngine(), str(tmp_path / "t.csv")).individuals == ("who",)


def test_columns_of_one_name_are_said(tmp_path: Path) -> None:
    frame = rows()
    expected = frame.groupby("day").x.sum()
    twice = frame.assign(y=0)[["day", "who", "x", "y"]].rename(columns={"y": "X"})
    results, said = asked(twice, tmp_path / "t.csv")
    np.testing.assert_allclose(results.q, expected)
    assert said == ["The file has more than one column 'X': a further one is called 'X_1' here."]
    assert asked(frame.assign(x_1=0), tmp_path / "u.csv")[1] == []


@pytest.mark.parametrize(
    ("query", "better"),
    [("avg(x > 3)", "avg(CAST(x > 3 AS INTEGER))"), ("avg((who = 3))", "avg(CAST(who = 3 AS INTEGER))")],
)
def test_an_average_of_what_is_true_says_what_to_write(tmp_path: Path, query: str, better: str) -> None:
    with pytest.raises(QueryError, match=r"is true or false. Hint: CAST\(... AS INTEGER\)"):
        asked(rows(), tmp_path / "t.csv", query)
    assert asked(rows(), tmp_path / "t.csv", better)[0].q.max() <= 1


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("sum(x), count(*)", "begins with SELECT, as in SELECT sum(x), count(*) FROM data"),
        ("SUM(x) FROM data", "begins with SELECT"),
        ("SELECT sum(x) FROM [data]", "names stand in double quotes, or in none"),
        ("SELECT sum(`x`) FROM data", "names stand in double quotes, or in none"),
        ("count(*) FILTER (WHERE who = \u2018a\u2019)", "straight quotes"),
        ("SELECT isnull(sum(x), 0) FROM data", "'coalesce'"),
        ("SELECT nvl(sum(x), 0) FROM data", "'coalesce'"),
        ("SELECT stdev(x) FROM data", "'stddev_samp'"),
        ("SELECT sumif(x, who = 3) FROM data", "'sum(...) FILTER (WHERE ...)'"),
    ],
)
def test_what_other_tools_take_is_said_in_sql(tmp_path: Path, query: str, hint: str) -> None:
    with pytest.raises(QueryError, match=re.escape(hint)):
        asked(rows(), tmp_path / "t.csv", query)


def test_zero_with_a_sign_is_the_same_person_and_a_fraction_is_kept(tmp_path: Path) -> None:
    frame = pd.DataFrame({"day": [1, 1, 2, 2], "who": [-0.0, 0.0, 0.5, 2.0], "x": 1.0})
    assert asked(frame, tmp_path / "t.csv")[0].individuals.tolist() == ["0", "0.5", "2"]


@pytest.mark.parametrize(
    ("form", "order"), [("%m/%d/%Y", "month"), ("%d/%m/%Y", "day"), ("%d.%m.%Y", "day"), ("%Y-%m-%d", None)]
)
def test_dates_of_which_one_order_fits_are_read_and_that_is_said(tmp_path: Path, form: str, order: str | None) -> None:
    frame = rows()
    expected = frame.groupby("day").x.sum()
    results, said = asked(frame.assign(day=frame.day.dt.strftime(form)), tmp_path / "t.csv")
    np.testing.assert_allclose(results.q, expected)
    assert [re.findall("the (day|month) first", sentence) for sentence in said] == ([] if order is None else [[order]])


@pytest.mark.parametrize("form", ["%d/%m/%y", "%m/%d/%Y %H:%M", "%d.%m.%y %I:%M %p"])
def test_dates_that_stay_text_come_with_the_sql_that_reads_them(form: str) -> None:
    frame = rows()
    said = out_of_order(np.unique(frame.day.dt.strftime(form).to_numpy(str)), "day")
    assert said is not None
    expression = re.search(r"Hint: (.*) makes dates", said)
    assert expression is not None
    data = empriv.databases(
        frame.assign(day=frame.day.dt.strftime(form)), database=expression.group(1), individual="who"
    )
    np.testing.assert_allclose(empriv.collect(data, "sum(x)").q, frame.groupby("day").x.sum())


@pytest.mark.slow
@pytest.mark.parametrize(
    "written", ["£{:,.2f}", "{:,.2f}", "${:.2f}", "{:.2f}%", "€ {:,.2f}", "{:.2f}", "-£{:.2f}", "german {:.2f}"]
)
def test_numbers_with_signs_around_them_get_the_sql_that_strips_them(tmp_path: Path, written: str) -> None:
    frame = rows()
    text = frame.x.map(written.removeprefix("german ").format)
    if written.startswith("german"):
        text = (frame.x.map("{:,.2f} €".format)).str.translate(str.maketrans(",.", ".,"))
    frame["x"] = frame.x * (-1 if written.startswith("-") else 1)
    expected = frame.groupby("day").x.sum()
    if written == "{:.2f}":
        text = "_" + text.where(frame.index == 0, text)  # a sign that nobody knows
        with pytest.raises(QueryError, match="none of its"):
            asked(frame.assign(x=text), tmp_path / "t.csv")
        return
    with pytest.raises(QueryError, match="needs a number in sum") as refused:
        asked(frame.assign(x=text), tmp_path / "t.csv")
    expression = re.search(r"Hint: (CAST.* AS DOUBLE\))", str(refused.value))
    assert expression is not None, str(refused.value)
    results, _ = asked(frame.assign(x=text), tmp_path / "t.csv", f"sum({expression.group(1)})")
    np.testing.assert_allclose(results.q, expected)


def test_days_that_are_missing_are_mentioned_and_weekends_are_not(tmp_path: Path) -> None:
    frame = rows()
    gone = frame[~frame.day.isin(pd.to_datetime(["2024-01-10", "2024-01-20"]))]
    assert [sentence[:40] for sentence in asked(gone, tmp_path / "t.csv")[1]] == [
        "2 days of the series have no rows (the f"
    ]
    assert asked(frame, tmp_path / "t.csv")[1] == []
    days = np.arange("2024-01-01", "2024-03-01", dtype="datetime64[D]")
    weekdays = days[np.is_busday(days)]
    assert missing_days(weekdays) is None
    assert str(missing_days(np.delete(weekdays, 9))).startswith("One day of the series has no rows (2024-01-12)")
    weeks, months = days[::7], np.arange("2020-01", "2024-01", dtype="datetime64[M]").astype("datetime64[D]")
    assert missing_days(np.concatenate((weeks, weeks + 63))) is None
    assert "2 months" in str(missing_days(np.delete(months, [3, 30])))
    assert missing_days(months) is None
    assert missing_days(np.array(["a", "b"] * 9)) is None
    zoned = np.array([f"{day} 00:00:00-05" for day in np.delete(days, 7)])
    assert "2024-01-08" in str(missing_days(zoned))
    assert missing_days(np.array([f"2024-13-{k:02}" for k in range(20)])) is None
    assert missing_days(days.astype("datetime64[h]") + np.timedelta64(5, "h")) is None


def test_a_text_among_numbers_makes_text_of_them_and_that_is_said(tmp_path: Path) -> None:
    frame = pd.concat([rows()] * 70, ignore_index=True).astype({"x": object})
    frame.loc[len(frame) - 1, "x"] = "."
    results, said = asked(frame, tmp_path / "t.csv", "sum(TRY_CAST(x AS DOUBLE))")
    assert results.n_databases == 40
    assert any("Read as text, since some values are not numbers: 'x'." in sentence for sentence in said)


def test_init_of_hundreds_of_columns_of_text_and_of_what_it_must_not_suggest() -> None:
    frame = rows(people=3).drop(columns="day")
    frame.insert(0, "Unnamed: 0", np.arange(len(frame)))
    frame["year"] = 1900 + np.arange(len(frame)) % 40
    texts = pd.DataFrame({f"c{k}": "v" + frame.who.astype(str) for k in range(60)})
    seen = profile(DuckDBEngine(), pd.concat([frame, texts], axis=1))
    assert seen.individuals == ("who",)
    assert seen.databases == (("year", 40),)
    assert seen.amounts == ("x",)


def test_what_init_says_next_runs_and_rows_of_nobody_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    frame = rows().astype({"who": float})
    frame.loc[0, "who"] = np.nan
    (tmp_path / "data").mkdir()
    frame.to_csv(tmp_path / "data" / "t.csv", index=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    written = CliRunner().invoke(main, ["init", "../data/t.csv"])
    said = re.search(r"empriv check (.*)\n", written.output)
    assert said is not None, written.output
    done = CliRunner().invoke(main, ["check", *said.group(1).rstrip(".").split()])
    assert done.exit_code == 0, done.output
    assert 'unidentified = "keep"' in Path("audit.toml").read_text()
