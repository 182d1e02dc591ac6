"""Curves: delta and total risk against epsilon, and delta against the number of publications."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from empriv.measuring.series import composes
from empriv.report.charts.chart import (
    BLUE,
    INK,
    ORANGE,
    SKY,
    VERMILION,
    Chart,
    Scale,
    layer,
    numbers,
    records,
    risk_scale,
    spec_of,
)
from empriv.report.gather import Material
from empriv.results import FloatArray
from empriv.words.sentences import number, percent

_COUNTS = (1, 2, 3, 5, 7, 10, 14, 20, 30, 52, 75, 100, 150, 200, 250, 300, 365, 500, 750, 1000)
_MORE = (2_000, 5_000, 10_000, 100_000, 1_000_000)


def delta_chart(material: Material) -> Chart:
    """delta against epsilon, with its band, and the targets as crosses."""
    bounds, apart = material.bounded, material.curves.apart
    band = "bar" if apart else "band"
    crosses = {1: " The cross is the target.", 0: ""}.get(len(material.targets), " Crosses are the targets.")
    return _banded(
        material,
        name="delta",
        title="The risk at each epsilon, and its bound",
        axis="delta (most exposed individual)",
        targets=material.targets,
        estimate=material.curves.delta,
        lower=material.band["lower"],
        upper=material.band["upper"],
        caption=(
            f"{'Points' if apart else 'Line'}: the estimated failure probability of the most exposed individual. "
            f"{band.capitalize()}: between its bounds at {percent(bounds.level)} confidence; where it reaches 1 there "
            "is no upper bound."
            f"{crosses}"
        ),
    )


def total_risk_chart(material: Material) -> Chart:
    """Total risk against epsilon, with its band."""
    apart = material.curves.apart
    return _banded(
        material,
        name="total_risk",
        title="Total risk against epsilon",
        axis="total risk (anybody)",
        estimate=material.curves.total_risk,
        lower=material.band["total_risk_lower"],
        upper=material.band["total_risk_upper"],
        caption=(
            f"{'Points' if apart else 'Line'}: the estimated chance that the privacy of anybody at all fails, if "
            f"failures are independent. The upper end of the {'bar' if apart else 'band'} is indicative only: with "
            "many individuals it is mostly sampling noise."
        ),
    )


def publications_chart(material: Material) -> Chart | None:
    """delta after so many publications, estimate and upper figure, with the targets; None for a kind that has none."""
    audit, targets = material.audit, material.targets
    risk, epsilon = audit.once, material.epsilon
    if not composes(risk) or not np.isfinite(epsilon):
        return None
    counts = sorted({*_COUNTS, *(count for count in _MORE if count <= 2 * audit.times), audit.times})
    figures = audit.publications(epsilon)
    level = figures.level
    estimate, upper = (
        [figures.estimated_delta(count) for count in counts],
        [figures.upper_delta(count) for count in counts],
    )
    limits = [delta for at, delta in targets if at == epsilon]
    x = Scale(1.0, float(counts[-1]), "log", tuple(c for c in (1, 7, 30, 100, 365, *_MORE) if c <= counts[-1]))
    y = risk_scale(np.array([*estimate, *limits]), np.array(upper))
    names = ["estimate", f"upper figure ({percent(level)})"]
    rows = [
        row
        for name, line in zip(names, (estimate, upper), strict=True)
        for row in records(count=counts, value=np.maximum(line, y.low), which=[name] * len(counts))
    ]
    encoding = {
        "x": x.encoding("count", "publications", format=",d"),
        "y": y.encoding("value", "delta (most exposed individual)"),
        "color": {"field": "which", "type": "nominal", "scale": {"domain": names, "range": [BLUE, ORANGE]}},
        "strokeDash": {"field": "which", "type": "nominal", "scale": {"domain": names, "range": [[1, 0], [6, 3]]}},
    }
    layers = [layer("lines", {"type": "line", "strokeWidth": 2}, rows, encoding)]
    across, up = ({name: encoding[name]} for name in ("x", "y"))
    if limits:
        said = records(count=[counts[-1]] * len(limits), value=limits, said=[f"allowed: {percent(d)}" for d in limits])
        text = {"type": "text", "align": "right", "dy": -8, "fontWeight": "bold", "color": VERMILION}
        layers += [
            layer("target", {"type": "rule", "color": VERMILION, "strokeDash": [2, 2]}, said, up),
            layer("allowed", text, said, {**across, **up, "text": {"field": "said"}}),
        ]
    if audit.times > 1:
        said = records(count=[audit.times], said=[f"{audit.times:,} times"])
        text = {"type": "text", "align": "right", "dx": -6, "dy": 6, "fontWeight": "bold", "color": INK}
        layers += [
            layer("now", {"type": "rule", "color": INK}, said, across),
            layer("times", text, said, {**across, "y": {"value": 0}, "text": {"field": "said"}}),
        ]
    return Chart(
        name="publications",
        title="If you publish again",
        caption=(
            f"delta at epsilon {epsilon:.4g} after so many publications as it is, each from a database of its own, for "
            "people who are in all of these databases or in none."
        ),
        spec=spec_of(layer=layers),
        data={"publications": counts, "estimate": numbers(estimate), "upper figure": numbers(upper)},
        hover={
            "at": [math.log(count) / math.log(counts[-1]) for count in counts],
            "text": [f"{count:,} {'publication' if count == 1 else 'publications'}: {number(a)}, at most {number(b)}"
                     for count, a, b in zip(counts, estimate, upper, strict=True)],
            "layer": "lines",
        },
    )  # fmt: skip


def _banded(
    material: Material, *, name: str, title: str, axis: str, caption: str, estimate: FloatArray, lower: FloatArray,
    upper: FloatArray, targets: Sequence[tuple[float, float]] = (),
) -> Chart:  # fmt: skip
    """A curve with a band, the epsilons asked for marked on it; points with bars, and a thin line, where no epsilon
    between was measured. ``targets`` are drawn as crosses."""
    shown, apart, asked = material.finite, material.curves.apart, material.audit.epsilons
    epsilons, estimate, lower, upper = material.epsilons[shown], estimate[shown], lower[shown], upper[shown]
    limits = [limit for _, limit in targets]
    # a little beyond the last epsilon, where that is a point of its own
    x = Scale(0.0, (1.05 if apart else 1.0) * float(epsilons[-1]) or 1.0)
    y = risk_scale(np.array([*estimate, *(v for v in limits if v > 0)]), np.array([*upper, *limits]))
    at_x = x.encoding("epsilon", "epsilon", **({"tickCount": 8} if apart else {}))
    rows = records(epsilon=epsilons, estimate=y.drawn(estimate), lower=y.drawn(lower), upper=y.drawn(upper))
    place = min(material.start, len(epsilons) - 1)
    marked = np.isin(epsilons, asked)
    caption = caption if y.kind == "linear" else f"{caption} The scale is logarithmic, with 0 at the bottom."
    if apart:
        several = " Only these epsilons were measured; the thin line between them guides the eye."
        caption += several if len(epsilons) > 1 else " Only this epsilon was measured."
    y_axis, at_estimate = y.encoding("upper", axis), {"x": at_x, "y": y.encoding("estimate", axis)}
    between = {"x": at_x, "y": y_axis, "y2": {"field": "lower"}}
    drawn = [
        layer("band", {"type": "rule", "color": SKY, "strokeWidth": 7, "opacity": 0.6}, rows, between),
        layer("curve", {"type": "line", "color": BLUE, "strokeWidth": 1, "strokeDash": [3, 3]}, rows, at_estimate),
    ] if apart else [
        layer("band", {"type": "area", "color": SKY, "opacity": 0.3}, rows, between),
        layer("upper", {"type": "line", "color": SKY, "strokeWidth": 1.5}, rows,
              {"x": at_x, "y": y.encoding("upper", axis)}),
        layer("curve", {"type": "line", "color": BLUE, "strokeWidth": 2.5}, rows, at_estimate),
    ]  # fmt: skip
    layers = [
        *drawn,
        *_crosses(targets, at_x, y, axis),
        layer("asked", {"type": "point", "filled": False, "color": BLUE, "size": 60, "opacity": 1},
              records(epsilon=epsilons[marked], estimate=y.drawn(estimate[marked])),
              {"x": at_x, "y": y.encoding("estimate", axis)}),
        layer("cursor", {"type": "rule", "color": INK}, records(epsilon=[epsilons[place]]), {"x": at_x}),
        layer("dot", {"type": "point", "filled": True, "color": VERMILION, "size": 90, "opacity": 1},
              records(epsilon=[epsilons[place]], estimate=y.drawn(estimate[place : place + 1])),
              {"x": at_x, "y": y.encoding("estimate", axis)}),
    ]  # fmt: skip
    return Chart(
        name=name,
        title=title,
        caption=caption,
        spec=spec_of(layer=layers),
        data={
            "epsilon": numbers(epsilons),
            "lower bound": [number(v, 3) for v in lower],
            "estimate": [number(v, 3) for v in estimate],
            "upper bound": [number(v, 3) for v in upper],
        },
        hover={
            "at": [float(e) / x.high for e in epsilons],
            "text": [f"epsilon {e:.4g}: {number(v)} ({number(a)} to {number(b)})"
                     for e, v, a, b in zip(epsilons, estimate, lower, upper, strict=True)],
            "layer": "curve",
        },
    )  # fmt: skip


def _crosses(targets: Sequence[tuple[float, float]], at_x: dict[str, Any], y: Scale, axis: str) -> list[dict[str, Any]]:
    """Layers of the targets."""
    layers = []
    if targets:
        cross = {"type": "point", "shape": "cross", "filled": True, "color": VERMILION, "size": 130, "opacity": 1,
                 "angle": 45}  # fmt: skip
        rows = records(epsilon=[at for at, _ in targets], estimate=y.drawn(np.array([limit for _, limit in targets])))
        layers.append(layer("target", cross, rows, {"x": at_x, "y": y.encoding("estimate", axis)}))
    return layers
