"""`compare` and `Comparison`: ways to publish side by side, by their privacy, their errors and a target.

Figures come from the audits, pages and charts from `report`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from importlib.metadata import version
from math import isnan
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, overload

import numpy as np

from empriv.auditing.audit import Audit
from empriv.auditing.make_audit import DEFAULT_EPSILONS, audit, with_known
from empriv.base.arguments import rising_epsilons
from empriv.base.progress import progress
from empriv.base.storage import write_atomically
from empriv.base.text import visible
from empriv.collecting.origins import describe
from empriv.collecting.queries import Query
from empriv.collecting.run_query import Run
from empriv.comparing.ways import Goal, judge
from empriv.errors import InputError
from empriv.measuring.any_risk import Several
from empriv.measuring.densities.density import Density
from empriv.measuring.given.reader_knowledge import NOTHING, UNORDERED, as_said
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.protocols import Protocol, plain
from empriv.results import FloatArray, IntArray, Outcome, Results
from empriv.scale.totalled_risk import refuse_totals
from empriv.validate.bounds import Bounds, bounds
from empriv.words import side_by_side as words
from empriv.words import what_to_do as ways_words
from empriv.words.sentences import number

if TYPE_CHECKING:
    import empriv
    from empriv.collecting import Databases, Engine
    from empriv.collecting.functions.frames import FrameKind


def notes_of(comparison: Comparison) -> tuple[str, ...]:
    """What a reader must know about the comparison as a whole."""
    audits = list(comparison.audits.values())
    notes = [] if comparison.recommendation is None else [comparison.recommendation.sentence]
    if not comparison.paired:
        notes.append(words.unpaired())
    if comparison.truth is None:
        notes.append(words.no_truth())
    if len({repr(audit.density) for audit in audits}) > 1:
        notes.append(words.densities_differ())
    if len({audit.results.n_individuals for audit in audits}) > 1:
        notes.append(words.individuals_differ())
    return tuple(notes)


def rows_of(comparison: Comparison, epsilon: float) -> list[tuple[str, ...]]:
    """The table at one epsilon, with the columns of `HEADERS`; only the first four without a truth."""
    upper = comparison.upper(epsilon)
    delta, total = comparison.delta(epsilon), comparison.total_risk(epsilon)
    errors = {row.protocol: row for row in comparison.overall} if comparison.truth else {}
    return [
        (
            visible(name), number(delta[name], 3), words.upper_said(upper[name]), number(total[name], 3),
            *(errors_said(errors[name]) if errors else ()),
        )
        for name in comparison.names
    ]  # fmt: skip


def errors_said(row: Utility) -> tuple[str, str, str, str]:
    """Mean error, its 90% quantile, bias and share without an answer."""
    return (
        words.amount(row.mean_absolute),
        words.amount(row.ninety),
        words.amount(row.bias),
        words.share(row.unanswered),
    )


def describe_cells(comparison: Comparison) -> list[str]:
    """For tables with a truth, a sentence on the errors of each protocol: overall, in the worst cell, hidden cells."""
    if comparison.truth is None or comparison.scalar:
        return []
    sentences = []
    for row in comparison.overall:
        cells = [cell for cell in comparison.utility if cell.protocol == row.protocol and not isnan(cell.mean_absolute)]
        worst = max(cells, key=lambda cell: cell.mean_absolute, default=None)
        where = None if worst is None else (visible(worst.component or ""), worst.mean_absolute, worst.relative)
        n_cells = len(comparison[row.protocol].results.components or ())
        sentences.append(
            words.errors_of_cells(visible(row.protocol), n_cells, row.relative, where, row.unanswered * n_cells)
        )
    return sentences


def text_of(comparison: Comparison) -> str:
    """The comparison as plain text."""
    lines = [] if comparison.recommendation is None else [comparison.recommendation.sentence, ""]
    for epsilon in comparison.epsilons:
        rows = rows_of(comparison, epsilon)
        table = [words.HEADERS[: len(rows[0])], *rows]
        widths = [max(len(row[k]) for row in table) for k in range(len(rows[0]))]
        lines.append(f"At epsilon {epsilon:g}, in a random database")
        for row in table:
            cells = (c.ljust(w) if k == 0 else c.rjust(w) for k, (c, w) in enumerate(zip(row, widths, strict=True)))
            lines.append("  ".join(cells).rstrip())
        if comparison.truth is not None and comparison.scalar:
            front = ", ".join(map(visible, comparison.front(epsilon)))
            lines.append(words.front(front))
        lines.append("")
    if comparison.truth is not None:
        lines.append(words.against(visible(comparison.truth)))
    lines += describe_cells(comparison)
    lines += [note for note in notes_of(comparison) if note not in lines]
    return "\n".join(lines)


QUANTILES = (0.5, 0.9, 0.99)


@dataclass(frozen=True)
class Utility:
    """Errors of a protocol against the truth's answers, over all databases and draws.

    Made by `empriv.compare`: one of `Comparison.utility`.

    Attributes
    ----------
    protocol : its name
    component : the cell of a table that this is about; None for a query of one number, and for all cells together
    mean_absolute : mean of |answer - truth|; NaN if nothing was answered
    median, ninety, ninety_nine : quantiles of |answer - truth|
    bias : mean of answer - truth
    relative : mean of |answer - truth| / |truth|, over databases whose truth is not 0
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
    component: str | None
    mean_absolute: float
    median: float
    ninety: float
    ninety_nine: float
    bias: float
    relative: float
    unanswered: float
    n_answers: int


