"""Public classes are built as a newcomer would, or say where they come from; public values can be pickled."""

from __future__ import annotations

import inspect
import pickle
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import empriv
from empriv import protocols
from empriv.cli.main import main
from empriv.collecting.run_query import Run

CLASSES = [
    name
    for name in empriv.__all__
    if inspect.isclass(getattr(empriv, name)) and not issubclass(getattr(empriv, name), Exception)
]
PROTOCOLS = {"Density", "Model"}
"""What a user's own class follows; nothing to build."""

BUILT: dict[str, Any] = {
    "BestOf": lambda: empriv.BestOf([empriv.Kde(), empriv.Kde("gaussian")]),
    "Buckets": lambda: empriv.Buckets("count(*)", 4),
    "DuckDBEngine": lambda: empriv.DuckDBEngine(memory_limit="1GB"),
    "Ecdf": lambda: empriv.Ecdf(),
    "Kde": lambda: empriv.Kde("gaussian", 0.5),
    "Given": lambda: empriv.Given("count(*)", "calendar", "previous"),
    "Kernel": lambda: empriv.KERNELS["laplace"],
    "Outcome": lambda: empriv.Outcome(0),
    "OwnContribution": lambda: empriv.OwnContribution(),
    "Policy": lambda: empriv.Policy(epsilon=0.1, delta=0.01, queries=3),
    "Query": lambda: empriv.Query("sum(x)", post=abs),
    "VariableKde": lambda: empriv.VariableKde(),
}
NEEDS_MORE = {"Ledger", "SparkEngine"}
"""Built from a file or a session: their own tests do."""


@pytest.fixture(scope="module")
def data() -> empriv.Databases:
    rng = np.random.default_rng(3)
    rows = {"day": np.repeat(np.arange(30), 5), "client": list(range(5)) * 30, "x": rng.lognormal(size=150)}
    return empriv.databases(pd.DataFrame(rows), database="day", individual="client")


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in PROTOCOLS | NEEDS_MORE])
def test_a_class_is_built_as_its_signature_says_or_tells_who_makes_it(name: str) -> None:
    built = BUILT.get(name)
    if built is None:
        assert "Made by " in (inspect.getdoc(getattr(empriv, name)) or ""), name
    else:
        assert isinstance(built(), getattr(empriv, name))


class TestQuery:
    @pytest.mark.slow
    def test_it_is_parsed_when_it_is_made(self, data: empriv.Databases) -> None:
        query = empriv.Query("sum(x)", post=np.sqrt)
        assert query == empriv.Query("sum(x)", np.sqrt)
        assert query.names == ("SUM(x)",)
        made = empriv.audit(data, query)
        plain = empriv.collect(data, "sum(x)")
        np.testing.assert_array_equal(made.results.q, np.sqrt(plain.q))
        again = empriv.collect(data, "sum(x)", post=np.sqrt)
        np.testing.assert_array_equal(made.results.entry_q, again.entry_q)
        assert made.query == "sum(x), then sqrt"

    @pytest.mark.slow
    def test_a_function_will_do(self, data: empriv.Databases) -> None:
        def total(rows: Any) -> float:
            return float(np.sum(rows["x"]))

        made = empriv.collect(data, empriv.Query(total))
        np.testing.assert_allclose(made.q, empriv.collect(data, "sum(x)").q)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("",), "`query` must be SQL text"),
            ((3,), "`query` must be SQL text"),
            (("sum(x", None), "must be SQL that can be parsed"),
            (("drop table x", None), "must be a SELECT"),
            (("sum(x)", 3), "`post` must be a function"),
        ],
    )
    def test_what_is_wrong_is_said_at_once(self, arguments: tuple[Any, ...], words: str) -> None:
        with pytest.raises(empriv.QueryError) as caught:
            empriv.Query(*arguments)
        assert words in str(caught.value)

    def test_it_shows_what_was_asked_and_no_tree(self) -> None:
        assert repr(empriv.Query("sum(x)")) == "Query(text='sum(x)', post=None)"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"draws": 0}, "`draws` must be a whole number of 1 or more, or None, got 0"),
        ({"draws": 1.5}, "`draws` must be a whole number"),
        ({"rng": -1}, "`rng` must be a whole number of 0 or more, got -1"),
        ({"rng": "x"}, "`rng` must be a whole number"),
        ({"jobs": 0}, "`jobs` must be a whole number other than 0"),
        ({"progress": "yes"}, "`progress` must be True, False or None, got 'yes'"),
        ({"engine": empriv.DuckDBEngine(), "memory_limit": "1GB"}, "`memory_limit` must not be given beside `engine`"),
    ],
)
def test_options_of_a_run_are_checked_by_every_function_alike(
    data: empriv.Databases, given: dict[str, Any], words: str
) -> None:
    ways = {"a": "sum(x)", "b": "avg(x)"}
    for asked in (
        lambda: Run(**given),
        lambda: empriv.collect(data, "sum(x)", **given),
        lambda: empriv.audit(data, "sum(x)", **given),
        lambda: empriv.audit(data, "sum(x)", in_chunks=True, **given),
        lambda: empriv.compare(ways, data, **given),
        lambda: protocols.plain("sum(x)").collect(data, **given),
    ):
        with pytest.raises(empriv.InputError) as caught:
            asked()
        assert words in str(caught.value)


@pytest.mark.parametrize("epsilon", [-1.0, float("nan"), float("inf"), "0.1", [], [0.1, -1.0]])
def test_epsilons_are_refused_by_every_function_alike(data: empriv.Databases, epsilon: Any) -> None:
    said = set()
    for in_chunks in (None, True):
        with pytest.raises(empriv.InputError, match="`epsilon` must") as caught:
            empriv.audit(data, "sum(x)", epsilon=epsilon, in_chunks=in_chunks)
        said.add(str(caught.value))
    with pytest.raises(empriv.InputError, match="`epsilon` must") as caught:
        empriv.compare({"a": "sum(x)", "b": "avg(x)"}, data, epsilon=epsilon)
    assert said == {str(caught.value)}


@pytest.mark.slow
def test_values_survive_pickling(data: empriv.Databases) -> None:
    audit = empriv.audit(data, "sum(x)")
    joint = empriv.audit(data, ["sum(x)", "count(*)"])
    risks = [
        audit.risk, joint.risk, empriv.audit(data, "sum(x)", known="avg(x)"),
        empriv.audit(data, "sum(x)", in_chunks=True),
        empriv.measure(audit.results, density=empriv.BestOf([empriv.Kde("student"), empriv.VariableKde()])),
    ]  # fmt: skip
    for risk in risks:
        assert pickle.loads(pickle.dumps(risk)).delta(0.1) == risk.delta(0.1)
    again = pickle.loads(pickle.dumps(audit))
    assert again.to_json() == audit.to_json()
    assert again.verdict(epsilon=0.1, delta=0.5) == audit.verdict(epsilon=0.1, delta=0.5)
    for value in (audit.bounds(0.1), audit.verdict(epsilon=0.1, delta=0.5), empriv.Query("sum(x)"), data):
        assert repr(pickle.loads(pickle.dumps(value))) == repr(value)
    for kernel in empriv.KERNELS.values():
        assert pickle.loads(pickle.dumps(kernel)) is kernel


def test_the_version_is_the_packages() -> None:
    assert empriv.__version__ == version("empriv")
    assert CliRunner().invoke(main, ["--version"]).output == f"empriv {empriv.__version__}\n"
