"""The chart of the individuals: how delta_i is distributed over everyone, however many people there are."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np

from empriv.report.charts.chart import (
    BLUE,
    FAINT,
    Chart,
    Scale,
    layer,
    records,
    spec_of,
)
from empriv.report.gather import Material
from empriv.words.sentences import number


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
    bars["encoding"]["y"]["scale"]["constant"] = 1  # symlog: log(1 + count)
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
    )


def _powers(most: int) -> tuple[float, ...]:
    ticks = [0.0, 1.0] + [10.0**k for k in range(1, 10) if 10.0**k <= most]
    return (*ticks, float(most)) if most > 2.5 * ticks[-1] else tuple(ticks)


def _is_power_of_ten(edge: float) -> bool:
    return edge > 0 and abs(math.log10(edge) - round(math.log10(edge))) < 1e-9


def _short(edge: float) -> str:
    return "0" if edge == 0 else number(edge, 2)
