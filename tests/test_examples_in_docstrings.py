"""The examples in the docstrings of all public names, and of what they give: each has one, and each is run."""

from __future__ import annotations

import doctest
import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import empriv
import empriv.report
from empriv.collecting import explain
from empriv.comparing.comparison import Utility
from empriv.comparing.ways import Action
from empriv.measuring.densities.density import Model
from empriv.measuring.densities.kernels import Kernel
from empriv.measuring.series.repeated import HowOften, RepeatedRisk
from empriv.measuring.tables.table_risk import TableRisk
from empriv.validate.bounds import bounds, how_often
from empriv.validate.checks import checks
from empriv.validate.covers import cover, cover_by_cell
from spark_sessions import JAVA, QUIET, SPARK
from test_datasets import write_gpcp

ROOMS = {"datasets": empriv.datasets, "protocols": empriv.protocols, "report": empriv.report}
# A table of data, and what `write_report` hands back: seen in the examples of others.
WITHOUT = {"KERNELS", "report.CHARTS", "report.Written"}
BEHIND = (
    Action, HowOften, Kernel, Model, RepeatedRisk, TableRisk, Utility, bounds, checks, cover, cover_by_cell, explain,
    how_often,
)  # fmt: skip
"""What methods of public classes call and give."""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
LONGEST = 8


def _public() -> dict[str, Any]:
    """All that users are told of, by the name under which they find it."""
    names = {name: getattr(empriv, name) for name in empriv.__all__ if name not in ROOMS}
    for room, module in ROOMS.items():
        names |= {f"{room}.{name}": getattr(module, name) for name in module.__all__}
    names |= {value.__name__: value for value in BEHIND}
    return {name: value for name, value in names.items() if name not in WITHOUT}


PUBLIC = _public()


def _example(text: str | None, names: dict[str, Any]) -> doctest.DocTest:
    return doctest.DocTestParser().get_doctest(inspect.cleandoc(text or ""), names, "example", None, 0)


def _run(text: str | None, **names: Any) -> None:
    said: list[str] = []
    test = _example(text, {"empriv": empriv, "np": np, **names})
    failed = doctest.DocTestRunner(optionflags=FLAGS, verbose=False).run(test, out=said.append).failed
    assert not failed, "".join(said)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_short_example(name: str) -> None:
    text = inspect.getdoc(PUBLIC[name]) or ""
    assert "Examples\n--------\n" in text, f"{name} has no example"
    lines = sum(example.source.count("\n") for example in _example(text, {}).examples)
    assert 0 < lines <= LONGEST
    assert "+SKIP" not in text


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PUBLIC if name != "SparkEngine"])
def test_the_example_does_what_it_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if name == "datasets.read_gpcp":
        write_gpcp("precip.mon.mean.nc")
    _run(PUBLIC[name].__doc__, checks=checks, explain=explain)


@pytest.mark.parametrize("lie", [">>> 1 + 1\n3", ">>> empriv.nothing", '>>> empriv.KERNELS["laplace"].name\nlaplace'])
def test_an_example_that_is_wrong_is_noticed(lie: str) -> None:
    with pytest.raises(AssertionError):
        _run(lie)


@SPARK
@JAVA
@QUIET
def test_the_example_on_spark(spark: Any) -> None:
    _run(empriv.SparkEngine.__doc__, spark=spark)
