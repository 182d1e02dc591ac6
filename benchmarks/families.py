"""Laws of results with and without one person, whose true delta is known: what `coverage.py` draws from.

A family draws pairs (results with everyone, results without the person), and knows both laws: densities on a fine grid,
and masses of values that occur again and again. Its truth is

    max over directions of  1 - ∫ min(a, e^epsilon b) - Σ min(a{x}, e^epsilon b{x}),

where only that part of the line matters on which both laws live. The trapezoid rule on these grids is off by less than
1e-4 (tests/validate/test_families.py). Three lists:

* `PLAIN`: smooth laws, hard edges, an atom, sparse participation.
* `STRUCTURED`: people who change the spread, gaps, last digits, rare presence, poles and spikes. Repairs of the upper
  bound were chosen on these.
* `UNTOUCHED`: other shapes of all these kinds, written down before the repairs and used to choose nothing. Whoever
  changes a bound must not look at them first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

FloatArray = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True, eq=False)
class Laws:
    """The law with everyone and the law without the person.

    Attributes
    ----------
    x : grid, rising
    p, p_i : densities on it
    places, masses, masses_i : values that have a mass, rising, and their masses
    """

    x: FloatArray
    p: FloatArray
    p_i: FloatArray
    places: FloatArray
    masses: FloatArray
    masses_i: FloatArray

    def truth(self, epsilon: float) -> float:
        """The larger of both hockey sticks."""
        e = math.exp(epsilon)
        pairs = ((self.p, self.p_i, self.masses, self.masses_i), (self.p_i, self.p, self.masses_i, self.masses))
        return max(
            1.0 - float(np.trapezoid(np.minimum(a, e * b), self.x)) - float(np.minimum(m, e * k).sum())
            for a, b, m, k in pairs
        )


@dataclass(frozen=True, eq=False)
class Family:
    """A way to draw pairs, and the laws they are drawn from.

    Attributes
    ----------
    name : in the table
    draw : n pairs (with everyone, without the person)
    make_laws : both laws; given presence, those on a database that the person is in
    given_presence : whether the adversary knows that the person is there
    """

    name: str
    draw: Draw
    make_laws: Callable[[], Laws]
    given_presence: bool = False

    @cached_property
    def laws(self) -> Laws:
        return self.make_laws()

    def truth(self, epsilon: float) -> float:
        return self.laws.truth(epsilon)


NONE = np.zeros(0)


def smooth_laws(x: FloatArray, p: FloatArray, p_i: FloatArray) -> Laws:
    return Laws(x, p, p_i, NONE, NONE, NONE)


def counted_laws(places: FloatArray, masses: FloatArray, masses_i: FloatArray) -> Laws:
    return Laws(np.arange(2.0), np.zeros(2), np.zeros(2), places, masses, masses_i)


def normal_pdf(x: FloatArray, mean: float = 0.0, sd: float = 1.0) -> FloatArray:
    return np.asarray(np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * math.sqrt(2 * math.pi)))


def line(low: float, high: float, count: int = 400_001) -> FloatArray:
    return np.linspace(low, high, count)


def far(scale: float, reach: float, count: int = 200_001) -> FloatArray:
    """A grid that is fine in the middle and goes out to ``reach``, for heavy tails."""
    end = math.asinh(reach / scale)
    return np.asarray(scale * np.sinh(np.linspace(-end, end, count)))


def plus(pdf: Callable[[FloatArray], FloatArray], x: FloatArray, change: FloatArray, weights: FloatArray) -> FloatArray:
    """Density on ``x`` of a result plus an independent influence that takes these values with these weights."""
    out = np.zeros(len(x))
    for value, weight in zip(change.tolist(), weights.tolist(), strict=True):
        out += weight * pdf(x - value)
    return out


# Kinds of family ------------------------------------------------------------------------------------------------------


def shift(name: str, law: Any, by: float, x: FloatArray | Callable[[], FloatArray]) -> Family:
    """A person who adds ``by`` on every database; ``law`` is one of scipy's."""

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        others = law.rvs(size=n, random_state=rng)
        return others + by, others

    def laws() -> Laws:
        grid = x() if callable(x) else x
        return smooth_laws(grid, law.pdf(grid - by), law.pdf(grid))

    return Family(name, draw, laws)


