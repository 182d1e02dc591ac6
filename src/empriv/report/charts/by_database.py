"""Charts of the databases: the result on each, with the signs of dependence, and the scores of the densities."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.harmless import shortened
from empriv.report.charts.chart import (
    BLUE,
    FAINT,
    GREEN,
    HEIGHT,
    INK,
    SKY,
    VERMILION,
    WIDTH,
    Chart,
    Scale,
    clean,
    layer,
    numbers,
    records,
    spec_of,
    stacked,
)
from empriv.report.gather import Material
from empriv.results import FloatArray, Outcome, Results

_MOST_POINTS = 1_200
_MOST_SCORES = 24
_MOST_VIEWS, _SMALL = 4, 150  # how many of several numbers are drawn, and the height of each


def results_chart(material: Material) -> Chart:
    """The result on each database, in order, with trend, median and change point; the first few of several numbers."""
    results = material.audit.results
    parts = {"": results}
    if results.components is not None:
        parts = {name: results.component(name) for name in results.components[:_MOST_VIEWS]}
    labels = [shortened(str(label), 24) for label in results.databases]
    height = HEIGHT if len(parts) == 1 else _SMALL
    series = {name: _series(component) for name, component in parts.items()}
    views = [
        {"width": WIDTH, "height": height, "layer": _layers(series[name], labels, name, place, height)}
        for place, name in enumerate(parts)
    ]
    iid = [check for check in material.audit.checks if check.code == "iid"]
    verdicts = "".join(f" {check.sentence}" for check in iid)
    drawn = "" if (results.draws or 1) == 1 else f" Each point is the mean of {results.draws:,} draws."
    odd = sum(int(np.count_nonzero(~np.isfinite(values))) for values in series.values())
    none = f" {odd:,} of {results.n_databases * len(parts):,} results are not a number: crosses at the bottom."
    marked = any(_marked(values) for values in series.values())
    marks = " Dashed: the trend by least squares; dotted: the median; vertical line: the likeliest change point."
    more = 0 if results.components is None else len(results.components) - len(parts)
    others = f" {more} more {'number is' if more == 1 else 'numbers are'} not drawn." if more else ""
    data: dict[str, list[Any]] = {"database": labels}
    for name, values in series.items():
        codes = parts[name].outcomes.reshape(results.n_databases, -1)[:, 0]
        data[shortened(name, 40) or "result"] = [
            clean(float(v)) if math.isfinite(v) else Outcome(int(codes[k])).name.lower().replace("_", " ")
            for k, v in enumerate(values)
        ]
    return Chart(
        name="results",
        title="The query's result on each database" if len(parts) == 1 else "The query's results on each database",
        caption=(
            "One point for each database, in order. Privacy comes from how these results vary, so they should "
            f"look like independent draws: no drift, no jump, no cycle.{marks if marked else ''}{verdicts}{drawn}"
            f"{none if odd else ''}{others}"
        ),
        spec=spec_of(layer=views[0]["layer"]) if len(views) == 1 else stacked(views),
        data=data,
    )


def _series(results: Results) -> FloatArray:
    """The result of each database, draws averaged; NaN where none is a number."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # a database where no draw is a number
        return np.asarray(np.nanmean(results.q.reshape(results.n_databases, -1), axis=1))


def _marked(series: FloatArray) -> bool:
    """Whether median, trend and change point mean anything."""
    numeric = series[np.isfinite(series)]
    return len(numeric) >= 3 and float(np.ptp(numeric)) > 0


