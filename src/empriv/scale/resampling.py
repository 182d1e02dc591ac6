"""Upper bounds by resampling databases, for the individuals whom a scan keeps: here, or in the executors of a cluster.

The resamples follow from the seed and are the same for all individuals, so that dealing individuals out changes
nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from empriv.measuring.line.risk import Risk
from empriv.results import FloatArray
from empriv.validate.bounds.bootstrap import bootstrap_bounds
from empriv.validate.checks.robustness import risk_of_rows
from empriv.validate.ground import ground_of

if TYPE_CHECKING:
    from empriv.collecting.engines.engine import ClusterEngine


def resampled_upper(
    risk: Risk,
    epsilons: FloatArray,
    level: float,
    *,
    engine: ClusterEngine | None = None,
    rng: int = 0,
    progress: bool | None = None,
) -> FloatArray:
    """(individuals, epsilons) upper bounds; with ``engine``, each of its partitions takes some of the individuals."""
    if engine is None:
        return bootstrap_bounds(ground_of(risk), epsilons, level, rng, progress)
    n = risk.results.n_individuals
    count = max(1, min(n, engine.parts()))
    whose = [np.arange(number, n, count) for number in range(count)]
    parts = [risk_of_rows(risk, rows) for rows in whose]

    def work(number: int) -> bytes:
        return bootstrap_bounds(ground_of(parts[number]), epsilons, level, rng, False).tobytes()

    upper = np.empty((n, len(epsilons)))
    for rows, answer in zip(whose, engine.call_each(count, work), strict=True):
        upper[rows] = np.frombuffer(answer, np.float64).reshape(-1, len(epsilons))
    return upper
