"""The picture of the first screen: how far each individual moved the answer, against what the answer hides.

A histogram of person-days by how far they moved the answer, in its own units; what lies beyond the cover is coloured,
and the furthest has its pseudonym. Where the spread depends on what is known, moves are shown as on a typical database.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.auditing.audit import Audit
from empriv.base.harmless import shortened
from empriv.report.charts.chart import BLUE, INK, VERMILION, Chart, Scale, layer, records, spec_of
from empriv.report.gather import Material
from empriv.results import FloatArray
from empriv.validate.covering import has_moves, hiding_of
from empriv.words.nouns import Nouns
from empriv.words.sentences import amount, percent

if TYPE_CHECKING:
    from empriv.judge.noise_kernels import NoiseKernel
    from empriv.validate.covering import Covered

_HEIGHT = 150
_BINS = 27
_DECADES = 4  # the least of these below the largest move is the left end
_WIDE = 30.0  # moves that span more than this factor are drawn on a logarithmic scale
_LETTER = 6.5  # pixels of a label's letter
_WIDTH = 324
_NAMED = 11  # bars that a name at the right end is above


@dataclass(frozen=True, eq=False)
class MovesDrawn:
    """What the picture is drawn from.

    Attributes
    ----------
    sizes : (person-days,) moves in the answer's units, as on a typical database; inf: an answer or none
    owner : (person-days,) position of the individual
    cover : the largest move that is hidden, in the same units; None where no target was given
    varies : whether databases hide moves differently
    """

    sizes: FloatArray
    owner: Any
    cover: float | None
    varies: bool = False


def moved_of(audit: Audit, kernel: NoiseKernel | None = None, day: Covered | None = None) -> MovesDrawn | None:
    """Everybody's moves, with the cover that a verdict found; None for kinds of risk that have no cover."""
    risk = audit.once
    if not has_moves(risk):
        return None
    moves = hiding_of(risk, kernel).moves
    unit = moves.typical_unit
    varies = len(moves.units) > 0 and bool(np.ptp(moves.units) > 1e-9 * unit)
    return MovesDrawn(moves.relative * unit, moves.owner, None if day is None else day.typical, varies)


def moves_chart(material: Material) -> Chart | None:
    """How far each individual moved the answer; None for several numbers, a scan, or nobody who moves it."""
    audit = material.audit
    moved = moved_of(audit, material.kernel, material.day)
    if moved is None or not len(moved.sizes) or audit.times > 1:
        return None
    furthest = _furthest(moved, material)
    return drawn(moved, unit=audit.unit, nouns=audit.nouns, furthest=furthest)


def _furthest(moved: MovesDrawn, material: Material) -> str:
    """The name of who moved the answer most, as the page shows it; nothing where nobody is named."""
    if material.names is None:
        return ""
    furthest = np.unique(moved.owner[moved.sizes == moved.sizes.max()])
    return shortened(min(str(material.names[int(row)]) for row in furthest), 20)


def drawn(moved: MovesDrawn, *, unit: str = "", nouns: Nouns = Nouns(), furthest: str = "") -> Chart:  # noqa: B008 — frozen
    """The chart of plain arrays."""
    sizes, cover = moved.sizes, moved.cover
    still = int(np.count_nonzero(sizes == 0))
    none = int(np.count_nonzero(np.isinf(sizes)))
    finite = sizes[np.isfinite(sizes) & (sizes > 0)]
    top = float(max(finite.max(initial=0.0), 0.0 if cover is None else cover)) or 1.0
    edges, kind = _edges(finite, top)
    counts, _ = np.histogram(np.clip(finite, edges[0], edges[-1]), edges)
    hidden = np.histogram(np.clip(finite[~_beyond(finite, cover)], edges[0], edges[-1]), edges)[0]
    most = float(max(counts.max(initial=0), none, 1))
    gap = (edges[-1] / edges[0]) ** 0.04 if kind == "log" else 0.04 * (edges[-1] - edges[0])
    ends = (edges[-1] * gap, edges[-1] * gap * (edges[1] / edges[0]) ** 2) if kind == "log" else (
        edges[-1] + gap, edges[-1] + gap + 2 * (edges[1] - edges[0])
    )  # fmt: skip
    x = Scale(float(edges[0]), float(ends[1] if none else edges[-1]), kind, _ticks(edges, kind))
    y = Scale(0.0, 8 * most, "symlog", _powers(int(most)))
    axis = {"x": x.encoding("low", _axis(unit, moved, nouns), grid=False, format="~s" if top >= 1e4 else ",~r"),
            "y": y.encoding("count", nouns.days())}  # fmt: skip
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
    # a name at the right end stands above the bars that are under it
    under = counts[-_NAMED:] if len(finite) else np.zeros(1, int)
    layers += _labels(
        moved, axis, x, furthest, float(max(none, under.max(), 1)), ends if none else None, unit
    )  # fmt: skip
    beyond = int(np.count_nonzero(_beyond(sizes, cover))) if cover is not None else 0
    return Chart(
        name="moves",
        title=f"How far {nouns.each} moved the answer",
        caption=_caption(moved, nouns, still, none, beyond),
        spec=spec_of(height=_HEIGHT, layer=layers),
        data={
            f"moved by up to{f' ({unit})' if unit else ''}": [amount(float(edge)) for edge in edges[1:]],
            nouns.days(): [int(count) for count in counts],
            "beyond": [int(count) for count in counts - hidden],
        },
    )


