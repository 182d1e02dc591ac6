"""The page and the chart of a `Comparison`: `Comparison.report` and `Comparison.chart` call this module."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from empriv.base.storage import write_atomically
from empriv.base.text import shortened, visible
from empriv.comparing.comparison import HEADERS, Comparison, front_said, notes_of, rows_of
from empriv.errors import InputError
from empriv.report.charts.chart import (
    BLUE,
    FAINT,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    SKY,
    VERMILION,
    WIDTH,
    Chart,
    Scale,
    layer,
    numbers,
    records,
    risk_scale,
    round_up,
    spec_of,
)
from empriv.report.rendering import label, page_path, payload_of, picture_of, render
from empriv.results import FloatArray

_LONGEST = 40
_COLOURS = (BLUE, VERMILION, GREEN, PURPLE, INK, ORANGE, SKY, FAINT)
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down")
_AXIS = "delta (most exposed individual)"
_TALL = 340
_LETTER = 6.7  # pixels of a label's letter


def write_comparison(comparison: Comparison, path: str | PathLike[str], *, title: str | None = None) -> Path:
    """Write one self-contained page, mode 0600.

    Parameters
    ----------
    comparison : what is shown
    path : of the page; must end in .html
    title : of the page

    Examples
    --------
    >>> from empriv.report import write_comparison
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 60)
    >>> raw = empriv.Results.from_arrays(q, [q - 1.0])
    >>> rounded = empriv.Results.from_arrays(q.round(-1), [(q - 1.0).round(-1)])
    >>> comparison = empriv.compare({"raw": raw, "rounded": rounded}, truth="raw", epsilon=0.1)
    >>> write_comparison(comparison, "compare.html").name
    'compare.html'
    """
    target = page_path(path)
    names = _names(comparison)
    recommended, truth = comparison.recommendation, comparison.truth
    protocols = []
    for name, audit in comparison.audits.items():
        summary = audit.summary()
        grave = [check.sentence for check in audit.checks if check.severity != "info" and check.code != "exact-leak"]
        warnings = [visible(warning) for warning in (*summary.warnings, *grave)]
        query = "" if audit.origin is None else f"{' '.join(audit.query.split())}. "
        protocols.append(
            {"name": names[name], "asked": visible(f"{query}{summary.asked}"), "alarms": summary.alarms,
             "warnings": warnings}
        )  # fmt: skip
    charts = [] if truth is None else [comparison_chart(comparison)]
    content = {
        "title": visible(title) if title is not None else "Protocols side by side",
        "columns": HEADERS if truth is not None else HEADERS[:4],
        "tables": [
            (
                label(epsilon),
                [(names[name], *row[1:]) for name, row in zip(names, rows_of(comparison, epsilon), strict=True)],
                "" if truth is None else front_said(comparison, epsilon),
            )
            for epsilon in comparison.epsilons
        ],
        "notes": notes_of(comparison),
        "charts": [picture_of(chart) for chart in charts],
        "recommendation": recommended,
        "verdicts": [] if recommended is None else [(names[name], recommended.verdicts[name]) for name in names],
        "protocols": protocols,
    }
    text = render("compare.html", content, payload_of(charts))
    write_atomically(target, text.encode("utf-8", "backslashreplace"))
    return target


def comparison_chart(comparison: Comparison, epsilon: float | None = None) -> Chart:
    """The error of each protocol against its delta at one epsilon.

    Examples
    --------
    >>> from empriv.report import comparison_chart
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 60)
    >>> raw = empriv.Results.from_arrays(q, [q - 1.0])
    >>> rounded = empriv.Results.from_arrays(q.round(-1), [(q - 1.0).round(-1)])
    >>> comparison = empriv.compare({"raw": raw, "rounded": rounded}, truth="raw", epsilon=0.1)
    >>> comparison_chart(comparison).name
    'errors'
    """
    if comparison.truth is None:
        raise InputError("The chart of errors must have a truth, got a comparison without one.")
    at = comparison.epsilons[0] if epsilon is None else float(epsilon)
    names, delta = _names(comparison), comparison.delta(at)
    return errors_chart(
        {names[row.protocol]: (row.mean_absolute, float(delta[row.protocol])) for row in comparison.utility},
        [names[protocol] for protocol in comparison.front(at)],
        title=f"Error against delta at epsilon {label(at)}",
    )


def _names(comparison: Comparison) -> dict[str, str]:
    """Each name as it is shown: short, without characters that cannot be seen."""
    short = {name: shortened(name, _LONGEST) for name in comparison.names}
    if len(set(short.values())) < len(short):
        raise InputError(f"`protocols` must have names that differ in their first {_LONGEST - 3} characters.")
    return short


def errors_chart(points: Mapping[str, tuple[float, float]], front: Sequence[str], *, title: str) -> Chart:
    """Mean error against risk, a mark for each protocol, and a line through those that no other improves on."""
    shown = {protocol: point for protocol, point in points.items() if not any(map(math.isnan, point))}
    names = list(points)
    errors, risks = (np.array([point[k] for point in shown.values()]) for k in (0, 1))
    x, y = _error_scale(errors), risk_scale(risks, np.zeros(0))
    at_x, at_y = x.encoding("error", "mean absolute error of the answer"), y.encoding("risk", _AXIS)
    # as many columns as fit
    columns = max(1, min(4, int(WIDTH / (max(map(len, names)) * _LETTER + 45))))
    legend = {"symbolSize": 200, "rowPadding": 0, "columns": columns}
    kind = {"field": "which", "type": "nominal", "sort": names, "legend": legend}
    colours = [_COLOURS[k % len(_COLOURS)] for k in range(len(names))]
    colour = {**kind, "scale": {"domain": names, "range": colours}}
    # with the colours no two of a dozen are alike
    shape = {**kind, "scale": {"domain": names, "range": [_SHAPES[(k + k // 6) % 6] for k in range(len(names))]}}
    rows = records(error=x.drawn(errors), risk=y.drawn(risks), which=list(shown))
    by_name = {row["which"]: row for row in rows}
    ordered = [{**by_name[visible(protocol)], "order": k} for k, protocol in enumerate(front)]
    line = layer(
        "front", {"type": "line", "color": FAINT, "strokeWidth": 1.5, "strokeDash": [4, 3]}, ordered,
        {"x": at_x, "y": at_y, "order": {"field": "order"}},
    )  # fmt: skip
    marks = layer(
        "marks", {"type": "point", "filled": True, "size": 110, "opacity": 1}, rows,
        {"x": at_x, "y": at_y, "color": colour, "shape": shape},
    )  # fmt: skip
    missing = [protocol for protocol in points if protocol not in shown]
    not_drawn = f" Not drawn, because they give no answer: {', '.join(missing)}." if missing else ""
    logs = " and ".join(word for word, scale in (("error", x), ("risk", y)) if scale.kind == "log")
    scale_said = f" The scale of {logs} is logarithmic, with 0 at its end." if logs else ""
    return Chart(
        name="errors",
        title=title,
        caption=(
            "Further down is more private, further left more exact. The dashed line joins the protocols that no "
            "other improves on in both. It goes by the estimates, so neighbours on it may not really differ."
            f"{scale_said}{not_drawn}"
        ),
        spec=spec_of(layer=[line, marks], height=_TALL),
        data={
            "protocol": names,
            "mean absolute error": numbers(np.array([point[0] for point in points.values()])),
            _AXIS: numbers(np.array([point[1] for point in points.values()])),
            "front": ["yes" if protocol in front else "no" for protocol in names],
        },
    )


def _error_scale(errors: FloatArray) -> Scale:
    """An axis for errors: logarithmic if those that are not 0 span more than a factor of 20."""
    positive = errors[errors > 0]
    if not len(positive):
        return Scale(0.0, 1.0)
    most, least = float(positive.max()), float(positive.min())
    if most <= 20 * least:
        return Scale(0.0, round_up(1.05 * most))
    bottom = 10.0 ** math.floor(math.log10(least) - (1.0 if len(positive) < len(errors) else 0.0))
    top = round_up(1.2 * most)
    exponents = range(round(math.log10(bottom)), math.floor(math.log10(top)) + 1)
    return Scale(bottom, top, "log", tuple(10.0**k for k in exponents))
