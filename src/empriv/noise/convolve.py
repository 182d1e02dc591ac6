"""Noisy answers: the cells of `answers` convolved with every part of a law, and the tails beyond the window.

Discrete Laplace parts are two recursive filters, ``F_k = a F_(k-1) + P_k`` from the left and ``S_k = a S_(k+1) + P_k``
from the right, with noisy mass ``(1-a)/(1+a) (F + S - P)``; all terms are positive, so every cell is accurate relative
to itself. Gaussian parts and tables are convolved term by term.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from empriv.noise.answers import doubling
from empriv.noise.lattice import Law, Part
from empriv.results import FloatArray

UNIT = float(np.finfo(float).eps)
TINY = 1e-280
"""Below this, a cell's mass has lost its digits: nothing is concluded from it."""

_GAUSSIAN_REACH = 38.5  # sigmas: beyond, a Gaussian law is below the least double


@dataclass(frozen=True, eq=False)
class Noisy:
    """Noisy masses in a window, and what continues beyond it.

    Attributes
    ----------
    mass : (rows, cells)
    right, left : (rows, Laplace parts) coefficients of a^t, t cells beyond the window's last and first cell, of the
        noise added to what lies inside the window
    compact_right, compact_left : (rows,) mass at the last and first cell that is due to the point mass, Gaussian
        parts and tables
    end_right, end_left : (rows,) mass of the answer itself at the last and first cell
    """

    mass: FloatArray
    right: FloatArray
    left: FloatArray
    compact_right: FloatArray
    compact_left: FloatArray
    end_right: FloatArray
    end_left: FloatArray


End = tuple[FloatArray, FloatArray, FloatArray]


def laplace_parts(law: Law) -> tuple[tuple[float, float, float], ...]:
    """(rate, kappa, weight) of each Laplace part, slowest first: a = e^(-rate), kappa = (1-a)/(1+a)."""
    parts = [
        (law.granularity / part.scale, math.tanh(0.5 * law.granularity / part.scale), share)
        for share, part in law.shares()
        if part.kind == "laplace"
    ]
    return tuple(sorted(parts))


def compact_width(law: Law) -> int:
    """Cells that Gaussian parts and tables reach to one side."""
    widths = [0]
    for part in law.parts:
        if part.kind == "gaussian":
            widths.append(math.ceil(_GAUSSIAN_REACH * part.scale / law.granularity))
        elif part.table is not None:
            widths.append(len(part.table) // 2)
    return max(widths)


def noisy(law: Law, cells: FloatArray, rate: float | None) -> Noisy:
    """Convolve; beyond both ends of the window the cells go on as e^(-rate t), or end if ``rate`` is None."""
    laplace = laplace_parts(law)
    mass = np.zeros(cells.shape)
    for share, part in law.shares():
        if part.kind != "laplace":
            mass += share * _compact(law, part, cells, rate)
    compact_right, compact_left = mass[:, -1].copy(), mass[:, 0].copy()
    right, left = [], []
    for speed, kappa, share in laplace:
        forward, backward = cells + 1e-305, cells + 1e-305  # no number so small that arithmetic becomes slow
        if rate is not None:
            # what lies beyond the window, P_first r^t: a sum_{t>=1} a^(t-1) r^t = a r/(1 - a r)
            beyond = 1.0 / math.expm1(speed + rate)
            forward[:, 0] += beyond * cells[:, 0]
            backward[:, -1] += beyond * cells[:, -1]
        doubling(forward, speed)
        doubling(backward, speed, backwards=True)
        right.append(kappa * share * forward[:, -1])
        left.append(kappa * share * backward[:, 0])
        forward += backward
        forward -= cells
        mass += (kappa * share) * forward
    empty = np.zeros((len(cells), 0))
    return Noisy(
        mass=mass,
        right=np.stack(right, axis=1) if right else empty,
        left=np.stack(left, axis=1) if left else empty,
        compact_right=compact_right,
        compact_left=compact_left,
        end_right=cells[:, -1],
        end_left=cells[:, 0],
    )


def _compact(law: Law, part: Part, cells: FloatArray, rate: float | None) -> FloatArray:
    """Answers with noise of a point mass, a Gaussian part or a table."""
    if part.kind == "point":
        return cells
    if part.table is not None:
        masses = law.table_masses(part)
    else:
        width = math.ceil(_GAUSSIAN_REACH * part.scale / law.granularity)
        masses = law.part_pmf(part, np.abs(np.arange(-width, width + 1)))
    width = len(masses) // 2
    padded = np.zeros((len(cells), cells.shape[1] + 2 * width))
    padded[:, width : padded.shape[1] - width] = cells
    if rate is not None and width:
        further = np.exp(-rate * np.arange(1, width + 1))
        padded[:, padded.shape[1] - width :] = cells[:, -1:] * further
        padded[:, :width] = cells[:, :1] * further[::-1]
    return np.stack([np.convolve(row, masses, "valid") for row in padded])


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
    found = np.full(len(top), -np.inf)
    for _, up, down in sorted(terms, key=lambda term: term[0]):
        top, bottom = top + up, bottom + down
        ratio = _log_ratio(np.maximum(top, 0.0) * (1 + slack), bottom * (1 - slack))
        # e bottom - top must not be negative: a prefix sum below that is negative proves nothing
        found = np.maximum(found, np.where((bottom < 0.0) | ((bottom == 0.0) & (top > 0.0)), np.inf, ratio))
    return found


def _log_ratio(above: FloatArray, below: FloatArray) -> FloatArray:
    """log(above/below); -inf where there is nothing above, inf where there is nothing below."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(above) - np.log(below)
    return np.where(above <= 0.0, -np.inf, np.where(below <= 0.0, np.inf, ratio))
