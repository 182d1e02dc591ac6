"""Bounds of each protocol, computed once: at the epsilons asked for, for tables and JSON, and along epsilon for charts.

The bounds come from `validate`. At small epsilons, which charts begin with, nobody can be skipped: so bounds along
epsilon are not looked for before somebody draws them.
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
from empriv.results import FloatArray
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


def bounds_at(audits: Mapping[str, Audit], epsilons: Sequence[float] | FloatArray) -> dict[str, Bounds]:
    """Bounds at 95% for each protocol, at these epsilons. Nothing about single individuals is kept."""
    grid = np.array(epsilons)
    out = {}
    with progress(len(audits), "Finding bounds") as advance:
        for name, audit in audits.items():
            nobody = np.empty((0, len(grid)))
            out[name] = replace(bounds(audit.measured, grid), estimate_i=nobody, upper_i=nobody)
            advance()
    return out


def bands(audits: Mapping[str, Audit], asked: Mapping[str, Bounds], epsilons: Sequence[float]) -> dict[str, Bounds]:
    """Bounds along epsilon: those ``asked`` for at the epsilons, and for queries of one number at eight others.

    A bound at an epsilon asked for may be a little wider than it is alone: where the bound at a greater epsilon is
    higher, it is used here too.
    """
    if any(comparable(audit.measured) is None for audit in audits.values()):
        return dict(asked)
    grid = bounded_epsilons(epsilons, reach_of(audits, epsilons))
    others = bounds_at(audits, np.setdiff1d(grid, epsilons))
    return {name: _joined(asked[name], others[name]) for name in audits}


def _joined(asked: Bounds, others: Bounds) -> Bounds:
    """Both in the order of epsilon. None rises: delta falls, so what bounds it at another epsilon may bound it here."""
    order = np.argsort(np.concatenate((asked.epsilon, others.epsilon)))
    figures: dict[str, Any] = {
        name: np.concatenate((getattr(asked, name), getattr(others, name)))[order] for name in _FIGURES
    }
    for name in ("lower", "limit", "total_risk_lower"):
        figures[name] = np.minimum.accumulate(figures[name])
    for name in ("upper", "total_risk_upper"):
        figures[name] = np.maximum.accumulate(figures[name][::-1])[::-1]
    return replace(asked, **figures)
