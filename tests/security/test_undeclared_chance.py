"""A function that answers differently when it is called twice is refused, wherever functions are taken."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv import protocols
from empriv.errors import QueryError


@pytest.fixture(scope="module")
def data() -> empriv.Databases:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(
        {"day": np.repeat(np.arange(12), 8), "who": np.tile(np.arange(8), 12), "x": rng.normal(size=96)}
    )
    return empriv.databases(frame, database="day", individual="who")


count = itertools.count()

UNDECLARED: dict[str, Callable[..., Any]] = {
    "random": lambda rows: rows["x"].sum() + random.random(),
    "numpy's global state": lambda rows: rows["x"].sum() + np.random.normal(),  # noqa: NPY002
    "a generator of its own": lambda rows: rows["x"].sum() + np.random.default_rng().normal(),
    "a counter": lambda rows: rows["x"].sum() + next(count),
    "one of several": lambda rows: {"a": rows["x"].sum(), "b": random.random()},
    "sometimes nothing": lambda rows: rows["x"].sum() if next(count) % 2 else None,
    "sometimes an exception": lambda rows: rows["x"].sum() / (next(count) % 2),
    "names": lambda rows: {f"a{next(count)}": rows["x"].sum()},
    "how many": lambda rows: [float(rows["x"].sum())] * (1 + next(count) % 2),
}


@pytest.mark.parametrize("function", UNDECLARED.values(), ids=UNDECLARED)
def test_an_audit_refuses_undeclared_chance_and_names_draws(data: Any, function: Any) -> None:
    with pytest.raises(QueryError, match=r"must give the same answer each time .* `draws=`"):
        empriv.audit(data, function, jobs=1, progress=False)


def test_other_processes_refuse_it_too(data: Any) -> None:
    with pytest.raises(QueryError, match=r"must give the same answer each time .* `draws=`"):
        empriv.audit(data, UNDECLARED["random"], jobs=2, progress=False)


def test_protocols_comparisons_and_what_is_known_refuse_it(data: Any) -> None:
    function = UNDECLARED["random"]
    refused = pytest.raises(QueryError, match=r"must give the same answer each time .* `draws=`")
    with refused:
        protocols.plain(function).collect(data, jobs=1)
    with refused:
        protocols.rounded(function, to=1.0).collect(data, jobs=1)
    with refused:
        empriv.compare({"a": "sum(x)", "b": function}, data, jobs=1)
    with refused:
        empriv.collect(data, ["sum(x)", function], jobs=1)
    with refused:
        empriv.audit(data, "sum(x)", known=empriv.Buckets(function, 2))


@pytest.mark.parametrize(
    "post",
    [
        lambda x: x + random.random(),
        lambda x: x + np.random.normal(size=np.shape(x)),  # noqa: NPY002
        lambda x: float(x) + next(count),
        lambda x: np.where(next(count) % 2, x, np.nan),
    ],
)
def test_post_refuses_it(data: Any, post: Any) -> None:
    for query in ("sum(x)", lambda rows: rows["x"].sum(), "SELECT sum(x) AS a, count(*) AS b FROM data"):
        with pytest.raises(QueryError, match=r"`post` must give the same number each time .* `draws=`"):
            empriv.collect(data, query, post=post)


def test_a_box_that_answers_are_passed_through_refuses_it(data: Any) -> None:
    for query in ("sum(x)", "SELECT sum(x) AS a, count(*) AS b FROM data"):
        boxed = protocols.passed(query, lambda answer: answer + random.random())
        with pytest.raises(QueryError, match=r"`function` must give the same answer each time .* `draws=`"):
            boxed.collect(data)
    declared = protocols.passed("sum(x)", lambda answer, rng: answer + rng.normal())
    assert declared.collect(data, draws=3).q.shape == (12, 3)


def test_one_call_more_and_none_with_draws(data: Any) -> None:
    calls = []

    def plain(rows: Any) -> float:
        calls.append(1)
        return float(rows["x"].sum())

    def drawn(rows: Any, rng: np.random.Generator) -> float:
        calls.append(1)
        return float(rows["x"].sum() + rng.normal())

    results = empriv.collect(data, plain, jobs=1)
    assert len(calls) == 1 + 12 + len(results.entry_q)
    calls.clear()
    empriv.collect(data, drawn, draws=2, jobs=1)
    assert len(calls) == 2 * (12 + len(results.entry_q))


def test_functions_that_differ_by_rounding_or_never_are_taken(data: Any) -> None:
    wobble = itertools.cycle([1.0, 1.0 + 2e-16, 1.0 - 1e-16])
    empriv.collect(data, lambda rows: rows["x"].sum() * next(wobble), jobs=1)
    for answer in (None, float("nan"), float("inf"), [1.0, None], {"a": 1, "b": float("nan")}):
        empriv.collect(data, lambda _rows, answer=answer: answer, jobs=1)
    empriv.collect(data, lambda rows: np.random.default_rng(3).normal() + rows["x"].sum(), jobs=1)
    empriv.collect(data, "sum(x)", post=lambda x: np.round(x))
