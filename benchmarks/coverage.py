"""How often the bounds hold, on distributions with known truth. Run: python benchmarks/coverage.py [--quick]

For each family, databases are drawn again and again, and the bounds on delta at epsilon 0.1 compared with the truth,
computed by integration or exact sums. Then the size and power of the i.i.d. battery, and how often each verdict is
given for targets below, at and above the truth. docs/validity.md carries what this prints.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np
from scipy import integrate, stats

import empriv
from empriv import datasets
from empriv.measuring.given.battery import POWER_SIZES, battery
from empriv.results import FloatArray
from empriv.validate.bounds.analytic import upper_bounds
from empriv.validate.bounds.figures import bounds
from empriv.validate.checks.robustness import cusp_ratio, peak_excess
from empriv.validate.ground import ground_of
from empriv.validate.verdict import verdict

EPSILON = 0.1
SIZES = (41, 100, 365)
KINDS = ("private (target 3 x truth)", "edge (target just below the truth)", "not private (target half the truth)")
Draw = Callable[[np.random.Generator, int], tuple[FloatArray, FloatArray]]


@dataclass(frozen=True)
class Family:
    """A law of pairs (q, q without the individual), and its true delta; ``held_out``: a shape that bounds fail on."""

    name: str
    draw: Draw
    truth: float
    held_out: bool = False


def stick(p: Callable[[FloatArray], FloatArray], p_i: Callable[[FloatArray], FloatArray], x: FloatArray) -> float:
    """The larger hockey stick of two densities, by Simpson's rule on a fine grid."""
    e = math.exp(EPSILON)
    a, b = p(x), p_i(x)
    return max(
        float(integrate.simpson(np.maximum(a - e * b, 0), x=x)), float(integrate.simpson(np.maximum(b - e * a, 0), x=x))
    )


def shift(law: stats.rv_continuous, by: float, low: float, high: float) -> tuple[Draw, float]:
    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        x = law.rvs(size=n, random_state=rng)
        return x + by, x

    return draw, stick(lambda x: law.pdf(x - by), law.pdf, np.linspace(low, high, 400_001))


