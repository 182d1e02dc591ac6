"""The Python program of an audit: what settings say, in calls of the library, whatever text they hold."""

from __future__ import annotations

import ast
from dataclasses import replace

import pytest

import empriv
from empriv.app.export_script import script_of
from empriv.cli.config import Settings
from empriv.cli.inputs import density_from_name
from empriv.errors import InputError

PLAIN = Settings(files=("sales.csv",), database="day", individual=("client",), query=("avg(amount)",))


def call_of(script: str, function: str) -> ast.Call:
    """The call of a function of the library."""
    calls = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Call)]
    return next(call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == function)


def argument(script: str, function: str, name: str) -> object:
    """What a call is given, evaluated."""
    node = next(keyword.value for keyword in call_of(script, function).keywords if keyword.arg == name)
    return eval(compile(ast.Expression(node), "script", "eval"), {"empriv": empriv})


HOSTILE = ('"""\nimport os\n', "'); print('x", '\\"', "a\u202eb", "{name}", "#", "\x00")


@pytest.mark.parametrize("text", HOSTILE)
def test_text_stays_text(text: str) -> None:
    script = script_of("shop", replace(PLAIN, query=(text,), database=text, unit=text, individual=(text, "client")))
    assert script.isascii()
    names = [node for node in ast.walk(ast.parse(script)) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert len(names) == 3
    assert argument(script, "databases", "database") == argument(script, "audit", "unit") == text
    query = call_of(script, "audit").args[1]
    assert isinstance(query, ast.Constant)
    assert query.value == text


@pytest.mark.parametrize("known", [("nothing",), ("calendar", "previous:2", "sum(x)"), ("own",), ("unordered",)])
def test_what_readers_know_is_what_the_command_takes(known: tuple[str, ...]) -> None:
    said = argument(script_of("shop", replace(PLAIN, known=known)), "audit", "known")
    assert said == (known[0] if len(known) == 1 else list(known))


@pytest.mark.parametrize("name", ["gaussian:0.5", "ecdf", "best", "variable:gaussian:breiman"])
def test_density_is_the_one_of_the_name(name: str) -> None:
    script = script_of("shop", replace(PLAIN, density=name))
    assert argument(script, "audit", "density") == density_from_name(name)


def test_what_is_as_by_default_is_not_said_and_the_rest_is() -> None:
    assert [keyword.arg for keyword in call_of(script_of("shop", PLAIN), "audit").keywords] == ["epsilon"]
    settings = replace(
        PLAIN, database=None, subsamples=90, tables={"people": "people.csv"}, times=12, ledger="releases.ledger",
        target=("total_risk <= 0.05 at 0.1",), known=("unordered",), timeout=9.0,
    )  # fmt: skip
    script = script_of("shop", settings, {"epsilon": 0.1, "delta": 0.05, "granularity": 0.25, "bound": None})
    assert argument(script, "subsamples", "count") == 90
    assert argument(script, "subsamples", "tables") == {"people": "people.csv"}
    assert argument(script, "verdict", "total_risk") == 0.05
    assert ".repeated(12)" in script
    assert [keyword.arg for keyword in call_of(script, "design_noise").keywords] == ["epsilon", "delta", "granularity"]


def test_what_only_the_command_line_does_is_refused() -> None:
    with pytest.raises(InputError, match="several that make one table"):
        script_of("shop", replace(PLAIN, files=("a.csv", "b.csv")))
    with pytest.raises(InputError, match="which data, who and what"):
        script_of("shop", Settings(files=("a.csv",)))
