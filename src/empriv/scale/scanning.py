"""`scan`: goes through all individuals once, a stretch at a time, and makes a `Scan`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from empriv.auditing.knowledge import infer_public_knowledge, known_values
from empriv.base.arguments import confidence_level, rising_deltas, rising_epsilons, unit_name, whole_number
from empriv.base.checkpoints import open_checkpoint
from empriv.base.progress import progress as progress_bar
from empriv.collecting.origins import Origin, describe
from empriv.errors import InputError
from empriv.measuring.densities.density import Density, density_or_default, is_literal
from empriv.measuring.given.given_risk import GivenRisk, measure_given
from empriv.measuring.given.reader_knowledge import NOTHING, Buckets, Given, Known, OwnContribution, as_said, kind_of
from empriv.measuring.given.residuals import all_positive
from empriv.results import FloatArray, Results
from empriv.scale.scans import Scan, scan_of
from empriv.scale.stretches import Yardstick, check_component, measure_stretch, parts_of, yardstick_of
from empriv.scale.tallied import TalliedRisk
from empriv.scale.tally import Tally, merge
from empriv.scale.tally import from_bytes as tally_from_bytes
from empriv.scale.tally import to_bytes as tally_to_bytes
from empriv.validate.bounds.figures import BoundsAsked, bounds_of

if TYPE_CHECKING:
    from empriv.collecting import Databases, Engine, Query
    from empriv.collecting.functions.frames import FrameKind
    from empriv.collecting.run_options import Run
    from empriv.collecting.sql.streaming import Stream

TOP = 100


def scan(
    data: Databases | Results,
    query: str | Callable[..., Any] | Query | None = None,
    *,
    epsilon: Iterable[float] | float = (0.05, 0.1, 0.2),
    delta: Iterable[float] | float = 0.0,
    density: Density | None = None,
    component: str | None = None,
    known: Any = NOTHING,
    top: int = TOP,
    level: float = 0.95,
    bounds: bool = True,
    engine: Engine | None = None,
    memory_limit: str | None = None,
    timeout: float | None = None,
    checkpoint: str | PathLike[str] | None = None,
    results_table: str | None = None,
    progress: bool | None = None,
    draws: int | None = None,
    rng: int = 0,
    post: Callable[[Any], Any] | None = None,
    jobs: int | None = None,
    notice: Callable[[str], None] | None = None,
    frame: FrameKind = "dict",
    unit: str = "",
) -> Scan:
    """Audit a table that is larger than memory, or on a cluster.

    Individuals are measured a few at a time. Only largest values, sums, counts, the histogram of delta_i and the
    riskiest individuals are kept. Every figure is the same as in an `Audit`.

    Parameters
    ----------
    data, query, density, component, engine, memory_limit, timeout, unit : as for `audit`
    epsilon : the epsilons at which individuals are measured; you cannot ask for others later
    delta : the deltas for which you can ask `Scan.epsilon`
    known : what readers know, as for `audit`, but for buckets and "own"; "nothing", the default here, as in the paper
    top : how many of the riskiest individuals are kept, at each epsilon
    level : confidence of the bounds
    bounds : whether to compute upper bounds, which roughly doubles the work; without them a verdict by bound can only
        be "fail" or "unresolved"
    checkpoint : file (with Spark: directory) from which an interrupted scan continues when called again
    results_table : with Spark, name of a table to which delta_i of every individual is written
    progress : whether to show progress; None shows it if the work takes long
    draws, rng, post, jobs, notice, frame : as for `collect`, for a query that must be run once per individual

    Returns
    -------
    Scan

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> scan = empriv.scan(data, "avg(delay)", epsilon=0.1, memory_limit="1GB")
    >>> print(f"{scan.delta(0.1):.4f}")
    0.0032
    """
    asked = _Asked.of(epsilon, delta, density, component, known, top, level, bounds, unit)
    if isinstance(data, Results):
        if query is not None:
            raise InputError("`query` must not be given with `Results`, which already hold its answers.")
        return asked.scanned(data, "The query", None, lambda labels: known_of(asked.known, None, labels))
    if query is None:
        raise InputError("`query` must be SQL text or a function of the rows.")
    from empriv.collecting.engines.engine import ClusterEngine
    from empriv.collecting.pipeline import run_query
    from empriv.collecting.queries import query_of
    from empriv.collecting.run_options import Run
    from empriv.collecting.sql.aggregates import NotDecomposable
    from empriv.collecting.sql.streaming import stream

    run = Run(
        draws=draws, rng=rng, engine=engine, memory_limit=memory_limit, timeout=timeout, jobs=jobs,
        checkpoint=checkpoint, progress=progress, notice=notice, frame=frame,
    )  # fmt: skip
    question = query_of(query, post=post)
    origin = describe(data)
    opened, run = run.on(data, cluster=results_table is not None)
    cluster = isinstance(opened, ClusterEngine)
    in_sql = question.function is None and question.post is None

    def values(labels: npt.NDArray[Any]) -> Any:
        return known_of(asked.known, data, labels, run, opened)

    if cluster and in_sql and asked.known is not None and asked.known.auto:
        raise InputError(
            '`known` must say what is known in a scan on a cluster, got "auto": logarithms need all results, which no '
            'single machine holds. Hint: known=("calendar", "previous").'
        )
    if results_table is not None and not (cluster and in_sql):
        raise InputError("`results_table` must be None without a Spark engine and an SQL query.")
    try:
        if isinstance(opened, ClusterEngine) and in_sql:
            from empriv.scale.cluster import scan_on_cluster

            yardstick, tally = scan_on_cluster(
                opened, data, question,
                lambda everyone, people: asked.yardstick(everyone, people, asked.given(everyone, values)),
                component=component, checkpoint=checkpoint, results_table=results_table, progress=progress,
            )  # fmt: skip
            return asked.finished(yardstick, tally, question.text, origin)
        if in_sql:
            with stream(opened, data, question) as streamed:
                yardstick, tally = _streamed(streamed, asked, question.text, checkpoint, progress, values)
            return asked.finished(yardstick, tally, question.text, origin)
    except NotDecomposable as why:
        if results_table is not None or checkpoint is not None:
            raise InputError(
                f"`results_table` and `checkpoint` must be None: the query cannot be scanned in parts, since {why}."
            ) from None
    return asked.scanned(run_query(data, question, run), question.text, origin, values)


def known_of(
    known: Given | None,
    data: Databases | None,
    labels: npt.NDArray[Any],
    run: Run | None = None,
    engine: Engine | None = None,
) -> Any:
    """What is known of each database. SQL is asked of everyone alone: nobody's own results are needed for it."""
    if known is None:
        return None
    if data is None or engine is None:
        return known_values(known, data, databases=labels)
    from empriv.collecting.engines.engine import ClusterEngine
    from empriv.collecting.pipeline import run_query
    from empriv.collecting.queries import query_of
    from empriv.collecting.sql.aggregates import NotDecomposable
    from empriv.collecting.sql.streaming import stream
    from empriv.scale.cluster import everyone_on_cluster

    def collect(asked: Any) -> Results:
        question = query_of(asked)
        if question.function is None:
            try:
                if isinstance(engine, ClusterEngine):
                    return everyone_on_cluster(engine, data, question)
                with stream(engine, data, question) as streamed:
                    return streamed.everyone
            except NotDecomposable:
                pass
        assert run is not None
        return run_query(data, question, run.of_another_query())

    return known_values(known, data, databases=labels, run=run, collect=collect)


