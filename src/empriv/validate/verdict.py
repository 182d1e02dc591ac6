"""`verdict`: does the query meet a target? "pass", "fail" or "unresolved", with reasons.

Two judgements stand side by side. By the bound: pass only if the upper bound meets the target and no check of
severity "error" stands; fail only if the larger of both lower bounds, by betting and cross-fitted, breaks it; else
unresolved, the reason first. An estimate above the target alone decides nothing. By the estimate: the paper's own
definition, the point estimate, which passes if it meets the target and the databases look i.i.d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from empriv.base.arguments import one_of, probability
from empriv.base.display import lines_html
from empriv.errors import InputError
from empriv.measuring.contract import RiskContract
from empriv.validate.bounds import LEAST_DATABASES, Bounds, bounds
from empriv.validate.checks import Check, checks
from empriv.words.decision import Judged
from empriv.words.findings import Finding
from empriv.words.sentences import needed, side_by_side

PASS, FAIL, UNRESOLVED = "pass", "fail", "unresolved"
BASES = ("bound", "estimate")


class Verdict(str):
    """ "pass", "fail" or "unresolved": a str that knows why.

    Made by the method `verdict` of an audit or a scan.

    Attributes
    ----------
    basis : "bound" or "estimate", whichever decided
    by_bound, by_estimate : both judgements; the estimate is that of a random database, as in the paper
    by_estimate_when_present : the estimate's judgement in a database that people are in; None if that was not asked
    findings : the reasons, those of the deciding basis first: codes and numbers, or checks
    databases_needed : how many would resolve it, by extrapolation; None if it is resolved, or more alone would not do
    unresolved_by_bound : whether a bound that is too wide is what leaves it unresolved
    there : whether ``targets`` and ``checks`` are those of a database that people are in, where it is worse
    level, epsilon, targets, checks : what was asked, and what was checked

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> verdict = empriv.audit(data, "avg(delay)").verdict(epsilon=0.1, delta=0.05)
    >>> verdict == "unresolved"
    True
    >>> verdict.sentence.split("; ")[0]
    "By the paper's definition: pass, in a database that they are in: pass"
    """

    basis: str
    by_bound: str
    by_estimate: str
    by_estimate_when_present: str | None = None
    findings: tuple[Finding | Check, ...]
    databases_needed: int | None
    unresolved_by_bound: bool
    there: bool = False
    level: float
    epsilon: float
    targets: tuple[Judged, ...]
    checks: tuple[Check, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """In plain words, those of the deciding basis first."""
        return tuple(dict.fromkeys(finding.sentence for finding in self.findings))

    @property
    def sentence(self) -> str:
        """Both judgements side by side."""
        never = self.unresolved_by_bound and any(target.limit <= 0 for target in self.targets)
        more = needed(self.databases_needed) if never or self.databases_needed is not None else ""
        return side_by_side(self.by_estimate, self.by_estimate_when_present, self.by_bound, self.level, more)

    def _repr_html_(self) -> str:
        return lines_html(f"Verdict: {self.upper()}", (self.sentence, *self.reasons))

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": str(self),
            "basis": self.basis,
            "by_bound": self.by_bound,
            "by_estimate": self.by_estimate,
            "by_estimate_when_present": self.by_estimate_when_present,
            "sentence": self.sentence,
            "reasons": list(self.reasons),
            "databases_needed": self.databases_needed,
            "level": self.level,
            "epsilon": self.epsilon,
            "targets": [{"figure": target.name, "limit": target.limit} for target in self.targets],
        }


def verdict(
    risk: RiskContract,
    *,
    epsilon: float,
    delta: float | None = None,
    total_risk: float | None = None,
    basis: str = "bound",
    level: float | None = None,
    bounds_there: Bounds | None = None,
    checks_made: Sequence[Check] | None = None,
) -> Verdict:
    """Judge a risk against targets.

    Parameters
    ----------
    risk : what was measured
    epsilon : where the targets hold
    delta, total_risk : the most that is allowed; at least one
    basis : "bound" (default) or "estimate", the paper's own definition
    level : of confidence of the bounds; default 0.95
    bounds_there, checks_made : bounds at this epsilon and checks, if they are at hand already
    """
    one_of("basis", basis, BASES)
    if delta is None and total_risk is None:
        raise InputError("`delta` or `total_risk` must be given: a verdict needs a target.")
    for name, limit in (("delta", delta), ("total_risk", total_risk)):
        if limit is not None:
            probability(name, limit)
    bounds_there = bounds(risk, float(epsilon), level) if bounds_there is None else bounds_there
    checks_made = checks(risk, float(epsilon)) if checks_made is None else checks_made
    targets = []
    if delta is not None:
        at = bounds_there
        targets.append(Judged("delta", delta, at.lower, at.limit, at.estimate, at.upper))
    if total_risk is not None:
        targets.append(
            Judged(
                "total_risk",
                total_risk,
                bounds_there.lower,  # somebody's privacy fails at least as often as one individual's
                bounds_there.total_risk_lower,
                bounds_there.total_risk,
                bounds_there.total_risk_upper,
            )
        )
    errors = [check for check in checks_made if check.severity == "error"]
    by_bound, bound_reasons = _by_bound(targets, errors, bounds_there.level)
    by_estimate, estimate_reasons = _by_estimate(targets, errors)
    unresolved = by_bound == UNRESOLVED
    missing = unresolved and any(target.upper > target.limit for target in targets)
    need = (
        _needed(targets, bounds_there.n_databases, bounds_there.level)
        if missing and all(check.code == "databases" for check in errors)
        else None
    )
    out = Verdict(by_bound if basis == "bound" else by_estimate)
    out.basis, out.by_bound, out.by_estimate = basis, by_bound, by_estimate
    ordered = estimate_reasons + bound_reasons
    if basis == "bound":
        said = {reason.numbers["name"] for reason in bound_reasons if reason.code == "estimate-alone"}
        rest = [reason for reason in estimate_reasons if reason.numbers.get("name") not in said]
        ordered = bound_reasons + rest
    out.findings, out.databases_needed, out.unresolved_by_bound = tuple(ordered), need, missing
    out.level, out.epsilon, out.targets, out.checks = (
        bounds_there.level,
        float(epsilon),
        tuple(targets),
        tuple(checks_made),
    )
    return out


Reasons = list[Finding | Check]


def _by_bound(targets: Sequence[Judged], errors: Sequence[Check], level: float) -> tuple[str, Reasons]:
    """The outcome, and why: what decides first."""
    broken: Reasons = []
    open_: Reasons = []
    met: Reasons = []
    for target in targets:
        if target.lower > target.limit:
            broken.append(_held_against(target, "lower-bound", target.lower, level))
        elif target.cross_fitted > target.limit:
            broken.append(_held_against(target, "limit", target.cross_fitted, level))
        elif target.upper > target.limit:
            if target.estimate > target.limit:
                open_.append(_held_against(target, "estimate-alone", target.estimate))
            open_.append(_held_against(target, "bound", target.upper, level))
        else:
            met.append(_held_against(target, "bound", target.upper, level))
    if broken:
        return FAIL, [*broken, *open_, *met, *errors]
    return (UNRESOLVED if open_ or errors else PASS), [*open_, *errors, *met]


def _by_estimate(targets: Sequence[Judged], errors: Sequence[Check]) -> tuple[str, Reasons]:
    reasons: Reasons = [_held_against(target, "estimate", target.estimate) for target in targets]
    if any(target.estimate > target.limit for target in targets):
        return FAIL, reasons
    # The estimate holds exact leaks already, and is defined for any number of databases; it assumes i.i.d. databases.
    dependent = [check for check in errors if check.code == "iid"]
    return (UNRESOLVED if dependent else PASS), [*reasons, *dependent]


def _held_against(target: Judged, code: str, value: float, level: float | None = None) -> Finding:
    numbers: dict[str, Any] = {"name": target.name, "value": value, "limit": target.limit}
    return Finding(code, numbers if level is None else {**numbers, "level": level})


def _needed(targets: Sequence[Judged], n: int, level: float) -> int | None:
    """How many databases, more than there are, would bring the upper bounds to the targets; None if none is known.

    The floor must go below the target, and what the bound adds to the estimate shrinks as one over the root of n. So
    many would not do where the estimate is above the target, nor where there is no upper bound for other reasons.
    """
    most = LEAST_DATABASES
    for target in targets:
        if target.upper <= target.limit:
            continue
        if target.limit <= 0 or target.estimate >= target.limit or (target.upper >= 1 and n >= LEAST_DATABASES):
            return None
        # rounded up from just below, so that 2,994.2 is 2,995
        most = max(most, math.ceil(math.log1p(-level) / math.log1p(-target.limit)) if target.limit < 1 else 1)
        if target.upper < 1:
            most = max(most, math.ceil(n * ((target.upper - target.estimate) / (target.limit - target.estimate)) ** 2))
    return most if most > n else None
