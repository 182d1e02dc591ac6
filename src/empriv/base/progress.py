"""A progress bar on the terminal, for work that lasts; quick work prints nothing.

It knows nothing of the work itself: the caller says how much there is, and advances.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from empriv.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

QUIET_SECONDS = 2.0


class Advance(Protocol):
    """Says that ``k`` more units of the work are done; may be called from any thread."""

    def __call__(self, k: int = 1) -> None: ...


@contextmanager
def progress(total: int, description: str, *, show: bool | None = None) -> Iterator[Advance]:
    """Show a bar with elapsed and remaining time on stderr while the body runs.

    Parameters
    ----------
    total : number of units of work
    description : a few words, shown as they are
    show : None shows the bar if stderr is a terminal and once the work has lasted about two seconds; True shows it
        always and at once; False never.

    Yields
    ------
    advance : function
        ``advance(k=1)`` counts ``k`` more units.
    """
    if total < 0:
        raise InputError(f"`total` must be 0 or more, got {total}.")
    if show is False or (show is None and not sys.stderr.isatty()):
        yield _advance_unseen
        return
    bar = _LateBar(total, description)
    # A timer, not a look at the clock in `advance`: the first unit alone may take minutes.
    timer = threading.Timer(QUIET_SECONDS, bar.start)
    timer.daemon = True
    if show:
        bar.start()
    else:
        timer.start()
    try:
        yield bar.advance
    finally:
        timer.cancel()
        bar.stop()


def _advance_unseen(k: int = 1) -> None:
    if k < 0:
        raise InputError(f"`k` must be 0 or more, got {k}.")


class _LateBar:
    """A rich bar that may start after the work has, and counts from when the work did."""

    def __init__(self, total: int, description: str) -> None:
        self._total = total
        self._description = description
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._done = 0
        self._over = False
        self._shown: tuple[Progress, TaskID] | None = None

    def advance(self, k: int = 1) -> None:
        _advance_unseen(k)
        with self._lock:
            self._done += k
            if self._shown is not None:
                bar, task = self._shown
                bar.update(task, completed=self._done)

    def start(self) -> None:
        bar = _rich_bar()
        with self._lock:
            if self._over or self._shown is not None:
                return
            task = bar.add_task(self._description, total=self._total, completed=self._done)
            bar.tasks[0].start_time = self._began
            bar.start()
            self._shown = bar, task

    def stop(self) -> None:
        with self._lock:
            self._over = True
            if self._shown is not None:
                self._shown[0].stop()


def _rich_bar() -> Progress:
    # rich is imported only here: most calls never show anything.
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("elapsed,"),
        TimeRemainingColumn(),
        TextColumn("remaining"),
        console=Console(stderr=True),
        get_time=time.monotonic,
        # Units may be minutes apart; rich forgets the speed after 30 seconds otherwise.
        speed_estimate_period=1800.0,
    )
