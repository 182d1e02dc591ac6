"""`empriv init` and `empriv check`: a gate that starts itself, from data to an exit code."""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cli.conftest import Run
from empriv.cli.check import as_markdown

NASTY = 'a | <img src=x onerror=alert(1)> `b`\n"c"'


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """sales.csv, of 60 days, and people.csv, of one."""
    folder = tmp_path_factory.mktemp("sales")
    rng = np.random.default_rng(3)
    days = pd.date_range("2026-01-01", periods=60)
    sales = pd.DataFrame(
        {"day": np.repeat(days, 40), "client_id": np.tile(np.arange(40), 60), "amount": rng.gamma(4, 5, 2400).round(2)}
    )
    sales[rng.random(2400) < 0.7].to_csv(folder / "sales.csv", index=False)
    pd.DataFrame({"member": [f"m{k}" for k in range(300)], "fee": rng.gamma(4, 5, 300)}).to_csv(
        folder / "people.csv", index=False
    )
    return folder


def promise(target: str, **more: str) -> None:
    path = Path("audit.toml")
    text = re.sub(r"target = .*", f'target = ["{target}"]', path.read_text()).replace('report = "audit.html"', "")
    path.write_text(text + "".join(f"{key} = {value}\n" for key, value in more.items()))


@pytest.mark.slow
def test_from_data_to_a_gate(run: Run) -> None:
    run("init", "sales.csv")
    settings = tomllib.loads(Path("audit.toml").read_text())
    assert (settings["individual"], settings["database"], settings["query"]) == ("client_id", "day", "avg(amount)")
    assert "valid" in run("check", "audit.toml", "--dry-run").output
    promise("delta <= 0.9 at 0.1")
    kept = run("check", "audit.toml")
    assert "Publish" in kept.output
    assert "PASS: delta <= 0.9 at 0.1" in kept.output
    promise("delta <= 0.05 at 0.1")
    assert "FAIL: delta <= 0.05 at 0.1" in run("check", "audit.toml", code=3).output
    promise("delta <= 0 at 0")
    path = Path("audit.toml")
    path.write_text(path.read_text().replace('known = "auto"', "paper = true"))
    run("check", "audit.toml", "-q", code=3)


def test_without_days_samples_are_drawn(run: Run) -> None:
    run("init", "people.csv", "--write", "people.toml")
    settings = tomllib.loads(Path("people.toml").read_text())
    assert (settings["individual"], settings["subsamples"], "database" in settings) == ("member", 365, False)
    run("check", "people.toml", "--dry-run")


@pytest.mark.slow
def test_what_a_check_writes(run: Run) -> None:
    run("init", "sales.csv")
    promise("delta <= 0.9 at 0.1", json='"figures.json"', save='"a.empriv"')
    run("check", "audit.toml", "--markdown", "summary.md")
    figures = json.loads(Path("figures.json").read_text())
    summary = Path("summary.md").read_text()
    assert figures["decision"]["line"] in summary
    assert figures["verdicts"][0]["verdict"] in summary
    assert run("check", "audit.toml", "--markdown", "-").output == summary
    assert "m1" not in summary
    run("show", "a.empriv", "-q")


def test_a_file_is_not_replaced_by_chance(run: Run) -> None:
    run("init", "sales.csv")
    before = Path("audit.toml").read_text()
    assert "--force replaces it" in run("init", "people.csv", code=1).output
    assert Path("audit.toml").read_text() == before
    run("init", "people.csv", "--force")
    assert Path("audit.toml").read_text() != before
    assert "must not replace what is read" in run("init", "sales.csv", "--write", "sales.csv", "--force", code=1).output


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"client_id"', '"clientid"', "must name a column of the source, got 'clientid'"),
        ("avg(amount)", "avg(amonut)", "column 'amonut'"),
        ('"sales.csv"', '"../sales.csv"', "--trust-config"),
        ('"sales.csv"', '"gone.csv"', "The file must exist"),
        ("target = ", "# target = ", "must promise something"),
        ("delta <=", "delta <", "`target` must read like"),
        ('"day"', "\"date_trunc('day', dya)\"", "got 'dya'"),
    ],
)
def test_a_dry_run_finds_what_is_wrong(run: Run, old: str, new: str, words: str) -> None:
    run("init", "sales.csv")
    path = Path("audit.toml")
    path.write_text(path.read_text().replace(old, new))
    assert words in run("check", "audit.toml", "--dry-run", code=1).output
    assert not Path("audit.html").exists()


def test_hostile_names_stay_names(run: Run) -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame({"who": np.arange(200) % 40, NASTY: rng.normal(0, 1, 200)})
    rows.to_parquet("nasty.parquet")
    run("init", "nasty.parquet")
    settings = tomllib.loads(Path("audit.toml").read_text())
    assert set(settings) == {"files", "individual", "subsamples", "fraction", "query", "target", "known", "report"}
    run("check", "audit.toml", "--dry-run")


def test_markdown_stays_text() -> None:
    figures = {
        "query": NASTY, "n_databases": 41, "n_individuals": 7, "checks": [],
        "figures": [{"epsilon": 0.1, "delta": 0.01}],
        "decision": {"line": NASTY, "reason": NASTY, "condition": NASTY},
        "verdicts": [{"target": NASTY, "verdict": "fail", "sentence": NASTY}],
    }  # fmt: skip
    text = as_markdown(figures)
    assert not re.search(r"(?<!\\)<img", text.replace("`a ¦ <img", ""))
    for row in (line for line in text.splitlines() if line.startswith("|")):
        assert len(re.findall(r"(?<!\\)\|", row)) == 4
    assert text.startswith("### ❌ ")


@pytest.mark.slow
def test_the_example_of_a_job_runs(run: Run) -> None:
    run("init", "sales.csv")
    promise("delta <= 0.9 at 0.1")
    job = (Path(__file__).parents[2] / "examples" / "gate.yml").read_text()
    commands = [shlex.split(line) for line in re.findall(r"- run: (empriv .*)", job)]
    assert len(commands) == 2
    for command in commands:
        run(*command[1:])
    assert Path("summary.md").read_text().startswith("### ✅")
