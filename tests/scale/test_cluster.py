"""What executors do with batches of entries, without a cluster: cuts between individuals, labels, the tally's row."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pyarrow
import pytest

import empriv
from empriv.collecting.engines.spark.saving import absolute
from empriv.results import Outcome, Results
from empriv.scale.executors import entries_of, measured_batches
from empriv.scale.stretches import Yardstick, nobody_listed, yardstick_of
from empriv.scale.tally import from_bytes, merge_all

EPSILONS = (0.05, 0.2)
N, PEOPLE = 40, 30


def yardstick(q: np.ndarray[Any, np.dtype[np.float64]], *, bounds: bool = True) -> Yardstick:
    everyone = nobody_listed(q, np.zeros(len(q), np.int8), np.arange(len(q)))
    return yardstick_of(
        everyone, empriv.Kde(), epsilons=EPSILONS, deltas=(0.0, 0.01), level=0.95, top=4, bounds=bounds, people=PEOPLE
    )


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
@pytest.mark.parametrize("labels", ["integers", "texts", "several"])
@pytest.mark.parametrize("entries", [1, 100, 10_000])
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
            yardstick(q), iter(table.to_batches(37)), each=True, integers=labels == "integers", entries=entries
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
    tally = from_bytes(last["tally"][0].as_py(), yardstick(q).everyone)
    np.testing.assert_allclose(tally.worst, risk.delta(np.array(EPSILONS)), atol=1e-12)
    assert tally.n_individuals == PEOPLE
    assert last["individual"].null_count == 1


def test_parts_of_individuals_merge_into_all() -> None:
    table, q, results = case()
    stick = yardstick(q)
    who = table["individual"].to_numpy()
    parts = [table.filter(pyarrow.array(who % 3 == part)) for part in range(3)]
    tallies = []
    for part in parts:
        *_, last = measured_batches(stick, iter(part.to_batches()), each=False, integers=True)
        tallies.append(from_bytes(last["tally"][0].as_py(), stick.everyone))
    merged = merge_all(tallies, top=4)
    risk = empriv.measure(results)
    np.testing.assert_allclose(merged.total_risk, risk.total_risk(np.array(EPSILONS)), atol=1e-12)
    assert merged.total_risk[0] > tallies[0].total_risk[0]


def test_no_entries_no_tally() -> None:
    _, q, _ = case()
    assert list(measured_batches(yardstick(q), iter([]), each=True, integers=True)) == []


def test_what_is_no_number_is_an_outcome() -> None:
    _, q, _ = case()
    table = pyarrow.table(
        {
            "individual": ["a", "a", "b"],
            "database": pyarrow.array([0, 1, 2], pyarrow.int32()),
            "q": [None, float("inf"), float("nan")],
        }
    )
    results = entries_of(yardstick(q).everyone, table)
    assert results.individuals.tolist() == ["a", "b"]
    assert results.starts.tolist() == [0, 2, 3]
    assert results.entry_outcomes.tolist() == [Outcome.NULL, Outcome.PLUS_INFINITY, Outcome.NAN]


def test_an_executor_loads_neither_an_engine_nor_a_parser() -> None:
    """What it imports is paid for by every executor, whenever it starts."""
    code = (
        "import sys, empriv.scale.executors, empriv.collecting.engines.arrow, empriv.collecting.engines.spark.calls\n"
        "print([name for name in ('sqlglot', 'duckdb', 'pyspark', 'pandas') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert said.strip() == "[]"


def test_paths_are_those_that_executors_understand(tmp_path: Any) -> None:
    assert absolute(tmp_path) == str(tmp_path)
    assert absolute("saved").startswith("/")
    assert absolute("s3://bucket/saved") == "s3://bucket/saved"
    assert absolute("dbfs:/saved") == "dbfs:/saved"
