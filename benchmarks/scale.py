"""Cost of scanning large tables on one machine, against a bare GROUP BY on the same rows under the same memory limit.

    python benchmarks/scale.py                        cost from 1M to 10M rows, with fitted exponents
    python benchmarks/scale.py --rows 100_000_000     one size, with peak memory

Rows are drawn by DuckDB from a fixed seed into a temporary Parquet file: 365 databases, one individual for every 100
rows, amounts with heavy tails. Each piece of work runs in a process of its own, whose peak memory is printed.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import numpy as np

import empriv

DATABASES = 365
BARE = "SELECT database, individual, sum(x), count(*) FROM read_parquet('{path}') GROUP BY 1, 2"
QUERY = "SELECT avg(x) FROM data"
EPSILONS = [0.01 * step for step in range(1, 21)]
SIZES = ((1_000_000, 10_000), (2_000_000, 20_000), (5_000_000, 50_000), (10_000_000, 100_000))
INDIVIDUALS = ((5_000_000, 12_500), (5_000_000, 50_000), (5_000_000, 200_000), (5_000_000, 800_000))


def make_rows(path: Path, rows: int, individuals: int) -> None:
    """Uniform databases and individuals; x is 1 / u^0.4 for a uniform u, times a factor of the individual's own."""
    with duckdb.connect() as connection:
        connection.execute(
            f"COPY (SELECT CAST(hash(i * 3 + 1) % {DATABASES} AS INTEGER) AS database, "
            f"CAST(hash(i * 7 + 2) % {individuals} AS BIGINT) AS individual, "
            "POWER((hash(i * 11 + 3) % 1000000 + 1) / 1000000.0, -0.4) "
            f"* (1 + hash(hash(i * 7 + 2) % {individuals}) % 10) AS x "
            f"FROM range({rows}) AS t(i)) TO '{path}' (FORMAT PARQUET)"
        )


def bare(path: Path, memory_limit: str) -> None:
    """The statement, its result kept by DuckDB: what comes out need not fit into Python's memory either."""
    with tempfile.TemporaryDirectory() as directory:
        config = {"memory_limit": memory_limit, "temp_directory": directory}
        with duckdb.connect(config=config) as connection:
            connection.execute(f"CREATE TEMP TABLE found AS {BARE.format(path=path)}")


def scanned(path: Path, memory_limit: str) -> None:
    data = empriv.databases(str(path), database="database", individual="individual")
    found = empriv.scan(data, QUERY, epsilon=EPSILONS, memory_limit=memory_limit, progress=False)
    print(
        f"    delta at 0.01 {found.delta(0.01):.3g}, total risk {found.total_risk(0.01):.3g}, "
        f"{found.exposed(0.01):,} of {found.n_individuals:,} exposed, {found.tally.n_entries:,} pairs",
        flush=True,
    )


def _run(work: Callable[[], None], answer: multiprocessing.SimpleQueue[tuple[float, float]]) -> None:
    started = time.perf_counter()
    work()
    answer.put((time.perf_counter() - started, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20))


def apart(work: Callable[[], None]) -> tuple[float, float]:
    """Seconds and peak gigabytes of some work in a process of its own, imports not counted."""
    context = multiprocessing.get_context("spawn")
    answer: multiprocessing.SimpleQueue[tuple[float, float]] = context.SimpleQueue()
    process = context.Process(target=_run, args=(work, answer))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise SystemExit("The work failed.")
    return answer.get()


def compare(rows: int, individuals: int, memory_limit: str, repeats: int) -> tuple[float, float]:
    """Seconds of both, the best of several turns, printed with their ratio and peak memory."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.parquet"
        make_rows(path, rows, individuals)
        best, peak = [np.inf, np.inf], [0.0, 0.0]
        for _ in range(repeats):
            for number, work in enumerate((bare, scanned)):
                seconds, gigabytes = apart(partial(work, path, memory_limit))
                best[number], peak[number] = min(best[number], seconds), max(peak[number], gigabytes)
    print(
        f"{rows:>12,} rows {individuals:>10,} individuals: scan {best[1]:8.2f} s ({peak[1]:.2f} GB)   "
        f"bare GROUP BY {best[0]:7.2f} s ({peak[0]:.2f} GB)   ratio {best[1] / best[0]:.2f}",
        flush=True,
    )
    return best[0], best[1]


def exponent(sizes: list[int], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="one size only; one individual for every 100 rows")
    parser.add_argument("--memory-limit", default="2GB", help="of DuckDB; the process has about 1 GB beside it")
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    print(f"{QUERY}, {DATABASES} databases, {len(EPSILONS)} epsilons, memory_limit={options.memory_limit}")
    if options.rows is not None:
        compare(options.rows, options.rows // 100, options.memory_limit, options.repeats)
        return
    for name, cases, axis in (("rows", SIZES, 0), ("individuals", INDIVIDUALS, 1)):
        found = [compare(*case, options.memory_limit, options.repeats)[1] for case in cases]
        fitted = exponent([case[axis] for case in cases], found)
        print(f"exponent of the seconds in {name}: {fitted:.2f}", flush=True)


if __name__ == "__main__":
    main()
