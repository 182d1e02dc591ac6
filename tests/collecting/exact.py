"""Moments in exact rational arithmetic, rounded once at the end: an oracle that no outlier can disturb."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def moments(xs: Sequence[float]) -> dict[str, float | None]:
    """What SQL's aggregates of x are; NaN stands for NULL."""
    values = [Fraction(x) for x in xs if not math.isnan(x)]
    n, mean = len(values), sum(values, Fraction(0)) / max(1, len(values))
    square = sum(((x - mean) ** 2 for x in values), Fraction(0))
    return {
        "sum(x)": float(sum(values)) if n else None,
        "avg(x)": float(mean) if n else None,
        "var_pop(x)": float(square / n) if n else None,
        "var_samp(x)": float(square / (n - 1)) if n > 1 else None,
        "stddev_pop(x)": _root(square / n) if n else None,
        "stddev_samp(x)": _root(square / (n - 1)) if n > 1 else None,
    }


def _root(x: Fraction) -> float:
    """Square root of a fraction of any size."""
    return float(Fraction(math.isqrt(x.numerator * 2**4000 // x.denominator), 2**2000))
