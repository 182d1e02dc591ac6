"""The page and the charts of a `Comparison`: `Comparison.report` and `Comparison.chart` call this module."""

from __future__ import annotations

import math
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from empriv.base.arguments import one_of
from empriv.base.harmless import shortened, visible
from empriv.base.storage import write_atomically
from empriv.comparing.bands import reach_of
from empriv.comparing.comparison import Comparison
from empriv.comparing.differences import FIGURES, Difference
from empriv.comparing.telling import count_others, describe_real, notes_of
from empriv.errors import InputError
from empriv.report.charts.chart import Chart, round_up
from empriv.report.charts.versus import Band, utility_chart, versus_chart
from empriv.report.gather import Material
from empriv.report.page.rendering import label, page_path, payload_of, picture_of, render
from empriv.results import FloatArray
from empriv.words import side_by_side as words
from empriv.words.sentences import databases, number, people

_MOST_CELLS = 12  # of a table, whose errors are shown for each protocol; JSON has all of them
COMPARISON_CHARTS = ("delta", "total_risk", "utility", "utility_total_risk")
_LONGEST = 40
_AXES = {"delta": "delta (most exposed individual)", "total_risk": "total risk (anybody)"}

_ALONG = (
    "One line for each protocol; lower is more private. Below, each by itself on its band, with the others in grey: "
    "each end of a band is by itself a bound at 95%, and a band that reaches the top means no upper bound."
)
_TOTAL = " The upper end of a band of total risk is indicative only."
_OVERLAP = (
    " Bands that overlap do not mean that there is no difference: all were measured on the same databases, and the "
    "table of differences says more than the bands do."
)


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
    material = _materials(comparison, comparison.epsilons[0])
    first = next(iter(material.values()))
    start, first_epsilon = first.start, comparison.epsilons[0]
    bind: dict[str, list[str]] = {"epsilon": [label(float(e)) for e in first.epsilons]}
    upper = comparison.upper(first_epsilon)
    errors = comparison.truth is not None and comparison.scalar
    front = comparison.front(first_epsilon) if errors else ()
    recommended = comparison.recommendation
    rows = []
    for k, (name, drawn) in enumerate(material.items()):
        audit, curves = comparison[name], drawn.curves
        bind[f"delta{k}"] = [number(float(v), 3) for v in curves.delta]
        bind[f"total{k}"] = [number(float(v), 3) for v in curves.total_risk]
        bind[f"exposed{k}"] = [f"{int(v):,}" for v in curves.n_exposed]
        summary = audit.summary()
        grave = [check.sentence for check in audit.checks if check.severity != "info" and check.code != "exact-leak"]
        rows.append(
            {
                "name": names[name],
                "databases": f"{audit.results.n_databases:,}",
                "individuals": f"{audit.results.n_individuals:,}",
                "upper": words.upper_said(upper[name]),
                "verdict": None if recommended is None else recommended.verdicts[name],
                "front": "yes" if name in front else "no",
                "asked": visible(" ".join(audit.query.split()) if audit.origin is not None else summary.asked),
                "alarms": summary.alarms,
                "warnings": [visible(warning) for warning in (*summary.warnings, *grave)],
            }
        )
    charts = [
        _chart(comparison, chart_name, material, first_epsilon)
        for chart_name in COMPARISON_CHARTS[: 4 if errors else 2]
    ]
    differences = comparison.differences() if comparison.incomparable is None else ()
    content = {
        "title": visible(title) if title is not None else "Protocols side by side",
        "rows": rows,
        "alike": _alike(comparison),
        "bounded_at": label(first_epsilon),
        "truth": None if comparison.truth is None else names[comparison.truth],
        "with_front": errors,
        "utility": _utility_rows(comparison, names),
        "several": not comparison.scalar,
        "utility_columns": [
            *([] if comparison.scalar else ["number"]),
            "mean", "median", "90% within", "99% within", "bias", "relative", "no answer",
        ],
        "differences": {figure: _difference_rows(differences, figure, names) for figure in FIGURES}
        if differences
        else {},
        "real": describe_real(differences),
        "told": count_others(differences) if differences else "",
        "held": words.held_together(0.95, len(differences)) if differences else "",
        "notes": [note for note in notes_of(comparison) if recommended is None or note != recommended.sentence],
        "charts": [picture_of(chart) for chart in charts],
        "ticks": [
            (int(np.searchsorted(first.epsilons, epsilon)), label(epsilon))
            for epsilon in comparison.epsilons
            if epsilon in first.epsilons
        ],
        "recommendation": recommended,
    }  # fmt: skip
    payload = {
        "epsilons": bind["epsilon"],
        "start": start,
        "bind": bind,
        **payload_of(charts),
        "individuals": None,
    }
    text = render("compare.html", content, payload)
    write_atomically(target, text.encode("utf-8", "backslashreplace"))
    return target