def adding(
    name: str,
    law: Any,
    influence: Callable[[np.random.Generator, int], FloatArray],
    with_person: Callable[[FloatArray], FloatArray],
    x: FloatArray,
) -> Family:
    """A person who adds an amount that has nothing to do with the others; ``with_person`` is the density of the sum."""

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        others = law.rvs(size=n, random_state=rng)
        return others + influence(rng, n), others

    return Family(name, draw, lambda: smooth_laws(x, with_person(x), law.pdf(x)))


def moved(
    name: str,
    law: Any,
    change: Callable[[FloatArray], FloatArray],
    pieces: list[tuple[float, float, float]],
    x: FloatArray,
) -> Family:
    """A person whose influence depends on the result: ``pieces`` are (from, to, influence), which ``change`` gives."""

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        others = law.rvs(size=n, random_state=rng)
        return others + change(others), others

    def laws() -> Laws:
        p = np.zeros(len(x))
        for low, high, by in pieces:
            p += np.where((x - by > low) & (x - by <= high), law.pdf(x - by), 0.0)
        return smooth_laws(x, p, law.pdf(x))

    return Family(name, draw, laws)


def sparse(name: str, law: Any, share: float, by: float, x: FloatArray, *, given_presence: bool = False) -> Family:
    """A person in a share of the databases, who adds ``by``."""

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        others = law.rvs(size=n, random_state=rng)
        return others + by * (rng.random(n) < share), others

    def laws() -> Laws:
        there = 1.0 if given_presence else share
        return smooth_laws(x, there * law.pdf(x - by) + (1 - there) * law.pdf(x), law.pdf(x))

    return Family(name, draw, laws, given_presence)


def mixture(name: str, parts: list[tuple[float, float, float]], by: float, x: FloatArray) -> Family:
    """Normal peaks (weight, mean, sd), and a person who adds ``by``."""
    weights, means, sds = (np.array(column) for column in zip(*parts, strict=True))

    def pdf(at: FloatArray) -> FloatArray:
        return sum((w * normal_pdf(at, m, s) for w, m, s in parts), np.zeros(len(at)))

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        peak = rng.choice(len(weights), n, p=weights)
        others = rng.normal(means[peak], sds[peak])
        return others + by, others

    return Family(name, draw, lambda: smooth_laws(x, pdf(x - by), pdf(x)))


def counts(name: str, masses: FloatArray, first: int, added: FloatArray) -> Family:
    """Whole numbers from ``first`` on, with these masses; a person who adds k with probability ``added[k]``."""

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        others = (first + rng.choice(len(masses), n, p=masses / masses.sum())).astype(float)
        return others + rng.choice(len(added), n, p=added), others

    def laws() -> Laws:
        without = masses / masses.sum()
        room = np.zeros(len(added) - 1)
        places = np.arange(first, first + len(without) + len(room), dtype=float)
        return counted_laws(places, np.convolve(without, added), np.concatenate((without, room)))

    return Family(name, draw, laws)


def every(step: int, share: float, low: int, high: int, mean: float, sd: float) -> FloatArray:
    """Masses of low..high: about normal, a share of them rounded to multiples of ``step``."""
    k = np.arange(low, high + 1)
    plain = normal_pdf(k.astype(float), mean, sd)
    multiples = np.where(k % step == 0, plain, 0.0)
    return np.asarray(share * multiples / multiples.sum() + (1 - share) * plain / plain.sum())


