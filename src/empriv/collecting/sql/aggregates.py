"""The aggregates that can be computed without each individual at once.

Each is one entry of `AGGREGATES`: a function that asks a `Builder` for the states it needs and returns the result
as an expression of them. A state is known per database and per database and individual; the result with everyone
and the result without an individual are then the same expression of different states. How states become a
statement is for `rewrite`.

Sums of doubles are taken in integers: x is multiplied by a power of two and summed as HUGEINT, in as many pieces as
the range of the data needs. Such sums are exact and so do not depend on the order of the rows, and what is left
when the largest value is taken away is exact too. Squares are taken about the mean of the database, in units of its
range; where little is left of them, the result is flagged, to be computed again from the rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

from sqlglot import exp

from empriv.collecting.sql.printing import Node, fill, same

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


# Windows around a quantile, in shares of the rows on either side; the narrowest that holds MARGIN rows is taken.
WIDTHS = (0.001, 0.01, 0.1)
MARGIN = 64
# Digits after the point of a deviation from the mean, of which none is beyond 1.
MEAN_BITS = 60
Kind = Literal["integer", "decimal", "double", "boolean", "other"]


class NotDecomposable(Exception):
    """The query must be run once per individual, for the reason that the message gives."""


@dataclass(frozen=True)
class Type:
    """What an engine knows of a column: its kind and, for decimals, the digits in all and after the point.

    An engine whose sums of integers are no longer than 64 bits says the digits of integers too.
    """

    kind: Kind
    digits: int = 0
    scale: int = 0


@dataclass(frozen=True)
class Facts:
    """What an engine knows of the arguments of a query's aggregates, by name (empriv_a0 ...).

    ``integer_bits`` is how long the integers are in which the engine adds up doubles exactly. ``drawn`` says that
    databases are random samples of individuals, from the rows of one table.
    """

    types: Mapping[str, Type] = field(default_factory=dict)
    spans: Mapping[str, Span] = field(default_factory=dict)
    rows: int = 1
    integer_bits: int = 126
    drawn: bool = False

    def type(self, x: Node) -> Type:
        return self.types.get(x.name, Type("integer"))

    def span(self, x: Node) -> Span:
        return self.spans.get(x.name, Span())

    @property
    def bits(self) -> int:
        """How many bits a value may have so that the sum of all rows fits in 127 bits."""
        return 126 - max(1, self.rows).bit_length()

    @property
    def piece_bits(self) -> int:
        """The same for the integers in which doubles are added up."""
        return self.integer_bits - max(1, self.rows).bit_length()

    def sum(self, x: Node) -> str:
        """The sum of integers or decimals, as a template; an engine that says how long they are has short sums."""
        return "SUM(CAST(x AS HUGEINT))" if self.type(x).kind == "integer" and self.type(x).digits > 10 else "SUM(x)"


@dataclass(frozen=True)
class Quantile:
    """The order statistics of x at share ``num / den``, and the states and scales from which they follow.

    Attributes
    ----------
    continuous : between two values, rather than at one
    low, high : scales: values that enclose what is looked for
    room : scale: how many rows an individual may have for this to be so, or NULL for any number
    n, below : states: number of values, and of those below ``low``
    """

    x: Node
    num: int
    den: int
    continuous: bool
    low: str
    high: str
    room: str
    n: str
    below: str


@dataclass
class Builder:
    """Collects the states that the aggregates of one query need; equal states are shared.

    Attributes
    ----------
    additive : aggregates over rows that add up over individuals
    extremes : arguments whose largest or smallest value is asked
    scales : aggregates over the rows of a database, known before the states are taken
    kept : scales that the result needs too
    distincts : arguments whose distinct values are counted
    quantiles : order statistics
    flags : when the result must be computed again from the rows
    """

    facts: Facts
    additive: dict[str, Node] = field(default_factory=dict)
    extremes: dict[str, tuple[Node, str]] = field(default_factory=dict)
    scales: dict[str, Node] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    distincts: dict[str, Node] = field(default_factory=dict)
    quantiles: dict[str, Quantile] = field(default_factory=dict)
    flags: list[Node] = field(default_factory=list)

    def add(self, template: str, **nodes: Node | int) -> Node:
        """A state that adds up over individuals: an aggregate over rows."""
        return _named(self.additive, "empriv_s", fill(template, **nodes))

    def scale(self, node: Node) -> Node:
        """An aggregate over a database's rows that states may use."""
        return _named(self.scales, "empriv_c", node)

    def extreme(self, x: Node, side: str) -> Node:
        """The largest or smallest value."""
        for name, (other, other_side) in self.extremes.items():
            if other_side == side and same(other, x):
                return exp.column(name)
        name = f"empriv_m{len(self.extremes)}"
        self.extremes[name] = (x, side)
        return exp.column(name)

    def distinct(self, x: Node) -> Node:
        """The number of distinct values."""
        return _named(self.distincts, "empriv_u", x)

    def quantile(self, x: Node, num: int, den: int, continuous: bool) -> tuple[Node, Node]:
        """The order statistics below and above."""
        shares = [repr(min(1.0, max(0.0, num / den + side * width))) for width in WIDTHS for side in (-1, 1)]
        values = f"QUANTILE_DISC(x, [{', '.join(shares)}])"

        def narrowest(pick: Callable[[int, float], str], otherwise: str) -> str:
            cases = (f"WHEN COUNT(x) * {width} >= {MARGIN} THEN {pick(w, width)}" for w, width in enumerate(WIDTHS))
            return f"CASE {' '.join(cases)} ELSE {otherwise} END"

        low = self.scale(fill(narrowest(lambda w, _: f"{values}[{2 * w + 1}]", "MIN(x)"), x=x))
        high = self.scale(fill(narrowest(lambda w, _: f"{values}[{2 * w + 2}]", "MAX(x)"), x=x))
        room = self.scale(fill(narrowest(lambda _, width: f"FLOOR(COUNT(x) * {width}) - 2", "NULL"), x=x))
        below = self.add("COUNT(CASE WHEN x < l THEN 1 END)", x=x, l=low)
        quantile = Quantile(x, num, den, continuous, low.name, high.name, room.name, self.count(x).name, below.name)
        names = [name for name, other in self.quantiles.items() if _same_quantile(other, quantile)]
        name = names[0] if names else f"empriv_o{len(self.quantiles)}"
        self.quantiles.setdefault(name, quantile)
        return exp.column(f"{name}_low"), exp.column(f"{name}_high")

    @property
    def mean_type(self) -> str:
        """In which integers deviations are added up: in long ones where a sum of short ones is no longer than they."""
        return "BIGINT" if self.facts.integer_bits > 64 else "HUGEINT"

    def count(self, x: Node) -> Node:
        return self.add("COUNT(x)", x=x)

    def total(self, x: Node) -> Node:
        """The exact sum of x, 0 over no rows."""
        kind = self.facts.type(x).kind
        if kind == "other":
            raise NotDecomposable("it adds up values that are not numbers")
        if kind != "double":
            return self.add(self.facts.sum(x), x=x)
        span = self.facts.span(x)
        finite = x if span.finite else fill("CASE WHEN ISFINITE(x) THEN x END", x=x)
        value = exact_sum(finite, span, self.facts.piece_bits, lambda piece: self.add("SUM(x)", x=piece))
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

    def squares(self, x: Node, n: Node) -> tuple[Node, Node]:
        """The sum of squares about the mean, of x in units of a power of two above its range; and that unit's inverse.

        Where all values of a database are the same they are the centre exactly, and the unit is NULL.
        """
        kind, span = self.facts.type(x).kind, self.facts.span(x)
        if kind not in ("integer", "decimal", "double"):
            raise NotDecomposable("it takes moments of values that are not numbers")
        if not span.finite:
            raise NotDecomposable("it takes moments of values of which some are infinite or NaN")
        sum_ = fill(self.facts.sum(x), x=x)
        if kind == "double":
            sum_ = exact_sum(x, span, self.facts.piece_bits, lambda piece: fill("SUM(x)", x=piece))
        number = exp.cast(x.copy(), "DOUBLE", dialect="duckdb")
        centre = self.scale(
            fill(
                "CASE WHEN MIN(x) = MAX(x) THEN MIN(x) ELSE CAST(s AS DOUBLE) / NULLIF(COUNT(x), 0) END",
                x=number,
                s=sum_,
            )
        )
        unit = self.scale(
            fill(
                "CASE WHEN MIN(x) < MAX(x) THEN POWER(2, LEAST(-CEIL(LOG2(MAX(x) / 2 - MIN(x) / 2)) - 1, 1000)) END",
                x=number,
            )
        )
        self.kept |= {unit.name}
        # v is at most 1 in size, so that sums of these integers fit. Means need fewer digits than squares do, and 64
        # bits are quicker than 128.
        v, power = fill("(x - c) * COALESCE(u, 1)", x=number, c=centre, u=unit), self.facts.bits - 2
        back = "CAST(s AS DOUBLE) / POWER(2, k)"
        first = fill(back, s=self.add(f"SUM(CAST(v * POWER(2, k) AS {self.mean_type}))", v=v, k=MEAN_BITS), k=MEAN_BITS)
        second = fill(back, s=self.add("SUM(CAST(v * v * POWER(2, k) AS HUGEINT))", v=v, k=power), k=power)
        moment = fill("GREATEST(p - a * a / NULLIF(n, 0), 0)", p=second, a=first, n=n)
        # Little is left of the squares, or little of the digits that they or the mean are kept in.
        flag = fill(
            "u IS NOT NULL AND n > 1 AND (m <= 0.000001 * p OR p * POWER(2, k) < n * POWER(2, 30) "
            "OR m * POWER(2, j) <= ABS(a))",
            u=unit, n=n, m=moment, p=second, k=power, a=first, j=MEAN_BITS - 30,
        )  # fmt: skip
        if not any(same(flag, other) for other in self.flags):
            self.flags.append(flag)
        return moment, fill("COALESCE(u, 1)", u=unit)