def utility_of(
    name: str, results: Results, truth: Results, places: tuple[IntArray, IntArray], part: str | None = None
) -> Utility:
    """Errors of a protocol: of one cell by name, or of all cells of a table together, or of the one number.

    Parameters
    ----------
    name : of the protocol
    results, truth : its results, and those of the truth, one answer for each database
    places : the positions of the same databases in both
    part : the cell
    """
    if truth.draws is not None:
        raise InputError("`truth` must give one answer for each database, got a randomised protocol.")
    if results.components != truth.components:
        raise InputError(
            "`protocols` must give the same numbers as the truth to be compared with it: one number each, or vectors "
            "whose components have the same names."
        )
    if part is not None:
        results, truth = results.component(part), truth.component(part)
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
    size = np.abs(error)
    scale = np.abs(right[answered])
    median, ninety, ninety_nine = (_quantile(size, level) for level in QUANTILES)
    return Utility(
        protocol=name,
        component=part,
        mean_absolute=_mean(size),
        median=median,
        ninety=ninety,
        ninety_nine=ninety_nine,
        bias=_mean(error),
        relative=_mean(size[scale > 0] / scale[scale > 0]),
        unanswered=1.0 - len(error) / n_answers,
        n_answers=n_answers,
    )


def _mean(values: FloatArray) -> float:
    return float(values.mean()) if len(values) else float("nan")


def _quantile(values: FloatArray, level: float) -> float:
    return float(np.quantile(values, level)) if len(values) else float("nan")


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
        target = asdict(self.goal)
        del target["level"]
        return {
            "target": target,
            "verdicts": dict(self.verdicts),
            "best": self.best,
            "nearest": self.nearest,
            "sentence": self.sentence,
        }


