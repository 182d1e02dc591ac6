"""Moments in exact rational arithmetic, rounded once at the end: an oracle that no outlier can disturb."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction


def moments(ys: Sequence[float], xs: Sequence[float]) -> dict[str, float | None]:
    """What SQL's aggregates of x, and of pairs (y, x), are; NaN in an argument stands for NULL."""
    values = [Fraction(x) for x in xs if not math.isnan(x)]
    pairs = [(Fraction(y), Fraction(x)) for y, x in zip(ys, xs, strict=True) if not (math.isnan(x) or math.isnan(y))]
    n, m = len(values), len(pairs)
    square = _comoment([(x, x) for x in values])
    yx, xx = _comoment(pairs), _comoment([(x, x) for _, x in pairs])
    yy = _comoment([(y, y) for y, _ in pairs])
    return {
        "sum(x)": float(sum(values)) if n else None,
        "avg(x)": float(sum(values) / n) if n else None,
        "var_pop(x)": float(square / n) if n else None,
        "var_samp(x)": float(square / (n - 1)) if n > 1 else None,
        "stddev_pop(x)": _root(square / n) if n else None,
        "stddev_samp(x)": _root(square / (n - 1)) if n > 1 else None,
        "covar_pop(y, x)": float(yx / m) if m else None,
        "covar_samp(y, x)": float(yx / (m - 1)) if m > 1 else None,
        "regr_slope(y, x)": None if not m else float(yx / xx) if xx else math.nan,
        "corr(y, x)": None if not m else float(yx) / (_root(xx) * _root(yy)) if xx and yy else math.nan,
    }


def _comoment(pairs: Sequence[tuple[Fraction, Fraction]]) -> Fraction:
    if not pairs:
        return Fraction(0)
    a, b = (sum((pair[side] for pair in pairs), Fraction(0)) / len(pairs) for side in (0, 1))
    return sum(((p - a) * (q - b) for p, q in pairs), Fraction(0))


def _root(x: Fraction) -> float:
    """Square root of a fraction of any size."""
    return float(Fraction(math.isqrt(x.numerator * 2**4000 // x.denominator), 2**2000))
