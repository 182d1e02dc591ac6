"""What a new user meets, following the README with data of their own: it works, or one sentence says what to do.

Each trial is a command as it was typed once, and what it must say now. Nothing said may hold a value of the rows.
"""

from __future__ import annotations

import datetime
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import empriv
from empriv.cli.main import main
from empriv.measuring.given.calendar import calendar_terms, times_of
from empriv.words import sentences

_RANDOM = random.Random(0)
ROWS = [
    (datetime.date(2024, 1, 1) + datetime.timedelta(days=day), f"Ms Person{who}", round(_RANDOM.uniform(6, 50), 2))
    for day in range(40)
    for who in range(4)
]
SUM = "SELECT sum(amount) FROM data"


def table(
    name: str,
    header: str = "day,client_id,amount",
    line: Callable[[datetime.date, str, float], str] = lambda day, who, amount: f"{day},{who},{amount}",
    encoding: str = "utf-8",
    rows: int = len(ROWS),
) -> None:
    Path(name).write_bytes(("\n".join([header, *(line(*row) for row in ROWS[:rows])]) + "\n").encode(encoding))


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(tmp_path_factory.mktemp("user"))
    table("sales.csv")
    table("slashes.csv", line=lambda day, who, amount: f"{day:%d/%m/%Y},{who},{amount}")
    table("months.csv", line=lambda day, who, amount: f'"{day:%b %d, %Y}",{who},{amount}')
    table("semicolons.csv", "day;client_id;amount", lambda day, who, amount: f"{day};{who};{amount}")
    table(
        "commas.csv",
        "day;client_id;amount",
        lambda day, who, amount: f"{day};{who};{str(amount).replace('.', ',')}",
    )
    table("bom.csv", encoding="utf-8-sig")
    table("latin.csv", line=lambda day, who, amount: f"{day},{who} Zoë,{amount}", encoding="latin-1")
    table("Spaces.CSV", "Day,Client ID,Total Amount")
    table("twice.csv", "day,client_id,amount,amount", lambda day, who, amount: f"{day},{who},{amount},0")
    table("undated.csv", line=lambda day, who, amount: f"{day if who != 'Ms Person3' else ''},{who},{amount}")
    table("nobody.csv", line=lambda day, who, amount: f"{day},{who if who != 'Ms Person3' else ''},{amount}")
    table("euros.csv", line=lambda day, who, amount: f"{day},{who},{amount} EUR")
    table("gaps.csv", line=lambda day, who, amount: f"{day},{who},{amount if amount > 10 else 'n/a'}")
    table(
        "times.csv",
        "t,client_id,amount",
        lambda day, who, amount: f"{day} {int(amount) % 24:02d}:{int(100 * amount) % 60:02d}:07,{who},{amount}",
    )
    table("three.csv", rows=12)
    table("header.csv", rows=0)
    Path("empty.csv").write_text("")
    Path("ragged.csv").write_text("day,client_id,amount\n2024-01-02,x\n2024-01-03,x,3,4,5\n2024-01-04,x,3\n")
    for name in ("book.xlsx", "old.xls", "odd.feather", "no parquet.parquet"):
        Path(name).write_text("x")
    yield
    os.chdir(before)