def _layers(series: FloatArray, labels: list[str], name: str, place: int, height: int) -> list[dict[str, Any]]:
    numeric = np.flatnonzero(np.isfinite(series))
    low, high = value_range(series[numeric])
    x, y = Scale(0.5, len(series) + 0.5), Scale(low, high)
    named = labelled(x, labels, height)
    x_axis = named["encoding"]["x"]
    title = shortened(name, 28) or "query result"
    y_axis = y.encoding(
        "value", title, format=",~r" if max(abs(low), abs(high)) < 1e6 else "~s", tickCount=height // 40
    )
    at = {"x": x_axis, "y": y_axis}
    layers = [named]
    if len(numeric) > _MOST_POINTS:
        layers += _thinned(numeric, series, x_axis, y_axis)
    else:
        rows = records(at=numeric + 1, value=series[numeric])
        dot = {"type": "point", "filled": True, "color": BLUE, "size": 30, "opacity": 1}
        layers.append(layer("line", {"type": "line", "color": SKY, "strokeWidth": 1.2}, rows, at))
        layers.append(layer("points", dot, rows, at))
    missing = np.flatnonzero(~np.isfinite(series))[:_MOST_POINTS]
    if len(missing):
        cross = {"type": "point", "shape": "cross", "color": VERMILION, "filled": True, "size": 50, "opacity": 1}
        layers.append(layer("missing", cross, records(at=missing + 1, value=[low] * len(missing)), at))
    if _marked(series):
        layers += _marks(numeric, series[numeric], x_axis, y_axis)
    return [
        {**view_layer, "name": f"{view_layer['name']}{place}"} for view_layer in layers
    ]  # names of views must differ


def scores_chart(material: Material) -> Chart | None:
    """How well each candidate density predicts a result left out; None if nothing was chosen."""
    model = material.audit.risk.model
    scores = [s for s in (() if model is None else model[1]) if math.isfinite(s.log_likelihood)]
    if len(scores) < 2:
        return None
    best = max(scores, key=lambda s: s.log_likelihood)
    widths = [s.bandwidth for s in scores]
    error = [s.standard_error if math.isfinite(s.standard_error) else 0.0 for s in scores]
    value = np.array([s.log_likelihood for s in scores])
    kind = ["chosen" if s.chosen else "best score" if s is best else "other" for s in scores]
    caption = (
        "Mean logarithm of the density at each result, fitted without it: higher predicts better. Bars are one "
        "standard error of the difference from the best. "
    )
    colour = {
        "field": "kind", "type": "nominal",
        "scale": {"domain": ["chosen", "best score", "other"], "range": [VERMILION, GREEN, BLUE]},
    }  # fmt: skip
    shape = {**colour, "scale": {"domain": ["chosen", "best score", "other"],
                                 "range": ["diamond", "triangle-up", "circle"]}}  # fmt: skip
    shown = np.flatnonzero(value >= np.sort(value)[::-1][: 4 * _MOST_SCORES].min())
    near = float(best.log_likelihood) - 1.0  # a density e times lower everywhere; worse scores are not worth drawing
    shown = np.array([k for k in shown if value[k] >= near or kind[k] != "other"])
    if all(width is not None for width in widths):
        drawn_widths = [widths[k] or 1.0 for k in shown]
        x = Scale(min(drawn_widths) / 1.1, max(drawn_widths) * 1.1, "log")
        ends = value[shown] - np.array(error)[shown], value[shown] + np.array(error)[shown]
        ends = np.maximum(ends[0], near - 0.2), ends[1]
        y = Scale(*value_range(np.concatenate(ends)))
        axis = x.encoding("width", "bandwidth", grid=False)
        axis["axis"]["labelOverlap"] = "greedy"
        rows = records(
            width=[widths[k] for k in shown], value=value[shown], low=ends[0], high=ends[1],
            kind=[kind[k] for k in shown],
        )  # fmt: skip
        title = "log likelihood for each database"
        layers = [
            layer("errors", {"type": "rule", "color": FAINT}, rows,
                  {"x": axis, "y": y.encoding("low", title), "y2": {"field": "high"}}),
            layer("scores", {"type": "point", "filled": True, "size": 60, "opacity": 1}, rows,
                  {"x": axis, "y": y.encoding("value", title), "color": colour, "shape": shape}),
        ]  # fmt: skip
        caption += (
            "The one-standard-error rule takes the widest bandwidth within one standard error of the best: wide enough "
            "not to take noise for structure."
        )
        spec = spec_of(layer=layers)
    else:
        order = shown[np.argsort(-value[shown])][:_MOST_SCORES]
        names = [shortened(scores[k].candidate, 46) for k in order]
        rows = records(
            name=names, value=value[order], low=value[order] - np.array(error)[order],
            high=value[order] + np.array(error)[order], kind=[kind[k] for k in order],
        )  # fmt: skip
        at = {"field": "name", "type": "nominal", "sort": names, "axis": {"title": None, "labelLimit": 300}}
        across = Scale(float(min(row["low"] for row in rows)), float(max(row["high"] for row in rows)))
        title = "log likelihood for each database"
        layers = [
            layer("errors", {"type": "rule", "color": FAINT}, rows,
                  {"y": at, "x": across.encoding("low", title), "x2": {"field": "high"}}),
            layer("scores", {"type": "point", "filled": True, "size": 60, "opacity": 1}, rows,
                  {"y": at, "x": across.encoding("value", title), "color": colour, "shape": shape}),
        ]  # fmt: skip
        spec = spec_of(width=420, height=max(60, 24 * len(rows)), layer=layers)
    return Chart(
        name="scores",
        title="Which density was chosen",
        caption=caption,
        spec=spec,
        data={
            "candidate": [s.candidate for s in scores],
            "log likelihood": numbers(value),
            "standard error": numbers(error),
            "chosen": ["yes" if s.chosen else "" for s in scores],
        },
    )


