"""`decide`: may it be published, as it is or with noise? One line, one sentence of reason, one of condition.

Terminal, page, notebook and JSON say these. A pure function of a `Case`, which holds codes and numbers alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace

from empriv.base.display import lines_html
from empriv.words.nouns import Nouns
from empriv.words.sentences import (
    amount,
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
    cover : the largest move that is hidden with it; NaN where that was not asked
    """

    error: float
    typical: float
    achieved: float
    against: tuple[str, ...] = ()
    unit: str = ""
    component: str | None = None
    cover: float = math.nan


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
    nouns : what individuals and databases are called
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
    nouns: Nouns = field(default_factory=Nouns)


@dataclass(frozen=True)
class Decision:
    """What to do, in words.

    Attributes
    ----------
    word : "Publish", "Publish with noise", "Do not publish"; "No decision" without a target
    line : the same, as it is or with this noise, and what it costs
    reason : why: what the answer hides, and what people did
    condition : when it holds, with epsilon and delta
    promise : what a reader can learn of one individual, where it may be published
    """

    word: str
    line: str
    reason: str
    condition: str
    promise: str = ""

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is said below the line, the condition last."""
        return tuple(filter(None, (self.reason, self.promise, self.condition)))

    def __str__(self) -> str:
        return "\n".join((self.line, *self.sentences))

    def _repr_html_(self) -> str:
        return lines_html(self.line, self.sentences)

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def decide(case: Case) -> Decision:
    """The decision on a case: of the answer with noise if that is what would be released, else of the answer as it is.

    Whether noise leaves enough of the answer is for whoever publishes to say; that it leaves little is said.
    """
    condition = _condition(case) if case.n_databases > 1 else ""
    if case.outcome is None:
        return Decision(NO_TARGET, f"No target was given: {_figures(case)}", _failing(case), condition)
    noise, reason = case.noise, _reason(case)
    if noise is None or (noise.error <= 0 and not noise.against):
        passed = case.outcome == "pass"
        if passed:
            return Decision(PUBLISH, PUBLISH, reason, condition, _promise(case))
        return Decision(NOT, f"{NOT} as it is", reason, condition)
    if noise.against:
        return Decision(NOT, f"{NOT} with this noise", " ".join(noise.against), condition)
    cost = f"±{amount(noise.error, noise.unit)} on a typical {amount(noise.typical, noise.unit)}"
    cost += "" if noise.component is None else f" for {noise.component}"
    little = f" {leaves_little()}" if tells_little(noise.error, noise.typical) else ""
    with_it = f"With the noise, delta is at most {number(noise.achieved)} for the most exposed."
    reason = f"{_with_noise(case, noise, reason)}{little}"
    return Decision(WITH_NOISE, f"{WITH_NOISE} ({cost})", reason, f"{with_it} {condition}", _promise(case))


def _with_noise(case: Case, noise: NoisyAnswer, reason: str) -> str:
    """What the noisy answer hides, and what it hides as it is."""
    hidden = case.hidden
    if hidden is None or math.isnan(noise.cover):
        before = reason if hidden is None else hides(hidden, case.nouns)
        return f"As it is: {before[0].lower()}{before[1:]}"
    before = (
        "nothing shows that it hides anybody" if hidden.cover <= 0 else f"up to {amount(hidden.cover, hidden.unit)}"
    )
    after = hides(replace(hidden, cover=noise.cover, beyond=0, varies=False), case.nouns)
    return f"{after} Without noise: {before}."


def _figures(case: Case) -> str:
    bound = "no upper bound" if case.upper >= 1 else f"at most {number(case.upper)}"
    return f"delta {number(case.delta)} at epsilon {case.epsilon:g}, {bound}"


def _failing(case: Case) -> str:
    """The same in plain words."""
    fails = f"privacy fails with a probability of {percent(case.delta)} in a random {case.nouns.database or 'database'}"
    return f"The most exposed {_individual(case)}'s {fails}."


def hides(hidden: Hidden, nouns: Nouns = Nouns()) -> str:  # noqa: B008 — frozen
    """Cover and largest move, in the answer's units."""
    most = (
        "somebody is given away by a value, or changes whether there is an answer at all"
        if math.isinf(hidden.most)
        else f"the most that anyone moved it is {amount(hidden.most, hidden.unit)}"
    )
    it = hidden.cell or "it"
    answer = "the table" if hidden.cell else "the answer"
    if hidden.cover <= 0:
        return f"Nothing shows that {answer} hides {nouns.anyone_who} moves {it}; {most}."
    where = (
        f"On a typical {nouns.database or 'database'} {answer}"
        if hidden.varies
        else f"{answer[:1].upper()}{answer[1:]}"
    )
    up_to = f"{where} hides {nouns.anyone_who} moves {it} by up to {amount(hidden.cover, hidden.unit)}"
    if not hidden.beyond and not hidden.varies and math.isfinite(hidden.most):
        return f"{up_to}; {nouns.nobody} moved it by more than {amount(hidden.most, hidden.unit)}."
    return f"{up_to}; {most}."


