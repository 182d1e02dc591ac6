"""The aggregates that can be computed without each individual at once.

Each is one entry of `AGGREGATES`: a function that asks a `Builder` for the states it needs and returns the result
as an expression of them. A state is computed once per database and individual, and once per database; the result
with everyone and the result without an individual are then the same expression of different states. How states
become a statement is for `rewrite`.

Sums of doubles are taken in integers: x is multiplied by a power of two and summed as HUGEINT, in as many pieces as
the range of the data needs. Such sums are exact and so do not depend on the order of the rows, and what is left
when the largest value is taken away is exact too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from sqlglot import exp, parse_one

Kind = Literal["integer", "decimal", "double", "boolean", "other"]
Node = exp.Expression


class NotDecomposable(Exception):
    """The query must be run once per individual, for the reason that the message ends in."""


@dataclass(frozen=True)
class Span:
    """Range of a column of doubles: largest and smallest non-zero magnitude, and whether all are finite."""

    largest: float = 1.0
    smallest: float = 1.0
    finite: bool = True


@dataclass(frozen=True)
class Facts:
    """What an engine knows of the arguments of a query's aggregates, each under its SQL text."""

    kinds: Mapping[str, Kind] = field(default_factory=dict)
    spans: Mapping[str, Span] = field(default_factory=dict)
    rows: int = 1

    def kind(self, x: Node) -> Kind:
        return self.kinds.get(text(x), "integer")

    @property
    def bits(self) -> int:
        """How many bits a value may have so that the sum of all rows fits in 127 bits."""
        return 126 - max(1, self.rows).bit_length()


@dataclass
class Builder:
    """Collects the states that the aggregates of one query need; equal states are shared."""

    facts: Facts
    individual: tuple[str, ...] = ()
    additive: dict[str, Node] = field(default_factory=dict)
    extremes: dict[str, tuple[Node, str]] = field(default_factory=dict)
    flags: dict[str, Node] = field(default_factory=dict)

    def add(self, template: str, **nodes: Node | int) -> Node:
        """A state that adds up over individuals: an aggregate over rows."""
        return self._state(self.additive, "s", fill(template, **nodes))

    def extreme(self, x: Node, side: str) -> Node:
        """The largest or smallest value."""
        key = f"{side} {text(x)}"
        for name, (other, other_side) in self.extremes.items():
            if f"{other_side} {text(other)}" == key:
                return exp.column(name)
        name = f"m{len(self.extremes)}"
        self.extremes[name] = (x, side)
        return exp.column(name)

    def count(self, x: Node) -> Node:
        return self.add("COUNT(x)", x=x)

    def total(self, x: Node) -> Node:
        """The exact sum of x, 0 over no rows."""
        kind = self.facts.kind(x)
        if kind == "other":
            raise NotDecomposable("sums of this type are not known")
        if kind != "double":
            return self.add("SUM(x)", x=x)
        span = self.facts.spans.get(text(x), Span())
        finite = x if span.finite else fill("CASE WHEN ISFINITE(x) THEN x END", x=x)
        value: Node | None = None
        for piece, power in pieces(finite, span, self.facts.bits):
            part = fill("CAST(s AS DOUBLE) / POWER(2, k)", s=self.add("SUM(x)", x=piece), k=power)
            value = part if value is None else exp.Add(this=value, expression=part)
        assert value is not None
        if span.finite:
            return value
        plus, minus, nan = (
            self.add(f"COUNT(CASE WHEN {test} THEN 1 END)", x=x)
            for test in ("x = CAST('Infinity' AS DOUBLE)", "x = CAST('-Infinity' AS DOUBLE)", "ISNAN(x)")
        )
        return fill(
            "CASE WHEN nan > 0 OR (plus > 0 AND minus > 0) THEN CAST('NaN' AS DOUBLE) "
            "WHEN plus > 0 THEN CAST('Infinity' AS DOUBLE) WHEN minus > 0 THEN CAST('-Infinity' AS DOUBLE) ELSE v END",
            nan=nan, plus=plus, minus=minus, v=value,
        )  # fmt: skip

    def _state(self, states: dict[str, Node], prefix: str, node: Node) -> Node:
        for name, other in states.items():
            if other == node:
                return exp.column(name)
        name = f"{prefix}{len(states)}"
        states[name] = node
        return exp.column(name)


