"""`compare` and `Comparison`: ways to publish side by side, by their privacy, their errors and a target.

Figures come from the audits, the page and the chart from `report`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from empriv.auditing.audit import Audit
from empriv.auditing.make_audit import DEFAULT_EPSILONS, audit, with_known
from empriv.auditing.totals import refuse_totals
from empriv.base.arguments import rising_epsilons
from empriv.base.progress import progress
from empriv.base.text import visible
from empriv.collecting.origins import describe
from empriv.collecting.queries import Query
from empriv.collecting.run_query import Run
from empriv.comparing.ways import Goal, judge, none_if_unknown
from empriv.errors import InputError
from empriv.measuring.any_risk import Several
from empriv.measuring.densities.density import Density
from empriv.measuring.given.reader_knowledge import NOTHING, UNORDERED, parse_known
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.protocols import Protocol, plain
from empriv.results import FloatArray, IntArray, Outcome, Results
from empriv.validate.bounds import Bounds, bounds
from empriv.words import what_to_do as ways_words
from empriv.words.sentences import number, percent

if TYPE_CHECKING:
    import empriv
    from empriv.collecting import Databases, Engine

HEADERS = (
    "protocol", "delta", "upper bound", "total risk", "mean error", "90% of errors", "bias", "relative", "no answer",
)  # fmt: skip
"""Of `rows_of`; without a truth only the first four."""


def notes_of(comparison: Comparison) -> tuple[str, ...]:
    """What a reader must know about the comparison as a whole."""
    audits = list(comparison.audits.values())
    notes = []
    if not comparison.paired:
        notes.append("They were measured on different databases, so a difference may be between the databases.")
    if comparison.truth is None:
        notes.append("No truth was named, so errors are not known.")
    else:
        notes.append(f"Errors are against the answers of {visible(comparison.truth)}.")
    if len({repr(audit.density) for audit in audits}) > 1:
        notes.append("They were measured with different densities: part of a difference may come from that.")
    if len({audit.results.n_individuals for audit in audits}) > 1:
        notes.append("They are of different individuals: with more of them total risk is larger, all else equal.")
    return tuple(notes)


def rows_of(comparison: Comparison, epsilon: float) -> list[tuple[str, ...]]:
    """The table at one epsilon in words, with the columns of `HEADERS`."""
    upper = comparison.upper(epsilon)
    delta, total = comparison.delta(epsilon), comparison.total_risk(epsilon)
    errors = {row.protocol: row for row in comparison.utility} if comparison.truth else {}
    return [
        (
            visible(name), number(delta[name], 3), "none" if upper[name] >= 1 else number(upper[name], 3),
            number(total[name], 3), *(errors_said(errors[name]) if errors else ()),
        )
        for name in comparison.names
    ]  # fmt: skip


def errors_said(row: Utility) -> tuple[str, ...]:
    """Errors of a protocol in words."""
    shares = ("—" if math.isnan(share) else percent(share) for share in (row.relative, row.unanswered))
    return (*map(_amount, (row.mean_absolute, row.ninety, row.bias)), *shares)


def _amount(value: float) -> str:
    """An error, in the unit of the answers."""
    return "—" if math.isnan(value) else f"{value:,.4g}" if value == 0 or abs(value) >= 1e-4 else f"{value:.2e}"


def front_said(comparison: Comparison, epsilon: float) -> str:
    """The protocols that no other beats."""
    return f"The best trade-offs between privacy and error: {', '.join(map(visible, comparison.front(epsilon)))}."


def text_of(comparison: Comparison) -> str:
    """The comparison as plain text."""
    lines = [] if comparison.recommendation is None else [comparison.recommendation.sentence, ""]
    for epsilon in comparison.epsilons:
        rows = rows_of(comparison, epsilon)
        table = [HEADERS[: len(rows[0])], *rows]
        widths = [max(len(row[k]) for row in table) for k in range(len(rows[0]))]
        lines.append(f"At epsilon {epsilon:g}, in a random database")
        for row in table:
            cells = (c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True)))
            lines.append("  ".join(cells).rstrip())
        lines += [] if comparison.truth is None else [front_said(comparison, epsilon)]
        lines.append("")
    return "\n".join([*lines, *notes_of(comparison)])


@dataclass(frozen=True)
class Utility:
    """Errors of a protocol against the truth's answers, over all databases and draws, and all cells of a table.

    Made by `empriv.compare`: one of `Comparison.utility`.

    Attributes
    ----------
    protocol : its name
    mean_absolute : mean of |answer - truth|; NaN if nothing was answered
    ninety : the size that 90% of the errors do not exceed
    bias : mean of answer - truth
    relative : mean of |answer - truth| / |truth|, over answers whose truth is not 0
    unanswered : share of answers that are not a number, such as hidden cells, among those whose truth is one
    n_answers : how many answers were compared with a truth, answered or not

    Examples
    --------
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 60)
    >>> raw = empriv.Results.from_arrays(q, [q - 1.0])
    >>> rounded = empriv.Results.from_arrays(q.round(-1), [(q - 1.0).round(-1)])
    >>> comparison = empriv.compare({"raw": raw, "rounded": rounded}, truth="raw", epsilon=0.1)
    >>> print(f"{comparison.utility[1].mean_absolute:.2f}")
    2.65
    """

    protocol: str
    mean_absolute: float
    ninety: float
    bias: float
    relative: float
    unanswered: float
    n_answers: int


def utility_of(name: str, results: Results, truth: Results, places: tuple[IntArray, IntArray]) -> Utility:
    """Errors of a protocol; ``places`` are the positions of the same databases in its results and the truth's."""
    if truth.draws is not None:
        raise InputError("`truth` must give one answer for each database, got a randomised protocol.")
    if results.components != truth.components:
        raise InputError(
            "`protocols` must give the same numbers as the truth to be compared with it: one number each, or vectors "
            "whose components have the same names."
        )
    mine, theirs = places
    cells = 1 if results.components is None else len(results.components)
    answers = results.q[mine].reshape(len(mine), -1, cells)
    numbers = (results.outcomes[mine] == Outcome.NUMBER).reshape(answers.shape)
    right = np.broadcast_to(truth.q[theirs].reshape(-1, 1, cells), answers.shape)
    has_truth = (truth.outcomes[theirs] == Outcome.NUMBER).reshape(-1, 1, cells)
    has_truth = np.broadcast_to(has_truth, answers.shape)
    n_answers = int(np.count_nonzero(has_truth))
    if n_answers == 0:
        raise InputError("`truth` must have an answer that is a number on at least one database, got none.")
    answered = has_truth & numbers
    error = answers[answered] - right[answered]
    size, scale = np.abs(error), np.abs(right[answered])
    return Utility(
        protocol=name,
        mean_absolute=_mean(size),
        ninety=float(np.quantile(size, 0.9)) if len(size) else math.nan,
        bias=_mean(error),
        relative=_mean(size[scale > 0] / scale[scale > 0]),
        unanswered=1.0 - len(error) / n_answers,
        n_answers=n_answers,
    )


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else math.nan


