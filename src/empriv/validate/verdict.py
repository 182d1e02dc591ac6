"""`verdict`: does the query meet a target? "pass", "fail" or "unresolved", with reasons.

Two judgements stand side by side. By the bound: pass only if the upper bound meets the target and no check of
severity "error" stands; fail if the lower bound or the estimate breaks it. By the estimate: the paper's own
definition, the point estimate, which passes if it meets the target and the databases look i.i.d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from empriv.base.arguments import one_of, probability
from empriv.errors import InputError
from empriv.measuring.given.adversary_risk import AdversaryRisk
from empriv.measuring.joint.joint_risk import JointRisk
from empriv.measuring.line.risk import Risk
from empriv.validate.bounds.figures import LEAST_DATABASES, Bounds, bounds
from empriv.validate.checks.one_number import Check, checks
from empriv.words import sentences as words

PASS, FAIL, UNRESOLVED = "pass", "fail", "unresolved"
BASES = ("bound", "estimate")


@dataclass(frozen=True)
class Judged:
    """One target held against lower bound, estimate and upper bound."""

    name: str
    limit: float
    lower: float
    estimate: float
    upper: float


class Verdict(str):
    """ "pass", "fail" or "unresolved": a str that knows why.

    Made by the method `verdict` of an audit or a scan.

    Attributes
    ----------
    basis : "bound" or "estimate", whichever decided
    by_bound, by_estimate : both judgements
    reasons : in plain words, those of the deciding basis first
    databases_needed : how many would resolve it, by extrapolation; None if it is resolved, or none would
    sentence : both judgements side by side
    level, epsilon, targets, checks : what was asked, and what was looked at

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> verdict = empriv.audit(data, "avg(delay)").verdict(epsilon=0.1, delta=0.05)
    >>> verdict == "unresolved"
    True
    >>> verdict.sentence
    "By the paper's definition: unresolved; at 95% confidence: unresolved."
    """

    basis: str
    by_bound: str
    by_estimate: str
    reasons: tuple[str, ...]
    databases_needed: int | None
    sentence: str
    level: float
    epsilon: float
    targets: tuple[Judged, ...]
    checks: tuple[Check, ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": str(self),
            "basis": self.basis,
            "by_bound": self.by_bound,
            "by_estimate": self.by_estimate,
            "sentence": self.sentence,
            "reasons": list(self.reasons),
            "databases_needed": self.databases_needed,
            "level": self.level,
            "epsilon": self.epsilon,
            "targets": [{"figure": one.name, "limit": one.limit} for one in self.targets],
        }


def verdict(
    risk: Risk | JointRisk | AdversaryRisk,
    *,
    epsilon: float,
    delta: float | None = None,
    total_risk: float | None = None,
    basis: str = "bound",
    level: float = 0.95,
    found: Bounds | None = None,
    looked: Sequence[Check] | None = None,
) -> Verdict:
    """Judge a risk against targets.

    Parameters
    ----------
    risk : what was measured
    epsilon : where the targets hold
    delta, total_risk : the most that is allowed; at least one
    basis : "bound" (default) or "estimate", the paper's own definition
    level : of confidence of the bounds
    found, looked : bounds at this one epsilon and checks, if they are at hand already
    """
    one_of("basis", basis, BASES)
    if delta is None and total_risk is None:
        raise InputError("`delta` or `total_risk` must be given: a verdict needs a target.")
    for name, limit in (("delta", delta), ("total_risk", total_risk)):
        if limit is not None:
            probability(name, limit)
    found = bounds(risk, float(epsilon), level) if found is None else found
    looked = checks(risk, float(epsilon)) if looked is None else looked
    targets = []
    if delta is not None:
        targets.append(Judged("delta", delta, found.lower, found.estimate, found.upper))
    if total_risk is not None:
        targets.append(
            Judged("total_risk", total_risk, found.total_risk_lower, found.total_risk, found.total_risk_upper)
        )
    errors = [check for check in looked if check.severity == "error"]
    by_bound, bound_reasons = _by_bound(targets, errors, level)
    by_estimate, estimate_reasons = _by_estimate(targets, errors)
    need, known = _needed(targets, found.n_databases, level) if by_bound == UNRESOLVED else (None, False)
    said = words.needed(need) if known else ""
    out = Verdict(by_bound if basis == "bound" else by_estimate)
    out.basis, out.by_bound, out.by_estimate = basis, by_bound, by_estimate
    ordered = bound_reasons + estimate_reasons if basis == "bound" else estimate_reasons + bound_reasons
    out.reasons = tuple(dict.fromkeys(ordered))
    out.databases_needed = need
    out.sentence = words.side_by_side(by_estimate, by_bound, level, said)
    out.level, out.epsilon, out.targets, out.checks = level, float(epsilon), tuple(targets), tuple(looked)
    return out


def _by_bound(targets: Sequence[Judged], errors: Sequence[Check], level: float) -> tuple[str, list[str]]:
    reasons = []
    outcome = PASS
    for one in targets:
        if one.lower > one.limit:
            reasons.append(words.lower_breaks(one.name, one.lower, one.limit, level))
            outcome = FAIL
        if one.estimate > one.limit:
            reasons.append(words.estimate_meets(one.name, one.estimate, one.limit))
            outcome = FAIL
        if outcome != FAIL or one.lower <= one.limit >= one.estimate:
            reasons.append(words.bound_meets(one.name, one.upper, one.limit, level))
            if one.upper > one.limit and outcome == PASS:
                outcome = UNRESOLVED
    reasons += [check.sentence for check in errors]
    if errors and outcome == PASS:
        outcome = UNRESOLVED
    return outcome, reasons


def _by_estimate(targets: Sequence[Judged], errors: Sequence[Check]) -> tuple[str, list[str]]:
    reasons = [words.estimate_meets(one.name, one.estimate, one.limit) for one in targets]
    if any(one.estimate > one.limit for one in targets):
        return FAIL, reasons
    # The estimate holds exact leaks already, and is defined for any number of databases; i.i.d. it takes for granted.
    dependent = [check.sentence for check in errors if check.code == "iid"]
    return (UNRESOLVED if dependent else PASS), reasons + dependent


def _needed(targets: Sequence[Judged], n: int, level: float) -> tuple[int | None, bool]:
    """How many databases would bring the upper bounds to the targets, and whether that is what is missing.

    The floor must go below the target, and what the bound adds to the estimate shrinks as one over the root of n.
    """
    missing = [one for one in targets if one.upper > one.limit]
    most = LEAST_DATABASES
    for one in missing:
        if one.limit <= 0 or one.estimate >= one.limit:
            return None, True
        # rounded up from just below, so that 2,994.2 is 2,995
        most = max(most, math.ceil(math.log1p(-level) / math.log1p(-one.limit)) if one.limit < 1 else 1)
        if one.upper < 1:
            most = max(most, math.ceil(n * ((one.upper - one.estimate) / (one.limit - one.estimate)) ** 2))
    return (most if missing else None), bool(missing)
