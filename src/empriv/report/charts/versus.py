"""Charts of several protocols: curves in one picture, and error against risk with the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
)
from empriv.results import FloatArray

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, INK, ORANGE, SKY, FAINT)
_DASHES: tuple[list[int], ...] = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 1], [3, 5])
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_TALL = 340
_FAR = 16.0  # pixels from which a label is joined to its mark by a line
_LETTER, _LINE_HEIGHT = 6.7, 14.0  # of a label, in pixels: about 12 points of the page's font


def versus_chart(
    epsilons: FloatArray,
    curves: Mapping[str, FloatArray],
    *,
    start: int,
    name: str,
    title: str,
    axis: str,
    caption: str,
) -> Chart:
    """Curves of several protocols along epsilon in one view."""
    names = list(curves)
    all_values = np.concatenate([np.asarray(curve, float) for curve in curves.values()])
    x, y = Scale(0.0, float(epsilons[-1]) or 1.0), risk_scale(all_values, np.zeros(0))
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
        table[protocol] = numbers(curve)
    foot = " The scale is logarithmic, with 0 at the bottom." if y.kind == "log" else ""
    return Chart(
        name=name,
        title=title,
        caption=f"{caption}{foot}",
        spec=spec_of(layer=[lines, cursor], height=_TALL),
        data=table,
    )


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
