"""Spark with drivers in processes of their own, which are killed, interrupted, or ask a server of Spark Connect."""

from __future__ import annotations

import json
import os
import shutil
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
from empriv.auditing import cluster
from empriv.collecting import SparkEngine, collect, databases
from spark_sessions import EPSILONS, JAVA, QUIET, SOURCES, SPARK, TESTS, in_chunks, leftovers, rows

pytestmark = [JAVA, SPARK, QUIET]
SECONDS = 600.0  # a machine may be busy; it takes a tenth of that on one that is not


@contextmanager
def driver(work: str, directory: Path) -> Iterator[subprocess.Popen[str]]:
    """A driver in a session of its own, all of whose processes are gone afterwards."""
    environment = os.environ | {"PYTHONPATH": f"{SOURCES}:{TESTS}"}
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


def test_a_second_driver_goes_on_from_what_a_killed_one_saved(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows().to_parquet(tmp_path / "rows.parquet")
    for _ in range(3):  # on a busy machine a driver may be finished before it is killed
        with driver("chunks", tmp_path) as process:
            wait_until(lambda: list(tmp_path.glob("saved/*/done/_SUCCESS")), process)
            os.killpg(process.pid, signal.SIGKILL)
            assert process.stdout is not None
            finished = process.stdout.read()
        if not finished:
            break
        shutil.rmtree(tmp_path / "saved")
    assert finished == "", "it was finished before it was killed"
    collections: list[str] = []
    collected = cluster._collected

    def counted(*arguments: Any) -> Any:
        collections.append("again")
        return collected(*arguments)

    monkeypatch.setattr(cluster, "_collected", counted)
    data = databases(str(tmp_path / "rows.parquet"), database="day", individual="who")
    options: dict[str, Any] = {"epsilon": EPSILONS, "engine": SparkEngine(spark), "checkpoint": tmp_path / "saved"}
    found = in_chunks(data, "sum(x)", **options)
    assert collections == []
    grid = np.array(EPSILONS)
    whole = empriv.audit(data, "sum(x)", epsilon=EPSILONS)
    np.testing.assert_allclose(found.delta(grid), whole.delta(grid), atol=1e-9)
    # Rows that are not the same any more are collected again, though file and query are called the same.
    rows().assign(x=lambda frame: frame["x"] + (frame["who"] == 3)).to_parquet(tmp_path / "rows.parquet")
    other = in_chunks(data, "sum(x)", **options)
    assert collections == ["again"]
    whole = empriv.audit(data, "sum(x)", epsilon=EPSILONS)
    np.testing.assert_allclose(other.delta(grid), whole.delta(grid), atol=1e-9)
    # And so are results that were not saved to the end.
    for file in tmp_path.glob("saved/*/done/*"):
        file.unlink()
    other = in_chunks(data, "sum(x)", **options)
    assert collections == ["again", "again"]
    assert leftovers(spark) == []


def test_an_interrupted_driver_leaves_nothing_behind(tmp_path: Path) -> None:
    with driver("slow", tmp_path) as process:
        wait_until(lambda: list(tmp_path.glob("running-*")), process)
        assert len(of_session(process.pid)) > 2
        process.send_signal(signal.SIGINT)
        assert last_line(process) == {"interrupted": True, "left": []}
        until = time.monotonic() + 30
        while of_session(process.pid) and time.monotonic() < until:
            time.sleep(0.1)
        assert of_session(process.pid) == []
    assert [path for path in (tmp_path / "local").rglob("*") if path.is_file()] == []
    assert not [path for path in tmp_path.rglob("*") if "empriv" in path.name]


def test_spark_connect_gives_the_answers_of_duckdb(tmp_path: Path) -> None:
    rows().to_parquet(tmp_path / "rows.parquet")
    with driver("connect", tmp_path) as process:
        said = last_line(process)
    assert said["kind"].startswith("pyspark.sql.connect")
    data = databases(str(tmp_path / "rows.parquet"), database="day", individual="who")
    audit = empriv.audit(data, "sum(x)", epsilon=EPSILONS)
    grid = np.array(EPSILONS)
    np.testing.assert_allclose(said["delta"], audit.delta(grid), atol=1e-9)
    np.testing.assert_allclose(said["upper"], audit.bounds(grid).upper, atol=1e-9)
    np.testing.assert_allclose(said["called"], collect(data, "sum(x)").entry_q)
    np.testing.assert_array_equal(said["few"], collect(data, "sum(x)").entry_q)
    assert said["left"] == []
    # What is kept is freed while the views that it reads are there, or it cannot be.
    assert "TABLE_OR_VIEW_NOT_FOUND" not in (tmp_path / "log").read_text()
    assert not np.allclose(said["delta"], empriv.audit(data, "sum(x + k)", epsilon=EPSILONS).delta(grid), atol=1e-9)
