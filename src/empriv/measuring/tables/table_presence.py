"""Given that they are there: how private a table is for people on a database that they are in.

As for one number (`given.presence`): without is the table of the others, with is that table and what the person did on
one of the days when they were there. People of several cells are looked at on days at quantiles of how much they did,
each in its own direction, and their deltas averaged: what they did that day counts as known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from empriv.base.progress import progress
from empriv.measuring.contract import RiskContract
from empriv.measuring.tables.table_risk import TableRisk
from empriv.results import FloatArray, Results


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
                out[rows] = np.maximum(out[rows], table.components[name].given_presence().delta_i(epsilons)[rows])
                advance(1)
            for line, risks in table.along_lines():
                for risk in risks.values():
                    out[line.rows] = np.maximum(out[line.rows], risk.given_presence().delta_i(epsilons))
                advance(1)
            several = table.several.rows
            if len(several):
                out[several] = np.maximum(out[several], table.several.curves(epsilons, present=True))
            advance(1)
        return np.maximum(out, self.leaked()[:, None])

    def leaked(self) -> FloatArray:
        """Share of the databases that each individual is in, in which they are given away for certain."""
        table = self.on_random_day
        there = np.zeros(self.results.n_individuals)
        days = np.unique(table.influences.rows // table.influences.draws)
        np.add.at(there, table.influences.owner[days], 1.0)
        share = table.leaked() * self.results.n_databases / np.maximum(there, 1.0)
        return np.minimum(share, 1.0)

    @property
    def each_number(self) -> dict[str, RiskContract]:
        return {name: risk.given_presence() for name, risk in self.on_random_day.components.items()}
