"""The paper's noise: a scale from the distance between results, and the kernel deconvolved out of a Laplace law.

The distance is the bottleneck distance, under which the paper's proposition is true; the Hausdorff distance, under
which it is stated, is kept for comparison (docs/errata.md). `certify` says what the noise achieves.
"""

from __future__ import annotations

import numpy as np

from empriv.measuring.densities.kernels import Kernel
from empriv.noise.design.constraints import Cases
from empriv.results import FloatArray, IntArray

DISTANCES = ("bottleneck", "hausdorff")

_LARGEST_TABLE = 4096  # cells on each side
_REGULARISER = 1e-6


def largest_distance(cases: Cases, distance: str) -> float:
    """Largest distance over individuals between the results with everyone and those without one.

    Both distances are at most the individual's largest influence, so the search goes down the influences and stops
    when none that is left can be larger. Where bandwidths differ between pairs, sorting would match kernels of
    different widths: the pairs stay as they are.
    """
    influences = cases.influences
    widths = cases.widths[cases.codes == 0]
    numbers_only = not cases.categories
    sortable = numbers_only and len(widths) > 0 and bool(np.all(widths == widths[0]))
    if not sortable:
        return float(influences.max(initial=0.0))
    order = np.argsort(-influences, kind="stable")
    q = np.sort(cases.points)
    best = 0.0
    for start in range(0, len(order), 256):
        rows = order[start : start + 256]
        if influences[rows[0]] <= best:
            break
        without = np.sort(_without(cases, rows), axis=1)
        if distance == "bottleneck":
            distances = np.abs(without - q).max(axis=1)
        else:
            distances = np.array([hausdorff(q, row) for row in without])
        best = max(best, float(distances.max()))
    return best


def _without(cases: Cases, rows: IntArray) -> FloatArray:
    results = cases.risk.results
    n = results.n_databases
    out = np.repeat(cases.points.reshape(1, n, cases.draws), len(rows), axis=0)
    for k, i in enumerate(rows):
        span = slice(results.starts[i], results.starts[i + 1])
        out[k, results.entry_database[span]] = cases.entries[span]
    return out.reshape(len(rows), -1)


def hausdorff(a: FloatArray, b: FloatArray) -> float:
    """Hausdorff distance of two sorted arrays: how far a point may be from the nearest of the other set."""

    def one_way(x: FloatArray, y: FloatArray) -> float:
        after = np.clip(np.searchsorted(y, x), 0, len(y) - 1)
        before = np.maximum(after - 1, 0)
        return float(np.minimum(np.abs(x - y[after]), np.abs(x - y[before])).max())

    return max(one_way(a, b), one_way(b, a))


def laplace_share(bandwidth: float, scale: float, cell: float) -> float:
    """Weight of the point mass that makes Laplace(scale) of a Laplace kernel, on the multiples of ``cell``.

    With a = exp(-cell/scale) the transform of a discrete Laplace law is (1-a)²/(1 + a² - a(z + 1/z)); the quotient of
    two of them is a constant plus a multiple of the second, the constant being (a_b/a)((1-a)/(1-a_b))². As the cell
    shrinks it becomes (bandwidth/scale)².
    """
    small, large = cell / bandwidth, cell / scale
    return float(np.exp(large - small) * (np.expm1(-large) / np.expm1(-small)) ** 2)


def fourier(kernel: Kernel, bandwidth: float, scale: float, cell: float) -> tuple[float, tuple[int, ...]] | None:
    """Deconvolution of any kernel: the share of Laplace(scale), and the table of what is left about 0.

    Far from 0 the quotient of transforms is a multiple c of Laplace(scale) with 1/c = E exp(Z/scale), Z drawn from the
    kernel. What is left is computed within ten bandwidths by a Tikhonov-regularised division of transforms, cut off
    below at 0 and scaled to mass 1 - c. None where no such c exists (tails heavier than Laplace's) or the table would
    be too large: then Laplace(scale) alone is the answer.
    """
    reach = min(kernel.reach, 40.0) if kernel.tail != "power" else np.inf
    middle = int(np.ceil(10.0 * bandwidth / cell)) if kernel.tail != "bounded" else int(np.ceil(4 * bandwidth / cell))
    if not np.isfinite(reach) or middle > _LARGEST_TABLE or kernel.log_lipschitz * scale <= bandwidth:
        return None
    half = max(int(np.ceil(reach * bandwidth / cell)), middle) + 1
    k = np.arange(-half, half + 1)
    masses = np.diff(kernel.cdf((np.append(k, half + 1) - 0.5) * cell / bandwidth))
    if kernel.tail == "exponential" and bandwidth * 1.01 >= scale / kernel.log_lipschitz:
        return None
    moment = float((masses * np.cosh(k * cell / scale)).sum())
    share = 1.0 / moment
    # Periodic lattice, long enough for Laplace(scale) to have died away.
    length = 1 << int(np.ceil(np.log2(max(4 * half, 80.0 * scale / cell))))
    if length > 1 << 22:
        return None
    frequency = 2.0 * np.pi * np.arange(length // 2 + 1) / length
    a = np.exp(-cell / scale)
    laplace = (1 - a) ** 2 / ((1 - a) ** 2 + 4 * a * np.sin(0.5 * frequency) ** 2)
    wrapped = np.zeros(length)
    wrapped[k % length] = masses
    smoothing = np.fft.rfft(wrapped).real
    # What is left, (laplace/smoothing - share·laplace): decays faster than either, so it is what is inverted.
    quotient = laplace * (smoothing / (smoothing**2 + _REGULARISER) - share)
    local = np.fft.irfft(quotient, length)
    table = np.maximum(np.concatenate((local[-middle:], local[: middle + 1])), 0.0)
    table = 0.5 * (table + table[::-1])
    if table.sum() <= 0:
        return None
    weights = np.rint(table / table.sum() * 2.0**52).astype(np.int64)
    return share, tuple(int(weight) for weight in weights)
