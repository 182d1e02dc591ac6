"""The first hour with data of many shapes: from `init` to `compare`, no step contradicts another, and whatever a
command suggests runs.

Each panel has vices that real data have. All commands run in this process, as somebody would type them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import empriv
from empriv.cli.main import main

pytestmark = pytest.mark.slow

TARGET = "delta <= 0.05 at 0.5"
AIM = ("--epsilon", "0.5", "--delta", "0.05")
VERDICTS = {0: "pass", 3: "fail", 4: "unresolved"}
SUGGESTED = re.compile(r"(?:^ +|^ +[\d, ]+: |: read it, then )(empriv [a-z].*)$", re.MULTILINE)
WITH_A_FILE = re.compile(r"^ +(\d+)[\d, ]*: with (--write-config \S+ --row) N, then (empriv .*)$", re.MULTILINE)


class Panel(NamedTuple):
    """Rows, and what is asked of them."""

    rows: pd.DataFrame
    database: str
    individual: str
    query: str
    granularity: str


def days(count: int, first: date = date(2025, 1, 6)) -> list[date]:
    return [first + timedelta(days=k) for k in range(count)]


def visits(rng: np.random.Generator, n: int, people: int, share: float) -> tuple[list[int], list[int]]:
    """Who is there on which day, as two columns."""
    there = rng.random((n, people)) < share
    day, who = np.nonzero(there)
    return day.tolist(), who.tolist()


def flights() -> Panel:
    rows = pd.read_parquet(empriv.datasets.flights())
    first = sorted(rows["date"].unique())[:90]
    return Panel(rows[rows["date"].isin(first)], "date", "aircraft", "avg(delay)", "0.25")


def once_only() -> Panel:
    """Everyone is in one database only."""
    rng, n = np.random.default_rng(1), 60
    counts = rng.poisson(15, n)
    day = np.repeat(np.arange(n), counts)
    rows = {"day": [days(n)[k] for k in day], "visitor": [f"v{k}" for k in range(len(day))]}
    return Panel(pd.DataFrame(rows), "day", "visitor", "count(*)", "1")


def thousands() -> Panel:
    """Thousands of databases, of one or two people each."""
    rng, n = np.random.default_rng(2), 2_000
    day = np.repeat(np.arange(n), rng.integers(1, 3, n))
    rows = {"batch": day, "worker": rng.integers(0, 40, len(day)), "minutes": np.round(rng.gamma(3.0, 10.0, len(day)))}
    return Panel(pd.DataFrame(rows), "batch", "worker", "sum(minutes)", "1")


def one_person_days() -> Panel:
    """Some days have one person, whose average it is."""
    rng, n = np.random.default_rng(3), 50
    day, who = visits(rng, n, 30, 0.3)
    alone = {3, 17}
    kept = [(d, w) for d, w in zip(day, who, strict=True) if d not in alone]
    kept += [(d, 7) for d in alone]
    rows = {"day": [days(n)[d] for d, _ in kept], "patient": [w for _, w in kept]}
    return Panel(pd.DataFrame(rows).assign(score=rng.normal(50, 8, len(kept))), "day", "patient", "avg(score)", "0.01")


def nulls() -> Panel:
    """Amounts that are missing, rows that are nobody's, and the same rows twice."""
    rng, n = np.random.default_rng(4), 50
    day, who = visits(rng, n, 25, 0.4)
    rows = pd.DataFrame({"day": [days(n)[k] for k in day], "client": pd.array(who, "Int64")})
    rows["amount"] = np.where(rng.random(len(rows)) < 0.2, np.nan, np.round(rng.gamma(2.0, 20.0, len(rows)), 2))
    return Panel(pd.concat([rows, rows.iloc[::7]]), "day", "client", "sum(amount)", "0.01")


def float_ids() -> Panel:
    """Identifiers such as 17850.0, and returns as negative amounts."""
    rng, n = np.random.default_rng(5), 60
    day, who = visits(rng, n, 40, 0.3)
    amount = np.round(rng.gamma(2.0, 20.0, len(day)), 2) * np.where(rng.random(len(day)) < 0.1, -1, 1)
    rows = {"day": [days(n)[k] for k in day], "customer": 17_850.0 + np.array(who), "amount": amount}
    return Panel(pd.DataFrame(rows), "day", "customer", "sum(amount)", "0.01")


