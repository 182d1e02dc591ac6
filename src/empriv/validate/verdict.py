"""`verdict`: does the query meet a target? "pass", "fail" or "unresolved", with reasons; all decisions come from here.

By the bound, two questions are asked with one bound (docs/validity.md): the paper's pair, the results with everyone
against those without somebody, on a random database; and the day's pair, the others' results against the same moved by
what somebody did on a day that they were in. Pass only if both upper bounds meet the target and no check of severity
"error" stands; fail if a lower bound breaks it; else unresolved, for the people and days that are named. By the
estimate: the paper's own definition, the point estimate, which passes if it meets the target and the databases look
i.i.d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from empriv.base.arguments import confidence_level, finite_epsilon, one_of, probability
from empriv.base.display import lines_html
from empriv.errors import InputError
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.contract import RiskContract
from empriv.measuring.series import RepeatedRisk
from empriv.measuring.tables import TableRisk
from empriv.validate.bounds import Bounds, bounds, upper_total_risk
from empriv.validate.bounds.line_bounds import floor
from empriv.validate.bounds.noise_as_kernel import NoiseGiven, is_noise
from empriv.validate.checks import Check, checks
from empriv.validate.covering import Covered, covered, covers, hiding_of
from empriv.words.decision import DAY, RANDOM, Judged
from empriv.words.findings import Finding
from empriv.words.sentences import needed, side_by_side

PASS, FAIL, UNRESOLVED = "pass", "fail", "unresolved"
BASES = ("bound", "estimate")
PRESENCES = ("random", "both")
_USUAL_DELTA = 0.05  # where days of a table are put in order
_FAR, _WITHIN = 10, 1000  # so many times the databases there are, or so many, is too far to wait for
_HIDDEN_BY_NOISE = ("exact-leak", "bent", "edge", "flat", "carried")  # which noise leaves to the bound


class Verdict(str):
    """ "pass", "fail" or "unresolved": a str that knows why.

    Made by the method `verdict` of an audit or a scan.

    Attributes
    ----------
    basis : "bound" or "estimate", whichever decided
    by_bound, by_estimate : both judgements; the estimate is that of a random database, as in the paper
    presence : "both", or "random" where the paper's pair alone was judged
    day : what the answer hides of what people did, on the days they did it; None where that was not judged
    findings : the reasons, those of the deciding basis first: codes and numbers, or checks
    databases_needed : how many would resolve it, by extrapolation; None if it is resolved, or more alone would not do
    unresolved_by_bound : whether a bound that is too wide is what leaves it unresolved
    level, epsilon, targets, checks : what was asked, held against the figures of a random database; what was checked
    judged : the targets held against both, those of the day last

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> verdict = empriv.audit(data, "avg(delay)").verdict(epsilon=0.1, delta=0.05)
    >>> verdict == "fail"
    True
    >>> verdict.day.beyond < 0.2 * verdict.day.days
    True
    """

    basis: str
    by_bound: str
    by_estimate: str
    presence: str
    day: Covered | None
    findings: tuple[Finding | Check, ...]
    databases_needed: int | None
    unresolved_by_bound: bool
    level: float
    epsilon: float
    targets: tuple[Judged, ...]
    judged: tuple[Judged, ...]
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
        return side_by_side(self.by_estimate, self.by_bound, self.level, more)

    def _repr_html_(self) -> str:
        return lines_html(f"Verdict: {self.upper()}", (self.sentence, *self.reasons))

    def to_json(self) -> dict[str, Any]:
        return {
            "verdict": str(self),
            "basis": self.basis,
            "by_bound": self.by_bound,
            "by_estimate": self.by_estimate,
            "presence": self.presence,
            "day": None if self.day is None else self.day.to_json(),
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
    presence: str = "both",
    noise: NoiseGiven = 0.0,
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
    presence : "both" judges a random database and the day that somebody was in, "random" the former alone, as the paper
    noise : added to the answer, as for `bounds`
    bounds_there, checks_made : bounds at this epsilon and checks, if they are at hand already
    """
    one_of("basis", basis, BASES)
    one_of("presence", presence, PRESENCES)
    if delta is None and total_risk is None:
        raise InputError("`delta` or `total_risk` must be given: a verdict needs a target.")
    for name, limit in (("delta", delta), ("total_risk", total_risk)):
        if limit is not None:
            probability(name, limit)
    epsilon, level = finite_epsilon(epsilon), confidence_level(risk.usual_level if level is None else level)
    there = bounds(risk, epsilon, level, noise=noise) if bounds_there is None else bounds_there
    made = list(checks(risk, epsilon) if checks_made is None else checks_made)
    if is_noise(noise):
        made = [check for check in made if check.code not in _HIDDEN_BY_NOISE]
    targets, findings, day = [], [], None
    if delta is not None:
        targets.append(Judged("delta", delta, there.lower, there.estimate, there.upper))
    if total_risk is not None:
        # somebody's privacy fails at least as often as one individual's
        most = float(upper_total_risk(there)[0])
        targets.append(Judged("total_risk", total_risk, there.lower, risk.total_risk(epsilon), most))
    if presence == "both" and delta is not None:
        if covers(risk):
            day = covered(risk, epsilon, delta, noise=noise, level=level)
            targets.append(Judged("delta", delta, day.lower, day.estimate, day.upper, where=DAY))
            findings.append(_day_finding(day, epsilon, delta))
        else:
            judged, more = day_of(risk, epsilon, delta, level)
            targets += judged
            made += [check for check in more if check not in made]
            findings += [] if judged else [Finding("presence-not-measured")]
    return _judged(risk, basis, presence, targets, made, findings, day, epsilon, level)


