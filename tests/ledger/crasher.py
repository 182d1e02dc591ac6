"""A process that dies by SIGKILL between two steps: ``crasher.py LEDGER TASK STEP``.

TASK is release, results (with large results, so that SQLite writes before it commits) or create. A step is a statement
to SQLite, the draw, or the link or unlink of a file: it dies after the STEP-th, or before the first if STEP is 0. It
prints the answer if it lives to be shown one.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from asking import asked

from empriv.ledger import Ledger, store

PATH, TASK, STEP = sys.argv[1], sys.argv[2], int(sys.argv[3])
done = 0


def step(act: Callable[..., Any]) -> Callable[..., Any]:
    """The same act, and death after it if it is the one."""

    def mortal(*arguments: Any, **named: Any) -> Any:
        global done
        if STEP == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        found = act(*arguments, **named)
        done += 1
        if done == STEP:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    return mortal


def large() -> Any:
    """Results of more bytes than SQLite keeps in memory."""
    import numpy as np

    from empriv.results import Results

    return Results.from_arrays(np.zeros(50), np.random.default_rng(0).normal(size=(10_000, 50)))


class Mortal(sqlite3.Connection):
    def execute(self, *arguments: Any) -> Any:
        return step(super().execute)(*arguments)


def connect(*arguments: Any, **named: Any) -> sqlite3.Connection:
    return real_connect(*arguments, **named, factory=Mortal)


real_connect = sqlite3.connect
ledger = None if TASK == "create" else Ledger(PATH)
results = large() if TASK == "results" else None
store.sqlite3.connect = connect
if ledger is None:
    store.os.link = step(os.link)
    Path.unlink = step(Path.unlink)
    Ledger(PATH)
    print("made", flush=True)
else:
    draw = step(random.SystemRandom().random)
    print(ledger.release(asked(results=results), draw).answer, flush=True)
