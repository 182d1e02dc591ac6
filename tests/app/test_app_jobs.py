"""What runs beside the server: jobs that are killed, cancelled or started twice, and questions that take too long."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.conftest import PATIENCE, wait_for
from app.test_app_decision import put, slow
from empriv.app.decision_step import audit_command
from empriv.app.jobs import AUDIT, WorkerPool, all_jobs, cancel, job_of, latest, start
from empriv.errors import InputError


@pytest.mark.slow
def test_work_tells_how_far_it_is_and_is_lost_if_its_process_is_killed(tmp_path: Path) -> None:
    folder = put(tmp_path)
    slow(folder, "endless")
    work = start(folder, "endless", AUDIT, audit_command("endless"))
    assert wait_for(lambda: job_of(folder, work.key).stage)
    assert 0 <= job_of(folder, work.key).share <= 1
    process = json.loads((folder.own / "work" / work.key / "process.json").read_text())
    os.kill(process["pid"], signal.SIGKILL)
    assert wait_for(lambda: job_of(folder, work.key).state == "lost")
    again = start(folder, "endless", AUDIT, audit_command("endless"))  # it can be run again
    assert latest(folder, "endless") == again
    cancel(folder, again.key)
    assert job_of(folder, again.key).state == "cancelled"


def test_two_servers_on_one_folder_start_work_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = put(tmp_path)
    slow(folder, "endless")
    monkeypatch.setattr("empriv.app.jobs._forget_old", lambda *_: time.sleep(0.2))  # the other looks too

    def begin(_: int) -> str:
        try:
            return start(folder, "endless", AUDIT, audit_command("endless")).key
        except InputError as error:
            return str(error)

    with ThreadPoolExecutor(2) as servers:
        told = sorted(servers.map(begin, range(2)))
    (only,) = all_jobs(folder, "endless")
    cancel(folder, only.key)
    assert told[0] == only.key
    assert "is under way" in told[1]


def test_cancelling_ends_the_workers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that hears no signal but the last, and whose parent ends at the first."""
    folder = put(tmp_path)
    reads, writes = os.pipe()
    parent = ["sh", "-c", "trap '' INT TERM; sleep 1000 & trap - INT TERM; wait"]
    commanded = subprocess.Popen

    def command(_: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return commanded(parent, pass_fds=(writes,), **options)

    monkeypatch.setattr(subprocess, "Popen", command)
    cancel(folder, start(folder, "shop", AUDIT, ()).key)
    os.close(writes)
    assert select.select([reads], [], [], PATIENCE)[0]
    assert os.read(reads, 1) == b""  # nobody is left who could write
    os.close(reads)


@pytest.mark.slow
def test_a_question_that_takes_too_long_is_ended_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask_both() -> tuple[Any, ...]:
        workers = WorkerPool(str(tmp_path))
        monkeypatch.setattr("empriv.app.jobs._SECONDS", 0.5)
        endless = asyncio.ensure_future(workers.run(time.sleep, 1000))
        await asyncio.sleep(0)
        monkeypatch.setattr("empriv.app.jobs._SECONDS", PATIENCE)
        answers = await asyncio.gather(endless, workers.run(sleep_and_tell, 2.0), return_exceptions=True)
        after = await workers.run(os.getcwd)
        workers.close()
        return (*answers, after)

    with ThreadPoolExecutor(1) as thread:  # a browser of other tests has a loop in this one
        ended_early, told, after = thread.submit(asyncio.run, ask_both()).result()
    assert "was ended" in str(ended_early)
    assert told == "awake"
    assert after == str(tmp_path)


def sleep_and_tell(seconds: float) -> str:
    time.sleep(seconds)
    return "awake"
