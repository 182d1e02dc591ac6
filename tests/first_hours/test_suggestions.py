"""What errors and last lines suggest is what helps: options, keys of a file, and commands as they were typed."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner, Result

from empriv.cli.hints import as_typed, program, with_keys
from empriv.cli.main import main

AUDIT = ("audit", "rows.parquet", "--database", "day", "--individual", "who")
TARGET = ("--target", "delta <= 0.05 at 0.5")


def run(*words: str) -> Result:
    done = CliRunner().invoke(main, list(words))
    assert "unexpected" not in done.output, done.output
    return done


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pd.DataFrame:
    monkeypatch.chdir(tmp_path)
    rng, days, people = np.random.default_rng(0), 40, 12
    made = pd.DataFrame({"day": np.repeat(np.arange(days), people), "who": np.tile(np.arange(people), days)})
    made["amount"] = np.round(rng.gamma(2.0, 20.0, len(made)), 2)
    made.to_parquet("rows.parquet")
    return made


def next_command(done: Result) -> list[str]:
    found = re.findall(r"^  (empriv .*)$", done.output, re.MULTILINE)
    assert found, done.output
    return shlex.split(found[-1])[1:]


@pytest.mark.slow
@pytest.mark.usefixtures("rows")
@pytest.mark.parametrize(
    "asked",
    [
        ("--query", "sum(amount)", *TARGET),
        ("--query", "sum(amount)", *TARGET, "--target", "delta <= 0.01 at 0.5"),  # the stricter of both
        ("--query", "sum(amount)", "--target", "total_risk <= 0.01 at 0.5"),
        ("--query", "sum(amount)", *TARGET, "--times", "3"),
        ("--query", "SELECT sum(amount), max(amount) FROM data", *TARGET),
    ],
    ids=["one number", "two targets", "total risk", "several publications", "two numbers"],
)
def test_the_next_step_of_an_audit_runs(asked: tuple[str, ...]) -> None:
    done = run(*AUDIT, *asked, "--save", "a b.empriv")
    assert done.exit_code in (3, 4), done.output
    assert run(*next_command(done)).exit_code in (0, 3)


@pytest.mark.usefixtures("rows")
def test_init_outside_its_folder_names_a_check_that_is_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    begun = run("init", "../rows.parquet", "--write", "my audit.toml")
    assert begun.exit_code == 0, begun.output
    command = re.search(r"then (empriv check .*)$", begun.output, re.MULTILINE)
    assert command is not None
    assert "--trust-config" in command[1]
    assert run(*shlex.split(command[1])[1:]).exit_code == 0
    inside = run("init", str(Path("../rows.parquet").resolve()), "--write", "../audit.toml")
    assert "../audit.toml" in inside.output


def test_check_names_keys_of_the_file(rows: pd.DataFrame) -> None:
    rows["who"] = rows["who"].astype("Int64").mask(rows["who"] == 3)
    rows.to_parquet("rows.parquet")
    Path("audit.toml").write_text(
        "files = 'rows.parquet'\ndatabase = 'day'\nindividual = 'who'\nquery = 'sum(amount)'\n"
        "target = ['delta <= 0.9 at 1']\n"
    )
    refused = run("check", "audit.toml")
    assert refused.exit_code == 1
    key = re.search(r'(unidentified = "\w+") in the file', refused.output)
    assert key is not None, refused.output
    assert "--unidentified" not in refused.output
    Path("audit.toml").write_text(f"{key[1]}\n" + Path("audit.toml").read_text())
    assert run("check", "audit.toml").exit_code in (0, 3, 4)


def test_keys_stand_for_options_in_hints_alone() -> None:
    said = with_keys("No --times 3. Hint: --memory-limit 4GB.")
    assert said == 'No --times 3. Hint: memory_limit = "4GB" in the file.'


@pytest.mark.parametrize(
    ("started", "said"),
    [("venv/bin/empriv", "venv/bin/empriv"), ("/somewhere/pytest", "empriv"), ("/a b/empriv", "'/a b/empriv'")],
)
def test_commands_begin_as_they_were_typed(started: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [started])
    assert as_typed("empriv audit x && empriv noise y") == f"{said} audit x && {said} noise y"


def test_a_module_is_run_by_the_python_that_runs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/site-packages/empriv/__main__.py"])
    assert program().endswith(" -m empriv")
    assert Path(program().split()[0]).name == Path(sys.executable).name