def priced(name: str, share: float, ending: float, mean: float, sd: float, most: int) -> Family:
    """Amounts of which a share ends in the same cents; a person who adds an even amount from 0 to ``most``."""

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        amounts = rng.normal(mean, sd, n)
        others = np.where(rng.random(n) < share, np.rint(amounts) + ending, amounts)
        return others + rng.uniform(0, most, n), others

    def laws() -> Laws:
        x = line(mean - 9 * sd, mean + 9 * sd + most, 200_001)
        whole = np.arange(math.floor(mean - 9 * sd), math.ceil(mean + 9 * sd) + 1)
        masses_i = share * np.diff(stats.norm.cdf(np.append(whole - 0.5, whole[-1] + 0.5), mean, sd))
        places = np.asarray(whole + ending, float)
        below = np.concatenate(([0.0], np.cumsum(masses_i)))
        p = (1 - share) * (stats.norm.cdf(x, mean, sd) - stats.norm.cdf(x - most, mean, sd))
        p += below[np.searchsorted(places, x)] - below[np.searchsorted(places, x - most)]
        return Laws(x, p / most, (1 - share) * normal_pdf(x, mean, sd), places, np.zeros(len(places)), masses_i)

    return Family(name, draw, laws)


def rounded(name: str, sd: float, step: float, by: float) -> Family:
    """Results rounded to ``step``, and a person who adds ``by`` before that."""

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        others = rng.normal(0, sd, n)
        return step * np.rint((others + by) / step), step * np.rint(others / step)

    def laws() -> Laws:
        numbers = np.arange(math.floor(-9 * sd / step), math.ceil((9 * sd + by) / step) + 1, dtype=float)
        places = step * numbers
        ends = np.append(places - step / 2, places[-1] + step / 2)
        return counted_laws(places, np.diff(stats.norm.cdf(ends, by, sd)), np.diff(stats.norm.cdf(ends, 0, sd)))

    return Family(name, draw, laws)


# Families that are one of a kind --------------------------------------------------------------------------------------


def censored() -> Family:
    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        others = rng.normal(1.0, 1.0, n)
        return np.maximum(others + 0.3, 0.0), np.maximum(others, 0.0)

    def laws() -> Laws:
        x = line(0, 12)
        masses = np.array([stats.norm.cdf(-1.3)]), np.array([stats.norm.cdf(-1.0)])
        return Laws(x, normal_pdf(x, 1.3), normal_pdf(x, 1.0), np.zeros(1), *masses)

    return Family("normal cut off at 0, shift 0.3 (atom)", draw, laws)


def comb() -> Family:
    """Whole numbers ± 0.05."""
    masses, numbers = every(1, 0.0, -60, 60, 0.0, 8.0), np.arange(-60.0, 61.0)

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        others = rng.choice(numbers, n, p=masses / masses.sum()) + rng.normal(0, 0.05, n)
        return others + 0.3, others

    def laws() -> Laws:
        x = line(-61, 62, 246_001)
        tooth = x - np.rint(x)

        def pdf(offset: FloatArray) -> FloatArray:
            return normal_pdf(offset, 0, 0.05) * np.interp(np.rint(x), numbers, masses)

        # between -0.5 and 0.5 of a whole number only its own tooth counts: the others are 10 sd away
        return smooth_laws(x, pdf(tooth - 0.3), pdf(tooth))

    return Family("whole numbers ± 0.05, shift 0.3", draw, laws)


def pole() -> Family:
    """An interior pole, exp(-|x|)/sqrt|x|, where no bandwidth is narrow enough."""
    by = 0.05

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        others = rng.choice([-1.0, 1.0], n) * rng.gamma(0.5, 1.0, n)
        return others + by, others

    def laws() -> Laws:
        # Near either pole the grid is that of squares, on which exp(-|x|)/sqrt|x| dx is smooth; the poles are left out.
        v = np.linspace(1e-6, math.sqrt(40.0), 400_000) ** 2
        x = np.unique(np.concatenate((v, -v, by + v, by - v)))
        x = x[(x != 0) & (x != by)]

        def pdf(at: FloatArray) -> FloatArray:
            return np.asarray(np.exp(-np.abs(at)) / np.sqrt(np.abs(at)) / (2 * math.sqrt(math.pi)))

        return smooth_laws(x, pdf(x - by), pdf(x))

    return Family("interior pole, exp(-|x|)/√|x|, shift 0.05", draw, laws)


def narrower() -> Family:
    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        others = rng.normal(size=n)
        return 0.5 * others, others

    x = line(-10, 10)
    return Family(
        "normal, half as wide with the person", draw, lambda: smooth_laws(x, normal_pdf(x, 0, 0.5), normal_pdf(x))
    )


