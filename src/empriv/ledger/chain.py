"""The hash chain, and the digests that stand for databases: pure functions of bytes and texts.

Each entry's hash covers its text and the hash before it, so that no entry can be changed, taken out, put in or moved
without changing every later hash. Whoever can write the file can also compute all hashes anew: that shows only against
a head that was noted elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from empriv.errors import InputError
from empriv.ledger.values import Entry, Head, Identity, PolicyEntry, canonical, entry_from_json

START = "0" * 64
_SIZE = 32


def link(previous: str, body: str) -> str:
    """Hash of an entry: SHA-256 of the previous hash, a newline and the entry's canonical JSON."""
    return hashlib.sha256(f"{previous}\n{body}".encode()).hexdigest()


@dataclass(frozen=True)
class Row:
    """An entry as the file has it."""

    id: int
    body: str
    previous: str
    hash: str


@dataclass(frozen=True)
class Digests:
    """An `Identity` with every name replaced by a keyed digest.

    ``labels`` and ``sources`` are sorted digests of 32 bytes, one after the other.
    """

    cut: str
    individual: str
    labels: bytes
    sources: bytes

    @property
    def fingerprint(self) -> str:
        """One digest of all of it, so that an entry's hash also covers what its fingerprint stands for."""
        parts = (self.cut, self.individual, _sha(self.labels), _sha(self.sources))
        return _sha("\n".join(parts).encode())

    @property
    def n_databases(self) -> int:
        return len(self.labels) // _SIZE

    def overlap(self, other: Digests) -> int | None:
        """How many databases are in both, None if the data have nothing in common.

        Where the same source was cut in another way (weeks instead of days) labels cannot tell: the databases then
        overlap although none is shared by name, and 0 is returned.
        """
        shared = len(_pieces(self.labels) & _pieces(other.labels))
        if shared:
            return shared
        recut = self.cut != other.cut and _pieces(self.sources) & _pieces(other.sources)
        return 0 if recut else None


def digests_of(identity: Identity, key: bytes) -> Digests:
    """Keyed digests of an identity."""

    def many(kind: str, names: Iterable[str]) -> bytes:
        return b"".join(sorted(bytes.fromhex(_keyed(key, kind, identity.scope, name)) for name in names))

    return Digests(
        cut=_keyed(key, "cut", identity.scope, identity.cut),
        individual=_keyed(key, "individual", identity.scope, *identity.individual),
        labels=many("database", identity.labels),
        sources=many("source", identity.sources),
    )


def database_digest(label: str, *, scope: str, key: bytes) -> str:
    """Keyed digest of one database's label."""
    return _keyed(key, "database", scope, label)


def key_digest(key: bytes) -> str:
    """What the first entry says of the key, so that a changed key shows."""
    return _sha(b"empriv ledger key\n" + key)


def faults_of(rows: Sequence[Row], head: tuple[int, str] | None, key: bytes) -> list[str]:
    """What is wrong with a chain, in sentences; nothing if it is whole."""
    previous = START
    faults = []
    for place, row in enumerate(rows, start=1):
        if row.id != place:
            faults.append(f"Entry {place} is missing: entry {row.id} stands in its place.")
            break
        if row.previous != previous:
            faults.append(f"Entry {place} does not follow the entry before it.")
        if row.hash != link(row.previous, row.body):
            faults.append(f"Entry {place} was changed: its hash is not that of its text.")
        previous = row.hash
    if not rows:
        return ["There is no entry, not even the first."]
    if head is None:
        faults.append("The record of the last entry is missing.")
    elif head[0] > len(rows):
        faults.append(f"Entries are missing at the end: {head[0]} were written, {len(rows)} are there.")
    elif head != (len(rows), rows[-1].hash):
        faults.append("The last entry is not the one that the ledger ended with.")
    if not faults:
        faults += _unreadable(rows, key)
    return faults


def entries_of(rows: Sequence[Row]) -> tuple[Entry, ...]:
    """Entries from a chain without faults."""
    return tuple(entry_from_json(json.loads(row.body), previous=row.previous, hash=row.hash) for row in rows)


def head_of(rows: Sequence[Row]) -> Head:
    """Where a chain ends."""
    return Head(len(rows), rows[-1].hash)


def _unreadable(rows: Sequence[Row], key: bytes) -> list[str]:
    """Entries whose hash is right and whose text is none that empriv writes."""
    for row in rows:
        try:
            facts = json.loads(row.body)
            entry = entry_from_json(facts, previous=row.previous, hash=row.hash)
            if facts["id"] != row.id or canonical(facts, name="entry") != row.body:
                raise ValueError("not canonical")
            if row.id == 1 and facts["kind"] != "created":
                raise ValueError("not a first entry")
            if row.id == 1 and facts["key"] != key_digest(key):
                return ["The key of the digests is not the one that the ledger was created with."]
            if row.id > 1 and entry.kind == "created":
                raise ValueError("created twice")
        except (KeyError, TypeError, ValueError, RecursionError, InputError):
            return [f"Entry {row.id} cannot be understood."]
    return []


def last_policy(entries: Sequence[Entry]) -> PolicyEntry:
    """The entry that says which policy holds."""
    return [entry for entry in entries if isinstance(entry, PolicyEntry)][-1]


def _keyed(key: bytes, *parts: str) -> str:
    # JSON keeps the parts apart, whatever they hold.
    return hmac.new(key, canonical(parts, name="identity").encode(), hashlib.sha256).hexdigest()


def _pieces(content: bytes) -> set[bytes]:
    return {content[at : at + _SIZE] for at in range(0, len(content), _SIZE)}


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
