"""Laws of whole tables with and without one person, whose true delta is known: what `tables.py` draws from.

A law draws the table of the others, n databases of d cells, and knows its density up to a factor: `log_ratio` gives
``log p(y - D) - log p(y)``. A person adds one of a few vectors D, each with a probability; with what is left of the
probability they are not there. From these two follow, by draws from the true laws,

* *there*, where presence and amounts are known: the mean over D of the hockey stick of ``p(y - D)`` and ``p(y)``;
* *on a random day*: the hockey stick of ``(1 - share) p(y) + Σ weight_D p(y - D)`` and ``p(y)``.

Whatever linear map of the table is published instead (margins, a total in place of a cell), the truth is the same as
long as the map loses nothing. `CHOSEN` are the kinds of law that the method was made on; `UNTOUCHED` chose nothing.
Whoever changes the method must not look at the latter first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.special import gammaln, ndtr

import empriv

FloatArray = npt.NDArray[np.float64]
DRAWS = 40_000  # of a truth: its standard error is below 0.0025
_PIECE = 4_000  # draws looked at together


class TableLaw(Protocol):
    """A law of the others' table.

    ``unit`` (d,) is what a person's amounts are measured in: the standard deviation that is left of a cell when the
    others are known, or one visit for a count.
    """

    unit: FloatArray

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        """(n, d) tables."""
        ...

    def log_ratio(self, y: FloatArray, influence: FloatArray) -> FloatArray:
        """(n,) ``log p(y - influence) - log p(y)``; minus infinity where the first has no mass."""
        ...


def over(after: FloatArray, before: FloatArray) -> FloatArray:
    """``after - before`` of log densities. 0 over 0 counts as 0: another influence makes up for it."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isneginf(after), -np.inf, np.subtract(after, before))


# What is left of a cell when the factors are known -------------------------------------------------------------------


@dataclass(frozen=True)
class Noise:
    """A law on the line of mean 0 and standard deviation 1."""

    draw: Callable[[np.random.Generator, tuple[int, ...]], FloatArray]
    log_pdf: Callable[[FloatArray], FloatArray]


def _peaks_log_pdf(x: FloatArray) -> FloatArray:
    sd = math.sqrt(0.19)
    return np.logaddexp(stats.norm.logpdf(x, -0.9, sd), stats.norm.logpdf(x, 0.9, sd)) - math.log(2)


_EULER = float(np.euler_gamma)
NOISES: dict[str, Noise] = {
    "normal": Noise(lambda rng, size: rng.normal(size=size), stats.norm.logpdf),
    "Student 3": Noise(
        lambda rng, size: rng.standard_t(3, size) / math.sqrt(3), stats.t(3, scale=1 / math.sqrt(3)).logpdf
    ),
    "gamma 2": Noise(
        lambda rng, size: (rng.gamma(2.0, size=size) - 2) / math.sqrt(2),
        stats.gamma(2, loc=-math.sqrt(2), scale=1 / math.sqrt(2)).logpdf,
    ),
    "Laplace": Noise(
        lambda rng, size: rng.laplace(size=size) / math.sqrt(2), stats.laplace(scale=1 / math.sqrt(2)).logpdf
    ),
    "exponential": Noise(lambda rng, size: rng.exponential(size=size) - 1, stats.expon(loc=-1).logpdf),
    "logistic": Noise(
        lambda rng, size: rng.logistic(size=size) * math.sqrt(3) / math.pi,
        stats.logistic(scale=math.sqrt(3) / math.pi).logpdf,
    ),
    "Gumbel": Noise(
        lambda rng, size: (rng.gumbel(size=size) - _EULER) * math.sqrt(6) / math.pi,
        stats.gumbel_r(loc=-_EULER * math.sqrt(6) / math.pi, scale=math.sqrt(6) / math.pi).logpdf,
    ),
    "two peaks": Noise(
        lambda rng, size: np.where(rng.random(size) < 0.5, -0.9, 0.9) + math.sqrt(0.19) * rng.normal(size=size),
        _peaks_log_pdf,
    ),
}


