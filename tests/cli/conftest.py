"""Runs a command in a folder of its own."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from empriv.cli.main import main

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the folder holds: nothing, unless a module has a fixture of this name."""
    return tmp_path_factory.mktemp("empty")


@pytest.fixture
def run(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in a folder of its own, and expects its exit code."""
    shutil.copytree(files, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments: str, code: int = 0, text: str | None = None) -> Result:
        result = CliRunner().invoke(main, list(arguments), env={"COLUMNS": "100"}, input=text)
        assert result.exit_code == code, result.output
        return result

    return invoke
