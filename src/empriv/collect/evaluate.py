"""SQL queries, run: by one rewritten statement where that is possible, else once per individual."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlglot import exp

from empriv.collect.aggregates import Facts, NotDecomposable, Span, fill, text
from empriv.collect.assemble import Answers, answer, assemble
from empriv.collect.engine import Session
from empriv.collect.queries import Query
from empriv.collect.rewrite import DATABASE, GROUP, INDIVIDUAL, Decomposition, decompose, leave_one_out
from empriv.errors import QueryError
from empriv.results import Results

LARGEST_EXACT = 2**53


def evaluate(session: Session, query: Query) -> Results:
    """Results of an SQL query."""
    plan = decompose(query)
    return _run(session, plan)


def survey(session: Session, plan: Decomposition) -> Facts:
    """What must be known of the arguments before the statement can be written."""
    arguments = {f"a{number}": argument for number, argument in enumerate(plan.arguments)}
    if not arguments:
        return Facts()
    described = session.kinds(plan.rows(*(exp.alias_(argument.copy(), name) for name, argument in arguments.items())))
    kinds = {text(argument): described[name] for name, argument in arguments.items()}
    summed = [argument for argument in plan.summed if kinds[text(argument)] == "double"]
    measures = [exp.alias_(fill("COUNT(*)"), "n")]
    for number, argument in enumerate(summed):
        x = exp.cast(argument.copy(), "DOUBLE", dialect="duckdb")
        for name, template in (
            ("largest", "MAX(ABS(x)) FILTER (WHERE ISFINITE(x))"),
            ("smallest", "MIN(ABS(x)) FILTER (WHERE x <> 0)"),
            ("infinite", "COUNT(*) FILTER (WHERE NOT ISFINITE(x))"),
        ):
            measures.append(exp.alias_(fill(template, x=x), f"{name}{number}"))
    found = session.fetch(plan.rows(*measures))

    def number_of(name: str, default: float) -> float:
        column = found[name]
        return default if column.null[0] else float(column.values[0])

    spans = {}
    for number, argument in enumerate(summed):
        largest = number_of(f"largest{number}", 1.0) or 1.0
        smallest = number_of(f"smallest{number}", largest)
        spans[text(argument)] = Span(
            largest, smallest if math.isfinite(smallest) else largest, number_of(f"infinite{number}", 0) == 0
        )
    return Facts(kinds, spans, int(number_of("n", 0)))


def _run(session: Session, plan: Decomposition) -> Results:
    query = plan.query
    statement = leave_one_out(plan, survey(session, plan))
    groups: list[str] = [""]
    if query.groups:
        groups = _store_groups(session, plan)
    found = session.fetch(as_numbers(session, statement, query))
    if "beyond" in found and bool(np.any(found["beyond"].values & ~found["beyond"].null)):
        raise QueryError(
            "A result is an integer beyond 2^53, where a difference of one is lost in a double. "
            "Hint: divide it, or cast it to DOUBLE to accept the loss."
        )
    entries = found[DATABASE].values
    group = found[GROUP].values if query.groups else np.zeros(1, np.int64)
    answers = Answers(
        entries, found[INDIVIDUAL].values, group, tuple(answer(found[f"q{n}"]) for n in range(len(query.items)))
    )
    return assemble(
        answers,
        databases=session.databases,
        individuals=session.individuals,
        components=component_names(query, groups),
        n_groups=len(groups),
    )


def as_numbers(session: Session, statement: exp.Select, query: Query) -> exp.Select:
    """Cast the results to doubles, if they are numbers, and see where an integer does not fit."""
    kinds = session.kinds(statement)
    outer = exp.select(*(name for name in kinds if not name.startswith("q")))
    beyond = []
    for number, name in enumerate(name for name in kinds if name.startswith("q")):
        kind, value = kinds[name], exp.column(name)
        if kind == "other":
            raise QueryError(
                f"The query must give numbers, but its result {query.names[number]!r} is not one. "
                "Hint: epoch() makes a number of a time."
            )
        outer = outer.select(exp.alias_(fill("CAST(q AS DOUBLE)", q=value), name))
        if kind == "integer":
            beyond.append(fill(f"q > {LARGEST_EXACT} OR q < -{LARGEST_EXACT}", q=value))
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


def _store_groups(session: Session, plan: Decomposition) -> list[str]:
    keys = [f"k{k}" for k in range(len(plan.query.groups))]
    distinct = plan.rows(
        *(exp.alias_(key.copy(), k) for k, key in zip(keys, plan.query.groups, strict=True))
    ).distinct()
    codes = exp.select(f"ROW_NUMBER() OVER (ORDER BY {', '.join(keys)}) - 1 AS code", *keys)
    session.store("empriv_groups", codes.from_(distinct.subquery("empriv_distinct")))
    texts = exp.select(*(f"COALESCE(CAST({k} AS TEXT), 'NULL') AS {k}" for k in keys))
    found = session.fetch(texts.from_("empriv_groups").order_by("code"))
    return [" / ".join(map(str, row)) for row in zip(*(found[k].values for k in keys), strict=True)]
