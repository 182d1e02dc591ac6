"""Noise designs: promises kept where the truth is known, errors beside classical noise and the ideal, time.

    python benchmarks/noise.py [--quick] [--part kept|time] [--runs R]

Laws, influences, presence and sizes are those of `judge_families.py`. One person adds something in a share of the
databases; the results without noise have a true delta of 1.5 or 3 times the target given that the person is there. A
promise is kept if the true delta of the days that are released (nobody moves the answer by more than the cover), with
the discrete law that is drawn, is at most the target.
The ideal is the least Laplace noise if the law were known. Prints Markdown tables; all seeds are fixed.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict

import numpy as np

import empriv
from empriv.noise.design import classical_noise, design_noise
from judge_families import COUNTS, INFLUENCES, PLAIN, PRESENCE, SIZES, STRUCTURED, Law, true_delta

DELTA = 0.05
SEVERAL = (1.5, 3.0)  # times the target, without noise


def mean_influence(law: Law, shape: str, epsilon: float, wanted: float) -> float:
    """The mean influence at which the true delta on the day is what is wanted, next to no noise being added."""
    low, high = 1e-4 * law.sd, 40 * law.sd
    for _ in range(14):
        middle = float(np.sqrt(low * high))
        told = true_delta(law, epsilon, law.unit / 8, INFLUENCES[shape](middle))
        low, high = (middle, high) if told < wanted else (low, middle)
    return high


def drawn(law: Law, shape: str, mean: float, presence: float, n: int, rng: np.random.Generator) -> empriv.Risk:
    values, shares = INFLUENCES[shape](mean)
    others = law.draw(rng, n)
    there = rng.random(n) < presence
    there[rng.integers(n)] = True
    added = np.where(there, rng.choice(values, n, p=shares), 0.0)
    risk = empriv.measure(others + added, others[None])
    assert isinstance(risk, empriv.Risk)
    return risk


def ideal(law: Law, shape: str, mean: float, epsilon: float) -> float:
    low, high = 1e-3 * law.sd, 100 * law.sd
    for _ in range(12):
        middle = float(np.sqrt(low * high))
        told = true_delta(law, epsilon, middle, INFLUENCES[shape](mean))
        low, high = (middle, high) if told > DELTA else (low, middle)
    return high


def kept(laws: tuple[Law, ...], runs: int, epsilons: tuple[float, ...]) -> None:
    print("| epsilon | n | there | influence | designs | kept | error over classical | over the ideal |")
    print("|---|---|---|---|---|---|---|---|")
    table: dict[tuple[float, int, float, str], list[tuple[bool, float, float]]] = defaultdict(list)
    by_law: dict[str, list[bool]] = defaultdict(list)
    for place, law in enumerate(laws):
        for epsilon in epsilons:
            for shape in INFLUENCES:
                for times in SEVERAL:
                    mean = mean_influence(law, shape, epsilon, times * DELTA)
                    best = ideal(law, shape, mean, epsilon)
                    for n in SIZES:
                        for presence in PRESENCE:
                            for run in range(runs):
                                rng = np.random.default_rng([place, n, run, int(1000 * presence), int(10 * times)])
                                risk = drawn(law, shape, mean, presence, n, rng)
                                step = 2.0 ** np.floor(np.log2(max(best / 16, law.unit)))
                                noise = design_noise(risk, epsilon=epsilon, delta=DELTA, granularity=step)
                                values, shares = INFLUENCES[shape](mean)
                                out = values <= noise.cover * (1 + 1e-9)  # days beyond are refused at the release
                                told = (values[out], shares[out] / shares[out].sum()) if out.any() else None
                                truth = 0.0
                                if told is not None:
                                    truth = true_delta(law, epsilon, noise.scale, told, noise.kernel, noise.step)
                                usual = classical_noise(noise)
                                assert usual is not None
                                row = (truth <= DELTA, noise.expected_error / usual.error, noise.expected_error / best)
                                table[epsilon, n, presence, shape].append(row)
                                by_law[law.name].append(row[0])
    for key, rows in table.items():
        good, over, above = (np.array(column, float) for column in zip(*rows, strict=True))
        told = " | ".join(map(str, key))
        print(f"| {told} | {len(rows)} | {good.mean():.2f} | {np.median(over):.2f} | {np.median(above):.2f} |")
    print("\nBy law: " + "; ".join(f"{name} {np.mean(values):.2f}" for name, values in by_law.items()) + ".")


def timed() -> None:
    rng = np.random.default_rng(0)
    q = rng.normal(1000.0, 50.0, 365)
    risk = empriv.measure(q, q - rng.exponential(1.0, (10_000, 365)) * (rng.random((10_000, 365)) < 0.3))
    print("\nLeast noise for 10,000 people in 365 databases\n")
    print("| epsilon | delta | kernel | scale | seconds | processor seconds |")
    print("|---|---|---|---|---|---|")
    for epsilon, delta in ((0.1, 0.05), (0.1, 0.01), (1.0, 0.05), (1.0, 0.01)):
        start, used = time.perf_counter(), time.process_time()
        noise = design_noise(risk, epsilon=epsilon, delta=delta, granularity=0.125)
        took, used = time.perf_counter() - start, time.process_time() - used
        print(f"| {epsilon:g} | {delta:g} | {noise.kernel} | {noise.scale:.3g} | {took:.1f} | {used:.1f} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=("kept", "time"), action="append")
    parser.add_argument("--runs", type=int, default=4)
    arguments = parser.parse_args()
    parts = arguments.part or ["kept", "time"]
    laws = (*PLAIN, *STRUCTURED, *COUNTS)
    if arguments.quick:
        laws = tuple(law for law in laws if law.name in ("normal", "gamma 2", "comb .25", "Poisson 300"))
    if "kept" in parts:
        kept(laws, 1 if arguments.quick else arguments.runs, (0.1,) if arguments.quick else (0.1, 1.0))
    if "time" in parts:
        timed()


if __name__ == "__main__":
    main()