class Factors:
    """Two factors that are published as cells of their own, and cells that load on them, with noise of one law.

    The factors are known from the table, so that what is left of the others is their noise, exactly.
    """

    def __init__(self, noise: str, d: int, seed: int = 5) -> None:
        self.noise, self.d = NOISES[noise], d
        self.loads = np.random.default_rng(seed).normal(size=(2, d - 2))
        self.unit = np.ones(d)

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        factors = rng.normal(size=(n, 2))
        return np.concatenate((factors, factors @ self.loads + self.noise.draw(rng, (n, self.d - 2))), axis=1)

    def log_ratio(self, y: FloatArray, influence: FloatArray) -> FloatArray:
        touched = 2 + np.flatnonzero(influence[2:])
        left = y[:, touched] - y[:, :2] @ self.loads[:, touched - 2]
        return over(self.noise.log_pdf(left - influence[touched]).sum(axis=1), self.noise.log_pdf(left).sum(axis=1))


class Normal:
    """Cells that load on two hidden factors, all normal."""

    def __init__(self, d: int, seed: int = 6) -> None:
        self.loads = np.random.default_rng(seed).normal(size=(2, d))
        self.covariance = self.loads.T @ self.loads + np.eye(d)
        self.precision = np.linalg.inv(self.covariance)
        self.unit = 1 / np.sqrt(np.diag(self.precision))

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        return rng.normal(size=(n, 2)) @ self.loads + rng.normal(size=(n, self.loads.shape[1]))

    def log_ratio(self, y: FloatArray, influence: FloatArray) -> FloatArray:
        loaded = self.precision @ influence
        return np.asarray(y @ loaded - 0.5 * influence @ loaded)


class Mixed:
    """Every cell is a mix of as many independent noises: what is left of one depends on the rest beyond its mean."""

    def __init__(self, noise: str, d: int, seed: int = 8) -> None:
        self.noise = NOISES[noise]
        self.mix = np.eye(d) + 0.5 * np.random.default_rng(seed).normal(size=(d, d)) / math.sqrt(d)
        self.back = np.linalg.inv(self.mix)
        self.unit = 1 / np.sqrt((self.back**2).sum(axis=0))

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        return self.noise.draw(rng, (n, len(self.mix))) @ self.mix.T

    def log_ratio(self, y: FloatArray, influence: FloatArray) -> FloatArray:
        apart = y @ self.back.T
        before = self.noise.log_pdf(apart).sum(axis=1)
        return over(self.noise.log_pdf(apart - self.back @ influence).sum(axis=1), before)


class Elliptical:
    """A normal table times one common scale: a Student law of so many degrees of freedom."""

    def __init__(self, freedom: float, d: int) -> None:
        self.freedom, self.normal = freedom, Normal(d)
        self.unit = self.normal.unit

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        return self.normal.draw(rng, n) / np.sqrt(rng.chisquare(self.freedom, n) / self.freedom)[:, None]

    def log_ratio(self, y: FloatArray, influence: FloatArray) -> FloatArray:
        def log_density(x: FloatArray) -> FloatArray:
            distance = np.einsum("nd,nd->n", x @ self.normal.precision, x)
            return np.asarray(-0.5 * (self.freedom + x.shape[1]) * np.log1p(distance / self.freedom))

        return over(log_density(y - influence), log_density(y))


class Lognormal:
    """Exponentials of a normal table: amounts that are skewed, and move together by factors of their size."""

    def __init__(self, sigma: float, d: int) -> None:
        self.sigma, self.normal = sigma, Normal(d)
        self.unit = np.full(d, 0.5 * sigma)  # at the median, about a standard deviation of what is left

    def _scale(self) -> FloatArray:
        return self.sigma / np.sqrt(np.diag(self.normal.covariance))

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        return np.exp(self.normal.draw(rng, n) * self._scale())

    def log_ratio(self, y: FloatArray, influence: FloatArray) -> FloatArray:
        def log_density(x: FloatArray) -> FloatArray:
            positive = np.maximum(x, 1e-300)
            z = np.log(positive) / self._scale()
            value = -0.5 * np.einsum("nd,nd->n", z @ self.normal.precision, z) - np.log(positive).sum(axis=1)
            return np.where((x > 0).all(axis=1), value, -np.inf)

        return over(log_density(y - influence), log_density(y))


