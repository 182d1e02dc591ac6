"""How wrong delta is against an adversary who knows part of the data, and what everybody as an adversary costs.

Run: python benchmarks/adversary.py --error      bias/RMSE of delta at epsilon 0.1, times 1000, where the truth is known
     python benchmarks/adversary.py --rules      the same for other widths of the kernel in what is known
     python benchmarks/adversary.py --own        10,368 x 10,368 pairs over 41 databases, against the unpruned loop
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator

import numpy as np
import psutil
from scipy.stats import norm

from empriv import Buckets, Given, OwnContribution, Results, Weighted, datasets, measure_against
from empriv.measuring.given import adversaries as known
from empriv.measuring.given.adversaries import Adversary
from empriv.measuring.given.conditional import ViewSearch
from empriv.measuring.given.written_out import rows_of
from empriv.results import FloatArray

EPSILON, SHIFT = 0.1, 0.5


def normal(sd: float) -> float:
    """Hockey stick of two normal laws SHIFT apart."""
    s = SHIFT / sd
    return float(norm.cdf(s / 2 - EPSILON / s) - np.exp(EPSILON) * norm.cdf(-s / 2 - EPSILON / s))


def families(rng: np.random.Generator, n: int) -> Iterator[tuple[str, FloatArray, FloatArray, float, FloatArray]]:
    """Name, what is known, results, the true delta (the largest over what is known), and the influence."""
    same = np.full(n, SHIFT)
    g, e = rng.normal(size=n), rng.normal(size=n)
    yield "linear, normal", g, 3 * g + e, normal(1.0), same
    yield "linear, Laplace", g, 3 * g + rng.laplace(size=n), float(-np.expm1((EPSILON - SHIFT) / 2)), same
    yield "quadratic", g, 2 * g + 0.5 * g * g + e, normal(1.0), same
    skewed = np.exp(0.5 * g)
    yield "linear in a lognormal", skewed, 4 * skewed + e, normal(1.0), same
    u = rng.uniform(size=n)
    spread = 0.6 + 0.8 * u
    yield "spread 0.6 to 1.4", u, 6 * u + spread * e, normal(0.6), same
    yield "spread 0.6 to 1.4, influence too", u, 6 * u + spread * e, normal(1.0), SHIFT * spread
    bent = 0.6 + 0.8 * np.abs(2 * u - 1)
    yield "spread least in the middle", u, 6 * u + bent * e, normal(0.6), same
    yield "independent", g, e, normal(1.0), same


def errors(n: int, runs: int, *, others: bool) -> dict[str, FloatArray]:
    """(runs, methods) errors by family: weighted, and if ``others`` buckets, given and ignoring what is known."""
    found: dict[str, list[list[float]]] = {}
    for run in range(runs):
        for name, g, q, truth, influence in families(np.random.default_rng([n, run]), n):
            results = Results.from_arrays(q, (q - influence)[None])
            kinds: list[Adversary] = [Weighted(g), Buckets(g), Given(g)] if others else [Weighted(g)]
            risks = [measure_against(results, kind) for kind in kinds]
            deltas = [risk.delta(EPSILON) for risk in risks]
            if others:
                deltas.append(risks[0].unconditional.delta(EPSILON))
            found.setdefault(name, []).append([delta - truth for delta in deltas])
    return {name: np.array(rows) for name, rows in found.items()}


def said(column: FloatArray) -> str:
    return f"{1000 * column.mean():+.0f}/{1000 * np.sqrt((column**2).mean()):.0f}"


def error_table(runs: int) -> None:
    sizes = (41, 100, 365)
    tables = {n: errors(n, runs, others=True) for n in sizes}
    print(f"bias/RMSE of delta at epsilon {EPSILON}, times 1000, {runs} runs")
    print("| family | " + " | ".join(f"n={n}: weighted | buckets | given | ignored" for n in sizes) + " |")
    for name in tables[41]:
        cells = [said(tables[n][name][:, column]) for n in sizes for column in range(4)]
        print(f"| {name} | " + " | ".join(cells) + " |")


def rules(runs: int) -> None:
    chosen = known.WIDTH
    for width in (1.06, chosen, 2.0):
        known.WIDTH = width
        for n in (100, 365):
            found = errors(n, runs, others=False)
            print(f"width {width}, n={n}: " + ", ".join(f"{name} {said(rows[:, 0])}" for name, rows in found.items()))
    known.WIDTH = chosen


def own(epsilons: list[float]) -> None:
    """Times are processor time, of all threads together: others may use the machine too."""
    data = datasets.precipitation(0)
    results = Results.from_arrays(data.q, data.q_without)
    start = time.process_time()
    risk = measure_against(results, OwnContribution(data.annual))
    views = time.process_time() - start
    search = risk.search
    assert isinstance(search, ViewSearch)
    count = results.n_individuals
    print(f"{count:,} x {count - 1:,} pairs over {results.n_databases} databases")
    print(
        f"{search.n_conditions:,} conditions, {risk.left_out:,} left out; {risk.effective.max():.0f} databases at most"
    )
    print(f"views of all adversaries: {views:.1f} s of processor time, as all times here")
    # the unpruned loop: every individual under every condition, on a sample of columns drawn at random
    rng = np.random.default_rng(0)
    rows = np.sort(rng.choice(count, 64, replace=False))
    block = rows_of(results, search.pairs, rows)
    row, condition = rng.integers(0, 64, 20_000), rng.integers(0, search.n_conditions, 20_000)
    start = time.process_time()
    search.compute(block, row, condition, np.array([epsilons[0]]))
    whole = (time.process_time() - start) / 20_000 * search.n_conditions * (count - 1)
    print(f"unpruned, from 20,000 comparisons at random: {whole:,.0f} s ({whole / 3600:.1f} h)")
    for epsilon in epsilons:
        print("  said first: " + risk.cost(epsilon).sentence)
        start = time.process_time()
        delta = risk.delta(epsilon)
        took = time.process_time() - start
        print(
            f"epsilon {epsilon}: pruned {took:.1f} s, {whole / (took + views):,.0f} times faster with the views; "
            f"delta {delta:.4f}, knowing nothing {risk.unconditional.delta(epsilon):.4f}"
        )
        found = risk.delta_i(epsilon)
        checked = np.argsort(-found)[:2]
        for individual in checked:
            every = search.by_condition(int(individual), epsilon)
            same = (
                np.nanmax(every) == found[individual]
                and np.nanargmax(every) == risk.worst_condition(epsilon)[individual]
            )
            print(
                f"  all {np.isfinite(every).sum():,} conditions of one individual, unpruned: same result {bool(same)}"
            )
    for sample in (1000,):
        some = measure_against(results, OwnContribution(data.annual, sample=sample))
        start = time.process_time()
        delta = some.delta(epsilons[-1])
        print(f"sample={sample}, epsilon {epsilons[-1]}: {time.process_time() - start:.1f} s, delta {delta:.4f}")
    print(f"memory {psutil.Process().memory_info().rss / 1e6:,.0f} MB at the end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--error", action="store_true")
    parser.add_argument("--rules", action="store_true")
    parser.add_argument("--own", action="store_true")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 0.08])
    asked = parser.parse_args()
    if asked.error or not (asked.rules or asked.own):
        error_table(asked.runs)
    if asked.rules:
        rules(asked.runs)
    if asked.own:
        own(asked.epsilon)


if __name__ == "__main__":
    main()
