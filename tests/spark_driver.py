"""A driver in a process of its own, for tests of a cluster whose executors are killed, of Ctrl-C and Spark Connect.

    python spark_driver.py cluster DIRECTORY    an audit of which an executor is killed, and then a function that lasts
    python spark_driver.py connect DIRECTORY    a server of Spark Connect, and an audit and a function on it

What is found is printed as the last line, in JSON. A function that lasts tells by a file in DIRECTORY when it runs.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import empriv
from spark_sessions import EPSILONS, JVM, SETTINGS, in_chunks, leftovers, start


@contextmanager
def killer(spark: Any, tasks: int) -> Iterator[list[int]]:
    """Kills the process of an executor while a stage of so many tasks runs in Python; gives its id."""
    killed: list[int] = []
    over = threading.Event()
    tracker = spark.sparkContext.statusTracker()

    def running() -> bool:
        stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
        return any(one is not None and one.numTasks == tasks and one.numActiveTasks > 0 for one in stages)

    def watch() -> None:
        while not over.wait(0.01):
            if not running():
                continue
            for process in psutil.Process().children(recursive=True):
                with suppress(psutil.Error):
                    if "CoarseGrainedExecutorBackend" in " ".join(process.cmdline()):
                        os.kill(process.pid, signal.SIGKILL)
                        killed.append(process.pid)
                        return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def cluster(directory: Path) -> dict[str, Any]:
    spark = start(directory, master="local-cluster[2,1,1024]")
    data = empriv.databases(str(directory / "rows.parquet"), database="day", individual="who")
    with killer(spark, tasks=7) as killed:
        found = in_chunks(data, "sum(x)", epsilon=EPSILONS, engine=empriv.SparkEngine(spark, partitions=7))
    answer: dict[str, Any] = {"delta": found.delta(np.array(EPSILONS)).tolist(), "killed": killed}
    answer["left after that"] = leftovers(spark)

    def lasting(_: object) -> float:
        (directory / f"running-{os.getpid()}").touch()
        time.sleep(120)
        return 0.0

    try:
        empriv.collect(data, lasting, engine=empriv.SparkEngine(spark))
    except KeyboardInterrupt:
        answer |= {"interrupted": True, "left": leftovers(spark), "counted": spark.range(5).count()}
    spark.stop()
    return answer


def connect(directory: Path) -> dict[str, Any]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(directory / "local")
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.remote("local[1]")
    own = {"spark.sql.warehouse.dir": str(directory / "warehouse"), "spark.driver.extraJavaOptions": JVM}
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
    work = {"cluster": cluster, "connect": connect}[sys.argv[1]]
    print(json.dumps(work(Path(sys.argv[2]))), flush=True)
