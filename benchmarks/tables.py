"""Coverage of the upper bound on whole tables, on laws whose truth is known, and what a large table costs.

    python benchmarks/tables.py [--quick] [--runs 20] [--only TEXT] [--untouched] [--alarms]
    python benchmarks/tables.py --speed [--people 10000 --cells 100 --databases 365]

A run draws n tables of a law of `table_families.py`, with one person in them, and compares the upper bounds at 95% and
epsilon 0.1 with the truth, which comes from the known law. Printed for each row, on a day when the person is there and
on a random day: truth, share of runs that the upper bound covers, upper bound over truth (median), estimate over truth
(median). Last, the share of runs in which a check stops the pass: where it does, nobody is told that the bound holds.
`--alarms` prints that share alone, by check. No upper bound is the bound 1, which covers.
"""

from __future__ import annotations

import argparse
import resource
import time
import zlib
from collections import Counter
from dataclasses import dataclass

import numpy as np

import empriv
from table_families import CHOSEN, PEOPLE, UNTOUCHED, Family

EPSILON = 0.1
SHOWN = 1e-3  # ratios to a truth below say nothing


@dataclass(frozen=True)
class Row:
    """One row: a family on n databases."""

    family: Family
    n: int

    def __str__(self) -> str:
        family = self.family
        return f"{family.law_name:32s} {family.d:4d} {self.n:4d}  {family.who:23s} {family.published:32s}"


def rows(*, quick: bool, untouched: bool, only: str | None) -> list[Row]:
    """The rows of the table: sizes, then kinds of people, then what is published."""
    if untouched:
        out = [
            Row(Family(name, 20, who), 365) for name in UNTOUCHED for who in ("one cell", "two cells", "rarely there")
        ]
        out += [Row(Family(name, 20, "one cell"), 100) for name in UNTOUCHED]
    elif quick:
        out = [Row(Family(name, 10, "one cell"), 100) for name in ("normal", "gamma 2 factors", "counts, means 2")]
        out += [Row(Family("Student 3 factors", 10, who), 100) for who in PEOPLE]
        out += [Row(Family("normal", 10, "one cell", published), 100) for published in PUBLISHED_OTHERWISE]
    else:
        sizes = [(10, 100), (50, 100), (10, 365), (50, 365), (100, 365), (200, 365)]
        out = [Row(Family(name, d, "one cell"), n) for name in CHOSEN for d, n in sizes]
        people = [name for name in CHOSEN if "(" not in name]
        out += [Row(Family(name, 20, who), 365) for name in people for who in PEOPLE[1:]]
        out += [
            Row(Family("normal", 10, who, published), 365) for published in PUBLISHED_OTHERWISE for who in PEOPLE[:2]
        ]
    return [row for row in out if only is None or only in " ".join(str(row).split())]


PUBLISHED_OTHERWISE = ("with margins", "one cell hidden, total published")


@dataclass(frozen=True)
class Run:
    """What was found in one run: estimate and upper bound, there and on a random day, and what objects to a pass."""

    there: float
    there_upper: float
    random_day: float
    random_day_upper: float
    objections: tuple[str, ...]


def measured(results: empriv.Results, *, alarms: bool = False) -> Run:
    """As anybody would measure it."""
    risk = empriv.measure(results)
    objections = tuple(check.code for check in empriv.checks(risk, EPSILON) if check.severity == "error")
    if alarms:
        return Run(0, 1, 0, 1, objections)
    random_day, there = empriv.bounds(risk, EPSILON), empriv.bounds(risk.given_presence(), EPSILON)
    return Run(there.estimate, there.upper, random_day.estimate, random_day.upper, objections)


def drawn(row: Row, run: int) -> empriv.Results:
    """The same tables whatever else is asked for."""
    return row.family.draw(np.random.default_rng([zlib.crc32(str(row).encode()), run]), row.n)


HEAD = (
    f"{'law':32s} {'cells':>4s} {'n':>4s}  {'person':23s} {'published':32s}"
    "  there: truth covers upper/ estimate/   random day: truth covers upper/ estimate/   objects"
)


