"""Charts of several protocols: curves with their bands in one picture, and error against risk with the Pareto front."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from empriv.report.charts.chart import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    WIDTH,
    Chart,
    Scale,
    layer,
    numbers,
    records,
    risk_scale,
    round_up,
    spec_of,
    stacked,
)
from empriv.results import FloatArray

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, INK, ORANGE, SKY, FAINT)
_DASHES: tuple[list[int], ...] = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 1], [3, 5])
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_TALL = 340
_PANELS, _PANEL, _GAP = 2, 110, 22.0  # small panels in a row, height of one, and pixels between two
_FAR = 16.0  # pixels from which a label is joined to its mark by a line
_LETTER, _LINE_HEIGHT = 6.7, 14.0  # of a label, in pixels: about 12 points of the page's font


def versus_chart(
    epsilons: FloatArray,
    curves: Mapping[str, FloatArray],
    bands: Mapping[str, Band],
    *,
    start: int,
    name: str,
    title: str,
    axis: str,
    caption: str,
) -> Chart:
    """Curves of several protocols along epsilon in one view; below, each in a panel of its own with its band.

    Bands of many protocols in one view would hide one another and the curves.
    """
    names = list(curves)
    all_values = np.concatenate([np.asarray(curve, float) for curve in curves.values()])
    x, y = Scale(0.0, float(epsilons[-1]) or 1.0), risk_scale(all_values, np.zeros(0))
    below = risk_scale(all_values, np.concatenate([band.upper for band in bands.values()]))  # higher: bands have to fit
    styles = dict(zip(names, zip(_colours(names), _dashes(names), strict=True), strict=True))
    rows = [
        row
        for protocol, curve in curves.items()
        for row in records(epsilon=epsilons, estimate=_falling(y, curve), which=[protocol] * len(epsilons))
    ]
    scales = {"type": "nominal", "field": "which", "sort": names}
    widest = max(map(len, names)) * _LETTER + 45
    legend = {"symbolSize": 500, "rowPadding": 0, "columns": max(1, min(4, int(WIDTH / widest)))}
    colour = {**scales, "legend": legend, "scale": {"domain": names, "range": [style[0] for style in styles.values()]}}
    dash = {**scales, "legend": legend, "scale": {"domain": names, "range": [style[1] for style in styles.values()]}}
    at_x = x.encoding("epsilon", "epsilon")
    lines = layer(
        "lines", {"type": "line", "strokeWidth": 2.2, "clip": True}, rows,
        {"x": at_x, "y": y.encoding("estimate", axis), "color": colour, "strokeDash": dash},
    )  # fmt: skip
    cursor = layer(
        "cursor", {"type": "rule", "color": INK}, records(epsilon=[float(epsilons[min(start, len(epsilons) - 1)])]),
        {"x": at_x},
    )  # fmt: skip
    table: dict[str, Any] = {"epsilon": numbers(epsilons)}
    for protocol, curve in curves.items():
        lower, upper = bands[protocol].at(epsilons)
        table[protocol] = numbers(curve)
        table[f"{protocol}, lower bound"], table[f"{protocol}, upper bound"] = numbers(lower), numbers(upper)
    above = {"width": WIDTH, "height": _TALL, "layer": [lines, cursor]}
    spec = stacked([above, _panels((x, below), epsilons, curves, bands, styles)])
    # Only the frames are aligned, not the labels beside them, so the space between is set here.
    spec |= {"bounds": "flush", "spacing": 86}
    logs = [scale.kind == "log" for scale in (y, below)]
    foot = " Where a scale is logarithmic, 0 is at the bottom." if any(logs) else ""
    return Chart(
        name=name,
        title=title,
        caption=f"{caption}{foot}",
        spec=spec,
        data=table,
        live={"kind": "cursor", "x": x.live(WIDTH), "y": y.live(_TALL), "epsilons": numbers(epsilons)},
    )


@dataclass(frozen=True, eq=False)
class Band:
    """Bounds at a few epsilons in rising order, and what follows for all others.

    A figure falls in epsilon: an upper bound holds for every greater epsilon, a lower one for every smaller. So between
    two epsilons the upper bound of the left one and the lower bound of the right one are taken, and a band is never too
    narrow. There are no bounds before the first.
    """

    epsilons: FloatArray
    lower: FloatArray
    upper: FloatArray

    def at(self, epsilons: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Lower and upper bound at any epsilons; NaN before the first that has bounds of its own."""
        left = np.searchsorted(self.epsilons, epsilons, side="right") - 1
        right = np.searchsorted(self.epsilons, epsilons, side="left")
        lower, upper = np.append(self.lower, 0.0)[right], self.upper[np.maximum(left, 0)]
        return np.where(left < 0, np.nan, lower), np.where(left < 0, np.nan, upper)

    def stairs(self, end: float) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Epsilons, lower and upper bounds of the corners, up to ``end``."""
        inside = self.epsilons <= end
        places = np.append(self.epsilons[inside], end)
        lower = np.append(self.lower, 0.0)[1 : np.count_nonzero(inside) + 1]
        return np.repeat(places, 2)[1:-1], np.repeat(lower, 2), np.repeat(self.upper[inside], 2)


def _panels(
    scales: tuple[Scale, Scale],
    epsilons: FloatArray,
    curves: Mapping[str, FloatArray],
    bands: Mapping[str, Band],
    styles: Mapping[str, tuple[str, list[int]]],
) -> dict[str, Any]:
    """A panel for each protocol: its curve on its band, the others' behind, all on the same scales."""
    x, y = scales
    wide = min(_PANELS, len(curves))
    width = (WIDTH - (wide - 1) * _GAP) / wide
    behind = [
        row
        for protocol, curve in curves.items()
        for row in records(epsilon=epsilons, estimate=_falling(y, curve), which=[protocol] * len(epsilons))
    ]
    ticks = _few(x.high, 4)
    panels = []
    for k, (protocol, curve) in enumerate(curves.items()):
        colour, dash = styles[protocol]
        left, last = k % wide == 0, k + wide >= len(curves)
        at_x = x.encoding("epsilon", "epsilon" if last else None, values=ticks, format=",.6~r")
        labelled = {} if left else {"labels": False, "ticks": False, "domain": False}

        def at_y(field: str, labelled: dict[str, Any] = labelled) -> dict[str, Any]:
            return y.encoding(field, None, **labelled)

        corners, lower, upper = bands[protocol].stairs(x.high)
        band = records(epsilon=corners, lower=_drawn(y, lower), upper=_drawn(y, upper))
        own = records(epsilon=epsilons, estimate=_falling(y, curve))
        panels.append(
            {
                "width": width,
                "height": _PANEL,
                "title": {
                    "text": textwrap.wrap(protocol, max(12, int(width / _LETTER)))[:2] or protocol, "color": INK,
                    "fontSize": 12, "fontWeight": "bold", "anchor": "start", "frame": "group", "offset": 4,
                },
                "layer": [
                    layer(f"band{k}", {"type": "area", "color": colour, "opacity": 0.2}, band,
                          {"x": at_x, "y": at_y("upper"), "y2": {"field": "lower"}}),
                    layer(f"upper{k}", {"type": "line", "color": colour, "strokeWidth": 1.2}, band,
                          {"x": at_x, "y": at_y("upper")}),
                    layer(f"behind{k}", {"type": "line", "color": FAINT, "opacity": 0.45, "strokeWidth": 0.8}, behind,
                          {"x": at_x, "y": at_y("estimate"), "detail": {"field": "which"}}),
                    layer(f"own{k}", {"type": "line", "color": colour, "strokeWidth": 2.4, "strokeDash": dash}, own,
                          {"x": at_x, "y": at_y("estimate")}),
                ],
            }
        )  # fmt: skip
    return {"concat": panels, "columns": wide, "spacing": {"row": 58, "column": _GAP}, "bounds": "flush"}


