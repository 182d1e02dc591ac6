"""Speed and accuracy of `empriv.measure`, as ratios within one run. Run: python benchmarks/measure.py

Work: the synthetic precipitation data, 10,368 individuals in 41 databases. Peers do the same work their own way, on
a sample of the individuals where they are slow, and their time is scaled up. The floor is one pass of `np.exp` over
an (individuals, 2n) array.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np
import psutil

import empriv
from empriv import datasets
from empriv.results import FloatArray

POINTS = 4096
EPSILONS = np.linspace(0.004, 0.2, 50)


def fastest(work: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def hockey_sticks(p: FloatArray, p_i: FloatArray, x: FloatArray, epsilons: FloatArray) -> FloatArray:
    """Both directions by the trapezoid rule, the larger one: (rows, epsilons)."""
    out = np.empty((len(p_i), len(epsilons)))
    for column, e in enumerate(np.exp(epsilons)):
        one = np.trapezoid(np.maximum(p - e * p_i, 0.0), x, axis=1)
        other = np.trapezoid(np.maximum(p_i - e * p, 0.0), x, axis=1)
        out[:, column] = np.maximum(one, other)
    return out


def trapezoid(q: FloatArray, without: FloatArray, h: float, x: FloatArray) -> FloatArray:
    p = (np.exp(-np.abs(x[:, None] - q) / h).sum(1) / (2 * h * len(q)))[None]
    rows = [np.exp(-np.abs(x[:, None] - q_i) / h).sum(1) / (2 * h * len(q)) for q_i in without]
    return hockey_sticks(p, np.array(rows), x, EPSILONS)


def scikit_learn(q: FloatArray, without: FloatArray, h: float, x: FloatArray) -> FloatArray:
    from sklearn.neighbors import KernelDensity

    def density(sample: FloatArray) -> FloatArray:
        fitted = KernelDensity(kernel="exponential", bandwidth=h).fit(sample[:, None])
        return np.asarray(np.exp(fitted.score_samples(x[:, None])))

    return hockey_sticks(density(q)[None], np.array([density(q_i) for q_i in without]), x, EPSILONS)


def kdepy(q: FloatArray, without: FloatArray, h: float, x: FloatArray) -> FloatArray:
    from KDEpy import FFTKDE

    # FFTKDE's bandwidth is the standard deviation: sqrt(2) times the Laplace scale
    def density(sample: FloatArray) -> FloatArray:
        return np.asarray(FFTKDE(kernel="exponential", bw=h * np.sqrt(2)).fit(sample).evaluate(x))

    return hockey_sticks(density(q)[None], np.array([density(q_i) for q_i in without]), x, EPSILONS)


def against_peers() -> None:
    data = datasets.precipitation(0)
    q, without = data.q, data.q_without
    h = empriv.measure(q, without).density.bandwidth  # type: ignore[union-attr]
    x = np.linspace(min(q.min(), without.min()) - 30 * h, max(q.max(), without.max()) + 30 * h, POINTS)
    ours = empriv.measure(q, without).delta_i(EPSILONS)
    own = fastest(lambda: empriv.measure(q, without).delta_i(EPSILONS), 7)
    sample = np.argsort(-ours[:, 0])[:: len(ours) // 64][:64]
    exact = ours[sample]
    print(
        f"{len(without):,} individuals x {len(q)} databases, "
        f"{len(EPSILONS)} epsilons from {EPSILONS[0]} to {EPSILONS[-1]}"
    )
    print(f"{'':28}{'time':>12}{'ratio':>10}{'largest error':>16}")
    print(f"{'empriv':28}{1000 * own:9.1f} ms{1:10.1f}{'(exact)':>16}")
    for name, peer in (("numpy trapezoid, 4,096 points", trapezoid), ("scikit-learn", scikit_learn), ("KDEpy", kdepy)):
        seconds = fastest(lambda peer=peer: peer(q, without[sample], h, x), 2) * len(without) / len(sample)
        error = np.abs(peer(q, without[sample], h, x) - exact).max()
        print(f"{name:28}{1000 * seconds:9.0f} ms{seconds / own:10.0f}{error:16.1e}")


def against_floor() -> None:
    data = datasets.precipitation(0)
    q, without = data.q, data.q_without
    block = np.random.default_rng(0).normal(size=(len(without), 2 * len(q)))
    floor = fastest(lambda: np.exp(block), 50)
    print(f"\nfloor: np.exp over {block.shape}: {1000 * floor:.2f} ms")

    def ratio(epsilon: object, density: object = None, repeats: int = 15) -> float:
        work = lambda: empriv.measure(q, without, density=density).delta_i(epsilon)  # type: ignore[arg-type] # noqa: E731
        return fastest(work, repeats) / floor

    risk = empriv.measure(q, without)
    print("Laplace kernel, ratio to the floor (and the share of individuals that no screening clears):")
    for epsilon in (0.1, 0.05, 0.02, 0.0):
        share = np.mean(risk.shifts > epsilon)
        print(f"  one epsilon, {epsilon:<5} {ratio(epsilon):7.1f}   ({share:.1%})")
    print(f"  fifty epsilons     {ratio(EPSILONS):7.1f}   ({np.mean(risk.shifts > EPSILONS[0]):.1%} at the smallest)")
    print("Other densities at fifty epsilons, ratio to the Laplace path:")
    base = ratio(EPSILONS)
    for density in (
        empriv.Kde("gaussian"),
        empriv.VariableKde("gaussian"),
        empriv.Kde("logistic"),
        empriv.Kde("student"),
        empriv.Kde("epanechnikov"),
        empriv.VariableKde("laplace"),
    ):
        print(f"  {density!s:95} {ratio(EPSILONS, density, 1) / base:6.1f}")


def sparse(individuals: int, databases: int = 365, present: int = 5) -> None:
    """Many individuals, each in a few databases: memory stays bounded and time is linear."""
    print(f"\n{databases} databases, each individual in {present}, 20 epsilons from 0.02 to 0.4")
    epsilons = np.linspace(0.02, 0.4, 20)
    sizes, times = [], []
    for count in (individuals // 8, individuals // 4, individuals // 2, individuals):
        rng = np.random.default_rng(1)
        q = rng.normal(size=databases)
        where = np.sort(rng.integers(0, databases - present + 1, (count, present)), axis=1) + np.arange(present)
        influence = rng.lognormal(-4.5, 1.0, (count, 1)) * rng.lognormal(0.0, 0.3, (count, present))
        results = empriv.Results(
            q=q,
            outcomes=np.zeros(databases, np.int8),
            databases=np.arange(databases),
            individuals=np.arange(count),
            starts=np.arange(0, count * present + 1, present),
            entry_database=where.ravel().astype(np.int32),
            entry_q=(q[where] - influence).ravel(),
            entry_outcomes=np.zeros(count * present, np.int8),
        )
        start = time.perf_counter()
        risk = empriv.measure(results)
        risk.delta_i(epsilons)
        times.append(time.perf_counter() - start)
        sizes.append(count)
        memory = psutil.Process().memory_info().rss / 2**30
        print(
            f"  {count:>9,} individuals {times[-1]:7.2f} s, "
            f"{np.mean(risk.shifts > 0.02):.0%} not screened, {memory:.2f} GB"
        )
        del results, risk
    slope = np.polyfit(np.log(sizes), np.log(times), 1)[0]
    print(f"  slope of log time against log individuals: {slope:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--individuals", type=int, default=1_000_000, help="of the sparse case")
    arguments = parser.parse_args()
    against_peers()
    against_floor()
    sparse(arguments.individuals)


if __name__ == "__main__":
    main()
