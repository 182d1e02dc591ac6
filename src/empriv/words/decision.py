"""`decide`: may it be published, as it is or with noise? One line and a reason, then small what it rests on.

Terminal, page, notebook and JSON say these. A pure function of a `Case`, which holds codes and numbers alone. Line,
reason and whom it does not hide have three figures at most; what else there is to say stands in the condition.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from empriv.base.text import lines_html
from empriv.words.sentences import (
    Nouns,
    amount,
    few_databases,
    floor,
    leaves_little,
    listed,
    number,
    outcome_name,
    percent,
    tells_little,
    too_few_for_a_bound,
)

PUBLISH, WITH_NOISE, NOT, NO_TARGET = "Publish", "Publish with noise", "Do not publish", "No decision"
KINDS = {PUBLISH: "publish", WITH_NOISE: "change", NOT: "stop"}
"""How pages mark a decision; "open" where there is none."""
RANDOM, DAY = "", "day"
"""Where a target is judged: on a random database, and on one that a person was in, by what they did there."""
PRESETS: dict[str, tuple[str, float, float, str]] = {
    "strict": ("Strict", 0.1, 0.01, "Where being found out harms a person: health, money, beliefs, children."),
    "usual": ("Usual", 0.1, 0.05, "For everyday records: purchases, trips, visits."),
    "lenient": ("Lenient", 0.2, 0.1, "Where it is hardly a secret who is in the data."),
}
"""Promises to choose from: a name, epsilon, delta, and what each is for."""
_ENOUGH = 100  # databases, below which the upper bound is weak
_LEAST = 30  # databases that an upper bound needs


@dataclass(frozen=True)
class JudgedTarget:
    """One target, ``limit``, held against lower bound, estimate and upper bound, on a random database or on the day."""

    name: str
    limit: float
    lower: float
    estimate: float
    upper: float
    where: str = RANDOM


@dataclass(frozen=True)
class Covered:
    """How far the answer hides what people did, at one epsilon and delta.

    Attributes
    ----------
    cover : the largest move that is hidden, in the answer's units; on a typical database, where ``varies``
    in_residuals : the same in units of residuals, in which moves are compared with it
    largest : the most that anybody moved the answer, in its units; inf where they change whether there is one
    upper, lower, estimate : U, the lower bound and the estimate of that move
    days, beyond, exposed : person-days in all, those beyond the cover, and those that the databases demonstrate not to
        be hidden
    people_beyond, people : individuals with a day beyond the cover, and all
    varies : whether the cover differs from database to database
    cell, cells : of a table, the cell that the figures are of, and how far each cell hides what people did
    """

    cover: float
    in_residuals: float
    largest: float
    upper: float
    lower: float
    estimate: float
    days: int
    beyond: int
    exposed: int
    people_beyond: int
    people: int
    varies: bool = False
    cell: str = ""
    cells: Mapping[str, Sequence[Any]] | None = None

    def to_json(self) -> dict[str, Any]:
        return {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in vars(self).items()
        }


@dataclass(frozen=True)
class NoisyAnswer:
    """The answer with noise.

    Attributes
    ----------
    error : expected absolute noise, in the answer's units
    typical : size of a typical answer
    achieved : upper bound on delta of the most exposed individual with this noise
    against : why it must not be released so, in sentences; nothing if it may be
    component : the number of several that these are of
    cover : the largest move that is hidden with it; NaN where that was not asked
    """

    error: float
    typical: float
    achieved: float
    against: tuple[str, ...] = ()
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
    leak : an outcome that gives a person away for certain, in words
    n_databases, needed : how many there are, and how many would resolve it if more would do
    known : what readers are taken to know of a database; ``presence`` whether also that a person is in it
    times : publications
    sampled : whether databases are random samples of one table
    noise : the answer with noise, if that is what would be released
    nouns : what individuals and databases are called
    unit : of the answer
    """

    outcome: str | None
    judged: JudgedTarget | None
    epsilon: float
    level: float
    delta: float
    upper: float
    n_databases: int
    hidden: Covered | None = None
    by_estimate: bool = False
    obstacles: Sequence[str] = ()
    leak: str = ""
    needed: int | None = None
    known: Sequence[str] = ()
    presence: bool = False
    times: int = 1
    sampled: bool = False
    noise: NoisyAnswer | None = None
    nouns: Nouns = field(default_factory=Nouns)
    unit: str = ""


