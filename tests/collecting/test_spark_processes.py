"""Spark with drivers of their own: on a cluster of two executors, interrupted, and on a server of Spark Connect."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import empriv
from empriv.collecting import databases
from spark_sessions import EPSILONS, JAVA, JVM, QUIET, SOURCES, SPARK, TESTS, rows

pytestmark = [JAVA, SPARK, QUIET]
GRID = np.array(EPSILONS)
SECONDS = 600.0  # a machine may be busy; it takes a tenth of that on one that is not


@contextmanager
def driver(work: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver in a session of its own, all of whose processes are gone afterwards."""
    # Spark Connect takes no options for the Java of its server.
    environment = os.environ | {"PYTHONPATH": f"{SOURCES}:{TESTS}", "JDK_JAVA_OPTIONS": JVM}
    with (
        (directory / "log").open("w") as log,
        subprocess.Popen(
            [sys.executable, f"{TESTS}/spark_driver.py", work, str(directory)],
            env=environment, stdout=subprocess.PIPE, stderr=log, text=True, start_new_session=True,
        ) as process,
    ):  # fmt: skip
        try:
            yield process
        finally:
            for left in of_session(process.pid):
                with suppress(psutil.NoSuchProcess):
                    left.kill()


def of_session(leader: int) -> list[psutil.Process]:
    """Processes that are in a session."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (psutil.Error, ProcessLookupError):
            continue
    return found


def wait_until(seen: Callable[[], Any], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + SECONDS
    while not seen():
        assert process.poll() is None, "the driver ended before"
        assert time.monotonic() < until, "nothing was seen in time"
        time.sleep(0.02)


def last_line(process: subprocess.Popen[str]) -> Any:
    said, _ = process.communicate(timeout=SECONDS)
    assert process.returncode == 0
    return json.loads(said.strip().splitlines()[-1])


@pytest.fixture
def data(tmp_path: Path) -> empriv.Databases:
    rows(600).to_parquet(tmp_path / "rows.parquet")
    return databases(str(tmp_path / "rows.parquet"), database="day", individual="who")


def test_an_executor_killed_in_mid_job_changes_nothing_and_an_interrupted_driver_leaves_nothing(
    tmp_path: Path, data: empriv.Databases
) -> None:
    with driver("cluster", tmp_path) as process:
        wait_until(lambda: list(tmp_path.glob("running-*")), process)
        assert len(of_session(process.pid)) > 2
        process.send_signal(signal.SIGINT)
        said = last_line(process)
        until = time.monotonic() + 30
        while of_session(process.pid) and time.monotonic() < until:
            time.sleep(0.1)
        assert of_session(process.pid) == []
    assert len(said["killed"]) == 1, "no executor was killed"
    np.testing.assert_allclose(said["delta"], empriv.audit(data, "sum(x)", epsilon=EPSILONS).delta(GRID), atol=1e-9)
    assert said["left after that"] == said["left"] == []
    assert said["interrupted"]
    assert said["counted"] == 5, "the session goes on"
    assert [path for path in (tmp_path / "local").rglob("*") if path.is_file()] == []
    assert not [path for path in tmp_path.rglob("*") if "empriv" in path.name]


def test_spark_connect_gives_the_answers_of_duckdb(tmp_path: Path, data: empriv.Databases) -> None:
    with driver("connect", tmp_path) as process:
        said = last_line(process)
    assert said["kind"].startswith("pyspark.sql.connect")
    audit = empriv.audit(data, "sum(x)", epsilon=EPSILONS)
    np.testing.assert_allclose(said["delta"], audit.delta(GRID), atol=1e-9)
    np.testing.assert_allclose(said["upper"], audit.bounds(GRID).upper, atol=1e-9)
    np.testing.assert_allclose(said["called"], audit.results.entry_q)
    np.testing.assert_array_equal(said["few"], audit.results.entry_q)
    assert said["left"] == []
    # What is kept is freed while the views that it reads are there, or it cannot be.
    assert "TABLE_OR_VIEW_NOT_FOUND" not in (tmp_path / "log").read_text()
    assert not np.allclose(said["delta"], empriv.audit(data, "sum(x + k)", epsilon=EPSILONS).delta(GRID), atol=1e-9)