def value_range(values: FloatArray) -> tuple[float, float]:
    """From below the least to above the largest."""
    if not len(values):
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    margin = 0.06 * (high - low) if high > low else max(abs(high) * 0.1, 1.0)
    return low - margin, high + margin


def labelled(x: Scale, labels: list[str], height: int) -> dict[str, Any]:
    """The databases' labels, as many as fit, as data of a layer: their text never becomes part of an expression."""
    n = len(labels)
    room = max(2, min(12, WIDTH // (8 * max(4, max(map(len, labels))))))
    spots = list(range(0, n, max(1, math.ceil(n / room))))
    rows = records(at=[k + 1 for k in spots], label=[labels[k] for k in spots])
    encoding = {"x": _axis(x, spots), "y": {"value": height + 14}, "text": {"field": "label"}}
    return layer("labels", {"type": "text", "align": "center", "color": INK, "baseline": "middle"}, rows, encoding)


def _axis(x: Scale, spots: list[int]) -> dict[str, Any]:
    return x.encoding("at", "database", grid=False, labels=False, titlePadding=24, values=[k + 1 for k in spots])


def _marks(
    numeric: npt.NDArray[np.intp], series: FloatArray, x_axis: dict[str, Any], y_axis: dict[str, Any]
) -> list[dict[str, Any]]:
    """Median, trend, and the change point by Pettitt's statistic."""
    slope, start = np.polyfit(numeric + 1.0, series, 1)
    ends = np.array([numeric[0] + 1.0, numeric[-1] + 1.0])
    ranks = np.argsort(np.argsort(series, kind="stable"), kind="stable") + 1.0
    walk = np.cumsum(2 * ranks - (len(series) + 1))[:-1]
    change = numeric[int(np.argmax(np.abs(walk)))] + 1.5
    middle = float(np.median(series))
    encoding = {"x": x_axis, "y": y_axis}
    return [
        layer("median", {"type": "line", "color": INK, "strokeDash": [1, 3]},
              records(at=ends, value=[middle, middle]), encoding),
        layer("trend", {"type": "line", "color": VERMILION, "strokeDash": [7, 4]},
              records(at=ends, value=start + slope * ends), encoding),
        layer("change", {"type": "rule", "color": GREEN, "strokeDash": [3, 2]}, records(at=[change]), {"x": x_axis}),
    ]  # fmt: skip


def _thinned(
    numeric: npt.NDArray[np.intp], series: FloatArray, x_axis: dict[str, Any], y_axis: dict[str, Any]
) -> list[dict[str, Any]]:
    """Minimum, median and maximum of neighbouring databases, used where points would cover one another."""
    parts = np.array_split(numeric, 300)
    rows = records(
        at=[float(part.mean()) + 1 for part in parts],
        low=[float(series[part].min()) for part in parts],
        value=[float(np.median(series[part])) for part in parts],
        high=[float(series[part].max()) for part in parts],
    )
    low = {**y_axis, "field": "low"}
    return [
        layer("range", {"type": "area", "color": SKY, "opacity": 0.45}, rows,
              {"x": x_axis, "y": low, "y2": {"field": "high"}}),
        layer("line", {"type": "line", "color": BLUE, "strokeWidth": 1.5}, rows, {"x": x_axis, "y": y_axis}),
    ]  # fmt: skip
