"""`write_report`: an audit as one self-contained HTML file, for readers who need not be statisticians.

Words come from `words`, as in the terminal; charts from `charts`; figures from `gather`. The page
holds SVG drawn beforehand and a script of its own that moves their marks: no network, no library, and a
Content-Security-Policy that allows that one script and nothing else. `public` decides what a published version may say.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.auditing.audit import Audit
from empriv.base.harmless import script_json, shortened, visible
from empriv.report.charts.all_charts import charts_of
from empriv.report.charts.chart import Chart
from empriv.report.charts.people import left_out_charts
from empriv.report.charts.publications_chart import publications_chart
from empriv.report.gather import Material
from empriv.results import FloatArray
from empriv.words.facts import Figure
from empriv.words.sentences import number, percent, quantity
from empriv.words.summary import figure_sentence, tail_sentence

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from empriv.validate.verdict import Verdict

FIRST_ROWS = 50
SEVERITIES = {"error": "problem", "warning": "be wary", "info": "fine"}
_UNCHECKED = (
    "Individuals who were never in these databases and behave like nobody in them.",
    "Future databases, if they are not of the same kind as these.",
    "Groups of individuals, such as families: each individual is protected alone.",
    "Ways around the result, such as errors, timing, or access to the data itself.",
)
_LEAST_EXPONENT = -40


@dataclass(frozen=True)
class Picture:
    """A chart as the templates need it."""

    name: str
    title: str
    caption: str
    data: Mapping[str, Sequence[Any]]
    picture: Markup


def page_of(
    material: Material,
    *,
    names: Sequence[str],
    names_said: str,
    verdicts: Sequence[tuple[str, Verdict]] = (),
    extra: Iterable[Chart] = (),
    config: str | None = None,
    title: str | None = None,
) -> str:
    """The page of one audit; ``names`` are those of ``material.rows``."""
    audit = material.audit
    summary = audit.with_validity(audit.summary())
    targets = [
        (verdict.epsilon, target.limit)
        for _, verdict in verdicts
        for target in verdict.targets
        if target.name == "delta"
    ]
    drawn = [*charts_of(material), *extra]
    if targets:  # the chart of publishing again knows them
        drawn = [publications_chart(material, targets) or one if one.name == "publications" else one for one in drawn]
    rows = individuals_rows(material, names)
    bind = bindings(material)
    n, shown = audit.n_individuals, len(rows["names"])
    # results that list fewer are those of a scan, which keeps the riskiest at each of its epsilons
    where = "the first epsilon asked for" if shown < audit.results.n_individuals else "some epsilon"
    shortened_to = "" if shown == n else f"The table shows the {shown:,} riskiest at {where}, of {n:,}. "
    at = material.start
    content = {
        "title": title_of(audit, title),
        "public": False,
        "verdicts": [
            (visible(text), {"word": str(verdict), "sentence": verdict.sentence, "reasons": verdict.reasons})
            for text, verdict in verdicts
        ],
        "alarms": summary.alarms,
        "asked": visible(summary.asked),
        "n_individuals": f"{n:,}",
        "asked_rows": asked_rows(material, bind),
        "present": summary.figures[0].delta_when_present is not None,
        "notes": (*summary.notes, *([tail_sentence(audit.epsilon(0.0))] if audit.measured.tells_epsilon(0.0) else [])),
        "warnings": [visible(warning) for warning in summary.warnings],
        "unchecked": unchecked(audit),
        "checks": [
            {"title": c.title, "severity": c.severity, "mark": SEVERITIES[c.severity], "sentence": c.sentence}
            for c in audit.checks
        ],
        "charts": [picture_of(chart) for chart in drawn],
        "left_out_charts": left_out_charts(audit.measured),
        "individuals": {
            "said": f"{shortened_to}{names_said} Influence is the largest change that leaving the individual out makes "
            "to a result.",
            "first": [
                (rows["names"][k], number(float(rows["values"][k, at]), 3), rows["influence"][k],
                 f"{rows['databases'][k]:,}")
                for k in range(min(FIRST_ROWS, shown))
            ],
        },
        "config": config,
    }  # fmt: skip
    payload = {
        "epsilons": bind["epsilon"],
        "start": at,
        "bind": bind,
        "charts": {chart.name: chart.live for chart in drawn if chart.live is not None},
        "individuals": {
            "names": rows["names"],
            "influence": rows["influence"],
            "databases": rows["databases"],
            "delta_i": encode(rows["values"]),
        },
    }
    return render("page.html", content, payload)


def title_of(audit: Audit, title: str | None) -> str:
    """The page's title: as given, or the query."""
    if title is not None:
        return visible(title)
    return "Privacy of " + ("the query" if audit.origin is None else shortened(" ".join(audit.query.split()), 80))