def beyond_cover(hidden: Hidden, nouns: Nouns = Nouns()) -> str:  # noqa: B008 — frozen
    """Whom it does not hide, on how many days."""
    if not hidden.beyond:
        return ""
    share = hidden.beyond / max(hidden.days, 1)
    days = f"1 {nouns.days(1)}" if hidden.beyond == 1 else f"{percent(share)} of {nouns.days()}"
    verb = "is" if hidden.beyond == 1 else "are"
    return f" {days} {verb} beyond that."


def _reason(case: Case) -> str:
    """Why the verdict is as it is: what decided, first."""
    target, nouns = case.judged, case.nouns
    assert target is not None  # a case with an outcome has a target
    figure, at, allowed, sure = _figure(case), _at(case), _allowed(target), _sure(case)
    if case.by_estimate and case.outcome != "unresolved":
        return f"By the estimate, {figure} {at} is {number(target.estimate)}; {allowed}."
    if case.n_databases == 1:
        return (
            f"One {nouns.database or 'database'} does not show what chance does to the answer: at least 30 are needed."
        )
    if case.outcome == "pass":
        return hides(case.hidden, nouns) if case.hidden is not None else f"{_bounded(case)}."
    unhidden = case.outcome == "unresolved" and case.hidden is not None and case.hidden.beyond > 0
    if case.hidden is not None and (target.where == DAY or unhidden):
        return _reason_of_day(case, case.hidden, target)
    if case.outcome == "fail":
        return f"{figure.capitalize()} {at} is at least {number(target.lower)} {sure}; {allowed}."
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
    return (
        f"{too_few_to_be_sure(case.n_databases)}: {figure} {at} "
        f"is estimated at {number(target.estimate)} and may be {number(target.upper)}; {allowed}.{_more(case)}"
    )


def _reason_of_day(case: Case, hidden: Hidden, target: Judged) -> str:
    """What people did on the days they did it decided."""
    if case.outcome != "fail" and case.obstacles and (target.upper <= target.limit or hidden.cover <= 0):
        return case.obstacles[0]
    said = f"{hides(hidden, case.nouns)}{beyond_cover(hidden, case.nouns)}"
    return said if case.outcome == "fail" else f"{said} It cannot be told whether those are hidden.{_more(case)}"


def _figure(case: Case) -> str:
    assert case.judged is not None
    return "the total risk" if case.judged.name == "total_risk" else f"the most exposed {_individual(case)}'s delta"


def _individual(case: Case) -> str:
    return case.nouns.individual or "person"


def _at(case: Case) -> str:
    return f"at epsilon {case.epsilon:g}"


def _allowed(target: Judged) -> str:
    return f"the target allows {number(target.limit)}"


def _sure(case: Case) -> str:
    return f"with {percent(case.level)} confidence"


def _more(case: Case) -> str:
    return "" if case.needed is None else f" About {case.nouns.databases(case.needed)} would do."


def _bounded(case: Case) -> str:
    """The upper bound beside the target."""
    assert case.judged is not None
    most = number(case.judged.upper)
    return f"{_figure(case).capitalize()} {_at(case)} is at most {most} {_sure(case)}; {_allowed(case.judged)}"


def guess(epsilon: float, delta: float | None, nouns: Nouns = Nouns(), times: int = 1) -> str:  # noqa: B008 — frozen
    """What a reader can learn of one individual: a guess of 50:50 becomes 1 / (1 + exp(-epsilon)), rounded up."""
    sure = math.ceil(1000 / (1 + math.exp(-epsilon)) - 1e-9) / 10
    fails = "" if not delta else f", except with {percent(delta)} probability"
    often = "" if times == 1 else f" from all {times:,} publications"
    return (
        f"A reader who guesses 50:50 whether {nouns.one}'s rows were counted gets at most {sure:g}% sure{often}{fails}."
    )


def _promise(case: Case) -> str:
    """What may be said to whom the rows are about; nothing where the estimate alone decided."""
    target = case.judged
    if case.by_estimate or target is None or target.name != "delta":
        return ""
    return guess(case.epsilon, target.limit, case.nouns, case.times)


_PRESENCE = {
    False: "who came and what they did",
    True: "who was sampled and what they add",
}


def _condition(case: Case) -> str:
    """When the decision holds: for which databases, and for readers who know what."""
    known = [*case.known, *([_PRESENCE[case.sampled]] if case.presence else [])]
    who = "who know nothing else of the database" if not known else f"who may know {_listed(known)}"
    often = "" if case.times == 1 else f"{case.times:,} publications, "
    # a pass says what is hidden first, and the figures in small letters
    said = f"{_bounded(case)}. " if case.outcome == "pass" and case.hidden is not None and not case.by_estimate else ""
    if case.sampled:
        samples = (
            "the answer of one random sample" if case.times == 1 else f"the answers of {case.times:,} random samples"
        )
        return (
            f"{said}Holds for {samples}, not of the whole table, while it is secret who was sampled, and readers {who}."
        )
    like = f"{case.nouns.database or 'database'}s like these {case.n_databases:,}"
    return f"{said}Holds for {often}{like}, and readers {who}."


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
