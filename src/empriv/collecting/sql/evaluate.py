"""SQL queries, run: by one rewritten statement where that is possible, else once per individual."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from sqlglot import exp

from empriv.collecting.assemble import Answers, answer, assemble
from empriv.collecting.engines.engine import Column, FailedOnRows, Integers, Session
from empriv.collecting.queries import DATABASE, INDIVIDUAL, Query
from empriv.collecting.sql.advice import explained as explained
from empriv.collecting.sql.aggregates import Facts, NotDecomposable
from empriv.collecting.sql.closed_door import check, check_tables
from empriv.collecting.sql.decomposing import Decomposition, decompose
from empriv.collecting.sql.exact_sums import Span
from empriv.collecting.sql.reruns import BEYOND, IDENTIFYING, LARGEST_EXACT, NO_GROUP, Notice, rerun
from empriv.collecting.sql.rewrite import GROUP, leave_one_out
from empriv.collecting.sql.templates import fill
from empriv.errors import QueryError
from empriv.results import Results

PAIR = "empriv_pair"


def evaluate(session: Session, query: Query, *, show: bool | None = None, notice: Notice | None = None) -> Results:
    """Results of an SQL query."""
    admit(session, query)
    try:
        return _run_once(session, decompose(query))
    except NotDecomposable as why:
        reason = str(why)
    except FailedOnRows:
        reason = "it fails on some rows"
    _check_types(session, query)
    answers, groups = rerun(session, query, session.presence(), reason=reason, show=show, notice=notice)
    return assemble(
        answers,
        databases=session.databases,
        individuals=session.individuals,
        components=component_names(query, groups),
        n_groups=len(groups),
    )


def admit(session: Session, query: Query) -> None:
    """Refuse a query that reaches beyond its rows, before anything is run for it."""
    assert query.select is not None
    check(query.select, query.text)
    check_tables(query.select, list(session.columns), query.text)
    session.admit(query.select)


def explain(session: Session | None, query: Query) -> str:
    """The rewritten statement, or why the query runs once per individual."""
    if query.select is None:
        return "The query is a Python function, which is called once per individual."
    if session is not None:
        admit(session, query)
    try:
        plan = decompose(query)
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
    return str(statement.sql(dialect="duckdb", pretty=True))


def survey(session: Session, plan: Decomposition) -> Facts:
    """What must be known of the arguments before the statement can be written."""
    arguments = plan.arguments
    described = session.types(plan.rows(fill("1"), *(exp.alias_(x.copy(), name) for name, x in arguments.items())))
    types = {name: described[name] for name in arguments}
    summed = sorted(name for name in plan.summed if types[name].kind == "double")
    measures = [exp.alias_(fill("COUNT(*)"), "n")]
    for name in summed:
        x = exp.cast(arguments[name].copy(), "DOUBLE", dialect="duckdb")
        for measure, template in (
            ("largest", "MAX(ABS(x)) FILTER (WHERE ISFINITE(x))"),
            ("smallest", "MIN(ABS(x)) FILTER (WHERE x <> 0)"),
            ("infinite", "COUNT(*) FILTER (WHERE NOT ISFINITE(x))"),
        ):
            measures.append(exp.alias_(fill(template, x=x), f"{measure}_{name}"))
    found = session.fetch(plan.rows(*measures))

    def measured(name: str, default: float) -> float:
        column = found[name]
        return default if column.null[0] else float(column.values[0])

    spans = {}
    for name in summed:
        largest = measured(f"largest_{name}", 1.0) or 1.0
        smallest = measured(f"smallest_{name}", largest)
        finite = measured(f"infinite_{name}", 0) == 0
        spans[name] = Span(largest, smallest if math.isfinite(smallest) else largest, finite)
    return Facts(types, spans, int(measured("n", 0)), session.integer_bits)


def _run_once(session: Session, plan: Decomposition) -> Results:
    query = plan.query
    try:
        facts = survey(session, plan)
    except FailedOnRows:
        raise
    except QueryError as error:
        raise explained(session, query, error) from None
    n, integers = len(session.databases), session.integers
    # Everyone has an answer where every row is read: then integers need not be looked up before.
    individuals = None if integers is not None and plan.reads_all else session.individuals
    if integers is None:
        session.label_individuals()
    groups = store_groups(session, plan) if query.groups else [""]
    size = len(session.individuals) if integers is None else integers.size
    found = session.fetch(as_numbers(session, leave_one_out(plan, facts, integers=integers), query, (n, size)))
    beyond(found)
    answers = Answers(
        found[PAIR].values,
        n,
        found[GROUP].values if query.groups else np.zeros(1, np.int64),
        tuple(answer(found[f"q{number}"]) for number in range(len(query.items))),
    )
    look_again(session, plan, facts, integers, answers, found)
    return assemble(
        answers,
        databases=session.databases,
        individuals=individuals,
        integers=integers,
        components=component_names(query, groups),
        n_groups=len(groups),
    )


def beyond(found: Mapping[str, Column]) -> None:
    """Refuse results that a double cannot hold."""
    if "beyond" in found and bool(np.any(found["beyond"].values & ~found["beyond"].null)):
        raise QueryError(BEYOND)


def look_again(
    session: Session,
    plan: Decomposition,
    facts: Facts,
    integers: Integers | None,
    answers: Answers,
    found: Mapping[str, Column],
) -> None:
    """Compute what is flagged from the rows that are left, in place; few are, since only an outlier takes most away."""
    if "flagged" not in found:
        return
    flagged = found["flagged"].values & ~found["flagged"].null
    if not flagged.any():
        return
    places = np.flatnonzero(flagged)
    n = answers.n_databases
    pairs, code = np.unique(answers.pair[places], return_inverse=True)
    number = np.arange(len(pairs))
    table = {"code": number, "label": number, DATABASE: pairs % n, INDIVIDUAL: pairs // n}
    session.store_numbers("empriv_flagged", table)
    statement = leave_one_out(plan, facts, integers=integers, again=True)
    found = session.fetch(as_numbers(session, statement, plan.query, None))
    n_groups = int(answers.group.max()) + 1
    group = answers.group[places] if plan.query.groups else 0
    again = found[DATABASE].values * n_groups + (found[GROUP].values if plan.query.groups else 0)
    row = np.full(len(pairs) * n_groups, -1)
    row[again] = np.arange(len(again))
    row = row[code * n_groups + group]
    for item, (values, codes) in enumerate(answers.items):
        new_values, new_codes = answer(found[f"q{item}"])
        values[places], codes[places] = new_values[row], new_codes[row]


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
            raise QueryError(_not_a_number(name))


def _not_a_number(name: str) -> str:
    return (
        f"The query must give numbers, but its result {name!r} is not one. "
        "Hint: count(DISTINCT ...) counts values, epoch() makes a number of a time."
    )


def as_numbers(session: Session, statement: exp.Select, query: Query, pairs: tuple[int, int] | None) -> exp.Select:
    """Cast the results to doubles, if they are numbers, and see where an integer does not fit.

    With ``pairs``, the numbers of databases and individuals, these two are joined to one, as `Answers` has it.
    """
    types = session.types(statement)
    outer: exp.Select = exp.select(*(name for name in types if not name.startswith("q")))
    if pairs is not None:
        width = "INTEGER" if pairs[0] * pairs[1] < 2**31 else "BIGINT"
        outer = exp.select(f"CAST({INDIVIDUAL} AS {width}) * {pairs[0]} + {DATABASE} AS {PAIR}")
        outer = outer.select(*(name for name in types if name in (GROUP, "flagged")))
    beyond = []
    for number, name in enumerate(name for name in types if name.startswith("q")):
        kind, value = types[name].kind, exp.column(name)
        # A decimal is an integer of its last digits.
        limit = LARGEST_EXACT // 10 ** types[name].scale
        if kind == "other":
            raise QueryError(_not_a_number(query.names[number]))
        outer = outer.select(exp.alias_(fill("CAST(q AS DOUBLE)", q=value), name))
        if kind in ("integer", "decimal"):
            beyond.append(fill(f"q > {limit} OR q < -{limit}", q=value))
    if beyond:
        outer = outer.select(exp.alias_(exp.or_(*beyond), "beyond"))
    return outer.from_(statement.subquery("empriv_results"))


def component_names(query: Query, groups: list[str]) -> list[str] | None:
    """Names of a vector's components: of the group, the item, or both."""
    if not query.is_vector:
        return None
    if not query.groups:
        return _unique(list(query.names))
    if len(query.items) == 1:
        return groups
    return _unique([f"{group} / {name}" for group in groups for name in query.names])


