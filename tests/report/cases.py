"""Audits to report: ordinary, nasty and extreme ones."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

import empriv

NASTY = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(2)>',
    "</script><script>alert(3)</script>",
    "line\u2028separator\u202e\x1b[31m",
    "{{ 7 * 7 }} ${1} <!-- -->",
)


def results(
    n: int = 40, m: int = 30, *, seed: int = 0, individuals: Any = None, databases: Any = None, level: float = 0.0
) -> Any:
    rng = np.random.default_rng(seed)
    q = level + rng.normal(size=n)
    without = q - rng.exponential(0.05, size=(m, n))
    return empriv.Results.from_arrays(q, without, individuals=individuals, databases=databases)


@cache
def extreme(name: str) -> empriv.Audit:
    """An audit at the edge of what there is."""
    rng = np.random.default_rng(1)
    q = rng.normal(size=40)
    if name == "nobody exposed":
        return empriv.audit(empriv.Results.from_arrays(q, np.stack([q] * 5)))
    if name == "one individual, delta 1":
        return empriv.audit(empriv.Results.from_arrays(q, np.stack([q + 1e6])))
    if name == "three databases":
        return empriv.audit(empriv.Results.from_arrays(q[:3], q[:3] + 0.01 * rng.normal(size=(10, 3))))
    if name == "constant":
        return empriv.audit(empriv.Results.from_arrays(np.full(40, 7.0), np.full((5, 40), 7.0)))
    if name == "atoms":
        two = rng.integers(0, 2, size=40).astype(float)
        without = np.stack([two] * 5)
        without[0, :20] = 3
        return empriv.audit(empriv.Results.from_arrays(two, without))
    if name == "nulls":
        full = results()
        outcomes, values = full.outcomes.copy(), full.q.copy()
        entry_outcomes, entries = full.entry_outcomes.copy(), full.entry_q.copy()
        there = full.entry_database < 5
        outcomes[:5], values[:5], entry_outcomes[there], entries[there] = 1, np.nan, 1, np.nan
        entry_outcomes[7], entries[7] = 1, np.nan
        return empriv.audit(replace(full, q=values, outcomes=outcomes, entry_q=entries, entry_outcomes=entry_outcomes))
    if name == "draws":
        drawn = rng.normal(size=(40, 3))
        return empriv.audit(empriv.Results.from_arrays(drawn, drawn + 0.05 * rng.normal(size=(4, 40, 3))))
    return empriv.audit(empriv.Results.from_arrays(q, q + 0.05 * rng.normal(size=(4, 40))), epsilon=0.0)


EXTREMES = (
    "nobody exposed", "one individual, delta 1", "three databases", "constant", "atoms", "nulls", "draws", "epsilon 0",
)  # fmt: skip
