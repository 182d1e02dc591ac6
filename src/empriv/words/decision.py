"""`decide`: may it be published? One line, one sentence of reason, one of condition.

Terminal, page, notebook and JSON say these. A pure function of a `Case`, which holds codes and numbers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from empriv.base.display import lines_html
from empriv.words.sentences import amount, databases, number, percent, show_only, too_few_to_be_sure

FAR = 10  # so many times the databases there are is too far to wait for
PUBLISH, WITH_NOISE, NOT_YET, NO_TARGET = "Publish", "Publish with noise", "Do not publish yet", "No decision"
CHANGED = "Publish changed"
KINDS = {PUBLISH: "publish", WITH_NOISE: "change", CHANGED: "change", NOT_YET: "stop"}
"""How pages mark a decision; "open" where there is none."""


@dataclass(frozen=True)
class Judged:
    """One target, ``limit``, held against both lower bounds, estimate and upper bound."""

    name: str
    limit: float
    lower: float  # by betting
    cross_fitted: float
    estimate: float
    upper: float


@dataclass(frozen=True)
class NoisyAnswer:
    """The answer with noise.

    Attributes
    ----------
    error : expected absolute noise, in the answer's units
    typical : size of a typical answer
    achieved : delta of the most exposed individual with this noise
    holds : whether it keeps the target of the case
    unit : of the answer
    component : the number of several that these are of
    how : what is done instead of adding noise, such as "Round to 10"; nothing for noise
    """

    error: float
    typical: float
    achieved: float
    holds: bool
    unit: str = ""
    component: str | None = None
    how: str = ""


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
    delta_there : the estimate in a database that people are in, if it was measured
    there : whether these figures are of a database that people are in
    obstacles : sentences of checks that rule out a pass; those that noise does not remove are ``lasting``
    n_databases, needed : how many there are, and how many would resolve it if more would do
    known : what readers are taken to know of a database; ``presence`` whether also that somebody is in it
    times : publications
    sampled : whether databases are random samples of one table
    noise : the answer with noise, if noise was designed
    """

    outcome: str | None
    judged: Judged | None
    epsilon: float
    level: float
    delta: float
    upper: float
    n_databases: int
    delta_there: float | None = None
    there: bool = False
    by_estimate: bool = False
    obstacles: Sequence[str] = ()
    lasting: Sequence[str] = ()
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
    word : "Publish", "Publish with noise", "Publish changed", "Do not publish yet"; "No decision" without a target
    line : the same, with what noise costs
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
    """The decision on a case.

    An answer with noise is offered only if the noise keeps the target, is smaller than a typical answer, and nothing
    stands in the way that noise does not remove.
    """
    condition = _condition(case)
    if case.outcome is None:
        return Decision(NO_TARGET, f"No target was given: {_figures(case)}", _failing(case), condition)
    if case.outcome == "pass":
        return Decision(PUBLISH, PUBLISH, _reason(case), condition)
    noise, reason = case.noise, _reason(case)
    # noise that adds nothing leaves the answer as it is, and so its verdict
    if noise is None or not noise.holds or case.lasting or (noise.error <= 0 and not noise.how):
        return Decision(NOT_YET, NOT_YET, reason, condition)
    cost = f"±{amount(noise.error, noise.unit)} on a typical {amount(noise.typical, noise.unit)}"
    cost += "" if noise.component is None else f" for {noise.component}"
    as_it_is = f"As it is: {reason[0].lower()}{reason[1:]}"
    if noise.error >= noise.typical:
        return Decision(NOT_YET, NOT_YET, f"{as_it_is} Noise that hides it is too large: {cost}.", condition)
    if noise.how:
        changed = f"{CHANGED}: {noise.how[0].lower()}{noise.how[1:]} ({cost})"
        after = f"After it, delta is {number(noise.achieved)} for the most exposed."
        return Decision(CHANGED, changed, f"{as_it_is} {after}", condition)
    hidden = f"With the noise, delta is {number(noise.achieved)} for the most exposed, by its certificate."
    return Decision(WITH_NOISE, f"{WITH_NOISE} ({cost})", f"{as_it_is} {hidden}", condition)


def _figures(case: Case) -> str:
    bound = "no upper bound" if case.upper >= 1 else f"at most {number(case.upper)}"
    return f"delta {number(case.delta)} at epsilon {case.epsilon:g}, {bound}"


def _failing(case: Case) -> str:
    """The same in plain words."""
    there = "" if case.delta_there is None else f", and {percent(case.delta_there)} in a database that they are in"
    return (
        f"The most exposed person's privacy fails with a probability of {percent(case.delta)} in a random database"
        f"{there}."
    )


def _reason(case: Case) -> str:
    """Why the verdict is as it is: what decided, first."""
    target = case.judged
    assert target is not None  # a case with an outcome has a target
    figure, limit = _FIGURE[target.name], number(target.limit)
    at = f"at epsilon {case.epsilon:g}{_place(case)}"
    allowed = f"the target allows {limit}"
    sure = f"with {percent(case.level)} confidence"
    if case.by_estimate and case.outcome != "unresolved":
        return f"By the estimate, {figure} {at} is {number(target.estimate)}; {allowed}."
    if case.outcome == "pass":
        return f"{figure.capitalize()} {at} is at most {number(target.upper)} {sure}; {allowed}."
    if case.outcome == "fail":
        shown = target.lower if target.lower > target.limit else target.cross_fitted  # which is approximate
        return f"{figure.capitalize()} {at} is at least {number(shown)} {sure}; {allowed}."
    if target.upper <= target.limit and case.obstacles:
        return case.obstacles[0]
    if target.estimate > target.limit:
        between = f"at least {number(max(target.lower, target.cross_fitted))}"
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
    within_reach = case.needed is not None and case.needed <= FAR * case.n_databases
    more = "" if case.needed is None or not within_reach else f" About {databases(case.needed)} would do."
    return (
        f"{too_few_to_be_sure(case.n_databases)}: {figure} {at} "
        f"is estimated at {number(target.estimate)} and may be {number(target.upper)}; {allowed}.{more}"
    )


_PRESENCE = {False: "that the person is in the database", True: "that the person was sampled"}
_FIGURE = {"delta": "the most exposed person's delta", "total_risk": "the total risk"}


def _place(case: Case) -> str:
    return ", in a database that they are in," if case.there else ""


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
