"""`Audit`: the result of `audit`, with all that can be asked of it; wiring only.

Its words come from `words`, its numbers from `measuring`, how far to trust them from `validate`, noise from `noise`,
releases from `ledger`, and pages and charts from `report`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import numpy.typing as npt

from empriv.auditing.composing import Composition
from empriv.auditing.deciding import case_of, own_targets, verdicts_on
from empriv.auditing.files import audit_to_json, audit_to_parts
from empriv.auditing.knowledge import KnownRisk
from empriv.auditing.releasing import release_through
from empriv.auditing.summary import (
    Outcomes,
    Summary,
    outcome_summary,
    summarise,
    tail_sentence,
    with_validity,
)
from empriv.auditing.totals import TotalledRisk, refuse_totals
from empriv.auditing.updating import (
    AnytimeBounds,
    anytime_bounds,
    databases_like,
    further_results,
    with_further_databases,
)
from empriv.base.arguments import finite_epsilon, one_of, probability, rising_epsilons, whole_number
from empriv.base.storage import write_archive
from empriv.base.targets import PRESENCES, Target
from empriv.collecting.origins import Origin
from empriv.errors import InputError
from empriv.judge.noise_kernels import NoiseGiven
from empriv.measuring import AnyRisk, GivenRisk, WorstRisk, measure
from empriv.measuring.any_risk import Several
from empriv.measuring.densities.density import Density
from empriv.measuring.series import HowOften, Publications
from empriv.measuring.tables import GivenTableRisk
from empriv.noise.judging import NoiseSubject, subject_of, takes_noise
from empriv.results import FloatArray, IntArray, Results
from empriv.validate import Bounds, Verdict
from empriv.validate.bounds import bounds, publications
from empriv.validate.checks import checks
from empriv.validate.covers import CoverByCell, WhoMoved, cover, cover_by_cell, moved
from empriv.validate.verdict import PASS, on_the_day, verdict
from empriv.words.decision import Decision, decide
from empriv.words.message import Message
from empriv.words.sentences import Nouns, database_noun, individual_noun

if TYPE_CHECKING:
    import empriv
    from empriv.ledger import Ledger, Released, Review
    from empriv.noise.noise import Noise
    from empriv.noise.table_noise import TableNoise

_MOST_BOUNDS = 8  # kept: each holds a figure for every individual


@dataclass(frozen=True, eq=False)
class Audit:
    """How private a query is on the data that was audited.

    Made by `empriv.audit`, and by `empriv.load` from a file.

    Attributes
    ----------
    results : query results with everyone, and without each individual
    risk : measured from the results, of any kind; a `TableRisk` if the query gives several numbers, a `TotalledRisk` if
        people were measured in chunks: then the results are those of the most exposed
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
    targets : what it is judged by, whichever command asks
    certified : noise that was judged for this audit already, by what it claims

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
    risk: AnyRisk = field(repr=False)
    epsilons: tuple[float, ...]
    query: str
    origin: Origin | None
    density: Density
    component: str | None = None
    n_components: int | None = None
    against: KnownRisk | None = field(default=None, repr=False)
    nothing_known: Message | None = field(default=None, repr=False)
    composition: Composition | None = field(default=None, repr=False)
    text: str | None = field(default=None, repr=False)
    scope: str = ""
    times: int = 1
    unit: str = ""
    noun: str = ""
    paper: bool = False
    targets: tuple[Target, ...] = ()
    _bounds: dict[Any, Bounds] = field(default_factory=dict, init=False, repr=False)
    _verdicts: dict[Any, Verdict] = field(default_factory=dict, init=False, repr=False)
    certified: dict[str, Noise | TableNoise] = field(default_factory=dict, init=False, repr=False)

    @property
    def measured(self) -> AnyRisk:
        """What the figures come from: the risk of one publication, or of as many as were asked for."""
        return self.once if self.times == 1 else self._repeated

    @property
    def once(self) -> AnyRisk:
        """The risk of one publication, to readers who know what is counted as known."""
        return self.risk if self.against is None else self.against

    @property
    def in_chunks(self) -> bool:
        """Whether people were measured in chunks: the most exposed are kept, and the others totalled."""
        return isinstance(self.risk, TotalledRisk)

    @property
    def measured_against(self) -> object:
        """The risk that says what is counted as known, if anything is."""
        return self.risk.kept if isinstance(self.risk, TotalledRisk) else self.against

    @property
    def takes_noise(self) -> bool:
        """Whether noise can be designed that keeps its promise to the readers that the figures are about."""
        if self.in_chunks or isinstance(self.against, WorstRisk):
            return False
        hidden = self.against is None or _noise_given(self.against) is not None
        return self.composition is None and hidden

    @cached_property
    def _repeated(self) -> AnyRisk:
        return self.once.repeated(self.times)

    def repeated(self, times: int) -> Audit:
        """The audit of so many publications, each from a database of its own: the price of a year of daily figures.

        All figures, bounds, checks, verdicts and pages are then those of all publications together, for people who are
        in all of their databases or in none (docs/again.md).

        Examples
        --------
        >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
        >>> audit = empriv.audit(data, "avg(delay)")
        >>> print(f"{audit.delta(1.0):.3f} once, {audit.repeated(365).delta(1.0):.2f} in a year")
        0.002 once, 0.68 in a year
        """
        if times != 1:
            refuse_totals(self.risk, "times")
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
        from empriv.collecting.run_query import Run

        refuse_totals(self.risk, "updated")
        return with_further_databases(self, databases_like(self.origin, rows), Run(**options))

    def anytime_bounds(self, epsilon: float, level: float | None = None) -> AnytimeBounds:
        """Bounds on delta for an audit that is looked at again and again while databases are added.

        Those of `bounds` hold for one look. These hold for all looks together; they move at 30, 60, 120, ... databases.
        """
        refuse_totals(self.risk, "anytime_bounds")
        return anytime_bounds(self, epsilon, level)

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
        """Lower bound, estimate and upper bound of delta, and the upper bound of each delta_i."""
        level = self.measured.usual_level if level is None else level
        if noise:
            return bounds(self.measured, epsilon, level, noise=noise)
        key = _key(epsilon, level)
        return self._kept_bounds(key, lambda: bounds(self.measured, epsilon, level))

    def cover(
        self,
        epsilon: float,
        delta: float,
        *,
        noise: NoiseGiven = 0.0,
        level: float | None = None,
        database: Any = None,
    ) -> float:
        """The largest move of the answer that is hidden at (epsilon, delta), in its own units.

        Where the spread depends on what is known, on a typical database, or on the one whose label is ``database``.

        Examples
        --------
        >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
        >>> audit = empriv.audit(data, "avg(delay)", paper=True)
        >>> 0.1 < audit.cover(0.1, 0.05) < audit.moved().most
        True
        """
        return cover(self.measured, epsilon, delta, noise=noise, level=level, database=database)

    def cover_by_cell(
        self, epsilon: float, delta: float, *, noise: NoiseGiven = 0.0, level: float | None = None
    ) -> CoverByCell:
        """Of a table: how large a move each cell hides, beside the most that anybody moved it."""
        return cover_by_cell(self.measured, epsilon, delta, noise=noise, level=level)

    def moved(self, *, top: int | None = 10, show_ids: bool = False) -> WhoMoved:
        """Who moved the answer (of a table, which cell) by how much on which database: each person's largest move,
        furthest first.

        Names are pseudonyms of this call, unless ``show_ids``. ``top=None`` lists everybody.
        """
        return moved(self.measured, top=top, key=None if show_ids else secrets.token_bytes(32))

    @cached_property
    def checks(self) -> tuple[Message, ...]:
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
            bounds_made=None if noise else self.bounds(at, level), checks_made=self.checks,
        )  # fmt: skip
        if self.origin is not None and self.origin.sampled:
            judged.messages = (*judged.messages, _SAMPLED)
        if not noise:
            self._verdicts[key] = judged
        return judged

    def decision(
        self, verdicts: Verdict | Sequence[Verdict] = (), *, noise: Noise | TableNoise | None = None
    ) -> Decision:
        """May it be published? One line, one sentence of reason and one of condition.

        Parameters
        ----------
        verdicts : on targets, from `verdict`, besides those on the audit's own; without any there is no decision, and
            the figures are the reason
        noise : designed for this audit: the decision is then on the answer with it, which must keep every target

        Examples
        --------
        >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
        >>> audit = empriv.audit(data, "avg(delay)", unit="min")
        >>> audit.decision(audit.verdict(epsilon=0.1, delta=0.05)).line
        'Do not publish as it is'
        """
        given = (verdicts,) if isinstance(verdicts, Verdict) else tuple(verdicts)
        own = [verdict for _, verdict in verdicts_on(self)]
        return decide(case_of(self, [*own, *(verdict for verdict in given if verdict not in own)], noise))

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
        refuse_totals(self.risk, "publications")
        asks = "random" if self.paper else "both"
        presence = one_of("presence", asks if presence is None else presence, PRESENCES)
        key = (finite_epsilon(epsilon), level, presence)
        if key not in self._publications:
            bounded = self._published_once.bounds(key[0], level)
            day = (0.0, 0.0) if presence == "random" else on_the_day(self.once, key[0], bounded.level)
            once = max(bounded.estimate, day[0]), max(bounded.upper, day[1])
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
        return summarise(self, grid)

    @cached_property
    def outcomes(self) -> Outcomes:
        """Results that are not plain numbers, and point masses."""
        return outcome_summary(self.once)

    def bounds_at_first(self, epsilons: Several) -> Bounds:
        """Bounds at the first of these epsilons, or at all of them where they are known, as in a report."""
        grid = np.array(epsilons)
        known = _key(grid, self.measured.usual_level) in self._bounds
        return self.bounds(grid if known else float(grid[0]))  # a verdict there shares it

    def to_json(self, epsilons: Iterable[float] | float | None = None) -> dict[str, Any]:
        """A dict fit for JSON, without identifiers; its keys are in docs/formats.md."""
        return audit_to_json(self, epsilons)

    def __str__(self) -> str:
        """The summary as lines, with bounds and checks."""
        tails = [tail_sentence(self.epsilon(0.0))] if self.measured.tells_epsilon(0.0) else []
        return "\n".join((with_validity(self, self.summary()).text, *tails))

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file of mode 0600, which `load` reads; the format is in docs/formats.md."""
        meta, arrays = audit_to_parts(self)
        write_archive(path, kind="audit", meta=meta, arrays=arrays)

    def release(
        self,
        value: float | Mapping[str, float] | None = None,
        *,
        noise: Noise | TableNoise,
        ledger: Ledger,
        database: Any = None,
        rows: Any = None,
        review: Review | None = None,
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
        review : what a checker said of it, kept with the release; what a checker refused is not released

        Returns
        -------
        Released
            ``answer``, ``repeated`` (the same release gives the same answer), ``entry``.
        """
        refuse_totals(self.risk, "release")
        further, dated = None, True
        if rows is not None:
            from empriv.collecting.origins import describe
            from empriv.collecting.run_query import Run

            data = databases_like(self.origin, rows)
            further = further_results(self.alone, data, Run(verified_on=database))
            dated = describe(data).dated
        return release_through(
            ledger, self, value, noise=noise, database=database, further=further, dated=dated, review=review
        )

    def noise_subject(self) -> NoiseSubject:
        """What noise is designed for: without the randomness that is known, and without earlier releases."""
        given = _noise_given(self.against)
        subject = subject_of(self.alone.risk if given is None else given)
        own = own_targets(self)
        return replace(subject, presence=not self.paper, unit=self.unit, targets=own, times=self.times)

    def report(self, path: str | PathLike[str], **options: Any) -> empriv.report.Written:
        """Write the audit as one page of HTML, with what belongs beside it; see `empriv.report.write_report`."""
        # Shortcuts upwards, by public names: this module knows nothing about how an audit is shown.
        import empriv

        return empriv.report.write_report(self, path, **options)

    def chart(self, name: str, epsilon: float | None = None) -> empriv.report.Chart:
        """One chart of the report: ``audit.chart("delta").save("delta.png")``; docs/decision.md lists the names."""
        import empriv

        return empriv.report.chart(self, name, epsilon)

    def _repr_html_(self) -> str | None:
        import empriv

        return empriv.report.notebook_html(self)


def _noise_given(against: object) -> GivenRisk | GivenTableRisk | None:
    """The risk given what is known, as noise is designed for it; None where it is designed for the results."""
    if isinstance(against, WorstRisk):
        raise InputError(
            "`known` must be what is regressed out of the results where noise is designed or released, got buckets or "
            "own. Hint: audit with known='count(*)', which knows more than its bucket."
        )
    if isinstance(against, GivenRisk):
        return against if takes_noise(against) else None  # point masses do not show in the residuals
    return against if isinstance(against, GivenTableRisk) else None


def _key(epsilon: npt.ArrayLike, level: float) -> tuple[Any, ...]:
    """The key under which bounds are cached."""
    return (np.shape(epsilon), tuple(np.ravel(np.asarray(epsilon, float)).tolist()), level)


_SAMPLED = Message(
    "sampled",
    "Judged for the answer of one secret sample: who was sampled is protected, not what the whole table says.",
)
