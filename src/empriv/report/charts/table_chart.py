"""The chart of a published table: how large a move each cell hides, beside the most that anybody moved it.

A number that is grouped by two columns is a map with a row and a column for each of their values, its margins beside
it; anything else is a list. Both are at the epsilon at which charts are first drawn, and the delta allowed there.

Below it stands what would protect the people of the riskiest cells: other cells to hide with one, or a neighbour to add
it to. Hiding one cell changes nothing where its total is published; which cells must go with it follows from how the
table adds up. Whether adding it to a neighbour helps is measured again, of the people of the two, in the table with the
two as one cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.text import shortened
from empriv.errors import InputError
from empriv.measuring.tables import TableRisk, measure_table
from empriv.measuring.tables.relations import Relations, relations_of
from empriv.report.charts.chart import HEAT, INK, LINE, Chart, layer, records, stacked
from empriv.report.gather import Material
from empriv.results import Cell, FloatArray, IntArray, Outcome, Results
from empriv.validate.covers import CoverByCell, cover_by_cell
from empriv.validate.table_cover import days_of
from empriv.words.sentences import ALL, amount, cells_in_words, listed, number, quantity

_MOST_COLUMNS = 16  # of a map; a wider table is drawn as a list
_MOST_ROWS = 40  # drawn; the list below the picture has them all
_MOST_NAMED = 3
_MOST_REMEDIES = 5  # for so many cells what would help is looked for, if somebody moved them by more than they hide
_USUAL_DELTA = 0.05  # where nobody said what is allowed
_MOST_NEIGHBOURS = 4
_MOST_PEOPLE = 40  # of two cells, those who change them most, that are measured again
_WIDTH, _WIDEST, _ROW = 520, 96, 28
_STEPS = (0.0, 0.5, 1.0, 2.0, 10.0)  # moves in units of the cover: one above each has the colour after it
_STEP_WORDS = ("unmoved", "up to half", "up to all", "up to twice", "up to 10 times", "more")
# Text on each colour of `HEAT`: the page exchanges the first and the last in dark mode, where the colours are turned.
_ON_HEAT = (INK, INK, "#111111", "#111111", "white", "white")


@dataclass(frozen=True, eq=False)
class Movers:
    """Who moved which cell, each by the most they did: positions of people and cells, and the moves."""

    individual: Any
    cell: Any
    moved: FloatArray


def movers_of(risk: TableRisk) -> Movers:
    """Everybody's largest move of each cell."""
    days = days_of(risk)
    d = len(risk.fit.cells)
    keys, place = np.unique(days.owner[days.day] * d + days.cells, return_inverse=True)
    most = np.zeros(len(keys))
    np.maximum.at(most, place, np.abs(days.moves))
    return Movers(keys // d, keys % d, most)


def table_chart(material: Material) -> Chart | None:
    """Cover by cell; None of one number, and of people measured in chunks."""
    risk = material.audit.once
    if not isinstance(risk, TableRisk) or len(risk.fit.cells) < 2:
        return None
    results, names, epsilon = risk.results, risk.fit.cells, float(material.epsilons[material.start])
    delta = next((limit for at, limit in material.targets if at == epsilon), _USUAL_DELTA)
    found, movers = cover_by_cell(risk, epsilon, delta), movers_of(risk)
    cells = results.cells or tuple(Cell("", (("", name),)) for name in names)
    ratio = _ratios(found)
    views: list[dict[str, Any]] = []
    left_out = 0
    for title, places in _numbers(cells).items():
        view, hidden = _view(title, [cells[c] for c in places], found.cover[places], ratio[places], legend=not views)
        views.append(view)
        left_out += hidden
    beyond = int(np.count_nonzero(ratio > 1))
    hidden_words = f" The picture leaves out {left_out:,} cells, moved by the least." if left_out else ""
    return Chart(
        name="table",
        title="How large a move each cell hides",
        caption=(
            f"The figure is the largest move of the cell that is hidden at epsilon {epsilon:.4g} and delta {delta:g} "
            "from somebody who knows every other cell; the colour is how far somebody moved it. "
            f"In {beyond:,} of {len(names):,} cells somebody moved it by more. Who moves several cells at once is "
            f"hidden less. The list has the furthest first.{hidden_words}"
        ),
        spec=stacked(views),
        data=_listed(results, cells, found, ratio, movers, material),
    )


def _ratios(found: CoverByCell) -> FloatArray:
    """(cells,) the most that anybody moved each, in units of what it hides."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(found.moved > 0, np.where(found.cover > 0, found.moved / found.cover, np.inf), 0.0)


def _numbers(cells: Sequence[Cell]) -> dict[str, list[int]]:
    """Positions of the cells of each number that is published."""
    places: dict[str, list[int]] = {}
    for c, cell in enumerate(cells):
        places.setdefault(cell.number, []).append(c)
    return places


def _view(
    title: str, cells: Sequence[Cell], cover: FloatArray, ratio: FloatArray, *, legend: bool
) -> tuple[dict[str, Any], int]:
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
        order = np.argsort(-ratio, kind="stable")
        rows = np.argsort(order, kind="stable").tolist()
        across, right, heads = [0] * len(cells), [""], [", ".join(columns), ""]
        down = [", ".join(value for _, value in cells[c].keys) or ALL for c in order]
    worst = np.zeros(len(down))
    np.maximum.at(worst, np.array(rows), ratio)
    shown = np.sort(np.argsort(-worst, kind="stable")[:_MOST_ROWS])
    kept = [k for k, row in enumerate(rows) if row in set(shown.tolist())]
    down_names, right_names = _distinct([down[row] for row in shown]), _distinct(right)
    place = {int(row): k for k, row in enumerate(shown)}
    steps = np.searchsorted(_STEPS, ratio, side="left")
    drawn = records(
        row=[down_names[place[rows[k]]] for k in kept], column=[right_names[across[k]] for k in kept],
        heat=[_STEP_WORDS[steps[k]] for k in kept], text=[amount(float(cover[k])) for k in kept],
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
    key = {
        "title": "colour: the furthest move, as a share of that (blue: hidden)",
        "titleLimit": _WIDTH,
        "columns": 6,
        "columnPadding": 16,
        "symbolStrokeWidth": 0,
        "symbolSize": 160,
    }
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
        view["title"] = {
            "text": f"{shortened(title, 70)}: the largest move that is hidden",
            "fontSize": 12,
            "anchor": "start",
            "color": INK,
        }
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
    results: Results, cells: Sequence[Cell], found: CoverByCell, ratio: FloatArray, movers: Movers, material: Material
) -> dict[str, list[Any]]:
    """The list below the picture, the cell that was moved furthest first."""
    order, said, nouns = np.argsort(-ratio, kind="stable"), cells_in_words(cells), material.audit.nouns
    numbers_seen = np.count_nonzero((results.outcomes == 0).reshape(results.n_databases, -1, len(cells)).any(1), axis=0)
    far = movers.moved > found.cover[movers.cell] * (1 + 1e-9)
    beyond = np.bincount(movers.cell[far], minlength=len(cells))
    listed: dict[str, list[Any]] = {
        "cell": [said[c] for c in order],
        "hides up to": [quantity(float(found.cover[c])) for c in order],
        "furthest moved by": [quantity(float(found.moved[c])) for c in order],
        f"{nouns.individual or 'people'} beyond": [int(beyond[c]) for c in order],
        f"in {nouns.database or 'database'}s": [int(numbers_seen[c]) for c in order],
    }
    if material.names_listed is not None:
        listed["moved it most"] = [_whom(int(c), movers, material) for c in order]
    risky = [int(c) for c in order[:_MOST_REMEDIES] if ratio[c] > 1]
    remedied = remedies(results, risky, float(material.epsilons[material.start])) if risky else {}
    if remedied:
        listed["what would help"] = [_helps(remedied[c], said) if c in remedied else "" for c in order.tolist()]
    return listed


def _helps(remedy: Remedy, said: Sequence[str]) -> str:
    neighbour = None if remedy.neighbour is None else said[remedy.neighbour]
    return remedy_sentence(remedy.had_back, [said[c] for c in remedy.hide], neighbour, remedy.delta)


def _whom(cell: int, movers: Movers, material: Material) -> str:
    """Names of those who moved a cell most, as the page shows them."""
    assert material.names_listed is not None
    theirs = np.flatnonzero(movers.cell == cell)
    theirs = theirs[np.argsort(-movers.moved[theirs], kind="stable")]
    shown = {int(row): name for row, name in zip(material.rows, material.names_listed, strict=True)}
    named = [shown[row] for row in movers.individual[theirs].tolist() if row in shown][:_MOST_NAMED]
    more = len(theirs) - len(named)
    return ", ".join(named) + (f" and {more:,} more" if named and more else "") or "nobody"


@dataclass(frozen=True)
class Remedy:
    """What would protect the people of a cell; cells are given by position.

    Attributes
    ----------
    had_back : whether the cell, if hidden alone, follows from the others
    hide : further cells that must be hidden with it, so that none follows
    neighbour : the cell whose sum with this one tells least, None where sums mean nothing
    delta : of the most exposed of the people of both, if the two are published as one
    """

    had_back: bool
    hide: tuple[int, ...] = ()
    neighbour: int | None = None
    delta: float = 1.0


def remedies(results: Results, cells: Sequence[int], epsilon: float) -> dict[int, Remedy]:
    """Remedies of these cells."""
    try:
        relations = relations_of(results)
    except InputError:  # too few answers to see how cells add up
        return {}
    return {cell: _remedy(results, relations, cell, epsilon) for cell in cells}


def _remedy(results: Results, relations: Relations, cell: int, epsilon: float) -> Remedy:
    hidden = np.arange(len(results.components or ())) == cell
    had_back = bool(relations.recovered(hidden)[cell])
    further = relations.complement(hidden) if had_back else ()
    neighbours = _neighbours(results.cells or (), cell) if _counts(results) else []
    tried = [(_together(results, cell, other, epsilon), other) for other in neighbours]
    delta, neighbour = min(tried, default=(1.0, None))
    return Remedy(had_back, further, neighbour, delta)


def _counts(results: Results) -> bool:
    """Whether every cell is a count: then two of them are one by adding them up."""
    numbers = results.q[results.outcomes == Outcome.NUMBER]
    return bool(results.draws is None and (numbers >= 0).all() and (numbers == np.rint(numbers)).all())


def _neighbours(cells: Sequence[Cell], cell: int) -> list[int]:
    """Cells that differ in one key alone, the next and the one before; along columns of numbers, if there are any."""
    own = cells[cell] if cells else Cell("")
    near = []
    # ages and years have neighbours; wards stand beside each other by their names only
    columns = [column for column, value in own.keys if any(map(str.isdigit, value))] or [
        column for column, _ in own.keys
    ]
    for column in columns:
        others = dict(own.keys)
        others.pop(column)
        along = [
            c for c, other in enumerate(cells)
            if other.number == own.number and {k: v for k, v in other.keys if k != column} == others
            and column in dict(other.keys)
        ]  # fmt: skip
        place = along.index(cell)
        near += along[max(0, place - 1) : place] + along[place + 1 : place + 2]
    return near[:_MOST_NEIGHBOURS]


def _together(results: Results, first: int, second: int, epsilon: float) -> float:
    """delta of the most exposed of the people of two cells, in the table with the two as one."""
    pair = [first, second]
    moved = results.entry_q[:, pair] - results.q[results.entry_database][:, pair]
    moved = np.where(results.entry_outcomes[:, pair] == results.outcomes[results.entry_database][:, pair], moved, 1.0)
    size = np.nan_to_num(np.abs(moved)).sum(axis=1)
    own = np.add.reduceat(np.append(size, 0.0), results.starts[:-1]) * (results.presence > 0)
    people: IntArray = np.flatnonzero(own > 0)
    people = np.sort(people[np.argsort(-own[people], kind="stable")][:_MOST_PEOPLE])
    merged = _merged(results.of_individuals(people), first, second)
    return float(measure_table(merged).delta(epsilon))


def _merged(results: Results, first: int, second: int) -> Results:
    """The table with two counts added up; a cell that is absent counts 0, and the sum of two absent cells is absent."""
    kept = [c for c in range(len(results.components or ())) if c != second]

    def added(values: FloatArray, codes: npt.NDArray[np.int8]) -> tuple[FloatArray, npt.NDArray[np.int8]]:
        values, codes = values.copy(), codes.copy()
        both = values[:, [first, second]]
        numeric = (codes[:, [first, second]] == Outcome.NUMBER).any(axis=1)
        codes[:, first] = np.where(numeric, Outcome.NUMBER, codes[:, first])
        values[:, first] = np.where(numeric, np.nansum(both, axis=1), np.nan)
        return values[:, kept], codes[:, kept]

    q, outcomes = added(results.q, results.outcomes)
    entry_q, entry_outcomes = added(results.entry_q, results.entry_outcomes)
    return replace(
        results, q=q, outcomes=outcomes, entry_q=entry_q, entry_outcomes=entry_outcomes,
        components=tuple((results.components or ())[c] for c in kept), cells=None, postprocessed_from=None,
    )  # fmt: skip


def remedy_sentence(had_back: bool, hide: Sequence[str], neighbour: str | None, delta: float) -> str:
    """What would protect the people of a cell."""
    if had_back and hide:
        hiding = f"Hidden alone it can be had back from the others: hide {_first_few(hide)} as well"
    elif had_back:
        hiding = "Hiding it does not help: it can be had back from the others"
    else:
        hiding = "Hide it"
    if neighbour is None:
        return f"{hiding}."
    return f"{hiding}, or add it to {neighbour}: delta is then {number(delta, 2)}."


def _first_few(names: Sequence[str]) -> str:
    if len(names) > _MOST_NAMED:
        return f"{', '.join(names[:_MOST_NAMED])} and {len(names) - _MOST_NAMED:,} more"
    return listed(names)
