"""`decide`: may it be published, as it is or with noise? One line, one sentence of reason, one of condition.

Terminal, page, notebook and JSON say these. A pure function of a `Case`, which holds codes and numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from empriv.base.display import lines_html
from empriv.words.sentences import (
    amount,
    databases,
    leaves_little,
    number,
    percent,
    show_only,
    tells_little,
    too_few_to_be_sure,
)

PUBLISH, WITH_NOISE, NOT, NO_TARGET = "Publish", "Publish with noise", "Do not publish", "No decision"
KINDS = {PUBLISH: "publish", WITH_NOISE: "change", NOT: "stop"}
"""How pages mark a decision; "open" where there is none."""
RANDOM, DAY = "", "day"
"""Where a target is judged: on a random database, and on one that somebody was in, by what they did there."""


@dataclass(frozen=True)
class Judged:
    """One target, ``limit``, held against lower bound, estimate and upper bound, on a random database or on the day."""

    name: str
    limit: float
    lower: float
    estimate: float
    upper: float
    where: str = RANDOM


@dataclass(frozen=True)
class Hidden:
    """What the answer hides of what people did on the days they did it, in its own units.

    Attributes
    ----------
    cover : the largest move that is hidden, on a typical database
    most : the most that anybody moved the answer; infinite where somebody changes whether there is one
    days, beyond, exposed : person-days, those beyond the cover, and those shown not to be hidden
    people : individuals with a day beyond it
    varies : whether the cover differs from database to database
    unit : of the answer
    cell : of a table, the cell that the figures are of
    """

    cover: float
    most: float
    days: int
    beyond: int
    exposed: int
    people: int
    varies: bool
    unit: str = ""
    cell: str = ""


@dataclass(frozen=True)
class NoisyAnswer:
    """The answer with noise.

    Attributes
    ----------
    error : expected absolute noise, in the answer's units
    typical : size of a typical answer
    achieved : upper bound on delta of the most exposed individual with this noise
    against : why it must not be released so, in sentences; nothing if it may be
    unit : of the answer
    component : the number of several that these are of
    """

    error: float
    typical: float
    achieved: float
    against: tuple[str, ...] = ()
    unit: str = ""
    component: str | None = None


@dataclass(frozen=True)
class Case:
    """All that a decision rests on.

    Attributes
    ----------
    outcome : the verdict, "pass", "fail" or "unresolved"; None without a target
    by_estimate : whether the estimate decided, as in the paper, and not the bounds
    judged : the target that decided, held against the figures; None without a target
    epsilon, level : where the target holds, and the confidence of the bounds
    delta, upper : the estimate at ``epsilon`` and its upper bound, for where there is no target
    hidden : what the answer hides of what people did, if that was judged
    obstacles : sentences of checks that rule out a pass
    n_databases, needed : how many there are, and how many would resolve it if more would do
    known : what readers are taken to know of a database; ``presence`` whether also that somebody is in it
    times : publications
    sampled : whether databases are random samples of one table
    noise : the answer with noise, if that is what would be released
    """

    outcome: str | None
    judged: Judged | None
    epsilon: float
    level: float
    delta: float
    upper: float
    n_databases: int
    hidden: Hidden | None = None
    by_estimate: bool = False
    obstacles: Sequence[str] = ()
    needed: int | None = None
    known: Sequence[str] = ()
    presence: bool = False
    times: int = 1
    sampled: bool = False
    noise: NoisyAnswer | None = None


@dataclass(frozen=True)
class Decision:
    """What to do, in words.

    Attributes
    ----------
    word : "Publish", "Publish with noise", "Do not publish"; "No decision" without a target
    line : the same, as it is or with this noise, and what it costs
    reason : one sentence of why
    condition : one sentence of when it holds
    """

    word: str
    line: str
    reason: str
    condition: str

    def __str__(self) -> str:
        return f"{self.line}\n{self.reason}\n{self.condition}"

    def _repr_html_(self) -> str:
        return lines_html(self.line, (self.reason, self.condition))

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def decide(case: Case) -> Decision:
    """The decision on a case: of the answer with noise if that is what would be released, else of the answer as it is.

    Whether noise leaves enough of the answer is for whoever publishes to say; that it leaves little is said.
    """
    condition = _condition(case)
    if case.outcome is None:
        return Decision(NO_TARGET, f"No target was given: {_figures(case)}", _failing(case), condition)
    noise, reason = case.noise, _reason(case)
    if noise is None or (noise.error <= 0 and not noise.against):
        passed = case.outcome == "pass"
        return Decision(PUBLISH if passed else NOT, PUBLISH if passed else f"{NOT} as it is", reason, condition)
    if noise.against:
        return Decision(NOT, f"{NOT} with this noise", " ".join(noise.against), condition)
    cost = f"±{amount(noise.error, noise.unit)} on a typical {amount(noise.typical, noise.unit)}"
    cost += "" if noise.component is None else f" for {noise.component}"
    little = f" {leaves_little()}" if tells_little(noise.error, noise.typical) else ""
    return Decision(
        WITH_NOISE,
        f"{WITH_NOISE} ({cost})",
        f"As it is: {reason[0].lower()}{reason[1:]} With the noise, delta is at most {number(noise.achieved)} for the "
        f"most exposed.{little}",
        condition,
    )


def _figures(case: Case) -> str:
    bound = "no upper bound" if case.upper >= 1 else f"at most {number(case.upper)}"
    return f"delta {number(case.delta)} at epsilon {case.epsilon:g}, {bound}"


def _failing(case: Case) -> str:
    """The same in plain words."""
    return f"The most exposed person's privacy fails with a probability of {percent(case.delta)} in a random database."


def hides(hidden: Hidden) -> str:
    """Cover and largest move, in the answer's units."""
    most = (
        "somebody is given away, or changes whether there is an answer at all"
        if math.isinf(hidden.most) and hidden.cell
        else "somebody changes whether there is an answer at all"
        if math.isinf(hidden.most)
        else f"the most that anyone moved it is {amount(hidden.most, hidden.unit)}"
    )
    it = hidden.cell or "it"
    answer = "the table" if hidden.cell else "the answer"
    if hidden.cover <= 0:
        return f"Nothing shows that {answer} hides anyone who moves {it}; {most}."
    where = f"On a typical database {answer}" if hidden.varies else f"{answer[:1].upper()}{answer[1:]}"
    return f"{where} hides anyone who moves {it} by up to {amount(hidden.cover, hidden.unit)}; {most}."


