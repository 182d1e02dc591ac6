"""The public names: listed, importable, documented, and cheap to import."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import empriv

ROOT = Path(__file__).parents[1]


def test_all_is_sorted_complete_and_without_doubles() -> None:
    assert len(set(empriv.__all__)) == len(empriv.__all__)
    assert set(dir(empriv)) == set(empriv.__all__)


@pytest.mark.parametrize("name", empriv.__all__)
def test_every_public_name_exists_and_is_documented(name: str) -> None:
    value = getattr(empriv, name)
    assert isinstance(value, dict) or value.__doc__


@pytest.mark.slow
def test_functions_are_not_shadowed_by_modules() -> None:
    """A module of the same name as a public function would replace it as soon as it is imported."""
    code = (
        "import empriv, pkgutil, importlib\n"
        "for module in pkgutil.walk_packages(empriv.__path__, 'empriv.'):\n"
        "    if not module.name.endswith('__main__'):\n"
        "        importlib.import_module(module.name)\n"
        "modules = {m.name for m in pkgutil.iter_modules(empriv.__path__)}\n"
        "assert modules & set(empriv.__all__) <= {'datasets', 'protocols', 'report'}, modules & set(empriv.__all__)\n"
        "assert callable(empriv.measure)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_version_is_that_of_the_package() -> None:
    assert empriv.__version__ == tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = empriv.nothing  # type: ignore[attr-defined]


def test_import_is_light() -> None:
    """`import empriv` and the command line's help load no numerics and no engine."""
    heavy = "{'numpy', 'scipy', 'duckdb', 'sqlglot', 'pandas', 'rich', 'joblib', 'pyspark'}"
    code = (
        "import sys, empriv\n"
        f"assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)\n"
        "from click.testing import CliRunner\n"
        "from empriv.cli.main import main\n"
        "result = CliRunner().invoke(main, ['--help'])\n"
        "assert result.exit_code == 0\n"
        f"assert not {heavy} & set(sys.modules), {heavy} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
