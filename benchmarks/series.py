"""How often the upper figure of many publications holds, and what it costs, on laws whose truth is known.

    python benchmarks/series.py [--runs 40] [--sizes 60,100,365] [--only normal,gumbel] [--noise] [--presence] [--cost]

A run draws n results from a law, and five people who move every result by .02 to .3 of its standard deviation. The
truth is the exact composition of the law and the same law moved. Printed for each row: the share of runs that have an
upper figure, the share of all shifts, numbers of publications and runs in which the figure is at least the truth (the
least of them too), and at a shift of .1 sd the truth, the median estimate and the median upper figure after 12, 52 and
365 publications, at epsilon 1. A figure that is not given counts as 1. Laws marked * were in view when the rules for
few databases and for steep ends were chosen; those marked ** took no part in any choice.
`--presence` has normal others and somebody in a share of the databases, on days that readers know. `--noise` has
Laplace noise on the answer; `--cost` times 10,000 people on 365 databases.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

import empriv
from empriv.measuring.series.composition import composed_delta
from empriv.noise.law import Law
from empriv.noise.publications import effects_with_noise

FloatArray = npt.NDArray[np.float64]
EPSILON, LEVEL = 1.0, 0.95
SHIFTS = (0.02, 0.05, 0.1, 0.2, 0.3)
TIMES = (12, 52, 365)
GRID = 60_001


class _TwoPeaks:
    """Two normal laws of sd .4, 2.3 sd of each apart; variance 1."""

    def rvs(self, *, size: int, random_state: np.random.Generator) -> FloatArray:
        return random_state.choice([-0.9165, 0.9165], size) + 0.4 * random_state.normal(size=size)

    def cdf(self, x: FloatArray) -> FloatArray:
        return np.asarray(0.5 * stats.norm.cdf((x + 0.9165) / 0.4) + 0.5 * stats.norm.cdf((x - 0.9165) / 0.4))

    def std(self) -> float:
        return 1.0

    def ppf(self, p: float) -> float:
        return float(4.0 * np.sign(p - 0.5))


def laws() -> dict[str, Any]:
    return {
        "normal": stats.norm(),
        "student3": stats.t(3),
        "gamma2": stats.gamma(2),
        "peaks": _TwoPeaks(),
        "gumbel*": stats.gumbel_r(),
        "gamma4*": stats.gamma(4),
        "lognormal*": stats.lognorm(0.5),
        "uniform*": stats.uniform(),
        "logistic**": stats.logistic(),
        "weibull1.5**": stats.weibull_min(1.5),
        "beta2,5**": stats.beta(2, 5),
        "loggamma2**": stats.loggamma(2),
        "invgauss**": stats.invgauss(0.5),
        "exponential**": stats.expon(),
    }


def truth(law: Any, shift: float, times: int) -> float:
    """delta of so many looks at a law and the same law moved."""
    size = float(law.std())
    x = np.linspace(float(law.ppf(1e-9)) - size, float(law.ppf(1 - 1e-9)) + size, GRID)
    p, q = (np.diff(np.concatenate(([0.0], law.cdf(x + move * size), [1.0]))) for move in (0.0, shift))
    return float(composed_delta(np.maximum(p, 0.0), np.maximum(q, 0.0), times, np.array([EPSILON]))[0])


def row(name: str, law: Any, n: int, runs: int) -> str:
    size = float(law.std())
    true = np.array([[truth(law, shift, times) for times in TIMES] for shift in SHIFTS])
    grid = np.array([EPSILON])
    given, estimates, uppers = [], [], []
    for run in range(runs):
        q = law.rvs(size=n, random_state=np.random.default_rng([run, n, len(name), ord(name[0])]))
        risk = empriv.measure(q, q - size * np.multiply.outer(SHIFTS, np.ones(n)))
        after = [risk.repeated(times) for times in TIMES]
        given.append(risk.per_publication.held)
        estimates.append([risk_after.delta_i(EPSILON) for risk_after in after])
        single = risk.bounds(EPSILON, LEVEL).upper_i
        uppers.append([np.maximum(risk_after.upper(grid, LEVEL)[:, 0], single) for risk_after in after])
    estimate, upper = (np.array(values).transpose(0, 2, 1) for values in (estimates, uppers))
    covers = (upper >= true - 1e-9).mean(axis=0)
    middle = SHIFTS.index(0.1)

    def three(values: FloatArray) -> str:
        return "/".join(f"{value:.3g}" for value in values)

    return (
        f"{name:14} {n:4} {np.mean(given):6.2f} {covers.mean():7.3f} {covers.min():6.2f}   {three(true[middle]):22} "
        f"{three(np.median(estimate[:, middle], axis=0)):22} {three(np.median(upper[:, middle], axis=0))}"
    )


def noise_row(name: str, law: Any, n: int, runs: int, scale: float) -> str:
    """Coverage with Laplace noise of a scale in standard deviations, at a shift of .1 sd after 365 publications."""
    size = float(law.std())
    step = 0.004 * size
    x = np.arange(float(law.ppf(1e-9)) - 30 * size, float(law.ppf(1 - 1e-9)) + 30 * size, step)
    density = np.diff(law.cdf(np.append(x, x[-1] + step))) / step
    kernel = np.exp(-np.abs(np.arange(-25 * size, 25 * size, step)) / (scale * size)) / (2 * scale * size)
    answer = np.maximum(np.convolve(density, kernel, "same") * step, 0.0)
    move = round(0.1 * size / step)
    p, q = answer[move:] * step, answer[:-move] * step
    kept = (p > 1e-13) & (q > 1e-13)
    true = float(composed_delta(p[kept] / p[kept].sum(), q[kept] / q[kept].sum(), 365, np.array([EPSILON]))[0])
    figures = []
    for run in range(runs):
        results = law.rvs(size=n, random_state=np.random.default_rng([run, n, 7, ord(name[0])]))
        risk = empriv.measure(results, [results - 0.1 * size])
        granularity = 2.0 ** np.floor(np.log2(scale * size / 64))
        noise = Law.of(float(granularity), [("laplace", 1.0, scale * size)])
        told = effects_with_noise(risk, noise, EPSILON)
        figures.append((told.estimate.delta(365, EPSILON), told.upper(LEVEL).delta(365, EPSILON)))
    estimate, upper = np.array(figures).T
    return (
        f"{name:14} {n:4} noise {scale:4.2f} sd: truth {true:.3f}, estimate {np.median(estimate):.3f}, upper "
        f"{np.median(upper):.3f}, covers {np.mean(upper >= true - 1e-9):.2f}"
    )


def presence_row(n: int, share: float, influence: float | None, runs: int, times: int = 100) -> str:
    """Somebody in a share of databases with one influence, or exponential ones of mean .3; normal others."""
    x = np.linspace(-14.0, 14.0, 4_001)
    seen = stats.expon.ppf((np.arange(40) + 0.5) / 40) * 0.3 if influence is None else np.array([influence])
    others, there = (np.stack([stats.norm.pdf(x - d * move) for d in seen]) for move in (0.0, 1.0))
    # readers know the day: the pair is that of the day and the answer
    p, q = (np.append(share * law.ravel() / law.sum(), 1.0 - share) for law in (others, there))
    grid = np.array([EPSILON])
    true = float(composed_delta(p, q, times, grid)[0])
    figures = []
    for run in range(runs):
        rng = np.random.default_rng([1000 + run, n])
        alone, here = rng.normal(size=n), rng.random(n) < share
        d = np.where(here, rng.exponential(0.3, n) if influence is None else influence, 0.0)
        if not here.any():
            continue
        after = empriv.measure(alone + d, [alone]).repeated(times)
        figures.append((after.delta(EPSILON), float(after.upper(grid, LEVEL)[0, 0])))
    estimate, upper = np.array(figures).T
    return (
        f"n {n:4} share {share:4.2f} influence {'varies' if influence is None else influence}: truth {true:.3f}, "
        f"estimate {np.median(estimate):.3f}, upper {np.median(upper):.3f}, covers {np.mean(upper >= true - 1e-9):.2f}"
    )


def cost(people: int = 10_000, n: int = 365) -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(size=n)
    risk = empriv.measure(q, q - rng.uniform(0.0, 0.3, (people, 1)) * rng.exponential(1.0, (people, n)))
    start = time.perf_counter()
    risk.bounds(EPSILON)
    one = time.perf_counter() - start
    start = time.perf_counter()
    risk.repeated(365).bounds(EPSILON)
    all_of_them = time.perf_counter() - start
    print(f"{people:,} people, {n} databases: {one:.1f} s for one publication with bounds, {all_of_them:.1f} s for 365")
    print(f"ratio {all_of_them / one:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--sizes", default="60,100,365")
    parser.add_argument("--only", default="")
    parser.add_argument("--noise", action="store_true")
    parser.add_argument("--presence", action="store_true")
    parser.add_argument("--cost", action="store_true")
    options = parser.parse_args()
    if options.cost:
        cost()
        return
    if options.presence:
        for n in map(int, options.sizes.split(",")):
            for share, influence in ((0.05, 1.0), (0.2, 0.5), (0.2, None), (0.5, 0.2)):
                print(presence_row(n, share, influence, options.runs), flush=True)
        return
    chosen = {
        name: law for name, law in laws().items() if not options.only or name.strip("*") in options.only.split(",")
    }
    if not options.noise:
        print("law               n  given  covers  least   truth .1 sd            estimate               upper")
    for n in map(int, options.sizes.split(",")):
        for name, law in chosen.items():
            if options.noise:
                for scale in (0.1, 0.5, 2.0):
                    print(noise_row(name, law, n, options.runs, scale), flush=True)
            else:
                print(row(name, law, n, options.runs), flush=True)


if __name__ == "__main__":
    main()