def _unique(names: list[str]) -> list[str]:
    if len(set(names)) != len(names):
        raise QueryError("The results of a query must have different names. Hint: name them with AS.")
    return names


def _names_individuals(session: Session, plan: Decomposition, key: exp.Expr) -> bool:
    """Whether a group key is one to one with the individuals: its values identify them, whatever it is called."""
    whose = plan.column(INDIVIDUAL)
    owners = (
        plan.rows(
            exp.alias_(fill("MIN(i)", i=whose), "owner"),
            exp.alias_(fill("MIN(i) = MAX(i)", i=whose), "alone"),
            exp.alias_(fill("CAST(MIN(k) AS TEXT) = CAST(MIN(i) AS TEXT)", k=key, i=whose), "same"),
        )
        .where(fill("NOT k IS NULL AND NOT i IS NULL", k=key, i=whose))
        .group_by(exp.paren(key.copy()))
    )
    counted = exp.select(
        "COUNT(*) AS n",
        "COUNT(DISTINCT owner) AS owners",
        "COUNT(CASE WHEN alone THEN 1 END) AS alone",
        "COUNT(CASE WHEN same THEN 1 END) AS same",
    ).from_(owners.subquery("empriv_owners"))
    found = session.fetch(counted)
    n, owned, alone, same = (int(found[name].values[0]) for name in ("n", "owners", "alone", "same"))
    # One group of one individual may be anything, unless it is called as they are.
    return n == owned == alone and (n > 1 or same == n == 1)


def store_groups(session: Session, plan: Decomposition) -> list[str]:
    """Make the table of groups, and name them."""
    keys = [f"k{k}" for k in range(len(plan.query.groups))]
    distinct = plan.rows(
        *(exp.alias_(key.copy(), k) for k, key in zip(keys, plan.query.groups, strict=True))
    ).distinct()
    codes = exp.select(f"ROW_NUMBER() OVER (ORDER BY {', '.join(keys)}) - 1 AS code", *keys)
    session.store("empriv_groups", codes.from_(distinct.subquery("empriv_distinct")))
    texts = exp.select(*(f"COALESCE(CAST({k} AS TEXT), 'NULL') AS {k}" for k in keys))
    found = session.fetch(texts.from_("empriv_groups").order_by("code"))
    if not len(found["k0"].values):
        raise QueryError(NO_GROUP)
    for key in plan.query.groups:
        if _names_individuals(session, plan, key):
            raise QueryError(IDENTIFYING)
    return [" / ".join(map(str, row)) for row in zip(*(found[k].values for k in keys), strict=True)]
