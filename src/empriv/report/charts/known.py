"""The chart of the residuals of the answers, once what is known is regressed out: the randomness that protects people.

With everyone, and without the most exposed individual, who is not named.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from empriv.auditing.totals import TotalledRisk
from empriv.base.text import shortened
from empriv.measuring import GivenRisk
from empriv.measuring.any_risk import AnyRisk
from empriv.report.charts.answers import answer_axis, labelled, value_range
from empriv.report.charts.chart import BLUE, HEIGHT, VERMILION, Chart, Scale, layer, numbers, records, spec_of
from empriv.report.gather import Material
from empriv.results import FloatArray

_MOST = 400  # databases that are drawn, evenly; the table has more
_MOST_ROWS = 2_000


def known_chart(material: Material) -> Chart | None:
    """The residuals of the answers; None where nothing was regressed out."""
    return _known(material.audit.measured, material)


def _known(risk: AnyRisk, material: Material) -> Chart | None:
    """Other kinds take nothing out."""
    if isinstance(risk, TotalledRisk):
        return _known(risk.kept, material)
    return _taken_out(risk, material) if isinstance(risk, GivenRisk) else None


def _taken_out(risk: GivenRisk, material: Material) -> Chart | None:
    residuals, fit = risk.residuals, risk.residuals.fit
    n = residuals.original.n_databases
    here = np.flatnonzero(np.isfinite(fit.residuals))
    if not len(here) or not risk.n_individuals:
        return None
    row = int(material.curves.worst[material.start])
    rest = risk.results.q.reshape(n, -1).mean(axis=1)
    others = risk.results.without_row(row).reshape(n, -1).mean(axis=1)
    labels = [shortened(str(label), 24) for label in residuals.original.databases]
    drawn = here if len(here) <= _MOST else here[np.linspace(0, len(here) - 1, _MOST).round().astype(int)]
    thinned = f" {len(drawn):,} of {n:,} databases are drawn." if len(drawn) < n else ""
    table = here[:_MOST_ROWS]
    return Chart(
        name="known",
        title="Residuals, once what is known is regressed out",
        caption=(
            "Residuals of the answers, with everyone (dots) and without the most exposed individual (triangles). "
            f"It should look like independent draws.{thinned}"
        ),
        spec=spec_of(layer=_layers(drawn, labels, rest, others)),
        data={
            "database": [labels[k] for k in table],
            "with everyone": numbers(rest[table]),
            "without the most exposed": numbers(others[table]),
        },
    )  # fmt: skip


def _layers(
    drawn: np.ndarray[Any, np.dtype[np.int64]], labels: list[str], rest: FloatArray, others: FloatArray
) -> list[dict[str, Any]]:
    x, y = Scale(0.5, len(labels) + 0.5), Scale(*value_range(np.concatenate((rest[drawn], others[drawn]))))
    named = labelled(x, labels, HEIGHT)
    at = {"x": named["encoding"]["x"], "y": answer_axis(y, "residual of an answer", HEIGHT)}
    worlds = ["with everyone", "without the most exposed"]
    moved = drawn[others[drawn] != rest[drawn]]
    dots = [
        *({**row, "world": worlds[0]} for row in records(at=drawn + 1, value=rest[drawn])),
        *({**row, "world": worlds[1]} for row in records(at=moved + 1, value=others[moved])),
    ]
    ties = records(at=moved + 1, low=others[moved], high=rest[moved])
    kind = {"field": "world", "type": "nominal"}
    colour = {**kind, "scale": {"domain": worlds, "range": [BLUE, VERMILION]}}
    shape = {**kind, "scale": {"domain": worlds, "range": ["circle", "triangle-down"]}}
    between = {**at, "y": {**at["y"], "field": "low"}, "y2": {"field": "high"}}
    return [
        named,
        layer("ties", {"type": "rule", "color": VERMILION, "opacity": 0.5}, ties, between),
        layer("left", {"type": "point", "filled": True, "size": 22, "opacity": 1}, dots,
              {**at, "color": colour, "shape": shape}),
    ]  # fmt: skip
