"""What bounds and checks stand on: the points with every outcome a number, and which of them are atoms.

Whatever density the risk was measured with: a risk measured otherwise is split into atoms anew here. Outcomes that are
not numbers (NULL, an error) get a number beyond all others, each kind its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from empriv.measuring.densities.density import is_usual
from empriv.measuring.line.atoms import Pairs, tie_tolerance
from empriv.measuring.line.risk import Risk, measure_line

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Ground:
    """The points under a bound.

    Attributes
    ----------
    values : the points with every outcome a number
    marked : the same where atoms stand at +inf, from `measuring.atoms`
    tolerance : numbers this close are the same number
    refitted : whether the risk was measured with another density
    """

    values: Pairs
    marked: Pairs
    tolerance: float
    refitted: bool

    @property
    def draws(self) -> int:
        return self.values.draws

    @property
    def n_databases(self) -> int:
        return len(self.values.points) // self.values.draws


def ground_of(risk: Risk) -> Ground:
    """The ground under a risk."""
    same = is_usual(risk.density)
    basis = risk if same else measure_line(risk.results, people=risk.pairs.people)
    results, pairs = basis.results, basis.pairs
    q, entries = results.q.reshape(-1), results.entry_q.reshape(pairs.entries.shape)
    codes, entry_codes = results.outcomes.reshape(-1), results.entry_outcomes.reshape(pairs.entries.shape)
    numbers = q[codes == 0]
    if codes.any() or entry_codes.any():
        far = 1.0 + 2.0 * float(np.abs(np.concatenate((numbers, entries[entry_codes == 0]))).max(initial=0.0))
        q, entries = np.where(codes == 0, q, far * codes), np.where(entry_codes == 0, entries, far * entry_codes)
    return Ground(
        values=replace(pairs, points=q, entries=entries, own=()),
        marked=pairs,
        tolerance=tie_tolerance(numbers),
        refitted=not same,
    )
