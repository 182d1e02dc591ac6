"""`Audit`: the result of `audit`, with all that can be asked of it; wiring only.

Its words come from `words`, its numbers from `measuring`, how far to trust them from `validate`, noise from `noise`,
releases from `ledger`, and pages and charts from `report`.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, singledispatch
from importlib.metadata import version
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from empriv.auditing.composing import Asked, Composition, release_through
from empriv.auditing.deciding import case_of, reasons_against
from empriv.auditing.knowledge import KnownRisk, known_facts, known_to_parts, nothing_known_to_json
from empriv.auditing.updating import Whenever, bounds_whenever, databases_like, further_results, with_further_databases
from empriv.base.arguments import finite_epsilon, one_of, probability, rising_epsilons, whole_number
from empriv.base.display import show_in_turn
from empriv.base.storage import write_archive
from empriv.collecting.origins import Origin, origin_to_json
from empriv.errors import InputError
from empriv.measuring import GivenRisk, Risk, RiskContract, WorstRisk, measure
from empriv.measuring.contract import Several
from empriv.measuring.densities.density import Density
from empriv.measuring.densities.specs import density_to_json
from empriv.measuring.series import HowOften, Publications
from empriv.measuring.tables import GivenTableRisk, TableRisk
from empriv.noise.measured import asks_presence, has_several, holds_no_answers, one_number, several_numbers, unit_of
from empriv.results import FloatArray, IntArray, Results
from empriv.validate import Bounds, Check, Verdict, facts_of
from empriv.validate.bounds import bounds
from empriv.validate.bounds.noise_as_kernel import NoiseGiven
from empriv.validate.checks import checks
from empriv.validate.covering import WhoMoved, cover, cover_on, moved
from empriv.validate.how_many_publications import publications
from empriv.validate.table_cover import CoverByCell, cover_by_cell
from empriv.validate.table_moves import WhoMovedCells
from empriv.validate.verdict import PASS, PRESENCES, upper_on_the_day, verdict
from empriv.words import sentences as words
from empriv.words.decision import Decision, decide
from empriv.words.facts import JointFacts, Question, RiskFacts
from empriv.words.findings import Finding
from empriv.words.nouns import Nouns, database_noun, individual_noun
from empriv.words.summary import Summary, figure_line, summarise, tail_sentence

if TYPE_CHECKING:
    import empriv
    from empriv.ledger import Ledger, Released
    from empriv.noise.noise import Noise
    from empriv.noise.table_noise import TableNoise

JSON_VERSION = 1
_MOST_BOUNDS = 8  # kept: each holds a figure for every individual


@dataclass(frozen=True, eq=False)
class Audit:
    """How private a query is on the data that was audited.

    Made by `empriv.audit`, and by `empriv.load` from a file.

    Attributes
    ----------
    results : query results with everyone, and without each individual
    risk : measured from the results, of any kind; a `TableRisk` if the query gives several numbers
    epsilons : the epsilons asked for, rising
    query : SQL text, or the name of the function
    origin : where the rows came from, or None if results were given
    density : the recipe for the density
    component : the component audited, if the query was a vector, and how many it has
    against : the risk to somebody who knows part of the data, if anything was counted as known; figures are then this
        risk's, and ``risk`` has the paper's, which ignore it
    nothing_known : why nothing was counted as known, if nobody said what is
    composition : earlier releases that the query was measured together with, if a ledger was given and held any
    text : the query in canonical form, or None if only its code could ask it again
    scope : name of the body of data in the ledger
    times : publications, each from a database of its own, that the figures are of
    unit : of the answer, such as "min", for words and pages
    noun : what an individual is called there, such as "aircraft"; empty: by the column that identifies it
    paper : whether verdicts are asked as in the paper: random databases, and the estimate decides

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> audit = empriv.audit(data, "avg(delay)", epsilon=0.1)
    >>> print(f"{audit.delta(0.1):.4f}, total risk {audit.total_risk(0.1):.3f}")
    0.0083, total risk 0.340
    >>> audit.individuals(0.1, top=2)["databases"]
    array([148, 139])
    """

    results: Results = field(repr=False)
    risk: RiskContract = field(repr=False)
    epsilons: tuple[float, ...]
    query: str
    origin: Origin | None
    density: Density
    component: str | None = None
    n_components: int | None = None
    against: KnownRisk | None = field(default=None, repr=False)
    nothing_known: Finding | None = field(default=None, repr=False)
    composition: Composition | None = field(default=None, repr=False)
    text: str | None = field(default=None, repr=False)
    scope: str = ""
    times: int = 1
    unit: str = ""
    noun: str = ""
    paper: bool = False
    _bounds: dict[Any, Bounds] = field(default_factory=dict, init=False, repr=False)
    _verdicts: dict[Any, Verdict] = field(default_factory=dict, init=False, repr=False)
    _certified: dict[str, Noise | TableNoise] = field(default_factory=dict, init=False, repr=False)

    @property
    def measured(self) -> RiskContract:
        """What the figures come from: the risk of one publication, or of as many as were asked for."""
        return self.once if self.times == 1 else self._repeated

    @property
    def once(self) -> RiskContract:
        """The risk of one publication, to readers who know what is counted as known."""
        return self.risk if self.against is None else self.against

    @property
    def measured_against(self) -> object:
        """The risk that says what is counted as known, if anything is."""
        return self.against

    @property
    def takes_noise(self) -> bool:
        """Whether noise can be designed that keeps its promise to the readers that the figures are about."""
        if isinstance(self.against, WorstRisk):
            return False
        hidden = (
            self.against is None or _hidden_given(self.against) is not None or _given_table(self.against) is not None
        )
        return self.composition is None and hidden

    @cached_property
    def _repeated(self) -> RiskContract:
        return self.once.repeated(self.times)

    def repeated(self, times: int) -> Audit:
        """The audit of so many publications, each from a database of its own: the price of a year of daily figures.

        All figures, bounds, checks, verdicts and pages are then those of all publications together, for people who are
        in all of their databases or in none (docs/series.md).

        Examples
        --------
        >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
        >>> audit = empriv.audit(data, "avg(delay)")
        >>> print(f"{audit.delta(1.0):.3f} once, {audit.repeated(365).delta(1.0):.2f} in a year")
        0.002 once, 0.68 in a year
        """
        return replace(self, times=whole_number("times", times, least=1))

    @cached_property
    def nouns(self) -> Nouns:
        """What individuals and databases are called in words."""
        columns, cut = ((), None) if self.origin is None else (self.origin.individual, self.origin.database)
        return Nouns(self.noun or individual_noun(columns), database_noun(cut, self.results.databases.tolist()))

    @property
    def n_databases(self) -> int:
        return self.results.n_databases

    @property
    def n_individuals(self) -> int:
        return self.measured.n_individuals

    @overload
    def delta(self, epsilon: float) -> float: ...

    @overload
    def delta(self, epsilon: Several) -> FloatArray: ...

    def delta(self, epsilon: float | Several) -> float | FloatArray:
        """Failure probability of the most exposed individual: a float, or an array for an array."""
        return self.measured.delta(epsilon)

    def delta_i(self, epsilon: float | Several) -> FloatArray:
        """Failure probability of each individual, in the order of ``results.individuals``."""
        return self.measured.delta_i(epsilon)

    @overload
    def total_risk(self, epsilon: float) -> float: ...

    @overload
    def total_risk(self, epsilon: Several) -> FloatArray: ...

    def total_risk(self, epsilon: float | Several) -> float | FloatArray:
        """Chance that somebody's privacy fails, if failures are independent."""
        return self.measured.total_risk(epsilon)

    @overload
    def exposed(self, epsilon: float) -> int: ...

    @overload
    def exposed(self, epsilon: Several) -> IntArray: ...

    def exposed(self, epsilon: float | Several) -> int | IntArray:
        """How many individuals have a delta_i that is not 0."""
        return self.measured.exposed(epsilon)

    def epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``."""
        return self.measured.epsilon(delta)

    def updated(self, rows: Any, **options: Any) -> Audit:
        """The audit with further databases among the others, such as today's. Only their rows are read.

        Parameters
        ----------
        rows : `Databases`, or a file or table whose rows are cut and belong to people as those audited were
        options : as for `collect`: engine, memory_limit, timeout, jobs, progress, notice
        """
        from empriv.collecting.run_options import Run

        return with_further_databases(self, databases_like(self.origin, rows), Run(**options))

    def bounds_whenever(self, epsilon: float, level: float | None = None) -> Whenever:
        """Bounds on delta for an audit that is looked at again and again while databases are added.

        Those of `bounds` hold for one look. These hold for all looks together; they move at 30, 60, 120, ... databases.
        """
        return bounds_whenever(self, epsilon, level)

    @cached_property
    def components(self) -> dict[str, Audit]:
        """The audit of each number alone; empty if the query gives a single number."""
        parts = self.risk.each_number
        return {
            name: replace(
                self, results=risk.results, risk=risk, component=name, n_components=len(parts), composition=None
            )
            for name, risk in parts.items()
        }

    @cached_property
    def alone(self) -> Audit:
        """The audit of the query without the earlier releases that it was measured together with."""
        if self.composition is None:
            return self
        results = self.composition.own_results
        return replace(self, results=results, risk=measure(results, density=self.density), composition=None)

    def bounds(self, epsilon: float | Several, level: float | None = None, *, noise: NoiseGiven = 0.0) -> Bounds:
        """Lower bound, estimate and upper bound of delta, and the upper bound of each delta_i; see `empriv.bounds`."""
        level = self.measured.usual_level if level is None else level
        if noise:
            return bounds(self.measured, epsilon, level, noise=noise)
        key = _key(epsilon, level)
        return self._kept_bounds(key, lambda: bounds(self.measured, epsilon, level))

    def cover(self, epsilon: float, delta: float, *, noise: NoiseGiven = 0.0, level: float | None = None) -> float:
        """The largest move of the answer that is hidden at (epsilon, delta), in its own units; see `empriv.cover`.

        Where the spread depends on what is known, in units of what is left of a database: `cover_on` has it in the
        answer's units for one.

        Examples
        --------
        >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
        >>> audit = empriv.audit(data, "avg(delay)", paper=True)
        >>> 0.1 < audit.cover(0.1, 0.05) < audit.moved().most
        True
        """
        return cover(self.measured, epsilon, delta, noise=noise, level=level)

    def cover_on(
        self, database: Any, epsilon: float, delta: float, *, noise: NoiseGiven = 0.0, level: float | None = None
    ) -> float:
        """The cover on one database, given by its label, in the answer's units."""
        return cover_on(self.measured, database, epsilon, delta, noise=noise, level=level)

    def cover_by_cell(
        self, epsilon: float, delta: float, *, noise: NoiseGiven = 0.0, level: float | None = None
    ) -> CoverByCell:
        """Of a table: how large a move each cell hides, beside the most that anybody moved it; see
        `empriv.cover_by_cell`."""
        return cover_by_cell(self.measured, epsilon, delta, noise=noise, level=level)

    def moved(self, *, top: int | None = 10, show_ids: bool = False) -> WhoMoved | WhoMovedCells:
        """Who moved the answer (of a table, which cell) by how much on which database: each person's largest move,
        furthest first.

        Names are pseudonyms of this call, unless ``show_ids``. ``top=None`` lists everybody.
        """
        return moved(self.measured, top=top, key=None if show_ids else secrets.token_bytes(32))

    @cached_property
    def checks(self) -> tuple[Check, ...]:
        """What could make the figures wrong, most serious first, checked at the smallest epsilon asked for."""
        return checks(self.measured, self.epsilons[0])

    def verdict(
        self,
        *,
        epsilon: float,
        delta: float | None = None,
        total_risk: float | None = None,
        basis: str | None = None,
        level: float | None = None,
        presence: str | None = None,
        noise: NoiseGiven = 0.0,
    ) -> Verdict:
        """ "pass", "fail" or "unresolved" against targets, with reasons.

        ``basis="bound"`` asks whether the upper bound meets the target or the lower one breaks it, ``basis="estimate"``
        what the point estimate does, as in the paper; the verdict holds both. ``presence="both"`` judges the paper's
        pair, on a random database, and what people did on the days they did it; ``presence="random"`` the paper's pair
        alone. An audit made with ``paper=True`` asks as the paper does unless told otherwise. ``noise`` is added to the
        answer before it is judged.
        """
        basis = ("estimate" if self.paper else "bound") if basis is None else basis
        presence = ("random" if self.paper else "both") if presence is None else presence
        asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "total_risk": total_risk}
        key = (*asked.values(), basis, level, presence)
        if not noise and key in self._verdicts:
            return self._verdicts[key]
        at = finite_epsilon(epsilon)
        judged = verdict(
            self.measured, **asked, basis=basis, level=level, presence=presence, noise=noise,
            bounds_there=None if noise else self.bounds(at, level), checks_made=self.checks,
        )  # fmt: skip
        if self.origin is not None and self.origin.sampled:
            judged.findings = (*judged.findings, Finding("sampled"))
        if not noise:
            self._verdicts[key] = judged
        return judged

    def decision(
        self, verdicts: Verdict | Sequence[Verdict] = (), *, noise: Noise | TableNoise | None = None
    ) -> Decision:
        """May it be published? One line, one sentence of reason and one of condition.

        Parameters
        ----------
        verdicts : on the targets, from `verdict`; without any there is no decision, and the figures are the reason
        noise : designed for this audit: the decision is then on the answer with it, which must keep every target

        Examples
        --------
        >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
        >>> audit = empriv.audit(data, "avg(delay)", unit="min")
        >>> audit.decision(audit.verdict(epsilon=0.1, delta=0.05)).line
        'Do not publish as it is'
        """
        given = (verdicts,) if isinstance(verdicts, Verdict) else tuple(verdicts)
        return decide(case_of(self, given, noise))

    def _kept_bounds(self, key: tuple[Any, ...], compute: Callable[[], Bounds]) -> Bounds:
        if key not in self._bounds:
            while len(self._bounds) >= _MOST_BOUNDS:
                del self._bounds[next(iter(self._bounds))]
            self._bounds[key] = compute()
        return self._bounds[key]

    def publications(self, epsilon: float, *, level: float | None = None, presence: str | None = None) -> Publications:
        """delta of any number of publications of the answer as it is, each from a database of its own.

        ``presence`` is as for `verdict`: with "both", no figure is below that of the day on which somebody did most.
        """
        asks = "random" if self.paper else "both"
        presence = one_of("presence", asks if presence is None else presence, PRESENCES)
        key = (finite_epsilon(epsilon), level, presence)
        if key not in self._publications:
            bounded = self._published_once.bounds(key[0], level)
            day = 0.0 if presence == "random" else upper_on_the_day(self.once, key[0], bounded.level)
            once = bounded.estimate, max(bounded.upper, day)
            self._publications[key] = publications(self.once, key[0], level=level, once=once)
        return self._publications[key]

    @cached_property
    def _publications(self) -> dict[Any, Publications]:
        return {}

    @cached_property
    def _published_once(self) -> Audit:
        return self if self.times == 1 else replace(self, times=1)

    def how_often(
        self, *, epsilon: float, delta: float, level: float | None = None, presence: str | None = None
    ) -> HowOften:
        """How often the query may be published, each time from a database of its own, within a target.

        ``presence`` is as for `verdict`. An answer that does not pass once has no number of publications that do.
        """
        delta = probability("delta", delta)
        often = self.publications(epsilon, level=level, presence=presence).how_often(delta)
        asked: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "level": level, "presence": presence}
        passes = not often.by_bound or self._published_once.verdict(**asked, basis="bound") == PASS
        return often if passes else replace(often, by_bound=0)

    def individuals(self, epsilon: float, *, top: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Columns of a table of the individuals, riskiest first."""
        return self.measured.individuals(epsilon, top=top)

    def summary(self, epsilons: Iterable[float] | float | None = None) -> Summary:
        """The audit in words, at the epsilons asked for or at others."""
        grid = self.epsilons if epsilons is None else rising_epsilons(epsilons)
        return summarise(self._facts(grid), self._asked)

    def _facts(self, epsilons: Sequence[float]) -> RiskFacts:
        """What the words need to know."""
        return facts_of(self.measured, epsilons)

    @property
    def _asked(self) -> Question:
        """What was asked of which data, as the words need it."""
        origin = self.origin
        return Question(
            query=self.query,
            individual=None if origin is None else origin.individual,
            sources=() if origin is None else tuple(dict.fromkeys((*origin.sources, *origin.added))),
            database=None if origin is None else origin.database,
            drawn=None if origin is None else origin.drawn,
            sampled=origin is not None and origin.sampled,
            component=self.component,
            n_components=self.n_components,
            earlier=0 if self.composition is None else len(self.composition.entries),
            nothing_known=self.nothing_known,
            n_databases=self.n_databases,
            verified=None if self.results.verified is None else str(self.results.verified),
        )

    def in_turn(self, epsilons: Iterable[float] | float | None = None, *, every: bool = False) -> Iterator[str]:
        """Sentences about the figures, each as soon as it is known: the estimates, then a bound, then the checks.

        What is computed is kept, so that whoever asks afterwards does not wait again. ``every`` finds bounds at all
        epsilons, as JSON and pages have them, and not only at the first.
        """
        grid = np.array(self.epsilons if epsilons is None else rising_epsilons(epsilons))
        yield from map(figure_line, self._facts(grid.tolist()).figures)
        if every:
            self.bounds(grid)
        bounded = self._bounds_at_first(grid)
        yield words.upper(float(np.ravel(bounded.upper)[0]), bounded.level)
        grave = sum(check.severity != "info" for check in self.checks)
        yield f"{len(self.checks)} checks made, {grave} of them with something to know."

    def _bounds_at_first(self, epsilons: FloatArray) -> Bounds:
        """Bounds at the first of these epsilons, or at all of them where they are known, as in a report."""
        known = _key(epsilons, self.measured.usual_level) in self._bounds
        return self.bounds(epsilons if known else float(epsilons[0]))  # a verdict there shares it

    def with_validity(self, said: Summary) -> Summary:
        """A summary with the bounds at its first epsilon, and the checks that a reader should see."""
        grid = np.array([figure.epsilon for figure in said.figures])
        bounded = self._bounds_at_first(grid)
        upper, lower = (float(np.ravel(figures)[0]) for figures in (bounded.upper, bounded.lower))
        sentences = (words.upper(upper, bounded.level), words.lower(lower, bounded.level), *bounded.notes)
        # exact leaks are among the alarms already
        grave = [c.sentence for c in self.checks if c.severity != "info" and c.code != "exact-leak"]
        calm = [check.sentence for check in self.checks if check.code == "iid" and check.severity == "info"]
        notes = (said.notes[0], *sentences, *said.notes[1:], *calm)
        warnings = tuple(dict.fromkeys((*said.warnings, *grave)))
        return replace(said, warnings=warnings, notes=tuple(dict.fromkeys(notes)))

    def to_json(self, epsilons: Iterable[float] | float | None = None) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers; its keys are in docs/formats.md."""
        summary = self.summary(epsilons)
        grid = [figure.epsilon for figure in summary.figures]
        bounded = self.bounds(np.array(grid))
        full_summary, facts = self.with_validity(summary), self._facts(grid)
        model = self.risk.model
        return {
            "format": "empriv audit figures",
            "version": JSON_VERSION,
            "empriv": version("empriv"),
            "query": self.query,
            "component": self.component,
            "n_components": self.n_components,
            "times": self.times,
            "unit": self.unit,
            "noun": self.noun,
            "paper": self.paper,
            "source": origin_to_json(self.origin),
            "n_databases": self.n_databases,
            "n_individuals": facts.n_individuals,
            "draws": facts.draws,
            "verified": None if self.results.verified is None else self.results.verified.to_json(),
            "known": known_facts(self.against, grid),
            "nothing_known": nothing_known_to_json(self.nothing_known),
            "earlier_releases": [] if self.composition is None else list(self.composition.entries),
            "joint": None if facts.joint is None else _joint_json(facts.joint),
            "figures": [asdict(figure) for figure in facts.figures],
            "epsilon_at_delta_0": _finite_or_none(self.epsilon(0.0)) if self.measured.tells_epsilon(0.0) else None,
            "bounds": bounded.to_json(),
            "checks": [check.to_json() for check in self.checks],
            "smallest_supported_delta": facts.floor,
            "density": {
                "recipe": density_to_json(self.density),
                "model": None if model is None else model[0],
                "scores": [
                    {
                        "candidate": score.candidate,
                        "log_likelihood": _finite_or_none(score.log_likelihood),
                        "standard_error": _finite_or_none(score.standard_error),
                        "chosen": score.chosen,
                    }
                    for score in (() if model is None else model[1])
                ],
            },
            "not_numbers": {
                "with_everyone": dict(facts.not_numbers.with_everyone),
                "without_an_individual": dict(facts.not_numbers.without_an_individual),
            },
            "atoms": [asdict(atom) for atom in facts.atoms],
            "words": {
                "asked": full_summary.asked,
                "figures": list(full_summary.sentences),
                "alarms": list(full_summary.alarms),
                "warnings": list(full_summary.warnings),
                "notes": list(full_summary.notes),
            },
        }

    def __str__(self) -> str:
        """The summary as lines, with bounds and checks."""
        tails = [tail_sentence(self.epsilon(0.0))] if self.measured.tells_epsilon(0.0) else []
        return "\n".join((self.with_validity(self.summary()).text, *tails))

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file of mode 0600, which `load` reads; the format is in docs/formats.md."""
        # With earlier releases, save the vector without noise: the noise for measuring is drawn again on loading.
        without_noise = self.results if self.composition is None else self.composition.results
        meta, arrays = without_noise.to_parts()
        known, known_arrays = known_to_parts(self.against)
        facts = {
            "known": known,
            "nothing_known": nothing_known_to_json(self.nothing_known),
            "composition": None if self.composition is None else self.composition.to_json(),
            "text": self.text,
            "scope": self.scope,
            "empriv": version("empriv"),
            "query": self.query,
            "epsilons": list(self.epsilons),
            "source": origin_to_json(self.origin),
            "density": density_to_json(self.density),
            "component": self.component,
            "n_components": self.n_components,
            "times": self.times,
            "unit": self.unit,
            "noun": self.noun,
            "paper": self.paper,
        }
        write_archive(path, kind="audit", meta={**meta, **facts}, arrays={**arrays, **known_arrays})

    def release(
        self,
        value: float | Mapping[str, float] | None = None,
        *,
        noise: Noise | TableNoise,
        ledger: Ledger,
        database: Any = None,
        rows: Any = None,
    ) -> Released:
        """Release a noisy answer through the ledger, which records it before anybody sees it.

        The noise is certified anew for this audit, whatever it or its file says. What was released of this query with
        this noise from a database of the same content gives the same answer, whatever the database is called.

        Parameters
        ----------
        value : the answer on ``database``, or the answers by name for several numbers; not with ``rows``
        noise : from `design_noise`, for this audit
        ledger : what has been released already; the audit should have been made with it
        database : label of the database that the answer comes from, audited or new
        rows : of one further database, such as today's, as for `updated`: its answer is computed and released, if the
            database is like those audited

        Returns
        -------
        Released
            ``answer``, ``repeated`` (the same release gives the same answer), ``entry``.
        """
        asked = Asked(
            self.alone.risk, self.query, self.text, self.component, self.origin, self.scope, self.composition,
            self._certified, _hidden_given(self.against), lambda made: reasons_against(made, self.alone),
        )  # fmt: skip
        further, dated = None, True
        if rows is not None:
            from empriv.collecting.origins import describe
            from empriv.collecting.run_options import Run

            data = databases_like(self.origin, rows)
            further = further_results(self.alone, data, Run(verified_on=database))
            dated = describe(data).dated
        return release_through(ledger, asked, value, noise=noise, database=database, further=further, dated=dated)

    def report(self, path: str | PathLike[str], **options: Any) -> empriv.report.Written:
        """Write the audit as one page of HTML, with what belongs beside it; see `empriv.report.write_report`."""
        # Shortcuts upwards, by public names: this module knows nothing about how an audit is shown.
        import empriv

        return empriv.report.write_report(self, path, **options)

    def chart(self, name: str, epsilon: float | None = None) -> empriv.report.Chart:
        """One chart of the report: ``audit.chart("delta").save("delta.png")``; docs/report.md lists the names."""
        import empriv

        return empriv.report.chart(self, name, epsilon)

    def _repr_html_(self) -> str | None:
        import empriv

        return empriv.report.notebook_html(self)

    def _ipython_display_(self) -> None:
        show_in_turn(self.query, self.in_turn(), self, self._repr_html_)


@one_number.register
def _(audit: Audit) -> Risk:
    # noise must do without the randomness that is known; earlier releases it is designed without
    given = _hidden_given(audit.against)
    return one_number(audit.alone.risk) if given is None else given


@unit_of.register
def _(audit: Audit) -> str:
    return audit.unit


@asks_presence.register
def _(audit: Audit) -> bool:
    return not audit.paper


@holds_no_answers.register
def _(audit: Audit) -> bool:
    return _hidden_given(audit.against) is not None


@singledispatch
def _hidden_given(against: object) -> Risk | None:  # noqa: ARG001 — dispatched on
    """The risk given what is known, as noise is designed for it; None where it is designed for the results."""
    return None


@_hidden_given.register
def _(against: WorstRisk) -> Risk | None:  # noqa: ARG001 — dispatched on
    raise InputError(
        "`known` must be what is regressed out of the results where noise is designed or released, got buckets or own. "
        "Hint: audit with known='count(*)', which knows more than its bucket."
    )


@_hidden_given.register
def _(against: GivenRisk) -> Risk | None:
    # Where outcomes have a mass of their own, what is left of the results does not show them.
    return None if len(against.atoms.names) or against.atoms.own else one_number(against)


@several_numbers.register
def _(audit: Audit) -> TableRisk:
    # noise must do without the randomness that is known
    given = _given_table(audit.against)
    return several_numbers(audit.alone.risk) if given is None else given


@has_several.register
def _(audit: Audit) -> bool:
    return audit.alone.results.components is not None


@singledispatch
def _given_table(against: object) -> GivenTableRisk | None:  # noqa: ARG001 — dispatched on
    """The risk of a table given what is known, as noise is designed for it; None if that is not what is known."""
    return None


@_given_table.register
def _(against: GivenTableRisk) -> GivenTableRisk | None:
    return against


def _key(epsilon: npt.ArrayLike, level: float) -> tuple[Any, ...]:
    """The key under which bounds are cached."""
    return (np.shape(epsilon), tuple(np.ravel(np.asarray(epsilon, float)).tolist()), level)


def _joint_json(joint: JointFacts) -> dict[str, Any]:
    """What JSON says about several numbers together."""
    return {
        "dimension": joint.dimension,
        "parameters": joint.parameters,
        "from_below": joint.from_below,
        "components": {
            name: [
                {"epsilon": figure.epsilon, "delta": figure.delta, "total_risk": figure.total_risk}
                for figure in figures
            ]
            for name, figures in joint.components.items()
        },
        "leaks": [
            {"direction": direction, "what": outcome, "n_individuals": count, "largest_share": share}
            for direction, outcome, count, share in joint.leaks
        ],
    }


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
