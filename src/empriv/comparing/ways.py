"""`Goal`, `Action` and `Advice`: a target, ways to publish an answer that were tried, and their ranking against it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from importlib.metadata import version
from typing import Any

from empriv.auditing.audit import Audit
from empriv.base.arguments import finite_epsilon, one_of, probability
from empriv.base.targets import PRESENCES
from empriv.base.text import visible
from empriv.errors import InputError
from empriv.validate.verdict import PASS, Verdict
from empriv.words import what_to_do as words
from empriv.words.sentences import leaves_little, tells_little

JSON_VERSION = 1


@dataclass(frozen=True)
class Goal:
    """What is to be met, as `Audit.verdict` takes it."""

    epsilon: float
    delta: float | None = None
    total_risk: float | None = None
    presence: str = "both"
    level: float | None = None

    def __post_init__(self) -> None:
        if self.delta is None and self.total_risk is None:
            raise InputError("`delta` or `total_risk` must be given: advice needs a target.")
        for name, limit in (("delta", self.delta), ("total_risk", self.total_risk)):
            if limit is not None:
                probability(name, limit)
        one_of("presence", self.presence, PRESENCES)
        object.__setattr__(self, "epsilon", finite_epsilon(self.epsilon))

    @staticmethod
    def from_target(target: Mapping[str, Any]) -> Goal:
        """A goal from a dict such as ``{"epsilon": 0.1, "delta": 0.01}``."""
        known = ("epsilon", "delta", "total_risk", "presence", "level")
        if not isinstance(target, Mapping) or "epsilon" not in target or set(target) - set(known):
            raise InputError(f"`target` must be a dict with an epsilon and limits ({', '.join(known[1:])}).")
        return Goal(**target)

    @property
    def words(self) -> str:
        return words.target(self.epsilon, self.delta, self.total_risk)

    @property
    def texts(self) -> list[str]:
        """As --target takes it."""
        limits = (("delta", self.delta), ("total_risk", self.total_risk))
        return [f"{name} <= {limit:g} at {self.epsilon:g}" for name, limit in limits if limit is not None]


@dataclass(frozen=True)
class AgainstGoal:
    """An audit held against a goal: its verdict, estimate and upper bound on delta, and how far it is off.

    ``over`` is the largest upper bound over its limit: above 1 the target is not met.
    """

    verdict: Verdict
    delta: float
    upper: float
    over: float

    @property
    def meets(self) -> bool:
        return self.verdict == PASS


def judge(audited: Audit, goal: Goal) -> AgainstGoal:
    """The larger figures of a random database and, if the goal asks for it, of the day."""
    verdict = audited.verdict(
        epsilon=goal.epsilon, delta=goal.delta, total_risk=goal.total_risk, presence=goal.presence, level=goal.level
    )
    bounded = audited.bounds(goal.epsilon, goal.level)
    deltas = [target for target in verdict.judged if target.name == "delta"]
    over = [
        target.upper / target.limit if target.limit > 0 else math.inf if target.upper > 0 else 0.0
        for target in verdict.judged
    ]
    return AgainstGoal(
        verdict,
        max([float(bounded.estimate), *(target.estimate for target in deltas)]),
        max([float(bounded.upper), *(target.upper for target in deltas)]),
        max(over),
    )


@dataclass(frozen=True)
class Action:
    """One way to publish the answer, tried.

    Made by `empriv.advise`: one of `Advice.options`.

    Attributes
    ----------
    code : "as-is", "cap", "noise", "zero", "minimum", "coarser", "waiting" or "classical"
    parameters : of the way, such as ``{"at": 280.0}`` of a cap
    delta : the estimate after it, the larger of a random database and, if that was asked, one that people are in; NaN
        if it was not measured
    upper : the upper bound on delta there, or None if there is none for it
    error : mean absolute error in the answer's units; NaN if it is not known
    share : the error over a typical answer
    over : upper bounds over their limits, the largest; above 1 the target is not met
    verdict : "pass", "fail" or "unresolved"
    note : what the row rests on, in a sentence, or nothing
    command : what does it on the command line
    toml : what to add to the audit.toml of the run, so that the command redoes the row; nothing if the command is all
    cover : the largest move that is hidden after it, in the answer's units; NaN if it is not known
    title : what is done, in a few words, with the audit's noun and unit

    Examples
    --------
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 60)
    >>> audit = empriv.audit(empriv.Results.from_arrays(q, [q - 1.0]))
    >>> action = empriv.advise(audit, epsilon=0.1, delta=0.2).options[0]
    >>> action.title, action.verdict
    ('Publish as it is', 'pass')
    """

    code: str
    parameters: Mapping[str, Any]
    delta: float
    upper: float | None
    error: float
    share: float
    over: float
    verdict: str
    note: str
    command: str
    toml: str = ""
    cover: float = math.nan
    title: str = ""

    @property
    def meets(self) -> bool:
        """Whether the target is met."""
        return self.verdict == PASS

    def to_json(self) -> dict[str, Any]:
        """A dict fit for JSON; what is not known is null."""
        figures = {name: none_if_unknown(value) for name, value in asdict(self).items()}
        return {**figures, "parameters": dict(self.parameters), "meets": self.meets}


@dataclass(frozen=True)
class Advice:
    """What to do about an answer: ways to publish it, best first.

    Made by `empriv.advise`.

    Attributes
    ----------
    options : all ways that were tried, those that meet the target first, by their error; then by how near they come
    classical : the better classical noise at the same epsilon and delta for the largest move seen, to compare with;
        None if noise cannot hide what somebody changes
    goal : the target
    typical : mean size of the answers
    largest : the most that anybody moves an answer
    n_databases : that all ways were measured on
    unit : of the answer
    left_out : what was not tried, and why, in sentences
    rng : seed

    Examples
    --------
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 200)
    >>> audit = empriv.audit(empriv.Results.from_arrays(q, [q - 5.0]))
    >>> advice = empriv.advise(audit, epsilon=0.1, delta=0.05)
    >>> advice.best.title
    'Add noise'
    >>> advice.options[0].error < advice.classical.error
    True
    """

    options: tuple[Action, ...] = field(repr=False)
    classical: Action | None = field(repr=False)
    goal: Goal
    typical: float = field(repr=False)
    largest: float = field(repr=False)
    n_databases: int
    unit: str = ""
    left_out: tuple[str, ...] = field(default=(), repr=False)
    rng: int = 0

    @property
    def best(self) -> Action | None:
        """The way with the least error among those that meet the target; None if none does."""
        return self.options[0] if self.options and self.options[0].meets else None

    @property
    def nearest(self) -> Action | None:
        """The way that comes nearest to the target where none meets it; None if one does."""
        tried = [action for action in self.options if action.code != "waiting"]
        return tried[0] if tried and self.best is None else None

    def of_each_kind(self) -> tuple[Action, ...]:
        """The best of each kind of action, in the same order: a short list."""
        first: dict[str, Action] = {}
        for action in self.options:
            first.setdefault(action.code, action)
        return tuple(first.values())

    @property
    def sentence(self) -> str:
        """What to do, in a sentence."""
        aim = self.goal.words
        if self.best is not None:
            little = tells_little(self.best.error, self.typical)
            return words.best(self.best.title, self.cost(self.best), aim) + (f" {leaves_little()}" if little else "")
        wait = next((action.title for action in self.options if action.code == "waiting"), None)
        near = self.nearest
        tried = sum(action.code != "waiting" for action in self.options)
        return words.none_meets(
            tried,
            aim,
            None if near is None else near.title,
            None if near is None else near.upper,
            math.inf if near is None else near.over,
            wait,
        )

    def cost(self, action: Action) -> str:
        """What an action costs, in words."""
        return words.cost(action.error, action.share, self.typical, self.unit)

    @property
    def saved(self) -> tuple[str, ...]:
        """What designed noise saves against classical noise, and what each promises that the other does not."""
        if self.classical is None:
            return ()
        error = next((action.error for action in self.options if action.code == "noise" and action.meets), 0.0)
        both = self.goal.presence == "both"
        return (
            words.saves(self.classical.error, error, self.typical, self.unit),
            *words.promises(self.largest, self.n_databases, self.goal.delta, both, self.unit),
        )

    @property
    def rows(self) -> tuple[Action, ...]:
        """All options, and classical noise last."""
        return (*self.options, *(() if self.classical is None else (self.classical,)))

    def table(self) -> list[tuple[str, ...]]:
        """The rows in words, under `words.HEADERS`."""
        return [
            (
                visible(action.title), words.delta_said(action.delta), words.upper(action.upper),
                words.cell(action.error, action.share, self.unit), action.verdict,
            )
            for action in self.rows
        ]  # fmt: skip

    def __str__(self) -> str:
        table = [words.HEADERS, *self.table()]
        widths = [max(len(row[column]) for row in table) for column in range(len(words.HEADERS))]
        lines = [self.sentence, ""]
        for place, row in enumerate(table):
            cells = (c.rjust(w) if 0 < k < 4 else c.ljust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True)))
            lines.append(f"{place or '':>2}  {'  '.join(cells)}".rstrip())
        return "\n".join([*lines, "", *self.saved, *self.left_out])

    def _repr_html_(self) -> str:
        cells = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in self.table())
        head = "".join(f"<th>{escape(header)}</th>" for header in words.HEADERS)
        notes = "".join(f"<p>{escape(sentence)}</p>" for sentence in (*self.saved, *self.left_out))
        return f"<p><b>{escape(visible(self.sentence))}</b></p><table><tr>{head}</tr>{cells}</table>{notes}"

    def to_json(self) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers or results; its keys are in docs/formats.md."""
        return {
            "format": "empriv advice",
            "version": JSON_VERSION,
            "empriv": version("empriv"),
            "target": asdict(self.goal),
            "unit": self.unit,
            "typical": none_if_unknown(self.typical),
            "largest_influence": none_if_unknown(self.largest),
            "n_databases": self.n_databases,
            "rng": self.rng,
            "sentence": self.sentence,
            "options": [action.to_json() for action in self.options],
            "classical": None if self.classical is None else self.classical.to_json(),
            "saved": list(self.saved),
            "left_out": list(self.left_out),
        }


def ranked(actions: Sequence[Action]) -> tuple[Action, ...]:
    """Those that meet the target by their error, then waiting, then the others by how near they come."""

    def place(action: Action) -> tuple[int, float, float]:
        cost = math.inf if math.isnan(action.error) else action.error
        if action.meets:
            return 0, cost, 0.0
        if action.code == "waiting":
            return 1, 0.0, 0.0
        return 2, action.over, cost

    return tuple(sorted(actions, key=place))


def none_if_unknown(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
