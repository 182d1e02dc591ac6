"""The chart of a published table: which cells expose somebody, how much, and whom.

A number that is grouped by two columns is a map with a row and a column for each of their values, its margins beside
it; anything else is a list. Both show delta at the epsilon at which charts are first drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from empriv.base.harmless import shortened
from empriv.measuring import RiskContract
from empriv.measuring.tables import TableRisk
from empriv.report.charts.chart import HEAT, INK, LINE, Chart, layer, records, stacked
from empriv.report.gather import Material
from empriv.report.remedies import Remedy, remedies
from empriv.results import Cell, FloatArray, IntArray, Results
from empriv.scale.tallied import TalliedRisk
from empriv.words.sentences import number
from empriv.words.table_words import ALL, cells_in_words, remedy_sentence

_LEAST_CELLS = 3  # fewer are seen at a glance, in words
_MOST_COLUMNS = 16  # of a map; a wider table is drawn as a list
_MOST_ROWS = 40  # drawn; the list below the picture has them all
_MOST_NAMED = 3
_MOST_REMEDIES, _LEAST_REMEDIED = 5, 0.01  # for so many cells what would help is looked for, if delta is above
_WIDTH, _WIDEST, _ROW = 520, 96, 28
_STEPS = (0.0, 0.01, 0.03, 0.1, 0.3)  # a delta above each has the colour after it
_STEP_WORDS = ("0", "up to 0.01", "up to 0.03", "up to 0.1", "up to 0.3", "above 0.3")
# Text on each colour of `HEAT`: the page exchanges the first and the last in dark mode, where the colours are turned.
_ON_HEAT = (INK, INK, "#111111", "#111111", "white", "white")


@dataclass(frozen=True, eq=False)
class Exposures:
    """Who is exposed by which cell.

    Attributes
    ----------
    individual, cell : (k,) positions
    delta : (k,) delta_i of that individual by that cell
    read : how the figures are to be read, in one sentence
    """

    individual: IntArray
    cell: IntArray
    delta: FloatArray
    read: str


@singledispatch
def exposures_of(risk: RiskContract, epsilon: float) -> Exposures:
    """Who is exposed by which cell, at one epsilon: as a rule, by each number as if it were published alone."""
    columns = [part.delta_i(epsilon) for part in risk.each_number.values()]
    table = np.array(columns) if columns else np.zeros((0, risk.results.n_individuals))
    cell, individual = np.nonzero(table > 0)
    return Exposures(
        individual, cell, table[cell, individual],
        "A cell shows delta of the person whom it exposes most, as if it were published alone; together cells tell "
        "more.",
    )  # fmt: skip


@exposures_of.register
def _(risk: TableRisk, epsilon: float) -> Exposures:
    """Of each cell given all that a person does not touch; of a margin alone; and for certain where there is a leak."""
    results, names = risk.results, risk.results.components or ()
    place = {name: c for c, name in enumerate(names)}
    row = {label: k for k, label in enumerate(results.individuals.tolist())}
    columns = risk.exposures(epsilon)
    owner = [row[label] for label in columns["individual"].tolist()]
    cell = [place[name] for name in columns["cell"].tolist()]
    delta = columns["delta_i"].tolist()
    margins = set(place.values()) - set(risk.fit.kept.tolist())
    for name, people in risk.touching.items():
        if place[name] in margins:
            owner += people.tolist()
            cell += [place[name]] * len(people)
            delta += risk.components[name].delta_i(epsilon)[people].tolist()
    exposures = np.array(delta)
    leaked = risk.leaked()[np.array(owner, np.int64)]
    exposures = np.maximum(exposures, leaked)
    kept = exposures > 0
    alone = " Sums of other cells, and cells that are seldom there, show what they tell alone." if margins else ""
    return Exposures(
        np.array(owner, np.int64)[kept], np.array(cell, np.int64)[kept], exposures[kept],
        "A cell shows delta of the person whom it exposes most, to somebody who knows every cell that this person "
        f"does not touch.{alone}",
    )  # fmt: skip


def table_chart(material: Material) -> Chart | None:
    """Risk by cell; None if there are only one or two numbers, and of a scan, which is of one number."""
    return _table(material.audit.risk, material)


@singledispatch
def _table(risk: RiskContract, material: Material) -> Chart | None:
    results = risk.results
    names = results.components or ()
    if len(names) < _LEAST_CELLS:
        return None
    epsilon = float(material.epsilons[material.start])
    exposures = exposures_of(risk, epsilon)
    largest = np.zeros(len(names))
    np.maximum.at(largest, exposures.cell, exposures.delta)
    cells = results.cells or tuple(Cell("", (("", name),)) for name in names)
    views: list[dict[str, Any]] = []
    left_out = 0
    for title, places in _numbers(cells).items():
        view, hidden = _view(title, [cells[c] for c in places], largest[places], legend=not views)
        views.append(view)
        left_out += hidden
    risky = int(np.count_nonzero(largest > 0))
    hidden_words = f" The picture leaves out the {left_out:,} cells of least risk." if left_out else ""
    return Chart(
        name="table",
        title="Which cells expose somebody",
        caption=(
            f"{exposures.read} {risky:,} of {len(names):,} cells expose somebody at epsilon {epsilon:.4g}. "
            f"The list has the riskiest first.{hidden_words}"
        ),
        spec=stacked(views),
        data=_listed(results, cells, largest, exposures, material),
    )


@_table.register
def _(risk: TalliedRisk, material: Material) -> None:  # noqa: ARG001 — a scan is of one number
    return None


def _numbers(cells: Sequence[Cell]) -> dict[str, list[int]]:
    """Positions of the cells of each number that is published."""
    places: dict[str, list[int]] = {}
    for c, cell in enumerate(cells):
        places.setdefault(cell.number, []).append(c)
    return places


def _view(title: str, cells: Sequence[Cell], delta: FloatArray, *, legend: bool) -> tuple[dict[str, Any], int]:
    """One number as a map, or as a list where it has no two columns of a size that can be drawn; and what it hides."""
    columns = list(dict.fromkeys(column for cell in cells for column, _ in cell.keys))
    placed = [dict(cell.keys) for cell in cells]
    values = [_values(placed, column) for column in columns]
    if len(columns) == 2 and len(values[0]) < len(values[1]) > _MOST_COLUMNS:
        columns, values = columns[::-1], values[::-1]
    if len(columns) == 2 and len(values[1]) <= _MOST_COLUMNS:
        rows = [values[0].index(place.get(columns[0], ALL)) for place in placed]
        across = [values[1].index(place.get(columns[1], ALL)) for place in placed]
        down, right = values
        heads = columns
    else:
        order = np.argsort(-delta, kind="stable")
        rows = np.argsort(order, kind="stable").tolist()
        across, right, heads = [0] * len(cells), [""], [", ".join(columns), ""]
        down = [", ".join(value for _, value in cells[c].keys) or ALL for c in order]
    worst = np.zeros(len(down))
    np.maximum.at(worst, np.array(rows), delta)
    shown = np.sort(np.argsort(-worst, kind="stable")[:_MOST_ROWS])
    kept = [k for k, row in enumerate(rows) if row in set(shown.tolist())]
    down_names, right_names = _distinct([down[row] for row in shown]), _distinct(right)
    place = {int(row): k for k, row in enumerate(shown)}
    steps = np.searchsorted(_STEPS, delta, side="left")
    drawn = records(
        row=[down_names[place[rows[k]]] for k in kept], column=[right_names[across[k]] for k in kept],
        heat=[_STEP_WORDS[steps[k]] for k in kept], text=[number(float(delta[k]), 2) for k in kept],
        step=[str(steps[k]) for k in kept],
    )  # fmt: skip
    y = {
        "field": "row", "type": "nominal", "sort": down_names,
        "axis": {"title": shortened(heads[0], 40) or None, "domain": False, "ticks": False, "labelPadding": 6},
    }  # fmt: skip
    x = {
        "field": "column", "type": "nominal", "sort": right_names,
        "axis": {"title": shortened(heads[1], 40) or None, "orient": "top", "domain": False, "ticks": False,
                 "labelAngle": 0 if len(right_names) <= 8 else -40, "labelPadding": 6, "labelLimit": 110},
    }  # fmt: skip
    key = {"title": "delta", "columns": 6, "columnPadding": 16, "symbolStrokeWidth": 0, "symbolSize": 160}
    colour = {
        "field": "heat", "type": "nominal", "sort": list(_STEP_WORDS),
        "scale": {"domain": list(_STEP_WORDS), "range": list(HEAT)}, "legend": key if legend else None,
    }  # fmt: skip
    ink = {"field": "step", "type": "nominal", "legend": None,
           "scale": {"domain": [str(k) for k in range(len(HEAT))], "range": list(_ON_HEAT)}}  # fmt: skip
    places = {"x": x, "y": y}
    boxes = layer("boxes", {"type": "rect", "stroke": LINE, "strokeWidth": 1}, drawn, {**places, "color": colour})
    texts = layer("texts", {"type": "text", "fontSize": 12}, drawn, {**places, "text": {"field": "text"}, "color": ink})
    view: dict[str, Any] = {
        "width": min(_WIDTH, _WIDEST * len(right_names)) if len(right_names) > 1 else 2 * _WIDEST,
        "height": _ROW * len(down_names),
        "layer": [boxes, texts],
        "resolve": {"scale": {"color": "independent"}},
    }
    if title:
        view["title"] = {"text": shortened(title, 70), "fontSize": 12, "anchor": "start", "color": INK}
    return view, len(cells) - len(kept)


def _values(placed: Sequence[dict[str, str]], column: str) -> list[str]:
    """Values of a column in the order of the table, the margin last."""
    values = list(dict.fromkeys(place[column] for place in placed if column in place))
    return [*values, ALL] if any(column not in place for place in placed) else values


def _distinct(values: Sequence[str]) -> list[str]:
    """Short labels, none of them twice: an axis would take two that are equal for one."""
    labels: list[str] = []
    for value in values:
        label, k = shortened(value, 28), 2
        while label in labels:
            label, k = f"{shortened(value, 22)} ({k})", k + 1
        labels.append(label)
    return labels


def _listed(
    results: Results, cells: Sequence[Cell], largest: FloatArray, exposures: Exposures, material: Material
) -> dict[str, list[Any]]:
    """The list below the picture, the riskiest cell first."""
    order, said = np.argsort(-largest, kind="stable"), cells_in_words(cells)
    numbers_seen = np.count_nonzero((results.outcomes == 0).reshape(results.n_databases, -1, len(cells)).any(1), axis=0)
    exposed = np.bincount(exposures.cell, minlength=len(cells))
    listed: dict[str, list[Any]] = {
        "cell": [said[c] for c in order],
        "delta": [number(float(largest[c]), 3) for c in order],
        "people exposed": [int(exposed[c]) for c in order],
        "in databases": [int(numbers_seen[c]) for c in order],
    }
    if material.names is not None:
        listed["most exposed"] = [_whom(int(c), exposures, material) for c in order]
    risky = [int(c) for c in order[:_MOST_REMEDIES] if largest[c] > _LEAST_REMEDIED]
    found = remedies(results, risky, float(material.epsilons[material.start])) if risky else {}
    if found:
        listed["what would help"] = [_helps(found[c], said) if c in found else "" for c in order.tolist()]
    return listed


def _helps(remedy: Remedy, said: Sequence[str]) -> str:
    neighbour = None if remedy.neighbour is None else said[remedy.neighbour]
    return remedy_sentence(remedy.had_back, [said[c] for c in remedy.hide], neighbour, remedy.delta)


def _whom(cell: int, exposures: Exposures, material: Material) -> str:
    """Names of those whom a cell exposes most, as the page shows them."""
    assert material.names is not None
    here = np.flatnonzero(exposures.cell == cell)
    here = here[np.argsort(-exposures.delta[here], kind="stable")]
    shown = {int(row): name for row, name in zip(material.rows, material.names, strict=True)}
    named = [shown[row] for row in exposures.individual[here].tolist() if row in shown][:_MOST_NAMED]
    more = len(here) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if named and more else "") or "nobody"
