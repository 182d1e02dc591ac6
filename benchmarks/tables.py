"""How well the judge covers on whole tables whose truth is known, and what a large table costs.

    python benchmarks/tables.py [--runs 20] [--cells 5 20 100] [--only TEXT]
    python benchmarks/tables.py --noise [--runs 20]
    python benchmarks/tables.py --speed [--people 10000 --cells 100 --databases 365]

A run draws 365 tables of a law of `table_families.py` with one person in all of them, who moves one cell or two by .3
and .2 of what is left of it. Printed for each row, at epsilon .1: the truth on a day that they are in; the share of
runs in which the upper bound of the day is above it, and in which the lower one is not; upper bound over truth
(median); the share of runs in which a check rules out a pass; and the share of false passes, in which the verdict at a
delta just below the truth is "pass". `--noise` asks the same of independent cells with
Laplace noise of .15 and .5 standard deviations, where the truth comes from a large sample.
"""

from __future__ import annotations

import argparse
import resource
import time
import zlib
from typing import Any

import numpy as np

import empriv
from empriv.judge import score
from empriv.judge.noise_kernels import NoiseKernel
from empriv.validate.verdict import verdict
from table_families import Family

EPSILON, DELTA, N = 0.1, 0.05, 365
LAWS = ("normal factors", "Student 3 factors", "Laplace factors", "gamma 2 factors",
        "exponential factors (hard edge)", "two peaks factors")  # fmt: skip
PEOPLE = ("one cell", "two cells")
ERROR = 0.0025  # standard error of a truth


def coverage(runs: int, cells: list[int], only: str | None) -> None:
    print(
        f"{'law':32s} {'cells':>5s}  {'person':10s} truth  upper holds  lower holds  upper/truth  objects  false pass"
    )
    short, asked, wrong = [], 0, 0
    for law in LAWS:
        for d in cells:
            for who in PEOPLE:
                name = f"{law:32s} {d:5d}  {who:10s}"
                if only is not None and only not in " ".join(name.split()):
                    continue
                family = Family(law, d, who)
                truth = family.truths(EPSILON)[0]
                upper, lower, objects, passes = [], [], [], []
                for run in range(runs):
                    risk = empriv.measure(family.draw(np.random.default_rng([zlib.crc32(name.encode()), run]), N))
                    judged = verdict(risk, epsilon=EPSILON, delta=truth - ERROR)
                    assert judged.day is not None
                    upper.append(judged.day.upper)
                    lower.append(judged.day.lower)
                    objects.append(any(c.severity == "error" and c.code == "residuals" for c in judged.checks))
                    passes.append(judged == "pass")
                holds, below = np.mean(np.array(upper) >= truth - ERROR), np.mean(np.array(lower) <= truth + ERROR)
                asked, wrong = asked + runs, wrong + sum(passes)
                if holds < 0.95:
                    short.append(f"{' '.join(name.split())}: {holds:.2f}")
                print(
                    f"{name} {truth:.3f}  {holds:11.2f}  {below:11.2f}  {np.median(upper) / truth:11.2f}  "
                    f"{np.mean(objects):7.2f}  {np.mean(passes):10.2f}",
                    flush=True,
                )
    print(f"false passes: {wrong} of {asked} runs ({wrong / max(asked, 1):.1%})")
    print(f"upper bound short of 0.95: {'; '.join(short) if short else 'nowhere'}")


DRAWN: dict[str, Any] = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "Student 3": lambda rng, shape: rng.standard_t(3, shape) / np.sqrt(3),
    "Laplace": lambda rng, shape: rng.laplace(size=shape) / np.sqrt(2),
    "gamma 2": lambda rng, shape: rng.gamma(2, size=shape) / np.sqrt(2),
    "exponential": lambda rng, shape: rng.exponential(size=shape),
    "two peaks": lambda rng, shape: (rng.choice([-1.5, 1.5], shape) + 0.5 * rng.normal(size=shape)) / np.sqrt(2.5),
}


