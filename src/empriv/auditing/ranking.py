"""Who is most exposed, in one order and under the same names for terminal, page and JSON: by what the verdict judges.

That is the move of the answer relative to the residuals of its database, which the cover is held against; for
kinds of risk that have no moves of one answer, delta_i on a random database.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.base.text import pseudonyms, visible
from empriv.measuring.line.moves import Moves
from empriv.results import FloatArray, IntArray, Results
from empriv.validate.covers import has_line_cover, line_cover_of, results_of

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit


@dataclass(frozen=True, eq=False)
class MostExposed:
    """The most exposed first.

    Attributes
    ----------
    rows : places among the individuals of the results
    names : as they are shown
    delta_i : in a random database
    moved : the most that each moved the answer, relative to the residuals of its database; NaN where they change
        whether there is a number
    database : where they did; None where moves are not judged
    databases : in how many each is
    """

    rows: IntArray
    names: list[str]
    delta_i: FloatArray
    moved: FloatArray
    database: list[Any] | None
    databases: IntArray

    def to_json(self) -> list[dict[str, Any]]:
        """A dict for each, without identifiers if the names are pseudonyms; which database is left out."""
        columns = (self.names, self.delta_i.tolist(), self.moved.tolist(), self.databases.tolist())
        return [
            {"individual": name, "delta_i": delta, "moved": moved if math.isfinite(moved) else None, "databases": count}
            for name, delta, moved, count in zip(*columns, strict=True)
        ]


def names_of(results: Results, salt: bytes | None) -> list[str]:
    """Names of all individuals: pseudonyms by a salt, or identifiers without one."""
    labels = [str(label) for label in results.individuals.tolist()]
    return [visible(label) for label in labels] if salt is None else pseudonyms(labels, salt)


def moves_judged(audit: Audit) -> Moves | None:
    """What everybody did on every database, as the verdict holds it against the cover; None where it does not."""
    return line_cover_of(audit.once, None).moves if has_line_cover(audit.once) else None


def most_exposed(audit: Audit, epsilon: float, names: Sequence[str], top: int | None = None) -> MostExposed:
    """The most exposed at an epsilon, under the ``names`` of all individuals; equals are ordered by these."""
    results = audit.results
    columns = audit.individuals(epsilon)
    place = {label: row for row, label in enumerate(results.individuals.tolist())}
    rows = np.array([place[label] for label in columns["individual"].tolist()], np.int64)
    delta_i, moved = np.asarray(columns["delta_i"], float), np.asarray(columns["largest_influence"], float)
    own = np.array([names[row] for row in rows], dtype=str)
    size, moves = np.where(np.isnan(moved), np.inf, moved), moves_judged(audit)
    if moves is None:
        order = np.lexsort((own, -size, -delta_i))[:top]
        database = None
    else:
        order = np.lexsort((own, -moves.largest[rows]))[:top]
        worst = moves.worst[rows[order]]
        labels = results_of(audit.once).databases
        database = [labels[moves.database[place]] if place >= 0 else "" for place in worst]
        moved = moved.copy()
        size = moves.sizes[worst[worst >= 0]]  # inf for who is given away, by a number or by whether there is one
        moved[order[worst >= 0]] = np.where(np.isinf(size), moved[order[worst >= 0]], size)
        moved = np.where(np.isinf(moved), np.nan, moved)
    rows = rows[order]
    return MostExposed(
        rows, [names[row] for row in rows], delta_i[order], moved[order], database, results.presence[rows]
    )
