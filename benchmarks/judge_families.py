"""Laws of the others' results and of one person's influence, for `judge.py`. Written down before anything was run.

A law is held as masses on the multiples of a fine unit, so that noise, moves and influences are sums and convolutions
that are exact up to the unit, for combs and spikes as for smooth laws. What is drawn is continuous where the law is:
uniform within its cell.

* `PLAIN`: smooth laws, hard edges, heavy tails, skewness, two peaks, gaps.
* `STRUCTURED`: combs, last digits, prices, poles, spikes: what no bandwidth sees.
* `COUNTS`: whole numbers, moved by whole numbers.
* `TRENDS`: a trend and weekdays are added and taken out again by regression; the truth is that of what is left.
* `INFLUENCES`: what a person adds on a database that they are in.
* `FRESH`: other laws of all these kinds, written down after the recipe was settled on the lists above (where W is
  extrapolated from, the dither, the gate's frequencies and close pairs, z) and run once: nothing was chosen on them.
  Afterwards where W is extrapolated from was chosen again, with some of them in view.
* `SECOND`: written down after that, and run once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import signal, stats

FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Law:
    """Masses at (first + k) unit.

    ``within``: draws are spread over their cell (a continuous law); otherwise they are the multiples themselves.
    ``trend``: draws get a trend and weekdays that are regressed out. ``whole_moves``: people add whole numbers.
    """

    name: str
    make: Callable[[], tuple[float, int, FloatArray]]
    within: bool = True
    trend: bool = False
    whole_moves: bool = False

    @cached_property
    def parts(self) -> tuple[float, int, FloatArray]:
        unit, first, masses = self.make()
        return unit, first, masses / masses.sum()

    @cached_property
    def sums(self) -> FloatArray:
        return np.cumsum(self.parts[2])

    @property
    def unit(self) -> float:
        return self.parts[0]

    @cached_property
    def sd(self) -> float:
        """Spread of the middle 95%, as that of a normal law: finite for heavy tails too."""
        unit, _, masses = self.parts
        low, high = np.searchsorted(np.cumsum(masses), [0.025, 0.975])
        return float(high - low) * unit / 3.92

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        unit, first, masses = self.parts
        k = np.minimum(np.searchsorted(self.sums, rng.random(n)), len(masses) - 1)
        x = (first + k + (rng.uniform(-0.5, 0.5, n) if self.within else 0.0)) * unit
        return regress_out(rng, x, self.sd) if self.trend else np.asarray(x)


def estimated(law: Law, n: int) -> Law:
    """The law of what is left to somebody who estimates trend and weekdays, 8 numbers, from n answers."""

    def make() -> tuple[float, int, FloatArray]:
        unit, first, masses = law.parts
        scale = law.sd * np.sqrt(8 / n)
        room = int(np.ceil(9 * scale / unit))
        return unit, first - room, noisy(np.pad(masses, room), unit, scale, "gaussian")

    return Law(f"{law.name} (estimated)", make)


def regress_out(rng: np.random.Generator, x: FloatArray, sd: float) -> FloatArray:
    """What is left of results with a trend and weekdays, after a regression on both."""
    n = len(x)
    day = np.arange(n)
    design = np.column_stack((day / n, np.eye(7)[day % 7]))
    y = x + design @ np.concatenate(([2.0 * sd], rng.normal(0, sd, 7)))
    left = y - design @ np.linalg.lstsq(design, y, rcond=None)[0]
    return np.asarray(left * np.sqrt(n / max(1, n - 8)))


def stick(p: FloatArray, q: FloatArray, epsilon: float) -> float:
    """The larger hockey stick of two rows of masses."""
    e = np.exp(epsilon)
    return float(max(np.maximum(p - e * q, 0).sum(), np.maximum(q - e * p, 0).sum()))


def noisy(masses: FloatArray, unit: float, scale: float, kind: str = "laplace") -> FloatArray:
    """Masses with noise of this scale added, on the same multiples; there must be room at both ends."""
    if scale == 0:
        return masses
    if kind == "gaussian":
        far = int(np.ceil(9 * scale / unit))
        kernel = np.exp(-0.5 * (np.arange(-far, far + 1) * unit / scale) ** 2)
        return np.maximum(0.0, signal.fftconvolve(masses, kernel / kernel.sum(), mode="same"))
    r = np.exp(-unit / scale)
    forth = signal.lfilter([1.0], [1.0, -r], masses)
    back = signal.lfilter([1.0], [1.0, -r], masses[::-1])[::-1]
    return np.asarray((forth + back - masses) * (1 - r) / (1 + r))


def true_delta(
    law: Law,
    epsilon: float,
    scale: float,
    influence: tuple[FloatArray, FloatArray],
    kind: str = "laplace",
    step: float = 0.0,
) -> float:
    """Hockey stick of x + influence + noise against x + noise; ``influence`` is values and their shares.

    With a ``step``, results are rounded to its multiples and the noise is the discrete law on these.
    """
    unit, first, masses = law.parts
    coarse = max(1, int((step / 32 if step else scale / 500) / unit))  # much noise needs no fine cells
    if coarse > 1:
        masses = np.bincount(np.arange(len(masses)) // coarse, masses)
        unit *= coarse
    room = int(np.ceil((12 * scale + np.abs(influence[0]).max(initial=0)) / unit)) + 2
    with_noise = np.pad(masses, room)
    other = np.zeros_like(with_noise)
    for move, share in zip((influence[0] / unit).tolist(), influence[1].tolist(), strict=True):
        k = round(move) if abs(move - round(move)) < 1e-6 else int(np.floor(move))
        part = move - k if abs(move - k) > 1e-6 else 0.0
        other += share * (1 - part) * np.roll(with_noise, k)
        if part:  # between two cells: noise smooths over them
            other += share * part * np.roll(with_noise, k + 1)
    if step:
        start = (first + (coarse - 1) / 2) / coarse - room  # the middle of the first cell
        at = np.rint((np.arange(len(with_noise)) + start) * unit / step).astype(np.int64)
        at -= at[0]
        with_noise, other = (np.bincount(at, part) for part in (with_noise, other))
        unit = step
    return stick(noisy(other, unit, scale, kind), noisy(with_noise, unit, scale, kind), epsilon)


def smooth(
    distribution: object, low: float, high: float, count: int = 10_000
) -> Callable[[], tuple[float, int, FloatArray]]:
    """A law of scipy's, cut into cells; what lies outside goes into the end cells."""

    def make() -> tuple[float, int, FloatArray]:
        unit = (high - low) / count
        first = round(low / unit)
        edges = (first + np.arange(count + 1) - 0.5) * unit
        return unit, first, np.diff(distribution.cdf(edges))  # type: ignore[attr-defined]

    return make


