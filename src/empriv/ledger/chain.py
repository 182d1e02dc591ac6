"""The hash chain, and the digests that stand for databases: pure functions of bytes and texts.

Each entry's hash covers its text and the hash before it, so that no entry can be changed, taken out, put in or moved
without changing every later hash. Whoever can write the file can also compute all hashes anew: that shows only against
a head that was noted elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from empriv.base.row_sketches import RowSketch
from empriv.collecting.sql.forms import form_of
from empriv.ledger.values import (
    Entry,
    Head,
    Identity,
    Release,
    ReleaseEntry,
    canonical,
    entry_from_json,
    label_text,
)

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

    @property
    def databases(self) -> frozenset[str]:
        """Digests of the databases, as an entry has the one that it was released from."""
        return frozenset(piece.hex() for piece in pieces(self.labels))


def digests_of(identity: Identity, key: bytes) -> Digests:
    """Keyed digests of an identity."""

    def many(kind: str, names: Iterable[str]) -> bytes:
        return b"".join(sorted(bytes.fromhex(keyed(key, kind, identity.scope, name)) for name in names))

    return Digests(
        cut=keyed(key, "cut", identity.scope, identity.cut),
        individual=keyed(key, "individual", identity.scope, *identity.individual),
        labels=many("database", identity.labels),
        sources=many("source", identity.sources),
    )


@dataclass(frozen=True)
class Indexed:
    """What is kept of a release apart from the chain, by which it is found again; all digests are keyed.

    Attributes
    ----------
    entry : its number
    fingerprint : of the databases audited
    question : query in its one form, component and law
    database : the label of the one released from
    answer : its true answer with the question; None where nobody said
    people : that and the answers without each individual, with the noise, whatever the query; None likewise
    shape : digests of what people change the answer by, beside each other; empty where nobody does
    rows : of the sketch of its rows; None where nobody made one
    label : of the database, sealed
    further : whether it may be of the same database as an earlier release of the same question
    """

    entry: int
    fingerprint: str
    question: str
    database: str
    answer: str | None
    people: str | None
    shape: str
    rows: str | None
    label: str
    further: bool

    def commitment(self, key: bytes) -> str:
        """What the entry says of it. Other databases have other commitments: it does not tell equal answers."""
        content = (self.question, self.database, self.answer or "", self.people or "", self.shape, self.rows or "")
        return keyed(key, "content", *content, self.label, str(self.further))


def indexed(release: Release, digests: Digests, key: bytes, *, entry: int, further: bool) -> Indexed:
    """What is kept of a release that is asked for."""
    question = question_digest(release, key)
    content = release.content
    answer = None if content is None else keyed(key, "answer", question, content.answer)
    people, shape, rows = None, "", None
    if content is not None and content.people is not None:
        # The scope is left out: the same people with the same answers are the same under any name. So is the query:
        # one that has the same answers with everyone and without each individual asks the same.
        unit = canonical(release.identity.individual, name="individual")
        law = canonical(_to_nine_digits(dict(release.law)), name="law")
        people = keyed(key, "people", law, content.answer, unit, content.people)
        shape = " ".join(keyed(key, "shape", unit, text) for text in content.shape)
    if release.rows is not None:
        rows = keep_rows(release.rows, key).name
    label = label_text(release.database)
    database = database_digest(label, scope=release.identity.scope, key=key)
    sealed = sealed_label(label.encode(), database, key).hex()
    return Indexed(entry, digests.fingerprint, question, database, answer, people, shape, rows, sealed, further)


def sealed_label(content: bytes, database: str, key: bytes) -> bytes:
    """A label that only the key shows, or what was sealed so: bytes mixed with HMACs of the database's digest."""
    blocks = range(-(-len(content) // _SIZE))
    stream = b"".join(bytes.fromhex(keyed(key, "label", database, str(block))) for block in blocks)
    return bytes(one ^ other for one, other in zip(content, stream, strict=False))


def _to_nine_digits(value: Any) -> Any:
    """A law whose numbers are rounded: noise designed for sums in another order differs in the last digit."""
    if isinstance(value, Mapping):
        return {name: _to_nine_digits(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_to_nine_digits(part) for part in value]
    if isinstance(value, str) and value.startswith(("0x", "-0x")):
        value = float.fromhex(value)
    return f"{value:.9g}" if isinstance(value, float) else value


@dataclass(frozen=True)
class KeptRows:
    """The sketch of a database's rows under keyed digests, which tell nobody without the key what the rows are.

    Attributes
    ----------
    kind : how rows were digested
    reach : of the sketch
    digests : of its rows, signed integers, rising
    """

    kind: str
    reach: float
    digests: tuple[int, ...]

    @property
    def name(self) -> str:
        """One digest of all of it."""
        return _sha(canonical([self.kind, self.reach, list(self.digests)], name="rows").encode())


def keep_rows(sketch: RowSketch, key: bytes) -> KeptRows:
    """A sketch as the ledger keeps it."""
    kind = keyed(key, "kind", sketch.kind)
    given = (kind.encode() + int(digest).to_bytes(8, "big") for digest in sketch.digests)
    digests = (int.from_bytes(hmac.digest(key, one, "sha256")[:8], "big", signed=True) for one in given)
    # The last digest is a row's: three digits of it do.
    reach = 1.0 if sketch.reach == 1.0 else min(float(f"{sketch.reach:.3g}"), 0.999)
    return KeptRows(kind, reach, tuple(sorted(digests)))


def question_digest(release: Release | ReleaseEntry, key: bytes) -> str:
    """Keyed digest of what is asked: the same query, component and law, however the query is spelt."""
    form = form_of(release.query)
    law = canonical(dict(release.law), name="law")
    return keyed(key, "question", form, canonical(release.component, name="component"), law)


def database_digest(label: str, *, scope: str, key: bytes) -> str:
    """Keyed digest of one database's label."""
    return keyed(key, "database", scope, label)


def key_digest(key: bytes) -> str:
    """What the first entry says of the key, so that a changed key shows."""
    return _sha(b"empriv ledger key\n" + key)


def faults_of(rows: Sequence[Row], head: tuple[int, str] | None, key: bytes) -> list[str]:
    """What is wrong with a chain, in sentences; nothing if it is whole."""
    if not rows:
        return ["There is no entry, not even the first."]
    faults = link_faults(rows, start=1, previous=START)
    if head is None:
        faults.append("The record of the last entry is missing or cannot be understood.")
    elif head[0] > len(rows):
        faults.append(f"Entries are missing at the end: {head[0]} were written, {len(rows)} are there.")
    elif head != (len(rows), rows[-1].hash):
        faults.append("The last entry is not the one that the ledger ended with.")
    return faults or text_faults(rows, key)


def link_faults(rows: Sequence[Row], *, start: int, previous: str | None) -> list[str]:
    """What is wrong with the links of a stretch of the chain from ``start`` on; ``previous`` None is not looked at."""
    faults = []
    for place, row in enumerate(rows, start=start):
        if row.id != place:
            faults.append(f"Entry {place} is missing: entry {row.id} stands in its place.")
            break
        if previous is not None and row.previous != previous:
            faults.append(f"Entry {place} does not follow the entry before it.")
        if row.hash != link(row.previous, row.body):
            faults.append(f"Entry {place} was changed: its hash is not that of its text.")
        previous = row.hash
    return faults


def index_faults(entries: Iterable[Entry], rows: Mapping[int, Indexed], key: bytes) -> list[str]:
    """Entries whose row in the index is missing or is not what the entry says of it."""
    faults = []
    for entry in entries:
        row = rows.get(entry.id)
        if isinstance(entry, ReleaseEntry):
            said = (entry.fingerprint, entry.database, entry.question, entry.content)
            if row is None or (row.fingerprint, row.database, row.question, row.commitment(key)) != said:
                faults.append(f"What is kept of entry {entry.id}, to know it again, is missing or was changed.")
        elif row is not None:
            faults.append(f"Entry {entry.id} is no release, and is kept as one.")
    return faults


def entries_of(rows: Sequence[Row]) -> tuple[Entry, ...]:
    """Entries from a chain without faults."""
    return tuple(entry_from_json(json.loads(row.body), previous=row.previous, hash=row.hash) for row in rows)


def body_of(number: int, kind: str, facts: Mapping[str, Any]) -> str:
    """The text of an entry that is written now."""
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    return canonical({"id": number, "time": time, "kind": kind, **facts}, name="entry")


def head_of(rows: Sequence[Row]) -> Head:
    """Where a chain ends."""
    return Head(len(rows), rows[-1].hash)


def text_faults(rows: Sequence[Row], key: bytes) -> list[str]:
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
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError):
            return [f"Entry {row.id} cannot be understood."]
    return []


def keyed(key: bytes, *parts: str) -> str:
    """HMAC-SHA256 of several texts."""
    # JSON keeps the parts apart, whatever they hold.
    return hmac.new(key, canonical(parts, name="identity").encode(), hashlib.sha256).hexdigest()


def pieces(content: bytes) -> set[bytes]:
    """Digests that stand one after the other."""
    return {content[at : at + _SIZE] for at in range(0, len(content), _SIZE)}


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