def unchecked(audit: Audit) -> tuple[str, ...]:
    """What the figures do not cover."""
    if audit.composition is not None:
        count = len(audit.composition.entries)
        covered = f"only this query and {count:,} earlier {'release' if count == 1 else 'releases'} are covered"
    elif audit.results.components is not None:
        covered = "only these numbers together are covered"
    else:
        covered = "only this one result is covered"
    beyond = "" if audit.against is None else ", against an adversary who knows what is named above and nothing else"
    released = f"What else is known or released about the same individuals: {covered}{beyond}."
    return (f"{released} Several releases tell more together.", *_UNCHECKED)


def bindings(material: Material) -> dict[str, list[str]]:
    """Texts at every epsilon of the grid; the slider puts them in place."""
    curves, band = material.curves, material.band
    level = percent(material.bounded.level)
    epsilons = material.epsilons
    range_ = range(len(epsilons))
    own = band["own"].astype(bool)

    def between(lower: float, upper: float, kind: str, exact: bool) -> str:
        near = "" if exact else "; from the nearest epsilons with bounds of their own"
        if upper >= 1:
            return f"At least {number(lower)}, no upper bound ({level}, {kind}{near})."
        return f"Between {number(lower)} and {number(upper)} ({level}, {kind}{near})."

    return {
        "epsilon": [label(float(e)) for e in epsilons],
        "likelier": [times(float(e)) for e in epsilons],
        "delta": [number(float(v), 3) for v in curves.delta],
        "total_risk": [number(float(v), 3) for v in curves.total_risk],
        "exposed": [f"{int(v):,}" for v in curves.n_exposed],
        "delta_bounds": [
            between(float(band["lower"][k]), float(band["upper"][k]), "conditional", bool(own[k])) for k in range_
        ],
        "total_bounds": [
            between(float(band["total_risk_lower"][k]), float(band["total_risk_upper"][k]), "indicative", bool(own[k]))
            for k in range_
        ],
        "sentence": [
            figure_sentence(
                Figure(
                    float(epsilons[k]),
                    float(curves.delta[k]),
                    float(curves.total_risk[k]),
                    int(curves.n_exposed[k]),
                    material.present.get(float(epsilons[k])),
                ),
                material.audit.times,
            )
            for k in range_
        ],
    }


