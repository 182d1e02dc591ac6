"""The first hour with a table: `init`, `check`, `audit`, `show`, `advise`, `noise`, `ledger`, `release` and `compare`,
in one folder, as somebody would type them. No step may contradict another, and whatever a command suggests must run.
"""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from click.testing import CliRunner, Result

import empriv
from empriv.cli.main import main

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


def first_hour(panel: Panel) -> dict[str, Any]:
    """Go through it in the working folder; give the figures of the audit."""
    user = Session()
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

    # noise: what says that it may be released, and what releases it
    designed = ("noise", "a.empriv", *AIM, "--granularity", panel.granularity)
    noisy = user.run(*designed, "--save", "n.empriv", "--json", "n.json", codes=(0, 3))
    assert Path("n.empriv").exists() == (noisy.exit_code == 0)
    as_it_is = user.run(*designed, "--method", "as-it-is", "--save", "as-it-is.empriv", codes=(0, 3))
    assert as_it_is.exit_code == (0 if found == "pass" else 3), (found, as_it_is.output)
    if "noise" in rows:
        assert rows["noise"]["meets"] == (noisy.exit_code == 0)
    user.run("ledger", "init", "r.ledger", *AIM)
    label = str(empriv.load("a.empriv").results.databases[3])
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
        assert (
            f"of {label.removesuffix(' 00:00:00').removesuffix('T00:00:00.000000').removesuffix('.0')}"
            in listed.replace(" 00:00:00", "")
        )
    user.run("compare", "a.empriv", "audit.empriv", "--target", TARGET, "--json", "c.json", codes=(0, 3))
    compared: dict[str, Any] = json.loads(Path("c.json").read_text())
    assert set(compared["recommendation"]["verdicts"].values()) == {found}

    user.take_up_suggestions()
    return figures
