"""Noise designs: error, promises kept, the Hausdorff scale, time. Run: python benchmarks/noise.py [--quick]

Parts, chosen by --part: error (expected error of every method on a fixed set of cases), truth (how often the true
target is kept at delta = 0.01 when the databases are drawn anew from a known law), pure (the same at delta = 0),
structured (the same for last digits, gaps, and somebody who changes the spread), hausdorff (how often the paper's own
scale breaks its promise), time.
Prints Markdown tables. All seeds are fixed; times are ratios within one run.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.signal import fftconvolve

import empriv
from empriv import datasets
from empriv.measuring.line.risk import Risk
from empriv.noise.design.constraints import Cases
from empriv.noise.design.deconvolution import hausdorff, largest_distance
from empriv.noise.design.design import METHODS, design_noise
from empriv.noise.law import Law
from empriv.results import Results

Floats = npt.NDArray[np.float64]


def valid_scale(risk: Risk, epsilon: float) -> float:
    """The paper's scale with the bottleneck distance, which is valid: E|noise| of Laplace(scale)."""
    return largest_distance(Cases.of(risk, granularity=None), "bottleneck") / epsilon


# Expected error


def cases() -> Iterator[tuple[str, Risk]]:
    for n in (41, 365):
        for individuals, words in ((5, "5"), (2000, "2,000")):
            rng = np.random.default_rng(n + individuals)
            q = rng.normal(size=n)
            influence = rng.lognormal(-2.5, 0.7, (individuals, 1)) * rng.lognormal(0.0, 0.5, (individuals, n))
            yield f"sums, {words} individuals, n = {n}", empriv.measure(q, q - influence)
    rng = np.random.default_rng(7)
    q = rng.gamma(4.0, 0.5, 365)
    there = rng.random((200, 365)) < 0.2
    influence = np.where(there, rng.lognormal(-1.5, 0.8, (200, 365)), 0.0)
    yield "present in a fifth, 200 individuals, n = 365", empriv.measure(q, q - influence)


def cdnow_revenue() -> Risk:
    """The daily revenue of a shop."""
    data = empriv.databases(
        "SELECT * FROM purchases WHERE date >= DATE '1997-04-01'",
        database="date",
        individual="customer_id",
        tables={"purchases": datasets.cdnow()},
    )
    return empriv.audit(data, "sum(amount)").risk


def error_table(quick: bool) -> None:
    print("\nExpected error over that of the paper's valid scale (bottleneck distance / epsilon)\n")
    print("| case | epsilon | delta | " + " | ".join(METHODS) + " |")
    print("|---|---|---|" + "---|" * len(METHODS))
    ratios: dict[str, list[float]] = {method: [] for method in METHODS}
    above = 0
    listed = [*cases(), ("CDNOW", cdnow_revenue())]
    for name, risk in listed:
        for epsilon, delta in ((0.5, 0.0), (0.5, 0.01)) if quick else (
            (0.05, 0.0), (0.05, 0.01), (0.2, 0.0), (0.2, 0.01), (0.5, 0.0), (0.5, 0.01),
        ):  # fmt: skip
            valid = valid_scale(risk, epsilon)
            row = []
            for method in METHODS:
                found = design_noise(risk, epsilon=epsilon, delta=delta, method=method).expected_error / valid
                ratios[method].append(found)
                row.append(found)
            above += row[METHODS.index("optimal")] > row[METHODS.index("calibrated")] * 1.0001
            print(f"| {name} | {epsilon} | {delta} | " + " | ".join(f"{one:.3f}" for one in row) + " |", flush=True)
    mean = " | ".join(f"{np.mean(ratios[method]):.3f}" for method in METHODS)
    print(f"| **mean of {len(ratios['optimal'])}** | | | {mean} |")
    print(f"\nOptimal above calibrated: {above} of {len(ratios['optimal'])}.")


# The truth


@dataclass(frozen=True)
class Family:
    """A known law: the result without the individual, and the influence, independent of it."""

    name: str
    n: int
    epsilon: float
    base: Callable[[np.random.Generator, int], Floats]
    base_cdf: Callable[[Floats], Floats]
    influence: Callable[[Floats], Floats]  # quantile function
    seen: bool = True
    centre: float = 0.0


