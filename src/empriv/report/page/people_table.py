"""Who is beyond what the answer hides: the few who moved it furthest.

Names are those given, which are pseudonyms unless somebody asked for identifiers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from empriv.base.text import shortened, visible
from empriv.report.gather import MOST_LISTED, Material
from empriv.results import Results
from empriv.validate.covers import has_line_cover, line_cover_of, results_of
from empriv.words.sentences import amount, number
from empriv.words.table_words import cells_in_words


@dataclass(frozen=True)
class People:
    """Rows of a small table: heads, one row for each person, and what is said above it."""

    title: str
    said: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def people_beyond(material: Material, names: Sequence[str]) -> People:
    """Who moved the answer furthest, by their moves where these are known, else by delta_i at the page's epsilon."""
    return _by_moves(material, names) if has_line_cover(material.audit.once) else _by_delta(material, names)


def _by_moves(material: Material, names: Sequence[str]) -> People:
    audit, nouns = material.audit, material.audit.nouns
    moves = line_cover_of(audit.once, material.kernel).moves
    labels = results_of(audit.once).databases
    worst = moves.worst[material.rows]
    size = np.where(worst >= 0, moves.relative[worst], 0.0) if len(moves.sizes) else np.zeros(len(worst))
    order = np.lexsort((np.asarray(names, dtype=str), -size))
    shown = [int(k) for k in order[:MOST_LISTED] if size[k] > 0]
    presence = audit.results.presence[material.rows]
    cover = None if material.day is None else material.day.in_residuals
    rows = []
    for k in shown:
        place = int(worst[k])
        by = "an answer or none" if math.isinf(moves.sizes[place]) else amount(float(moves.sizes[place]), audit.unit)
        hidden = [] if cover is None else [amount(cover * float(moves.units[place]), audit.unit)]
        day = shortened(visible(str(labels[moves.database[place]])), 40)
        rows.append((visible(str(names[k])), by, *hidden, day, f"{int(presence[k]):,} of {audit.n_databases:,}"))
    beyond = 0 if material.day is None else material.day.people_beyond
    heads = (
        (nouns.individual or "Individual").capitalize(), "Moved the answer by",
        *([] if cover is None else ["Hidden there up to"]), f"On {nouns.database or 'database'}",
        f"Is in {nouns.database or 'database'}s",
    )  # fmt: skip
    if material.day is None or not beyond:
        said = "Nobody is beyond what the answer hides; these come nearest." if material.day is not None else ""
        return People("Who moved it furthest", said if rows else "Nobody moved the answer.", heads, tuple(rows))
    listed = f" The {len(rows)} whom it hides least:" if beyond > len(rows) else ""
    where = nouns.database or "database"
    said = f"{beyond:,} of {audit.n_individuals:,} moved the answer by more than it hides, on some {where}.{listed}"
    return People("Who is beyond", said, heads, tuple(rows))


def _by_delta(material: Material, names: Sequence[str]) -> People:
    """Of several numbers, of a series and of people measured in chunks."""
    audit, nouns = material.audit, material.audit.nouns
    delta = material.curves.table[:, material.start]
    size = np.where(np.isnan(material.influence), np.inf, material.influence)[material.rows]
    order = np.lexsort((np.asarray(names, dtype=str), -size, -delta))
    presence = audit.results.presence[material.rows]
    rows = tuple(
        (
            visible(str(names[k])), number(float(delta[k]), 2),
            _influence(audit.results, int(material.rows[k]), float(material.influence[material.rows[k]]), audit.unit),
            f"{int(presence[k]):,} of {audit.n_databases:,}",
        )
        for k in order[:MOST_LISTED]
        if delta[k] > 0
    )  # fmt: skip
    where = nouns.database or "database"
    heads = (
        (nouns.individual or "Individual").capitalize(), f"delta in a random {where}", "Moves the answer by up to",
        f"Is in {where}s",
    )  # fmt: skip
    said = "" if rows else f"On a random {where}, nobody's privacy is seen to fail at epsilon {material.epsilon:.4g}."
    return People("Who is most exposed", said, heads, rows)


def _influence(results: Results, row: int, influence: float, unit: str) -> str:
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
