"""Noise for whole tables: how much of it there is, and how often the promise is kept when the law is known.

Run: python benchmarks/table_noise.py [--runs 20] [--databases 365] [--cells 20] [--size 0.3]

A table of 20 or 100 cells. Two people are in each cell, and one in three of them in a second cell too; a person changes
a cell by between a fifth and the whole of ``size`` standard deviations of what is left of the cell given the others.
The target is (0.1, 0.01), in a database that people are in. Errors are mean absolute errors over all cells, relative to
those of the sum rule (Laplace noise that holds at delta = 0 for every influence observed). Classical noise is Laplace
noise of one scale for all cells: the largest sum of influences over epsilon. "kept" is the share of runs in which the
true delta of everybody, by the law that the tables were drawn from, is within the target.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.signal import fftconvolve

from empriv.measuring.series.composition import gaussian_delta
from empriv.measuring.tables import measure_table
from empriv.noise.joint_noise import JointNoise, design_joint_noise
from empriv.results import Results

Floats = npt.NDArray[np.float64]
EPSILON, DELTA, STEP = 0.1, 0.01, 1 / 64
LAWS = {
    "normal": stats.norm(),
    "Laplace": stats.laplace(scale=np.sqrt(0.5)),
    "Student 5": stats.t(5, scale=np.sqrt(3 / 5)),
    "gamma 2": stats.gamma(2, loc=-np.sqrt(2), scale=np.sqrt(0.5)),
    "lognormal": stats.lognorm(0.5, loc=-np.exp(0.125), scale=1.0),
}


def people_of(d: int, size: float, rng: np.random.Generator, *, one_cell: bool) -> Floats:
    """(people, d) what each changes."""
    out = np.zeros((2 * d, d))
    for row in range(2 * d):
        cells = [row % d] + ([(row + 1 + row % 5) % d] if row % 3 == 0 and not one_cell else [])
        out[row, cells] = size * rng.uniform(0.2, 1.0, len(cells))
    return out


def table_of(q: Floats, changes: Floats) -> Results:
    n = len(q)
    parts = {
        f"cell {k}": Results.from_arrays(q[:, k], q[:, k] - changes[:, k, None] * np.ones(n)) for k in range(q.shape[1])
    }
    return Results.stack(parts)


def scales_of(noise: JointNoise) -> Floats:
    return np.array([law.parts[0].scale for law in noise.laws.values()])


def mean_error(noise: JointNoise) -> float:
    return float(np.mean(list(noise.expected_error.values())))


def true_delta(changes: Floats, noise: JointNoise, law: str, load: Floats) -> float:
    """The largest delta of anybody, in a database that they are in, by the law of the tables."""
    scales = scales_of(noise)
    if {each.parts[0].kind for each in noise.laws.values()} == {"laplace"}:
        return 0.0
    if law == "normal":
        covariance = load.T @ load + np.eye(load.shape[1]) + np.diag(scales**2)
        apart = np.einsum("ka,ab,kb->k", changes, np.linalg.inv(covariance), changes)
        return float(gaussian_delta(np.sqrt(apart), EPSILON).max())
    return max(shifted_delta(law, scales[cell], changes[:, cell].max()) for cell in range(len(scales)))


def shifted_delta(law: str, scale: float, change: float) -> float:
    """The hockey stick of one cell with noise against the same moved, on a fine grid."""
    x = np.linspace(-60, 60, 60_001)
    step = x[1] - x[0]
    reach = int(10 * scale / step) + 1
    kernel = stats.norm.pdf(np.arange(-reach, reach + 1) * step, scale=scale) * step
    cdf = fftconvolve(LAWS[law].cdf(np.append(x - step / 2, x[-1] + step / 2)), kernel, mode="same")
    inside = np.abs(x) < 60 - 11 * scale
    p = np.diff(cdf)[inside]
    grid = x[inside]
    density = p / step
    moved = np.interp(grid - change, grid, density)
    e = np.exp(EPSILON)
    return float(
        max((np.maximum(density - e * moved, 0) * step).sum(), (np.maximum(moved - e * density, 0) * step).sum())
    )


def row(d: int, size: float, law: str, n: int, runs: int) -> str:
    ratios, alone, classical, kept, most, seconds = [], [], [], [], [], []
    for seed in range(runs):
        rng = np.random.default_rng([seed, d, n])
        load = rng.normal(size=(2, d)) * (law == "normal")
        changes = people_of(d, size, rng, one_cell=law != "normal")
        own = LAWS[law].rvs(size=(n, d), random_state=rng)
        risk = measure_table(table_of(100 + rng.normal(size=(n, 2)) @ load + own, changes))
        start = time.process_time()
        noise = design_joint_noise(risk, epsilon=EPSILON, delta=DELTA, granularity=STEP, progress=False)
        seconds.append(time.process_time() - start)
        pure = design_joint_noise(risk, epsilon=EPSILON, granularity=STEP, progress=False)
        ratios.append(mean_error(noise) / mean_error(pure))
        alone.append(mean_error(pure))
        classical.append(changes.sum(axis=1).max() / EPSILON / mean_error(pure))
        truth = true_delta(changes, noise, law, load)
        kept.append(truth <= DELTA)
        most.append(truth)
    return (
        f"| {d} | {size:g} | {law} | {n} | {np.mean(alone):.2f} | {np.mean(classical):.2f} | {np.mean(ratios):.2f} "
        f"| {np.mean(kept):.2f} | {np.median(most):.4f} | {np.mean(seconds):.1f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--databases", type=int, default=365)
    parser.add_argument("--cells", type=int, action="append")
    parser.add_argument("--size", type=float, action="append")
    arguments = parser.parse_args()
    print("| cells | size | law | n | sum rule | classical | **by cell** | kept | median true delta | processor, s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for d in arguments.cells or (20, 100):
        for size in arguments.size or (1.0, 0.3, 0.15, 0.08):
            for law in LAWS if d == 20 and size < 1 else ("normal",):
                print(row(d, size, law, arguments.databases, arguments.runs), flush=True)


if __name__ == "__main__":
    main()
