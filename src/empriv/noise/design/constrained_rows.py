"""Rows that a design is constrained on, and what one component of noise does to them.

Recursions along the cells do the convolution with a discrete Laplace law, and closed forms continue it beyond the last
cell. Where rows come from is in `constraints`; which noise is best for them in `programme`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from empriv.results import FloatArray, IntArray

_CACHED = 16_384  # masses that stay in the processor's cache from one pass to the next

Parts = Sequence[tuple[float, float]]
"""(weight, scale) of each component; scale 0 is the point mass, the others are Laplace."""


@dataclass(frozen=True, eq=False)
class ConstrainedRows:
    """Rows that a design is constrained on, each with its own e^epsilon; ``labels`` say which they are."""

    p: FloatArray
    q: FloatArray
    e: FloatArray
    labels: tuple[tuple[int, int, int], ...]
    numbers: int  # cells that noise applies to; categories follow
    cell: float

    @staticmethod
    def join(blocks: Sequence[ConstrainedRows]) -> ConstrainedRows:
        first = blocks[0]
        return ConstrainedRows(
            p=np.concatenate([block.p for block in blocks]),
            q=np.concatenate([block.q for block in blocks]),
            e=np.concatenate([block.e for block in blocks]),
            labels=tuple(label for block in blocks for label in block.labels),
            numbers=first.numbers,
            cell=first.cell,
        )

    def __len__(self) -> int:
        return len(self.p)

    @cached_property
    def distinct(self) -> tuple[IntArray, IntArray]:
        """First rows of each side with everyone, which many individuals share, and which of them each row has."""
        _, first, which = np.unique(self.p, axis=0, return_index=True, return_inverse=True)
        return first, which.reshape(-1)


@dataclass(frozen=True, eq=False)
class Totals:
    """Rows whose sum over individuals of -log(1 - delta_i) is limited, for each of several weightings.

    Attributes
    ----------
    rows : of the individuals who represent all
    share : (rows,) how many individuals each represents
    group : (rows,) which sum it belongs to
    most : limit of every sum
    """

    rows: ConstrainedRows
    share: FloatArray
    group: IntArray
    most: float


@dataclass(frozen=True, eq=False)
class Needs:
    """What noise has to keep: the largest delta of each row, and sums over individuals."""

    rows: ConstrainedRows
    delta: float
    totals: Totals | None = None


def tail_steps(widest: float) -> IntArray:
    """Offsets beyond the last cell, in cells, at which tails are evaluated; ``widest`` in cells."""
    return np.unique(np.rint(np.geomspace(1.0, max(2.0, 60.0 * widest), 36)).astype(np.int64))


def component(masses: FloatArray, scale: float, *, numbers: int, steps: IntArray, pointwise: bool) -> FloatArray:
    """Rows of masses with one component of noise: cells, left tail, right tail, categories.

    A tail's columns are the masses of the stretches between the steps (the last one endless), or with ``pointwise``
    the masses of single cells there.
    """
    tails = len(steps)
    out = np.empty((len(masses), masses.shape[1] + 2 * tails))
    out[:, numbers + 2 * tails :] = masses[:, numbers:]
    if scale == 0.0:
        out[:, :numbers] = masses[:, :numbers]
        out[:, numbers : numbers + 2 * tails] = 0.0
        return out
    rate = 1.0 / scale  # scale in cells
    norm = np.tanh(0.5 * rate)  # (1 - a)/(1 + a)
    at = np.exp(-rate * steps)
    if not pointwise:
        at = (at - np.append(at[1:], 0.0)) / -np.expm1(-rate)
    at_once = max(1, _CACHED // numbers)
    for start in range(0, len(masses), at_once):
        inside, filled = masses[start : start + at_once, :numbers], out[start : start + at_once]
        forward, backward = both_ways(inside, np.exp(-rate))
        np.multiply(backward[:, :1] + inside[:, :1], norm * at, out=filled[:, numbers : numbers + tails])
        np.multiply(forward[:, -1:], norm * at, out=filled[:, numbers + tails : numbers + 2 * tails])
        np.add(forward, backward, out=filled[:, :numbers])
        filled[:, :numbers] *= norm
    return out


def both_ways(masses: FloatArray, a: float) -> tuple[FloatArray, FloatArray]:
    """``F_k = a F_{k-1} + P_k`` and ``R_k = a (R_{k+1} + P_{k+1})`` along the last axis."""
    forward = _decay(masses, a)
    backward = _decay(masses[:, ::-1], a)[:, ::-1]
    return forward, backward - masses


def _decay(masses: FloatArray, a: float) -> FloatArray:
    """``F_k = a F_{k-1} + P_k`` by sums within blocks that a^-k does not overflow."""
    count = masses.shape[1]
    rate = -np.log(a)
    if rate > 300.0:  # next to nothing is carried over
        return masses.copy()
    block = max(2, min(count, int(300.0 / rate)))
    grow = np.exp(rate * np.arange(min(block, count)))
    out = masses * np.resize(grow, count)
    for start in range(0, count, block):
        part = out[:, start : start + block]
        if start:
            part[:, 0] += a * out[:, start - 1]
        np.cumsum(part, axis=1, out=part)
        part /= grow[: part.shape[1]]
    return out
