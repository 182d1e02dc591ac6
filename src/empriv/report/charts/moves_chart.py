"""The picture of the first screen: how far each individual moved the answer, against what the answer hides.

A histogram of person-days by how far they moved the answer, in its own units; or, where databases hide moves
differently, as a share of what their database hides, so that one line tells what is hidden from what is not. The
caption names who moved it furthest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.auditing.audit import Audit
from empriv.base.text import shortened
from empriv.report.charts.chart import BLUE, INK, VERMILION, Chart, Scale, layer, records, spec_of
from empriv.report.gather import Material
from empriv.results import FloatArray
from empriv.validate.covers import has_line_cover, line_cover_of
from empriv.words.sentences import Nouns, amount, percent

if TYPE_CHECKING:
    from empriv.judge.noise_kernels import NoiseKernel
    from empriv.words.decision import Covered

_HEIGHT = 150
_BINS = 27
_DECADES = 4  # the least of these below the largest move is the left end
_WIDE = 30.0  # moves that span more than this factor are drawn on a logarithmic scale
_LETTER = 7.3  # pixels of a label's letter
_NOT_HIDDEN = "not hidden"
_WIDTH = 324
_NAMED = 11  # bars that words at the right end are above


@dataclass(frozen=True, eq=False)
class MovesDrawn:
    """What the picture is drawn from.

    Attributes
    ----------
    sizes : moves, in the answer's units or as shares of what their database hides; inf: an answer or none
    counts : how many person-days moved it by each
    cover : the largest move that is hidden, in the same; None where nothing says which are
    of : what moves are measured in, where that is not the answer's unit: "share" of what is hidden, or "typical", as on
        a typical database
    """

    sizes: FloatArray
    counts: Any
    cover: float | None
    of: str = ""

    @property
    def beyond(self) -> Any:
        """Which moves are not hidden."""
        return np.zeros(len(self.sizes), bool) if self.cover is None else self.sizes > self.cover * (1 + 1e-9)


def moved_of(audit: Audit, kernel: NoiseKernel | None = None, day: Covered | None = None) -> MovesDrawn | None:
    """Everybody's moves, with the cover that a verdict found; None for kinds of risk that have no cover."""
    risk = audit.once
    if not has_line_cover(risk):
        return None
    totals = line_cover_of(risk, kernel).totals
    moved = totals.relative
    if day is not None and totals.varies and day.in_residuals > 0:
        return MovesDrawn(moved.values / day.in_residuals, moved.counts, 1.0, "share")
    judged = day is not None and (day.cover > 0 or day.exposed > 0)
    cover = day.cover if day is not None and judged else None
    return MovesDrawn(moved.values * totals.typical_unit, moved.counts, cover, "typical" if totals.varies else "")


def moves_chart(material: Material) -> Chart | None:
    """How far each individual moved the answer; None for several numbers, or nobody who moves it."""
    audit = material.audit
    moved = moved_of(audit, material.kernel, material.day)
    if moved is None or not len(moved.sizes) or audit.times > 1:
        return None
    furthest = _furthest(material)
    return drawn(moved, unit=audit.unit, nouns=audit.nouns, furthest=furthest, pseudonym=material.pseudonyms)


def _furthest(material: Material) -> str:
    """The name of who moved the answer most, as the page shows it; nothing where nobody is named."""
    if material.names is None:
        return ""
    largest = line_cover_of(material.audit.once, material.kernel).all_moves.largest
    furthest = np.flatnonzero(largest == largest.max())
    return shortened(min(str(material.names[int(row)]) for row in furthest), 20)


