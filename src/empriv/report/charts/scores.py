"""The chart of the densities that were considered, by how well each predicts a result left out."""

from __future__ import annotations

import math

import numpy as np

from empriv.base.harmless import shortened
from empriv.report.charts.answers import value_range
from empriv.report.charts.chart import BLUE, FAINT, GREEN, VERMILION, Chart, Scale, layer, numbers, records, spec_of
from empriv.report.gather import Material

_MOST_SCORES = 24
_NAMED_WIDTH = 200  # of the frame beside which candidates are named


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
        names = [shortened(scores[k].candidate, 26) for k in order]
        rows = records(
            name=names, value=value[order], low=value[order] - np.array(error)[order],
            high=value[order] + np.array(error)[order], kind=[kind[k] for k in order],
        )  # fmt: skip
        at = {"field": "name", "type": "nominal", "sort": names, "axis": {"title": None}}
        across = Scale(float(min(row["low"] for row in rows)), float(max(row["high"] for row in rows)))
        title = "log likelihood for each database"
        layers = [
            layer("errors", {"type": "rule", "color": FAINT}, rows,
                  {"y": at, "x": across.encoding("low", title), "x2": {"field": "high"}}),
            layer("scores", {"type": "point", "filled": True, "size": 60, "opacity": 1}, rows,
                  {"y": at, "x": across.encoding("value", title), "color": colour, "shape": shape}),
        ]  # fmt: skip
        spec = spec_of(width=_NAMED_WIDTH, height=max(60, 24 * len(rows)), layer=layers)
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