def quarter_hours() -> Family:
    """Minutes, most of them full quarter-hours; the person adds 1 to 14."""
    return counts(
        "quarter-hours in 85%, plus 1 to 14 minutes",
        every(15, 0.85, 0, 1200, 600.0, 90.0),
        0,
        np.concatenate(([0.0], np.full(14, 1 / 14))),
    )


def _gauss_hermite(sd: float) -> tuple[FloatArray, FloatArray]:
    """Nodes and weights of a normal influence."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(120)
    return sd * nodes, weights / weights.sum()


def _lognormal(log_sd: float) -> tuple[FloatArray, FloatArray]:
    z = np.linspace(-7, 7, 1401)
    weights = normal_pdf(z)
    return np.exp(log_sd * z), weights / weights.sum()


def _exponential() -> tuple[FloatArray, FloatArray]:
    """Gauss-Legendre on pieces that grow, 240 nodes."""
    nodes, weights = np.polynomial.legendre.leggauss(40)
    ends = np.array([0.0, 0.5, 1.5, 3.5, 8.0, 16.0, 40.0])
    y = np.concatenate([low + (high - low) * (nodes + 1) / 2 for low, high in pairwise(ends)])
    w = np.concatenate([(high - low) / 2 * weights for low, high in pairwise(ends)])
    return y, w * np.exp(-y)


def _half_cauchy(scale: float) -> tuple[FloatArray, FloatArray]:
    """By quantiles; what is beyond the others' reach need not be exact."""
    u = (np.arange(4000) + 0.5) / 4000
    return scale * np.tan(0.5 * math.pi * u), np.full(4000, 1 / 4000)


def _student_pdf(x: FloatArray) -> FloatArray:
    return np.asarray(2 / (math.pi * math.sqrt(3) * (1 + x * x / 3) ** 2))


def _logistic_pdf(x: FloatArray) -> FloatArray:
    tail = np.exp(-np.abs(x))
    return np.asarray(tail / (1 + tail) ** 2)


def _gamma_pdf(x: FloatArray) -> FloatArray:
    return np.asarray(np.maximum(x, 0.0) * np.exp(-np.maximum(x, 0.0)))


def _between(law: Any, low: float, high: float, x: FloatArray) -> FloatArray:
    """Density of a result plus an even amount from low to high."""
    return np.asarray((law.cdf(x - low) - law.cdf(x - high)) / (high - low))


# The lists ------------------------------------------------------------------------------------------------------------


def plain() -> list[Family]:
    return [
        shift("normal, shift 0.5 sd", stats.norm(), 0.5, line(-10, 10)),
        shift("normal, shift 0.2 sd", stats.norm(), 0.2, line(-10, 10)),
        shift("Laplace, shift 0.3", stats.laplace(), 0.3, line(-30, 30)),
        shift("lognormal, shift 0.1", stats.lognorm(1.0), 0.1, line(-1, 300, 1_000_001)),
        shift("logistic, shift 0.6", stats.logistic(), 0.6, line(-40, 40)),
        shift("Student 2, shift 0.4 (heavy tails)", stats.t(2), 0.4, far(1.0, 1e4)),
        shift("beta(3, 2), shift 0.05", stats.beta(3, 2), 0.05, line(-0.1, 1.2)),
        shift("uniform, shift 0.05 (hard edges)", stats.uniform(), 0.05, line(-0.1, 1.2)),
        shift("exponential, shift 0.05 (one hard edge)", stats.expon(), 0.05, line(-0.1, 30, 1_000_001)),
        mixture("bimodal, shift 0.4 sd of a peak", [(0.5, -5, 1), (0.5, 5, 1)], 0.4, line(-15, 15)),
        sparse("present in 10%, shift 3 sd", stats.norm(), 0.1, 3.0, line(-12, 15)),
        sparse("present in 1%, shift 5 sd", stats.norm(), 0.01, 5.0, line(-12, 15)),
        adding(
            "normal plus exponential 0.3",
            stats.norm(),
            lambda rng, n: rng.exponential(0.3, n),
            lambda x: stats.exponnorm.pdf(x, 0.3),
            line(-10, 14),
        ),
        counts("Poisson(50), shift 1 (lattice)", stats.poisson.pmf(np.arange(200), 50), 0, np.array([0.0, 1.0])),
        censored(),
    ]


