"""How much classical noise a stated sensitivity needs.

Laplace: sensitivity / epsilon. Gaussian: the smallest standard deviation s at which, for two answers d apart,

    delta(epsilon) = F(d / 2s - epsilon s / d) - e^epsilon F(-d / 2s - epsilon s / d),

F the standard normal distribution function, is at most delta (the analytic Gaussian mechanism of Balle and Wang, 2018).
Both are rounded up: towards more noise.
"""

from __future__ import annotations

import math


def laplace_scale(sensitivity: float, epsilon: float) -> float:
    """Scale of Laplace noise."""
    return _up(sensitivity / epsilon)


def gaussian_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    """Standard deviation of Gaussian noise."""
    low, high = 0.0, 1.0  # of s / d
    while gaussian_delta(1.0 / high, epsilon) > delta:
        low, high = high, 2 * high
    while high - low > 1e-12 * high:
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gaussian_delta(1.0 / middle, epsilon) > delta else (low, middle)
    # the formula is a difference of nearly equal numbers: tests show that the margin is wider than its rounding
    return _up(sensitivity * high * (1 + 1e-9))


def gaussian_delta(shift: float, epsilon: float) -> float:
    """delta at epsilon of Gaussian noise of standard deviation 1 on two answers ``shift`` apart."""
    from scipy.special import log_ndtr

    near = float(log_ndtr(0.5 * shift - epsilon / shift))
    far = float(log_ndtr(-0.5 * shift - epsilon / shift))
    return math.exp(near) * -math.expm1(epsilon + far - near)


def _up(number: float) -> float:
    return math.nextafter(number, math.inf)