def audit(file: str, query: str = SUM, database: str = "day", individual: str = "client_id", *more: str) -> Result:
    said = CliRunner().invoke(
        main, ["audit", file, "--database", database, "--individual", individual, "--query", query, "--quiet", *more]
    )
    assert said.exception is None or isinstance(said.exception, SystemExit)
    assert "Traceback" not in said.output
    assert "Person" not in said.output
    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "changes"),
    [
        ("sales.csv", {}),
        ("sales.csv", {"query": f"{SUM};"}),
        ("sales.csv", {"query": "sum(amount);"}),
        ("sales.csv", {"query": "SELECT SUM(AMOUNT) FROM DATA", "database": "DAY", "individual": "Client_Id"}),
        ("slashes.csv", {}),
        ("semicolons.csv", {}),
        ("bom.csv", {}),
        ("twice.csv", {}),
        ("Spaces.CSV", {"query": 'SELECT sum("Total Amount") FROM data', "database": "day", "individual": "client id"}),
        ("commas.csv", {"query": "sum(CAST(replace(amount, ',', '.') AS DOUBLE))"}),
        ("gaps.csv", {"query": "sum(TRY_CAST(amount AS DOUBLE))"}),
        ("times.csv", {"database": "date_trunc('day', \"t\")"}),
        ("months.csv", {"database": "strptime(day, '%b %d, %Y')"}),
        ("SELECT * FROM read_csv('latin.csv', encoding='latin-1')", {}),
        ("three.csv", {}),
        ("SELECT * FROM 'undated.csv' WHERE day IS NOT NULL", {}),
    ],
)
def test_it_works_as_hoped(file: str, changes: dict[str, str]) -> None:
    said = audit(file, **changes)
    assert said.exit_code == 0
    assert said.stderr == ""


