"""The checks of arguments, each once: a function returns the checked value, or raises an `InputError` that names it."""

from __future__ import annotations

import math
from collections.abc import Collection
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError

FloatArray = npt.NDArray[np.float64]
_LONGEST_UNIT = 24


def rising_epsilons(epsilon: Any) -> tuple[float, ...]:
    """The epsilons to report: finite, rising and without doubles."""
    return _rising("epsilon", epsilon, most=math.inf)


def rising_deltas(delta: Any) -> tuple[float, ...]:
    """The deltas to report: from 0 to 1, rising and without doubles."""
    return _rising("deltas", delta, most=1.0)


def epsilon_grid(epsilon: npt.ArrayLike) -> FloatArray:
    """The epsilons at which a curve is asked for: a number or an array, in the order given; infinity is allowed."""
    try:
        grid = np.asarray(epsilon, float)
    except (TypeError, ValueError):
        raise InputError("`epsilon` must be a number or an array of numbers.") from None
    if grid.ndim > 1 or grid.size == 0:
        raise InputError(f"`epsilon` must be a number or a non-empty array of one dimension, got shape {grid.shape}.")
    if np.isnan(grid).any() or (grid < 0).any():
        raise InputError("`epsilon` must be at least 0, got a negative number or NaN.")
    return grid


def one_epsilon(epsilon: Any, *, name: str = "epsilon") -> float:
    """One epsilon, which may be infinite."""
    try:
        number = float(epsilon)
    except (TypeError, ValueError):
        raise InputError(f"`{name}` must be a number, got {type(epsilon).__name__}.") from None
    if not number >= 0:
        raise InputError(f"`{name}` must be at least 0, got {number:g}.")
    return number


def finite_epsilon(epsilon: Any) -> float:
    """One epsilon of a promise, which must be finite."""
    number = one_epsilon(epsilon)
    if math.isinf(number):
        raise InputError(f"`epsilon` must be finite and at least 0, got {number:g}.")
    return number


def probability(name: str, value: Any) -> float:
    """A number from 0 to 1, both allowed: delta, total risk."""
    number = _real(name, value)
    if not 0.0 <= number <= 1.0:
        raise InputError(f"`{name}` must lie in [0, 1], got {value}.")
    return number


def fraction(name: str, value: Any) -> float:
    """A number between 0 and 1, neither allowed."""
    number = _real(name, value)
    if not 0.0 < number < 1.0:
        raise InputError(f"`{name}` must be between 0 and 1, got {value!r}.")
    return number


def confidence_level(level: Any) -> float:
    """The confidence with which bounds hold."""
    number = _real("level", level)
    if not 0.5 < number < 1.0:
        raise InputError(f"`level` must lie between 0.5 and 1, got {level}.")
    return number


def finite_number(name: str, value: Any) -> float:
    """A number that is neither infinite nor NaN."""
    if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
        raise InputError(f"`{name}` must be a finite number, got {value!r}.")
    return float(value)


def positive_number(name: str, value: Any) -> float:
    """A finite number above 0."""
    number = finite_number(name, value)
    if number <= 0:
        raise InputError(f"`{name}` must be above 0, got {number:g}.")
    return number


def whole_number(name: str, value: Any, *, least: int) -> int:
    """A whole number of ``least`` or more: a count, a seed."""
    if not _is_whole(value) or value < least:
        raise InputError(f"`{name}` must be a whole number of {least} or more, got {value!r}.")
    return int(value)


def draws_or_none(draws: Any) -> int | None:
    """How often a randomised query is drawn; None for a query without chance."""
    if draws is not None and (not _is_whole(draws) or draws < 1):
        raise InputError(f"`draws` must be a whole number of 1 or more, or None, got {draws!r}.")
    return None if draws is None else int(draws)


def jobs_or_none(jobs: Any) -> int | None:
    """How many processes work, negative ones counted from all processors as joblib does; None lets empriv decide."""
    if jobs is not None and (not _is_whole(jobs) or jobs == 0):
        raise InputError(f"`jobs` must be a whole number other than 0, or None, got {jobs!r}.")
    return None if jobs is None else int(jobs)


def progress_or_none(progress: Any) -> bool | None:
    """Whether progress is shown; None decides by how long the work lasts."""
    if progress is not None and not isinstance(progress, bool):
        raise InputError(f"`progress` must be True, False or None, got {progress!r}.")
    return progress


def unit_name(unit: Any) -> str:
    """A unit that answers are said in, such as "min"; empty for none."""
    return _short_name("unit", unit, "min")


def noun_name(noun: Any) -> str:
    """What an individual is called, such as "aircraft"; empty to take it from the column."""
    return _short_name("noun", noun, "aircraft")


def _short_name(name: str, value: Any, example: str) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST_UNIT or not (value.isprintable() and value == value.strip()):
        raise InputError(
            f"`{name}` must be a short name such as {example!r}, of at most {_LONGEST_UNIT} characters that can be "
            f"printed, got {value!r:.60}."
        )
    return value


def one_of(name: str, value: Any, allowed: Collection[str]) -> str:
    """One of several words."""
    if not isinstance(value, str) or value not in allowed:
        raise InputError(f"`{name}` must be one of {', '.join(allowed)}, got {value!r}.")
    return value


def _rising(name: str, values: Any, *, most: float) -> tuple[float, ...]:
    if isinstance(values, str | bytes):
        raise InputError(f"`{name}` must be a number, or several, got {type(values).__name__}.")
    try:
        numbers = [float(number) for number in (values if np.ndim(values) else [values])]
    except (TypeError, ValueError):
        raise InputError(f"`{name}` must be a number, or several.") from None
    if not numbers:
        raise InputError(f"`{name}` must hold at least one number, got none.")
    for number in numbers:
        if not (math.isfinite(number) and 0 <= number <= most):
            rule = "finite and at least 0" if math.isinf(most) else f"between 0 and {most:g}"
            raise InputError(f"`{name}` must be {rule}, got {number:g}.")
    return tuple(sorted(set(numbers)))


def _real(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise InputError(f"`{name}` must be a number, got {type(value).__name__}.") from None


def _is_whole(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)
