"""Cost of measuring people in chunks on one machine, against a bare GROUP BY of the same rows under the same limit.

    python benchmarks/scale.py                        cost from 1M to 100M rows, with fitted exponents
    python benchmarks/scale.py --rows 100_000_000     one size, with peak memory
    python benchmarks/scale.py --spark                the same on Spark with one executor and with two
    python benchmarks/scale.py --memory               what measuring takes in an executor, by entries held at once

Rows are drawn by DuckDB from a fixed seed into a temporary Parquet file: 365 databases, one individual for every 100
rows, amounts with heavy tails. Each piece of work runs in a process of its own, whose peak memory is printed. Times
are of whole calls; imports are not counted.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import sys
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
EPSILONS = [0.05, 0.1, 0.2]
SIZES = (
    (1_000_000, 10_000),
    (3_000_000, 30_000),
    (10_000_000, 100_000),
    (30_000_000, 300_000),
    (100_000_000, 1_000_000),
)
INDIVIDUALS = ((5_000_000, 12_500), (5_000_000, 50_000), (5_000_000, 200_000), (5_000_000, 800_000))
SPARK_ROWS = (100_000, 1_000_000, 3_000_000, 10_000_000)


def make_rows(path: Path, rows: int, individuals: int) -> None:
    """Uniform databases and individuals; x is 1 / u^0.4 for a uniform u, times a factor of the individual's own."""
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
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
            connection.execute("SET enable_progress_bar = false")
            connection.execute(f"CREATE TEMP TABLE found AS {BARE.format(path=path)}")


def in_chunks(data: empriv.Databases, memory_limit: str | None = None) -> empriv.Audit:
    return empriv.audit(
        data, QUERY, epsilon=EPSILONS, known="nothing", in_chunks=True, memory_limit=memory_limit, progress=False
    )


def measured(path: Path, memory_limit: str) -> None:
    data = empriv.databases(str(path), database="database", individual="individual")
    _tell(in_chunks(data, memory_limit))


def _tell(found: empriv.Audit) -> None:
    print(
        f"    at epsilon 0.05: delta {found.delta(0.05):.3g}, total risk {found.total_risk(0.05):.3g}, "
        f"{found.exposed(0.05):,} of {found.n_individuals:,} exposed; {found.risk.totals.n_entries:,} pairs",
        flush=True,
    )


def on_spark(directory: Path, sizes: list[int], executors: int) -> None:
    """Seconds of an audit and of the bare GROUP BY, in one session for all sizes, after one of the smallest is done."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    spark = (
        SparkSession.builder.master(f"local-cluster[{executors},1,2048]")
        .config("spark.executor.memory", "2g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "8")
        .config("spark.executorEnv.PYTHONPATH", str(Path(empriv.__file__).parents[1]))
        .config("spark.executorEnv.OMP_NUM_THREADS", "1")
        .config("spark.local.dir", str(directory / "local"))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    taken = []
    for size in (sizes[0], *sizes):  # the first starts processes and compiles
        rows = spark.read.parquet(str(directory / f"{size}.parquet"))
        data = empriv.databases(rows, database="database", individual="individual")
        started = time.perf_counter()
        rows.groupBy("database", "individual").agg({"x": "sum", "*": "count"}).write.format("noop").mode(
            "overwrite"
        ).save()
        bare_seconds = time.perf_counter() - started
        started = time.perf_counter()
        found = in_chunks(data)
        taken.append(time.perf_counter() - started)
        if len(taken) == 1:
            continue
        java, python = _executor_peaks()
        print(
            f"executors {executors}, {size:>9,} rows, {size // 100:>6,} individuals: audit {taken[-1]:7.2f} s   "
            f"bare GROUP BY {bare_seconds:6.2f} s   ratio {taken[-1] / bare_seconds:.2f}   "
            f"largest Python process {python:.2f} GB, largest Java process {java:.2f} GB",
            flush=True,
        )
        _tell(found)
    if len(sizes) > 1:
        print(f"exponent of the seconds in rows, executors {executors}: {exponent(sizes, taken[1:]):.2f}", flush=True)
    spark.stop()


def _executor_peaks() -> tuple[float, float]:
    """Largest peak of memory, in gigabytes, of an executor's Java process and of a Python process in it."""
    import psutil

    peaks = [0.0, 0.0]
    for process in psutil.Process().children(recursive=True):
        try:
            line = " ".join(process.cmdline())
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
        except (psutil.Error, OSError):  # it has ended
            continue
        if "CoarseGrainedExecutorBackend" in line or "pyspark.daemon" in line:
            peak = next(int(entry.split()[1]) for entry in status if entry.startswith("VmHWM")) / 2**20
            place = int("pyspark.daemon" in line)
            peaks[place] = max(peaks[place], peak)
    return peaks[0], peaks[1]


