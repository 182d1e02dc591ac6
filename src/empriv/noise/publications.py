"""What one publication of an answer with noise tells of each person: effect sizes of the day's laws with the noise.

A noisy answer has the law of the noise around each result. Noise that is wider than the bandwidths which
`measuring.series` takes is itself the kernel; narrower noise counts as those bandwidths do, and as noise alone where
the answers keep to a pattern. Nothing is told that the noise alone hides.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from empriv.judge import gate
from empriv.judge.noise_kernels import NoiseKernel
from empriv.measuring.densities.density import Mixture, is_usual
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.line.risk import Risk, measure_line
from empriv.measuring.series.by_kind import PublicationEffects, curves_of, publication_moves
from empriv.measuring.series.effect_size import NARROW, EffectSizes, SizeCurve, grid_of
from empriv.noise.certify.noise_alone import squares_alone
from empriv.noise.judging import kernel_of
from empriv.noise.law import Law
from empriv.results import FloatArray
from empriv.validate.covering import hiding_of

_OFF = 1e-6  # steps of a lattice


def effects_with_noise(risk: Risk, law: Law, epsilon: float) -> PublicationEffects:
    """What one publication tells of each person; the law's narrowest part counts for all of it."""
    kernels = [kernel_of(law, part) for _, part in law.shares()]
    some = [kernel for kernel in kernels if kernel is not None]
    if len(some) < len(kernels):  # at times the answer is published as it is
        return risk.per_publication
    return _with_kernel(risk, min(some, key=lambda kernel: kernel.error), epsilon)


def _with_kernel(risk: Risk, kernel: NoiseKernel, epsilon: float) -> EffectSizes:
    hiding = hiding_of(risk, kernel)
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
    """Whether the answers keep to a pattern finer than the bandwidth, or to a lattice that somebody moves them off."""
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
