"""Results of which some are no numbers."""

from __future__ import annotations

import numpy as np

from empriv.results import FloatArray, Results


def with_gaps(q: FloatArray, without: FloatArray) -> Results:
    """Results (n,), and without each individual (rows, n); NaN where there is no number."""
    rows, n = without.shape
    return Results(
        q=q, outcomes=np.isnan(q).astype(np.int8), databases=np.arange(n), individuals=np.arange(rows),
        starts=np.arange(rows + 1) * n, entry_database=np.tile(np.arange(n, dtype=np.int32), rows),
        entry_q=without.ravel(), entry_outcomes=np.isnan(without).astype(np.int8).ravel(),
    )  # fmt: skip
