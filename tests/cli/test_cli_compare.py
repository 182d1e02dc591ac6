"""The command `compare`: saved audits, and the protocols of an audit.toml."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

import empriv
from empriv import protocols
from empriv.cli.main import main

Run = Callable[..., Result]
HEAD = """\
files = "sales.csv"
database = "day"
individual = "client"
query = "sum(amount)"
epsilon = [0.5, 1.0]
truth = "raw"
draws = 3
"""
TABLES = """
[protocols.raw]
kind = "plain"
[protocols.rounded]
kind = "rounded"
to = 5
[protocols.noisy]
kind = "laplace"
base = "capped"
sensitivity = 4
epsilon = 1
[protocols.capped]
kind = "top_coded"
column = "amount"
at = 4
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in a folder that holds sales.csv and audit.toml."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    table = pd.DataFrame(
        {
            "day": np.repeat(np.arange(24), 6),
            "client": [f"secret{k}" for k in range(6)] * 24,
            "amount": rng.lognormal(1, 0.6, 144).round(2),
        }
    )
    table.to_csv("sales.csv", index=False)
    Path("audit.toml").write_text(HEAD + TABLES)

    def invoke(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, list(arguments), env={"COLUMNS": "100"})
        assert result.exit_code == code, result.output
        return result

    return invoke


@pytest.mark.slow
def test_protocols_of_a_file(run: Run) -> None:
    shown = run("compare", "--config", "audit.toml", "--json", "c.json", "--report", "c.html").output
    assert "Errors are against the answers of raw." in shown
    assert "Wrote c.html." in shown
    assert "secret" not in shown + Path("c.json").read_text() + Path("c.html").read_text()
    found = json.loads(Path("c.json").read_text())
    assert [one["name"] for one in found["protocols"]] == ["raw", "rounded", "noisy", "capped"]
    capped = protocols.top_coded("sum(amount)", "amount", at=4)
    here = empriv.compare(
        {
            "raw": "sum(amount)",
            "rounded": protocols.rounded("sum(amount)", to=5),
            "noisy": protocols.laplace(capped, sensitivity=4, epsilon=1),
            "capped": capped,
        },
        empriv.databases("sales.csv", database="day", individual="client"),
        truth="raw", epsilon=(0.5, 1.0), draws=3,
    )  # fmt: skip
    for one in found["protocols"]:
        assert one["figures"][0]["estimate"] == here[one["name"]].delta(0.5)
    assert [one["mean_absolute"] for row in found["protocols"] for one in row["utility"]] == [
        one.mean_absolute for one in here.utility
    ]


