"""How often the tests for independent, identically distributed databases alarm, of `docs/judge.md`.

python benchmarks/iid_tests.py [--runs 200]
"""

from __future__ import annotations

import argparse
import math
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from empriv.measuring.given.iid_tests import POWER_SIZES, iid_tests
from empriv.results import FloatArray

KINDS = ("none", "lognormal", "tied", "trend", "serial", "shift", "spread")


def departing(rng: np.random.Generator, n: int, kind: str) -> FloatArray:
    """Two series, the first departing from i.i.d."""
    z, t = rng.normal(size=n), np.linspace(0, 1, n)
    if kind == "trend":
        z += t
    elif kind == "serial":
        for j in range(1, n):
            z[j] = 0.3 * z[j - 1] + math.sqrt(1 - 0.09) * z[j]
    elif kind == "shift":
        z += t > 0.5
    elif kind == "spread":
        z *= 2**t
    elif kind == "lognormal":
        z = np.exp(z)
    elif kind == "tied":
        z = np.round(z)
    return np.stack((z, rng.normal(size=n)))


def alarms(job: tuple[str, int, int]) -> float:
    kind, n, runs = job
    rng = np.random.default_rng([len(kind), n])
    return float(np.mean([iid_tests(departing(rng, n, kind), permutations=299, rng=k).p <= 0.05 for k in range(runs)]))


def batteries(runs: int, processes: int) -> None:

    jobs = [(kind, n, runs) for kind in KINDS for n in POWER_SIZES]
    with ProcessPoolExecutor(processes) as pool:
        shares = dict(zip(jobs, pool.map(alarms, jobs), strict=True))
    print(f"\nBattery on two series at the 5% level, {runs} runs, 299 permutations: share of alarms, %")
    print("(none, lognormal, tied: size; trend of 1 sd, AR(1) 0.3, shift of 1 sd half-way, spread doubling: power)\n")
    print("| | " + " | ".join(f"n={n}" for n in POWER_SIZES) + " |")
    print("|---" * (len(POWER_SIZES) + 1) + "|")
    for kind in KINDS:
        print(f"| {kind} | " + " | ".join(f"{100 * shares[kind, n, runs]:.0f}" for n in POWER_SIZES) + " |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=200, help="for each kind and n")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    batteries(arguments.runs, arguments.jobs)


if __name__ == "__main__":
    main()
