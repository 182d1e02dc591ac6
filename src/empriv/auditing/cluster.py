"""People measured in chunks on a cluster: where their results are, so that only totals come back.

The driver asks for the statement of the results without each person, fits the model and merges totals
(`measure_on_cluster`); an executor turns Arrow batches of entries into the totals of their people (`measured_batches`).
Knows no engine: the engine's session deals the entries out.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from empriv.auditing.chunked import (
    ChunkModel,
    ChunkOptions,
    FindKnown,
    check_component,
    measure_within_memory,
    model_of,
    nobody_listed,
)
from empriv.auditing.totals import Totals, merge, merge_all, with_absent
from empriv.base.progress import progress as progress_bar
from empriv.base.storage import arrays_from_bytes, arrays_to_bytes
from empriv.collecting.engines.engine import VALUE, WHERE, WHO
from empriv.errors import InputError
from empriv.results import Results, Verified, outcome_codes

if TYPE_CHECKING:
    from empriv.collecting import Databases
    from empriv.collecting.engines.engine import ClusterEngine, ClusterSession
    from empriv.collecting.queries import Query
    from empriv.collecting.sql.execute import Statement
    from empriv.collecting.sql.printing import Node

# Entries measured at once: docs/scale.md has the memory that this takes.
ENTRIES = 500_000
_MOST_VERIFIED = 1_000_000  # rows of a typical database: those of up to three are sent to the driver


# What the driver does


def measure_on_cluster(
    engine: ClusterEngine,
    data: Databases,
    query: Query,
    options: ChunkOptions,
    known: FindKnown,
    *,
    checkpoint: str | PathLike[str] | None,
    results_table: str | None,
    progress: bool | None,
    unless: Callable[[ClusterSession], bool],
) -> tuple[ChunkModel, Totals, Verified | None] | None:
    """The model, the totals of all people, and what was verified; `NotDecomposable` if the query cannot be rewritten.

    None, and nothing is measured, where ``unless`` says so of the session.
    """
    from empriv.collecting.sql.execute import admit, all_positive, count_individuals
    from empriv.collecting.sql.groups import components_of

    with (
        _rewritten(data, query),
        engine.session(data) as session,
        progress_bar(2, "Measuring on the cluster", show=progress) as advance,
    ):
        admit(session, query)
        if unless(session):
            advance(2)
            return None
        names = components_of(session, query)
        check_component(options.component, names)
        place = None if checkpoint is None else f"{fspath(checkpoint)}/{_mark(session, data, query, options)}"
        saved = None if place is None else _read(session, place)
        collected = _collected(engine, session, data, query, names, options.component) if saved is None else saved
        if place is not None and saved is None:
            collected = _saved(session, place, collected)
        advance()
        everyone = collected.everyone if options.ordered else replace(collected.everyone, ordered=False)

        def positive() -> bool:
            numbers = not everyone.outcomes.any() and bool((everyone.q > 0).all())
            return numbers and all_positive(session, collected.entries)

        model = model_of(
            everyone, options, known, people=count_individuals(session),
            n_components=None if names is None else len(names), positive=positive,
        )  # fmt: skip
        parts = _measured(session, model, collected.entries, results_table)
        advance()
        if not parts:
            raise InputError("There must be at least one individual with a row that the query reads, got none.")
        return model, with_absent(merge_all(parts, keep=model.keep), collected.absent), collected.verified


def everyone_on_cluster(engine: ClusterEngine, data: Databases, query: Query) -> Results:
    """Results of a query that gives one number, with everyone alone; `NotDecomposable` as above."""
    from empriv.collecting.sql.execute import admit
    from empriv.collecting.sql.groups import components_of

    with _rewritten(data, query), engine.session(data) as session:
        admit(session, query)
        check_component(None, components_of(session, query))
        return _prepared(session, query, None, None)[1]


@dataclass(frozen=True, eq=False)
class _Collected:
    """Results with everyone, how many people have no entry, the statement of the others, and what was verified."""

    everyone: Results
    absent: int
    verified: Verified | None
    entries: Node


@contextmanager
def _rewritten(data: Databases, query: Query) -> Iterator[None]:
    """Within, a query is asked that can be rewritten; which is seen before anything is opened."""
    from empriv.collecting.engines.engine import FailedOnRows
    from empriv.collecting.sql.aggregates import NotDecomposable
    from empriv.collecting.sql.decompose import decompose

    decompose(query, data.individual)
    try:
        yield
    except FailedOnRows:
        raise NotDecomposable("it fails on some rows") from None


def _prepared(
    session: ClusterSession, query: Query, names: list[str] | None, component: str | None
) -> tuple[Query, Results, Statement, int]:
    """The query that gives the component, its results with everyone, its statement, and which item it is."""
    from empriv.collecting.sql.decompose import decompose
    from empriv.collecting.sql.execute import prepare
    from empriv.collecting.sql.groups import only_component

    item = 0
    if names is not None and component is not None:
        query, item = only_component(query, names.index(component), component)
    statement = prepare(session, decompose(query, session.whose), by_label=True)
    for name, table in statement.rewritten.tables():
        session.store(name, table)
    return query, statement.everyone(), statement, item


def _collected(
    engine: ClusterEngine,
    session: ClusterSession,
    data: Databases,
    query: Query,
    names: list[str] | None,
    component: str | None,
) -> _Collected:
    from empriv.collecting.deletion import verify
    from empriv.collecting.sql.execute import members

    asked, everyone, statement, item = _prepared(session, query, names, component)
    entries = statement.entries(item)
    verified, n = None, everyone.n_databases
    # A group alone is asked for by a table that is here only; and no driver holds databases of any size.
    if not query.groups and statement.facts.rows <= _MOST_VERIFIED * n:
        counts = members(session, entries, n)
        verified = verify(engine, session, data, asked, everyone, rewritten=True, members=counts)
    if everyone.components is not None:
        everyone = everyone.component(everyone.components[item])
    return _Collected(everyone, statement.absent(), verified, entries)


def _measured(session: ClusterSession, model: ChunkModel, entries: Node, results_table: str | None) -> list[Totals]:
    integers, each = session.types(entries)[WHO].kind == "integer", results_table is not None

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        return measured_batches(model, batches, each=each, integers=integers)

    found = session.run_batches(entries, work, schema_of(integers=integers), results_table)
    return [Totals.from_bytes(content, model.everyone) for content in found]


def _mark(session: ClusterSession, data: Databases, query: Query, options: ChunkOptions) -> str:
    """By what saved results are known again: the question, how databases are cut, and the rows, by a hash of them."""
    asked = [query.text, options.component, data.database, data.individual, data.unidentified, repr(data.draws)]
    asked.append(session.fingerprint())
    return f"empriv-{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:24]}"


def _saved(session: ClusterSession, place: str, collected: _Collected) -> _Collected:
    """Save what was collected, and take it from there."""
    everyone, verified = collected.everyone, collected.verified
    arrays = arrays_to_bytes({"q": everyone.q, "outcomes": everyone.outcomes, "databases": everyone.databases})
    note = {
        "absent": collected.absent, "verified": None if verified is None else verified.to_json(),
        "everyone": base64.b64encode(arrays).decode(),
    }  # fmt: skip
    session.save(place, collected.entries, json.dumps(note))
    saved = _read(session, place)
    assert saved is not None
    return saved


def _read(session: ClusterSession, place: str) -> _Collected | None:
    saved = session.load(place)
    if saved is None:
        return None
    entries, text = saved
    note = json.loads(text)
    arrays = arrays_from_bytes(base64.b64decode(note["everyone"]))
    everyone = nobody_listed(arrays["q"], arrays["outcomes"], arrays["databases"])
    verified = None if note["verified"] is None else Verified(**note["verified"])
    return _Collected(everyone, int(note["absent"]), verified, entries)


# What an executor does


def schema_of(*, integers: bool) -> Any:
    """Columns that `measured_batches` gives, in Arrow's types; ``integers``: individuals are."""
    import pyarrow

    lists = pyarrow.list_(pyarrow.float64())
    return pyarrow.schema(
        [
            ("individual", pyarrow.int64() if integers else pyarrow.string()),
            ("databases", pyarrow.int64()),
            ("largest_influence", pyarrow.float64()),
            ("delta_i", lists),
            ("upper_i", lists),
            ("epsilon_i", lists),
            ("totals", pyarrow.binary()),
        ]
    )


