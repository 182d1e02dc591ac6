"""The report: an audit as a page that a controller can read and sign, its charts, and the files beside it.

`write_report` makes the page, `compare_page` one of several audits, `chart` a single chart, `notebook_html` what a
notebook shows. docs/report.md describes them.
"""

from empriv.report.chart import Chart
from empriv.report.charts import CHARTS, chart
from empriv.report.compare import compare_page
from empriv.report.page import notebook_html
from empriv.report.writing import Written, write_report

__all__ = ["CHARTS", "Chart", "Written", "chart", "compare_page", "notebook_html", "write_report"]
