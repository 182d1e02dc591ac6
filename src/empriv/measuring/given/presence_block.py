"""Blocks of people given presence: the others' law against the same law moved by weighted influences, in closed form.

The others have n points of weight 1, with the person each point is moved by G influences of weights that add up to 1.
Between neighbouring knots both Laplace densities are ``L t + R/t`` (docs/mathematics.md, "Laplace kernel"), so that
hockey sticks, and how much of a kernel lies in a set, follow from prefix sums of exp(±x). Arrays are (people, knots),
in bandwidths.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.results import FloatArray, IntArray

REACH = 300.0  # bandwidths from the centre: exp(±300) squared stays a double


@dataclass(frozen=True, eq=False)
class PresenceBlock:
    """A block of people at one bandwidth each; `block_of` makes it.

    Attributes
    ----------
    x : (people, K) sorted knots, in the bandwidths that the block was made with
    order : (people, K) where each sorted knot came from: the first n are the others, then n for each influence
    others, present : (people, K) weight of each knot on either side
    rising, falling : of both sides, prefix sums of weight·exp(x), and suffix sums of weight·exp(-x)
    up : (people, K) exp(x)
    influence_weights : (people, G)
    """

    x: FloatArray
    order: IntArray
    others: FloatArray
    present: FloatArray
    rising: tuple[FloatArray, FloatArray]
    falling: tuple[FloatArray, FloatArray]
    up: FloatArray
    influence_weights: FloatArray
    n: int

    def narrowed(self, width: float) -> PresenceBlock | None:
        """The same at ``width`` times the bandwidths; None where points are too far apart."""
        return _summed(self.x / width, self.order, self.others, self.present, self.influence_weights, self.n)

    def sticks(self, e: FloatArray) -> FloatArray:
        """(people, len(e)) the larger hockey stick of both directions."""
        return np.stack([np.maximum(self._stick(0, float(x)), self._stick(1, float(x))) for x in e], axis=1)

    def values(self, direction: int, e: float) -> FloatArray:
        """(people, n) paired values whose mean is the hockey stick: 0 is the others over present, 1 the other way."""
        share = np.empty_like(self.up)
        np.put_along_axis(share, self.order, self._shares(direction, e), axis=1)
        n, groups = self.n, self.influence_weights.shape[1]
        moved = share[:, n:].reshape(-1, groups, n)
        present = np.einsum("pgn,pg->pn", moved, self.influence_weights)
        return np.asarray(share[:, :n] - e * present if direction == 0 else present - e * share[:, :n])

    @cached_property
    def _densities(self) -> tuple[FloatArray, FloatArray]:
        """Of the others, and present, at every knot."""
        down = 1.0 / self.up
        others, present = (
            rising * down + falling * self.up - own  # its own point is in both sums
            for rising, falling, own in zip(self.rising, self.falling, (self.others, self.present), strict=True)
        )
        return others, present

    def _crossings(
        self, direction: int, e: float
    ) -> tuple[npt.NDArray[np.bool_], IntArray, IntArray, FloatArray, FloatArray]:
        """Where the set begins or ends: which knots are inside, rows and knots before, and the sums on either side."""
        inside = self._densities[direction] > e * self._densities[1 - direction]
        row, before = np.nonzero(inside[:, 1:] != inside[:, :-1])
        left = self.rising[direction][row, before] - e * self.rising[1 - direction][row, before]
        right = self.falling[direction][row, before + 1] - e * self.falling[1 - direction][row, before + 1]
        return inside, row, before, left, right

    def _stick(self, direction: int, e: float) -> FloatArray:
        """From its crossings alone: the integral up to a root is D ∓ sqrt(-A B), as in `line.laplace`."""
        inside, row, before, left, right = self._crossings(direction, e)
        sides = (self.others, self.present)
        passed = np.cumsum(sides[direction] - e * sides[1 - direction], axis=1)
        root = np.sqrt(np.maximum(-(left * right), 0.0))
        part = np.where(inside[row, before], passed[row, before], -passed[row, before]) - root
        total = np.bincount(row, part, len(inside)).astype(float)
        total += inside[:, -1] * (self.n * (1.0 - e))  # positive to the very end
        return np.asarray(np.maximum(total, 0.0) / self.n)

    def _shares(self, direction: int, e: float) -> FloatArray:
        """(people, K) how much of the kernel at each knot lies in the set where one density exceeds e the other."""
        inside, row, before, left, right = self._crossings(direction, e)
        share = inside.astype(float)
        with np.errstate(divide="ignore", invalid="ignore"):
            root = np.sqrt(np.maximum(-left / right, 0.0))  # exp of the place where left/t + right t = 0
        root = np.fmin(np.fmax(root, self.up[row, before]), self.up[row, before + 1])
        sign = np.where(inside[row, before], 1.0, -1.0)  # the set ends here, or begins
        starts, ends = np.zeros_like(share), np.zeros_like(share)
        starts[row, before + 1] = sign * root
        ends[row, before] = sign / root
        share += 0.5 / self.up * np.cumsum(starts, axis=1)
        share -= 0.5 * self.up * _suffix(ends)
        return share


def block_of(
    others: FloatArray, moved: FloatArray, weights: FloatArray, bandwidths: FloatArray
) -> PresenceBlock | None:
    """The block, or None where points are too far apart.

    Parameters
    ----------
    others : (people, n)
    moved : (people, G, n) with the person, for each influence
    weights : (people, G) of the influences, adding up to 1
    bandwidths : (people,)
    """
    people, groups, n = moved.shape
    x = np.concatenate((others, moved.reshape(people, groups * n)), axis=1)
    x = (x - np.median(others, axis=1)[:, None]) / bandwidths[:, None]
    order = np.argsort(x, axis=1)
    side = order >= n
    group = np.where(side, order // n - 1, 0)
    present = np.where(side, np.take_along_axis(weights, group, axis=1), 0.0)
    return _summed(np.take_along_axis(x, order, axis=1), order, (~side).astype(float), present, weights, n)


def _summed(
    x: FloatArray, order: IntArray, others: FloatArray, present: FloatArray, weights: FloatArray, n: int
) -> PresenceBlock | None:
    if not np.abs(x).max() <= REACH:
        return None
    up = np.exp(x)
    rising = np.cumsum(others * up, axis=1), np.cumsum(present * up, axis=1)
    falling = _suffix(others / up), _suffix(present / up)
    return PresenceBlock(x, order, others, present, rising, falling, up, weights, n)


def grouped(
    influences: FloatArray, bandwidth: float, tolerance: float, most: int
) -> tuple[FloatArray, FloatArray, float]:
    """Means and weights of groups of near influences, and what grouping changes of delta at most.

    The group with the largest sum of squares is split at its mean until the rest is below ``tolerance``, or there are
    ``most`` groups.
    """
    rising = np.sort(influences)
    size = len(rising)
    scale = 2 * bandwidth**2 * size
    sums, squares = (np.concatenate(([0.0], np.cumsum(power))) for power in (rising, rising * rising))

    def rest(first: int, last: int) -> float:
        total = sums[last] - sums[first]
        return max(0.0, float(squares[last] - squares[first] - total * total / (last - first)))

    ends = [(rest(0, size), 0, size)]
    while len(ends) < most and sum(part[0] for part in ends) > tolerance * scale:
        worst = max(range(len(ends)), key=lambda place: ends[place][0])
        _, first, last = ends.pop(worst)
        mean = (sums[last] - sums[first]) / (last - first)
        cut = int(np.clip(np.searchsorted(rising[first:last], mean) + first, first + 1, last - 1))
        ends += [(rest(first, cut), first, cut), (rest(cut, last), cut, last)]
    edges = np.array([(first, last) for _, first, last in ends])
    counts = edges[:, 1] - edges[:, 0]
    return (sums[edges[:, 1]] - sums[edges[:, 0]]) / counts, counts / size, sum(part[0] for part in ends) / scale


def _suffix(values: FloatArray) -> FloatArray:
    return np.asarray(np.cumsum(values[:, ::-1], axis=1)[:, ::-1])
