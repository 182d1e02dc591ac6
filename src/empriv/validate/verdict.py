"""`verdict`: does the query meet a target? "pass", "fail" or "unresolved", with reasons; all decisions come from here.

By the bound, two questions are asked with one bound (docs/judge.md): the paper's pair, the results with everyone
against those without a person, on a random database; and the day's pair, the others' results against the same moved by
what a person did on a day that they were in. Pass only if both upper bounds meet the target and no check of severity
"error" stands; fail if a lower bound breaks it; else unresolved, for the people and days that are named. By the
estimate: the paper's own definition, the point estimate, which passes if it meets the target and the databases look
i.i.d.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from empriv.base.arguments import confidence_level, finite_epsilon, one_of, probability
from empriv.base.targets import BASES, PRESENCES
from empriv.base.text import lines_html
from empriv.errors import InputError
from empriv.judge.noise_kernels import NoiseGiven, is_noise
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.any_risk import AnyRisk
from empriv.measuring.series import RepeatedRisk
from empriv.measuring.tables import TableRisk
from empriv.validate.bounds import Bounds, bounds, floor, upper_total_risk
from empriv.validate.checks import checks
from empriv.validate.covers import covered, has_cover, line_cover_of, parts_of
from empriv.words.decision import DAY, RANDOM, Covered, JudgedTarget
from empriv.words.message import Message
from empriv.words.sentences import databases, number, percent, quantity

PASS, FAIL, UNRESOLVED = "pass", "fail", "unresolved"
_USUAL_DELTA = 0.05  # where days of a table are put in order
_FAR, _WITHIN = 10, 1000  # so many times the databases there are, or so many, is too far to wait for
_HIDDEN_BY_NOISE = ("exact-leak", "residuals", "carried")  # which noise leaves to the bound


class Verdict(str):
    """ "pass", "fail" or "unresolved": a str that knows why.

    Made by the method `verdict` of an audit.

    Attributes
    ----------
    basis : "bound" or "estimate", whichever decided
    by_bound, by_estimate : both judgements; the estimate is that of a random database, as in the paper
    presence : "both", or "random" where the paper's pair alone was judged
    day : what the answer hides of what people did, on the days they did it; None where that was not judged
    messages : the reasons, those of the deciding basis first
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
    messages: tuple[Message, ...]
    databases_needed: int | None
    unresolved_by_bound: bool
    level: float
    epsilon: float
    targets: tuple[JudgedTarget, ...]
    judged: tuple[JudgedTarget, ...]
    checks: tuple[Message, ...]

    @property
    def reasons(self) -> tuple[str, ...]:
        """In plain words, those of the deciding basis first."""
        return tuple(dict.fromkeys(message.sentence for message in self.messages))

    @property
    def sentence(self) -> str:
        """Both judgements side by side, the estimate as in the paper, and how many databases would resolve it."""
        more = ""
        if self.databases_needed is not None:
            more = f", would need {databases(self.databases_needed)}"
        elif self.unresolved_by_bound and any(target.limit <= 0 for target in self.targets):
            more = ", no number of databases would resolve it"
        sure = f"at {percent(self.level)} confidence: {self.by_bound}{more}"
        return f"By the paper's definition: {self.by_estimate}; {sure}."

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
    risk: AnyRisk,
    *,
    epsilon: float,
    delta: float | None = None,
    total_risk: float | None = None,
    basis: str = "bound",
    level: float | None = None,
    presence: str = "both",
    noise: NoiseGiven = 0.0,
    bounds_made: Bounds | None = None,
    checks_made: Sequence[Message] | None = None,
) -> Verdict:
    """Judge a risk against targets.

    Parameters
    ----------
    risk : what was measured
    epsilon : where the targets hold
    delta, total_risk : the most that is allowed; at least one
    basis : "bound" (default) or "estimate", the paper's own definition
    level : of confidence of the bounds; default 0.95
    presence : "both" judges a random database and the day that a person was in, "random" the former alone, as the paper
    noise : added to the answer, as for `bounds`
    bounds_made, checks_made : bounds at this epsilon and checks, if they are at hand already
    """
    one_of("basis", basis, BASES)
    one_of("presence", presence, PRESENCES)
    if delta is None and total_risk is None:
        raise InputError("`delta` or `total_risk` must be given: a verdict needs a target.")
    for name, limit in (("delta", delta), ("total_risk", total_risk)):
        if limit is not None:
            probability(name, limit)
    epsilon, level = finite_epsilon(epsilon), confidence_level(risk.usual_level if level is None else level)
    bounded = bounds(risk, epsilon, level, noise=noise) if bounds_made is None else bounds_made
    made = list(checks(risk, epsilon) if checks_made is None else checks_made)
    if is_noise(noise):
        made = [check for check in made if check.code not in _HIDDEN_BY_NOISE]
    targets, messages, day = [], [], None
    if delta is not None:
        targets.append(JudgedTarget("delta", delta, bounded.lower, bounded.estimate, bounded.upper))
    if total_risk is not None:
        # a person's privacy fails at least as often as one individual's
        most = float(upper_total_risk(bounded)[0])
        targets.append(JudgedTarget("total_risk", total_risk, bounded.lower, risk.total_risk(epsilon), most))
    if presence == "both" and delta is not None:
        once = risk.single if isinstance(risk, RepeatedRisk) else risk
        if has_cover(once):
            # one of several publications is of the day on which a person did most; what all tell is of days already
            judged = covered(once, epsilon, delta, noise=noise, level=level)
            targets.append(JudgedTarget("delta", delta, judged.lower, judged.estimate, judged.upper, where=DAY))
            if once is risk:
                day = judged
                messages.append(_of_the_day(day, epsilon, delta))
        else:
            said = "Judged on a random database alone: an audit of this kind does not say what is hidden on the day."
            messages.append(Message("presence-not-measured", said))
    return _judged(risk, basis, presence, targets, made, messages, day, epsilon, level)


