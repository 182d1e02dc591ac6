"""Fields of forms: as they are typed, as the settings of the same name, and with errors beside them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from starlette.datastructures import FormData

from empriv.cli.config import Settings
from empriv.errors import EmprivError, InputError


def typed_in(form: FormData, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a form holds of some fields, whether it can be used or not; those that begin with several may have several.

    Text is taken to the letter: the name of a column may begin with a space.
    """
    return {
        name: tuple(dict.fromkeys(map(str, form.getlist(name)))) if first == () else str(form.get(name) or "")
        for name, first in fields.items()
    }


def typed_from(settings: Settings, fields: Mapping[str, Any]) -> dict[str, Any]:
    """What a form holds at first: its own beginning, and settings of the same name."""
    given = {name: getattr(settings, name) for name in fields if name in _READ}
    texts = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in given.items() if value}
    return {**fields, **texts}


def settings_in(typed: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """Settings of the same name as these fields; an error names the field that is wrong."""
    return {name: _READ[name](name, typed[name]) for name in names}


def by_label(error: EmprivError, labels: Mapping[str, str]) -> dict[str, str]:
    """An error's sentence beside the field that it names, with the label that people read; else for the whole page."""
    sentence = str(error)
    named = [name for name in re.findall(r"`(?:--)?(\w+)`", sentence) if name in labels]
    shown = re.sub(r"`(\w+)`", lambda name: labels.get(name[1]) or name[0], sentence)
    return {named[0] if named else "": shown}


def number(field: str, text: str, *, most: float = math.inf) -> float:
    """A number from 0 to ``most``."""
    value = _float(text)
    if not 0 <= value <= most or math.isinf(value):
        raise InputError(
            f"`{field}` must be a number {'of at least 0' if math.isinf(most) else f'from 0 to {most:g}'}."
        )
    return value + 0.0


def positive(field: str, text: str, *, below: float = math.inf) -> float:
    """A number above 0, and below another."""
    value = _float(text)
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


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _one_of(field: str, text: str, *, among: tuple[str, ...]) -> str:
    if text not in among:
        raise InputError(f"`{field}` must be one of {', '.join(among[:-1])} and {among[-1]}.")
    return text


def _text(field: str, text: str) -> str:
    del field
    return text.strip()


def _text_or_none(field: str, text: str) -> str | None:
    return _text(field, text) or None


def _publications(field: str, text: str) -> int | None:
    times = whole_number(field, text, 1, 1_000_000)
    return None if times == 1 else times


_READ: Mapping[str, Callable[[str, str], Any]] = {
    "unidentified": partial(_one_of, among=("error", "keep", "drop")), "timezone": _text_or_none, "unit": _text,
    "subsamples": partial(whole_number, least=2, most=1_000_000), "fraction": partial(positive, below=1),
    "times": _publications, "presence": partial(_one_of, among=("both", "random")), "ledger": _text_or_none,
    "scope": _text,
}  # fmt: skip
"""Fields that are a setting of the same name, and how it is read."""