def _beyond(sizes: FloatArray, cover: float | None) -> Any:
    return np.zeros(len(sizes), bool) if cover is None else sizes > cover * (1 + 1e-9)


def _edges(sizes: FloatArray, top: float) -> tuple[FloatArray, str]:
    """Ends of the bars, and the kind of scale."""
    if not len(sizes) or top <= _WIDE * float(np.quantile(sizes, 0.05)):
        return np.linspace(0.0, top * 1.02, _BINS + 1), "linear"
    low = max(float(np.quantile(sizes, 0.02)), top * 10.0**-_DECADES)
    return np.geomspace(low, top * 1.05, _BINS + 1), "log"


def _ticks(edges: FloatArray, kind: str) -> tuple[float, ...] | None:
    if kind == "linear":
        return None
    first, last = math.floor(math.log10(edges[0])), math.ceil(math.log10(edges[-1]))
    steps = (1.0, 3.0) if last - first <= 3 else (1.0,)
    ticks = [step * 10.0**power for power in range(first, last + 1) for step in steps]
    return tuple(tick for tick in ticks if edges[0] <= tick <= edges[-1])


def _powers(most: int) -> tuple[float, ...]:
    return tuple([0.0, 1.0] + [10.0**k for k in range(1, 10) if 10.0**k <= most])


def _bars(edges: FloatArray, start: Any, end: Any, what: str) -> list[dict[str, Any]]:
    here = np.flatnonzero(np.asarray(end) > np.asarray(start))
    rows = records(
        low=edges[here], high=edges[here + 1], **{"from": np.asarray(start)[here], "count": np.asarray(end)[here]}
    )
    return [{**row, "what": what} for row in rows]


def _labels(
    moved: MovesDrawn, axis: dict[str, Any], x: Scale, furthest: str, height: float,
    none: tuple[float, float] | None, unit: str,
) -> list[dict[str, Any]]:  # fmt: skip
    """The cover as a line, and the furthest under its name."""
    layers = []
    if moved.cover is not None and moved.cover > 0:
        at = {"x": axis["x"], "y": {"value": 0}}
        share = _across(moved.cover, x)
        said = f"hidden up to here: {amount(moved.cover, unit)}"
        right = share * _WIDTH + _LETTER * len(said) > _WIDTH
        rule = {"type": "rule", "color": INK, "strokeWidth": 2}
        words = {"type": "text", "align": "right" if right else "left", "dx": -6 if right else 6, "dy": 6,
                 "fontWeight": "bold"}  # fmt: skip
        place = records(low=[moved.cover], said=[said])
        layers += [
            layer("cover", rule, place, {"x": axis["x"]}),
            layer("here", words, place, {**at, "text": {"field": "said"}}),
        ]
    finite = moved.sizes[np.isfinite(moved.sizes)]
    last = (none[0] + none[1]) / 2 if none is not None else float(finite.max(initial=0.0))
    said = "an answer or none" if none is not None else f"furthest: {furthest}" if furthest else ""
    if said and last > 0:
        far = _across(last, x) * _WIDTH + _LETTER * len(said) / 2 > _WIDTH
        mark = {"type": "text", "align": "right" if far else "center", "color": VERMILION, "dy": -8}
        layers.append(
            layer("furthest", mark, records(low=[x.high if far else last], count=[height], said=[said]),
                  {**axis, "text": {"field": "said"}})
        )  # fmt: skip
    return layers


def _across(value: float, x: Scale) -> float:
    if x.kind == "log":
        return math.log(max(value, x.low) / x.low) / math.log(x.high / x.low)
    return (value - x.low) / (x.high - x.low)


def _axis(unit: str, moved: MovesDrawn, nouns: Nouns) -> str:
    usual = f"as on a typical {nouns.database or 'database'}" if moved.varies else ""
    said = ", ".join(filter(None, (unit, usual)))
    return f"moved the answer by ({said})" if said else "moved the answer by"


def _caption(moved: MovesDrawn, nouns: Nouns, still: int, none: int, beyond: int) -> str:
    days = len(moved.sizes)
    said = [f"{days:,} {nouns.days(days)}."]
    if moved.cover is None:
        said.append("Without a target nothing says which of them are hidden.")
    elif beyond:
        said.append(f"Orange: {beyond:,} ({percent(beyond / days)}) beyond what the answer hides.")
    else:
        said.append("None is beyond what the answer hides.")
    if none:
        said.append(f"In {none:,} the answer is there only with them, or takes a value that gives them away.")
    if still:
        said.append(f"{still:,} did not move it.")
    if moved.varies:
        said.append(f"A {nouns.database or 'database'} hides more or less: moves are scaled to a typical one.")
    return " ".join(said)