def clock_changes() -> Panel:
    """Timestamps over the night in which clocks change, in days of 23 and 25 hours elsewhere."""
    rng, n = np.random.default_rng(6), 45
    day, who = visits(rng, n, 40, 0.4)
    begin = datetime(2025, 3, 1, tzinfo=UTC)
    at = [begin + timedelta(days=d, hours=float(h)) for d, h in zip(day, rng.uniform(0, 24, len(day)), strict=True)]
    rows = {
        "measured": pd.to_datetime(at).tz_localize(None),
        "meter": who,
        "kwh": np.round(rng.gamma(4.0, 2.0, len(day)), 1),
    }
    return Panel(pd.DataFrame(rows), "measured::date", "meter", "sum(kwh)", "0.1")


def partial_week() -> Panel:
    """Weeks, of which the last has two days."""
    rng, n = np.random.default_rng(7), 7 * 40 + 2
    day, who = visits(rng, n, 20, 0.2)
    rows = {"day": [days(n)[k] for k in day], "card": who, "paid": np.round(rng.gamma(2.0, 15.0, len(day)), 2)}
    return Panel(pd.DataFrame(rows), "date_trunc('week', day)", "card", "sum(paid)", "0.01")


def thousandths() -> Panel:
    """Prices with three decimals, which one person alone has."""
    rng, n = np.random.default_rng(8), 60
    day, who = visits(rng, n, 30, 0.4)
    price = np.round(rng.gamma(2.0, 20.0, len(day)), 2) + np.where(np.array(who) == 5, 0.001, 0.0)
    rows = {"day": [days(n)[k] for k in day], "buyer": who, "price": price}
    return Panel(pd.DataFrame(rows), "day", "buyer", "sum(price)", "0.01")


def few() -> Panel:
    """Twelve databases."""
    rng, n = np.random.default_rng(9), 12
    day, who = visits(rng, n, 60, 0.5)
    rows = {"month": [f"2025-{k + 1:02d}" for k in day], "member": who, "hours": rng.integers(1, 9, len(day))}
    return Panel(pd.DataFrame(rows), "month", "member", "sum(hours)", "1")


def calm() -> Panel:
    """A crowd in which nobody matters."""
    rng, n = np.random.default_rng(10), 200
    counts = rng.poisson(900, n)
    day = np.repeat(np.arange(n), counts)
    rows = {
        "day": np.repeat(np.array(days(n), dtype="datetime64[D]"), counts),
        "visitor": rng.integers(0, 4_000, len(day)),
    }
    return Panel(pd.DataFrame(rows), "day", "visitor", "count(DISTINCT visitor)", "1")


PANELS = (
    flights, once_only, thousands, one_person_days, nulls, float_ids, clock_changes, partial_week, thousandths, few,
    calm,
)  # fmt: skip


class Session:
    """Somebody at a terminal; keeps what was printed."""

    def __init__(self) -> None:
        self.printed: list[tuple[str, str]] = []
        self.tried: set[str] = set()

    def run(self, *words: str, codes: tuple[int, ...] = (0,)) -> Result:
        done = CliRunner().invoke(main, list(words))
        typed = shlex.join(("empriv", *words))
        assert done.exit_code in codes, (typed, done.exit_code, done.output)
        assert "unexpected" not in done.output, (typed, done.output)
        assert "Traceback" not in done.output, (typed, done.output)
        self.printed.append((typed, done.output))
        return done

    def take_up_suggestions(self) -> None:
        """Run every command that was named so far; words in capitals stand for something of the user's own."""
        for typed, said in list(self.printed):
            for row, option, command in WITH_A_FILE.findall(said)[:1]:
                self.run(*shlex.split(typed)[1:], *option.split(), row, codes=(0, 3))
                self.run(*shlex.split(command.split(" && ")[0])[1:], codes=(0, 3, 4))
            for line in SUGGESTED.findall(said):
                for command in line.split(" && "):
                    if command in self.tried or re.search(r"\b(FILES|LABEL)\b", command):
                        continue
                    self.tried.add(command)
                    done = CliRunner().invoke(main, shlex.split(command)[1:])
                    assert done.exit_code in (0, 3, 4), (typed, command, done.exit_code, done.output)
                    assert "unexpected" not in done.output, (typed, command, done.output)


