"""How often bounds and verdicts are right, on laws whose true delta is known.

    python benchmarks/coverage.py [--only plain|structured|untouched] [--family NAME] [--runs 100] [--n 41,100,365]
                                  [--epsilon 0.1,0.5] [--jobs 2]
    python benchmarks/coverage.py --power | --tried | --checks | --battery | --speed

Without options: all families of `families.py`, then the power for targets that people ask for. For each family, n
databases are drawn again and again, and bounds and verdict compared with the truth. Verdicts are those without checks,
which only ever take a pass back (`--checks` says how often). docs/validity.md carries what this prints.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from scipy import optimize, stats

import empriv
from empriv import datasets
from empriv.measuring.given.battery import POWER_SIZES, battery
from empriv.validate.bounds.analytic import floor, merged_of, upper_bounds
from empriv.validate.bounds.figures import bounds
from empriv.validate.bounds.moments import Smooth, bound_of, edges, groups
from empriv.validate.checks import checks
from empriv.validate.ground import Ground, ground_of
from empriv.validate.verdict import verdict
from families import LISTS, Family, FloatArray

SIZES = (41, 100, 365)
EPSILONS = (0.1, 0.5)
SMALL = 0.001  # a truth below is as good as 0: neither ratios nor verdicts mean anything
# The target over the truth, and what would be said by somebody who knew the truth.
TARGETS = {
    "wrong pass": (0.999, "pass"),
    "pass 2x": (2.0, "pass"),
    "pass 5x": (5.0, "pass"),
    "pass 20x": (20.0, "pass"),
    "wrong fail": (1 / 0.99, "fail"),
    "fail 1/2": (0.5, "fail"),
}
TITLES = {
    "plain": "Plain laws: smooth shapes, hard edges, an atom, sparse participation",
    "structured": "Structure: spread, gaps, last digits, rare presence, poles, spikes (repairs were chosen on these)",
    "untouched": "Untouched: shapes that nothing was chosen on",
}
Job = TypeVar("Job")
Answer = TypeVar("Answer")


def in_processes(
    task: Callable[[Job], Answer], jobs: Sequence[Job], processes: int, weight: Callable[[Job], float]
) -> Iterator[tuple[Job, Answer]]:
    """Each job and its answer, in order; what is left is told on the error stream by the jobs' weights."""
    whole, done, start = sum(map(weight, jobs)), 0.0, time.perf_counter()
    with ProcessPoolExecutor(processes) as pool:
        for k, (job, answer) in enumerate(zip(jobs, pool.map(task, jobs), strict=True), 1):
            done += weight(job)
            left = (time.perf_counter() - start) * (whole - done) / done
            if k % max(1, len(jobs) // 10) == 0:
                print(f"{k} of {len(jobs)} cells, about {left / 60:.1f} min left", file=sys.stderr, flush=True)
            yield job, answer


def measured(family: Family, rng: np.random.Generator, n: int) -> Any:
    """A risk on fresh databases of a family."""
    q, without = family.draw(rng, n)
    risk = empriv.measure(q, without[None])
    return risk.given_presence() if family.given_presence else risk


def seed_of(name: str, n: int) -> np.random.Generator:
    """The same databases whatever else is asked for."""
    return np.random.default_rng([zlib.crc32(name.encode()), n])


# Bounds and verdicts --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """A family on n databases, again and again."""

    group: str
    place: int
    n: int
    runs: int
    epsilons: tuple[float, ...]

    @property
    def family(self) -> Family:
        return LISTS[self.group]()[self.place]


Figures = dict[str, float]


def study(cell: Cell) -> dict[float, Figures]:
    """What the bounds did at each epsilon: shares of runs, and medians over the truth."""
    family = cell.family
    truths = {epsilon: family.truth(epsilon) for epsilon in cell.epsilons}
    rng = seed_of(family.name, cell.n)
    rows: dict[float, list[dict[str, float]]] = {epsilon: [] for epsilon in cell.epsilons}
    for run in range(cell.runs):
        risk = measured(family, rng, cell.n)
        for epsilon in cell.epsilons:
            rows[epsilon].append(judged(risk, truths[epsilon], epsilon, run))
    return {epsilon: _summed(made, truths[epsilon]) for epsilon, made in rows.items()}


def judged(risk: Any, truth: float, epsilon: float, seed: int) -> dict[str, float]:
    """One run: the bounds, and which targets pass or fail."""
    b = bounds(risk, epsilon, rng=seed)
    out = {"upper": b.upper, "estimate": b.estimate, "lower": b.lower}
    for name, (times, answer) in TARGETS.items():
        limit = times * truth
        if truth >= SMALL and limit < 1:
            given = verdict(risk, epsilon=epsilon, delta=limit, bounds_there=b, checks_made=())
            out[name] = float(given == answer)
    return out


def _summed(rows: list[dict[str, float]], truth: float) -> Figures:
    upper, estimate, lower = (np.array([row[name] for row in rows]) for name in ("upper", "estimate", "lower"))
    # truths come by quadrature, good to 1e-4
    out = {
        "truth": truth,
        "cover": float(np.mean(upper >= truth - 1e-4)),
        "lower cover": float(np.mean(lower <= truth + 1e-4)),
        **{name: float(np.mean([row[name] for row in rows])) for name in TARGETS if name in rows[0]},
    }
    if truth >= SMALL:
        out |= {"width": float(np.median(upper)) / truth, "estimate": float(np.mean(estimate)) / truth}
    return out


COLUMNS = (
    ("upper covers, %", "cover", 100, 0),
    ("upper / truth", "width", 1, 2),
    ("estimate / truth", "estimate", 1, 2),
    ("wrong pass, %", "wrong pass", 100, 0),
    ("right pass, target 2 x truth, %", "pass 2x", 100, 0),
    ("5 x", "pass 5x", 100, 0),
    ("wrong fail, %", "wrong fail", 100, 0),
    ("right fail, target truth / 2, %", "fail 1/2", 100, 0),
)


def coverage(cells: Sequence[Cell], processes: int) -> None:
    """A table for each list and epsilon, and what is worst in it."""
    done = dict(in_processes(study, cells, processes, lambda cell: cell.runs * len(cell.epsilons) * (100 + cell.n)))
    sizes = sorted({cell.n for cell in cells})
    for group in dict.fromkeys(cell.group for cell in cells):
        for epsilon in cells[0].epsilons:
            print(f"\n### {TITLES[group]}; epsilon {epsilon}\n")
            print(f"n = {' / '.join(map(str, sizes))}, {cells[0].runs} runs each.\n")
            print("| family | truth | " + " | ".join(title for title, *_ in COLUMNS) + " |")
            print("|---" * (len(COLUMNS) + 2) + "|")
            by_family: dict[str, list[Figures]] = {}
            for cell in cells:
                if cell.group == group:
                    by_family.setdefault(cell.family.name, []).append(done[cell][epsilon])
            for name, row in by_family.items():
                print(f"| {name.replace('|', chr(92) + '|')} | {row[0]['truth']:.4f} | " + _texts(row) + " |")
            _print_summary(by_family, sizes)


def _texts(row: Sequence[Figures]) -> str:
    return " | ".join(
        " / ".join(f"{scale * cell[key]:.{digits}f}" if key in cell else "–" for cell in row)
        for _, key, scale, digits in COLUMNS
    )


def _print_summary(by_family: dict[str, list[Figures]], sizes: Sequence[int]) -> None:
    """The average over families, and the worst of them."""
    columns = list(zip(*by_family.values(), strict=True))

    def over(key: str, make: Callable[[list[float]], float], scale: float, digits: int) -> str:
        cells = ([cell[key] for cell in column if key in cell] for column in columns)
        return " / ".join(f"{scale * make(values):.{digits}f}" if values else "–" for values in cells)

    mean: Callable[[list[float]], float] = lambda values: float(np.mean(values))  # noqa: E731
    print(
        f"\nOver the {len(by_family)} families, n = {' / '.join(map(str, sizes))}: upper covers, worst "
        f"{over('cover', min, 100, 0)}%, mean {over('cover', mean, 100, 1)}%; median upper / truth, mean "
        f"{over('width', mean, 1, 2)}; wrong pass, worst {over('wrong pass', max, 100, 0)}%; right pass, mean "
        f"{over('pass 2x', mean, 100, 0)} (2 x), {over('pass 5x', mean, 100, 0)} (5 x), "
        f"{over('pass 20x', mean, 100, 0)}% (20 x); wrong fail, worst {over('wrong fail', max, 100, 0)}%; right fail, "
        f"mean {over('fail 1/2', mean, 100, 0)}%; lower covers, worst {over('lower cover', min, 100, 0)}%."
    )


# Power for targets that people ask for --------------------------------------------------------------------------------

ASKED = ((100, 0.1), (365, 0.05), (365, 0.01), (1000, 0.01))  # n and target
SHARES = (2, 5, 20)  # the truth is the target over this
SHAPES: dict[str, Any] = {
    "normal": stats.norm(),
    "Laplace": stats.laplace(),
    "logistic": stats.logistic(),
    "Student 2": stats.t(2),
    "Student 5": stats.t(5),
    "lognormal": stats.lognorm(1.0),
    "gamma 3": stats.gamma(3),
    "beta(3, 2)": stats.beta(3, 2),
    "Gumbel": stats.gumbel_r(),
    "uniform": stats.uniform(),
    "exponential": stats.expon(),
}


def shift_for(name: str, truth: float, epsilon: float) -> float:
    """How far a law must be shifted for its delta to be this."""
    if name == "uniform":
        return truth
    if name == "exponential":
        return -math.log1p(-truth)
    law = SHAPES[name]
    # what matters lies between far quantiles; roots of the ratio are found between neighbours, and count squared
    x = law.ppf(np.concatenate((np.geomspace(1e-12, 1e-3, 4000), np.linspace(1e-3, 1, 20_000)[1:-1])))
    x = np.concatenate((x, law.isf(np.geomspace(1e-3, 1e-12, 4000))))
    most = float(law.ppf(0.75) - law.ppf(0.25))
    return float(optimize.brentq(lambda by: shifted_delta(law, by, epsilon, x) - truth, 1e-6, most, rtol=1e-6))


def shifted_delta(law: Any, by: float, epsilon: float, x: FloatArray) -> float:
    """The larger hockey stick of a law and itself shifted, by differences of distribution functions."""
    out = []
    for first, second in ((by, 0.0), (0.0, by)):
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = law.logpdf(x - first) - law.logpdf(x - second) - epsilon
        inside = ratio > 0
        change = np.flatnonzero(inside[1:] != inside[:-1])
        with np.errstate(invalid="ignore"):
            part = ratio[change] / (ratio[change] - ratio[change + 1])
        roots = x[change] + np.where(np.isfinite(part), part, 0.5) * (x[change + 1] - x[change])
        ends = np.concatenate(([-np.inf] if inside[0] else [], roots, [np.inf] if inside[-1] else [])).reshape(-1, 2)
        mass = [law.cdf(ends[:, 1] - by_) - law.cdf(ends[:, 0] - by_) for by_ in (first, second)]
        out.append(float((mass[0] - math.exp(epsilon) * mass[1]).sum()))
    return max(out)


def passes(job: tuple[str, int, float, int, float, int]) -> tuple[float, float, float]:
    """How often a sound query passes, how often the bound covers, and the median bound."""
    name, n, target, share, epsilon, runs = job
    truth = target / share
    by = shift_for(name, truth, epsilon)
    rng = seed_of(f"{name} {share}", n)
    upper = []
    for _ in range(runs):
        others = SHAPES[name].rvs(size=n, random_state=rng)
        risk = empriv.measure(others + by, others[None])
        upper.append(max(upper_bounds(ground_of(risk), [epsilon], 0.95).upper_i[0, 0], risk.delta(epsilon)))
    return float(np.mean(np.array(upper) <= target)), float(np.mean(np.array(upper) >= truth)), float(np.median(upper))


def by_counting(n: int, target: float, truth: float) -> float:
    """How often somebody passes who is in a share ``truth`` of the databases, and cannot be mistaken there.

    Only their number tells anything, and its exact bound is the best there is: no method that holds passes more often.
    """
    seen = np.arange(n)
    few = seen[stats.beta.ppf(0.95, seen + 1, n - seen) <= target]
    return float(stats.binom.cdf(few.max(), n, truth)) if len(few) else 0.0


def power(runs: int, epsilon: float, processes: int) -> None:
    jobs = [(name, n, target, share, epsilon, runs) for n, target in ASKED for share in SHARES for name in SHAPES]
    done = dict(in_processes(passes, jobs, processes, lambda job: 100 + job[1]))
    print(f"\n### Right pass at epsilon {epsilon}, % of {runs} runs\n")
    print(
        "| n | target | truth | mean | " + " | ".join(SHAPES) + " | least coverage | median upper, mean | by counting |"
    )
    print("|---" * (len(SHAPES) + 7) + "|")
    for n, target in ASKED:
        for share in SHARES:
            cells = [done[name, n, target, share, epsilon, runs] for name in SHAPES]
            shares = " | ".join(f"{100 * cell[0]:.0f}" for cell in cells)
            mean, least, width = (
                100 * np.mean([cell[0] for cell in cells]), 100 * min(cell[1] for cell in cells),
                np.mean([cell[2] for cell in cells]),
            )  # fmt: skip
            print(
                f"| {n} | {target} | {target / share:g} | **{mean:.0f}** | {shares} | {least:.0f} | {width:.4f} | "
                f"{100 * by_counting(n, target, target / share):.0f} |"
            )


# What was tried to make the bound sharper -----------------------------------------------------------------------------

WIDTHS = (0.5, 0.7, 1.0)  # of the smooth part, in one-SE bandwidths
TRIED = ("any law", "each half-line", *(f"smooth at {width}" for width in WIDTHS))


def smooth_bound(ground: Ground, epsilon: float, width: float) -> float:
    """The smooth part alone, of the only individual."""
    cut = Smooth.of(merged_of(ground, np.array([0])), width * ground.bandwidth)
    return max(float(bound_of(cut.values(side, math.exp(epsilon), ground.draws), 0.95)[0]) for side in (0, 1))


def parts(job: tuple[str, float, int, float, int]) -> dict[str, FloatArray]:
    """Upper bounds made of fewer parts, run by run.

    "any law" is the bound on a law convolved with the kernel, whatever the law is. The others are the larger of smooth
    part, half-lines and floor: the half-lines in groups, or each by itself with the smooth part at half the bandwidth.
    """
    name, truth, n, epsilon, runs = job
    by, rng = shift_for(name, truth, epsilon), seed_of(name, n)
    e, depth = np.exp([epsilon]), int(0.05 * n)
    rows = []
    for _ in range(runs):
        others = SHAPES[name].rvs(size=n, random_state=rng)
        ground = ground_of(empriv.measure(others + by, others[None]))
        smooth = [smooth_bound(ground, epsilon, width) for width in WIDTHS]
        pairs = [(sign * a, sign * b) for sign in (1, -1) for a, b in ((others + by, others), (others, others + by))]
        at_ends = [
            max(float(edges(a, b, e, 1, together, 0.95)[0, 0]) for a, b in pairs) - 1 / n
            for together in (groups(depth), [(m, m + 1) for m in range(depth + 1)])
        ]
        least = max(at_ends[0], floor(n, 0.95))
        rows.append(
            [
                max(-math.expm1((epsilon - by / ground.bandwidth) / 2), 0.0),
                max(smooth[0], at_ends[1], floor(n, 0.95)),
                *(max(part, least) for part in smooth),
            ]
        )
    return dict(zip(TRIED, np.array(rows).T, strict=True))


def tried(runs: int, epsilon: float, processes: int) -> None:
    n = 365
    for target, truth in ((0.2, 0.1), (0.05, 0.025), (0.01, 0.0005)):
        jobs = [(name, truth, n, epsilon, runs) for name in SHAPES]
        done = dict(in_processes(parts, jobs, processes, lambda job: job[2]))
        print(f"\n### Fewer parts: n = {n}, epsilon {epsilon}, target {target}, truth {truth}, {runs} runs\n")
        print("Median bound, covers (passes), %\n")
        print("| | " + " | ".join(TRIED) + " |")
        print("|---" * (len(TRIED) + 1) + "|")
        for job in jobs:
            cells = (done[job][name] for name in TRIED)
            texts = (
                f"{np.median(upper):.4f}, {100 * np.mean(upper >= truth):.0f} ({100 * np.mean(upper <= target):.0f})"
                for upper in cells
            )
            print(f"| {job[0]} | " + " | ".join(texts) + " |")
        means = (np.mean([done[job][name] <= target for job in jobs]) for name in TRIED)
        print("| mean pass | " + " | ".join(f"({100 * mean:.0f})" for mean in means) + " |")


# What checks say ------------------------------------------------------------------------------------------------------


def check_shares(cell: Cell) -> dict[tuple[str, str], float]:
    """How often each check warns, or is an error; "any" is an error of any."""
    family = cell.family
    rng = seed_of(family.name, cell.n)
    out: dict[tuple[str, str], float] = {}
    for _ in range(cell.runs):
        made = checks(measured(family, rng, cell.n), cell.epsilons[0])
        said = {(check.code, check.severity) for check in made if check.severity in ("warning", "error")}
        if any(severity == "error" for _, severity in said):
            said.add(("any", "error"))
        for key in said:
            out[key] = out.get(key, 0.0) + 1 / cell.runs
    return out


def said_by_checks(cells: Sequence[Cell], processes: int) -> None:
    done = dict(in_processes(check_shares, cells, processes, lambda cell: 100 + cell.n))
    sizes = sorted({cell.n for cell in cells})
    names: list[str] = list(dict.fromkeys(cell.family.name for cell in cells))
    print(f"\n### Checks at epsilon {cells[0].epsilons[0]}: warnings or errors (errors), % of {cells[0].runs} runs\n")
    print(f"n = {' / '.join(map(str, sizes))}. Not shown: `databases`, which speaks of n alone, and what is said in")
    print("less than a tenth of the runs.\n")
    print("| family | no pass | what is said |")
    print("|---|---|---|")
    for name in names:
        row = [done[cell] for cell in cells if cell.family.name == name]
        codes = sorted({code for cell in row for code, _ in cell} - {"any", "databases"})
        texts = []
        for code in codes:
            shares = [(cell.get((code, "warning"), 0.0), cell.get((code, "error"), 0.0)) for cell in row]
            if max(w + e for w, e in shares) >= 0.1:
                texts.append(f"`{code}` " + " / ".join(f"{100 * (w + e):.0f} ({100 * e:.0f})" for w, e in shares))
        none = " / ".join(f"{100 * cell.get(('any', 'error'), 0.0):.0f}" for cell in row)
        print(f"| {name.replace('|', chr(92) + '|')} | {none} | {'; '.join(texts)} |")


# The battery for i.i.d. databases, and speed --------------------------------------------------------------------------


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
    return float(np.mean([battery(departing(rng, n, kind), permutations=299, rng=k).p <= 0.05 for k in range(runs)]))


def batteries(runs: int, processes: int) -> None:
    kinds = ("none", "lognormal", "tied", "trend", "serial", "shift", "spread")
    jobs = [(kind, n, runs) for kind in kinds for n in POWER_SIZES]
    with ProcessPoolExecutor(processes) as pool:
        shares = dict(zip(jobs, pool.map(alarms, jobs), strict=True))
    print(f"\nBattery on two series at the 5% level, {runs} runs, 299 permutations: share of alarms, %")
    print("(none, lognormal, tied: size; trend of 1 sd, AR(1) 0.3, shift of 1 sd half-way, spread doubling: power)\n")
    print("| | " + " | ".join(f"n={n}" for n in POWER_SIZES) + " |")
    print("|---" * (len(POWER_SIZES) + 1) + "|")
    for kind in kinds:
        print(f"| {kind} | " + " | ".join(f"{100 * shares[kind, n, runs]:.0f}" for n in POWER_SIZES) + " |")


def speed() -> None:
    data = datasets.precipitation(0)
    q, without = data.q, data.q_without
    print(
        f"\nTime of the analytic bound for everyone over one measure, {len(without):,} individuals x "
        f"{len(q)} databases:"
    )
    for epsilon in (0.1, 0.05, 0.0):
        measured, bounded = [], []
        for _ in range(7):
            start = time.perf_counter()
            risk = empriv.measure(q, without)
            risk.delta_i(epsilon)
            middle = time.perf_counter()
            upper_bounds(ground_of(risk), [epsilon], 0.95)
            measured.append(middle - start)
            bounded.append(time.perf_counter() - middle)
        print(
            f"  epsilon {epsilon:<5} measure {1000 * min(measured):6.1f} ms, bound {1000 * min(bounded):6.1f} ms: "
            f"{min(bounded) / min(measured):.1f} times"
        )


def numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))


