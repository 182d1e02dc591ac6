"""`audit` and `load`: from rows or from a file to an `Audit`; wiring only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from empriv.auditing.audit import Audit
from empriv.auditing.chunked import ChunkModel, ChunkOptions
from empriv.auditing.composing import Composition, composition
from empriv.auditing.files import facts_from_parts, known_from_parts, totals_from_parts
from empriv.auditing.knowledge import infer_public_knowledge, known_values
from empriv.auditing.memory import (
    KEEP,
    ChunkRequest,
    goes_in_chunks,
    known_in_chunks,
    measured_in_chunks,
    measured_results,
)
from empriv.auditing.totals import TotalledRisk
from empriv.base.arguments import noun_name, rising_deltas, rising_epsilons, unit_name, whole_number
from empriv.base.storage import WRONG_FACTS, read_archive
from empriv.base.targets import parse_targets
from empriv.collecting.origins import describe
from empriv.errors import FileFormatError, InputError
from empriv.ledger import Ledger, identity_of
from empriv.measuring import measure
from empriv.measuring.densities.density import Density, density_from_json, density_or_default
from empriv.measuring.given.reader_knowledge import AUTO, Given, Known, parse_known
from empriv.measuring.measures import measure_known
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.results import Results

if TYPE_CHECKING:
    from empriv.collecting import Databases, Engine
    from empriv.collecting.run_query import QueryLike, Run

DEFAULT_EPSILONS = (0.05, 0.1, 0.2)
_DAMAGED = "The file is damaged: its facts about the audit are not what empriv writes."


def audit(
    data: Databases | Results,
    query: QueryLike | None = None,
    *,
    epsilon: Iterable[float] | float = DEFAULT_EPSILONS,
    density: Density | None = None,
    component: str | None = None,
    known: Any = AUTO,
    ledger: Ledger | None = None,
    scope: str = "",
    unit: str = "",
    noun: str = "",
    paper: bool = False,
    target: str | Sequence[str] = (),
    draws: int | None = None,
    rng: int = 0,
    post: Callable[[Any], Any] | None = None,
    engine: Engine | None = None,
    memory_limit: str | None = None,
    timeout: float | None = None,
    jobs: int | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | None = None,
    notice: Callable[[str], None] | None = None,
    in_chunks: bool | None = None,
    keep: int = KEEP,
    deltas: Iterable[float] | float = 0.0,
    results_table: str | None = None,
) -> Audit:
    """Measure how private a query already is on these databases.

    Parameters
    ----------
    data : databases, from `databases`, `subsamples` or `splits`; or `Results` that were collected before
    query : SQL text, an SQL expression of aggregates, or a function of the rows; or a list of several, which are
        audited together; not with `Results`
    epsilon : the epsilons to report; you can ask for others later, unless people are measured in chunks
    density : how densities are estimated; default ``Kde("laplace", "one-se")``
    component : audit this component of a vector query alone, by name; otherwise all are audited together
    known : what readers know of each database: a word, a statistic, or a list of these, all of which they know.
        "auto" counts as known what everybody knows of databases that have an order (the calendar, previous answers), as
        far as it takes until residuals look independent and identically distributed. "nothing" is the paper.
        "calendar"; "previous", or "previous:2" for two answers; and any SQL statistic, such as "count(*)", a function
        of the rows or an array are regressed out of the results. "buckets:count(*)" and "own" are the paper's
        Definition 4 (`Buckets`, `OwnContribution`). "unordered" says that the databases have no order, although their
        labels are dates or numbers.
    ledger : audit the query together with all that was released from the same databases before
    scope : name of the body of data in the ledger, if the ledger covers several
    unit : of the answer, such as "min" or "€", for words and pages
    noun : what an individual is called there, such as "aircraft"; default: by the column that identifies it
    paper : ask as the paper does: nothing is counted as known, databases are random, and the estimate decides
    target : what it is judged by, such as "delta <= 0.05 at 0.1", or several; a saved audit keeps it
    draws, rng, post, engine, memory_limit, timeout, jobs, checkpoint, progress, notice : as for `collect`;
        a checkpoint of an SQL query (on a cluster, a directory) is of people who are measured in chunks
    in_chunks : measure a chunk of people at a time, keep the most exposed and total the others, at the epsilons asked
        for and those of targets. None does so where the results do not fit in memory or within ``memory_limit``, or are
        more than a cluster's driver should hold. The query must be SQL that gives one number; see docs/scale.md
    keep : how many of the most exposed are kept in chunks, at each epsilon
    deltas : the deltas besides 0 that `Audit.epsilon` can be asked for afterwards, in chunks
    results_table : with Spark, name of a table to which delta_i of every individual is written, in chunks

    Returns
    -------
    Audit

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> audit = empriv.audit(data, "avg(delay)", epsilon=[0.1, 0.5])
    >>> print(f"{audit.delta(0.1):.4f}")
    0.0083
    >>> audit.verdict(epsilon=0.1, delta=0.05)
    'fail'
    """
    epsilons, density, unit = rising_epsilons(epsilon), density_or_default(density), unit_name(unit)
    noun, targets = noun_name(noun), parse_targets(target)
    said = parse_known(known)
    by_default = isinstance(said.known, Given) and said.known.only_auto
    if paper:
        if said.known is not None and not by_default:
            raise InputError("`known` must not be given with `paper`, which counts nothing as known.")
        said, by_default = replace(said, known=None), False
    if said.known is not None and not by_default and ledger is not None:
        raise InputError(
            "`known` must not be given with `ledger`: beside earlier releases nothing else is counted as known."
        )
    from empriv.collecting.run_query import Run

    run = Run(
        draws=draws, rng=rng, engine=engine, memory_limit=memory_limit, timeout=timeout, jobs=jobs,
        checkpoint=checkpoint, progress=progress, notice=notice,
    )  # fmt: skip
    options = ChunkOptions(
        rising_epsilons([*epsilons, *(target.epsilon for target in targets)]),
        tuple(sorted({0.0, *rising_deltas(deltas)})),
        density, component, said.ordered, whole_number("keep", keep, least=1),
    )  # fmt: skip
    facts: dict[str, Any] = {"unit": unit, "noun": noun, "paper": paper, "targets": targets}
    if isinstance(data, Results):
        if query is not None:
            raise InputError("`query` must not be given with `Results`, which already hold its answers.")
        if ledger is not None:
            raise InputError("`ledger` must go with the rows, on which earlier queries are run again, got `Results`.")
        results = data if said.ordered else replace(data, ordered=False)
        if in_chunks:
            return replace(_totalled(*measured_results(results, said, options), options, epsilons), **facts)
        alone = _measured(results, epsilons, density, component, grouped=True)
        return with_known(replace(alone, **facts), said.known, None, run)
    if query is None:
        raise InputError("`query` must be SQL text or a function of the rows.")
    from empriv.collecting.queries import canonical_text, queries_in, query_of
    from empriv.collecting.run_query import run_query
    from empriv.collecting.sources import Databases

    several = isinstance(query, list | tuple)
    given: Sequence[Any] = query if isinstance(query, list | tuple) else [query]
    queries = [query_of(single_query, post=post) for single_query in given]
    if post is not None:
        queries = [replace(single_query, post=post) for single_query in queries]
    found: tuple[ChunkModel, TotalledRisk] | None = None
    if isinstance(data, Databases) and queries:
        opened, run = run.on(data, cluster=results_table is not None)
        options = replace(options, ordered=said.ordered and data.draws is None)  # random databases have no order
        known_of_rows = known_in_chunks(said, density, data, opened, run)
        asked = ChunkRequest(in_chunks, results_table, options, said, known_of_rows, ledger is not None)
        if goes_in_chunks(asked, queries, data, opened, run):
            found = measured_in_chunks(asked, queries[0], data, opened, run)
    if found is not None:
        alone = _totalled(*found, options, epsilons)
    else:
        results = run_query(data, queries if several else queries[0], replace(run, sketch=True))
        results = results if options.ordered else replace(results, ordered=False)
        grouped = any(single_query.groups for single_query in queries)
        alone = _measured(results, epsilons, density, component, grouped=grouped)
    origin = describe(data)
    asked_text = "; ".join(
        single_query.text if single_query.post is None else f"{single_query.text}, then {_name(single_query.post)}"
        for single_query in queries
    )
    alone = replace(alone, query=asked_text, origin=origin, text=canonical_text(queries), scope=scope, **facts)
    if found is not None:
        return alone
    if ledger is not None:

        def ask_again(text: str) -> Results:
            earlier = queries_in(text)
            return run_query(data, earlier if len(earlier) > 1 else earlier[0], run.of_another_query())

        identity = identity_of(alone.results.databases.tolist(), origin, scope=scope)
        if by_default:
            alone = replace(alone, nothing_known=infer_public_knowledge(alone.results, density, ledger=True)[1])
        return _composed(alone, composition(alone.results, ledger, identity, ask_again))
    return with_known(alone, said.known, data, run)


def load(path: str | PathLike[str], *, density: Density | None = None) -> Audit | Results | Noise | TableNoise:
    """Read what the method ``save`` of an audit, results or noise wrote.

    Parameters
    ----------
    path : the file
    density : measure a saved audit with this density instead of the one that it was made with; needed for an audit
        made with a density class of your own, since a file does not hold code

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> empriv.audit(data, "avg(delay)").save("audit.empriv")
    >>> empriv.load("audit.empriv").query
    'avg(delay)'
    """
    meta, arrays = read_archive(path, kinds=("results", "audit", "noise", "table noise"))
    if meta["kind"] != "audit":
        if density is not None:
            raise InputError(f"`density` must be given for a saved audit only, got a file that holds {meta['kind']}.")
        if meta["kind"] == "noise":
            return Noise.load(path)
        if meta["kind"] == "table noise":
            return TableNoise.load(path)
        return Results.from_parts(meta, arrays)
    results = Results.from_parts(meta, arrays)
    try:
        facts = facts_from_parts(meta)
    except WRONG_FACTS as error:
        raise FileFormatError(_DAMAGED) from error
    given_density = density is not None
    if density is None:
        if meta["density"] is None:
            raise InputError(
                "`density` must be given: the audit was made with a density of your own, which a file cannot hold. "
                "Hint: empriv.load(path, density=...)."
            )
        density = density_from_json(meta["density"])
    if meta.get("totals") is not None:
        try:
            risk = totals_from_parts(meta["totals"], arrays, results, density, meta.get("known"))
        except WRONG_FACTS as error:
            raise FileFormatError(_DAMAGED) from error
        if given_density and not risk.is_as_totalled:
            raise InputError(
                "`density` must be the one that people were measured with in chunks: with another one, others may be "
                "the most exposed, and they are not kept. Hint: audit again with density=..."
            )
        return Audit(results=results, risk=risk, density=density, **facts)
    alone = Audit(results=results, risk=measure(results, density=density), density=density, **facts)
    try:
        against = known_from_parts(meta.get("known"), arrays, results, density)
        together = Composition.from_json(meta.get("composition"), results)
    except WRONG_FACTS as error:
        raise FileFormatError(_DAMAGED) from error
    return replace(_composed(alone, together), against=against)


def _measured(
    results: Results, epsilons: tuple[float, ...], density: Density, component: str | None, *, grouped: bool
) -> Audit:
    if results.n_individuals == 0:
        raise InputError("There must be at least one individual, got 0: all rows are nobody's.")
    names = results.components
    if names is None and component is not None:
        raise InputError("`component` must be None: the query gives one number.")
    if names is not None and component is not None:
        results = _one_component(results, names, component, grouped)
    return Audit(
        results=results,
        risk=measure(results, density=density),
        epsilons=epsilons,
        query="The query",
        origin=None,
        density=density,
        component=component,
        n_components=None if names is None or component is None else len(names),
    )


def _totalled(model: ChunkModel, risk: TotalledRisk, options: ChunkOptions, epsilons: tuple[float, ...]) -> Audit:
    """The audit of people who were measured in chunks."""
    return Audit(
        results=risk.totals.kept,
        risk=risk,
        epsilons=epsilons,
        query="The query",
        origin=None,
        density=options.density,
        component=options.component,
        n_components=model.n_components,
        nothing_known=model.nothing_known,
    )


def with_known(alone: Audit, known: Known | None, data: Databases | None, run: Run) -> Audit:
    """The audit to readers who know this; None is nothing."""
    if known is None:
        return alone
    if isinstance(known, Given) and known.only_auto:
        against, nothing_known = infer_public_knowledge(alone.results, alone.density)
        return replace(alone, against=against, nothing_known=nothing_known)

    def collect(quantity: Any) -> Results:
        from empriv.collecting.run_query import run_query

        assert data is not None
        return run_query(data, quantity, run.of_another_query())

    values = known_values(known, None if data is None else collect, databases=alone.results.databases)
    return replace(alone, against=measure_known(alone.results, known, values, density=alone.density))


def _composed(alone: Audit, together: Composition | None) -> Audit:
    """The audit together with earlier releases, if there are any."""
    if together is None:
        return alone
    risk = together.measured(density=alone.density)
    return replace(alone, results=risk.results, risk=risk, composition=together)


def _one_component(results: Results, names: Sequence[str], component: str, grouped: bool) -> Results:
    # The keys of groups are values in the rows: an error must not show them. Names of select items are the user's own.
    listed = f"{len(names):,} components, one for each group" if grouped else f"the components {', '.join(names)}"
    if component not in names:
        raise InputError(f"`component` must name one of {listed}, got {component!r}.")
    return results.component(component)


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__qualname__))
