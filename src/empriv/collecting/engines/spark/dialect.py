"""Statements in Spark's SQL: trees written for DuckDB, with what Spark understands otherwise put in other words.

Tree in, text out; nothing is run here. Spark must run with ``spark.sql.ansi.enabled``, its default since 4.0: without
it, sums that overflow wrap around in silence.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import cast

from sqlglot import exp

from empriv.collecting.engines.engine import DATA, Refused
from empriv.collecting.sql.printing import Node, fill, with_nonce

_SMALL = {"empriv_databases", "empriv_groups", "empriv_scales", "empriv_totals"}
_RANGE = re.compile(r"RANGE\((\d+)\) AS (\w+)\((\w+)\)", re.IGNORECASE)


def to_spark(tree: Node, names: Mapping[str, str], nonce: str) -> str:
    """The text of a statement; ``names`` says what the tables are called in the Spark session."""
    return written(in_spark(tree, names, nonce))


def written(tree: Node) -> str:
    """The text of a statement that is in Spark's words."""
    return str(tree.sql(dialect="spark", identify=True, comments=False))


def in_spark(tree: Node, names: Mapping[str, str], nonce: str) -> Node:
    """A statement in Spark's words; ``names`` says what the tables are called in the Spark session.

    Columns of empriv's own carry the nonce, as its tables do.
    """
    found = _without_ctes(tree.copy())
    shadowed = {cte.alias.lower() for cte in found.find_all(exp.CTE)}
    for select in found.find_all(exp.Select):
        _send_small_tables(select)
    for table in list(found.find_all(exp.Table)):
        name = table.name.lower()
        if table.db or name in shadowed or name not in names:
            continue
        if not table.alias:
            table.set("alias", exp.TableAlias(this=exp.to_identifier(table.name, quoted=table.this.quoted)))
        table.set("this", exp.to_identifier(names[name], quoted=True))
    found = with_nonce(found, nonce, kept=(DATA, *names.values()))
    holder = exp.Paren(this=found)
    # What stands deepest first, since what replaces a node is not looked at again.
    for node in reversed(list(found.walk())):
        said = _in_other_words(node)
        if said is not node:
            node.replace(said)
    return cast(Node, holder.this)


def _without_ctes(tree: Node) -> Node:
    """Named parts written out where they are named, as Spark does itself.

    It gives them numbers besides, by which it fails to see that a part of a statement is one whose rows are kept.
    """
    named = [cte.alias.lower() for cte in tree.find_all(exp.CTE)]
    if len(set(named)) < len(named):
        raise Refused("The query must give each part of WITH a name of its own on Spark.")
    for with_ in list(tree.find_all(exp.With)):
        if with_.args.get("recursive") or with_.parent is None:
            continue
        scope = with_.parent
        for number, cte in enumerate(with_.expressions):
            later = {other.alias.lower() for other in with_.expressions[number:]}
            if any(table.name.lower() in later and not table.db for table in cte.this.find_all(exp.Table)):
                raise Refused("The query must not read a part of WITH before it is named on Spark.")
        for cte in with_.expressions:
            name, columns = cte.alias.lower(), cte.args["alias"].args.get("columns")
            for table in list(scope.find_all(exp.Table)):
                if table.name.lower() == name and not table.db:
                    alias = exp.TableAlias(this=exp.to_identifier(table.alias_or_name), columns=columns)
                    table.replace(exp.Subquery(this=cte.this.copy(), alias=alias, joins=table.args.get("joins")))
        with_.pop()
    return tree


def _send_small_tables(select: exp.Select) -> None:
    """Have tables of one row for each database (and group) sent to every executor.

    Spark cannot know beforehand that they are small, and would move all rows of a database to one task otherwise.
    """
    joins = select.args.get("joins") or []
    if joins:
        first = select.args.get("from_") or select.args.get("from")
        sources = [first.this, *(join.this for join in joins)] if first is not None else []
        small = [one.alias_or_name for one in sources if isinstance(one, exp.Table) and one.name.lower() in _SMALL]
        if small:
            sent = exp.Anonymous(this="BROADCAST", expressions=[exp.to_identifier(name) for name in small])
            select.set("hint", exp.Hint(expressions=[sent]))