@dataclass(frozen=True)
class Recommendation:
    """Which protocol to take.

    Attributes
    ----------
    goal : the target
    verdicts : of each protocol, "pass", "fail" or "unresolved"
    best : the name of the protocol with the least error among those that pass; None if none does, or if several pass
        and errors are not known
    nearest : the name of the one that comes nearest, where none passes
    sentence : the same in words
    """

    goal: Goal
    verdicts: Mapping[str, str]
    best: str | None
    nearest: str | None
    sentence: str

    def to_json(self) -> dict[str, Any]:
        facts = asdict(self)
        del facts["goal"]["level"]
        return {"target": facts.pop("goal"), **facts}


def recommend(comparison: Comparison, goal: Goal) -> Recommendation:
    """The least error among those that meet the target."""
    judged = {name: judge(audit, goal) for name, audit in comparison.audits.items()}
    verdicts = {name: str(each.verdict) for name, each in judged.items()}
    aim, meets = goal.words, [name for name, each in judged.items() if each.meets]
    if not meets:
        nearest = min(comparison.names, key=lambda name: judged[name].over)
        sentence = ways_words.none_meets(
            len(verdicts), aim, visible(nearest), judged[nearest].upper, judged[nearest].over, None, verbatim=True
        )
        return Recommendation(goal, verdicts, None, nearest, sentence)
    if comparison.truth is None:
        best = meets[0] if len(meets) == 1 else None
        return Recommendation(goal, verdicts, best, None, ways_words.meet(list(map(visible, meets)), aim))
    rows = {row.protocol: row for row in comparison.utility}

    def cost(name: str) -> tuple[float, float]:
        error = rows[name].mean_absolute
        return math.inf if math.isnan(error) else error, rows[name].unanswered

    best = min(meets, key=cost)
    error, unanswered = rows[best].mean_absolute, rows[best].unanswered
    sentence = ways_words.recommended(visible(best), error, unanswered, aim, len(meets))
    return Recommendation(goal, verdicts, best, None, sentence)


