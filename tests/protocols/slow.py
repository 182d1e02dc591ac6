"""The slow and obvious way: rows taken one by one, without each individual for real, with the same random numbers."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from empriv.results import Outcome, Results

Row = dict[str, Any]
Change = Callable[[Row, Callable[[str], int]], Row | None]
"""A step: from a row, and the random bits of a stream, to a row, or to None if it is left out."""


def text(value: Any) -> str:
    """A value as DuckDB casts it to text."""
    return "-" if value is None else f"{len(str(value))}:{value}"


def rows_of(frame: pd.DataFrame) -> list[Row]:
    plain = frame.astype(object)
    return [
        {name: None if value is None or value != value else value for name, value in row.items()}
        for row in plain.to_dict("records")
    ]


def halves(bits: int) -> tuple[float, float]:
    """Two uniform numbers; the first is never 0."""
    return (float(bits >> 64) + 1) * 2.0**-64, float(bits & (2**64 - 1)) * 2.0**-64


def stepped(rows: Sequence[Row], place: int, draw: int, changes: Sequence[Change]) -> list[Row]:
    """The rows of one database after all steps."""
    seen: dict[str, int] = {}
    out = []
    for row in rows:
        content = hashlib.md5("".join(map(text, row.values())).encode()).hexdigest()
        seen[content] = seen.get(content, 0) + 1
        unit = f"{place}:{content}:{seen[content]}"

        def bits(stream: str, unit: str = unit) -> int:
            return int.from_bytes(hashlib.md5(f"{stream}:{draw}:{unit}".encode()).digest(), "little")

        now: Row | None = dict(row)
        for change in changes:
            if now is not None:
                now = change(now, bits)
        if now is not None:
            out.append(now)
    return out


def clip(column: str, lower: float, upper: float) -> Change:
    def change(row: Row, bits: Callable[[str], int]) -> Row:  # noqa: ARG001
        value = row[column]
        return row if value is None or value != value else row | {column: min(max(value, lower), upper)}

    return change


def noise(column: str, scale: float, law: str, stream: str) -> Change:
    def change(row: Row, bits: Callable[[str], int]) -> Row:
        if row[column] is None:
            return row
        u, v = halves(bits(stream))
        if law == "laplace":
            drawn = -math.log(u) * (1 if v < 0.5 else -1)
        else:
            drawn = math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)
        return row | {column: row[column] + scale * drawn}

    return change


def keep(share: float, stream: str) -> Change:
    def change(row: Row, bits: Callable[[str], int]) -> Row | None:
        return row if bits(stream) < share * 2**128 else None

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
                given = answer(stepped(left, j, draw, changes))
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
