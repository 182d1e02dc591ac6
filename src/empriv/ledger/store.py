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
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from empriv.errors import LedgerError
from empriv.ledger.chain import START, Digests, Indexed, KeptRows, Row, link, pieces

# "EPLG" in ASCII.
APPLICATION_ID = 0x45504C47
VERSION = 4
_AT_ONCE = 500  # digests in one question to SQLite
_CHAIN = (
    "CREATE TABLE entries (id INTEGER PRIMARY KEY, body TEXT NOT NULL, previous TEXT NOT NULL UNIQUE, "
    "hash TEXT NOT NULL UNIQUE)",
    "CREATE TABLE identities (fingerprint TEXT PRIMARY KEY, cut TEXT NOT NULL, individual TEXT NOT NULL, "
    "labels BLOB NOT NULL, sources BLOB NOT NULL)",
    "CREATE TABLE results (entry INTEGER PRIMARY KEY REFERENCES entries (id), content BLOB NOT NULL)",
    "CREATE TABLE secret (id INTEGER PRIMARY KEY CHECK (id = 1), content BLOB NOT NULL)",
    "CREATE TABLE head (id INTEGER PRIMARY KEY CHECK (id = 1), count INTEGER NOT NULL, hash TEXT NOT NULL)",
)
# What a release is found by, without reading the chain: identities by number, label and source; releases by question.
_INDEX = (
    "CREATE TABLE numbers (id INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL UNIQUE)",
    "CREATE TABLE labels (digest BLOB NOT NULL, number INTEGER NOT NULL, PRIMARY KEY (digest, number)) WITHOUT ROWID",
    "CREATE TABLE sources (digest BLOB NOT NULL, cut TEXT NOT NULL, number INTEGER NOT NULL, "
    "PRIMARY KEY (digest, cut, number)) WITHOUT ROWID",
    "CREATE TABLE releases (entry INTEGER PRIMARY KEY REFERENCES entries (id), fingerprint TEXT NOT NULL, "
    "question TEXT NOT NULL, database TEXT NOT NULL, answer TEXT, people TEXT, shape TEXT NOT NULL, rows TEXT, "
    "label TEXT NOT NULL, further INTEGER NOT NULL)",
    "CREATE TABLE sketches (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, kind TEXT NOT NULL, "
    "reach REAL NOT NULL, count INTEGER NOT NULL)",
    "CREATE TABLE row_digests (digest INTEGER NOT NULL, sketch INTEGER NOT NULL, PRIMARY KEY (digest, sketch)) "
    "WITHOUT ROWID",
    "CREATE TABLE policies (entry INTEGER PRIMARY KEY REFERENCES entries (id))",
    "CREATE INDEX releases_database ON releases (question, database)",
    "CREATE INDEX releases_people ON releases (people) WHERE people IS NOT NULL",
    "CREATE INDEX releases_rows ON releases (rows)",
    "CREATE INDEX releases_label ON releases (database)",
    "CREATE INDEX releases_question ON releases (fingerprint, question, database)",
    "CREATE INDEX releases_further ON releases (fingerprint) WHERE further",
)


def _append_only(*tables: str) -> tuple[str, ...]:
    return tuple(
        f"CREATE TRIGGER {table}_no_{action.lower()} BEFORE {action} ON {table} "
        "BEGIN SELECT raise(ABORT, 'append only'); END"
        for table in tables
        for action in ("UPDATE", "DELETE")
    )