def _mixed(
    share: float, large: Callable[[Floats], Floats], small: Callable[[Floats], Floats]
) -> Callable[[Floats], Floats]:
    """Quantiles of a mixture whose large part lies above its small part."""

    def quantile(u: Floats) -> Floats:
        rest = np.clip(u / (1 - share), 0, 1 - 1e-12)
        return np.where(u < 1 - share, small(rest), large(np.clip((u - (1 - share)) / share, 1e-12, 1 - 1e-12)))

    return quantile


def _normal(rng: np.random.Generator, n: int) -> Floats:
    return rng.normal(size=n)


def _two(rng: np.random.Generator, n: int) -> Floats:
    return np.where(rng.random(n) < 0.5, -0.9, 0.9) + 0.43 * rng.normal(size=n)


def _two_cdf(x: Floats) -> Floats:
    return np.asarray(0.5 * stats.norm.cdf((x + 0.9) / 0.43) + 0.5 * stats.norm.cdf((x - 0.9) / 0.43))


def _lognormal(centre: float) -> Callable[[Floats], Floats]:
    return lambda u: np.asarray(stats.lognorm.ppf(u, 0.6, scale=np.exp(centre)))


def _gaussian(mean: float, sd: float) -> Callable[[Floats], Floats]:
    return lambda u: np.asarray(stats.norm.ppf(u, mean, sd))


def _gamma(shape: float) -> Callable[[Floats], Floats]:
    return lambda u: np.asarray(stats.gamma.ppf(u, shape, scale=0.1))


RARE = _mixed(1 / 34, lambda u: np.full_like(u, 4.0), _gaussian(0.2, 0.2))
THIRD = _mixed(1 / 3, _gamma(8.0), np.zeros_like)
GAMMA, UNIFORM, LOGISTIC = stats.gamma(4.0, scale=0.5), stats.uniform(-1.732, 3.464), stats.logistic(0, 0.5513)


def _draw(law: Any) -> Callable[[np.random.Generator, int], Floats]:
    return lambda rng, n: np.asarray(law.rvs(n, random_state=rng))


FAMILIES = (
    Family("lognormal influence", 41, 0.1, _normal, stats.norm.cdf, _lognormal(-1.25)),
    Family("Gaussian influence", 41, 0.5, _normal, stats.norm.cdf, _gaussian(0.3, 0.3)),
    Family("lognormal influence", 365, 0.5, _normal, stats.norm.cdf, _lognormal(-1.4)),
    Family("t5 influence", 365, 0.1, _normal, stats.norm.cdf, lambda u: stats.t.ppf(u, 5, 0.2, 0.15)),
    Family("Gaussian influence", 365, 0.5, _normal, stats.norm.cdf, _gaussian(0.35, 0.3)),
    Family("rare large influence (4 sd, 1 in 34)", 41, 0.5, _normal, stats.norm.cdf, RARE, seen=False),
    Family("fresh: bimodal", 41, 0.5, _two, _two_cdf, _gaussian(0.3, 0.2)),
    Family("fresh: gamma sums", 365, 0.1, _draw(GAMMA), GAMMA.cdf, _gamma(2.0), centre=2.0),
    Family("fresh: present in a third", 365, 0.5, _normal, stats.norm.cdf, THIRD),
    Family("fresh: uniform", 41, 0.5, _draw(UNIFORM), UNIFORM.cdf, lambda u: 0.6 * u),
    Family("fresh: logistic, exponential influence", 100, 0.2, _draw(LOGISTIC), LOGISTIC.cdf, stats.expon(0, 0.25).ppf),
)

STEP = 2.0**-5
REACH = 2**13  # cells on each side


def truth(family: Family) -> tuple[Floats, Floats]:
    """Masses of the rounded result with and without the individual, by 4,000 quantiles of the influence."""
    edges = STEP * (np.arange(-700, 702) - 0.5) + np.round(family.centre / STEP) * STEP
    influence = family.influence((np.arange(4000) + 0.5) / 4000)
    with_all = np.zeros(len(edges))
    for some in np.array_split(influence, 40):
        with_all += family.base_cdf(edges[:, None] - some[None, :]).sum(axis=1)
    return np.diff(with_all / 4000), np.diff(family.base_cdf(edges))