def pieces(x: Node, span: Span, bits: int) -> list[tuple[Node, int]]:
    """Write x as integers over powers of two, exactly: x = sum of piece / 2 ** power.

    One piece of ``bits`` bits holds every double within a factor of 2 ** (bits - 53) of the largest; smaller ones
    leave a remainder, which the next piece holds. Powers beyond 1000 are not needed: 2 ** -1000 is nothing.
    """
    top = math.frexp(span.largest)[1]
    lowest = math.frexp(span.smallest)[1] - 53
    power = min(bits - top, 1000)
    scaled = fill("x * POWER(2, k)", x=exp.cast(x, "DOUBLE", dialect="duckdb"), k=power)
    found = [(fill("CAST(TRUNC(v) AS HUGEINT)", v=scaled), power)]
    while power < min(-lowest, 1000):
        step = min(bits, 1000 - power)
        scaled = fill("(v - TRUNC(v)) * POWER(2, k)", v=scaled, k=step)
        power += step
        found.append((fill("CAST(TRUNC(v) AS HUGEINT)", v=scaled), power))
    return found


@dataclass(frozen=True)
class Aggregate:
    """How to compute one aggregate.

    Attributes
    ----------
    build : function of a builder and the arguments that gives the result as an expression of states
    arity : number of arguments
    sums : whether arguments of type double are summed, so that their range must be known
    """

    build: Callable[..., Node]
    arity: int = 1
    sums: bool = False


def _sum(b: Builder, x: Node) -> Node:
    return fill("CASE WHEN n > 0 THEN s END", n=b.count(x), s=b.total(x))


def _average(b: Builder, x: Node) -> Node:
    return fill("CASE WHEN n > 0 THEN CAST(s AS DOUBLE) / n END", n=b.count(x), s=b.total(x))


def _all(b: Builder, x: Node) -> Node:
    n, held = b.count(x), b.add("COUNT(CASE WHEN x THEN 1 END)", x=x)
    return fill("CASE WHEN n > 0 THEN held = n END", n=n, held=held)


def _any(b: Builder, x: Node) -> Node:
    n, held = b.count(x), b.add("COUNT(CASE WHEN x THEN 1 END)", x=x)
    return fill("CASE WHEN n > 0 THEN held > 0 END", n=n, held=held)


AGGREGATES: dict[str, Aggregate] = {
    "count": Aggregate(Builder.count),
    "count_if": Aggregate(lambda b, x: b.add("COUNT(CASE WHEN x THEN 1 END)", x=x)),
    "sum": Aggregate(_sum, sums=True),
    "fsum": Aggregate(_sum, sums=True),
    "avg": Aggregate(_average, sums=True),
    "mean": Aggregate(_average, sums=True),
    "min": Aggregate(lambda b, x: b.extreme(x, "MIN")),
    "max": Aggregate(lambda b, x: b.extreme(x, "MAX")),
    "bool_and": Aggregate(_all),
    "bool_or": Aggregate(_any),
}


def text(node: Node) -> str:
    """SQL text of a node, by which equal expressions are known."""
    return str(node.sql(dialect="duckdb"))


def fill(template: str, **nodes: Node | int) -> Node:
    """Parse an SQL template and put nodes in the place of the columns of these names."""
    tree = _parsed(template).copy()

    def put(node: Node) -> Node:
        if not isinstance(node, exp.Column) or node.table or node.name not in nodes:
            return node
        value = nodes[node.name]
        if isinstance(value, int):
            return exp.Literal.number(value) if value >= 0 else exp.Paren(this=exp.Neg(this=exp.Literal.number(-value)))
        return (
            exp.paren(value.copy(), copy=False) if isinstance(value, exp.Binary | exp.Neg | exp.Not) else value.copy()
        )

    return tree.transform(put, copy=False)


@lru_cache(maxsize=256)
def _parsed(template: str) -> Node:
    return parse_one(template, dialect="duckdb")
