"""`design_noise`: the law of noise that makes a query private enough, for every individual at once.

Here a method is turned into a law: the paper's scale, one calibrated scale, the linear programme on the estimate, the
same programme on resamples as well (robust), or the classical scale. How the least noise is found is in `search` and
`programme`; what a law achieves is computed anew by `certify`, and a law that misses its target is widened or refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from empriv.errors import CertificateError, InputError
from empriv.measuring.densities import Mixture
from empriv.measuring.risk import Risk
from empriv.noise.certify import Certificate, certify
from empriv.noise.constraints import Cases, design_cell
from empriv.noise.deconvolution import DISTANCES, fourier, laplace_share, largest_distance
from empriv.noise.lattice import Law, check_granularity
from empriv.noise.noise import Noise, certified
from empriv.noise.programme import smallest_scale
from empriv.noise.search import Aim, HopelessError, least_noise
from empriv.progress import Advance
from empriv.progress import progress as progress_bar
from empriv.results import FloatArray

METHODS = ("robust", "optimal", "calibrated", "paper", "classical")
FAMILIES = ("laplace", "gaussian")

RESAMPLES = 40
MARGIN = 0.9
"""Share of epsilon that a robust design aims at, at half the bandwidth."""
MARGIN_PURE = 0.7
"""The same at delta = 0 without a declared bound, where the tails decide."""

_ATTEMPTS = 5
_ROUNDING = 3e-9  # what a certificate may add to delta
_TIGHTER = (0.9995, 0.99)  # first a little, for what rounding and tails add; then who misses is asked, too
_WIDER = (1.0, 1.001, 1.003, 1.01, 1.03, 1.1, 1.3, 2.0, 4.0)


def design_noise(
    risk: Any,
    *,
    epsilon: float,
    delta: float = 0.0,
    total_risk: float | None = None,
    method: str = "robust",
    granularity: float | None = None,
    bound: float | None = None,
    distance: str = "bottleneck",
    family: str = "laplace",
    shape: str | None = None,
    rng: int | np.random.Generator = 0,
    study: bool = False,
    progress: bool | None = None,
) -> Noise:
    """The least noise, by a method, under which every individual's delta_i at ``epsilon`` is at most ``delta``.

    Parameters
    ----------
    risk : a `Risk`, or an `Audit`
    epsilon, delta : the target
    total_risk : largest chance that anybody's privacy fails; alone, it asks for no ``delta`` of its own
    method : "robust" (default): the programme of "optimal", constrained also on joint resamples of the databases, at
        half the bandwidth and a smaller epsilon, because a design tuned to an estimate misses the truth more often
        than not; "optimal": a point mass and Laplace laws of several scales, the smallest expected error for the
        estimate; "calibrated": the smallest single scale for the estimate; "paper": Laplace(largest distance/epsilon)
        with the kernel deconvolved; "classical": Laplace(largest influence/epsilon)
    granularity : a power of two that does not depend on the data; None takes a suggestion that does, and such a design
        is for study, not for release
    bound : a declared bound on the influence of any individual on any database, seen or not. Laplace(bound/epsilon)
        then keeps epsilon whatever the data: "classical" gives it, and so does "robust" where it is no wider
    distance : of "paper": "bottleneck", or "hausdorff" as printed, which is refused where its promise is broken
    family : of "calibrated": "laplace" or "gaussian"
    shape : "unimodal" asks for a symmetric law that falls away from 0; all methods but "paper" with a kernel other than
        Laplace give such laws anyway, and that one is refused
    rng : seed of the resamples; nothing that is released is drawn from it
    study : return a design that misses its target instead of raising; it cannot be released
    progress : show a bar; None when it takes long and a terminal is there

    Returns
    -------
    Noise
        With a certificate that was computed from the law itself.
    """
    task = _task(
        risk,
        epsilon=epsilon,
        delta=delta,
        total_risk=total_risk,
        method=method,
        granularity=granularity,
        bound=bound,
        study=study,
    )
    _check_choices(task, method=method, distance=distance, family=family, shape=shape)
    with progress_bar(_ATTEMPTS, "Designing noise", show=progress) as advance:
        try:
            if bound is not None and method == "classical":
                return task.finish(_bounded(task), "The scale is the declared bound over epsilon.")
            if method == "classical":
                return _classical(task)
            if method == "paper":
                return _paper(task, distance)
            if method == "calibrated" and family == "gaussian":
                return _gaussian(task)
            return _programme(task, rng, advance)
        except HopelessError:
            raise InputError(
                "Noise must be able to hide an individual, which it cannot here: results that are no numbers "
                "(NULL, NaN, an error) come and go with somebody too often for this target. "
                "Hint: a query that always gives a number, or a larger `delta`."
            ) from None


@dataclass(frozen=True, eq=False)
class _Task:
    """One design: what is asked, on which risk and which lattice."""

    risk: Risk
    epsilon: float
    delta: float
    total_risk: float | None
    method: str
    granularity: float
    declared: bool
    bound: float | None
    study: bool

    def certificate(self, law: Law) -> Certificate:
        """What the law achieves."""
        return certify(self.risk, law, epsilon=self.epsilon, delta=self.delta, total_risk=self.total_risk)

    def finish(self, law: Law, *notes: str) -> Noise:
        """The law as noise; its certificate must hold unless the design is for study."""
        return certified(
            self.risk,
            law,
            method=self.method,
            epsilon=self.epsilon,
            delta=self.delta,
            total_risk=self.total_risk,
            declared_bound=self.bound if self._unconditional(law) else None,
            declared_granularity=self.declared,
            notes=notes,
            study=self.study,
        )

    def law(self, parts: Sequence[tuple[float, float]]) -> Law:
        """A law of a point mass (scale 0) and Laplace laws on the granularity."""
        narrow = self.granularity * 2.0**-8  # narrower laws never leave 0
        return Law.of(
            self.granularity,
            [("point", w, 0.0) if s < narrow else ("laplace", w, s) for w, s in _merged(parts, narrow)],
        )

    def _unconditional(self, law: Law) -> bool:
        """Whether any change of at most the bound keeps epsilon by this law alone: all scales are at least that wide.

        A change of b moves the rounded answer by at most ceil(b/granularity) cells.
        """
        if self.bound is None:
            return False
        least = _bound_scale(self.bound, self.granularity, self.epsilon) * (1 - 1e-12)
        return all(part.kind == "laplace" and part.scale >= least for part in law.parts)


def _merged(parts: Sequence[tuple[float, float]], narrow: float) -> list[tuple[float, float]]:
    """Scales too narrow for the lattice joined to the point mass."""
    total: dict[float, float] = {}
    for weight, scale in parts:
        key = 0.0 if scale < narrow else scale
        total[key] = total.get(key, 0.0) + weight
    return [(weight, scale) for scale, weight in sorted(total.items()) if weight > 0]


def _task(
    risk: Any,
    *,
    epsilon: float,
    delta: float,
    total_risk: float | None,
    method: str,
    granularity: float | None,
    bound: float | None,
    study: bool,
) -> _Task:
    risk = getattr(risk, "risk", risk)  # an Audit has one
    if not isinstance(risk, Risk):
        raise InputError(f"`risk` must be a Risk or an Audit, got {type(risk).__name__}.")
    if not (isinstance(epsilon, int | float | np.number) and math.isfinite(epsilon) and 0 < epsilon <= 50):
        raise InputError(f"`epsilon` must be positive and at most 50, got {epsilon}.")
    if not 0.0 <= delta < 1.0:
        raise InputError(f"`delta` must lie in [0, 1), got {delta}.")
    if total_risk is not None and not 0.0 < total_risk < 1.0:
        raise InputError(f"`total_risk` must lie between 0 and 1, got {total_risk}.")
    if method not in METHODS:
        raise InputError(f"`method` must be one of {', '.join(METHODS)}, got {method!r}.")
    if bound is not None:
        if not (math.isfinite(bound) and bound > 0):
            raise InputError(f"`bound` must be positive and finite, got {bound}.")
        influence = risk.influence()
        if np.any(influence[np.isfinite(influence)] > bound):
            raise InputError(
                "`bound` must be at least every influence that was observed, got one that is smaller than somebody's. "
                "Hint: a bound comes from the query and the rows it may meet, such as a cap on amounts."
            )
    if total_risk is not None and delta == 0.0:
        delta = total_risk  # nobody's delta_i exceeds the total
    elif total_risk is not None:
        delta = min(delta, total_risk)
    declared = granularity is not None
    chosen = check_granularity(granularity) if granularity is not None else design_cell(risk, None)
    return _Task(risk, float(epsilon), float(delta), total_risk, method, chosen, declared, bound, study)


def _check_choices(task: _Task, *, method: str, distance: str, family: str, shape: str | None) -> None:
    if distance not in DISTANCES:
        raise InputError(f"`distance` must be one of {', '.join(DISTANCES)}, got {distance!r}.")
    if family not in FAMILIES:
        raise InputError(f"`family` must be one of {', '.join(FAMILIES)}, got {family!r}.")
    if shape not in (None, "unimodal"):
        raise InputError(f"`shape` must be None or 'unimodal', got {shape!r}.")
    density = task.risk.density
    mixture = density if isinstance(density, Mixture) else None
    if distance != "bottleneck" and method != "paper":
        raise InputError(f"`distance` must be left alone for the method {method!r}: only 'paper' has one.")
    if family != "laplace" and method != "calibrated":
        raise InputError(f"`family` must be 'laplace' for the method {method!r}: only 'calibrated' has another.")
    if family == "gaussian" and task.delta == 0.0:
        raise InputError("`delta` must be positive for Gaussian noise, whose tails keep no epsilon at delta = 0.")
    if shape == "unimodal" and method == "paper" and mixture is not None and mixture.kernel.name != "laplace":
        raise InputError(
            "`shape` must be None for the paper's deconvolution of this kernel, which need not be unimodal."
        )
    if (
        method == "optimal"
        and task.delta == 0.0
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


def _bound_scale(bound: float, granularity: float, epsilon: float) -> float:
    return granularity * math.ceil(bound / granularity) / epsilon


def _bounded(task: _Task) -> Law:
    assert task.bound is not None
    return task.law([(1.0, _bound_scale(task.bound, task.granularity, task.epsilon))])


def _classical(task: _Task) -> Noise:
    influence = task.risk.influence()
    largest = float(influence[np.isfinite(influence)].max(initial=0.0))
    return _widened(task, lambda wider: task.law([(1.0, wider * largest / task.epsilon)]))


def _widened(task: _Task, make: Callable[[float], Law], *notes: str) -> Noise:
    """The first law that holds as its scale is widened step by step: rounding costs a little."""
    for wider in _WIDER:
        with suppress(CertificateError):  # a design for study never raises it: it is returned as it is
            return task.finish(make(wider), *notes)
    raise CertificateError(
        f"The {task.method} design must keep its target, but no widening up to {_WIDER[-1]:g} times makes it. "
        "Hint: results that are no numbers cannot be hidden by noise."
    )


def _paper(task: _Task, distance: str) -> Noise:
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
        found = fourier(kernel, narrowest, wide, task.granularity)
        if found is None:
            return task.law([(1.0, wide)])
        share, table = found
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


def _gaussian(task: _Task) -> Noise:
    """The smallest Gaussian scale that the certificate accepts: asked directly, from a Laplace design's scale on."""

    def law(scale: float) -> Law:
        return Law.of(task.granularity, [("gaussian", 1.0, scale)])

    def holds(scale: float) -> bool:
        return scale >= task.granularity / 8 and task.certificate(law(scale)).holds

    none = task.law([(1.0, 0.0)])
    if task.certificate(none).holds:
        return task.finish(none, _NONE)
    cases = Cases.of(task.risk, granularity=task.granularity)
    start = max(largest_distance(cases, "bottleneck") / task.epsilon, task.granularity)
    single = least_noise([Aim(cases, task.epsilon)], task.delta, mixed=False, start=start)[0][1]
    scale = smallest_scale(holds, max(single, task.granularity), tolerance=1e-3)
    if scale is None:
        raise HopelessError
    return task.finish(law(scale))