def families() -> list[Family]:
    made = []
    for name, law, by, low, high, held_out in (
        ("normal, shift 0.5 sd", stats.norm(), 0.5, -10, 10, False),
        ("normal, shift 0.2 sd", stats.norm(), 0.2, -10, 10, False),
        ("Laplace, shift 0.3", stats.laplace(), 0.3, -30, 30, False),
        ("lognormal, shift 0.1", stats.lognorm(1.0), 0.1, -1, 300, False),
        ("logistic, shift 0.6", stats.logistic(), 0.6, -40, 40, True),
        ("Student t2, shift 0.4 (heavy tails)", stats.t(2), 0.4, -2000, 2000, True),
        ("beta(3, 2), shift 0.05 (edges)", stats.beta(3, 2), 0.05, -0.1, 1.2, True),
    ):
        draw, truth = shift(law, by, low, high)
        made.append(Family(name, draw, truth, held_out))
    e = math.exp(EPSILON)

    def uniform(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        x = rng.random(n)
        return x + 0.05, x

    made.append(Family("uniform, shift 0.05 (hard edges)", uniform, 0.05, True))

    def exponential(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        x = rng.exponential(size=n)
        return x + 0.05, x

    made.append(Family("exponential, shift 0.05 (one hard edge)", exponential, -math.expm1(-0.05), True))

    def bimodal(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        x = np.where(rng.random(n) < 0.5, -5.0, 5.0) + rng.normal(size=n)
        return x + 0.4, x

    def two(x: FloatArray) -> FloatArray:
        return np.asarray(0.5 * (stats.norm.pdf(x + 5) + stats.norm.pdf(x - 5)))

    made.append(
        Family(
            "bimodal, shift 0.4 sd of a mode",
            bimodal,
            stick(lambda x: two(x - 0.4), two, np.linspace(-15, 15, 400_001)),
        )
    )

    def rare(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        x = rng.normal(size=n)
        return x + 3.0 * (rng.random(n) < 0.1), x

    grid = np.linspace(-12, 15, 400_001)

    def mixed(share: float, by: float) -> Callable[[FloatArray], FloatArray]:
        return lambda x: (1 - share) * stats.norm.pdf(x) + share * stats.norm.pdf(x - by)

    made.append(Family("present in 10%, shift 3 sd", rare, stick(mixed(0.1, 3.0), stats.norm.pdf, grid)))

    def rarer(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        x = rng.normal(size=n)
        return x + 5.0 * (rng.random(n) < 0.01), x

    made.append(Family("present in 1%, shift 5 sd", rarer, stick(mixed(0.01, 5.0), stats.norm.pdf, grid), True))

    def convolved(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        x = rng.normal(size=n)
        return x + rng.exponential(0.3, n), x

    made.append(
        Family(
            "normal plus exponential 0.3",
            convolved,
            stick(_exponnorm, stats.norm.pdf, np.linspace(-10, 14, 400_001)),
        )
    )

    def counts(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        x = rng.poisson(50, n).astype(float)
        return x + 1, x

    k = np.arange(400)
    a, b = stats.poisson.pmf(k - 1, 50), stats.poisson.pmf(k, 50)
    truth = max(float(np.maximum(a - e * b, 0).sum()), float(np.maximum(b - e * a, 0).sum()))
    made.append(Family("Poisson(50), shift 1 (lattice)", counts, truth))

    def censored(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        x = rng.normal(1.0, 1.0, n)
        return np.maximum(x + 0.3, 0.0), np.maximum(x, 0.0)

    x = np.linspace(0, 12, 400_001)
    atoms = stats.norm.cdf(-1.3), stats.norm.cdf(-1.0)
    densities = stats.norm.pdf(x - 1.3), stats.norm.pdf(x - 1.0)
    truth = max(
        max(atoms[i] - e * atoms[1 - i], 0.0)
        + float(integrate.simpson(np.maximum(densities[i] - e * densities[1 - i], 0), x=x))
        for i in (0, 1)
    )
    made.append(Family("normal cut off at 0, shift 0.3 (atom)", censored, truth, True))
    return made


def _exponnorm(x: FloatArray) -> FloatArray:
    """Normal plus exponential of mean 0.3: scipy's shape is mean/sd of the two."""
    return np.asarray(stats.exponnorm.pdf(x, 0.3))


def cusp() -> Family:
    """An interior pole, exp(-|x|)/sqrt(|x|), where no bandwidth is narrow enough and the upper bound may fail."""
    by = 0.05

    def draw(rng: np.random.Generator, n: int) -> tuple[FloatArray, FloatArray]:
        x = rng.choice([-1.0, 1.0], n) * rng.gamma(0.5, 1.0, n)
        return x + by, x

    # With y = ± v², the law of v is exp(-v²)/sqrt(pi): the pole is gone, and the integrand lies in [0, 1].
    v = (np.arange(2_000_000) + 0.5) * 4e-6
    truth = 0.0
    for y in (v * v, -v * v):
        ratio = np.sqrt(np.abs(y) / np.abs(y + by)) * np.exp(np.abs(y) - np.abs(y + by))
        truth += float(
            (np.exp(-v * v) * np.maximum(1 - math.exp(EPSILON) * ratio, 0)).sum() * 4e-6 / math.sqrt(math.pi)
        )
    return Family("interior pole (known failure)", draw, truth, True)


def study(job: tuple[int, int, int]) -> dict[str, float]:
    """Bounds on fresh databases of one family, again and again."""
    which, n, runs = job
    family = [*families(), cusp()][which]
    rng = np.random.default_rng([which, n])
    found = []
    verdicts: dict[tuple[str, str], int] = {}
    for run in range(runs):
        q, without = family.draw(rng, n)
        risk = empriv.measure(q, without[None])
        b = bounds(risk, EPSILON, rng=run)
        found.append((b.lower, b.estimate, b.upper))
        # Without the checks, which only ever take a pass back.
        for kind, limit in zip(KINDS, (3.0 * family.truth, 0.999 * family.truth, 0.5 * family.truth), strict=True):
            given = verdict(risk, epsilon=EPSILON, delta=min(limit, 1.0), bounds_there=b, checks_made=())
            verdicts[kind, str(given)] = verdicts.get((kind, str(given)), 0) + 1
    lower, estimate, upper = np.array(found).T
    return {
        "cover": float(np.mean(upper >= family.truth)),
        "width": float(np.median(upper) / family.truth),
        "estimate": float(np.mean(estimate) / family.truth),
        "lower_cover": float(np.mean(lower <= family.truth)),
        "positive": float(np.mean(lower > 0)),
        **{f"{kind}/{given}": count / runs for (kind, given), count in verdicts.items()},
    }


def one_family(name: str, runs: int, processes: int) -> None:
    known = [*families(), cusp()]
    jobs = [(k, n, runs) for k, family in enumerate(known) if name in family.name for n in SIZES]
    with ProcessPoolExecutor(processes) as pool:
        for (which, n, _), figures in zip(jobs, pool.map(study, jobs), strict=True):
            print(f"{known[which].name}, truth {known[which].truth:.4f}, n = {n}, {runs} runs:")
            print("  " + ", ".join(f"{key} {value:.3f}" for key, value in figures.items()))


def coverage(runs: int, processes: int) -> None:
    known = [*families(), cusp()]
    jobs = [(which, n, runs) for which in range(len(known)) for n in SIZES]
    with ProcessPoolExecutor(processes) as pool:
        figures = dict(zip(jobs, pool.map(study, jobs), strict=True))
    print(f"Bounds on delta at epsilon {EPSILON}, level 95%, {runs} runs for each family and n = 41 / 100 / 365.")
    print("No bound was tuned on these; * marks the held-out shapes: edges, atoms, rare participation, heavy tails.\n")
    print(
        "| family | truth | upper covers, % | median upper / truth | mean estimate / truth | lower covers, % | "
        "lower > 0, % |"
    )
    print("|---|---|---|---|---|---|---|")
    for which, family in enumerate(known):
        cells = [figures[which, n, runs] for n in SIZES]

        def row(name: str, scale: float, digits: int, cells: list[dict[str, float]] = cells) -> str:
            return " / ".join(f"{scale * cell[name]:.{digits}f}" for cell in cells)

        print(
            f"| {family.name}{' *' if family.held_out else ''} | {family.truth:.4f} | {row('cover', 100, 1)} | "
            f"{row('width', 1, 2)} | {row('estimate', 1, 2)} | {row('lower_cover', 100, 1)} | "
            f"{row('positive', 100, 0)} |"
        )
    covering = [figures[job] for job in jobs if job[0] < len(known) - 1]
    print(
        f"\nWorst coverage, the pole apart: upper {100 * min(c['cover'] for c in covering):.1f}%, "
        f"lower {100 * min(c['lower_cover'] for c in covering):.1f}%."
    )
    print("\nVerdicts without checks, % of runs, all families but the pole (worst family's share of pass):\n")
    print("| truth | n | pass | fail | unresolved | worst pass |")
    print("|---|---|---|---|---|---|")
    for kind in KINDS:
        for n in SIZES:
            cells = [figures[w, n, runs] for w in range(len(known) - 1)]
            shares = [
                100 * float(np.mean([c.get(f"{kind}/{v}", 0.0) for c in cells])) for v in ("pass", "fail", "unresolved")
            ]
            worst = 100 * max(c.get(f"{kind}/pass", 0.0) for c in cells)
            print(f"| {kind} | {n} | {shares[0]:.1f} | {shares[1]:.1f} | {shares[2]:.1f} | {worst:.1f} |")


def peak(job: tuple[int, int, int]) -> tuple[float, float]:
    """How often the check "cusp" warns, and how often it is an error."""
    which, n, runs = job
    family = [*families(), cusp()][which]
    rng = np.random.default_rng([which, n])
    found = []
    for _ in range(runs):
        q, without = family.draw(rng, n)
        ground = ground_of(empriv.measure(q, without[None]))
        points = ground.values.points[np.isfinite(ground.marked.points)]
        excess = peak_excess(points, ground.bandwidth)
        found.append(excess if cusp_ratio(ground, np.array([0]), EPSILON) > 1.25 else 0.0)
    return float(np.mean(np.array(found) > 1.0)), float(np.mean(np.array(found) > 1.3))


def peaks(runs: int, processes: int) -> None:
    known = [*families(), cusp()]
    jobs = [(which, n, runs) for which in range(len(known)) for n in SIZES]
    with ProcessPoolExecutor(processes) as pool:
        found = dict(zip(jobs, pool.map(peak, jobs), strict=True))
    print(f'\nCheck "cusp": warning or error (error), % of {runs} runs\n')
    print("| family | " + " | ".join(f"n={n}" for n in SIZES) + " |")
    print("|---" * (len(SIZES) + 1) + "|")
    for which, family in enumerate(known):
        cells = [f"{100 * warned:.0f} ({100 * error:.0f})" for warned, error in (found[which, n, runs] for n in SIZES)]
        print(f"| {family.name} | " + " | ".join(cells) + " |")


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


def power(job: tuple[str, int, int]) -> float:
    kind, n, runs = job
    rng = np.random.default_rng([len(kind), n])
    return float(np.mean([battery(departing(rng, n, kind), permutations=299, rng=k).p <= 0.05 for k in range(runs)]))


def batteries(runs: int, processes: int) -> None:
    kinds = ("none", "lognormal", "tied", "trend", "serial", "shift", "spread")
    jobs = [(kind, n, runs) for kind in kinds for n in POWER_SIZES]
    with ProcessPoolExecutor(processes) as pool:
        found = dict(zip(jobs, pool.map(power, jobs), strict=True))
    print(f"\nBattery on two series at the 5% level, {runs} runs, 299 permutations: share of alarms, %")
    print("(none, lognormal, tied: size; trend of 1 sd, AR(1) 0.3, shift of 1 sd half-way, spread doubling: power)\n")
    print("| | " + " | ".join(f"n={n}" for n in POWER_SIZES) + " |")
    print("|---" * (len(POWER_SIZES) + 1) + "|")
    for kind in kinds:
        print(f"| {kind} | " + " | ".join(f"{100 * found[kind, n, runs]:.0f}" for n in POWER_SIZES) + " |")


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the runs")
    parser.add_argument("--family", metavar="NAME", help="the families only whose names hold this")
    parser.add_argument("--peaks", action="store_true", help="how often narrow peaks are seen only")
    parser.add_argument("--battery", action="store_true", help="the battery only")
    parser.add_argument("--speed", action="store_true", help="the times only")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    scale = 5 if arguments.quick else 1
    if arguments.family:
        one_family(arguments.family, 200 // scale, arguments.processes)
        return
    if arguments.peaks:
        peaks(100 // scale, arguments.processes)
        return
    if not arguments.battery and not arguments.speed:
        coverage(200 // scale, arguments.processes)
    if not arguments.speed:
        batteries(200 // scale, arguments.processes)
    if not arguments.speed and not arguments.battery:
        peaks(100 // scale, arguments.processes)
    if not arguments.battery:
        speed()


if __name__ == "__main__":
    main()
