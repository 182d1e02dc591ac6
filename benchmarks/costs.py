"""What `empriv audit --estimate` says beside what the audit takes: seconds and memory, on data of several shapes.

    python benchmarks/costs.py                all shapes (about a quarter of an hour)
    python benchmarks/costs.py --shape few    those whose name contains a word

Every audit is the command, in a process of its own. "Processor" is what all its threads took, and the estimate beside
it is for a usual processor that does nothing else; "clock" is what people wait, beside what the command says. An
estimate is good within a factor of 3.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import duckdb


@dataclass(frozen=True)
class Shape:
    """Rows that are uniform over people, databases and five kinds, and what is asked of them."""

    name: str
    rows: int
    people: int
    databases: int
    queries: tuple[str, ...]


SHAPES = (
    Shape("few people", 100_000, 50, 2_000, ("avg(x)",)),
    Shape("few rows each", 50_000, 10_000, 365, ("sum(x)",)),
    Shape("many rows", 6_000_000, 3_000, 200, ("avg(x)",)),
    Shape("many people", 3_000_000, 60_000, 365, ("sum(x)",)),
    Shape("three numbers", 60_000, 1_000, 60, ("SELECT count(*), sum(x), avg(x) FROM data",)),
    Shape("two queries", 200_000, 3_000, 150, ("avg(x)", "stddev_samp(x)")),
    Shape("an amount and a count", 200_000, 10_000, 100, ("sum(x)", "count(*)")),
    Shape("table of 5", 200_000, 2_000, 100, ("SELECT kind % 5, sum(x) FROM data GROUP BY 1",)),
    Shape("table of 40", 400_000, 4_000, 200, ("SELECT kind, count(*) FROM data GROUP BY 1",)),
    Shape("run one by one", 30_000, 100, 60, ("approx_count_distinct(x)",)),
)


def written(shape: Shape, folder: Path) -> Path:
    path = folder / f"{shape.name.replace(' ', '_')}.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(
            f"COPY (SELECT CAST(hash(i * 3 + 1) % {shape.databases} AS INTEGER) AS day, "
            f"CAST(hash(i * 7 + 2) % {shape.people} AS BIGINT) AS who, CAST(hash(i * 13 + 5) % 40 AS INTEGER) AS kind, "
            "POWER((hash(i * 11 + 3) % 1000000 + 1) / 1000000.0, -0.4) AS x "
            f"FROM range({shape.rows}) AS t(i)) TO '{path}' (FORMAT PARQUET)"
        )
    return path


def command(shape: Shape, path: Path, *more: str) -> tuple[str, float, float, int]:
    """What the command prints, seconds, processor seconds, and bytes at most."""
    asked = [text for query in shape.queries for text in ("--query", query)]
    words = [sys.executable, "-m", "empriv", "audit", str(path), "--database", "day", "--individual", "who"]
    began = time.perf_counter()
    with subprocess.Popen([*words, *asked, *more], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        printed = process.stdout.read().decode()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"The command for {shape.name!r} failed.")
    return printed, time.perf_counter() - began, used.ru_utime + used.ru_stime, 1024 * used.ru_maxrss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="", help="only shapes whose name contains this")
    wanted = parser.parse_args().shape
    print("| shape | clock: said, took, times | processor: for a usual one, took, times | memory: said, took, times |")
    print("|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for shape in (shape for shape in SHAPES if wanted in shape.name):
            path = written(shape, Path(folder))
            said = json.loads(command(shape, path, "--estimate", "--json", "-")[0])
            _, clock, processor, memory = command(shape, path, "--quiet")
            usual = sum(said["seconds"].values()) / said["slowness"]
            cells = [
                f"{sum(said['seconds'].values()):.1f}, {clock:.1f} s, {clock / sum(said['seconds'].values()):.2f}",
                f"{usual:.1f}, {processor:.1f} s, {processor / usual:.2f}",
                f"{said['memory'] / 2**20:.0f}, {memory / 2**20:.0f} MB, {memory / said['memory']:.2f}",
            ]
            print(f"| {shape.name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
