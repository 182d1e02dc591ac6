"""`TableFit`: the residuals of each cell of a table to a reader who knows all the cells that a person does not touch.

What a person does not touch is the same with and without them, so it is known. All of it is taken out by one
regression: with the precision K of the cells, the residual of cell c on all others is ``Y K e_c / K_cc``, and the
residual in any direction a is ``Y K a / (a'K a)`` (Lauritzen, *Graphical Models*, 1996, 5.1). Calendar, previous
tables and other quantities that are known are regressors of every cell.

A cell that others determine is no further regressor. `Margins` are cells that are sums of others where a cell without
an answer counts as 0: a count or a sum over no rows adds 0 to every margin. Where a query hides a cell that has rows,
the sum does not come out, and nothing is taken to be a margin. Whoever breaks a margin, or another relation, is given
away.

With p parameters and n databases residuals are too small or, for laws that are not normal, too normal. An upper bound
takes them ``g`` times as large. Beyond `MOST_FITTED` of the databases next to nothing is left of least squares: a
ridge leaves more of the other cells in the residuals, so that figures are from below.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.measuring.given.regression import Term
from empriv.results import FloatArray, IntArray, Outcome, Results

MOST_FITTED = 0.9  # parameters in a database: beyond, a ridge
_RIDGE = 0.5  # parameters in a database that a ridge is worth
_LEAST_NUMBERS = 30  # databases in which a cell must be a number to be regressed on
_EACH_WAY = 5  # databases in which a cell must have an answer, and none, for that to be a regressor
_MOST_PRESENCE = 0.25  # parameters in a database, at most, for cells that come and go
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

    The smallest come first, so that margins are what remains: a count is at least as large as its parts.
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
    present = codes == Outcome.NUMBER
    any_part = present[:, parts].astype(float) @ (weights != 0).T.astype(float) > 0
    return Margins(
        cells=cells,
        parts=parts,
        weights=weights,
        follows=np.asarray((any_part == present[:, cells]).all(axis=0)),
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


@dataclass(frozen=True, eq=False, repr=False)
class TableFit:
    """The residuals of a table.

    Attributes
    ----------
    cells : (d,) their names
    kept : (r,) positions of cells that the others do not determine, in whose units the rest is
    relations : (d, r) every cell as a sum of kept ones, but for what is known and a constant
    residuals : (N, r) kept cells less what is known of them; N is databases times draws
    precision : (r, r) K, the inverse of the covariance of the residuals
    rank : p, parameters in all
    n : databases
    spreads : (d,) standard deviation of each cell
    carried : (d,) whether a cell is a number often enough to be measured together with others
    ridge : whether the parameters are too many, so that figures are from below
    saturated : whether cells are so many that they determine each other by number alone
    presence_known, presence_dropped : cells of which it is a regressor whether they have an answer, and those for which
        the databases do not suffice
    known : names of further regressors
    basis : (N, k) orthonormal, of what is known
    margins : cells that are sums of others, which is what most cells that are not kept are
    """

    cells: tuple[str, ...]
    kept: IntArray
    relations: FloatArray
    residuals: FloatArray
    precision: FloatArray
    rank: int
    n: int
    spreads: FloatArray
    carried: BoolArray
    ridge: bool
    saturated: bool
    presence_known: int
    presence_dropped: int
    known: tuple[str, ...]
    basis: FloatArray
    margins: Margins

    @property
    def g(self) -> float:
        """What residuals are multiplied by for an upper bound."""
        return shrinkage(self.rank / self.n)

    @cached_property
    def given_rest(self) -> FloatArray:
        """(N, r) the residuals of each kept cell given all the others, in its own units."""
        return np.asarray(self.residuals @ self.precision / np.diag(self.precision))

    @cached_property
    def root(self) -> FloatArray:
        """(r, r) R with ``K = R R'``: an influence D is as long as ``R'D``."""
        values, vectors = np.linalg.eigh(self.precision)
        return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))

    @cached_property
    def whitened(self) -> FloatArray:
        """(N, r) ``Y R``: residuals of covariance one."""
        return np.asarray(self.residuals @ self.root)

    @cached_property
    def leverage(self) -> FloatArray:
        """(N,) of each database in the regression on everything."""
        frame = np.linalg.qr(np.concatenate((self.basis, self.residuals / self.residuals.std(axis=0)), axis=1))[0]
        return np.asarray((frame**2).sum(axis=1))

    def main_axes(self, count: int) -> FloatArray:
        """(count, n) the main axes of the residuals, averaged over draws; none of a table of which nothing varies."""
        if not len(self.kept):
            return np.zeros((0, self.n))
        by_database = self.residuals.reshape(self.n, -1, len(self.kept)).mean(axis=1)
        scaled = by_database / np.maximum(self.spreads[self.kept], 1e-300)
        return np.asarray(np.linalg.svd(scaled, full_matrices=False)[0][:, :count].T)

    def sizes(self, influences: FloatArray) -> FloatArray:
        """(...) ``D'K D`` of influences (..., r): the squared distance that two normal tables would be apart."""
        return np.asarray(((influences @ self.root) ** 2).sum(axis=-1))


def shrinkage(share: float) -> float:
    """``min(1, [(1 - p/n)(1 + 3 p/n)]^-1/2)``: what residuals of p parameters are multiplied by for an upper bound.

    Least squares leave residuals of a normal law too small by the root of 1 - p/n, which errs on the private side; of
    other laws they lose the peaks, which does not.
    """
    inside = (1.0 - share) * (1.0 + 3.0 * share)
    return min(1.0, 1.0 / math.sqrt(inside)) if inside > 0 else 1.0


