"""The parts of `structure` in numpy: the oracle of `_structure.c`, and what works where that was not built.

Everyone is measured in bandwidths of their own, so that people with different ones are looked at together.
"""

from __future__ import annotations

from math import lgamma

import numpy as np
import numpy.typing as npt

from empriv.measuring.line.residues import Marks
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds.moments import Merged, Smooth, bound_of
from empriv.validate.bounds.structure import APART, COPIES, BoundPart, Look
from empriv.validate.ground import BoolArray


def structure_in_numpy(
    look: Look, without: FloatArray, bandwidths: FloatArray, at: Marks, counts: npt.NDArray[np.int32]
) -> FloatArray:
    """(rows, epsilons) the largest bound that a part gives; ``at`` and ``counts`` are those of `structure.marks`."""
    out = np.zeros((len(without), len(look.e)))
    without = np.where(np.abs(without - look.points) <= 8 * look.tolerance, look.points, without)
    moving = np.flatnonzero(np.any(without != look.points, axis=1))
    if not len(moving):
        return out
    without, scale = without[moving], 1.0 / bandwidths[moving, None]
    merged = Merged.of(look.points * scale, without * scale, None)
    smooth, half = _from_smooth_sets(look, merged, _jumps(look, without, scale, merged), out, moving)
    wide = np.flatnonzero(bandwidths[moving] != look.bandwidth)
    if len(wide):
        cut = Smooth.of(Merged.of(look.points, without[wide], None), look.narrow * look.bandwidth)
        for column, e in enumerate(look.e):
            for direction in (0, 1):
                _raise(out, moving[wide], column, bound_of(cut.values(direction, float(e), look.draws), look.level))
    fine = np.full(len(moving), bool(look.parts & BoundPart.FINE))
    if look.lattice > 0:
        fine &= 0.25 * look.narrow * bandwidths[moving] >= look.lattice
    if fine.any():
        rows = moving[fine]
        found = _fine(look, without[fine], bandwidths[rows], merged.some(fine), smooth[fine], half[fine])
        out[rows] = np.maximum(out[rows], found)
    if look.parts & BoundPart.RESIDUES:
        for step in range(int(counts[moving].max(initial=0))):
            here = np.flatnonzero(counts[moving] > step)
            _residues(look, without[here], bandwidths[moving[here]], at[moving[here], step], out, moving[here])
    return out


def _raise(out: FloatArray, rows: IntArray, column: int, values: FloatArray) -> None:
    out[rows, column] = np.maximum(out[rows, column], values)


