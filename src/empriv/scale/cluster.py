"""A scan on a cluster: individuals are measured where their results are, and only tallies come back.

What a machine does with its share of the individuals is in `executors`; the engine's session deals them out.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

from empriv.base.progress import progress as progress_bar
from empriv.base.storage import arrays_from_bytes, arrays_to_bytes
from empriv.collecting.names import WHO
from empriv.errors import InputError
from empriv.results import Results
from empriv.scale.executors import measured_batches, schema_of
from empriv.scale.stretches import Yardstick, check_component, nobody_listed
from empriv.scale.tally import Tally, from_bytes, merge_all, with_absent

if TYPE_CHECKING:
    from empriv.collecting import Databases
    from empriv.collecting.engines.engine import ClusterEngine, ClusterSession
    from empriv.collecting.queries import Query
    from empriv.collecting.sql.templates import Node

# Per cent of the work, as shown, when results are there, and when they are saved.
_COLLECTED, _SAVED, _MEASURED = 60, 65, 100


def scan_on_cluster(
    engine: ClusterEngine,
    data: Databases,
    query: Query,
    fit: Callable[[Results, int], Yardstick],
    *,
    component: str | None,
    checkpoint: str | PathLike[str] | None,
    results_table: str | None,
    progress: bool | None,
) -> tuple[Yardstick, Tally]:
    """The yardstick and the tally of all individuals; `NotDecomposable` if the query cannot be rewritten."""
    from empriv.collecting.engines.engine import FailedOnRows
    from empriv.collecting.sql.aggregates import NotDecomposable
    from empriv.collecting.sql.decomposing import decompose
    from empriv.collecting.sql.statement import admit, count_individuals

    decompose(query, data.individual)  # before anything is opened
    try:
        with engine.session(data) as session, progress_bar(100, "Scanning on the cluster", show=progress) as advance:
            admit(session, query)
            up_to = session.progress(advance)
            with up_to(_COLLECTED):
                asked, item = _one_number(session, query, component)
                place = None if checkpoint is None else f"{fspath(checkpoint)}/{_mark(session, data, query, component)}"
                kept = None if place is None else _read(session, place)
                everyone, absent, entries = _collected(session, asked, item) if kept is None else kept
            if place is not None and kept is None:
                with up_to(_SAVED):
                    entries = _saved(session, place, everyone, absent, entries)
            with up_to(_MEASURED):
                yardstick = fit(everyone, count_individuals(session))
                tallies = _measured(session, yardstick, entries, results_table)
            if not tallies:
                raise InputError("There must be at least one individual with a row that the query reads, got none.")
            return yardstick, with_absent(merge_all(tallies, top=yardstick.top), absent)
    except FailedOnRows:
        raise NotDecomposable("it fails on some rows") from None


def everyone_on_cluster(engine: ClusterEngine, data: Databases, query: Query) -> Results:
    """Results of a query that gives one number, with everyone alone; `NotDecomposable` as for a scan."""
    from empriv.collecting.engines.engine import FailedOnRows
    from empriv.collecting.sql.aggregates import NotDecomposable
    from empriv.collecting.sql.decomposing import decompose
    from empriv.collecting.sql.statement import admit

    decompose(query, data.individual)  # before anything is opened
    try:
        with engine.session(data) as session:
            admit(session, query)
            return _collected(session, *_one_number(session, query, None))[0]
    except FailedOnRows:
        raise NotDecomposable("it fails on some rows") from None


def _one_number(session: ClusterSession, query: Query, component: str | None) -> tuple[Query, int]:
    """The query that gives the component, and which of its items that is."""
    from empriv.collecting.sql.statement import components_of, only_component

    names = components_of(session, query)
    check_component(component, names)
    if names is None or component is None:
        return query, 0
    return only_component(query, names.index(component), component)


def _collected(session: ClusterSession, query: Query, item: int) -> tuple[Results, int, Node]:
    """Results with everyone, how many individuals have no entry, and the statement of those without each."""
    from empriv.collecting.engines.engine import BY_LABEL, FailedOnRows
    from empriv.collecting.sql.advice import explained
    from empriv.collecting.sql.decomposing import decompose
    from empriv.collecting.sql.statement import prepare

    try:
        statement = prepare(session, decompose(query, session.whose), BY_LABEL)
    except FailedOnRows as error:
        # Where the cause is known, running the query once per individual would only fail again.
        raise explained(session, query, error) from None
    steps = statement.steps()
    for name, table in steps.tables:
        session.store(name, table)
    everyone = statement.everyone(steps)
    if everyone.components is not None:
        everyone = everyone.component(everyone.components[item])
    entries = statement.entries(steps, item)
    return everyone, statement.absent(), entries


def _measured(session: ClusterSession, yardstick: Yardstick, entries: Node, results_table: str | None) -> list[Tally]:
    integers, each = session.types(entries)[WHO].kind == "integer", results_table is not None

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        return measured_batches(yardstick, batches, each=each, integers=integers)

    tallies = session.run_batches(entries, work, schema_of(integers=integers), results_table)
    return [from_bytes(content, yardstick.everyone) for content in tallies]


def _mark(session: ClusterSession, data: Databases, query: Query, component: str | None) -> str:
    """By what saved results are known again: the question, how databases are cut, and the rows, by a hash of them."""
    asked = [query.text, component, data.database, data.individual, data.unidentified, repr(data.draws)]
    asked.append(session.fingerprint())
    return f"empriv-{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:24]}"


def _saved(session: ClusterSession, place: str, everyone: Results, absent: int, entries: Node) -> Node:
    """Save what was collected, and return the statement of the entries that were saved."""
    arrays = arrays_to_bytes({"q": everyone.q, "outcomes": everyone.outcomes, "databases": everyone.databases})
    note = json.dumps({"absent": absent, "everyone": base64.b64encode(arrays).decode()})
    session.save(place, entries, note)
    saved = _read(session, place)
    assert saved is not None
    return saved[2]


def _read(session: ClusterSession, place: str) -> tuple[Results, int, Node] | None:
    saved = session.load(place)
    if saved is None:
        return None
    entries, text = saved
    note = json.loads(text)
    arrays = arrays_from_bytes(base64.b64decode(note["everyone"]))
    everyone = nobody_listed(arrays["q"], arrays["outcomes"], arrays["databases"])
    return everyone, int(note["absent"]), entries
