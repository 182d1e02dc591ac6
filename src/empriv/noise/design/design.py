"""`design_noise`: the law of noise that makes a query private enough, for every individual at once.

Choices are checked here, and the methods with a scale of their own are made into laws: the classical scale, the
paper's, and Gaussian noise. Those that look for the least noise (calibrated, optimal, robust) are in `least`.
`certify` computes anew what a law achieves, and a law that misses its target is widened or refused.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from empriv.base.arguments import one_of, whole_number
from empriv.base.progress import progress as progress_bar
from empriv.errors import CertificateError, InputError
from empriv.measuring.densities.density import Mixture
from empriv.measuring.given.presence import presence_of
from empriv.noise import METHODS
from empriv.noise.design.again import least_again
from empriv.noise.design.constraints import Cases
from empriv.noise.design.deconvolution import DISTANCES, fourier, laplace_share, largest_distance
from empriv.noise.design.least import ATTEMPTS, least
from empriv.noise.design.programme import smallest_scale
from empriv.noise.design.search import Aim, HopelessError, least_noise
from empriv.noise.design.task import NONE, WIDER, Task
from empriv.noise.design.widened import for_presence
from empriv.noise.law import Law
from empriv.noise.measured import asks_presence, holds_no_answers, unit_of
from empriv.noise.noise import Noise

__all__ = ["FAMILIES", "METHODS", "design_noise"]

FAMILIES = ("laplace", "gaussian")
PRESENCES = ("both", "random")


def design_noise(
    risk: Any,
    *,
    epsilon: float,
    delta: float | None = None,
    total_risk: float | None = None,
    method: str = "robust",
    granularity: float | None = None,
    bound: float | None = None,
    distance: str = "bottleneck",
    family: str = "laplace",
    shape: str | None = None,
    times: int = 1,
    rng: int | np.random.Generator = 0,
    study: bool = False,
    presence: str | None = None,
    progress: bool | None = None,
) -> Noise:
    """The least noise, by a method, under which every individual's delta_i at ``epsilon`` is at most ``delta``.

    Parameters
    ----------
    risk : a `Risk`, or an `Audit` (of one measured together with earlier releases, the query alone)
    epsilon, delta : the target; without ``delta`` it is 0, or with a ``total_risk`` none of its own
    total_risk : largest chance that anybody's privacy fails, if failures are independent
    method : "robust" (default): the programme of "optimal", constrained also on joint resamples of the databases, at
        half the bandwidth and a smaller epsilon, because a design tuned to an estimate misses the truth more often
        than not; "optimal": a point mass and Laplace laws of several scales, the smallest expected error for the
        estimate; "calibrated": the smallest single scale for the estimate; "paper": Laplace(largest distance/epsilon)
        with the kernel deconvolved; "classical": Laplace(largest influence/epsilon)
    granularity : a decimal such as 0.01, or a power of two, that does not depend on the data; None takes a suggestion
        that does, and such a design is for study, not for release
    bound : a declared bound on the influence of any individual on any database, seen or not. Laplace(bound/epsilon)
        then keeps epsilon whatever the data: "classical" gives it, and so does "robust" where it is no wider
    distance : of "paper": "bottleneck", or "hausdorff" as printed, which is refused where its promise is broken
    family : of "calibrated": "laplace" or "gaussian"
    shape : "unimodal" asks for a symmetric law that falls away from 0; all methods but "paper" with a kernel other than
        Laplace give such laws anyway, and that one is refused
    times : publications, each from a database of its own, that together keep the target; by "robust", certified by
        their exact composition
    rng : seed of the resamples; nothing that is released is drawn from it
    study : return a design that misses its target instead of raising; it cannot be released
    presence : "both" asks that the target be met in a random database and in one that people are in, as the verdict on
        an audit does; "random" in a random one alone, as in the paper. Default: both for an audit, random for a risk
    progress : show a progress bar; None shows it if the work takes long

    Returns
    -------
    Noise
        With a certificate that was computed from the law itself.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> noise = empriv.design_noise(risk, epsilon=0.1, delta=0.05, granularity=0.25)
    >>> print(f"{noise.expected_error:.0f}, achieves delta {noise.achieved_delta():.3f}")
    11, achieves delta 0.026
    """
    task = Task.of(
        risk,
        epsilon=epsilon,
        delta=delta,
        total_risk=total_risk,
        method=method,
        granularity=granularity,
        bound=bound,
        study=study,
    )
    times = whole_number("times", times, least=1)
    _check_choices(task, method=method, distance=distance, family=family, shape=shape)
    if presence is not None:
        one_of("presence", presence, PRESENCES)
    if presence == "both" and times > 1:
        raise InputError("`presence` must be 'random' for several publications, which are composed for all databases.")
    noise = replace(
        _designed(task, times, distance, family, rng, progress), given=holds_no_answers(risk), unit=unit_of(risk)
    )
    both = times == 1 and (asks_presence(risk) if presence is None else presence == "both")
    return for_presence(task, noise, presence_of(task.risk)) if both else noise


def _designed(
    task: Task, times: int, distance: str, family: str, rng: int | np.random.Generator, progress: bool | None
) -> Noise:
    """The design for a random database."""
    with progress_bar(ATTEMPTS, "Designing noise", show=progress) as advance:
        try:
            if times > 1:
                return least_again(task, times, advance)
            if task.bound is not None and task.method == "classical":
                return task.finish(task.bounded(), "The scale is the declared bound over epsilon.")
            if task.method == "classical":
                return _classical(task)
            if task.method == "paper":
                return _paper(task, distance)
            if task.method == "calibrated" and family == "gaussian":
                return _gaussian(task)
            return least(task, rng, advance)
        except HopelessError:
            raise InputError(
                "Noise must be able to hide an individual, which it cannot here: results that are not numbers "
                "(NULL, NaN, an error) come and go with somebody too often for this target. "
                "Hint: a query that always gives a number, or a larger `delta`."
            ) from None


def _check_choices(task: Task, *, method: str, distance: str, family: str, shape: str | None) -> None:
    one_of("distance", distance, DISTANCES)
    one_of("family", family, FAMILIES)
    if shape not in (None, "unimodal"):
        raise InputError(f"`shape` must be None or 'unimodal', got {shape!r}.")
    density = task.risk.density
    mixture = density if isinstance(density, Mixture) else None
    if distance != "bottleneck" and method != "paper":
        raise InputError(f"`distance` must be left alone for the method {method!r}: only 'paper' has one.")
    if family != "laplace" and method != "calibrated":
        raise InputError(f"`family` must be 'laplace' for the method {method!r}: only 'calibrated' has another.")
    if family == "gaussian" and task.largest == 0.0:
        raise InputError("`delta` must be positive for Gaussian noise, whose tails keep no epsilon at delta = 0.")
    if shape == "unimodal" and method == "paper" and mixture is not None and mixture.kernel.name != "laplace":
        raise InputError(
            "`shape` must be None for the paper's deconvolution of this kernel, which need not be unimodal."
        )
    if (
        method == "optimal"
        and task.largest == 0.0
        and mixture is not None
        and mixture.kernel.name == "gaussian"
        and not np.isfinite(mixture.bandwidth)
    ):
        raise InputError(
            "`method` must not be 'optimal' at delta = 0 for a Gaussian kernel of variable bandwidth: the widest "
            "kernel rules the tails of the estimate, and the optimum is next to no noise. "
            "Hint: method='robust', or delta > 0."
        )


# Methods


def _classical(task: Task) -> Noise:
    influence = task.risk.influence()
    largest = float(influence[np.isfinite(influence)].max(initial=0.0))
    return _widened(task, lambda wider: task.law([(1.0, wider * largest / task.epsilon)]))


def _widened(task: Task, make: Callable[[float], Law], *notes: str) -> Noise:
    """The first law that holds as its scale is widened step by step: rounding costs a little."""
    for wider in WIDER:
        with suppress(CertificateError):  # a design for study never raises it: it is returned as it is
            return task.finish(make(wider), *notes)
    raise CertificateError(
        f"The {task.method} design must keep its target, but no widening up to {WIDER[-1]:g} times makes it. "
        "Hint: results that are not numbers cannot be hidden by noise."
    )


def _paper(task: Task, distance: str) -> Noise:
    cases = Cases.of(task.risk, granularity=task.granularity)
    scale = largest_distance(cases, distance) / task.epsilon
    density = task.risk.density
    widths = cases.widths[cases.codes == 0]
    kernel = density.kernel if isinstance(density, Mixture) and density.refit is None else None
    smooth = kernel is not None and len(widths) > 0 and float(widths.min()) > 0 and bool(np.all(cases.entry_widths > 0))
    narrowest = float(widths.min()) if smooth else 0.0

    def deconvolved(wider: float) -> Law:
        wide = scale * wider
        if kernel is None or not smooth:
            return task.law([(1.0, wide)])
        if kernel.log_lipschitz * wide <= narrowest:
            return task.law([(1.0, 0.0)])
        if kernel.name == "laplace":
            share = laplace_share(narrowest, wide, task.granularity)
            return task.law([(share, 0.0), (1.0 - share, wide)])
        deconvolution = fourier(kernel, narrowest, wide, task.granularity)
        if deconvolution is None:
            return task.law([(1.0, wide)])
        share, table = deconvolution
        return Law.of(task.granularity, [("laplace", share, wide), ("table", 1.0 - share, 0.0, table)])

    words = f"Scale from the {distance} distance, the kernel deconvolved where that is possible."
    if distance == "hausdorff":  # as printed: not widened
        return task.finish(deconvolved(1.0), words)
    for wider in (1.0, 1.001, 1.003, 1.01):
        with suppress(CertificateError):
            return task.finish(deconvolved(wider), words)
    return _widened(
        task,
        lambda wider: task.law([(1.0, wider * scale)]),
        "Deconvolving the kernel missed the target; Laplace noise of the same scale is used whole.",
    )


def _gaussian(task: Task) -> Noise:
    """The smallest Gaussian scale that the certificate accepts: asked directly, from a Laplace design's scale on."""

    def law(scale: float) -> Law:
        return Law.of(task.granularity, [("gaussian", 1.0, scale)])

    def holds(scale: float) -> bool:
        return scale >= task.granularity / 8 and task.certificate(law(scale)).holds

    none = task.law([(1.0, 0.0)])
    if task.certificate(none).holds:
        return task.finish(none, NONE)
    cases = Cases.of(task.risk, granularity=task.granularity)
    start = max(largest_distance(cases, "bottleneck") / task.epsilon, task.granularity)
    single = least_noise([Aim(cases, task.epsilon)], task.largest, mixed=False, start=start)[0][1]
    scale = smallest_scale(holds, max(single, task.granularity), tolerance=1e-3)
    if scale is None:
        raise HopelessError
    return task.finish(law(scale))
