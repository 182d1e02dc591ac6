"""`empriv advise`: the rows, the files and commands that redo them, exit codes and what is refused."""

from __future__ import annotations

import json
import shlex
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from click.testing import CliRunner, Result

from empriv.cli.main import main

ROWS = ["--database", "day", "--individual", "client", "--query", "sum(amount)"]
TARGET = ["--target", "delta <= 0.1 at 0.5"]


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments), catch_exceptions=False)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("advise")
    rng, days, people = np.random.default_rng(3), 40, 12
    amounts = np.round(rng.gamma(2.0, 20.0, days * people), 2)
    amounts[::people] += 100.0  # one of them buys most
    rows = {"day": np.repeat(np.arange(days), people), "client": np.tile(np.arange(people), days), "amount": amounts}
    pyarrow.parquet.write_table(pyarrow.table(rows), folder / "sales.parquet")
    return folder


@pytest.fixture(scope="module")
def advised(folder: Path) -> tuple[Result, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        # what says where an audit writes is not for advice
        Path("audit.toml").write_text(
            'files = ["sales.parquet"]\ndatabase = "day"\nindividual = "client"\nquery = "sum(amount)"\n'
            'target = ["delta <= 0.1 at 0.5"]\nepsilon = [0.05]\njson = "never.json"\nsave = "never.empriv"\n'
        )
        result = run("advise", "--config", "audit.toml", "--save", "audit.empriv", "--json", "advice.json")
    return result, json.loads((folder / "advice.json").read_text())


@pytest.mark.slow
def test_the_rows_are_printed_best_first_with_the_command_of_each(advised: tuple[Result, dict[str, Any]]) -> None:
    result, figures = advised
    assert result.exit_code == 0, result.output
    assert result.output.startswith(figures["sentence"])
    codes = [option["code"] for option in figures["options"]]
    assert {"as-is", "noise", "cap"} <= set(codes)
    met = [option["error"] for option in figures["options"] if option["meets"]]
    assert met == sorted(met)
    assert len(met) >= 1
    assert all(option["command"] in result.output for option in figures["options"])
    assert figures["target"]["epsilon"] == 0.5
    widths = [len(line) for line in result.output.split("\n\n")[1].splitlines()]
    assert max(widths) <= 80


@pytest.mark.slow
def test_the_same_seed_gives_the_same_file(
    folder: Path, advised: tuple[Result, dict[str, Any]], monkeypatch: Any
) -> None:
    monkeypatch.chdir(folder)
    saved = run("advise", "audit.empriv", *TARGET, "--json", "-")
    again = json.loads(saved.output)
    by_code = {option["code"]: option for option in advised[1]["options"]}
    for option in again["options"]:
        if option["code"] in ("as-is", "noise"):
            assert option["error"] == by_code[option["code"]]["error"]
            assert option["delta"] == pytest.approx(by_code[option["code"]]["delta"])
    assert any("need the rows" in sentence for sentence in again["left_out"])


@pytest.mark.slow
def test_the_command_of_each_kind_of_row_works(
    folder: Path, advised: tuple[Result, dict[str, Any]], monkeypatch: Any
) -> None:
    monkeypatch.chdir(folder)
    figures = advised[1]
    kinds = {option["code"]: option for option in reversed(figures["options"])}
    for code in ("as-is", "noise", "cap"):
        option = kinds[code]
        Path("advice.toml").write_text(option["config"])
        tomllib.loads(option["config"])
        for command in option["command"].split(" && "):
            done = run(*shlex.split(command)[1:])
            assert done.exit_code in (0, 3, 4), (code, done.output)
            if code in ("noise", "cap"):
                assert done.exit_code == 0, done.output


def test_a_config_must_be_trusted_to_read_other_folders(folder: Path, tmp_path: Path) -> None:
    config = tmp_path / "audit.toml"
    config.write_text(
        f'files = [{json.dumps(str(folder / "sales.parquet"))}]\nindividual = "client"\nquery = "sum(amount)"\n'
        'target = ["delta <= 0.1 at 0.5"]\n'
    )
    done = run("advise", "--config", str(config))
    assert done.exit_code == 1
    assert "--trust-config" in done.output
    assert not list(folder.glob("never*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sales.parquet", *ROWS], "Missing option '--target'"),
        (["sales.parquet", *ROWS, *TARGET, "--target", "delta <= 0.2 at 0.2"], "at one epsilon"),
        ([*TARGET], "Missing argument"),
        (["sales.parquet", "--individual", "client", *TARGET], "Missing option '--query'"),
        (["audit.empriv", *TARGET, "--write-config", "x.toml"], "with the rows"),
    ],
)
def test_wrong_usage_is_said_in_a_sentence(folder: Path, arguments: list[str], message: str, monkeypatch: Any) -> None:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(main, ["advise", *arguments])
    assert done.exit_code == 2
    assert message in done.output
