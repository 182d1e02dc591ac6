"""`reasons_against`: may an answer be released with this noise? `case_of`: what a decision on an audit rests on.

Whatever offers, shows or releases an answer asks here: as it is by the verdict, with noise by `reasons_against`. The
decision in words is `words.decision.decide`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.auditing.knowledge import known_to_readers
from empriv.base.targets import Target
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.results import Results
from empriv.validate.checks import outlasts_noise
from empriv.validate.verdict import PASS, Verdict, worst_of
from empriv.words.decision import DAY, Case, JudgedTarget, NoisyAnswer

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit


def verdicts_on(audit: Audit, further: Sequence[Target] = ()) -> tuple[tuple[str, Verdict], ...]:
    """Each target of an audit with its verdict, and those on further ones, which never stand in their place."""
    asked: dict[Any, Target] = {}
    for target in (*audit.targets, *further):
        whole = _as_asked(target, audit)
        asked.setdefault((whole.figure, whole.limit, whole.epsilon, whole.basis, whole.presence), whole)
    return tuple(
        (
            target.text,
            audit.verdict(
                epsilon=target.epsilon,
                basis=target.basis,
                presence=target.presence,
                delta=target.limit if target.figure == "delta" else None,
                total_risk=target.limit if target.figure == "total_risk" else None,
            ),
        )
        for target in asked.values()
    )


def own_targets(audit: Audit) -> tuple[Target, ...]:
    """The audit's targets with what they leave open."""
    return tuple(_as_asked(target, audit) for target in audit.targets)


def _as_asked(target: Target, audit: Audit) -> Target:
    """A target with what it leaves open; an audit asked as in the paper says both."""
    if audit.paper:
        return replace(target, basis="estimate", presence="random")
    return replace(target, basis=target.basis or "bound", presence=target.presence or "both")


def case_of(audit: Audit, verdicts: Sequence[Verdict], noise: Noise | TableNoise | None = None) -> Case:
    """The case of an audit: of its worst verdict, or of its figures where there is none."""
    epsilon = audit.epsilons[0]
    if not verdicts:
        bounded = audit.bounds(np.array([epsilon]))
        return Case(
            None, None, epsilon, bounded.level, float(bounded.estimate[0]), float(bounded.upper[0]), audit.n_databases,
            known=known_to_readers(audit.measured_against), times=audit.times, sampled=_sampled(audit),
            nouns=audit.nouns,
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
        hidden=worst.day,
        unit=audit.unit,
        obstacles=tuple(check.sentence for check in errors),
        leak=next((check.numbers["what"] for check in errors if check.code == "exact-leak"), ""),
        needed=worst.databases_needed,
        known=known_to_readers(audit.measured_against),
        presence=any(target.where == DAY for target in worst.judged),
        times=audit.times,
        sampled=_sampled(audit),
        nouns=audit.nouns,
        noise=None if noise is None else noisy_answer(noise, audit, verdicts),
    )


def _sampled(audit: Audit) -> bool:
    return audit.origin is not None and audit.origin.sampled


def _how_bad(target: JudgedTarget) -> tuple[bool, bool, float]:
    """Failed before unresolved before met; then by how far the upper bound is off."""
    broken = target.lower > target.limit
    return broken, target.upper > target.limit, target.upper - target.limit


def noisy_answer(noise: Noise | TableNoise, audit: Audit, verdicts: Sequence[Verdict]) -> NoisyAnswer:
    """What noise costs, and why an answer must not be released with it, if so."""
    against = reasons_against(noise, audit, verdicts)
    if isinstance(noise, Noise):
        typical = typical_answer(audit.alone.results)
        return NoisyAnswer(noise.expected_error, typical, noise.achieved_delta(), against, cover=cover_with(noise))
    parts = audit.alone.components
    errors: Mapping[str, float] = noise.expected_error
    sizes = {name: typical_answer(parts[name].results) for name in errors}
    name = max(errors, key=lambda name: errors[name] / max(sizes[name], np.finfo(float).tiny))
    return NoisyAnswer(errors[name], sizes[name], noise.achieved_delta(), against, name)


def cover_with(noise: Noise) -> float:
    """What the answer with noise hides of what people did; NaN where the noise was not asked for that."""
    return noise.cover if noise.times == 1 and noise.presence == "both" and noise.expected_error > 0 else math.nan


def reasons_against(noise: Noise | TableNoise, audit: Audit, verdicts: Sequence[Verdict] = ()) -> tuple[str, ...]:
    """Why an answer of this audit must not be released with this noise, in sentences; nothing if it may be.

    ``verdicts`` are on targets that have to be met besides the noise's own.
    """
    reasons = []
    if not noise.holds:
        reasons.append("The upper bound on delta with this noise is above the target.")
    own = own_targets(audit)
    if not (
        all(_keeps(noise, verdict) for verdict in verdicts)
        and all(target.allows(noise.epsilon, noise.delta, noise.presence) for target in own)
    ):
        reasons.append("The noise is for a target that allows more than the one that is judged.")
    if (noise.times if isinstance(noise, Noise) else 1) < audit.times:
        reasons.append("The noise is for fewer publications than are judged.")
    # noise keeps its promise to the readers it was designed for, and not together with other releases
    others = isinstance(noise, Noise) and noise.given != (known_to_readers(audit.measured_against) != ())
    if others or audit.composition is not None:
        reasons.append("The noise is for readers who know something else than those that are judged.")
    if isinstance(noise, Noise) and noise.expected_error <= 0:  # the answer is released as it is
        before = audit.verdict(epsilon=noise.epsilon, delta=noise.delta, presence=noise.presence)
        reasons += [] if before == PASS else before.reasons[:1]
    return tuple(dict.fromkeys((*reasons, *(check.sentence for check in audit.checks if outlasts_noise(check)))))


def _keeps(noise: Noise | TableNoise, verdict: Verdict) -> bool:
    """Whether noise was designed for these targets, or for stricter ones."""
    met = all(target.name == "delta" and noise.delta <= target.limit for target in verdict.targets)
    on_the_day = noise.presence == "both" or verdict.presence == "random"
    return met and on_the_day and noise.epsilon <= verdict.epsilon


def typical_answer(results: Results) -> float:
    """Size of a typical answer: the mean of those that are numbers; NaN if none is."""
    answers = np.abs(results.q[np.isfinite(results.q)])
    return float(answers.mean()) if answers.size else float("nan")