@dataclass(frozen=True)
class Aggregate:
    """How to compute one aggregate.

    Attributes
    ----------
    build : function of a builder and the arguments that gives the result as an expression of states
    sums : whether the argument is added up, so that the range of doubles must be known
    share : whether a number follows the argument, of a quantile
    """

    build: Callable[..., Node]
    sums: bool = False
    share: bool = False


def _sum(b: Builder, x: Node) -> Node:
    return fill("CASE WHEN n > 0 THEN s END", n=b.count(x), s=b.total(x))


def _average(b: Builder, x: Node) -> Node:
    return fill("CASE WHEN n > 0 THEN CAST(s AS DOUBLE) / n END", n=b.count(x), s=b.total(x))


def _holding(b: Builder, x: Node) -> Node:
    return b.add("COUNT(CASE WHEN x THEN 1 END)", x=x)


def _variance(sample: bool, root: bool) -> Callable[[Builder, Node], Node]:
    def build(b: Builder, x: Node) -> Node:
        n = b.count(x)
        moment, unit = b.squares(x, n)
        divisor = fill("NULLIF(n - 1, 0)" if sample else "NULLIF(n, 0)", n=n)
        value = fill("SQRT(m / d) / u" if root else "m / d / u / u", m=moment, d=divisor, u=unit)
        return fill("CASE WHEN n > 1 THEN v END" if sample else "CASE WHEN n > 0 THEN v END", n=n, v=value)

    return build


