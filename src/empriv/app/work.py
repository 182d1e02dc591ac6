"""Work that lasts: a command of the command line in a process of its own, whose state is in files.

A closed tab does not end it, a killed server does not lose it, and what it writes is what the command writes. Each has
a folder in .empriv-app/work: asked.json, who runs it (a locked file), progress.json, what it printed, ended.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from empriv.app.folder import Folder
from empriv.base.storage import write_atomically
from empriv.cli.output import INTERRUPTED
from empriv.errors import InputError

if sys.platform != "win32":
    import fcntl

_PLACE = "work"
_ID = r"[0-9]{14}-[0-9a-f]{8}"
_GRACE_SECONDS = 5.0
DONE_CODES = (0, 3, 4)  # the command did its work, whatever the verdict


@dataclass(frozen=True)
class Work:
    """A piece of work as it stands.

    Attributes
    ----------
    key : its name
    audit : the audit that it is for
    title : what it is, in a few words
    arguments : of the command line
    state : "running", "done", "failed", "cancelled", or "lost" (its process is gone without a word)
    code : exit code, if it has ended
    stage, share, seconds_left : how far it is
    said : what it printed for people to read; of a failure, the sentence that says why
    began, ended : seconds since 1970
    """

    key: str
    audit: str
    title: str
    arguments: tuple[str, ...]
    state: str
    began: float
    code: int | None = None
    stage: str = ""
    share: float = 0.0
    seconds_left: float | None = None
    said: str = ""
    ended: float | None = None

    @property
    def running(self) -> bool:
        return self.state == "running"


def start(folder: Folder, audit: str, title: str, arguments: Sequence[str]) -> Work:
    """Start a command for an audit; refused while another one of the same audit is under way."""
    under_way = latest(folder, audit)
    if under_way is not None and under_way.running:
        raise InputError(f"Work on this audit is under way: {under_way.title}. Wait for it, or cancel it.")
    key = f"{time.strftime('%Y%m%d%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
    place = folder.own / _PLACE / key
    place.mkdir(parents=True, mode=0o700)
    asked = {"audit": audit, "title": title, "arguments": list(arguments), "began": time.time()}
    write_atomically(place / "asked.json", json.dumps(asked).encode())
    with _private(place / "out.txt") as out, _private(place / "error.txt") as error:
        process = subprocess.Popen(
            [sys.executable, "-m", "empriv.app.work", str(place)], cwd=folder.path, stdin=subprocess.DEVNULL,
            stdout=out, stderr=error, start_new_session=True,
        )  # fmt: skip
    write_atomically(place / "process.json", json.dumps({"pid": process.pid}).encode())
    _processes[key] = process
    return seen(folder, key)


def seen(folder: Folder, key: str) -> Work:
    """A piece of work as it stands now."""
    place = _place(folder, key)
    asked = _read(place / "asked.json")
    if asked is None:
        raise InputError("The work must be one that was started here.")
    ended, progress = _read(place / "ended.json"), _read(place / "progress.json") or {}
    code = None if ended is None else int(ended["code"])
    state = "running"
    if code is not None:
        state = "done" if code in DONE_CODES else "cancelled" if code == INTERRUPTED else "failed"
    elif not _alive(key, place, asked["began"]):
        ended = _read(place / "ended.json")  # it may have ended while we looked
        if ended is not None:
            return seen(folder, key)
        state = "cancelled" if (place / "cancelled").exists() else "lost"
    return Work(
        key=key, audit=asked["audit"], title=asked["title"], arguments=tuple(asked["arguments"]), state=state,
        began=asked["began"], code=code, stage=progress.get("stage", ""), share=progress.get("share", 0.0),
        seconds_left=progress.get("seconds_left"), said=_said(place, state),
        ended=None if ended is None else ended["at"],
    )  # fmt: skip


def all_work(folder: Folder, audit: str | None = None) -> tuple[Work, ...]:
    """Every piece of work, or that of one audit, latest first."""
    place = folder.own / _PLACE
    keys = sorted((path.name for path in place.iterdir()), reverse=True) if place.is_dir() else []
    works = [seen(folder, key) for key in keys if (place / key / "asked.json").is_file()]
    return tuple(work for work in works if audit is None or work.audit == audit)


def latest(folder: Folder, audit: str) -> Work | None:
    """The latest piece of work on an audit."""
    return next(iter(all_work(folder, audit)), None)


def cancel(folder: Folder, key: str) -> None:
    """Interrupt work, as Ctrl-C would; end it, if it does not answer."""
    place = _place(folder, key)
    if not seen(folder, key).running:
        return
    (place / "cancelled").touch()
    pid = int((_read(place / "process.json") or {"pid": 0})["pid"])
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        if pid > 0:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        until = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < until:
            if not seen(folder, key).running:
                return
            time.sleep(0.05)


def cancel_all(folder: Folder) -> None:
    """End all work, when the app stops."""
    for work in all_work(folder):
        cancel(folder, work.key)


_processes: dict[str, subprocess.Popen[bytes]] = {}  # those that this server started: they are its children


def _alive(key: str, place: Path, began: float) -> bool:
    """Whether the process of some work is there: as our child, or by the lock that it holds."""
    process = _processes.get(key)
    if process is not None:
        return process.poll() is None
    if sys.platform == "win32":
        return time.time() - began < 1.0 or (place / "progress.json").stat().st_mtime > time.time() - 60.0
    try:
        with (place / "owner").open("rb+") as owner:
            fcntl.flock(owner, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return time.time() - began < 10.0  # it has not come so far yet
    return False


def _place(folder: Folder, key: str) -> Path:
    import re

    if not re.fullmatch(_ID, key):
        raise InputError("The work must be one that was started here.")
    return folder.own / _PLACE / key


def _said(place: Path, state: str) -> str:
    name = "out.txt" if state == "done" else "error.txt"
    try:
        text = (place / name).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    if state != "failed":
        return text.strip()
    lines = text.strip().splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith(("Error", "Refused", "Usage"))), 0)
    return "\n".join(lines[first:])


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def _private(path: Path) -> Any:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def run(place: Path) -> int:
    """Run the command of some work, in its own process; its exit code."""
    from empriv.cli.main import main

    owner = os.open(place / "owner", os.O_RDWR | os.O_CREAT, 0o600)
    if sys.platform != "win32":
        fcntl.flock(owner, fcntl.LOCK_EX)
    asked = _read(place / "asked.json")
    assert asked is not None
    code: Any = 1
    try:
        main(asked["arguments"])
    except SystemExit as left:
        code = left.code
    finally:
        sys.stdout.flush()
        ended = {"code": code if isinstance(code, int) else 0, "at": time.time()}
        write_atomically(place / "ended.json", json.dumps(ended).encode())
    return int(ended["code"])


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
