"""DuckDB in a process of its own, which the system limits and which is killed when its time is over.

DuckDB's memory limit is for what it keeps in its buffers, and its interrupts are for functions that look for them: one
call of ``list_sort`` or ``levenshtein`` takes as much memory and time as it likes. A `Sandbox` has the few methods of
DuckDB's connection that a session uses. What it is told is pickled. What it answers is not: JSON and the bytes of
arrays, of which nothing is run when it is read. Tables in this process's memory reach it by a file in a directory that
nobody else may enter.
"""

from __future__ import annotations

import datetime
import json
import os
import pickle
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import IO, Any, NoReturn

import duckdb
import numpy as np
import numpy.typing as npt

from empriv.base.scratch import writing_into
from empriv.collecting.engines.duckdb.connection import Fetching
from empriv.collecting.engines.duckdb.sandbox_child import Sent
from empriv.collecting.engines.engine import quoted, text_literal

AVAILABLE = sys.platform != "win32"
"""Whether this system can limit what a process takes; elsewhere DuckDB runs in this process."""
_CHILD = Path(__file__).with_name("sandbox_child.py")
_KINDS = "biufSUmM"  # of arrays that hold values, and no objects
_MADE: dict[str, Callable[[Any], Any]] = {
    "tuple": lambda items: tuple(map(_unpacked, items)),
    "dict": lambda items: {_unpacked(key): _unpacked(value) for key, value in items},
    "date": datetime.date.fromisoformat,
    "datetime": datetime.datetime.fromisoformat,
    "time": datetime.time.fromisoformat,
    "timedelta": lambda parts: datetime.timedelta(*parts),
    "bytes": bytes.fromhex,
    "Decimal": Decimal,
    "UUID": uuid.UUID,
    "str": str,
}


@contextmanager
def sandboxed(config: Mapping[str, Any], directory: str) -> Iterator[Sandbox]:
    """A sandboxed DuckDB with these settings; ``directory`` is this session's own, removed after it."""
    search = json.dumps([place for place in sys.path if place and Path(place).is_absolute()])
    # Isolated: no settings of the user's Python, and no module of the directory where the command is run.
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_CHILD), search], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL, close_fds=True, start_new_session=True,
        env={**os.environ, "MALLOC_ARENA_MAX": "2"},
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    sandbox = Sandbox(process, process.stdin, process.stdout, dict(config), directory)
    with writing_into(directory, process):
        try:
            sandbox.ask("open", 0, dict(config))
            yield sandbox
        finally:
            sandbox.close()


@dataclass(eq=False)
class Sandbox:
    """A connection to DuckDB in another process; one thread at a time asks it."""

    process: subprocess.Popen[bytes]
    requests: IO[bytes]
    replies: IO[bytes]
    config: dict[str, Any]
    directory: str
    _killed: bool = False
    _handed: int = 0
    _beside: int = 0
    _handing: duckdb.DuckDBPyConnection | None = None
    _files: dict[str, tuple[str, str]] = field(default_factory=dict)  # name of a view: its database, and the file

    def execute(self, query: str, parameters: Any = None, /) -> Fetching:
        return _Statement(self, 0, query, parameters)

    def beside(self, _memory: str, *, config: Mapping[str, Any]) -> Beside:
        """Another DuckDB of the same process, which holds nothing yet; called as `duckdb.connect` is."""
        self._beside += 1
        self.ask("open", self._beside, dict(config))
        return Beside(self, self._beside)

    def register(self, name: str, table: Any, /) -> None:
        """Make a table of this process known there: arrays are sent, and all else is written to a file."""
        if isinstance(table, dict):
            self.ask("register", 0, name, table)
            return
        self._handed += 1
        database = f"empriv_handed{self._handed}"
        path = str(Path(self.directory) / f"{database}.duckdb")
        self._files[name] = database, path
        # Not where the other DuckDB writes what does not fit in memory: their files have the same names.
        config = {**self.config, "temp_directory": str(Path(self.directory) / "handing")}
        with duckdb.connect(path, config=config) as own:
            self._handing = own
            try:
                with suppress(duckdb.InvalidInputException):  # as in a session
                    own.execute("SET enable_progress_bar = false")
                own.register("handed", table)
                own.execute("CREATE TABLE rows AS SELECT * FROM handed")
            finally:
                self._handing = None
        self.ask("rows", 0, f"ATTACH {text_literal(path)} AS {database} (READ_ONLY)", None)
        self.ask("rows", 0, f"CREATE TEMP VIEW {quoted(name)} AS SELECT * FROM {database}.rows", None)

    def unregister(self, name: str, /) -> None:
        if name not in self._files:
            self.ask("unregister", 0, name)
            return
        database, path = self._files.pop(name)
        with suppress(duckdb.Error):  # it was not handed over to the end, or DuckDB is gone
            self.ask("rows", 0, f"DROP VIEW IF EXISTS {quoted(name)}", None)
            self.ask("rows", 0, f"DETACH DATABASE IF EXISTS {database}", None)
        Path(path).unlink(missing_ok=True)

    def interrupt(self) -> None:
        """End what runs: there are functions that listen to nothing else."""
        handing = self._handing
        if handing is not None:
            handing.interrupt()
            return
        self._killed = True
        self.process.kill()

    def close(self) -> None:
        """End the process; it holds nothing that is not in this process's directory."""
        self.process.kill()
        self.process.wait()
        self.replies.close()
        with suppress(BrokenPipeError):  # a request that nobody took
            self.requests.close()

    def ask(self, how: str, number: int, *arguments: Any) -> Any:
        """What the other process answers for the connection of this number."""
        try:
            request = pickle.dumps((how, number, *arguments))
            self.requests.write(len(request).to_bytes(8, "little"))
            self.requests.write(request)
            self.requests.flush()
            header = json.loads(self._read(int.from_bytes(self._read(8), "little")))
            if "error" in header:
                _raise(str(header["error"]), str(header["text"]))
            arrays = [self._read(size) for size in header.get("sizes", ())]
        except (OSError, EOFError):
            self._raise_gone()
        return _unpacked(header["rows"]) if "rows" in header else _columns(header["columns"], arrays)

    def _read(self, size: int) -> bytearray:
        found = bytearray(size)
        if self.replies.readinto(found) < size:  # type: ignore[attr-defined]
            raise EOFError
        return found

    def _raise_gone(self) -> NoReturn:
        """The process is gone: by us, or since it took more than the system lets it have."""
        if self._killed:
            raise duckdb.InterruptException("the process was ended") from None
        raise duckdb.OutOfMemoryException("the process took more memory than it may have") from None


