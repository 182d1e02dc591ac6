"""The page and the chart of a `Comparison`: `Comparison.report` and `Comparison.chart` call this module."""

from __future__ import annotations

from os import PathLike
from pathlib import Path

from empriv.base.storage import write_atomically
from empriv.base.text import shortened, visible
from empriv.comparing.comparison import HEADERS, Comparison, front_said, notes_of, rows_of
from empriv.errors import InputError
from empriv.report.charts.chart import Chart
from empriv.report.charts.errors_chart import errors_chart
from empriv.report.page.rendering import label, page_path, payload_of, picture_of, render

_LONGEST = 40


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
