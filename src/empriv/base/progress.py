"""A progress bar on the terminal, for work that lasts; quick work prints nothing.

It knows nothing of the work itself: the caller says how much there is, and advances. A command that has several parts
shows one bar for all of them (`whole`): the bars of its parts then fill their share of it, and show nothing themselves.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol, TextIO

from empriv.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

QUIET_SECONDS = 2.0
LINE_SECONDS = 5.0
_GLANCE_SECONDS = 0.5


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
    if _whole is not None and show is not True:
        yield _whole.part(total)
        return
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


class Whole:
    """The bar of a whole command: the share that is done, and the time that is left if it goes on so.

    Each step has a weight. Whatever advances during a step fills half of what is left of it, since nobody knows how
    many parts follow: the share rises, and never beyond the step.
    """

    def __init__(self, steps: Mapping[str, float], show: bool | None) -> None:
        total = sum(steps.values())
        ends = list(accumulate(weight / total for weight in steps.values()))
        self._ends = dict(zip(steps, ends, strict=True))
        self._show = show
        self._began = self._said = time.monotonic()
        self._lock = threading.Lock()
        self._done = self._end = 0.0
        self._step = ""  # nothing is shown between steps
        self._shown: tuple[Progress, TaskID] | None = None
        self._over = threading.Event()

    def begin(self, step: str) -> None:
        """Say which step begins; those before it are done."""
        with self._lock:
            self._done = max(self._done, self._end)
            self._step, self._end = step, self._ends[step]
        self._tell()

    def part(self, total: int) -> Advance:
        """Counts a part of the step that is under way."""
        with self._lock:
            start, width = self._done, 0.5 * (self._end - self._done)
        counted = [0]

        def advance(k: int = 1) -> None:
            _advance_unseen(k)
            with self._lock:
                counted[0] += k
                self._done = max(self._done, start + width * min(1.0, counted[0] / max(total, 1)))
            self._tell()

        return advance

    def pause(self) -> None:
        """Take the bar away while something else is printed."""
        with self._lock:
            self._step = ""
            if self._shown is not None:
                self._shown[0].stop()
                self._shown = None

    def watch(self) -> None:
        """Show it from time to time, until it is over: the first unit alone may take minutes."""
        while not self._over.wait(_GLANCE_SECONDS):
            self._tell()

    def end(self) -> None:
        self._over.set()
        self.pause()

    def _tell(self) -> None:
        now = time.monotonic()
        if self._show is False or not self._step or now - self._began < QUIET_SECONDS:
            return
        if sys.stderr.isatty():
            self._draw()
        elif now - self._said >= LINE_SECONDS and _is_file(sys.stderr):
            self._said = now
            sys.stderr.write(f"{self._words()}\n")
            sys.stderr.flush()

    def _draw(self) -> None:
        with self._lock:
            if not self._step:
                return
            if self._shown is None:
                bar = _rich_bar(share=True)
                bar.start()
                self._shown = bar, bar.add_task("", total=1.0)
            bar, task = self._shown
            bar.update(task, completed=self._done, description=self._words())

    def _words(self) -> str:
        elapsed = time.monotonic() - self._began
        left = elapsed / self._done - elapsed if self._done > 0 else 0.0
        about = f", about {_duration(left)} left" if self._done > 0 else ""
        return f"{self._step}: {self._done:.0%} of all{about}; Ctrl-C stops it"


_whole: Whole | None = None  # the command's that is under way: a process runs one command at a time


@contextmanager
def whole(steps: Mapping[str, float], *, show: bool | None = None) -> Iterator[Whole]:
    """Show one bar for all the steps of a command, each with its weight; off a terminal, a line every few seconds.

    Parameters
    ----------
    steps : names of the steps in order, and about how long each takes, in any unit
    show : False shows nothing
    """
    global _whole
    before, bar = _whole, Whole(steps, show)
    _whole = bar
    threading.Thread(target=bar.watch, name="empriv progress", daemon=True).start()
    try:
        yield bar
    finally:
        bar.end()
        _whole = before


def _is_file(stream: TextIO) -> bool:
    """Whether a stream is a file or a pipe, and not a stand-in that somebody looks at afterwards."""
    try:
        return stream.fileno() >= 0
    except (OSError, ValueError, AttributeError):
        return False


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


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


def _rich_bar(*, share: bool = False) -> Progress:
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

    if share:
        return Progress(TextColumn("{task.description}", markup=False), BarColumn(), console=Console(stderr=True))
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
