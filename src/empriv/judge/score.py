"""Several numbers that a person moves at once: the line is the likelihood-ratio score.

What people did not touch is known. Of the numbers that they touched, *innovations* are the residuals of each given the
untouched ones and the touched ones before it: a person moves innovation j by w_j, and

    T(x) = sum over j of log f_j(x_j - w_j) - log f_j(x_j),   f_j the mixture of the noise at the innovations

is one number that tells as much as all of them where innovations are independent. The sets {T > l epsilon}, l over
`LEVELS`, and {-T > l epsilon} take the place of those of one number: the same noise draws, `DRAWS` a database, are put
on both sides, W is the share of them inside less e^epsilon times that of the other side, and B(W) is the bound, as in
`noisy_laws`. A fixed linear direction does not do: on gamma, exponential and two-peaked numbers it covered 0 to 45%.

Without noise the innovations are assumed to be smooth over their bandwidths: B(2 W_g - W_2g), as for one number, and
never less than the bound of an innovation by itself, which has half-lines at the ends and the floor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from empriv.judge.cover import of_moves
from empriv.judge.lower import FOLDS, folds_of, limits
from empriv.judge.noise_kernels import NoiseKernel, alone
from empriv.judge.noisy_laws import LEVELS, bound, corrections, finest
from empriv.judge.upper import LEAST_DATABASES, likeliest_of, row_bandwidths, unseen
from empriv.results import FloatArray

DRAWS = 32  # of the noise, for each database
_FINE = 8  # grid steps in the standard deviation of the noise
_WIDEST = 14  # logarithm of the most points of a grid
_LEAST = 1e-13  # of the highest density: what is lower is rounding
_TAIL = 12.0  # standard deviations of noise beyond the points


@dataclass(frozen=True, eq=False)
class Innovations:
    """What a person moved, free of what is known.

    Attributes
    ----------
    values : (N, t) of uncorrelated innovations; N is databases times draws
    move : (t,) by how much the person moves them
    mixing : (t, c) the share of each number's noise in each innovation
    kernels : (c,) the noise of each number; none as it is
    draws : of each database, next to each other
    """

    values: FloatArray
    move: FloatArray
    mixing: FloatArray
    kernels: tuple[NoiseKernel, ...]
    draws: int = 1

    @property
    def n(self) -> int:
        return len(self.values) // self.draws


def innovations(
    cells: FloatArray, covariance: FloatArray, move: FloatArray, kernels: Sequence[NoiseKernel], draws: int = 1
) -> Innovations:
    """Of cells (N, c) less what is known of them, with this covariance (c, c); with noise, of the noisy cells."""
    variances = np.array([(2.0 if kernel.kind == "laplace" else 1.0) * kernel.scale**2 for kernel in kernels])
    whole = covariance + np.diag(variances) if len(kernels) else covariance
    scale = np.sqrt(np.diag(whole))
    root = np.linalg.cholesky(whole / np.outer(scale, scale) + 1e-12 * np.eye(len(scale)))
    mixing = np.linalg.inv(root) / scale
    return Innovations(cells @ mixing.T, mixing @ move, mixing, tuple(kernels), draws)


def alone_of(kernels: Sequence[NoiseKernel], move: FloatArray, epsilon: float) -> float:
    """The most that independent noise on each number leaves of a move (c,), whatever the data are.

    Gaussian noise: one of the length of the move in its units. Else number by number, epsilon in proportion:
    P <= e^(epsilon_1) P_1 + delta_1 <= e^(epsilon_1) (e^(epsilon_2) P_2 + delta_2) + delta_1 <= ...
    """
    moved = [(kernel, abs(d)) for kernel, d in zip(kernels, move.tolist(), strict=True) if d]
    if not moved:
        return 0.0
    if len(moved) == 1 or all(kernel.kind == "gaussian" for kernel, _ in moved):
        size = np.sqrt(sum((_on_lattice(kernel, d) / kernel.scale) ** 2 for kernel, d in moved))
        unit = moved[0][0] if len(moved) == 1 else NoiseKernel("gaussian", 1.0)
        return float(alone(unit, epsilon, moved[0][1] if len(moved) == 1 else size)) + 0.0  # no -0
    sizes = np.array([d / kernel.scale for kernel, d in moved])
    parts = epsilon * sizes / sizes.sum()
    before, total = 0.0, 0.0
    for (kernel, d), part in zip(moved, parts.tolist(), strict=True):
        total += float(np.exp(before) * alone(kernel, part, d))
        before += part
    return min(1.0, total) + 0.0


def _on_lattice(kernel: NoiseKernel, move: float) -> float:
    return float(np.ceil(move / kernel.step - 1e-9) * kernel.step) if kernel.step else move


def upper(
    one: Innovations, epsilons: npt.ArrayLike, *, level: float = 0.95, noise_leaves: FloatArray | None = None
) -> FloatArray:
    """(epsilons,) U of the move.

    ``noise_leaves`` (epsilons,) is what noise alone leaves of it; without noise the gate must have been passed.
    """
    grid = np.atleast_1d(np.asarray(epsilons, float))
    if not one.move.any():
        return np.zeros(len(grid))
    most = np.ones(len(grid)) if noise_leaves is None else noise_leaves
    floor = unseen(one.n, grid, None, 1.0, level) * most
    if one.n < LEAST_DATABASES or np.all(most <= floor):
        return np.asarray(np.maximum(most, floor))
    if one.kernels:
        free = bound(w_of(one, grid), level).max(axis=(1, 2))
        return np.asarray(np.maximum(np.clip(np.minimum(most, free), 0.0, 1.0), floor))
    h = likeliest_of(one.values.T, one.draws)
    each = of_moves(one.values.T, one.move, grid, draws=one.draws, level=level, h=h, known_smooth=True).values.max(
        axis=0
    )
    if len(one.move) == 1 or np.all(each >= 1):
        return np.asarray(each)
    together = np.empty(len(grid))
    for k, epsilon in enumerate(grid.tolist()):
        g = finest(epsilon) * h
        narrow, wide = (w_of(_smoothed(one, scale), grid[k : k + 1], levels=(1.0,)) for scale in (g, 2 * g))
        together[k] = bound(2 * narrow - wide, level).max()
    return np.asarray(np.maximum(np.clip(together, 0.0, 1.0), each))


def estimate(one: Innovations, epsilon: float) -> float:
    """The hockey stick of the fitted laws, with the noise or at one bandwidth."""
    if not one.move.any():
        return 0.0
    fitted = one if one.kernels else _smoothed(one, row_bandwidths(one.values.T, one.draws))
    return float(np.clip(w_of(fitted, np.array([epsilon]), levels=(1.0,)).mean(axis=-1).max(), 0.0, 1.0))


def lower(one: Innovations, epsilon: float, *, level: float = 0.95) -> float:
    """What the databases demonstrate of the move: sets that four fifths of them choose, the fifth judges."""
    n = one.n
    if n < LEAST_DATABASES or not one.move.any():
        return 0.0
    fitted = one if one.kernels else _smoothed(one, row_bandwidths(one.values.T, one.draws))
    z, _ = corrections(level)
    fold, own = folds_of(n), np.zeros(n)
    for left_out in range(FOLDS):
        train = fold != left_out
        w = w_of(
            fitted, np.array([epsilon]), levels=(1.0,), weights=np.repeat(train, one.draws).astype(float)
        )[0, 0]  # fmt: skip
        seen = w[:, train]
        best = int(np.argmax(seen.mean(axis=1) - z * seen.std(axis=1) / np.sqrt(n)))
        own[~train] = w[best, ~train]
    return float(limits(own, level))


def _smoothed(one: Innovations, h: FloatArray) -> Innovations:
    """With Laplace noise of these scales on the innovations, in place of none; a constant keeps next to none."""
    safe = np.where(h > 0, h, 1e-3 * np.maximum(np.abs(one.move), 1e-300))
    kernels = tuple(NoiseKernel("laplace", width) for width in safe.tolist())
    return Innovations(one.values, one.move, np.eye(len(one.move)), kernels, one.draws)


def w_of(
    one: Innovations, epsilons: FloatArray, *, levels: tuple[float, ...] = LEVELS, weights: FloatArray | None = None
) -> FloatArray:
    """(epsilons, levels, 2, databases) W of both directions; ``weights`` (N,) of the points that choose the sets."""
    each = max(1, round(DRAWS / one.draws))
    noise = _noise(one.kernels, len(one.values), each) @ one.mixing.T  # (N, each, t)
    without = one.values[:, None, :] + noise
    shape = without.shape[:2]
    log_ratio: FloatArray = np.zeros(shape)
    log_ratio_with: FloatArray = np.zeros(shape)
    for j, w in enumerate(one.move.tolist()):
        if w == 0:
            continue
        log_density = _log_density(one.values[:, j], one.mixing[j], one.kernels, abs(w), weights)
        here, x = log_density(without[..., j]), without[..., j]
        log_ratio += log_density(x - w) - here
        log_ratio_with += here - log_density(x + w)
    log_ratio, log_ratio_with = log_ratio.reshape(one.n, -1), log_ratio_with.reshape(one.n, -1)
    out = np.empty((len(epsilons), len(levels), 2, one.n))
    for row, epsilon in enumerate(epsilons.tolist()):
        e = np.exp(epsilon)
        for k, share in enumerate(levels):
            at = share * epsilon
            out[row, k, 0] = (log_ratio_with > at).mean(axis=1) - e * (log_ratio > at).mean(axis=1)
            out[row, k, 1] = (log_ratio < -at).mean(axis=1) - e * (log_ratio_with < -at).mean(axis=1)
    return out


def _noise(kernels: Sequence[NoiseKernel], size: int, each: int) -> FloatArray:
    """(N, each, c) draws, the same whatever the scales are: a bound that is asked twice answers the same."""
    rng = np.random.default_rng(0)
    out = np.empty((size, each, len(kernels)))
    for c, kernel in enumerate(kernels):
        draw = rng.laplace if kernel.kind == "laplace" else rng.normal
        out[..., c] = kernel.scale * draw(size=(size, each))
    return out


class _LogDensity:
    """Logarithm of a density on a grid, by chords."""

    def __init__(self, low: float, step: float, values: FloatArray) -> None:
        self.low, self.step, self.values = low, step, values

    def __call__(self, x: FloatArray) -> FloatArray:
        place = np.clip((x - self.low) / self.step, 0.0, len(self.values) - 1.001)
        left = place.astype(np.int64)
        share = place - left
        return np.asarray(self.values[left] * (1 - share) + self.values[left + 1] * share)


def _log_density(
    points: FloatArray, shares: FloatArray, kernels: Sequence[NoiseKernel], w: float, weights: FloatArray | None
) -> _LogDensity:
    """Of points (N,) with the noise of every number, of which this innovation has a share: kernels are convolved."""
    scales = np.abs(shares) * np.array([kernel.scale for kernel in kernels])
    deviations = scales * np.array([np.sqrt(2.0) if kernel.kind == "laplace" else 1.0 for kernel in kernels])
    spread = float(np.sqrt((deviations**2).sum()))
    low, high = float(points.min()) - w - _TAIL * spread, float(points.max()) + w + _TAIL * spread
    size = 1 << int(np.clip(np.ceil(np.log2(_FINE * (high - low) / spread)), 8, _WIDEST))
    step = (high - low) / (size - 1)
    place = (points - low) / step
    left = place.astype(np.int64)
    share = place - left
    mass = np.ones(len(points)) if weights is None else weights
    law = np.bincount(left, mass * (1 - share), minlength=2 * size) + np.bincount(
        left + 1, mass * share, minlength=2 * size
    )
    transform = np.fft.rfft(law)
    x = step * np.minimum(np.arange(2 * size), 2 * size - np.arange(2 * size))
    for kernel, scale in zip(kernels, scales.tolist(), strict=True):
        if scale > 0.25 * step:  # what is narrower stays within a step
            shape = np.exp(-x / scale) if kernel.kind == "laplace" else np.exp(-0.5 * (x / scale) ** 2)
            transform = transform * np.fft.rfft(shape / shape.sum())
    density = np.fft.irfft(transform, 2 * size)[:size]
    return _LogDensity(low, step, np.log(np.maximum(density, _LEAST * density.max())))


def sizes_of(moves: npt.ArrayLike, precision: FloatArray) -> FloatArray:
    """(rows,) root of d'K d of moves (rows, c) with their precisions (rows, c, c): as far as normal laws are apart."""
    d = np.asarray(moves, float)
    return np.asarray(np.sqrt(np.maximum(np.einsum("ri,rij,rj->r", d, precision, d), 0.0)))
