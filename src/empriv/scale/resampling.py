"""Upper bounds by resampling databases, for the individuals whom a scan keeps: here, or in the executors of a cluster.

The resamples follow from the seed and are the same for all individuals, so that dealing individuals out changes
nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.measuring.line.risk import Risk
from empriv.results import FloatArray
from empriv.validate.bounds.bootstrap import bootstrap_bounds
from empriv.validate.checks.robustness import of_some
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
    from empriv.collecting.engines.spark.failures import querying

    spark, n = engine.spark, risk.results.n_individuals
    count = max(1, min(n, engine.partitions or int(spark.conf.get("spark.sql.shuffle.partitions"))))
    whose = [np.arange(number, n, count) for number in range(count)]
    parts = [of_some(risk, rows) for rows in whose]

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow

        for batch in batches:
            for number in batch["id"].to_pylist():
                upper = bootstrap_bounds(ground_of(parts[number]), epsilons, level, rng, False)
                columns = [pyarrow.array([number], pyarrow.int64()), pyarrow.array([upper.tobytes()], pyarrow.binary())]
                yield pyarrow.RecordBatch.from_arrays(columns, names=["id", "upper"])

    with querying():
        found = spark.range(0, count, 1, count).mapInArrow(work, "id bigint, upper binary").collect()
    out = np.empty((n, len(epsilons)))
    for number, content in found:
        out[whose[number]] = np.frombuffer(bytes(content), np.float64).reshape(-1, len(epsilons))
    return out