def _streamed(
    streamed: Stream,
    asked: _Asked,
    query: str,
    checkpoint: str | PathLike[str] | None,
    progress: bool | None,
    known: Callable[[npt.NDArray[Any]], Any],
) -> tuple[Yardstick, Tally]:
    """Measure one stretch after another, keeping only the tally."""
    everyone = asked.component_of(streamed.everyone)
    given = asked.given(everyone, known)
    if given is not None and given.left.logarithm and given.given.auto:
        # logarithms are taken only where nobody's absence makes a result 0 or less: look at everyone first
        with closing(streamed.stretches(0)) as stretches:
            if not all(all_positive(asked.component_of(stretch)) for stretch in stretches):
                given = asked.given(everyone, known, positive=False)
    yardstick = asked.yardstick(everyone, streamed.people, given)
    n_done, tally = 0, None
    with ExitStack() as stack:
        keep = None
        if checkpoint is not None:
            mark = _mark(query, yardstick, streamed.n_stretches)
            keep = stack.enter_context(open_checkpoint(checkpoint, mark, of="query, options or results with everyone"))
            for piece in keep.pieces.values():  # at most one: the tally so far, after the number of its stretches
                n_done, tally = int.from_bytes(piece[:8]), tally_from_bytes(piece[8:], everyone)
        advance = stack.enter_context(progress_bar(streamed.n_stretches, "Scanning individuals", show=progress))
        stretches = stack.enter_context(closing(streamed.stretches(n_done)))
        advance(n_done)
        for stretch in stretches:
            part = measure_stretch(yardstick, asked.component_of(stretch)).tally
            tally = part if tally is None else merge(tally, part, top=asked.top)
            n_done += 1
            if keep is not None:
                keep.put(n_done.to_bytes(8) + tally_to_bytes(tally), 0)
            advance()
    assert tally is not None
    return yardstick, tally


