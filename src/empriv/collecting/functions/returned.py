"""What a query's function returned, as numbers and outcomes.

A function returns one number, or several (a sequence, or a mapping of names to numbers), or None. Anything else is
refused by its type: a message never holds the value itself.
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


def read_answer(returned: Any, *, database: int) -> Answer:
    """The answer in what a function returned; ``database`` is for the error message."""
    if type(returned) is float and math.isfinite(returned):
        return SCALAR, [returned], [0]
    returned = _plain(returned)
    if returned is None:
        return ABSENT
    if isinstance(returned, Mapping):
        if not all(isinstance(name, str) for name in returned):
            raise QueryError(
                f"A query's mapping must have text as its keys, got keys of other types on database {database}."
            )
        return _vector(tuple(returned), list(returned.values()), database)
    parts = _parts(returned)
    if parts is not None:
        return _vector(tuple(map(str, range(len(parts)))), parts, database)
    value, outcome = _number(returned, database)
    return SCALAR, [value], [outcome]


def align(answer: Answer, names: tuple[str, ...], *, database: int) -> Answer:
    """The answer with its components in the order of ``names``; if it failed or is absent, all components are."""
    own_names, values, outcomes = answer
    if own_names == names:
        return answer
    at = places(own_names, names, database=database)
    return names, [values[place] for place in at], [outcomes[place] for place in at]


def places(own_names: tuple[str, ...] | None, names: tuple[str, ...], *, database: int) -> list[int]:
    """Where each of ``names`` is among the answer's components; an answer without components stands for all."""
    if own_names is None or own_names == SCALAR == names:
        return [0] * max(len(names), 1)
    if sorted(own_names) != sorted(names):
        raise QueryError(
            f"A query must return the same components every time, {_shape(names)} elsewhere, "
            f"got {_shape(own_names)} on database {database}. Hint: return None for a component that has no value."
        )
    return [own_names.index(name) for name in names]


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


def _number(returned: Any, database: int) -> tuple[float, int]:
    """Value and outcome of one number; NaN where the outcome is not a number."""
    if returned is None:
        return math.nan, Outcome.NULL
    if not isinstance(returned, (Real, Decimal, np.bool_)):
        raise QueryError(
            f"A query must return a number, several numbers or None, "
            f"got a value of type {type(returned).__name__} on database {database}."
        )
    if isinstance(returned, Decimal) and returned.is_nan():
        return math.nan, Outcome.NAN
    if _is_large_integer(returned):
        raise QueryError(
            "A query must return integers of at most 2^53, which a float holds exactly, "
            f"got a larger one on database {database}. Hint: return `float(...)` if rounding it does no harm."
        )
    try:
        value = float(returned)
    except OverflowError:
        raise QueryError(
            f"A query must return numbers that a float can hold, got a larger one on database {database}."
        ) from None
    if math.isnan(value):
        return math.nan, Outcome.NAN
    if math.isinf(value):
        return math.nan, Outcome.PLUS_INFINITY if value > 0 else Outcome.MINUS_INFINITY
    return value, Outcome.NUMBER


def _is_large_integer(value: Any) -> bool:
    if isinstance(value, Decimal):
        return value.is_finite() and abs(value) > EXACT_INTEGERS and value == value.to_integral_value()
    return isinstance(value, Integral) and abs(int(value)) > EXACT_INTEGERS


def _plain(value: Any) -> Any:
    """A scalar of NumPy, Arrow or pandas as a Python value; anything else as it is."""
    if value is np.ma.masked:
        return None
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return _plain(value[()])
    if _is(value, "pyarrow", "Scalar"):
        return value.as_py()
    pandas = sys.modules.get("pandas")
    return None if pandas is not None and value is pandas.NA else value


def _parts(returned: Any) -> list[Any] | None:
    """The components of a sequence, or None if it is not one."""
    if isinstance(returned, np.ndarray):
        return list(returned) if returned.ndim == 1 else None
    if isinstance(returned, Sequence) and not isinstance(returned, (str, bytes, bytearray, memoryview)):
        return list(returned)
    series = (("pandas", "Series"), ("pandas", "Index"), ("polars", "Series"), ("pyarrow", "Array"))
    if any(_is(returned, *name) for name in (*series, ("pyarrow", "ChunkedArray"))):
        return list(returned)
    return None


def _is(value: Any, package: str, name: str) -> bool:
    # An object of a package can exist only once the package is loaded, so there is no need to load it.
    module = sys.modules.get(package)
    return module is not None and isinstance(value, getattr(module, name))
