"""What one publication tells of each person: their effect size per publication, for what they did day by day.

On each day that a person is in, readers see the others' law or the same law moved by what the person did. That pair
has an effect size mu, which depends on the move alone: one curve mu²(d) for an answer serves everybody. Publications
add up, and days are drawn as they were seen, so that what counts of a person is the mean over all databases of

    mu²(d)    and of p, the chance that the day gives them away for certain

After T publications delta is that of two normal laws ``sqrt(T mean mu²)`` apart, and of ``1 - (1 - p)^T``: within 2%
of the exact composition of laws without edges (`composition`; the limit is that of Dong, Roth and Su, 2022).
Everything that says how private many publications are reads these two numbers: audits, noise, pages and the ledger.

mu is estimated (`moments`) from kernels of width b at the results and at the results moved, a pair for each database:
A_j and B_j, with G_j = A_j - B_j, s the mean of G_j, and m the mean of both densities f and g.

    F = ∫ s²/m        U = n/(n-1) ∫ (s² - Σ G_j²/n²)/m        H = -8 log ∫ sqrt(f g)        mu² = H U/F

F holds the noise of every kernel, which T publications would add up; U leaves the terms out in which a database meets
itself. All integrals are sums over cells, each with its exact mass: cells lose some of what tells apart, and never add
to it.

The estimate takes kernels of 0.707 of the one-SE bandwidth h, and is at least d²/var(q), which holds for any law
(Chapman and Robbins, 1951). The upper figure takes half of h, or of the likeliest bandwidth if that is narrower, and
adds the standard error; noise that is wider is itself the kernel. It is at least H where the move is wide beside the
kernel or the law ends abruptly. Beyond such an end a share of answers falls where only one side ever is, d/h of the
share of results next to the end, and tells for certain. Where databases are few and the law is skewed or has two peaks
no upper figure was seen to hold without noise, and none is given.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from empriv.measuring.line.atoms import share_at_most
from empriv.measuring.series.composition import delta_of_effects, gaussian_delta
from empriv.results import FloatArray, IntArray

WIDE, NARROW = 0.707, 0.5  # of the bandwidth: for the estimate, and for the upper figure
FAR = 2.0  # narrow bandwidths: a move this far is seen as two laws, not as a slope
ABRUPT, STEEP = 2.5, 1.5  # results next to an end, by a Laplace kernel, that make it an edge; of a skewed law
FEW = 100  # databases: below, an upper figure needs a law that looks symmetric and of one peak
SKEWED, FLAT = 0.08, 0.06  # L-skewness beyond which, and L-kurtosis below which, few databases do not carry one
_SHORT = 15.0  # over n: by how much of itself a normal quantile is short with noise where databases are few
_CURVE = 1.01  # what the Gaussian curve, and cells, are short of the exact composition of laws with noise
_APART = 2.0  # effect size of a day beyond which it is counted as telling for certain, as often as the laws differ
_CERTAIN = 1e6  # mu² of a move beyond all that kernels are followed for
_MOVES = 24  # at which a curve is computed
_LEAST = 1e-3  # of the largest move: below, mu² is a multiple of d²


@dataclass(frozen=True, eq=False)
class Effects:
    """What one publication tells of each person; what several tell is the sum.

    Attributes
    ----------
    squares : (people,) square of the effect size
    escapes : (people,) ``-log(1 - p)``, p the chance that a publication gives the person away for certain
    """

    squares: FloatArray
    escapes: FloatArray

    def delta_i(self, times: float, epsilons: FloatArray) -> FloatArray:
        """(people, epsilons) after so many publications."""
        with np.errstate(invalid="ignore"):
            return delta_of_effects(times * self.squares[:, None], times * self.escapes[:, None], epsilons)

    def delta(self, times: float, epsilon: float) -> float:
        """Of the most exposed person."""
        return float(self.delta_i(times, np.array([epsilon])).max(initial=0.0))


@dataclass(frozen=True, eq=False)
class SizeCurve:
    """mu² of a move, beside one law.

    Attributes
    ----------
    moves : (moves,) rising, above 0
    squared : (moves,) the estimate
    narrow, error : (moves,) mu² at the narrow bandwidth, and its standard error
    least : (moves,) the upper figure is at least this
    edges : results within a bandwidth of each end that is an edge
    bandwidth : by which results are near an end
    n_databases : behind them
    held : whether an upper figure is given
    short : by how much of itself the normal quantile is short
    """

    moves: FloatArray
    squared: FloatArray
    narrow: FloatArray
    error: FloatArray
    least: FloatArray
    edges: tuple[int, ...]
    bandwidth: float
    n_databases: int
    held: bool
    short: float = 0.0

    def at(self, moves: FloatArray, level: float | None = None) -> FloatArray:
        """mu² of these moves: the estimate, or the figure that is exceeded in 1 - level of cases."""
        known = self.squared
        if level is not None:
            z = NormalDist().inv_cdf(level) * (1.0 + self.short)
            known = _CURVE * np.maximum(np.maximum(self.narrow + z * self.error, self.least), self.squared)
        out = np.zeros(len(moves))
        some = moves > 0
        if some.any() and len(self.moves):
            share = np.interp(np.log(moves[some]), np.log(self.moves), known / self.moves**2)
            out[some] = share * moves[some] ** 2
        return out

    def slips(self, moves: FloatArray, level: float) -> FloatArray:
        """Chance that a move takes the answer beyond an edge, where only one side ever is."""
        beyond = sum(float(share_at_most(np.array(count), self.n_databases, level)) for count in self.edges)
        return np.minimum(1.0, moves / self.bandwidth * beyond) if beyond else np.zeros(len(moves))


def size_curve(
    law: FloatArray,
    moves: FloatArray,
    bandwidth: float,
    likeliest: float,
    *,
    noise: tuple[str, float] | None = None,
    draws: int = 1,
) -> SizeCurve:
    """mu² of moves beside a law.

    Parameters
    ----------
    law : (N,) results; +inf for point masses
    moves : (moves,) rising, above 0
    bandwidth, likeliest : of a Laplace kernel, by the one-SE rule and by likelihood
    noise : kind and scale of what is added to the answer; None for nothing
    draws : results of one database
    """
    n = len(law) // draws
    points = law[np.isfinite(law)]
    wide, narrow = (_kernel(noise, least) for least in (WIDE * bandwidth, NARROW * min(bandwidth, likeliest)))
    reached = moves <= FARTHEST * narrow[1]

    def of(kernel: tuple[str, float]) -> Moments:
        out = np.zeros((4, len(moves)))
        cells = CELLS if noise is None else FINE
        out[:, reached] = moments(law, moves[reached], kernel[1], kind=kernel[0], draws=draws, cells=cells)
        return Moments(*out)

    fine = of(narrow)
    coarse = fine if wide == narrow else of(wide)
    variance = float(np.var(points, ddof=1)) if len(points) > 1 else 0.0
    if noise is not None:
        variance += noise[1] ** 2 * (2.0 if noise[0] == "laplace" else 1.0)
    always = moves**2 / variance if variance > 0 else np.zeros(len(moves))
    edges = near_edges(points, bandwidth) if narrow[1] < bandwidth and len(points) else ()
    apart = (moves >= FAR * narrow[1]) | bool(edges) if noise is None else np.zeros(len(moves), bool)
    far = np.where(reached, 0.0, _CERTAIN)
    return SizeCurve(
        moves=moves,
        squared=np.maximum(coarse.squared, always) + far,
        narrow=np.maximum(fine.squared, always) + far,
        error=fine.error * fine.ratio,
        least=np.where(apart, fine.hellinger, 0.0),
        edges=edges,
        bandwidth=bandwidth,
        n_databases=n,
        held=n > 1 and (noise is not None or n >= FEW or regular(points)),
        short=0.0 if noise is None else _SHORT / max(n, 1),
    )


def _kernel(noise: tuple[str, float] | None, least: float) -> tuple[str, float]:
    """The noise where it is wider than a Laplace kernel of the ``least`` width, else that kernel."""
    if noise is None or noise[1] < (math.sqrt(2.0) if noise[0] == "gaussian" else 1.0) * least:
        return "laplace", least
    return noise


@dataclass(frozen=True, eq=False)
class EffectSizes:
    """Effect sizes of everybody, from what they did on each database.

    Attributes
    ----------
    curves : beside each of the others' laws, of which the largest counts; none where no law hides anything
    moves : (person-days,) what people did, in units of the law; inf where they are given away for certain
    owner : (person-days,) position of the person
    people, n_databases : how many
    alone : mu² that noise alone leaves of moves, whatever the law is; None without noise
    digits : (2, people) square and chance that last digits tell, which kernels blur; None for nobody
    """

    curves: Sequence[SizeCurve] = field(repr=False)
    moves: FloatArray = field(repr=False)
    owner: IntArray = field(repr=False)
    people: int
    n_databases: int
    alone: Callable[[FloatArray], FloatArray] | None = field(default=None, repr=False)
    digits: FloatArray | None = field(default=None, repr=False)

    @property
    def held(self) -> bool:
        """Whether an upper figure is given."""
        return self.alone is not None or all(curve.held for curve in self.curves)

    @cached_property
    def estimate(self) -> Effects:
        """What one publication tells, by the estimate."""
        return self._effects(None)

    def upper(self, level: float = 0.95) -> Effects:
        """The upper figure; people who change anything are told for certain where none is given."""
        if level not in self._upper:
            self._upper[level] = self._effects(level)
        return self._upper[level]

    @cached_property
    def _upper(self) -> dict[float, Effects]:
        return {}

    def _effects(self, level: float | None) -> Effects:
        n, people = self.n_databases, self.people
        if level is not None and not self.held:
            moving = np.bincount(self.owner, self.moves > 0, minlength=people) > 0
            return Effects(np.zeros(people), np.where(moving, np.inf, 0.0))
        finite = np.isfinite(self.moves)
        moves = np.where(finite, self.moves, 0.0)
        squares = np.full(len(moves), _CERTAIN)  # nothing hides a move of a constant
        if self.curves:
            squares = np.max([curve.at(moves, level) for curve in self.curves], axis=0)
        if self.alone is not None:
            squares = np.minimum(squares, self.alone(moves))
        squares = np.where(moves > 0, squares, 0.0)
        certain = np.where(finite, 0.0, 1.0)
        # a pair of laws that differ in a share of cases tells at most as much as one that is told for certain as often
        apart = squares > _APART**2
        certain[apart] = gaussian_delta(np.sqrt(squares[apart]), 0.0)
        squares[apart] = 0.0
        share = np.bincount(self.owner, certain, minlength=people) / n
        if level is None:
            mean = np.bincount(self.owner, squares, minlength=people) / n
        else:
            mean = upper_means(squares, self.owner, people, n, level)
            share = np.where(share > 0, share_at_most(share * n, n, level), 0.0)
            if self.curves:
                beyond = np.max([curve.slips(moves, level) for curve in self.curves], axis=0)
                share = np.minimum(1.0, share + np.bincount(self.owner, beyond, minlength=people) / n)
        if self.digits is not None:
            mean, share = np.maximum(mean, self.digits[0]), np.maximum(share, self.digits[1])
        with np.errstate(divide="ignore"):
            return Effects(mean, -np.log1p(-share))


@dataclass(frozen=True, eq=False)
class EstimatedEffects:
    """Effect sizes without an upper figure: none was validated.

    Attributes
    ----------
    estimate : what one publication tells
    n_databases : behind it
    """

    estimate: Effects
    n_databases: int
    held: bool = False

    def upper(self, level: float = 0.95) -> Effects:  # noqa: ARG002 — as for `EffectSizes`
        moving = (self.estimate.squares > 0) | (self.estimate.escapes > 0)
        return Effects(np.zeros(len(moving)), np.where(moving, np.inf, 0.0))


def upper_means(values: FloatArray, owner: IntArray, people: int, n: int, level: float) -> FloatArray:
    """(people,) upper limits of the means over n databases, 0 on those that are not listed.

    mean + z sd/sqrt(n - 1) + c m3/(sd² n), c = (1 + 2z²)/6, as the judge's bound of a mean of skewed values.
    """
    first, second, third = (np.bincount(owner, values**power, minlength=people) / n for power in (1, 2, 3))
    if n < 2:
        return first
    variance = np.maximum(second - first**2, 0.0)
    variance[variance <= 1e-12 * second] = 0.0  # what rounding leaves of equal values
    skewed = third - 3 * first * second + 2 * first**3
    z = NormalDist().inv_cdf(level)
    with np.errstate(divide="ignore", invalid="ignore"):
        added = np.where(variance > 0, (1 + 2 * z * z) / 6 * skewed / variance / n, 0.0)
    return np.asarray(first + np.maximum(z * np.sqrt(variance / (n - 1)) + added, 0.0))


def grid_of(moves: FloatArray) -> FloatArray:
    """Moves at which a curve is computed: these themselves where they are few."""
    some = moves[np.isfinite(moves) & (moves > 0)]
    if not len(some):
        return np.zeros(0)
    if len(some) <= _MOVES**2:
        different = np.unique(some)
        if len(different) <= _MOVES:
            return different
    most = float(some.max())
    return np.geomspace(max(float(some.min()), _LEAST * most), most, _MOVES)


def near_edges(points: FloatArray, bandwidth: float) -> tuple[int, ...]:
    """Results within a bandwidth of each end at which the law ends abruptly."""
    skewness = l_moments(points)[0]
    counts = []
    for distance, steep in ((points - points.min(), skewness > SKEWED), (points.max() - points, skewness < -SKEWED)):
        if 0.5 * np.exp(-distance / bandwidth).sum() > (STEEP if steep else ABRUPT):
            counts.append(int(np.count_nonzero(distance <= bandwidth)))
    return tuple(counts)


def regular(points: FloatArray) -> bool:
    """Whether a law looks symmetric and of one peak."""
    skewness, kurtosis = l_moments(points)
    return bool(abs(skewness) <= SKEWED and kurtosis >= FLAT)


def l_moments(points: FloatArray) -> tuple[float, float]:
    """L-skewness and L-kurtosis, which heavy tails do not disturb; NaN where all points, or nearly all, are equal."""
    x = np.sort(points)
    n = len(x)
    if n < 8 or x[0] == x[-1]:
        return float("nan"), float("nan")
    k = np.arange(n)
    x = (x - x[n // 2]) / (x[-1] - x[0])
    b0, b1 = x.mean(), (k * x).mean() / (n - 1)
    b2 = (k * (k - 1) * x).mean() / ((n - 1) * (n - 2))
    b3 = (k * (k - 1) * (k - 2) * x).mean() / ((n - 1) * (n - 2) * (n - 3))
    scale = 2 * b1 - b0
    return float((6 * b2 - 6 * b1 + b0) / scale), float((20 * b3 - 30 * b2 + 12 * b1 - b0) / scale)


CELLS, FINE = 4, 8  # in a bandwidth, and in noise that is the kernel itself
_REACH = 16  # bandwidths on either side of a point that its kernel is followed for
FARTHEST = 256.0  # bandwidths: a move beyond is told for certain
_TRIANGLE = (-0.592, -0.261, -0.083, 0.083, 0.261, 0.592)  # six equal shares of a triangular law, the mean of each


class Moments(NamedTuple):
    """What one bandwidth says of some moves; all (moves,).

    Attributes
    ----------
    hellinger, chi, unbiased : H, F and U
    error : standard error of F, from databases and from pairs of them
    """

    hellinger: FloatArray
    chi: FloatArray
    unbiased: FloatArray
    error: FloatArray

    @property
    def ratio(self) -> FloatArray:
        """H/F, 1 where nothing is told apart."""
        return np.where(self.chi > 0, self.hellinger / np.where(self.chi > 0, self.chi, 1.0), 1.0)

    @property
    def squared(self) -> FloatArray:
        """mu², H U/F; 0 where U is below."""
        return np.maximum(self.ratio * self.unbiased, 0.0)


def moments(
    law: FloatArray, moves: FloatArray, width: float, *, kind: str = "laplace", draws: int = 1, cells: int = CELLS
) -> Moments:
    """H, F, U and the standard error of F of each move.

    Parameters
    ----------
    law : (N,) results, those of one database together; +inf for point masses
    moves : (moves,) at least 0, and at most `FARTHEST` widths
    width : b of a Laplace kernel, or the standard deviation of a Gaussian one
    kind : "laplace" or "gaussian"
    draws : results of one database
    cells : in a width
    """
    n = len(law) // draws
    owner = np.repeat(np.arange(n), draws)
    finite = np.isfinite(law)
    points, owner = law[finite] / width, owner[finite]
    found = [_of_move(points, owner, float(move), n, draws, kind, cells) for move in (moves / width).tolist()]
    return Moments(*np.array(found).reshape(-1, 4).T)


def _of_move(
    points: FloatArray, owner: IntArray, move: float, n: int, draws: int, kind: str, cells: int
) -> tuple[float, float, float, float]:
    """The same of one move, in bandwidths."""
    if not move > 0 or not len(points) or n < 2:
        return 0.0, 0.0, 0.0, 0.0
    before = _REACH * cells
    size = 2 * before + math.ceil(move * cells) + 1  # cells that a point and the point moved reach
    cell, inside = _placed(points, size, cells)
    edges = (np.arange(size + 1) - before - inside[:, None]) / cells
    own = np.diff(_cumulated(edges, kind), axis=1) / draws
    change = own - np.diff(_cumulated(edges - move, kind), axis=1) / draws
    place = cell[:, None] + np.arange(size)
    count = int(cell.max()) + size
    if draws > 1:  # draws of one database are one kernel
        keys, back = np.unique(owner[:, None] * count + place, return_inverse=True)
        own, change = (np.bincount(back.reshape(-1), part.reshape(-1)).astype(float) for part in (own, change))
        database, place = keys // count, keys % count
    else:
        database = np.broadcast_to(owner[:, None], place.shape)
    f, s = (np.bincount(place.reshape(-1), part.reshape(-1), minlength=count) / n for part in (own, change))
    g = np.maximum(f - s, 0.0)
    m = 0.5 * (f + g)
    with np.errstate(divide="ignore", invalid="ignore"):
        inverse = np.where(m > 0, 1.0 / m, 0.0)
        apart = np.where(m > 0, s / (np.sqrt(f) + np.sqrt(g)), 0.0)
    t = s * inverse
    chi = float(s @ t)
    hellinger = -8.0 * math.log1p(-min(0.5 * float(apart @ apart), 1 - 1e-16))

    def by_database(values: FloatArray) -> FloatArray:
        return np.bincount(database.reshape(-1), values.reshape(-1), minlength=n).astype(float)

    alone = by_database(change * change * inverse[place])  # a database with itself
    unbiased = (chi - float(alone.sum()) / n**2) * n / (n - 1)
    influence = by_database(change * (2 * t + 0.5 * t * t)[place] - own * (t * t)[place]) - chi
    first = np.full(n, -1)
    first[owner[::-1]] = cell[::-1]  # the cell of each database's first result
    present = first >= 0
    pairs = _among_pairs(first[present], alone[present], move, kind, cells)
    error = math.sqrt(float(influence @ influence) / n**2 + 2 * pairs / n**4)
    return hellinger, chi, unbiased, error


def _placed(points: FloatArray, reach: int, cells: int) -> tuple[IntArray, FloatArray]:
    """The cell of each point, from 0 on, and how far inside it is; empty stretches of more than ``reach`` cells are cut
    short, since no two kernels meet across them."""
    whole = np.floor(points * cells)
    order = np.argsort(whole, kind="stable")
    gaps = np.minimum(np.diff(whole[order], prepend=whole[order[0]]), reach)
    cell = np.empty(len(points), np.int64)
    cell[order] = np.cumsum(gaps).astype(np.int64)
    return cell, points * cells - whole


def _cumulated(z: FloatArray, kind: str) -> FloatArray:
    """The kernel's mass below z."""
    if kind == "gaussian":
        from scipy.special import ndtr  # slow import

        return np.asarray(ndtr(z))
    tail = 0.5 * np.exp(-np.abs(z))
    return np.where(z < 0, tail, 1.0 - tail)


