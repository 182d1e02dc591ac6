"""Finished pieces of work, kept in a file from which an interrupted run goes on.

The file is an SQLite database with the mark of the run and one row for each piece. A piece is safe as soon as it is
put, whatever happens to this process; a crash of the machine loses what was put in the last quarter of a second. The
file holds results without individuals, hence mode 0600. What a piece means is for the caller; nothing is pickled.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from empriv.errors import FileFormatError, InputError

if TYPE_CHECKING:
    import sqlite3

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