@pytest.mark.parametrize("make", PANELS, ids=lambda make: make.__name__)
def test_the_first_hour(make: Callable[[], Panel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    panel, user = make(), Session()
    panel.rows.to_parquet("rows.parquet")
    asked = ("rows.parquet", "--database", panel.database, "--individual", panel.individual, "--query", panel.query)
    any_verdict = tuple(VERDICTS)

    # a file to begin with, and one that asks for what the audit below does
    user.run("init", "rows.parquet", "--write", "begun.toml")
    Path("audit.toml").write_text(
        f"files = 'rows.parquet'\ndatabase = {json.dumps(panel.database)}\nindividual = '{panel.individual}'\n"
        f"query = {json.dumps(panel.query)}\ntarget = ['{TARGET}']\n"
    )
    checked = user.run("check", "audit.toml", codes=any_verdict)
    found = VERDICTS[checked.exit_code]

    # every command says the same of the answer as it is
    audited = user.run("audit", *asked, "--target", TARGET, "--save", "a.empriv", "--json", "a.json", codes=any_verdict)
    assert VERDICTS[audited.exit_code] == found
    figures = json.loads(Path("a.json").read_text())
    decision = figures["decision"]
    assert figures["verdicts"][0]["verdict"] == found
    assert decision["word"] == ("Publish" if found == "pass" else "Do not publish")
    assert audited.output.startswith(f"{decision['line']}\n")
    assert checked.output.startswith(f"{decision['line']}\n")
    shown = user.run(
        "show", "a.empriv", "--target", TARGET, "--report", "a.html", "--json", "s.json", codes=any_verdict
    )
    assert VERDICTS[shown.exit_code] == found
    again, page = json.loads(Path("s.json").read_text()), Path("a.html").read_text()
    assert again["decision"] == decision
    assert decision["line"] in page
    # terminal, page and JSON list the same people in the same order, under the same names
    listed = [person["individual"] for person in again["most_exposed"]]
    on_screen = [word for line in shown.output.splitlines() for word in line.split()[:1] if word in listed]
    on_page = re.findall(r'<th scope="row">([0-9a-f]{8,})</th>', page)
    assert on_screen == listed
    assert on_page[: len(listed)] == [name for name in listed if name in on_page]
    advised = user.run(
        "advise", *asked, "--target", TARGET, "--save", "audit.empriv", "--json", "advice.json", codes=(0, 3)
    )
    advice = json.loads(Path("advice.json").read_text())
    rows = {option["code"]: option for option in advice["options"]}
    assert rows["as-is"]["verdict"] == found
    meets = [option for option in advice["options"] if option["meets"]]
    assert (advised.exit_code == 0) == bool(meets)
    if meets:
        assert advice["options"][0]["meets"]
        if meets[0]["share"] is not None and meets[0]["share"] > 0.5:
            assert "tells little" in advice["sentence"]
    for option in advice["options"]:
        if option["code"] == "rounding":
            assert option["delta"] <= rows["as-is"]["delta"] + 1e-12
            assert option["upper"] <= rows["as-is"]["upper"] + 1e-12

    # noise: what says that it may be released, and what releases it
    designed = ("noise", "a.empriv", *AIM, "--granularity", panel.granularity)
    noisy = user.run(*designed, "--save", "n.empriv", "--json", "n.json", codes=(0, 3))
    assert Path("n.empriv").exists() == (noisy.exit_code == 0)
    as_it_is = user.run(*designed, "--method", "as-it-is", "--save", "as-it-is.empriv", codes=(0, 3))
    assert as_it_is.exit_code == (0 if found == "pass" else 3), (found, as_it_is.output)
    if "noise" in rows:
        assert rows["noise"]["meets"] == (noisy.exit_code == 0)
    user.run("ledger", "init", "r.ledger", *AIM)
    label = str(empriv.load("a.empriv").results.databases[5])
    given = ("--audit", "a.empriv", "--ledger", "r.ledger", "--database", label)
    if noisy.exit_code == 0:
        held = json.loads(Path("n.json").read_text())
        assert (held["verdict_before"], held["against"]) == (found, [])
        seen = user.run("show", "a.empriv", "--noise", "n.empriv", "--report", "n.html")
        assert "With it: pass" in seen.output
        assert "Publish with noise" in Path("n.html").read_text() or held["expected_error"] == 0
        released = user.run("release", "n.empriv", *given)
        assert user.run("release", "n.empriv", *given).stdout == released.stdout
        listed = user.run("ledger", "list", "r.ledger").output
        assert f"of {label.removesuffix(' 00:00:00').removesuffix('T00:00:00.000000')}" in listed.replace(
            " 00:00:00", ""
        )
    user.run("compare", "a.empriv", "audit.empriv", "--target", TARGET, "--json", "c.json", codes=(0, 3))
    compared: dict[str, Any] = json.loads(Path("c.json").read_text())
    assert set(compared["recommendation"]["verdicts"].values()) == {found}

    user.take_up_suggestions()