def _quantile(continuous: bool) -> Callable[[Builder, Node, Node], Node]:
    def build(b: Builder, x: Node, share: Node) -> Node:
        num, den = _fraction(share)
        type_ = b.facts.type(x)
        if type_.kind not in ("integer", "decimal", "double"):
            raise NotDecomposable("it takes quantiles of values that are not numbers")
        n = b.count(x)
        low, high = b.quantile(x, num, den, continuous)
        if not continuous:
            return fill("CASE WHEN n > 0 THEN l END", n=n, l=low)
        place = fill("(n - 1) * (k / d)", n=n, k=num, d=den)
        fraction = fill("p - FLOOR(p)", p=place)
        template = "CAST(l AS DOUBLE) + (CAST(h AS DOUBLE) - CAST(l AS DOUBLE)) * f"
        if type_.kind == "double":
            # Infinite neighbours have no difference, and DuckDB weighs them.
            template = f"CASE WHEN ISFINITE(l) AND ISFINITE(h) THEN {template} ELSE l * (1 - f) + h * f END"
        if type_.kind == "decimal":
            # Between two decimals DuckDB gives a decimal too, cut off: towards zero, or down if it is a long one.
            low, high = (fill("ROUND(CAST(v AS DOUBLE) * p)", v=v, p=10**type_.scale) for v in (low, high))
            template = f"{'TRUNC' if type_.digits <= 18 else 'FLOOR'}(l + (h - l) * f)"
        between = fill(template, l=low, h=high, f=fraction)
        value = fill("CASE WHEN f = 0 THEN CAST(l AS DOUBLE) ELSE b END", f=fraction, l=low, b=between)
        return fill("CASE WHEN n > 0 THEN v / p END", n=n, v=value, p=10**type_.scale)

    return build