_FAR = "The programme missed its certificate: one Laplace law, the narrowest that the certificate accepts, is used."
_NONE = "No noise is needed: the law is the point mass at 0."


def _programme(task: _Task, rng: int | np.random.Generator, advance: Advance) -> Noise:
    """Calibrated, optimal and robust: the least noise, certified; tightened where the certificate misses."""
    weights = _resampled(task.risk.results.n_databases, rng) if task.method == "robust" else None
    first = _certified_least(task, task.delta, weights, advance)
    if isinstance(first, Noise) or task.total_risk is None:
        return first if isinstance(first, Noise) else task.finish(first[0], *first[1])
    law, notes = first
    if task.certificate(law).holds:
        return task.finish(law, *notes)
    # One delta for everyone, as large as the total allows: with delta = total/individuals it always does.
    low, high = -math.log1p(-task.total_risk) / max(1, int(np.count_nonzero(task.risk.shifts > 0))), task.delta
    law, notes = _drawn(_certified_least(task, low * (1 - 1e-6), weights, advance))
    for _ in range(7):
        middle = math.sqrt(low * high)
        found, words = _drawn(_certified_least(task, middle, weights, advance))
        if task.certificate(found).holds:
            low = middle
            if found.expected_error <= law.expected_error:
                law, notes = found, words
        else:
            high = middle
    return task.finish(law, *notes)


