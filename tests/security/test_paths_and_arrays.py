"""Paths that no system opens, and arrays that hold no numbers: one clear sentence each, and nothing is lost."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import empriv
from empriv.cli.main import main
from empriv.errors import EmprivError, InputError

NUL = "a\0b.html"
ROWS = pd.DataFrame({"day": np.arange(80) % 10, "who": np.arange(80) % 8, "x": np.arange(80.0) ** 2 % 17})
DATA = empriv.databases(ROWS, database="day", individual="who")
RESULTS = empriv.collect(DATA, "sum(x)")

CALLS: dict[str, Callable[[], Any]] = {
    "results.save": lambda: RESULTS.save(NUL),
    "results.load": lambda: empriv.Results.load(NUL),
    "load": lambda: empriv.load(NUL),
    "audit.save": lambda: empriv.audit(RESULTS).save(NUL),
    "audit.report": lambda: empriv.audit(RESULTS).report(NUL),
    "in chunks": lambda: empriv.audit(RESULTS, in_chunks=True).save(NUL),
    "checkpoint in chunks": lambda: empriv.audit(DATA, "sum(x)", checkpoint=NUL),
    "function checkpoint": lambda: empriv.collect(DATA, lambda rows: rows["x"].sum(), checkpoint=NUL),
    "databases": lambda: empriv.collect(empriv.databases("a\0.csv", database="day", individual="who"), "sum(x)"),
    "glob": lambda: empriv.collect(empriv.databases("*\0*.csv", database="day", individual="who"), "sum(x)"),
    "table": lambda: empriv.collect(
        empriv.databases(ROWS, database="day", individual="who", tables={"t": "a\0.csv"}), "sum(x)"
    ),
    "temp_directory": lambda: empriv.collect(DATA, "sum(x)", engine=empriv.DuckDBEngine(temp_directory=NUL)),
    "ledger": lambda: empriv.Ledger(NUL),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_nul_in_a_path_is_one_sentence(call: Callable[[], Any]) -> None:
    with pytest.raises(EmprivError):
        call()


@pytest.mark.parametrize(
    "options",
    [
        ["audit", "d.csv", "--save", NUL], ["audit", "d.csv", "--json", NUL], ["audit", "d.csv", "--report", NUL],
        ["audit", "d.csv", "--write-config", NUL], ["audit", "d.csv", "--config", NUL], ["audit", "a\0.csv"],
        ["audit", "d.csv", "--ledger", NUL], ["audit", "d.csv", "--table", "t=a\0.csv"],
        ["audit", "d.csv", "--checkpoint", NUL], ["audit", "d.csv", "--in-chunks", "--save", NUL], ["show", NUL],
    ],
)  # fmt: skip
def test_a_command_says_so_too(options: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ROWS.to_csv("d.csv")
    asked = [] if options[0] == "show" else ["--database", "day", "--individual", "who", "--query", "sum(x)"]
    ran = CliRunner().invoke(main, [*options, *asked])
    assert ran.exit_code in (1, 2)
    assert "Error: " in ran.output
    assert "unexpected" not in ran.output


@pytest.mark.parametrize("kind", [complex, str, "M8[s]", object, [("x", "f8")]])
def test_arrays_that_hold_no_numbers_are_refused(kind: Any) -> None:
    q, without = np.arange(9.0), np.arange(27.0).reshape(3, 9)
    first, second = q.astype(kind), without.astype(kind)
    if kind is object:
        first, second = q.astype(str).astype(object), without.astype(str).astype(object)
    for call in (empriv.measure, empriv.Results.from_arrays):
        with pytest.raises(InputError, match="`q` must be a rectangular array of numbers"):
            call(first, without)
        with pytest.raises(InputError, match="`q_without` must be a rectangular array of numbers"):
            call(q, second)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e200])
@pytest.mark.parametrize("density", [None, 0.3])
def test_scales_that_doubles_cannot_reckon_with_are_refused(scale: float, density: float | None) -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(size=30)
    without = q + 0.3 * rng.normal(size=(4, 30))
    own = None if density is None else empriv.Kde("laplace", max(density * scale, 5e-324))
    with pytest.raises(InputError, match="Results must be at most 1e\\+150"):
        empriv.measure(q * scale, without * scale, density=own)
    assert 0 < empriv.measure(q * 1e-140, without * 1e-140).delta(0.1) < 1
    assert empriv.measure(np.zeros(9), np.zeros((2, 9))).delta(0.1) == 0, "equal results have no scale"
