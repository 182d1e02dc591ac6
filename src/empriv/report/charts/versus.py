"""Charts of several protocols: curves in one picture, and error against risk with the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from empriv.base.text import visible
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
_LETTER = 6.7  # pixels of a label's letter


def versus_chart(
    epsilons: FloatArray,
    curves: Mapping[str, FloatArray],
    *,
    start: int,
    name: str,
    title: str,
    caption: str,
    axis: str = "delta (most exposed individual)",
) -> Chart:
    """Several curves along epsilon in one view; colours and dashes tell them apart."""
    names = list(curves)
    all_values = np.concatenate([np.asarray(curve, float) for curve in curves.values()])
    x, y = Scale(0.0, float(epsilons[-1]) or 1.0), risk_scale(all_values, np.zeros(0))
    rows = [
        row
        for protocol, curve in curves.items()
        for row in records(epsilon=epsilons, estimate=_falling(y, curve), which=[protocol] * len(epsilons))
    ]
    kind = {"type": "nominal", "field": "which", "sort": names, "legend": {**_legend(names), "symbolSize": 500}}
    colour = {**kind, "scale": {"domain": names, "range": _colours(names)}}
    dash = {**kind, "scale": {"domain": names, "range": [_DASHES[k % len(_DASHES)] for k in range(len(names))]}}
    at_x = x.encoding("epsilon", "epsilon")
    lines = layer(
        "lines", {"type": "line", "strokeWidth": 2.2, "clip": True}, rows,
        {"x": at_x, "y": y.encoding("estimate", axis), "color": colour, "strokeDash": dash},
    )  # fmt: skip
    cursor = layer(
        "cursor", {"type": "rule", "color": INK}, records(epsilon=[float(epsilons[min(start, len(epsilons) - 1)])]),
        {"x": at_x},
    )  # fmt: skip
    foot = " The scale is logarithmic, with 0 at the bottom." if y.kind == "log" else ""
    return Chart(
        name=name,
        title=title,
        caption=f"{caption}{foot}",
        spec=spec_of(layer=[lines, cursor], height=_TALL),
        data={"epsilon": numbers(epsilons), **{protocol: numbers(curve) for protocol, curve in curves.items()}},
    )


def _falling(scale: Scale, curve: FloatArray) -> FloatArray:
    """A falling curve as it is drawn: on a logarithmic scale it ends where it reaches the bottom."""
    values = drawn(scale, curve)
    if scale.kind == "log":
        values[np.flatnonzero(values <= scale.low)[1:]] = np.nan
    return values


def utility_chart(
    points: Mapping[str, tuple[float, float]], front: Sequence[str], *, name: str, title: str, axis: str, caption: str
) -> Chart:
    """Mean error against risk, a mark for each protocol, and a front through those that no other improves on."""
    shown = {protocol: point for protocol, point in points.items() if not any(map(math.isnan, point))}
    names = list(points)
    errors, risks = (np.array([point[k] for point in shown.values()]) for k in (0, 1))
    x, y = _error_scale(errors), risk_scale(risks, np.zeros(0))
    at_x, at_y = x.encoding("error", "mean absolute error of the answer"), y.encoding("risk", axis)
    kind = {"field": "which", "type": "nominal", "sort": names, "legend": _legend(names)}
    colour = {**kind, "scale": {"domain": names, "range": _colours(names)}}
    # with the colours no two of a dozen are alike
    shape = {**kind, "scale": {"domain": names, "range": [_SHAPES[(k + k // 6) % 6] for k in range(len(names))]}}
    rows = records(error=drawn(x, errors), risk=drawn(y, risks), which=list(shown))
    by_name = {row["which"]: row for row in rows}
    ordered = [{**by_name[visible(protocol)], "order": k} for k, protocol in enumerate(front)]
    line = layer(
        "front", {"type": "line", "color": FAINT, "strokeWidth": 1.5, "strokeDash": [4, 3]}, ordered,
        {"x": at_x, "y": at_y, "order": {"field": "order"}},
    )  # fmt: skip
    marks = layer(
        "marks", {"type": "point", "filled": True, "size": 110, "opacity": 1}, rows,
        {"x": at_x, "y": at_y, "color": colour, "shape": shape},
    )  # fmt: skip
    missing = [protocol for protocol in points if protocol not in shown]
    left = f" Not drawn, because they give no answer: {', '.join(missing)}." if missing else ""
    logs = " and ".join(word for word, scale in (("error", x), ("risk", y)) if scale.kind == "log")
    scale_said = f" The scale of {logs} is logarithmic, with 0 at its end." if logs else ""
    return Chart(
        name=name,
        title=title,
        caption=f"{caption}{scale_said}{left}",
        spec=spec_of(layer=[line, marks], height=_TALL),
        data={
            "protocol": names,
            "mean absolute error": numbers(np.array([point[0] for point in points.values()])),
            axis: numbers(np.array([point[1] for point in points.values()])),
            "front": ["yes" if protocol in front else "no" for protocol in names],
        },
    )


def _colours(names: Sequence[str]) -> list[str]:
    return [_COLOURS[k % len(_COLOURS)] for k in range(len(names))]


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


def _legend(names: Sequence[str]) -> dict[str, Any]:
    """As many columns as fit."""
    widest = max(map(len, names)) * _LETTER + 45
    return {"symbolSize": 200, "rowPadding": 0, "columns": max(1, min(4, int(WIDTH / widest)))}


def drawn(scale: Scale, values: FloatArray) -> FloatArray:
    """Values as they can be drawn: on a logarithmic scale 0 is at the bottom."""
    values = np.array(values, float)
    return np.maximum(values, scale.low) if scale.kind == "log" else values
