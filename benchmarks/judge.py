"""How often the judge's bounds hold, how large they are, and what its noise costs, on laws whose truth is known.

    python benchmarks/judge.py [--quick] [--only coverage|cover|noise|beside|lower|speed] [--runs 100] [--law NAME]
        [--n 100] [--as-it-is]

`judge_families.py` holds the laws. The truth is a sum over their masses. Sections:

* coverage: U of a move by .25 sd (epsilon .1) or .8 sd (epsilon 1), at least the truth in so many of 100 runs; U/truth.
* cover: D* at delta .05 is honest if the true delta of a move by D* is at most .05; D* over the true one.
* noise: the least noise for people who are there in 100, 30 and 2.5% of the databases: is the truth within the target
  on a random database, on the day of the largest move that was seen, and given presence? Its error over that of noise
  found with the truth, and over classical noise of the same (epsilon, delta, move).
* beside: covers of answers with somebody in all of them who moves each up or down, by .1, .3 or 1 sd (exponential):
  honest if they hide it in the law of the others; D* over the true one.
* lower: the cross-fitted limit and a bet, on shift pairs: above the truth, and above half of it.
* speed: bounds, cover and least noise for 10,000 people and 365 databases, over one `measure`.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

import empriv
from empriv.judge import cover as covers
from empriv.judge import lower, upper
from empriv.judge.cover import DITHER
from empriv.judge.noise_kernels import NoiseKernel, alone, classical
from empriv.judge.upper import row_bandwidths
from empriv.measuring.line.atoms import split
from empriv.noise.design import least_noise
from empriv.noise.judging import JudgedAnswer
from judge_families import EPSILONS, FRESH, INFLUENCES, LAWS, PRESENCE, FloatArray, Law, constant, estimated, true_delta

DELTA = 0.05
MOVES = {0.1: 0.25, 1.0: 0.8}  # sd
SCALES = ("0", ".5h", ".7h", "1sd", ".7h lattice", ".7h Gauss")
ALL_SIZES = "41,100,365"
COVER_SCALES = ("0", ".5h", ".7h", "1sd")
SLACK = 1e-3  # relative: what cells and rounding of moves may be off by


def seeded(*names: object) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(repr(names).encode()))


def kernel_of(name: str, h: float, sd: float) -> NoiseKernel | None:
    """The noise of a column: bandwidths h, or the law's sd."""
    if name == "0":
        return None
    if name.endswith("lattice"):
        step = 2.0 ** math.floor(math.log2(0.7 * h / 2))  # coarse: a half to a quarter of the scale
        return NoiseKernel("laplace", 0.7 * h, step)
    if name.endswith("Gauss"):
        return NoiseKernel("gaussian", 0.7 * h)
    return NoiseKernel("laplace", sd if name == "1sd" else float(name[:-1]) * h)


def truth(law: Law, epsilon: float, kernel: NoiseKernel | None, influence: tuple[FloatArray, FloatArray]) -> float:
    if kernel is None:
        return true_delta(law, epsilon, 0.0, influence)
    return true_delta(law, epsilon, kernel.scale, influence, kernel.kind, kernel.step)


def moved_by(law: Law, d: float) -> float:
    """The move, rounded to what the law can be moved by."""
    step = 1.0 if law.whole_moves else law.unit
    return max(step, round(d / step) * step)


