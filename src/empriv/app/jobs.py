"""What runs beside the server: jobs, which last, and short questions, such as a preview.

A job is a command of the command line in a process of its own, whose state is in files. A closed tab does not end it,
a killed server does not lose it, and what it writes is what the command writes. Each has a folder in .empriv-app/work:
asked.json, who runs it (a locked file), progress.json, what it printed, ended.json. What nobody else may read goes to
the command by its standard input, and to no file.

Short questions go to worker processes (`WorkerPool`), so that numerics are imported there, and not in the server.
Functions must be importable by name, and give what can be pickled; whatever they raise comes back as it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import multiprocessing
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

from empriv.app.folder import AT_ONCE, Folder
from empriv.base.scratch import work_for
from empriv.base.storage import WRONG_FACTS, write_atomically
from empriv.cli.running import INTERRUPTED
from empriv.errors import EmprivError, InputError

if sys.platform != "win32":
    import fcntl

T = TypeVar("T")
_PLACE = "work"
_ID = r"[0-9]{20}-[0-9a-f]{8}"
_GRACE_SECONDS = 5.0
_LATEST = 1e11  # seconds since 1970 that a calendar has
_MOST_BYTES = 1 << 20  # of what a command says
_REMEMBERED = 8  # jobs of one audit
_RESULTS = (".empriv", ".json")
AUDIT, PAGE, DESIGN, ADVICE, RELEASE, AS_IT_IS = (
    "Audit", "Page", "Noise", "Advice", "Release", "Noise for answers as they are",
)  # fmt: skip
"""Titles of jobs."""
_PROCESSES, _SECONDS = 2, 120.0  # of workers, and until a question is given up
DONE_CODES = (0, 3, 4)  # the command did its work, whatever the verdict


# Jobs


@dataclass(frozen=True)
class Job:
    """A job as it stands.

    Attributes
    ----------
    key : its name
    audit : the audit that it is for
    title : what it is, in a few words
    arguments : of the command line
    state : "running", "done", "failed", "cancelled", or "lost" (its process is gone without a word)
    code : exit code, if it has ended
    stage, share : how far it is
    said : what it printed for people to read; of a failure, the sentence that says why
    began, ended : seconds since 1970
    settings : mark of the audit's settings when it began
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
    said: str = ""
    ended: float | None = None
    settings: str = ""

    @property
    def running(self) -> bool:
        return self.state == "running"


def start(folder: Folder, audit: str, title: str, arguments: Sequence[str], *, private: str | None = None) -> Job:
    """Start a command for an audit; refused while another job of the audit is under way.

    ``private`` is what the command reads from its standard input: no file and no list of processes shows it.
    """
    with _alone(folder):
        under_way = latest(folder, audit)
        if under_way is not None and under_way.running:
            raise InputError(f"Work on this audit is under way: {under_way.title}. Wait for it, or cancel it.")
        _forget_old(folder, audit)
        now = time.time()
        moment = f"{time.strftime('%Y%m%d%H%M%S', time.gmtime(now))}{int(now % 1 * 1e6):06d}"
        key = f"{moment}-{secrets.token_hex(4)}"
        place = folder.own / _PLACE / key
        place.mkdir(parents=True, mode=0o700)
        asked: dict[str, Any] = {"audit": audit, "title": title, "arguments": list(arguments), "began": now}
        asked["settings"] = folder.settings_mark(audit) if audit in folder.audits() else ""
        write_atomically(place / "asked.json", json.dumps(asked).encode())
    with _private(place / "out.txt") as out, _private(place / "error.txt") as error:
        process = subprocess.Popen(
            [sys.executable, "-m", "empriv.app.jobs", str(place)], cwd=folder.path,
            stdin=subprocess.DEVNULL if private is None else subprocess.PIPE,
            stdout=out, stderr=error, start_new_session=True,
        )  # fmt: skip
    write_atomically(place / "process.json", json.dumps({"pid": process.pid}).encode())
    _processes[key] = process
    if process.stdin is not None:
        with contextlib.suppress(BrokenPipeError), process.stdin as pipe:  # it may be gone already
            pipe.write(f"{private}\n".encode())
    return job_of(folder, key)