def drawn(
    moved: MovesDrawn,
    *,
    unit: str = "",
    nouns: Nouns = Nouns(),  # noqa: B008 — frozen
    furthest: str = "",
    pseudonym: bool = False,
) -> Chart:
    """The chart of plain arrays; ``furthest`` is the name of who moved the answer most."""
    sizes, cover = moved.sizes, moved.cover
    still = int(moved.counts[sizes == 0].sum())
    none = int(moved.counts[np.isinf(sizes)].sum())
    shown = np.isfinite(sizes) & (sizes > 0)
    finite, times, within = sizes[shown], moved.counts[shown], ~moved.beyond[shown]
    top = float(max(finite.max(initial=0.0), 0.0 if cover is None else cover)) or 1.0
    edges, kind = _edges(finite, times, top, cover)
    if cover and cover > edges[0]:  # what is hidden ends where its bar does, however edges are rounded
        edges[np.abs(edges - cover).argmin()] = cover * (1 + 1e-9)
    counts, _ = np.histogram(np.clip(finite, edges[0], edges[-1]), edges, weights=times)
    hidden, _ = np.histogram(np.clip(finite[within], edges[0], edges[-1]), edges, weights=times[within])
    most = float(max(counts.max(initial=0), none, 1))
    gap = (edges[-1] / edges[0]) ** 0.04 if kind == "log" else 0.04 * (edges[-1] - edges[0])
    ends = (edges[-1] * gap, edges[-1] * gap * (edges[1] / edges[0]) ** 2) if kind == "log" else (
        edges[-1] + gap, edges[-1] + gap + 2 * (edges[1] - edges[0])
    )  # fmt: skip
    x = Scale(float(edges[0]), float(ends[1] if none else edges[-1]), kind, _ticks(edges, kind))
    y = Scale(0.0, 8 * most, "symlog", _powers(int(most)))
    axis = {"x": x.encoding("low", _axis(unit, moved, nouns), grid=False, format=_format(moved, top)),
            "y": y.encoding("count", f"{nouns.days()}, ten times more at each line")}  # fmt: skip
    axis["y"]["scale"]["constant"] = 1
    bars = [
        *_bars(edges, np.zeros(len(counts)), hidden, "hidden" if cover is not None else "moved"),
        *_bars(edges, hidden, counts, "beyond"),
        *([{"low": ends[0], "high": ends[1], "from": 0, "count": none, "what": "beyond"}] if none else []),
    ]
    layers = [
        layer("bars", {"type": "rect", "stroke": "white", "strokeWidth": 0.5}, bars, {
            **axis, "x2": {"field": "high"}, "y2": {"field": "from"},
            "color": {"field": "what", "type": "nominal", "legend": None,
                      "scale": {"domain": ["hidden", "moved", "beyond"], "range": [BLUE, BLUE, VERMILION]}}}),
    ]  # fmt: skip
    # words at the right end stand above the bars that are under them
    under = counts[-_NAMED:] if len(finite) else np.zeros(1, int)
    beyond = int(moved.counts[moved.beyond].sum())
    layers += _labels(moved, axis, x, float(max(none, under.max(), 1)), ends if none else None, unit, beyond)
    return Chart(
        name="moves",
        title=f"How far {nouns.each} moved the answer",
        caption=_caption(moved, nouns, still, none, beyond)
        + (_named(furthest, nouns, pseudonym=pseudonym) if beyond or none else ""),
        spec=spec_of(height=_HEIGHT, layer=layers),
        data={
            _axis(unit, moved, nouns): [amount(float(edge)) for edge in edges[1:]],
            nouns.days(): [int(count) for count in counts],
            "beyond": [int(count) for count in counts - hidden],
        },
    )


def _edges(sizes: FloatArray, times: Any, top: float, cover: float | None) -> tuple[FloatArray, str]:
    """Ends of the bars, of which the cover is one, and the kind of scale."""

    def quantile(share: float) -> float:
        return float(np.quantile(sizes, share, weights=times, method="inverted_cdf"))

    if not len(sizes) or top <= _WIDE * quantile(0.05):
        width = top * 1.02 / _BINS
        width = width if not cover else cover / max(1, round(cover / width))
        return width * np.arange(math.ceil(top * 1.01 / width) + 1, dtype=np.float64), "linear"
    low = max(quantile(0.02), top * 10.0**-_DECADES)
    step = math.log(top * 1.05 / low) / _BINS
    middle = math.log(cover if cover and cover > low else low)
    first, last = math.floor((math.log(low) - middle) / step), math.ceil((math.log(top) - middle) / step + 1e-9)
    return np.exp(middle + step * np.arange(first, last + 1, dtype=np.float64)), "log"


def _format(moved: MovesDrawn, top: float) -> str:
    return ",~%" if moved.of == "share" else "~s" if top >= 1e4 else ",~r"