def kept_parts(tree: Node) -> tuple[list[tuple[str, Node]], Node]:
    """The parts of a statement that are marked MATERIALIZED, in their order, and the statement that reads them.

    Spark would write each part out wherever it is named, which multiplies the work and the plan: they are to be run
    before, and kept. A part carries those parts before it that are not marked.
    """
    found = tree.copy()
    kept: list[tuple[str, Node]] = []
    for with_ in list(found.find_all(exp.With)):
        others = []
        for cte in with_.expressions:
            if not cte.args.get("materialized"):
                others.append(cte)
                continue
            part = cte.this
            named = {table.name for table in part.find_all(exp.Table)}
            if any(other.alias in named for other in others):
                part = part.copy()
                part.set("with_", exp.With(expressions=[other.copy() for other in others]))
            kept.append((cte.alias, part))
        if others:
            with_.set("expressions", others)
        else:
            with_.pop()
    return kept, found


def plain_ranges(sql: str) -> str:
    """DuckDB's table of the first numbers, as one that Spark has."""
    return _RANGE.sub(lambda m: f"(SELECT EXPLODE(SEQUENCE(0, {int(m[1]) - 1})) AS {m[3]}) AS {m[2]}", sql)


def _in_other_words(node: Node) -> Node:
    match node:
        case exp.DataType() if node.this in (exp.DataType.Type.INT128, exp.DataType.Type.BIGDECIMAL):
            return exp.DataType.build("DECIMAL(38, 0)")
        case exp.Anonymous() if node.name.upper() == "ISFINITE":
            # NaN is larger than infinity in Spark.
            return fill("ABS(x) < CAST('Infinity' AS DOUBLE)", x=node.expressions[0])
        case exp.Trunc() if node.args.get("decimals") is None:
            # Spark has a TRUNC of dates only; the remainder is exact.
            return exp.paren(fill("x - x % 1", x=exp.paren(node.this.copy())))
        case exp.Pow() if _power_of_two(node) is not None:
            return exp.cast(exp.Literal.string(repr(2.0 ** (_power_of_two(node) or 0))), "DOUBLE")
        case exp.Star() if node.args.get("replace") and isinstance(node.parent, exp.Select):
            # Spark leaves columns out of all, and has the new ones beside them.
            new = node.args["replace"]
            node.parent.set("expressions", [*node.parent.expressions, *new])
            return exp.Star(except_=[exp.to_identifier(one.alias, quoted=True) for one in new])
        case exp.Div():
            # Of decimals, Spark's quotient is a decimal of few digits; DuckDB's is a double.
            return exp.Div(this=_double(node.this), expression=_double(node.expression))
        case exp.Ln():
            return fill(
                "CASE WHEN x = 0 THEN CAST('-Infinity' AS DOUBLE) WHEN x < 0 THEN CAST('NaN' AS DOUBLE) ELSE LN(x) END",
                x=node.this,
            )
        case exp.Bracket() if isinstance(node.this, exp.PercentileDisc):
            share = node.this.expression.expressions[int(node.expressions[0].this)]
            ordered = exp.Order(expressions=[exp.Ordered(this=node.this.this.copy())])
            return exp.WithinGroup(this=exp.PercentileDisc(this=share.copy()), expression=ordered)
        case exp.Window() if isinstance(node.this, exp.RowNumber) and node.args.get("order") is None:
            # Spark wants an order, even of rows that are all alike.
            columns = [column.copy() for column in node.args.get("partition_by") or [exp.Literal.number(1)]]
            node.set("order", exp.Order(expressions=[exp.Ordered(this=column) for column in columns]))
    return node


def _power_of_two(node: exp.Pow) -> int | None:
    base, power = node.this, node.expression
    if isinstance(base, exp.Literal) and base.this == "2":
        sign = 1
        power = power.unnest()
        if isinstance(power, exp.Neg):
            sign, power = -1, power.this
        if isinstance(power, exp.Literal) and power.this.isdigit():
            return sign * int(power.this)
    return None


def _double(node: Node) -> Node:
    return exp.cast(node.copy(), "DOUBLE")
