"""Sketches of rows: by which a database is known again whatever it is called, without keeping its rows.

A sketch holds the smallest digests of a database's rows. Two databases of the same rows have the same sketch, and of
two that share some, the digests below the reach of both tell which part: all of them if both are small, or a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

MOST = 128  # digests of one database
LEAST = 8  # digests that both reach, below which nothing is said
_SHARE = 0.1  # of the rows of the smaller, from which two databases are the same as far as releases go
_ALL = 2.0**64


@dataclass(frozen=True, eq=False)
class RowSketch:
    """Of one database.

    Attributes
    ----------
    kind : how rows were digested; others cannot be compared
    digests : the smallest of its rows, rising
    reach : the share of all digests that are at most the last one; 1 if they are those of all rows
    """

    kind: str
    digests: npt.NDArray[np.uint64]
    reach: float

    def below(self, reach: float) -> int:
        """How many of its digests another of that reach would have, if it had these rows."""
        return int(np.count_nonzero(self.digests / _ALL <= reach))

    def reach_of(self, count: int) -> float:
        """The reach within which so many of its digests lie; 2, which is none, if it has fewer."""
        return float(self.digests[count - 1]) / _ALL if len(self.digests) >= count else 2.0


def shares_rows(sketch: RowSketch, shared: int, count: int, reach: float) -> bool:
    """Whether two databases share at least a tenth of the rows of the smaller.

    ``shared`` are the digests that both sketches hold, ``count`` and ``reach`` those of the other. The digests of one
    that lie within the other's reach are a sample of its rows: their number is counted in the one, and expected,
    ``count * sketch.reach / reach``, in the other.
    """
    expected = count * min(1.0, sketch.reach / reach)
    sample = min(float(sketch.below(reach)), expected)
    return shared > 0 and shared >= _SHARE * sample


@dataclass(frozen=True, eq=False)
class RowSketches:
    """Of several databases: the digests of database ``j`` are ``digests[starts[j] : starts[j + 1]]``."""

    kind: str
    starts: npt.NDArray[np.int64]
    digests: npt.NDArray[np.uint64]
    reach: npt.NDArray[np.float64]

    def __post_init__(self) -> None:
        if len(self.starts) != len(self.reach) + 1 or self.starts[0] != 0 or self.starts[-1] != len(self.digests):
            raise ValueError("starts")
        if (
            np.any(np.diff(self.starts) < 0)
            or np.any(np.diff(self.starts) > MOST)
            or not np.all((self.reach > 0) & (self.reach <= 1))
        ):
            raise ValueError("reach")

    def __len__(self) -> int:
        return len(self.reach)

    def of(self, place: int) -> RowSketch:
        """The sketch of one database."""
        own = self.digests[self.starts[place] : self.starts[place + 1]]
        return RowSketch(self.kind, own, float(self.reach[place]))

    def on_databases(self, places: npt.NDArray[Any]) -> RowSketches:
        """The sketches of some databases, given by position, in that order."""
        return _of([self.of(int(place)) for place in places], self.kind)

    def with_databases(self, more: RowSketches | None, order: npt.NDArray[Any]) -> RowSketches | None:
        """These and those of further databases, in an order; None if they cannot be compared."""
        if more is None or more.kind != self.kind:
            return None
        both = [part.of(place) for part in (self, more) for place in range(len(part))]
        return _of([both[int(place)] for place in order], self.kind)

    def to_parts(self) -> tuple[str, dict[str, npt.NDArray[Any]]]:
        """The kind, and arrays for a file."""
        digests = self.digests.view(np.int64)
        return self.kind, {"row_starts": self.starts, "row_digests": digests, "row_reach": self.reach}

    @staticmethod
    def from_parts(kind: Any, arrays: Mapping[str, npt.NDArray[Any]]) -> RowSketches | None:
        """The inverse; None where a file has none. What does not fit raises KeyError, TypeError or ValueError."""
        if kind is None:
            return None
        starts, digests, reach = (arrays[name] for name in ("row_starts", "row_digests", "row_reach"))
        if not isinstance(kind, str):
            raise TypeError("rows")
        return RowSketches(kind, starts, digests.view(np.uint64), reach)


def sketches_of(
    kind: str, databases: npt.NDArray[np.int64], digests: npt.NDArray[np.uint64], count: int
) -> RowSketches:
    """Sketches from the smallest digests of each database, `MOST` or all of them, in any order and with doubles."""
    parts = []
    order = np.lexsort((digests, databases))
    bounds = np.searchsorted(databases[order], np.arange(count + 1))
    for first, last in pairwise(bounds.tolist()):
        own = digests[order[first:last]]
        # Fewer than asked for are all that there are; rows that are alike have one digest.
        reach = 1.0 if last - first < MOST else max(float(own[-1]), 1.0) / _ALL
        parts.append(RowSketch(kind, np.unique(own), reach))
    return _of(parts, kind)


def _of(parts: list[RowSketch], kind: str) -> RowSketches:
    starts = np.concatenate(([0], np.cumsum([len(part.digests) for part in parts]))).astype(np.int64)
    digests = np.concatenate([part.digests for part in parts]) if parts else np.zeros(0, np.uint64)
    return RowSketches(kind, starts, digests.astype(np.uint64), np.array([part.reach for part in parts], float))
