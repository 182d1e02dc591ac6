"""A statement as DuckDB itself parses it: it must name what our own tree names, and nothing that no query may use.

DuckDB gives the tree of a SELECT as JSON. What matters is on its nodes: tables, columns, functions, samples, parameters
and positions. Nothing is run: the text is only parsed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import duckdb
from sqlglot import exp

from empriv.collecting.engines.duckdb.connection import Connection, querying
from empriv.collecting.engines.engine import Refused, quoted
from empriv.collecting.sql.allowlist import PURE, SYNONYMS, SYNTAX, TABLES
from empriv.collecting.sql.printing import Names, names_in, printed

# In the trees, operators and special forms are functions too; each gives a value of its arguments.
FORMS = frozenset({"count_star", "list_value", "row", "struct_pack", "array_value", "map", "unnest", "date_part"})
_REFUSED = {
    "SHOW_REF": "DESCRIBE", "PARAMETER": "a parameter", "VALUE_PARAMETER": "a parameter",
    "POSITIONAL_REFERENCE": "a position (#1) in the place of a column",
}  # fmt: skip
_UNLIKE = (
    "The query must be read in one way, but DuckDB understands {} in it differently. "
    "Hint: write it more plainly, with names in double quotes."
)


Nodes = tuple[dict[str, Any], ...]
"""The nodes of a SELECT as DuckDB's parser reads it."""


def parsed(serialized: str) -> Nodes:
    """The tree of one SELECT, from what ``json_serialize_sql`` gives."""
    tree = json.loads(serialized)
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        near = re.search(r'at or near ("\w+")', str(tree.get("error_message")))
        where = "" if near is None else f", got what it cannot at {near[1]}"
        raise Refused(
            f"The query must be one SELECT that DuckDB can parse{where}. Hint: a column whose name is a word of SQL, "
            'such as order, group or select, needs double quotes: sum("order").'
        )
    return tuple(_nodes(tree["statements"][0]))


def check_allowed(found: Nodes, tables: Collection[str]) -> None:
    """Refuse a query that reads other tables than these, or calls what no query may call."""
    own = {str(entry["key"]).lower() for node in found for entry in (node.get("cte_map") or {}).get("map", ())}
    known = {name.lower() for name in tables} | own
    for node in found:
        culprit = _culprit(node, known)
        if culprit is not None:
            meant = SYNONYMS.get(culprit.removesuffix("()"))
            hint = "" if meant is None else f" Hint: did you mean {meant!r}?"
            raise Refused(f"The query must read and call nothing but what it was given, but has {culprit}.{hint}")


def check_same(found: Nodes, ours: Names, *, functions: bool = True) -> None:
    """Refuse a statement in which DuckDB finds other tables, columns or functions than we do.

    Parameters
    ----------
    found : DuckDB's tree
    ours : what our own tree names
    functions : whether functions are compared too; as they are written, the two may call them differently
    """
    theirs = _names(found)
    if theirs.tables != ours.tables or theirs.selects != ours.selects:
        raise Refused(_UNLIKE.format("tables"))
    if theirs.columns != ours.columns:
        raise Refused(_UNLIKE.format("columns"))
    if functions and not theirs.functions <= ours.functions | FORMS:
        raise Refused(_UNLIKE.format("functions"))


def _names(nodes: Nodes) -> Names:
    """What a SELECT names, in lower case; parameters of lambdas are columns too."""
    tables: Counter[str] = Counter()
    columns: set[tuple[str, ...]] = set()
    functions: set[str] = set()
    selects = 0
    for node in nodes:
        kind = node.get("type")
        if kind == "BASE_TABLE":
            tables[str(node.get("table_name")).lower()] += 1
        elif kind == "SELECT_NODE":
            selects += 1
        if node.get("class") == "COLUMN_REF":
            columns.add(tuple(str(part).lower() for part in node["column_names"]))
        elif _calls(node):
            functions.add(_called(node))
    return Names(tables, frozenset(columns), frozenset(functions), selects)


