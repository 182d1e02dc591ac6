"""What everybody reads off a calendar: labels of databases that are dates, years or ordered numbers, as known columns.

`times_of` says when each database was, `calendar_terms` what a calendar tells about it: a trend, the day of the week,
the month or the season, as many of them as the databases carry.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.given.regression import Term, bent, category_term, number_term
from empriv.results import FloatArray, IntArray, Results

LEAST_WEEKDAYS = 35  # databases from which the day of the week is fitted: five for each
CALENDAR_TERMS = ("trend", "weekday", "month", "season")
_WEEK = 7.0  # days; databases that are all further apart are months or so, whose labels fall on a weekday by chance
LEAST_BENT = 60  # databases from which a trend may bend: 15 for each parameter
LEAST_SEASON = 90  # databases from which months or the season are
_EACH = 15  # databases for each parameter of months; with fewer, two waves of the year; with fewer still, one
_YEAR = 365.2425
_WEEKDAYS = np.array(["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"])  # since 1970
_MONTHS = np.array(
    [
        *("January", "February", "March", "April", "May", "June"),
        *("July", "August", "September", "October", "November", "December"),
    ]
)
_DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[T ].*)?")
_DIGITS = re.compile(r"(\D*)(\d.*\d)(\D*)", re.DOTALL)
_MONTH = re.compile(r"(\d{4})-(\d{1,2})")


@dataclass(frozen=True, eq=False)
class Times:
    """When each database was.

    Attributes
    ----------
    place : (n,) numbers that rise with time: days for dates, months for months, else the numbers themselves
    unit : "days", "months" or "numbers"
    """

    place: FloatArray
    unit: str

    @property
    def order(self) -> IntArray:
        """Positions of the databases, earliest first."""
        return np.argsort(self.place, kind="stable")


def times_of(labels: npt.NDArray[Any]) -> Times | None:
    """When the databases with these labels were, or None if the labels are neither dates nor numbers.

    Two databases with one time have no order either.
    """
    labels = np.asarray(labels)
    if labels.dtype.kind == "M":
        days = labels.astype("datetime64[s]").astype(np.int64) / 86_400
        return _ordered(days, "days") if not np.isnat(labels).any() else None
    if labels.dtype.kind in "iuf":
        return _ordered(labels.astype(float), "numbers")
    listed = labels.tolist()
    named = _without_names(listed)
    for read, texts, unit in ((_day, named, "days"), (_month, named, "months"), (_number, listed, "numbers")):
        values = [read(label) for label in texts]
        if all(value is not None for value in values):
            return _ordered(np.array(values, float), unit)
    return None


def order_of(results: Results) -> Times | None:
    """When the databases of results were; None if they have no order, or are said to have none."""
    return times_of(results.databases) if results.ordered else None


def required_times(results: Results, asked: str) -> Times:
    """The same, and an error where there is no order; ``asked`` is what needs it."""
    times = order_of(results)
    if times is None and not results.ordered:
        raise InputError(f"`known` must not be {asked} where the databases are said to have no order.")
    if times is None:
        raise InputError(
            f"`known` must not be {asked} where the databases have no order: their labels must be different dates "
            "(2024-03-31), months (2024-03), years or numbers, got others. Hint: give what is known as an array."
        )
    return times


def calendar_terms(times: Times, *, bends: bool = False) -> list[Term]:
    """What a calendar tells: a trend always, weekdays from 35 databases, months or waves of the year from 90.

    There are at most a quarter as many parameters in all as databases.
    ``bends`` : the trend with its square and cube
    """
    n = len(times.place)
    trend = number_term("trend", times.place)
    terms = [bent(trend) if bends else trend]
    if times.unit == "days":
        weekday = np.floor(times.place).astype(np.int64) % 7
        closest = float(np.diff(np.sort(times.place)).min(initial=np.inf))
        if n >= LEAST_WEEKDAYS and closest < _WEEK and len(np.unique(weekday)) > 1:
            terms.append(category_term("weekday", _WEEKDAYS[weekday], least=3))
    if times.unit in ("days", "months") and n >= LEAST_SEASON:
        terms += _season(times)
    kept: list[Term] = []
    for term in terms:
        if 1 + sum(part.size for part in kept) + term.size <= n // 4:
            kept.append(term)
    return [term for term in kept if term.size]


def _season(times: Times) -> list[Term]:
    n = len(times.place)
    if times.unit == "days":
        stamps = times.place.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
        phase, length = times.place / _YEAR, float(np.ptp(times.place)) / _YEAR
    else:
        stamps = times.place.astype(np.int64)
        phase, length = times.place / 12.0, float(np.ptp(times.place)) / 12.0
    months = category_term("month", _MONTHS[stamps % 12], least=5)
    if n >= _EACH * (months.size + 1):
        return [months]
    if length < 1.0:  # part of a year: a wave would be taken for the trend
        return []
    waves = 2 if n >= 8 * _EACH else 1
    angles = [2 * np.pi * wave * phase for wave in range(1, waves + 1)]
    columns = np.column_stack([side(angle) for angle in angles for side in (np.sin, np.cos)])
    return [Term("season", columns, None)]


def _without_names(labels: list[Any]) -> list[Any]:
    """Labels without what stands around the digits of all of them: files are called sales-2024-03-31.csv."""
    if not all(isinstance(label, str) for label in labels):
        return labels
    parts = [_DIGITS.fullmatch(label) for label in labels]
    around = {(part[1], part[3]) for part in parts if part is not None}
    return [part[2] for part in parts if part is not None] if None not in parts and len(around) == 1 else labels


def _ordered(place: FloatArray, unit: str) -> Times | None:
    return Times(place, unit) if np.isfinite(place).all() and len(np.unique(place)) == len(place) else None


def _day(label: Any) -> float | None:
    if isinstance(label, datetime):
        return label.toordinal() - 719_163 + (label.hour * 60 + label.minute) / 1440 + label.second / 86_400
    if isinstance(label, date):
        return float(label.toordinal() - 719_163)
    match = _DATE.fullmatch(label.strip()) if isinstance(label, str) else None
    if match is None:
        return None
    try:
        if len(str(label).strip()) > 10:
            return _day(datetime.fromisoformat(str(label).strip()))
        return float(date(*(int(part) for part in match.groups())).toordinal() - 719_163)
    except ValueError:
        return None


def _month(label: Any) -> float | None:
    match = _MONTH.fullmatch(label.strip()) if isinstance(label, str) else None
    if match is None or not 1 <= int(match[2]) <= 12:
        return None
    return 12.0 * (int(match[1]) - 1970) + int(match[2]) - 1


def _number(label: Any) -> float | None:
    if isinstance(label, bool):
        return None
    try:
        return float(label)
    except (TypeError, ValueError):
        return None
