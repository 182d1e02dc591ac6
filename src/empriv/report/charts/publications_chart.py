"""The chart of publishing again: delta of the most exposed individual against the number of publications."""

from __future__ import annotations

import math

import numpy as np

from empriv.measuring.series import composes
from empriv.report.charts.chart import (
    BLUE,
    INK,
    ORANGE,
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
from empriv.words.sentences import number, percent

YEAR = 365
_COUNTS = (1, 2, 3, 5, 7, 10, 14, 20, 30, 52, 75, 100, 150, 200, 250, 300, YEAR, 500, 750, 1000)
_MORE = (2_000, 5_000, 10_000, 100_000, 1_000_000)


def publications_chart(material: Material) -> Chart | None:
    """delta after so many publications, estimate and upper figure, with the targets; None for a kind that has none."""
    audit, targets = material.audit, material.targets
    risk, epsilon = audit.once, material.epsilon
    if not composes(risk) or not np.isfinite(epsilon):
        return None
    counts = sorted({*_COUNTS, *(count for count in _MORE if count <= 2 * audit.times), audit.times})
    told = audit.publications(epsilon)
    level = told.level
    estimate, upper = [told.estimated_delta(count) for count in counts], [told.upper_delta(count) for count in counts]
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
