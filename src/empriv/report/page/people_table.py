"""Who is at risk: the few most exposed, what share of the risk they hold, and the table of everybody.

Names are those given, which are pseudonyms unless somebody asked for identifiers.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import numpy as np

from empriv.base.harmless import shortened, visible
from empriv.errors import InputError
from empriv.measuring import RiskContract
from empriv.report.gather import Material
from empriv.results import FloatArray, IntArray, Results
from empriv.scale.tallied import TalliedRisk
from empriv.words.sentences import amount, number, percent, quantity
from empriv.words.table_words import cells_in_words

MOST_SHOWN = 5
_HOLDERS = 3
_LEAST_EXPONENT = -40


@dataclass(frozen=True)
class Person:
    """One of the most exposed, as the page says it."""

    name: str
    there: str | None
    random: str
    moves: str
    databases: str


@dataclass(frozen=True)
class Exposed:
    """The most exposed, and one sentence of how much of the risk they hold."""

    sentence: str
    people: tuple[Person, ...]
    with_there: bool


def exposed_people(material: Material, names: Sequence[str], unit: str) -> Exposed:
    """The most exposed at the page's epsilon, under the ``names`` of ``material.rows``."""
    audit = material.audit
    random = material.curves.table[:, material.start]
    there = _there(material)
    worst = random if there is None else np.maximum(random, there)
    size = np.where(np.isnan(material.influence), np.inf, material.influence)[material.rows]
    order = np.lexsort((np.asarray(names, dtype=str), -size, -worst))
    shown = [int(k) for k in order[:MOST_SHOWN] if worst[k] > 0]
    presence = audit.results.presence[material.rows]
    people = tuple(
        Person(
            visible(str(names[k])),
            None if there is None else number(float(there[k]), 2),
            number(float(random[k]), 2),
            _moves(audit.results, int(material.rows[k]), float(material.influence[material.rows[k]]), unit),
            f"{int(presence[k]):,} of {audit.results.n_databases:,}",
        )
        for k in shown
    )
    return Exposed(_share_sentence(material, random, there), people, there is not None)


def _there(material: Material) -> FloatArray | None:
    """delta_i of those in the table in a database that they are in; None where it is not measured."""
    if material.there.get(material.epsilon) is None:
        return None
    try:
        risk = material.audit.when_present
    except InputError:
        return None
    asked = list(material.there)  # the grid that figures were asked at: the risk still holds these curves
    return np.asarray(risk.delta_i(asked)[material.rows, asked.index(material.epsilon)])


def _share_sentence(material: Material, random: FloatArray, there: FloatArray | None) -> str:
    n = material.audit.n_individuals
    at = f"at epsilon {material.epsilon:.4g}"
    if float(random.max(initial=0.0)) <= 0 and (there is None or float(there.max(initial=0.0)) <= 0):
        return f"Nobody's privacy is seen to fail {at}."
    summed = _summed(material.audit.measured, material)
    if summed is None or n <= _HOLDERS:
        return f"The most exposed {at}."
    shares = [(_first(random) / summed if summed > 0 else 0.0, "in a random database")]
    if there is not None and len(material.rows) == n and float(there.sum()) > 0:
        shares.append((_first(there) / float(there.sum()), "in a database that they are in"))
    held = " and ".join(f"{percent(share)} {where}" for share, where in shares)
    return f"Of all risk {at}, {_HOLDERS} of {n:,} individuals hold {held}."


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
        "influence": ["number or not" if math.isnan(v) else quantity(float(v)) for v in influence[order]],
        "databases": [int(v) for v in results.presence[material.rows][order]],
    }


def individuals_payload(rows: Mapping[str, Any]) -> dict[str, Any]:
    """The table as the script reads it."""
    return {
        "names": rows["names"],
        "influence": rows["influence"],
        "databases": rows["databases"],
        "delta_i": encode(rows["values"]),
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
    exponent: IntArray = np.floor(np.log10(values_above_0)).astype(np.int64)
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
