"""A process whose children each carry out one task with a ledger: it reads lines ``TASK NUMBER LEDGER``.

- release, results (with large results, so that SQLite writes before it commits), create: killed by SIGKILL after the
  NUMBER-th step, before the first if it is 0. A step is a statement to SQLite, the draw, or a file's link or unlink.
- error, die: a release where no file may grow beyond NUMBER bytes. A write beyond it is an error, as on a full disk, or
  with ``die`` the kernel ends the process in the midst of it.
- read, add, make: by a user who may do little.

A child is forked for each line, since starting Python takes longer than all its steps. Its exit code, and what it says
if it lives to be shown an answer, are printed as JSON.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from asking import asked

from empriv.errors import LedgerError
from empriv.ledger import Ledger, store
from empriv.results import Results

# Of more bytes than SQLite keeps in memory.
LARGE = Results.from_arrays(np.zeros(50), np.random.default_rng(0).normal(size=(6_000, 50)))


def mortal(act: Callable[..., Any], steps: list[int]) -> Callable[..., Any]:
    """The same act, and death after it if no step is left."""

    def step(*arguments: Any, **named: Any) -> Any:
        if steps[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        done = act(*arguments, **named)
        steps[0] -= 1
        if steps[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return done

    return step


def until_killed(task: str, number: int, path: str) -> str:
    steps = [number]
    connect = sqlite3.connect

    class Mortal(sqlite3.Connection):
        def execute(self, *arguments: Any) -> Any:
            return mortal(super().execute, steps)(*arguments)

    ledger = None if task == "create" else Ledger(path)
    store.sqlite3.connect = lambda *arguments, **named: connect(*arguments, **named, factory=Mortal)
    if ledger is None:
        store.os.link = mortal(os.link, steps)
        Path.unlink = mortal(Path.unlink, steps)
        Ledger(path)
        return "made"
    release = asked(results=LARGE if task == "results" else None)
    return str(ledger.release(release, mortal(random.SystemRandom().random, steps)).answer)


def short_of_room(task: str, number: int, path: str) -> str:
    ledger = Ledger(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (number, number))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if task == "die" else signal.SIG_IGN)
    return str(ledger.release(asked("x" * 60_000), lambda: 1.5).answer)


def short_of_rights(task: str, _: int, path: str) -> str:
    if os.geteuid() == 0:  # to root every file is writable
        os.setgid(65534)
        os.setuid(65534)
    ledger = Ledger(path, create=task == "make")
    if task == "add":
        ledger.release(asked("new"), lambda: 1.0)
    return f"{'intact' if ledger.verify().intact else 'broken'} {len(ledger.entries())}"


TASKS: dict[str, Callable[[str, int, str], str]] = {
    **dict.fromkeys(("release", "results", "create"), until_killed),
    **dict.fromkeys(("error", "die"), short_of_room),
    **dict.fromkeys(("read", "add", "make"), short_of_rights),
}


def carry_out(task: str, number: int, path: str) -> str:
    try:
        return TASKS[task](task, number, path)
    except LedgerError as error:
        return str(error)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:  # imports what children would import, each again
        ledger = Ledger(f"{folder}/warm.ledger")
        for results in (None, LARGE):
            ledger.release(asked(f"{results is None}", results=results), random.random)
        ledger.verify()
    for line in sys.stdin:
        task, number, path = line.rstrip("\n").split(" ", 2)
        end, start = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(start, carry_out(task, int(number), path).encode())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(start)
        with os.fdopen(end, encoding="utf-8") as said:
            out = said.read()
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), out]), flush=True)


main()
