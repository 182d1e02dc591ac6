"""What the ledger knows of the rows that are released from: which earlier releases are of the same, by whatever name.

Rows decide where both databases have a sketch of them: they are the same database if they share a tenth of the rows of
the smaller, and are told apart if they do not. Names decide where there is no sketch, or none that can be compared.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from functools import cached_property

from empriv.base.row_sketches import LEAST, RowSketch, shares_rows
from empriv.ledger import store
from empriv.ledger.chain import Digests, Indexed, keep_rows
from empriv.ledger.values import Identity, Release


@dataclass(frozen=True)
class Distinct:
    """Which earlier releases are told apart from databases of one audit.

    By name, two databases are told apart where the audit at hand has both, since each row is in one of its databases
    only, or where they have different labels in the same cut of the same source.
    """

    connection: sqlite3.Connection
    identity: Identity
    digests: Digests
    _cuts: dict[str, bool] = field(default_factory=dict, repr=False)

    def by_name(self, row: Indexed) -> bool:
        """Whether labels tell an earlier release apart."""
        return self.same_cut(row.fingerprint) or (self.identity.apart and self.has_label(row))

    def has_label(self, row: Indexed) -> bool:
        """Whether the audit at hand has a database of that label."""
        return row.database in self._databases

    def same_cut(self, fingerprint: str) -> bool:
        """Whether labels of the same cut of the same sources are compared."""
        if not self.identity.named:
            return False
        if fingerprint not in self._cuts:
            other = store.read_identities(self.connection, fingerprint).get(fingerprint)
            own = self.digests.cut, self.digests.sources
            self._cuts[fingerprint] = other is not None and (other.cut, other.sources) == own
        return self._cuts[fingerprint]

    def sharing_rows(self, sketch: RowSketch | None, key: bytes) -> list[Indexed]:
        """Earlier releases from databases that share rows with this one, or may; all that names do not tell apart, if
        there are rows and nobody made a sketch of them."""
        if sketch is None and self.identity.sources == ("results",):
            return []
        wanted: dict[str, str | None] = {} if sketch is None else {"rows": None}
        unsketched = store.releases(self.connection, None, **wanted).values()
        found = [row for row in unsketched if row.answer is not None and not self.by_name(row)]
        for name, shares in ({} if sketch is None else self.shares(sketch, key)).items():
            if shares is not False:
                releases = store.releases(self.connection, rows=name).values()
                found += [row for row in releases if shares or not self.by_name(row)]
        return found

    def shares(self, sketch: RowSketch, key: bytes) -> dict[str, bool | None]:
        """Whether earlier sketches share rows with this one, None if nobody can tell; those not named do not."""
        kept = keep_rows(sketch, key)
        beyond = store.sketches_beyond(self.connection, kept, sketch.reach_of(LEAST), LEAST)
        shared = store.shared_rows(self.connection, kept)
        return dict.fromkeys(beyond) | {name: shares_rows(sketch, *found) for name, found in shared.items()}

    @cached_property
    def _databases(self) -> frozenset[str]:
        return self.digests.databases


@dataclass(frozen=True)
class EarlierReleases:
    """What the ledger knows of a release that is asked for. A database that was not audited is told apart from none."""

    connection: sqlite3.Connection
    release: Release
    digests: Digests
    asked: Indexed
    key: bytes
    sharing: tuple[str, ...]

    def stored(self) -> Indexed | None:
        """The release that was made of this question and this content before, under this label or another."""
        for row in self._same_label:
            # Without its content a database is known by its label alone.
            if row.answer is None or self.asked.answer is None or row.answer == self.asked.answer:
                return row
        if self.asked.people is None:
            return None
        alike = store.releases(self.connection, people=self.asked.people).values()
        return next((row for row in alike if not self._distinct(row) or self._same_values(row)), None)

    def further(self) -> bool:
        """Whether the same question may have been asked of this database before, with other rows or by another name."""
        if self._same_label or any(row.question == self.asked.question for row in self.same_rows):
            return True
        return any(
            not self._distinct(row)
            for name in self.sharing
            if not self._same_cut(name)
            for row in store.releases(self.connection, question=self.asked.question, fingerprint=name).values()
        )

    def scaled(self) -> list[Indexed]:
        """Releases from the same rows that people change in the same proportions."""
        own = set(self.asked.shape.split())
        return [row for row in self.same_rows if own & set(row.shape.split())]

    @cached_property
    def same_rows(self) -> tuple[Indexed, ...]:
        """Releases that are of the same rows, or may be, and of a database of the same label; in their order."""
        found = store.releases(self.connection, database=self.asked.database)
        if self.release.content is not None and self.release.audited:
            found |= {row.entry: row for row in self._names.sharing_rows(self.release.rows, self.key)}
        return tuple(found[entry] for entry in sorted(found))

    @cached_property
    def _same_label(self) -> list[Indexed]:
        """Releases of this question from a database of this label; the latest first."""
        asked = self.asked
        found = store.releases(self.connection, question=asked.question, database=asked.database)
        return list(found.values())[::-1]

    @cached_property
    def _names(self) -> Distinct:
        return Distinct(self.connection, self.release.identity, self.digests)

    @cached_property
    def _shares(self) -> dict[str, bool | None]:
        return {} if self.release.rows is None else self._names.shares(self.release.rows, self.key)

    def _distinct(self, row: Indexed) -> bool:
        if row.rows is not None and self.asked.rows is not None:
            shares = self._shares.get(row.rows, False)
            if shares is not None:
                return not shares
        return self.release.audited and self._names.by_name(row)

    def _same_values(self, row: Indexed) -> bool:
        """Whether answers that are all the same show the same people's values, although rows and label differ.

        Rows to which a column or some days were added have other digests. Where the audit has both databases it shows
        that they are two.
        """
        content = self.release.content
        return content is not None and content.distinctive and not self._names.by_name(row)

    def _same_cut(self, fingerprint: str) -> bool:
        return self.release.audited and self._names.same_cut(fingerprint)