def _ticks(edges: FloatArray, kind: str) -> tuple[float, ...] | None:
    if kind == "linear":
        return None
    first, last = math.floor(math.log10(edges[0])), math.ceil(math.log10(edges[-1]))
    steps = (1.0, 3.0) if last - first <= 3 else (1.0,)
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return tuple(tick for tick in ticks if edges[0] <= tick <= edges[-1])


def _powers(most: int) -> tuple[float, ...]:
    """Ticks of a logarithmic axis that begins at 0; that at 1 would stand on the next, where there are many."""
    powers = [10.0**k for k in range(1, 10) if 10.0**k <= most]
    return (0.0, *(powers or [1.0]))


def _bars(edges: FloatArray, start: Any, end: Any, what: str) -> list[dict[str, Any]]:
    filled = np.flatnonzero(end > start)
    rows = records(low=edges[filled], high=edges[filled + 1], start=start[filled], count=end[filled])
    return [{"low": row["low"], "high": row["high"], "from": row["start"], "count": row["count"], "what": what}
            for row in rows]  # fmt: skip


def _labels(
    moved: MovesDrawn, axis: dict[str, Any], x: Scale, height: float, none: tuple[float, float] | None, unit: str,
    beyond: int,
) -> list[dict[str, Any]]:  # fmt: skip
    """The cover as a line, how many are not hidden, and what the bar of answers or none is."""
    layers = []
    if moved.cover is not None and moved.cover > 0:
        place, line = records(low=[moved.cover]), _across(moved.cover, x) * _WIDTH
        layers.append(layer("cover", {"type": "rule", "color": INK, "strokeWidth": 2}, place, {"x": axis["x"]}))
        hidden = "hidden" if moved.of == "share" else f"hidden up to {amount(moved.cover, unit)}"
        left = line > _LETTER * len(hidden)
        said = [("here", hidden, left, 6, INK)]
        if beyond:
            beside = line + _LETTER * len(_NOT_HIDDEN) < _WIDTH
            text = _NOT_HIDDEN if beside else f"{_NOT_HIDDEN} \u2192"
            said.append(("more", text, not beside, 6 if left and beside else 22, VERMILION))
        for name, text, to_left, y, colour in said:
            mark = {"type": "text", "align": "right" if to_left else "left", "dx": -6 if to_left else 6, "dy": y,
                    "fontWeight": "bold", "color": colour}  # fmt: skip
            at = {"x": axis["x"], "y": {"value": 0}, "text": {"field": "said"}}
            layers.append(layer(name, mark, records(low=[moved.cover], said=[text]), at))
    if none is not None:
        mark = {"type": "text", "align": "right", "color": VERMILION, "dy": -8}
        place = records(low=[x.high], count=[height], said=["an answer or none"])
        layers.append(layer("none", mark, place, {**axis, "text": {"field": "said"}}))
    return layers


def _across(value: float, x: Scale) -> float:
    if x.kind == "log":
        return math.log(max(value, x.low) / x.low) / math.log(x.high / x.low)
    return (value - x.low) / (x.high - x.low)


def _axis(unit: str, moved: MovesDrawn, nouns: Nouns) -> str:
    where = nouns.database or "database"
    if moved.of == "share":
        return f"as a share of what that {where} hides"
    usual = f"as on a typical {where}" if moved.of else ""
    said = ", ".join(filter(None, (unit, usual)))
    return f"moved the answer by ({said})" if said else "moved the answer by"


def _named(furthest: str, nouns: Nouns, *, pseudonym: bool) -> str:
    if not furthest:
        return ""
    code = " (a code name: the key file tells who)" if pseudonym else ""
    return f" Furthest: {nouns.individual or 'person'} {furthest}{code}."


def _caption(moved: MovesDrawn, nouns: Nouns, still: int, none: int, beyond: int) -> str:
    days, where = int(moved.counts.sum()), nouns.database or "database"
    said = [f"{days:,} {nouns.days(days)} ({nouns.one} on one {where})."]
    if moved.cover is None:
        said.append("Nothing says which of them are hidden.")
    elif beyond:
        said.append(f"Orange: {beyond:,} ({percent(beyond / days)}) are not hidden.")
    else:
        said.append("All are hidden.")
    if none:
        said.append(f"In {none:,} the answer is there only with them, or takes a value that gives them away.")
    if still:
        said.append(f"{still:,} {nouns.days(still)} did not move it.")
    return " ".join(said)
