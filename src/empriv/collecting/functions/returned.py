"""What a query's function said, as numbers and outcomes.

A function says one number, or several (a sequence, or a mapping of names to numbers), or None. Anything else is
refused by its type alone: a message never holds what was said.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from decimal import Decimal
from numbers import Integral, Real
from typing import Any

import numpy as np

from empriv.errors import QueryError
from empriv.results import Outcome

EXACT_INTEGERS = 2**53

SCALAR: tuple[str, ...] = ()
Answer = tuple[tuple[str, ...] | None, list[float], list[int]]
"""Names of the components (`SCALAR` for one number, None where that is not known), values, outcomes."""

FAILED: Answer = (None, [math.nan], [int(Outcome.ERROR)])
ABSENT: Answer = (None, [math.nan], [int(Outcome.NULL)])


def read_answer(said: Any, *, database: int) -> Answer:
    """The answer in what a function returned; ``database`` is for the error message."""
    if type(said) is float and math.isfinite(said):
        return SCALAR, [said], [0]
    said = _plain(said)
    if said is None:
        return ABSENT
    if isinstance(said, Mapping):
        if not all(isinstance(name, str) for name in said):
            raise QueryError(f"A query's mapping must have text as its keys; on database {database} it has others.")
        return _vector(tuple(said), list(said.values()), database)
    parts = _parts(said)
    if parts is not None:
        return _vector(tuple(map(str, range(len(parts)))), parts, database)
    value, outcome = _number(said, database)
    return SCALAR, [value], [outcome]


def align(answer: Answer, names: tuple[str, ...], *, database: int) -> Answer:
    """The answer with its components in the order of ``names``; if it failed or is absent, it does so in all."""
    found, values, outcomes = answer
    if found == names:
        return answer
    at = places(found, names, database=database)
    return names, [values[place] for place in at], [outcomes[place] for place in at]


def places(found: tuple[str, ...] | None, names: tuple[str, ...], *, database: int) -> list[int]:
    """Where each of ``names`` is among the components found; an answer without components stands for all."""
    if found is None or found == SCALAR == names:
        return [0] * max(len(names), 1)
    if sorted(found) != sorted(names):
        raise QueryError(
            f"A query must return the same components every time, {_shape(names)} elsewhere, "
            f"got {_shape(found)} on database {database}. Hint: give None for a component that has no value."
        )
    return [found.index(name) for name in names]


def _shape(names: tuple[str, ...]) -> str:
    if names == SCALAR:
        return "one number"
    if all(name.isdigit() for name in names):
        return f"a row of {len(names)}"
    return f"{len(names)} named component{'s' if len(names) > 1 else ''}"


def _vector(names: tuple[str, ...], parts: list[Any], database: int) -> Answer:
    if not names:
        raise QueryError(f"A query must return at least one component, got none on database {database}.")
    pairs = [_number(_plain(part), database) for part in parts]
    return names, [value for value, _ in pairs], [outcome for _, outcome in pairs]


def _number(said: Any, database: int) -> tuple[float, int]:
    """Value and outcome of one number; NaN where the outcome is not a number."""
    if said is None:
        return math.nan, Outcome.NULL
    if not isinstance(said, (Real, Decimal, np.bool_)):
        raise QueryError(
            f"A query must return a number, several numbers or None, "
            f"got a value of type {type(said).__name__} on database {database}."
        )
    if isinstance(said, Decimal) and said.is_nan():
        return math.nan, Outcome.NAN
    if _is_large_integer(said):
        raise QueryError(
            "A query must return integers of at most 2^53, which a float holds exactly, "
            f"got a larger one on database {database}. Hint: return `float(...)` if rounding it does no harm."
        )
    try:
        value = float(said)
    except OverflowError:
        raise QueryError(
            f"A query must return numbers that a float can hold, got a larger one on database {database}."
        ) from None
    if math.isnan(value):
        return math.nan, Outcome.NAN
    if math.isinf(value):
        return math.nan, Outcome.PLUS_INFINITY if value > 0 else Outcome.MINUS_INFINITY
    return value, Outcome.NUMBER


def _is_large_integer(said: Any) -> bool:
    if isinstance(said, Decimal):
        return said.is_finite() and abs(said) > EXACT_INTEGERS and said == said.to_integral_value()
    return isinstance(said, Integral) and abs(int(said)) > EXACT_INTEGERS


def _plain(said: Any) -> Any:
    """A scalar of NumPy, Arrow or pandas as Python has it; all else as it is."""
    if said is np.ma.masked:
        return None
    if isinstance(said, np.ndarray) and said.ndim == 0:
        return _plain(said[()])
    if _is(said, "pyarrow", "Scalar"):
        return said.as_py()
    pandas = sys.modules.get("pandas")
    return None if pandas is not None and said is pandas.NA else said


def _parts(said: Any) -> list[Any] | None:
    """The components of a sequence, or None if it is not one."""
    if isinstance(said, np.ndarray):
        return list(said) if said.ndim == 1 else None
    if isinstance(said, Sequence) and not isinstance(said, (str, bytes, bytearray, memoryview)):
        return list(said)
    series = (("pandas", "Series"), ("pandas", "Index"), ("polars", "Series"), ("pyarrow", "Array"))
    if any(_is(said, *name) for name in (*series, ("pyarrow", "ChunkedArray"))):
        return list(said)
    return None


def _is(said: Any, package: str, name: str) -> bool:
    # What a package makes can only be seen once the package is loaded: no need to load it to look.
    module = sys.modules.get(package)
    return module is not None and isinstance(said, getattr(module, name))
