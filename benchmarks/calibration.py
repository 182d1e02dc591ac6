"""Audits of mechanisms whose privacy is known. Run: python benchmarks/calibration.py [--runs 200] [--quick]

Classical mechanisms are run as randomised functions on fixed rows (`empriv.repeats`), so that the mechanism's own
noise is all the randomness there is, and delta is known in closed form; dp-accounting is the witness. Printed are how
often the bounds contain the truth, how often sound mechanisms are accused of breaking their promise, and how often
broken ones are caught. docs/judge.md carries what this prints.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from scipy import stats

import empriv
from empriv.validate.verdict import verdict

Rows = dict[str, np.ndarray[Any, Any]]
Truth = Callable[[float], Sequence[float]]
DATABASES = 400
SLACK = 0.1  # what a verdict's target allows beyond the promise: 400 runs cannot support less for pure promises

# Three people of different influence: on the sum by 1, 0.5 and 0, on the count by 1 each.
PEOPLE = pa.table({"who": ["p", "q", "r"], "value": [1.0, 0.5, 0.0]})
# The bound of 1 that the mean's noise is made for holds for all but the last.
OUTLIER = pa.table({"who": list("abcdefghij"), "value": [0.1 * k for k in range(9)] + [25.0]})


@dataclass(frozen=True)
class Mechanism:
    """A randomised query on fixed rows, and what is known of it.

    Attributes
    ----------
    name : in the table
    query : function of the rows and a generator
    promise : (epsilon, delta) that the mechanism's makers state
    truth : delta_i of each individual at an epsilon, in the order of the rows
    rows : the fixed data
    post : what happens to the answer afterwards, if anything
    """

    name: str
    query: Callable[[Rows, np.random.Generator], Any]
    promise: tuple[float, float]
    truth: Truth
    rows: pa.Table = field(default_factory=lambda: PEOPLE, repr=False)
    post: Callable[[Any], Any] | None = None

    def audit(self, seed: int, *, databases: int = DATABASES) -> empriv.Audit:
        """One audit of so many runs of the mechanism, with everyone and without each individual."""
        data = empriv.repeats(self.rows, individual="who", count=databases)
        return empriv.audit(data, self.query, draws=1, rng=seed, post=self.post, jobs=1, progress=False)

    def delta(self, epsilon: float) -> float:
        return max(self.truth(epsilon))


# Closed forms ---------------------------------------------------------------------------------------------------------


def laplace_delta(influence: float, scale: float, epsilon: float) -> float:
    """``1 - exp((epsilon - s)/2)`` of Laplace laws s scales apart, and 0 from epsilon = s."""
    return max(0.0, -math.expm1(0.5 * (epsilon - influence / scale)))


def gaussian_delta(influence: float, sigma: float, epsilon: float) -> float:
    """``Phi(s/2 - epsilon/s) - e^epsilon Phi(-s/2 - epsilon/s)`` of normal laws s standard deviations apart."""
    if influence == 0:
        return 0.0
    s = influence / sigma
    return float(stats.norm.cdf(s / 2 - epsilon / s) - math.exp(epsilon) * stats.norm.cdf(-s / 2 - epsilon / s))


def masses_delta(p: Sequence[float], q: Sequence[float], epsilon: float) -> float:
    """The larger of both hockey sticks of two laws on the same outcomes."""
    a, b, e = np.asarray(p), np.asarray(q), math.exp(epsilon)
    return max(float(np.maximum(a - e * b, 0).sum()), float(np.maximum(b - e * a, 0).sum()))


def geometric_delta(influence: int, scale: float, epsilon: float) -> float:
    k, a = np.arange(-2000, 2001), math.exp(-1 / scale)
    mass = (1 - a) / (1 + a) * a ** np.abs(k)
    return masses_delta(mass, np.roll(mass, influence), epsilon)


def two_laplace_delta(influences: tuple[float, float], scale: float, epsilon: float) -> float:
    """Two answers with independent Laplace noise: the losses of the two add.

    With loss L of the first, which is s = influence/scale with probability 1/2, -s with probability exp(-s)/2 and has
    the density exp((l - s)/2)/4 between, delta is the mean of the second's delta at epsilon - L. The second's at a
    negative epsilon is 1 - e^epsilon + e^epsilon times its delta at minus that.
    """
    first, second = (influence / scale for influence in influences)

    def at(rest: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        ahead = np.maximum(-np.expm1(0.5 * (np.abs(rest) - second)), 0.0)
        return np.where(rest >= 0, ahead, -np.expm1(rest) + np.exp(rest) * ahead)

    loss = (np.arange(200_000) + 0.5) / 200_000 * 2 * first - first
    between = float((0.25 * np.exp(0.5 * (loss - first)) * at(epsilon - loss)).sum() * 2 * first / 200_000)
    ends = at(np.array([epsilon - first, epsilon + first]))
    return float(0.5 * ends[0] + 0.5 * math.exp(-first) * ends[1]) + between


def rounded_laplace_delta(total: float, influence: float, scale: float, epsilon: float) -> float:
    """Laplace noise, then rounding to whole numbers: exact masses."""
    edges = np.arange(-200, 202) - 0.5
    with_everyone, without = (np.diff(stats.laplace.cdf(edges, c, scale)) for c in (total, total - influence))
    return masses_delta(with_everyone, without, epsilon)


def forgetful_delta(influence: float, scale: float, share: float, epsilon: float) -> float:
    """Noise is forgotten in a share of the runs: an atom at the raw answer, which differs if influence is not 0."""
    return (share if influence else 0.0) + (1 - share) * laplace_delta(influence, scale, epsilon)


# Mechanisms -----------------------------------------------------------------------------------------------------------


def laplace(scale: float) -> Callable[[Rows, np.random.Generator], float]:
    return lambda rows, rng: float(rows["value"].sum() + rng.laplace(scale=scale))


def gaussian(sigma: float) -> Callable[[Rows, np.random.Generator], float]:
    return lambda rows, rng: float(rows["value"].sum() + rng.normal(scale=sigma))


def geometric(scale: float) -> Callable[[Rows, np.random.Generator], float]:
    """Two-sided geometric noise on a count."""
    stop = -math.expm1(-1 / scale)
    return lambda rows, rng: float(len(rows["value"]) + rng.geometric(stop) - rng.geometric(stop))


def response(epsilon: float, categories: int) -> Callable[[Rows, np.random.Generator], float]:
    """Whether the sum reaches 1.5, which takes both who add to it; or, with the same chance each, another answer."""
    honest = math.exp(epsilon) / (math.exp(epsilon) + categories - 1)

    def answer(rows: Rows, rng: np.random.Generator) -> float:
        value = int(rows["value"].sum() >= 1.5)
        return float(value if rng.random() < honest else (value + rng.integers(1, categories)) % categories)

    return answer


def local_responses(epsilon: float) -> Callable[[Rows, np.random.Generator], float]:
    """How many of three say yes, if each lies with probability 1/(1 + e^epsilon) about a value of 0.5 or more.

    Who is not there answers like somebody without such a value: the number of three is public.
    """
    lie = 1 / (1 + math.exp(epsilon))

    def answer(rows: Rows, rng: np.random.Generator) -> float:
        yes = np.arange(3) < (rows["value"] >= 0.5).sum()
        return float((yes ^ (rng.random(3) < lie)).sum())

    return answer


def local_delta(epsilon_each: float, epsilon: float) -> list[float]:
    lie = 1 / (1 + math.exp(epsilon_each))

    def law(yes: int) -> np.ndarray[Any, Any]:
        mass = np.ones(1)
        for person in range(3):
            mass = np.convolve(mass, [lie, 1 - lie] if person < yes else [1 - lie, lie])
        return mass

    return [masses_delta(law(2), law(without), epsilon) for without in (1, 1, 2)]


def two_answers(scale: float) -> Callable[[Rows, np.random.Generator], list[float]]:
    return lambda rows, rng: [
        float(rows["value"].sum() + rng.laplace(scale=scale)),
        float(len(rows["value"]) + rng.laplace(scale=scale)),
    ]


def same_noise(scale: float) -> Callable[[Rows, np.random.Generator], list[float]]:
    """Broken: one noise for two answers, whose difference is bare."""

    def answer(rows: Rows, rng: np.random.Generator) -> list[float]:
        noise = float(rng.laplace(scale=scale))
        return [float(rows["value"].sum()) + noise, len(rows["value"]) + noise]

    return answer


def mean(epsilon: float, *, clip: bool) -> Callable[[Rows, np.random.Generator], float]:
    """Sum of values up to 1, over a public number of ten, with noise for a bound of 1; ``clip`` enforces it."""

    def answer(rows: Rows, rng: np.random.Generator) -> float:
        values = np.clip(rows["value"], 0.0, 1.0) if clip else rows["value"]
        return float((values.sum() + rng.laplace(scale=1 / epsilon)) / 10)

    return answer


def seeded(scale: float, *, by_data: bool) -> Callable[[Rows, np.random.Generator], float]:
    """Broken: noise that can be computed again, from a constant or from the rows."""

    def answer(rows: Rows, _rng: np.random.Generator) -> float:
        seed = int(1000 * rows["value"].sum()) if by_data else 7
        return float(rows["value"].sum() + np.random.default_rng(seed).laplace(scale=scale))

    return answer


def forgetful(scale: float, share: float) -> Callable[[Rows, np.random.Generator], float]:
    """Broken: noise is left out in a share of the runs."""

    def answer(rows: Rows, rng: np.random.Generator) -> float:
        noise = float(rng.laplace(scale=scale))
        return float(rows["value"].sum()) + (noise if rng.random() >= share else 0.0)

    return answer


@cache
def sound() -> tuple[Mechanism, ...]:
    """Mechanisms that keep their promise."""

    def each(of: Callable[..., float], *args: float) -> Truth:
        return lambda epsilon: [of(influence, *args, epsilon) for influence in (1.0, 0.5, 0.0)]

    def answers(epsilon_each: float, categories: int) -> Truth:
        honest = math.exp(epsilon_each) / (math.exp(epsilon_each) + categories - 1)
        other = (1 - honest) / (categories - 1)
        rest = [other] * (categories - 2)
        # Who adds nothing changes nothing.
        return lambda epsilon: [masses_delta([honest, other, *rest], [other, honest, *rest], epsilon)] * 2 + [0.0]

    return (
        Mechanism("Laplace, epsilon 1", laplace(1.0), (1.0, 0.0), each(laplace_delta, 1.0)),
        Mechanism("Laplace, epsilon 0.5", laplace(2.0), (0.5, 0.0), each(laplace_delta, 2.0)),
        Mechanism("Gaussian, sigma 1", gaussian(1.0), (1.0, gaussian_delta(1, 1, 1)), each(gaussian_delta, 1.0)),
        Mechanism("Gaussian, sigma 2", gaussian(2.0), (0.5, gaussian_delta(1, 2, 0.5)), each(gaussian_delta, 2.0)),
        Mechanism("geometric, epsilon 1", geometric(1.0), (1.0, 0.0), lambda e: [geometric_delta(1, 1.0, e)] * 3),
        Mechanism("geometric, epsilon 0.5", geometric(2.0), (0.5, 0.0), lambda e: [geometric_delta(1, 2.0, e)] * 3),
        Mechanism("randomised response, epsilon 1", response(1.0, 2), (1.0, 0.0), answers(1.0, 2)),
        Mechanism("randomised response, 5 categories, epsilon 1", response(1.0, 5), (1.0, 0.0), answers(1.0, 5)),
        Mechanism("number of randomised responses, epsilon 1 each", local_responses(1.0), (1.0, 0.0),
            lambda e: local_delta(1.0, e)),
        Mechanism("Laplace, epsilon 0.5, then rounded", laplace(2.0), (0.5, 0.0),
            lambda e: [rounded_laplace_delta(1.5, s, 2.0, e) for s in (1.0, 0.5, 0.0)], post=round),
        Mechanism("clipped mean, epsilon 1", mean(1.0, clip=True), (1.0, 0.0),
            lambda e: [laplace_delta(min(v, 1.0), 1.0, e) for v in OUTLIER["value"].to_pylist()], rows=OUTLIER),
        Mechanism("two answers, Laplace, epsilon 0.5 each", two_answers(2.0), (1.0, 0.0),
            lambda e: [two_laplace_delta((s, 1.0), 2.0, e) for s in (1.0, 0.5)] + [laplace_delta(1.0, 2.0, e)]),
    )  # fmt: skip


@cache
def broken() -> tuple[Mechanism, ...]:
    """Mechanisms that do not."""

    def each(of: Callable[..., float], *args: float) -> Truth:
        return lambda epsilon: [of(influence, *args, epsilon) for influence in (1.0, 0.5, 0.0)]

    promised = gaussian_delta(1, 2, 0.5)
    return (
        Mechanism("Laplace noise too small by 2", laplace(1.0), (0.5, 0.0), each(laplace_delta, 1.0)),
        Mechanism("Gaussian noise too small by 2", gaussian(1.0), (0.5, promised), each(gaussian_delta, 1.0)),
        Mechanism("geometric noise too small by 2", geometric(1.0), (0.5, 0.0),
            lambda e: [geometric_delta(1, 1.0, e)] * 3),
        Mechanism("mean that forgets to clip", mean(1.0, clip=False), (1.0, 0.0),
            lambda e: [laplace_delta(v, 1.0, e) for v in OUTLIER["value"].to_pylist()], rows=OUTLIER),
        Mechanism("noise reused between two answers", same_noise(2.0), (1.0, 0.0),
            lambda e: [laplace_delta(1.0, 2.0, e), 1.0, 1.0]),
        Mechanism("noise from a constant seed", seeded(2.0, by_data=False), (0.5, 0.0), lambda _: [1.0, 1.0, 0.0]),
        Mechanism("noise seeded by the data", seeded(2.0, by_data=True), (0.5, 0.0), lambda _: [1.0, 1.0, 0.0]),
        Mechanism("noise forgotten once in five", forgetful(2.0, 0.2), (0.5, 0.0), each(forgetful_delta, 2.0, 0.2)),
        Mechanism("noise forgotten once in twenty", forgetful(2.0, 0.05), (0.5, 0.0), each(forgetful_delta, 2.0, 0.05)),
    )  # fmt: skip


# Study ----------------------------------------------------------------------------------------------------------------


def epsilons_of(mechanism: Mechanism) -> tuple[float, ...]:
    """From 0 to past the promise."""
    return tuple(share * mechanism.promise[0] for share in (0.0, 0.5, 1.0, 1.5))


def study(job: tuple[bool, int, int, int]) -> dict[str, Any]:
    """Bounds and verdict of one mechanism, again and again: shares of the runs, and means, at each epsilon."""
    is_sound, which, runs, databases = job
    mechanism = (sound() if is_sound else broken())[which]
    epsilons = epsilons_of(mechanism)
    truth_i = np.array([mechanism.truth(epsilon) for epsilon in epsilons]).T
    truth = truth_i.max(axis=0)
    epsilon, delta = mechanism.promise
    found, promised, covers_i, failed, accused = [], [], [], [], []
    for run in range(runs):
        audit = mechanism.audit(run, databases=databases)
        bounds = audit.bounds(epsilons)
        found.append((bounds.lower, bounds.estimate, bounds.upper))
        covers_i.append(bounds.upper_i >= truth_i - 1e-12)
        # By itself: along a curve the lower bound is held down by those at smaller epsilons.
        alone = audit.bounds(epsilon)
        promised.append((alone.lower, alone.estimate, alone.upper))
        accused.append(alone.lower > delta)
        # Without the checks, which take time and only ever take a pass back.
        failed.append(
            verdict(audit.risk, epsilon=epsilon, delta=min(delta + SLACK, 1.0), bounds_made=alone, checks_made=())
            == "fail"
        )
    lower, estimate, upper = np.moveaxis(np.array(found), 1, 0)
    above, below = upper >= truth - 1e-12, lower <= truth + 1e-12
    return {
        "epsilons": epsilons,
        "truth": truth,
        "lower": np.median(lower, axis=0),
        "estimate": np.mean(estimate, axis=0),
        "upper": np.median(upper, axis=0),
        "upper covers": above.mean(axis=0),
        "lower covers": below.mean(axis=0),
        "both": (above & below).mean(axis=0),
        "upper_i covers": np.array(covers_i).mean(axis=0).min(axis=0),
        "promised": np.array(promised),
        "accused": float(np.mean(accused)),
        "failed": float(np.mean(failed)),
    }


def tables(runs: int, databases: int, processes: int, names: str = "") -> None:
    jobs = [
        (is_sound, which, runs, databases)
        for is_sound, known in ((True, sound()), (False, broken()))
        for which, mechanism in enumerate(known)
        if names in mechanism.name
    ]
    print(f"{databases} databases, each one run of the mechanism on the same rows; {runs} audits of each; level 95%.\n")
    print("| mechanism | epsilon | true delta | mean estimate | median interval | upper holds, % | lower holds, % | "
          "both, % | worst upper_i, % |")  # fmt: skip
    print("|---" * 9 + "|", flush=True)
    found = []
    with ProcessPoolExecutor(processes) as pool:
        for job, figures in zip(jobs, pool.map(study, jobs, chunksize=1), strict=True):
            found.append((job, figures))
            if job[0]:
                _print_bounds(sound()[job[1]].name, figures)
    print(f"\nPromises. Accused: the lower bound at the promised epsilon exceeds the promised delta. "
          f"Failed: the verdict on the promised delta + {SLACK} is fail.\n")  # fmt: skip
    print("| mechanism | promise | true delta there | mean estimate | median interval | accused, % | failed, % |")
    print("|---" * 7 + "|")
    for (is_sound, which, _, _), figures in found:
        mechanism = (sound() if is_sound else broken())[which]
        epsilon, delta = mechanism.promise
        lower, estimate, upper = figures["promised"].T
        print(
            f"| {'' if is_sound else 'broken: '}{mechanism.name} | {epsilon:g}, {delta:.4f} "
            f"| {mechanism.delta(epsilon):.4f} | {estimate.mean():.4f} "
            f"| {np.median(lower):.3f} to {np.median(upper):.3f} "
            f"| {100 * figures['accused']:.1f} | {100 * figures['failed']:.1f} |"
        )


def _print_bounds(name: str, figures: dict[str, Any]) -> None:
    for k, epsilon in enumerate(figures["epsilons"]):
        shares = ("upper covers", "lower covers", "both", "upper_i covers")
        print(
            f"| {name if k == 0 else ''} | {epsilon:g} | {figures['truth'][k]:.4f} | {figures['estimate'][k]:.4f} "
            f"| {figures['lower'][k]:.3f} to {figures['upper'][k]:.3f} | "
            + " | ".join(f"{100 * figures[share][k]:.1f}" for share in shares)
            + " |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="audits of each mechanism")
    parser.add_argument("--databases", type=int, default=DATABASES, help="runs of the mechanism in an audit")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--name", default="", help="only mechanisms whose name holds this")
    parser.add_argument("--quick", action="store_true", help="two audits of 60 runs each: to see that it works")
    given = parser.parse_args()
    runs, databases = (2, 60) if given.quick else (given.runs, given.databases)
    tables(runs, databases, given.processes, given.name)


if __name__ == "__main__":
    main()
