"""Are the residuals of a cell as the bounds take them to be? Three tests.

**Does it depend on the rest of the table?** The regression takes out what the rest says of a cell on average. If the
rest also says how far the cell strays, or bends its mean, residuals are not of one law that all databases have in
common, and figures may be too small. Statistics of ranks look for both: residuals and their size, against every other
cell, its size, and the leverage of the database. Their law without dependence comes from permutations: residuals,
freed of the leverage, are dealt out to the databases again and go through the same regression. So neither skewed cells
nor many of them cause alarms.

**Has it a hard edge?** Least squares with p parameters from n databases smear what is finer than the root of p/n
standard deviations. An edge is found by the regression that suits it: the plane below all points whose distances from
it are least in sum. It is the most likely one if residuals are exponential, and near an edge it is off by p/n alone.

**Has it two peaks?** The same smearing fills the valley between them, and residuals look flat instead: their kurtosis
stays far below the normal law's.
"""

from __future__ import annotations

import numpy as np

from empriv.results import FloatArray

PERMUTATIONS = 199
_MOST_FITTED = 0.8  # parameters in a database: beyond, too little is left to look at


def depends_on_rest(left: FloatArray, rest: FloatArray, *, rng: int = 0) -> float:
    """p-value of the residuals of a cell (n,) being independent of the rest (n, r); 1 where nothing can be seen."""
    n = len(left)
    frame = _frame(rest)
    if not rest.shape[1] or frame.shape[1] > _MOST_FITTED * n or not np.ptp(left) > 0:
        return 1.0
    leverage = (frame**2).sum(axis=1)
    free = np.sqrt(np.maximum(1.0 - leverage, 1e-3))[:, None]
    start = (left - frame @ (frame.T @ left))[:, None] / free
    order = np.random.default_rng(rng).permuted(np.tile(np.arange(n), (PERMUTATIONS, 1)), axis=1).T
    dealt = start[:, 0][order]
    dealt = (dealt - frame @ (frame.T @ dealt)) / free
    values = np.concatenate((start, dealt), axis=1)
    signed, sizes = _scores(values), _scores(np.abs(values))
    # the rest as uncorrelated numbers that stay as close to the cells as they can
    vectors, lengths, axes = np.linalg.svd(rest - rest.mean(axis=0), full_matrices=False)
    present = lengths > 1e-9 * lengths.max(initial=0.0)
    white = vectors[:, present] @ axes[present]
    cells, far, spread = _scores(white), _scores(np.abs(white)), _scores(leverage[:, None])
    statistics = np.stack(
        [
            ((regressors.T @ scores) ** 2).sum(axis=0)
            for regressors, scores in ((far, signed), (cells, sizes), (far, sizes), (spread, signed), (spread, sizes))
        ]
    )
    # the most unusual of the five is compared with its own law: no correction is due for their number
    logs = np.log(np.maximum(statistics, 1e-300))
    usual, spread_of_logs = np.median(logs, axis=1, keepdims=True), logs[:, 1:].std(axis=1, keepdims=True)
    most = ((logs - usual) / np.maximum(spread_of_logs, 1e-12)).max(axis=0)
    return float((most >= most[0] - 1e-12).mean())


def edge_gain(cell: FloatArray, rest: FloatArray) -> float:
    """How much likelier a cell (n,) is, given the rest (n, r), on one side of a plane with an exponential law than
    around one with a normal law: logarithm, for each database; 0.42 for exponential laws, below 0 for normal ones."""
    from scipy.optimize import linprog  # heavy, and seldom needed

    n = len(cell)
    frame = _frame(rest)
    freedom = n - frame.shape[1]
    if frame.shape[1] > _MOST_FITTED * n or not np.ptp(cell) > 0:
        return -np.inf
    left = cell - frame @ (frame.T @ cell)
    spread = float(np.sqrt((left**2).sum() / freedom))
    if not spread > 1e-9 * float(np.abs(cell).max()):
        return -np.inf
    gains = []
    for side in (left / spread, -left / spread):
        # the plane's weights b in the frame: least sum of distances, none of them negative
        plane = linprog(-frame.sum(axis=0), A_ub=frame, b_ub=side, bounds=(None, None), method="highs")
        if plane.status == 0:
            distance = float((side - frame @ plane.x).sum()) / freedom
            gains.append(0.5 * np.log(2 * np.pi) - 0.5 - np.log(max(distance, 1e-12)))
    return float(max(gains, default=-np.inf))


def flatness(cell: FloatArray, rest: FloatArray) -> float:
    """By how many standard deviations the kurtosis of the residuals of a cell (n,) is below that of a normal law."""
    n = len(cell)
    frame = _frame(rest)
    left = cell - frame @ (frame.T @ cell)
    spread = float(np.sqrt((left**2).mean()))
    if frame.shape[1] > _MOST_FITTED * n or not spread > 1e-9 * float(np.abs(cell).max(initial=0.0)):
        return -np.inf
    return float((3.0 - ((left / spread) ** 4).mean()) / np.sqrt(24.0 / n))


def _frame(rest: FloatArray) -> FloatArray:
    """(n, p) orthonormal, of a constant and the rest."""
    scale = rest.std(axis=0)
    columns = np.column_stack((np.ones(len(rest)), (rest - rest.mean(axis=0)) / np.where(scale > 0, scale, 1.0)))
    vectors, lengths, _ = np.linalg.svd(columns, full_matrices=False)
    return np.asarray(vectors[:, lengths > 1e-9 * lengths.max()])


def _scores(values: FloatArray) -> FloatArray:
    """Normal scores of each column, of mean 0 and length 1."""
    from scipy.special import ndtri  # heavy, and seldom needed

    ranks = np.argsort(np.argsort(values, axis=0, kind="stable"), axis=0, kind="stable")
    scores = ndtri((np.arange(len(values)) + 0.5) / len(values))[ranks]
    return np.asarray(scores / np.linalg.norm(scores[:, :1]))
