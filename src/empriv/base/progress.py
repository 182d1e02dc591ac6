"""How far work is that lasts: shown as one bar on a terminal, as a line every few seconds elsewhere, told to a program.

It knows nothing of the work itself: the caller says how much there is, and advances. Work within work fills its share
of the bar that is there already, so that a command shows one bar however many parts it has. Quick work shows nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TextIO

from empriv.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

QUIET_SECONDS = 2.0
LINE_SECONDS = 5.0
_GLANCE_SECONDS = 0.25
_IDLE_GLANCES = 4
_LATER_PARTS = 0.5  # of the rest of a stage: nobody knows how many parts follow


class Advance(Protocol):
    """Says that ``k`` more units of the work are done; may be called from any thread."""

    def __call__(self, k: int = 1) -> None: ...


@dataclass(frozen=True)
class Standing:
    """How far some work is: its stage, which of how many, the share of all that is done, and for how long it has run.

    ``counted`` says that the share is of units that were counted. How long it will take is not said: nobody knows.
    """

    stage: str
    step: int
    steps: int
    share: float
    seconds: float
    counted: bool = False

    @property
    def words(self) -> str:
        which = "" if self.steps == 1 else f" (step {self.step} of {self.steps})"
        done = f", {int(100 * self.share)}%" if self.counted else ""
        return f"{self.stage}{which}{done}, {duration(self.seconds)} so far; Ctrl-C stops it"


@contextmanager
def listening(listener: Callable[[Standing], None]) -> Iterator[None]:
    """Tell a program how far the work in the body is, a few times a second, from a thread of its own.

    ``with listening(lambda standing: pipe.send(standing)): empriv.audit(...)`` also works where nothing is shown.
    """
    global _listener
    before, _listener = _listener, (listener, os.getpid())  # workers that are forked do not tell
    try:
        yield
    finally:
        _listener = before


@contextmanager
def progress(total: int, description: str, *, show: bool | None = None) -> Iterator[Advance]:
    """Show how far the work in the body is on stderr.

    Parameters
    ----------
    total : number of units of work
    description : a few words, shown as they are
    show : None shows it once the work has lasted two seconds; True at once; False never. Within other work it is that
        work's bar that shows, or not.

    Yields
    ------
    advance : function
        ``advance(k=1)`` counts ``k`` more units.
    """
    if total < 0:
        raise InputError(f"`total` must be 0 or more, got {total}.")
    if _shown is not None:
        yield _shown.part(total, _LATER_PARTS)
        return
    with _showing(Bar([description], show)) as bar:
        bar.begin(description)
        yield bar.part(total, 1.0)


@contextmanager
def whole(stages: Sequence[str], *, show: bool | None = None) -> Iterator[Bar]:
    """Show one bar for all the stages of a command, by their names in order; ``show=False`` shows nothing."""
    with _showing(Bar(stages, show)) as bar:
        yield bar


class Bar:
    """How far all the stages of some work are, and who is told."""

    def __init__(self, stages: Sequence[str], show: bool | None) -> None:
        self._stages = list(stages)
        self._show = show
        self._began = time.monotonic()
        self._said = -LINE_SECONDS
        self._lock = threading.Lock()
        self._stage = ""  # nothing is shown between stages
        self._filled = self._unit_end = self._share = 0.0
        self._counted = False
        self._drawn: tuple[Progress, TaskID] | None = None

    def begin(self, stage: str) -> None:
        """Say which stage begins; those before it are done."""
        with self._lock:
            if stage not in self._stages:
                raise KeyError(stage)
            self._stage = stage
            self._filled, self._unit_end = 0.0, 1.0
        if self._show:
            self.tell()

    def part(self, total: int, share: float = _LATER_PARTS) -> Advance:
        """Counts a part of the stage that is under way; it fills this share of the rest of the stage."""
        with self._lock:
            start, width = self._filled, share * (self._unit_end - self._filled)
            if share == 1.0:
                self._unit_end, self._counted = start + width / max(total, 1), True
        counted = [0]

        def advance(k: int = 1) -> None:
            if k < 0:
                raise InputError(f"`k` must be 0 or more, got {k}.")
            with self._lock:
                counted[0] += k
                self._filled = max(self._filled, start + width * min(1.0, counted[0] / max(total, 1)))
                if share == 1.0:  # parts of one unit fill no more than the unit
                    self._unit_end = min(1.0, start + width * (counted[0] + 1) / max(total, 1))

        return advance

    def pause(self) -> None:
        """Take the bar away while something else is printed."""
        with self._lock:
            self._stage = ""
            if self._drawn is not None:
                self._drawn[0].stop()
                self._drawn = None

    def standing(self) -> Standing:
        """How far it is now; the share never falls."""
        with self._lock:
            place = self._stages.index(self._stage) if self._stage else 0
            self._share = max(self._share, (place + self._filled) / len(self._stages))
            seconds = time.monotonic() - self._began
            return Standing(self._stage, place + 1, len(self._stages), min(self._share, 1.0), seconds, self._counted)

    def end(self) -> None:
        if self._show:
            self.tell()
        self.pause()

    def tell(self) -> None:
        """Tell how far it is to whoever listens, and show it if it has lasted."""
        if not self._stage:
            return
        now = time.monotonic()
        standing = self.standing()
        if _listener is not None and _listener[1] == os.getpid():
            _listener[0](standing)
        if self._show is False or (not self._show and now - self._began < QUIET_SECONDS) or _is_worker():
            return
        if sys.stderr.isatty():
            self._draw(standing)
            return
        # Lines are further apart the longer it lasts: a log of hours stays short.
        due = now - self._said >= max(LINE_SECONDS, (now - self._began) / 20) and _is_file(sys.stderr)
        if self._show or due:
            self._said = now
            sys.stderr.write(f"{standing.words}\n")
            sys.stderr.flush()

    def _draw(self, standing: Standing) -> None:
        with self._lock:
            if not self._stage:
                return
            if self._drawn is None:
                bar = _rich_bar()
                bar.start()
                self._drawn = bar, bar.add_task("", total=1.0)
            bar, task = self._drawn
            bar.update(task, completed=standing.share, description=standing.words, refresh=bool(self._show))


_shown: Bar | None = None  # of the work that is under way: a process does one at a time
_listener: tuple[Callable[[Standing], None], int] | None = None
_watcher: threading.Thread | None = None
_watching = threading.Lock()


@contextmanager
def _showing(bar: Bar) -> Iterator[Bar]:
    global _shown, _watcher
    before, _shown = _shown, bar
    with _watching:
        if _watcher is None or not _watcher.is_alive():
            _watcher = threading.Thread(target=_watch, name="empriv progress", daemon=True)
            _watcher.start()
    try:
        yield bar
    finally:
        bar.end()
        _shown = before


def _watch() -> None:
    """Tell how far the work is from time to time, since the first unit alone may take minutes; end when there is none.

    One thread for one piece of work after the other: starting it takes longer than many a measure.
    """
    global _watcher
    idle = 0
    while True:
        time.sleep(_GLANCE_SECONDS)
        bar = _shown
        if bar is not None:
            idle = 0
            bar.tell()
            continue
        idle += 1
        with _watching:
            if idle > _IDLE_GLANCES and _shown is None:
                _watcher = None
                return


def _is_worker() -> bool:
    """Whether this process works for another one, which shows how far it is."""
    # Another thread may be importing it just now: it cannot be a worker's then.
    parent = getattr(sys.modules.get("multiprocessing.process"), "parent_process", None)
    return parent is not None and parent() is not None


def duration(seconds: float) -> str:
    """Seconds in words, to as many digits as anybody needs."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.0f} hours"


def _is_file(stream: TextIO) -> bool:
    """Whether a stream is a file or a pipe, and not a stand-in that somebody looks at afterwards."""
    try:
        return stream.fileno() >= 0
    except (OSError, ValueError, AttributeError):
        return False


def _rich_bar() -> Progress:
    # rich is imported only here: most calls never show anything.
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    return Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), console=Console(stderr=True), transient=True
    )
