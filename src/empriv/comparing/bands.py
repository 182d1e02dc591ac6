"""Bounds of each protocol along epsilon, computed once for the table, the page, the picture and JSON.

The bounds come from `validate`. Most of the work serves every epsilon at once, so that a dozen cost little more than
two.
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

_STEPS = 7  # besides 0
_FIGURES = ("epsilon", "lower", "limit", "estimate", "upper", "total_risk_lower", "total_risk", "total_risk_upper")


def reach_of(audits: Mapping[str, Audit], epsilons: Sequence[float]) -> float:
    """How far to draw curves: a little beyond where all are 0, or the largest asked for; at most 6 times that."""
    largest = epsilons[-1]
    ends = [audit.epsilon(0.0) for audit in audits.values()]
    vanish = 1.25 * max((end for end in ends if math.isfinite(end)), default=0.0)
    return max(1.25 * largest, min(vanish, 6 * largest) if largest > 0 else vanish) or 1.0


def bounded_epsilons(epsilons: Sequence[float], reach: float) -> FloatArray:
    """The epsilons asked for and eight from 0 on, closer together on the left, where curves are steep."""
    steps = [float(f"{reach * (k / _STEPS) ** 2:.2g}") for k in range(_STEPS + 1)]
    return np.unique([*epsilons, *steps])


def bands(audits: Mapping[str, Audit], epsilons: Sequence[float]) -> dict[str, Bounds]:
    """Bounds at 95% for each protocol: at the epsilons asked for, and for queries of one number at eight others.

    Nothing about single individuals is kept. A bound at an epsilon asked for may be a little wider than it would be
    alone: where the bound at a greater epsilon is higher, it is used here too.
    """
    grid = np.array(epsilons)
    if all(comparable(audit.measured) is not None for audit in audits.values()):
        grid = bounded_epsilons(epsilons, reach_of(audits, epsilons))
    out = {}
    with progress(len(audits), "Finding bounds") as advance:
        for name, audit in audits.items():
            protocol_bounds = bounds(audit.measured, grid)
            nobody = np.empty((0, len(grid)))
            out[name] = replace(protocol_bounds, estimate_i=nobody, upper_i=nobody)
            advance()
    return out


def select_epsilons(bounds_along: Bounds, places: IntArray) -> Bounds:
    """The same bounds, at the epsilons in these places only."""
    figures: dict[str, Any] = {name: np.asarray(getattr(bounds_along, name))[places] for name in _FIGURES}
    return replace(bounds_along, **figures)
