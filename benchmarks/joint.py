"""How far the joint measure of two numbers can be believed, beside that of tables, and what it costs.

    python benchmarks/joint.py              root mean square errors by number of databases and dimension
    python benchmarks/joint.py --coverage   coverage of the bounds
    python benchmarks/joint.py --hard       the same for rare participation, two peaks, heavy tails
    python benchmarks/joint.py --beside     two numbers as a plane and as a table: errors, coverage, upper bounds
    python benchmarks/joint.py --speed      time for 10,368 individuals, 41 databases, two numbers

Each law has a known truth: one individual whose removal shifts a vector by x. Errors are of delta at epsilon 0.1.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

import empriv
from empriv.measuring.joint.joint_risk import JointRisk, measure_joint
from empriv.measuring.joint.spaces import split_vectors
from empriv.measuring.line.atoms import split
from empriv.measuring.tables import measure_table
from empriv.results import Results

Array = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]
T = TypeVar("T")
SIZES = (41, 100, 365, 1000)
DIMENSIONS = (1, 2)
EPSILON = 0.1


def stacked(q: Array, without: Array) -> Results:
    """Results from (n, d) and (individuals, n, d)."""
    return Results.stack({f"c{k}": Results.from_arrays(q[:, k], without[:, :, k]) for k in range(q.shape[1])})


def gaussian_truth(distance: float, epsilon: float) -> float:
    """Hockey stick of two normal laws at this Mahalanobis distance."""
    if distance == 0:
        return 0.0
    return float(ndtr(distance / 2 - epsilon / distance) - math.exp(epsilon) * ndtr(-distance / 2 - epsilon / distance))


def laplace_truth(shift: Array, epsilon: float, draws: int = 400_000) -> float:
    """Hockey stick of a product of Laplace laws of scale 1 and its shift, by simulation (error below 0.001)."""
    x = np.random.default_rng(0).laplace(size=(draws, len(shift)))
    ratio = (np.abs(x - shift) - np.abs(x)).sum(axis=1)
    return float(np.maximum(-np.expm1(epsilon - ratio), 0.0).mean())


def correlation(d: int, r: float) -> Array:
    """A matrix whose square has correlations r."""
    return np.asarray(np.linalg.cholesky(np.full((d, d), r) + (1 - r) * np.eye(d)))


def laws(d: int) -> dict[str, tuple[Draw, Array, float]]:
    """Name: how the rest is drawn, the shift, and the true delta."""
    even = np.full(d, 0.5 / math.sqrt(d))
    one = np.eye(d)[0] * 0.5
    root = correlation(d, 0.6) if d > 1 else np.eye(1)
    bent = float(np.linalg.norm(np.linalg.solve(root, even)))

    def normal(g: np.random.Generator, n: int) -> Array:
        return g.normal(size=(n, d))

    return {
        "normal": (normal, even, gaussian_truth(0.5, EPSILON)),
        "normal, one number moved": (normal, one, gaussian_truth(0.5, EPSILON)),
        "correlated normal": (lambda g, n: g.normal(size=(n, d)) @ root.T, even, gaussian_truth(bent, EPSILON)),
        "laplace": (lambda g, n: g.laplace(size=(n, d)), even, laplace_truth(even, EPSILON)),
        "nobody": (normal, 0.02 * even, gaussian_truth(0.01, EPSILON)),
    }


def law_deltas(results: Results) -> Array:
    """delta_i of the joint law alone."""
    assert results.components is not None
    pairs = split_vectors(results, [split(results.component(name), look=True) for name in results.components])
    dimension = pairs.spaces[0].rank
    return JointRisk(results, {}, pairs, pairs.shifts(), (), (), dimension).law_delta_i(EPSILON)


def law_errors(n: int, d: int, runs: int) -> Array:
    """(runs, laws) errors of delta. Laws that differ in the shift alone share their draws, as other individuals."""
    found = []
    every = list(laws(d).values())
    for draw in dict.fromkeys(draw for draw, _, _ in every):
        shifts = np.stack([shift for other, shift, _ in every if other is draw])
        truths = np.array([truth for other, _, truth in every if other is draw])
        g = np.random.default_rng(n + 1000 * d)
        vectors = [draw(g, n) for _ in range(runs)]
        found.append([law_deltas(stacked(q, q - shifts[:, None, :])) - truths for q in vectors])
    return np.concatenate(found, axis=1)


def errors(runs: int, sizes: tuple[int, ...], dimensions: tuple[int, ...]) -> None:
    """Print root mean square errors: the mean over laws, and the worst law."""
    print(f"delta at epsilon {EPSILON:g}: root mean square error over {runs} runs, mean over laws / worst law")
    print("| n | " + " | ".join(f"d = {d}" for d in dimensions) + " |")
    print("|---|" + "---|" * len(dimensions))
    for n in sizes:
        print(f"| {n} |", end="", flush=True)
        for d in dimensions:
            found = np.sqrt(np.mean(law_errors(n, d, runs) ** 2, axis=0))
            print(f" {found.mean():.3f} / {found.max():.3f} |", end="", flush=True)
        print(flush=True)


def hard_laws() -> dict[str, tuple[object, object, float]]:
    """Two numbers: how the results with everyone and without are drawn, and the true delta, by simulation."""
    shift = np.array([2.0, 1.0])

    def rare(g: np.random.Generator, n: int) -> tuple[Array, Array]:
        rest = g.normal(size=(n, 2))
        return rest + shift * (g.random(n) < 0.1)[:, None], rest

    def bimodal(g: np.random.Generator, n: int) -> tuple[Array, Array]:
        rest = 0.3 * g.normal(size=(n, 2)) + 3.0 * np.sign(g.random(n) - 0.5)[:, None]
        return rest + 0.1, rest

    def curved(g: np.random.Generator, n: int) -> tuple[Array, Array]:
        x = g.normal(size=n)
        rest = np.column_stack((x, x**2 + 0.3 * g.normal(size=n)))
        return rest + np.array([0.0, 0.1]), rest

    def heavy(g: np.random.Generator, n: int) -> tuple[Array, Array]:
        rest = g.standard_t(3, size=(n, 2))
        return rest + np.array([0.5, 0.0]), rest

    e = math.exp(EPSILON)
    x = np.random.default_rng(0).normal(size=(1_000_000, 2))
    # with everyone over without: 0.9 + 0.1 exp(s.x - |s|^2/2)
    ratio = 0.9 + 0.1 * np.exp(x @ shift - 0.5 * shift @ shift)
    rare_truth = max(float(np.maximum(ratio - e, 0).mean()), float(np.maximum(1 - e * ratio, 0).mean()))
    grid = np.linspace(-400, 400, 4_000_001)
    t = (1 + grid**2 / 3) ** -2
    moved = (1 + (grid - 0.5) ** 2 / 3) ** -2
    heavy_truth = float(np.maximum(moved - e * t, 0).sum() / t.sum())
    return {
        "in one database of ten": (rare, None, rare_truth),
        "two peaks": (bimodal, None, gaussian_truth(0.1 * math.sqrt(2) / 0.3, EPSILON)),
        "t with 3 degrees of freedom": (heavy, None, heavy_truth),
        "on a parabola": (curved, None, gaussian_truth(0.1 / 0.3, EPSILON)),
    }


def hard_coverage(runs: int, sizes: tuple[int, ...]) -> None:
    """Print how often the bounds hold on laws of other shapes."""
    print("| law | d | n | upper holds | lower holds | median upper | truth |")
    print("|---|---|---|---|---|---|---|")
    for n in sizes:
        for name, (draw, _, truth) in hard_laws().items():
            g = np.random.default_rng(11 * n)
            upper, lower = [], []
            for _ in range(runs):
                q, without = draw(g, n)  # type: ignore[operator]
                found = empriv.bounds(measure_joint(stacked(q, without[None])), EPSILON)
                upper.append(found.upper)
                lower.append(found.lower)
            held, under = np.mean(np.array(upper) >= truth), np.mean(np.array(lower) <= truth)
            print(f"| {name} | 2 | {n} | {held:.2f} | {under:.2f} | {np.median(upper):.3f} | {truth:.3f} |", flush=True)


def coverage(runs: int, sizes: tuple[int, ...], dimensions: tuple[int, ...]) -> None:
    """Print how often the bounds hold."""
    print(f"bounds at 95%, epsilon {EPSILON:g}, {runs} runs: share of upper bounds that hold / of lower bounds, and")
    print("the median upper bound against the truth")
    print("| law | d | n | upper holds | lower holds | median upper | truth |")
    print("|---|---|---|---|---|---|---|")
    for d, n in ((d, n) for d in dimensions for n in sizes):
        for name, (draw, shift, truth) in laws(d).items():
            g = np.random.default_rng(7 * n + d)
            upper, lower = [], []
            for _ in range(runs):
                q = draw(g, n)
                found = empriv.bounds(measure_joint(stacked(q, (q - shift)[None])), EPSILON)
                upper.append(found.upper)
                lower.append(found.lower)
            held, under = np.mean(np.array(upper) >= truth), np.mean(np.array(lower) <= truth)
            print(
                f"| {name} | {d} | {n} | {held:.2f} | {under:.2f} | {np.median(upper):.3f} | {truth:.3f} |", flush=True
            )


def beside(runs: int, sizes: tuple[int, ...]) -> None:
    """Print two numbers measured by the density of their plane and as a table."""
    print("| law | n | truth | plane: error, upper holds, median upper | table: error, upper holds, median upper |")
    print("|---|---|---|---|---|")
    shifted = {
        name: (lambda g, n, draw=draw, shift=shift: (lambda q: (q, q - shift))(draw(g, n)), truth)
        for name, (draw, shift, truth) in laws(2).items()
    }
    for n in sizes:
        for name, (draw, truth) in {**shifted, **{k: (d, t) for k, (d, _, t) in hard_laws().items()}}.items():
            g, cells = np.random.default_rng(n), []
            pairs = [draw(g, n) for _ in range(runs)]  # type: ignore[operator]
            for measured in (measure_joint, measure_table):
                found = [empriv.bounds(measured(stacked(q, without[None])), EPSILON) for q, without in pairs]
                error = math.sqrt(np.mean([(bound.estimate - truth) ** 2 for bound in found]))
                held = np.mean([bound.upper >= truth for bound in found])
                cells.append(f"{error:.3f}, {held:.2f}, {np.median([bound.upper for bound in found]):.3f}")
            print(f"| {name} | {n} | {truth:.3f} | {' | '.join(cells)} |", flush=True)


def speed() -> None:
    """Print times for the size of the paper's example."""
    g = np.random.default_rng(0)
    q = g.normal(size=(41, 2))
    results = stacked(q, q - 0.3 * g.lognormal(-1, 1, size=(10368, 41, 2)))
    print("10,368 individuals, 41 databases, two numbers, all influences dense:")
    risk = timed("leaks and density", lambda: measure_joint(results))
    timed("delta_i of all", lambda: risk.delta_i(EPSILON))
    timed("bounds at one epsilon", lambda: empriv.bounds(risk, EPSILON))
    timed("one of the numbers alone", lambda: empriv.measure(results.component("c0")).delta_i(EPSILON))
    print(f"{np.count_nonzero(risk.shifts > EPSILON):,} individuals integrated")


def timed(name: str, step: Callable[[], T]) -> T:
    """Do a step and print what it took."""
    wall, work = time.perf_counter(), time.process_time()
    found = step()
    print(f"{name}: {time.perf_counter() - wall:.2f} s, {time.process_time() - work:.2f} s of processor time")
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--hard", action="store_true")
    parser.add_argument("--beside", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--dimensions", type=int, nargs="+", default=DIMENSIONS)
    parser.add_argument("--runs", type=int, default=0)
    asked = parser.parse_args()
    if asked.coverage:
        coverage(asked.runs or 100, tuple(asked.sizes), tuple(asked.dimensions))
    elif asked.hard:
        hard_coverage(asked.runs or 100, tuple(asked.sizes))
    elif asked.beside:
        beside(asked.runs or 20, tuple(asked.sizes))
    elif asked.speed:
        speed()
    else:
        errors(asked.runs or 40, tuple(asked.sizes), tuple(asked.dimensions))
