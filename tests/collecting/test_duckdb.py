"""What is DuckDB's own: memory, Ctrl-C, errors of the engine, imports."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from empriv.collecting import DuckDBEngine, collect, databases
from empriv.errors import InputError, QueryError, SourceError
from empriv.results import Results

# Long texts: a million rows, most of them groups of their own.
LARGE = (
    "SELECT i % 7 AS day, 'individual number ' || (i % 500_000) AS who, (i * 7919 % 10007) / 7.0 AS x "
    "FROM range(1_000_000) AS t(i)"
)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import duckdb

    path = tmp_path_factory.mktemp("large") / "rows.parquet"
    with duckdb.connect() as connection:
        connection.execute(f"COPY ({LARGE}) TO '{path}' (FORMAT PARQUET)")
    return path


@pytest.mark.slow
def test_what_exceeds_the_memory_limit_goes_to_disk(large: Path, tmp_path: Path) -> None:
    data = databases(str(large), database="day", individual="who")
    seen: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.005):
            seen.update(path.name for path in tmp_path.rglob("*.tmp"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        limited = collect(
            data, "avg(x)", engine=DuckDBEngine(memory_limit="120MB", threads=1, temp_directory=str(tmp_path))
        )
    finally:
        done.set()
        watcher.join()
    free = collect(data, "avg(x)", engine=DuckDBEngine(threads=2))
    assert seen, "nothing was written to disk"
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(limited.q, free.q)
    np.testing.assert_array_equal(limited.starts, free.starts)
    np.testing.assert_array_equal(limited.entry_q, free.entry_q)


@pytest.mark.slow
@pytest.mark.parametrize("query", ["avg(x)", "SELECT avg(x) FROM (SELECT * FROM data LIMIT 99)"])
def test_too_little_memory_is_one_clear_error(large: Path, query: str) -> None:
    data = databases(str(large), database="day", individual="who")
    said: list[str] = []
    with pytest.raises((QueryError, SourceError), match=r"not enough memory.*Hint: .*`memory_limit`"):
        collect(data, query, memory_limit="4MB", notice=said.append, progress=False)
    assert said == []


def test_error_on_every_database_quotes_no_row() -> None:
    rows = pd.DataFrame({"day": [1, 2], "who": ["a", "b"], "x": ["SECRET", "SECRET"]})
    data = databases(rows, database="day", individual="who")
    with pytest.raises(QueryError) as caught:
        collect(data, "sum(CAST(x AS INTEGER))", progress=False)
    assert "SECRET" not in str(caught.value)
    assert str(caught.value).startswith("The query fails on every database. Hint: ")


@pytest.mark.slow
def test_integers_of_128_bits_without_sign_are_refused() -> None:
    data = databases(
        "SELECT 1 AS day, i AS who, CAST(i AS UHUGEINT) AS x FROM range(3) AS t(i)", database="day", individual="who"
    )
    for query in ("max(x)", "SELECT max(x) FROM (SELECT * FROM data LIMIT 99)"):
        with pytest.raises(QueryError, match="must give numbers"):
            collect(data, query, progress=False)
    assert collect(data, "max(CAST(x AS DOUBLE))").q.tolist() == [2.0]


def test_decimals_of_single_runs_are_right_or_refused() -> None:
    query = "SELECT max(m) FROM (SELECT * FROM data LIMIT 99)"

    def results(amount: str) -> Results:
        source = f"SELECT 1 AS day, 'a' AS who, CAST({amount} AS DECIMAL(20, 2)) AS m UNION ALL SELECT 1, 'b', 0.01"
        return collect(databases(source, database="day", individual="who"), query, progress=False)

    assert results("90000000000000.07").entry_q.tolist() == [0.01, 90000000000000.07]
    with pytest.raises(QueryError, match=r"beyond 2\^53"):
        results("100000000000000.07")


@pytest.mark.slow
@pytest.mark.parametrize("values", [[1e300, 1e-300, 2.5e-300], [1e300, -1e300, 5e-324], [1.7e308, 3e-310, 1e-200]])
def test_extreme_doubles_are_exact(values: list[float]) -> None:
    data = databases(pd.DataFrame({"day": 1, "who": ["a", "b", "c"], "x": values}), database="day", individual="who")
    results = collect(data, "sum(x)")
    assert results.q.tolist() == [float(sum(map(Fraction, values)))]
    left = [float(sum(Fraction(x) for j, x in enumerate(values) if j != i)) for i in range(3)]
    assert results.entry_q.tolist() == left


@pytest.mark.slow
def test_cost_of_single_runs_is_said_before_them_and_of_many_even_without_progress(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from empriv.collecting.sql import rerun

    query = "SELECT sum(x) FROM (SELECT * FROM data LIMIT 99)"
    data = databases(pd.DataFrame({"day": 1, "who": range(50), "x": 1.0}), database="day", individual="who")
    events: list[str] = []
    read = rerun._read

    def counted(*arguments: object) -> object:
        events.append("run")
        return read(*arguments)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(rerun, "_read", counted)
        collect(data, query, notice=events.append, progress=False)
    assert "51 runs." in events[0]
    assert events.count("run") >= 51  # and what is verified takes a few more
    collect(data, query, progress=False)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(rerun, "MANY_RUNS", 50)
    collect(data, query, progress=False)
    assert "51 runs." in capsys.readouterr().err


def test_temporary_directory_must_exist(tmp_path: Path) -> None:
    data = databases(pd.DataFrame({"day": [1], "who": [1]}), database="day", individual="who")
    with pytest.raises(InputError, match="`temp_directory`"):
        collect(data, "count(*)", engine=DuckDBEngine(temp_directory=str(tmp_path / "nowhere")))


ENDLESS = """
import sys, empriv
from empriv.collecting import DuckDBEngine
data = empriv.databases(
    "SELECT 1 AS day, i % 1000 AS who, i AS x FROM range(100000) AS t(i)", database="day", individual="who"
)
engine = DuckDBEngine(temp_directory=sys.argv[1], threads=1)
print("started", flush=True)
try:
    empriv.collect(data, "SELECT sum(sin(a.x * b.x)) FROM {table}", engine=engine)
except KeyboardInterrupt:
    print("interrupted", flush=True)
    raise
"""


@pytest.mark.slow
@pytest.mark.parametrize("table", ["data AS a JOIN big AS b ON TRUE", "data AS a JOIN data AS b ON TRUE"])
def test_ctrl_c_stops_a_statement_and_leaves_no_file(table: str, tmp_path: Path) -> None:
    script = ENDLESS.format(table=table)
    if "big" in table:
        big = 'tables={"big": "SELECT i AS x FROM range(10000000) AS t(i)"}, database='
        script = script.replace("database=", big, 1)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
        deadline = time.monotonic() + 60
        while not list(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(1)
        assert process.poll() is None
        os.kill(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert out == "interrupted\n"
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert process.returncode != 0
    assert list(tmp_path.iterdir()) == []


def test_workers_load_neither_engine_nor_parser() -> None:
    code = (
        "import sys, empriv.collecting.function_calls; "
        "print([name for name in ('duckdb', 'sqlglot', 'pandas', 'scipy') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"
