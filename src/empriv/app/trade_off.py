"""The chart of error against risk: where each way stands, where its slider is, and the target as a line.

Both axes are logarithmic, and what is less than they show stands at their end. Coordinates are made here, and drawn by
a template, so that nothing from data is markup.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 420, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 410, 34, 258
_LEAST = 1e-4  # the smallest risk that is drawn
_COLOURS = {"as-is": "#333333", "noise": "#0072b2", "rounding": "#d55e00", "clipping": "#009e73"}
_DASHES = {"rounding": "6 3", "clipping": "2 3"}


@dataclass(frozen=True)
class Place:
    """What one stop of a slider costs and reveals; ``here`` is where the slider stands."""

    error: float
    delta: float
    here: bool = False


@dataclass(frozen=True)
class Curve:
    """One way as it is drawn."""

    title: str
    colour: str
    dash: str
    points: str
    dots: tuple[tuple[float, float], ...]
    mark: tuple[float, float] | None
    legend: float


@dataclass(frozen=True)
class TradeOff:
    """A chart as its template needs it: ticks are (where, what), the target is where its line is."""

    curves: tuple[Curve, ...]
    across: tuple[tuple[float, str], ...]
    upwards: tuple[tuple[float, str], ...]
    target: float | None
    left: int = _LEFT
    right: int = _RIGHT
    top: int = _TOP
    bottom: int = _BOTTOM
    width: int = WIDTH
    height: int = HEIGHT


def chart_of(ways: Sequence[tuple[str, str, Sequence[Place]]], target: float | None) -> TradeOff | None:
    """The chart of ways, each with its key, its title and its places; None if nothing is measured yet."""
    places = [place for _, _, of_way in ways for place in of_way if math.isfinite(place.error)]
    errors = [place.error for place in places if place.error > 0]
    if not errors:
        return None
    risks = [max(place.delta, _LEAST) for place in places]
    limits = [] if target is None else [max(target, _LEAST)]
    across = _Axis.of(min(errors), max(errors), _LEFT + 8, _RIGHT)
    upwards = _Axis.of(min([*risks, *limits]), max([*risks, *limits]), _BOTTOM, _TOP)
    curves = []
    for number, (key, title, of_way) in enumerate(ways):
        drawn = [(across.at(place.error), upwards.at(place.delta), place.here) for place in of_way]
        dots = tuple((x, y) for x, y, _ in drawn)
        curves.append(
            Curve(
                title, _COLOURS[key], _DASHES.get(key, ""), " ".join(f"{x},{y}" for x, y in dots), dots,
                next(((x, y) for x, y, here in drawn if here), None), _LEFT + 90.0 * number,
            )
        )  # fmt: skip
    line = None if target is None else upwards.at(target)
    return TradeOff(tuple(curves), across.ticks(), upwards.ticks(), line)


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis between two values, drawn between two ends."""

    low: float
    high: float
    begin: float
    end: float

    @staticmethod
    def of(low: float, high: float, begin: float, end: float) -> _Axis:
        wide = max(high / low, 4.0)
        return _Axis(low / wide**0.06, low * wide**1.06, begin, end)

    def at(self, value: float) -> float:
        value = min(max(value, self.low), self.high)
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return round(self.begin + share * (self.end - self.begin), 1)

    def ticks(self) -> tuple[tuple[float, str], ...]:
        steps = [
            float(f"{first}e{power}")
            for power in range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for first in (1, 2, 5)
        ]
        inside = [step for step in steps if self.low <= step <= self.high]
        if len(inside) > 7:
            inside = [step for step in inside if f"{step:e}".startswith("1")] or inside[::3]
        return tuple((self.at(step), f"{step:g}") for step in inside)