def on_the_day(risk: AnyRisk, epsilon: float, level: float) -> tuple[float, float]:
    """Estimate and U of the largest move on the day that a person made it; 0 for kinds that have no such figure."""
    if not has_cover(risk):
        return 0.0, 0.0
    if isinstance(risk, TableRisk) or risk.postprocessed_from is not None:
        judged = covered(risk, epsilon, _USUAL_DELTA, level=level)
        return judged.estimate, judged.upper
    lines = [line_cover_of(part, None) for part in parts_of(risk)]
    return (
        max(line.estimate(line.most, epsilon) for line in lines),
        max(line.upper(line.most, epsilon, level) for line in lines),
    )


def _judged(
    risk: AnyRisk,
    basis: str,
    presence: str,
    targets: Sequence[JudgedTarget],
    made: Sequence[Message],
    messages: list[Message],
    day: Covered | None,
    epsilon: float,
    level: float,
) -> Verdict:
    errors = [check for check in made if check.severity == "error"]
    by_bound, bound_reasons = _by_bound(targets, errors, level)
    at_random = tuple(target for target in targets if target.where == RANDOM)
    by_estimate, estimate_reasons = _by_estimate(at_random, errors, level)
    missing = by_bound == UNRESOLVED and any(target.upper > target.limit for target in targets)
    enough = all(check.code == "databases" for check in errors)
    out = Verdict(by_bound if basis == "bound" else by_estimate)
    out.basis, out.by_bound, out.by_estimate = basis, by_bound, by_estimate
    ordered = estimate_reasons + bound_reasons
    if basis == "bound":
        named = {reason.numbers["name"] for reason in bound_reasons if reason.code == "estimate-alone"}
        ordered = bound_reasons + [reason for reason in estimate_reasons if reason.numbers.get("name") not in named]
    out.messages = (*ordered, *messages)
    out.databases_needed = _needed(targets, risk.results.n_databases, level) if missing and enough else None
    out.unresolved_by_bound, out.presence, out.day = missing, presence, day
    out.targets, out.judged = at_random, tuple(targets)
    out.level, out.epsilon, out.checks = level, epsilon, tuple(made)
    return out


