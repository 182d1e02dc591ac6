"""`Ledger`: releases are checked, drawn and written in one transaction, and shown only after it.

    repeated verbatim? ──yes──▶ the stored answer
           │ no
    policy allows it? ──no──▶ RefusalError, nothing is written
           │ yes
    draw the noise ──▶ write the entry ──▶ commit ──▶ the answer

A crash before the commit leaves nothing, and nothing was shown. A crash after it leaves an entry whose answer may not
have been shown: asking again gives that answer. The file is `store`'s, the chain `chain`'s, the policy `limits`'.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from empriv.errors import InputError, LedgerError, RefusalError
from empriv.ledger import store
from empriv.ledger.chain import (
    Digests,
    Row,
    database_digest,
    digests_of,
    entries_of,
    faults_of,
    head_of,
    key_digest,
    last_policy,
)
from empriv.ledger.limits import refusal
from empriv.ledger.values import (
    Answer,
    Entry,
    Head,
    Identity,
    Policy,
    Release,
    ReleaseEntry,
    answer_of,
    answer_to_json,
    canonical,
    entry_from_json,
    label_text,
    to_json,
)

if TYPE_CHECKING:
    from empriv.results import Results

_TIMEOUT = 30.0


@dataclass(frozen=True)
class Released:
    """What a release gave: the noisy answer, whether it had been given before, and its entry."""

    answer: Answer
    repeated: bool
    entry: ReleaseEntry


@dataclass(frozen=True)
class Verification:
    """What `Ledger.verify` found: how many entries, where the chain ends, and what is wrong in sentences."""

    count: int
    head: Head | None
    faults: tuple[str, ...]

    @property
    def intact(self) -> bool:
        return not self.faults


@dataclass(frozen=True)
class _Content:
    """All that a ledger holds, except results; no entries if the chain has faults."""

    rows: list[Row]
    key: bytes
    identities: dict[str, Digests]
    entries: tuple[Entry, ...] = ()
    faults: list[str] = field(default_factory=list)


class Ledger:
    """What has been released from which databases, in one file that only grows.

    Parameters
    ----------
    path : the file; it is created, with mode 0600, if there is none
    policy : limits on what is released from overlapping databases together. It is written into a new ledger; of an
        existing one it must be the policy that holds
    create : False refuses a path without a file, so that a wrong path is no new and empty ledger
    timeout : seconds to wait for other processes that write

    Examples
    --------
    >>> ledger = empriv.Ledger("releases.ledger", policy=empriv.Policy(epsilon=0.1, delta=0.05, queries=3))
    >>> ledger.policy.queries, len(ledger.entries())
    (3, 1)
    >>> ledger.verify().intact
    True
    """

    def __init__(
        self,
        path: str | PathLike[str],
        *,
        policy: Policy | None = None,
        create: bool = True,
        timeout: float = _TIMEOUT,
    ) -> None:
        if policy is not None and not isinstance(policy, Policy):
            raise InputError(f"`policy` must be a Policy, got {type(policy).__name__}.")
        self.path = Path(path)
        self.timeout = timeout
        if create and not store.exists(self.path):
            key = secrets.token_bytes(32)
            facts = {"key": key_digest(key), "format": "empriv ledger", "version": store.VERSION}
            store.create(self.path, _body(1, "created", {**facts, "policy": to_json(policy or Policy())}), key)
        # Not more: a ledger that was tampered with must still be opened, to be verified.
        with store.opened(self.path, timeout=timeout):
            pass
        if policy is not None and policy != self.policy:
            raise LedgerError(
                f"`policy` must be the one that the ledger {self.path.name!r} holds, got another. "
                "Hint: Ledger.change_policy changes it, and leaves an entry."
            )

    def __repr__(self) -> str:
        return f"Ledger({self.path.name!r})"

    @property
    def policy(self) -> Policy:
        """The policy that holds."""
        return last_policy(self._content().entries).policy

    @property
    def head(self) -> Head:
        """Where the chain ends: noted elsewhere, it lets `verify` see that the file was replaced or cut short."""
        return head_of(self._content().rows)

    def entries(self) -> tuple[Entry, ...]:
        """All entries, in the order in which they were written."""
        return self._content().entries

    def released(self, identity: Identity) -> tuple[ReleaseEntry, ...]:
        """Earlier releases from databases that overlap with these, in their order."""
        content = self._content()
        return tuple(entry for entry, _ in _overlapping(content, digests_of(identity, content.key)))

    def overlap(self, identity: Identity) -> dict[int, int]:
        """How many of these databases each earlier release shares, by the entry's id.

        0 stands for the same source cut into other databases, of which labels cannot tell what they share.
        """
        content = self._content()
        return {entry.id: shared for entry, shared in _overlapping(content, digests_of(identity, content.key))}

    def results_of(self, entry: ReleaseEntry) -> Results | None:
        """Results kept with a release, None if there are none."""
        if entry.results is None:
            return None
        with store.opened(self.path, timeout=self.timeout) as connection:
            content = store.read_results(connection, entry.id)
        if content is None or _sha(content) != entry.results:
            raise _tampered(self.path, f"The results of entry {entry.id} are missing or were changed.")
        return _unpacked(content)

    def release(self, release: Release, draw: Callable[[], Any]) -> Released:
        """Write a release and give its noisy answer; the same release again gives the same answer.

        Parameters
        ----------
        release : what is to be released
        draw : gives the noisy answer, a float or a sequence of floats. It is called once the policy has been found to
            allow the release, while other writers wait, and not at all if the release is a repeated one

        Raises
        ------
        RefusalError
            The policy does not allow it; nothing was drawn or written.
        LedgerError
            The ledger cannot be read or written, or was tampered with.
        """
        archive = None if release.results is None else _packed(release.results)
        with store.opened(self.path, timeout=self.timeout) as connection:
            with store.transaction(connection, write=True):
                content = _read(connection, self.path)
                digests = digests_of(release.identity, content.key)
                facts = _facts(release, digests, content.key)
                for earlier in content.entries:
                    if isinstance(earlier, ReleaseEntry) and earlier.verbatim == facts["verbatim"]:
                        return Released(earlier.answer, True, earlier)
                policy = last_policy(content.entries).policy
                reason = refusal(policy, release, _overlapping(content, digests))
                if reason is not None:
                    raise RefusalError(f"The ledger {self.path.name!r} refuses the release. {reason}")
                facts["answer"] = answer_to_json(answer_of(draw()))
                facts["results"] = None if archive is None else _sha(archive)
                body = _body(len(content.entries) + 1, "release", facts)
                store.add_identity(connection, digests)
                previous = content.rows[-1].hash
                written = store.append(connection, body, previous=previous)
                if archive is not None:
                    store.add_results(connection, len(content.entries) + 1, archive)
            # Only here, after the commit, may anybody see the answer.
            entry = entry_from_json(json.loads(body), previous=previous, hash=written)
            assert isinstance(entry, ReleaseEntry)
            return Released(entry.answer, False, entry)

    def change_policy(self, policy: Policy) -> Entry:
        """Set the policy from here on; the change is an entry of its own."""
        if not isinstance(policy, Policy):
            raise InputError(f"`policy` must be a Policy, got {type(policy).__name__}.")
        with store.opened(self.path, timeout=self.timeout) as connection, store.transaction(connection, write=True):
            content = _read(connection, self.path)
            body = _body(len(content.rows) + 1, "policy", {"policy": to_json(policy)})
            written = store.append(connection, body, previous=content.rows[-1].hash)
            return entry_from_json(json.loads(body), previous=content.rows[-1].hash, hash=written)

    def verify(self, head: Head | str | None = None) -> Verification:
        """Compute every hash anew, and say what is wrong.

        Parameters
        ----------
        head : a `head` noted earlier; the chain must still hold that entry. Without it, a file that was replaced as a
            whole, or cut short by someone who computed the rest anew, looks intact
        """
        noted = Head.parse(head) if isinstance(head, str) else head
        with store.opened(self.path, timeout=self.timeout) as connection, store.transaction(connection, write=False):
            damage = store.damage(connection)
            if damage is not None:
                return Verification(0, None, (damage,))
            content = _content(connection)
            faults = content.faults or _results_faults(connection, content)
        rows = content.rows
        if noted is not None and (noted.count > len(rows) or rows[noted.count - 1].hash != noted.hash):
            faults = [*faults, f"Entry {noted.count} is not the one whose hash was noted, or is missing."]
        return Verification(len(rows), head_of(rows) if rows else None, tuple(faults))

    def export(self, path: str | PathLike[str]) -> int:
        """Write all entries as JSON lines, whole or not at all, and say how many.

        Each line has ``entry``, ``previous`` and ``hash``, from which the chain can be verified without the ledger.
        Labels of databases and results are not in it; noisy answers, which are public, are.
        """
        from empriv.base.storage import write_atomically

        target = Path(path)
        if store.exists(target) and target.samefile(self.path):
            raise LedgerError("The export must go to another file than the ledger.")
        rows = self._content().rows
        lines = [f'{{"entry":{row.body},"hash":"{row.hash}","previous":"{row.previous}"}}\n' for row in rows]
        try:
            write_atomically(target, "".join(lines).encode())
        except OSError as error:
            raise LedgerError(f"The export cannot be written to {target.name!r}: {error.strerror}.") from None
        return len(rows)

    def _content(self) -> _Content:
        with store.opened(self.path, timeout=self.timeout) as connection, store.transaction(connection, write=False):
            return _read(connection, self.path)


def _read(connection: sqlite3.Connection, path: Path) -> _Content:
    """All that the ledger holds; one with a fault is neither read nor written."""
    content = _content(connection)
    if content.faults:
        raise _tampered(path, content.faults[0])
    return content


def _content(connection: sqlite3.Connection) -> _Content:
    faults = store.schema_faults(connection)
    if not store.has_tables(connection):
        return _Content([], b"", {}, faults=faults)
    rows, key = store.read_rows(connection), store.read_key(connection)
    identities = store.read_identities(connection)
    broken = faults_of(rows, store.read_head(connection), key)
    if broken:
        return _Content(rows, key, identities, faults=faults + broken)
    entries = entries_of(rows)
    wrong = {name for name, digests in identities.items() if digests.fingerprint != name}
    faults += [
        f"What entry {entry.id} says of its databases is missing or was changed."
        for entry in entries
        if isinstance(entry, ReleaseEntry) and (entry.fingerprint in wrong or entry.fingerprint not in identities)
    ]
    return _Content(rows, key, identities, entries, faults)


def _results_faults(connection: sqlite3.Connection, content: _Content) -> list[str]:
    faults = []
    for entry in content.entries:
        kept = store.read_results(connection, entry.id)
        noted = entry.results if isinstance(entry, ReleaseEntry) else None
        if noted != (None if kept is None else _sha(kept)):
            faults.append(f"The results of entry {entry.id} are missing or were changed.")
    return faults


def _overlapping(content: _Content, digests: Digests) -> list[tuple[ReleaseEntry, int]]:
    """Earlier releases from overlapping databases, and how many each shares."""
    releases = [entry for entry in content.entries if isinstance(entry, ReleaseEntry)]
    shared = {name: digests.overlap(content.identities[name]) for name in {entry.fingerprint for entry in releases}}
    counted = ((entry, shared[entry.fingerprint]) for entry in releases)
    return [(entry, count) for entry, count in counted if count is not None]


def _facts(release: Release, digests: Digests, key: bytes) -> dict[str, Any]:
    """What an entry says of a release, without its answer."""
    same = {
        "fingerprint": digests.fingerprint,
        "database": database_digest(label_text(release.database), scope=release.identity.scope, key=key),
        "query": release.query.strip(),
        "component": release.component,
        "method": release.method,
        "law": dict(release.law),
        "asked": to_json(release.asked),
    }
    return {
        **same,
        "verbatim": _sha(canonical(same, name="release").encode()),
        "achieved": to_json(release.achieved),
        "joint": None if release.joint is None else to_json(release.joint),
        "n_databases": digests.n_databases,
        "n_individuals": int(release.n_individuals),
    }


def _body(number: int, kind: str, facts: dict[str, Any]) -> str:
    time = datetime.now(UTC).isoformat(timespec="milliseconds")
    return canonical({"id": number, "time": time, "kind": kind, **facts}, name="entry")


def _tampered(path: Path, fault: str) -> LedgerError:
    return LedgerError(f"The ledger {path.name!r} is not as empriv wrote it. {fault} Hint: `empriv ledger verify`.")


def _packed(results: Results) -> bytes:
    # In a directory that nobody else may enter: results are people's influence.
    with tempfile.TemporaryDirectory(prefix="empriv-") as directory:
        path = Path(directory) / "results"
        results.save(path)
        return path.read_bytes()


def _unpacked(content: bytes) -> Results:
    from empriv.results import Results

    with tempfile.TemporaryDirectory(prefix="empriv-") as directory:
        path = Path(directory) / "results"
        path.touch(mode=0o600)
        path.write_bytes(content)
        return Results.load(path)


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
