"""Tails: how answers continue beyond a window of cells, how wide the window must be, and what lies beyond it at most.

The window itself is in `window`, the answers in `cells`, noise in `convolve`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from empriv.measuring.densities.density import Differences, Mixture
from empriv.noise.certify.cells import RoundedAnswers
from empriv.noise.certify.convolve import compact_width, laplace_parts
from empriv.noise.law import Law
from empriv.results import FloatArray, IntArray

End = tuple[FloatArray, FloatArray, FloatArray]

_FARTHEST = 41.0  # bandwidths: beyond, a Gaussian kernel is below the least double
_NEXT_TO_NOTHING = math.log(1e-12)


@dataclass(frozen=True)
class Reach:
    """How far a window goes beyond all results, and what is known of what lies further out.

    Attributes
    ----------
    kernel, noise : cells for the kernels, and for the noise
    tails : of the answers beyond: "bounded" (nothing), "geometric", "light" (falls faster than the noise, or is
        counted), "power", or "unknown"
    rate : of geometric tails, per cell; None for others
    fall : rate at which light tails fall there, at least, per cell
    """

    kernel: int
    noise: int
    tails: str
    rate: float | None
    fall: float

    @staticmethod
    def counted(answers: RoundedAnswers, law: Law, delta: float) -> Reach:
        """Next to nothing lies beyond the window, and it is counted in full: for delta_i."""
        tails, _ = _tails(answers)
        cells = math.ceil(kernel_reach(answers, delta) * widest(answers)) + 2
        return Reach(cells, _noise_reach(law), tails, None, math.inf)

    @staticmethod
    def exact(answers: RoundedAnswers, law: Law) -> Reach:
        """The form of the tails bounds the ratio of both sides beyond the window: for epsilon at delta = 0."""
        tails, rate = _tails(answers)
        parts, wide, compact = laplace_parts(law), widest(answers), compact_width(law)
        scale = 1.0 / parts[0][0] if parts else 0.0
        fall = 1.0 / wide if wide else math.inf
        if tails == "power":
            kernel = max(120.0 * scale, 60.0 * wide, 4.0 * compact)
            return Reach(math.ceil(kernel) + 2, math.ceil(60.0 * scale) + compact + 2, tails, rate, fall)
        kernel = wide if tails == "bounded" else _FARTHEST * wide
        if tails == "light" and _gaussian(answers):
            z = _enough(answers, law) if parts else _FARTHEST
            kernel, fall = z * wide, z / wide  # the log density falls by at least z/h per bandwidth from there on
        elif tails == "light" and parts and fall > parts[0][0]:
            kernel = max(kernel, min(45.0 / (fall - parts[0][0]), 400.0 * wide))
        elif tails == "geometric" and rate is not None:
            model = answers.model
            if not (isinstance(model, Mixture) and model.kernel.name == "laplace"):
                kernel = max(kernel, 6.0 * scale)  # a logistic kernel is geometric from 41 bandwidths on
            elif len(parts) == 1 and parts[0][0] < 0.99 * rate:
                kernel = 0.0  # geometric from its centre on: two exponentials, which `tail_supremum` bounds exactly
            else:
                kernel = max(12.0 * wide, 6.0 * scale)
        return Reach(math.ceil(kernel) + 2, compact + 2, tails, rate, fall)


def widest(answers: RoundedAnswers) -> float:
    """Largest bandwidth in granularities."""
    h = answers.bandwidths
    return 0.0 if h is None else float(h.max())


def kernel_reach(answers: RoundedAnswers, delta: float) -> float:
    """Bandwidths to which kernels are followed where what lies beyond is counted in full."""
    model = answers.model
    if not isinstance(model, Mixture):
        return 0.0
    if model.kernel.tail == "power":
        # 3/z^4 lies beyond z on each side: a thousandth of the target, or 6e-8 in all
        return float(np.clip((3000.0 / max(delta, 1e-9)) ** 0.25, 100.0, model.kernel.reach))
    return model.kernel.reach


def _tails(answers: RoundedAnswers) -> tuple[str, float | None]:
    """How answers continue far out, and their rate if they are geometric there."""
    model = answers.model
    if model is None or isinstance(model, Differences):
        return "bounded", None
    if not isinstance(model, Mixture):
        return "unknown", None
    kernel = model.kernel
    if kernel.tail == "bounded":
        return "bounded", None
    if kernel.tail == "power":
        return "power", None
    if kernel.tail == "exponential" and model.refit is None and math.isfinite(model.bandwidth):
        return "geometric", answers.granularity / model.bandwidth
    return ("unknown" if model.refit is not None else "light"), None


def _gaussian(answers: RoundedAnswers) -> bool:
    return isinstance(answers.model, Mixture) and answers.model.kernel.tail == "gaussian"


def _enough(answers: RoundedAnswers, law: Law) -> float:
    """Bandwidths beyond which Gaussian kernels add next to nothing to the slowest Laplace part, as `light` counts it.

    The mass of a cell z bandwidths out is at most exp(-z²/2)/h, the slowest part there at least
    kappa w exp(-(span + z h)/s), all in granularities. What is chosen here decides on speed and tightness only:
    `light` counts whatever there is.
    """
    speed, kappa, share = laplace_parts(law)[0]
    wide = widest(answers)
    span = 0.0
    finite = [values[np.isfinite(values)] for values in (answers.risk.pairs.points, answers.risk.pairs.entries)]
    numbers = np.concatenate([values.ravel() for values in finite])
    if len(numbers):
        span = float(np.ptp(numbers)) / law.granularity
    for z in np.arange(7.0, _FARTHEST):
        gap = z / wide - speed
        if gap > 0:
            slow = math.log(kappa * share) - speed * (span + z * wide + compact_width(law))
            if -0.5 * z * z - math.log(wide * math.expm1(min(gap, 700.0))) - slow < _NEXT_TO_NOTHING:
                return float(z)
    return _FARTHEST


def _noise_reach(law: Law) -> int:
    """Cells beyond which less than 1e-14 of the noise lies."""
    high = 1
    while 2.0 * float(law.tail(high)) > 1e-14:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if 2.0 * float(law.tail(middle)) <= 1e-14 else (middle, high)
    return high


def power_tail(
    answers: RoundedAnswers, law: Law, rows: IntArray, *, least: float, most: float, distance: float
) -> FloatArray:
    """Upper bound of the log ratio beyond the window for kernels with power tails (Student, four degrees of freedom).

    Take a cell at distance D' >= D from all results, and split the noise into at most D'/2 and more. For the former,
    every kernel is D'/2 or further away, where |d log k/dz| <= 5/z: shifts of at most d change it by at most 10 d/D in
    log. The latter is at most 2 tail(D'/2), against at least half of the kernel's density at span + 3/2 D'. It falls
    exponentially and the density as a power, so that their ratio falls with D' from 10 scales on.
    """
    g, model, shifts = law.granularity, answers.model, answers.risk.shifts
    assert isinstance(model, Mixture)
    wide, narrow = float(model.bandwidths.max()), float(model.bandwidths.min())
    scale = max((part.scale for part in law.parts), default=0.0)
    d_max = np.where(np.isfinite(shifts), shifts * wide, np.inf)[rows]
    if distance < 20.0 * scale or distance <= 4 * g:
        return np.full(len(rows), np.inf)
    span = (most - least) * g
    farthest = (span + 1.5 * distance + g) / narrow
    least_mass = 0.5 * (g / narrow) * float(model.kernel.pdf(np.array([farthest]))[0])
    rest = 2.0 * float(law.tail(max(1, math.floor(0.5 * distance / g)))) / least_mass
    return np.asarray(10.0 * d_max / (distance - 2 * g) + math.log1p(rest))


def light(law: Law, fall: float, ends: list[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """What answers beyond the window may add to the log ratio, anywhere; ``ends`` are (last cell's mass, coefficients).

    With rho = e^(-1/s) of the slowest part, the answers beyond the last cell add at most ``rho^t E`` at t cells
    from it, inside or outside, E = sum_u rho^(-u) P(last + u) <= P(last) r/(rho - r), and the slowest part alone is
    at least ``rho^t c`` there: so they add at most E/c in proportion.
    """
    parts = laplace_parts(law)
    speed = parts[0][0]
    if fall <= speed:
        return np.full(len(ends[0][0]), np.inf)
    weight = sum(kappa * share for _, kappa, share in parts)
    # tables and Gaussian parts carry what lies beyond to so many cells from it, where rho^t is smaller
    carried = math.exp(min(speed * compact_width(law), 700.0))
    weight += carried * sum(share for share, part in law.shares() if part.kind != "laplace")
    more = np.zeros(1)
    for end, coefficients in ends:
        with np.errstate(divide="ignore", invalid="ignore"):
            share = weight * (end + 1e-300) / math.expm1(min(fall - speed, 700.0)) / coefficients[:, 0]
        more = more + np.where(np.isfinite(share), share, np.inf)
    return np.log1p(more)


def tail_supremum(
    above: End,
    below: End,
    law: Law,
    rate: float | None,
    slack: float,
) -> FloatArray:
    """Upper bound of log(above/below) on all cells beyond one end of the window.

    Each side is (Laplace coefficients, compact mass, answer's mass) at that end. With the answer going on as A r^t,

        B(t) = sum_m c_m a_m^t + A sum_m kappa_m w_m (psi_m(t) + r^t a_m r/(1 - a_m r)) + C r^t,
        psi_m(t) = sum_{1<=u<=t} a_m^(t-u) r^u = (a_m^t - r^t) r/(a_m - r),

    a sum of exponentials. By Abel's summation, if the prefix sums of ``e B_i - B``, slowest term first, are all at
    least 0 at one t, the whole is at least 0 from there on: so the largest ratio of prefix sums bounds the ratio. As
    all terms of the first form are positive, so does the largest ratio of like terms; the smaller of both is taken.
    """
    parts = laplace_parts(law)
    if rate is None:
        slow = [(speed, above[0][:, m], below[0][:, m]) for m, (speed, _, _) in enumerate(parts)]
        return _prefixes(slow, slack)
    # ratio of like terms
    plain = _log_ratio(above[1] * (1 + slack), below[1] * (1 - slack))
    plain = np.maximum(plain, _log_ratio(above[2] * (1 + slack), below[2] * (1 - slack)))
    for m in range(len(parts)):
        plain = np.maximum(plain, _log_ratio(above[0][:, m] * (1 + slack), below[0][:, m] * (1 - slack)))
    sums = []
    at_rate = [above[1].copy(), below[1].copy()]
    for m, (speed, kappa, share) in enumerate(parts):
        if abs(speed - rate) < 1e-6 * rate:
            return plain  # the two rates are one: t r^t, for which like terms serve well
        # r/(a - r): negative where the kernel is slower
        partial = kappa * share / math.expm1(rate - speed)
        series = kappa * share / math.expm1(rate + speed)
        pair = []
        for index, side in enumerate((above, below)):
            pair.append(side[0][:, m] + side[2] * partial)
            at_rate[index] = at_rate[index] + side[2] * (series - partial)
        # what rounding may do to a difference of large terms
        error = slack * (np.abs(pair[0]) + abs(partial) * above[2]), slack * (np.abs(pair[1]) + abs(partial) * below[2])
        sums.append((speed, pair[0] + error[0], pair[1] - error[1]))
    large = sum(abs(kappa * share / math.expm1(rate - speed)) for speed, kappa, share in parts)
    at_rate[0] = at_rate[0] + slack * (np.abs(at_rate[0]) + large * above[2])
    at_rate[1] = at_rate[1] - slack * (np.abs(at_rate[1]) + large * below[2])
    sums.append((rate, at_rate[0], at_rate[1]))
    return np.minimum(plain, _prefixes(sums, slack))


def _prefixes(terms: list[tuple[float, FloatArray, FloatArray]], slack: float) -> FloatArray:
    """Largest log ratio of prefix sums, slowest term first; inf where the lower one is not positive."""
    if not terms:
        return np.zeros(0)
    top = bottom = np.zeros(len(terms[0][1]))
    largest = np.full(len(top), -np.inf)
    for _, up, down in sorted(terms, key=lambda term: term[0]):
        top, bottom = top + up, bottom + down
        ratio = _log_ratio(np.maximum(top, 0.0) * (1 + slack), bottom * (1 - slack))
        # e bottom - top must not be negative: a prefix sum below that is negative proves nothing
        largest = np.maximum(largest, np.where((bottom < 0.0) | ((bottom == 0.0) & (top > 0.0)), np.inf, ratio))
    return largest


def _log_ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """log(above/below); -inf where there is nothing above, inf where there is nothing below."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(above) - np.log(below)
    return np.where(above <= 0.0, -np.inf, np.where(below <= 0.0, np.inf, ratio))
