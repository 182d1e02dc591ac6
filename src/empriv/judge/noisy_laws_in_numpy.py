"""What `_noisy_laws.c` does, in numpy, for all rows at once: it runs where there is no compiler, and checks the other.

Laplace noise with and without a step, as there. Gaussian noise is done on the same lattice of a sixteenth of its scale.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from empriv.results import FloatArray

SLACK = 1e-10
REACH = 7.5
MOST_CELLS = 400_000
BoolArray = npt.NDArray[np.bool_]


def bound(w: FloatArray, z: float, c: float) -> FloatArray:
    """mean + z sd/sqrt(n - 1) + c m3/(sd^2 n), along the last axis; the mean where nothing varies."""
    n, mean = w.shape[-1], w.mean(axis=-1)
    if n < 2:
        return np.asarray(mean)
    d = w - mean[..., None]
    v = (d * d).mean(axis=-1)
    safe = np.where(v > 1e-30, v, 1.0)
    whole = mean + z * np.sqrt(safe / (n - 1)) + c * (d**3).mean(axis=-1) / (safe * n)
    return np.asarray(np.where(v > 1e-30, whole, mean))


def _sums(v: FloatArray, decay: FloatArray) -> FloatArray:
    """Sums so far along the last axis, each made less by the decay of every step since."""
    out = v.copy()
    for k in range(1, v.shape[1]):
        out[:, k] += out[:, k - 1] * decay[:, k - 1]
    return out


def _sums_back(v: FloatArray, decay: FloatArray) -> FloatArray:
    return _sums(v[:, ::-1], decay[:, ::-1])[:, ::-1]


class Laplace:
    """Both samples (rows, N) under Laplace noise of one scale for each row."""

    too_wide = False

    def __init__(self, a: FloatArray, b: FloatArray, weights: FloatArray, scale: FloatArray, step: float) -> None:
        x = np.concatenate((a, b), axis=1)
        finite = np.isfinite(x)
        self.order = np.argsort(np.where(finite, x, np.inf), axis=1, kind="stable")
        self.size, self.scale, self.step = a.shape[1], scale[:, None], step
        ordered = np.take_along_axis(np.where(finite, x, 0.0), self.order, axis=1)
        here = np.take_along_axis(finite, self.order, axis=1)
        self.gap = np.where(here[:, 1:], np.diff(ordered, axis=1) / self.scale, np.inf)
        self.decay = np.exp(-self.gap)
        own = np.where(here, np.concatenate((weights, weights))[self.order], 0.0)
        without = self.order >= self.size
        sides = (np.where(without, 0.0, own), np.where(without, own, 0.0))
        self.f = [_sums(v, self.decay) for v in sides]
        self.g = [_sums_back(v, self.decay) for v in sides]
        self.p = [f + g - v for f, g, v in zip(self.f, self.g, sides, strict=True)]
        self.here = here

    def psi(self, direction: int, f: float) -> FloatArray:
        """(rows, 2N) 1_A convolved with the noise at every result, A = {p_a > f p_b}; 1: the other way round."""
        a, b = direction, 1 - direction
        inside = (self.p[a] > f * (1 + SLACK) * self.p[b]) & self.here
        left = self.f[a][:, :-1] - f * self.f[b][:, :-1]
        right = self.g[a][:, 1:] - f * self.g[b][:, 1:]
        gap = np.where(np.isfinite(self.gap), self.gap, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            root = 0.5 * (np.log(-left / right) + gap)
        u = np.clip(np.where(left * right < 0, root, np.where(left > 0, gap, 0.0)), 0.0, gap)
        amplitude: FloatArray | float = 0.5
        if self.step:
            cells = np.rint(gap * self.scale / self.step)
            cell = np.clip(np.floor(u * self.scale / self.step + 1e-9), 0, np.maximum(cells - 1, 0))
            u = np.minimum((cell + 0.5) * self.step / self.scale, gap)
            amplitude = 0.5 / np.cosh(0.5 * self.step / self.scale)
        turn = np.where((inside[:, 1:] != inside[:, :-1]) & self.here[:, 1:], np.where(inside[:, :-1], 1.0, -1.0), 0.0)
        start, end = np.zeros_like(self.p[a]), np.zeros_like(self.p[a])
        start[:, 1:], end[:, :-1] = turn * np.exp(u - gap), turn * np.exp(-u)
        psi = inside + amplitude * (_sums(start, self.decay) - _sums_back(end, self.decay))
        out = np.zeros_like(psi)
        np.put_along_axis(out, self.order, np.where(self.here, psi, 0.0), axis=1)
        return np.asarray(out)


class Gaussian:
    """Both samples (1, N) of one row under Gaussian noise, on a lattice."""

    def __init__(self, a: FloatArray, b: FloatArray, weights: FloatArray, scale: float, step: float) -> None:
        fine = step or scale / 16
        x = np.concatenate((a, b))
        self.finite = np.isfinite(x)
        self.reach = math.ceil(REACH * scale / fine) + 1
        low, high = (x[self.finite].min(), x[self.finite].max()) if self.finite.any() else (0.0, 0.0)
        self.too_wide = not (high - low) / fine + 2 * self.reach + 8 <= MOST_CELLS
        if self.too_wide:
            return
        cells = int((high - low) / fine + 2 * self.reach + 8)
        y = (np.where(self.finite, x, low) - low) / fine
        base = np.rint(y) if step else np.floor(y)
        t = y - base if not step else np.zeros_like(y)
        self.shares = np.array(
            [
                -t * (t - 1) * (t - 2) / 6,
                (t + 1) * (t - 1) * (t - 2) / 2,
                -(t + 1) * t * (t - 2) / 2,
                (t + 1) * t * (t - 1) / 6,
            ]
        )
        self.cells = base.astype(np.int64) + self.reach + 1 + np.arange(4)[:, None]
        table = np.exp(-0.5 * (np.arange(-self.reach, self.reach + 1) * fine / scale) ** 2)
        self.table = table / table.sum()
        self.sums = np.cumsum(self.table)
        both = np.where(self.finite, np.concatenate((weights, weights)), 0.0) * self.shares
        sides = (slice(0, len(a)), slice(len(a), None))
        histograms = (np.bincount(self.cells[:, k].ravel(), both[:, k].ravel(), cells) for k in sides)
        self.p = [self._mixture(np.asarray(histogram, float)) for histogram in histograms]

    def _mixture(self, histogram: FloatArray) -> FloatArray:
        """The histogram convolved with the noise: few of its cells are not empty."""
        out = np.zeros(len(histogram) + 2 * self.reach)
        for cell in np.flatnonzero(histogram).tolist():
            out[cell : cell + len(self.table)] += histogram[cell] * self.table
        return out[self.reach : -self.reach]

    def psi(self, direction: int, f: float) -> FloatArray:
        """(1, 2N) 1_A convolved with the noise: the sum over ends of A of the noise's distribution function."""
        if self.too_wide:
            return np.zeros((1, len(self.finite)))
        own, other = self.p[direction], self.p[1 - direction]
        inside = ((own > f * (1 + SLACK) * other) & (own > 1e-14)).astype(float)
        steps = np.diff(inside, prepend=0.0)
        smoothed = np.zeros(len(own) + 2 * self.reach + 1)
        whole = np.zeros(len(smoothed))
        for cell in np.flatnonzero(steps).tolist():
            smoothed[cell : cell + len(self.sums)] += steps[cell] * self.sums
            whole[cell + len(self.sums)] += steps[cell]
        smoothed = (smoothed + np.cumsum(whole))[self.reach : self.reach + len(own)]
        return np.where(self.finite, (self.shares * smoothed[self.cells]).sum(axis=0), 0.0)[None]