def true_delta(law: Law, p: Floats, q: Floats, epsilon: float) -> float:
    """The larger hockey stick of the true noisy laws on the lattice; what is cut off is counted in full."""
    k = np.arange(-REACH, REACH + 1)
    pmf = law.pmf(k)
    noisy = [np.maximum(fftconvolve(side, pmf), 0.0) for side in (p, q)]
    e = np.exp(epsilon)
    lost = max(1.0 - side.sum() for side in noisy)
    return max(float(np.maximum(a - e * b, 0.0).sum()) for a, b in (noisy, noisy[::-1])) + max(0.0, lost)


def true_epsilon(law: Law, p: Floats, q: Floats) -> float:
    """The largest log ratio of the true noisy laws, by direct sums, where the noise covers every result."""
    pmf = law.pmf(np.arange(-REACH, REACH + 1))
    logs = [np.log(np.convolve(pmf, side / side.sum(), "valid")) for side in (p, q)]
    return float(np.abs(logs[0] - logs[1]).max())


def truth_table(runs: int, delta: float) -> None:
    methods = ("paper", "calibrated", "optimal", "robust")
    print(f"\nShare of {runs} runs that keep the true target at delta = {delta} / median E over the result's sd\n")
    print("| truth | n | epsilon | " + " | ".join(methods) + " | robust over the paper's valid scale |")
    print("|---|---|---|" + "---|" * (len(methods) + 1))
    for row, family in enumerate(FAMILIES):
        p, q = truth(family)
        kept: dict[str, list[bool]] = {method: [] for method in methods}
        size: dict[str, list[float]] = {method: [] for method in methods}
        relative = []
        for run in range(runs):
            rng = np.random.default_rng([row, run])
            without = family.base(rng, family.n)
            with_all = without + family.influence(rng.random(family.n))
            risk = empriv.measure(with_all, without[None, :])
            for method in methods:
                noise = design_noise(risk, epsilon=family.epsilon, delta=delta, method=method, granularity=STEP)
                if delta > 0:
                    kept[method].append(true_delta(noise.law, p, q, family.epsilon) <= delta)
                else:
                    kept[method].append(true_epsilon(noise.law, p, q) <= family.epsilon * (1 + 1e-9))
                size[method].append(noise.expected_error)
            relative.append(size["robust"][-1] / valid_scale(risk, family.epsilon))
        cells = " | ".join(f"{np.mean(kept[m]):.2f} / {np.median(size[m]):.2f}" for m in methods)
        unseen = "" if family.seen else " (unseen)"
        print(
            f"| {family.name}{unseen} | {family.n} | {family.epsilon} | {cells} | {np.median(relative):.2f} |",
            flush=True,
        )


# Laws with structure finer than a bandwidth