@dataclass(frozen=True)
class Decision:
    """What to do, in words.

    Attributes
    ----------
    word : "Publish", "Publish with noise", "Do not publish"; "No decision" without a target
    line : the same, as it is or with this noise, and what it costs
    reason : why: what the answer hides, and the most that anybody moved it
    condition : when it holds, with epsilon and delta
    promise : what a reader can learn of one individual, where it may be published
    beyond : whom the answer does not hide, on how many days
    """

    word: str
    line: str
    reason: str
    condition: str = field(repr=False)
    promise: str = ""
    beyond: str = field(default="", repr=False)

    @property
    def sentences(self) -> tuple[str, ...]:
        """What is said below the line, the condition last."""
        reason = f"{self.reason} {self.beyond}".strip()
        return tuple(filter(None, (reason, self.promise, self.condition)))

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
    noise = case.noise
    if noise is None or (noise.error <= 0 and not noise.against):
        if case.outcome == "pass":
            return Decision(PUBLISH, PUBLISH, _reason(case), condition, _promise(case))
        return Decision(NOT, f"{NOT} as it is", _reason(case), condition, beyond=_not_hidden(case))
    if noise.against:
        return Decision(NOT, f"{NOT} with this noise", " ".join(noise.against), condition)
    cost = f"±{amount(noise.error, case.unit)}" + ("" if noise.component is None else f" for {noise.component}")
    little = f" {leaves_little()}" if tells_little(noise.error, noise.typical) else ""
    reason, small = _with_noise(case, noise)
    return Decision(WITH_NOISE, f"{WITH_NOISE} ({cost})", f"{reason}{little}", f"{small} {condition}", _promise(case))


def _with_noise(case: Case, noise: NoisyAnswer) -> tuple[str, str]:
    """What the noisy answer hides; and in small letters what it hides as it is, and what the noise comes to."""
    hidden, small = case.hidden, ""
    if noise.typical > 0 and math.isfinite(noise.typical):
        small = f", which is {percent(noise.error / noise.typical)} of a typical {amount(noise.typical, case.unit)}"
    small = f"With the noise{small}, delta is at most {number(noise.achieved)} for the most exposed."
    if hidden is None or math.isnan(noise.cover):
        assert case.judged is not None  # a case with an outcome has a target
        allowed = f"the target allows {percent(case.judged.limit)}"
        at_most = f"fails with a probability of at most {percent(noise.achieved)}"
        return f"With it, the most exposed {_individual(case)}'s privacy {at_most}; {allowed}.", small
    if hidden.cover <= 0:
        before = "Without noise, nothing shows that it hides anybody."
    else:
        before = f"Without noise it hides moves of up to {amount(hidden.cover, case.unit)}."
    with_it = hides(replace(hidden, cover=noise.cover, beyond=0, varies=False), case.nouns, case.unit)
    return with_it.replace("The answer", "With the noise, the answer", 1), f"{before} {small}"


def _figures(case: Case) -> str:
    bound = "no upper bound" if case.upper >= 1 else f"at most {number(case.upper)}"
    return f"delta {number(case.delta)} at epsilon {case.epsilon:g}, {bound}"


def _failing(case: Case) -> str:
    """The same in plain words."""
    fails = f"privacy fails with a probability of {percent(case.delta)} in a random {case.nouns.database or 'database'}"
    return f"The most exposed {_individual(case)}'s {fails}."