MOST = 12
JSON_VERSION = 1


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several protocols side by side, by their privacy and their error.

    Made by `empriv.compare`.

    Attributes
    ----------
    audits : the audit of each, by name
    epsilons : the epsilons asked for, rising
    truth : name of the protocol whose answers the others are compared with, or None
    goal : the target that a recommendation is for, or None

    Examples
    --------
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 60)
    >>> raw = empriv.Results.from_arrays(q, [q - 1.0])
    >>> rounded = empriv.Results.from_arrays(q.round(-1), [(q - 1.0).round(-1)])
    >>> comparison = empriv.compare({"raw": raw, "rounded": rounded}, truth="raw", epsilon=0.1)
    >>> {name: round(float(delta), 3) for name, delta in comparison.delta(0.1).items()}
    {'raw': 0.017, 'rounded': 0.009}
    """

    audits: Mapping[str, Audit] = field(repr=False)
    epsilons: tuple[float, ...]
    truth: str | None = None
    goal: Goal | None = None

    def __post_init__(self) -> None:
        if not 2 <= len(self.audits) <= MOST:
            raise InputError(f"`protocols` must hold 2 to {MOST} protocols, got {len(self.audits)}.")
        if self.truth is not None and self.truth not in self.audits:
            raise InputError(f"`truth` must name one of the protocols ({', '.join(self.audits)}), got {self.truth!r}.")
        if self.truth is not None and not self.paired:
            raise InputError("`truth` must be on the same databases as the other protocols, got different ones.")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.audits)

    def __getitem__(self, name: str) -> Audit:
        if name not in self.audits:
            raise InputError(f"`name` must be one of the protocols ({', '.join(self.audits)}), got {name!r}.")
        return self.audits[name]

    # Figures of each

    def delta(self, epsilon: float | Several) -> dict[str, Any]:
        """Failure probability of the most exposed individual, of each protocol."""
        return {name: audit.delta(epsilon) for name, audit in self.audits.items()}

    def total_risk(self, epsilon: float | Several) -> dict[str, Any]:
        """Chance that somebody's privacy fails, if failures are independent, of each protocol."""
        return {name: audit.total_risk(epsilon) for name, audit in self.audits.items()}

    @cached_property
    def _bounds_asked(self) -> dict[str, Bounds]:
        """Bounds at 95% at the epsilons asked for: computed once for all that is shown."""
        grid = np.array(self.epsilons)
        nobody = np.empty((0, len(grid)))  # nothing about single individuals is kept
        out = {}
        with progress(len(self.audits), "Finding bounds") as advance:
            for name, audit in self.audits.items():
                out[name] = replace(bounds(audit.measured, grid), upper_i=nobody)
                advance()
        return out

    def upper(self, epsilon: float) -> dict[str, float]:
        """Upper bound on delta of each protocol; computed once at the epsilons asked for."""
        if epsilon in self.epsilons:
            place = self.epsilons.index(epsilon)
            return {name: float(bounds.upper[place]) for name, bounds in self._bounds_asked.items()}
        return {name: float(audit.bounds(float(epsilon)).upper) for name, audit in self.audits.items()}

    @cached_property
    def utility(self) -> tuple[Utility, ...]:
        """Errors against the truth's answers: one row for each protocol."""
        if self.truth is None:
            raise InputError("`truth` must name the protocol whose answers are right, got None.")
        results = {name: each.results for name, each in self.audits.items()}
        orders, truth = _shared_order(results), self.truth
        return tuple(
            utility_of(name, own, results[truth], (orders[name], orders[truth])) for name, own in results.items()
        )

    @cached_property
    def recommendation(self) -> Recommendation | None:
        """Which protocol to take for the target, or that none meets it; None if no target was given."""
        return None if self.goal is None else recommend(self, self.goal)

    # One against another

    @cached_property
    def paired(self) -> bool:
        """Whether all are on the same databases: with the same labels, and the same sources where these are known."""
        labels = [sorted(map(str, audit.results.databases.tolist())) for audit in self.audits.values()]
        origins = [audit.origin for audit in self.audits.values() if audit.origin is not None]
        sources = {(tuple(origin.sources), origin.database, origin.drawn) for origin in origins}
        return all(other == labels[0] for other in labels[1:]) and len(sources) <= 1

    def front(self, epsilon: float | None = None) -> tuple[str, ...]:
        """The protocols that no other improves on in both delta and error, most exact first; by the estimates.

        ``epsilon`` is the first asked for by default.
        """
        at = self.epsilons[0] if epsilon is None else float(epsilon)
        risk = self.delta(at)
        return front_of({row.protocol: (row.mean_absolute, float(risk[row.protocol])) for row in self.utility})

    # How it is shown

    def table(self, epsilon: float | None = None) -> dict[str, list[Any]]:
        """Columns of a table, one row for each protocol, ready for ``pandas.DataFrame``.

        Errors are included if there is a truth.
        """
        at = self.epsilons[0] if epsilon is None else float(epsilon)
        columns: dict[str, list[Any]] = {
            "protocol": list(self.names),
            "delta": list(self.delta(at).values()),
            "upper_bound": list(self.upper(at).values()),
            "total_risk": list(self.total_risk(at).values()),
        }
        if self.truth is not None:
            for name in ("mean_absolute", "ninety", "bias", "relative", "unanswered"):
                columns[name] = [getattr(row, name) for row in self.utility]
            front = self.front(at)
            columns["front"] = [name in front for name in self.names]
        return columns

    def __str__(self) -> str:
        return text_of(self)

    def to_json(self) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers; its keys are in docs/formats.md."""
        rows = () if self.truth is None else self.utility
        errors = {row.protocol: {name: none_if_unknown(value) for name, value in asdict(row).items()} for row in rows}
        for each in errors.values():
            del each["protocol"]
        return {
            "format": "empriv comparison",
            "version": JSON_VERSION,
            "empriv": version("empriv"),
            "epsilons": list(self.epsilons),
            "truth": self.truth,
            "protocols": [
                {
                    "name": name,
                    "query": audit.query,
                    "n_databases": audit.results.n_databases,
                    "n_individuals": audit.results.n_individuals,
                    "draws": audit.results.draws,
                    "figures": self._bounds_asked[name].to_json(),
                    "utility": {key: value for key, value in errors[name].items() if key != "protocol"}
                    if errors
                    else None,
                }
                for name, audit in self.audits.items()
            ],
            "fronts": [
                {"epsilon": epsilon, "protocols": list(self.front(epsilon))}
                for epsilon in (() if self.truth is None else self.epsilons)
            ],
            "recommendation": None if self.recommendation is None else self.recommendation.to_json(),
            "notes": list(notes_of(self)),
        }

    def report(self, path: str | PathLike[str], *, title: str | None = None) -> Path:
        """Write the comparison as one page of HTML."""
        # Shortcuts upwards, by public names: this module knows nothing about how a comparison is shown.
        import empriv

        return empriv.report.write_comparison(self, path, title=title)

    def chart(self, epsilon: float | None = None) -> empriv.report.Chart:
        """The error of each against its delta; ``.save("errors.png")``. It needs a truth."""
        import empriv

        return empriv.report.comparison_chart(self, epsilon)


def _shared_order(results: Mapping[str, Results]) -> dict[str, IntArray]:
    """Positions of the databases that all of them have, sorted by label."""
    places = {
        name: {str(label): place for place, label in enumerate(each.databases.tolist())}
        for name, each in results.items()
    }
    shared = sorted(set.intersection(*(set(own) for own in places.values())))
    return {name: np.array([own[label] for label in shared], np.int64) for name, own in places.items()}


def front_of(points: Mapping[str, tuple[float, float]]) -> tuple[str, ...]:
    """Names that no other beats: at least as good in both error and risk, and better in one; NaN is never in front."""
    measured = {name: point for name, point in points.items() if not any(map(math.isnan, point))}

    def improved_on(point: tuple[float, float]) -> bool:
        return any(other[0] <= point[0] and other[1] <= point[1] and other != point for other in measured.values())

    return tuple(
        sorted((name for name, point in measured.items() if not improved_on(point)), key=lambda name: measured[name])
    )


Compared: TypeAlias = str | Callable[..., Any] | Query | Protocol | Results | Audit
"""What can be compared: a query or a protocol, which is run, or results or an audit made before."""

_ANSWERS, _LEAST_DRAWS, _MOST_DRAWS = 1_500, 4, 64


def compare(
    protocols: Mapping[str, Compared],
    data: Databases | None = None,
    *,
    truth: str | None = None,
    epsilon: Iterable[float] | float = DEFAULT_EPSILONS,
    density: Density | None = None,
    known: Any = NOTHING,
    target: Mapping[str, Any] | None = None,
    draws: int | None = None,
    rng: int = 0,
    engine: Engine | None = None,
    memory_limit: str | None = None,
    timeout: float | None = None,
    jobs: int | None = None,
    progress: bool | None = None,
    notice: Callable[[str], None] | None = None,
) -> Comparison:
    """Compare protocols by their privacy, and by their error against the truth.

    Parameters
    ----------
    protocols : 2 to 12 by name, each SQL text, a function of the rows or a `Protocol` from `empriv.protocols`; or
        `Results` or an `Audit` made before
    data : databases, from `databases`, `subsamples`, `splits` or `repeats`; not needed for `Results` and `Audit`
    truth : name of the protocol whose answers are right, from which the others' errors are measured; it must not be
        randomised. Without it, errors are not known.
    epsilon : the epsilons to report; you can ask for others later
    density : how densities are estimated, the same for all; an `Audit` keeps its own, and its knowledge
    known : what readers know about each database, the same for all, as for `audit`; "nothing", the default here, as in
        the paper
    target : what is to be met, such as ``{"epsilon": 0.1, "delta": 0.01}``, with what `Audit.verdict` takes: the
        comparison then recommends the least error among those that meet it, or says that none does
    draws : of each randomised protocol for each database; default: 4 to 64, to make about 1,500 in all
    rng : seed; protocols draw the same random numbers from it, so that they do not differ by chance
    engine, memory_limit, timeout, jobs, progress, notice : as for `collect`

    Returns
    -------
    Comparison

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> mean = "avg(delay)"
    >>> ways = {"raw": mean, "rounded": empriv.protocols.rounded(mean, to=5)}
    >>> comparison = empriv.compare(ways, data, truth="raw", epsilon=0.1)
    >>> comparison.front(0.1)
    ('raw', 'rounded')
    """
    if not isinstance(protocols, Mapping):
        raise InputError(f"`protocols` must be a dict of names and protocols, got {type(protocols).__name__}.")
    if not 2 <= len(protocols) <= MOST:
        raise InputError(f"`protocols` must hold 2 to {MOST} protocols, got {len(protocols)}.")
    if not all(isinstance(name, str) and name.strip() for name in protocols):
        raise InputError("`protocols` must have names that are non-empty strings.")
    if truth is not None and truth not in protocols:
        raise InputError(f"`truth` must name one of the protocols ({', '.join(protocols)}), got {truth!r}.")
    epsilons, said = rising_epsilons(epsilon), parse_known(known)
    asked = NOTHING if said.ordered else (NOTHING, UNORDERED)
    goal = None if target is None else Goal.from_target(target)
    run = Run(
        draws=draws, rng=rng, engine=engine, memory_limit=memory_limit, timeout=timeout, jobs=jobs,
        progress=progress, notice=notice,
    )  # fmt: skip
    # Check all of them before any is run.
    ways = {name: _as_protocol(name, protocol, data) for name, protocol in protocols.items()}
    if truth is not None and _randomised(ways[truth]):
        raise InputError("`truth` must give one answer for each database, got a randomised protocol.")
    audits: dict[str, Audit] = {}
    # Randomised ones last: how many draws are enough depends on the number of databases, which is known by then.
    for name in sorted(ways, key=lambda name: _randomised(ways[name])):
        way = ways[name]
        if isinstance(way, Audit):
            refuse_totals(way.risk, "protocols")
            audits[name] = replace(way, epsilons=epsilons)
            continue
        if isinstance(way, Results):
            measured = audit(way, epsilon=epsilons, density=density, known=asked)
            audits[name] = with_known(measured, said.known, None, run)
            continue
        assert data is not None
        if run.draws is None and way.randomised and audits:
            run = replace(run, draws=_enough(next(iter(audits.values())).results.n_databases))
        measured = audit(way.publish(data, run), epsilon=epsilons, density=density, known=asked)
        measured = replace(measured, query=way.describe(), origin=describe(data))
        audits[name] = with_known(measured, said.known, data, run)
    return Comparison({name: audits[name] for name in protocols}, epsilons, truth, goal)


def _randomised(way: Protocol | Results | Audit) -> bool:
    return isinstance(way, Protocol) and way.randomised


def _enough(n_databases: int) -> int:
    """Draws for each database that make about `_ANSWERS` in all."""
    return min(_MOST_DRAWS, max(_LEAST_DRAWS, _ANSWERS // n_databases))


def _as_protocol(name: str, protocol: Any, data: Any) -> Protocol | Results | Audit:
    """A protocol to run, or the results or audit that were given for it."""
    if isinstance(protocol, Results | Audit):
        return protocol
    if isinstance(protocol, Noise | TableNoise):
        raise InputError(
            f"`protocols` must hold queries, protocols, results or audits, got noise for {name!r}. "
            "Hint: protocols.noised(query, noise)."
        )
    if data is None:
        raise InputError(f"`data` must be given, since {name!r} has to be run on it.")
    return protocol if isinstance(protocol, Protocol) else plain(protocol)
