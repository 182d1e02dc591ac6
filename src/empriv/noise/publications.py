"""What one publication of an answer with noise reveals of each person: effect sizes of the day's laws with the noise.

A noisy answer has the law of the noise around each result. Noise that is wider than the bandwidths which
`measuring.series` takes is itself the kernel; narrower noise counts as those bandwidths do, and as noise alone where
the answers keep to a pattern. Nothing is revealed that the noise alone hides.

What noise alone leaves of many moves, whatever the answers' law is (`squares_alone`): the noise and the noise moved are
a pair of known laws, composed exactly by privacy-loss distributions (`measuring.series.composition`). Gaussian noise of
standard deviation s leaves of a move d the Gaussian curve of size d/s, so that squares ``(d/s)^2`` add up. Of Laplace
noise the square is the least whose Gaussian curve is never below the exact composition at this epsilon, for two
publications or more; one is judged by itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from empriv.judge import gate
from empriv.judge.noise_kernels import NoiseKernel
from empriv.measuring.densities.density import Mixture, is_usual
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.line.risk import Risk, measure_line
from empriv.measuring.series.composition import composed_delta, gaussian_size
from empriv.measuring.series.effect_size import NARROW, EffectSizes, SizeCurve, grid_of
from empriv.measuring.series.repeated import PublicationEffects, curves_of, publication_moves
from empriv.noise.judging import kernel_of
from empriv.noise.law import Law
from empriv.results import FloatArray
from empriv.validate.covers import line_cover_of

_CELLS = 256  # between the two centres: more are taken together
_SMOOTH = 2.0  # steps of a lattice: Gaussian noise that is wider is as good as continuous
_REACH = 12.0  # standard deviations
_RATIOS = 12  # losses at which the price of Laplace noise is computed
_COMPARED = (1e-9, 0.9)  # deltas between which prices are compared
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
        if delta[0] > _COMPARED[1]:
            break
        if delta[0] > _COMPARED[0]:
            best = max(best, float(gaussian_size(delta, epsilon)[0]) ** 2 / times)
    return best if best > 0 else loss**2


_OFF = 1e-6  # steps of a lattice


def effects_with_noise(risk: Risk, law: Law, epsilon: float) -> PublicationEffects:
    """What one publication tells of each person; the law's narrowest part counts for all of it."""
    kernels = [kernel_of(law, part) for _, part in law.shares()]
    some = [kernel for kernel in kernels if kernel is not None]
    if len(some) < len(kernels):  # at times the answer is published as it is
        return risk.per_publication
    return _with_kernel(risk, min(some, key=lambda kernel: kernel.error), epsilon)


def _with_kernel(risk: Risk, kernel: NoiseKernel, epsilon: float) -> EffectSizes:
    hiding = line_cover_of(risk, kernel)
    pairs = replace(hiding.pairs, points=kernel.rounded(hiding.pairs.points))
    moves, owner = publication_moves(risk, hiding.moves)
    model = (risk if is_usual(risk.density) else measure_line(risk.results)).density
    curves: tuple[SizeCurve, ...] = ()
    if isinstance(model, Mixture):
        widths = model.bandwidth, model.likeliest
        if kernel.error >= NARROW * min(widths) or not patterned(risk, model.bandwidth, hiding.moves.sizes):
            noise = kernel.kind, kernel.scale
            curves = curves_of(pairs, hiding.moves, grid_of(moves), widths, noise=noise)
    finite = moves[np.isfinite(moves)]
    return EffectSizes(
        curves, moves, owner, pairs.n_individuals, len(pairs.points) // pairs.draws,
        alone=squares_alone(kernel, epsilon, float(finite.max(initial=0.0))),
    )  # fmt: skip


def patterned(risk: Risk, bandwidth: float, moves: FloatArray) -> bool:
    """Whether the answers keep to a pattern finer than the bandwidth, or to a lattice that a person moves them off."""
    results = risk.whole if isinstance(risk, GivenRisk) else risk.results
    points = np.ravel(results.q)[:: results.draws or 1]
    numbers = points[np.isfinite(points)]
    if len(numbers) < 2:
        return False
    step = gate.lattice_step(numbers)
    cells = moves[np.isfinite(moves)] / step if step > 0 else np.zeros(0)
    if np.any(np.abs(cells - np.rint(cells)) > _OFF):
        return True
    return bool(gate.refuted(numbers[None, :], np.array([bandwidth]))[0])
