"""An audit of rows on a PostgreSQL server beside the same from a Parquet file, in one process and in turns.

    python benchmarks/where_data_live.py --rows 2_000_000

Prints processor seconds of this process and seconds by the clock, the smallest of several turns, and ratios to
Parquet: rows read over ADBC and added up here. Once with few pairs of database and individual (100 databases, 1,000
individuals), once with nearly as many as rows. The server is one of the tests' own (pgserver), on the same machine; its
settings are the package's. SQLite is beside them.
"""

from __future__ import annotations

import argparse
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb
import psutil

import empriv

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from postgres_server import Server, started

QUERY = "SELECT avg(x) FROM data"


def rows_of(rows: int, people: int) -> str:
    return (
        f"SELECT CAST(hash(i * 3 + 1) % 100 AS INTEGER) AS day, CAST(hash(i * 7 + 2) % {people} AS BIGINT) AS who, "
        f"(hash(i * 11 + 3) % 1000000) / 977.0 AS x, 'shop ' || i % 20 AS shop FROM range({rows}) AS t(i)"
    )


def make(server: Server, folder: Path, rows: int, people: int) -> None:
    with duckdb.connect() as connection:
        table = connection.sql(rows_of(rows, people)).to_arrow_table()
        connection.register("made", table)
        connection.execute(f"COPY made TO '{folder}/sales.parquet' (FORMAT PARQUET)")
    server.put("sales", table)
    server.run("ANALYZE sales")
    (folder / "sales.sqlite").unlink(missing_ok=True)
    with sqlite3.connect(folder / "sales.sqlite") as file:
        file.execute("CREATE TABLE sales (day INTEGER, who INTEGER, x REAL, shop TEXT)")
        file.executemany("INSERT INTO sales VALUES (?, ?, ?, ?)", zip(*table.to_pydict().values(), strict=True))
    file.close()


def turns(ways: dict[str, Callable[[], empriv.Audit]], count: int) -> dict[str, tuple[float, float, float]]:
    """Seconds by the clock, processor seconds here, and delta of each way; one after the other, several times."""
    best: dict[str, tuple[float, float, float]] = {}
    for _ in range(count):
        for name, way in ways.items():
            began, busy = time.perf_counter(), sum(psutil.Process().cpu_times()[:2])
            delta = float(way().delta(0.1))
            spent = time.perf_counter() - began, sum(psutil.Process().cpu_times()[:2]) - busy
            before = best.get(name, (float("inf"), float("inf"), delta))
            best[name] = (min(before[0], spent[0]), min(before[1], spent[1]), delta)
    return best


def compare(server: Server, folder: Path, rows: int, people: int, count: int) -> None:
    make(server, folder, rows, people)

    def audited(source: str, **where: str) -> Callable[[], empriv.Audit]:
        data = empriv.databases(source, database="day", individual="who", **where)  # type: ignore[arg-type]
        return lambda: empriv.audit(data, QUERY)

    ways = {
        "Parquet": audited(f"{folder}/sales.parquet"),
        "PostgreSQL": audited(server.address, table="sales"),
        "SQLite": audited(f"{folder}/sales.sqlite", table="sales"),
    }
    print(f"\n{rows:,} rows, {people:,} individuals, 100 databases")
    found = turns(ways, count)
    print(f"{'':26}{'seconds':>9}{'ratio':>7}{'processor here':>16}   delta at 0.1")
    for name, (seconds, busy, delta) in found.items():
        print(f"{name:26}{seconds:9.2f}{seconds / found['Parquet'][0]:7.2f}{busy:16.2f}   {delta:.12g}")
    deltas = [delta for _, _, delta in found.values()]
    assert max(deltas) - min(deltas) <= 1e-9 * max(deltas), "the ways must agree"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=lambda text: int(text.replace("_", "")), default=2_000_000)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    with started() as server, tempfile.TemporaryDirectory() as folder:
        for people in (1_000, given.rows // 20):
            compare(server, Path(folder), given.rows, people, given.turns)


if __name__ == "__main__":
    main()
