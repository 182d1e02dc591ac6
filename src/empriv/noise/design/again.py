"""The least noise for many publications: the smallest scale whose composition keeps the target of all of them.

Laplace and Gaussian laws are tried, and the one of the smaller expected error is taken. Over many looks what counts is
the variance of the loss, so that Gaussian noise mostly wins. The search looks at the people who need most; what it ends
on is certified for everyone, and whoever misses joins the search. It is kept until several publications are judged as
one is.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from empriv.errors import InputError
from empriv.measuring.line.risk import Risk
from empriv.noise.certify.composed import ComposedCertificate
from empriv.noise.law import Law
from empriv.results import IntArray

_LOOKED_AT = 48  # people that the search looks at
_ROUNDS = 6
_WIDEST = 2.0**30  # granularities
_TOLERANCE = 5e-3  # of the scale
_HALVINGS = 60


def least_again(risk: Risk, epsilon: float, delta: float, times: int, granularity: float) -> ComposedCertificate:
    """The certificate of the least noise for ``times`` publications."""

    def certificate(law: Law, rows: IntArray | None = None) -> ComposedCertificate:
        return ComposedCertificate(risk, law, epsilon, delta, times, rows)

    def of_kind(kind: str, rows: IntArray, start: float) -> ComposedCertificate | None:
        """The certificate, for everyone, of the least law of one kind."""

        def law(scale: float) -> Law:
            return Law.of(granularity, [(kind, 1.0, scale)])

        for _ in range(_ROUNDS):
            looked_at = rows

            def holds(scale: float, looked_at: IntArray = looked_at) -> bool:
                within = granularity <= scale <= _WIDEST * granularity
                return within and certificate(law(scale), looked_at).holds

            scale = smallest_scale(holds, start)
            if scale is None:
                return None
            everyone = certificate(law(scale))
            if everyone.holds:
                return everyone
            rows, start = np.union1d(rows, everyone.worst(_LOOKED_AT)), scale
        return None

    influence = risk.influence()
    numbers = np.where(np.isfinite(influence), influence, 0.0)
    start = max(float(numbers.max(initial=0.0)) / epsilon, 2 * granularity)
    narrow = certificate(Law.of(granularity, [("laplace", 1.0, granularity)]))
    if narrow.holds:
        return narrow
    rows = np.union1d(narrow.worst(_LOOKED_AT), np.argsort(-numbers, kind="stable")[:_LOOKED_AT])
    found = []
    if certificate(Law.of(granularity, [("laplace", 1.0, _WIDEST * granularity)])).holds:
        found = [one for kind in ("laplace", "gaussian") if (one := of_kind(kind, rows, start)) is not None]
    if not found:
        raise InputError(
            "Noise must be able to hide an individual, which it cannot here: results that are not numbers (NULL, NaN, "
            "an error) come and go with somebody too often for this target. "
            "Hint: a query that always gives a number, or a larger `delta`."
        )
    return min(found, key=lambda one: one.law.expected_error)


def smallest_scale(holds: Callable[[float], bool], start: float) -> float | None:
    """The least scale that holds, by doubling and bisection; ends on one that does. None if none is found."""
    high = start
    for _ in range(_HALVINGS):
        if holds(high):
            break
        high *= 2.0
    else:
        return None
    low = high / 2.0
    while low > high / 2.0**_HALVINGS and holds(low):
        high, low = low, low / 2.0
    while high / low > 1.0 + _TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
