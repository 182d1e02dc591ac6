"""Quantiles without each individual: the parts of the statement that `rewrite` needs for them.

Rows near the quantile are ranked once. Without an individual, a rank moves by as many of their rows as stand before it.
"""

from __future__ import annotations

from sqlglot import exp

from empriv.collecting.engines.engine import DATABASE, INDIVIDUAL
from empriv.collecting.sql.aggregates import Quantile
from empriv.collecting.sql.printing import query


def most(name: str, quantile: Quantile) -> str:
    """What the totals must hold: the most rows that an individual has."""
    return f"MAX(CASE WHEN NOT {INDIVIDUAL} IS NULL THEN {quantile.n} END) AS {name}_most"


def parts(name: str, quantile: Quantile, keys: list[str]) -> list[tuple[str, exp.Select]]:
    """Rows near the quantile with their places, and how many of them each individual takes away."""
    x, low, high = f"r.{quantile.x.name}", f"c.{quantile.low}", f"c.{quantile.high}"
    k = "".join(f", r.{key}" for key in keys)
    own = "".join(f", {key}" for key in keys)
    near = query(
        f"SELECT r.{DATABASE}{k}, r.{INDIVIDUAL}, {x} AS v, {_below('t', name, quantile)} "
        f"+ ROW_NUMBER() OVER (PARTITION BY r.{DATABASE}{k} ORDER BY {x}) - 1 AS place FROM empriv_rows AS r "
        f"JOIN empriv_scales AS c ON {on('r', 'c', keys)} JOIN empriv_totals AS t ON {on('r', 't', keys)} "
        f"WHERE NOT {x} IS NULL AND ({_wide(name, quantile)} OR ({low} < {high} AND {x} >= {low} AND {x} <= {high}))"
    )
    # The place that a row would have among the rows of others, but for rows below the window.
    mine = query(
        f"SELECT {DATABASE}{own}, {INDIVIDUAL}, place + 1 - ROW_NUMBER() OVER ("
        f"PARTITION BY {DATABASE}{own}, {INDIVIDUAL} ORDER BY place) AS place "
        f"FROM empriv_near_{name} WHERE NOT {INDIVIDUAL} IS NULL"
    )
    below, (first, last) = _below("p", name, quantile), _positions(quantile, f"t.{quantile.n} - p.{quantile.n}")
    taken = query(
        f"SELECT r.{DATABASE}{k}, r.{INDIVIDUAL}, COUNT(CASE WHEN r.place - {below} <= {first} THEN 1 END) AS low, "
        f"COUNT(CASE WHEN r.place - {below} <= {last} THEN 1 END) AS high FROM empriv_mine_{name} AS r "
        f"JOIN empriv_partials AS p ON {on('r', 'p', keys)} AND r.{INDIVIDUAL} = p.{INDIVIDUAL} "
        f"JOIN empriv_totals AS t ON {on('r', 't', keys)} JOIN empriv_scales AS c ON {on('r', 'c', keys)} "
        f"GROUP BY r.{DATABASE}{k}, r.{INDIVIDUAL}"
    )
    return [(f"empriv_near_{name}", near), (f"empriv_mine_{name}", mine), (f"empriv_taken_{name}", taken)]


def joined(name: str, quantile: Quantile, keys: list[str], *, each: bool) -> tuple[list[str], list[tuple[str, str]]]:
    """Columns of the order statistics, and the LEFT JOINs that find them, with everyone or without each."""
    columns, joins = [], []
    left = f"t.{quantile.n}"
    if each:
        left = f"{left} - p.{quantile.n}"
        joins.append(
            (f"empriv_taken_{name} AS {name}_taken", f"{on('p', f'{name}_taken', keys)} "
             f"AND p.{INDIVIDUAL} = {name}_taken.{INDIVIDUAL}")
        )  # fmt: skip
    for side, position in zip(("low", "high"), _positions(quantile, left), strict=True):
        if side == "high" and not quantile.continuous:
            columns.append(f"NULL AS {name}_high")
            continue
        place = position
        if each:
            place = f"{position} + {_below('p', name, quantile)} + COALESCE({name}_taken.{side}, 0)"
        near = f"{name}_near_{side}"
        joins.append((f"empriv_near_{name} AS {near}", f"{on('t', near, keys)} AND {near}.place = {place}"))
        columns.append(f"COALESCE({near}.v, c.{quantile.low}) AS {name}_{side}")
    return columns, joins


def on(one: str, other: str, keys: list[str]) -> str:
    """Same database and same group."""
    return " AND ".join(
        [f"{one}.{DATABASE} = {other}.{DATABASE}", *(f"{one}.{k} IS NOT DISTINCT FROM {other}.{k}" for k in keys)]
    )


def _positions(quantile: Quantile, n: str) -> tuple[str, str]:
    if quantile.continuous:
        place = f"(({n}) - 1) * ({quantile.num} / {quantile.den})"
        return f"CAST(FLOOR({place}) AS BIGINT)", f"CAST(CEIL({place}) AS BIGINT)"
    place = f"CAST(GREATEST(1, (({n}) * {quantile.num} + {quantile.den - 1}) // {quantile.den}) - 1 AS BIGINT)"
    return place, place


def _wide(name: str, quantile: Quantile) -> str:
    return f"COALESCE(t.{name}_most > c.{quantile.room}, FALSE)"


def _below(table: str, name: str, quantile: Quantile) -> str:
    return f"CASE WHEN {_wide(name, quantile)} THEN 0 ELSE {table}.{quantile.below} END"
