"""What a query may read and call: its rows, the tables handed over, its own WITH, and functions of these alone.

A query may come from somebody who must not learn a row. Whatever it reads beside ``data`` is read with everyone in it,
so that nobody is left out of it: the result would be certified, and tell. Everything is refused here that is not known
to be harmless: kinds of nodes, functions, types and tables are listed by what is allowed. What is looked at is the tree
from which the text for an engine is printed (`printing`). Tree in, nothing out; nothing is run here.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator

from sqlglot import exp, parse
from sqlglot.errors import SqlglotError

from empriv.collecting.sql.functions import (
    BARE,
    BY_NAME,
    CHANGING,
    DRAWING,
    OUTSIDE,
    PURE,
    ROWWISE,
    SYNTAX,
    TABLES,
    meant_instead,
    words,
)
from empriv.collecting.sql.pointing import listed, pointed
from empriv.collecting.sql.printing import OWN_NAMES, called, check_characters
from empriv.errors import QueryError, SourceError

_ROWS = "data"
_ONLY = "The query must read nothing but `data`, the tables handed over, and what it names itself by WITH"
_ALIKE = "The query must give the same result each time"
_RANDOMISED = "Hint: write a randomised query as a Python function of the rows, with `draws`."
_CLOCK = "Hint: write the time that is meant, such as DATE '2020-12-31'."

# Kinds of nodes that a SELECT is made of. Not among them: samples, INTO, locks, parameters, DESCRIBE, SUMMARIZE,
# SHOW, and versions of a table.
_PARTS = words(
    """
    Alias Aliases CTE Column ColumnDef Comprehension Cube DataType DataTypeParam Distinct Except Fetch Filter From
    Group GroupingSets Having HavingMax Identifier IgnoreNulls Intersect Interval IntervalSpan JSONKeyValue JSONPath
    JSONPathKey JSONPathRecursive JSONPathRoot JSONPathSlice JSONPathSubscript JSONPathUnion JSONPathWildcard Join
    Lambda Lateral Limit Offset Order Ordered OverflowTruncateBehavior Pivot PivotAlias Qualify
    RespectNulls Rollup Select Slice Star Subquery Table TableAlias Tuple Union UnpivotColumns Values Var Where Window
    WindowSpec With WithinGroup
    """
)
# Literals, operators, and functions that are written as such.
_OPERATORS = words(
    """
    Add Adjacent All And Any Array ArrayContainedBy ArrayContainsAll ArrayOverlaps AtTimeZone Between BitwiseAnd
    BitwiseLeftShift BitwiseNot BitwiseOr BitwiseRightShift BitwiseXor Boolean Bracket Case Cast Collate DPipe Distance
    Div Dot EQ Escape Exists Extract Factorial GT GTE Glob ILike If In IntDiv Is JSONExtract JSONExtractScalar Kwarg LT
    LTE Like Literal Map Mod Mul NEQ Neg Not Null NullSafeEQ NullSafeNEQ Or Overlaps Paren Pow PropertyEQ RegexpILike
    RegexpLike SimilarTo Struct Sub ToMap TryCast VarMap
    """
)
# Types by the names that the tree has for them, and ways to compare texts: both are written without quotes.
_TYPES = words(
    """
    ARRAY BIGDECIMAL BIGINT BINARY BIT BLOB BOOLEAN CHAR DATE DATETIME DECIMAL DOUBLE FLOAT INT INT128 INTERVAL JSON
    LIST MAP NCHAR NULL NVARCHAR SMALLINT STRUCT TEXT TIME TIMESTAMP TIMESTAMPLTZ TIMESTAMPNTZ TIMESTAMPTZ TIMESTAMP_MS
    TIMESTAMP_NS TIMESTAMP_S TIMETZ TIME_NS TINYINT UBIGINT UINT UINT128 USMALLINT UTINYINT UUID VARBINARY VARCHAR
    """
)
_COLLATIONS = words("binary c nfc noaccent nocase posix")
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_NUMBER = re.compile(r"(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
# What an expression of one row is made of, beside functions.
_ROWWISE = (_OPERATORS - {"All", "Any", "Exists"}) | words(
    """
    Column ColumnDef DataType DataTypeParam Identifier Interval IntervalSpan JSONPath JSONPathKey JSONPathRoot
    JSONPathSubscript Tuple Var
    """
)
DEEPEST = 300  # nodes above a node, in a query that people write or a program does
DEEP = f"The query must not be nested so deep: {DEEPEST} levels are read."


def check(tree: exp.Expr, text: str = "") -> None:
    """Refuse a query that does more than compute from tables; which tables is for `check_tables`.

    Parameters
    ----------
    tree : the query
    text : what the user wrote, in which the place is shown
    """
    for node in tree.walk():
        _check_words(node)
        if isinstance(node, exp.Identifier) and node.name.lower().startswith(OWN_NAMES):
            raise QueryError(f"The query must not use the name {node.name!r}: names of this kind are empriv's own.")
        if isinstance(node, exp.PositionalColumn):
            raise QueryError("The query must name its columns, got a position (#1). Hint: write the column's name.")
        if isinstance(node, exp.TableSample):
            raise QueryError(f"{_ALIKE}, but takes a sample of the rows. {_RANDOMISED}")
        if isinstance(node, exp.CTE) and node.alias.lower() == _ROWS:
            raise QueryError("The query must not name a part of its own `data` (by WITH): the rows are called so.")
        if isinstance(node, exp.Table):
            _check_table(node, text)
        elif isinstance(node, exp.Column):
            if not node.table and node.name.lower() in BARE and not node.this.args.get("quoted"):
                raise _refused(node.name.lower(), text, node.name)
        elif isinstance(node, exp.Func) and _kind(node) not in _OPERATORS:
            _check_call(node, text)
        elif _kind(node) not in _PARTS and _kind(node) not in _OPERATORS:
            raise QueryError(f"The query must be made of plain SELECTs, but has {_kind(node).upper()}.")


def follows_from_row(tree: exp.Expr) -> bool:
    """Whether an expression surely is a value of one row: columns, literals, operators, and functions of these."""
    for node in tree.walk():
        kind = _kind(node)
        if isinstance(node, exp.Func) and kind not in _OPERATORS:
            name = called(node)
            if isinstance(node, exp.AggFunc) or name not in ROWWISE:
                return False
        elif kind not in _ROWWISE:
            return False
    return True


def check_tables(tree: exp.Expr, tables: Collection[str], text: str = "") -> None:
    """Refuse a query that reads a table other than ``tables``, which hold ``data``, and its own WITH."""
    known = {name.lower() for name in tables}
    for table, visible in tables_of(tree, frozenset()):
        if not isinstance(table.this, exp.Identifier) or table.name.lower() in known | visible:
            continue
        others = [name for name in tables if name.lower() != _ROWS]
        there = (
            f"there are {listed([_ROWS, *others])}" if others else f"the rows are called {_ROWS}: write FROM {_ROWS}"
        )
        where, caret = _place(text, table.this.meta.get("start"))
        raise QueryError(f"The query reads a table {table.name!r}{where} that does not exist. Hint: {there}.{caret}")


def check_expression(tree: exp.Expr) -> None:
    """Refuse an expression of one row that reads a table, or does not follow from the row alone."""
    if tree.find(exp.Query) is not None or tree.find(exp.Table) is not None:
        raise QueryError("An expression of columns must not hold a SELECT.")
    check(exp.select(tree.copy()).from_(_ROWS))
    if not follows_from_row(tree):
        raise QueryError("An expression of columns must be a value of one row, without aggregates and windows.")


def reads_tables(expression: str) -> bool:
    """Whether an expression reads more than the columns of its row; what cannot be parsed is taken to."""
    try:
        row_expression(expression)
    except QueryError:
        return True
    return False


def row_expression(text: str) -> exp.Expr:
    """The tree of an expression that follows from one row alone."""
    check_characters(text, "An expression")
    try:
        statements = parse(text, dialect="duckdb")
    except SqlglotError:
        raise QueryError("An expression of columns must be SQL that can be parsed.") from None
    except RecursionError:
        raise QueryError(DEEP) from None
    (tree,) = statements if len(statements) == 1 else (None,)
    if tree is None or isinstance(tree, exp.Query | exp.DDL | exp.DML | exp.Command):
        raise QueryError("An expression of columns must be one expression.")
    without_comments(tree)
    check_expression(tree)
    return tree


def without_comments(tree: exp.Expr) -> None:
    """Take comments out of a tree: written back, one might end somewhere else; and refuse a tree that is too deep."""
    levels = [(tree, 0)]
    while levels:
        node, depth = levels.pop()
        node.comments = None
        if depth > DEEPEST:
            raise QueryError(DEEP)
        levels += [(child, depth + 1) for child in node.iter_expressions()]


def one_select(sql: str, dialect: str = "duckdb") -> exp.Expr:
    """The tree of the one SELECT that a source is; it may read files, since its author sees the rows.

    Raises
    ------
    SourceError : if the text is no statement, several, or one that does not only select
    """
    try:
        statements = [statement for statement in parse(sql, dialect=dialect) if statement is not None]
        statements = [statement for statement in statements if not isinstance(statement, exp.Semicolon)]
        check_characters(sql, "A source given as SQL")
    except QueryError as error:
        raise SourceError(str(error)) from None
    except (SqlglotError, RecursionError):
        raise SourceError("A source given as SQL must be one SELECT, got a text that cannot be parsed.") from None
    if len(statements) != 1:
        raise SourceError(f"A source given as SQL must be one SELECT, got {len(statements)} statements.")
    (statement,) = statements
    while isinstance(statement, exp.Subquery) and statement.is_wrapper:
        statement = statement.this
    writes = statement.find(exp.Into, exp.Command, exp.DDL, exp.DML, exp.Lock, exp.Copy)
    if not isinstance(statement, exp.Select | exp.SetOperation) or writes is not None:
        culprit = statement if writes is None else writes
        raise SourceError(f"A source given as SQL must be one SELECT, got {type(culprit).__name__.upper()}.")
    try:
        for node in statement.walk():
            _check_words(node)
    except QueryError as error:
        raise SourceError(str(error).replace("The query", "A source given as SQL", 1)) from None
    return statement


def _check_words(node: exp.Expr) -> None:
    """Refuse what is printed without quotes and is no plain word or number: types, collations, units, and others."""
    if isinstance(node, exp.DataType):
        kind = node.this.value if isinstance(node.this, exp.DataType.Type) else str(node.this)
        if kind not in _TYPES or node.args.get("kind") is not None or node.args.get("values"):
            raise QueryError("The query must cast to types that every DuckDB has, got another.")
    elif isinstance(node, exp.Collate):
        if node.expression.name.lower() not in _COLLATIONS or isinstance(node.expression, exp.Dot):
            raise QueryError(f"The query must compare texts by one of {listed(sorted(_COLLATIONS))}, got another.")
    elif isinstance(node, exp.Var):
        if _WORD.fullmatch(node.name) is None:
            raise QueryError("The query must have a plain word where SQL has one, got other characters.")
    elif isinstance(node, exp.Literal) and not node.is_string and _NUMBER.fullmatch(node.name) is None:
        raise QueryError("The query must write numbers as 12, 1.5 or 1e6, got another form.")


def _check_table(table: exp.Table, text: str) -> None:
    if isinstance(table.this, exp.Func):
        name = called(table.this)
        if name not in TABLES:
            raise QueryError(f"{_ONLY}, but calls {name}() for a table.{_caret_at_call(name, text)}")
    elif not isinstance(table.this, exp.Identifier) or table.db or table.catalog:
        parts = ".".join(part.name for part in table.parts)
        raise QueryError(f"{_ONLY}, but reads {parts}. Hint: write {table.name} alone.")


def _check_call(node: exp.Func, text: str) -> None:
    name = called(node)
    if isinstance(node.parent, exp.Table):
        return  # seen with the table
    arguments = [value for value in node.iter_expressions() if not isinstance(value, exp.Identifier)]
    if name == "age" and len(arguments) != 2:
        raise _refused("age", text, "age", known=CHANGING | {"age"})
    if name in BY_NAME:
        named = [str(argument.this).lower() for argument in arguments[1:2] if argument.is_string]
        if not PURE.issuperset(named) or not named:
            raise QueryError(f"The query must name the aggregate of {name}() as a text, one that it may call itself.")
    if name not in PURE and name not in SYNTAX:
        raise _refused(name, text, name)


def _refused(name: str, text: str, written: str, *, known: Collection[str] = CHANGING) -> QueryError:
    """Why a function must not be called."""
    if name in known:
        return QueryError(f"{_ALIKE}, but calls {name}(). {_RANDOMISED if name in DRAWING else _CLOCK}")
    if name in OUTSIDE:
        return QueryError(f"{_ONLY}, but calls {name}().{_caret_at_call(name, text)}")
    place = re.search(rf"\b{re.escape(written)}\s*\(", text, re.IGNORECASE)
    where, caret = _place(text, place.start() if place else None)
    written = place.group().rstrip(" (\n\t") if place else written
    return QueryError(f"The query calls a function {written!r}{where} that does not exist{meant_instead(name)}{caret}")


def _kind(node: exp.Expr) -> str:
    return type(node).__name__


def tables_of(node: exp.Expr, visible: frozenset[str]) -> Iterator[tuple[exp.Table, frozenset[str]]]:
    """Every table, with the names of WITH that are known where it stands."""
    if isinstance(node, exp.Table):
        yield node, visible
    with_ = node.args.get("with_") or node.args.get("with")
    if isinstance(with_, exp.With):
        for cte in with_.expressions:
            named = visible | {cte.alias.lower()}
            # Without RECURSIVE, a part that names itself means another table.
            yield from tables_of(cte.this, named if with_.args.get("recursive") else visible)
            visible = named
    for child in node.iter_expressions():
        if child is not with_:
            yield from tables_of(child, visible)


def _caret_at_call(name: str, text: str) -> str:
    place = re.search(rf"\b{re.escape(name)}\s*\(", text, re.IGNORECASE)
    return _place(text, place.start() if place else None)[1]


def _place(text: str, start: int | None) -> tuple[str, str]:
    """Words for a place in a text, and the line with a caret below; both empty where there is none."""
    if start is None or not text:
        return "", ""
    line, column = text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start)
    return f" at line {line}, column {column}", pointed(text, line, column)
