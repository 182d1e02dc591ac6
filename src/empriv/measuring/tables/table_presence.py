"""Given that they are there: how private a table is for people on a database that they are in.

As for one number (`given.presence`): without is the table of the others, with is that table and what the person did on
one of the days when they were there. People of several cells are looked at on days at quantiles of how much they did,
each in its own direction, and their deltas averaged: what they did that day counts as known.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from empriv.base.progress import progress
from empriv.measuring.contract import RiskContract
from empriv.measuring.given.presence import presence_of
from empriv.measuring.tables.table_risk import TableRisk
from empriv.results import FloatArray, Results

_EXACT = 0  # people of each line who are looked at without thinning: there are many lines


@dataclass(frozen=True, eq=False)
class TablePresenceRisk(RiskContract):
    """How private a table is for people on a database that they are in; asked like a `TableRisk`.

    Attributes
    ----------
    results : what was measured
    on_random_day : the risk by the paper's definition, averaged over databases with and without the person
    """

    results: Results = field(repr=False)
    on_random_day: TableRisk = field(repr=False)
    made_from: RiskContract | None = field(default=None, repr=False, kw_only=True)

    def curves(self, epsilons: FloatArray) -> FloatArray:
        table = self.on_random_day
        out = np.zeros((self.results.n_individuals, len(epsilons)))
        with progress(len(table.touching) + len(table.lines) + 1, "Measuring cells") as advance:
            for name, rows in table.touching.items():
                if table.may_tell_more_alone(name):
                    cell = table.components[name]
                    alone = replace(presence_of(cell), exact=_EXACT).delta_i(epsilons)[rows]
                    # on other days they are elsewhere in the table
                    share = cell.results.presence[rows] / np.maximum(table.days_there[rows], 1.0)
                    out[rows] = np.maximum(out[rows], alone * np.minimum(share, 1.0)[:, None])
                advance(1)
            for line, risks in table.along_lines():
                for risk in risks.values():
                    present = replace(presence_of(risk), exact=_EXACT, digits=False)
                    out[line.rows] = np.maximum(out[line.rows], present.delta_i(epsilons))
                advance(1)
            several = table.several.rows
            if len(several):
                out[several] = np.maximum(out[several], table.several.curves(epsilons, present=True))
            advance(1)
        return np.maximum(out, self.leaked()[:, None])

    def leaked(self) -> FloatArray:
        """Share of the databases that each individual is in, in which they are given away for certain."""
        table = self.on_random_day
        share = table.leaked() * self.results.n_databases / np.maximum(table.days_there, 1.0)
        return np.minimum(share, 1.0)

    @property
    def each_number(self) -> dict[str, RiskContract]:
        return {name: presence_of(risk) for name, risk in self.on_random_day.components.items()}
