"""A config file from somebody else: what is SQL, or leads out of its folder, is listed and needs --trust-config."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np
import pytest
from click.testing import CliRunner, Result

from empriv.cli.main import main

Run = Callable[..., Result]
BODY = 'individual = "client"\nquery = "sum(amount)"\nepsilon = 1\n'
CUT = 'database = "day"\n'


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in a folder that somebody sent; beside the folder is what they must not reach."""
    sent = tmp_path / "sent"
    sent.mkdir()
    monkeypatch.chdir(sent)
    rng = np.random.default_rng(5)
    rows = "\n".join(f"{day},c{client},{rng.lognormal():.3f}" for day in range(20) for client in range(4))
    for folder in (sent, tmp_path):
        (folder / "sales.csv").write_text(f"day,client,amount\n{rows}\n")
    (tmp_path / "secret.csv").write_text(f"day,client,amount\n{rows}\n")

    def invoke(*arguments: str, code: int = 0) -> Result:
        result = CliRunner().invoke(main, list(arguments), env={"COLUMNS": "100"})
        assert result.exit_code == code, result.output
        return result

    return invoke


def config(text: str, name: str = "audit.toml") -> None:
    Path(name).write_text(text)


def test_files_of_its_own_folder_need_no_trust(run: Run) -> None:
    Path("more").mkdir()
    Path("more", "sales.csv").write_bytes(Path("sales.csv").read_bytes())
    for files in ('"sale*.csv"', '["sales.csv", "./sales.csv", "more/*.csv", "**/sales.csv"]'):
        config(f'files = {files}\n{CUT}{BODY}json = "more/a.json"\n[tables]\nother = "more/sales.csv"\n')
        run("audit", "--config", "audit.toml")
    assert Path("more", "a.json").exists()


@pytest.mark.parametrize(
    ("files", "why"),
    [
        ("../secret.csv", "outside"),
        ("{outside}/secret.csv", "outside"),
        ("../*.csv", "outside"),
        ("*/../../secret.csv", "outside"),
        ("link.csv", "outside"),
        ("lin*.csv", "outside"),
        ("folder/secret.csv", "outside"),
        ("fold*/secret.csv", "outside"),
        ("**/secret.csv", "outside"),
        ("https://example.org/sales.csv", "outside"),
        ("s3://bucket/sales.csv", "outside"),
        ("file:{outside}/secret.csv", "outside"),
        ("~/sales.csv", "outside"),
        ("SELECT * FROM 'sales.csv'", "SQL"),
        ("  (from 'sales.csv')", "SQL"),
        ("WITH a AS (SELECT * FROM '../secret.csv') SELECT * FROM a", "SQL"),
        ("SELECT * FROM 'sales.csv'); COPY (SELECT 1) TO 'written.csv'; CREATE TEMP TABLE z AS (SELECT 1", "SQL"),
        ("own.duckdb::sales", "DuckDB"),
        ("../own.duckdb::sales", "DuckDB"),
    ],
)
def test_sources_that_reach_out_are_listed(run: Run, tmp_path: Path, files: str, why: str) -> None:
    Path("link.csv").symlink_to(tmp_path / "secret.csv")
    Path("folder").symlink_to(tmp_path)
    with duckdb.connect("own.duckdb") as connection:
        connection.execute("CREATE VIEW sales AS SELECT * FROM read_csv('../secret.csv')")
    files = files.replace("{outside}", str(tmp_path))
    config(f'files = "{files}"\n{CUT}{BODY}')
    shown = run("audit", "--config", "audit.toml", code=1).stderr
    assert f'files = "{files}": ' in shown
    assert why in shown
    assert "--trust-config" in shown
    config(f'files = "sales.csv"\n{CUT}{BODY}[tables]\nclients = "{files}"\n')
    shown = run("audit", "--config", "audit.toml", code=1).stderr
    assert f'tables."clients" = "{files}": ' in shown
    assert "files =" not in shown
    assert not Path("written.csv").exists()


def test_trust_is_for_one_run_and_lets_it_pass(run: Run) -> None:
    for files in ("../secret.csv", "SELECT * FROM '../secret.csv'"):
        config(f'files = "{files}"\n{CUT}{BODY}')
        run("audit", "--config", "audit.toml", code=1)
        assert "4 individuals" in " ".join(run("audit", "--config", "audit.toml", "--trust-config").stdout.split())
        run("audit", "--config", "audit.toml", code=1)
    config(f'files = "../secret.csv"\ntrust_config = true\n{CUT}{BODY}')
    assert "known keys only" in run("audit", "--config", "audit.toml", code=2).stderr


def test_what_the_command_line_names_needs_no_trust(run: Run, tmp_path: Path) -> None:
    config(f'files = "../nowhere.csv"\n{CUT}{BODY}[tables]\nother = "../nowhere.csv"\n')
    outside = str(tmp_path / "secret.csv")
    run("audit", outside, "--table", f"other={outside}", "--config", "audit.toml")
    # Each option wins as a whole: the file's tables are still its own.
    assert "files =" not in run("audit", outside, "--config", "audit.toml", code=1).stderr


def test_paths_are_measured_from_the_files_own_folder(run: Run) -> None:
    Path("inner").mkdir()
    config(f'files = "sales.csv"\n{CUT}{BODY}', "inner/audit.toml")
    assert "outside" in run("audit", "--config", "inner/audit.toml", code=1).stderr
    os.chdir("inner")
    config(f'files = "sales.csv"\n{CUT}{BODY}', "../audit.toml")
    Path("sales.csv").write_bytes(Path("../sales.csv").read_bytes())
    run("audit", "--config", "../audit.toml")


@pytest.mark.parametrize("key", ["json", "save", "report", "ledger"])
def test_nothing_is_written_outside(run: Run, tmp_path: Path, key: str) -> None:
    config(f'files = "sales.csv"\n{key} = "../secret.csv"\n{CUT}{BODY}')
    before = (tmp_path / "secret.csv").read_bytes()
    assert f'{key} = "../secret.csv": ' in run("audit", "--config", "audit.toml", code=1).stderr
    assert (tmp_path / "secret.csv").read_bytes() == before


def test_an_expression_that_cuts_databases_reads_no_tables(run: Run) -> None:
    config(f"""files = "sales.csv"\ndatabase = "(SELECT max(day) FROM '../secret.csv')"\n{BODY}""")
    assert "database = " in run("audit", "--config", "audit.toml", code=1).stderr
    config(f'files = "sales.csv"\ndatabase = "day // 2"\n{BODY}')
    run("audit", "--config", "audit.toml")


def test_an_entry_cannot_forge_the_message(run: Run) -> None:
    config(f'files = "SELECT 1\\n\\u001b[2JError: all is well{"x" * 1000}"\n{CUT}{BODY}')
    shown = run("audit", "--config", "audit.toml", code=1).stderr
    assert "\x1b" not in shown
    assert "more characters" in shown
    assert not any(line.startswith("Error: all is well") for line in shown.splitlines())
