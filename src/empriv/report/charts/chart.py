"""`Chart`: a Vega-Lite spec, the data behind it, and how to read both. It can be saved as a picture or a spec.

The theme and the colours are here; the modules beside it decide what is drawn.
vl-convert turns a spec into a picture without a browser, and is imported when a picture is asked for.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.storage import write_atomically
from empriv.base.text import visible
from empriv.errors import InputError

FORMATS = ("svg", "png", "pdf", "json")
WIDTH, HEIGHT = 324, 190  # with its axes a chart fits a phone without its letters shrinking; a page may enlarge it
PLAIN = ",~r"  # six digits without an exponent

# Okabe and Ito's colours, which colour-blind readers can tell apart; style.css maps each to a lighter one in dark mode.
BLUE, VERMILION, GREEN, PURPLE, SKY, ORANGE = "#0072b2", "#d55e00", "#009e73", "#aa4a88", "#56b4e9", "#e69f00"
INK, FAINT, LINE = "#333333", "#767676", "#e2e2e2"
# Of a cell that nobody moves, of moves that are hidden (blue), and of moves that are not, the darker the farther.
HEAT = ("#d5dbe0", "#a9d3ee", "#5ba3d0", "#f2a43a", "#c4500f", "#6e2405")

_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
_CONFIG: dict[str, Any] = {
    "aria": False,
    "background": "white",
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal",
        "gridColor": LINE, "domainColor": FAINT, "tickColor": FAINT, "labelLimit": 150, "titlePadding": 8,
    },
    # upright letters above the axis: a phone has no room for a title at its side
    "axisY": {"titleAngle": 0, "titleAlign": "left", "titleBaseline": "bottom", "titleX": -44, "titleY": -8,
              "titleAnchor": "end", "minExtent": 40},
    "axisX": {"tickCount": 6, "labelOverlap": "greedy"},
    "legend": {"labelColor": INK, "titleColor": INK, "labelFontSize": 12, "titleFontSize": 12, "orient": "top",
               "title": None, "symbolStrokeWidth": 2.5, "labelLimit": 300, "columns": 2, "columnPadding": 8,
               "offset": 24},
    "text": {"color": INK, "fontSize": 12},
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Chart:
    """A chart to look at, save, or take apart.

    Attributes
    ----------
    name : its name in `empriv.report.chart`
    title : what it shows
    caption : how to read it
    spec : Vega-Lite, as a dict
    data : columns of the table behind it
    hover : places along the chart, as shares of its width, with what is said where the pointer is; or None

    Examples
    --------
    >>> from empriv.report import chart
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> audit = empriv.audit(data, "avg(delay)", epsilon=0.1)
    >>> chart(audit, "delta").name
    'delta'
    """

    name: str
    title: str
    caption: str
    spec: dict[str, Any] = field(repr=False)
    data: Mapping[str, Sequence[Any]] = field(repr=False)
    hover: dict[str, Any] | None = field(default=None, repr=False)

    @cached_property
    def svg(self) -> str:
        """The chart as SVG text."""
        import vl_convert

        return str(vl_convert.vegalite_to_svg(json.dumps(self.spec)))

    def save(self, path: str | PathLike[str], *, scale: float = 2.0) -> None:
        """Write a picture (.svg, .png, .pdf) or the spec (.json), mode 0600.

        ``scale`` is the pixels of a PNG for each unit of the chart.
        """
        kind = Path(path).suffix.lower().removeprefix(".")
        if kind not in FORMATS:
            raise InputError(
                f"`path` must end in one of {', '.join('.' + ending for ending in FORMATS)}, got {kind!r}."
            )
        if not (math.isfinite(scale) and scale > 0):
            raise InputError(f"`scale` must be positive and finite, got {scale}.")
        write_atomically(path, self._bytes(kind, scale))

    def _bytes(self, kind: str, scale: float) -> bytes:
        import vl_convert

        text = json.dumps(self.spec)
        if kind == "png":
            return bytes(vl_convert.vegalite_to_png(text, scale=scale))
        if kind == "pdf":
            return bytes(vl_convert.vegalite_to_pdf(text))
        return (self.svg if kind == "svg" else json.dumps(self.spec, indent=1)).encode("utf-8", "backslashreplace")

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        return {"application/vnd.vegalite.v5+json": self.spec, "image/svg+xml": self.svg, "text/plain": repr(self)}

    def _repr_html_(self) -> str:
        return self.svg


@dataclass(frozen=True)
class Scale:
    """Where values lie on an axis.

    ``kind`` is "linear", "log" or "symlog"; ``ticks`` are labelled, if given.
    """

    low: float
    high: float
    kind: str = "linear"
    ticks: tuple[float, ...] | None = None

    def encoding(self, name: str, title: str | None, **axis: Any) -> dict[str, Any]:
        """An encoding of field ``name``."""
        scale: dict[str, Any] = {"type": self.kind, "domain": [self.low, self.high], "nice": False, "zero": False}
        if self.kind == "log":
            scale["clamp"] = True
        shown: dict[str, Any] = {"title": title, "format": PLAIN, **axis}
        if self.ticks is not None:
            shown["values"] = list(self.ticks)
        return {"field": name, "type": "quantitative", "scale": scale, "axis": shown}

    def drawn(self, values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Values as they can be drawn: on a logarithmic scale 0 is at the bottom."""
        return np.maximum(values, self.low) if self.kind == "log" else np.asarray(values, float)