def mixtures(
    a: FloatArray,
    b: FloatArray,
    draws: int,
    weights: FloatArray,
    gaussian: bool,
    step: float,
    scales: FloatArray,
    coefficients: FloatArray,
    e: FloatArray,
    levels: FloatArray,
    z: float,
    c: float,
    want_values: bool,
) -> FloatArray:
    """(rows, epsilons) bounds, or (rows, epsilons, 2, n) values of the first level: see `_noisy_laws.c`."""
    rows, size = b.shape
    a = np.broadcast_to(a, b.shape)
    n = size // draws
    if gaussian and rows > 1:
        parts = [
            mixtures(a[k : k + 1], b[k : k + 1], draws, weights, True, step, scales[k : k + 1], coefficients, e,
                     levels, z, c, want_values)
            for k in range(rows)
        ]  # fmt: skip
        return np.concatenate(parts)
    laws: list[Laplace | Gaussian]
    if gaussian:
        laws = [Gaussian(a[0], b[0], weights, float(scales[0, 0]), step)] if rows else []
    else:
        laws = [Laplace(a, b, weights, scales[:, k], step) for k in range(scales.shape[1])]
    best = np.zeros((rows, len(e)))
    values = np.zeros((rows, len(e), 2, n))
    for k, factor in enumerate(e.tolist()):
        for direction in (0, 1):
            for level in levels.tolist()[: 1 if want_values else None]:
                w = np.zeros((rows, n))
                for law, coefficient in zip(laws, coefficients.tolist(), strict=False):
                    psi = law.psi(direction, factor**level).reshape(rows, 2, n, draws).mean(axis=3)
                    w += coefficient * (psi[:, direction] - factor * psi[:, 1 - direction])
                values[:, k, direction] = w
                best[:, k] = np.maximum(best[:, k], bound(w, z, c))
    if any(law.too_wide for law in laws):
        best[:] = 1.0
    return values if want_values else best


def ends(a: FloatArray, b: FloatArray, draws: int, depth: int, e: FloatArray, z: float, c: float) -> FloatArray:
    """(rows, len(e)) as `noisy_laws.ends`, row by row."""
    rows, size = b.shape
    n = size // draws
    out = np.zeros((rows, len(e)))
    for row in range(rows):
        for own, other in ((a[row], b[row]), (b[row], a[row])):
            for sign in (1.0, -1.0):
                edge = np.sort(sign * other[np.isfinite(other)])[: depth + 1]
                low, high = 0, 1
                while low < len(edge):
                    line = edge[low:high, None]
                    mine, theirs = (
                        np.where(np.isfinite(x), (sign * x < line).mean(axis=0), 0.0).reshape(n, draws).mean(axis=1)
                        for x in (own, other)
                    )
                    w = mine[None, :] - e[:, None] * theirs[None, :]
                    out[row] = np.maximum(out[row], bound(w, z, c) - 1 / n)
                    low, high = high, 2 if high == 1 else 2 * high
    return out


def rayleigh(x: FloatArray, low: float, by: float, count: int) -> float:
    """As `noisy_laws.rayleigh`: exp(i (low + (64 k + j) by) x) is a product of two tables, and so are sums."""
    turns, block = 2j * np.pi * (x - x[0]), 64
    first = np.exp(turns[None, :] * (by * np.arange(block))[:, None])
    then = np.exp(turns[:, None] * (low + by * block * np.arange(-(-count // block)))[None, :])
    return float(np.abs(first @ then).T.ravel()[:count].max()) / len(x)