def _few(high: float, most: int) -> list[float]:
    """Labelled places from 0 on, few enough for a narrow axis."""
    power = 10.0 ** math.floor(math.log10(high / most))
    step = next(k * power for k in (1, 2, 5, 10, 20) if k * power * most >= high)
    return [k * step for k in range(int(high / step * (1 + 1e-9)) + 1)]


def _falling(scale: Scale, curve: FloatArray) -> FloatArray:
    """A falling curve as it is drawn: on a logarithmic scale it ends where it reaches the bottom."""
    drawn = _drawn(scale, curve)
    if scale.kind == "log":
        drawn[np.flatnonzero(drawn <= scale.low)[1:]] = np.nan
    return drawn


def utility_chart(
    points: Mapping[str, tuple[float, float]], front: Sequence[str], *, name: str, title: str, axis: str, caption: str
) -> Chart:
    """Mean error against risk, a mark for each protocol, and a front through those that no other improves on."""
    shown = {protocol: point for protocol, point in points.items() if not any(map(math.isnan, point))}
    names = list(points)
    errors = np.array([point[0] for point in shown.values()])
    risks = np.array([point[1] for point in shown.values()])
    x, y = _error_scale(errors), risk_scale(risks, np.zeros(0))
    at_x, at_y = x.encoding("error", "mean absolute error of the answer"), y.encoding("risk", axis)
    colour = {"field": "which", "type": "nominal", "legend": None, "scale": {"domain": names, "range": _colours(names)}}
    shape = {
        "field": "which", "type": "nominal", "legend": None,
        "scale": {"domain": names, "range": [_SHAPES[(k + k // 6) % 6] for k in range(len(names))]},
    }  # fmt: skip
    drawn_x, drawn_y = _drawn(x, errors), _drawn(y, risks)
    at = {protocol: (float(drawn_x[k]), float(drawn_y[k])) for k, protocol in enumerate(shown)}
    pixels = {protocol: _pixels(x, y, *point) for protocol, point in at.items()}
    places = label_places(pixels, [pixels[protocol] for protocol in front])
    labels = [
        layer(
            f"label{k}",
            {"type": "text", "align": place[2], "baseline": "middle", "dx": place[0], "dy": place[1], "color": INK},
            records(error=[at[protocol][0]], risk=[at[protocol][1]], text=[protocol]),
            {"x": at_x, "y": at_y, "text": {"field": "text"}},
        )
        for k, (protocol, place) in enumerate(places.items())
    ]
    leaders = [
        layer(
            f"leader{k}", {"type": "rule", "color": FAINT, "strokeWidth": 0.8},
            records(error=[at[protocol][0]], risk=[at[protocol][1]]),
            {"x": at_x, "y": at_y, "x2": {"value": pixels[protocol][0] + dx},
             "y2": {"value": pixels[protocol][1] + dy - math.copysign(7.0 if align == "center" else 0.0, dy)}},
        )
        for k, (protocol, (dx, dy, align)) in enumerate(places.items())
        if abs(dy) > _FAR
    ]  # fmt: skip
    line = layer(
        "front", {"type": "line", "color": FAINT, "strokeWidth": 1.5, "strokeDash": [4, 3]},
        records(error=[at[protocol][0] for protocol in front], risk=[at[protocol][1] for protocol in front],
                order=range(len(front))),
        {"x": at_x, "y": at_y, "order": {"field": "order"}},
    )  # fmt: skip
    marks = layer(
        "marks", {"type": "point", "filled": True, "size": 110, "opacity": 1},
        records(error=drawn_x, risk=drawn_y, which=list(shown)),
        {"x": at_x, "y": at_y, "color": colour, "shape": shape},
    )  # fmt: skip
    missing = [protocol for protocol in points if protocol not in shown]
    left = f" Not drawn, because they give no answer: {', '.join(missing)}." if missing else ""
    logs = " and ".join(
        word for word, scale in (("error", x), ("risk", y)) if scale.kind == "log"
    )  # fmt: skip
    scale_said = f" The scale of {logs} is logarithmic, with 0 at its end." if logs else ""
    return Chart(
        name=name,
        title=title,
        caption=f"{caption}{scale_said}{left}",
        spec=spec_of(layer=[line, *leaders, marks, *labels], height=_TALL),
        data={
            "protocol": names,
            "mean absolute error": numbers(np.array([point[0] for point in points.values()])),
            axis: numbers(np.array([point[1] for point in points.values()])),
            "front": ["yes" if protocol in front else "no" for protocol in names],
        },
    )


def label_places(
    at: Mapping[str, tuple[float, float]],
    line: Sequence[tuple[float, float]] = (),
    *,
    width: float = WIDTH,
    height: float = _TALL,
) -> dict[str, tuple[float, float, str]]:
    """(dx, dy, align) of each label, so that none lies on another, on a mark, on ``line`` or outside, if possible.

    Places are tried in the order of how well they read: right, left, above, below, then further away.
    """
    boxes = [(x - 7, y - 7, x + 7, y + 7) for x, y in at.values()]
    for (x, y), (to_x, to_y) in pairwise(line):
        steps = max(1, int(max(abs(to_x - x), abs(to_y - y)) / 4))
        boxes += [
            (x + (to_x - x) * k / steps - 1, y + (to_y - y) * k / steps - 1,
             x + (to_x - x) * k / steps + 1, y + (to_y - y) * k / steps + 1)
            for k in range(steps + 1)
        ]  # fmt: skip
    out: dict[str, tuple[float, float, str]] = {}
    for label, (x, y) in at.items():
        wide = _LETTER * len(label)
        tries = []
        for far in (0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0):
            step = far * _LINE_HEIGHT
            for sign in (-1.0, 1.0) if far else (1.0,):
                tries += [(11.0, sign * step, "left"), (-11.0, sign * step, "right")]
            tries += [(0.0, -15.0 - step, "center"), (0.0, 15.0 + step, "center")]
        best, least = tries[0], math.inf
        for dx, dy, align in tries:
            left = x + dx - {"left": 0.0, "right": wide, "center": wide / 2}[align]
            box = (left, y + dy - _LINE_HEIGHT / 2, left + wide, y + dy + _LINE_HEIGHT / 2)
            outside = box[0] < 0 or box[2] > width or box[1] < 0 or box[3] > height
            cost = sum(_overlap(box, other) for other in boxes) + (1e4 if outside else 0.0)
            if cost < least:
                best, least = (dx, dy, align), cost
            if cost == 0:
                break
        dx, dy, align = best
        left = x + dx - {"left": 0.0, "right": wide, "center": wide / 2}[align]
        boxes.append((left, y + dy - _LINE_HEIGHT / 2, left + wide, y + dy + _LINE_HEIGHT / 2))
        out[label] = best
    return out


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return across * down if across > 0 and down > 0 else 0.0


def _colours(names: Sequence[str]) -> list[str]:
    return [_COLOURS[k % len(_COLOURS)] for k in range(len(names))]


def _dashes(names: Sequence[str]) -> list[list[int]]:
    """With `_colours` no two of a dozen are alike; colour-blind readers still have six dashes."""
    return [_DASHES[k % len(_DASHES)] for k in range(len(names))]


def _error_scale(errors: FloatArray) -> Scale:
    """An axis for errors: logarithmic if those that are not 0 span more than a factor of 20."""
    positive = errors[errors > 0]
    if not len(positive):
        return Scale(0.0, 1.0)
    most, least = float(positive.max()), float(positive.min())
    if most <= 20 * least:
        return Scale(0.0, round_up(1.05 * most))
    bottom = 10.0 ** math.floor(math.log10(least) - (1.0 if len(positive) < len(errors) else 0.0))
    top = round_up(1.2 * most)
    exponents = range(round(math.log10(bottom)), math.floor(math.log10(top)) + 1)
    return Scale(bottom, top, "log", tuple(10.0**k for k in exponents))


def _pixels(x: Scale, y: Scale, error: float, risk: float) -> tuple[float, float]:
    return WIDTH * _share(x, error), _TALL * (1.0 - _share(y, risk))


def _share(scale: Scale, value: float) -> float:
    if scale.kind == "log":
        return math.log(value / scale.low) / math.log(scale.high / scale.low)
    return (value - scale.low) / (scale.high - scale.low)


def _drawn(scale: Scale, values: FloatArray) -> FloatArray:
    """Values as they can be drawn: on a logarithmic scale 0 is at the bottom."""
    values = np.array(values, float)
    return np.maximum(values, scale.low) if scale.kind == "log" else values
