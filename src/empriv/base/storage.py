"""Files: written whole or not at all, mode 0600, no pickle.

A saved file is a zip archive of ``meta.json`` (kind, format version, small facts) and one ``.npy`` per array; the
format is described in docs/formats.md.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
import re
import secrets
import struct
import time
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from empriv.errors import FileFormatError, InputError

if TYPE_CHECKING:
    import sqlite3


FORMAT_VERSION = 1
# Arrays of each kind of file, and what each holds: labels, or numbers of a type.
_LABELS, _FLOAT = None, np.dtype(np.float64)
_INT8, _INT32, _INT64 = np.dtype(np.int8), np.dtype(np.int32), np.dtype(np.int64)
_RESULTS: dict[str, np.dtype[Any] | None] = {
    "q": _FLOAT, "outcomes": _INT8, "databases": _LABELS, "individuals": _LABELS, "starts": _INT64,
    "entry_database": _INT32, "entry_q": _FLOAT, "entry_outcomes": _INT8,
    "row_starts": _INT64, "row_digests": _INT64, "row_reach": _FLOAT,
}  # fmt: skip
_TOTALS: dict[str, np.dtype[Any] | None] = {
    f"totals_{name}": kind
    for names, kind in (
        (("delta", "log_safe", "upper", "epsilon_at", "most_moved"), _FLOAT),
        (("kept_delta_i", "kept_influence", "kept_moves"), _FLOAT),
        (("members", "exposed", "histogram", "not_numbers"), _INT64),
        (("relative_values", "largest_values", "units_values", "moved_units_values"), _FLOAT),
        (("relative_counts", "largest_counts", "units_counts", "moved_units_counts"), _INT64),
    )
    for name in names
}
MOST_SOURCES = 10
"""How many answers a file holds that others were made from, one from another."""
_SOURCES = {
    f"postprocessed_from_{k}_{name}": _RESULTS[name]
    for k in range(MOST_SOURCES)
    for name in ("q", "outcomes", "entry_q", "entry_outcomes")
}
_KNOWN = re.compile(r"known_\d{1,4}\.npy")
# At the level that files are written with, zlib makes nothing smaller than by 230 times.
_MOST_TIMES, _SMALL = 250, 2**24
# What zipfile, zlib, json and NumPy raise on bytes that are not what was written. OSError stays: that is the disk's.
_DAMAGE = (
    zipfile.BadZipFile, zlib.error, KeyError, TypeError, ValueError, EOFError, NotImplementedError, RuntimeError,
    struct.error, MemoryError, RecursionError,
)  # fmt: skip
WRONG_FACTS = (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""What facts raise that are not those that were written, when they are understood."""


def file_path(path: str | PathLike[str]) -> Path:
    """The path of a file; one that no system could open is refused here, with a sentence."""
    if "\0" in os.fsdecode(path):
        raise InputError("`path` must name a file, got a text with a NUL in it.")
    return Path(path)


def write_atomically(path: str | PathLike[str], content: bytes, *, mode: int = 0o600) -> None:
    """Write ``content`` to ``path`` whole or not at all: a temporary file beside it, then a rename."""
    target = file_path(path)
    if not target.name:
        raise InputError(f"`path` must name a file, got {str(target)!r}.")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise


def write_archive(
    path: str | PathLike[str], *, kind: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]
) -> None:
    """Write one archive; ``meta`` must be JSON, ``arrays`` must not hold objects."""
    write_atomically(path, archive_to_bytes(kind=kind, meta=meta, arrays=arrays))