def hides(hidden: Covered, nouns: Nouns = Nouns(), unit: str = "") -> str:  # noqa: B008 — frozen
    """Cover and largest move, in the answer's units."""
    most = (
        "a person is given away by a value, or changes whether there is an answer at all"
        if math.isinf(hidden.largest)
        else f"{nouns.somebody} moved it by {amount(hidden.largest, unit)}"
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
    up_to = f"{where} hides {nouns.anyone_who} moves {it} by up to {amount(hidden.cover, unit)}"
    if not hidden.beyond and not hidden.varies and math.isfinite(hidden.largest):
        return f"{up_to}; {nouns.nobody} moved it by more than {amount(hidden.largest, unit)}."
    return f"{up_to}; {most}."


def beyond_cover(hidden: Covered, nouns: Nouns = Nouns()) -> str:  # noqa: B008 — frozen
    """Whom it does not hide, on how many days."""
    if not hidden.beyond:
        return ""
    share = hidden.beyond / max(hidden.days, 1)
    days = f"1 {nouns.days(1)}" if hidden.beyond == 1 else f"{percent(share)} of {nouns.days()}"
    return f"{days[:1].upper()}{days[1:]} moved it by more than is hidden."


def _of_the_day(case: Case) -> bool:
    """Whether what people did on the days they did it decided against publishing."""
    target, hidden = case.judged, case.hidden
    few = case.outcome == "unresolved" and case.n_databases < _can_meet(case)
    if case.by_estimate or few or case.leak or target is None or hidden is None or case.outcome == "pass":
        return False
    decided = target.where == DAY or (case.outcome == "unresolved" and hidden.beyond > 0)
    stopped = case.obstacles and (target.upper <= target.limit or hidden.cover <= 0)
    return decided and (case.outcome == "fail" or not stopped)


def _not_hidden(case: Case) -> str:
    """Whom the answer does not hide, where that decided."""
    if case.hidden is None or not _of_the_day(case):
        return ""
    said = beyond_cover(case.hidden, case.nouns)
    return said if case.outcome == "fail" else f"{said} It cannot be told whether these are hidden."


def _reason(case: Case) -> str:
    """Why the verdict is as it is: what decided, first."""
    target, nouns = case.judged, case.nouns
    assert target is not None  # a case with an outcome has a target
    fails, allowed = f"{_whose(case)} privacy", f"the target allows {percent(target.limit)}"
    if case.by_estimate and case.outcome != "unresolved":
        return f"By the estimate, {fails} fails with a probability of {percent(target.estimate)}; {allowed}."
    fails = fails[0].upper() + fails[1:]
    if case.outcome == "pass":
        if case.hidden is not None:
            return hides(case.hidden, nouns, case.unit)
        return f"{fails} fails with a probability of at most {percent(target.upper)}; {allowed}."
    if case.n_databases == 1:  # whatever it shows could be chance
        one = f"One {nouns.database or 'database'} does not show what chance does to the answer"
        return f"{one}: at least {_least(case)} are needed."
    if case.leak:
        return f"At least one {_individual(case)} is given away for certain: {_leak(case.leak)}."
    if case.hidden is not None and _of_the_day(case):
        return hides(case.hidden, nouns, case.unit)
    if case.outcome == "fail":
        return f"{fails} fails with a probability of at least {percent(target.lower)}; {allowed}."
    if case.n_databases < _can_meet(case):
        return f"{nouns.databases(case.n_databases)} are too few to tell: at least {_least(case)} are needed."
    if case.obstacles and (target.upper <= target.limit or target.estimate <= target.limit):
        return case.obstacles[0]
    likely = f"{fails} is estimated to fail with a probability of {percent(target.estimate)}"
    if target.upper >= 1:
        return f"{likely}, and nothing bounds it from above; {allowed}."
    return f"{likely}, and it may be {percent(target.upper)}; {allowed}."


def _leak(what: str) -> str:
    """An outcome that gives somebody away, such as "Surgery / 80+: result is empty (null)", in plain words."""
    empty = outcome_name("null")
    if what.endswith(empty):
        where = what.removesuffix(empty).removesuffix(": ")
        return f"whether there is an answer{where and f' in {where}'} depends on them"
    return f"the {what}" if what.startswith("result ") else what


def _can_meet(case: Case) -> int:
    """How many databases an upper bound takes that can meet the target: (1 - limit)^n <= 1 - level."""
    limit = case.judged.limit if case.judged is not None else 0.0
    return max(_LEAST, math.ceil(math.log1p(-case.level) / math.log1p(-limit) - 1e-9) if 0 < limit < 1 else 0)


def _least(case: Case) -> int:
    """How many databases it takes at least, as far as can be told."""
    return max(_can_meet(case), case.needed or 0)


def _whose(case: Case) -> str:
    assert case.judged is not None
    return "anybody's" if case.judged.name == "total_risk" else f"the most exposed {_individual(case)}'s"


def _individual(case: Case) -> str:
    return case.nouns.individual or "person"


def _in_figures(case: Case) -> str:
    """The target and the figures held against it, for small letters."""
    target = case.judged
    if target is None or case.n_databases < _LEAST or case.by_estimate or case.noise is not None:
        return ""
    name = "the total risk" if target.name == "total_risk" else f"the most exposed {_individual(case)}'s delta"
    where = "sample" if case.sampled else case.nouns.database or "database"
    name = (
        f"{'On' if where == 'day' else 'In'} a {where} that they are in, {name}"
        if target.where == DAY
        else name.capitalize()
    )
    if case.outcome == "pass":
        found = f"at most {number(target.upper)}"
    elif case.outcome == "fail":
        found = f"at least {number(target.lower)}"
    else:
        bounds = [("at least", target.lower, target.lower > 0), ("at most", target.upper, target.upper < 1)]
        found = " and ".join(f"{word} {number(value)}" for word, value, told in bounds if told) or "not bounded"
    more = "" if case.needed is None else f" About {case.nouns.databases(case.needed)} would resolve it."
    return (
        f"{name} at epsilon {case.epsilon:g} is {found} with {percent(case.level)} confidence; the target allows "
        f"{number(target.limit)}.{more} "
    )


def guess(epsilon: float, delta: float | None, nouns: Nouns = Nouns(), times: int = 1) -> str:  # noqa: B008 — frozen
    """What a reader can learn of one individual: a guess of 50:50 becomes 1 / (1 + exp(-epsilon)), rounded up."""
    sure = math.ceil(1000 / (1 + math.exp(-epsilon)) - 1e-9) / 10
    fails = "" if not delta else f", but surer in at most {percent(delta)} of cases"
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


def rows_of_one(nouns: Nouns = Nouns()) -> str:  # noqa: B008 — frozen
    """What a reader knows on the day: the rows of the one whom they wonder about, not whether these were counted."""
    return f"{nouns.somebody}'s rows"


def _condition(case: Case) -> str:
    """When the decision holds: for which databases, and for readers who know what."""
    known = [*case.known, *([rows_of_one(case.nouns)] if case.presence else [])]
    who = "who know nothing else of the database" if not known else f"who may know {listed(known)}"
    often = "" if case.times == 1 else f"{case.times:,} publications, "
    said = _in_figures(case)
    if case.sampled:
        samples = (
            "the answer of one random sample" if case.times == 1 else f"the answers of {case.times:,} random samples"
        )
        return (
            f"{said}Holds for {samples}, not of the whole table, while it is secret who was sampled, and readers {who}."
        )
    like = f"{case.nouns.database or 'database'}s like these {case.n_databases:,}"
    return f"{said}Holds for {often}{like}, and readers {who}."


def reach(n: int, unit: str, people: int, least: float) -> str:
    """How many databases and people there are, and the smallest delta that so many databases can support."""
    counted = f"{n:,} {unit if n == 1 else f'{unit}s'}, {people:,} {'person' if people == 1 else 'people'}"
    return f"{counted}: enough for delta ≥ {number(least)}."


def presets_within(least: float) -> str:
    """Which of the presets databases may show to be kept, that support deltas from ``least`` on."""
    names = [name for name, _, delta, _ in PRESETS.values() if delta >= least]
    if not names:
        return "That is too few for any of the promises that you can choose from later."
    promises = "promise" if len(names) == 1 else "promises"
    return f"That is enough for the {promises} {listed(names)}, of those that you can choose from later."


def too_few(n: int, least: int) -> str | None:
    """What to say of databases that are too few; None if they are enough."""
    if n < least:
        hint = "Hint: cut the rows into shorter times, or draw random samples of one table."
        return f"{too_few_for_a_bound(n, least)} {hint}"
    return few_databases(n) if n < _ENOUGH else None


def beyond_reach(n: int, least: float, delta: float) -> str | None:
    """What to say of a promise that so many databases cannot show to be kept; None if they may."""
    return None if delta >= least else f"{floor(n, least)} With so few, nobody can show that the promise is kept."


def promised(
    epsilon: float,
    delta: float | None,
    total_risk: float | None = None,
    *,
    times: int = 1,
    known: Sequence[str] = (),
    presence: bool = True,
    nouns: Nouns = Nouns(),  # noqa: B008 — frozen
) -> str:
    """The whole promise.

    Parameters
    ----------
    epsilon, delta, total_risk : limits; None where there is none
    times : publications that it must hold for together
    known : what readers may know, in a few words each
    presence : whether it must hold also in a database that people are in
    nouns : what an individual is called
    """
    known = [*known, *([rows_of_one(nouns)] if presence else [])]
    who = f"That holds for readers who may know {listed(known)}" if known else "That holds for readers who know no more"
    limits = {"epsilon": epsilon, "delta": delta, "total risk": total_risk}
    figures = ", ".join(f"{name} {limit:g}" for name, limit in limits.items() if limit is not None)
    anybody = (
        "" if total_risk is None else f" In at most {percent(total_risk)} of cases a reader gets surer of anybody."
    )
    return f"{guess(epsilon, delta, nouns, times)}{anybody} {who} ({figures})."