@dataclass(frozen=True)
class Beside:
    """A further connection of a sandbox; it ends with the process."""

    sandbox: Sandbox
    number: int

    def execute(self, query: str, parameters: Any = None, /) -> Fetching:
        return _Statement(self.sandbox, self.number, query, parameters)

    def register(self, name: str, table: Any, /) -> None:
        if isinstance(table, Sent):  # from another connection of the process
            assert table.connection is self.sandbox
            self.sandbox.ask("hand", self.number, name, 0, table.sql)
        else:
            self.sandbox.ask("register", self.number, name, table)

    def unregister(self, name: str, /) -> None:
        self.sandbox.ask("unregister", self.number, name)

    def interrupt(self) -> None:
        self.sandbox.interrupt()

    def close(self) -> None:
        """It ends with the process."""


@dataclass(frozen=True)
class _Statement:
    sandbox: Sandbox
    number: int
    query: str
    parameters: Any

    def fetchall(self) -> list[Any]:
        rows: list[Any] = self.sandbox.ask("rows", self.number, self.query, self.parameters)
        return rows

    def fetchnumpy(self) -> dict[str, Any]:
        columns: dict[str, Any] = self.sandbox.ask("columns", self.number, self.query, self.parameters)
        return columns


def _raise(name: str, text: str) -> NoReturn:
    """The error that the other process met: DuckDB's own, or one that says no more than its name."""
    kind = getattr(duckdb, name, None)
    if name == "MemoryError" or "bad_alloc" in text or "bad allocation" in text:
        kind = duckdb.OutOfMemoryException
    if isinstance(kind, type) and issubclass(kind, duckdb.Error):
        raise kind(text)
    raise duckdb.Error(name)


def _unpacked(value: Any) -> Any:
    if isinstance(value, list):
        return [_unpacked(item) for item in value]
    if isinstance(value, dict):
        ((kind, parts),) = value.items()
        return _MADE[kind](parts)
    return value


def _columns(described: list[Any], arrays: Sequence[bytes | bytearray]) -> dict[str, npt.NDArray[Any]]:
    """Columns as `fetchnumpy` gives them."""
    columns: dict[str, npt.NDArray[Any]] = {}
    left = iter(arrays)
    for name, kind, size, texts in described:
        if kind is None:
            values = np.empty(size, object)
            values[:] = [_unpacked(text) for text in texts]
        else:
            dtype = np.dtype(kind)
            if dtype.kind not in _KINDS:
                raise duckdb.Error("an array of objects")
            values = np.frombuffer(next(left), dtype)
        null = np.frombuffer(next(left), np.bool_)
        if not len(values) == len(null) == size:
            raise duckdb.Error("an array of another size")
        columns[name] = np.ma.MaskedArray(values, null)
    return columns