@pytest.mark.slow
def test_saved_audits(run: Run) -> None:
    for name, query in (("raw", "sum(amount)"), ("rounded", "round(sum(amount), -1)")):
        source = ("sales.csv", "--database", "day", "--individual", "client")
        run("audit", *source, "--query", query, "--epsilon", "1", "--quiet", "--save", f"{name}.empriv")
    shown = run("compare", "raw.empriv", "rounded.empriv", "--truth", "raw", "--json", "-").stdout
    found = json.loads(shown)
    assert found["epsilons"] == [1.0]
    assert found["protocols"][1]["utility"][0]["mean_absolute"] > 0
    assert "No truth was named" in run("compare", "raw.empriv", "rounded.empriv", "--epsilon", "0.1").output
    assert run("compare", "raw.empriv", "rounded.empriv", "--quiet").output == ""
    assert "at least two" in run("compare", "raw.empriv", code=2).output
    both = ("raw.empriv", "rounded.empriv")
    assert "must name one of the protocols" in run("compare", *both, "--truth", "x", code=1).output
    Path("c.html").mkdir()
    assert "must go to a file" in run("compare", *both, "--report", "c.html", code=1).output


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ('[protocols.a]\nkind = "roundd"\nto = 1', "got 'roundd'. Hint: did you mean 'rounded'?"),
        ('[protocols.a]\nkind = "zzz"', "known kinds are plain, rounded,"),
        ("[protocols.a]\nto = 1", "`protocols.a.kind` must be a known kind"),
        ('[protocols.a]\nkind = "rounded"\ntoo = 1', "got 'too'. Hint: did you mean 'to'?"),
        ('[protocols.a]\nkind = "rounded"', "`protocols.a.to` must be given"),
        ('[protocols.a]\nkind = "plain"\nbase = "b"', "`protocols.a.base` must name another protocol"),
        ('[protocols.a]\nkind = "plain"\nbase = "raw"\nquery = "x"', "got both"),
        ('[protocols.a]\nkind = "plain"\nquery = 3', "`protocols.a.query` must be a text"),
        ("[protocols]\na = 3", "`protocols.a` must be a table"),
        ("protocols = 3", "`protocols` must be tables"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(run: Run, table: str, words: str) -> None:
    more = '[protocols.raw]\nkind = "plain"\n' if table.startswith("[protocols.") else ""
    Path("audit.toml").write_text(f"{HEAD}{table}\n{more}")
    assert words in " ".join(run("compare", "--config", "audit.toml", code=2).output.split())


@pytest.mark.slow
def test_what_an_audit_wrote_is_left_alone(run: Run) -> None:
    kept = ("report.html", "audit.json")
    for name in kept:
        Path(name).write_text("kept")
    lines = f'report = "{kept[0]}"\njson = "{kept[1]}"\n'
    Path("audit.toml").write_text(HEAD.replace("[0.5, 1.0]", "1.0") + lines + TABLES)
    run("compare", "--config", "audit.toml", "--quiet")
    assert [Path(name).read_text() for name in kept] == ["kept", "kept"]


def test_wrong_use_is_said(run: Run) -> None:
    assert "Either SAVED files or --config" in run("compare", code=2).output
    assert "Either SAVED files or --config" in run("compare", "a", "b", "--config", "audit.toml", code=2).output
    Path("audit.toml").write_text(HEAD)
    assert "'protocols'" in run("compare", "--config", "audit.toml", code=2).output
    Path("audit.toml").write_text(f'{HEAD}ledger = "ledger.jsonl"\n{TABLES}')
    assert "`ledger` must not be given" in run("compare", "--config", "audit.toml", code=1).output
    Path("audit.toml").write_text(f'{HEAD}known = ["nothing", "calendar"]\n{TABLES}')
    assert "`known` must be nothing alone" in run("compare", "--config", "audit.toml", code=1).output
    loop = '[protocols.raw]\nkind = "plain"\nbase = "b"\n[protocols.b]\nkind = "plain"\nbase = "raw"\n'
    Path("audit.toml").write_text(HEAD + loop)
    assert "lead back to itself" in run("compare", "--config", "audit.toml", code=1).output
    Path("audit.toml").write_text(HEAD.replace('query = "sum(amount)"\n', "") + TABLES)
    assert "must have a query" in run("compare", "--config", "audit.toml", code=1).output
    Path("audit.toml").write_text(HEAD + TABLES)
    shown = run("compare", "--config", "audit.toml", "--json", "sales.csv", code=1).output
    assert "must not replace what is read" in shown


@pytest.mark.slow
def test_tables_and_protocols_on_their_cells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    size = 600
    days, people = rng.integers(0, 30, size), rng.integers(0, 25, size)
    rows = pd.DataFrame({"day": days, "who": people, "ward": rng.choice(["a", "b", "<i>c"], size)})
    rows.to_csv(tmp_path / "rows.csv", index=False)
    (tmp_path / "audit.toml").write_text(
        """
files = "rows.csv"
database = "day"
individual = "who"
query = ["SELECT count(*) AS everybody FROM data", "SELECT ward, count(*) AS n FROM data GROUP BY ward"]
epsilon = 0.5
truth = "raw"

[protocols.raw]
kind = "plain"

[protocols.few]
kind = "k_threshold"
k = 5

[protocols.safe]
kind = "complementary"
base = "few"
keep = ["everybody"]

[protocols.dominated]
kind = "dominance"
share = 0.2
top = 2

[protocols.rounded]
kind = "rounded"
base = "safe"
to = 5
at_random = true

[protocols.noisy]
kind = "cell_noise"
scale = 2
""",
        encoding="utf-8",
    )
    given = ["compare", "--config", "audit.toml", "--draws", "2", "--json", "-"]
    result = CliRunner().invoke(main, given)
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    by_name = {protocol["name"]: protocol for protocol in found["protocols"]}
    assert len(by_name["raw"]["utility"]) == 4
    assert by_name["raw"]["overall"]["mean_absolute"] == 0
    assert 0 < by_name["few"]["overall"]["unanswered"] < by_name["safe"]["overall"]["unanswered"] < 1
    assert by_name["safe"]["utility"][0]["unanswered"] == 0
    assert by_name["noisy"]["overall"]["mean_absolute"] == pytest.approx(2, rel=0.4)