def true_cover(law: Law, epsilon: float, kernel: NoiseKernel | None, whole: bool) -> float:
    """The largest move that is hidden at delta .05; of whole numbers without noise."""
    low, high = 0, 1
    step = 1.0 if whole and kernel is None else law.unit
    while truth(law, epsilon, kernel, constant(high * step)) <= DELTA and high * step < 100 * law.sd:
        low, high = high, 2 * high
    while high - low > max(1, low // 200):
        middle = (low + high) // 2
        low, high = (middle, high) if truth(law, epsilon, kernel, constant(middle * step)) <= DELTA else (low, middle)
    return low * step


def cells(arguments: argparse.Namespace, sizes: Sequence[int]) -> Iterator[tuple[str, Law, int, Law]]:
    """Kind, law that is drawn, number of databases, and law of the truth."""
    for kind, laws in (FRESH if arguments.fresh else LAWS).items():
        for law in laws:
            if arguments.law is None or arguments.law in law.name:
                for n in sizes:
                    yield kind, law, n, law
                    if law.trend:
                        yield "estimated", law, n, estimated(law, n)


def drawn(law: Law, n: int, runs: int, what: str) -> tuple[FloatArray, float]:
    """(runs, n) results, and the bandwidth that is usual for them."""
    rng = seeded(law.name, n, what)
    x = np.stack([law.draw(rng, n) for _ in range(runs)])
    return x, float(np.median(row_bandwidths(x, 1)))


def coverage(arguments: argparse.Namespace) -> None:
    scales = SCALES[:1] if arguments.as_it_is else SCALES
    print(
        "\nCoverage of U, % (median U/truth), of a move by .25 sd at epsilon .1, .8 sd at epsilon 1; gate: refuted, %"
    )
    print(f"{'':48}{'n':>4}{'eps':>5}" + "".join(f"{name:>14}" for name in scales) + f"{'gate':>6}")
    worst: dict[tuple[str, str], list[float]] = {}
    for kind, law, n, true_law in cells(arguments, arguments.sizes):
        x, h = drawn(law, n, arguments.runs, "coverage")
        for epsilon in EPSILONS:
            d = moved_by(law, MOVES[epsilon] * law.sd)
            line, alarms = f"{true_law.name:48}{n:>4}{epsilon:>5}", 0.0
            for name in scales:
                kernel = kernel_of(name, h, law.sd)
                judged = covers.of_moves(x, np.full(len(x), d), epsilon, kernel, tests=1)
                values = judged.values[:, 0]
                alarms += float(judged.refuted.mean())
                real = truth(true_law, epsilon, kernel, constant(d))
                hits = float(np.mean(values >= real * (1 - SLACK)))
                worst.setdefault((kind, name), []).append(hits)
                line += f"{100 * hits:>6.0f} ({min(999, np.median(values) / max(real, 1e-6)):5.2f})"
            print(line + f"{100 * alarms:>6.0f}", flush=True)
    print("\nleast coverage, and mean, % of all cells")
    for (kind, name), found in worst.items():
        print(f"  {kind:12}{name:14}{100 * min(found):5.0f}{100 * np.mean(found):7.1f}")


def honesty(arguments: argparse.Namespace) -> None:
    scales = COVER_SCALES[:1] if arguments.as_it_is else COVER_SCALES
    runs = max(10, arguments.runs // 2)
    print(f"\nHonest covers at delta {DELTA}, % of {runs} runs (median D* over the true one)")
    print(f"{'':48}{'n':>5}{'eps':>5}" + "".join(f"{name:>14}" for name in scales))
    found: dict[tuple[str, str, int], list[float]] = {}
    power: dict[tuple[str, str, int], list[float]] = {}
    sizes = arguments.sizes if arguments.quick or arguments.n != ALL_SIZES else (*arguments.sizes, 1000)
    for kind, law, n, true_law in cells(arguments, sizes):
        if n > max(arguments.sizes) and kind != "plain":
            continue
        x, h = drawn(law, n, runs, "cover")
        for epsilon in EPSILONS:
            line = f"{true_law.name:48}{n:>5}{epsilon:>5}"
            for name in scales:
                kernel = kernel_of(name, h, law.sd)
                moves = covers.cover(x, epsilon, DELTA, kernel, tests=1)[:, 0]
                cells_of = np.floor(moves / law.unit + 1e-6).astype(np.int64)
                best = true_cover(true_law, epsilon, kernel, law.whole_moves)
                # the truth rises in the move but for rounding: only covers above the true one need a look
                honest = np.array([
                    k * law.unit <= best
                    or truth(true_law, epsilon, kernel, constant(k * law.unit)) <= DELTA * (1 + SLACK)
                    for k in cells_of.tolist()
                ])  # fmt: skip
                ratio = float(np.median(moves) / best) if best > 0 else math.nan
                found.setdefault((kind, name, n), []).append(float(honest.mean()))
                power.setdefault((kind, name, n), []).append(ratio)
                line += f"{100 * honest.mean():>6.0f} ({ratio:5.2f})"
            print(line, flush=True)
    print("\nleast honesty, mean honesty %, median D*/true")
    for key, cell in found.items():
        print(
            f"  {key[0]:12}{key[1]:6}{key[2]:>5}{100 * min(cell):5.0f}{100 * np.mean(cell):7.1f}"
            f"{np.nanmedian(power[key]):7.2f}"
        )


def one_person(q: FloatArray, without: FloatArray) -> JudgedAnswer:
    return JudgedAnswer(empriv.measure(empriv.Results.from_arrays(q, without[None], individuals=["one"])))


def found_by_design(judged: JudgedAnswer, epsilon: float, step: float = 0.0) -> NoiseKernel:
    """The least noise as `design_noise` finds it: of both kinds, and no more than classical noise."""
    widest = [classical(epsilon, DELTA, judged.largest, kind, step) for kind in ("laplace", "gaussian")]
    return least_noise(judged, widest, epsilon, DELTA) or min(widest, key=lambda kernel: kernel.error)


def at_least(law: Law, epsilon: float, delta: float, influence: tuple[FloatArray, FloatArray]) -> float:
    """Laplace noise that somebody would add who knew the truth; 0 if none."""
    if true_delta(law, epsilon, 0.0, influence) <= delta:
        return 0.0
    low, high = 1e-3 * law.sd, float(influence[0].max()) / epsilon * 1.01
    for _ in range(14):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if true_delta(law, epsilon, middle, influence) <= delta else (middle, high)
    return high


def noise(arguments: argparse.Namespace) -> None:
    """Somebody whose answer as it is has 1.5 or 3 times the target given presence."""
    runs = max(10, arguments.runs // 4)
    laws = [law for kind in ("plain", "structured") for law in LAWS[kind]]
    if arguments.quick:
        laws = laws[:2]
    elif arguments.law is None:
        laws = [
            law
            for law in laws
            if law.name
            in (
                "normal",
                "exponential",
                "Student 3",
                "two peaks",
                "uniform",
                "pole at an edge",
                "mostly multiples of 13",
                "comb .1",
            )
        ]
    else:
        laws = [law for law in laws if arguments.law in law.name]
    print(f"\nLeast noise for one person (target {DELTA} at epsilon .1; {runs} runs): kept, % on a random database, on")
    print(
        "the day of the largest move seen, given presence; error over that of noise found with the truth, and classical"
    )
    print(
        f"{'':24}{'influence':14}{'there':>7}{'n':>5}{'times':>6}{'random':>8}{'day':>6}{'given':>7}{'lattice':>9}"
        f"{'ideal':>7}{'class.':>8}"
    )
    totals: dict[float, list[list[float]]] = {}
    epsilon = 0.1
    for law in laws:
        for name, make in INFLUENCES.items():
            for times in (1.5, 3.0):
                given = make(influence_for(law, name, epsilon, times * DELTA))
                if law.whole_moves:
                    given = (np.maximum(1.0, np.rint(given[0])), given[1])
                ideal = at_least(law, epsilon, DELTA, given)
                for share in PRESENCE:
                    for n in arguments.sizes:
                        rng = seeded(law.name, name, times, share, n)
                        kept, ratios, over, count = np.zeros(4), [], [], 0
                        for _ in range(runs):
                            x = law.draw(rng, n)
                            there = rng.random(n) < share
                            if not there.any():
                                continue
                            count += 1
                            d = np.where(there, rng.choice(given[0], n, p=given[1]), 0.0)
                            most = float(d.max())
                            step = 2.0 ** math.floor(math.log2(max(most, 1e-9) / 4))
                            everyone = (np.append(given[0], 0.0), np.append(share * given[1], 1 - share))
                            person = one_person(x + d, x)
                            kernel = found_by_design(person, epsilon)
                            on_lattice = found_by_design(person, epsilon, step)
                            limit = DELTA * (1 + SLACK)
                            kept += [
                                truth(law, epsilon, kernel, everyone) <= limit,
                                truth(law, epsilon, kernel, constant(most)) <= limit,
                                truth(law, epsilon, kernel, given) <= limit,
                                truth(law, epsilon, on_lattice, constant(most)) <= limit,
                            ]
                            ratios.append(kernel.error / ideal if ideal else math.nan)
                            best = min(classical(epsilon, DELTA, most, k).error for k in ("laplace", "gaussian"))
                            over.append(kernel.error / best)
                        if not count:
                            continue
                        totals.setdefault(share, []).append((kept / count).tolist())
                        a, b, c, e = 100 * kept / count
                        print(
                            f"{law.name:24}{name:14}{share:>7.1%}{n:>5}{times:>6}{a:>8.0f}{b:>6.0f}{c:>7.0f}{e:>9.0f}"
                            f"{np.median(ratios):>7.2f}{np.median(over):>8.2f}",
                            flush=True,
                        )
    print("\nmean kept %: random, day, given presence, day on a lattice")
    for share, found in totals.items():
        print(f"  there {share:.1%}: " + ", ".join(f"{value:.1f}" for value in 100 * np.mean(found, axis=0)))


@functools.cache
def influence_for(law: Law, name: str, epsilon: float, delta: float) -> float:
    """The mean influence with which the truth given presence, as it is, is delta; of whole numbers, as if normal."""
    if law.whole_moves:
        return law.sd * influence_for(LAWS["plain"][0], name, epsilon, delta)
    low, high = 1e-4 * law.sd, 10 * law.sd
    for _ in range(24):
        middle = math.sqrt(low * high)
        real = true_delta(law, epsilon, 0.0, INFLUENCES[name](middle))
        low, high = (middle, high) if real <= delta else (low, middle)
    return high


def beside(arguments: argparse.Namespace) -> None:
    runs, scales = max(10, arguments.runs // 10), ("0", ".7h")
    print(f"\nCovers beside somebody who moves every answer up or down: honest, % of {runs} runs (D* over the true)")
    print(f"{'':24}{'sd':>5}{'n':>5}{'eps':>5}" + "".join(f"{name:>14}" for name in scales))
    found: dict[str, list[float]] = {}
    for kind, law, n, _ in cells(arguments, tuple(n for n in arguments.sizes if n >= 100)):
        if kind != "plain":
            continue
        for size in (0.1, 0.3, 1.0):
            rng = seeded(law.name, n, "beside", size)
            x = np.stack([law.draw(rng, n) for _ in range(runs)])
            q = x + size * law.sd * rng.exponential(size=x.shape) * rng.choice([-1.0, 1.0], x.shape)
            h = float(np.median(row_bandwidths(q, 1)))
            risks = [empriv.measure(with_them, without[None]) for with_them, without in zip(q, x, strict=True)]
            for epsilon in EPSILONS:
                line = f"{law.name:24}{size:>5}{n:>5}{epsilon:>5}"
                for name in scales:
                    kernel = kernel_of(name, h, law.sd)
                    noise = kernel.scale if kernel else 0.0
                    moves = np.array([risk.cover(epsilon, DELTA, noise=noise) for risk in risks])
                    best = true_cover(law, epsilon, kernel, law.whole_moves)
                    honest = float(np.mean(np.floor(moves / law.unit + 1e-6) * law.unit <= best))
                    found.setdefault(name, []).append(honest)
                    line += f"{100 * honest:>6.0f} ({np.median(moves) / best:5.2f})"
                print(line, flush=True)
    for name, each in found.items():
        print(f"  {name:6} least {100 * min(each):.0f}, mean {100 * np.mean(each):.1f}")


def bets(x: FloatArray, d: float, epsilon: float, kernel: NoiseKernel) -> float:
    """A bet on half of the databases, of the set that the other half chose."""
    from empriv.judge.noisy_laws import values

    n, e = len(x), math.exp(epsilon)
    train = np.zeros(n, bool)
    train[np.random.default_rng(0).permutation(n)[: n // 2]] = True
    w = values(x + d, x[None], kernel, np.array([epsilon]), weights=train.astype(float))[0, 0]
    own = w[int(np.argmax(w[:, train].mean(axis=1)))][~train]
    fractions = np.linspace(0.02, 0.98, 25)
    best = 0.0
    for m in np.linspace(0, 1, 401):
        growth = np.log1p(fractions[:, None] * ((own + e) / (m + e) - 1)).sum(axis=1)
        if np.logaddexp.reduce(growth) - math.log(25) < math.log(20):
            break
        best = float(m)
    return best


def lowers(arguments: argparse.Namespace) -> None:
    print(f"\nLower bounds of shift pairs: above the truth, above half of it, % of {arguments.runs} runs")
    print(f"{'':24}{'n':>5}{'eps':>5}{'truth':>8}{'':4}{'cross-fitted':>16}{'bet':>16}")
    sums: dict[tuple[str, int], list[FloatArray]] = {}
    for kind, law, n, _ in cells(arguments, arguments.sizes):
        if kind not in ("plain", "structured"):
            continue
        for epsilon in EPSILONS:
            d = moved_by(law, 2 * MOVES[epsilon] * law.sd)
            real = true_delta(law, epsilon, 0.0, constant(d))
            rng, counts = seeded(law.name, n, "lower"), np.zeros(4)
            for _ in range(arguments.runs):
                x = law.draw(rng, n)
                fitted = float(lower.of_moves(x, d, epsilon)[0, 0])
                bet = bets(x, d, epsilon, NoiseKernel("laplace", upper.bandwidth(x)))
                counts += [fitted > real, fitted > real / 2, bet > real, bet > real / 2]
            a, b, c, e = 100 * counts / arguments.runs
            sums.setdefault((kind, n), []).append(100 * counts / arguments.runs)
            print(f"{law.name:24}{n:>5}{epsilon:>5}{real:>8.3f}{'':4}{a:>8.0f}{b:>8.0f}{c:>8.0f}{e:>8.0f}", flush=True)
    for (kind, n), found in sums.items():
        print(
            f"  {kind:12}{n:>5}  mean "
            + "".join(f"{v:>8.1f}" for v in np.mean(found, axis=0))
            + f"   most above the truth {np.max(found, axis=0)[[0, 2]]}"
        )


def panel(count: int, present: int, databases: int = 365) -> empriv.Results:
    rng = np.random.default_rng(1)
    q = rng.normal(size=databases)
    where = np.sort(rng.integers(0, databases - present + 1, (count, present)), axis=1) + np.arange(present)
    influence = rng.lognormal(-4.5, 1.0, (count, 1)) * rng.lognormal(0.0, 0.3, (count, present))
    return empriv.Results(
        q=q,
        outcomes=np.zeros(databases, np.int8),
        databases=np.arange(databases),
        individuals=np.arange(count),
        starts=np.arange(0, count * present + 1, present),
        entry_database=where.ravel().astype(np.int32),
        entry_q=(q[where] - influence).ravel(),
        entry_outcomes=np.zeros(count * present, np.int8),
    )


def speed(arguments: argparse.Namespace) -> None:
    count = 1000 if arguments.quick else 10_000
    print(f"\nProcessor seconds, {count:,} people and 365 databases, epsilon .1, target {DELTA}; (over one measure)")
    alone(NoiseKernel("gaussian", 1.0), 0.1, 1.0)  # scipy is imported here
    for present in (5, 110, 365):
        results = panel(count, present)

        def timed(work: object) -> tuple[float, object]:
            start = time.process_time()
            value = work()  # type: ignore[operator]
            return time.process_time() - start, value

        base, _ = timed(lambda results=results: empriv.measure(results).delta_i([0.1]))
        pairs = split(results, look=False)
        h = upper.bandwidth(pairs.points)
        judged = JudgedAnswer(empriv.measure(results))
        jobs = {
            "as it is": lambda: upper.of_people(pairs, 0.1),  # noqa: B023
            "dither": lambda: upper.of_people(pairs, 0.1, NoiseKernel("laplace", DITHER * h)),  # noqa: B023
            "cover": lambda: covers.cover(pairs.points, 0.1, DELTA, NoiseKernel("laplace", DITHER * h)),  # noqa: B023
            "least noise": lambda: found_by_design(judged, 0.1),  # noqa: B023
        }
        line = f"  in {present:>3}: measure {base:.2f}"
        for name, work in jobs.items():
            seconds, _ = timed(work)
            line += f"; {name} {seconds:.2f} ({seconds / base:.1f})"
        print(line, flush=True)


SECTIONS = {"coverage": coverage, "cover": honesty, "noise": noise, "beside": beside, "lower": lowers, "speed": speed}


def main(words: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few runs of few laws, in a minute")
    parser.add_argument("--only", choices=tuple(SECTIONS))
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--law", help="part of a law's name")
    parser.add_argument("--fresh", action="store_true", help="coverage and cover on laws that nothing was chosen on")
    parser.add_argument("--n", default=ALL_SIZES)
    parser.add_argument("--as-it-is", action="store_true", help="coverage and cover without noise alone")
    arguments = parser.parse_args(words)
    arguments.sizes = tuple(int(part) for part in arguments.n.split(","))
    if arguments.quick:
        arguments.runs, arguments.sizes, arguments.law = 10, (100,), arguments.law or "normal"
    for name, section in SECTIONS.items():
        if arguments.only in (None, name):
            section(arguments)


if __name__ == "__main__":
    main()