def spec_of(*, height: int = HEIGHT, **content: Any) -> dict[str, Any]:
    """A whole spec of one view."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "width": WIDTH,
        "height": height,
        **content,
        "config": _CONFIG,
    }


def stacked(views: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A whole spec of several views, one below the other."""
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "vconcat": list(views),
        "spacing": 14,
        "config": _CONFIG,
    }


def layer(
    name: str, mark: dict[str, Any], values: Sequence[Mapping[str, Any]], encoding: Mapping[str, Any]
) -> dict[str, Any]:
    """One layer; its marks have the class ``<name>_marks`` in the SVG, by which the report's script finds them."""
    return {"name": name, "mark": mark, "data": {"values": list(values)}, "encoding": dict(encoding)}


def records(**columns: Iterable[Any]) -> list[dict[str, Any]]:
    """Rows of plain numbers and texts; values that are not finite become null, which Vega leaves out."""
    cleaned = [[clean(value) for value in column] for column in columns.values()]
    return [dict(zip(columns, row, strict=True)) for row in zip(*cleaned, strict=True)]


def clean(value: Any) -> Any:
    """A value fit for JSON: finite numbers with six digits, text without control characters."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return None if value is None else visible(str(value))


def numbers(values: npt.ArrayLike) -> list[float | None]:
    """An array as a list that JSON can hold."""
    return [clean(float(value)) for value in np.asarray(values, float).ravel()]


def round_up(value: float) -> float:
    """The next number that is easy to read."""
    value = max(value, 1e-300)  # smaller powers of ten lose their digits
    scale = 10.0 ** math.floor(math.log10(value))
    steps = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)
    return next(step for step in steps if step * scale >= value * (1 - 1e-12)) * scale


def risk_scale(estimates: npt.NDArray[np.float64], uppers: npt.NDArray[np.float64]) -> Scale:
    """An axis for probabilities: logarithmic if they span more than a factor of 20."""
    most = float(max(estimates.max(initial=0.0), uppers.max(initial=0.0)))
    if most <= 0:
        return Scale(0.0, 1.0)
    top = min(1.0, round_up(most))
    positive = estimates[estimates > 0]
    if len(positive) and most > 20 * float(positive.min()):
        least = max(float(positive.min()), top * 1e-4)
        bottom = 10.0 ** math.floor(math.log10(least))
        ticks = tuple(10.0**k for k in range(round(math.log10(bottom)), 1) if 10.0**k <= top * (1 + 1e-9))
        return Scale(bottom, top, "log", ticks)
    return Scale(0.0, top)
