"""SQL queries, run: by one rewritten statement where that is possible, else once per individual."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy.typing as npt
from sqlglot import exp

from empriv.collecting.assemble import chosen_groups
from empriv.collecting.engines.engine import BeyondLimits, Engine, FailedOnRows, Refused, Session
from empriv.collecting.queries import INDIVIDUAL, Query
from empriv.collecting.sources import Databases
from empriv.collecting.sql.advice import explained
from empriv.collecting.sql.aggregates import Facts, NotDecomposable
from empriv.collecting.sql.decomposing import Decomposition, check_aliases, decompose
from empriv.collecting.sql.printing import readable
from empriv.collecting.sql.rerun import Notice, rerun
from empriv.collecting.sql.rewrite import Stages, leave_one_out
from empriv.collecting.sql.statement import admit, not_a_number, prepare, survey
from empriv.errors import QueryError
from empriv.results import Results


def answered(
    session: Session, query: Query, *, show: bool | None = None, notice: Notice | None = None, refuse: bool = True
) -> tuple[Results, bool]:
    """Results of an SQL query, and whether they come from one rewritten statement.

    Without ``refuse``, groups may be of one individual each, and the query may fail on every database.
    """
    admit(session, query)
    plan = None
    try:
        plan = decompose(query, session.whose)
        check_aliases(plan, session.columns)
        return _run_once(session, plan, refuse), True
    except NotDecomposable as why:
        reason = str(why)
    except FailedOnRows:
        reason = "it fails on some rows"
    except (BeyondLimits, Refused):
        raise
    except QueryError:
        # A table derived person by person may be one that the engine takes only as it is written.
        if plan is None or plan.plain:
            raise
        reason = "its derived table cannot be kept apart by individual"
    _check_types(session, query)
    return rerun(session, query, reason=reason, show=show, notice=notice, refuse=refuse), False


def explain(session: Session | None, query: Query) -> str:
    """The rewritten statement, or why the query runs once per individual."""
    if query.select is None:
        return "The query is a Python function, which is called once per individual."
    if session is not None:
        admit(session, query)
    try:
        plan = decompose(query, () if session is None else session.whose)
        if session is not None:
            check_aliases(plan, session.columns)
        statement = leave_one_out(plan, Facts() if session is None else survey(session, plan))
    except NotDecomposable as why:
        if session is not None:
            _check_types(session, query)
        return f"The query runs once per individual, since {why}."
    except FailedOnRows:
        return "The query runs once per individual, since it fails on some rows."
    except QueryError as error:
        if session is None:
            raise
        raise explained(session, query, error) from None
    return str(readable(statement).sql(dialect="duckdb", pretty=True))


def _run_once(session: Session, plan: Decomposition, refuse: bool) -> Results:
    statement = prepare(session, plan, refuse=refuse)
    answers = statement.answers(statement.whole(), len(session.individuals))
    results = statement.assembled(answers, individuals=session.individuals)
    return chosen_groups(results, plan.query, refuse=refuse) if plan.chooses_groups else results


def _check_types(session: Session, query: Query) -> None:
    assert query.select is not None
    try:
        types = list(session.types(query.select).values())
    except FailedOnRows:
        raise
    except QueryError as error:
        raise explained(session, query, error) from None
    for position, name in zip(query.items, query.names, strict=True):
        if types[position].kind == "other":
            raise QueryError(not_a_number(name))


# Entries in a stretch (about 100 bytes each while they are put in order), and rows grouped at once.
ENTRIES = 4_000_000
ROWS = 25_000_000


class StreamingSession(Session, Protocol):
    """A session whose tables may grow, and whose labels can be had in part."""

    def append(self, name: str, statement: exp.Expr) -> None:
        """Run a statement and add its rows to a table that `store` made."""

    def count_individuals(self) -> int:
        """Number of labels."""

    def individuals_between(self, first: int, stop: int) -> npt.NDArray[Any]:
        """Labels at these positions."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Results with everyone, and those without individuals as an iterator of stretches.

    Attributes
    ----------
    session : what is asked
    everyone : results with everyone, and nobody listed
    people : how many individuals there are
    n_stretches : how many stretches there are
    stretches : function of how many stretches to leave out at the beginning, which gives the others
    """

    session: Session
    everyone: Results
    people: int
    n_stretches: int
    stretches: Callable[[int], Generator[Results, None, None]]


@contextmanager
def stream(
    engine: Engine, data: Databases, query: Query, *, entries: int = ENTRIES, rows: int = ROWS
) -> Iterator[Stream]:
    """Open a stream of results of an SQL query.

    Raises `NotDecomposable` if the query cannot be rewritten, or fails on some rows: then only `collect` helps.
    """
    plan = decompose(query, data.individual)
    with engine.session(data) as session:
        admit(session, query)
        with _not_failing():
            opened = _opened(session, plan, entries, rows)  # type: ignore[arg-type]
        yield opened


@contextmanager
def _not_failing() -> Iterator[None]:
    try:
        yield
    except FailedOnRows:
        raise NotDecomposable("it fails on some rows") from None


def _opened(session: StreamingSession, plan: Decomposition, entries: int, rows: int) -> Stream:
    if plan.chooses_groups:
        raise NotDecomposable("its HAVING chooses groups")
    statement = prepare(session, plan)
    size = session.count_individuals()
    steps = statement.steps()
    _store(session, steps, size, max(1, min(size, -(-statement.facts.rows // rows))))
    everyone = statement.everyone(steps)
    count = exp.select("COUNT(*) AS n").from_("empriv_partials")
    pairs = int(session.fetch(count)["n"].values[0])
    spans = _spans(size, max(1, min(size, -(-pairs // entries))))

    def stretches(skipped: int = 0) -> Generator[Results, None, None]:
        for first, stop in spans[skipped:]:
            with _not_failing():
                each = statement.steps(_between("p", first, stop, size)).each
                answers = statement.answers(each, stop)
                answers = replace(answers, pair=answers.pair - first * answers.n_databases)
                labels = session.individuals_between(first, stop)
                stretch = statement.assembled(answers, individuals=labels, everyone=everyone)
            yield stretch

    return Stream(session, everyone, size, len(spans), stretches)


def _spans(size: int, count: int) -> list[tuple[int, int]]:
    """Positions of individuals in so many stretches."""
    return [(size * k // count, size * (k + 1) // count) for k in range(count)]


def _store(session: StreamingSession, steps: Stages, size: int, turns: int) -> None:
    """Keep the steps as tables; what there is per individual is computed in turns, for stretches of individuals.

    A turn groups what fits in memory, and puts the individuals of a stretch next to each other, where they are found
    again quickly.
    """
    for name, statement in steps.tables:
        if name != "empriv_partials" or turns == 1:
            session.store(name, statement)
            continue
        for number, (first, stop) in enumerate(_spans(size, turns)):
            some = _between("r", first, stop, size)
            if number == 0:
                session.store(name, statement.where(f"({some}) OR r.{INDIVIDUAL} IS NULL"))
            else:
                session.append(name, statement.where(some))


def _between(table: str, first: int, stop: int, size: int) -> str:
    """The condition that an individual's position is in a span."""
    column = f"{table}.{INDIVIDUAL}"
    low, high = (f"(SELECT label FROM empriv_individuals WHERE code = {code})" for code in (first, stop))
    conditions = [f"{column} >= {low}"] if first > 0 else []
    conditions += [f"{column} < {high}"] if stop < size else []
    return " AND ".join(conditions) or f"NOT {column} IS NULL"