@dataclass(frozen=True, eq=False)
class _Asked:
    """The checked arguments of a scan."""

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    density: Density
    component: str | None
    known: Given | None
    ordered: bool
    top: int
    level: float
    bounds: bool
    unit: str

    @staticmethod
    def of(
        epsilon: Any,
        delta: Any,
        density: Density | None,
        component: str | None,
        known: Any,
        top: int,
        level: float,
        bounds: bool,
        unit: str,
    ) -> _Asked:
        said = as_said(known)
        return _Asked(
            rising_epsilons(epsilon), rising_deltas(delta), density_or_default(density), component,
            _given_or_none(said.known), said.ordered, whole_number("top", top, least=1), confidence_level(level),
            bounds, unit_name(unit),
        )  # fmt: skip

    def yardstick(self, everyone: Results, people: int, given: GivenRisk | None) -> Yardstick:
        return yardstick_of(
            everyone, self.density, epsilons=self.epsilons, deltas=self.deltas, level=self.level, top=self.top,
            bounds=self.bounds, people=people, given=given,
        )  # fmt: skip

    def given(
        self, everyone: Results, known: Callable[[npt.NDArray[Any]], Any], *, positive: bool = True
    ) -> GivenRisk | None:
        """What is known, taken out of the results with everyone; None if nothing is."""
        if self.known is None:
            return None
        if self.known.only_auto:
            chosen = infer_public_knowledge(everyone, self.density, positive=positive)[0]
            assert chosen is None or isinstance(chosen, GivenRisk)  # a scan is of one number
            return chosen
        columns = known(everyone.databases)
        return measure_given(everyone, self.known, columns, density=self.density, positive=positive)

    def component_of(self, results: Results) -> Results:
        check_component(self.component, results.components)
        results = results if self.ordered else replace(results, ordered=False)
        return results if self.component is None else results.component(self.component)

    def scanned(
        self, results: Results, query: str, origin: Origin | None, known: Callable[[npt.NDArray[Any]], Any]
    ) -> Scan:
        """A scan of results that are in memory."""
        results = self.component_of(results)
        if is_literal(self.density):  # a stated bandwidth is in the unit of these answers alone
            results = replace(results, made_from=None)
        if results.n_individuals == 0:
            raise InputError("There must be at least one individual, got 0: all rows are nobody's.")
        everyone = results.of_individuals(np.arange(0))
        # whether logarithms may be taken of what these were made from hangs on everybody
        whole = everyone if results.made_from is None else results
        given = self.given(whole, known, positive=all_positive(results))
        yardstick = self.yardstick(everyone, results.n_individuals, given)
        tally: Tally | None = None
        for stretch in parts_of(results, 4_000_000):
            part = measure_stretch(yardstick, stretch).tally
            tally = part if tally is None else merge(tally, part, top=self.top)
        assert tally is not None
        return self.finished(yardstick, tally, query, origin)

    def finished(self, yardstick: Yardstick, tally: Tally, query: str, origin: Origin | None) -> Scan:
        if tally.n_individuals == 0:
            raise InputError("There must be at least one individual, got 0: all rows are nobody's.")
        return scan_of(
            tally,
            yardstick.risk_of(tally.riskiest),
            source=self._source(yardstick, tally),
            epsilons=self.epsilons,
            deltas=self.deltas,
            level=self.level,
            bounded=self.bounds,
            query=query,
            origin=origin,
            density=self.density,
            component=self.component,
            unit=self.unit,
        )

    def _source(self, yardstick: Yardstick, tally: Tally) -> FloatArray | None:
        """Figures and bounds of what the answers were made from, as `TalliedRisk.source` has them."""
        if yardstick.source is None or tally.source is None:
            return None
        riskiest = yardstick.source.risk_of(tally.source.riskiest)
        source = self._source(yardstick.source, tally.source)
        risk = TalliedRisk(
            riskiest.results, riskiest, tally.source, self.epsilons, self.deltas, self.level, self.bounds, source
        )
        bounds = bounds_of(risk, np.array(self.epsilons), BoundsAsked(self.level))
        return np.array((bounds.estimate, bounds.upper))


def _given_or_none(known: Known | None) -> Given | None:
    if isinstance(known, Buckets | OwnContribution):
        raise InputError(
            f"`known` must not be {kind_of(known)} in a scan, which measures people a few at a time. "
            'Hint: known="count(*)", or empriv.audit.'
        )
    return known


def _mark(query: str, yardstick: Yardstick, n_stretches: int) -> bytes:
    """What identifies a scan: the question, and the results with everyone."""
    question = [
        query,
        yardstick.epsilons,
        yardstick.deltas,
        yardstick.level,
        yardstick.top,
        yardstick.bounds,
        n_stretches,
    ]
    digest = hashlib.sha256(json.dumps(question).encode())
    digest.update(("" if yardstick.model is None else yardstick.model.name).encode())
    digest.update(yardstick.everyone.q.tobytes() + yardstick.everyone.outcomes.tobytes())
    if yardstick.given is not None:
        digest.update(yardstick.given.results.q.tobytes())
    return digest.digest()