def two(
    first: object, second: object, share: float, low: float, high: float, count: int = 10_000
) -> Callable[..., tuple[float, int, FloatArray]]:
    def make() -> tuple[float, int, FloatArray]:
        unit, start, masses = smooth(first, low, high, count)()
        return unit, start, (1 - share) * masses + share * smooth(second, low, high, count)()[2]

    return make


def on_multiples(
    sd: int, weight: Callable[[FloatArray], FloatArray], parts: int = 8
) -> Callable[[], tuple[float, int, FloatArray]]:
    """Whole numbers of a normal law with this sd, weighted; a unit is 1/parts so that noise is fine enough."""

    def make() -> tuple[float, int, FloatArray]:
        k = np.arange(-5 * sd, 5 * sd + 1)
        masses = np.zeros(len(k) * parts)
        masses[::parts] = stats.norm.pdf(k / sd) * weight(k.astype(float))
        return 1 / parts, int(k[0]) * parts, masses

    return make


def comb(teeth: float, width: float) -> Callable[[], tuple[float, int, FloatArray]]:
    """A normal law of sd 1 rounded to teeth, each blurred by a normal law of this width."""

    def make() -> tuple[float, int, FloatArray]:
        count, unit = 20_000, 10 / 20_000
        x = (np.arange(count) - count // 2) * unit
        near = np.rint(x / teeth) * teeth
        return unit, -(count // 2), np.exp(-0.5 * near**2) * np.exp(-0.5 * ((x - near) / width) ** 2)

    return make


def spikes() -> tuple[float, int, FloatArray]:
    """A normal law, 40% of it in five spikes of width .004."""
    unit, first, masses = smooth(stats.norm, -5, 5, 20_000)()
    for place in (-1.1, -0.4, 0.15, 0.7, 1.3):
        masses = masses * 1.0 + 0.08 / 0.6 * np.diff(
            stats.norm(place, 0.004).cdf((first + np.arange(len(masses) + 1) - 0.5) * unit)
        )
    return unit, first, masses


N = stats.norm
PLAIN = (
    Law("normal", smooth(N, -6, 6)),
    Law("exponential", smooth(stats.expon, -0.001, 14)),
    Law("gamma 2", smooth(stats.gamma(2), -0.001, 18)),
    Law("lognormal .5", smooth(stats.lognorm(0.5), 0, 12)),
    Law("Student 3", smooth(stats.t(3), -60, 60, 40_000)),
    Law("two peaks", two(N(-1.5, 0.5), N(1.5, 0.5), 0.5, -5, 5)),
    Law("two scales", two(N(0, 0.15), N(0, 1.5), 0.3, -9, 9)),
    Law("uniform", smooth(stats.uniform, -0.001, 1.001)),
    Law("Laplace", smooth(stats.laplace, -12, 12)),
    Law("triangle", smooth(stats.triang(0.5), -0.001, 1.001)),
    Law("beta 2, 5", smooth(stats.beta(2, 5), -0.001, 1.001)),
    Law("gap", two(stats.uniform(0, 1), stats.uniform(1.6, 0.6), 0.4, -0.001, 2.201)),
)
STRUCTURED = (
    Law("comb .1", comb(0.1, 0.005)),
    Law("comb .25", comb(0.25, 0.02)),
    Law(
        "mostly multiples of 13",
        on_multiples(130, lambda k: np.where(k % 13 == 0, 30.0, 1.0)),
        within=False,
        whole_moves=True,
    ),
    Law("even numbers 80%", on_multiples(30, lambda k: np.where(k % 2 == 0, 4.0, 1.0)), within=False, whole_moves=True),
    Law("fives 60%", on_multiples(40, lambda k: np.where(k % 5 == 0, 6.0, 1.0)), within=False, whole_moves=True),
    Law(
        "whole euros 50%",
        on_multiples(400, lambda k: np.where(k % 100 == 0, 100.0, 1.0), 2),
        within=False,
        whole_moves=True,
    ),
    Law(
        ".99 prices 70%",
        on_multiples(500, lambda k: np.where(k % 100 == 99, 231.0, 1.0), 2),
        within=False,
        whole_moves=True,
    ),
    Law("pole at an edge", smooth(stats.gamma(0.5), -0.0001, 9, 30_000)),
    Law("pole at both edges", smooth(stats.beta(0.4, 0.4), -0.0001, 1.0001, 20_000)),
    Law("spikes 40%", spikes),
)
COUNTS = (
    Law(
        "Poisson 20",
        lambda: (0.125, 0, np.repeat(stats.poisson(20).pmf(np.arange(70)), 8) * np.tile([1.0] + [0.0] * 7, 70)),
        within=False,
        whole_moves=True,
    ),
    Law(
        "Poisson 300",
        lambda: (0.125, 0, np.repeat(stats.poisson(300).pmf(np.arange(480)), 8) * np.tile([1.0] + [0.0] * 7, 480)),
        within=False,
        whole_moves=True,
    ),
    Law(
        "negative binomial 50",
        lambda: (0.125, 0, np.repeat(stats.nbinom(4, 4 / 54).pmf(np.arange(400)), 8) * np.tile([1.0] + [0.0] * 7, 400)),
        within=False,
        whole_moves=True,
    ),
)
TRENDS = (
    Law("normal, trend and weekdays out", smooth(N, -6, 6), trend=True),
    Law("gamma 2, trend and weekdays out", smooth(stats.gamma(2), -0.001, 18), trend=True),
    Law("Laplace, trend and weekdays out", smooth(stats.laplace, -12, 12), trend=True),
)
FRESH_PLAIN = (
    Law("Weibull 1.5", smooth(stats.weibull_min(1.5), -0.001, 6)),
    Law("Gumbel", smooth(stats.gumbel_r, -4, 16)),
    Law("logistic", smooth(stats.logistic, -16, 16)),
    Law("Student 5", smooth(stats.t(5), -30, 30, 30_000)),
    Law("skewed normal 6", smooth(stats.skewnorm(6), -2, 6)),
    Law("half normal", smooth(stats.halfnorm, -0.001, 6)),
    Law("Pareto 3", smooth(stats.pareto(3), 0.999, 60, 60_000)),
    Law("unequal peaks", two(N(0, 1), N(3.2, 0.3), 0.2, -5, 6)),
    Law("trapezoid", smooth(stats.trapezoid(0.1, 0.8), -0.001, 1.001)),
    Law("step inside", two(stats.uniform(0, 2), stats.uniform(0.7, 0.4), 0.5, -0.001, 2.001)),
)
FRESH_STRUCTURED = (
    Law("comb .17", comb(0.17, 0.01)),
    Law("comb .4", comb(0.4, 0.05)),
    Law("sevens 60%", on_multiples(60, lambda k: np.where(k % 7 == 0, 9.0, 1.0)), within=False, whole_moves=True),
    Law("tens 40%", on_multiples(90, lambda k: np.where(k % 10 == 0, 6.0, 1.0)), within=False, whole_moves=True),
    Law("odd numbers 75%", on_multiples(20, lambda k: np.where(k % 2 == 1, 3.0, 1.0)), within=False, whole_moves=True),
    Law("chi-squared 1", smooth(stats.chi2(1), -0.0001, 18, 30_000)),
    Law("beta .3, 2", smooth(stats.beta(0.3, 2), -0.0001, 1.0001, 20_000)),
)
SECOND = (
    Law("contaminated normal", two(N(0, 1), N(0, 5), 0.1, -25, 25, 20_000)),
    Law("gamma 3", smooth(stats.gamma(3), -0.001, 20)),
    Law("lognormal 1", smooth(stats.lognorm(1.0), 0, 60, 40_000)),
    Law("largest of 8 uniforms", smooth(stats.beta(8, 1), -0.001, 1.001)),
    Law("cut normal", smooth(stats.truncnorm(-0.7, 1.2), -0.8, 1.3)),
    Law("exponential and uniform", two(stats.expon(), stats.uniform(-0.25, 0.5), 0.3, -0.5, 14)),
    Law("uneven gap", two(stats.truncnorm(-3, -0.4), stats.truncnorm(0.3, 2), 0.3, -3.2, 2.2)),
    Law("plateau on a slab", two(stats.uniform(0, 3), stats.uniform(1, 0.9), 0.35, -0.001, 3.001)),
    Law("narrow peak on a slab", two(stats.uniform(0, 4), N(1.3, 0.05), 0.15, -0.001, 4.001)),
    Law("comb .6", comb(0.6, 0.12)),
)
LAWS = {"plain": PLAIN, "structured": STRUCTURED, "counts": COUNTS, "trends": TRENDS}

FRESH = {"fresh plain": FRESH_PLAIN, "fresh structured": FRESH_STRUCTURED, "second": SECOND}


def constant(mean: float) -> tuple[FloatArray, FloatArray]:
    return np.array([mean]), np.ones(1)


def exponential(mean: float) -> tuple[FloatArray, FloatArray]:
    """Forty slices of equal share, each at its mean."""
    edges = -np.log1p(-np.linspace(0, 1, 41)[:-1])
    upper = np.append(edges[1:], np.inf)
    tail = np.where(np.isinf(upper), 0.0, np.where(np.isinf(upper), 0.0, upper) + 1) * np.exp(-upper)
    return mean * 40 * ((edges + 1) * np.exp(-edges) - np.nan_to_num(tail)), np.full(40, 1 / 40)


def rare_large(mean: float) -> tuple[FloatArray, FloatArray]:
    """Small on most days, seven times the mean on one of ten."""
    return np.array([mean / 3, 7 * mean]), np.array([0.9, 0.1])


INFLUENCES = {"constant": constant, "exponential": exponential, "rare large": rare_large}
PRESENCE = (1.0, 0.3, 0.025)
SIZES = (41, 100, 365)
EPSILONS = (0.1, 1.0)
