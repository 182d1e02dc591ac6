"""The paper's noise: ``F^-1(F l_lambda / F k)``, the kernel k deconvolved out of a Laplace law.

Its scale is ``lambda = max_i d(P, P_i) / epsilon`` (Theorem 2). The distance d is the bottleneck distance, under which
the paper's proposition is true; the Hausdorff distance, under which it is stated, is kept to show that
(docs/method.md).
"""

from __future__ import annotations

import numpy as np

from empriv.measuring.densities.density import Mixture
from empriv.measuring.densities.kernels import Kernel
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.risk import Risk
from empriv.noise.law import Law
from empriv.results import FloatArray

_LARGEST_TABLE = 4096  # cells on each side
_REGULARISER = 1e-6


def paper_law(risk: Risk, pairs: Pairs, moved: FloatArray, epsilon: float, granularity: float) -> Law:
    """Laplace(largest distance/epsilon) with the kernel deconvolved where that is possible, on the lattice.

    ``moved`` (people,) is the most that each moved the answer.
    """
    scale = largest_distance(pairs, moved) / epsilon
    density = risk.density
    mixture = density if isinstance(density, Mixture) else None
    widths = np.zeros(0) if mixture is None else mixture.bandwidths[np.isfinite(risk.pairs.points)]
    narrowest = float(widths.min(initial=np.inf))
    if scale < granularity * 2.0**-8:
        return Law.of(granularity, [("point", 1.0, 0.0)])
    if mixture is None or not 0 < narrowest < np.inf:
        return Law.of(granularity, [("laplace", 1.0, scale)])
    if mixture.kernel.log_lipschitz * scale <= narrowest:
        return Law.of(granularity, [("point", 1.0, 0.0)])
    if mixture.kernel.name == "laplace":
        share = laplace_share(narrowest, scale, granularity)
        return Law.of(granularity, [("point", share, 0.0), ("laplace", 1.0 - share, scale)])
    deconvolution = fourier(mixture.kernel, narrowest, scale, granularity)
    if deconvolution is None:
        return Law.of(granularity, [("laplace", 1.0, scale)])
    share, table = deconvolution
    return Law.of(granularity, [("laplace", share, scale), ("table", 1.0 - share, 0.0, table)])


def largest_distance(pairs: Pairs, moved: FloatArray) -> float:
    """Largest bottleneck distance over individuals between the results with everyone and those without one.

    It is at most the individual's largest influence, so the search goes down the influences and stops when no other can
    be larger. Where some results are no numbers, the pairs stay as they are.
    """
    if not (np.isfinite(pairs.points).all() and np.isfinite(pairs.entries).all()):
        return float(moved.max(initial=0.0))
    order = np.argsort(-moved, kind="stable")
    q, best = np.sort(pairs.points), 0.0
    for start in range(0, len(order), 256):
        rows = order[start : start + 256]
        if moved[rows[0]] <= best:
            break
        distances = np.abs(np.sort(pairs.dense(rows), axis=1) - q).max(axis=1)
        best = max(best, float(distances.max()))
    return best


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
    """Deconvolution of any kernel: the share of Laplace(scale), and the table of the rest about 0.

    Far from 0 the quotient of transforms is a multiple c of Laplace(scale) with 1/c = E exp(Z/scale), Z drawn from the
    kernel. The rest is computed within ten bandwidths by a Tikhonov-regularised division of transforms, cut off
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
    # The rest, (laplace/smoothing - share·laplace): decays faster than either, so it is what is inverted.
    quotient = laplace * (smoothing / (smoothing**2 + _REGULARISER) - share)
    local = np.fft.irfft(quotient, length)
    table = np.maximum(np.concatenate((local[-middle:], local[: middle + 1])), 0.0)
    table = 0.5 * (table + table[::-1])
    if table.sum() <= 0:
        return None
    weights = np.rint(table / table.sum() * 2.0**52).astype(np.int64)
    return share, tuple(int(weight) for weight in weights)
