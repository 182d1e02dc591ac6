"""What the server must not run for a query, though the query was let in: the second look, at the text sent to it.

`sql.closed_door` looks at queries as they are written, and `dialect` writes what it knows. Here the text is read once
more, as PostgreSQL's: it is one SELECT, reads tables that were handed over, and calls functions on a short list.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from sqlglot import TokenType, exp, parse, tokenize
from sqlglot.errors import SqlglotError

from empriv.collecting.engines.engine import Refused
from empriv.collecting.sql.closed_door import tables_of

_ONLY = "The query must read nothing but `data`, the tables handed over, and what it names itself by WITH"
# Words before a parenthesis: functions of numbers and times, aggregates, and syntax.
_CALLED = frozenset({
    "abs", "bool_and", "bool_or", "ceil", "coalesce", "count", "date_trunc", "floor", "greatest", "least", "ln", "max",
    "min", "nullif", "power", "sum", "trunc",
    "and", "as", "by", "group by", "case", "cast", "distinct", "else", "exists", "filter", "from", "in", "join",
    "materialized", "not", "on", "or", "select", "then", "using", "when", "where", "is", "between", "union", "all",
})  # fmt: skip
_DOING = (exp.Into, exp.Command, exp.DDL, exp.DML, exp.Lock, exp.TableSample)
_MARKS = {TokenType.L_PAREN, TokenType.COMMA, TokenType.PLUS, TokenType.DASH, TokenType.STAR, TokenType.SLASH,
          TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE}  # fmt: skip


def check_sent(text: str, tables: Collection[str]) -> None:
    """Refuse a statement that, as the server reads it, reaches beyond these tables or calls what is not listed."""
    try:
        (tree,) = parse(text, dialect="postgres")
    except (SqlglotError, ValueError):
        raise Refused("The query must be one SELECT that PostgreSQL can parse.") from None
    if not isinstance(tree, exp.Select) or tree.find(*_DOING):
        raise Refused("The query must be one SELECT, which reads and does nothing else.")
    for table, visible in tables_of(tree, frozenset()):
        plain = isinstance(table.this, exp.Identifier) and not table.db and not table.catalog
        if not plain or table.name not in {*tables, *visible}:
            raise Refused(f"{_ONLY}, but reads {'.'.join(part.name for part in table.parts)}.")
    for before, token in pairwise(tokenize(text, read="postgres")):
        if token.token_type is not TokenType.L_PAREN or before.token_type in _MARKS:
            continue
        if before.token_type is TokenType.IDENTIFIER or before.text.lower() not in _CALLED:
            raise Refused(f"{_ONLY}, but calls {before.text}().")
