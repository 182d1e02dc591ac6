"""The window that a policy is for: so many days of databases, or so many releases, in a row."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime

from empriv.errors import InputError

_WINDOW = re.compile(r"([1-9]\d{0,5})( ?d| ?days?)?", re.IGNORECASE | re.ASCII)
_DAY = re.compile(r"(\d{4}-\d\d-\d\d)( .*)?", re.ASCII)


@dataclass(frozen=True)
class PolicyWindow:
    """So many days of databases in a row, or so many releases in a row."""

    length: int
    days: bool

    @property
    def words(self) -> str:
        if self.length == 1:
            return "1 day" if self.days else "1 release"
        return f"{self.length:,} {'days' if self.days else 'releases'}"


def window_of(text: str | int) -> PolicyWindow:
    """Understand ``"365d"``, a number of days, or ``52``, a number of releases."""
    parts = _WINDOW.fullmatch(str(text).strip()) if isinstance(text, str | int) and text is not True else None
    if parts is None:
        raise InputError(f'`window` must be a number of days, as "365d", or of releases, as 52, got {text!r}.')
    return PolicyWindow(int(parts[1]), parts[2] is not None)


def today() -> int:
    """The day that it is in UTC, counted from the year 1."""
    return datetime.now(UTC).date().toordinal()


def day_of(label: str) -> int | None:
    """The day of a label as `label_text` writes it, counted from the year 1; None if it is no date."""
    parts = _DAY.fullmatch(label)
    try:
        return None if parts is None else date.fromisoformat(parts[1]).toordinal()
    except ValueError:
        return None