# What the first trials said is in the comments, where it was less.
REFUSED: list[tuple[str, dict[str, str], str]] = [
    ("sales.csv", {"database": "dya"}, "must name a column of the source, got 'dya'. Hint: did you mean 'day'?"),
    ("sales.csv", {"individual": "client"}, "Hint: did you mean 'client_id'?"),
    # no hint
    ("sales.csv", {"individual": "person"}, "got 'person'. Hint: the names stand in the first line of a CSV file."),
    ("Spaces.CSV", {"individual": "client_id"}, "Hint: did you mean 'Client ID'?"),
    # "No function matches the given name and argument types 'sum(VARCHAR)'. You might need to add explicit type casts."
    ("commas.csv", {}, "Hint: CAST(replace(amount, ',', '.') AS DOUBLE) makes numbers of its values."),
    ("gaps.csv", {}, "needs a number in sum(), but 'amount' at line 1, column 12 is not one. Hint: TRY_CAST("),
    ("euros.csv", {"query": "avg(amount)"}, "Hint: none of its 160 values is a number as it stands"),
    # "DuckDB reports a InvalidInputException."
    ("latin.csv", {}, "a file holds text that is not UTF-8. Hint: save it as UTF-8, or read it by SQL"),
    ("no parquet.parquet", {}, "a file is missing, or not what its name says"),
    # "`individual` must name a column of the source, got 'client_id'."
    ("empty.csv", {}, "The file must hold rows, got 'empty.csv', which is empty."),
    ("ragged.csv", {}, "The lines of a CSV file must all have as many fields as the first"),
    ("header.csv", {}, "The file must hold rows, got 'header.csv', which holds none below its header."),
    ("nowhere.csv", {}, "The file must exist, got 'nowhere.csv'."),
    ("nowhere*.csv", {}, "The file must match a file, got 'nowhere*.csv'."),
    (".", {}, 'got a folder. Hint: "folder/*.csv" names all CSV files in it.'),
    # a list of endings
    ("book.xlsx", {}, "Hint: save the sheet as CSV, or give the frame that pandas.read_excel returns."),
    ("old.xls", {}, "Hint: save the sheet as CSV"),
    ("odd.feather", {}, "`source` must be a file whose name ends in one of .parquet"),
    ("nobody.csv", {}, "`individual` must not be NULL, but is in 40 of 160 rows. Hint: --unidentified keep"),
    ("undated.csv", {}, "in 40 of 160 rows. Hint: \"SELECT * FROM 'undated.csv' WHERE day IS NOT NULL\" in place of"),
    # an audit of 160 databases of one row each
    ("times.csv", {"database": "t"}, "Hint: date_trunc('day', \"t\") makes a database of each day."),
    ("sales.csv", {"query": "SELECT max(client_id) FROM data"}, "must give numbers, but its result 'MAX(client_id)'"),
    ("sales.csv", {"query": "amount"}, "must give one row. Hint: an aggregate, such as sum(x), makes one number"),
    ("sales.csv", {"query": "DELETE FROM data"}, "must be a SELECT or an expression of aggregates"),
    ("sales.csv", {"query": "sum(CAST(client_id AS DOUBLE))"}, "fails on every database. Hint: a text that is no"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("file", "changes", "words"), REFUSED)
def test_one_sentence_says_what_to_do(file: str, changes: dict[str, str], words: str) -> None:
    said = audit(file, **changes)
    assert said.exit_code == 1
    assert words in said.stderr
    assert said.stderr.startswith("Error: ")
    assert said.stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "words", "place"),
    [
        ("SELECT sum(ammount) FROM data", "column 12 that does not exist. Hint: did you mean 'amount'?", "ammount"),
        ("SELECT sum(amount)\nFROM data\nWHERE cleint_id > 'A'", "line 3, column 7 that does", "cleint_id"),
        ("SELECT sum(d.amuont) FROM data AS d", "Hint: did you mean 'amount'?", "amuont"),
        ('SELECT sum(amount) FROM data WHERE client_id > "A"', "Hint: a text stands in single quotes", '"…"'),
        ('SELECT sum(amount) FROM data WHERE client_id > "Ms Person1"', "double quotes are for names.", '"……'),
        ("SELECT sum(amunt) -- it isn't\nFROM data WHERE client_id <> 'Ms Person1'", "'amount'?", "amunt"),
        ("SELECT sum(amount) -- isn't\nFORM data WHERE client_id <> 'Ms Person1'", "should 'FORM' be FROM?", "data"),
        ("SELECT summ(amount) FROM data", "calls a function 'summ'", "summ"),
        ("SELECT average(amount) FROM data", "Hint: did you mean 'avg'?", "average"),
        ("SELECT sum(amount) FROM sales", "Hint: the rows are called data: write FROM data.", "sales"),
        ("SELECT sum(sales.amount) FROM data", "Hint: write amount alone, or data.amount.", "sales"),
        ("SELECT sum(amount FROM data", "which fails at line 1, column 19, where ')' is missing.", "FROM"),
        ("SELECT sum(amount) FORM data", "Hint: should 'FORM' be FROM?", "data"),
        ("SELEC sum(amount) FROM data", "Hint: should 'SELEC' be SELECT?", "(amount"),
        ("SELECT sum(Total Amount) FROM data", 'Hint: if this is one name, write "Total Amount".', "Amount"),
        ("SELECT sum(amount) FROM data WHERE client_id = 'Ms Person1", "the quote ' at line 1", "'"),
        ("SELECT sum(amunt) FROM data WHERE client_id <> 'Ms Person1' AND amount <> 123456", "'amount'?", "amunt"),
    ],
)
def test_a_query_is_shown_with_a_caret_at_the_place(query: str, words: str, place: str) -> None:
    for command in ("audit", "explain"):
        said = CliRunner().invoke(
            main, [command, "sales.csv", "--database", "day", "--individual", "client_id", "--query", query]
        )
        assert said.exit_code == 1
        *sentence, line, caret = said.stderr.splitlines()
        assert words in "\n".join(sentence)
        assert "Person" not in said.output
        assert "123456" not in said.output
        assert line[caret.index("^") :].startswith(place)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["auditt"], "Did you mean 'audit'?"),
        (["audit", "sales.csv", "--databse", "day"], "'--database'"),
        (["audit", "sales.csv", "--database", "day", "--query", SUM], "Missing option '--individual'"),
        (["audit", "sales.csv", "--database", "day", "--individual", "client_id"], "Missing option '--query'"),
    ],
)
def test_misspelt_options_are_usage_errors(arguments: list[str], words: str) -> None:
    said = CliRunner().invoke(main, arguments)
    assert said.exit_code == 2
    assert words in said.stderr


