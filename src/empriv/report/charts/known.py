"""The chart of what was counted as known: the answers with the fitted level and the band around it, and what is left.

Above, what somebody can predict who knows the level; below, the randomness that is left to protect people, with
everyone and without the most exposed individual, who is not named.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

import numpy as np

from empriv.base.harmless import shortened
from empriv.measuring import GivenRisk
from empriv.measuring.contract import RiskContract
from empriv.measuring.given.presence import without
from empriv.report.charts.by_database import labelled, value_range
from empriv.report.charts.chart import (
    BLUE,
    SKY,
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
from empriv.scale.tallied import TalliedRisk

_ABOVE, _BELOW = 220, 150
_MOST = 400  # databases that are drawn, evenly; the table has more
_MOST_ROWS = 2_000
_LEVEL = 0.95  # of what is left lies in the band


def known_chart(material: Material) -> Chart | None:
    """Answers with what was taken out of them, and what is left; None where nothing was."""
    return _known(material.audit.measured, material)


@singledispatch
def _known(risk: RiskContract, material: Material) -> Chart | None:  # noqa: ARG001 — other kinds take nothing out
    return None


@_known.register
def _(risk: TalliedRisk, material: Material) -> Chart | None:
    return _known(risk.riskiest, material)


@_known.register
def _(risk: GivenRisk, material: Material) -> Chart | None:
    left, fit = risk.left, risk.left.fit
    n = left.original.n_databases
    back = np.exp if left.logarithm else np.asarray
    answers = left.original.q.reshape(n, -1).mean(axis=1)
    here = np.flatnonzero(np.isfinite(fit.residuals))
    if not len(here) or not risk.n_individuals:
        return None
    scale = fit.spread.scale if fit.spread is not None else np.ones(n)
    low, high = np.quantile((fit.residuals / scale)[here], [0.5 - _LEVEL / 2, 0.5 + _LEVEL / 2])
    level = back(fit.level)
    ends = back(fit.level + scale * low), back(fit.level + scale * high)
    row = int(material.curves.worst[material.start])
    rest = risk.results.q.reshape(n, -1).mean(axis=1)
    others = without(risk.results, row).reshape(n, -1).mean(axis=1)
    labels = [shortened(str(label), 24) for label in left.original.databases]
    drawn = here if len(here) <= _MOST else here[np.linspace(0, len(here) - 1, _MOST).round().astype(int)]
    thinned = f" {len(drawn):,} of {n:,} databases are drawn." if len(drawn) < n else ""
    unit = " The band and the level are those of the logarithm, drawn in units of the results." * left.logarithm
    terms = ", ".join(term.name for term in fit.terms) or "nothing but the level"
    table = here[:_MOST_ROWS]
    return Chart(
        name="known",
        title="What is known, and what is left",
        caption=(
            f"Above: the result on each database (dots), the level that somebody predicts who knows {terms} (line), "
            f"and the band in which {_LEVEL:.0%} of the results lie around it: only what varies within the band "
            "protects anybody. Below: what is left of the results once the level is taken out, with everyone (dots) "
            "and without the most exposed individual (triangles); it should look like independent draws."
            f"{unit}{thinned}"
        ),
        spec=stacked([
            _above(drawn, labels, answers, level, ends),
            _below(drawn, labels, rest, others),
        ]),
        data={
            "database": [labels[k] for k in table],
            "result": numbers(answers[table]),
            "level": numbers(level[table]),
            "band from": numbers(ends[0][table]),
            "band to": numbers(ends[1][table]),
            "left with everyone": numbers(rest[table]),
            "left without the most exposed": numbers(others[table]),
        },
    )  # fmt: skip


def _above(
    drawn: np.ndarray[Any, np.dtype[np.int64]],
    labels: list[str],
    answers: FloatArray,
    level: FloatArray,
    ends: tuple[FloatArray, FloatArray],
) -> dict[str, Any]:
    x, y = Scale(0.5, len(labels) + 0.5), Scale(*value_range(np.concatenate((answers[drawn], ends[0], ends[1]))))
    at = {"x": x.encoding("at", None, grid=False, labels=False, ticks=False), "y": _axis(y, "query result", _ABOVE)}
    rows = records(at=drawn + 1, value=level[drawn], low=ends[0][drawn], high=ends[1][drawn])
    dots = records(at=drawn + 1, value=answers[drawn])
    band = {**at, "y": {**at["y"], "field": "low"}, "y2": {"field": "high"}}
    return {
        "width": WIDTH, "height": _ABOVE,
        "layer": [
            layer("band", {"type": "area", "color": SKY, "opacity": 0.35}, rows, band),
            layer("level", {"type": "line", "color": VERMILION, "strokeWidth": 1.5}, rows, at),
            layer("answers", {"type": "point", "filled": True, "color": BLUE, "size": 22, "opacity": 1}, dots, at),
        ],
    }  # fmt: skip


def _below(
    drawn: np.ndarray[Any, np.dtype[np.int64]], labels: list[str], rest: FloatArray, others: FloatArray
) -> dict[str, Any]:
    x, y = Scale(0.5, len(labels) + 0.5), Scale(*value_range(np.concatenate((rest[drawn], others[drawn]))))
    named = labelled(x, labels, _BELOW)
    at = {"x": named["encoding"]["x"], "y": _axis(y, "what is left", _BELOW)}
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
    return {
        "width": WIDTH, "height": _BELOW,
        "layer": [
            named,
            layer("ties", {"type": "rule", "color": VERMILION, "opacity": 0.5}, ties, between),
            layer("left", {"type": "point", "filled": True, "size": 22, "opacity": 1}, dots,
                  {**at, "color": colour, "shape": shape}),
        ],
    }  # fmt: skip


def _axis(y: Scale, title: str, height: int) -> dict[str, Any]:
    big = max(abs(y.low), abs(y.high)) >= 1e6
    return y.encoding("value", title, format="~s" if big else ",~r", tickCount=height // 40)
