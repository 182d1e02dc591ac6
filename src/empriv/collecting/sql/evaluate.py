"""SQL queries, run: by one rewritten statement where that is possible, else once per individual."""

from __future__ import annotations

from empriv.collecting.assemble import assemble
from empriv.collecting.engines.engine import BeyondLimits, FailedOnRows, Refused, Session
from empriv.collecting.queries import Query
from empriv.collecting.sql.advice import explained
from empriv.collecting.sql.aggregates import Facts, NotDecomposable
from empriv.collecting.sql.decomposing import Decomposition, check_aliases, decompose
from empriv.collecting.sql.printing import readable
from empriv.collecting.sql.reruns import Notice, Told, rerun, run_each
from empriv.collecting.sql.rewrite import leave_one_out
from empriv.collecting.sql.statement import admit, not_a_number, prepare, survey
from empriv.collecting.sql.table_cells import cells_of, component_names
from empriv.errors import QueryError
from empriv.results import IntArray, Results


def evaluate(session: Session, query: Query, *, show: bool | None = None, notice: Notice | None = None) -> Results:
    """Results of an SQL query."""
    return answered(session, query, show=show, notice=notice)[0]


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
        return _run_once(session, plan, show, notice, refuse), True
    except NotDecomposable as why:
        reason = str(why)
    except FailedOnRows:
        reason = "it fails on some rows"
    except (BeyondLimits, Refused):
        raise
    except QueryError:
        # A table derived person by person may be one that the engine takes only as it is written.
        if plan is None or not plan.derived:
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


def _run_once(session: Session, plan: Decomposition, show: bool | None, notice: Notice | None, refuse: bool) -> Results:
    def run(database: IntArray, individual: IntArray, reason: str) -> list[Told]:
        return run_each(session, plan.query, database, individual, reason=reason, show=show, notice=notice)

    integers = session.integers
    statement = prepare(session, plan, integers, refuse=refuse)
    size = len(session.individuals) if integers is None else integers.size
    answers = statement.answers(statement.whole(), size, run)
    # Everyone has an answer where every row is read: then integers need not be looked up.
    individuals = None if integers is not None and plan.reads_all else session.individuals
    return statement.assembled(answers, individuals=individuals, integers=integers)


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
