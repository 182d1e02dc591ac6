"""The ledger's file: SQLite, made whole or not at all, and what can go wrong with it in one sentence each.

Nothing is kept open: each step opens the file, does one transaction and closes it, so that a ledger may be used from
threads and forked processes alike.

The journal is a rollback journal (``DELETE``), not WAL: all committed entries are in the one file, which can be read
where nothing may be written, and no second file belongs to it between transactions. ``synchronous=EXTRA``, since with
``FULL`` a power failure right after a commit may bring the deleted journal back, and undo an entry whose answer was
shown.

The file is opened by SQLite alone. POSIX drops a process's locks on a file when any descriptor of it is closed, so that
reading it here by other means could let another thread's transaction go unprotected.
"""

from __future__ import annotations

import os
import secrets
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from empriv.errors import LedgerError
from empriv.ledger.chain import START, Digests, Row, link

# "EPLG" in ASCII.
APPLICATION_ID = 0x45504C47
VERSION = 1
_APPEND_ONLY = ("entries", "identities", "results", "secret")
_TABLES = (
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, body TEXT NOT NULL, previous TEXT NOT NULL UNIQUE, "
    "hash TEXT NOT NULL UNIQUE)",
    "CREATE TABLE identities (fingerprint TEXT PRIMARY KEY, cut TEXT NOT NULL, individual TEXT NOT NULL, "
    "labels BLOB NOT NULL, sources BLOB NOT NULL)",
    "CREATE TABLE results (entry INTEGER PRIMARY KEY REFERENCES entries (id), content BLOB NOT NULL)",
    "CREATE TABLE secret (id INTEGER PRIMARY KEY CHECK (id = 1), content BLOB NOT NULL)",
    "CREATE TABLE head (id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL, hash TEXT NOT NULL)",
)
_TRIGGERS = (
    *(
        f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} "
        "BEGIN SELECT raise(ABORT, 'append only'); END"
        for table in _APPEND_ONLY
        for action in ("UPDATE", "DELETE")
    ),
    "CREATE TRIGGER head_no_delete BEFORE DELETE ON head BEGIN SELECT raise(ABORT, 'append only'); END",
    "CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count IS NOT OLD.count + 1 "
    "BEGIN SELECT raise(ABORT, 'append only'); END",
)
_SCHEMA = frozenset((*_TABLES, *_TRIGGERS))
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT}


def create(path: Path, first: str, key: bytes) -> None:
    """Make a ledger whose first entry this is, unless there is a file of that name already.

    It is written beside under another name, mode 0600, and linked to its own name when it is complete: nobody ever
    sees half a ledger, and of two processes that create one, one wins and the other opens what it made.
    """
    if not path.parent.is_dir():
        raise LedgerError(f"The ledger must be in a directory that exists, got {path.name!r} in one that does not.")
    journal = path.with_name(path.name + "-journal")
    if journal.exists():
        raise LedgerError(
            f"The ledger {path.name!r} is missing, while the journal of its last write is there. "
            "Hint: put the ledger back; without it, earlier releases are forgotten."
        )
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(6)}.tmp")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        try:
            with opened(temporary, timeout=0.0, check=False) as connection:
                _initialise(connection, first, key)
            with suppress(FileExistsError):
                os.link(temporary, path)
        finally:
            temporary.unlink()
            with suppress(FileNotFoundError):
                temporary.with_name(temporary.name + "-journal").unlink()
        _sync_directory(path.parent)
    except OSError as error:
        raise LedgerError(f"The ledger {path.name!r} cannot be created: {error.strerror}.") from None


def exists(path: Path) -> bool:
    """Whether there is anything under that name."""
    try:
        path.stat()
    except FileNotFoundError:
        return False
    except (OSError, ValueError):
        raise LedgerError(f"The ledger must be a file that can be reached, got {path.name!r}.") from None
    return True


@contextmanager
def opened(path: Path, *, timeout: float, check: bool = True) -> Iterator[sqlite3.Connection]:
    """An open ledger; SQLite's errors become one sentence. ``check=False`` leaves out what the file says it is."""
    if check and not (exists(path) and path.is_file()):
        what = "is no file" if exists(path) else "does not exist"
        raise LedgerError(f"The ledger must be a file, got {path.name!r}, which {what}. Hint: empriv ledger init.")
    try:
        uri = f"{path.absolute().as_uri()}?mode=rw"
        connection = sqlite3.connect(uri, uri=True, timeout=timeout, isolation_level=None)
        # Damaged text is to reach the chain, which says which entry it is.
        connection.text_factory = _text
        try:
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA synchronous = EXTRA")
            if check:
                _check_kind(connection, path)
            yield connection
        finally:
            connection.close()
    except sqlite3.Error as error:
        raise LedgerError(_sentence(error, path)) from error


@contextmanager
def transaction(connection: sqlite3.Connection, *, write: bool) -> Iterator[None]:
    """All of it or nothing. A writer takes its lock at once, so that what it has read stays true until it commits."""
    connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        # Where SQLite has rolled back by itself, or the connection is dying, there is nothing left to undo.
        with suppress(sqlite3.Error):
            if connection.in_transaction:
                connection.execute("ROLLBACK")
        raise


def append(connection: sqlite3.Connection, body: str, *, previous: str) -> str:
    """Add an entry at the end; its hash is returned."""
    digest = link(previous, body)
    connection.execute("INSERT INTO entries (body, previous, hash) VALUES (?, ?, ?)", (body, previous, digest))
    connection.execute("UPDATE head SET count = count + 1, hash = ?", (digest,))
    return digest


