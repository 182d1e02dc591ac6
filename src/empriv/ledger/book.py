"""`Ledger`: releases are checked, drawn and written in one transaction, and shown only after it.

    the ends of the chain, and a stretch of it, as they were written? ──no──▶ LedgerError
           │ yes
    released before, by this name or another? ──yes──▶ the stored answer
           │ no
    policy allows it? ──no──▶ RefusalError, nothing is written
           │ yes
    draw the noise ──▶ write the entry ──▶ commit ──▶ the answer

A crash before the commit leaves nothing, and nothing was shown. A crash after it leaves an entry whose answer may not
have been shown: asking again gives that answer. The work does not grow with the entries: the whole chain is read by
`verify` alone. The file is `store`'s, the chain `chain`'s, the policy `limits`'s.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from empriv.base.storage import archive_from_bytes, archive_to_bytes, write_atomically
from empriv.collecting.sql.forms import form_of
from empriv.errors import InputError, LedgerError, RefusalError
from empriv.ledger import store
from empriv.ledger.chain import (
    START,
    Digests,
    Indexed,
    Row,
    body_of,
    digests_of,
    entries_of,
    faults_of,
    head_of,
    index_faults,
    indexed,
    keep_rows,
    key_digest,
    keyed,
    link_faults,
    sealed_label,
    text_faults,
)
from empriv.ledger.limits import Remaining, refusal, remaining_of, spending_of, spent_words
from empriv.ledger.same_rows import Distinct, EarlierReleases
from empriv.ledger.values import (
    Answer,
    Entry,
    Head,
    Identity,
    Policy,
    PolicyEntry,
    PriceEntry,
    Release,
    ReleaseEntry,
    answer_of,
    answer_to_json,
    entry_from_json,
    to_json,
)

if TYPE_CHECKING:
    from empriv.base.row_sketches import RowSketches
    from empriv.results import Results

_TIMEOUT = 30.0
_CHECKED = 32  # entries at the end, and somewhere in the chain, that each step computes anew


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
            store.create(self.path, body_of(1, "created", {**facts, "policy": to_json(policy or Policy())}), key)
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
        with self._checked() as checked:
            return checked.policy()

    @property
    def head(self) -> Head:
        """Where the chain ends: noted elsewhere, it lets `verify` see that the file was replaced or cut short."""
        with self._checked() as checked:
            return checked.head

    def entries(self) -> tuple[Entry, ...]:
        """All entries, in the order in which they were written."""
        with self._open() as connection:
            return _whole(connection, self.path).entries

    def released(self, identity: Identity, rows: RowSketches | None = None) -> tuple[ReleaseEntry, ...]:
        """Earlier releases from databases that overlap with these by name, or share rows with them, in their order."""
        with self._checked() as checked:
            connection, digests = checked.connection, digests_of(identity, checked.key)
            found: dict[int, Indexed] = {}
            for name in store.overlaps(connection, digests):
                found |= store.releases(connection, fingerprint=name)
            distinct = Distinct(connection, identity, digests)
            for sketch in [None] if rows is None else map(rows.of, range(len(rows))):
                found |= {row.entry: row for row in distinct.sharing_rows(sketch, checked.key)}
            return tuple(checked.entry(found[number]) for number in sorted(found))

    def results_of(self, entry: ReleaseEntry) -> Results | None:
        """Results kept with a release, None if there are none."""
        if entry.results is None:
            return None
        with store.opened(self.path, timeout=self.timeout) as connection:
            content = store.read_results(connection, entry.id)
        if content is None or _sha(content) != entry.results:
            raise _tampered(self.path, f"The results of entry {entry.id} are missing or were changed.")
        from empriv.results import Results

        return Results.from_parts(*archive_from_bytes(content, kinds=("results",)))

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
            The policy, or a checker, does not allow it; nothing was drawn or written.
        LedgerError
            The ledger cannot be read or written, or was tampered with.
        """
        if release.review is not None and release.review.outcome == "refused":
            raise RefusalError("A checker refused this release. Hint: change the query or its noise, and ask again.")
        archive = None
        if release.results is not None:
            meta, arrays = release.results.to_parts()
            archive = archive_to_bytes(kind="results", meta=meta, arrays=arrays)
        form_of(release.query)  # parsed, and remembered, before others have to wait
        with self._checked(write=True) as checked:
            connection, key = checked.connection, checked.key
            digests = digests_of(release.identity, key)
            asked = indexed(release, digests, key, entry=checked.head.count + 1, further=False)
            sharing = store.overlaps(connection, digests)
            earlier = EarlierReleases(connection, release, digests, asked, key, tuple(sharing))
            for row in earlier.same_rows:
                sharing.setdefault(row.fingerprint, 0)
            stored = earlier.stored()
            if stored is not None:
                entry = checked.entry(stored)
                return Released(entry.answer, True, entry)
            asked = replace(asked, further=earlier.further())
            policy = checked.policy()
            reason = checked.refusal(policy, earlier, asked, sharing)
            spending = None
            if reason is None and policy.window is not None:
                spending = spending_of(connection, policy, release, asked.entry, key)
                reason = spending.refusal
            reason = checked.scaled(earlier) if reason is None else reason
            if reason is not None:
                raise RefusalError(f"The ledger {self.path.name!r} refuses the release. {reason}")
            facts = _facts(release, digests, asked, key)
            facts["answer"] = answer_to_json(answer_of(draw()))
            facts["results"] = None if archive is None else _sha(archive)
            previous = checked.head.hash
            if spending is not None:
                facts |= {"prices": spending.held_by, "day": spending.day}
                if spending.written is not None:  # the prices take the number that the release was to have
                    text, content = spending.written
                    previous = store.append(connection, text, previous=previous)
                    store.add_results(connection, spending.held_by, content)
                    asked = replace(asked, entry=asked.entry + 1)
            body = body_of(asked.entry, "release", facts)
            store.add_identity(connection, digests)
            written = store.append(connection, body, previous=previous)
            store.add_release(connection, asked)
            if release.rows is not None:
                store.add_rows(connection, keep_rows(release.rows, key))
            if archive is not None:
                store.add_results(connection, asked.entry, archive)
        # Only here, after the commit, may anybody see the answer.
        made = entry_from_json(json.loads(body), previous=previous, hash=written)
        assert isinstance(made, ReleaseEntry)
        return Released(made.answer, False, _with_kept(made, asked, key))

    def left(self) -> Remaining:
        """What the latest window of the policy has spent, and how many more releases like the last fit."""
        with self._checked() as checked:
            return remaining_of(checked.connection, checked.policy())

    def knows_plan(self, plan: str, *, scope: str = "") -> bool:
        """Whether the prices of a plan are kept already."""
        with self._checked() as checked:
            digest = keyed(checked.key, "plan", "by name", scope, plan)
            return store.prices_entry(checked.connection, digest) is not None

    def change_policy(self, policy: Policy) -> Entry:
        """Set the policy from here on; the change is an entry of its own."""
        if not isinstance(policy, Policy):
            raise InputError(f"`policy` must be a Policy, got {type(policy).__name__}.")
        with self._checked(write=True) as checked:
            number, previous = checked.head.count + 1, checked.head.hash
            body = body_of(number, "policy", {"policy": to_json(policy)})
            written = store.append(checked.connection, body, previous=previous)
            store.add_policy(checked.connection, number)
        return entry_from_json(json.loads(body), previous=previous, hash=written)

    def verify(self, head: Head | str | None = None) -> Verification:
        """Compute every hash anew, and say what is wrong.

        A fault in the file is noted in the file: from then on nothing is released, until `verify` finds none, as of a
        copy put back. A head that is not the one noted is no fault of the file.

        Parameters
        ----------
        head : a `head` noted earlier; the chain must still hold that entry. Without it, a file that was replaced as a
            whole, or cut short by someone who computed the rest anew, looks intact
        """
        noted = Head.parse(head) if isinstance(head, str) else head
        with self._open() as connection:
            damage = store.damage(connection)
            content = _content(connection) if damage is None else _Content([], faults=[damage])
            faults = content.faults or _results_faults(connection, content)
        # Where nothing may be written, nothing is released either.
        with suppress(LedgerError), store.opened(self.path, timeout=self.timeout) as connection:
            store.mark_damaged(connection, bool(faults))
        rows = content.rows
        if damage is not None:
            return Verification(0, None, tuple(faults))
        if noted is not None and (noted.count > len(rows) or rows[noted.count - 1].hash != noted.hash):
            faults = [*faults, f"Entry {noted.count} is not the one whose hash was noted, or is missing."]
        return Verification(len(rows), head_of(rows) if rows else None, tuple(faults))

    def export(self, path: str | PathLike[str]) -> int:
        """Write all entries as JSON lines, whole or not at all, and say how many.

        Each line has ``entry``, ``previous`` and ``hash``, from which the chain can be verified without the ledger.
        Labels of databases and results are not in it; noisy answers, which are public, are.
        """
        target = Path(path)
        if store.exists(target) and target.samefile(self.path):
            raise LedgerError("The export must go to another file than the ledger.")
        with self._open() as connection:
            rows = _whole(connection, self.path).rows
        lines = [f'{{"entry":{row.body},"hash":"{row.hash}","previous":"{row.previous}"}}\n' for row in rows]
        try:
            write_atomically(target, "".join(lines).encode())
        except OSError as error:
            raise LedgerError(f"The export cannot be written to {target.name!r}: {error.strerror}.") from None
        return len(rows)

    @contextmanager
    def _open(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        with store.opened(self.path, timeout=self.timeout) as connection, store.transaction(connection, write=write):
            yield connection

    @contextmanager
    def _checked(self, *, write: bool = False) -> Iterator[_Checked]:
        with self._open(write=write) as connection:
            yield _Checked(connection, self.path, *check_recent_entries(connection, self.path))


@dataclass(frozen=True)
class _Checked:
    """An open ledger whose first and last entries are as they were written; what it reads is checked in turn."""

    connection: sqlite3.Connection
    path: Path
    key: bytes
    head: Head

    def policy(self) -> Policy:
        """The policy that holds."""
        entry = self._intact(store.read_policy(self.connection))
        if not isinstance(entry, PolicyEntry):
            raise _tampered(self.path, "The list of policies is missing or was changed.")
        return entry.policy

    def entry(self, row: Indexed) -> ReleaseEntry:
        """The entry that was found, if it is the one that was written."""
        entry = self._intact(row.entry)
        faults = index_faults([] if entry is None else [entry], {row.entry: row}, self.key)
        if faults or not isinstance(entry, ReleaseEntry):
            raise _tampered(self.path, (faults or [f"Entry {row.entry} is missing."])[0])
        return _with_kept(entry, row, self.key)

    def _intact(self, number: int) -> Entry | None:
        """One entry, whose hash is that of its text; None if there is none of that number."""
        rows = store.read_rows(self.connection, number, number)
        faults = link_faults(rows, start=number, previous=None)
        if faults:
            raise _tampered(self.path, faults[0])
        return entries_of(rows)[0] if rows else None

    def refusal(
        self, policy: Policy, earlier: EarlierReleases, asked: Indexed, sharing: Mapping[str, int]
    ) -> str | None:
        """Why the policy does not allow the release, None if it does; what a window holds is not looked at."""
        release, queries = earlier.release, 0
        if policy.queries is not None:
            questions, beside = store.questions_from(self.connection, sharing)
            queries = len(questions | {asked.question}) + beside + asked.further
        entries: list[int] = []
        if policy.epsilon is not None:
            entries = store.entries_from(self.connection, sharing)
        if policy.window is not None:
            # Other rows are the window's to add up. What these gave before must be measured together.
            entries = [row.entry for row in earlier.same_rows]

        def spent() -> str:
            count, last = store.last_from(self.connection, sharing)
            entry = self.entry(store.releases(self.connection, (last, last))[last]) if last else None
            return spent_words(count, max(sharing.values(), default=0), entry, release)

        if policy.window is None or entries:
            return refusal(policy, release, queries=queries, entries=entries, spent=spent)
        # The window's figures are composed, by another way than the certificate of one release, which must do alone.
        stated = [name for name in ("delta", "total_risk") if getattr(release.achieved, name) is not None]
        limits = {name: getattr(policy, name) for name in stated}
        limited = any(limit is not None for limit in limits.values())
        here = Policy(policy.epsilon if limited else None, queries=policy.queries, **limits)
        return refusal(here, replace(release, joint=None), queries=queries, entries=entries, spent=spent)

    def scaled(self, earlier: EarlierReleases) -> str | None:
        """Why nothing is drawn for a question that was asked of these rows, shifted or scaled; None if it was not.

        The same text with other noise is not meant: it is a further look, which is counted and measured as one.
        """
        release = earlier.release
        covered = () if release.joint is None else release.joint.entries
        form = form_of(release.query)
        for row in earlier.scaled():
            if row.entry not in covered and form_of(self.entry(row).query) != form:
                return (
                    f"Entry {row.entry} is of the same rows and of the same question, shifted or scaled: its answer, "
                    "shifted and scaled likewise, is the answer to this one. Hint: audit(..., ledger=...) measures a "
                    "further look together with it."
                )
        return None


def check_recent_entries(connection: sqlite3.Connection, path: Path) -> tuple[bytes, Head]:
    """The key and the end of a chain whose first and last entries, and some between, are as they were written.

    The work is the same however many entries there are. Which entries between is chance, so that damage that stays is
    met sooner or later; `verify` meets it at once.
    """
    if store.version_of(connection)[1]:
        raise _tampered(path, "`verify` found damage, and nothing is released until it finds none.")
    faults, _ = store.schema_faults(connection)
    if faults:
        raise _tampered(path, faults[0])
    key, head, last = store.read_key(connection), store.read_head(connection), store.read_last(connection)
    if head is None or last == 0 or head[0] != last:
        # Few steps come here, and then the whole chain says best what is wrong.
        raise _tampered(path, (faults_of(store.read_rows(connection), head, key) or ["Its end is not clear."])[0])
    start = max(1, last - _CHECKED + 1)
    middle = 1 + secrets.randbelow(start)
    stretches = ((1, 1), (middle, min(start, middle + _CHECKED - 1)), (start, last))
    for first, end in stretches:
        rows = store.read_rows(connection, first, end)
        found = link_faults(rows, start=first, previous=START if first == 1 else None) or text_faults(rows, key)
        if len(rows) != end - first + 1:
            found = found or [f"Entry {first + len(rows)} is missing."]
        faults += found or index_faults(entries_of(rows), store.releases(connection, (first, end)), key)
    if not faults and rows[-1].hash != head[1]:
        faults = ["The last entry is not the one that the ledger ended with."]
    if faults:
        raise _tampered(path, faults[0])
    return key, Head(*head)


def _with_kept(entry: ReleaseEntry, row: Indexed, key: bytes) -> ReleaseEntry:
    """The entry with what is kept of it apart from the chain."""
    label = sealed_label(bytes.fromhex(row.label), row.database, key).decode()
    return replace(entry, further=row.further, rows=row.rows, label=label)


def _whole(connection: sqlite3.Connection, path: Path) -> _Content:
    """All that the ledger holds; one with a fault is neither read nor written."""
    content = _content(connection)
    if content.faults:
        raise _tampered(path, content.faults[0])
    if store.version_of(connection)[1]:
        raise _tampered(path, "`verify` found damage, and must find none first.")
    return content


def _content(connection: sqlite3.Connection) -> _Content:
    faults, readable = store.schema_faults(connection)
    if not readable:
        return _Content([], faults=faults)
    rows, key = store.read_rows(connection), store.read_key(connection)
    broken = faults_of(rows, store.read_head(connection), key)
    if broken:
        return _Content(rows, faults=faults + broken)
    entries = entries_of(rows)
    identities = store.read_identities(connection)
    wrong = {name for name, digests in identities.items() if digests.fingerprint != name}
    faults += [
        f"What entry {entry.id} says of its databases is missing or was changed."
        for entry in entries
        if isinstance(entry, ReleaseEntry) and (entry.fingerprint in wrong or entry.fingerprint not in identities)
    ]
    index = store.releases(connection)
    faults += index_faults(entries, index, key)
    if index.keys() - {entry.id for entry in entries}:
        faults.append("More releases are kept than there are entries.")
    if not faults:
        policies = [entry.id for entry in entries if isinstance(entry, PolicyEntry)]
        faults += store.search_faults(connection, identities, policies)
    if faults:
        return _Content(rows, entries, faults)
    known = (_with_kept(e, index[e.id], key) if isinstance(e, ReleaseEntry) and e.id in index else e for e in entries)
    return _Content(rows, tuple(known), faults)


def _results_faults(connection: sqlite3.Connection, content: _Content) -> list[str]:
    faults = []
    for entry in content.entries:
        kept = store.read_results(connection, entry.id)
        noted = entry.results if isinstance(entry, ReleaseEntry | PriceEntry) else None
        if noted != (None if kept is None else _sha(kept)):
            faults.append(f"The results of entry {entry.id} are missing or were changed.")
    return faults


def _facts(release: Release, digests: Digests, asked: Indexed, key: bytes) -> dict[str, Any]:
    """What an entry says of a release, without its answer."""
    results = None if release.content is None else release.content.results
    return {
        "fingerprint": asked.fingerprint,
        "database": asked.database,
        "question": asked.question,
        "content": asked.commitment(key),
        "audited": None if results is None else keyed(key, "audited", results),
        "query": release.query.strip(),
        "component": release.component,
        "method": release.method,
        "law": dict(release.law),
        "asked": to_json(release.asked),
        "achieved": to_json(release.achieved),
        "joint": None if release.joint is None else to_json(release.joint),
        "verified": release.verified,
        "review": None if release.review is None else to_json(release.review),
        "n_databases": digests.n_databases,
        "n_individuals": int(release.n_individuals),
    }


def _tampered(path: Path, fault: str) -> LedgerError:
    return LedgerError(f"The ledger {path.name!r} is not as empriv wrote it. {fault} Hint: `empriv ledger verify`.")


def _sha(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
