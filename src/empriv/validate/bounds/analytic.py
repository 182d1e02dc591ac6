"""The analytic upper bound on delta_i, for every individual and every epsilon (docs/validity.md, "Upper bound").

Four parts, the largest of which counts: a smooth set at a narrowed bandwidth, half-lines at the edges, end runs of
clusters, and the floor that n databases cannot go below. Ties are taken out of the density and compared by counts
in a second look. Everything is done block by block, in threads.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from empriv.measuring.line.atoms import lattice
from empriv.measuring.line.screening import log_reach
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds import ends, structure
from empriv.validate.bounds.moments import Merged, Smooth, bound_from_raw, bound_of, edges, end_runs, groups, quantile
from empriv.validate.ground import BoolArray, Ground

_ENDS = 512  # individuals whose ends are looked at together
HALF = 0.5
TOTAL_WIDTH = 0.7  # bandwidth of the bound on total risk, and of the bootstrap


class Upper(NamedTuple):
    """Upper bounds of each individual, and what the bound on total risk is made of."""

    upper_i: FloatArray  # (individuals, epsilons)
    total: FloatArray  # (epsilons,)
    exponent: FloatArray  # (epsilons,) and (epsilons, databases): sums over individuals, from which `total` follows
    spread: FloatArray


def floor(n_databases: int, level: float) -> float:
    """No smaller delta is supported: what has this probability is unseen in n databases in 1 - level of cases."""
    return -math.expm1(math.log1p(-level) / n_databases)


def narrowing(n_databases: int, share: float = 0.7) -> float:
    """Share of the one-SE bandwidth at which the smooth part is taken.

    `HALF` is for bounds without the parts that see what is finer (`structure`).
    """
    return share * min(1.0, float((1000 / n_databases) ** (1 / 6)))


def upper_bounds(ground: Ground, epsilons: Sequence[float] | FloatArray, level: float) -> Upper:
    """The analytic bound for everyone, and the indicative one on total risk."""
    grid = np.asarray(epsilons, float)
    n = ground.n_databases
    out = np.empty((ground.n_individuals, len(grid)))
    exponent, spread = np.zeros(len(grid)), np.zeros((len(grid), n))

    calm = _calm(ground, grid, level)
    out[:] = floor(n, level)
    shifts = ground.shifts * ground.bandwidth
    inner = _inner(ground) if calm.one_pair else np.zeros(ground.n_individuals, bool)
    moving = np.flatnonzero((shifts >= calm.smooth) | (~inner & (shifts >= min(calm.edges, calm.runs))))
    reaches = _reaches(ground, moving, float(grid.min()))
    all_of_them = np.ones(len(out), bool)
    looks = _Looks(all_of_them, np.full(len(out), np.inf), reaches.total, all_of_them)
    if ends.ends is not None:
        tied = _looked_at_ends(ground, moving, inner, grid, level, out)
        # An empty set says nothing of the second look without tied values.
        looks = _Looks(~all_of_them, np.where(tied, np.inf, reaches.smooth), reaches.total, all_of_them)
    if structure.compiled is not None and ground.smooth_everywhere:  # then smooth sets are left to `structure`
        looks = looks.without_sets(~ground.alone)
    reaches = replace(reaches, total=np.where(looks.sets, 0.0, reaches.total))

    def task(rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        return _block(ground, rows, grid, level, calm, inner[rows], looks.some(rows))

    left = moving[looks.ends[moving] | (np.maximum(looks.smooth, looks.total)[moving] > grid.min())]
    for rows, (upper, losses, sums) in ground.in_threads(task, left, by=looks.smooth):
        out[rows] = np.maximum(out[rows], upper)
        exponent += losses
        spread += sums
    losses, sums = structure.raise_bounds(ground, grid, level, narrowing(n), out, reaches=reaches)
    exponent, spread = exponent + losses, spread + sums
    upper_i = np.minimum(np.maximum(out, floor(n, level)), 1.0)
    return Upper(upper_i, total_bound(exponent, spread, level), exponent, spread)


class _Looks(NamedTuple):
    """What is still to be looked at, of each individual: the ends or not; the other parts below these epsilons."""

    ends: BoolArray
    smooth: FloatArray
    total: FloatArray
    sets: BoolArray  # whose smooth sets are looked at here

    def without_sets(self, rows: BoolArray) -> _Looks:
        """Only ties and ends of these individuals."""
        tied = np.where(np.isinf(self.smooth), self.smooth, 0.0)
        smooth, total = np.where(rows, tied, self.smooth), np.where(rows, 0.0, self.total)
        return _Looks(self.ends, smooth, total, ~rows)

    def some(self, rows: IntArray) -> _Looks:
        return _Looks(self.ends[rows], self.smooth[rows], self.total[rows], self.sets[rows])


def _reaches(ground: Ground, rows: IntArray, epsilon: float) -> structure.Reaches:
    """How far densities of these individuals are apart at most. The others' stay within any epsilon asked for, of which
    ``epsilon`` is the least: whose shifts stay within it is looked at no further."""
    widths = narrowing(ground.n_databases), TOTAL_WIDTH
    by_width = {width: np.zeros(ground.n_individuals) for width in widths}  # which are the same up to 1,000 databases
    for width, reach in by_width.items():
        reach[rows] = ground.shifts[rows] / width
        wide = rows[reach[rows] > epsilon]
        reach[wide] = log_reach(ground.marked, wide, bandwidth=width * ground.bandwidth, shifts=reach[wide])
    return structure.Reaches(by_width[widths[0]], by_width[widths[1]], TOTAL_WIDTH)


def _looked_at_ends(
    ground: Ground, rows: IntArray, inner: BoolArray, grid: FloatArray, level: float, out: FloatArray
) -> BoolArray:
    """Half-lines and end runs of these individuals, compiled, into ``out``; and who has three values alike."""
    n, h = ground.n_databases, ground.bandwidth
    tied = np.zeros(ground.n_individuals, bool)

    def task(some: IntArray) -> ends.Ends:
        assert ends.ends is not None
        return ends.ends(
            ground.values, some, np.exp(grid), inner[some], depth=int(0.05 * len(ground.values.points)), level=level,
            gap=5 * h, tolerance=ground.tolerance,
        )  # fmt: skip

    for some, found in ground.in_threads(task, rows, most=_ENDS):
        runs = _run_bound(found.runs / ground.draws, n, level)[:, None]
        out[some] = np.maximum(out[some], np.maximum(found.edges - 1.0 / n, runs))
        tied[some] = found.tied
    return tied


def total_bound(exponent: FloatArray, spread: FloatArray, level: float) -> FloatArray:
    """The indicative bound on total risk from sums over all individuals."""
    n = spread.shape[1]
    with np.errstate(invalid="ignore"):
        deviation = np.std(spread, axis=1, ddof=1) if n > 1 else np.zeros(len(spread))
        total = -np.expm1(-(exponent + quantile(level) * deviation / np.sqrt(n)))
    return np.where(np.isfinite(exponent), total, 1.0)


class _Calm(NamedTuple):
    """Shifts below which the floor is proved to cover the half-lines, the end runs, and the smooth sets.

    Sorted points move no further than the largest shift s. Where the extreme points are more than 2s apart, a
    half-line tells at most one pair apart, and no sample holds two points alone at an end. Nobody's smooth set
    exists whose shifts are within epsilon bandwidths (docs/mathematics.md, "Screening").
    """

    edges: float
    runs: float
    smooth: float
    one_pair: bool  # whether the floor covers half-lines that tell no pair apart, or one
    ties: float = -1.0  # tied pairs that results on a fine lattice have by chance, at most; below 0 on none


def _calm(ground: Ground, epsilons: FloatArray, level: float) -> _Calm:
    n, depth = ground.n_databases, int(0.05 * ground.n_databases)
    smooth = float(epsilons.min()) * min(narrowing(n), TOTAL_WIDTH) * ground.bandwidth * (1 - 1e-14)
    gaps = np.diff(np.sort(ground.values.points))
    if ground.draws > 1 or len(gaps) < 2:
        return _Calm(0.0, 0.0, smooth, False)
    places = np.concatenate((np.arange(depth + 1), n - 2 - np.arange(depth + 1)))
    at_edges = float(0.5 * gaps[places].min())
    one_pair = True
    # every way to tell at most one pair apart, with up to `depth` pairs wholly inside
    inside = np.arange(depth + 1) / n
    # The mean and the deviation of an average are at most the largest of what is averaged; the third moment over the
    # variance is at most the largest value less the mean.
    e, z = np.exp(epsilons), quantile(level)
    third = (1 + 2 * z * z) / 6 * (1 + (e - 1) * depth / n + e / n) / n
    for a_only, b_only in ((0, 0), (1, 0), (0, 1)):
        a, b = inside + a_only / n, inside + b_only / n
        raw = (a, b, a, inside, b, a, inside, inside, b)
        if np.any(bound_from_raw(raw, e, n, level, mend=False) + third > floor(n, level) + 1.0 / n):
            at_edges, one_pair = 0.0, False
    cuts = np.flatnonzero(gaps > 5 * ground.bandwidth)
    first, last = np.concatenate(([0], cuts + 1)), np.concatenate((cuts, [n - 1]))
    beside = gaps[np.clip(np.concatenate((first, last - 1)), 0, n - 2)]
    alone = np.count_nonzero(last - first + 1 >= 5) <= 1  # with more clusters, single points add up
    return _Calm(at_edges, float(0.5 * beside.min()) if alone else 0.0, smooth, one_pair, _chance_ties(ground))


def _chance_ties(ground: Ground) -> float:
    """Tied pairs that a density that smooth has on the results' lattice, and 1.645 deviations more.

    A pair is tied with probability step times mean density, which is that of the kernels at each other's points. On a
    lattice wider than the bandwidth, or on none, ties are no matter of chance.
    """
    h, points = ground.bandwidth, np.sort(ground.marked.points[np.isfinite(ground.marked.points)])
    grid = lattice(points) if len(points) else None
    if grid is None or grid[1] > h:
        return -1.0
    reach, total = 0.0, 0.0
    for decay in np.exp(-np.diff(points) / h).tolist():
        reach = (reach + 1.0) * decay
        total += reach  # kernels of all points to the left, at each point
    expected = grid[1] * total / (2 * h)
    return float(expected + 1.645 * np.sqrt(expected + 1) + 1)


def _inner(ground: Ground) -> BoolArray:
    """Individuals in few databases, who move no result near an end: all half-lines see the same of both samples.

    Without c of the points, the k-th of the others is at most the (k + c)-th of all. With results in several large
    clusters nobody is cleared: points inside may be ends of clusters.
    """
    pairs, n, depth = ground.values, ground.n_databases, int(0.05 * ground.n_databases)
    ordered = np.sort(pairs.points)
    moved = np.diff(pairs.starts)
    out: BoolArray = np.asarray(moved == 0)
    cuts = np.flatnonzero(np.diff(ordered) > 5 * ground.bandwidth)
    firsts, lasts = np.concatenate(([0], cuts + 1)), np.concatenate((cuts, [n - 1]))
    large = np.flatnonzero(lasts - firsts >= 4)
    if len(large) != 1:
        return out
    first, last = max(depth, int(firsts[large[0]])), min(n - 1 - depth, int(lasts[large[0]]))
    here = np.flatnonzero((moved > 0) & (2 * moved < last - first))
    if not len(here):
        return out
    before, after = pairs.points[pairs.entry_database], pairs.entries[:, 0]
    # an entry more, since reduceat wants every end to be a place; those between are of individuals left out
    places = np.stack((pairs.starts[here], pairs.starts[here + 1]), axis=1).ravel()
    low = np.minimum.reduceat(np.append(np.minimum(before, after), np.inf), places)[::2]
    high = np.maximum.reduceat(np.append(np.maximum(before, after), -np.inf), places)[::2]
    count = moved[here]
    out[here] = (low >= ordered[first + count]) & (high <= ordered[last - count])
    return out


def merged_of(ground: Ground, rows: IntArray) -> Merged:
    """Both samples of these individuals, sorted together; stretched for people without whom results spread less, so
    that one bandwidth is everyone's own."""
    points, without = ground.values.points, ground.values.dense(rows)
    if ground.marked.ratios is not None:
        ratios = ground.marked.ratios[rows, None]
        points, without = points / ratios, without / ratios
    return Merged.of(points, without, ground.smooth(rows), ground.tolerance)


