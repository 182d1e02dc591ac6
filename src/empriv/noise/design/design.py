"""`design_noise`: the noise that makes a query private enough, for every individual at once.

One bound judges an answer with noise and without (`noise.judging`); the least noise is found by bisecting its scale
(`least`). Beside it stand the paper's noise, classical noise and none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from empriv.base.arguments import finite_epsilon, one_of, positive_number, whole_number
from empriv.errors import CertificateError, InputError
from empriv.judge.dither import dither as dither_noise
from empriv.judge.noise_kernels import NoiseKernel, classical
from empriv.measuring.line.risk import Risk
from empriv.noise import METHODS
from empriv.noise.design.bisecting import least_noise
from empriv.noise.design.deconvolution import paper_law
from empriv.noise.design.table_design import design_table_noise
from empriv.noise.judging import PRESENCES, JudgedAnswer
from empriv.noise.law import Law, check_granularity, decimal_at_most, own_rounding, suggested_granularity
from empriv.noise.measured import (
    asks_presence,
    has_several,
    holds_no_answers,
    one_number,
    several_numbers,
    unit_of,
)
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise

__all__ = ["METHODS", "classical_noise", "design_noise", "offered_granularity"]

_LARGEST_EPSILON = 50.0
_STEPS = 64  # granularities in the scale of noise, where nobody declared one

_WIDEST = 2.0**30  # granularities
_TOLERANCE = 5e-3  # of a scale

_NEVER = (
    "Noise must be able to hide an individual, which it cannot here: results that are not numbers (NULL, NaN, an "
    "error) come and go with somebody too often for this target. "
    "Hint: a query that always gives a number, or a larger `delta`."
)
_HOPELESS = (
    "Noise must be able to hide an individual, which it cannot here: somebody decides on some database whether there "
    "is an answer at all (NULL, NaN, an error). Hint: a query that always gives a number, such as coalesce(sum(x), 0); "
    "or presence='random', where that may happen seldom enough for the target."
)


def design_noise(
    risk: Any,
    *,
    epsilon: float,
    delta: float,
    method: str = "least",
    granularity: float | Mapping[str, float] | None = None,
    bound: float | None = None,
    presence: str | None = None,
    dither: bool = False,
    times: int = 1,
    consistent: bool = False,
) -> Noise | TableNoise:
    """Noise under which the upper bound of every individual's delta_i at ``epsilon`` is at most ``delta``.

    Parameters
    ----------
    risk : a `Risk`, or an `Audit` (of one measured together with earlier releases, the query alone)
    epsilon, delta : the target
    method : "least" (default): Laplace or Gaussian noise, whichever has the smaller expected error, of the least scale
        that the judge accepts, and never more than "classical"; "classical": the same of the least scale that hides the
        largest move (or ``bound``) whatever the data are, the analytic Gaussian mechanism among them; "paper":
        Laplace(bottleneck distance/epsilon) with the kernel deconvolved, which keeps the paper's promise by the
        estimate and is released only if the judge accepts it too; "as-it-is": none, which assumes that the law of the
        answers is smooth
    granularity : a decimal such as 0.01, or a power of two, that does not depend on the data; None takes a suggestion
        that does, and such a design is for study, not for release
    bound : a declared bound on how much anybody can move an answer, seen or not: a capped query has one. What is
        promised then covers all such people; where the noise alone keeps it, it holds whatever the data are
    presence : "both" asks that the target be met in a random database and on the day that people are in, as the
        verdict does; "random" in a random one alone, as in the paper. Default: as the audit asks, else both
    dither : at least as much noise as lets the bound assume nothing of the answers' law
    times : publications, each from a database of its own, that together keep the target; by "least"
    consistent : of several numbers, make cells add up again after the noise, by least squares: margins are the sums of
        their cells. It can only reduce the noise, and what is released is then no multiple of the granularity

    Several numbers get noise on each, of scales that one search finds; they take "least", ``granularity`` (one, or by
    name), ``presence`` and ``consistent`` alone.

    Returns
    -------
    Noise
        a `TableNoise` for several numbers

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> noise = empriv.design_noise(risk, epsilon=0.1, delta=0.05, granularity=0.25)
    >>> noise.achieved_delta() <= 0.05
    True
    """
    if has_several(risk):
        if method != "least" or bound is not None or dither or times != 1:
            raise InputError(
                "Several numbers must be given noise by the method 'least' of one publication, without bound or dither."
            )
        usual = "both" if asks_presence(risk) else "random"
        return design_table_noise(
            several_numbers(risk), epsilon=epsilon, delta=delta, granularity=granularity, consistent=consistent,
            presence=usual if presence is None else one_of("presence", presence, PRESENCES),
        )  # fmt: skip
    if consistent:
        raise InputError("`consistent` must be for several numbers, got one.")
    if isinstance(granularity, Mapping):
        raise InputError("`granularity` must be one number for noise on one number, got several by name.")
    return noise_for_one(
        risk, epsilon=epsilon, delta=delta, method=method, granularity=granularity, bound=bound, presence=presence,
        dither=dither, times=times,
    )  # fmt: skip


def noise_for_one(
    risk: Any,
    *,
    epsilon: float,
    delta: float,
    method: str = "least",
    granularity: float | None = None,
    bound: float | None = None,
    presence: str | None = None,
    dither: bool = False,
    times: int = 1,
) -> Noise:
    """`design_noise` of one number."""
    one = one_number(risk)
    finite_epsilon(epsilon)
    if not 0 < epsilon <= _LARGEST_EPSILON:
        raise InputError(f"`epsilon` must be positive and at most {_LARGEST_EPSILON:g}, got {epsilon}.")
    if not (isinstance(delta, int | float | np.number) and 0.0 <= delta < 1.0):
        raise InputError(f"`delta` must lie in [0, 1), got {delta}.")
    one_of("method", method, METHODS)
    usual = "both" if asks_presence(risk) else "random"
    presence = usual if presence is None else one_of("presence", presence, PRESENCES)
    times = whole_number("times", times, least=1)
    declared = None if granularity is None else check_granularity(granularity)
    if dither and method != "least":
        raise InputError(f"`dither` must be for the method 'least', got {method!r}.")
    judged = JudgedAnswer(one, presence, None if bound is None else _checked_bound(one, bound))
    design = _Design(judged, float(epsilon), float(delta), dither)
    facts: dict[str, Any] = {
        "epsilon": float(epsilon), "delta": float(delta), "method": method,
        "declared_granularity": declared is not None, "given": holds_no_answers(risk), "unit": unit_of(risk),
    }  # fmt: skip
    if times > 1:
        if bound is not None or method != "least" or dither or not delta:
            raise InputError(
                "`times` must go with a delta above 0 and the method 'least' alone: what is composed are the "
                "influences seen."
            )
        step = _step_for(one) if declared is None else declared
        return _for_times(Noise(_law(NoiseKernel("gaussian", step, step), step), judged, times=times, **facts))
    law, reach = design.made(method, declared)
    asked = judged if reach == judged.reach else JudgedAnswer(one, presence, reach)
    return _kept(Noise(law, asked, declared_bound=bound, **facts))


def _for_times(narrowest: Noise) -> Noise:
    """The least Gaussian noise for so many publications: the smallest scale that the judge accepts for one of them, and
    whose publications add up to the target. Squares of effect sizes add up, and those of Gaussian noise are least."""
    epsilon, delta, step = narrowest.epsilon, narrowest.delta, narrowest.step
    judged = narrowest.judged

    def of_scale(scale: float) -> Noise:
        return replace(narrowest, law=_law(NoiseKernel("gaussian", scale, step), step))

    hidden = max(judged.largest, step)
    once = least_noise(judged, [classical(epsilon, delta, hidden, "gaussian", step)], epsilon, delta)
    low = step if once is None else max(once.scale, step)
    high = low
    while not of_scale(high).composes(narrowest.times, epsilon, delta):
        low, high = high, 2 * high
        if high > _WIDEST * step:
            raise InputError(_NEVER)
    while high / low > 1.0 + _TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if of_scale(middle).composes(narrowest.times, epsilon, delta) else (middle, high)
    return _kept(of_scale(high))


def _kept(noise: Noise) -> Noise:
    """The noise, if it keeps its promise; the paper's keeps its own, by the estimate, and is given all the same."""
    if noise.method == "paper" or noise.holds:
        return noise
    if noise.method == "as-it-is":
        raise CertificateError(
            f"The answer as it is must be private enough to be released so, and its upper bound on delta is "
            f"{noise.achieved_delta():.2g} at epsilon {noise.epsilon:g}. Hint: dither=True adds the least noise that "
            "is enough."
        )
    raise CertificateError(_HOPELESS)