def asked_rows(material: Material, bind: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """A row for each epsilon asked for."""
    at = np.flatnonzero(np.isin(material.epsilons, material.audit.epsilons)).tolist()
    lower, upper = material.band["lower"], material.band["upper"]
    return [
        (
            bind["epsilon"][k], number(float(lower[k]), 2), bind["delta"][k],
            "none" if upper[k] >= 1 else number(float(upper[k]), 2),
            *([] if (delta := material.present[float(material.epsilons[k])]) is None else [number(delta, 3)]),
            bind["total_risk"][k], bind["exposed"][k],
        )
        for k in at
    ]  # fmt: skip


def individuals_rows(material: Material, names: Sequence[str]) -> dict[str, Any]:
    """Columns of the table, riskiest first; people at equal risk are ordered by the names shown, not by the data."""
    results = material.audit.results
    values = material.curves.table
    influence = material.influence[material.rows]
    size = np.where(np.isnan(influence), np.inf, influence)
    order = np.lexsort((np.asarray(names, dtype=str), -size, -values[:, material.start]))
    return {
        "names": [visible(str(names[k])) for k in order],
        "values": values[order],
        "influence": ["number or not" if math.isnan(v) else quantity(float(v)) for v in influence[order]],
        "databases": [int(v) for v in results.presence[material.rows][order]],
    }


def encode(values: FloatArray) -> str:
    """delta_i to three digits in 16 bits each, as base64; page.js decodes it.

    0 is 0, 1 is 1, 2 is what `words.number` calls >0.999; else ``3 + 900 (exponent + 40) + mantissa - 100``.
    Anything smaller than 1e-40 becomes 1e-40: it is rounded up, never to 0.
    """
    flat = np.asarray(values, float)
    codes = np.zeros(flat.shape, "<u2")
    positive = (flat > 0) & (flat < 0.9995)
    values_above_0 = np.maximum(flat[positive], 10.0**_LEAST_EXPONENT)
    exponent = np.floor(np.log10(values_above_0)).astype(np.int64)
    # the logarithm may be off by one next to a power of ten
    mantissa = np.rint(values_above_0 / 10.0 ** (exponent - 2.0)).astype(np.int64)
    exponent = np.where(mantissa < 100, exponent - 1, exponent)
    mantissa = np.rint(values_above_0 / 10.0 ** (exponent - 2.0)).astype(np.int64)
    over = mantissa > 999
    exponent, mantissa = np.where(over, exponent + 1, exponent), np.where(over, 100, mantissa)
    codes[positive] = 3 + 900 * (np.maximum(exponent, _LEAST_EXPONENT) - _LEAST_EXPONENT) + mantissa - 100
    codes[flat >= 0.9995] = 2
    codes[flat >= 1] = 1
    return base64.b64encode(codes.tobytes()).decode("ascii")


def chart_page(chart: Chart) -> str:
    """One chart with its caption and table, without script."""
    return _environment().get_template("chart.html").render(
        chart=picture_of(chart), style=_safe(_asset("style.css")), csp=policy(None)
    )  # fmt: skip


def notebook_html(audit: Audit) -> str:
    """What a notebook shows of an audit: the terminal's words, its table, and the chart of delta.

    Examples
    --------
    >>> from empriv.report import notebook_html
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> audit = empriv.audit(data, "avg(delay)", epsilon=0.1)
    >>> notebook_html(audit)[:5]
    '<div>'
    """
    from empriv.report.charts.all_charts import chart

    summary = audit.with_validity(audit.summary())
    n = audit.n_individuals
    return _environment().get_template("notebook.html").render(
        asked=visible(summary.asked),
        alarms=summary.alarms,
        rows=[
            (
                f"{f.epsilon:g}", number(f.delta, 3),
                *([] if f.delta_when_present is None else [number(f.delta_when_present, 3)]),
                number(f.total_risk, 3), f"{f.n_exposed:,} of {n:,}",
            )
            for f in summary.figures
        ],
        present=summary.figures[0].delta_when_present is not None,
        sentence=summary.sentences[0],
        warnings=[visible(warning) for warning in summary.warnings],
        notes=summary.notes,
        picture=_safe(chart(audit, "delta").svg),
    )  # fmt: skip


def render(template: str, content: Mapping[str, Any], payload: Mapping[str, Any]) -> str:
    """A page with the slider's data in it."""
    script = _asset("page.js")
    return _environment().get_template(template).render(
        **content,
        start=payload["start"],
        epsilons=payload["epsilons"],
        bind=payload["bind"],
        version=version("empriv"),
        date=date.today().isoformat(),
        style=_safe(_asset("style.css")),
        script=_safe(script),
        data=_safe(script_json(payload)),
        csp=policy(script),
    )  # fmt: skip


def picture_of(chart: Chart) -> Picture:
    """A chart whose SVG can share a page with others: named for screen readers, with ids that are unique."""
    from markupsafe import escape

    svg = re.sub(r'\bid="([^"]+)"', rf'id="{chart.name}-\1"', chart.svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{chart.name}-\1)", svg)
    # one picture with one name: Vega's names for its parts mean nothing to a screen reader
    svg = re.sub(r' (?:role="graphics-[a-z]+"|aria-roledescription="[^"]*")', "", svg)
    named = escape(f"Chart: {chart.title}. Its numbers are in the table below it.")
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{named}" ', 1)
    data = {key: list(column) for key, column in chart.data.items()}
    return Picture(chart.name, chart.title, chart.caption, data, _safe(svg))


def policy(script: str | None) -> str:
    """A Content-Security-Policy for one style, at most one script, and nothing from any other place."""
    rules = ["default-src 'none'", f"style-src {_digest(_asset('style.css'))}", "img-src data:"]
    if script is not None:
        rules.append(f"script-src {_digest(script)}")
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def label(epsilon: float) -> str:
    """An epsilon as the slider shows it."""
    return "∞" if math.isinf(epsilon) else f"{epsilon:.4g}"


def times(epsilon: float) -> str:
    """e^epsilon as a factor, in words."""
    if epsilon > 20:
        return "any number of times"
    return f"{math.exp(epsilon):.3g} times"


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _safe(text: str) -> Markup:
    from markupsafe import Markup

    return Markup(text)


@cache
def _asset(name: str) -> str:
    return (files("empriv.report") / "templates" / name).read_text(encoding="utf-8").strip()


@cache
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("empriv.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
