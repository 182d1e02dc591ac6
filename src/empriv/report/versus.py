"""Charts of several protocols: curves and bounds in one picture, and error against risk with the Pareto front."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from empriv.report.chart import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
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

_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, INK, ORANGE)
_DASHES: tuple[list[int], ...] = ([1, 0], [7, 3], [2, 2], [9, 3, 2, 3], [4, 1], [1, 4])
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_TALL = 340
_BAR = 5.0  # pixels from one protocol's bar to the next one's
_FAR = 16.0  # pixels from which a label is joined to its mark by a line
_LETTER, _LINE_HEIGHT = 6.7, 14.0  # of a label, in pixels: about 12 points of the page's font


def versus_chart(
    epsilons: FloatArray,
    curves: Mapping[str, tuple[FloatArray, FloatArray, FloatArray]],
    *,
    start: int,
    bounded: Sequence[float],
    name: str,
    title: str,
    axis: str,
    caption: str,
) -> Chart:
    """Curves of several protocols along epsilon: (estimate, lower, upper) of each.

    Bands of many protocols would hide one another: where bounds were found they are bars, side by side.
    """
    here = np.isin(epsilons, bounded)
    every = np.concatenate([one[0] for one in curves.values()])
    uppers = np.concatenate([one[2][here] for one in curves.values()])
    x, y = Scale(0.0, float(epsilons[-1]) or 1.0), risk_scale(every, uppers)
    names, colours = list(curves), _colours(list(curves))
    rows = [
        row
        for which, (estimate, _, _) in curves.items()
        for row in records(epsilon=epsilons, estimate=_drawn(y, estimate), which=[which] * len(epsilons))
    ]
    at_x, at_y = x.encoding("epsilon", "epsilon"), y.encoding("estimate", axis)
    colour = {"field": "which", "type": "nominal", "sort": names, "scale": {"domain": names, "range": colours}}
    dash = {
        "field": "which", "type": "nominal", "sort": names,
        "scale": {"domain": names, "range": [_DASHES[(k + k // 6) % 6] for k in range(len(names))]},
    }  # fmt: skip
    lines = layer(
        "lines", {"type": "line", "strokeWidth": 2.2}, rows,
        {"x": at_x, "y": at_y, "color": colour, "strokeDash": dash},
    )  # fmt: skip
    bars = []
    for k, (_, lower, upper) in enumerate(curves.values()):
        aside = _BAR * (k - (len(names) - 1) / 2)
        ends = records(epsilon=epsilons[here], lower=_drawn(y, lower[here]), upper=_drawn(y, upper[here]))
        bars.append(layer(
            f"bar{k}", {"type": "rule", "color": colours[k], "strokeWidth": 1.2, "opacity": 0.75, "xOffset": aside},
            ends, {"x": at_x, "y": y.encoding("upper", axis), "y2": {"field": "lower"}},
        ))  # fmt: skip
        bars.append(layer(
            f"top{k}", {"type": "tick", "orient": "horizontal", "color": colours[k], "thickness": 2.5, "size": _BAR - 1,
                        "xOffset": aside}, ends,
            {"x": at_x, "y": y.encoding("upper", axis)},
        ))  # fmt: skip
    cursor = layer(
        "cursor", {"type": "rule", "color": INK}, records(epsilon=[float(epsilons[min(start, len(epsilons) - 1)])]),
        {"x": at_x},
    )  # fmt: skip
    foot = "" if y.kind == "linear" else " The scale is logarithmic; 0 lies at its foot."
    table: dict[str, Any] = {"epsilon": numbers(epsilons)}
    for which, (estimate, lower, upper) in curves.items():
        table[which] = numbers(estimate)
        table[f"{which}, lower bound"], table[f"{which}, upper bound"] = numbers(lower), numbers(upper)
    return Chart(
        name=name,
        title=title,
        caption=f"{caption}{foot}",
        spec=spec_of(layer=[*bars, lines, cursor], height=_TALL),
        data=table,
        live={"kind": "cursor", "x": x.live(WIDTH), "y": y.live(_TALL), "epsilons": numbers(epsilons)},
    )


def utility_chart(
    points: Mapping[str, tuple[float, float]], front: Sequence[str], *, name: str, title: str, axis: str, caption: str
) -> Chart:
    """Mean error against risk, a mark for each protocol, and the front drawn through those nothing betters."""
    shown = {which: point for which, point in points.items() if not any(map(math.isnan, point))}
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
    at = {which: (float(drawn_x[k]), float(drawn_y[k])) for k, which in enumerate(shown)}
    pixels = {which: _pixels(x, y, *point) for which, point in at.items()}
    places = label_places(pixels, [pixels[which] for which in front])
    labels = [
        layer(
            f"label{k}",
            {"type": "text", "align": place[2], "baseline": "middle", "dx": place[0], "dy": place[1], "color": INK},
            records(error=[at[which][0]], risk=[at[which][1]], text=[which]),
            {"x": at_x, "y": at_y, "text": {"field": "text"}},
        )
        for k, (which, place) in enumerate(places.items())
    ]
    leaders = [
        layer(
            f"leader{k}", {"type": "rule", "color": FAINT, "strokeWidth": 0.8},
            records(error=[at[which][0]], risk=[at[which][1]]),
            {"x": at_x, "y": at_y, "x2": {"value": pixels[which][0] + dx},
             "y2": {"value": pixels[which][1] + dy - math.copysign(7.0 if align == "center" else 0.0, dy)}},
        )
        for k, (which, (dx, dy, align)) in enumerate(places.items())
        if abs(dy) > _FAR
    ]  # fmt: skip
    line = layer(
        "front", {"type": "line", "color": FAINT, "strokeWidth": 1.5, "strokeDash": [4, 3]},
        records(error=[at[which][0] for which in front], risk=[at[which][1] for which in front],
                order=range(len(front))),
        {"x": at_x, "y": at_y, "order": {"field": "order"}},
    )  # fmt: skip
    marks = layer(
        "marks", {"type": "point", "filled": True, "size": 110, "opacity": 1},
        records(error=drawn_x, risk=drawn_y, which=list(shown)),
        {"x": at_x, "y": at_y, "color": colour, "shape": shape},
    )  # fmt: skip
    missing = [which for which in points if which not in shown]
    left = f" Without any answer, and so not drawn: {', '.join(missing)}." if missing else ""
    logs = " and ".join(
        word for word, scale in (("error", x), ("risk", y)) if scale.kind == "log"
    )  # fmt: skip
    scale_said = f" The scale of {logs} is logarithmic; 0 lies at its end." if logs else ""
    return Chart(
        name=name,
        title=title,
        caption=f"{caption}{scale_said}{left}",
        spec=spec_of(layer=[line, *leaders, marks, *labels], height=_TALL),
        data={
            "protocol": names,
            "mean absolute error": numbers(np.array([point[0] for point in points.values()])),
            axis: numbers(np.array([point[1] for point in points.values()])),
            "front": ["yes" if which in front else "no" for which in names],
        },
    )


def label_places(
    at: Mapping[str, tuple[float, float]],
    line: Sequence[tuple[float, float]] = (),
    *,
    width: float = WIDTH,
    height: float = _TALL,
) -> dict[str, tuple[float, float, str]]:
    """(dx, dy, align) of each label, so that none lies on another, on a mark, on ``line`` or outside, if that can be.

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
    for which, (x, y) in at.items():
        wide = _LETTER * len(which)
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
        out[which] = best
    return out


def _overlap(a: tuple[float, ...], b: tuple[float, ...]) -> float:
    across, down = min(a[2], b[2]) - max(a[0], b[0]), min(a[3], b[3]) - max(a[1], b[1])
    return across * down if across > 0 and down > 0 else 0.0


def _colours(names: Sequence[str]) -> list[str]:
    return [_COLOURS[k % len(_COLOURS)] for k in range(len(names))]


def _error_scale(errors: FloatArray) -> Scale:
    """An axis for errors: logarithmic where those that are not 0 span more than twentyfold."""
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
    """Values as they can be drawn: on a logarithmic scale 0 lies at the foot."""
    values = np.asarray(values, float)
    return np.maximum(values, scale.low) if scale.kind == "log" else values
