"""Every example that `--help` shows is run: the site prints the help of all commands."""

from __future__ import annotations

import re
import shutil
from contextlib import chdir
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from documents import prepare_shop, run_page
from empriv.cli.audit import audit
from empriv.cli.main import main
from empriv.cli.options import SECTIONS

ELSEWHERE = ("app", "demo")
"""Commands whose examples other tests run: tests/app starts the desk, test_cli.py runs the demo."""
MADE = {"init": ("audit.toml",), "check": ("audit.toml",), "ledger init": ("releases.ledger",)}
"""Files that examples write, and that must not be there before."""


def examples() -> dict[str, str]:
    """The lines of each command's examples, as `--help` has them."""
    found = {}
    groups: list[tuple[str, click.Group]] = [("", main)]
    for before, group in groups:
        for name in group.list_commands(click.Context(group)):
            command = group.get_command(click.Context(group), name)
            if isinstance(command, click.Group):
                groups.append((f"{name} ", command))
            elif command is not None and name not in ELSEWHERE:
                _, _, shown = (command.help or "").partition("Example")
                found[before + name] = "".join(f"{line}\n" for line in shown.splitlines() if line.startswith("  "))
    return found


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The shop, with what the examples take as given."""
    folder = prepare_shop(tmp_path_factory.mktemp("shop"))
    shutil.copy(folder / "sales" / "sales.csv", folder)
    for name in ("releases", "shop"):
        run("ledger", "init", str(folder / f"{name}.ledger"), "--epsilon", "0.1", "--delta", "0.05", "--window", "365d")
    with chdir(folder):
        run("init", "sales.parquet")
    return folder


def run(*words: str) -> None:
    result = CliRunner().invoke(main, list(words))
    assert result.exit_code == 0, result.output


def as_page(shown: str) -> str:
    """Examples as a block of a page: each command after a dollar sign."""
    lines = re.sub(r"^ +(?=empriv|echo)", "$ ", shown, flags=re.MULTILINE)
    return f"```console\n{lines}```\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", examples())
def test_the_examples_of_a_command_run(
    name: str, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(prepared, tmp_path / "shop")
    monkeypatch.chdir(tmp_path / "shop")
    for path in MADE.get(name, ()):
        Path(path).unlink()
    page = as_page(examples()[name])
    assert page.count("$ ") >= 1
    run_page(page, {})


def test_an_example_with_a_wrong_option_is_noticed() -> None:
    page = as_page("  empriv audit sales.parquet --nothing\n  empriv ledger list a.ledger \\\n    --nothing\n")
    assert page.count("$ ") == 2
    with pytest.raises(AssertionError):
        run_page(page, {})


def test_every_option_of_an_audit_stands_under_a_heading() -> None:
    named = [name for names in SECTIONS.values() for name in names]
    assert sorted(named) == sorted(str(option.name) for option in audit.params if isinstance(option, click.Option))
