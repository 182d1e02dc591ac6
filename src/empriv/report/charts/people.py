"""Charts of the individuals: how delta_i is distributed, and who is exposed by presence and influence.

Both are aggregates over everyone, however many people there are.
"""

from __future__ import annotations

import math
from functools import singledispatch
from itertools import pairwise

import numpy as np

from empriv.measuring import RiskContract
from empriv.report.charts.chart import (
    BLUE,
    FAINT,
    HEAT,
    HEAT_STEPS,
    HEIGHT,
    Chart,
    Scale,
    layer,
    numbers,
    records,
    spec_of,
)
from empriv.report.gather import Material
from empriv.results import FloatArray
from empriv.scale.tallied import TalliedRisk
from empriv.words.sentences import not_everybody, number, people

_STEPS = ("0", "up to 0.0001", "up to 0.001", "up to 0.01", "up to 0.1", "above 0.1")


def delta_i_chart(material: Material) -> Chart:
    """How many individuals have which delta_i."""
    counts, edges = material.curves.histogram, material.curves.edges
    used = np.flatnonzero(counts[:, 1:].sum(axis=0))
    first = int(used[0]) if len(used) else len(edges) - 4
    last = int(used[-1]) if len(used) else len(edges) - 2
    first = min(first, max(0, last - 2))
    shown = np.concatenate(([0], np.arange(first, last + 1) + 1))
    counts = counts[:, shown]
    edges = edges[first : last + 2]
    names = ["exactly 0", *(f"{_short(a)} to {_short(b)}" for a, b in pairwise(edges.tolist()))]
    y = Scale(0.0, max(1.0, float(counts.max())), "symlog", _powers(int(counts.max())))
    start = material.start
    rows = records(
        low=range(len(shown)), high=[k + 1 for k in range(len(shown))], count=counts[start], zero=[0] * len(shown),
        kind=["nobody's failure" if k == 0 else "exposed" for k in range(len(shown))],
    )  # fmt: skip
    spots = {0.5: "0", **{k + 1.0: _short(edge) for k, edge in enumerate(edges.tolist()) if _is_power_of_ten(edge)}}
    table = " : ".join(f"abs(datum.value - {spot}) < 0.01 ? '{label}'" for spot, label in spots.items()) + " : ''"
    x = Scale(0.0, float(len(shown)), ticks=tuple(spots))
    bars = layer(
        "bars",
        {"type": "bar", "binSpacing": 2},
        rows,
        {
            "x": {**x.encoding("low", "delta_i (logarithmic; exactly 0 on the left)", labelExpr=table, grid=False),
                  "bin": "binned"},
            "x2": {"field": "high"},
            "y": {**y.encoding("count", "individuals"), "stack": None},
            "color": {"field": "kind", "type": "nominal", "legend": None,
                      "scale": {"domain": ["nobody's failure", "exposed"], "range": [FAINT, BLUE]}},
        },
    )  # fmt: skip
    bars["encoding"]["y"]["scale"]["constant"] = 1  # symlog as the report's script has it: log(1 + count)
    return Chart(
        name="delta_i",
        title="How delta_i is distributed over individuals",
        caption=(
            "How many individuals have which failure probability. The grey bar counts those whose privacy is not seen "
            "to fail at all; bars further right are people who are more exposed. Heights are logarithmic, so that a "
            "single individual can be seen beside thousands."
        ),
        spec=spec_of(layer=[bars]),
        data={"delta_i": names, "individuals": [int(count) for count in counts[start]]},
        live={"kind": "bars", "y": y.live(HEIGHT), "counts": counts.tolist()},
    )


def influence_chart(material: Material) -> Chart | None:
    """Largest influence against presence, coloured by delta_i; None if nobody changes a number, and of a scan."""
    return _influence(material.audit.measured, material)


@singledispatch
def left_out_charts(risk: RiskContract) -> tuple[str, ...]:  # noqa: ARG001 — as a rule
    """Sentences on charts that a kind of risk cannot have, though it has what they show."""
    return ()


@left_out_charts.register
def _(risk: TalliedRisk) -> tuple[str, ...]:
    return (not_everybody(risk.results.n_individuals, risk.n_individuals),)


