"""Several cells at once, from above: what each cell adds to those before it is one number, and what they tell composes.

On a day when somebody is there with the influence D on their cells T, let C be the covariance of these cells given all
others, and C = LL'. The innovations ``L^-1 y`` have covariance one and are moved by ``w = L^-1 D``. A curve delta(x) of
one number at ``x = e^epsilon`` that holds from above has a pair of laws that dominates it: the curve is convex, falls
from 1 at 0, and its slope changes by the mass of outcomes with the ratio x. Pairs compose by products; on a fixed grid
of ratios that is one matrix for all people.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from empriv.results import FloatArray, IntArray

EPSILONS = np.array([0.0, 0.03, 0.07, 0.12, 0.2, 0.32, 0.5, 0.75, 1.1, 1.6, 2.3, 3.3, 5.0])
"""Where curves are known; between them chords are from above."""
SHIFTS = np.array(
    [0.0, 0.03, 0.06, 0.1, 0.15, 0.2, 0.27, 0.35, 0.45, 0.57, 0.7, 0.85, 1.0, 1.2, 1.45, 1.75, 2.1, 2.5, 3.0, 3.6, 4.5,
     6.0]
)  # fmt: skip
"""Influences, in standard deviations of an innovation, at which its curve is computed."""
_STEP, _LARGEST = 0.002, 4.0  # of weighted ratios that are added up; larger ones count as telling for certain


@dataclass(frozen=True, eq=False, repr=False)
class RatioGrid:
    """Ratios ``e^epsilon`` of both signs of epsilon, and how curves upon them compose."""

    epsilons: FloatArray

    @cached_property
    def x(self) -> FloatArray:
        """(G,) rising, the reciprocals first."""
        return np.exp(np.concatenate((-self.epsilons[:0:-1], self.epsilons)))

    def both_signs(self, curves: FloatArray) -> FloatArray:
        """(..., G) of curves (..., epsilons) that hold for both directions: ``1 - x + x delta(1/x)`` below 1, and the
        largest convex curve below that, which the true one is not above."""
        below = self.x[: len(self.epsilons) - 1]
        left = 1.0 - below + below * curves[..., :0:-1]
        return convex(self.x, np.concatenate((left, curves), axis=-1))

    @cached_property
    def _places(self) -> tuple[IntArray, FloatArray]:
        """(G, G) where x_i/x_j lies among (0, x_1, ..., x_G, beyond), and by which share between two of these."""
        knots = np.concatenate(([0.0], self.x))
        ratio = self.x[:, None] / self.x[None, :]
        place = np.clip(np.searchsorted(knots, ratio, side="right") - 1, 0, len(knots) - 1)
        after = np.append(knots, np.inf)
        share = np.where(place < len(knots) - 1, (ratio - knots[place]) / (after[place + 1] - knots[place]), 0.0)
        return place, share

    def composed(self, first: FloatArray, second: FloatArray) -> FloatArray:
        """(rows, G) the curve of two independent looks, from the curve of each: ``Σ_j p_j H_1(x/x_j)``."""
        masses, certain = self.masses(second)
        place, share = self._places
        known = np.concatenate((np.ones((len(first), 1)), first, first[:, -1:]), axis=1)
        at = known[:, place] * (1.0 - share) + known[:, place + 1] * share
        return np.asarray(np.minimum(np.einsum("rij,rj->ri", at, masses) + certain[:, None], 1.0))

    def masses(self, curves: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(rows, G) masses of outcomes with each ratio, and (rows,) of those that the other law never gives."""
        known = np.concatenate((np.ones((len(curves), 1)), curves), axis=1)
        slopes = np.diff(known, axis=1) / np.diff(np.concatenate(([0.0], self.x)))
        after = np.concatenate((slopes[:, 1:], np.zeros((len(curves), 1))), axis=1)
        return np.maximum(after - slopes, 0.0) * self.x, curves[:, -1]

    def at(self, curves: FloatArray, epsilons: FloatArray) -> FloatArray:
        """(rows, ...) curves at epsilons of at least 0, by chords; (...) may differ by row, or be shared."""
        x = np.broadcast_to(np.exp(epsilons), (len(curves), *np.shape(epsilons)[np.ndim(epsilons) - 1 :]))
        rows = np.arange(len(curves))[:, None]
        place = np.clip(np.searchsorted(self.x, x, side="right") - 1, 0, len(self.x) - 2)
        with np.errstate(invalid="ignore"):
            share = np.clip((x - self.x[place]) / (self.x[place + 1] - self.x[place]), 0.0, 1.0)
        share = np.where(np.isinf(x), 1.0, share)
        return np.asarray(curves[rows, place] * (1 - share) + curves[rows, place + 1] * share)


