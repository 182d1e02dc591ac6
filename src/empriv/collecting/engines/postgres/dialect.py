"""Statements in PostgreSQL's SQL: trees written for DuckDB, of which only those are put that mean the same on both.

What may differ in the last digit, in the order of texts or in what is an error is not written at all: `Untranslated`
says what it was, and the rows are read here instead. Tree in, text out; nothing is run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from sqlglot import exp

from empriv.collecting.sql.templates import Node, fill


class Untranslated(Exception):
    """A part of a statement that the server might understand otherwise; the message names it."""


# Parts of a SELECT, operators and functions that mean the same.
_SAME: tuple[type[exp.Expr], ...] = (
    exp.Select, exp.From, exp.Join, exp.Where, exp.Group, exp.With, exp.CTE, exp.TableAlias, exp.Table, exp.Identifier,
    exp.Column, exp.Alias, exp.Subquery, exp.Paren, exp.Distinct, exp.Literal, exp.Boolean, exp.Null, exp.And, exp.Or,
    exp.Not, exp.Is, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ, exp.In,
    exp.Between, exp.Case, exp.If, exp.Coalesce, exp.Nullif, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Neg, exp.Abs,
    exp.Ceil, exp.Floor, exp.Trunc, exp.Pow, exp.Log, exp.Least, exp.Greatest, exp.Cast, exp.DataType, exp.Count,
    exp.Sum, exp.Min, exp.Max, exp.Filter, exp.TimestampTrunc, exp.IsNan, exp.Var,
)  # fmt: skip
_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Neg, exp.Abs)
_UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND"}
_NUMBERS = {"int2", "int4", "int8", "float8", "numeric"}
_SPELT = {"bool", "int2", "int4", "int8", "text", "varchar", "bpchar", "uuid", "date", "timestamp"}  # alike, as texts
_HALF = "4611686018427387904"  # 2 ** 62, so that both halves of a long integer are short ones

Kinds = Mapping[str, set[str]]
"""The server's types of columns, by name; columns of several tables may share one."""


def in_postgres(tree: Node, kinds: Kinds) -> str:
    """The text of a statement; names are in lower case, as the server's columns are called there."""
    tree = tree.copy()
    for node in tree.walk():
        _check(node, kinds)
    for name in tree.find_all(exp.Identifier):
        name.set("this", name.name.lower())
        name.set("quoted", True)
    holder = exp.Paren(this=tree)
    # What stands deepest first, since what replaces a node is not looked at again.
    for node in reversed(list(tree.walk())):
        said = _in_other_words(node, kinds)
        if said is not node:
            node.replace(said)
    return str(cast(Node, holder.this).sql(dialect="postgres", comments=False))


def _check(node: Node, kinds: Kinds) -> None:
    """Refuse what the server may understand otherwise."""
    if isinstance(node, exp.Star) and isinstance(node.parent, exp.Count):
        return
    if isinstance(node, exp.Anonymous) and node.name.upper() == "ISFINITE" and len(node.expressions) == 1:
        return
    if not isinstance(node, _SAME):
        raise Untranslated(_name(node))
    match node:
        case exp.With() if node.args.get("recursive"):
            raise Untranslated("WITH RECURSIVE")
        case exp.Select() if any(node.args.get(part) for part in ("limit", "offset", "having", "order", "qualify")):
            raise Untranslated("LIMIT, HAVING or ORDER BY")
        case exp.Table() if node.db or not isinstance(node.this, exp.Identifier):
            raise Untranslated("a table function")
        case exp.Join() if (
            node.method or node.side not in ("", "LEFT") or node.kind not in ("", "INNER", "CROSS", "OUTER")
        ):
            raise Untranslated("a join of this kind")
        case exp.Column() if "float4" in kinds.get(node.name.lower(), ()):
            raise Untranslated("a column of type real")  # 32 bits are added up differently
        case exp.Column() if "int2" in kinds.get(node.name.lower(), ()) and node.find_ancestor(*_ARITHMETIC):
            raise Untranslated("arithmetic of a column of type smallint")  # beyond which DuckDB does not go
        case exp.TimestampTrunc() if str(node.args["unit"].name).upper() not in _UNITS or node.args.get("zone"):
            raise Untranslated("a unit of date_trunc")
        case exp.Trunc() if node.args.get("decimals") is not None:
            raise Untranslated("trunc() to digits")
        case exp.Log() if not (isinstance(node.this, exp.Literal) and node.this.this == "2" and node.expression):
            raise Untranslated("log()")
        case exp.Pow() if not (isinstance(node.this, exp.Literal) and node.this.this == "2"):
            raise Untranslated("power()")
        case exp.Var() if not isinstance(node.parent, exp.TimestampTrunc):
            raise Untranslated(_name(node))
        case exp.Cast():
            _check_cast(node, kinds)


