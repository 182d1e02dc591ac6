"""What every bound stands on: the points, which of them are atoms, and the Laplace one-SE bandwidth.

Bounds are defined with the Laplace kernel at its one-SE bandwidth (docs/validity.md, "Bounds"), whatever density the
risk was measured with: a risk measured otherwise is split into atoms and fitted anew here. Every outcome gets a number:
outcomes that are not numbers (NULL, an error) get one beyond all others, each kind its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from empriv.base.threads import workers
from empriv.measuring.densities.density import Mixture, is_usual
from empriv.measuring.line.atoms import Pairs, tie_tolerance
from empriv.measuring.line.risk import Risk, measure_line
from empriv.results import FloatArray, IntArray

BoolArray = npt.NDArray[np.bool_]
Answer = TypeVar("Answer")

_KNOTS = 60_000  # knots of a block of individuals held at once
_GIVEN = 400_000  # values given to compiled code at once


@dataclass(frozen=True, eq=False)
class Ground:
    """The points under a bound.

    Attributes
    ----------
    values : the points with every outcome a number
    marked : the same where atoms stand at +inf, from `measuring.atoms`
    bandwidth : the Laplace one-SE bandwidth; 1 where all results are atoms
    shifts : largest influence of each individual in bandwidths, inf to or from an atom
    tolerance : numbers this close are the same number
    refitted : whether the risk was measured with another density
    """

    values: Pairs
    marked: Pairs
    bandwidth: float
    shifts: FloatArray
    tolerance: float
    refitted: bool

    @property
    def draws(self) -> int:
        return self.values.draws

    @property
    def n_databases(self) -> int:
        return len(self.values.points) // self.values.draws

    @property
    def n_individuals(self) -> int:
        return self.values.n_individuals

    @property
    def smooth_points(self) -> bool:
        """Whether anything is left to fit a density to."""
        return bool(np.isfinite(self.marked.points).any())

    @property
    def together(self) -> int:
        """Individuals that compiled code is given at once."""
        return max(8, min(256, _GIVEN // len(self.values.points)))

    @property
    def smooth_everywhere(self) -> bool:
        """Whether no outcome is an atom, but for atoms that single individuals have of their own."""
        return not len(self.marked.names)

    @property
    def alone(self) -> BoolArray:
        """(individuals,) who has an atom of their own."""
        out = np.zeros(self.n_individuals, bool)
        out[[row for row, _ in self.marked.own]] = True
        return out

    def blocks(self, rows: IntArray, *, by: FloatArray | None = None, most: int | None = None) -> Iterator[IntArray]:
        """Individuals in blocks, of ``most`` or as many as memory suggests.

        People who move the results most are first, or those with the largest value in ``by``.
        """
        rows = rows[np.argsort(-(self.shifts if by is None else by)[rows], kind="stable")]
        step = max(1, _KNOTS // (2 * len(self.values.points))) if most is None else most
        for start in range(0, len(rows), step):
            yield rows[start : start + step]

    def in_threads(
        self,
        task: Callable[[IntArray], Answer],
        rows: IntArray,
        *,
        by: FloatArray | None = None,
        most: int | None = None,
    ) -> Iterator[tuple[IntArray, Answer]]:
        """``task`` done on each block of these individuals, as `blocks` makes them."""
        blocks = list(self.blocks(rows, by=by, most=most))
        if len(blocks) < 2 or workers() < 2:
            for block in blocks:
                yield block, task(block)
            return
        with ThreadPoolExecutor(workers()) as pool:
            yield from zip(blocks, pool.map(task, blocks), strict=True)

    def smooth(self, rows: IntArray) -> BoolArray | None:
        """(rows, 2N): which points with everyone, then without each, are not atoms; None if no point is an atom."""
        own_pairs = dict(self.marked.own)
        alone = [int(row) for row in rows if int(row) in own_pairs] if own_pairs else []
        if not len(self.marked.names) and not alone:
            return None
        size = len(self.marked.points)
        out = np.empty((len(rows), 2 * size), bool)
        out[:, :size] = np.isfinite(self.marked.points)
        out[:, size:] = np.isfinite(self.marked.dense(rows))
        for row in alone:
            place = int(np.flatnonzero(rows == row)[0])
            out[place, :size] = np.isfinite(own_pairs[row].points)
            out[place, size:] = np.isfinite(own_pairs[row].dense(np.array([0]))[0])
        return out


def ground_of(risk: Risk) -> Ground:
    """The ground under a risk."""
    same = is_usual(risk.density)
    basis = risk if same else measure_line(risk.results, people=risk.pairs.people)
    model = basis.density
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
        bandwidth=model.bandwidth if isinstance(model, Mixture) else 1.0,
        shifts=basis.shifts,
        tolerance=tie_tolerance(numbers),
        refitted=not same,
    )