def job_of(folder: Folder, key: str) -> Job:
    """A job as it stands now."""
    place = _place(folder, key)
    asked = _read(place / "asked.json")
    if asked is None:
        raise InputError("The job must be one that was started here.")
    if key in _processes:
        _processes[key].poll()  # so that nothing is left of one that has ended
    began, ended = _number(asked["began"]), _read(place / "ended.json")
    progress = _read(place / "progress.json") or {}
    code = None if ended is None else int(ended["code"])
    state = "running"
    cancelled = (place / "cancelled").exists()
    if code is not None:
        state = "done" if code in DONE_CODES else "cancelled" if cancelled or code == INTERRUPTED else "failed"
    elif not _alive(key, place, began):
        ended = _read(place / "ended.json")  # it may have ended while we looked
        if ended is not None:
            return job_of(folder, key)
        state = "cancelled" if cancelled else "lost"
    return Job(
        key=key, audit=str(asked["audit"]), title=str(asked["title"]), arguments=tuple(map(str, asked["arguments"])),
        state=state, began=began, code=code, stage=str(progress.get("stage", "")),
        share=_number(progress.get("share", 0.0), 1.0),
        said=_said(place, state, code), ended=None if ended is None else _number(ended["at"]),
        settings=str(asked.get("settings", "")),
    )  # fmt: skip


def all_jobs(folder: Folder, audit: str | None = None, title: str | None = None) -> Iterator[Job]:
    """Every job, or those of one audit, or of one title, latest first."""
    place = folder.own / _PLACE
    for key in sorted((path.name for path in place.iterdir()), reverse=True) if place.is_dir() else ():
        asked = _read(place / key / "asked.json") if re.fullmatch(_ID, key) else None
        if asked is not None and audit in (None, asked.get("audit")) and title in (None, asked.get("title")):
            try:
                job = job_of(folder, key)
            except WRONG_FACTS:
                continue  # damaged
            yield job


def latest(folder: Folder, audit: str, title: str | None = None) -> Job | None:
    """The latest job of an audit."""
    return next(all_jobs(folder, audit, title), None)


def is_under_way(folder: Folder, audit: str) -> bool:
    """Whether a job of an audit is running."""
    job = latest(folder, audit)
    return job is not None and job.running


def changed_since(folder: Folder, audit: str, jobs: Sequence[Job] | None = None) -> bool:
    """Whether an audit's settings have changed since its figures were made; ``jobs`` are its own, if known."""
    settings = folder.written(audit, ".toml")
    results = [path.stat().st_mtime for end in _RESULTS if (path := folder.written(audit, end)) is not None]
    if settings is None or not results:
        return False
    made = results[0]
    jobs = tuple(all_jobs(folder, audit)) if jobs is None else jobs
    for job in jobs:
        if job.title == AUDIT and job.state == "done" and job.began <= made <= (job.ended or 0.0):
            return job.settings != folder.settings_mark(audit)
    # Somebody made it by the command line, which may write the settings last, after the page; unless that is ours.
    page = folder.written(audit, ".html")
    if page is not None and all(job.arguments[:1] != ("show",) for job in jobs):
        results.append(page.stat().st_mtime)
    return settings.stat().st_mtime > max(results) + AT_ONCE


def cancel(folder: Folder, key: str) -> None:
    """Interrupt a job, as Ctrl-C would; end it, if it does not answer."""
    place = _place(folder, key)
    if not job_of(folder, key).running:
        return
    (place / "cancelled").touch()
    for number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        pid = int((_read(place / "process.json") or {"pid": 0})["pid"])
        if pid > 0:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        until = time.monotonic() + _GRACE_SECONDS
        while time.monotonic() < until and job_of(folder, key).running:
            time.sleep(0.05)
        if not job_of(folder, key).running:
            break
    if pid > 0 and sys.platform != "win32":
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)  # its workers, which are of its session, and may be deep in a computation


def cancel_all(folder: Folder) -> None:
    """End the jobs that this server started, when it stops: another server on the folder goes on with its own."""
    for job in list(all_jobs(folder)):
        if job.key in _processes:
            cancel(folder, job.key)


_processes: dict[str, subprocess.Popen[bytes]] = {}  # those that this server started: they are its children


def _alive(key: str, place: Path, began: float) -> bool:
    """Whether the process of a job is alive: as our child, or by the lock that it holds."""
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
        return 0.0 <= time.time() - began < 10.0  # it has not come so far yet
    return False


