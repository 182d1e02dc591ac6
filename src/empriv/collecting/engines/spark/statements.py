"""Statements in Spark's SQL: put in other words where Spark understands DuckDB's otherwise, and checked again there.

`sql.allowlist` looks at queries as they are written, in DuckDB's language. Here every statement is looked at as Spark
is given it. It may read the session's own views, and call functions that are Spark's own and answer alike each time.
Tables of the cluster's catalogue, files (``parquet.`path```), functions that somebody registered, and functions of the
clock, of chance, of files, of the user or of Java are refused before Spark is asked.

Tree in, text out; nothing is run here. Spark must run with ``spark.sql.ansi.enabled``, its default since 4.0: without
it, sums that overflow wrap around in silence.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise
from typing import cast

from sqlglot import Token, TokenType, exp, tokenize

from empriv.collecting.engines.engine import DATA, Refused
from empriv.collecting.sql.allowlist import ALIKE, ONLY, RANDOMISED
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


# Answers that differ each time, or with where a row happens to lie.
_CHANGING = frozenset({
    "aes_encrypt", "curdate", "current_date", "current_time", "current_timestamp", "current_timezone", "localtime",
    "localtimestamp", "monotonically_increasing_id", "now", "rand", "randn", "random", "randstr", "shuffle",
    "spark_partition_id", "uniform", "uuid",
})  # fmt: skip
# Of the clock when they are called without an argument.
_CHANGING_WITHOUT_ARGUMENT = frozenset({"unix_timestamp", "to_unix_timestamp"})
# What looks at files, the user, the catalogue or Java, or says a row's value in an error.
_OUTSIDE = frozenset({
    "assert_true", "collations", "current_catalog", "current_database", "current_path", "current_schema",
    "current_user", "from_avro", "from_protobuf", "identifier", "input_file_block_length", "input_file_block_start",
    "input_file_name", "java_method", "python_worker_logs", "raise_error", "read_files", "reflect", "schema_of_avro",
    "session_user", "sql_keywords", "to_avro", "to_protobuf", "try_reflect", "user", "version",
})  # fmt: skip
# Read as a call, without parentheses, where no column is called so.
_BARE = frozenset({
    "current_date", "current_time", "current_timestamp", "current_user", "localtime", "localtimestamp",
    "session_user", "user",
})  # fmt: skip
# The packages of Spark's own functions; of those that were registered, it tells others.
_OWN = "org.apache.spark.sql.catalyst."


def check_tables(tree: Node, views: Collection[str]) -> None:
    """Refuse a statement, put in Spark's words, that reads anything but these views and its own recursive WITH."""
    if tree.find(exp.TableSample) is not None:
        raise Refused(f"{ALIKE}, but takes a sample of the rows. {RANDOMISED}")
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Func):
            continue  # looked at as a call
        plain = isinstance(table.this, exp.Identifier) and not table.db and not table.catalog
        if not plain or (table.name not in views and not _within_its_with(table)):
            raise Refused(f"{ONLY}, but reads {'.'.join(part.name for part in table.parts)}.")


def check_calls(text: str, columns: Collection[str], class_of: Callable[[str], str | None]) -> None:
    """Refuse a statement, as Spark is given it, that calls what is not Spark's own or does not answer alike.

    Parameters
    ----------
    text : the statement
    columns : names of columns, which may be those of functions that are called without parentheses
    class_of : function that gives the class behind a function's name in the Spark session, None if there is none
    """
    if "${" in text:
        # Spark puts settings and the environment there, also within quotes.
        raise Refused("The query must not hold ${, which Spark replaces by settings.")
    tokens = tokenize(text, read="spark")
    named = {column.lower() for column in columns} | {
        token.text.lower() for before, token in pairwise(tokens) if _is(before, "as")
    }
    for place, token in enumerate(tokens):
        name = token.text.lower()
        if token.token_type in (TokenType.STRING, TokenType.NUMBER):
            continue
        before = tokens[place - 1] if place else None
        after = tokens[place + 1 : place + 3]
        if before is not None and _is(before, "as"):
            continue  # the name of a column, of a table with its columns, or a type
        if not after or after[0].token_type is not TokenType.L_PAREN:
            of_table = before is not None and before.token_type is TokenType.DOT
            if name in _BARE and name not in named and not of_table:
                raise refused(name)
            continue
        if before is not None and before.token_type is TokenType.DOT:
            raise Refused(f"The query must call functions of Spark's own, but calls {name}() of a schema.")
        without = len(after) > 1 and after[1].token_type is TokenType.R_PAREN
        if name in _CHANGING | _OUTSIDE or (without and name in _CHANGING_WITHOUT_ARGUMENT):
            raise refused(name)
        home = class_of(name) if name.replace("_", "").isalnum() else None
        if home is not None and not home.startswith(_OWN):
            raise Refused(
                f"The query must call functions of Spark's own, but {name}() was registered in the session, and what "
                "it does is not known. Hint: a Python function of the rows can be a query itself."
            )


def refused(name: str) -> Refused:
    """Why a function of Spark's must not be called."""
    if name in _OUTSIDE:
        return Refused(f"{ONLY}, but calls {name}().")
    return Refused(f"{ALIKE}, but calls {name}(). {RANDOMISED}")


def _is(token: Token, word: str) -> bool:
    return token.token_type is not TokenType.STRING and token.text.lower() == word


def _within_its_with(table: exp.Table) -> bool:
    """Whether a table is one of WITH RECURSIVE, where that is known; other parts were written out before."""
    scope = table.parent
    while scope is not None:
        with_ = scope.args.get("with_") or scope.args.get("with")
        if isinstance(with_, exp.With) and any(cte.alias.lower() == table.name.lower() for cte in with_.expressions):
            return True
        scope = scope.parent
    return False