@dataclass(frozen=True, eq=False)
class _Design:
    """What is asked for."""

    judged: JudgedAnswer
    epsilon: float
    delta: float
    dither: bool

    def made(self, method: str, granularity: float | None) -> tuple[Law, float | None]:
        """The law, and the most that is promised to be hidden: None for twice as much as was seen of each person."""
        judged = self.judged
        if method in ("as-it-is", "paper") or not self._hidden > 0:
            step = _step_for(judged.risk) if granularity is None else granularity
            if method == "paper":
                return paper_law(judged.risk, judged.pairs, judged.moved, self.epsilon, step), judged.reach
            return Law.of(step, [("point", 1.0, 0.0)]), judged.reach
        find = self._classical if method == "classical" else self._least
        if granularity is None:  # as if there were no lattice; then one that is fine for it
            granularity = suggested_granularity(16 * find(0.0)[0].scale / _STEPS)
        kernel, reach = find(granularity)
        return _law(kernel, granularity), reach

    @property
    def _hidden(self) -> float:
        """The most that classical noise hides: what was declared, or the largest move."""
        return self.judged.largest if self.judged.reach is None else self.judged.reach

    def _widest(self, step: float) -> list[NoiseKernel]:
        """Classical noise of each kind; at delta = 0 only Laplace noise serves."""
        kinds = ("laplace", "gaussian") if self.delta > 0 else ("laplace",)
        return [classical(self.epsilon, self.delta, self._hidden, kind, step) for kind in kinds]

    def usual(self, step: float) -> NoiseKernel:
        """Classical noise of the smaller error."""
        return min(self._widest(step), key=lambda kernel: kernel.error)

    def _classical(self, step: float) -> tuple[NoiseKernel, float | None]:
        return self.usual(step), self._hidden

    def _least(self, step: float) -> tuple[NoiseKernel, float | None]:
        """The smaller error of both kinds, each judged with itself as the kernel; never more than classical noise.

        Where nothing less than classical noise does, so few databases support nothing better at this delta: the noise
        alone keeps the promise, for moves as large as were seen.
        """
        judged = self.judged
        found = least_noise(judged, self._widest(step), self.epsilon, self.delta)
        if found is None or found.error > self.usual(step).error:
            return self._classical(step)
        dithered = dither_noise(judged.pairs.points, draws=judged.pairs.draws, step=step) if self.dither else None
        if dithered is None or dithered.error <= found.error:
            return found, judged.reach
        if dithered.error >= self.usual(step).error:
            return self._classical(step)
        return (dithered if judged.meets(dithered, self.epsilon, self.delta) else found), judged.reach


