"""The slow and obvious way: rows taken one by one, without each individual for real."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from empriv.results import Outcome, Results

Row = dict[str, Any]
Change = Callable[[Row], Row]
"""A step: from a row to a row."""


def rows_of(frame: pd.DataFrame) -> list[Row]:
    plain = frame.astype(object)
    return [
        {name: None if value is None or value != value else value for name, value in row.items()}
        for row in plain.to_dict("records")
    ]


def stepped(rows: Sequence[Row], changes: Sequence[Change]) -> list[Row]:
    """The rows of one database after all steps."""
    out = []
    for row in rows:
        now = dict(row)
        for change in changes:
            now = change(now)
        out.append(now)
    return out


def clip(column: str, lower: float, upper: float) -> Change:
    def change(row: Row) -> Row:
        value = row[column]
        return row if value is None or value != value else row | {column: min(max(value, lower), upper)}

    return change


def average(rows: Sequence[Row]) -> float | None:
    values = [row["amount"] for row in rows if row["amount"] is not None]
    return math.fsum(values) / len(values) if values else None


def check(
    results: Results, frame: pd.DataFrame, changes: Sequence[Change], answer: Callable[[Sequence[Row]], Any]
) -> int:
    """Compare every result, with everyone and without each individual, present or not; how many were compared.

    ``answer`` gives a number or None or, for several numbers, a list of these.
    """
    rows, many = rows_of(frame), results.draws or 1
    columns = 1 if results.components is None else len(results.components)
    shape = (-1, many, columns)
    q, codes = results.q.reshape(shape), results.outcomes.reshape(shape)
    entry_q, entry_codes = results.entry_q.reshape(shape), results.entry_outcomes.reshape(shape)
    compared = 0
    for j, label in enumerate(results.databases.tolist()):
        mine = [row for row in rows if row["day"] == label]
        for i, person in enumerate([None, *results.individuals.tolist()]):
            left = [row for row in mine if person is None or row["who"] != person]
            at, values, outcomes = j, q, codes
            if person is not None:
                entries = np.arange(results.starts[i - 1], results.starts[i])
                found = entries[results.entry_database[entries] == j]
                if len(found):
                    at, values, outcomes = int(found[0]), entry_q, entry_codes
            for draw in range(many):
                given = answer(stepped(left, changes))
                expected = given if isinstance(given, list) else [given]
                for column, one in enumerate(expected):
                    code = outcomes[at, draw, column]
                    if one is None:
                        assert code == Outcome.NULL, (j, i, draw)
                    else:
                        assert code == Outcome.NUMBER, (j, i, draw)
                        np.testing.assert_allclose(values[at, draw, column], one, rtol=1e-9, atol=1e-9)
                    compared += 1
    return compared
