"""Results some individuals at a time: what is kept per database and individual stays in the engine, on disk if need be.

The steps of the rewritten statement are kept as tables; results are then fetched for one stretch of individuals after
another. They are the same, to the last bit, as those that `collect` gives at once. What becomes of a stretch is for
whoever asks: it is forgotten here.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from empriv.collecting.aggregates import Facts, NotDecomposable
from empriv.collecting.assemble import Answers, answer, assemble
from empriv.collecting.engine import Engine, FailedOnRows, Integers, Session
from empriv.collecting.evaluate import (
    PAIR,
    as_numbers,
    beyond,
    component_names,
    explained,
    look_again,
    store_groups,
    survey,
)
from empriv.collecting.queries import INDIVIDUAL, Query
from empriv.collecting.rewrite import GROUP, Decomposition, Stages, decompose, stages
from empriv.collecting.sources import Databases
from empriv.errors import QueryError
from empriv.results import Results

# Entries fetched at once (about 100 bytes each while they are put in order), and rows grouped at once.
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

    def interrupt(self) -> None:
        """End the statement that runs in another thread, if one does."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Results with everyone, and those without individuals as an iterator of stretches.

    Attributes
    ----------
    everyone : results with everyone, and nobody listed
    n_stretches : how many stretches there are
    stretches : function of how many stretches to leave out at the beginning, which gives the others; whoever leaves
        before the last must close it, since the next one is being fetched already
    """

    everyone: Results
    n_stretches: int
    stretches: Callable[[int], Generator[Results, None, None]]


@contextmanager
def stream(
    engine: Engine, data: Databases, query: Query, *, entries: int = ENTRIES, rows: int = ROWS
) -> Iterator[Stream]:
    """Open a stream of results of an SQL query.

    Raises `NotDecomposable` if the query cannot be rewritten, or fails on some rows: then only `collect` helps.
    """
    plan = decompose(query)
    with engine.session(data) as session:
        try:
            found = _opened(session, plan, entries, rows)  # type: ignore[arg-type]
        except FailedOnRows:
            raise NotDecomposable("it fails on some rows") from None
        yield found


def _opened(session: StreamingSession, plan: Decomposition, entries: int, rows: int) -> Stream:
    try:
        facts = survey(session, plan)
    except FailedOnRows:
        raise
    except QueryError as error:
        raise explained(session, plan.query, error) from None
    # Where some rows are not read, whoever has no row that is read must be listed too: by label.
    integers = session.integers if plan.reads_all else None
    if integers is None:
        session.label_individuals()
    size = session.count_individuals() if integers is None else integers.size
    groups = store_groups(session, plan) if plan.query.groups else [""]
    steps = stages(plan, facts, integers=integers)
    _store(session, steps, integers, size, max(1, -(-facts.rows // rows)))
    everyone = _fetched(session, plan, facts, steps.everyone, integers, (0, 0), groups)
    count = exp.select("COUNT(*) AS n").from_("empriv_partials")
    pairs = int(session.fetch(count)["n"].values[0])
    n_stretches = max(1, min(size, -(-pairs // entries)))

    def fetched(number: int) -> Results:
        span = size * number // n_stretches, size * (number + 1) // n_stretches
        only = _between("p", integers, span, size)
        each = stages(plan, facts, integers=integers, only=only).each
        return _fetched(session, plan, facts, each, integers, span, groups, everyone)

    def stretches(skipped: int = 0) -> Generator[Results, None, None]:
        return _ahead(fetched, range(skipped, n_stretches), session.interrupt)

    return Stream(everyone, n_stretches, stretches)


def _ahead(
    fetched: Callable[[int], Results], numbers: range, interrupt: Callable[[], None]
) -> Generator[Results, None, None]:
    """What is fetched for each number, the next while the last is in use."""
    with ThreadPoolExecutor(1) as worker:
        running = worker.submit(fetched, numbers[0]) if numbers else None
        try:
            for number in numbers:
                assert running is not None
                found = running.result()
                running = worker.submit(fetched, number + 1) if number + 1 in numbers else None
                yield found
                del found  # two stretches are held at most
        finally:
            # Again and again: an interrupt that comes before the statement has begun is lost.
            while running is not None and not running.done():
                interrupt()
                wait([running], timeout=0.05)


def _store(session: StreamingSession, steps: Stages, integers: Integers | None, size: int, passes: int) -> None:
    """Keep the steps as tables; what there is per individual is computed in passes over stretches of individuals.

    A pass groups what fits in memory, and puts the individuals of a stretch next to each other, where they are found
    again quickly.
    """
    for name, statement in steps.tables:
        if name != "empriv_partials" or passes == 1:
            session.store(name, statement)
            continue
        for number in range(passes):
            span = size * number // passes, size * (number + 1) // passes
            some = _between("r", integers, span, size)
            if number == 0:
                session.store(name, statement.where(f"({some}) OR r.{INDIVIDUAL} IS NULL"))
            else:
                session.append(name, statement.where(some))


def _between(table: str, integers: Integers | None, span: tuple[int, int], size: int) -> str:
    """The condition that an individual's position is in ``span``."""
    column, (first, stop) = f"{table}.{INDIVIDUAL}", span
    if integers is not None:
        low, high = str(integers.first + first), str(integers.first + stop)
    else:
        low, high = (f"(SELECT label FROM empriv_individuals WHERE code = {code})" for code in span)
    conditions = [f"{column} >= {low}"] if first > 0 else []
    conditions += [f"{column} < {high}"] if stop < size else []
    return " AND ".join(conditions) or f"NOT {column} IS NULL"


def _fetched(
    session: StreamingSession,
    plan: Decomposition,
    facts: Facts,
    statement: exp.Select,
    integers: Integers | None,
    span: tuple[int, int],
    groups: list[str],
    everyone: Results | None = None,
) -> Results:
    """Results that a step gives: with everyone, or without the individuals in ``span``."""
    n, size = len(session.databases), span[1]
    found = session.fetch(as_numbers(session, statement, plan.query, (n, size)))
    beyond(found)
    answers = Answers(
        found[PAIR].values,
        n,
        found[GROUP].values if plan.query.groups else np.zeros(1, np.int64),
        tuple(answer(found[f"q{number}"]) for number in range(len(plan.query.items))),
    )
    look_again(session, plan, facts, integers, answers, found)
    if everyone is None:
        return assemble(
            answers,
            databases=session.databases,
            individuals=np.zeros(0, np.int64),
            integers=Integers(0, 0),
            components=component_names(plan.query, groups),
            n_groups=len(groups),
        )
    stretch = replace(answers, pair=answers.pair - span[0] * n)
    if integers is None:
        labels, whose = session.individuals_between(*span), None
    else:
        labels, whose = None, Integers(integers.first + span[0], span[1] - span[0])
    return assemble(
        stretch,
        databases=session.databases,
        individuals=labels,
        integers=whose,
        components=component_names(plan.query, groups),
        n_groups=len(groups),
        everyone=(everyone.q, everyone.outcomes),
    )