def classical_noise(noise: Noise) -> NoiseKernel | None:
    """Classical noise at the same epsilon, delta, largest move and lattice, to compare with; None for several
    publications and where nobody moves the answer."""
    move = noise.judged.largest if noise.bound is None else noise.bound
    if noise.times > 1 or not move > 0:
        return None
    return _Design(JudgedAnswer(noise.risk, noise.presence, move), noise.epsilon, noise.delta, False).usual(noise.step)


def _law(kernel: NoiseKernel, granularity: float) -> Law:
    return Law.of(granularity, [(kernel.kind, 1.0, kernel.scale)])


def _checked_bound(risk: Risk, bound: float) -> float:
    positive_number("bound", bound)
    influence = risk.influence()
    if np.any(influence[np.isfinite(influence)] > bound * (1 + 1e-9)):
        raise InputError(
            "`bound` must be at least every influence that was observed, got one that is smaller than somebody's. "
            "Hint: a bound comes from the query and the rows it may meet, such as a cap on what each person adds."
        )
    return float(bound)


def _step_for(risk: Risk) -> float:
    """A power of two far below the noise that would dither the answer."""
    pairs = JudgedAnswer(risk).pairs
    dithered = dither_noise(pairs.points, draws=pairs.draws)
    influence = risk.influence()
    influence = influence[np.isfinite(influence) & (influence > 0)]
    width = dithered.scale if dithered is not None else float(influence.min()) if len(influence) else 1.0
    return suggested_granularity(16 * width / _STEPS)


def offered_granularity(risk: Any) -> float:
    """A granularity in people's own terms: far below the noise, and no finer than the answers are themselves.

    It is taken from the data, so it is an offer: whoever releases declares it.
    """
    one = one_number(risk)
    numbers = one.results.q[one.results.outcomes == 0]
    own = None if holds_no_answers(risk) else own_rounding(np.ravel(numbers))
    return max(decimal_at_most(4 * _step_for(one)), own or 0.0)