def _block(
    ground: Ground, rows: IntArray, epsilons: FloatArray, level: float, calm: _Calm, inner: BoolArray, looks: _Looks
) -> tuple[FloatArray, FloatArray, FloatArray]:
    n, draws, h = ground.n_databases, ground.draws, ground.bandwidth
    e = np.exp(epsilons)
    points, without, shifts = ground.values.points, ground.values.dense(rows), ground.shifts[rows] * h
    best = np.zeros((len(rows), len(e)))
    wide = looks.ends & (shifts >= calm.edges) & ~inner
    if wide.any():
        best[wide] = _edges(points, without[wide], e, draws, level)
    losses, sums = np.zeros(len(e)), np.zeros((len(e), n))
    subject = shifts >= calm.smooth
    smooth, total = (subject & (reach > epsilons.min()) for reach in (looks.smooth, looks.total))
    runs = looks.ends & (subject | (~inner & (shifts >= calm.runs)))
    some = np.flatnonzero(runs | smooth | total)
    if not len(some):
        return best, losses, sums
    merged = Merged.of(points, without[some], ground.smooth(rows[some]), ground.tolerance)
    if runs.any():
        alone = end_runs(merged.some(runs[some]), 5 * h) / draws
        best[runs] = np.maximum(best[runs], _run_bound(alone, n, level)[:, None])
    if smooth.any():
        part, width, columns = merged.some(smooth[some]), narrowing(n) * h, epsilons < looks.smooth[smooth].max()
        found = _guarded(part, ground, e[columns], width, level, calm.ties)
        sets = looks.sets[smooth]
        if sets.any():
            found[sets] = np.maximum(found[sets], _smooth(part.some(sets), ground, e[columns], width, level))
        place = np.ix_(smooth, columns)
        best[place] = np.maximum(best[place], found)
    if total.any():
        columns = epsilons < looks.total[total].max()
        losses[columns], sums[columns] = _total(merged.some(total[some]), ground, e[columns])
    return best, losses, sums


