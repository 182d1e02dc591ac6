"""Whether people are measured in chunks, and how: the most exposed are kept, and the others totalled.

`goes_in_chunks` decides, `measured_in_chunks` does it where the rows are, and `totals_to_parts` and
`totals_from_parts` are for saved audits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from empriv.auditing.costs import check_memory, expected_of, limit_of, memory_of
from empriv.auditing.knowledge import infer_public_knowledge, known_from_parts, known_values
from empriv.base.arguments import rising_deltas, rising_epsilons
from empriv.base.machine import free_memory
from empriv.errors import InputError
from empriv.measuring import GivenRisk
from empriv.measuring.densities.density import Density
from empriv.measuring.given.given_risk import measure_given
from empriv.measuring.given.reader_knowledge import Given, Said, kind_of
from empriv.measuring.line.risk import measure_line
from empriv.results import Results, Verified
from empriv.scale.measure_chunks import ChunkModel, ChunkOptions, Known, measure_results, measure_stream
from empriv.scale.totalled_risk import TotalledRisk
from empriv.scale.totals import Totals
from empriv.words.message import Message

if TYPE_CHECKING:
    from empriv.collecting import Databases, Engine, Query
    from empriv.collecting.engines.engine import ClusterSession
    from empriv.collecting.run_query import Run

KEEP = 100
"""The most exposed people who are kept at each epsilon, unless told otherwise."""
MOST_ON_DRIVER = 10_000_000
"""Results that a cluster sends to its driver, unless told otherwise."""


@dataclass(frozen=True, eq=False)
class ChunkRequest:
    """What was asked of an audit that people may be measured in chunks for.

    Attributes
    ----------
    in_chunks : True always, False never, None where not all results fit in memory
    results_table : of a cluster, to which delta_i of every individual is written
    options : how people are measured
    said, known : what readers know, as it was said, and from results with everyone
    ledger : whether earlier releases are measured together with the query
    """

    in_chunks: bool | None
    results_table: str | None
    options: ChunkOptions
    said: Said
    known: Known
    ledger: bool

    def needed(self, queries: Sequence[Query], run: Run) -> str | None:
        """The argument that asks for chunks, if one does."""
        resumes = run.checkpoint is not None and all(query.function is None for query in queries)
        asks = {"in_chunks": self.in_chunks, "results_table": self.results_table is not None, "checkpoint": resumes}
        return next((name for name, holds in asks.items() if holds), None)

    def hindrance(self, queries: Sequence[Query], data: Databases) -> str | None:
        """Why people cannot be measured in chunks, if they cannot."""
        from empriv.collecting.sql.aggregates import NotDecomposable
        from empriv.collecting.sql.decompose import decompose

        query = queries[0]
        if len(queries) > 1 or (self.options.component is None and (len(query.items) > 1 or query.groups)):
            return "what several numbers tell depends on all of them at once; name one as `component`"
        if query.function is not None or query.post is not None:
            return "Python code is run once per individual, and not in SQL"
        if self.ledger:
            return "earlier releases are measured together with all results"
        if self.said.known is not None and not isinstance(self.said.known, Given):
            return _needs_everybody(self.said)
        try:
            decompose(query, data.individual)
        except NotDecomposable as why:
            return f"the query is run once per individual, because {why}"
        return None


def goes_in_chunks(asked: ChunkRequest, queries: Sequence[Query], data: Databases, engine: Engine, run: Run) -> bool:
    """Whether people are measured in chunks; on a cluster, whether its session may decide that.

    Few rows fit into any memory, and are not looked at; nor are rows that can be read once only, or are elsewhere.
    """
    from empriv.collecting.engines.engine import ClusterEngine

    needed = asked.needed(queries, run)
    if needed is not None:
        why_not = asked.hindrance(queries, data)
        if why_not is not None or asked.in_chunks is False:
            raise InputError(_refusal(needed, why_not or "`in_chunks` is False"))
        if asked.results_table is not None and not isinstance(engine, ClusterEngine):
            raise InputError("`results_table` must be None without a Spark engine.")
        return True
    if isinstance(engine, ClusterEngine):
        return asked.in_chunks is None and asked.hindrance(queries, data) is None
    limit = limit_of(engine)
    expected = expected_of(data, queries, run, limit)
    if expected is None:
        return False
    tight = not expected.fits or (limit is not None and expected.of_results > limit)
    if tight and asked.in_chunks is None and asked.hindrance(queries, data) is None:
        return True
    check_memory(expected, run)
    return False


def _refusal(name: str, why: str) -> str:
    return (
        f"`{name}` must not be given here, since people cannot be measured in chunks: {why}. "
        f"Hint: without {name}, all results are held in memory."
    )


def measured_in_chunks(
    asked: ChunkRequest, query: Query, data: Databases, engine: Engine, run: Run
) -> tuple[ChunkModel, TotalledRisk] | None:
    """What everyone was measured with, and the risk; None where all results had better be held in memory after all."""
    from empriv.collecting.deletion import verify
    from empriv.collecting.engines.engine import ClusterEngine
    from empriv.collecting.run_query import say_of_databases
    from empriv.collecting.sql.aggregates import NotDecomposable
    from empriv.collecting.sql.execute import stream
    from empriv.collecting.sql.rerun import to_stderr

    if run.draws is not None:
        raise InputError("`draws` must be None for an SQL query: it is for Python functions.")
    needed = asked.needed([query], run)
    verified: Verified | None
    try:
        if isinstance(engine, ClusterEngine):
            from empriv.scale.cluster import measure_on_cluster

            found = measure_on_cluster(
                engine, data, query, asked.options, asked.known, checkpoint=run.checkpoint, progress=run.progress,
                results_table=asked.results_table, unless=fits_on_driver if needed is None else lambda _: False,
            )  # fmt: skip
            if found is None:
                return None
            model, totals, verified = found
        else:
            with stream(engine, data, query) as streamed:
                for sentence in streamed.session.said:
                    (run.notice or to_stderr)(sentence)
                model, totals = measure_stream(
                    streamed, asked.options, asked.known,
                    query=query.text, checkpoint=run.checkpoint, progress=run.progress,
                )  # fmt: skip
                listed = totals.kept if streamed.everyone.components is None else streamed.everyone
                verified = verify(engine, streamed.session, data, query, listed, rewritten=True, members=totals.members)
    except NotDecomposable as why:
        if needed is not None:
            raise InputError(_refusal(needed, f"the query is run once per individual, because {why}")) from None
        return None
    say_of_databases(data, totals.kept.databases, run)
    return model, model.totalled(replace(totals, kept=replace(totals.kept, verified=verified)))


def measured_results(results: Results, said: Said, options: ChunkOptions) -> tuple[ChunkModel, TotalledRisk]:
    """The same of results that are in memory already."""

    def values(databases: npt.NDArray[Any]) -> Any:
        assert said.known is not None
        return known_values(said.known, None, databases=databases)

    if results.postprocessed_from is not None:
        raise InputError(_refusal("in_chunks", "the results were made from others by Python code"))
    if said.known is not None and not isinstance(said.known, Given):
        raise InputError(_refusal("in_chunks", _needs_everybody(said)))
    model, totals = measure_results(results, options, known_in_chunks(said, options.density, values))
    return model, model.totalled(totals)


def _needs_everybody(said: Said) -> str:
    assert said.known is not None
    return f"`known` is {kind_of(said.known)}, which needs everybody at once"


def fits_on_driver(session: ClusterSession) -> bool:
    """Whether all results of one number fit in the driver's memory, however they are spread over the databases."""
    from empriv.collecting.sql.execute import most_entries

    most, free = most_entries(session), free_memory()
    return most <= MOST_ON_DRIVER and (free is None or memory_of(most) <= free)


