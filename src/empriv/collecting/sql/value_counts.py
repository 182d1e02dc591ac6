"""Entropy and mode without each individual: the parts of the statement that `rewrite` needs for them.

Both follow from how often each value is there; without an individual only values that are theirs are there less often.

Entropy needs the sum of c log2(c) over the counts c, which is taken in long integers: so it is exact, whoever is left
out. The mode without an individual is the most frequent of the values that are not theirs, which is the first in rank
that they lack, or of those that they share with others. Which is taken of several that are as frequent is not said by
SQL, and not by DuckDB's manual either: such results are marked, to be had by running the query.
"""

from __future__ import annotations

from sqlglot import exp

from empriv.collecting.engines.engine import DATABASE, INDIVIDUAL
from empriv.collecting.sql.aggregates import COUNT_BITS, Quantile
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


Parts = list[tuple[str, exp.Select]]
Joined = tuple[list[str], list[tuple[str, str]]]


def entropy_parts(name: str, x: str, keys: list[str]) -> Parts:
    """Sums of c log2(c), numbers of values, and what each individual takes away from both."""
    by = ", ".join((DATABASE, *keys))
    counted = f"SELECT {by}, v, CAST(SUM(n) AS BIGINT) AS n FROM empriv_held_{name} GROUP BY {by}, v"
    sums = f"SELECT {by}, SUM({_weighed('n')}) AS s, COUNT(*) AS k FROM empriv_counted_{name} GROUP BY {by}"
    own = (
        f"SELECT h.*, c.n AS every FROM empriv_held_{name} AS h JOIN empriv_counted_{name} AS c "
        f"ON {on('h', 'c', keys)} AND h.v = c.v WHERE NOT h.{INDIVIDUAL} IS NULL"
    )
    taken = (
        f"SELECT {by}, {INDIVIDUAL}, SUM({_weighed('every')} - {_weighed('every - n')}) AS s, "
        f"COUNT(CASE WHEN n = every THEN 1 END) AS k FROM ({own}) AS o GROUP BY {by}, {INDIVIDUAL}"
    )
    return [
        (f"empriv_held_{name}", query(_held(x, by))),
        (f"empriv_counted_{name}", query(counted)),
        (f"empriv_sums_{name}", query(sums)),
        (f"empriv_taken_{name}", query(taken)),
    ]


def entropy_joined(name: str, keys: list[str], *, each: bool) -> Joined:
    """Columns of the sum and the number of values, and the LEFT JOINs that find them."""
    sums, taken = f"{name}_sums", f"{name}_taken"
    joins = [(f"empriv_sums_{name} AS {sums}", on("t", sums, keys)), *([_of_each(name, keys)] if each else [])]
    columns = [
        f"COALESCE({sums}.{column}, 0){f' - COALESCE({taken}.{column}, 0)' if each else ''} AS {name}_{called}"
        for column, called in (("s", "sum"), ("k", "values"))
    ]
    return columns, joins


def mode_parts(name: str, x: str, keys: list[str]) -> Parts:
    """Values in rank; for each individual, the best that they share with others, and the first two that they lack."""
    by = ", ".join((DATABASE, *keys))
    counted = f"SELECT {by}, v, CAST(SUM(n) AS BIGINT) AS n FROM empriv_held_{name} GROUP BY {by}, v"
    ranked = f"SELECT *, ROW_NUMBER() OVER (PARTITION BY {by} ORDER BY n DESC) AS place FROM ({counted}) AS c"
    shared = (
        f"SELECT h.{INDIVIDUAL}, c.*, c.n - h.n AS others FROM empriv_held_{name} AS h JOIN empriv_ranked_{name} AS c "
        f"ON {on('h', 'c', keys)} AND h.v = c.v WHERE NOT h.{INDIVIDUAL} IS NULL"
    )
    in_turn = (
        f"SELECT *, place - ROW_NUMBER() OVER (PARTITION BY {by}, {INDIVIDUAL} ORDER BY place) AS lacking, "
        f"ROW_NUMBER() OVER (PARTITION BY {by}, {INDIVIDUAL} ORDER BY others DESC) AS turn FROM ({shared}) AS s"
    )
    # Whoever lacks none of the ranks up to theirs, or one, lacks the next.
    taken = (
        f"SELECT {by}, {INDIVIDUAL}, 1 + COUNT(CASE WHEN lacking < 1 THEN 1 END) AS place, "
        "2 + COUNT(CASE WHEN lacking < 2 THEN 1 END) AS next, MAX(CASE WHEN turn = 1 THEN v END) AS v, "
        "MAX(CASE WHEN turn = 1 THEN others END) AS n, COALESCE(MAX(CASE WHEN turn = 2 THEN others END), 0) AS runner "
        f"FROM ({in_turn}) AS o GROUP BY {by}, {INDIVIDUAL}"
    )
    return [
        (f"empriv_held_{name}", query(_held(x, by))),
        (f"empriv_ranked_{name}", query(ranked)),
        (f"empriv_taken_{name}", query(taken)),
    ]


def mode_joined(name: str, keys: list[str], *, each: bool) -> Joined:
    """Columns of the mode and of whether several values are as frequent, and the LEFT JOINs that find them."""
    taken, first, second = f"{name}_taken", f"{name}_first", f"{name}_second"
    places = (f"COALESCE({taken}.place, 1)", f"COALESCE({taken}.next, 2)") if each else ("1", "2")
    joins = [_of_each(name, keys)] if each else []
    for other, place in zip((first, second), places, strict=True):
        joins.append((f"empriv_ranked_{name} AS {other}", f"{on('t', other, keys)} AND {other}.place = {place}"))
    value, tied = f"{first}.v", f"COALESCE({first}.n = {second}.n, FALSE)"
    if each:
        lacked, own = f"COALESCE({first}.n, 0)", f"COALESCE({taken}.n, 0)"
        value = f"CASE WHEN {own} > {lacked} THEN {taken}.v ELSE {value} END"
        most = f"CASE WHEN {own} > {lacked} THEN {taken}.runner ELSE GREATEST({own}, COALESCE({second}.n, 0)) END"
        tied = f"{most} > 0 AND {most} = GREATEST({own}, {lacked})"
    return [f"{value} AS {name}", f"{tied} AS {name}_tied"], joins


def _held(x: str, by: str) -> str:
    """How often each individual has a value."""
    return (
        f"SELECT {by}, {INDIVIDUAL}, {x} AS v, COUNT(*) AS n FROM empriv_rows WHERE NOT {x} IS NULL "
        f"GROUP BY {by}, {INDIVIDUAL}, {x}"
    )


def _of_each(name: str, keys: list[str]) -> tuple[str, str]:
    taken = f"{name}_taken"
    return f"empriv_taken_{name} AS {taken}", f"{on('p', taken, keys)} AND p.{INDIVIDUAL} = {taken}.{INDIVIDUAL}"


def _weighed(count: str) -> str:
    """c log2(c) as an integer, 0 for none."""
    integer = f"CAST(ROUND(({count}) * LOG2({count}) * POWER(2, {COUNT_BITS})) AS HUGEINT)"
    return f"CASE WHEN {count} > 0 THEN {integer} ELSE 0 END"