_TRIGGERS = (
    *_append_only("entries", "identities", "results", "secret", "numbers", "labels", "sources", "releases", "policies"),
    *_append_only("sketches", "row_digests"),
    "CREATE TRIGGER head_no_delete BEFORE DELETE ON head BEGIN SELECT raise(ABORT, 'append only'); END",
    "CREATE TRIGGER head_forward BEFORE UPDATE ON head WHEN NEW.count IS NOT OLD.count + 1 "
    "BEGIN SELECT raise(ABORT, 'append only'); END",
)
_TABLES = (*_CHAIN, *_INDEX)
_SCHEMA = frozenset((*_TABLES, *_TRIGGERS))
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_DAMAGED = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FORMAT}
_READ_ONLY = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH)
_CAUSES = dict.fromkeys(_READ_ONLY, "must be writable, and so must its directory.") | {
    sqlite3.SQLITE_FULL: "cannot grow: the disk is full.",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk fails, or a limit on file sizes is reached.",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened, or its journal cannot be made beside it.",
    sqlite3.SQLITE_CONSTRAINT: "only grows: an entry is never changed, removed or written twice.",
    sqlite3.SQLITE_TOOBIG: "cannot hold an entry or results of that size.",
}


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
    except UnicodeDecodeError:
        # Of a schema that was overwritten SQLite's own words cannot be read.
        raise LedgerError(_broken(path)) from None


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
    name = digests.fingerprint
    connection.execute(
        "INSERT OR IGNORE INTO identities (fingerprint, cut, individual, labels, sources) VALUES (?, ?, ?, ?, ?)",
        (name, digests.cut, digests.individual, digests.labels, digests.sources),
    )
    if connection.execute("SELECT 1 FROM numbers WHERE fingerprint = ?", (name,)).fetchone() is None:
        number = connection.execute("INSERT INTO numbers (fingerprint) VALUES (?)", (name,)).lastrowid
        rows = [(piece, number) for piece in sorted(pieces(digests.labels))]
        connection.executemany("INSERT INTO labels (digest, number) VALUES (?, ?)", rows)
        named = [(piece, digests.cut, number) for piece in sorted(pieces(digests.sources))]
        connection.executemany("INSERT INTO sources (digest, cut, number) VALUES (?, ?, ?)", named)


def add_release(connection: sqlite3.Connection, row: Indexed) -> None:
    """Keep what a release is found by."""
    connection.execute("INSERT INTO releases VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", astuple(row))


def add_rows(connection: sqlite3.Connection, rows: KeptRows) -> None:
    """Keep the sketch of a database's rows, once."""
    if connection.execute("SELECT 1 FROM sketches WHERE name = ?", (rows.name,)).fetchone() is not None:
        return
    facts = (rows.name, rows.kind, rows.reach, len(rows.digests))
    added = "INSERT INTO sketches (name, kind, reach, count) VALUES (?, ?, ?, ?)"
    number = connection.execute(added, facts).lastrowid
    connection.executemany("INSERT INTO row_digests VALUES (?, ?)", [(digest, number) for digest in rows.digests])


def shared_rows(connection: sqlite3.Connection, rows: KeptRows) -> dict[str, tuple[int, int, float]]:
    """Earlier sketches that share digests with this one, by name: how many they share, how many they have, reach."""
    asked = (
        "SELECT name, count(*), sketches.count, reach FROM row_digests JOIN sketches ON sketches.id = sketch "
        f"WHERE digest IN ({','.join('?' * len(rows.digests))}) GROUP BY name"
    )
    found = connection.execute(asked, rows.digests)
    return {str(name): (shared, count, reach) for name, shared, count, reach in found}


def sketches_beyond(connection: sqlite3.Connection, rows: KeptRows, least: float, sample: int) -> set[str]:
    """Names of the sketches of another kind, and of those that reach so little that a sample is too small.

    ``least`` is the reach within which ``sample`` digests of these rows lie.
    """
    asked = (
        "SELECT name FROM sketches WHERE kind <> :kind OR "
        "(NOT (reach = 1 AND :reach = 1) AND (reach < :least OR count * min(1, :reach / reach) < :sample))"
    )
    bound = {"kind": rows.kind, "reach": rows.reach, "least": least, "sample": sample}
    return {str(row[0]) for row in connection.execute(asked, bound)}


def add_policy(connection: sqlite3.Connection, entry: int) -> None:
    """Keep where a policy is found."""
    connection.execute("INSERT INTO policies (entry) VALUES (?)", (entry,))


