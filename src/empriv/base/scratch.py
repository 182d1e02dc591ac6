"""Folders for people's rows on disk, and how they and workers are cleaned up when a process is ended from outside.

A folder is removed when its work is over, after an error, Ctrl-C, SIGTERM and SIGHUP. What SIGKILL leaves behind is
swept by the next process that makes such a folder in the same place. Workers end when their parent is gone, and a
process that writes into a folder ends before the folder goes.
"""

from __future__ import annotations

import functools
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

if sys.platform != "win32":
    import fcntl

_PREFIX = "empriv-"
_OWNER = ".owner"
"""A file that the folder's process holds a lock on. The system lets go of it, however the process ends."""
_UNWINDING_SECONDS = 5.0
T = TypeVar("T")


@contextmanager
def scratch_directory(parent: str | None = None) -> Iterator[str]:
    """A folder that nobody else may enter, removed at the end; OSError if it cannot be made."""
    parent = parent or tempfile.gettempdir()
    with orderly_exit(by_signal=True):
        sweep(parent)
        path, lock = _made(parent)
        try:
            yield path
        finally:
            _end_writers(path)
            shutil.rmtree(path, ignore_errors=True)
            if lock is not None:
                os.close(lock)


@contextmanager
def writing_into(folder: str, process: subprocess.Popen[bytes]) -> Iterator[None]:
    """A process that writes into a folder is ended before the folder is removed, by whichever thread removes it.

    One that another thread starts while the folder is removed is ended at once.
    """
    _writers[process] = folder
    if any(Path(folder).is_relative_to(place) for place in _removed):
        process.kill()
    try:
        yield
    finally:
        _writers.pop(process, None)


_writers: dict[subprocess.Popen[bytes], str] = {}
_removed: set[str] = set()


def _end_writers(folder: str) -> None:
    _removed.add(folder)  # first: who is not in the list yet sees it here
    for process, place in list(_writers.items()):
        if Path(place).is_relative_to(folder):
            process.kill()
            process.wait()


@contextmanager
def orderly_exit(*, by_signal: bool = False) -> Iterator[None]:
    """SIGTERM and SIGHUP raise SystemExit with 128 and their number, so that all that is open is closed.

    Handlers that somebody else has set stay, and nothing is done in other threads than the main one. With
    ``by_signal`` the process then ends by the signal, as it would have done without a handler.
    """
    received: list[int] = []
    unwinding_until = 0.0

    def leave(number: int, _frame: Any) -> None:
        nonlocal unwinding_until
        # A terminal that is closed sends both, one after the other: the second must not disturb the cleaning up.
        if time.monotonic() > unwinding_until:
            received.append(number)
            unwinding_until = time.monotonic() + _UNWINDING_SECONDS
            raise SystemExit(128 + number)

    handled = []
    if threading.current_thread() is threading.main_thread():
        numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
        handled = [number for number in numbers if signal.getsignal(number) == signal.SIG_DFL]
    for number in handled:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        if received and by_signal:
            os.kill(os.getpid(), received[0])


def sweep(parent: str) -> None:
    """Remove the folders of this user's processes that have ended; never one that may still be in use."""
    if sys.platform == "win32":
        return
    with suppress(OSError), os.scandir(parent) as entries:
        for entry in entries:
            with suppress(OSError):
                if entry.name.startswith(_PREFIX) and _is_private(entry):
                    _sweep_one(entry.path)


def _is_private(entry: os.DirEntry[str]) -> bool:
    facts = entry.stat(follow_symlinks=False)
    return stat.S_ISDIR(facts.st_mode) and facts.st_uid == os.geteuid() and not facts.st_mode & 0o077


def _sweep_one(path: str) -> None:
    """Remove a folder whose owner has let go of its lock; BlockingIOError if it has not."""
    lock = os.open(Path(path, _OWNER), os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(path, ignore_errors=True)
    finally:
        os.close(lock)


def _made(parent: str) -> tuple[str, int | None]:
    """A new folder, and the lock that shows that its owner is alive; None where there are no locks."""
    while True:
        path = tempfile.mkdtemp(prefix=_PREFIX, dir=parent)
        if sys.platform == "win32":
            return path, None
        owner = Path(path, _OWNER)
        lock = os.open(owner, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass  # another process sweeps it, before it was known to be in use
        except OSError:  # a file system without locks: nobody can sweep here
            owner.unlink()
            os.close(lock)
            return path, None
        else:
            if owner.exists():
                return path, lock
        os.close(lock)


def work_for(parent: int, work: Callable[..., T], *arguments: Any) -> T:
    """What ``work`` gives, in a process that ends when ``parent`` does."""
    _end_with(parent)
    return work(*arguments)


@functools.cache
def _end_with(parent: int) -> None:
    if sys.platform == "win32" or os.getpid() == parent or os.getppid() != parent:
        return  # the parent itself, in a thread of its own or not; or a process that somebody else looks after

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, name="empriv parent", daemon=True).start()
