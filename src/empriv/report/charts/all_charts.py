"""`chart`: every chart of an audit by name.

A new chart is one entry in `CHARTS`: a function of `Material` that returns a `Chart`, or None if the audit has
nothing to draw there. The page, the command line and the tests take their charts from this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from empriv.auditing.audit import Audit
from empriv.base.arguments import one_of
from empriv.errors import InputError
from empriv.report.charts.answers import results_chart
from empriv.report.charts.chart import Chart
from empriv.report.charts.curves import delta_chart, publications_chart, total_risk_chart
from empriv.report.charts.densities import density_chart
from empriv.report.charts.moves_chart import moves_chart
from empriv.report.charts.table_chart import table_chart
from empriv.report.gather import Material, gather

FIRST, TABLE, AGAIN, BY_ITSELF = "moves", "table", "publications", "density"
"""The picture of the first screen, of one number and of a table; that of publishing again; and the paper's densities,
which are on no page. The others are folded."""
ANSWERS = "results"
"""The chart that shows answers: on a page only if that is asked for."""

CHARTS: dict[str, Callable[[Material], Chart | None]] = {
    "moves": moves_chart,
    "results": results_chart,
    "delta": delta_chart,
    "publications": publications_chart,
    "total_risk": total_risk_chart,
    "density": density_chart,
    "table": table_chart,
}


def chart(audit: Audit, name: str, epsilon: float | None = None) -> Chart:
    """One chart of an audit.

    Parameters
    ----------
    audit : what is drawn
    name : one of `CHARTS`
    epsilon : at which it is drawn; default: the first epsilon asked for

    Returns
    -------
    Chart
        with ``spec`` (Vega-Lite), ``data`` (columns) and ``save`` (.svg, .png, .pdf, .json)

    Examples
    --------
    >>> from empriv.report import chart
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> audit = empriv.audit(data, "avg(delay)", epsilon=0.1)
    >>> chart(audit, "delta").save("delta.svg")
    """
    one_of("name", name, CHARTS)
    drawn = CHARTS[name](gather(audit, at=epsilon))
    if drawn is None:
        raise InputError(f"`name` must be a chart that this audit has, got {name!r}: there is nothing to draw in it.")
    return drawn


def charts_of(material: Material, *, answers: bool = True) -> Iterator[Chart]:
    """All charts of the page that an audit has, in its order; without ``answers``, those that show none."""
    for name, make in CHARTS.items():
        drawn = None if name == BY_ITSELF or (name == ANSWERS and not answers) else make(material)
        if drawn is not None:
            yield drawn