def archive_to_bytes(*, kind: str, meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """The bytes of an archive."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        header = {"format": "empriv", "version": FORMAT_VERSION, "kind": kind, **meta}
        archive.writestr("meta.json", json.dumps(header, indent=1, allow_nan=False))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, np.ascontiguousarray(array), allow_pickle=False)
    return buffer.getvalue()


def read_archive(path: str | PathLike[str], *, kinds: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Meta and arrays of an archive of one of these kinds. A file may come from anybody."""
    # Read whole first: whatever fails after that is damage, and not the disk's.
    return archive_from_bytes(file_path(path).read_bytes(), kinds=kinds)


def archive_from_bytes(content: bytes, *, kinds: tuple[str, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The inverse of `archive_to_bytes`, for bytes that may come from anybody.

    What each member would need is asked first, nothing is inflated beyond that, and members that are not of the kind
    are not read.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = _members(archive, len(content))
            meta = _meta(_inflated(archive, members["meta.json"]), kinds)
            arrays = {
                name: _array(archive, members[f"{name}.npy"], wanted)
                for name, wanted in _arrays_of(meta["kind"], members)
                if f"{name}.npy" in members
            }
    except (OSError, *_DAMAGE) as error:
        raise FileFormatError("The file is damaged, or was not written by empriv.") from error
    return meta, arrays


def arrays_to_bytes(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    """Arrays as the bytes of an archive without facts, as checkpoints hold them."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)  # type: ignore[arg-type]
    return buffer.getvalue()


def arrays_from_bytes(content: bytes) -> dict[str, npt.NDArray[Any]]:
    """The inverse of `arrays_to_bytes`, for bytes that may come from anybody."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = _members(archive, len(content))
            return {name.removesuffix(".npy"): _array(archive, member, None) for name, member in members.items()}
    except (OSError, *_DAMAGE) as error:
        raise FileFormatError("The file is damaged, or was not written by empriv.") from error


def _members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    """Members by name, if all of them together say that they need no more than ``size`` bytes can become."""
    listed = archive.infolist()
    if sum(member.file_size for member in listed) > max(_SMALL, _MOST_TIMES * size):
        raise FileFormatError(
            "The file is damaged, or was not written by empriv: it would need far more memory than its size."
        )
    members = {member.filename: member for member in listed}
    if len(members) < len(listed):
        raise ValueError("two members of one name")
    return members


def _inflated(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The bytes of a member: as many as the archive's directory says, however many the member would inflate to."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise ValueError("compression")  # others inflate whatever they are given, however little is asked for
    with archive.open(member) as file:
        # Asked for a number of bytes, zlib stops there; asked for all, it would go on to 2 GB, whatever was said.
        content = file.read(member.file_size)
    if len(content) != member.file_size:
        raise ValueError("size")
    return content


def _meta(content: bytes, kinds: tuple[str, ...]) -> dict[str, Any]:
    meta = json.loads(content)
    if not isinstance(meta, dict) or meta.get("format") != "empriv":
        raise FileFormatError("The file was not written by empriv.")
    if not isinstance(meta["version"], int):
        raise FileFormatError("The file is damaged: it does not say its format version.")
    if meta["version"] > FORMAT_VERSION:
        raise FileFormatError(
            f"The file has format version {meta['version']}; this empriv reads up to {FORMAT_VERSION}."
        )
    if not isinstance(meta["kind"], str) or meta["kind"] not in kinds:
        raise FileFormatError(f"The file holds {meta['kind']!r}, expected {' or '.join(map(repr, kinds))}.")
    return meta


def _arrays_of(kind: str, members: Iterable[str]) -> Iterator[tuple[str, np.dtype[Any] | None]]:
    """Names of the arrays that a kind of file holds, and the type of each."""
    yield from _RESULTS.items()
    yield from _SOURCES.items()
    if kind == "audit":
        yield from _TOTALS.items()
    if kind in ("audit", "noise", "table noise"):
        for member in members:
            if _KNOWN.fullmatch(member):
                yield member.removesuffix(".npy"), _LABELS


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo, wanted: np.dtype[Any] | None) -> npt.NDArray[Any]:
    """One array, if its header says as many bytes as there are, and numbers of the type wanted, or labels for None."""
    file = io.BytesIO(_inflated(archive, member))
    major, minor = np.lib.format.read_magic(file)
    read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}[major]
    shape, _, dtype = read(file)
    size = math.prod(shape) * dtype.itemsize
    if minor != 0 or min(shape, default=0) < 0 or size != member.file_size - file.tell():
        raise ValueError("size")
    if dtype.kind not in ("biufUSMm" if wanted is None else "iu" if wanted.kind == "i" else "f"):
        raise ValueError("type")
    file.seek(0)
    array = np.ascontiguousarray(np.lib.format.read_array(file, allow_pickle=False))
    if wanted is None or array.dtype == wanted:
        return array
    # Whole numbers of another size are the same numbers, if they fit.
    numbers = array.astype(wanted)
    if wanted.kind == "f" or not np.array_equal(numbers, array):
        raise ValueError("type")
    return numbers


def kind_of(path: str | PathLike[str]) -> str | None:
    """What an archive holds, without its arrays; None for what is no archive: `read_archive` says why."""
    try:
        with zipfile.ZipFile(path) as archive:
            member = archive.getinfo("meta.json")
            if member.file_size > _SMALL:
                return None
            meta = json.loads(_inflated(archive, member))
            return str(meta["kind"]) if meta["format"] == "empriv" else None
    except (OSError, *_DAMAGE):
        return None


_TABLES = [
    "CREATE TABLE run (mark BLOB NOT NULL)",
    "CREATE TABLE piece (number INTEGER PRIMARY KEY, content BLOB NOT NULL, checksum BLOB NOT NULL)",
]
_START = b"SQLite format 3\0"
_SYNC_SECONDS = 0.25


class Checkpoint:
    """An open checkpoint: `pieces` are those that it held, `put` adds one. Made by `open_checkpoint`."""

    def __init__(self, connection: sqlite3.Connection, pieces: dict[int, bytes]) -> None:
        self._connection = connection
        self._synced = 0.0
        self.pieces = pieces

    def put(self, content: bytes, number: int | None = None) -> None:
        """Keep a piece, in place of the one with this number, or else after all others."""
        row = (number, content, _checksum(content))
        self._connection.execute("INSERT OR REPLACE INTO piece VALUES (?, ?, ?)", row)
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            self._connection.execute("PRAGMA wal_checkpoint")
            self._synced = time.monotonic()


@contextmanager
def open_checkpoint(path: str | PathLike[str], mark: bytes, *, of: str) -> Iterator[Checkpoint]:
    """Open or make the checkpoint of the run with this mark; one process at a time may hold it.

    ``of`` lists what the mark is made of, for the sentence about a checkpoint of another run.
    """
    import sqlite3

    try:
        with os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), "rb") as file:
            start = file.read(len(_START))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it holds a NUL"
        raise InputError(
            f"`checkpoint` must name a file that can be written, got {os.fspath(path)!r}: {reason}."
        ) from None
    try:
        with closing(sqlite3.connect(path, timeout=0, isolation_level=None)) as connection:
            if start not in (b"", _START):  # SQLite takes a file of a few bytes for an empty one
                raise sqlite3.DatabaseError
            yield Checkpoint(connection, _opened(connection, path, mark, of))
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise InputError("`checkpoint` must not be in use by another run, got a file that is.") from None
        raise InputError(f"`checkpoint` must name a file that can be written, got one that cannot: {error}.") from None
    except sqlite3.DatabaseError:
        raise FileFormatError(
            "`checkpoint` must name a checkpoint of this version of empriv or a new file, got another kind of file, "
            "or a damaged one. Hint: name another file, or delete this one."
        ) from None


def _opened(connection: sqlite3.Connection, path: str | PathLike[str], mark: bytes, of: str) -> dict[int, bytes]:
    """The whole pieces in the file, which is this run's from here on."""
    import sqlite3

    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    tables = [sql for (sql,) in connection.execute("SELECT sql FROM sqlite_master ORDER BY rowid")]
    if tables not in ([], _TABLES):
        raise sqlite3.DatabaseError  # somebody else's, or with tables that would do more than hold pieces
    if tables and [stored for (stored,) in connection.execute("SELECT mark FROM run")] != [mark]:
        raise InputError(
            f"`checkpoint` must be of this very run, got one of another: the {of} differ. "
            "Hint: name another file, or delete this one."
        )
    Path(path).chmod(0o600)
    if not tables:
        connection.execute("BEGIN EXCLUSIVE")
        for table in _TABLES:
            connection.execute(table)
        connection.execute("INSERT INTO run VALUES (?)", (mark,))
        connection.execute("COMMIT")
    # A log beside the file: putting a piece costs one write, and waits for no disk.
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("BEGIN EXCLUSIVE")  # the lock is kept from here on, until the file is closed
    rows = connection.execute("SELECT * FROM piece WHERE typeof(content) = 'blob' ORDER BY number").fetchall()
    connection.execute("COMMIT")
    return {number: content for number, content, checksum in rows if checksum == _checksum(content)}


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()