class Counts:
    """Poisson counts whose means all rise and fall with one hidden busy-day factor, lognormal with this spread.

    Given the factor b, the table's probability depends on b by its total T alone, ``b^T e^(-Mb)``: one table of
    ``J(T) = E b^T e^(-Mb)`` gives every ratio.
    """

    def __init__(self, means: FloatArray, spread: float) -> None:
        self.means, self.spread = means, spread
        self.unit = np.maximum(1.0, np.rint(0.28 * np.sqrt(means)))  # a visit, or a party where many come
        z = np.linspace(-8, 8, 3201)
        log_b = spread * z - 0.5 * spread**2
        weight = stats.norm.logpdf(z) - means.sum() * np.exp(log_b)
        top = int(means.sum() * math.exp(7 * spread)) + 60
        totals = np.arange(top)
        self._log_j = np.empty(top)
        for start in range(0, top, 2000):
            piece = totals[start : start + 2000]
            self._log_j[piece] = np.logaddexp.reduce(piece[:, None] * log_b + weight, axis=1)

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        busy = np.exp(self.spread * rng.normal(size=(n, 1)) - 0.5 * self.spread**2)
        return rng.poisson(self.means * busy).astype(float)

    def log_ratio(self, y: FloatArray, influence: FloatArray) -> FloatArray:
        before = y - influence
        possible = (before >= 0).all(axis=1)
        before = np.maximum(before, 0)
        total = y.sum(axis=1).astype(int)
        moved = np.maximum(total - int(influence.sum()), 0)
        cells = (gammaln(y + 1) - gammaln(before + 1)).sum(axis=1) - float(influence @ np.log(self.means))
        return np.where(possible, cells + self._log_j[moved] - self._log_j[total], -np.inf)


class NegativeBinomial:
    """Counts that spread more than Poisson's, independent given nothing: each cell has a busy factor of its own."""

    def __init__(self, mean: float, size: float, d: int) -> None:
        self.law, self.d, self.unit = stats.nbinom(size, size / (size + mean)), d, np.ones(d)

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        return np.asarray(self.law.rvs(size=(n, self.d), random_state=rng), float)

    def log_ratio(self, y: FloatArray, influence: FloatArray) -> FloatArray:
        touched = np.flatnonzero(influence)
        after = self.law.logpmf(y[:, touched] - influence[touched]).sum(axis=1)
        return over(after, self.law.logpmf(y[:, touched]).sum(axis=1))


class LognormalSums:
    """A busy-day factor, lognormal with this spread, in the first cell; in each other a lognormal sum times it."""

    def __init__(self, sigma: float, people: int, d: int, spread: float) -> None:
        self.sigma, self.people, self.d, self.spread = sigma, people, d, spread
        size, step = 1 << 20, 0.02 if sigma > 1 else 0.004
        masses = np.diff(stats.lognorm(sigma).cdf(np.concatenate(([0.0], (np.arange(size) + 0.5) * step))))
        summed = np.maximum(np.fft.irfft(np.fft.rfft(masses) ** people, size), 0.0)
        low, high = math.log(people) - 3.5 * sigma, math.log(0.8 * size * step)
        self._x = np.exp(np.linspace(low, high, 6001))
        density = np.interp(self._x, np.arange(size) * step, summed / step)
        self._log_p = np.log(np.maximum(density, 1e-14))
        quarter, rest = self._x[np.searchsorted(np.cumsum(density * np.gradient(self._x)), [0.25, 0.75])]
        self.unit = np.full(d, (rest - quarter) / 1.349)

    def draw(self, rng: np.random.Generator, n: int) -> FloatArray:
        sums = np.zeros((n, self.d - 1))
        for _ in range(self.people):
            sums += rng.lognormal(0.0, self.sigma, sums.shape)
        busy = np.exp(self.spread * rng.normal(size=(n, 1)))
        return np.concatenate((busy, sums * busy), axis=1)

    def _log_pdf(self, x: FloatArray) -> FloatArray:
        return np.where(x > 0, np.interp(x, self._x, self._log_p, left=-80.0, right=-80.0), -np.inf)

    def log_ratio(self, y: FloatArray, influence: FloatArray) -> FloatArray:
        touched = np.flatnonzero(influence)
        after, before = (y[:, touched] - influence[touched]) / y[:, :1], y[:, touched] / y[:, :1]
        return over(self._log_pdf(after).sum(axis=1), self._log_pdf(before).sum(axis=1))


