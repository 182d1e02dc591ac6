"""The groups of GROUP BY: found in the rows before a statement is written, and refused where they name people.

Their names are published: groups of one individual each, or that are called as individuals are, would say who has rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sqlglot import exp

from empriv.collecting.assemble import (
    IDENTIFYING,
    PASSING,
    Group,
    check_groups,
    check_selected,
    component_names,
    group_value,
    says_which_database,
)
from empriv.collecting.engines.engine import MASTER, Session
from empriv.collecting.queries import DATABASE, INDIVIDUAL, MOST_CELLS, Query
from empriv.collecting.sql.aggregates import NotDecomposable
from empriv.collecting.sql.decompose import Decomposition, decompose
from empriv.collecting.sql.explain_errors import explaining
from empriv.collecting.sql.printing import fill
from empriv.collecting.sql.rewrite import KEY, instead_of_data
from empriv.errors import QueryError


def each_once(session: Session, plan: Decomposition, *expressions: exp.Expr) -> exp.Select:
    """Select these from the rows that a query reads, each of them once, in however many random databases it is."""
    if not session.drawn:
        return plan.rows(*expressions)
    return instead_of_data(plan.rows(*expressions, carried=[INDIVIDUAL]), exp.select("*").from_(MASTER))


def store_groups(session: Session, plan: Decomposition, *, refuse: bool = True) -> list[Group]:
    """Make the table of groups, and name them."""
    keys = [f"{KEY}{k}" for k in range(len(plan.query.groups))]
    named = (exp.alias_(key.copy(), k) for k, key in zip(keys, plan.query.groups, strict=True))
    distinct = each_once(session, plan, *named).distinct()
    codes = exp.select(f"ROW_NUMBER() OVER (ORDER BY {', '.join(keys)}) - 1 AS code", *keys)
    session.store("empriv_groups", codes.from_(distinct.subquery("empriv_distinct")))
    constant, passing = _across_databases(session, plan) if refuse else (set(), False)
    # Each key alone, and all of them: two that are shared may name one individual together.
    others = [key for number, key in enumerate(plan.query.groups) if number not in constant]
    for chosen in [[key] for key in others] + ([others] if len(others) > 1 else []):
        if refuse and _names_individuals(session, plan, chosen):
            raise QueryError(IDENTIFYING)
    if constant:
        raise says_which_database(plan.query, constant)
    if passing:
        raise QueryError(PASSING)
    check_selected(plan.query)
    count = int(session.fetch(exp.select("COUNT(*) AS n").from_("empriv_groups"))["n"].values[0])
    if plan.chooses_groups and count * len(plan.query.items) > MOST_CELLS:
        raise NotDecomposable("its HAVING chooses among many groups")
    check_groups(plan.query, count)
    texts = exp.select(*(f"CAST({k} AS TEXT) AS {k}" for k in keys))
    columns = session.fetch(texts.from_("empriv_groups").order_by("code"))
    values = [
        [None if null else str(value) for value, null in zip(columns[k].values, columns[k].null, strict=True)]
        for k in keys
    ]
    return [tuple(map(group_value, row)) for row in zip(*values, strict=True)]


def _names_individuals(session: Session, plan: Decomposition, keys: Sequence[exp.Expr]) -> bool:
    """Whether groups by these keys identify: each is one individual's, or several are called as their only one is."""
    whose = plan.column(INDIVIDUAL)
    known = [fill("NOT k IS NULL", k=key) for key in keys]
    # 17850.0 is called 17850
    called = "REGEXP_REPLACE(CAST(MIN({0}) AS TEXT), '[.]0$', '')"
    named = [fill(f"{called.format('k')} = {called.format('i')}", k=key, i=whose) for key in keys]
    owners = (
        each_once(
            session,
            plan,
            exp.alias_(fill("MIN(i) = MAX(i)", i=whose), "alone"),
            exp.alias_(exp.and_(fill("MIN(i) = MAX(i)", i=whose), exp.or_(*named)), "same"),
        )
        .where(*known, fill("NOT i IS NULL", i=whose))
        .group_by(*(exp.paren(key.copy()) for key in keys))
    )
    counted = exp.select(
        "COUNT(*) AS n",
        "COUNT(CASE WHEN alone THEN 1 END) AS alone",
        "COUNT(CASE WHEN same THEN 1 END) AS same",
    ).from_(owners.subquery("empriv_owners"))
    found = session.fetch(counted)
    n, alone, same = (int(found[name].values[0]) for name in ("n", "alone", "same"))
    # One group of one individual may be anything, unless it is called as they are; one of many may be so by chance.
    return (n == alone and n > 1) or same == n == 1 or same > 1


def _across_databases(session: Session, plan: Decomposition) -> tuple[set[int], bool]:
    """Keys of which each database has one value and the databases have several; whether no group is in two databases.

    To be asked after ``empriv_groups`` is stored.
    """
    if session.drawn or len(session.databases) < 2:
        return set(), False
    keys = [f"{KEY}{k}" for k in range(len(plan.query.groups))]
    named = (exp.alias_(key.copy(), k) for k, key in zip(keys, plan.query.groups, strict=True))
    pairs = plan.rows(exp.alias_(plan.column(DATABASE), DATABASE), *named).distinct().subquery("empriv_pairs")
    values = "COUNT(DISTINCT {0}) + COALESCE(MAX(CASE WHEN {0} IS NULL THEN 1 ELSE 0 END), 0) AS {0}"
    of_each = exp.select(*map(values.format, keys), "COUNT(*) AS n").from_(pairs).group_by(DATABASE)
    most = exp.select(*(f"MAX({k}) AS {k}" for k in keys), "SUM(n) AS n").from_(of_each.subquery("empriv_of_each"))
    of_all = exp.select(*map(values.format, keys), "COUNT(*) AS n").from_("empriv_groups")
    in_one, in_all = session.fetch(most), session.fetch(of_all)
    constant = {number for number, k in enumerate(keys) if in_one[k].values[0] == 1 < in_all[k].values[0]}
    return constant, in_one["n"].values[0] == in_all["n"].values[0] > 1


def components_of(session: Session, query: Query) -> list[str] | None:
    """Names of a vector's components, None if the query gives one number; groups are looked up in the rows."""
    if not query.groups:
        return component_names(query, [("",)])
    with explaining(session, query, failures=True):
        plan = decompose(query, session.whose)
        if plan.chooses_groups:
            raise NotDecomposable("its HAVING chooses groups")
        groups = store_groups(session, plan)
    return component_names(query, groups)


def only_component(query: Query, position: int, name: str) -> tuple[Query, int]:
    """The query that gives one component of those in `components_of`, and which of its items that is.

    A group of GROUP BY is the same query over the rows of that group, which has no result where it has no rows.
    """
    group, item = divmod(position, len(query.items))
    if not query.groups:
        return query, item
    assert isinstance(query.select, exp.Select)
    select = query.select.copy()
    select.set("group", None)
    select.set("order", None)
    result = select.expressions[query.items[item]].unalias()
    select.set("expressions", [fill("CASE WHEN COUNT(*) > 0 THEN q END", q=result)])
    for number, key in enumerate(query.groups):
        chosen = exp.select(f"{KEY}{number}").from_("empriv_groups").where(f"code = {group}").subquery()
        select = select.where(exp.NullSafeEQ(this=exp.paren(key.copy()), expression=chosen))
    return replace(query, select=select, items=(0,), keys=(), names=(name,), groups=()), 0
