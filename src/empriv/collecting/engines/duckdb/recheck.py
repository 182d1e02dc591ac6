"""A statement as DuckDB itself parses it: it must name what our own tree names, and nothing that no query may use.

DuckDB gives the tree of a SELECT as JSON. What matters is on its nodes: tables, columns, functions, samples, parameters
and positions. Nothing is run: the text is only parsed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from empriv.collecting.engines.engine import Refused
from empriv.collecting.sql.functions import PURE, SYNTAX, TABLES
from empriv.collecting.sql.printing import Names

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


@dataclass(frozen=True)
class Parsed:
    """A SELECT as DuckDB's parser reads it."""

    nodes: tuple[dict[str, Any], ...]

    def names(self) -> Names:
        """What it names, in lower case; parameters of lambdas are columns too."""
        tables: Counter[str] = Counter()
        columns: set[tuple[str, ...]] = set()
        functions: set[str] = set()
        selects = 0
        for node in self.nodes:
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


def parsed(serialized: str) -> Parsed:
    """The tree of one SELECT, from what ``json_serialize_sql`` gives."""
    tree = json.loads(serialized)
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        raise Refused("The query must be one SELECT that DuckDB can parse.")
    return Parsed(tuple(_nodes(tree["statements"][0])))


def check_allowed(found: Parsed, tables: Collection[str]) -> None:
    """Refuse a query that reads other tables than these, or calls what no query may call."""
    own = {str(entry["key"]).lower() for node in found.nodes for entry in (node.get("cte_map") or {}).get("map", ())}
    known = {name.lower() for name in tables} | own
    for node in found.nodes:
        culprit = _culprit(node, known)
        if culprit is not None:
            raise Refused(f"The query must read and call nothing but what it was given, but has {culprit}.")


def check_same(found: Parsed, ours: Names, *, functions: bool = True) -> None:
    """Refuse a statement in which DuckDB finds other tables, columns or functions than we do.

    Parameters
    ----------
    found : DuckDB's tree
    ours : what our own tree names
    functions : whether functions are compared too; as they are written, the two may call them differently
    """
    theirs = found.names()
    if theirs.tables != ours.tables or theirs.selects != ours.selects:
        raise Refused(_UNLIKE.format("tables"))
    if theirs.columns != ours.columns:
        raise Refused(_UNLIKE.format("columns"))
    if functions and not theirs.functions <= ours.functions | FORMS:
        raise Refused(_UNLIKE.format("functions"))


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
