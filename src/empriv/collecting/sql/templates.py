"""SQL trees from templates: text with column names as places, into which trees are put."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import TypeAlias, TypeVar

from sqlglot import exp, parse_one

Node: TypeAlias = "exp.Expr"
AnyNode = TypeVar("AnyNode", bound="exp.Expr")


def text(node: Node) -> str:
    """SQL text of a tree."""
    return str(node.sql(dialect="duckdb"))


def same(one: Node, other: Node) -> bool:
    """Whether two trees are spelt alike; most are told apart without being spelt."""
    return one == other and text(one) == text(other)


def fill(template: str, **nodes: Node | int) -> Node:
    """Parse a template and put trees in the place of the columns of these names."""
    return put(_parsed(template).copy(), nodes)


def query(template: str) -> exp.Select:
    """Parse a SELECT."""
    return _placeless(parse_one(template, dialect="duckdb", into=exp.Select))


def put(tree: Node, nodes: Mapping[str, Node | int]) -> Node:
    """Put trees in the place of the columns of these names."""

    def place(node: Node) -> Node:
        if not isinstance(node, exp.Column) or node.table or node.name not in nodes:
            return node
        value = nodes[node.name]
        if isinstance(value, int):
            number = exp.Literal.number(abs(value))
            return number if value >= 0 else exp.Paren(this=exp.Neg(this=number))
        copied = value.copy()
        return exp.Paren(this=copied) if isinstance(copied, exp.Binary | exp.Neg | exp.Not) else copied

    return tree.transform(place, copy=False)


def in_place_of(table: exp.Table, select: exp.Select) -> exp.Subquery:
    """A SELECT to stand where a table stands, under the same name, with what is joined to it and made of it there."""
    alias = table.args.get("alias") or exp.TableAlias(this=table.this.copy())
    kept = {name: table.args[name] for name in ("joins", "laterals", "pivots") if table.args.get(name)}
    return exp.Subquery(this=select, alias=alias.copy(), **kept)


@lru_cache(maxsize=512)
def _parsed(template: str) -> Node:
    return _placeless(parse_one(template, dialect="duckdb"))


def _placeless(tree: AnyNode) -> AnyNode:
    """A tree that no longer knows where its words stood in the text: copying a tree would mostly be copying that."""
    for node in tree.walk():
        node._meta = None
    return tree
