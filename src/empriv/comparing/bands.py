"""Bounds of each protocol along epsilon, found once: the table, the page, the picture and JSON are all given these.

The bounds themselves are `validate`'s. Most of their work serves every epsilon at once, so that a dozen cost little
more than two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from empriv.auditing.audit import Audit
from empriv.base.progress import progress
from empriv.comparing.differences import comparable
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds import Bounds, bounds

_STEPS = 7  # and 0
_FIGURES = ("epsilon", "lower", "estimate", "upper", "total_risk_lower", "total_risk", "total_risk_upper")


def reach_of(audits: Mapping[str, Audit], epsilons: Sequence[float]) -> float:
    """How far curves are drawn: a little beyond where all are 0, or the largest asked for; not six times beyond."""
    largest = epsilons[-1]
    ends = [audit.epsilon(0.0) for audit in audits.values()]
    vanish = 1.25 * max((end for end in ends if math.isfinite(end)), default=0.0)
    return max(1.25 * largest, min(vanish, 6 * largest) if largest > 0 else vanish) or 1.0


def bounded_epsilons(epsilons: Sequence[float], reach: float) -> FloatArray:
    """The epsilons asked for and eight from 0 on, closer together where curves are steep, that is, at the left."""
    steps = [float(f"{reach * (k / _STEPS) ** 2:.2g}") for k in range(_STEPS + 1)]
    return np.unique([*epsilons, *steps])


def bands(audits: Mapping[str, Audit], epsilons: Sequence[float]) -> dict[str, Bounds]:
    """Bounds at 95% of each: at the epsilons asked for, and for queries of one number at eight others.

    Nothing about single individuals is kept. At an epsilon asked for a bound may lie a little further out than it would
    alone: where that at a greater epsilon is higher, it is taken here too.
    """
    grid = np.array(epsilons)
    if all(comparable(audit.measured) is not None for audit in audits.values()):
        grid = bounded_epsilons(epsilons, reach_of(audits, epsilons))
    out = {}
    with progress(len(audits), "Finding bounds") as advance:
        for name, audit in audits.items():
            found = bounds(audit.measured, grid)
            nobody = np.empty((0, len(grid)))
            out[name] = replace(found, estimate_i=nobody, upper_i=nobody)
            advance()
    return out


def picked(found: Bounds, places: IntArray) -> Bounds:
    """The same at some of the epsilons."""
    some: dict[str, Any] = {name: np.asarray(getattr(found, name))[places] for name in _FIGURES}
    return replace(found, **some)