def add_results(connection: sqlite3.Connection, entry: int, content: bytes) -> None:
    """Keep an archive of results with an entry."""
    connection.execute("INSERT INTO results (entry, content) VALUES (?, ?)", (entry, content))


def add_identity(connection: sqlite3.Connection, digests: Digests) -> None:
    """Remember what a fingerprint stands for, once."""
    connection.execute(
        "INSERT OR IGNORE INTO identities (fingerprint, cut, individual, labels, sources) VALUES (?, ?, ?, ?, ?)",
        (digests.fingerprint, digests.cut, digests.individual, digests.labels, digests.sources),
    )


def read_rows(connection: sqlite3.Connection) -> list[Row]:
    """All entries in their order."""
    return [Row(*row) for row in connection.execute("SELECT id, body, previous, hash FROM entries ORDER BY id")]


def read_head(connection: sqlite3.Connection) -> tuple[int, str] | None:
    """Number of entries and hash of the last, as noted apart from them."""
    found = connection.execute("SELECT count, hash FROM head").fetchall()
    return (found[0][0], found[0][1]) if len(found) == 1 else None


def read_key(connection: sqlite3.Connection) -> bytes:
    """The key of the digests; empty if it is gone."""
    found = connection.execute("SELECT content FROM secret").fetchall()
    return bytes(found[0][0]) if len(found) == 1 and isinstance(found[0][0], bytes) else b""


def read_identities(connection: sqlite3.Connection) -> dict[str, Digests]:
    """What each fingerprint stands for."""
    rows = connection.execute("SELECT fingerprint, cut, individual, labels, sources FROM identities")
    return {
        # Whatever is no bytes gives another fingerprint, which shows.
        str(fingerprint): Digests(str(cut), str(individual), *(one if isinstance(one, bytes) else b"" for one in rest))
        for fingerprint, cut, individual, *rest in rows
    }


def read_results(connection: sqlite3.Connection, entry: int) -> bytes | None:
    """The archive kept with an entry."""
    found = connection.execute("SELECT content FROM results WHERE entry = ?", (entry,)).fetchone()
    return found[0] if found is not None and isinstance(found[0], bytes) else None


def schema_faults(connection: sqlite3.Connection) -> list[str]:
    """Tables and triggers that are not as they were made."""
    found = {row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    faults = []
    if _SCHEMA - found:
        faults.append("Tables, or triggers that refuse changes, are missing or were changed.")
    if found - _SCHEMA:
        faults.append("There are tables or triggers that empriv did not make.")
    return faults


def has_tables(connection: sqlite3.Connection) -> bool:
    """Whether all tables are as they were made, so that they can be read."""
    return {row[0] for row in connection.execute("SELECT sql FROM sqlite_master")}.issuperset(_TABLES)


def damage(connection: sqlite3.Connection) -> str | None:
    """What SQLite itself finds wrong with the file, None if nothing."""
    try:
        found = [row[0] for row in connection.execute("PRAGMA integrity_check(1)")]
    except sqlite3.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF not in _DAMAGED:
            raise
        found = []
    return None if found == ["ok"] else "The file is damaged: SQLite's integrity check fails."


def _initialise(connection: sqlite3.Connection, first: str, key: bytes) -> None:
    connection.execute("PRAGMA journal_mode = DELETE")
    with transaction(connection, write=True):
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {VERSION}")
        for statement in (*_TABLES, *_TRIGGERS):
            connection.execute(statement)
        connection.execute("INSERT INTO secret (id, content) VALUES (1, ?)", (key,))
        connection.execute("INSERT INTO head (id, count, hash) VALUES (1, 0, '')")
        append(connection, first, previous=START)


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise LedgerError(f"The file {path.name!r} must be a ledger, got a file of another kind.")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise LedgerError(f"The ledger {path.name!r} has format version {version}; this empriv reads {VERSION}.")


def _sentence(error: sqlite3.Error, path: Path) -> str:
    """What went wrong. SQLite's own words are left out where they could quote what was written."""
    # Errors that Python raises by itself have no code.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    primary = code & 0xFF
    name = repr(path.name)
    kept = "Nothing was written or released."
    if primary in _LOCKED:
        return f"The ledger {name} is locked by another process for too long. {kept} Hint: try again."
    if primary in _READ_ONLY:
        return f"The ledger {name} must be writable, and so must its directory. {kept}"
    if primary == sqlite3.SQLITE_NOTADB:
        return f"The file {name} must be a ledger, got a file of another kind."
    if primary in _DAMAGED:
        return f"The ledger {name} is damaged. {kept} Hint: `empriv ledger verify`, and a copy kept elsewhere."
    if primary == sqlite3.SQLITE_FULL:
        return f"The ledger {name} cannot grow: the disk is full. {kept}"
    if primary == sqlite3.SQLITE_IOERR:
        return f"The ledger {name} cannot be read or written: the disk fails, or a limit on file sizes is reached."
    if primary == sqlite3.SQLITE_CANTOPEN:
        return f"The ledger {name} cannot be opened, or its journal cannot be made beside it. {kept}"
    if primary == sqlite3.SQLITE_CONSTRAINT:
        return f"The ledger {name} only grows: an entry is never changed, removed or written twice. {kept}"
    if primary == sqlite3.SQLITE_TOOBIG:
        return f"The ledger {name} cannot hold an entry or results of that size. {kept}"
    return f"The ledger {name} cannot be used: SQLite reports {getattr(error, 'sqlite_errorname', 'an error')}. {kept}"


def _text(content: bytes) -> str:
    return content.decode("utf-8", "backslashreplace")


def _sync_directory(directory: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