def measured_batches(
    model: ChunkModel, batches: Iterator[Any], *, each: bool, integers: bool, entries: int = ENTRIES
) -> Iterator[Any]:
    """Arrow batches of entries in order of individual and database → of measured people if asked, and of their totals.

    The last row has the totals and nothing else.
    """
    import pyarrow

    kept: list[Any] = []
    size = 0
    totals: Totals | None = None
    schema = schema_of(integers=integers)

    def batch_of(*columns: Any) -> Any:
        arrays = [pyarrow.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
        return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)

    def measured(table: Any) -> Iterator[Any]:
        nonlocal totals
        for one in measure_within_memory(model, entries_of(model.everyone, table), each=each):
            totals = one.totals if totals is None else merge(totals, one.totals, keep=model.keep)
            if each:
                columns = (one.individuals, one.databases, one.influence, one.delta_i, one.upper_i, one.epsilon_i)
                yield batch_of(*(column.tolist() for column in columns), [None] * len(one.individuals))

    for batch in batches:
        kept.append(batch)
        size += batch.num_rows
        if size >= entries:
            table = pyarrow.Table.from_batches(kept).combine_chunks()
            # Up to where the last individual begins, whose other entries may be yet to come.
            cut = int(_firsts(table[WHO].chunk(0))[-1])
            if cut:
                yield from measured(table.slice(0, cut))
                kept = table.take(np.arange(cut, size)).to_batches()  # a slice would hold all the others as well
                size -= cut
    if size:
        yield from measured(pyarrow.Table.from_batches(kept).combine_chunks())
    if totals is not None:
        yield batch_of(*[[None]] * (len(schema) - 1), [totals.to_bytes()])


