"""The chart of noise: its law, and what the released distribution looks like beside the one that was measured."""

from __future__ import annotations

import math
from functools import singledispatch
from typing import Any, Protocol, runtime_checkable

import numpy as np

from empriv.auditing.audit import Audit
from empriv.measuring import Risk, RiskContract
from empriv.report.charts.chart import BLUE, GREEN, VERMILION, WIDTH, Chart, Scale, layer, numbers, records, stacked
from empriv.report.charts.laws import LOW, TALL, same_length
from empriv.results import FloatArray
from empriv.scale.tallied import TalliedRisk

_CELLS = 241
_FINE = 2001


class Additive(Protocol):
    """What the chart needs from noise; `empriv.noise.Noise` has it."""

    def quantile(self, p: float) -> float: ...

    def pdf(self, x: Any) -> FloatArray: ...

    def cdf(self, x: Any) -> FloatArray: ...


@runtime_checkable
class OnLattice(Additive, Protocol):
    """Noise in multiples of a granularity."""

    @property
    def granularity(self) -> float: ...


def released_chart(audit: Audit, noise: Additive) -> Chart | None:
    """The law of the noise, and the results with it; None if the results have no density, or are several numbers."""
    return _released(audit.risk, noise)


@singledispatch
def _released(risk: RiskContract, noise: Additive) -> Chart | None:  # noqa: ARG001 — other kinds have none
    return None


@_released.register
def _(risk: Risk, noise: Additive) -> Chart | None:
    if risk.density is None:
        return None
    points = risk.pairs.points[np.isfinite(risk.pairs.points)]
    reach = max(float(noise.quantile(0.999)), 1e-300)
    edges = _edges(reach, noise.granularity if isinstance(noise, OnLattice) else None)
    middle = (edges[1:] + edges[:-1]) / 2
    mass = np.diff(noise.cdf(edges))
    reach = float(edges[-1])
    spread = float(np.ptp(points)) or 1.0
    low, high = float(points.min()) - spread / 2 - reach, float(points.max()) + spread / 2 + reach
    fine = np.linspace(low - reach, high + reach, _FINE)
    density = risk.pdf(fine)
    places = np.linspace(low, high, 2 * _CELLS)
    before = np.interp(places, fine, density)
    # the noise beyond the 0.999 quantiles is left out of the picture, not of the noise
    after = sum(w * np.interp(places - shift, fine, density) for w, shift in zip(mass, middle, strict=True))
    return noise_chart(middle, mass / np.diff(edges), (places, before), (places, np.asarray(after)))


@_released.register
def _(risk: TalliedRisk, noise: Additive) -> Chart | None:
    return _released(risk.riskiest, noise)  # the density is of the results with everyone


def _edges(reach: float, granularity: float | None) -> FloatArray:
    """Ends of about `_CELLS` equal cells around 0; each holds the same number of points of a lattice."""
    width = 2 * reach / _CELLS
    if granularity is not None:
        inside = max(1, math.ceil(width / granularity))
        width = granularity * (inside + 1 - inside % 2)  # an odd number, so that the middle of a cell is a point
    half = max(1, math.ceil(reach / width - 0.5))
    return np.asarray((np.arange(-half, half + 2) - 0.5) * width)


def noise_chart(
    x: FloatArray, noise: FloatArray, before: tuple[FloatArray, FloatArray], after: tuple[FloatArray, FloatArray]
) -> Chart:
    """The law of the noise, and what the released distribution looks like.

    Parameters
    ----------
    x, noise : places and the density of the noise there
    before, after : places and density of the results as they are, and of what is released
    """
    same_length(x, noise)
    for places, density in (before, after):
        same_length(places, density)
    n_scale = Scale(float(x[0]), float(x[-1]))
    noise_top = Scale(0.0, 1.08 * float(np.max(noise)) or 1.0)
    low, high = min(before[0][0], after[0][0]), max(before[0][-1], after[0][-1])
    r_scale = Scale(float(low), float(high))
    law_top = Scale(0.0, 1.08 * float(max(np.max(before[1]), np.max(after[1]))) or 1.0)
    legend = {"domain": ["as measured", "as released"], "range": [BLUE, VERMILION]}
    kind = {"field": "law", "type": "nominal"}
    rows = [
        *({**row, "law": "as measured"} for row in records(x=before[0], p=before[1])),
        *({**row, "law": "as released"} for row in records(x=after[0], p=after[1])),
    ]
    upper = {
        "width": WIDTH, "height": LOW,
        "layer": [layer("noise", {"type": "area", "color": GREEN, "opacity": 0.4, "line": {"color": GREEN}},
                        records(x=x, p=noise),
                        {"x": n_scale.encoding("x", "noise added to the result", tickCount=9),
                         "y": noise_top.encoding("p", "density", format=".2~g")})],
    }  # fmt: skip
    lower = {
        "width": WIDTH, "height": TALL,
        "layer": [layer("released", {"type": "line", "strokeWidth": 2}, rows,
                        {"x": r_scale.encoding("x", "result", tickCount=9),
                         "y": law_top.encoding("p", "density", format=".2~g"),
                         "color": {**kind, "scale": legend},
                         "strokeDash": {**kind, "scale": {**legend, "range": [[1, 0], [6, 3]]}}})],
    }  # fmt: skip
    return Chart(
        name="noise",
        title="The noise, and what is released",
        caption=(
            "Above: how likely each error from the noise is. Below: the distribution of the results as measured "
            "(solid), and as released with the noise added (dashed). The closer the two, the less the noise costs."
        ),
        # the legend belongs to the lower view
        spec={**stacked([upper, lower]), "resolve": {"scale": {"color": "independent", "strokeDash": "independent"}}},
        data={"noise": numbers(x), "density": numbers(noise)},
    )