def with_noise(runs: int) -> None:
    """The score of several cells with noise, of independent cells."""
    print(f"{'law':12s} cells  noise  truth  upper holds  lower holds  upper/truth")
    for law, draw in DRAWN.items():
        for d in (2, 5):
            for scale in (0.15, 0.5):
                move, kernels = np.full(d, 0.15), [NoiseKernel("laplace", scale)] * d

                def one_of(x: Any, move: Any = move, kernels: Any = kernels, d: int = d) -> score.Innovations:
                    return score.innovations(x, np.eye(d), move, kernels)

                truth = score.estimate(one_of(draw(np.random.default_rng(99), (20_000, d))), EPSILON)
                found = []
                for run in range(runs):
                    one = one_of(draw(np.random.default_rng(run), (N, d)))
                    left = np.array([score.alone_of(kernels, move, EPSILON)])
                    found.append((score.upper(one, EPSILON, noise_leaves=left)[0], score.lower(one, EPSILON)))
                upper, lower = np.array(found).T
                print(
                    f"{law:12s} {d:5d}  {scale:5.2f}  {truth:.3f}  {np.mean(upper >= truth):11.2f}  "
                    f"{np.mean(lower <= truth):11.2f}  {np.median(upper) / truth:11.2f}",
                    flush=True,
                )


def large_table(people: int, cells: int, databases: int, seed: int = 0) -> empriv.Results:
    """Everybody is in one to three cells, in one of eight databases on average, and adds a lognormal amount."""
    rng = np.random.default_rng(seed)
    habits = rng.integers(0, cells, (people, 3))
    width = rng.choice([1, 2, 3], people, p=[0.7, 0.2, 0.1])
    share = rng.beta(0.5, 3.5, people)
    there = rng.random((people, databases)) < share[:, None]
    owner, day = np.nonzero(there)
    added = np.zeros((len(owner), cells), np.float64)
    for k in range(3):
        active = width[owner] > k
        at = np.flatnonzero(active)
        added[at, habits[owner[at], k]] += rng.lognormal(0.0, 1.0, len(at))
    q = np.zeros((databases, cells))
    np.add.at(q, day, added)
    np.subtract(q[day], added, out=added)
    return empriv.Results(
        q=q,
        outcomes=np.zeros(q.shape, np.int8),
        databases=np.arange(databases),
        individuals=np.arange(people),
        starts=np.concatenate(([0], np.cumsum(there.sum(axis=1)))).astype(np.int64),
        entry_database=day.astype(np.int32),
        entry_q=added,
        entry_outcomes=np.zeros(added.shape, np.int8),
        components=tuple(f"c{k}" for k in range(cells)),
        ordered=False,
    )


def speed(people: int, cells: int, databases: int) -> None:
    """Processor seconds and memory of a large table: measure, verdict with cover, noise."""
    results = large_table(people, cells, databases)
    print(f"{people:,} people, {cells} cells, {databases} databases: {len(results.entry_database):,} person-days; "
          f"{_memory():.2f} GB before")  # fmt: skip
    start = time.process_time()
    audit = empriv.audit(results, epsilon=EPSILON)
    verdict = audit.verdict(epsilon=EPSILON, delta=DELTA)
    print(f"measure and verdict with cover: {time.process_time() - start:.1f} s; {_memory():.2f} GB at most; {verdict}")
    start = time.process_time()
    noise = empriv.design_noise(audit, epsilon=EPSILON, delta=DELTA, granularity=2.0**-6)
    print(f"noise: {time.process_time() - start:.1f} s; {_memory():.2f} GB at most; {noise.achieved_delta():.3f}")


def _memory() -> float:
    """GB that the process held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--cells", type=int, nargs="+", default=None)
    parser.add_argument("--only", help="rows that contain this text")
    parser.add_argument("--noise", action="store_true", help="independent cells with noise")
    parser.add_argument("--speed", action="store_true", help="seconds and memory of a large table")
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--databases", type=int, default=365)
    given = parser.parse_args()
    if given.speed:
        speed(given.people, (given.cells or [100])[0], given.databases)
    elif given.noise:
        with_noise(given.runs)
    else:
        coverage(given.runs, given.cells or [5, 20, 100], given.only)


if __name__ == "__main__":
    main()