def known_in_chunks(said: Said, density: Density, values: Callable[[npt.NDArray[Any]], Any]) -> Known:
    """What readers know, from results with everyone; ``values`` has the quantities that are known, by database."""

    def known(everyone: Results, positive: bool) -> tuple[GivenRisk | None, Message | None]:
        if said.known is None:
            return None, None
        assert isinstance(said.known, Given)
        if said.known.only_auto:
            chosen, nothing = infer_public_knowledge(everyone, density, positive=positive)
            assert chosen is None or isinstance(chosen, GivenRisk)  # it is of one number
            return chosen, nothing
        columns = values(everyone.databases)
        return measure_given(everyone, said.known, columns, density=density, positive=positive), None

    return known


def values_of_everyone(said: Said, data: Databases, engine: Engine, run: Run) -> Callable[[npt.NDArray[Any]], Any]:
    """The quantities that are known, by database. SQL is asked of everyone alone: nobody's own results are needed."""
    from empriv.collecting.engines.engine import ClusterEngine
    from empriv.collecting.queries import query_of
    from empriv.collecting.run_query import run_query
    from empriv.collecting.sql.aggregates import NotDecomposable
    from empriv.collecting.sql.execute import stream
    from empriv.scale.cluster import everyone_on_cluster

    def collect(quantity: Any) -> Results:
        query = query_of(quantity)
        if query.function is None:
            try:
                if isinstance(engine, ClusterEngine):
                    return everyone_on_cluster(engine, data, query)
                with stream(engine, data, query) as streamed:
                    return streamed.everyone
            except NotDecomposable:
                pass
        return run_query(data, query, run.of_another_query())

    def values(databases: npt.NDArray[Any]) -> Any:
        assert said.known is not None
        return known_values(said.known, data, databases=databases, run=run, collect=collect)

    return values


def totals_to_parts(risk: TotalledRisk) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Facts and arrays of a saved audit, beside the results of who is kept."""
    facts, arrays = risk.totals.to_parts()
    return {**facts, "epsilons": list(risk.epsilons), "deltas": list(risk.deltas)}, arrays


def totals_from_parts(
    facts: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    results: Results,
    density: Density,
    known: Mapping[str, Any] | None,
) -> TotalledRisk:
    """The inverse of `totals_to_parts`; invalid facts raise KeyError, TypeError or ValueError."""
    totals = Totals.from_parts(facts, arrays, results)
    epsilons, deltas = tuple(map(float, facts["epsilons"])), tuple(map(float, facts["deltas"]))
    if (epsilons, deltas) != (rising_epsilons(epsilons), rising_deltas(deltas)):
        raise ValueError("epsilons or deltas")
    if (len(epsilons), len(deltas)) != (len(totals.delta), len(totals.epsilon_at)):
        raise ValueError("epsilons or deltas")
    if totals.n_individuals < max(1, results.n_individuals):
        raise ValueError("n_individuals")
    given = known_from_parts(known, arrays, results, density)
    if given is None:
        return TotalledRisk(
            results, measure_line(results, density, people=totals.n_individuals), totals, epsilons, deltas
        )
    if not isinstance(given, GivenRisk):
        raise ValueError("kind of knowledge")
    kept = given.of_people(results, people=totals.n_individuals)
    return TotalledRisk(kept.results, kept, totals, epsilons, deltas)