def read_rows(connection: sqlite3.Connection, first: int = 1, last: int = 2**62) -> list[Row]:
    """Entries in their order: all, or a stretch."""
    asked = "SELECT id, body, previous, hash FROM entries WHERE id BETWEEN ? AND ? ORDER BY id"
    return [Row(number, str(body), str(previous), str(own)) for number, body, previous, own in
            connection.execute(asked, (first, last))]  # fmt: skip


def read_last(connection: sqlite3.Connection) -> int:
    """Number of the last entry that is there, 0 if there is none."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM entries").fetchone()[0])


def read_head(connection: sqlite3.Connection) -> tuple[int, str] | None:
    """Number of entries and hash of the last, as noted apart from them; None if that is not what empriv wrote."""
    found = connection.execute("SELECT count, hash FROM head").fetchall()
    if len(found) != 1 or not (isinstance(found[0][0], int) and isinstance(found[0][1], str)):
        return None
    return found[0][0], found[0][1]


def read_key(connection: sqlite3.Connection) -> bytes:
    """The key of the digests; empty if it is gone."""
    found = connection.execute("SELECT content FROM secret").fetchall()
    return bytes(found[0][0]) if len(found) == 1 and isinstance(found[0][0], bytes) else b""


def read_identities(connection: sqlite3.Connection, fingerprint: str | None = None) -> dict[str, Digests]:
    """What each fingerprint stands for, or one alone."""
    where = "" if fingerprint is None else " WHERE fingerprint = :name"
    asked = f"SELECT fingerprint, cut, individual, labels, sources FROM identities{where}"
    return {
        # Whatever is no bytes gives another fingerprint, which shows.
        str(name): Digests(str(cut), str(individual), *(one if isinstance(one, bytes) else b"" for one in rest))
        for name, cut, individual, *rest in connection.execute(asked, {"name": fingerprint})
    }


def read_results(connection: sqlite3.Connection, entry: int) -> bytes | None:
    """The archive kept with an entry."""
    found = connection.execute("SELECT content FROM results WHERE entry = ?", (entry,)).fetchone()
    return found[0] if found is not None and isinstance(found[0], bytes) else None


def releases(
    connection: sqlite3.Connection, stretch: tuple[int, int] | None = None, **wanted: str | None
) -> dict[int, Indexed]:
    """What releases are found by, in their order: all, those of a stretch of entries, or those with these digests."""
    names = [one.name for one in fields(Indexed)]
    where = [f"{name} IS NULL" if value is None else f"{name} = :{name}" for name, value in wanted.items()]
    if stretch is not None:
        where.append(f"entry BETWEEN {stretch[0]} AND {stretch[1]}")
    asked = f"SELECT {', '.join(names)} FROM releases WHERE {' AND '.join(where) or 'TRUE'} ORDER BY entry"
    found = {}
    for entry, *rest, further in connection.execute(asked, wanted):
        # Whatever is no text was changed by somebody: as a text it is another, which shows.
        texts = [None if one is None else str(one) for one in rest]
        facts: dict[str, Any] = dict(zip(names, (entry, *texts, bool(further)), strict=True))
        found[entry] = Indexed(**facts)
    return found


def entries_from(connection: sqlite3.Connection, fingerprints: Iterable[str]) -> list[int]:
    """Numbers of the releases for these sets of audited databases."""
    asked = "SELECT entry FROM releases WHERE fingerprint = ?"
    return sorted(row[0] for name in fingerprints for row in connection.execute(asked, (name,)))


def prices_entry(connection: sqlite3.Connection, plan: str) -> int | None:
    """Number of the entry that holds the prices of a plan, None if there is none yet."""
    asked = (
        "SELECT entries.id FROM results JOIN entries ON entries.id = results.entry "
        "WHERE json_extract(body, '$.kind') = 'prices' AND json_extract(body, '$.plan') = ?"
    )
    row = connection.execute(asked, (plan,)).fetchone()
    return None if row is None else int(row[0])


def read_spent(connection: sqlite3.Connection) -> Iterator[tuple[int | None, int | None, str, str]]:
    """Of each release, the latest first: the entry of its prices, its day, its time, what it achieved as JSON."""
    asked = (
        "SELECT json_extract(body, '$.prices'), json_extract(body, '$.day'), json_extract(body, '$.time'), "
        "json_extract(body, '$.achieved') FROM releases JOIN entries ON entries.id = releases.entry "
        "ORDER BY entries.id DESC"
    )
    yield from connection.execute(asked)


def last_from(connection: sqlite3.Connection, fingerprints: Iterable[str]) -> tuple[int, int]:
    """How many releases there are for these sets of audited databases, and the number of the last."""
    asked = "SELECT count(*), coalesce(max(entry), 0) FROM releases WHERE fingerprint = ?"
    counts = [connection.execute(asked, (name,)).fetchone() for name in fingerprints]
    return sum(count for count, _ in counts), max((last for _, last in counts), default=0)


def questions_from(connection: sqlite3.Connection, fingerprints: Iterable[str]) -> tuple[set[str], int]:
    """Different questions for these sets of audited databases, and how many releases count beside their own."""
    # Steps from one question to the next in the index: the work is that of the questions, not that of the releases.
    steps = (
        "WITH RECURSIVE step (question) AS (SELECT min(question) FROM releases WHERE fingerprint = :name UNION ALL "
        "SELECT (SELECT min(question) FROM releases WHERE fingerprint = :name AND question > step.question) FROM step "
        "WHERE step.question IS NOT NULL) SELECT question FROM step WHERE question IS NOT NULL"
    )
    beside = "SELECT count(*) FROM releases WHERE further AND fingerprint = ?"
    questions: set[str] = set()
    further = 0
    for name in fingerprints:
        questions.update(str(row[0]) for row in connection.execute(steps, {"name": name}))
        further += connection.execute(beside, (name,)).fetchone()[0]
    return questions, further


def overlaps(connection: sqlite3.Connection, digests: Digests) -> dict[str, int]:
    """Sets of audited databases that overlap with these, by fingerprint, and how many databases each shares.

    Where the same source was cut in another way (weeks instead of days) labels cannot tell: the databases then
    overlap although none is shared by name, and 0 is returned.
    """
    shared: dict[int, int] = {}
    for source in pieces(digests.sources):
        for side in ("<", ">"):
            asked = f"SELECT number FROM sources WHERE digest = ? AND cut {side} ?"
            shared |= {row[0]: 0 for row in connection.execute(asked, (source, digests.cut))}
    wanted = list(pieces(digests.labels))
    for at in range(0, len(wanted), _AT_ONCE):
        some = wanted[at : at + _AT_ONCE]
        asked = f"SELECT number, count(*) FROM labels WHERE digest IN ({','.join('?' * len(some))}) GROUP BY number"
        for number, count in connection.execute(asked, some):
            shared[number] = shared.get(number, 0) + count
    asked = "SELECT fingerprint FROM numbers WHERE id = ?"
    names = {number: connection.execute(asked, (number,)).fetchone() for number in shared}
    return {str(names[number][0]): count for number, count in shared.items() if names[number] is not None}


def read_policy(connection: sqlite3.Connection) -> int:
    """Number of the entry that says which policy holds."""
    return int(connection.execute("SELECT coalesce(max(entry), 0) FROM policies").fetchone()[0])


def search_faults(connection: sqlite3.Connection, identities: dict[str, Digests], policies: list[int]) -> list[str]:
    """What does not agree, among the tables that things are found by, with what they were made from."""
    numbers = {row[0]: str(row[1]) for row in connection.execute("SELECT id, fingerprint FROM numbers")}
    labels: dict[int, list[Any]] = {number: [] for number in numbers}
    for number, digest in connection.execute("SELECT number, digest FROM labels ORDER BY number, digest"):
        labels.setdefault(number, []).append(digest)
    sources: dict[int, set[Any]] = {number: set() for number in numbers}
    for number, digest, cut in connection.execute("SELECT number, digest, cut FROM sources"):
        sources.setdefault(number, set()).add((digest, str(cut)))
    same = sorted(numbers.values()) == sorted(identities) and labels.keys() == sources.keys() == numbers.keys()
    for number, name in numbers.items() if same else ():
        digests = identities[name]
        same = same and labels[number] == sorted(pieces(digests.labels))
        same = same and sources[number] == {(piece, digests.cut) for piece in pieces(digests.sources)}
    digests_of: dict[int, list[int]] = {}
    for number, digest in connection.execute("SELECT sketch, digest FROM row_digests ORDER BY sketch, digest"):
        digests_of.setdefault(number, []).append(digest)
    sketches = connection.execute("SELECT id, name, kind, reach, count FROM sketches").fetchall()
    for number, name, kind, reach, count in sketches:
        held = tuple(digests_of.pop(number, ()))
        same = same and len(held) == count and KeptRows(str(kind), reach, held).name == name
    named = {row[1] for row in sketches}
    told = {row[0] for row in connection.execute("SELECT rows FROM releases WHERE rows IS NOT NULL")}
    same = same and not digests_of and named == told
    kept = [row[0] for row in connection.execute("SELECT entry FROM policies ORDER BY entry")]
    faults = [] if same else ["What databases are found by, their labels, sources and rows, is missing or was changed."]
    return faults if kept == policies else [*faults, "The list of policies is missing or was changed."]


def schema_faults(connection: sqlite3.Connection) -> tuple[list[str], bool]:
    """Tables and triggers that are not as they were made; and whether all tables are, so that they can be read."""
    found = {row[0] for row in connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")}
    faults = []
    if _SCHEMA - found:
        faults.append("Tables, or triggers that refuse changes, are missing or were changed.")
    if found - _SCHEMA:
        faults.append("There are tables or triggers that empriv did not make.")
    return faults, found.issuperset(_TABLES)


def version_of(connection: sqlite3.Connection) -> tuple[int, bool]:
    """Version of the file's format, and whether `verify` found damage in it and said so there."""
    number = int(connection.execute("PRAGMA user_version").fetchone()[0])
    return abs(number), number < 0