def entries_of(everyone: Results, table: Any) -> Results:
    """Results from an Arrow table of entries in order of individual and database."""
    from empriv.collecting.engines.engine import labels_of

    column = table[VALUE].combine_chunks()
    null = np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)
    values = np.asarray(column.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
    codes = outcome_codes(values)
    codes[null] = 1
    who = table[WHO].combine_chunks()
    firsts = _firsts(who)
    return replace(
        everyone,
        individuals=labels_of(who.take(firsts)),
        starts=np.append(firsts, len(who)).astype(np.int64),
        entry_database=table[WHERE].to_numpy().astype(np.int32),
        entry_q=np.where(codes == 0, values, np.nan),
        entry_outcomes=codes,
    )


def _firsts(who: Any) -> npt.NDArray[np.int64]:
    """Where each individual's entries begin; labels of several columns are compared column by column."""
    import pyarrow
    import pyarrow.compute as compute

    columns = who.flatten() if pyarrow.types.is_struct(who.type) else [who]
    changes = np.zeros(max(len(who) - 1, 0), bool)
    for column in columns:
        here, before = column.slice(1), column.slice(0, len(column) - 1)
        unlike = compute.fill_null(compute.not_equal(here, before), False)
        changes |= unlike.to_numpy(zero_copy_only=False)
        changes |= here.is_null().to_numpy(zero_copy_only=False) != before.is_null().to_numpy(zero_copy_only=False)
    return np.concatenate(([0], np.flatnonzero(changes) + 1)).astype(np.int64)
