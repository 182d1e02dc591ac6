"""`case_of`: what a decision on an audit rests on, from its verdicts and the noise designed for it, if any was.

The decision itself, in words, is `words.decision.decide`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.auditing.knowledge import known_to_readers
from empriv.noise.joint_noise import JointNoise
from empriv.noise.noise import Noise
from empriv.results import Results
from empriv.validate.verdict import Verdict, worst_of
from empriv.words.decision import DAY, Case, Hidden, Judged, NoisyAnswer

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit

LASTING = ("known", "databases", "iid")
"""Checks of severity "error" that noise does not answer."""


def case_of(audit: Audit, verdicts: Sequence[Verdict], noise: Noise | JointNoise | None = None) -> Case:
    """The case of an audit: of its worst verdict, or of its figures where there is none."""
    epsilon = audit.epsilons[0]
    if not verdicts:
        bounded = audit.bounds(np.array([epsilon]))
        return Case(
            None, None, epsilon, bounded.level, float(bounded.estimate[0]), float(bounded.upper[0]), audit.n_databases,
            known=known_to_readers(audit.measured_against), times=audit.times, sampled=_sampled(audit),
        )  # fmt: skip
    worst = worst_of(verdicts)
    judged = max(worst.judged, key=_how_bad)
    errors = [check for check in worst.checks if check.severity == "error"]
    return Case(
        outcome=str(worst),
        by_estimate=worst.basis == "estimate",
        judged=judged,
        epsilon=worst.epsilon,
        level=worst.level,
        delta=judged.estimate,
        upper=judged.upper,
        n_databases=audit.n_databases,
        hidden=hidden_on_the_day(worst, audit.unit),
        obstacles=tuple(check.sentence for check in errors),
        lasting=tuple(check.sentence for check in errors if check.code in LASTING),
        needed=worst.databases_needed,
        known=known_to_readers(audit.measured_against),
        presence=any(target.where == DAY for target in worst.judged),
        times=audit.times,
        sampled=_sampled(audit),
        noise=None if noise is None else noisy_answer(noise, audit, verdicts),
    )


def _sampled(audit: Audit) -> bool:
    return audit.origin is not None and audit.origin.sampled


def hidden_on_the_day(verdict: Verdict, unit: str) -> Hidden | None:
    """What the answer hides of what people did, for the words; None where the day was not judged."""
    day = verdict.day
    if day is None:
        return None
    return Hidden(day.typical, day.largest, day.days, day.beyond, day.exposed, day.people_beyond, day.varies, unit)


def _how_bad(target: Judged) -> tuple[bool, bool, float]:
    """Failed before unresolved before met; then by how far the upper bound is off."""
    broken = target.lower > target.limit
    return broken, target.upper > target.limit, target.upper - target.limit


@singledispatch
def noisy_answer(noise: Any, audit: Audit, verdicts: Sequence[Verdict]) -> NoisyAnswer:  # noqa: ARG001 — dispatched on
    """What noise costs, and whether it keeps the targets of all verdicts."""
    raise TypeError(f"noise of type {type(noise).__name__}")


@noisy_answer.register(Noise)
def _(noise: Noise, audit: Audit, verdicts: Sequence[Verdict]) -> NoisyAnswer:
    kept = not reasons_against(noise, audit) and all(_keeps(noise, verdict) for verdict in verdicts)
    return NoisyAnswer(
        noise.expected_error, typical_answer(audit.alone.results), noise.achieved_delta(), kept, audit.unit
    )


def reasons_against(noise: Noise, audit: Audit) -> tuple[str, ...]:
    """Why an answer of this audit must not be released with this noise, in sentences; nothing if it may be.

    All that offers, shows or releases noisy answers asks here.
    """
    reasons = []
    if not noise.holds:
        reasons.append("The upper bound on delta with this noise is above the target.")
    if noise.times < audit.times:
        reasons.append("The noise is for fewer publications than are judged.")
    # noise keeps its promise to the readers it was designed for, and not together with other releases
    if noise.given != (known_to_readers(audit.measured_against) != ()) or audit.composition is not None:
        reasons.append("The noise is for readers who know something else than those that are judged.")
    return (*reasons, *lasting_reasons(audit))


def lasting_reasons(audit: Audit) -> tuple[str, ...]:
    """What leaves a verdict open whatever noise is added, in sentences."""
    return tuple(check.sentence for check in audit.checks if check.severity == "error" and check.code in LASTING)


@noisy_answer.register(JointNoise)
def _(noise: JointNoise, audit: Audit, verdicts: Sequence[Verdict]) -> NoisyAnswer:
    parts = audit.alone.components
    errors: Mapping[str, float] = noise.expected_error
    typical = {name: typical_answer(parts[name].results) for name in errors}
    name = max(errors, key=lambda name: errors[name] / max(typical[name], np.finfo(float).tiny))
    met = all(
        noise.epsilon <= verdict.epsilon
        and all(target.name == "delta" and noise.delta <= target.limit for target in verdict.targets)
        for verdict in verdicts
    )
    kept = noise.holds and met and audit.composition is None and audit.times == 1
    return NoisyAnswer(errors[name], typical[name], noise.achieved_delta, kept, audit.unit, name)


def _keeps(noise: Noise, verdict: Verdict) -> bool:
    """Whether noise was designed for these targets, or for stricter ones."""
    met = all(target.name == "delta" and noise.delta <= target.limit for target in verdict.targets)
    # several publications are composed for all databases; one is asked where people are too
    there = verdict.presence == "random" or noise.presence == "both" or noise.times > 1
    return met and there and noise.epsilon <= verdict.epsilon


def typical_answer(results: Results) -> float:
    """Size of a typical answer: the mean of those that are numbers; NaN if none is."""
    answers = np.abs(results.q[np.isfinite(results.q)])
    return float(answers.mean()) if answers.size else float("nan")
