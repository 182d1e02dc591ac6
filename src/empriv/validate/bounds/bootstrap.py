"""The bootstrap upper bound, a cross-check of the analytic one: databases resampled, the same for all individuals.

The largest of the percentile of the resampled hockey sticks at 0.7 of the one-SE bandwidth, the supremum over
half-lines of ``mean W + z se``, and the floor.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from empriv.base.progress import progress
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds.analytic import TOTAL_WIDTH, floor, merged_of
from empriv.validate.bounds.moments import Smooth, edges
from empriv.validate.ground import Ground

RESAMPLES = 200


def bootstrap_bounds(
    ground: Ground, epsilons: Sequence[float] | FloatArray, level: float, seed: int, show: bool | None
) -> FloatArray:
    """(individuals, epsilons) upper bounds."""
    grid = np.asarray(epsilons, float)
    e = np.exp(grid)
    n, draws = ground.n_databases, ground.draws
    rng = np.random.default_rng(seed)
    resamples = rng.multinomial(n, np.full(n, 1.0 / n), RESAMPLES).astype(float)
    subject = np.flatnonzero(ground.shifts > 0)
    out = np.full((ground.n_individuals, len(e)), floor(n, level))

    with progress(len(list(ground.blocks(subject))) * RESAMPLES, "Resampling databases", show=show) as advance:

        def task(rows: IntArray) -> FloatArray:
            merged = merged_of(ground, rows)
            sticks = np.empty((RESAMPLES, len(rows), len(e)))
            for k, counts in enumerate(resamples):
                cut = Smooth.of(merged, TOTAL_WIDTH * ground.bandwidth, np.repeat(counts, draws))
                for column, factor in enumerate(e):
                    by_direction = [cut.values(direction, float(factor), draws) @ counts / n for direction in (0, 1)]
                    sticks[k, :, column] = np.maximum(*by_direction)
                advance()
            upper = np.quantile(sticks, level, axis=0)
            points, without = ground.values.points, ground.values.dense(rows)
            each = [(m, m + 1) for m in range(len(points))]
            for sign in (1.0, -1.0):
                x, y = sign * points, sign * without
                for a, b in ((x, y), (y, x)):
                    for thresholds in (a, b):
                        line = edges(a, b, e, draws, each, level, mend=False, thresholds=thresholds)
                        np.maximum(upper, line, out=upper)
            return np.asarray(upper)

        for rows, upper in ground.in_threads(task, subject):
            out[rows] = np.maximum(out[rows], upper)
    return np.asarray(np.minimum(out, 1.0))
