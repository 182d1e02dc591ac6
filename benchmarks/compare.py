"""How often `compare` calls a difference real: where there is none, and where there is one; and how long it takes.

    python benchmarks/compare.py [--quick] [--runs N] [--databases N] [--seconds]

Each run draws databases anew, two protocols on them, and asks for the difference at epsilon 0.1 by halves. A row prints
the share of runs in which it was called real, for delta and for total risk, and in which the wrong one of the two was
called the riskier. ``--seconds`` times eight protocols on 10,368 individuals and 41 databases instead.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable

import numpy as np

import empriv
from empriv.results import FloatArray, Results

Pair = tuple[Results, Results]


def made(q: FloatArray, changed: FloatArray, curve: Callable[[FloatArray], FloatArray] = lambda x: x) -> Results:
    return Results.from_arrays(curve(q), curve(q - changed))


def case(name: str, n: int, seed: int) -> Pair:
    """Two protocols on the same databases; the second is never the riskier."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n)
    changed = rng.exponential(0.1, size=(20, 1)) * rng.exponential(1.0, size=(20, n))
    raw = made(base, changed)
    if name.startswith("same law, noise"):
        scale = 0.3 if "0.3" in name else 1.0
        first, second = (made(base + scale * rng.normal(size=n), changed) for _ in range(2))
        return first, second
    if name == "same law, heavy tails":
        first, second = (made(rng.standard_t(3, size=n), changed) for _ in range(2))
        return first, second
    if name == "same law, skewed":
        first, second = (made(rng.exponential(size=n), changed) for _ in range(2))
        return first, second
    curves: dict[str, Callable[[FloatArray], FloatArray]] = {
        "same delta, exp(answer)": np.exp,
        "same delta, exp(2 answer)": lambda x: np.exp(2 * x),
        "same delta, sinh(1.5 answer)": lambda x: np.sinh(1.5 * x),
        "same delta, cube root of answer": np.cbrt,
    }
    if name in curves:
        return raw, made(base, changed, curves[name])
    if name == "influence halved":
        return raw, made(base, changed / 2)
    if name == "influence three quarters":
        return raw, made(base, 0.75 * changed)
    if name == "influence clipped at 0.2":
        return raw, made(base, np.minimum(changed, 0.2))
    scale = float(name.removeprefix("noise of ").split()[0])
    return raw, made(base + scale * rng.normal(size=n), changed)


NONE = (
    "same law, noise 1", "same law, noise 0.3", "same law, heavy tails", "same law, skewed",
    "same delta, exp(answer)", "same delta, exp(2 answer)", "same delta, sinh(1.5 answer)",
    "same delta, cube root of answer",
)  # fmt: skip
SOME = ("influence halved", "influence three quarters", "influence clipped at 0.2", "noise of 1", "noise of 3")


def claims(name: str, n: int, runs: int) -> None:
    real, wrong = np.zeros(2, int), np.zeros(2, int)
    for run in range(runs):
        first, second = case(name, n, 10_000 + run)
        found = empriv.compare({"first": first, "second": second}, epsilon=0.1, rng=run).differences(progress=False)
        for k, one in enumerate(found):
            real[k] += one.verdict == "real"
            wrong[k] += one.verdict == "real" and one.difference < 0
    shares = " ".join(f"{count / runs:>9.1%}" for count in (*real, *wrong))
    print(f"{name:<34} {n:>5} {runs:>5} {shares}", flush=True)


def seconds() -> None:
    """Eight protocols on as many individuals and databases as the paper has."""
    rng = np.random.default_rng(0)
    n, m = 41, 10_368
    base, changed = 50 * rng.normal(size=n), rng.exponential(1.0, size=(m, n))
    several = {f"protocol {k}": made(base + 5 * k * rng.normal(size=n), changed / (1 + 0.2 * k)) for k in range(8)}
    grid = np.array([0.05, 0.1])
    began = time.perf_counter()
    for results in several.values():
        empriv.measure(results).delta_i(grid)
    single = time.perf_counter() - began
    began = time.perf_counter()
    comparison = empriv.compare(several, epsilon=(0.05, 0.1), truth="protocol 0")
    comparison.delta(grid), comparison.total_risk(grid), comparison.utility
    figures = time.perf_counter() - began
    began = time.perf_counter()
    comparison.differences()
    judged = time.perf_counter() - began
    began = time.perf_counter()
    comparison.bounds(grid)
    bounded = time.perf_counter() - began
    print("8 protocols, 10,368 individuals, 41 databases, 2 epsilons: seconds, and as a multiple of 8 single measures")
    for what, took in (("8 single measures", single), ("figures, errors", figures), ("differences", judged),
                       ("bounds", bounded)):  # fmt: skip
        print(f"{what:<20} {took:>7.2f} {took / single:>6.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 runs of each row")
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--databases", type=int, default=41)
    parser.add_argument("--seconds", action="store_true")
    given = parser.parse_args()
    warnings.filterwarnings("ignore", "overflow encountered", RuntimeWarning)  # of the figures on exp(2 answer)
    if given.seconds:
        seconds()
        return
    runs = 3 if given.quick else given.runs
    print(f"{'':<46} {'called real':>19} {'the wrong way':>19}")
    print(f"{'two protocols':<34} {'n':>5} {'runs':>5} {'delta':>9} {'total':>9} {'delta':>9} {'total':>9}")
    for name in (*NONE, *SOME):
        claims(name, given.databases, runs)


if __name__ == "__main__":
    main()