def _from_smooth_sets(
    look: Look, merged: Merged, jumps: tuple[BoolArray, BoolArray] | None, out: FloatArray, rows: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Raises ``out`` to what smooth sets give, with exact counts and gaps; and their bounds and means, for `_fine`."""
    cut = Smooth.of(merged, look.narrow)
    smooth, half = np.zeros((2, len(rows), len(look.e)))
    counting = bool(look.parts & BoundPart.COUNTS)
    for column, e in enumerate(map(float, look.e)):
        for direction in (0, 1):
            psi = cut.share(direction, e)
            inside = cut.inside(direction, e)
            w = _paired(look, merged, psi, e, direction)
            bound = bound_of(w, look.level)
            smooth[:, column] = np.maximum(smooth[:, column], bound)
            half[:, column] = np.maximum(half[:, column], w.mean(axis=1))
            _raise(out, rows, column, bound)
            if counting:
                _raise(out, rows, column, _counted(look, merged, inside, w, direction))
            if jumps is None or not jumps[direction].any():
                continue
            marked = jumps[direction]
            own = merged.sides() == bool(direction)
            ours, others = (np.count_nonzero(marked & side, axis=1) for side in (own, ~own))
            w = _paired(look, merged, np.where(marked, 1.0, psi), e, direction)
            bound = bound_of(w, look.level)
            if counting:
                bound = np.maximum(bound, _counted(look, merged, inside | marked, w, direction))
            bound = np.where(others == 0, np.maximum(bound, look.shares[ours]), bound)
            _raise(out, rows, column, np.where(ours > 0, bound, 0.0))
    return smooth, half


def _paired(look: Look, merged: Merged, share: FloatArray, e: float, direction: int) -> FloatArray:
    """(rows, n) W of every database from how much of each point counts."""
    at = np.empty_like(share)
    np.put_along_axis(at, merged.order, share, axis=1)
    size = merged.size
    sides = (at[:, :size], at[:, size:])
    w = sides[direction] - e * sides[1 - direction]
    return np.asarray(w if look.draws == 1 else w.reshape(len(w), -1, look.draws).mean(axis=2))


def _counted(look: Look, merged: Merged, inside: BoolArray, w: FloatArray, direction: int) -> FloatArray:
    """Exact counts: of a set that holds points of its own sample only, and where W has two values."""
    if look.draws > 1:
        return np.zeros(len(w))
    own = merged.sides() == bool(direction)
    ours, others = (np.count_nonzero(inside & side, axis=1) for side in (own, ~own))
    # where smoothing takes much of the set away, its points are no better than chance
    whole = (ours > 0) & (others == 0) & (w.mean(axis=1) >= 0.9 * ours / look.n)
    bound = np.where(whole, look.shares[ours], 0.0)
    low, high = w.min(axis=1, keepdims=True), w.max(axis=1, keepdims=True)
    at_high = high - w <= 1e-9
    two = (high - low > 1e-9)[:, 0] & np.all(at_high | (w - low <= 1e-9), axis=1)
    limit = low[:, 0] + (high - low)[:, 0] * look.shares[np.count_nonzero(at_high, axis=1)]
    return np.where(two, np.maximum(bound, limit), bound)


def _jumps(look: Look, without: FloatArray, scale: FloatArray, merged: Merged) -> tuple[BoolArray, BoolArray] | None:
    """(rows, 2N) for each direction: points where a jump of the influence makes a hole or an overlap."""
    if not look.parts & BoundPart.GAPS or look.draws > 1:
        return None
    marked = np.zeros((2, *merged.x.shape), bool)
    by_points = np.argsort(look.points, kind="stable")
    for row, own in enumerate(without):
        for x, y in ((look.points, own), (own, look.points)):
            order = by_points[np.argsort(x[by_points], kind="stable")]  # ties as the points with everyone rise
            influence, other = (own - look.points)[order], y[order]
            for up, left, right in _intervals(look, influence, other):
                low, high = min(left, right) * scale[row, 0], max(left, right) * scale[row, 0]
                at = merged.x[row]
                # a hole has no end points, an overlap is made of them
                inside = (at > low) & (at < high) if left < right else (at >= low) & (at <= high)
                marked[0 if up else 1, row] |= inside
    return marked[0], marked[1]


def _intervals(look: Look, influence: FloatArray, other: FloatArray) -> list[tuple[bool, float, float]]:
    """Jumps: whether up, where the other sample ends on the left of it, and where it begins on the right.

    An influence (without - with) that jumps up takes the points without the individual apart, or brings those with
    everyone together.
    """
    n, most = len(influence), look.longest
    intervals = []
    step = np.diff(influence)
    for k in np.flatnonzero(np.abs(step) > 8 * look.tolerance) + 1:
        up, middle = bool(step[k - 1] > 0), 0.5 * (influence[k] + influence[k - 1])
        sign = 1.0 if up else -1.0
        before, after = influence[max(0, k - most) : k][::-1], influence[k : min(n, k + most)]
        left = _run(sign * before < sign * middle)
        right = _run(sign * after > sign * middle)
        if left < 3 or right < 3:
            continue
        if lgamma(left + right + 1) - lgamma(left + 1) - lgamma(right + 1) < look.odds:
            continue
        if abs(step[k - 1]) <= 0.5 * max(np.ptp(before[:left]), np.ptp(after[:right])):
            continue
        intervals.append((up, float(other[k - left : k].max()), float(other[k : k + right].min())))
    return intervals


def _run(holds: BoolArray) -> int:
    return int(len(holds) if holds.all() else np.argmin(holds))


def _fine(
    look: Look, without: FloatArray, bandwidths: FloatArray, merged: Merged, smooth: FloatArray, half: FloatArray
) -> FloatArray:
    """What fine structure gives: the best interval, or on a lattice the hockey stick at a quarter of the width."""
    rows, width = len(without), (look.narrow * bandwidths)[:, None]
    tolerance = look.tolerance / bandwidths[:, None]
    value, limit = np.zeros((2, rows, len(look.e)))
    null = np.zeros((COPIES, rows, len(look.e)))
    for copy in range(-1, COPIES):
        if copy >= 0:
            x, y = (look.noisy(part, copy, width) / bandwidths[:, None] for part in (look.points, without))
            merged = Merged.of(x, y, None)
        cut = Smooth.of(merged, 0.25 * look.narrow) if look.lattice > 0 else None
        for column, e in enumerate(map(float, look.e)):
            shares = [_best_interval(merged, d, e, tolerance) if cut is None else cut.share(d, e) for d in (0, 1)]
            w = np.stack([_paired(look, merged, share, e, d) for d, share in enumerate(shares)])
            means = w.mean(axis=2)
            if copy >= 0:
                null[copy, :, column] = np.maximum(means.max(axis=0), 0.0)
                continue
            value[:, column] = np.maximum(means.max(axis=0), 0.0)
            better = (means[1] > np.maximum(means[0], 0.0) + 1e-11).astype(int)
            limit[:, column] = bound_of(w[better, np.arange(rows)], look.level)
    mean, deviation = null.mean(axis=0), np.maximum(null.std(axis=0, ddof=1), 1.0 / look.n)
    excess = value - mean - look.apart * deviation
    # far beyond the null the set itself is bounded, before that less what chance adds to it
    lowered = np.where(excess > 2.5 * deviation, limit, limit - np.maximum(mean - half, 0.0))
    raised = np.where(excess > deviation, np.maximum(smooth + excess, lowered), smooth + excess)
    return np.asarray(np.where(excess > 0, raised, 0.0))


def _best_interval(merged: Merged, direction: int, e: float, tolerance: FloatArray) -> FloatArray:
    """(rows, 2N) indicator of the points in the interval with the largest #A - e #B; ties are in it together."""
    gains = np.where(merged.sides() == bool(direction), 1.0, -e)
    total = np.concatenate((np.zeros((len(gains), 1)), np.cumsum(gains, axis=1)), axis=1)
    apart = np.ones(total.shape, bool)  # places where an interval may begin or end
    apart[:, 1:-1] = np.diff(merged.x, axis=1) > tolerance
    lowest = np.minimum.accumulate(np.where(apart, total, np.inf), axis=1)
    sums = np.where(apart, total - lowest, -np.inf)
    # what is equal but for rounding is decided alike everywhere: the first, the shorter
    ends = np.argmax(sums >= sums.max(axis=1, keepdims=True) - 1e-9, axis=1)[:, None]
    place = np.arange(total.shape[1])
    least = apart & (total <= np.take_along_axis(lowest, ends, axis=1) + 1e-9) & (place <= ends)
    starts = np.where(least, place, -1).max(axis=1)[:, None]
    place = place[:-1]
    return np.asarray(((place >= starts) & (place < ends)).astype(float))


def _residues(
    look: Look, without: FloatArray, bandwidths: FloatArray, at: Marks, out: FloatArray, rows: IntArray
) -> None:
    """Raises ``out`` to the bound where points that were marked are two atoms."""
    top = np.maximum(look.points.max(), without.max(axis=1))[:, None]
    apart = APART * bandwidths[:, None] + 1e-6 * np.abs(top)
    x, y = (
        np.where(marked > 0, top + apart * marked, values)
        for marked, values in ((at[:, 0], look.points), (at[:, 1], without))
    )
    merged = Merged.of(x / bandwidths[:, None], y / bandwidths[:, None], None)
    cut = Smooth.of(merged, look.narrow)
    for column, e in enumerate(map(float, look.e)):
        for direction in (0, 1):
            w = _paired(look, merged, cut.share(direction, e), e, direction)
            inside = cut.inside(direction, e)
            bound = np.maximum(bound_of(w, look.level), _counted(look, merged, inside, w, direction))
            _raise(out, rows, column, bound)