def _fraction(share: Node) -> tuple[int, int]:
    if not isinstance(share, exp.Literal) or share.is_string:
        raise NotDecomposable("its quantile is not given as a number")
    fraction = Fraction(share.this)
    if not 0 <= fraction <= 1:
        raise NotDecomposable("its quantile is not between 0 and 1")
    return fraction.numerator, fraction.denominator


def _median(b: Builder, x: Node) -> Node:
    return _quantile(True)(b, x, exp.Literal.number("0.5"))


AGGREGATES: dict[str, Aggregate] = {
    "count": Aggregate(Builder.count),
    "count distinct": Aggregate(Builder.distinct),
    "sum": Aggregate(_sum, sums=True),
    "avg": Aggregate(_average, sums=True),
    "mean": Aggregate(_average, sums=True),
    "min": Aggregate(lambda b, x: b.extreme(x, "MIN")),
    "max": Aggregate(lambda b, x: b.extreme(x, "MAX")),
    "bool_and": Aggregate(lambda b, x: fill("CASE WHEN n > 0 THEN h = n END", n=b.count(x), h=_holding(b, x))),
    "bool_or": Aggregate(lambda b, x: fill("CASE WHEN n > 0 THEN h > 0 END", n=b.count(x), h=_holding(b, x))),
    "var_pop": Aggregate(_variance(sample=False, root=False), sums=True),
    "variance": Aggregate(_variance(sample=True, root=False), sums=True),
    "stddev_pop": Aggregate(_variance(sample=False, root=True), sums=True),
    "stddev_samp": Aggregate(_variance(sample=True, root=True), sums=True),
    "stddev": Aggregate(_variance(sample=True, root=True), sums=True),
    "median": Aggregate(_median),
    "quantile_cont": Aggregate(_quantile(True), share=True),
    "quantile_disc": Aggregate(_quantile(False), share=True),
    "quantile": Aggregate(_quantile(False), share=True),
}


def _same_quantile(one: Quantile, other: Quantile) -> bool:
    return (one.num, one.den, one.continuous) == (other.num, other.den, other.continuous) and same(one.x, other.x)


def _named(states: dict[str, Node], prefix: str, node: Node) -> Node:
    for name, other in states.items():
        if same(other, node):
            return exp.column(name)
    name = f"{prefix}{len(states)}"
    states[name] = node
    return exp.column(name)