def _drawn(found: Noise | tuple[Law, tuple[str, ...]]) -> tuple[Law, tuple[str, ...]]:
    return (found.law, found.notes) if isinstance(found, Noise) else found


def _resampled(n: int, rng: int | np.random.Generator) -> FloatArray:
    """(1 + resamples, n) shares of the databases: as they are, then drawn with replacement."""
    drawn = np.random.default_rng(rng).multinomial(n, np.full(n, 1.0 / n), RESAMPLES) / n
    return np.concatenate((np.full((1, n), 1.0 / n), drawn))


def _certified_least(
    task: _Task, delta: float, weights: FloatArray | None, advance: Advance
) -> Noise | tuple[Law, tuple[str, ...]]:
    """The least noise at one delta for everyone that a certificate accepts.

    Without a total risk that is the answer. With one, the law and its notes: the total is yet to be seen.
    """
    pure = delta == 0
    plug_in = Cases.of(task.risk, granularity=task.granularity, pure=pure)
    start = largest_distance(plug_in, "bottleneck") / task.epsilon
    if start == 0.0:
        start = task.granularity
    notes: tuple[str, ...] = ()
    resampled, margin = None, 1.0
    if weights is not None:
        margin = MARGIN if delta > 0 or task.bound is not None else MARGIN_PURE
        notes = (
            f"Designed at {margin:g} epsilon and half the bandwidth, "
            f"on the databases and {len(weights) - 1} resamples of them.",
        )
        resampled = Cases.of(
            task.risk, granularity=task.granularity, weights=weights, factor=0.5, literal=False, pure=pure
        )
    tighter, also = 1.0 - 1e-7, dict[int, None]()
    for attempt in range(_ATTEMPTS):
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
        )
        advance()
        law = task.law(parts)
        if task.bound is not None and weights is not None:
            law = _cheaper(task, law)
        words = notes + ((_NONE,) if law.only_point else ())
        if task.total_risk is None:
            with suppress(CertificateError):  # certified once: the certificate is what takes long
                noise = task.finish(law, *words)
                if noise.certificate.holds:
                    return noise
        elif certify(task.risk, law, epsilon=task.epsilon, delta=delta).holds:
            return law, words
        if attempt >= len(_TIGHTER):
            certificate = certify(task.risk, law, epsilon=task.epsilon, delta=delta)
            also.update(dict.fromkeys(_missed(certificate, task.epsilon, delta)))
        tighter *= _TIGHTER[min(attempt, len(_TIGHTER) - 1)]
    # Far tails that the design's window does not see can decide (kernels of several widths at delta = 0): then the
    # certificate itself is asked, for one scale.
    scale = smallest_scale(
        lambda one: (
            one >= task.granularity / 8
            and certify(task.risk, task.law([(1.0, one)]), epsilon=task.epsilon, delta=delta).holds
        ),
        start,
        tolerance=0.01,
    )
    if scale is None:
        raise HopelessError
    law = task.law([(1.0, scale)])
    return (law, (*notes, _FAR)) if task.total_risk is not None else task.finish(law, *notes, _FAR)


def _cheaper(task: _Task, law: Law) -> Law:
    """At delta = 0 the bound's Laplace law, whose promise is unconditional; else whichever has the smaller error."""
    bounded = _bounded(task)
    return bounded if task.delta == 0.0 or bounded.expected_error <= law.expected_error else law


def _missed(certificate: Certificate, epsilon: float, delta: float) -> list[int]:
    """Individuals for whom the certificate misses, worst first."""
    pure = delta == 0
    over = certificate.achieved_epsilon_i(0.0) - epsilon if pure else certificate.achieved_delta_i(epsilon) - delta
    order = np.argsort(-over, kind="stable")[:24]
    return [int(i) for i in order if over[i] > 0]
