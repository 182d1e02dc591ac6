"""The methods that look for the least noise: calibrated, optimal and robust, each ending with a certificate.

`constraints` makes what is constrained, and `search` finds the least noise for it. Where the certificate misses, the
target is tightened a little and those who miss join; robust designs are compared with laws that hold by themselves.
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from empriv.base.progress import Advance
from empriv.measuring.densities.density import Mixture
from empriv.measuring.line.residues import visible_share
from empriv.noise.certify.certificate import Certificate
from empriv.noise.design.constraints import Cases
from empriv.noise.design.deconvolution import laplace_share, largest_distance
from empriv.noise.design.programme import expected_error, smallest_scale
from empriv.noise.design.search import Aim, HopelessError, keeps, least_noise
from empriv.noise.design.task import NONE, WIDER, Task
from empriv.noise.law import Law
from empriv.noise.noise import Noise
from empriv.results import FloatArray

RESAMPLES = 40
MARGIN = 0.9
"""Share of epsilon that a robust design aims at, at half the bandwidth."""
MARGIN_PURE = 0.7
"""The same at delta = 0 without a declared bound, where the tails decide."""
HALF = 0.5
"""Of the bandwidth: what a robust design relies on."""

ATTEMPTS = 6
_ROUNDING = 3e-9  # what a certificate may add to delta
_TIGHTER = (0.9995, 0.99)  # first a little, for what rounding and tails add; then people who miss join too

_FAR = "The programme missed its certificate: one Laplace law, the narrowest that the certificate accepts, is used."
_FAR_ROBUST = "The programme missed its certificate: Laplace noise of the bottleneck distance over epsilon is used."
_MOST_HIDDEN = 0.4
_UNSEEN = (
    "Patterns in the last digits that fewer than {share:.0%} of the results follow cannot be seen with {n} databases: "
    "this noise may not hide them."
)
_PAIRS = (
    "Laplace noise of the bottleneck distance over epsilon is used: it keeps epsilon for all pairs observed and on the "
    "resamples, and is less than the programme asks for with its margin."
)


def least(task: Task, rng: int | np.random.Generator, advance: Advance) -> Noise:
    """The least noise that the certificate accepts."""
    robust = task.method == "robust"
    delta, pure = task.largest, task.largest == 0.0
    plug_in = Cases.of(task.risk, granularity=task.granularity, pure=pure)
    distance = largest_distance(plug_in, "bottleneck")
    start = distance / task.epsilon if distance > 0 else task.granularity
    notes: tuple[str, ...] = ()
    resampled, margin = None, 1.0
    if robust:
        weights = _resampled(task.risk.results.n_databases, rng)
        margin = MARGIN_PURE if pure and task.bound is None else MARGIN
        notes = (
            f"Designed at {margin:g} epsilon and half the bandwidth, "
            f"on the databases and {len(weights) - 1} resamples of them.",
        )
        share = visible_share(task.risk.pairs)
        if share > _MOST_HIDDEN:
            notes += (_UNSEEN.format(share=share, n=task.risk.results.n_databases),)
        resampled = Cases.of(
            task.risk, granularity=task.granularity, weights=weights, factor=HALF, literal=False, pure=pure
        )
    tighter, also = 1.0 - 1e-7, dict[int, None]()
    total = None if task.total_risk is None else -math.log1p(-task.total_risk)
    for attempt in range(1 if pure and _several_widths(plug_in) else ATTEMPTS):
        aims = [Aim(plug_in, task.epsilon * tighter)]
        if resampled is not None:
            aims = [Aim(resampled, margin * task.epsilon * tighter)]
            if plug_in.model is not None or also:
                aims.append(Aim(plug_in, task.epsilon * tighter))
        parts = least_noise(
            aims,
            max(delta * tighter - _ROUNDING, 0.5 * delta),
            mixed=task.method != "calibrated",
            start=start,
            also=[(len(aims) - 1, individual, 0) for individual in also],
            total=total,
        )
        advance()
        words = notes
        if resampled is not None and pure and task.bound is None:
            bottleneck = _bottleneck(task, plug_in, start)
            cheaper = expected_error(bottleneck, task.granularity) < expected_error(parts, task.granularity)
            if cheaper and keeps([Aim(resampled, task.epsilon * tighter)], delta, bottleneck):
                parts, words = bottleneck, (*notes, _PAIRS)
        law = task.law(parts)
        if task.bound is not None and robust:
            law = _cheaper(task, law)
        noise = task.tried(law, *words, *((NONE,) if law.only_point else ()))
        certificate = noise.certificate
        if certificate.holds:
            return noise if attempt == 0 or task.method != "optimal" else _at_most_calibrated(task, noise, rng, advance)
        if total is not None and task.total_risk is not None:
            # The sum was limited on a sample of people, perhaps on a coarser lattice: what it lacks is made up here.
            achieved = certificate.achieved_total_risk(task.epsilon)
            if achieved > task.total_risk:
                total *= 0.999 * math.log1p(-task.total_risk) / math.log1p(-min(achieved, 1.0 - 1e-9))
                continue
        if attempt >= len(_TIGHTER):
            also.update(dict.fromkeys(_missed(certificate, task.epsilon, delta)))
        tighter *= _TIGHTER[min(attempt, len(_TIGHTER) - 1)]
    return _single(task, start, notes)


def _at_most_calibrated(task: Task, noise: Noise, rng: int | np.random.Generator, advance: Advance) -> Noise:
    """The mixture, or one Laplace law where the tightened mixture costs more than that."""
    single = least(replace(task, method="calibrated"), rng, advance)
    return noise if noise.expected_error <= single.expected_error else replace(single, method=task.method)


def _single(task: Task, start: float, notes: tuple[str, ...]) -> Noise:
    """One Laplace law, by the certificate alone: for far tails that the design's window does not see.

    A robust design takes no less than the bottleneck distance over epsilon, which holds by itself but for rounding.
    """
    if task.method == "robust":
        for wider in WIDER:
            noise = task.tried(task.law([(1.0, wider * start)]), *notes, _FAR_ROBUST)
            if noise.certificate.holds:
                return noise
        raise HopelessError
    scale = smallest_scale(
        lambda width: width >= task.granularity / 8 and task.certificate(task.law([(1.0, width)])).holds,
        start,
        tolerance=0.01,
    )
    if scale is None:
        raise HopelessError
    return task.finish(task.law([(1.0, scale)]), *notes, _FAR)


def _several_widths(cases: Cases) -> bool:
    """Whether kernels differ in width: at delta = 0 the widest then rules far tails that no window holds."""
    widths = cases.widths[cases.widths > 0]
    return len(widths) > 0 and float(widths.min()) < float(widths.max())


def _resampled(n: int, rng: int | np.random.Generator) -> FloatArray:
    """(1 + resamples, n) shares of the databases: as they are, then drawn with replacement."""
    drawn = np.random.default_rng(rng).multinomial(n, np.full(n, 1.0 / n), RESAMPLES) / n
    return np.concatenate((np.full((1, n), 1.0 / n), drawn))


def _bottleneck(task: Task, cases: Cases, scale: float) -> list[tuple[float, float]]:
    """The paper's valid noise: Laplace of the bottleneck distance over epsilon; rounding costs a little.

    Half the bandwidth of a Laplace kernel is deconvolved from it, which leaves a point mass.
    """
    wide = scale + task.granularity / task.epsilon if cases.widths.min(initial=np.inf) == 0.0 else scale * 1.001
    density = task.risk.density
    fixed = isinstance(density, Mixture) and density.refit is None and density.kernel.name == "laplace"
    widths = np.concatenate((cases.widths[cases.codes == 0], cases.entry_widths[cases.entry_codes == 0]))
    width = HALF * float(widths.min(initial=np.inf))
    if not fixed or not 0.0 < width < wide:
        return [(1.0, wide)]
    share = laplace_share(width, wide, task.granularity)
    return [(share, 0.0), (1.0 - share, wide)]


def _cheaper(task: Task, law: Law) -> Law:
    """At delta = 0 the bound's Laplace law, whose promise is unconditional; else whichever has the smaller error."""
    bounded = task.bounded()
    return bounded if task.largest == 0.0 or bounded.expected_error <= law.expected_error else law


def _missed(certificate: Certificate, epsilon: float, delta: float) -> list[int]:
    """Individuals for whom the certificate misses, worst first."""
    pure = delta == 0
    over = certificate.achieved_epsilon_i(0.0) - epsilon if pure else certificate.achieved_delta_i(epsilon) - delta
    order = np.argsort(-over, kind="stable")[:24]
    return [int(i) for i in order if over[i] > 0]