# People --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Person:
    """Somebody who adds one of ``influences`` (m, d), each with its weight; else they are not there."""

    influences: FloatArray
    weights: FloatArray

    @property
    def share(self) -> float:
        return float(self.weights.sum())

    def draw(self, rng: np.random.Generator, n: int) -> tuple[FloatArray, npt.NDArray[np.bool_]]:
        """(n, d) what they add on each database, and where they are there."""
        never = max(0.0, 1.0 - self.share)
        kind = rng.choice(len(self.weights) + 1, n, p=np.append(self.weights, never) / (self.share + never))
        added = np.concatenate((self.influences, np.zeros((1, self.influences.shape[1]))))
        return added[kind], kind < len(self.weights)


PEOPLE = ("one cell", "two cells", "another cell each time", "rarely there", "random amounts", "one of four cells")


def person_of(kind: str, unit: FloatArray, *, whole: bool = False) -> Person:
    """Somebody of a kind, with amounts in a law's unit: fractions of a spread, or visits where they are ``whole``."""
    d = len(unit)
    first, second, third = d - 1, d - 2, d - 3

    def vector(amounts: dict[int, float]) -> FloatArray:
        out = np.zeros(d)
        for cell, amount in amounts.items():
            out[cell] = (max(1.0, round(amount)) if whole else amount) * unit[cell]
        return out

    match kind:
        case "one cell":
            return Person(vector({first: 0.3})[None], np.ones(1))
        case "two cells":
            return Person(vector({first: 0.3, second: 0.2})[None], np.ones(1))
        case "another cell each time":
            cells = range(max(2, d - 10), d)
            return Person(np.stack([vector({cell: 0.7}) for cell in cells]), np.full(len(cells), 1 / len(cells)))
        case "rarely there":
            return Person(vector({first: 1.2, second: 0.6})[None], np.array([0.1]))
        case "random amounts":
            amounts = np.random.default_rng(3).exponential(1.0, (8, 3))
            rows = [vector(dict(zip((first, second, third), row, strict=True))) for row in amounts.tolist()]
            return Person(np.stack(rows), np.full(8, 0.1 / 8))
        case _:  # one of four cells
            cells = range(max(2, d - 4), d)
            return Person(np.stack([vector({cell: 0.5}) for cell in cells]), np.full(len(cells), 0.6 / len(cells)))


# Truths --------------------------------------------------------------------------------------------------------------


def ratios(law: TableLaw, y: FloatArray, person: Person) -> FloatArray:
    """(n, influences) of ``p(y - D)/p(y)``."""
    pieces = [
        np.stack([law.log_ratio(y[start : start + _PIECE], vector) for vector in person.influences], axis=1)
        for start in range(0, len(y), _PIECE)
    ]
    with np.errstate(over="ignore"):
        return np.exp(np.concatenate(pieces))


def truths(law: TableLaw, person: Person, epsilon: float, draws: int = DRAWS) -> tuple[float, float]:
    """delta when the person is there, and on a random day."""
    rng = np.random.default_rng(1)
    others = law.draw(rng, draws)
    share, e = person.weights / person.share, math.exp(epsilon)
    r = ratios(law, others, person)
    without = np.maximum(1 - e * r, 0).mean(axis=0)
    with_person = np.empty(len(share))
    mixed = []
    for k, vector in enumerate(person.influences):
        moved = others + vector
        own = ratios(law, moved, person)
        with_person[k] = np.maximum(1 - e / own[:, k], 0).mean()
        # on a random day: the law with the person is a mixture; its part at D is drawn here
        mixed.append(np.maximum(1 - e / (1 - person.share + own @ person.weights), 0).mean())
    there = max(float(share @ with_person), float(share @ without))
    r_random = 1 - person.share + r @ person.weights
    absent = (1 - person.share) * np.maximum(1 - e / np.maximum(r_random, 1e-300), 0).mean()
    random_day = max(
        float(person.weights @ np.array(mixed)) + float(absent), float(np.maximum(1 - e * r_random, 0).mean())
    )
    return there, random_day


def normal_delta(distance: float, epsilon: float) -> float:
    """Hockey stick of two normal laws at this Mahalanobis distance, sqrt(D' S^-1 D)."""
    if distance == 0:
        return 0.0
    low, high = -distance / 2 - epsilon / distance, distance / 2 - epsilon / distance
    return float(ndtr(high) - math.exp(epsilon) * ndtr(low))


# What is published ---------------------------------------------------------------------------------------------------


def plain(d: int) -> FloatArray:
    return np.eye(d)