def _by_bound(targets: Sequence[JudgedTarget], errors: Sequence[Message], level: float) -> tuple[str, list[Message]]:
    """The outcome, and why: what decides first."""
    broken: list[Message] = []
    open_: list[Message] = []
    met: list[Message] = []
    for target in targets:
        if target.lower > target.limit:
            broken.append(_reason("lower-bound", target, level))
        elif target.upper > target.limit:
            if target.estimate > target.limit:
                open_.append(_reason("estimate-alone", target, level))
            open_.append(_reason("bound", target, level))
        else:
            met.append(_reason("bound", target, level))
    if broken:
        return FAIL, [*broken, *open_, *met, *errors]
    return (UNRESOLVED if open_ or errors else PASS), [*open_, *errors, *met]


def _by_estimate(targets: Sequence[JudgedTarget], errors: Sequence[Message], level: float) -> tuple[str, list[Message]]:
    reasons = [_reason("estimate", target, level) for target in targets]
    if any(target.estimate > target.limit for target in targets):
        return FAIL, reasons
    # The estimate holds exact leaks already, and is defined for any number of databases; it assumes i.i.d. databases.
    dependent = [check for check in errors if check.code == "iid"]
    return (UNRESOLVED if dependent else PASS), [*reasons, *dependent]


def _reason(code: str, target: JudgedTarget, level: float) -> Message:
    """What a figure says of a target."""
    name, limit, sure = target.name.replace("_", " "), number(target.limit), percent(level)
    if target.where:
        name += " on the day that a person was in"

    def held(value: float) -> str:
        return f"{number(value)}, {'meets' if value <= target.limit else 'exceeds'} the target of {limit}"

    match code:
        case "lower-bound":
            low = number(target.lower)
            said = (
                f"The lower bound on {name} ({sure}), {low}, is above the target of {limit}: the loss is demonstrated."
            )
        case "bound" if target.upper >= 1:
            said = f"There is no upper bound on {name}, so nothing says that it is at most {limit}."
        case "bound":
            said = f"The upper bound on {name} ({sure}), {held(target.upper)}."
        case "estimate":
            said = f"The estimated {name}, {held(target.estimate)}."
        case _:
            said = f"The estimated {name}, {held(target.estimate)}, but the bounds cannot tell."
    return Message(code, said, numbers={"name": target.name})


def _of_the_day(day: Covered, epsilon: float, delta: float) -> Message:
    """Who and which days are hidden, cannot be told, or are shown not to be; of a table, in its worst cell."""
    where = " on a typical database" if day.varies else f" in {day.cell}" if day.cell else ""
    most = quantity(day.largest)
    if math.isinf(day.largest):
        most = "no measure: a person changes whether there is one"
    hidden = "any moves" if math.isinf(day.cover) else f"moves of up to {quantity(day.cover)}"
    said = (
        f"On the day: at epsilon {epsilon:g} and delta {number(delta)} the answer hides {hidden}{where}; "
        f"the largest was {most}."
    )
    if not day.beyond:
        return Message("day", f"{said} Nobody moved it by more than is hidden, in any of {day.days:,} cases.")
    who = "one individual" if day.people_beyond == 1 else f"{day.people_beyond:,} individuals"
    shown = "it cannot be told whether these are hidden"
    if day.exposed:
        shown = f"for {day.exposed:,} it is shown that they are not hidden"
    share = f"{day.beyond:,} of {day.days:,} cases ({percent(day.beyond / day.days)}), of {who}, are beyond it"
    return Message("day", f"{said} {share}; {shown}.")


def _needed(targets: Sequence[JudgedTarget], n: int, level: float) -> int | None:
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