def convex(x: FloatArray, values: FloatArray) -> FloatArray:
    """The largest convex, falling curves from (0, 1) that are not above ``values`` (..., G)."""
    flat = np.minimum(values.reshape(-1, len(x)), 1.0)
    knots = np.concatenate(([0.0], x))
    out = np.empty_like(flat)
    for row, curve in enumerate(np.minimum.accumulate(np.concatenate((np.ones((len(flat), 1)), flat), axis=1), axis=1)):
        hull = [0]
        for k in range(1, len(knots)):
            while len(hull) > 1 and (curve[hull[-1]] - curve[hull[-2]]) * (knots[k] - knots[hull[-2]]) >= (
                curve[k] - curve[hull[-2]]
            ) * (knots[hull[-1]] - knots[hull[-2]]):
                hull.pop()
            hull.append(k)
        out[row] = np.interp(x, knots[hull], curve[hull])
    return out.reshape(values.shape)


def on_random_day(grid: RatioGrid, there: FloatArray, share: FloatArray, epsilons: FloatArray) -> FloatArray:
    """(rows, epsilons) delta where somebody is there with probability ``share`` (rows,), from the curve of days when
    they are there: with everyone is a mixture of the others' table and of that with them."""
    p, a = share[:, None], np.exp(epsilons)[None, :]
    forwards = p * grid.at(there, np.log1p((a - 1.0) / p))
    x = 1.0 - a * (1.0 - p)
    with np.errstate(divide="ignore", invalid="ignore"):
        inner = np.where(x > 0, np.log(a * p / np.where(x > 0, x, 1.0)), 0.0)
    backwards = np.where(x > 0, x * grid.at(there, np.maximum(inner, 0.0)), 0.0)
    return np.asarray(np.maximum(forwards, backwards))


def one_of_several(grid: RatioGrid, curves: FloatArray, weights: FloatArray, epsilons: FloatArray) -> FloatArray:
    """(epsilons,) delta on a random day of somebody who does one of several things that have nothing to do with each
    other, from the curve of each (m, G); each with its weight (m,), and nothing with what is left.

    With everyone is ``S = 1 - Σ w + Σ w R`` times the others' law, with R the independent ratios of the parts. The two
    hockey sticks, ``E (S - a)_+`` and ``E (1 - a S)_+``, are convex in every R, and a dominating pair has the ratio
    that is the most spread out for its mean. So S of dominating pairs is from above.
    """
    masses, certain = grid.masses(curves)
    ratios = weights[:, None] * grid.x
    far = ratios > _LARGEST
    sure = float(weights @ (certain + np.where(far, masses, 0.0).sum(axis=1)))
    other = np.where(far, 0.0, masses / grid.x)  # masses under the others' law; what is missing has the ratio 0
    size = 1 << int(np.ceil(np.log2(np.where(far, 0.0, ratios).max(axis=1).sum() / _STEP + 2 * len(curves) + 2)))
    product = np.ones(size // 2 + 1, complex)
    for ratio, mass in zip(np.where(far, 0.0, ratios), other, strict=True):
        place = np.floor(ratio / _STEP).astype(np.int64)
        share = ratio / _STEP - place  # between two steps such that the mean stays: from above
        law = np.bincount(place, mass * (1 - share), minlength=size) + np.bincount(
            place + 1, mass * share, minlength=size
        )
        law[0] += max(0.0, 1.0 - float(mass.sum()))
        product *= np.fft.rfft(law)
    law = np.maximum(np.fft.irfft(product, size), 0.0)
    total = 1.0 - float(weights.sum()) + _STEP * np.arange(size)
    a = np.exp(epsilons)[:, None]
    forwards = sure + np.maximum(total - a, 0.0) @ law
    backwards = np.maximum(1.0 - a * total, 0.0) @ law
    return np.asarray(np.minimum(np.maximum(forwards, backwards), 1.0))
