"""Coverage of the upper bound given what is known, on laws whose truth is known.

    python benchmarks/given.py [--quick] [--runs 40] [--only calendar] [--iid] [--definition4] [--speed]

A run makes n daily results with a trend and a weekday pattern of three times the daily noise, and one person; what
everybody knows is taken out, and the upper bound at 95% and epsilon 0.1 is compared with the truth, which is found by
integration of the known laws. Printed for each row: estimate over truth (median), share of runs that the bound covers,
upper bound over truth (median), and the estimate over truth of somebody who ignores what is known.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, timedelta

import numpy as np
import numpy.typing as npt

import empriv
from empriv.measuring import AnyRisk
from empriv.validate.covers import covered

FloatArray = npt.NDArray[np.float64]
EPSILON, SHIFT = 0.1, 0.3
GRID = np.linspace(-40.0, 40.0, 160_001)
SIZES = (60, 100, 365)


@dataclass(frozen=True)
class Law:
    """A law of mean 0 and standard deviation 1: how to draw from it, and its density on the grid."""

    draw: Callable[[np.random.Generator, int], FloatArray]
    pdf: FloatArray


def _normal_pdf(x: FloatArray, mean: float = 0.0, sd: float = 1.0) -> FloatArray:
    return np.exp(-0.5 * ((x - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))


def _student(rng: np.random.Generator, n: int) -> FloatArray:
    return rng.standard_t(3, n) / np.sqrt(3)


def _peaks(rng: np.random.Generator, n: int) -> FloatArray:
    return np.where(rng.random(n) < 0.5, -0.9, 0.9) + np.sqrt(0.19) * rng.normal(size=n)


def laws() -> dict[str, Law]:
    z = GRID * np.sqrt(3)
    student = np.sqrt(3) * 2 / (np.pi * np.sqrt(3) * (1 + z * z / 3) ** 2)
    y = np.maximum(GRID * np.sqrt(2) + 2, 0.0)
    gamma = np.sqrt(2) * y * np.exp(-y)
    peaks = 0.5 * (_normal_pdf(GRID, -0.9, np.sqrt(0.19)) + _normal_pdf(GRID, 0.9, np.sqrt(0.19)))
    return {
        "normal": Law(lambda rng, n: rng.normal(size=n), _normal_pdf(GRID)),
        "Student 3": Law(_student, student),
        "skewed": Law(lambda rng, n: (rng.gamma(2.0, size=n) - 2) / np.sqrt(2), gamma),
        "bimodal": Law(_peaks, peaks),
        # whole numbers of which the standard deviation is 20: the law itself is nearly normal
        "lattice": Law(lambda rng, n: rng.normal(size=n), _normal_pdf(GRID)),
    }


def moved(pdf: FloatArray, by: float) -> FloatArray:
    """Density of what is ``by`` less."""
    return np.interp(GRID + by, GRID, pdf, left=0.0, right=0.0)


def stick(p: FloatArray, q: FloatArray, epsilon: float = EPSILON) -> float:
    """The larger hockey stick of two densities."""
    step, e = GRID[1] - GRID[0], np.exp(epsilon)
    return float(max(np.maximum(p - e * q, 0).sum(), np.maximum(q - e * p, 0).sum()) * step)


def spread_over(pdf: FloatArray, influences: FloatArray, weights: FloatArray) -> FloatArray:
    return np.asarray(sum(w * moved(pdf, d) for d, w in zip(influences, weights, strict=True)))


EXPONENTIAL = -np.log1p(-(np.arange(64) + 0.5) / 64) * SHIFT  # quantiles of an exponential influence


def truth_of(pdf: FloatArray, influence: str, least: float) -> float:
    """delta to somebody who knows what is known, where the spread is least."""
    match influence:
        case "constant":
            return stick(pdf, moved(pdf, SHIFT / least))
        case "random":
            return stick(pdf, spread_over(pdf, EXPONENTIAL / least, np.full(64, 1 / 64)))
        case "rare":
            return stick(pdf, spread_over(pdf, np.array([0.0, 1.0 / least]), np.array([0.95, 0.05])))
        case _:  # on Sundays only, looked at on a Sunday
            return stick(pdf, moved(pdf, 2 * SHIFT / least))


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    law: str
    n: int
    setting: str
    influence: str

    def __str__(self) -> str:
        return f"{self.law:10s} {self.n:4d}  {self.setting:14s} {self.influence:9s}"


def days(n: int) -> npt.NDArray[np.str_]:
    return np.array([str(date(2024, 1, 1) + timedelta(days=k)) for k in range(n)])


def level(n: int) -> FloatArray:
    """A trend and a weekday pattern, each of about three times the daily noise."""
    weekday = np.arange(n) % 7
    return 3.0 * np.arange(n) / n * np.sqrt(12) / 2 + np.array([0.0, 1, 4, 2, 8, 7, -1])[weekday] * 0.9


def scale(n: int) -> FloatArray:
    """Saturdays and Sundays are half as lively."""
    return np.where(np.arange(n) % 7 >= 5, 0.5, 1.0)


def one_run(row: Row, law: Law, rng: np.random.Generator) -> tuple[float, float, float]:
    """Estimate, upper bound, and the estimate of somebody who ignores what is known."""
    n = row.n
    r = law.draw(rng, n)
    s = scale(n) if row.setting == "spread" else np.ones(n)
    q = level(n) + s * r
    if row.setting.startswith("previous"):
        weight = float(row.setting.split()[1])
        for k in range(1, n):
            q[k] += weight * (q[k - 1] - level(n)[k - 1])
    match row.influence:
        case "constant":
            d = np.full(n, SHIFT)
        case "random":
            d = rng.choice(EXPONENTIAL, n)
        case "rare":
            d = np.where(rng.random(n) < 0.05, 1.0, 0.0)
        case _:
            d = np.where(np.arange(n) % 7 == 6, 2 * SHIFT, 0.0)
    if row.law == "lattice":
        q, d = np.round(20 * q), np.round(20 * d)
    results = empriv.Results.from_arrays(
        100 * (row.law == "lattice") + q, (q - d)[None] + 100 * (row.law == "lattice"), databases=days(n)
    )
    previous = 1 if row.setting.startswith("previous") else 0
    known = ("calendar", *(["previous"] if previous else []))
    risk = empriv.measure(results, known=known)
    bounds = risk.bounds(EPSILON)
    if row.setting == "spread":  # the truth is that of a weekend: of the day's pair
        day = covered(risk, EPSILON, 0.05)
        return day.estimate, day.upper, risk.unconditional.delta(EPSILON)
    return bounds.estimate, bounds.upper, risk.unconditional.delta(EPSILON)


def rows(quick: bool, only: str | None) -> list[Row]:
    names = list(laws())
    sizes = (60, 365) if quick else SIZES
    out = [Row(law, n, "calendar", "constant") for law in names for n in sizes]
    for setting in ("previous 0.3", "previous 0.7", "spread"):
        out += [Row(law, n, setting, "constant") for law in names for n in sizes]
    for influence in ("random", "rare"):
        out += [Row(law, n, "calendar", influence) for law in names for n in sizes]
    return [row for row in out if only is None or only in str(row)]


def table(quick: bool, runs: int, only: str | None) -> None:
    known = laws()
    print(
        f"{'law':10s} {'n':>4s}  {'known':14s} {'influence':9s}  truth  estimate/truth  covers  upper/truth  ignoring"
    )
    for row in rows(quick, only):
        law = known[row.law]
        truth = truth_of(law.pdf, row.influence, 0.5 if row.setting == "spread" else 1.0)
        found = np.array([one_run(row, law, np.random.default_rng([7, k])) for k in range(runs)])
        covers = np.mean(found[:, 1] >= truth * (1 - 1e-9))
        ratios = np.median(found, axis=0) / truth
        print(f"{row}  {truth:5.3f}  {ratios[0]:14.2f}  {covers:6.2f}  {ratios[1]:11.2f}  {ratios[2]:8.2f}", flush=True)


def iid_size(runs: int) -> None:
    """How often the i.i.d. tests object to the residuals when the model is right."""
    from empriv.measuring.given.given_risk import objection

    for name, law in laws().items():
        for n in SIZES:
            for previous in (0, 1):
                objects = 0
                for k in range(runs):
                    rng = np.random.default_rng([8, k])
                    q = level(n) + law.draw(rng, n)
                    for j in range(1, n if previous else 0):
                        q[j] += 0.5 * (q[j - 1] - level(n)[j - 1])
                    results = empriv.Results.from_arrays(q, q[None] - SHIFT, databases=days(n))
                    risk = empriv.measure(results, known=("calendar", *(["previous"] if previous else [])))
                    objects += objection(risk.residuals, risk._times) <= 0.05
                print(f"{name:10s} {n:4d}  previous {previous}  objects in {objects / runs:.3f}", flush=True)


def definition4(runs: int) -> None:
    """The worst bucket of three, and readers who know their own contribution: estimate, coverage and upper bound."""
    for name, law in list(laws().items())[:-1]:
        for n in (150, 365):
            found: dict[str, list[tuple[float, float]]] = {"buckets": [], "own": []}
            for k in range(runs):
                rng = np.random.default_rng([9, k])
                kind, rest, own = rng.integers(0, 3, n), law.draw(rng, n), rng.exponential(3.0, n)
                known = {"buckets": (4.0 * kind, empriv.Buckets(kind)), "own": (own, empriv.OwnContribution(top=1))}
                for what, (level_of_each, known_to_readers) in known.items():
                    q = level_of_each + rest
                    without = np.stack((q - SHIFT, q - own)) if what == "own" else (q - SHIFT)[None]
                    results = empriv.Results.from_arrays(q, without, databases=[f"shop {j}" for j in range(n)])
                    bounds = empriv.measure(results, known=known_to_readers).bounds(EPSILON)
                    found[what].append((float(bounds.estimate), float(bounds.upper)))
            truth = stick(law.pdf, moved(law.pdf, SHIFT))
            for what, pairs in found.items():
                estimate, upper = np.array(pairs).T
                ratios = f"estimate/truth {np.median(estimate) / truth:.2f}  upper/truth {np.median(upper) / truth:.2f}"
                covers = float(np.mean(upper >= truth))
                print(f"{name:10s} {n:4d}  {what:8s} truth {truth:.3f}  covers {covers:.2f}  {ratios}", flush=True)


def speed() -> None:
    """Processor time of 10,000 individuals on 365 databases, measure and bounds: plain, and given what is known."""
    rng = np.random.default_rng(0)
    people, n = 10_000, 365
    present = rng.random((people, n)) < rng.beta(0.5, 5, people)[:, None]
    amounts = np.where(present, rng.lognormal(0, 1, (people, n)), 0.0)
    q = amounts.sum(axis=0)
    who, when = np.nonzero(present)
    results = empriv.Results(
        q=q, outcomes=np.zeros(n, np.int8), databases=days(n), individuals=np.arange(people),
        starts=np.concatenate(([0], np.cumsum(present.sum(axis=1)))).astype(np.int64),
        entry_database=when.astype(np.int32), entry_q=q[when] - amounts[who, when],
        entry_outcomes=np.zeros(len(when), np.int8),
    )  # fmt: skip
    q = results.q + 0.3 * results.q.std() * level(n)  # a trend and a weekday pattern that auto has to find
    results = replace(results, q=q, entry_q=q[when] - amounts[who, when])
    seconds = {}

    def timed(name: str, measured: Callable[[], AnyRisk]) -> None:
        start = time.process_time()
        bounds = measured().bounds(EPSILON)
        seconds[name] = time.process_time() - start
        print(
            f"{name:34s} {seconds[name]:6.1f} s, {seconds[name] / seconds['plain']:4.1f} times the plain audit; "
            f"delta {bounds.estimate:.4f}, at most {bounds.upper:.4f}",
            flush=True,
        )

    timed("plain", lambda: empriv.measure(results))
    timed("given the calendar", lambda: empriv.measure(results, known="calendar"))
    timed("auto, all steps included", lambda: empriv.measure(results, known="auto"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two sizes, 10 runs")
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--only", help="rows that contain this text")
    parser.add_argument("--iid", action="store_true", help="how often the i.i.d. tests object to the residuals")
    parser.add_argument("--definition4", action="store_true", help="buckets and own contribution")
    parser.add_argument("--speed", action="store_true", help="seconds for 10,000 individuals")
    given = parser.parse_args()
    runs = given.runs or (10 if given.quick else 40)
    if given.iid:
        iid_size(runs)
    elif given.definition4:
        definition4(runs)
    elif given.speed:
        speed()
    else:
        table(given.quick, runs, given.only)


if __name__ == "__main__":
    main()
