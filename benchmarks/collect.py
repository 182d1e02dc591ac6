"""Cost of collecting against a bare GROUP BY on the same rows, in the same process.

    python benchmarks/collect.py --rows 20_000_000

Prints seconds, ratios to the bare statement, their targets, and peak memory. Data are drawn by DuckDB from a fixed
seed into a temporary Parquet file: 100,000 individuals, 100 databases. The table is a GROUP BY of 100 cells over
10,000 individuals, each in about 15 of 365 databases, mostly in one cell (`--only-table` leaves out the rest).
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import duckdb
import psutil

import empriv
from empriv.collecting import deletion, run_query

BARE = "SELECT database, individual, sum(x), count(*) FROM read_parquet('{path}') GROUP BY 1, 2"
QUERIES = (
    ("sum", "SELECT sum(x) FROM data", 1.3),
    ("avg", "SELECT avg(x) FROM data", 1.3),
    ("stddev", "SELECT stddev_samp(x) FROM data", 1.6),
    ("max - min", "SELECT max(x) - min(x) FROM data", 1.6),
    ("median", "SELECT median(x) FROM data", 5.0),
)
BARE_TABLE = "SELECT database, individual, ward, age, count(*) FROM read_parquet('{path}') GROUP BY 1, 2, 3, 4"
TABLE = "SELECT ward, age, count(*) FROM data GROUP BY ward, age"
EPSILONS = [0.01 * step for step in range(1, 21)]


def make_rows(path: Path, rows: int) -> None:
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT CAST(hash(i * 3 + 1) % 100 AS INTEGER) AS database, "
            "CAST(hash(i * 7 + 2) % 100000 AS BIGINT) AS individual, (hash(i * 11 + 3) % 1000000) / 977.0 AS x "
            f"FROM range({rows}) AS t(i)) TO '{path}' (FORMAT PARQUET)"
        )


def make_table_rows(path: Path, people: int = 10_000, databases: int = 365, visits: int = 15) -> None:
    """A person's cell is that of their number; one visit of ten is in another age group."""
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT CAST(hash(i * 3 + 1) % {databases} AS INTEGER) AS database, "
            f"CAST(i % {people} AS BIGINT) AS individual, 'ward ' || (i % {people}) * 7919 % 10 AS ward, "
            f"'age ' || CASE WHEN hash(i * 5) % 10 = 0 THEN hash(i * 13) % 10 ELSE i % {people} // 10 % 10 END AS age "
            f"FROM range({people * visits}) AS t(i)) TO '{path}' (FORMAT PARQUET)"
        )


def bare(path: Path, statement: str = BARE) -> None:
    with duckdb.connect() as connection:
        connection.execute(statement.format(path=path)).fetchnumpy()


def collected(path: Path, query: str, memory_limit: str | None = None) -> None:
    data = empriv.databases(str(path), database="database", individual="individual")
    empriv.collect(data, query, memory_limit=memory_limit, progress=False)


def audited(path: Path) -> None:
    data = empriv.databases(str(path), database="database", individual="individual")
    empriv.audit(data, "SELECT avg(x) FROM data", epsilon=EPSILONS)


def share_of_verifying(path: Path) -> float:
    """The share of an audit's time in which people are really deleted to verify it."""
    spent = 0.0

    def timed(*given: Any, **options: Any) -> Any:
        nonlocal spent
        began = time.perf_counter()
        try:
            return deletion.verify(*given, **options)
        finally:
            spent += time.perf_counter() - began

    with patch.object(run_query, "verify", timed):
        started = time.perf_counter()
        audited(path)
        return spent / (time.perf_counter() - started)


def seconds(*works: Callable[[], None], repeats: int) -> list[float]:
    """The best of several runs of each, in turns: what they cost side by side, when least else disturbs them."""
    best = [float("inf")] * len(works)
    for _ in range(repeats):
        for number, work in enumerate(works):
            started = time.perf_counter()
            work()
            best[number] = min(best[number], time.perf_counter() - started)
    return best


def peak_gigabytes(function: Callable[..., None], *arguments: object) -> float:
    """Peak memory of a process of its own that does this work."""
    process = multiprocessing.get_context("spawn").Process(target=function, args=arguments)
    process.start()
    watched, peak = psutil.Process(process.pid), 0
    while process.is_alive():
        try:
            peak = max(peak, watched.memory_info().rss)
        except psutil.NoSuchProcess:
            break
        threading.Event().wait(0.02)
    process.join()
    if process.exitcode != 0:
        raise SystemExit(f"the measured process ended with code {process.exitcode}")
    return peak / 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=20_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--memory-limit", default="1GB")
    parser.add_argument("--no-audit", action="store_true", help="leave out the whole audit")
    parser.add_argument("--only-table", action="store_true", help="leave out all but the table of 100 cells")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "table.parquet"
        make_table_rows(path)
        unit, taken = seconds(partial(bare, path, BARE_TABLE), partial(collected, path, TABLE), repeats=options.repeats)
        print(
            f"{'table of 100 cells':<24}{taken:8.2f} s   bare GROUP BY {unit:6.2f} s   ratio {taken / unit:5.2f}   "
            f"peak memory {peak_gigabytes(collected, path, TABLE):.2f} GB",
            flush=True,
        )
    if options.only_table:
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.parquet"
        make_rows(path, options.rows)
        cases = [(name, partial(collected, path, query), target) for name, query, target in QUERIES]
        if not options.no_audit:
            cases.append(("audit at 20 epsilons", partial(audited, path), 2.5))
        for name, work, target in cases:
            unit, taken = seconds(partial(bare, path), work, repeats=options.repeats)
            print(
                f"{name:<24}{taken:8.2f} s   bare GROUP BY {unit:6.2f} s   ratio {taken / unit:5.2f}   "
                f"target {target:.1f}",
                flush=True,
            )
        if not options.no_audit:
            print(f"verifying by deletion: {share_of_verifying(path):.0%} of the audit   target below 15%", flush=True)
        for name, query, _ in QUERIES:
            free = peak_gigabytes(collected, path, query)
            limited = peak_gigabytes(collected, path, query, options.memory_limit)
            print(
                f"peak memory, {name:<21}{free:8.2f} GB  with memory_limit={options.memory_limit}: {limited:.2f} GB",
                flush=True,
            )


if __name__ == "__main__":
    main()