def comparison_chart(comparison: Comparison, name: str, epsilon: float | None = None) -> Chart:
    """One chart: "delta" or "total_risk" along epsilon; "utility" or "utility_total_risk" at one epsilon.

    Examples
    --------
    >>> from empriv.report import comparison_chart
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 60)
    >>> raw = empriv.Results.from_arrays(q, [q - 1.0])
    >>> rounded = empriv.Results.from_arrays(q.round(-1), [(q - 1.0).round(-1)])
    >>> comparison = empriv.compare({"raw": raw, "rounded": rounded}, truth="raw", epsilon=0.1)
    >>> comparison_chart(comparison, "utility").name
    'utility'
    """
    one_of("name", name, COMPARISON_CHARTS)
    if name.startswith("utility") and (comparison.truth is None or not comparison.scalar):
        raise InputError("`name` must be delta or total_risk without a truth, or where queries give several numbers.")
    at = comparison.epsilons[0] if epsilon is None else float(epsilon)
    along = {} if name.startswith("utility") else _materials(comparison, at)
    return _chart(comparison, name, along, at)


def _chart(comparison: Comparison, name: str, material: dict[str, Material], at: float) -> Chart:
    names = _names(comparison)
    if name.startswith("utility"):
        figure = "delta" if name == "utility" else "total_risk"
        risk = comparison.delta(at) if figure == "delta" else comparison.total_risk(at)
        return utility_chart(
            {names[row.protocol]: (row.mean_absolute, float(risk[row.protocol])) for row in comparison.utility},
            [names[protocol] for protocol in comparison.front(at, figure)],
            name=name,
            title=f"Error against {figure.replace('_', ' ')} at epsilon {label(at)}",
            axis=_AXES[figure],
            caption=(
                "Further down is more private, further left more exact. The dashed line joins the protocols that no "
                "other improves on in both. It goes by the estimates, so neighbours on it may not really differ."
            ),
        )
    figures = ("lower", "estimate", "upper")
    if name == "total_risk":
        figures = ("total_risk_lower", "total_risk", "total_risk_upper")
    first = next(iter(material.values()))
    shown = first.finite
    return versus_chart(
        first.epsilons[shown],
        {names[protocol]: getattr(drawn.curves, name)[shown] for protocol, drawn in material.items()},
        {
            names[protocol]: _band(band.epsilon, *(getattr(band, figure) for figure in figures))
            for protocol, band in comparison.bands.items()
        },
        start=first.start,
        name=name,
        title=f"{'delta' if name == 'delta' else 'Total risk'} against epsilon",
        axis=_AXES[name],
        caption=_ALONG + ("" if name == "delta" else _TOTAL) + (_OVERLAP if comparison.incomparable is None else ""),
    )


def _band(epsilons: FloatArray, lower: FloatArray, estimate: FloatArray, upper: FloatArray) -> Band:
    """A band around its curve: a lower bound above the estimate is not drawn."""
    return Band(epsilons, np.minimum(lower, estimate), upper)


def _alike(comparison: Comparison) -> str | None:
    """How many databases and individuals every audit has; None if they differ."""
    counts = {(audit.results.n_databases, audit.results.n_individuals) for audit in comparison.audits.values()}
    if len(counts) > 1 or not comparison.paired:
        return None
    n, count = counts.pop()
    return f"{databases(n)} with {people(count)}"


def _names(comparison: Comparison) -> dict[str, str]:
    """Each name as it is shown: short, without characters that cannot be seen."""
    short = {name: shortened(name, _LONGEST) for name in comparison.names}
    if len(set(short.values())) < len(short):
        raise InputError(f"`protocols` must have names that differ in their first {_LONGEST - 3} characters.")
    return short


def _materials(comparison: Comparison, at: float) -> dict[str, Material]:
    """What is drawn of each, all over one grid of epsilons."""
    bounded = next(iter(comparison.bands.values())).epsilon
    finite = at if math.isfinite(at) else 0.0
    end = round_up(max(reach_of(comparison.audits, comparison.epsilons), float(bounded[-1]), finite))
    grid = np.unique(np.concatenate((np.linspace(0.0, end, 50), bounded, [at])))
    start = int(np.searchsorted(grid, at))
    return {name: Material(audit, grid, start) for name, audit in comparison.audits.items()}


def _utility_rows(comparison: Comparison, names: dict[str, str]) -> list[tuple[Any, ...]]:
    """Errors of each protocol; of a table those of all cells first, then of the cells with the largest."""
    if comparison.truth is None:
        return []
    shown = list(comparison.overall)
    if not comparison.scalar:
        cells = sorted(comparison.utility, key=lambda row: -np.nan_to_num(row.mean_absolute, nan=-1.0))
        shown = [
            row
            for whole in comparison.overall
            for row in (whole, *[cell for cell in cells if cell.protocol == whole.protocol][:_MOST_CELLS])
        ]
    return [
        (
            names[row.protocol], "all" if row.component is None else visible(row.component),
            *(words.amount(v) for v in (row.mean_absolute, row.median, row.ninety, row.ninety_nine, row.bias)),
            words.share(row.relative), words.share(row.unanswered),
        )
        for row in shown
    ]  # fmt: skip


def _difference_rows(differences: tuple[Difference, ...], figure: str, names: dict[str, str]) -> list[tuple[str, ...]]:
    return [
        (
            label(difference.epsilon), names[difference.first], names[difference.second], number(difference.difference),
            "0" if difference.verdict == words.NONE else f"{number(difference.lower)} to {number(difference.upper)}",
            difference.verdict,
        )
        for difference in differences
        if difference.figure == figure
    ]  # fmt: skip
