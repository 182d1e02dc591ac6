"""`Sizes`: the effect size of every individual, an estimate and an upper figure, by the rules that were validated.

The estimate takes kernels of 0.707 of the one-SE bandwidth h, and is at least mean(d)²/var(q), which holds for any law.
The upper figure takes half of h, or of the likeliest bandwidth if that is narrower, and adds the standard error. It is
at least H where influence is wide beside the kernel or the law ends abruptly. Beyond such an end a share of looks falls
where only one side ever is, |d|/h of the share of results next to the end, and tells for certain.
Where databases are few and the law is skewed or has two peaks no upper figure was seen to hold, and none is given.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np

from empriv.base.threads import workers
from empriv.measuring.densities.density import Mixture, Model
from empriv.measuring.line.atoms import Pairs, share_at_most
from empriv.measuring.series.composition import certain_after, gaussian_delta
from empriv.measuring.series.effects import Moments, blocks_of, looks_of, moments
from empriv.results import FloatArray, IntArray

WIDE, NARROW = 0.707, 0.5  # of the bandwidth: for the estimate, and for the upper figure
FAR = 2.0  # narrow bandwidths: a mean influence this far is seen as two laws, not as a slope
ABRUPT, STEEP = 2.5, 1.5  # results next to an end, by a Laplace kernel, that make it an edge; of a skewed law
FEW = 100  # databases: below, an upper figure needs a law that looks symmetric and of one peak
SKEWED, FLAT = 0.08, 0.06  # L-skewness beyond which, and L-kurtosis below which, few databases do not carry one


@dataclass(frozen=True, eq=False)
class Sizes:
    """Effect sizes of individuals for one look; all arrays are (individuals,).

    Attributes
    ----------
    squared : mu², the estimate
    narrow, error : mu² at the narrow bandwidth, and its standard error
    least : the upper figure of mu² is at least this
    certain : share of looks that tell for certain, by outcomes with a mass of their own
    slips : mean |d| in bandwidths, by which the ends move
    near_ends : results within a bandwidth of each end that is an edge
    n_databases : behind them
    held : whether an upper figure is given
    seldom : by how much of itself the mean influence may be off, one standard error of it; where it was seen seldom
    """

    squared: FloatArray
    narrow: FloatArray
    error: FloatArray
    least: FloatArray
    certain: FloatArray
    slips: FloatArray
    near_ends: tuple[int, ...]
    n_databases: int
    held: bool
    seldom: FloatArray | float = 0.0

    def upper_squared(self, level: float) -> FloatArray:
        """mu² that is exceeded in 1 - level of cases, smooth laws taken for granted."""
        z = NormalDist().inv_cdf(level)
        seen = np.maximum(np.maximum(self.narrow + z * self.error, self.least), self.squared)
        return np.asarray(seen * (1.0 + z * self.seldom) ** 2)

    def upper_certain(self, level: float) -> FloatArray:
        """Share of looks that tell for certain: outcomes with a mass of their own, and what slips beyond an edge."""
        n = self.n_databases
        beyond = sum(share_at_most(np.array(count), n, level) for count in self.near_ends)
        counted = np.where(self.certain > 0, share_at_most(np.rint(self.certain * n), n, level), 0.0)
        return np.minimum(1.0, counted + self.slips * beyond)

    def estimate(self, looks: FloatArray, epsilons: FloatArray) -> FloatArray:
        """(individuals, epsilons) delta after so many looks of each individual."""
        return _after(self.squared[:, None], self.certain[:, None], looks[:, None], epsilons)

    def each(self, looks: FloatArray, epsilons: FloatArray) -> FloatArray:
        """(individuals,) the same, each at their own epsilon."""
        return _after(self.squared, self.certain, looks, epsilons)

    def upper(self, looks: FloatArray, epsilons: FloatArray, level: float) -> FloatArray:
        """(individuals, epsilons) the upper figure; 1 for everyone who changes anything where none is given."""
        if not self.held:
            moves = (self.squared > 0) | (self.narrow > 0) | (self.slips > 0) | (self.certain > 0)
            return np.repeat(moves[:, None].astype(float), len(epsilons), axis=1)
        return _after(self.upper_squared(level)[:, None], self.upper_certain(level)[:, None], looks[:, None], epsilons)


def _after(squared: FloatArray, certain: FloatArray, looks: FloatArray, epsilons: FloatArray) -> FloatArray:
    """delta after looks with mu² and a share that tells for certain; all broadcast."""
    told = np.asarray(certain_after(certain, looks))
    return np.asarray(told + (1.0 - told) * gaussian_delta(np.sqrt(squared * looks), epsilons))


def sizes_of(pairs: Pairs, model: Model | None) -> Sizes:
    """Effect sizes from pairs whose density has the Laplace one-SE bandwidth."""
    count, n = pairs.n_individuals, len(pairs.points) // pairs.draws
    blank = np.zeros(count)
    sizes = Sizes(blank, blank, blank, blank, blank, blank, (), n, n > 1)
    if isinstance(model, Mixture) and n > 1:
        sizes = _smooth_sizes(pairs, model)
    sizes = _with_atoms(sizes, pairs)
    alone = [(row, sizes_of(replace(own, own=()), model)) for row, own in pairs.own]
    for name in ("squared", "narrow", "error", "least", "certain", "slips"):
        column = getattr(sizes, name)
        for row, own_sizes in alone:
            column[row] = getattr(own_sizes, name)[0]
    return sizes


def _smooth_sizes(pairs: Pairs, model: Mixture) -> Sizes:
    """Those that the density gives, without outcomes that have a mass of their own."""
    n, h = len(pairs.points) // pairs.draws, model.bandwidth
    wide, narrow = WIDE * h, NARROW * min(h, model.likeliest)
    shift, size = mean_influence(pairs)
    out = Moments(*np.zeros((4, pairs.n_individuals)))
    fine = Moments(*np.zeros((4, pairs.n_individuals)))

    def task(rows: IntArray) -> None:
        looks = looks_of(pairs, rows)
        for target, width, errors in ((out, wide, False), (fine, narrow, True)):
            for column, values in zip(target, moments(looks, width, errors=errors), strict=True):
                column[rows] = values

    blocks = blocks_of(pairs, np.flatnonzero(moving(pairs)), narrow)
    if len(blocks) > 1 and workers() > 1:
        with ThreadPoolExecutor(workers()) as pool:
            list(pool.map(task, blocks))
    else:
        for block in blocks:
            task(block)
    points = pairs.points[np.isfinite(pairs.points)]
    return judged(out, fine, shift, size, points, n, h, narrow)


def judged(
    wide: Moments,
    fine: Moments,
    shift: FloatArray,
    size: FloatArray,
    points: FloatArray,
    n: int,
    bandwidth: float,
    narrow: float,
) -> Sizes:
    """Sizes from the moments at both bandwidths, and from what is seen of the law."""
    variance = float(np.var(points, ddof=1)) if len(points) > 1 else 0.0
    least = shift**2 / variance if variance > 0 else np.zeros_like(shift)
    edges = near_edges(points, bandwidth)
    seen = (np.abs(shift) >= FAR * narrow) | bool(edges)
    return Sizes(
        squared=np.maximum(wide.squared, least),
        narrow=np.maximum(fine.squared, least),
        error=fine.error * fine.ratio,
        least=np.where(seen, fine.hellinger, 0.0),
        certain=np.zeros(len(shift)),
        slips=size / bandwidth,
        near_ends=edges,
        n_databases=n,
        held=n >= FEW or regular(points),
    )


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


def moving(pairs: Pairs) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """(individuals,) who changes any result."""
    changed = np.any(pairs.entries != pairs.points.reshape(-1, pairs.draws)[pairs.entry_database], axis=1)
    owner = np.repeat(np.arange(pairs.n_individuals), np.diff(pairs.starts))
    return np.asarray(np.bincount(owner[changed], minlength=pairs.n_individuals) > 0)


def mean_influence(pairs: Pairs) -> tuple[FloatArray, FloatArray]:
    """(individuals,) mean change over all databases, and its mean size; to and from atoms it is none."""
    n = len(pairs.points) // pairs.draws
    with np.errstate(invalid="ignore"):
        change = pairs.points.reshape(n, -1)[pairs.entry_database] - pairs.entries
    change = np.where(np.isfinite(change), change, 0.0)
    owner = np.repeat(np.arange(pairs.n_individuals), np.diff(pairs.starts))
    mean, size = (
        np.bincount(owner, values.mean(axis=1), minlength=pairs.n_individuals) / n
        for values in (change, np.abs(change))
    )
    return mean, size


def _with_atoms(sizes: Sizes, pairs: Pairs) -> Sizes:
    """With outcomes that have a mass of their own: certain where one side never gives them, else another cell.

    How a mass changes is known, not on which databases: all changes are taken to go one way.
    """
    if not len(pairs.names):
        return sizes
    n = sizes.n_databases
    p, q = np.broadcast_to(pairs.mass, pairs.mass_without.shape), pairs.mass_without
    rest = [np.maximum(1.0 - masses.sum(axis=1, keepdims=True), 0.0) for masses in (p, q)]
    rest = [np.where(mass > 1e-9, mass, 0.0) for mass in rest]
    p, q = (np.concatenate((masses, left), axis=1) for masses, left in ((p, rest[0]), (q, rest[1])))
    told = [np.where(b == 0, a, 0.0).sum(axis=1) for a, b in ((p, q), (q, p))]
    apart = (p > 0) & (q > 0)
    s, m = np.where(apart, p - q, 0.0), np.where(apart, 0.5 * (p + q), 1.0)
    s[:, -1] = 0.0  # the rest is in the density already
    chi, alone = (s**2 / m).sum(axis=1), (np.abs(s) / n / m).sum(axis=1)
    unbiased = np.maximum((chi - alone) * n / max(n - 1, 1), 0.0)
    error = np.sqrt((4 * (s / m) ** 2 * np.abs(s) / n + 2 * (s / m / n) ** 2).sum(axis=1))
    return replace(
        sizes,
        squared=sizes.squared + unbiased,
        narrow=sizes.narrow + unbiased,
        error=np.hypot(sizes.error, error),
        certain=np.maximum(*told),
    )