@contextlib.contextmanager
def _alone(folder: Folder) -> Iterator[None]:
    """Nobody else starts a job in the folder meanwhile: another server may run on it."""
    lock = os.open(folder.own / "starting", os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    try:
        if sys.platform != "win32":
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _forget_old(folder: Folder, audit: str) -> None:
    """Delete what is remembered of jobs long ago."""
    for job in list(all_jobs(folder, audit))[_REMEMBERED:]:
        if not job.running:
            shutil.rmtree(_place(folder, job.key), ignore_errors=True)


def forget(folder: Folder, audit: str) -> None:
    """Delete what is remembered of an audit's jobs, which have ended."""
    for job in list(all_jobs(folder, audit)):
        shutil.rmtree(_place(folder, job.key), ignore_errors=True)


def _place(folder: Folder, key: str) -> Path:
    if not re.fullmatch(_ID, key):
        raise InputError("The job must be one that was started here.")
    return folder.own / _PLACE / key


def _said(place: Path, state: str, code: int | None) -> str:
    """What was printed; of a failure or a refusal, the sentence that says why."""
    printed, complaints = _text(place / "out.txt"), _text(place / "error.txt")
    if state == "running" or (state == "done" and (printed or not code)):
        return printed
    lines = complaints.splitlines()
    first = next((number for number, line in enumerate(lines) if line.startswith(("Error", "Refused"))), 0)
    return "\n".join(lines[first:]).removeprefix("Error: ")


def _text(path: Path) -> str:
    return _bytes(path).decode("utf-8", "replace").strip()


def _read(path: Path) -> dict[str, Any] | None:
    try:
        content = json.loads(_bytes(path))
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _bytes(path: Path) -> bytes:
    """What a file holds, to as much as anybody reads; nothing if it is not there, or a pipe, which may never end."""
    try:
        if not path.is_file():
            return b""
        with path.open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError:
        return b""


def _number(value: Any, most: float = _LATEST) -> float:
    """A number from 0 to ``most``; ValueError for another one, which somebody else wrote."""
    number = float(value)
    if not 0.0 <= number <= most:
        raise ValueError("no such number is written here")
    return number


def _private(path: Path) -> Any:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


def run(place: Path) -> int:
    """Run the command of a job, in its own process; its exit code."""
    from empriv.base.progress import Standing, listening
    from empriv.cli.main import main

    def tell(standing: Standing) -> None:
        with contextlib.suppress(OSError):  # a full disk is reported by the command itself
            write_atomically(place / "progress.json", json.dumps(asdict(standing)).encode())

    owner = os.open(place / "owner", os.O_RDWR | os.O_CREAT, 0o600)
    if sys.platform != "win32":
        fcntl.flock(owner, fcntl.LOCK_EX)
    asked = _read(place / "asked.json")
    assert asked is not None
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a server in the background hands on that it is ignored
    code: Any = 1
    try:
        with listening(tell):
            main(asked["arguments"])
    except SystemExit as left:
        code = left.code
    finally:
        sys.stdout.flush()
        ended = {"code": code if isinstance(code, int) else 0, "at": time.time()}
        write_atomically(place / "ended.json", json.dumps(ended).encode())
    return int(ended["code"])


# Short questions


class WorkerPool:
    """Processes that answer questions, one at a time each."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._pools: dict[int, ProcessPoolExecutor] = {}
        self._free: asyncio.LifoQueue[int] = asyncio.LifoQueue()  # the last one that answered remembers most
        for number in reversed(range(_PROCESSES)):
            self._free.put_nowait(number)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """What a function gives, called in one of the processes; whatever becomes of it, the others go on."""
        number = await self._free.get()
        try:
            return await asyncio.wait_for(
                asyncio.wrap_future(self._pool(number).submit(function, *arguments)), _SECONDS
            )
        except RecursionError:
            raise EmprivError("The expression is nested too deeply.") from None
        except BrokenProcessPool:
            self._end(number)
            raise EmprivError("This took more memory than there is. Hint: run it from the last step.") from None
        except TimeoutError:
            self._end(number)
            raise EmprivError(f"This took more than {_SECONDS:.0f} seconds, and was ended.") from None
        finally:
            self._free.put_nowait(number)

    def close(self) -> None:
        """End the processes."""
        for number in list(self._pools):
            self._end(number)

    def _pool(self, number: int) -> ProcessPoolExecutor:
        if number not in self._pools:
            self._pools[number] = ProcessPoolExecutor(
                1, mp_context=multiprocessing.get_context("spawn"), initializer=_begin,
                initargs=(os.getpid(), self._folder),
            )  # fmt: skip
        return self._pools[number]

    def _end(self, number: int) -> None:
        pool = self._pools.pop(number, None)
        if pool is not None:
            processes = list((getattr(pool, "_processes", None) or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()  # it may not answer


def warm_up() -> None:
    """Import what previews and counts need."""
    import empriv.collecting
    import empriv.collecting.profile  # noqa: F401


@contextlib.contextmanager
def engine_beside(**limits: Any) -> Iterator[Any]:
    """An engine for what nobody was asked to trust yet: views of DuckDB files, which can read any file, are refused."""
    from empriv.cli.running import engine_of

    with engine_of({**limits, "views": False}) as engine:
        yield engine


def _begin(parent: int, folder: str) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server, which ends these
    os.chdir(folder)  # settings name files from there
    work_for(parent, lambda: None)


if __name__ == "__main__":
    sys.exit(run(Path(sys.argv[1])))