def compare_on_spark(most_rows: int) -> None:
    """Cost on Spark against rows, with one executor and with two, and the fitted exponents."""
    sizes = [rows for rows in SPARK_ROWS if rows <= most_rows]
    with tempfile.TemporaryDirectory() as directory:
        for rows in sizes:
            make_rows(Path(directory) / f"{rows}.parquet", rows, rows // 100)
        for executors in (1, 2):
            apart(partial(on_spark, Path(directory), sizes, executors))


def executor_memory(entries: int) -> None:
    """Peak memory of what an executor's Python does with so many entries at once, of 87 for each individual."""
    from empriv.auditing.chunked import ChunkOptions, model_of, nobody_listed
    from empriv.auditing.cluster import measured_batches

    rng = np.random.default_rng(0)
    each = 87
    q = rng.normal(size=DATABASES)
    everyone = nobody_listed(q, np.zeros(DATABASES, np.int8), np.arange(DATABASES))
    options = ChunkOptions(tuple(EPSILONS), (0.0,), empriv.Kde(), None, True, 100)
    model = model_of(
        everyone, options, lambda *_: (None, None), people=entries // 87, n_components=None, positive=lambda: True
    )
    import pyarrow

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    people = entries // each
    where = np.tile(np.arange(each) * 4, people)
    table = pyarrow.table(
        {
            "individual": np.repeat(np.arange(people), each),
            "database": where.astype(np.int32),
            "q": q[where] - 0.002 * rng.lognormal(0.0, 1.0, people * each),
        }
    )
    for _ in measured_batches(model, iter(table.to_batches(10_000)), each=False, integers=True, entries=entries):
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{entries:>10,} entries at once: {before:.3f} GB before, {peak:.3f} GB at most", flush=True)


Cost = tuple[float, float, float]  # seconds, seconds of all cores together, gigabytes


def _run(work: Callable[[], None], answer: multiprocessing.SimpleQueue[Cost]) -> None:
    few = empriv.databases("SELECT i % 9 AS d, i % 5 AS w, i AS x FROM range(99) AS t(i)", database="d", individual="w")
    in_chunks(few)  # imports what is imported
    started, busy = time.perf_counter(), time.process_time()
    work()
    seconds, busy = time.perf_counter() - started, time.process_time() - busy
    answer.put((seconds, busy, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20))


def apart(work: Callable[[], None]) -> Cost:
    """What some work costs in a process of its own, imports not counted."""
    context = multiprocessing.get_context("spawn")
    answer: multiprocessing.SimpleQueue[Cost] = context.SimpleQueue()
    process = context.Process(target=_run, args=(work, answer))
    process.start()
    process.join()
    if process.exitcode != 0:
        raise SystemExit("The work failed.")
    return answer.get()


def compare(rows: int, individuals: int, memory_limit: str, repeats: int) -> tuple[float, float]:
    """Seconds and processor seconds of the audit, the least of several turns, printed beside the bare statement's.

    Where other work shares the machine, the processors' seconds say more.
    """
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "rows.parquet"
        make_rows(path, rows, individuals)
        best, least, peak = [np.inf, np.inf], [np.inf, np.inf], [0.0, 0.0]
        for _ in range(repeats):
            for number, work in enumerate((bare, measured)):
                seconds, busy, gigabytes = apart(partial(work, path, memory_limit))
                best[number], least[number] = min(best[number], seconds), min(least[number], busy)
                peak[number] = max(peak[number], gigabytes)
    print(
        f"{rows:>12,} rows {individuals:>10,} individuals: audit {best[1]:8.2f} s ({peak[1]:.2f} GB)   "
        f"bare GROUP BY {best[0]:7.2f} s ({peak[0]:.2f} GB)   ratio {best[1] / best[0]:.2f}   "
        f"processor seconds {least[1]:.1f} and {least[0]:.1f}, ratio {least[1] / least[0]:.2f}",
        flush=True,
    )
    return best[1], least[1]


def exponent(sizes: list[int], seconds: list[float]) -> float:
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="one size only; one individual for every 100 rows")
    parser.add_argument("--memory-limit", default="2GB", help="of DuckDB; the process has about 1 GB beside it")
    parser.add_argument("--spark", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--most-rows", type=int, default=100_000_000, help="leave out larger sizes")
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    if options.memory:
        for entries in (125_000, 250_000, 500_000, 1_000_000):
            apart(partial(executor_memory, entries))
        return
    print(f"{QUERY}, {DATABASES} databases, {len(EPSILONS)} epsilons, memory_limit={options.memory_limit}")
    if options.rows is not None:
        compare(options.rows, options.rows // 100, options.memory_limit, options.repeats)
        return
    if options.spark:
        compare_on_spark(options.most_rows)
        return
    for name, sizes, axis in (("individuals", INDIVIDUALS, 1), ("rows", SIZES, 0)):
        cases = [case for case in sizes if case[0] <= options.most_rows]
        found = [compare(*case, options.memory_limit, options.repeats) for case in cases]
        wall, busy = (exponent([case[axis] for case in cases], list(column)) for column in zip(*found, strict=True))
        print(f"exponent in {name}: {wall:.2f} of the seconds, {busy:.2f} of the processor seconds", flush=True)


if __name__ == "__main__":
    main()
