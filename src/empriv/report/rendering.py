"""How a page is put together: templates, the one style and the one script, pictures, and the policy that guards them.

A page holds SVG drawn beforehand and a small script of its own: no network, no library, and a
Content-Security-Policy that allows that one style and that one script by their hashes, and nothing else.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
from collections.abc import Mapping, Sequence
from datetime import date
from functools import cache
from importlib.metadata import version
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from empriv.base.text import script_json
from empriv.errors import InputError
from empriv.report.charts.chart import WIDTH, Chart
from empriv.words.what_to_do import MARKS

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

_ROWS = 8  # of the table below a chart of cells


def render(template: str, content: Mapping[str, Any], payload: Mapping[str, Any]) -> str:
    """A page with the script's data in it."""
    script = _asset("page.js")
    return _environment().get_template(template).render(
        **content,
        version=version("empriv"),
        date=date.today().isoformat(),
        style=_safe(_asset("style.css")),
        script=_safe(script),
        data=_safe(script_json(payload)),
        csp=policy(script),
    )  # fmt: skip


def render_part(template: str, **content: Any) -> str:
    """A piece of HTML without style or script."""
    return _environment().get_template(template).render(**content)


def payload_of(charts: Sequence[Chart]) -> dict[str, Any]:
    """What the script needs of charts: what each says where the pointer is."""
    return {
        "hover": {chart.name: chart.hover for chart in charts if chart.hover is not None},
        "width": WIDTH,
    }


def picture_of(chart: Chart) -> dict[str, Any]:
    """A chart as the templates need it: its SVG, which can share a page with others, and the first rows behind it.

    It is named for screen readers, and its ids are unique.
    """
    from markupsafe import escape

    svg = re.sub(r'\bid="([^"]+)"', rf'id="{chart.name}-\1"', chart.svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{chart.name}-\1)", svg)
    # one picture with one name: Vega's names for its parts mean nothing to a screen reader
    svg = re.sub(r' (?:role="graphics-[a-z]+"|aria-roledescription="[^"]*")', "", svg)
    named = escape(f"Chart: {chart.title}. The text below it says how to read it.")
    svg = svg.replace("<svg ", f'<svg role="img" aria-label="{named}" ', 1)
    first = list(islice(zip(*chart.data.values(), strict=True), _ROWS))
    return {
        "name": chart.name, "title": chart.title, "caption": chart.caption, "picture": _safe(svg),
        "columns": list(chart.data), "rows": first,
    }  # fmt: skip


def safe_svg(chart: Chart) -> Markup:
    """A chart's SVG, which vl-convert made and which holds no markup from data."""
    return _safe(chart.svg)


def policy(script: str | None) -> str:
    """A Content-Security-Policy for one style, at most one script, and nothing from any other place."""
    rules = ["default-src 'none'", f"style-src {_digest(_asset('style.css'))}", "img-src data:"]
    if script is not None:
        rules.append(f"script-src {_digest(script)}")
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def page_path(path: Any) -> Path:
    """Where a page goes; refused unless it ends in .html."""
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"`path` must end in .html, got {target.suffix!r}.")
    return target


def label(epsilon: float) -> str:
    """An epsilon as a page shows it."""
    return "∞" if math.isinf(epsilon) else f"{epsilon:.4g}"


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

    environment = Environment(
        loader=PackageLoader("empriv.report"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.globals["marks"] = MARKS
    return environment
