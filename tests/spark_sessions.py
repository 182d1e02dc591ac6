"""Spark sessions for tests, and what they must not leave behind."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv

SOURCES = str(Path(empriv.__file__).parents[1])
TESTS = str(Path(__file__).parent)
EPSILONS = (0.02, 0.1, 0.3)

SPARK = pytest.mark.spark
JAVA = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, which is not installed here")
QUIET = pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")
JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
# Statements here are long and their rows few: compiling them to bytecode takes longer than running them, and so does a
# second task for each step.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.constraintPropagation.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.executorEnv.OMP_NUM_THREADS": "1",
    "spark.executor.extraJavaOptions": JVM,
}


def in_chunks(data: Any, query: str, **options: Any) -> empriv.Audit:
    """An audit in the executors, however few rows there are."""
    return empriv.audit(data, query, in_chunks=True, **options)


def start(directory: Path, *, master: str = "local[1,2]", **settings: str) -> Any:
    """A session of its own, with everything that it writes in ``directory``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(directory / "local")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName("empriv tests")
        for name, value in {
            **SETTINGS,
            "spark.executorEnv.PYTHONPATH": f"{SOURCES}:{TESTS}",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory} {JVM}",
            **settings,
        }.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def rows(n: int = 4_000) -> pd.DataFrame:
    """35 databases, 40 individuals; one of them has a third of the rows, and one database a third of the rest."""
    rng = np.random.default_rng(11)
    who = np.where(rng.random(n) < 0.3, 5, rng.integers(0, 40, n))
    day = np.where((rng.random(n) < 0.3) & (who != 5), 0, rng.integers(0, 35, n))
    return pd.DataFrame(
        {"day": day, "who": who, "x": rng.lognormal(0.0, 1.0, n) * (who != 9), "k": rng.integers(0, 9, n)}
    )


def leftovers(spark: Any) -> list[str]:
    """Views, frames kept in memory, and jobs that run."""
    views = [table.name for table in spark.catalog.listTables() if table.name.startswith("empriv")]
    context = spark.sparkContext
    kept = context._jsc.getPersistentRDDs().size()
    return views + ["kept"] * kept + ["running"] * len(context.statusTracker().getActiveJobsIds())