def _check_cast(node: exp.Cast, kinds: Kinds) -> None:
    """Types that both engines reach from these columns alike."""
    target = node.to.this
    # What a CASE asks is of no type that its answer has.
    asked = {id(column) for case in node.this.find_all(exp.If) for column in case.this.find_all(exp.Column)}
    columns = [column for column in node.this.find_all(exp.Column) if id(column) not in asked]
    inner = [kind for column in columns for kind in kinds.get(column.name.lower(), ())]
    types = exp.DataType.Type
    allowed = {
        types.DOUBLE: _NUMBERS,
        types.BIGINT: _NUMBERS - {"numeric"},
        types.INT128: _NUMBERS - {"numeric"},
        types.DATE: {"date", "timestamp", "timestamptz"},
        types.TEXT: _SPELT,
        types.VARCHAR: _SPELT,
        types.TIMESTAMP: {"date", "timestamp"},
    }.get(target, set())
    # A literal is a date, a time, or a name of something that is no number: texts from rows may be spelt otherwise.
    known = target in (types.DOUBLE, types.BIGINT, types.INT128, types.DATE, types.TEXT, types.VARCHAR, types.TIMESTAMP)
    if node.args.get("safe") or type(node) is not exp.Cast or not known or not set(inner) <= allowed:
        raise Untranslated(f"CAST AS {node.to.sql('duckdb')}")


def _name(node: Node) -> str:
    if isinstance(node, exp.Anonymous):
        return f"{node.name.lower()}()"
    return f"{node.sql_name().lower()}()" if isinstance(node, exp.Func) else type(node).__name__.upper()


def _in_other_words(node: Node, kinds: Kinds) -> Node:
    match node:
        case exp.Min() | exp.Max() if kinds.get(node.this.unnest().name) == {"bool"}:
            # The server has no order of booleans, but FALSE is the smaller in DuckDB.
            return exp.Anonymous(
                this="BOOL_AND" if isinstance(node, exp.Min) else "BOOL_OR", expressions=[node.this.copy()]
            )
        case exp.Anonymous():
            # NaN is larger than infinity, as in DuckDB.
            inner = _double(node.expressions[0])
            return fill("(x > CAST('-Infinity' AS DOUBLE) AND x < CAST('Infinity' AS DOUBLE))", x=inner)
        case exp.IsNan():
            return fill("(x = CAST('NaN' AS DOUBLE))", x=_double(node.this))
        case exp.Sum() if (whole := _long_integers(node)) is not None:
            return whole
        case exp.Pow() if (power := _power_of_two(node)) is not None:
            return power
        case exp.Pow():
            return exp.Pow(this=_double(node.this), expression=_double(node.expression))
        case exp.Log():
            return fill("(LN(x) / LN(CAST(2 AS DOUBLE)))", x=_double(node.expression))
        case exp.Div():
            # Of integers and of numerics the server's quotient is one of these; DuckDB's is a double.
            return exp.Div(this=_double(node.this), expression=_double(node.expression), typed=True)
        case exp.Literal() if not node.is_string and "e" in str(node.this).lower():
            return exp.cast(exp.Literal.string(str(node.this)), "DOUBLE")
        case exp.Cast() if node.to.this in (exp.DataType.Type.TEXT, exp.DataType.Type.VARCHAR):
            return exp.Collate(this=node.copy(), expression=exp.to_identifier("C", quoted=True))
    return node


def _long_integers(node: exp.Sum) -> Node | None:
    """The sum of integers of up to 125 bits, made of doubles: the server has none, but sums of 64 bits are exact."""
    cast_ = node.this.unnest()
    if not isinstance(cast_, exp.Cast) or cast_.to.this is not exp.DataType.Type.INT128:
        return None
    return fill(
        f"(SUM(CAST(TRUNC(e / h) AS BIGINT)) * {_HALF} + SUM(CAST(e - TRUNC(e / h) * h AS BIGINT)))",
        e=exp.paren(cast_.this.copy()), h=exp.cast(exp.Literal.string(_HALF), "DOUBLE"),
    )  # fmt: skip


def _power_of_two(node: exp.Pow) -> Node | None:
    power, sign = node.expression.unnest(), 1
    if isinstance(power, exp.Neg):
        sign, power = -1, power.this
    if isinstance(power, exp.Literal) and power.this.isdigit():
        return exp.cast(exp.Literal.string(repr(2.0 ** (sign * int(power.this)))), "DOUBLE")
    return None


def _double(node: Node) -> Node:
    return exp.cast(node.copy(), "DOUBLE")