def _among_pairs(cell: IntArray, alone: FloatArray, move: float, kind: str, cells: int) -> float:
    """``Σ_{j≠l} (∫ G_j G_l/m)²``, for the standard error.

    Where m hardly changes within a bandwidth, two databases r apart have ``∫ G_j G_l/m = a_j a_l rho(r)`` with
    ``a_j² = ∫ G_j²/m`` and ``rho(r) = (2E(r) - E(r - d) - E(r + d))/(2E(0) - 2E(d))``, where E is the kernel convolved
    with itself: ``(1 + |r|) e^-|r|`` of a Laplace kernel, ``e^(-r²/4)`` of a Gaussian one.
    """
    binned = np.bincount(cell, alone)
    moved = max(move, 1e-3)  # below, rho is that of a slope
    total = 0.0
    for lag in range(min(len(binned), int(cells * (8.0 + min(moved, 8.0))) + 1)):
        # two places in cells `lag` apart differ by lag ± a triangular law of one cell
        profile = float(np.mean([_correlation((lag + u) / cells, moved, kind) ** 2 for u in _TRIANGLE]))
        products = float(binned[: len(binned) - lag] @ binned[lag:])
        total += (1.0 if lag == 0 else 2.0) * profile * products
        if lag == 0:
            total -= profile * float(alone @ alone)
    return max(total, 0.0)


def _correlation(r: float, moved: float, kind: str) -> float:
    """rho at distance r, of kernels that move by so much; in bandwidths."""

    def overlap(distance: float) -> float:
        away = abs(distance)
        return math.exp(-0.25 * away * away) if kind == "gaussian" else (1.0 + away) * math.exp(-away)

    return (2 * overlap(r) - overlap(r - moved) - overlap(r + moved)) / (2 * overlap(0.0) - 2 * overlap(moved))
