"""A query as DuckDB itself parses it, looked at once more: what the first look misread, this one reads as it will run.

DuckDB gives the tree of a SELECT as JSON. What matters is on its nodes: tables, functions, samples and parameters.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from typing import Any

from empriv.collecting.sql.functions import PURE, SYNTAX, TABLES
from empriv.errors import QueryError

# In the trees, operators and special forms are functions too; each gives a value of its arguments.
_FORMS = frozenset({"count_star", "list_value", "row", "struct_pack", "array_value", "map", "unnest", "date_part"})
_REFUSED = {"SHOW_REF": "DESCRIBE", "PARAMETER": "a parameter", "VALUE_PARAMETER": "a parameter"}


def check_as_parsed(serialized: str, tables: Collection[str]) -> None:
    """Refuse a query by its tree.

    Parameters
    ----------
    serialized : what ``json_serialize_sql`` gives
    tables : the tables that may be read
    """
    tree = json.loads(serialized)
    if tree.get("error") or len(tree.get("statements", ())) != 1:
        raise QueryError("The query must be one SELECT that DuckDB can parse.")
    nodes = list(_nodes(tree["statements"][0]))
    own = {str(entry["key"]).lower() for node in nodes for entry in (node.get("cte_map") or {}).get("map", ())}
    known = {name.lower() for name in tables} | own
    for node in nodes:
        culprit = _culprit(node, known)
        if culprit is not None:
            raise QueryError(f"The query must read and call nothing but what it was given, but has {culprit}.")


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
    if node.get("class") in ("FUNCTION", "WINDOW") and node.get("function_name") and not node.get("is_operator"):
        name = _called(node)
        return None if not name.isidentifier() or name in PURE | SYNTAX | TABLES | _FORMS else f"{name}()"
    return None


def _called(node: dict[str, Any]) -> str:
    return str(node.get("function_name", "")).lower()


def _nodes(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
        for inner in value.values():
            yield from _nodes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _nodes(inner)