@singledispatch
def day_of(
    risk: RiskContract,  # noqa: ARG001 — dispatched on
    epsilon: float,  # noqa: ARG001
    delta: float,  # noqa: ARG001
    level: float,  # noqa: ARG001
) -> tuple[list[Judged], list[Check]]:
    """The same target on a database that people are in, for kinds that have no cover yet."""
    return [], []


@day_of.register(RepeatedRisk)
def _of_several(risk: RepeatedRisk, epsilon: float, delta: float, level: float) -> tuple[list[Judged], list[Check]]:
    """One of the publications is of the day on which somebody did most; what all tell is of their days already."""
    if not covers(risk.single):
        return day_of(risk.single, epsilon, delta, level)
    once = covered(risk.single, epsilon, delta, level=level)
    return [Judged("delta", delta, once.lower, once.estimate, once.upper, where=DAY)], []


def upper_on_the_day(risk: RiskContract, epsilon: float, level: float) -> float:
    """U of the largest move on the day that somebody made it; 0 for kinds that have no such figure."""
    if isinstance(risk, TableRisk):
        return covered(risk, epsilon, _USUAL_DELTA, level=level).upper
    if covers(risk):
        hiding = hiding_of(risk, None)
        return hiding.upper(float(hiding.moves.relative.max(initial=0.0)), epsilon, level)
    return max((judged.upper for judged in day_of(risk, epsilon, 0.0, level)[0]), default=0.0)


def _judged(
    risk: RiskContract,
    basis: str,
    presence: str,
    targets: Sequence[Judged],
    made: Sequence[Check],
    findings: list[Finding],
    day: Covered | None,
    epsilon: float,
    level: float,
) -> Verdict:
    errors = [check for check in made if check.severity == "error"]
    by_bound, bound_reasons = _by_bound(targets, errors, level)
    by_estimate, estimate_reasons = _by_estimate([target for target in targets if target.where == RANDOM], errors)
    missing = by_bound == UNRESOLVED and any(target.upper > target.limit for target in targets)
    enough = all(check.code == "databases" for check in errors)
    out = Verdict(by_bound if basis == "bound" else by_estimate)
    out.basis, out.by_bound, out.by_estimate = basis, by_bound, by_estimate
    ordered = estimate_reasons + bound_reasons
    if basis == "bound":
        said = {reason.numbers["name"] for reason in bound_reasons if reason.code == "estimate-alone"}
        ordered = bound_reasons + [reason for reason in estimate_reasons if reason.numbers.get("name") not in said]
    out.findings = (*ordered, *findings)
    out.databases_needed = _needed(targets, risk.results.n_databases, level) if missing and enough else None
    out.unresolved_by_bound, out.presence, out.day = missing, presence, day
    out.targets, out.judged = tuple(target for target in targets if target.where == RANDOM), tuple(targets)
    out.level, out.epsilon, out.checks = level, epsilon, tuple(made)
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
    numbers: dict[str, Any] = {"name": target.name, "value": value, "limit": target.limit, "where": target.where}
    return Finding(code, numbers if level is None else {**numbers, "level": level})


def _day_finding(day: Covered, epsilon: float, delta: float) -> Finding:
    """Who and which days are hidden, cannot be told, or are shown not to be."""
    return Finding(
        "day",
        {
            "epsilon": epsilon, "delta": delta, "cover": day.typical, "most": day.largest, "days": day.days,
            "beyond": day.beyond, "exposed": day.exposed, "people": day.people_beyond, "varies": day.varies,
            "cell": day.cell,
        },
    )  # fmt: skip


def _needed(targets: Sequence[Judged], n: int, level: float) -> int | None:
    """How many databases, more than there are, would bring the upper bounds to the targets; None if none is known.

    The floor must go below the target, and what the bound adds to the estimate shrinks as one over the root of n. So
    many would not do where the estimate is above the target, nor where there is no upper bound for other reasons; and
    numbers that nobody will ever have are not named.
    """
    most = LEAST_DATABASES
    for target in targets:
        if target.upper <= target.limit:
            continue
        if target.limit <= 0 or target.estimate >= target.limit or (target.upper >= 1 and n >= LEAST_DATABASES):
            return None
        # rounded up from just below, so that 2,994.2 is 2,995
        most = max(most, math.ceil(math.log1p(-level) / math.log1p(-target.limit)) if target.limit < 1 else 1)
        if floor(n, level) * (1 + 1e-9) < target.upper < 1:
            most = max(most, math.ceil(n * ((target.upper - target.estimate) / (target.limit - target.estimate)) ** 2))
    return most if n < most <= max(_FAR * n, _WITHIN) else None


def worst_of(verdicts: Sequence[Verdict]) -> Verdict:
    """The one that decides."""
    return max(verdicts, key=(PASS, UNRESOLVED, FAIL).index)