def _culprit(node: dict[str, Any], known: Collection[str]) -> str | None:
    kind = node.get("type")
    if node.get("sample") is not None:
        return "a sample"
    if kind in _REFUSED:
        return _REFUSED[str(kind)]
    if kind == "BASE_TABLE":
        path = [part for part in (node.get("catalog_name"), node.get("schema_name"), node.get("table_name")) if part]
        return None if len(path) == 1 and path[0].lower() in known else ".".join(path)
    if kind == "TABLE_FUNCTION":
        name = _called(node.get("function") or {})
        return None if name in TABLES else f"{name}()"
    if _calls(node):
        name = _called(node)
        return None if name in PURE | SYNTAX | TABLES | FORMS else f"{name}()"
    return None


def _calls(node: dict[str, Any]) -> bool:
    """Whether a node calls a function that has a name rather than a sign."""
    if node.get("class") not in ("FUNCTION", "WINDOW") or node.get("is_operator"):
        return False
    return _called(node).isidentifier()


def _called(node: dict[str, Any]) -> str:
    return str(node.get("function_name", "")).lower()


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    stack = [value]
    while stack:
        inner = stack.pop()
        if isinstance(inner, dict):
            yield inner
            stack.extend(inner.values())
        elif isinstance(inner, list):
            stack.extend(inner)


BINDER_CONFIG: dict[str, Any] = {
    "threads": "1",
    "python_enable_replacements": "false",
    "autoinstall_known_extensions": "false",
}
_CLOSED = ("TimeZone = 'UTC'", "enable_external_access = false", "lock_configuration = true")


@dataclass(frozen=True, eq=False)
class Binder:
    """Empty tables of the same columns and types as those that a query may read."""

    connection: Connection
    tables: tuple[str, ...]

    def admit(self, select: exp.Expr, written: tuple[str, Names] | None) -> None:
        """Refuse a query that DuckDB refuses, or in which it finds other names than we do.

        Parameters
        ----------
        select : the query, from which what is sent is printed
        written : the text as somebody wrote it, and what we read in it; None if nobody did
        """
        if written is not None:
            text, ours = written
            found = self.parsed(text)
            check_allowed(found, self.tables)
            check_same(found, ours, functions=False)
        text = printed(select)
        found = self.parsed(text)
        check_allowed(found, self.tables)
        check_same(found, names_in(select))
        with querying():
            self.connection.execute(f"DESCRIBE {text}").fetchall()

    def parsed(self, text: str) -> Nodes:
        """A text as DuckDB reads it."""
        with querying():
            rows = self.connection.execute("SELECT CAST(json_serialize_sql($text) AS VARCHAR)", {"text": text})
            ((serialized,),) = rows.fetchall()
        return parsed(serialized)

    def verify_sql(self, tree: exp.Expr, text: str) -> None:
        """Refuse a statement whose text, as DuckDB reads it, names something else than the tree it was printed from."""
        check_same(self.parsed(text), names_in(tree))

    def close(self) -> None:
        self.connection.close()


def binder_of(tables: Mapping[str, Mapping[str, str]], connection: Connection) -> Binder:
    """Empty tables from the types of their columns, in a connection that holds nothing."""
    for name, columns in tables.items():
        typed = ", ".join(f"{quoted(column)} {kind}" for column, kind in columns.items())
        connection.execute(f"CREATE TABLE {quoted(name)} ({typed})").fetchall()
    return _closed(connection, tables)


def binder_of_arrow(tables: Mapping[str, Any]) -> Binder:
    """Empty tables like those of Arrow."""
    connection = duckdb.connect(":memory:", config=BINDER_CONFIG)
    for name, table in tables.items():
        connection.register("empriv_arrow", table.slice(0, 0))
        connection.execute(f"CREATE TABLE {quoted(name)} AS SELECT * FROM empriv_arrow")
        connection.unregister("empriv_arrow")
    return _closed(connection, tables)


def _closed(connection: Connection, tables: Mapping[str, Any]) -> Binder:
    for setting in _CLOSED:
        connection.execute(f"SET {setting}").fetchall()
    return Binder(connection, tuple(tables))
