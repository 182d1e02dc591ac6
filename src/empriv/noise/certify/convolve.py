"""Noisy answers: their cells (`cells`) convolved with every part of a law, and the tails beyond the window.

Discrete Laplace parts are two recursive filters, ``F_k = a F_(k-1) + P_k`` from the left and ``S_k = a S_(k+1) + P_k``
from the right, with noisy mass ``(1-a)/(1+a) (F + S - P)``; all terms are positive, so every cell is accurate relative
to itself. Gaussian parts and tables are convolved term by term.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from empriv.noise.certify.cells import doubling
from empriv.noise.law import Law, Part
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
    mass = compact_mass(law, cells, rate)
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


def compact_mass(law: Law, cells: FloatArray, rate: float | None) -> FloatArray:
    """What parts that are not Laplace give to each cell, with their shares."""
    mass = np.zeros(cells.shape)
    for share, part in law.shares():
        if part.kind != "laplace":
            mass += share * _compact(law, part, cells, rate)
    return mass


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
