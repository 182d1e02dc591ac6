"""The report: an audit as a page that a controller can read and sign, its charts, and the files beside it.

`write_report` makes the page of one audit, as it is or with noise, `write_comparison` that of several protocols,
`chart` a single chart, and `notebook_html` what a notebook shows. docs/decision.md describes them.
"""

from empriv.report.audit_page import notebook_html
from empriv.report.charts.all_charts import CHARTS, chart
from empriv.report.charts.chart import Chart
from empriv.report.comparison_page import comparison_chart, write_comparison
from empriv.report.writing import Written, write_report

__all__ = [
    "CHARTS",
    "Chart",
    "Written",
    "chart",
    "comparison_chart",
    "notebook_html",
    "write_comparison",
    "write_report",
]
