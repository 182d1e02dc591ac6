"""How often `compare` calls a difference real: where there is none, and where there is one; and how long it takes.

    python benchmarks/compare.py [--quick] [--runs N] [--databases N] [--seconds]

Each run draws databases anew, two protocols on them, and asks for the difference at epsilon 0.1. A row prints the share
of runs in which it was called real (of six protocols: any of the 15 differences), for delta and for total risk, and in
which it was called real the wrong way. ``--seconds`` times eight protocols on 10,368 individuals and 41 databases
instead.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

import empriv
from empriv.results import FloatArray, Outcome, Results


def made(q: FloatArray, changed: FloatArray, curve: Callable[[FloatArray], FloatArray] = lambda x: x) -> Results:
    return Results.from_arrays(curve(q), curve(q - changed))


def missing(results: Results, rng: np.random.Generator) -> Results:
    """The same with one answer in five missing, with and without whoever it may be."""
    gone = rng.random(results.n_databases) < 0.2
    there = gone[results.entry_database]
    return replace(
        results,
        q=np.where(gone, np.nan, results.q),
        outcomes=np.where(gone, Outcome.NULL, results.outcomes).astype(np.int8),
        entry_q=np.where(there, np.nan, results.entry_q),
        entry_outcomes=np.where(there, Outcome.NULL, results.entry_outcomes).astype(np.int8),
    )


def case(name: str, n: int, seed: int) -> tuple[Results, ...]:
    """Protocols on the same databases; none is riskier than one before it."""
    rng = np.random.default_rng(seed)
    base = rng.normal(size=n)
    changed = rng.exponential(0.1, size=(20, 1)) * rng.exponential(1.0, size=(20, n))
    raw = made(base, changed)
    if name.startswith("same law, noise"):
        scale = 0.3 if "0.3" in name else 1.0
        return tuple(made(base + scale * rng.normal(size=n), changed) for _ in range(6 if "six" in name else 2))
    if name == "same law, heavy tails":
        return tuple(made(rng.standard_t(3, size=n), changed) for _ in range(2))
    if name == "same law, skewed":
        return tuple(made(rng.exponential(size=n), changed) for _ in range(2))
    if name == "same law, answers missing":
        return tuple(missing(made(base + rng.normal(size=n), changed), rng) for _ in range(2))
    if name == "same law, rounded":
        return tuple(made(np.round(2 * (base + rng.normal(size=n))), np.round(6 * changed)) for _ in range(2))
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
    "same law, noise 1", "same law, noise 0.3", "same law, noise 1, six of them", "same law, heavy tails",
    "same law, skewed", "same law, answers missing", "same law, rounded",
    "same delta, exp(answer)", "same delta, exp(2 answer)", "same delta, sinh(1.5 answer)",
    "same delta, cube root of answer",
)  # fmt: skip
SOME = ("influence halved", "influence three quarters", "influence clipped at 0.2", "noise of 1", "noise of 3")


def claims(name: str, n: int, runs: int) -> None:
    real, wrong = np.zeros(2, int), np.zeros(2, int)
    for run in range(runs):
        named = {f"protocol {k}": one for k, one in enumerate(case(name, n, 10_000 + run))}
        found = empriv.compare(named, epsilon=0.1, rng=run).differences(progress=False)
        for k, figure in enumerate(("delta", "total_risk")):
            called = [one for one in found if one.figure == figure and one.verdict == "real"]
            real[k] += bool(called)
            wrong[k] += any(one.difference < 0 for one in called)
    shares = " ".join(f"{count / runs:>9.1%}" for count in (*real, *wrong))
    print(f"{name:<34} {n:>5} {runs:>5} {shares}", flush=True)


def seconds() -> None:
    """Eight protocols on as many individuals and databases as the paper has."""
    rng = np.random.default_rng(0)
    n, m = 41, 10_368
    base, changed = 50 * rng.normal(size=n), rng.exponential(1.0, size=(m, n))
    several = {f"protocol {k}": made(base + 5 * k * rng.normal(size=n), changed / (1 + 0.2 * k)) for k in range(8)}
    grid = np.array([0.05, 0.1])
    comparison = empriv.compare(several, epsilon=(0.05, 0.1), truth="protocol 0")

    def singly() -> None:
        for results in several.values():
            empriv.measure(results).delta_i(grid)

    tasks: dict[str, Callable[[], object]] = {
        "8 single measures": singly,
        "figures, errors": lambda: (comparison.delta(grid), comparison.total_risk(grid), comparison.utility),
        "differences": lambda: comparison.differences(progress=False),
        "bounds": lambda: comparison.bounds(grid),
    }
    print("8 protocols, 10,368 individuals, 41 databases, 2 epsilons: seconds, and as a multiple of 8 single measures")
    print(f"{'':<20} {'elapsed':>8} {'times':>6} {'processor':>10} {'times':>6}")
    first = None
    for what, task in tasks.items():
        began, used = time.perf_counter(), time.process_time()
        task()
        took = time.perf_counter() - began, time.process_time() - used
        first = first or took
        print(f"{what:<20} {took[0]:>8.2f} {took[0] / first[0]:>6.1f} {took[1]:>10.2f} {took[1] / first[1]:>6.1f}")


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
    print(f"{'protocols':<34} {'n':>5} {'runs':>5} {'delta':>9} {'total':>9} {'delta':>9} {'total':>9}")
    for name in (*NONE, *SOME):
        claims(name, given.databases, runs)


if __name__ == "__main__":
    main()
