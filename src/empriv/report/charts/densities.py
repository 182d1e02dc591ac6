"""The chart of densities with everyone and without the most exposed individual, as the paper draws them."""

from __future__ import annotations

import math

import numpy as np

from empriv.auditing.totals import TotalledRisk
from empriv.measuring import AnyRisk, GivenRisk, Risk
from empriv.measuring.densities import Mixture
from empriv.report.charts.chart import (
    BLUE,
    INK,
    ORANGE,
    PLAIN,
    VERMILION,
    WIDTH,
    Chart,
    Scale,
    layer,
    numbers,
    records,
    stacked,
)
from empriv.report.gather import Material
from empriv.results import FloatArray

_POINTS = 220
TALL, LOW = 150, 90


def density_chart(material: Material) -> Chart | None:
    """Densities with everyone and without the most exposed individual, and their log ratio; None without a density."""
    return _density(material.audit.measured, material)


def _density(risk: AnyRisk, material: Material) -> Chart | None:
    """Other kinds have none."""
    if isinstance(risk, TotalledRisk):
        return _density(risk.kept, material)  # the most exposed individual is among them
    if isinstance(risk, GivenRisk):
        given = " Results are drawn without what is known: only their residuals protect."
        return _density_of(risk, material, "residual of a query result", given)
    return _density_of(risk, material, "query result", "") if isinstance(risk, Risk) else None


def _density_of(risk: Risk, material: Material, title: str, said: str) -> Chart | None:
    points = risk.pairs.points[np.isfinite(risk.pairs.points)]
    if risk.density is None or not len(points):
        return None
    x = _places(risk, points)
    with_all = risk.pdf(x)
    row = _most_exposed(material, risk)
    without = np.asarray(risk.density.pdf(x, risk.pairs.dense(np.array([row]))[0]))
    chart = two_laws(x, with_all, without, float(material.epsilons[material.start]), title=title)
    return Chart(
        name="density",
        title="The most exposed individual: with and without",
        caption=(
            "Above: how likely each result is with everyone (solid), and without the most exposed individual (dashed). "
            "Below: the logarithm of their ratio. Where it leaves the band of plus and minus epsilon, shaded in both, "
            "a result tells more about the individual than epsilon allows; how often that happens, and by how much, "
            f"makes delta.{said}"
        ),
        spec=chart.spec,
        data=chart.data,
    )


def two_laws(
    x: FloatArray, with_all: FloatArray, without: FloatArray, epsilon: float, *, title: str = "query result"
) -> Chart:
    """Two densities over the same places, shaded where their ratio exceeds e^epsilon."""
    ratio = log_ratio(with_all, without)
    widest = float(np.nanmax(np.abs(np.where(np.isfinite(ratio), ratio, 0.0))))
    shown_epsilon = epsilon if math.isfinite(epsilon) else 0.0
    if np.isinf(ratio).any():  # one law has mass where the other has none, so the ratio is infinite
        widest = max(widest, 3 * max(shown_epsilon, 0.05))
    reach = min(1.15 * max(widest, shown_epsilon, 1e-9), 4 * max(shown_epsilon, 0.05))
    top = 1.08 * float(max(with_all.max(), without.max(), 1e-300))
    x_scale, y_scale = Scale(float(x[0]), float(x[-1])), Scale(0.0, top)
    r_scale = Scale(-reach, reach)
    beyond = exceeds(ratio, epsilon)
    big = max(abs(float(x[0])), abs(float(x[-1]))) >= 1e6
    x_top = x_scale.encoding("x", None, labels=False, ticks=False)
    x_low = x_scale.encoding("x", title, format="~s" if big else PLAIN)
    legend = {"domain": ["with everyone", "without the individual"], "range": [BLUE, VERMILION]}
    dash = {**legend, "range": [[1, 0], [6, 3]]}
    kind = {"field": "law", "type": "nominal"}
    curves = [
        *({**row, "law": "with everyone"} for row in records(x=x, p=with_all)),
        *({**row, "law": "without the individual"} for row in records(x=x, p=without)),
    ]
    high = np.maximum(with_all, without)
    shade = records(x=x, p=np.where(beyond, high, 0.0), zero=np.zeros(len(x)))
    upper = {
        "width": WIDTH, "height": TALL,
        "layer": [
            layer("shade", {"type": "area", "color": ORANGE, "opacity": 0.45}, shade,
                  {"x": x_top, "y": y_scale.encoding("p", "density"), "y2": {"field": "zero"}}),
            layer("laws", {"type": "line", "strokeWidth": 2}, curves,
                  {"x": x_top, "y": y_scale.encoding("p", "density", format=".2~g"), "color": {**kind, "scale": legend},
                   "strokeDash": {**kind, "scale": dash}}),
        ],
    }  # fmt: skip
    clipped = np.clip(np.nan_to_num(ratio, nan=0.0, posinf=reach, neginf=-reach), -reach, reach)
    at_r = r_scale.encoding("r", "log ratio")
    rules = records(r=[min(shown_epsilon, reach), -min(shown_epsilon, reach)])
    excess = records(x=x, r=clipped, edge=np.clip(clipped, -shown_epsilon, shown_epsilon))
    if not math.isfinite(epsilon):
        excess = records(x=x, r=np.zeros(len(x)), edge=np.zeros(len(x)))
    lower = {
        "width": WIDTH, "height": LOW,
        "layer": [
            layer("excess", {"type": "area", "color": ORANGE, "opacity": 0.6}, excess,
                  {"x": x_low, "y": at_r, "y2": {"field": "edge"}}),
            layer("ratio", {"type": "line", "color": BLUE, "strokeWidth": 2}, records(x=x, r=clipped),
                  {"x": x_low, "y": at_r}),
            layer("limits", {"type": "rule", "color": INK, "strokeDash": [4, 3]}, rules, {"y": at_r}),
        ],
    }  # fmt: skip
    return Chart(
        name="two laws",
        title="With and without",
        caption="",
        spec=stacked([upper, lower]),
        data={
            title: numbers(x),
            "density with everyone": numbers(with_all),
            "density without the individual": numbers(without),
            "log ratio": numbers(ratio),
        },
    )


def log_ratio(with_all: FloatArray, without: FloatArray) -> FloatArray:
    """log(p / p_i); 0 where both are 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(with_all) - np.log(without)
    return np.where((with_all == 0) & (without == 0), 0.0, ratio)


def exceeds(ratio: FloatArray, epsilon: float) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Where the ratio of densities exceeds e^epsilon in either direction."""
    return np.asarray(np.abs(ratio) > epsilon)


def _most_exposed(material: Material, risk: Risk) -> int:
    """The most exposed individual; where nobody is exposed, the one who moves the results most."""
    exposed = material.curves.delta[material.start] > 0
    return int(material.curves.worst[material.start] if exposed else np.argmax(risk.shifts))


def _places(risk: Risk, points: FloatArray) -> FloatArray:
    """Where densities are drawn: evenly, and at the results, where they have their kinks."""
    model = risk.density
    width = float(np.median(model.bandwidths)) if isinstance(model, Mixture) else float(np.ptp(points)) / 10
    low, high = float(points.min()), float(points.max())
    margin = min(4 * width, max(high - low, width))
    even = np.linspace(low - margin, high + margin, _POINTS)
    if len(points) <= _POINTS:
        return np.unique(np.concatenate((even, points)))
    return even
