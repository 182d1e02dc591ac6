"""Spark sessions for tests: executors in processes of their own, and nothing left behind."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

import empriv

SOURCES = str(Path(empriv.__file__).parents[1])


# Tests in one group share a worker of pytest-xdist (with --dist loadgroup), and so one cluster.
GROUP = pytest.mark.xdist_group("spark")
JAVA = pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, which is not installed here")
QUIET = pytest.mark.filterwarnings("ignore::FutureWarning:pyspark")
# Statements here are long and their rows few: compiling them to bytecode takes longer than running them.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.default.parallelism": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.ansi.enabled": "true",
    "spark.executorEnv.OMP_NUM_THREADS": "1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
}


def start(directory: Path, *, master: str = "local-cluster[2,1,1024]", **settings: str) -> Any:
    """A session of its own, with everything that it writes in ``directory``."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_DIRS"] = str(directory / "local")
    tests = str(Path(__file__).parent)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyspark.sql import SparkSession

        builder = SparkSession.builder.master(master).appName("empriv tests")
        for name, value in {
            **SETTINGS,
            "spark.executorEnv.PYTHONPATH": f"{SOURCES}:{tests}",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.driver.extraJavaOptions": f"-Dderby.system.home={directory} -XX:TieredStopAtLevel=1",
            **settings,
        }.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session
