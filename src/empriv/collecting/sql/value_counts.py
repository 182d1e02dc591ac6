"""Entropy and mode without each individual: the parts of the statement that `rewrite` needs for them.

Both follow from how often each value is there; without an individual only values that are theirs are there less often.

Entropy needs the sum of c log2(c) over the counts c, which is taken in long integers: so it is exact, whoever is left
out. The mode without an individual is the most frequent of the values that are not theirs, which is the first in rank
that they lack, or of those that they share with others. Which is taken of several that are as frequent is not said by
SQL, and not by DuckDB's manual either: such results are marked, to be had by running the query.
"""

from __future__ import annotations

from sqlglot import exp

from empriv.collecting.names import DATABASE, INDIVIDUAL
from empriv.collecting.sql.aggregates import COUNT_BITS
from empriv.collecting.sql.quantiles import on
from empriv.collecting.sql.templates import query

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
