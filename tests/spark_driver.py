"""A driver in a process of its own, for tests that kill or interrupt one, or use Spark Connect.

    python spark_driver.py chunks DIRECTORY        an audit in chunks that keeps its results in DIRECTORY/saved
    python spark_driver.py slow DIRECTORY          a function that tells by a file in DIRECTORY when it runs, and lasts
    python spark_driver.py connect DIRECTORY       a server of Spark Connect, and an audit and a function on it

What is found is printed as the last line, in JSON.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import empriv
from spark_sessions import EPSILONS, SETTINGS, in_chunks, leftovers, rows, start


def chunks(directory: Path) -> dict[str, Any]:
    spark = start(directory, master="local[2]")
    data = empriv.databases(str(directory / "rows.parquet"), database="day", individual="who")
    engine = empriv.SparkEngine(spark)
    found = in_chunks(data, "sum(x)", epsilon=EPSILONS, engine=engine, checkpoint=directory / "saved")
    return {"delta": found.delta(np.array(EPSILONS)).tolist()}


def slow(directory: Path) -> dict[str, Any]:
    spark = start(directory, master="local-cluster[1,1,1024]")
    data = empriv.databases(rows(300), database="day", individual="who")

    def lasting(_: object) -> float:
        (directory / f"running-{os.getpid()}").touch()
        time.sleep(120)
        return 0.0

    said: dict[str, Any] = {}
    try:
        empriv.collect(data, lasting, engine=empriv.SparkEngine(spark))
    except KeyboardInterrupt:
        said = {"interrupted": True, "left": leftovers(spark)}
    spark.stop()
    return said


def connect(directory: Path) -> dict[str, Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(directory / "local")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[2]")
    own = {"spark.sql.warehouse.dir": str(directory / "warehouse")}
    for name, value in {**SETTINGS, **own}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    frame = spark.read.parquet(str(directory / "rows.parquet"))
    data = empriv.databases(frame, database="day", individual="who")
    engine = empriv.SparkEngine(spark)
    found = in_chunks(data, "sum(x)", epsilon=EPSILONS, engine=engine, progress=False)
    few = empriv.collect(data, "sum(x)")  # so few rows are read here
    called = empriv.collect(data, lambda table: float(np.sum(np.sort(table["x"]))), engine=engine)
    views = [table.name for table in spark.catalog.listTables() if table.name.startswith("empriv")]
    answer = {
        "kind": type(spark).__module__,
        "delta": found.delta(np.array(EPSILONS)).tolist(),
        "upper": found.bounds(np.array(EPSILONS)).upper.tolist(),
        "called": called.entry_q.tolist(),
        "few": few.entry_q.tolist(),
        "left": views,
    }
    spark.stop()
    return answer


if __name__ == "__main__":
    work = {"chunks": chunks, "slow": slow, "connect": connect}[sys.argv[1]]
    print(json.dumps(work(Path(sys.argv[2]))), flush=True)
