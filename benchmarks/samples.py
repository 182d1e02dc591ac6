"""Random samples of one table: what collecting costs, and whether an audit sees attacks that work.

    python benchmarks/samples.py              # both
    python benchmarks/samples.py --attacks    # attacks alone, half a minute

Cost: 1M rows of 100,000 people, 365 samples of half of them, against one GROUP BY of the same rows and the measure.

Attacks: somebody guesses whether a person is in the table, or was sampled. The person has one row far up and one as
far down, which the mean does not show and the variance does. Guesses are by a threshold that was learnt from other
runs. No guess is right more often than (1 + delta) / 2 at epsilon 0, which is what the audit prints beside it: the
estimate, and the upper bound.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import duckdb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

import empriv
from empriv.validate.covers import covered

PEOPLE, TARGET, FAR = 200, 0, 8.0
RUNS, GUESSES = 300, 4_000
ANSWERS = 100  # that somebody asks for, each with noise of its own
BUDGET = 0.25  # of mutual information, in nats
Column = npt.NDArray[np.float64]


def make_table(rng: np.random.Generator) -> pa.Table:
    """One row for each person, and two for the target."""
    values = rng.normal(0.0, 1.0, PEOPLE)
    who = np.append(np.arange(PEOPLE), TARGET)
    values = np.append(values, -FAR)
    values[TARGET] = FAR
    return pa.table({"who": who, "x": values})


def noisy_means(x: Column, rng: np.random.Generator, count: int) -> Column:
    """Means of secret halves, with noise by the variance of such means: PAC privacy's."""
    halves = rng.random((count, len(x))) < 0.5
    noise = rng.normal(0.0, np.sqrt(np.var(x) / len(x) / (2 * BUDGET)), count)
    return np.asarray(halves @ x / halves.sum(axis=1) + noise)


def noisy_mean(x: Column, rng: np.random.Generator) -> float:
    return float(noisy_means(x, rng, 1)[0])


def spread_of_means(x: Column, rng: np.random.Generator) -> float:
    return float(np.std(noisy_means(x, rng, ANSWERS)))


def sample_of(x: Column, who: npt.NDArray[np.int64], rng: np.random.Generator) -> tuple[Column, bool]:
    chosen = rng.random(PEOPLE) < 0.5
    return x[chosen[who]], bool(chosen[TARGET])


def guess_right(with_target: Column, without: Column) -> float:
    """How often a threshold, learnt on half of the runs, tells both apart on the other half."""
    half = len(with_target) // 2
    cuts = np.quantile(np.concatenate((with_target[:half], without[:half])), np.linspace(0, 1, 201))
    above = np.array([np.mean(with_target[:half] > cut) + np.mean(without[:half] <= cut) for cut in cuts]) / 2
    best = int(np.argmax(np.abs(above - 0.5)))
    right = (np.mean(with_target[half:] > cuts[best]) + np.mean(without[half:] <= cuts[best])) / 2
    return float(right if above[best] >= 0.5 else 1 - right)


def sampled_row(name: str, sql: str, statistic: Callable[[Column], float], table: pa.Table) -> None:
    """A statistic of a random half: is the target in it?"""
    x, who = table["x"].to_numpy(), table["who"].to_numpy()
    rng = np.random.default_rng(7)
    answers: dict[bool, list[float]] = {True: [], False: []}
    while min(map(len, answers.values())) < GUESSES // 2:
        rows, there = sample_of(x, who, rng)
        answers[there].append(statistic(rows))
    few = min(map(len, answers.values()))
    right = guess_right(np.array(answers[True][:few]), np.array(answers[False][:few]))
    data = empriv.subsamples(table, individual="who", count=RUNS, fraction=0.5)
    day = covered(empriv.audit(data, sql, known="nothing").risk, 0.0, 1.0)  # the target moves the answer most
    show(name, right, day.estimate, day.upper)


def mechanism_row(name: str, function: Callable[[Column, np.random.Generator], float], table: pa.Table) -> None:
    """A randomised answer from the whole table: is the target in it?"""
    x, who = table["x"].to_numpy(), table["who"].to_numpy()
    rng = np.random.default_rng(8)
    runs = [np.array([function(rows, rng) for _ in range(GUESSES // 4)]) for rows in (x, x[who != TARGET])]
    right = guess_right(runs[0], runs[1])
    data = empriv.repeats(table, individual="who", count=RUNS)
    audit = empriv.audit(data, lambda rows, rng: function(np.asarray(rows["x"]), rng), draws=1, jobs=1, known="nothing")
    show(name, right, audit.risk.delta_i(0.0)[TARGET], audit.risk.bounds(0.0).upper_i[TARGET])


def show(name: str, right: float, estimate: float, upper: float) -> None:
    print(f"{name:<44}{right:>9.1%}{(1 + estimate) / 2:>12.1%}{(1 + min(upper, 1)) / 2:>14.1%}")


def attacks() -> None:
    table = make_table(np.random.default_rng(0))
    print(f"{'what is published':<44}{'attack':>9}{'estimate':>12}{'at most':>14}")
    sampled_row("mean of a secret half", "avg(x)", lambda x: float(np.mean(x)), table)
    sampled_row("variance of a secret half", "var_samp(x)", lambda x: float(np.var(x, ddof=1)), table)
    mechanism_row("one mean with noise by its variance", noisy_mean, table)
    mechanism_row(f"spread of {ANSWERS} such means", spread_of_means, table)


def cost(rows: int, people: int, count: int) -> None:
    rng = np.random.default_rng(0)
    table = pa.table({"who": rng.integers(0, people, rows), "x": rng.lognormal(3.0, 1.0, rows)})
    with duckdb.connect() as connection:
        connection.register("t", table)
        bare = seconds(lambda: connection.execute("SELECT who, sum(x), count(*) FROM t GROUP BY who").fetchnumpy())
    data = empriv.subsamples(table, individual="who", count=count, fraction=0.5)
    results = []
    collecting = seconds(lambda: results.append(empriv.collect(data, "sum(x)")))
    measuring = seconds(lambda: empriv.measure(results[0]).delta(0.1))
    whole = collecting + measuring
    print(
        f"{rows:,} rows, {people:,} people, {count} samples: GROUP BY {bare:.2f} s, collecting {collecting:.2f} s, "
        f"measure {measuring:.2f} s; in all {whole / (bare + measuring):.2f} times GROUP BY and measure"
    )


def seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attacks", action="store_true", help="attacks alone")
    parser.add_argument("--rows", type=int, default=1_000_000)
    options = parser.parse_args()
    attacks()
    if not options.attacks:
        cost(options.rows, options.rows // 10, 365)


if __name__ == "__main__":
    main()