def _comb(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    others = np.round(rng.normal(0, 20, n)) + rng.uniform(-0.05, 0.05, n)
    return others + 0.3, others


def _euro(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    others = np.where(rng.random(n) < 0.8, np.round(rng.normal(0, 20, n)), rng.normal(0, 20, n))
    return others + rng.exponential(3, n), others


def _parity(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    others = 2 * np.round(rng.normal(0, 10, n)) + (rng.random(n) < 0.1)
    return others + 1, others


def _gap(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    others = rng.normal(size=n)
    return np.where(others > 1, others + 0.6, others), others


def _two_gaps(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    others = rng.normal(size=n)
    return np.where(np.abs(others) > 1, others + 0.5 * np.sign(others), others), others


def _whale(rng: np.random.Generator, n: int) -> tuple[Floats, Floats]:
    others = rng.normal(size=n)
    return others + rng.normal(0, 20, n), others


STRUCTURED: dict[str, tuple[Callable[[np.random.Generator, int], tuple[Floats, Floats]], float]] = {
    "whole numbers ± .05": (_comb, 2.0**-3),
    "whole euros on 80%": (_euro, 2.0**-3),
    "even in 90%": (_parity, 2.0**-2),
    "gap: +.6 only above 1": (_gap, 2.0**-5),
    "gap: ±.5 beyond ±1": (_two_gaps, 2.0**-5),
    "normal + N(0, 20)": (_whale, 2.0**-2),
}
DRAWN = 2_000_000  # results that stand for the law


def structured_table(runs: int) -> None:
    """How often robust noise keeps its true promise on laws that no bandwidth shows."""
    print(f"\nShare of {runs} runs in which robust noise keeps the true target / median E / without any noise\n")
    print("| truth | epsilon | delta | n = 41 | n = 100 | n = 365 |\n|---|---|---|---|---|---|")
    for row, (name, (law, step)) in enumerate(STRUCTURED.items()):
        sides = law(np.random.default_rng([row, DRAWN]), DRAWN)
        p, q = (
            np.bincount(np.clip(np.rint(x / step), 1 - REACH, REACH - 1).astype(int) + REACH, minlength=2 * REACH)
            / DRAWN
            for x in sides
        )
        for epsilon, delta in ((0.5, 0.01), (0.5, 0.05), (0.1, 0.01)):
            cells = []
            for n in (41, 100, 365):
                kept, size, none = [], [], 0
                for run in range(runs):
                    with_all, without = law(np.random.default_rng([row, n, run]), n)
                    risk = empriv.measure(with_all, without[None, :])
                    noise = design_noise(risk, epsilon=epsilon, delta=delta, granularity=step)
                    kept.append(true_delta(noise.law, p, q, epsilon) <= delta)
                    size.append(noise.expected_error)
                    none += noise.law.only_point
                cells.append(f"{np.mean(kept):.2f} / {np.median(size):.2f} / {none}")
            print(f"| {name} | {epsilon} | {delta} | " + " | ".join(cells) + " |", flush=True)


# The Hausdorff scale


def hausdorff_table(pairs: int) -> None:
    """Sums over rows with and without one individual; Laplace densities of scale d_H/epsilon and W_inf/epsilon."""
    rng = np.random.default_rng(0)
    epsilon = 0.5
    broken = {"Hausdorff": 0, "bottleneck": 0}
    worst = {"Hausdorff": 0.0, "bottleneck": 0.0}
    counted = 0
    while counted < pairs:
        n = int(rng.integers(5, 42))
        q = rng.normal(size=n) * rng.choice([0.1, 0.3, 1.0, 3.0])
        there = rng.random(n) < rng.uniform(0.2, 1.0)
        without = q - there * rng.lognormal(-1.0, 0.8, n)
        a, b = np.sort(q), np.sort(without)
        scales = {"Hausdorff": hausdorff(a, b) / epsilon, "bottleneck": float(np.abs(a - b).max()) / epsilon}
        if scales["Hausdorff"] == 0:
            continue
        counted += 1
        for name, scale in scales.items():
            found = empriv.measure(q, without[None, :], density=empriv.Kde("laplace", scale)).epsilon()
            broken[name] += found > epsilon * (1 + 1e-9)
            worst[name] = max(worst[name], found / epsilon)
    print(f"\nLaplace densities of scale distance/epsilon, {pairs} random leave-one-out pairs, epsilon = {epsilon}\n")
    print("| distance | promise broken | largest epsilon over the promised one |\n|---|---|---|")
    for name in broken:
        print(f"| {name} | {broken[name]} of {pairs} | {worst[name]:.2f} |")


# Time


def seconds(work: Callable[[], object], repeats: int = 3) -> tuple[float, float]:
    """Least wall and processor time of the repeats; the latter counts all threads, and hardly sees other programs."""
    walls, processors = [], []
    for _ in range(repeats):
        wall, processor = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return min(walls), min(processors)


def sparse(count: int) -> Risk:
    """Each individual in one to five of 365 databases."""
    rng = np.random.default_rng(3)
    q = 5.0 * rng.normal(size=365)
    presence = rng.integers(1, 6, count)
    where = np.concatenate([np.sort(rng.choice(365, k, replace=False)) for k in presence]).astype(np.int32)
    results = Results(
        q=q,
        outcomes=np.zeros(365, np.int8),
        databases=np.arange(365),
        individuals=np.arange(count),
        starts=np.concatenate(([0], np.cumsum(presence))),
        entry_database=where,
        entry_q=q[where] - rng.lognormal(-1.0, 1.0, len(where)),
        entry_outcomes=np.zeros(len(where), np.int8),
    )
    risk: Risk = empriv.measure(results)
    return risk


def time_table(quick: bool) -> None:
    data = datasets.precipitation()
    grid = np.linspace(0.004, 0.2, 50)
    one = seconds(lambda: empriv.measure(data.q, data.q_without).delta_i(0.02), 5)
    fifty = seconds(lambda: empriv.measure(data.q, data.q_without).delta_i(grid))
    print(
        f"\n10,368 individuals x 41 databases: one measure takes {1000 * one[0]:.1f} ms at one epsilon (0.02) and "
        f"{1000 * one[1]:.1f} ms of processor time; {1000 * fifty[0]:.1f} ms and {1000 * fifty[1]:.1f} ms at fifty.\n"
    )
    print("| method | epsilon | delta | seconds | over one measure | processor | over one measure | over fifty |")
    print("|---|---|---|---|---|---|---|---|")
    for method in METHODS:
        for epsilon, delta in ((0.1, 0.0), (0.05, 0.01), (0.02, 0.001)):
            wall, processor = seconds(
                lambda e=epsilon, d=delta, m=method: design_noise(  # type: ignore[misc]
                    empriv.measure(data.q, data.q_without), epsilon=e, delta=d, method=m
                ),
                1 if quick else 3,
            )
            print(
                f"| {method} | {epsilon} | {delta} | {wall:.2f} | {wall / one[0]:.0f} | {processor:.2f} "
                f"| {processor / one[1]:.0f} | {processor / fifty[1]:.0f} |",
                flush=True,
            )
    rng = np.random.default_rng(3)
    count = 20_000 if quick else 100_000
    q = rng.normal(size=41)
    dense = empriv.measure(q, q - rng.lognormal(-5.0, 1.0, (count, 1)) * rng.lognormal(0.0, 0.3, (count, 41)))
    for words, risk, delta in (("41 databases", dense, 0.001), ("1-5 of 365 databases", sparse(count), 0.0005)):
        base = seconds(lambda r=risk: r.curves(np.array([0.1])), 1)  # type: ignore[misc]
        print(f"\n{count:,} individuals x {words}; one delta_i takes {base[0]:.2f} s, processor {base[1]:.2f} s.\n")
        print("| method | epsilon | delta | seconds | processor |\n|---|---|---|---|---|")
        for method in METHODS:
            for target in (0.0, delta):
                wall, processor = seconds(
                    lambda r=risk, m=method, d=target: design_noise(r, epsilon=0.1, delta=d, method=m),  # type: ignore[misc]
                    1,
                )
                print(f"| {method} | 0.1 | {target} | {wall:.2f} | {processor:.2f} |", flush=True)


PARTS = ("error", "truth", "pure", "structured", "hausdorff", "time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=PARTS, action="append")
    parser.add_argument("--quick", action="store_true", help="fewer cases and runs")
    parser.add_argument("--runs", type=int, help="runs for each row of truth (100; quick: 10) and pure (30; quick: 5)")
    arguments = parser.parse_args()
    parts = arguments.part or PARTS
    if "error" in parts:
        error_table(arguments.quick)
    if "truth" in parts:
        truth_table(arguments.runs or (10 if arguments.quick else 100), 0.01)
    if "pure" in parts:
        truth_table(arguments.runs or (5 if arguments.quick else 30), 0.0)
    if "structured" in parts:
        structured_table(arguments.runs or (5 if arguments.quick else 40))
    if "hausdorff" in parts:
        hausdorff_table(200 if arguments.quick else 2000)
    if "time" in parts:
        time_table(arguments.quick)


if __name__ == "__main__":
    main()
