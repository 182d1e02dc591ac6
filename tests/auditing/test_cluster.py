"""What executors do with batches of entries, without a cluster: cuts between individuals, labels, the row of totals."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow
import pytest

import empriv
from empriv.auditing.chunked import ChunkModel, ChunkOptions, model_of, nobody_listed
from empriv.auditing.cluster import entries_of, measured_batches
from empriv.auditing.totals import Totals, merge_all
from empriv.collecting.engines.spark.tables import absolute
from empriv.results import Outcome, Results

EPSILONS = (0.05, 0.2)
N, PEOPLE = 40, 30


def model(q: np.ndarray[Any, np.dtype[np.float64]]) -> ChunkModel:
    everyone = nobody_listed(q, np.zeros(len(q), np.int8), np.arange(len(q)))
    options = ChunkOptions(EPSILONS, (0.0, 0.01), empriv.Kde(), None, True, 4)
    return model_of(everyone, options, lambda *_: (None, None), people=PEOPLE, n_components=None, positive=lambda: True)


def case() -> tuple[Any, np.ndarray[Any, np.dtype[np.float64]], Results]:
    """Entries as an Arrow table, results with everyone, and the same as `Results`."""
    rng = np.random.default_rng(5)
    q = rng.normal(size=N)
    present = rng.random((PEOPLE, N)) < 0.6
    without = np.where(present, q - rng.lognormal(-3.0, 1.0, (PEOPLE, N)), q)
    who, where = np.nonzero(present)
    table = pyarrow.table({"individual": who, "database": where.astype(np.int32), "q": without[who, where]})
    return table, q, Results.from_arrays(q, without)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("labels", "entries"), [("integers", 1), ("integers", 10_000), ("texts", 100), ("several", 1), ("several", 100)]
)
def test_batches_are_measured_like_the_whole(labels: str, entries: int) -> None:
    table, q, results = case()
    who = table["individual"].combine_chunks()
    if labels == "texts":
        who = pyarrow.array([f"person {one:02}" for one in who.to_pylist()])
    if labels == "several":
        # One column alone changes in some places, the other in others, and one of them may be missing.
        pairs = [{"a": one // 4 or None, "b": one % 4} for one in who.to_pylist()]
        who = pyarrow.array(pairs)
    table = table.set_column(0, "individual", who)
    found = list(
        measured_batches(
            model(q), iter(table.to_batches(37)), each=True, integers=labels == "integers", entries=entries
        )
    )
    *people, last = found
    delta_i = np.concatenate([np.array(batch["delta_i"].to_pylist()) for batch in people])
    epsilon_i = np.concatenate([np.array(batch["epsilon_i"].to_pylist()) for batch in people])
    risk = empriv.measure(results)
    np.testing.assert_allclose(delta_i, risk.delta_i(np.array(EPSILONS)), atol=1e-12)
    np.testing.assert_allclose(epsilon_i[:, 1], risk.epsilon_i(0.01), rtol=1e-9)
    assert (len(people) > 1) == (entries < len(table))
    named = list(itertools.chain.from_iterable(batch["individual"].to_pylist() for batch in people))
    assert len(set(named)) == PEOPLE
    if labels == "several":
        assert named[:2] == ["[null, 0]", "[null, 1]"]
    totals = Totals.from_bytes(last["totals"][0].as_py(), model(q).everyone)
    np.testing.assert_allclose(totals.delta, risk.delta(np.array(EPSILONS)), atol=1e-12)
    assert totals.n_individuals == PEOPLE
    assert last["individual"].null_count == 1


def test_parts_of_individuals_merge_into_all() -> None:
    table, q, results = case()
    one = model(q)
    who = table["individual"].to_numpy()
    parts = [table.filter(pyarrow.array(who % 3 == part)) for part in range(3)]
    totals = []
    for part in parts:
        *_, last = measured_batches(one, iter(part.to_batches()), each=False, integers=True)
        totals.append(Totals.from_bytes(last["totals"][0].as_py(), one.everyone))
    merged = merge_all(totals, keep=4)
    risk = empriv.measure(results)
    np.testing.assert_allclose(merged.total_risk, risk.total_risk(np.array(EPSILONS)), atol=1e-12)
    assert merged.total_risk[0] > totals[0].total_risk[0]


def test_no_entries_no_totals() -> None:
    _, q, _ = case()
    assert list(measured_batches(model(q), iter([]), each=True, integers=True)) == []


def test_what_is_no_number_is_an_outcome() -> None:
    _, q, _ = case()
    table = pyarrow.table(
        {
            "individual": ["a", "a", "b"],
            "database": pyarrow.array([0, 1, 2], pyarrow.int32()),
            "q": [None, float("inf"), float("nan")],
        }
    )
    results = entries_of(model(q).everyone, table)
    assert results.individuals.tolist() == ["a", "b"]
    assert results.starts.tolist() == [0, 2, 3]
    assert results.entry_outcomes.tolist() == [Outcome.NULL, Outcome.PLUS_INFINITY, Outcome.NAN]


@pytest.mark.slow
def test_an_executor_loads_neither_an_engine_nor_a_parser() -> None:
    """What it imports is paid for by every executor, whenever it starts."""
    code = (
        "import sys, empriv.auditing.cluster, empriv.collecting.engines.engine, empriv.collecting.function_calls\n"
        "print([name for name in ('sqlglot', 'duckdb', 'pyspark', 'pandas') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == "[]"


def test_paths_are_those_that_executors_understand(tmp_path: Any) -> None:
    assert absolute(tmp_path) == str(tmp_path)
    assert absolute("saved").startswith("/")
    assert absolute("s3://bucket/saved") == "s3://bucket/saved"
    assert absolute("dbfs:/saved") == "dbfs:/saved"