def cells_of(arguments: argparse.Namespace, runs: int, epsilons: Iterable[float]) -> list[Cell]:
    """Families asked for, by list and by name."""
    cells = []
    for group, make in LISTS.items():
        for place, family in enumerate(make()):
            if arguments.only in (None, group) and (arguments.family or "") in family.name:
                cells += [Cell(group, place, int(n), runs, tuple(epsilons)) for n in arguments.n]
    return cells


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=tuple(LISTS), help="one list of families")
    parser.add_argument("--family", metavar="NAME", help="the families only whose names hold this")
    parser.add_argument("--runs", type=int, help="for each family and n; default 100, with --quick 10")
    parser.add_argument("--n", type=numbers, default=SIZES, help="numbers of databases, default 41,100,365")
    parser.add_argument("--epsilon", type=numbers, default=EPSILONS, help="default 0.1,0.5")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--quick", action="store_true", help="a tenth of the runs")
    parser.add_argument("--power", action="store_true", help="how often sound queries pass, for targets asked for")
    parser.add_argument("--tried", action="store_true", help="what was tried to make the bound sharper")
    parser.add_argument("--checks", action="store_true", help="what checks say of each family")
    parser.add_argument("--battery", action="store_true", help="the battery for i.i.d. databases")
    parser.add_argument("--speed", action="store_true", help="the time of the bound over that of a measure")
    arguments = parser.parse_args()
    runs = arguments.runs or (10 if arguments.quick else 100)
    asked_for = [name for name in ("power", "tried", "checks", "battery", "speed") if getattr(arguments, name)]
    if not asked_for:
        coverage(cells_of(arguments, runs, arguments.epsilon), arguments.jobs)
    if "power" in asked_for or not (asked_for or arguments.only or arguments.family):
        power(runs, arguments.epsilon[0], arguments.jobs)
    if "tried" in asked_for:
        tried(runs, arguments.epsilon[0], arguments.jobs)
    if "checks" in asked_for:
        said_by_checks(cells_of(arguments, runs, arguments.epsilon[:1]), arguments.jobs)
    if "battery" in asked_for:
        batteries(2 * runs, arguments.jobs)
    if "speed" in asked_for:
        speed()


if __name__ == "__main__":
    main()
