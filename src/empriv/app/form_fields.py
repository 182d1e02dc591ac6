"""Fields of forms: numbers that are typed, and errors beside the field that they name."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from empriv.errors import EmprivError, InputError


def by_field(error: EmprivError, *fields: str) -> dict[str, str]:
    """An error's sentence beside the field that it names, if it names one of these; else for the whole page."""
    sentence = str(error)
    for name in re.findall(r"`(?:--)?(\w+)`", sentence):
        if name in fields:
            return {name: sentence}
    return {"": sentence}


def by_label(error: EmprivError, labels: Mapping[str, str]) -> dict[str, str]:
    """`by_field`, with the labels that people read in the place of names."""
    return {field: in_words(sentence, labels) for field, sentence in by_field(error, *labels).items()}


def in_words(sentence: object, labels: Mapping[str, str]) -> str:
    """A sentence with labels in the place of names of fields."""
    return re.sub(r"`(\w+)`", lambda name: labels.get(name[1], name[0]), str(sentence))


def number(field: str, text: str, *, most: float = math.inf) -> float:
    """A number from 0 to ``most``."""
    value = _read(text)
    if not 0 <= value <= most or math.isinf(value):
        raise InputError(
            f"`{field}` must be a number {'of at least 0' if math.isinf(most) else f'from 0 to {most:g}'}."
        )
    return value + 0.0


def positive(field: str, text: str, *, below: float = math.inf) -> float:
    """A number above 0, and below another."""
    value = _read(text)
    if not 0 < value < below:
        rule = "above 0" if math.isinf(below) else f"between 0 and {below:g}, such as {below / 2:g}"
        raise InputError(f"`{field}` must be a number {rule}.")
    return value


def whole_number(field: str, text: str, least: int, most: int) -> int:
    """A whole number within limits."""
    digits = text.strip()
    value = int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 12 else least - 1
    if not least <= value <= most:
        raise InputError(f"`{field}` must be a whole number from {least} to {most:,}.")
    return value


def _read(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