def beyond_cover(hidden: Hidden) -> str:
    """Whom it does not hide, on how many days."""
    if not hidden.beyond:
        return ""
    days = "1 person-day" if hidden.beyond == 1 else f"{hidden.beyond:,} of {hidden.days:,} person-days"
    share = f" ({percent(hidden.beyond / hidden.days)})" if hidden.days > hidden.beyond > 1 else ""
    verb = "is" if hidden.beyond == 1 else "are"
    shown = f", {hidden.exposed:,} of them as good as certainly" if 0 < hidden.exposed < hidden.beyond else ""
    return f" {days}{share} {verb} beyond what it hides{shown}."


def _reason(case: Case) -> str:
    """Why the verdict is as it is: what decided, first."""
    target = case.judged
    assert target is not None  # a case with an outcome has a target
    figure, limit = _FIGURE[target.name], number(target.limit)
    at = f"at epsilon {case.epsilon:g}"
    allowed = f"the target allows {limit}"
    sure = f"with {percent(case.level)} confidence"
    if case.by_estimate and case.outcome != "unresolved":
        return f"By the estimate, {figure} {at} is {number(target.estimate)}; {allowed}."
    cover = "" if case.hidden is None else f" {hides(case.hidden)}"
    if case.outcome == "pass":
        return f"{figure.capitalize()} {at} is at most {number(target.upper)} {sure}; {allowed}.{cover}"
    if case.hidden is not None and target.where == DAY:
        return _reason_of_day(case, case.hidden, target)
    if case.outcome == "fail":
        return f"{figure.capitalize()} {at} is at least {number(target.lower)} {sure}; {allowed}.{cover}"
    if target.upper <= target.limit and case.obstacles:
        return case.obstacles[0]
    if target.estimate > target.limit:
        between = f"at least {number(target.lower)}"
        between += "" if target.upper >= 1 else f" and at most {number(target.upper)}"
        return (
            f"{figure.capitalize()} {at} is estimated at {number(target.estimate)}, and {allowed}; "
            f"{show_only(case.n_databases)} that it is {between}."
        )
    if case.obstacles:
        return case.obstacles[0]
    if target.upper >= 1:
        return (
            f"{figure.capitalize()} {at} is estimated at {number(target.estimate)}, and {allowed}; but nothing bounds "
            "it from above."
        )
    more = "" if case.needed is None else f" About {databases(case.needed)} would do."
    return (
        f"{too_few_to_be_sure(case.n_databases)}: {figure} {at} "
        f"is estimated at {number(target.estimate)} and may be {number(target.upper)}; {allowed}.{more}"
    )


def _reason_of_day(case: Case, hidden: Hidden, target: Judged) -> str:
    """What people did on the days they did it decided."""
    more = "" if case.needed is None else f" About {databases(case.needed)} would do."
    if case.outcome == "fail":
        return f"{hides(hidden)}{beyond_cover(hidden)}"
    if target.upper <= target.limit and case.obstacles:
        return case.obstacles[0]
    return f"{hides(hidden)}{beyond_cover(hidden)} It cannot be told whether those are hidden.{more}"


_PRESENCE = {
    False: "who came and what they did",
    True: "who was sampled and what they add",
}
_FIGURE = {"delta": "the most exposed person's delta", "total_risk": "the total risk"}


def _condition(case: Case) -> str:
    """When the decision holds: for which databases, and for readers who know what."""
    known = [*case.known, *([_PRESENCE[case.sampled]] if case.presence else [])]
    who = "who know nothing else of the database" if not known else f"who may know {_listed(known)}"
    often = "" if case.times == 1 else f"{case.times:,} publications, "
    if case.sampled:
        samples = (
            "the answer of one random sample" if case.times == 1 else f"the answers of {case.times:,} random samples"
        )
        return f"Holds for {samples}, not of the whole table, while it is secret who was sampled, and readers {who}."
    return f"Holds for {often}databases like these {case.n_databases:,}, and readers {who}."


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
