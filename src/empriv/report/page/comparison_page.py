"""The page and the charts of a `Comparison`: `Comparison.report` and `Comparison.chart` call this module."""

from __future__ import annotations

import math
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from empriv.base.arguments import one_of
from empriv.base.storage import write_atomically
from empriv.base.text import shortened, visible
from empriv.comparing.comparison import Comparison, notes_of
from empriv.errors import InputError
from empriv.report.charts.chart import Chart, round_up
from empriv.report.charts.versus import utility_chart, versus_chart
from empriv.report.gather import Material
from empriv.report.page.rendering import label, page_path, payload_of, picture_of, render
from empriv.words import side_by_side as words
from empriv.words.sentences import databases, number, people

_MOST_CELLS = 12  # of a table, whose errors are shown for each protocol; JSON has all of them
COMPARISON_CHARTS = ("delta", "total_risk", "utility")
_LONGEST = 40
_AXES = {"delta": "delta (most exposed individual)", "total_risk": "total risk (anybody)"}

_ALONG = (
    "One line for each protocol; lower is more private. These are estimates: the table has the upper bound at the "
    "epsilons that were asked for."
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
    first_epsilon = comparison.epsilons[0]
    material = _materials(comparison, first_epsilon)
    errors = comparison.truth is not None and comparison.scalar
    recommended = comparison.recommendation
    rows = []
    for name, audit in comparison.audits.items():
        summary = audit.summary()
        grave = [check.sentence for check in audit.checks if check.severity != "info" and check.code != "exact-leak"]
        rows.append(
            {
                "name": names[name],
                "asked": visible(" ".join(audit.query.split()) if audit.origin is not None else summary.asked),
                "alarms": summary.alarms,
                "warnings": [visible(warning) for warning in (*summary.warnings, *grave)],
            }
        )
    charts = [
        _chart(comparison, chart_name, material, first_epsilon)
        for chart_name in COMPARISON_CHARTS[: 3 if errors else 2]
    ]
    content = {
        "title": visible(title) if title is not None else "Protocols side by side",
        "rows": rows,
        "alike": _alike(comparison),
        "privacy": [(label(epsilon), _privacy_rows(comparison, epsilon, names)) for epsilon in comparison.epsilons],
        "privacy_columns": _privacy_columns(comparison),
        "truth": None if comparison.truth is None else names[comparison.truth],
        "utility": _utility_rows(comparison, names),
        "several": not comparison.scalar,
        "utility_columns": [
            *([] if comparison.scalar else ["number"]),
            "mean", "median", "90% within", "99% within", "bias", "relative", "no answer",
        ],
        "notes": [note for note in notes_of(comparison) if recommended is None or note != recommended.sentence],
        "charts": [picture_of(chart) for chart in charts],
        "recommendation": recommended,
        "verdicts": [] if recommended is None else [(names[name], recommended.verdicts[name]) for name in names],
    }  # fmt: skip
    text = render("compare.html", content, payload_of(charts))
    write_atomically(target, text.encode("utf-8", "backslashreplace"))
    return target


def comparison_chart(comparison: Comparison, name: str, epsilon: float | None = None) -> Chart:
    """One chart: "delta" or "total_risk" along epsilon; "utility", error against delta at one epsilon.

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
    if name == "utility" and (comparison.truth is None or not comparison.scalar):
        raise InputError("`name` must be delta or total_risk without a truth, or where queries give several numbers.")
    at = comparison.epsilons[0] if epsilon is None else float(epsilon)
    along = {} if name == "utility" else _materials(comparison, at)
    return _chart(comparison, name, along, at)


def _chart(comparison: Comparison, name: str, material: dict[str, Material], at: float) -> Chart:
    names = _names(comparison)
    if name == "utility":
        delta = comparison.delta(at)
        return utility_chart(
            {names[row.protocol]: (row.mean_absolute, float(delta[row.protocol])) for row in comparison.utility},
            [names[protocol] for protocol in comparison.front(at)],
            name=name,
            title=f"Error against delta at epsilon {label(at)}",
            axis=_AXES["delta"],
            caption=(
                "Further down is more private, further left more exact. The dashed line joins the protocols that no "
                "other improves on in both. It goes by the estimates, so neighbours on it may not really differ."
            ),
        )
    first = next(iter(material.values()))
    shown = first.finite
    return versus_chart(
        first.epsilons[shown],
        {names[protocol]: getattr(drawn.curves, name)[shown] for protocol, drawn in material.items()},
        start=first.start,
        name=name,
        title=f"{'delta' if name == 'delta' else 'Total risk'} against epsilon",
        axis=_AXES[name],
        caption=_ALONG,
    )


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
    end = round_up(max(_reach(comparison), at if math.isfinite(at) else 0.0))
    grid = np.unique(np.concatenate((np.linspace(0.0, end, 50), comparison.epsilons, [at])))
    start = int(np.searchsorted(grid, at))
    return {name: Material(audit, grid, start) for name, audit in comparison.audits.items()}


def _privacy_columns(comparison: Comparison) -> list[str]:
    """Heads of `_privacy_rows`."""
    return [
        "protocol", *([] if _alike(comparison) else ["databases", "individuals"]), "delta", "upper bound on delta",
        "total risk", *(["on the front"] if comparison.truth is not None and comparison.scalar else []),
    ]  # fmt: skip


def _privacy_rows(comparison: Comparison, epsilon: float, names: dict[str, str]) -> list[tuple[str, ...]]:
    """Privacy of each protocol at one epsilon."""
    delta, total, upper = comparison.delta(epsilon), comparison.total_risk(epsilon), comparison.upper(epsilon)
    errors, apart = comparison.truth is not None and comparison.scalar, _alike(comparison) is None
    front = comparison.front(epsilon) if errors else ()
    return [
        (
            names[name],
            *((f"{audit.results.n_databases:,}", f"{audit.results.n_individuals:,}") if apart else ()),
            number(float(delta[name]), 3), words.upper_said(upper[name]), number(float(total[name]), 3),
            *(("yes" if name in front else "no",) if errors else ()),
        )
        for name, audit in comparison.audits.items()
    ]  # fmt: skip


def _reach(comparison: Comparison) -> float:
    """How far to draw curves: a little beyond where all are 0, or the largest asked for; at most 6 times that."""
    largest = comparison.epsilons[-1]
    ends = [audit.epsilon(0.0) for audit in comparison.audits.values()]
    vanish = 1.25 * max((end for end in ends if math.isfinite(end)), default=0.0)
    return max(1.25 * largest, min(vanish, 6 * largest) if largest > 0 else vanish) or 1.0


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
