"""Terms: what is known of each database, as the columns of a regression, numbers or categories.

A quantity may be an array, labels, a mapping from database to value, or a frame with the databases' labels for index.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.results import FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Term:
    """One known quantity.

    Attributes
    ----------
    name : in words
    columns : (n, parameters) about zero, of size one
    values : (n,) the quantity itself: numbers, or labels of categories; None for a wave of the year
    lag : how many answers before it was, for a previous answer; 0 for anything else
    """

    name: str
    columns: FloatArray
    values: npt.NDArray[Any] | None
    lag: int = 0

    @property
    def size(self) -> int:
        return int(self.columns.shape[1])

    @property
    def is_category(self) -> bool:
        return self.values is not None and self.values.dtype.kind not in "f"

    def on(self, databases: npt.NDArray[Any]) -> Term:
        """The term on some of the databases."""
        values = None if self.values is None else self.values[databases]
        return Term(self.name, self.columns[databases], values, self.lag)


def number_term(name: str, values: FloatArray, *, lag: int = 0) -> Term:
    """A number, as it is: one column, none if it does not vary."""
    values = np.asarray(values, float)
    centred = values - values.mean()
    size = float(centred.std())
    varies = size > 1e-12 * float(np.abs(values).max(initial=0.0))
    columns = (centred / size)[:, None] if varies else np.empty((len(values), 0))
    return Term(name, columns, values, lag)


def category_term(name: str, labels: npt.NDArray[Any], *, least: int = 1) -> Term:
    """A category: a column for each label but one. Labels of fewer than ``least`` databases share a column."""
    labels = np.asarray(labels).astype(np.str_)
    kinds, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    if np.any(counts < least):
        labels = np.where(counts[place] < least, "others", labels)
        kinds = np.unique(labels)
    indicators = (labels[:, None] == kinds[None, :]).astype(float)
    columns = indicators[:, 1:] - indicators[:, 1:].mean(axis=0)
    return Term(name, np.asarray(columns), labels)


def quantity_terms(quantity: Any, databases: npt.NDArray[Any], name: str) -> list[Term]:
    """The terms of what was given for one quantity, one for each column of it; checked."""
    n = len(databases)
    columns = _columns(quantity, databases, name)
    terms = []
    for title, column in columns.items():
        if column.shape != (n,):
            raise InputError(f"{_said(title)} must hold one value for each of {n} databases, got shape {column.shape}.")
        if column.dtype.kind in "iuf":
            terms.append(_checked_number(title, column.astype(float)))
        else:
            terms.append(_checked_category(title, column, n))
    return terms


def _checked_number(name: str, values: FloatArray) -> Term:
    missing = int(np.count_nonzero(~np.isfinite(values)))
    if missing:
        raise InputError(
            f"{_said(name)} must be known on every database, got {missing} that are NULL, NaN or infinite. "
            "Hint: coalesce(..., 0), or leave those databases out."
        )
    term = number_term(name, values)
    if not term.size:
        raise InputError(f"{_said(name)} must vary from database to database, got the same number on all of them.")
    return term


def _checked_category(name: str, column: npt.NDArray[Any], n: int) -> Term:
    missing = sum(value is None or value != value for value in column.tolist())
    if missing:
        raise InputError(
            f"{_said(name)} must be known on every database, got {missing} that are NULL. "
            "Hint: coalesce(..., 'unknown'), or leave those databases out."
        )
    term = category_term(name, np.array([str(value) for value in column.tolist()]))
    if not term.size:
        raise InputError(f"{_said(name)} must vary from database to database, got one category on all of them.")
    if 2 * (term.size + 1) > n:
        raise InputError(
            f"{_said(name)} must have few categories, each on several databases, got {term.size + 1} categories on "
            f"{n} databases. Hint: coarser categories, or a number."
        )
    return term


def _columns(quantity: Any, databases: npt.NDArray[Any], name: str) -> dict[str, npt.NDArray[Any]]:
    if isinstance(quantity, Mapping):
        return {name: _by_label(list(quantity.keys()), list(quantity.values()), databases, name)}
    if hasattr(quantity, "index") and hasattr(quantity, "to_numpy"):  # a frame, or a column of one
        labels = list(quantity.index)
        if not hasattr(quantity, "columns"):
            return {name: _by_label(labels, quantity.to_numpy().tolist(), databases, name)}
        return {
            str(column): _by_label(labels, quantity[column].to_numpy().tolist(), databases, str(column))
            for column in quantity.columns
        }
    array = np.asarray(quantity)
    if array.ndim == 2:
        return {f"{name} ({column + 1})": array[:, column] for column in range(array.shape[1])}
    return {name: array}


def _by_label(labels: list[Any], values: list[Any], databases: npt.NDArray[Any], name: str) -> npt.NDArray[Any]:
    """Values in the order of the databases; labels agree if they are written alike."""
    known = dict(zip(map(_written, labels), values, strict=True))
    asked = [_written(label) for label in databases.tolist()]
    missing = sum(label not in known for label in asked)
    if missing:
        raise InputError(f"{_said(name)} must be known on every database, got no value for {missing} of {len(asked)}.")
    found = [known[label] for label in asked]
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in found)
    return np.array(found, float) if numbers else np.array(found, object)


def _written(label: Any) -> str:
    text = str(label)
    return text[:10] if text.endswith(" 00:00:00") else text


def _said(name: str) -> str:
    return f"What is known (`{name}`)"