def recommend(comparison: Comparison, goal: Goal) -> Recommendation:
    """The least error among those that meet the target."""
    judged = {name: judge(audit, goal) for name, audit in comparison.audits.items()}
    verdicts = {name: str(each.verdict) for name, each in judged.items()}
    aim, meets = goal.words, [name for name in comparison.names if judged[name].meets]
    if not meets:
        nearest = min(comparison.names, key=lambda name: judged[name].over)
        sentence = ways_words.none_meets(
            len(verdicts), aim, visible(nearest), judged[nearest].upper, judged[nearest].over, None, verbatim=True
        )
        return Recommendation(goal, verdicts, None, nearest, sentence)
    if comparison.truth is None:
        best = meets[0] if len(meets) == 1 else None
        return Recommendation(goal, verdicts, best, None, ways_words.meet(list(map(visible, meets)), aim))
    rows = {row.protocol: row for row in comparison.overall}

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

    def __iter__(self) -> Iterator[str]:
        return iter(self.audits)

    def __len__(self) -> int:
        return len(self.audits)

    # Figures of each

    @overload
    def delta(self, epsilon: float) -> dict[str, float]: ...

    @overload
    def delta(self, epsilon: Several) -> dict[str, FloatArray]: ...

    def delta(self, epsilon: float | Several) -> dict[str, Any]:
        """Failure probability of the most exposed individual, of each protocol."""
        return {name: audit.delta(epsilon) for name, audit in self.audits.items()}

    @overload
    def total_risk(self, epsilon: float) -> dict[str, float]: ...

    @overload
    def total_risk(self, epsilon: Several) -> dict[str, FloatArray]: ...

    def total_risk(self, epsilon: float | Several) -> dict[str, Any]:
        """Chance that somebody's privacy fails, if failures are independent, of each protocol."""
        return {name: audit.total_risk(epsilon) for name, audit in self.audits.items()}

    def bounds(self, epsilon: float | Several, level: float = 0.95) -> dict[str, Bounds]:
        """Lower bound, estimate and upper bound of each protocol by itself."""
        return {name: audit.bounds(epsilon, level) for name, audit in self.audits.items()}

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
        return {name: float(bounds.upper) for name, bounds in self.bounds(float(epsilon)).items()}

    @cached_property
    def utility(self) -> tuple[Utility, ...]:
        """Errors against the truth's answers: one row for each protocol, or for each cell of its table."""
        return tuple(self._errors(cells=True))

    @cached_property
    def overall(self) -> tuple[Utility, ...]:
        """Errors against the truth's answers, one row for each protocol: all cells of a table together."""
        return tuple(self._errors(cells=False))

    def _errors(self, *, cells: bool) -> Iterator[Utility]:
        if self.truth is None:
            raise InputError("`truth` must name the protocol whose answers are right, got None.")
        right = self.audits[self.truth].results
        results = {name: each.results for name, each in self.audits.items()}
        orders = _shared_order(results)
        for name, own in results.items():
            for part in (cells and own.components) or (None,):
                yield utility_of(name, own, right, (orders[name], orders[self.truth]), part)

    @property
    def scalar(self) -> bool:
        """Whether every protocol gives one number."""
        return all(audit.results.components is None for audit in self.audits.values())

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
        if not self.scalar:
            raise InputError("The front must be of protocols of one number each: several numbers have several errors.")
        at = self.epsilons[0] if epsilon is None else float(epsilon)
        risk = self.delta(at)
        return front_of({row.protocol: (row.mean_absolute, float(risk[row.protocol])) for row in self.utility})

    # How it is shown

    def table(self, epsilon: float | None = None) -> dict[str, list[Any]]:
        """Columns of a table, one row for each protocol, ready for ``pandas.DataFrame``.

        Errors are included if there is a truth: of a table, those of all cells together.
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
                columns[name] = [getattr(row, name) for row in self.overall]
        if self.truth is not None and self.scalar:
            front = self.front(at)
            columns["front"] = [name in front for name in self.names]
        return columns

    def __str__(self) -> str:
        return text_of(self)

    def to_json(self) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers; its keys are in docs/formats.md."""
        errors = () if self.truth is None else self.utility
        overall = {} if self.truth is None else {row.protocol: _row(row) for row in self.overall}
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
                    "utility": [_row(row) for row in errors if row.protocol == name],
                    "overall": overall.get(name),
                }
                for name, audit in self.audits.items()
            ],
            "fronts": [{"epsilon": epsilon, "protocols": list(self.front(epsilon))} for epsilon in self.epsilons]
            if self.truth is not None and self.scalar
            else [],
            "recommendation": None if self.recommendation is None else self.recommendation.to_json(),
            "notes": list(notes_of(self)),
        }

    def save(self, path: str | PathLike[str]) -> None:
        """Write the figures as JSON, mode 0600."""
        if Path(path).suffix.lower() != ".json":
            raise InputError(f"`path` must end in .json, got {Path(path).suffix!r}.")
        text = json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_atomically(path, text.encode("utf-8", "backslashreplace"))

    def report(self, path: str | PathLike[str], *, title: str | None = None) -> Path:
        """Write the comparison as one page of HTML."""
        # Shortcuts upwards, by public names: this module knows nothing about how a comparison is shown.
        import empriv

        return empriv.report.write_comparison(self, path, title=title)

    def chart(self, name: str, epsilon: float | None = None) -> empriv.report.Chart:
        """One chart: "delta", "total_risk" or "utility"; ``.save("delta.png")``."""
        import empriv

        return empriv.report.comparison_chart(self, name, epsilon)


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


def _row(row: Utility) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value
        for name, value in asdict(row).items()
        if name != "protocol"
    }


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
    component: str | None = None,
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
    frame: FrameKind = "dict",
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
    density : how densities are estimated, the same for all
    component : compare this component of vector queries alone, by name; otherwise all are measured together. An
        `Audit` keeps its own density, component and knowledge.
    known : what readers know about each database, the same for all, as for `audit`; "nothing", the default here, as in
        the paper
    target : what is to be met, such as ``{"epsilon": 0.1, "delta": 0.01}``, with what `Audit.verdict` takes: the
        comparison then recommends the least error among those that meet it, or says that none does
    draws : of each randomised protocol for each database; default: 4 to 64, to make about 1,500 in all
    rng : seed; protocols draw the same random numbers from it, so that they do not differ by chance
    engine, memory_limit, timeout, jobs, progress, notice, frame : as for `collect`

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
    epsilons, said = rising_epsilons(epsilon), as_said(known)
    asked = NOTHING if said.ordered else (NOTHING, UNORDERED)
    goal = None if target is None else Goal.from_target(target)
    run = Run(
        draws=draws, rng=rng, engine=engine, memory_limit=memory_limit, timeout=timeout, jobs=jobs,
        progress=progress, notice=notice, frame=frame,
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
            measured = audit(way, epsilon=epsilons, density=density, component=component, known=asked)
            audits[name] = with_known(measured, said.known, None, run)
            continue
        assert data is not None
        if run.draws is None and way.randomised and audits:
            run = replace(run, draws=_enough(next(iter(audits.values())).results.n_databases))
        measured = audit(way.publish(data, run), epsilon=epsilons, density=density, component=component, known=asked)
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
