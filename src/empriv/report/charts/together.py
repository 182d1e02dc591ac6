"""Charts of several numbers released together: the joint density of two of them, as a map."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from itertools import combinations
from typing import Any

import numpy as np

from empriv.base.harmless import shortened
from empriv.errors import InputError
from empriv.measuring import JointRisk, RiskContract, TableRisk
from empriv.measuring.densities import Mixture
from empriv.report.charts.chart import BLUE, INK, ORANGE, SKY, Chart, Scale, layer, numbers, records, spec_of, stacked
from empriv.report.gather import Material
from empriv.results import FloatArray
from empriv.words.sentences import number

_MOST_PAIRS = 3
_MOST_DOTS = 400
_CELLS = 40
_MAP = 268  # pixels of a map's side: its legend stands beside it
_READ = (
    "How likely each pair of results is: darker is likelier. Numbers released together tell more than each alone, and "
    "most where they are related."
)


def pair_chart(material: Material) -> Chart | None:
    """Joint densities of the pairs of numbers that tell most; None if there is one number, or no density of two."""
    return _pairs(material.audit.risk, material)


@singledispatch
def _pairs(risk: RiskContract, material: Material) -> Chart | None:  # noqa: ARG001 — other kinds have none
    return None


@_pairs.register
def _(risk: JointRisk | TableRisk, material: Material) -> Chart | None:
    pairs, epsilon = list(combinations(risk.components, 2)), float(material.epsilons[material.start])
    views: list[dict[str, Any]] = []
    shown: list[tuple[str, str]] = []
    for pair in _worst(risk, pairs):
        view = _view(risk, pair, len(views)) if len(views) < _MOST_PAIRS else None
        if view is not None:
            views.append(view)
            shown.append(pair)
    if not views:
        return None
    dots = "draw of noise" if (risk.results.draws or 1) > 1 else "database"
    of_how_many = (
        "" if len(shown) == len(pairs) else f" Of {len(pairs):,} pairs, the chart shows those that are most correlated."
    )
    pair_delta = ""
    if len(risk.components) == 2:
        both = " and ".join(shortened(name, 30) for name in shown[0])
        pair_delta = f" delta of two at epsilon {epsilon:.4g}: {both}, {number(float(risk.delta(epsilon)))}."
    many = (
        f" The table holds the first {_MOST_DOTS}."
        if risk.results.n_databases * (risk.results.draws or 1) > _MOST_DOTS
        else ""
    )
    names = list(dict.fromkeys(name for pair in shown for name in pair))
    return Chart(
        name="joint",
        title="Numbers released together",
        caption=(
            f"{_READ} Each dot is one {dots}.{of_how_many}{pair_delta} The picture smooths each number with its own "
            f"bandwidth; delta was measured with the joint density.{many}"
        ),
        spec={**stacked(views), "resolve": {"scale": {"color": "independent"}}},  # each pair has its own densest spot
        data={shortened(name, 40): numbers(risk.components[name].pairs.points[:_MOST_DOTS]) for name in names},
    )


def joint_chart(
    x: FloatArray, y: FloatArray, density: FloatArray, *, points: tuple[FloatArray, FloatArray], names: tuple[str, str]
) -> Chart:
    """The joint density of two numbers, from plain arrays.

    Parameters
    ----------
    x, y : places on the two axes, evenly spaced
    density : (len(y), len(x))
    points : the pairs of results
    names : of the two numbers
    """
    density = np.asarray(density, float)
    if density.shape != (len(y), len(x)):
        raise InputError(f"`density` must have shape {(len(y), len(x))}, got {density.shape}.")
    titles = [shortened(name, 40) for name in names]
    return Chart(
        name="joint",
        title=f"Joint density of {titles[0]} and {titles[1]}",
        caption=f"{_READ} Each dot is one database.",
        spec=spec_of(width=_MAP, height=_MAP, layer=_layers(x, y, density, points, names, 0)),
        data={titles[0]: numbers(points[0]), titles[1]: numbers(points[1])},
    )


def _layers(
    x: FloatArray, y: FloatArray, density: FloatArray, points: tuple[FloatArray, FloatArray], names: Sequence[str],
    place: int,
) -> list[dict[str, Any]]:  # fmt: skip
    half = (x[1] - x[0]) / 2, (y[1] - y[0]) / 2
    columns, rows_at = np.meshgrid(x, y)
    x_scale = Scale(float(x[0] - half[0]), float(x[-1] + half[0]))
    y_scale = Scale(float(y[0] - half[1]), float(y[-1] + half[1]))
    rows = records(
        x=(columns - half[0]).ravel(), x2=(columns + half[0]).ravel(), y=(rows_at - half[1]).ravel(),
        y2=(rows_at + half[1]).ravel(), p=density.ravel(),
    )  # fmt: skip
    titles = [shortened(name, 40) for name in names]
    at = {
        "x": x_scale.encoding("x", titles[0], grid=False, format=_format(x)),
        "y": y_scale.encoding("y", titles[1], grid=False, format=_format(y)),
    }
    colour = {"field": "p", "type": "quantitative", "legend": {"title": "density", "orient": "right", "format": ".2~g"},
              "scale": {"range": ["#f7fbff", SKY, BLUE, "#08306b"], "domainMin": 0}}  # fmt: skip
    step = max(1, -(-len(points[0]) // _MOST_DOTS))
    dot = {
        "type": "point", "filled": True, "color": ORANGE, "stroke": INK, "strokeWidth": 0.6, "opacity": 1,
        "size": 34 if len(points[0]) <= 100 else 14,
    }  # fmt: skip
    return [
        layer(f"joint{place}", {"type": "rect"}, rows,
              {**at, "x2": {"field": "x2"}, "y2": {"field": "y2"}, "color": colour}),
        layer(f"pairs{place}", dot, records(x=points[0][::step], y=points[1][::step]), at),
    ]  # fmt: skip


def _format(values: FloatArray) -> str:
    return ",~r" if float(np.abs(values).max()) < 1e5 else "~s"


def _view(risk: JointRisk | TableRisk, pair: tuple[str, str], place: int) -> dict[str, Any] | None:
    """The map of one pair; None where either has no density."""
    first, second = (risk.components[name] for name in pair)
    if not (isinstance(first.density, Mixture) and isinstance(second.density, Mixture)):
        return None
    finite = np.isfinite(first.pairs.points) & np.isfinite(second.pairs.points)
    a, b = first.pairs.points[finite], second.pairs.points[finite]
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    widths = first.density.bandwidths[finite], second.density.bandwidths[finite]
    x, y = _even(a, widths[0]), _even(b, widths[1])
    kernels = [
        model.kernel.pdf((places[:, None] - points) / width) / width
        for places, points, width, model in ((x, a, widths[0], first.density), (y, b, widths[1], second.density))
    ]
    layers = _layers(x, y, kernels[1] @ kernels[0].T / len(a), (a, b), pair, place)
    return {"width": _MAP, "height": 200, "layer": layers}


def _worst(risk: JointRisk | TableRisk, pairs: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """The pairs, those that are most correlated first where they are many."""
    if len(pairs) <= _MOST_PAIRS:
        return list(pairs)
    names, d = list(risk.components), len(risk.components)
    q = np.where(risk.results.outcomes == 0, risk.results.q, np.nan).reshape(-1, d)
    centred = q - np.nanmean(q, axis=0)
    spread = np.sqrt(np.nanmean(centred**2, axis=0))
    scaled = np.nan_to_num(centred / np.where(spread > 0, spread, np.inf))
    together = np.abs(scaled.T @ scaled)
    place = {name: k for k, name in enumerate(names)}
    return sorted(pairs, key=lambda pair: -together[place[pair[0]], place[pair[1]]])


def _even(points: FloatArray, widths: FloatArray) -> FloatArray:
    margin = 2 * float(np.median(widths))
    return np.linspace(float(points.min()) - margin, float(points.max()) + margin, _CELLS)