def _edges(points: FloatArray, without: FloatArray, e: FloatArray, draws: int, level: float) -> FloatArray:
    together = groups(int(0.05 * len(points)))
    best = np.zeros((len(without), len(e)))
    for sign in (1.0, -1.0):
        x, y = sign * points, sign * without
        # people who change nothing as far as half-lines reach have the ends that everybody has
        last = np.partition(x, together[-1][1] - 1)[together[-1][1] - 1]
        theirs = ((x != y) & (np.minimum(x, y) <= last)).any(axis=1)
        if not theirs.all():
            best[~theirs] = np.maximum(best[~theirs], edges(x, x, e, draws, together, level))
        if theirs.any():
            for a, b in ((x, y[theirs]), (y[theirs], x)):
                best[theirs] = np.maximum(best[theirs], edges(a, b, e, draws, together, level))
    return best - draws / len(points)


def _smooth(merged: Merged, ground: Ground, e: FloatArray, bandwidth: float, level: float) -> FloatArray:
    cut = Smooth.of(merged, bandwidth)
    out = np.zeros((len(merged.x), len(e)))
    for column, one in enumerate(e):
        for direction in (0, 1):
            bound = bound_of(cut.values(direction, float(one), ground.draws), level)
            np.maximum(out[:, column], bound, out=out[:, column])
    return out


