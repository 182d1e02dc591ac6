"""SQL queries, run: by one rewritten statement where that is possible, else once per individual."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from empriv.collecting.assemble import Answers, assemble, cells_of, chosen_groups, component_names
from empriv.collecting.engines.engine import BeyondLimits, Engine, FailedOnRows, Integers, Refused, Session
from empriv.collecting.queries import DATA, INDIVIDUAL, Query
from empriv.collecting.sources import Databases
from empriv.collecting.sql.advice import explained
from empriv.collecting.sql.aggregates import Facts, NotDecomposable
from empriv.collecting.sql.decomposing import Decomposition, check_aliases, decompose
from empriv.collecting.sql.printing import readable
from empriv.collecting.sql.reruns import Notice, rerun
from empriv.collecting.sql.rewrite import Stages, leave_one_out
from empriv.collecting.sql.statement import Statement, admit, not_a_number, prepare, survey
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
        check_aliases(query, session.columns)
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
    answers, groups = rerun(session, query, session.presence(), reason=reason, show=show, notice=notice, refuse=refuse)
    results = assemble(
        answers,
        databases=session.databases,
        individuals=session.individuals,
        components=component_names(query, groups),
        n_groups=len(groups),
        cells=cells_of(query, groups),
    )
    return results, False


def explain(session: Session | None, query: Query) -> str:
    """The rewritten statement, or why the query runs once per individual."""
    if query.select is None:
        return "The query is a Python function, which is called once per individual."
    if session is not None:
        admit(session, query)
    try:
        plan = decompose(query, () if session is None else session.whose)
        if session is None:
            statement = leave_one_out(plan, Facts())
        else:
            statement = leave_one_out(plan, survey(session, plan), integers=session.integers)
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
    integers = session.integers
    statement = prepare(session, plan, integers, refuse=refuse)
    size = len(session.individuals) if integers is None else integers.size
    answers = statement.answers(statement.whole(), size)
    # Everyone has an answer where every row is read: then integers need not be looked up.
    individuals = None if integers is not None and plan.reads_all else session.individuals
    results = statement.assembled(answers, individuals=individuals, integers=integers)
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
_BUCKETS = 4096  # of individuals, whose rows are counted together


class StreamingSession(Session, Protocol):
    """A session whose tables may grow, and whose labels can be had in part."""

    def append(self, name: str, statement: exp.Expr) -> None:
        """Run a statement and add its rows to a table that `store` made."""

    def count_individuals(self) -> int:
        """Number of labels."""

    def count_integers(self, integers: Integers) -> int:
        """How many of these integers are an individual."""

    def individuals_between(self, first: int, stop: int) -> npt.NDArray[Any]:
        """Labels at these positions."""

    def interrupt(self) -> None:
        """End the statement that runs in another thread, if one does."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Results with everyone, and those without individuals as an iterator of stretches.

    Attributes
    ----------
    session : what is asked
    everyone : results with everyone, and nobody listed
    rows, people : how many rows and individuals there are
    n_stretches : how many stretches there are
    stretches : function of how many stretches to leave out at the beginning, which gives the others; whoever leaves
        before the last must close it, since the next one is being fetched already
    """

    session: Session
    everyone: Results
    rows: int
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
    # Where some rows are not read, whoever has no row that is read must be listed too: by label.
    integers = session.integers if plan.reads_all else None
    statement = prepare(session, plan, integers)
    facts = statement.facts
    size = session.count_individuals() if integers is None else integers.size
    turns = max(1, min(size, -(-facts.rows // rows)))
    steps = statement.passes()
    read_anew = steps is not None
    if steps is None:
        steps = statement.steps()
    _store(session, steps, integers, size, turns)
    everyone = statement.everyone(steps)
    # Each statement fetches what is then cut into parts.
    if read_anew:
        parts = max(1, min(size // turns, -(-facts.rows // (turns * entries))))
        spans = _spans(session, integers, size, turns * parts)
    else:
        count = exp.select("COUNT(*) AS n").from_("empriv_partials")
        pairs = int(session.fetch(count)["n"].values[0])
        parts, spans = 1, _even_spans(size, max(1, min(size, -(-pairs // entries))))
    fetches = -(-len(spans) // parts)

    def fetched(number: int) -> Fetched:
        own = spans[number * parts : (number + 1) * parts]
        span = own[0][0], own[-1][1]
        write, table = (statement.passes, "r") if read_anew else (statement.steps, "p")
        steps = write(_between(table, integers, span, size))
        assert steps is not None
        labels = session.individuals_between(*span) if integers is None else None
        return Fetched(span, statement.answers(steps.each, span[1]), labels)

    def stretches(skipped: int = 0) -> Generator[Results, None, None]:
        first = skipped // parts
        with closing(_ahead(fetched, range(first, fetches), session.interrupt)) as fetches_done, _not_failing():
            for number, stretch in enumerate(fetches_done, start=first):
                for part in range(max(skipped, number * parts), min(len(spans), (number + 1) * parts)):
                    yield _stretch(statement, stretch, spans[part], everyone)

    people = size if integers is None else session.count_integers(integers)
    return Stream(session, everyone, facts.rows, people, len(spans), stretches)


@dataclass(frozen=True, eq=False)
class Fetched:
    """Answers without the individuals at the positions of ``span``, and their labels where these are no integers."""

    span: tuple[int, int]
    answers: Answers
    labels: npt.NDArray[Any] | None


def _ahead(
    fetched: Callable[[int], Fetched], numbers: range, interrupt: Callable[[], None]
) -> Generator[Fetched, None, None]:
    """What is fetched for each number, the next while the last is in use."""
    with ThreadPoolExecutor(1) as worker:
        running = worker.submit(fetched, numbers[0]) if numbers else None
        try:
            for number in numbers:
                assert running is not None
                found = running.result()
                running = worker.submit(fetched, number + 1) if number + 1 in numbers else None
                yield found
                del found  # two are held at most
        finally:
            # Again and again: an interrupt that comes before the statement has begun is lost.
            while running is not None and not running.done():
                interrupt()
                wait([running], timeout=0.05)


def _even_spans(size: int, count: int) -> list[tuple[int, int]]:
    """Positions of individuals in so many stretches."""
    return [(size * k // count, size * (k + 1) // count) for k in range(count)]


def _spans(session: StreamingSession, integers: Integers | None, size: int, count: int) -> list[tuple[int, int]]:
    """Positions of individuals in at most so many stretches; of integers, with about as many rows each.

    The rows of integers may be anywhere in their range; labels are numbered without gaps.
    """
    if integers is None or count == 1:
        return _even_spans(size, count)
    place = f"CAST(CAST({INDIVIDUAL} AS BIGINT) - ({integers.first}) AS DOUBLE) * {_BUCKETS} / {size}"
    found = session.fetch(
        exp.select(f"CAST(FLOOR({place}) AS BIGINT) AS bucket", "COUNT(*) AS n")
        .from_(DATA)
        .where(f"NOT {INDIVIDUAL} IS NULL")
        .group_by("bucket")
    )
    rows = np.bincount(found["bucket"].values, found["n"].values, minlength=_BUCKETS).cumsum()
    ends = np.searchsorted(rows, rows[-1] * np.arange(1, count) / count) + 1
    edges = np.unique(np.concatenate(([0], np.minimum(ends, _BUCKETS) * size // _BUCKETS, [size]))).tolist()
    return list(pairwise(edges))


def _store(session: StreamingSession, steps: Stages, integers: Integers | None, size: int, turns: int) -> None:
    """Keep the steps as tables; what there is per individual is computed in turns, for stretches of individuals.

    A turn groups what fits in memory, and puts the individuals of a stretch next to each other, where they are found
    again quickly.
    """
    for name, statement in steps.tables:
        if name != "empriv_partials" or turns == 1:
            session.store(name, statement)
            continue
        for number in range(turns):
            span = size * number // turns, size * (number + 1) // turns
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


def _stretch(statement: Statement, fetched: Fetched, span: tuple[int, int], everyone: Results) -> Results:
    """Results without the individuals at the positions of ``span``."""
    (first, stop), answers = span, fetched.answers
    pair, n = answers.pair, answers.n_databases
    if span != fetched.span:
        chosen = np.flatnonzero((pair >= first * n) & (pair < stop * n))
        items = tuple((values[chosen], codes[chosen]) for values, codes in answers.items)
        group = answers.group[chosen] if statement.plan.query.groups else answers.group
        answers = Answers(pair[chosen], n, group, items)
    answers = replace(answers, pair=answers.pair - first * n)
    labels, integers = None, statement.integers
    if integers is not None:
        integers = Integers(integers.first + first, stop - first)
    else:
        assert fetched.labels is not None
        labels = fetched.labels[first - fetched.span[0] : stop - fetched.span[0]]
    return statement.assembled(answers, individuals=labels, integers=integers, everyone=everyone)
