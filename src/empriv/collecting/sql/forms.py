"""`form_of`: the one form of a query, however it is spelt, by which a ledger knows it again.

Spaces, case, comments, quotes around names, parentheses that change nothing, and names given to results and to tables
do not make another query. Whatever else differs does, although the answer may be the same: it then counts as a further
query, which errs on the private side.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any


@lru_cache(maxsize=1024)
def form_of(query: str) -> str:
    """The form of SQL text; of text that cannot be parsed, such as the name of a function, the text itself."""
    text = query.strip()
    try:
        return json.dumps([_shape(tree) for tree in _trees(text)], sort_keys=True, separators=(",", ":"))
    # Whatever a parser does with text from anybody, the text itself is left to tell the query by.
    except Exception:
        return json.dumps(text)


def _trees(text: str) -> list[Any]:
    from sqlglot import exp, parse

    return [_plain(tree, exp) for tree in parse(text, dialect="duckdb") if tree is not None]


def _plain(tree: Any, exp: Any) -> Any:
    """The parsed query without what does not change its answer."""
    tree = exp.Paren(this=tree)
    while (inner := next(tree.this.find_all(exp.Paren), None)) is not None:
        inner.replace(inner.this)
    tree = tree.this.copy()
    while isinstance(tree, exp.Subquery) and tree.is_wrapper:
        tree = tree.this
    if not isinstance(tree, exp.Query):
        tree = exp.select(tree)
    if isinstance(tree, exp.Select) and not (tree.args.get("from_") or tree.args.get("from")):
        tree = tree.from_("data")
    for name in tree.find_all(exp.Identifier):  # DuckDB's names are the same in any case, quoted or not
        name.set("this", name.name.lower())
        name.set("quoted", False)
    for call in tree.find_all(exp.Anonymous):
        call.set("this", call.name.lower())
    _drop_result_names(tree, exp)
    _drop_table_names(tree, exp)
    return tree


def _drop_result_names(tree: Any, exp: Any) -> None:
    """Names of the outermost results, unless something refers to them."""
    used = {column.name for column in tree.find_all(exp.Column)}
    if isinstance(tree, exp.Select):
        items = [item.this if isinstance(item, exp.Alias) and item.alias not in used else item for item in tree.selects]
        tree.set("expressions", items)


def _drop_table_names(tree: Any, exp: Any) -> None:
    """Another name of the only table, and that name before its columns; with several tables names stay as they are."""
    tables = list(tree.find_all(exp.Table))
    if len(tables) != 1 or len(list(tree.find_all(exp.Select))) != 1:
        return
    known = tables[0].alias_or_name
    tables[0].set("alias", None)
    for column in tree.find_all(exp.Column):
        if column.table == known:
            column.set("table", None)


def _shape(node: Any) -> Any:
    """The tree as lists: kinds of nodes and their parts, without comments and places in the text."""
    if isinstance(node, list | tuple):
        return [_shape(one) for one in node]
    if hasattr(node, "args"):
        parts = {name: _shape(part) for name, part in node.args.items() if part not in (None, False, [], "")}
        return [type(node).__name__, parts]
    return node if isinstance(node, str | int | float | bool) or node is None else str(node)