def fit_table(results: Results, known: Sequence[Term] = ()) -> TableFit:
    """Fit once; ``known`` are further regressors, on these databases in their order."""
    assert results.components is not None
    n, d, draws = results.n_databases, len(results.components), results.draws or 1
    q, numbers = results.q.reshape(-1, d), (results.outcomes == 0).reshape(-1, d)
    often = numbers.reshape(n, draws, d).any(axis=1).sum(axis=0)
    carried = np.asarray(often >= max(1, min(_LEAST_NUMBERS, math.ceil(n / 2))))
    columns = [np.ones((n * draws, 1)), *(np.repeat(term.columns, draws, axis=0) for term in known)]
    margins = margins_of(results, _orthonormal(columns), carried)
    presence, dropped = _presence(results, often, margins.cells[margins.follows], sum(term.size for term in known) + 1)
    basis = _orthonormal([*columns, presence])
    values = filled(q, numbers)
    spreads = values.std(axis=0)
    varies = spreads > 1e-12 * np.abs(values).max(axis=0, initial=0.0)
    residuals = values - basis @ (basis.T @ values)
    scale = np.where(varies, spreads, 1.0)
    candidates = np.setdiff1d(np.flatnonzero(carried & varies), margins.cells)
    candidates = candidates[np.argsort(spreads[candidates], kind="stable")]  # so that sums are left out
    room = n * draws - basis.shape[1]
    kept, _ = independent(residuals / scale, candidates.tolist(), max(0, room))
    relations = np.zeros((d, len(kept)))
    if len(kept):
        weights = np.linalg.lstsq(residuals[:, kept] / scale[kept], residuals / scale, rcond=1e-12)[0].T
        relations[:] = weights * scale[:, None] / scale[kept]
        relations[~carried] = 0.0
        relations[kept] = np.eye(len(kept))
        relations[margins.cells] = margins.weights @ relations[margins.parts]
    precision, ridge = _precision(residuals[:, kept], n, basis.shape[1])
    return TableFit(
        cells=results.components,
        kept=kept,
        relations=relations,
        residuals=residuals[:, kept],
        precision=precision,
        rank=basis.shape[1] + len(kept),
        n=n,
        spreads=spreads,
        carried=carried,
        ridge=ridge,
        saturated=bool(len(kept) >= room > 0),
        presence_known=presence.shape[1],
        presence_dropped=dropped,
        known=tuple(term.name for term in known),
        basis=basis,
        margins=margins,
    )


def filled(q: FloatArray, numbers: BoolArray) -> FloatArray:
    """Cells with their mean where they are no number: whether they are one is a regressor of its own."""
    count = np.maximum(numbers.sum(axis=0), 1)
    plain = np.where(numbers, q, 0.0)
    return np.where(numbers, plain, plain.sum(axis=0) / count)


def _presence(results: Results, often: IntArray, follow: IntArray, others: int) -> tuple[FloatArray, int]:
    """(N, k) whether each cell that comes and goes is a number, those about half the time first, while there is room;
    and how many are dropped. Margins that ``follow`` their parts come and go with them, which is nothing new."""
    n, d = results.n_databases, results.outcomes.shape[-1]
    present = (results.outcomes == 0).reshape(-1, d)
    comes = np.setdiff1d(np.flatnonzero((often >= _EACH_WAY) & (n - often >= _EACH_WAY)), follow)
    _, first = np.unique(present[:, comes], axis=1, return_index=True)  # cells that come and go together are one
    ranked = comes[np.sort(first)]
    ranked = ranked[np.argsort(np.abs(often[ranked] - n / 2), kind="stable")]
    room = max(0, int(_MOST_PRESENCE * n) - others)
    taken = ranked[:room]
    return present[:, taken].astype(float), len(ranked) - len(taken)


def _orthonormal(columns: Sequence[FloatArray]) -> FloatArray:
    vectors, sizes, _ = np.linalg.svd(np.concatenate(columns, axis=1), full_matrices=False)
    return np.asarray(vectors[:, sizes > 1e-10 * sizes.max()])


def _precision(residuals: FloatArray, n: int, n_known: int) -> tuple[FloatArray, bool]:
    """K, by least squares or, where parameters are too many, by a ridge; and which it was."""
    size, r = residuals.shape
    if not r:
        return np.zeros((0, 0)), False
    scale = np.sqrt((residuals**2).mean(axis=0))
    scale = np.where(scale > 0, scale, 1.0)
    _, lengths, axes = np.linalg.svd(residuals / scale, full_matrices=False)
    squares = lengths**2
    ridge = n_known + r > MOST_FITTED * n
    added, fitted = 0.0, float(r)
    if ridge:
        target = max(1.0, _RIDGE * size - n_known)
        low, high = 0.0, float(squares.max()) * len(squares)
        for _ in range(80):
            added = 0.5 * (low + high)
            fitted = float((squares / (squares + added)).sum())
            low, high = (added, high) if fitted > target else (low, added)
    freedom = max(1.0, size - n_known - fitted)
    # A ridge has a precision in directions that the residuals do not have as well: there it is the ridge alone.
    turned = axes / scale
    precision = freedom * (turned.T / np.maximum(squares + added, 1e-300)) @ turned
    if ridge and len(squares) < r:
        across = np.eye(r) - axes.T @ axes
        precision = precision + freedom / added * across / np.outer(scale, scale)
    return np.asarray(0.5 * (precision + precision.T)), ridge