def _guarded(
    merged: Merged, ground: Ground, e: FloatArray, bandwidth: float, level: float, chance: float
) -> FloatArray:
    """The smooth part without values that a sample has three times or more, where these are neither the rule nor, with
    at most ``chance`` tied pairs, what a lattice makes of a smooth law."""
    out = np.zeros((len(merged.x), len(e)))
    if merged.x.shape[1] < 3:
        return out
    three = np.flatnonzero(np.any(merged.x[:, 2:] - merged.x[:, :-2] <= merged.tolerance, axis=1))
    if not len(three):
        return out
    some = merged.some(three)
    with_all, without = some.counts(some.runs())
    tied = np.maximum(with_all, without) >= 3
    if some.smooth is not None:
        tied &= some.smooth
    sides = some.sides()
    held = np.maximum(np.count_nonzero(tied & sides, axis=1), np.count_nonzero(tied & ~sides, axis=1))
    own = np.where(sides, without, with_all) - 1.0
    if some.smooth is not None:
        own *= some.smooth
    pairs = 0.5 * np.maximum((own * sides).sum(axis=1), (own * ~sides).sum(axis=1))
    mixed = (held > 0) & (2 * held <= some.size) & (pairs > chance)
    if not mixed.any():
        return out
    smooth = ~tied if some.smooth is None else some.smooth & ~tied
    taken = Merged(some.x[mixed], some.order[mixed], smooth[mixed], some.tolerance)
    out[three[mixed]] = _smooth(taken, ground, e, bandwidth, level)
    return out


def _run_bound(alone: FloatArray | IntArray, n: int, level: float) -> FloatArray:
    """Bound on the mass where one sample has nothing, after k of n points were found there."""
    z = quantile(level)
    p = np.maximum(alone - 1, 0) / n
    return np.asarray(p + z * np.sqrt(p * (1 - p) / max(n - 1, 1)) + (1 + 2 * z * z) / 6 * (1 - 2 * p) / n)


def _total(merged: Merged, ground: Ground, e: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Σ -log1p(-d_i) for each epsilon, and Σ_i W_ij/(1 - d_i) for each database, in i's larger direction."""
    cut = Smooth.of(merged, TOTAL_WIDTH * ground.bandwidth)
    losses, sums = np.zeros(len(e)), np.zeros((len(e), ground.n_databases))
    for column, one in enumerate(e):
        both = [cut.values(direction, float(one), ground.draws) for direction in (0, 1)]
        means = [w.mean(axis=1) for w in both]
        w = np.where((means[0] >= means[1])[:, None], both[0], both[1])
        d = np.clip(np.maximum(means[0], means[1]), 0.0, 1.0)
        w, d = w[d > 0], d[d > 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            losses[column] = -np.log1p(-d).sum()
            sums[column] = (w / (1 - d)[:, None]).sum(axis=0)
    return losses, np.where(np.isfinite(sums), sums, 0.0)
