"""A process whose children die by SIGKILL between two steps: ``crasher.py TASK``, with lines ``STEP LEDGER`` to read.

TASK is release, results (with large results, so that SQLite writes before it commits) or create. A step is a statement
to SQLite, the draw, or the link or unlink of a file: a child, forked for each line since starting Python takes longer
than all its steps, dies after the STEP-th, or before the first if STEP is 0. What it says if it lives to be shown an
answer, and its exit code, are printed as JSON.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asking import asked

from empriv.ledger import Ledger, store


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


def large() -> Any:
    """Results of more bytes than SQLite keeps in memory."""
    import numpy as np

    from empriv.results import Results

    return Results.from_arrays(np.zeros(50), np.random.default_rng(0).normal(size=(6_000, 50)))


def carry_out(task: str, path: str, step: int, results: Any) -> str:
    """The task, for as many steps."""
    steps = [step]
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
    return str(ledger.release(asked(results=results), mortal(random.SystemRandom().random, steps)).answer)


def main(task: str) -> None:
    results = large() if task == "results" else None
    with tempfile.TemporaryDirectory() as folder:  # imports what children would import, each again
        Ledger(f"{folder}/warm.ledger").release(asked(results=results), random.random)
    for line in sys.stdin:
        step, path = line.rstrip("\n").split(" ", 1)
        end, start = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.write(start, carry_out(task, path, int(step), results).encode())
                os._exit(0)
            except BaseException:
                traceback.print_exc()
                os._exit(1)
        os.close(start)
        with os.fdopen(end, encoding="utf-8") as said:
            out = said.read()
        print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), out]), flush=True)


main(sys.argv[1])
