"""Blocks of people given presence: the others' law against the same law moved by weighted influences, in closed form.

The others have n points of weight 1, with the person each point is moved by G influences of weights that add up to 1.
Between neighbouring knots both Laplace densities are ``L t + R/t`` (docs/mathematics.md, "Laplace kernel"), so that
hockey sticks, and how much of a kernel lies in a set, follow from prefix sums of exp(±x). Arrays are (people, knots),
in bandwidths. Where the package was built with a C compiler, `compiled_blocks` does the same much faster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from empriv.measuring.given import compiled_blocks
from empriv.results import FloatArray, IntArray

REACH = 300.0  # bandwidths from the centre: exp(±300) squared stays a double


@dataclass(frozen=True, eq=False)
class PresenceBlock:
    """A block of people at one bandwidth each; `block_of` makes it.

    Attributes
    ----------
    x : (people, K) places in bandwidths: the first n are the others, then n for each influence
    order : (people, K) that sorts them
    weights : (people, G) of the influences; 0, and last, where somebody has fewer than others
    n : databases
    """

    x: FloatArray
    order: IntArray
    weights: FloatArray
    n: int

    def narrowed(self, width: float) -> PresenceBlock | None:
        """The same at ``width`` times the bandwidths; None where points are too far apart."""
        x = self.x / width
        return replace(self, x=x) if np.abs(x).max() <= REACH else None

    def sticks(self, e: FloatArray) -> FloatArray:
        """(people, len(e)) the larger hockey stick of both directions."""
        code = compiled_blocks.compiled
        if code is None:
            return knots_of(self).sticks(e)
        return code.sticks(self._up, self.order, self._by_run, self.runs, e)

    def values(self, e: FloatArray) -> FloatArray:
        """(len(e), 2, people, n) paired values whose means are the hockey sticks: the others over present, and the
        other way."""
        code = compiled_blocks.compiled
        if code is None:
            return np.stack([[knots_of(self).values(direction, float(x)) for direction in (0, 1)] for x in e])
        return code.values(self._up, self.order, self._by_run, self.runs, e)

    @property
    def _by_run(self) -> FloatArray:
        """(people, G + 1) weights, 1 for the others."""
        return np.concatenate((np.ones((len(self.weights), 1)), self.weights), axis=1)

    @cached_property
    def _up(self) -> FloatArray:
        return np.exp(self.x)

    @property
    def runs(self) -> IntArray:
        """(people,) runs of n places that count: the others', and one for each influence."""
        return _runs(self.weights)


def _runs(weights: FloatArray) -> IntArray:
    return np.asarray(1 + np.count_nonzero(weights > 0, axis=1))


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
    if not np.abs(x).max() <= REACH:
        return None
    code = compiled_blocks.compiled
    order = np.argsort(x, axis=1) if code is None else code.order(x, _runs(weights), n)
    return PresenceBlock(x, order, weights, n)


@dataclass(frozen=True, eq=False)
class SortedKnots:
    """What the compiled code does, in numpy.

    Attributes
    ----------
    order : (people, K) where each sorted knot came from
    others, present : (people, K) weight of each knot on either side
    rising, falling : of both sides, prefix sums of weight·exp(x), and suffix sums of weight·exp(-x)
    up : (people, K) exp(x)
    weights : (people, G)
    n : databases
    """

    order: IntArray
    others: FloatArray
    present: FloatArray
    rising: tuple[FloatArray, FloatArray]
    falling: tuple[FloatArray, FloatArray]
    up: FloatArray
    weights: FloatArray
    n: int

    def sticks(self, e: FloatArray) -> FloatArray:
        return np.stack([np.maximum(self._stick(0, float(x)), self._stick(1, float(x))) for x in e], axis=1)

    def values(self, direction: int, e: float) -> FloatArray:
        """(people, n) of the others over present in direction 0, the other way in 1."""
        share = np.empty_like(self.up)
        np.put_along_axis(share, self.order, self._shares(direction, e), axis=1)
        n = self.n
        present = np.einsum("pgn,pg->pn", share[:, n:].reshape(len(share), -1, n), self.weights)
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


def knots_of(block: PresenceBlock) -> SortedKnots:
    """The knots of a block, sorted."""
    order = np.argsort(block.x, axis=1)
    side = order >= block.n
    group = np.where(side, order // block.n - 1, 0)
    others, present = (~side).astype(float), np.where(side, np.take_along_axis(block.weights, group, axis=1), 0.0)
    up = np.exp(np.take_along_axis(block.x, order, axis=1))
    rising = np.cumsum(others * up, axis=1), np.cumsum(present * up, axis=1)
    falling = _suffix(others / up), _suffix(present / up)
    return SortedKnots(order, others, present, rising, falling, up, block.weights, block.n)


def groups_of(
    influences: list[FloatArray], bandwidths: FloatArray, tolerance: float, most: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """`grouped` of several people: means and weights (people, G), 0 where somebody has fewer, and what it changes."""
    code = compiled_blocks.compiled
    if code is not None:
        starts = np.concatenate(([0], np.cumsum([len(own) for own in influences])))
        rising = np.concatenate([np.sort(own) for own in influences])
        means, weights, counts, changed = code.groups(rising, starts, bandwidths, tolerance, most)
        return means[:, : counts.max()], weights[:, : counts.max()], changed
    groups = [grouped(own, h, tolerance, most) for own, h in zip(influences, bandwidths.tolist(), strict=True)]
    means, weights = np.zeros((2, len(groups), max(len(own) for own, _, _ in groups)))
    for place, (own_means, own_weights, _) in enumerate(groups):
        means[place, : len(own_means)], weights[place, : len(own_means)] = own_means, own_weights
    return means, weights, np.array([changed for _, _, changed in groups])


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
