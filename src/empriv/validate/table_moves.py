"""What people did in a table, beside what it hides: `covered` and `moved` of tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import whole_number
from empriv.base.display import table_html
from empriv.base.harmless import pseudonyms
from empriv.measuring.tables import TableRisk
from empriv.results import FloatArray
from empriv.validate.bounds.noise_as_kernel import NoiseGiven
from empriv.validate.covering import Covered, covered, moved
from empriv.validate.table_cover import CoverByCell, days_of, hiding_of_table
from empriv.words.sentences import quantity


@covered.register(TableRisk)
def covered_table(
    risk: TableRisk, epsilon: float, delta: float, *, noise: NoiseGiven = 0.0, level: float = 0.95
) -> Covered:
    """What a table hides of what people did; the figures are those of the worst day and its worst cell."""
    hiding = hiding_of_table(risk, noise)
    days, found = hiding.days, hiding.judge(epsilon, delta, level)
    worst, covers = found.worst, found.covers
    cell, move = -1, 0.0
    if worst.day >= 0:
        at = slice(int(days.starts[worst.day]), int(days.starts[worst.day + 1]))
        if days.cells[at].size:
            with np.errstate(divide="ignore"):
                ratio = np.abs(days.moves[at]) / covers[days.cells[at]]
            cell = int(days.cells[at][np.argmax(ratio)])
            move = float(np.abs(days.moves[at])[np.argmax(ratio)])
        move = math.inf if days.certain[worst.day] else move
    hidden = float(covers[cell]) if cell >= 0 else 0.0
    whole = CoverByCell(risk.fit.cells, covers, days_of(risk).most, epsilon, delta)
    return Covered(
        cover=hidden, shown=math.inf, most=move, upper=max(worst.upper, worst.lower), lower=worst.lower,
        estimate=min(worst.upper, max(worst.lower, worst.estimate)), days=days.count,
        beyond=int(np.count_nonzero(found.beyond)), exposed=int(np.count_nonzero(found.exposed)),
        people_beyond=len(np.unique(days.owner[found.beyond])), people=risk.results.n_individuals, typical=hidden,
        worst=move, worst_cover=hidden, largest=math.inf if math.isinf(move) else move, varies=False,
        cell=risk.fit.cells[cell] if cell >= 0 else "", cells=whole.columns(),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class WhoMovedCells:
    """Who moved which cell of a table by how much, on which database: each person's largest move, furthest first.

    Attributes
    ----------
    individual : pseudonyms, or labels if these were asked for
    cell : its name
    moved : by how much, in the cell's units; inf where they change whether there is an answer
    database : on which database
    """

    individual: Sequence[Any]
    cell: Sequence[str]
    moved: FloatArray
    database: npt.NDArray[Any]

    @property
    def most(self) -> float:
        """The largest move of those that are listed."""
        return float(self.moved.max(initial=0.0))

    def columns(self) -> dict[str, list[Any]]:
        """Columns of a table; ``pandas.DataFrame`` takes it as it is."""
        return {
            "individual": list(self.individual),
            "cell": list(self.cell),
            "moved": self.moved.tolist(),
            "database": self.database.tolist(),
        }

    def __repr__(self) -> str:
        return f"WhoMovedCells({len(self.moved):,} individuals)"

    def _repr_html_(self) -> str:
        columns = self.columns()
        rows = [
            [str(who), cell, "an answer or none" if math.isinf(by) else quantity(by), str(where)]
            for who, cell, by, where in zip(*columns.values(), strict=True)
        ]
        return table_html("Who moved the table most", list(columns), rows)


@moved.register(TableRisk)
def moved_in_table(risk: TableRisk, *, top: int | None = 10, key: bytes | None = None) -> WhoMovedCells:
    """Each person's largest move of a cell, in units of what is left of it given the others."""
    if top is not None:
        whole_number("top", top, least=1)
    days, results = days_of(risk), risk.results
    place = np.full(len(risk.fit.cells), -1)
    place[risk.fit.kept] = np.arange(len(risk.fit.kept))
    units = np.where(risk.fit.spreads > 0, risk.fit.spreads, 1.0)
    units[risk.fit.kept] = 1.0 / np.sqrt(np.maximum(np.diag(risk.fit.precision), 1e-300))
    size, sizes = np.abs(days.moves) / units[days.cells], np.abs(days.moves)
    turned = np.flatnonzero(days.certain)
    cells = np.concatenate((days.cells, np.full(len(turned), -1)))
    day = np.concatenate((days.day, turned))
    size, sizes = np.append(size, np.full(len(turned), np.inf)), np.append(sizes, np.full(len(turned), np.inf))
    owner = days.owner[day]
    order = np.lexsort((-size, owner))
    _, first = np.unique(owner[order], return_index=True)
    best = order[first]
    best = best[np.argsort(-size[best], kind="stable")][:top]
    labels = results.individuals[owner[best]].tolist()
    names = labels if key is None else [f"individual {name}" for name in pseudonyms(labels, key, shortest=4)]
    said = [risk.fit.cells[cell] if cell >= 0 else _turned_cell(risk, int(day[k])) for cell, k in zip(
        cells[best].tolist(), best.tolist(), strict=True
    )]  # fmt: skip
    return WhoMovedCells(names, said, sizes[best], results.databases[days.database[day[best]]])


def _turned_cell(risk: TableRisk, day: int) -> str:
    """A cell that somebody decides the answer of."""
    results = risk.results
    d = results.q.shape[-1]
    before = results.outcomes[results.entry_database[day]].reshape(-1, d)
    changed = (before != results.entry_outcomes[day].reshape(-1, d)).any(axis=0)
    return risk.fit.cells[int(np.argmax(changed))]
