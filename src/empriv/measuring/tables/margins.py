"""`Margins`: cells that are sums of others, where a cell without an answer counts as 0.

A count or a sum over no rows adds 0 to every margin. So the table is looked at with 0 in place of NULL: a cell that the
others then determine in every database is a margin of them, and tells nothing that they do not. Where a query hides a
cell that has rows, the sum does not come out, and nothing is taken to be a margin.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.results import FloatArray, IntArray, Outcome, Results

CONSTANT = 1e-7  # of the spread: what varies less is constant, but for rounding
_SPARE = 5  # databases more than parts and what is known: with fewer, cells determine each other by number alone

BoolArray = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False, repr=False)
class Margins:
    """How the cells of a table add up.

    Attributes
    ----------
    cells : (k,) positions of the margins
    parts : (b,) positions of the cells that they are sums of, and of those that are in no margin
    weights : (k, b) by which parts add up to each margin, but for what is known and a constant
    follows : (k,) whether a margin has an answer in the databases where one of its parts has one, and in no other
    residuals : (N, b) the parts, 0 where there is no answer, less what is known
    basis : (N, k) orthonormal, of what is known, without which cells have an answer
    """

    cells: IntArray
    parts: IntArray
    weights: FloatArray
    follows: BoolArray
    residuals: FloatArray
    basis: FloatArray

    @cached_property
    def root(self) -> FloatArray:
        """(b, b) R with ``S^-1 = R R'``, of the sums S of squares and products of the residuals."""
        scale = np.sqrt((self.residuals**2).mean(axis=0))
        _, lengths, axes = np.linalg.svd(self.residuals / scale, full_matrices=False)
        return np.asarray(axes.T / np.maximum(lengths, 1e-300) / scale[:, None])


def zero_filled(values: FloatArray, outcomes: npt.NDArray[np.int8]) -> FloatArray:
    """Cells with 0 where there is no answer: a sum or a count over no rows."""
    return np.where(outcomes == Outcome.NUMBER, values, 0.0)


def margins_of(results: Results, basis: FloatArray, often: BoolArray) -> Margins:
    """Find margins among cells (d,), those that have an answer ``often`` enough to be regressed on last.

    The smallest come first, so that margins are what is left over: a count is at least as large as its parts.
    """
    d = results.outcomes.shape[-1]
    codes = results.outcomes.reshape(-1, d)
    values = zero_filled(results.q.reshape(-1, d), codes)
    spreads = values.std(axis=0)
    varies = spreads > 1e-12 * np.abs(values).max(axis=0, initial=0.0)
    candidates = np.flatnonzero(varies & ((codes == Outcome.NUMBER) | (codes == Outcome.NULL)).all(axis=0))
    sizes = np.abs(values).mean(axis=0)
    candidates = candidates[np.lexsort((spreads[candidates], sizes[candidates], often[candidates]))]
    room = max(0, results.n_databases - basis.shape[1] - _SPARE)
    residuals = values - basis @ (basis.T @ values)
    scale = np.where(varies, spreads, 1.0)
    parts, cells = independent(residuals / scale, candidates.tolist(), room)
    weights = np.zeros((len(cells), len(parts)))
    if len(cells) and len(parts):
        columns, sums = residuals[:, parts] / scale[parts], residuals[:, cells] / scale[cells]
        share = np.linalg.lstsq(columns, sums, rcond=1e-12)[0].T
        weights[:] = np.where(np.abs(share) > 1e-6, share, 0.0) * scale[cells][:, None] / scale[parts]
    there = codes == Outcome.NUMBER
    any_part = there[:, parts].astype(float) @ (weights != 0).T.astype(float) > 0
    return Margins(
        cells=cells,
        parts=parts,
        weights=weights,
        follows=np.asarray((any_part == there[:, cells]).all(axis=0)),
        residuals=residuals[:, parts],
        basis=basis,
    )


def independent(standard: FloatArray, candidates: Iterable[int], room: int) -> tuple[IntArray, IntArray]:
    """Cells none of which those before them determine, ``room`` of them at most, and those that are determined; both in
    the order of the table."""
    kept: list[int] = []
    determined: list[int] = []
    frame = np.empty((len(standard), min(standard.shape[1], room)))
    for cell in candidates:
        if len(kept) >= frame.shape[1]:
            break
        column, so_far = standard[:, cell], frame[:, : len(kept)]
        for _ in range(2):  # twice, since once leaves roundings
            column = column - so_far @ (so_far.T @ column)
        length = float(np.linalg.norm(column))
        if length > CONSTANT * math.sqrt(len(standard)):
            frame[:, len(kept)] = column / length
            kept.append(cell)
        else:
            determined.append(cell)
    return np.sort(np.array(kept, np.int64)), np.sort(np.array(determined, np.int64))