@pytest.mark.slow
def test_three_databases_are_audited_and_no_bound_is_claimed() -> None:
    said = audit("three.csv", SUM, "day", "client_id", "--target", "delta <= 0.9999 at 0.1")
    assert said.exit_code == 4
    assert empriv.audit(source("three.csv"), SUM).bounds(0.1).upper == 1.0


@pytest.mark.slow
def test_dates_that_sort_as_text_are_pointed_out() -> None:
    arguments = ["audit", "months.csv", "--database", "day", "--individual", "client_id", "--query", SUM]
    said = CliRunner().invoke(main, arguments)
    assert said.exit_code == 0
    assert "Hint: strptime(day, '%b %d, %Y') makes dates of them." in said.stderr
    arguments[3] = "strptime(day, '%b %d, %Y')"
    assert "Hint" not in CliRunner().invoke(main, arguments).stderr


def source(what: Any, **changes: Any) -> empriv.Databases:
    return empriv.databases(what, **{"database": "day", "individual": "client_id", **changes})


def frame() -> pd.DataFrame:
    return pd.DataFrame(ROWS, columns=["day", "client_id", "amount"])


PYTHON: list[tuple[Callable[[], Any], str]] = [
    (lambda: empriv.collect(source(frame().set_index("day")), SUM), "which is the frame's index. Hint: frame.reset_"),
    (lambda: empriv.collect(source(frame(), individual="person"), SUM), "there are 'day', 'client_id', 'amount'"),
    (lambda: empriv.audit(frame(), SUM), "got DataFrame. Hint: empriv.databases(source"),  # type: ignore[arg-type]
    (lambda: source(frame(), individual=None), "`individual` must be a column name, or several"),
    (lambda: source(frame(), unidentified="ignore"), "`unidentified` must be 'error', 'keep' or 'drop', got 'ignore'"),
    (lambda: empriv.collect(source("nowhere.csv"), SUM), "The file must exist, got 'nowhere.csv'"),
    (lambda: empriv.collect(source("nowhere*.csv"), SUM), "must match a file, got 'nowhere*.csv'"),
    (lambda: empriv.collect(source(frame().astype({"amount": str})), SUM), "Hint: CAST(amount AS DOUBLE) makes"),
    (lambda: empriv.collect(source(frame()), lambda rows: rows["ammount"].sum(), jobs=1), "KeyError in line"),
    (lambda: empriv.collect(source(frame()), lambda rows: rows.amount.sum(), jobs=1), "Rows are a dict of arrays"),
    (lambda: empriv.collect(source(frame()), lambda _rows, _rng: 0.0, jobs=1), "Hint: with draws=1 it is given"),
    (lambda: empriv.collect(source(frame()), lambda _rows: 0.0, draws=2, jobs=1), "must take the rows and a generator"),
    (lambda: empriv.collect(source(frame(), tables={"people": frame()}),
        "SELECT sum(amount) FROM data JOIN poeple USING (client_id)"), "there are 'data', 'people'"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("tried", "words"), PYTHON)
def test_python_says_what_to_do(tried: Callable[[], Any], words: str) -> None:
    with pytest.raises(empriv.EmprivError) as caught:
        tried()
    assert words in str(caught.value)
    assert "Person" not in str(caught.value)


def test_a_column_of_times_is_fine_where_databases_have_many_rows() -> None:
    days = frame().assign(day=lambda rows: pd.to_datetime(rows["day"]) + pd.Timedelta(hours=9))
    assert len(empriv.collect(source(days), SUM).q) == 40
    # An expression is what the user made of it, one row or many.
    moments = frame().assign(day=pd.to_datetime("2024-01-01") + pd.to_timedelta(np.arange(len(ROWS)), unit="min"))
    assert len(empriv.collect(source(moments, database="day + INTERVAL 1 HOUR"), SUM).q) == len(ROWS)


def test_lines_that_are_not_alike_are_not_called_a_wrong_encoding() -> None:
    lines = ["day,client_id,amount", *(f"{day},{who},{amount}\rEUR" for day, who, amount in ROWS)]
    Path("ends.csv").write_text("\r\n".join(lines), newline="")
    said = audit("ends.csv")
    assert said.exit_code == 1
    assert "UTF-8" not in said.stderr
    assert "every line has as many fields" in said.stderr


def test_months_labelled_by_their_first_day_have_no_weekday() -> None:
    def told(labels: list[datetime.date]) -> list[str]:
        times = times_of(np.array(labels, "datetime64[D]"))
        assert times is not None
        return [term.name for term in calendar_terms(times)]

    firsts = [datetime.date(2019 + month // 12, 1 + month % 12, 1) for month in range(60)]
    assert told(firsts) == ["trend"]
    assert told([datetime.date(2024, 1, 1) + datetime.timedelta(days=day) for day in range(60)]) == ["trend", "weekday"]


def test_unordered_keeps_previous_answers_out_where_the_user_said_so() -> None:
    said = audit("sales.csv", SUM, "day", "client_id", "--known", "previous,unordered")
    assert said.exit_code == 1
    assert "where the databases are said to have no order." in said.stderr


@pytest.fixture(scope="module")
def seldom() -> empriv.Audit:
    """Somebody in a fifth of the databases, whom one publication may expose where they are there."""
    rng = np.random.default_rng(3)
    q = rng.normal(100.0, 10.0, 120)
    return empriv.audit(empriv.Results.from_arrays(q, np.where(rng.random(120) < 0.2, q - 2.0, q)[None]), epsilon=0.1)


def test_as_often_as_the_verdict_allows(seldom: empriv.Audit) -> None:
    """Where one publication misses a target for people who are there, none is within it."""
    day = next(target for target in seldom.verdict(epsilon=0.1, delta=0.05).judged if target.where)
    assert seldom.bounds(0.1).upper < day.upper
    target = {"epsilon": 0.1, "delta": (seldom.bounds(0.1).upper + day.upper) / 2}
    assert seldom.verdict(**target, presence="random") == "pass"
    assert seldom.verdict(**target) != "pass"
    assert seldom.how_often(**target, presence="random").by_bound >= 1
    assert seldom.how_often(**target).by_bound == 0
    assert seldom.repeated(5).how_often(**target) == seldom.how_often(**target)


def test_databases_needed_must_resolve_both_places(seldom: empriv.Audit) -> None:
    day = next(target for target in seldom.verdict(epsilon=0.1, delta=0.02).judged if target.where)
    assert seldom.delta(0.1) < 0.02 < day.estimate
    assert seldom.verdict(epsilon=0.1, delta=0.02).databases_needed is None  # more would not do on the day


def test_numbers_are_written_as_people_write_them() -> None:
    upper, lower = empriv.Bounds(0.1, 0.95, 0.9999, 0.9999, 0.9999, np.zeros(1), ()).said
    assert "delta < 1. Assumes" in upper
    assert "delta > 0.99." in lower
    assert [sentences.quantity(value) for value in (3.0, 4154.46, 130451.2)] == ["3", "4,154.5", "130,451"]
    assert (_policy(365), _policy("365d")) == ("for any 365 releases in a row", "for all releases from 365 days")


def _policy(window: str | int) -> str:
    name = f"{window}.ledger"
    said = CliRunner().invoke(
        main, ["ledger", "init", name, "--epsilon", "1", "--delta", "0.1", "--window", str(window)]
    )
    assert said.exit_code == 0
    return said.stdout.strip().rstrip(".").partition("at epsilon 1 ")[2]


def test_figures_of_one_publication_do_not_stand_beside_those_of_many() -> None:
    rng = np.random.default_rng(5)
    days = np.datetime64("2024-01-01") + np.arange(120)
    q = 100.0 + 30.0 * (np.arange(120) % 7 < 5) + rng.normal(0.0, 10.0, 120)
    results = empriv.Results.from_arrays(q, np.where(np.arange(120) % 7 < 5, q - 3.0, q)[None], databases=days)
    once = empriv.audit(results, epsilon=0.1)
    assert "Ignoring what is known" in str(once)
    many = str(once.repeated(50))
    assert "Counted as known" in many
    assert "Ignoring what is known" not in many


def trial(name: str, header: str, rows: list[str], *asked: str, code: int) -> Result:
    """A command on a table of one's own, which must end so."""
    Path(name).write_text("\n".join([header, *rows]) + "\n")
    done = CliRunner().invoke(main, ["audit", *asked, "--target", "delta <= 0.05 at 0.1"])
    assert done.exit_code == code, done.output
    return done


@pytest.mark.slow
def test_web_visits_payroll_and_a_clinics_months_get_a_decision() -> None:
    rng = np.random.default_rng(5)
    start = datetime.datetime(2026, 1, 1, 9)
    visits = [
        f"{start + datetime.timedelta(days=day, minutes=int(rng.integers(0, 600)))},v{who},{rng.exponential(40):.1f}"
        for day in range(60)
        for who in range(40)
        if rng.random() < 0.5
    ]
    by_day = ("--database", "date_trunc('day', time)", "--individual", "visitor", "--query", "avg(seconds)")
    done = trial("visits.csv", "time,visitor,seconds", visits, "visits.csv", *by_day, "--unit", "s", code=3)
    assert done.stdout.startswith("Do not publish as it is\nThe answer hides any visitor that moves it by up to 0.")
    assert " s  " in done.stdout

    pay = [f"Site {k % 40:02d};{k};{rng.normal(4200, 600):.2f}" for k in range(800)]
    by_site = ("--database", "Site", "--individual", "Employee No", "--query", "avg(Salary)", "--unit", "€")
    done = trial("payroll.csv", "Site;Employee No;Salary", pay, "payroll.csv", *by_site, code=3)
    assert done.stdout.startswith(
        "Do not publish as it is\nNothing shows that the answer hides any employee that moves it; one employee"
    )
    assert "€" in done.stdout

    months = [
        f"01/{month % 12 + 1:02d}/{2022 + month // 12},P{who}"
        for month in range(36)
        for who in range(60)
        if rng.random() < 0.2
    ]
    counted = ("--database", "month", "--individual", "patient", "--query", "count(*)")
    refused = trial("clinic.csv", "month,patient", months, "clinic.csv", *counted, code=1)
    assert "Dates must tell the day from the month" in refused.stderr
    hinted = refused.stderr.split('"')[1]
    done = trial("clinic.csv", "month,patient", months, hinted, *counted, code=4)
    assert "36 databases" in done.stdout


def test_hints_name_options_on_the_command_line() -> None:
    from empriv.cli.terminal import with_options

    assert with_options("No. Hint: design_noise(..., granularity=0.25).") == "No. Hint: --granularity 0.25."
    assert with_options("No. Hint: presence='random' asks less.") == "No. Hint: --presence random asks less."
    assert with_options("`presence=1` is kept before a hint.") == "`presence=1` is kept before a hint."
    assert with_options('No. Hint: known="count(*)".') == "No. Hint: --known 'count(*)'."


def test_one_database_is_said_to_be_one(tmp_path: Path) -> None:
    rows = "\n".join(f"2024-01-01,{person},{3.5 * person}" for person in range(40))
    (tmp_path / "one.csv").write_text(f"day,who,x\n{rows}\n", encoding="utf-8")
    command = ["audit", str(tmp_path / "one.csv"), "--database", "day", "--individual", "who", "--query", "sum(x)"]
    done = CliRunner().invoke(main, [*command, "--target", "delta <= 0.05 at 0.1"])
    assert done.exit_code == 3
    assert done.stdout.startswith(
        "Do not publish as it is\nOne day does not show what chance does to the answer: at least 59 are needed.\n"
    )