def structured() -> list[Family]:
    x = line(-12, 12)
    gamma = stats.gamma(2)
    far_x = far(1.0, 3000.0, 20_001)
    return [
        *(
            adding(
                f"normal + N(0, {sd})",
                stats.norm(),
                partial(lambda sd, rng, n: rng.normal(0, sd, n), sd),
                partial(lambda sd, at: normal_pdf(at, 0, math.hypot(1, sd)), sd),
                line(-12, 12),
            )
            for sd in (3, 20)
        ),
        adding(
            "gamma 2 + N(0, 5)",
            gamma,
            lambda rng, n: rng.normal(0, 5, n),
            lambda at: plus(_gamma_pdf, at, *_normal_by_quadrature(5.0)),
            line(-1, 40, 20_001),
        ),
        moved(
            "gap: +0.6 only above 1",
            stats.norm(),
            lambda q: np.where(q > 1, 0.6, 0.0),
            [(-math.inf, 1, 0.0), (1, math.inf, 0.6)],
            x,
        ),
        moved(
            "gap: ±0.5 beyond ±1",
            stats.norm(),
            lambda q: 0.5 * np.sign(q) * (np.abs(q) > 1),
            [(-math.inf, -1, -0.5), (-1, 1, 0.0), (1, math.inf, 0.5)],
            x,
        ),
        priced("whole euros on 80%", 0.8, 0.0, 1000.0, 30.0, 5),
        priced("whole euros on 50%", 0.5, 0.0, 1000.0, 30.0, 5),
        counts("even in 90%, plus 1", _parity(0.9), 0, np.array([0.0, 1.0])),
        counts("even in 75%, plus 1", _parity(0.75), 0, np.array([0.0, 1.0])),
        comb(),
        sparse("present in 9%, shift 5 sd", stats.norm(), 0.09, 5.0, line(-12, 18)),
        sparse("present in 2%, shift 5 sd", stats.norm(), 0.02, 5.0, line(-12, 18)),
        pole(),
        sparse(
            "given presence: gamma 2, in 30%, shift 5 sd",
            gamma,
            0.3,
            5 * math.sqrt(2),
            line(-1, 60),
            given_presence=True,
        ),
        mixture("30% in a spike of sd 0.02, shift 0.03", [(0.7, 0, 1), (0.3, 0, 0.02)], 0.03, line(-10, 10, 1_000_001)),
        counts(
            "fives on 50%, plus 1 to 4", every(5, 0.5, 0, 800, 400.0, 40.0), 0, np.array([0, 0.25, 0.25, 0.25, 0.25])
        ),
        adding(
            "normal + lognormal 1.5",
            stats.norm(),
            lambda rng, n: rng.lognormal(0.0, 1.5, n),
            lambda at: plus(normal_pdf, at, *_lognormal(1.5)),
            line(-10, 10, 20_001),
        ),
        adding(
            "Student 3 + exponential",
            stats.t(3),
            lambda rng, n: rng.exponential(1.0, n),
            lambda at: plus(_student_pdf, at, *_exponential()),
            far_x,
        ),
    ]


def _normal_by_quadrature(sd: float) -> tuple[FloatArray, FloatArray]:
    """A trapezoid rule, fine enough for a density with a corner."""
    z = np.linspace(-8, 8, 3201)
    weights = normal_pdf(z)
    return sd * z, weights / weights.sum()


def _parity(even: float) -> FloatArray:
    """Counts around 50, even with this probability."""
    k = np.arange(120)
    plain_masses = normal_pdf(k.astype(float), 50.0, 10.0)
    return np.asarray(plain_masses * np.where(k % 2 == 0, even, 1 - even))


