"""Sensible places to clip at: the columns that a query adds up, and quantiles of their values in the rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from sqlglot import exp

from empriv.collecting.engines.engine import ClusterEngine
from empriv.collecting.queries import DATA, query_of
from empriv.collecting.run_options import Run
from empriv.collecting.sources import Databases
from empriv.collecting.sql.templates import fill
from empriv.collecting.sql.templates import query as tree
from empriv.protocols.query_steps import capped_people

_NUMBERS = ("integer", "decimal", "double")


def summed_columns(query: Any) -> tuple[str, ...]:
    """Columns that the query adds up or averages; none of a function of the rows."""
    select = query_of(query).select
    if select is None:
        return ()
    sums = [node for node in select.walk() if isinstance(node, exp.Sum | exp.Avg)]
    return tuple(dict.fromkeys(column.name for node in sums for column in node.find_all(exp.Column)))


def capped_text(query: str, column: str, at: float) -> str:
    """The query with a column capped inside what it adds up: the same as top-coding, as a query of its own."""
    select = query_of(query).select
    assert select is not None
    select = select.copy()
    for node in [node for node in select.walk() if isinstance(node, exp.Column) and node.name == column]:
        capped = fill("CASE WHEN x > cap THEN cap ELSE x END", x=node.copy(), cap=exp.Literal.number(f"{at:.17g}"))
        node.replace(capped)
    return str(select.sql(dialect="duckdb"))


def capped_people_text(query: str, individual: Sequence[str], at: float) -> str:
    """The query with what each person adds capped, as a query of its own; see `protocols.cap_people`."""
    select = capped_people(query_of(query), individual, at).select
    assert select is not None
    return str(select.sql(dialect="duckdb"))


def adds_people_up(query: Any) -> bool:
    """Whether the answer is one sum or one count, so that what a person adds is what they move it by."""
    select = query_of(query).select
    if not isinstance(select, exp.Select) or len(select.expressions) != 1 or select.args.get("group"):
        return False
    item = select.expressions[0].unalias()
    item = item.this if isinstance(item, exp.Filter) else item
    return type(item) in (exp.Sum, exp.Count) and not item.find(exp.Distinct)


def rounded_text(query: str, to: float) -> str:
    """The query with its one answer rounded to multiples of ``to``, as a query of its own."""
    select = query_of(query).select
    assert select is not None
    select = select.copy()
    answer = select.expressions[-1]
    inner = answer.this if isinstance(answer, exp.Alias) else answer
    # by a whole number where that is the same, so that a tenth comes out as the decimal that people write
    parts = round(1 / to)
    whole = parts > 1 and math.isclose(parts * to, 1.0, rel_tol=1e-12)
    form, step = ("ROUND((x) * step) / step", float(parts)) if whole else ("ROUND((x) / step) * step", to)
    inner.replace(fill(form, x=inner.copy(), step=exp.Literal.number(f"{step:.17g}")))
    return str(select.sql(dialect="duckdb"))


def value_quantiles(
    data: Databases, columns: Sequence[str], levels: Sequence[float], run: Run
) -> dict[str, tuple[float, ...]]:
    """Quantiles of the values of those columns of ``data`` that hold numbers; none of rows on a cluster."""
    engine, _ = run.on(data)
    if isinstance(engine, ClusterEngine):
        return {}
    with engine.session(data) as session:
        own = {name.lower(): name for name in session.columns[DATA]}
        named = [own[column.lower()] for column in columns if column.lower() in own]
        named = [name for name in named if name.lower() not in {whose.lower() for whose in data.individual}]
        if not named:
            return {}
        quoted = {name: exp.to_identifier(name, quoted=True).sql("duckdb") for name in named}
        types = session.types(tree(f"SELECT {', '.join(quoted.values())} FROM {DATA}"))
        named = [name for name in named if types[name].kind in _NUMBERS]
        asked = {(name, level): f"q{place}_{k}" for place, name in enumerate(named) for k, level in enumerate(levels)}
        if not asked:
            return {}
        # NaN sorts above all numbers, and is no place to clip at
        items = ", ".join(
            f"QUANTILE_CONT(CAST({quoted[name]} AS DOUBLE), {level!r}) "
            f"FILTER (WHERE ISFINITE(CAST({quoted[name]} AS DOUBLE))) AS {alias}"
            for (name, level), alias in asked.items()
        )
        row = session.fetch(tree(f"SELECT {items} FROM {DATA}"))
    values = {
        name: tuple(float(np.asarray(row[asked[name, level]].values, float)[0]) for level in levels) for name in named
    }
    return {name: quantiles for name, quantiles in values.items() if all(map(np.isfinite, quantiles))}
