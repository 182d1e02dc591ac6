"""Sums of doubles without rounding: as sums of long integers, whatever the order of the rows.

A double is an integer times a power of two. One power serves a column whose values are of similar size; where they
are not, each value is written as several integers, for several powers, so that nothing of it is lost.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from sqlglot import exp

from empriv.collecting.sql.templates import Node, fill

# No double has a digit below 2 ** -LOWEST; and POWER(2, LARGEST_POWER) is a double still.
LOWEST, LARGEST_POWER = 1074, 1000


@dataclass(frozen=True)
class Span:
    """Range of a column of doubles: largest and smallest non-zero magnitude, and whether all are finite."""

    largest: float = 1.0
    smallest: float = 1.0
    finite: bool = True


def exact_sum(x: Node, span: Span, bits: int, add: Callable[[Node], Node]) -> Node:
    """The sum of doubles from sums of integers."""
    value: Node | None = None
    for piece, power in pieces(x, span, bits):
        part = _times(fill("CAST(s AS DOUBLE)", s=add(piece)), power, "/")
        value = part if value is None else fill("v + p", v=value, p=part)
    assert value is not None
    return value


def pieces(x: Node, span: Span, bits: int) -> list[tuple[Node, int]]:
    """Write x as integers over powers of two, exactly: x = sum of piece / 2 ** power.

    One piece of ``bits`` bits holds every double within a factor of 2 ** (bits - 53) of the largest; smaller ones
    leave a remainder, which the next piece holds.
    """
    top = math.frexp(span.largest)[1]
    lowest = min(53 - math.frexp(span.smallest)[1], LOWEST)
    x = exp.cast(x.copy(), "DOUBLE", dialect="duckdb")
    power = min(bits - top, LOWEST)
    integer = "HUGEINT" if bits > 62 else "BIGINT"
    found = [(fill(f"CAST(TRUNC(v) AS {integer})", v=_times(x, power, "*")), power)]
    while power < lowest:
        step = min(bits, LOWEST - power)
        # Both terms are exact, and so is their difference; what is larger has no remainder, and might overflow.
        rest = fill(
            "CASE WHEN ABS(x) < POWER(2, l) THEN TRUNC(v) - TRUNC(w) * POWER(2, s) WHEN NOT x IS NULL THEN 0 END",
            x=x, l=53 - power, v=_times(x, power + step, "*"), w=_times(x, power, "*"), s=step,
        )  # fmt: skip
        power += step
        found.append((fill(f"CAST(v AS {integer})", v=rest), power))
    return found


def _times(x: Node, power: int, sign: str) -> Node:
    """x times or over 2 ** power, in two steps where that power is no double."""
    if power <= LARGEST_POWER:
        return fill(f"x {sign} POWER(2, k)", x=x, k=power)
    return fill(f"x {sign} POWER(2, k) {sign} POWER(2, j)", x=x, k=LARGEST_POWER, j=power - LARGEST_POWER)