def untouched() -> list[Family]:
    weibull, triangular, logistic = stats.weibull_min(1.5), stats.triang(0.5, -1, 2), stats.logistic()
    k = np.arange(400)
    return [
        adding(
            "logistic + N(0, 4)",
            logistic,
            lambda rng, n: rng.normal(0, 4, n),
            lambda at: plus(_logistic_pdf, at, *_gauss_hermite(4.0)),
            line(-45, 45, 20_001),
        ),
        narrower(),
        adding(
            "Weibull 1.5 plus uniform 0 to 0.4",
            weibull,
            lambda rng, n: rng.uniform(0, 0.4, n),
            lambda at: _between(weibull, 0.0, 0.4, at),
            line(-0.1, 15),
        ),
        moved(
            "triangular, +0.3 only above 0.3 (gap)",
            triangular,
            lambda q: np.where(q > 0.3, 0.3, 0.0),
            [(-math.inf, 0.3, 0.0), (0.3, math.inf, 0.3)],
            line(-1.1, 1.6),
        ),
        moved(
            "logistic, -0.8 only below -0.5 (gap)",
            logistic,
            lambda q: np.where(q < -0.5, -0.8, 0.0),
            [(-math.inf, -0.5, -0.8), (-0.5, math.inf, 0.0)],
            line(-40, 40),
        ),
        counts("multiples of 3 on 70%, plus 1", every(3, 0.7, 0, 400, 200.0, 25.0), 0, np.array([0.0, 1.0])),
        counts(
            "multiples of 13 on 80%, plus 1 to 6",
            every(13, 0.8, 0, 2600, 1300.0, 130.0),
            0,
            np.array([0, *[1 / 6] * 6]),
        ),
        quarter_hours(),
        priced("prices ending in .99 on 60%", 0.6, 0.99, 400.0, 25.0, 3),
        rounded("rounded to tens, sd 40, plus 3", 40.0, 10.0, 3.0),
        sparse("present in 5%, gamma 3, shift 4 sd", stats.gamma(3), 0.05, 4 * math.sqrt(3), line(-1, 60)),
        sparse("present in 30%, lognormal, shift 1", stats.lognorm(1.0), 0.3, 1.0, line(-1, 300, 1_000_001)),
        sparse("given presence: logistic, in 25%, shift 1.5", logistic, 0.25, 1.5, line(-40, 42), given_presence=True),
        shift("beta(0.6, 2), shift 0.02 (pole at an edge)", stats.beta(0.6, 2), 0.02, _beside_a_pole),
        mixture(
            "20% in a spike at a side, shift 0.05", [(0.8, 0, 1), (0.2, 2.5, 0.03)], 0.05, line(-10, 12, 1_000_001)
        ),
        mixture("three peaks, shift 0.3", [(0.3, -4, 0.5), (0.4, 0, 1), (0.3, 5, 0.7)], 0.3, line(-14, 15)),
        counts(
            "negative binomial(20, 0.2), shift 2 (lattice)", stats.nbinom.pmf(k, 20, 0.2), 0, np.array([0.0, 0.0, 1.0])
        ),
        adding(
            "normal plus half-Cauchy 0.2",
            stats.norm(),
            lambda rng, n: 0.2 * np.abs(rng.standard_cauchy(n)),
            lambda at: plus(normal_pdf, at, *_half_cauchy(0.2)),
            line(-10, 10, 10_001),
        ),
        shift("Rayleigh, shift 0.15", stats.rayleigh(), 0.15, line(-0.1, 10)),
        adding(
            "exponential plus exponential 0.1",
            stats.expon(),
            lambda rng, n: rng.exponential(0.1, n),
            lambda at: np.where(at > 0, (np.exp(-np.maximum(at, 0)) - np.exp(-10 * np.maximum(at, 0))) / 0.9, 0.0),
            line(0, 40, 1_000_001),
        ),
    ]


def _beside_a_pole() -> FloatArray:
    """Cubes beside 0 and beside 0.02, where beta(0.6, 2) and its copy have their poles, which are left out."""
    v = np.linspace(1e-4, 1.0, 200_001) ** 3
    return np.unique(np.concatenate((v, [0.02 - 1e-12], 0.02 + v)))  # just before the copy's pole it has nothing


LISTS: dict[str, Callable[[], list[Family]]] = {"plain": plain, "structured": structured, "untouched": untouched}