@singledispatch
def _influence(risk: RiskContract, material: Material) -> Chart | None:  # noqa: ARG001 — of any kind
    cells = material.cells
    if not len(cells.count):
        return None
    influence = material.influence
    silent, odd = int(np.count_nonzero(influence == 0)), int(np.count_nonzero(np.isnan(influence)))
    left_out = ""
    if silent:
        left_out += f" {people(silent)} who never change the result {'is' if silent == 1 else 'are'} not drawn."
    if odd:
        left_out += f" Nor {'is' if odd == 1 else 'are'} {people(odd)} without whom a result is not a number."
    low, high = (cells.influence.min(), cells.influence.max())
    y = Scale(float(low) / 1.6, float(high) * 1.6, "log", _decades(float(low) / 1.6, float(high) * 1.6))
    most_present = float(cells.presence.max(initial=1.0))
    x = Scale(0.0, most_present + max(0.5, 0.03 * most_present))
    steps = heat(material.curves.cells[:, material.start])
    order = np.argsort(-cells.count, kind="stable")
    rows = records(
        presence=cells.presence[order], influence=cells.influence[order], count=cells.count[order],
        heat=[_STEPS[k] for k in steps[order]],
    )  # fmt: skip
    most = max(2, int(cells.count.max(initial=1)))
    together = most > 2
    encoding = {
        "x": x.encoding("presence", "databases that the individual is in", tickMinStep=1),
        "y": y.encoding("influence", "largest change of the result", format=",~r" if high < 1e6 else "~s"),
        "color": {
            "field": "heat", "type": "nominal", "sort": list(_STEPS),
            "scale": {"domain": list(_STEPS), "range": list(HEAT)},
            "legend": {"title": "delta_i", "columns": 3, "labelLimit": 90, "columnPadding": 6},
        },
        "size": {"field": "count", "type": "quantitative", "legend": None,
                 "scale": {"type": "log", "domain": [1, most], "range": [24, 120] if together else [60, 60]}},
    }  # fmt: skip
    mark = {"type": "point", "filled": True, "opacity": 0.9, "stroke": FAINT, "strokeWidth": 0.7}
    meaning = (
        "Each circle stands for individuals who are alike; a larger circle for more of them. Its colour is that of the "
        "most exposed among them."
        if together
        else "Each circle is one individual."
    )
    return Chart(
        name="influence",
        title="Who is exposed: influence against presence",
        caption=(
            f"{meaning} Higher up means that leaving the individual out changes the result more; further right, that "
            f"they are in more databases. The colour shows how exposed they are.{left_out}"
        ),
        spec=spec_of(layer=[layer("cells", mark, rows, encoding)]),
        data={
            "databases (about)": [number(v, 3) for v in cells.presence[order]],
            "largest change (about)": numbers(cells.influence[order]),
            "individuals": [int(v) for v in cells.count[order]],
            "largest delta_i": [_STEPS[k] for k in steps[order]],
        },
        live={
            "kind": "cells",
            "colours": list(HEAT),
            "steps": list(_STEPS),
            "heat": [heat(column)[order].tolist() for column in material.curves.cells.T],
        },
    )


@_influence.register
def _(risk: TalliedRisk, material: Material) -> None:  # noqa: ARG001 — it would need everybody
    return None


def heat(delta_i: FloatArray) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    """Which colour each delta_i has."""
    return np.searchsorted(np.asarray(HEAT_STEPS), delta_i, side="left")


def _powers(most: int) -> tuple[float, ...]:
    ticks = [0.0, 1.0] + [10.0**k for k in range(1, 10) if 10.0**k <= most]
    return (*ticks, float(most)) if most > 2.5 * ticks[-1] else tuple(ticks)


def _decades(low: float, high: float) -> tuple[float, ...] | None:
    """Ticks at powers of ten; if fewer than two fit, at 1, 2 and 5 times those; None if these do not fit either."""
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    if last - first < 1:
        finer = [step * 10.0**k for k in range(first - 1, last + 2) for step in (1, 2, 5)]
        finer = [tick for tick in finer if low <= tick <= high]
        return tuple(finer) if len(finer) > 1 else None
    step = max(1, math.ceil((last - first) / 6))
    return tuple(10.0**k for k in range(first, last + 1, step))


def _is_power_of_ten(edge: float) -> bool:
    return edge > 0 and abs(math.log10(edge) - round(math.log10(edge))) < 1e-9


def _short(edge: float) -> str:
    return "0" if edge == 0 else number(edge, 2)
