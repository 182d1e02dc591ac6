"""Are the residuals of a cell as the bounds take them to be? Three tests.

**Does it depend on the rest of the table?** The regression takes out what the rest says of a cell on average. If the
rest also says how far the cell strays, or bends its mean, residuals are not of one law that all databases have in
common, and figures may be too small. Statistics of ranks look for both: residuals and their size, against every other
cell, its size, and the leverage of the database. Their law without dependence comes from permutations: residuals,
freed of the leverage, are dealt out to the databases again and go through the same regression. So neither skewed cells
nor many of them cause alarms. Cells that are tested together share their permutations, and each is held against the
largest statistic of all of them (Westfall and Young 1993).

**Has it a hard edge?** Least squares with p parameters from n databases smear what is finer than the root of p/n
standard deviations. An edge is found by the regression that suits it: the plane below all points whose distances from
it are least in sum. It is the most likely one if residuals are exponential, and near an edge it is off by p/n alone.
Whoever has such an edge leans away from it, also where it is smeared: others are not asked.

**Has it two peaks?** The same smearing fills the valley between them, and residuals look flat instead: their kurtosis
stays far below the normal law's.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from empriv.results import FloatArray

PERMUTATIONS = 199
_MOST_FITTED = 0.8  # parameters in a database: beyond, too little is left to look at
_LEANS = 0.7  # skewness: an exponential law has 2


class Rest(NamedTuple):
    """What a cell is regressed on.

    Attributes
    ----------
    frame : (n, p) orthonormal, of a constant and the rest of the table
    white : (n, r) the rest as uncorrelated numbers that stay as close to the cells as they can
    """

    frame: FloatArray
    white: FloatArray

    @property
    def tells(self) -> bool:
        """Whether the databases are enough to look at what is left."""
        return bool(self.frame.shape[1] <= _MOST_FITTED * len(self.frame))

    def residuals_of(self, cell: FloatArray) -> FloatArray:
        """The residuals of a cell (n,), or of columns (n, m)."""
        return np.asarray(cell - self.frame @ (self.frame.T @ cell))


def rest_of(cells: FloatArray) -> Rest:
    """Of the other cells (n, r)."""
    n = len(cells)
    scale = cells.std(axis=0)
    vectors, lengths, axes = np.linalg.svd(
        (cells - cells.mean(axis=0)) / np.where(scale > 0, scale, 1.0), full_matrices=False
    )
    present = lengths > 1e-9 * max(float(lengths.max(initial=0.0)), np.sqrt(n))
    vectors = vectors[:, present]
    return Rest(np.column_stack((np.full(n, 1 / np.sqrt(n)), vectors)), vectors @ axes[present])


def dependence(cell: FloatArray, rest: Rest) -> FloatArray:
    """(1 + PERMUTATIONS,) how unusual the residuals of a cell (n,) are beside the rest, and the same of residuals that
    do not depend on it; all 0 where nothing can be seen. `p_values` compares them."""
    n, residuals = len(cell), rest.residuals_of(cell)
    if not rest.white.shape[1] or not rest.tells or not np.ptp(residuals) > 1e-9 * float(np.abs(cell).max(initial=0.0)):
        return np.zeros(1 + PERMUTATIONS)
    leverage = (rest.frame**2).sum(axis=1)
    free = np.sqrt(np.maximum(1.0 - leverage, 1e-3))[:, None]
    start = residuals[:, None] / free
    order = np.random.default_rng(0).permuted(np.tile(np.arange(n), (PERMUTATIONS, 1)), axis=1).T
    values = np.concatenate((start, rest.residuals_of(start[:, 0][order]) / free), axis=1)
    signed, sizes = _scores(values), _scores(np.abs(values))
    cells, far, spread = _scores(rest.white), _scores(np.abs(rest.white)), _scores(leverage[:, None])
    statistics = np.stack(
        [
            ((regressors.T @ scores) ** 2).sum(axis=0)
            for regressors, scores in ((far, signed), (cells, sizes), (far, sizes), (spread, signed), (spread, sizes))
        ]
    )
    # the most unusual of the five is compared with its own law: no correction is due for their number
    logs = np.log(np.maximum(statistics, 1e-300))
    usual, spread_of_logs = np.median(logs, axis=1, keepdims=True), logs[:, 1:].std(axis=1, keepdims=True)
    return np.asarray(((logs - usual) / np.maximum(spread_of_logs, 1e-12)).max(axis=0))


def p_values(statistics: FloatArray) -> FloatArray:
    """(cells,) p-values of the dependence of cells (cells, 1 + permutations), for all of them together."""
    largest = statistics.max(axis=0, initial=-np.inf)
    return np.asarray((largest >= statistics[:, :1] - 1e-12).mean(axis=1))


def leans(cell: FloatArray, rest: Rest) -> float:
    """Skewness of the law of the residuals of a cell (n,), as far as the regression leaves it: the third power of what
    each database leaves of itself, ``(1 - p/n)^(3/2)``. 0 where it is too small for a hard edge."""
    residuals = rest.residuals_of(cell)
    spread = float(np.sqrt((residuals**2).mean()))
    if not rest.tells or not spread > 1e-9 * float(np.abs(cell).max(initial=0.0)):
        return 0.0
    skewness = float(((residuals / spread) ** 3).mean()) / (1.0 - rest.frame.shape[1] / len(cell)) ** 1.5
    return skewness if abs(skewness) > _LEANS else 0.0


def edge_gain(cell: FloatArray, rest: Rest) -> float:
    """How much likelier a cell (n,) is, given the rest, on one side of a plane with an exponential law than around one
    with a normal law: logarithm, for each database; 0.42 for exponential laws, below 0 for normal ones."""
    from scipy.optimize import linprog  # heavy, and seldom needed

    n, frame, side = len(cell), rest.frame, leans(cell, rest)
    if not side:
        return -np.inf
    residuals, freedom = np.sign(side) * rest.residuals_of(cell), n - rest.frame.shape[1]
    residuals /= np.sqrt((residuals**2).sum() / freedom)
    # weights b of the plane: the least sum of distances residuals - frame b, none of them negative. That is
    # sum(residuals) less the least residuals'y over y >= 0 with frame'y = frame'1, the dual problem, solved faster
    dual = linprog(residuals, A_eq=frame.T, b_eq=frame.sum(axis=0), method="highs", options={"presolve": False})
    if dual.status != 0:
        return -np.inf
    distance = float(residuals.sum() - dual.fun) / freedom
    return float(0.5 * np.log(2 * np.pi) - 0.5 - np.log(max(distance, 1e-12)))


def flatness(cell: FloatArray, rest: Rest) -> float:
    """By how many standard deviations the kurtosis of the residuals of a cell (n,) is below that of a normal law."""
    residuals = rest.residuals_of(cell)
    spread = float(np.sqrt((residuals**2).mean()))
    if not rest.tells or not spread > 1e-9 * float(np.abs(cell).max(initial=0.0)):
        return -np.inf
    return float((3.0 - ((residuals / spread) ** 4).mean()) / np.sqrt(24.0 / len(cell)))


def _scores(values: FloatArray) -> FloatArray:
    """Normal scores of each column, of mean 0 and length 1."""
    from scipy.special import ndtri  # heavy, and seldom needed

    scores = ndtri((np.arange(len(values)) + 0.5) / len(values))
    order = np.argsort(np.ascontiguousarray(values.T), axis=1, kind="stable")
    out = np.empty(order.shape)
    np.put_along_axis(out, order, scores[None] / np.linalg.norm(scores), axis=1)
    return out.T
