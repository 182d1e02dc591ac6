"""Who is at risk: the few most exposed, and what share of the risk they hold; columns of everybody for a file.

Names are those given, which are pseudonyms unless somebody asked for identifiers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from empriv.base.harmless import shortened, visible
from empriv.measuring import GivenRisk, Risk, RiskContract
from empriv.measuring.line.moves import Moves
from empriv.report.gather import Material
from empriv.results import FloatArray, Results
from empriv.scale.tallied import TalliedRisk
from empriv.words.decision import Hidden, beyond_cover, hides
from empriv.words.sentences import amount, number, percent
from empriv.words.table_words import cells_in_words

MOST_SHOWN = 5
_HOLDERS = 3


@dataclass(frozen=True)
class Person:
    """One of those at risk, as the page says it; ``day`` is the database of the largest move."""

    name: str
    random: str
    moves: str
    day: str
    databases: str


@dataclass(frozen=True)
class Exposed:
    """Those at risk, who moved the answer most first; one sentence of the risk, and one of the cover."""

    sentence: str
    cover: str
    people: tuple[Person, ...]
    with_day: bool


def exposed_people(
    material: Material, names: Sequence[str], unit: str, day: Hidden | None = None, said: str = ""
) -> Exposed:
    """Who moved the answer most, and who is most exposed at the page's epsilon, under the ``names`` of
    ``material.rows``; what was ``said`` above is not said again."""
    audit = material.audit
    random = material.curves.table[:, material.start]
    size = np.where(np.isnan(material.influence), np.inf, material.influence)[material.rows]
    moves = _moves_of(audit.measured)
    first = -random if moves is None else -moves.largest[material.rows]
    order = np.lexsort((np.asarray(names, dtype=str), -size, -random, first))
    shown = [int(k) for k in order[:MOST_SHOWN] if random[k] > 0 or first[k] < 0]
    presence = audit.results.presence[material.rows]
    people = tuple(
        Person(
            visible(str(names[k])),
            number(float(random[k]), 2),
            *_largest_move(material, int(material.rows[k]), moves, unit),
            f"{int(presence[k]):,} of {audit.results.n_databases:,}",
        )
        for k in shown
    )
    cover = "" if day is None else f"{hides(day)}{beyond_cover(day)}"
    return Exposed(_share_sentence(material, random), "" if cover in said else cover, people, moves is not None)


def _largest_move(material: Material, row: int, moves: Moves | None, unit: str) -> tuple[str, str]:
    """By how much somebody moved the answer at most, beside what is left of the database, and on which."""
    results = material.audit.results
    if moves is None or moves.worst[row] < 0:
        return _moves(results, row, float(material.influence[row]), unit), ""
    place = int(moves.worst[row])
    by = "an answer or none" if math.isinf(moves.sizes[place]) else amount(float(moves.sizes[place]), unit)
    return by, shortened(visible(str(_labels(material.audit.measured)[moves.database[place]])), 40)


@singledispatch
def _moves_of(risk: RiskContract) -> Moves | None:  # noqa: ARG001 — dispatched on
    """What everybody did on every database; None for kinds of risk that do not say."""
    return None


@_moves_of.register
def _(risk: Risk) -> Moves:
    return risk.moves()


@singledispatch
def _labels(risk: RiskContract) -> Any:
    return risk.results.databases


@_labels.register
def _(risk: GivenRisk) -> Any:
    return risk.left.original.databases


def _share_sentence(material: Material, random: FloatArray) -> str:
    n = material.audit.n_individuals
    at = f"at epsilon {material.epsilon:.4g}"
    if float(random.max(initial=0.0)) <= 0:
        return f"On a random database, nobody's privacy is seen to fail {at}."
    summed = _summed(material.audit.measured, material)
    if summed is None or n <= _HOLDERS:
        return f"The most exposed {at}."
    held = percent(_first(random) / summed if summed > 0 else 0.0)
    return f"Of all risk {at}, {_HOLDERS} of {n:,} individuals hold {held} on a random database."


def _first(values: FloatArray) -> float:
    return float(np.sort(values)[-_HOLDERS:].sum())


@singledispatch
def _summed(risk: RiskContract, material: Material) -> float | None:
    """The sum of everybody's delta_i at the page's epsilon."""
    return float(risk.delta_i(material.epsilon).sum())


@_summed.register
def _(risk: TalliedRisk, material: Material) -> float | None:  # noqa: ARG001 — a scan keeps the riskiest alone
    return None


def _moves(results: Results, row: int, influence: float, unit: str) -> str:
    """By how much leaving somebody out changes the answer; of several numbers, the one that they move most."""
    if results.components is None:
        return "a number or not" if math.isnan(influence) else amount(influence, unit)
    here = slice(int(results.starts[row]), int(results.starts[row + 1]))
    databases, count = results.entry_database[here], len(results.components)
    names = results.components if results.cells is None else cells_in_words(results.cells)
    flips = results.entry_outcomes[here] != results.outcomes[databases]
    if flips.any():
        where = int(np.argmax(flips.reshape(-1, count).any(axis=0)))
        return f"a number or not in {shortened(str(names[where]), 40)}"
    change = np.abs(results.entry_q[here] - results.q[databases]).reshape(-1, count)
    change = np.where(np.isfinite(change), change, 0.0).max(axis=0, initial=0.0)
    answers = results.q.reshape(-1, count)
    spread = np.array(
        [np.ptp(column[np.isfinite(column)]) if np.isfinite(column).any() else 0.0 for column in answers.T]
    )
    most = int(np.argmax(np.divide(change, spread, out=np.zeros(count), where=spread > 0)))
    return f"{amount(float(change[most]), unit)} in {shortened(str(names[most]), 40)}"


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
        "databases": [int(v) for v in results.presence[material.rows][order]],
    }