def table(chosen: list[Row], runs: int) -> None:
    print(HEAD)
    for row in chosen:
        truths = row.family.truths(EPSILON)
        done = [measured(drawn(row, run)) for run in range(runs)]
        there = shown(truths[0], [(run.there, run.there_upper) for run in done])
        random_day = shown(truths[1], [(run.random_day, run.random_day_upper) for run in done])
        objects = np.mean([bool(run.objections) for run in done])
        print(f"{row}         {there}                 {random_day}       {objects:5.2f}", flush=True)


def shown(truth: float, figures: list[tuple[float, float]]) -> str:
    """Truth, coverage, and medians over the truth."""
    estimate, upper = np.array(figures).T
    covers = np.mean(upper >= truth - 0.0025)  # twice the standard error of a truth
    if truth < SHOWN:
        return f"{truth:5.3f}  {covers:5.2f} {'–':>6s} {'–':>9s}"
    return f"{truth:5.3f}  {covers:5.2f} {np.median(upper) / truth:6.2f} {np.median(estimate) / truth:9.2f}"


def alarms(chosen: list[Row], runs: int) -> None:
    """How often each check stops the pass."""
    for row in chosen:
        codes = Counter(code for run in range(runs) for code in set(measured(drawn(row, run), alarms=True).objections))
        said = ", ".join(f"{code} {count / runs:.2f}" for code, count in sorted(codes.items()))
        print(f"{row}  {said or 'none'}", flush=True)


# Speed ---------------------------------------------------------------------------------------------------------------


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
    """Seconds and memory of a large table, beside the total as one number, and one sort of the entries."""
    results = large_table(people, cells, databases)
    held = _memory()
    print(
        f"{people:,} people, {cells} cells, {databases} databases: {len(results.entry_database):,} entries; "
        f"{held:.2f} GB before"
    )
    start = time.perf_counter()
    np.sort(results.entry_q, axis=None)
    print(f"one sort of the entries: {time.perf_counter() - start:.1f} s; {_memory():.2f} GB at most", flush=True)
    total = results.combined(dict.fromkeys(results.components or (), 1.0))
    start = time.perf_counter()
    empriv.bounds(empriv.measure(total), EPSILON)
    peer = time.perf_counter() - start
    print(f"the total alone, measure and bounds: {peer:.1f} s", flush=True)
    start = time.perf_counter()
    risk = empriv.measure(results)
    random_day = empriv.bounds(risk, EPSILON)
    print(f"the table on a random day, measure and bounds: {time.perf_counter() - start:.1f} s", flush=True)
    there = empriv.bounds(risk.given_presence(), EPSILON)
    spent = time.perf_counter() - start
    print(
        f"and where people are there: {spent:.1f} s in all, {spent / peer:.1f} times the total alone; "
        f"{_memory():.2f} GB at most\n"
        f"largest delta on a random day {random_day.estimate:.3f}, at most {random_day.upper:.3f}; "
        f"there {there.estimate:.3f}, at most {there.upper:.3f}"
    )


def _memory() -> float:
    """GB that the process held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small tables, 100 databases")
    parser.add_argument("--runs", type=int, default=None)
    parser.add_argument("--only", help="rows that contain this text")
    parser.add_argument("--untouched", action="store_true", help="laws that nothing was chosen on")
    parser.add_argument("--alarms", action="store_true", help="how often each check stops the pass")
    parser.add_argument("--speed", action="store_true", help="seconds and memory of a large table")
    parser.add_argument("--people", type=int, default=10_000)
    parser.add_argument("--cells", type=int, default=100)
    parser.add_argument("--databases", type=int, default=365)
    given = parser.parse_args()
    if given.speed:
        speed(given.people, given.cells, given.databases)
        return
    chosen = rows(quick=given.quick, untouched=given.untouched, only=given.only)
    (alarms if given.alarms else table)(chosen, given.runs or (4 if given.quick else 20))


if __name__ == "__main__":
    main()
