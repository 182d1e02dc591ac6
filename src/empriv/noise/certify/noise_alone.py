"""What noise alone leaves of many moves, whatever the answers' law is: composed exactly, and as one price a move.

The noise and the noise moved are a pair of known laws. T publications tell what T looks at it tell, by privacy-loss
distributions (`measuring.series.composition`). Gaussian noise of standard deviation s leaves of a move d exactly the
Gaussian curve of size d/s, so that squares (d/s)² add up. Of Laplace noise the square is the least whose Gaussian curve
is never below the exact composition at this epsilon, for two publications or more; one is judged by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from empriv.judge.noise_kernels import NoiseKernel
from empriv.measuring.series.composition import composed_delta, gaussian_size
from empriv.results import FloatArray

_CELLS = 256  # between the two centres: more are taken together
_SMOOTH = 2.0  # steps of a lattice: Gaussian noise that is wider is as good as continuous
_REACH = 12.0  # standard deviations
_RATIOS = 12  # losses at which the price of Laplace noise is computed
_TELLING = (1e-9, 0.9)  # deltas between which prices are compared
_SMALL = 0.03  # a loss below which sums are as good as normal


def pair_of_noise(kernel: NoiseKernel, move: float) -> tuple[FloatArray, FloatArray]:
    """Masses of the noise and of the noise moved, of outcomes that have one ratio of both."""
    step = kernel.step if kernel.step else move / _CELLS
    cells = math.ceil(move / step - 1e-9)
    if cells > _CELLS:
        step, cells = cells * step / _CELLS, _CELLS
    unit = step / kernel.scale
    if kernel.kind == "gaussian":
        far = math.ceil(_REACH / unit)
        k = np.arange(-far, far + cells + 1)
        p, q = (np.exp(-0.5 * ((k - centre) * unit) ** 2) for centre in (0, cells))
        return p / p.sum(), q / q.sum()
    # P(k) is c e^(-|k| unit): before the first centre and after the second the ratio stays
    k = np.arange(1, cells)
    c = -math.expm1(-unit) / (1.0 + math.exp(-unit))
    end = 1.0 / (1.0 + math.exp(-unit))
    rest = end * math.exp(-cells * unit)
    p = np.concatenate(([end], c * np.exp(-k * unit), [rest]))
    q = np.concatenate(([rest], c * np.exp(-(cells - k) * unit), [end]))
    return p, q


def squares_alone(kernel: NoiseKernel, epsilon: float, largest: float) -> Callable[[FloatArray], FloatArray]:
    """mu² that the noise alone leaves of moves of at most ``largest``, at an epsilon."""

    def in_cells(moves: FloatArray) -> FloatArray:
        return np.ceil(moves / kernel.step - 1e-9) * kernel.step if kernel.step else moves

    if kernel.kind == "gaussian" and kernel.scale >= _SMOOTH * kernel.step:
        return lambda moves: (in_cells(moves) / kernel.scale) ** 2
    if not largest > 0:
        return lambda moves: np.zeros(len(moves))
    if kernel.step:
        cells = np.geomspace(1.0, max(1.0, np.ceil(largest / kernel.step - 1e-9)), _RATIOS)
        losses = np.unique(np.rint(cells)) * kernel.step / kernel.scale
    else:
        losses = np.geomspace(_SMALL, max(largest / kernel.scale, _SMALL), _RATIOS)
    small = max(1.0, _price(replace(kernel, step=0.0), _SMALL, epsilon) / _SMALL**2) if losses[0] < _SMALL else 1.0
    ratios = np.array(
        # below, so many are needed to tell anything that their sum is normal
        [small if loss < _SMALL else _price(kernel, loss, epsilon) / loss**2 for loss in losses.tolist()]
    )

    def squares(moves: FloatArray) -> FloatArray:
        loss = in_cells(moves) / kernel.scale
        return np.asarray(np.interp(np.log(np.maximum(loss, losses[0])), np.log(losses), ratios) * loss**2)

    return squares


def _price(kernel: NoiseKernel, loss: float, epsilon: float) -> float:
    """The largest square, over numbers of publications, whose Gaussian curve meets the exact composition."""
    p, q = pair_of_noise(kernel, loss * kernel.scale)
    last = math.ceil((10.0 + 8.0 * epsilon) / loss**2)
    first = max(2, math.floor(epsilon / loss))  # fewer tell nothing: the loss of each is at most `loss`
    best = 0.0
    counts = {first, first + 1, first + 2, *np.geomspace(first, max(last, first), 6).astype(int).tolist()}
    for times in sorted(counts):
        delta = composed_delta(p, q, times, np.array([epsilon]))
        if delta[0] > _TELLING[1]:
            break
        if delta[0] > _TELLING[0]:
            best = max(best, float(gaussian_size(delta, epsilon)[0]) ** 2 / times)
    return best if best > 0 else loss**2