def mark_damaged(connection: sqlite3.Connection, damaged: bool) -> None:
    """Say in the file's first page, by the sign of its version, whether it is damaged: nothing else is touched."""
    version, marked = version_of(connection)
    if marked != damaged:
        connection.execute(f"PRAGMA user_version = {-version if damaged else version}")


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
        add_policy(connection, 1)


def _check_kind(connection: sqlite3.Connection, path: Path) -> None:
    if connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise LedgerError(f"The file {path.name!r} must be a ledger, got a file of another kind.")
    version, _ = version_of(connection)
    if version != VERSION:
        raise LedgerError(f"The ledger {path.name!r} has format version {version}; this empriv reads {VERSION}.")


def _sentence(error: sqlite3.Error, path: Path) -> str:
    """What went wrong. SQLite's own words are left out where they could quote what was written."""
    # Errors that Python raises by itself have no code.
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
    kept = "Nothing was written or released."
    if code in _DAMAGED:
        return _broken(path)
    if code == sqlite3.SQLITE_NOTADB:
        return f"The file {path.name!r} must be a ledger, got a file of another kind."
    if code in _LOCKED:
        return f"The ledger {path.name!r} is locked by another process for too long. {kept} Hint: try again."
    if code == sqlite3.SQLITE_IOERR:  # whether something was written is not known
        kept = ""
    cause = _CAUSES.get(code, f"cannot be used: SQLite reports {getattr(error, 'sqlite_errorname', 'an error')}.")
    return f"The ledger {path.name!r} {cause} {kept}".rstrip()


def _broken(path: Path) -> str:
    return (
        f"The ledger {path.name!r} is damaged. Nothing was written or released. "
        "Hint: `empriv ledger verify`, and a copy kept elsewhere."
    )


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