def with_margins(d: int) -> FloatArray:
    """Cells in two rows, with the total of each row and that of all."""
    row = (np.arange(d) < d // 2).astype(float)
    return np.concatenate((np.eye(d), np.stack((row, 1 - row, np.ones(d)), axis=1)), axis=1)


def one_suppressed(d: int) -> FloatArray:
    """The last cell is left out, and the total is published."""
    return np.concatenate((np.eye(d)[:, :-1], np.ones((d, 1))), axis=1)


PUBLISHED: dict[str, Callable[[int], FloatArray]] = {
    "cells": plain, "with margins": with_margins, "one cell hidden, total published": one_suppressed
}  # fmt: skip


def results_of(others: FloatArray, added: FloatArray, there: npt.NDArray[np.bool_]) -> empriv.Results:
    """Results of one person from (n, cells) of the others, what the person adds, and where they are there."""
    n, d = others.shape
    days = np.flatnonzero(there)
    return empriv.Results(
        q=others + added,
        outcomes=np.zeros((n, d), np.int8),
        databases=np.arange(n),
        individuals=np.array(["a"]),
        starts=np.array([0, len(days)]),
        entry_database=days.astype(np.int32),
        entry_q=np.ascontiguousarray(others[days]),
        entry_outcomes=np.zeros((len(days), d), np.int8),
        components=tuple(f"c{k}" for k in range(d)),
        ordered=False,
    )


@dataclass(frozen=True)
class Family:
    """A law, a kind of person, and what is published of the table."""

    law_name: str
    d: int
    who: str
    published: str = "cells"

    @property
    def law(self) -> TableLaw:
        return made(self.law_name, self.d)

    @property
    def person(self) -> Person:
        return person_of(self.who, self.law.unit, whole=self.law_name in WHOLE)

    def truths(self, epsilon: float) -> tuple[float, float]:
        return _truths(self.law_name, self.d, self.who, epsilon)

    def draw(self, rng: np.random.Generator, n: int) -> empriv.Results:
        others = self.law.draw(rng, n)
        added, there = self.person.draw(rng, n)
        publish = PUBLISHED[self.published](self.d)
        return results_of(others @ publish, added @ publish, there)


def _means(d: int, low: float, high: float) -> FloatArray:
    return np.geomspace(high, low, d)  # the person is in the last cells: the smallest


CHOSEN: dict[str, Callable[[int], TableLaw]] = {
    "normal": Normal,
    "normal factors": lambda d: Factors("normal", d),
    "Student 3 factors": lambda d: Factors("Student 3", d),
    "gamma 2 factors": lambda d: Factors("gamma 2", d),
    "Laplace factors": lambda d: Factors("Laplace", d),
    "counts, means 2": lambda d: Counts(np.full(d, 2.0), 0.3),
    "counts, means 20": lambda d: Counts(np.full(d, 20.0), 0.3),
    "counts, means 200": lambda d: Counts(np.full(d, 200.0), 0.3),
    "lognormal sums, sigma 1": lambda d: LognormalSums(1.0, 20, d, 0.3),
    "lognormal sums, sigma 2": lambda d: LognormalSums(2.0, 20, d, 0.3),
    "exponential factors (hard edge)": lambda d: Factors("exponential", d),
    "mixed gamma 2 (must object)": lambda d: Mixed("gamma 2", d),
    "mixed Student 3 (must object)": lambda d: Mixed("Student 3", d),
}
UNTOUCHED: dict[str, Callable[[int], TableLaw]] = {
    "Gumbel factors": lambda d: Factors("Gumbel", d),
    "logistic factors": lambda d: Factors("logistic", d),
    "two peaks factors": lambda d: Factors("two peaks", d),
    "Student 6 with a common scale": lambda d: Elliptical(6.0, d),
    "lognormal, sigma 0.5": lambda d: Lognormal(0.5, d),
    "negative binomial, mean 5": lambda d: NegativeBinomial(5.0, 3.0, d),
    "counts, means 40 to 1, busier": lambda d: Counts(_means(d, 1.0, 40.0), 0.6),
}
LAWS = CHOSEN | UNTOUCHED
WHOLE = {name for name in LAWS if name.startswith(("counts", "negative binomial"))}


@cache
def made(name: str, d: int) -> TableLaw:
    return LAWS[name](d)


@cache
def _truths(name: str, d: int, who: str, epsilon: float) -> tuple[float, float]:
    law = made(name, d)
    return truths(law, person_of(who, law.unit, whole=name in WHOLE), epsilon)
