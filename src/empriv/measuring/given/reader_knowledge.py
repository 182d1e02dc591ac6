"""What readers know, as values: `Given`, `Buckets` and `OwnContribution`, and the words that stand for them.

One setting says what is known, in Python, on the command line, in files and in the app:

    known="auto"                                    what everybody knows, as far as it takes (the default of an audit)
    known="nothing"                                 nothing, as in the paper
    known=("calendar", "previous:2", "count(*)")    these: the calendar, the last two answers, a statistic of each day
    known="buckets:count(*)"                        in which of a few buckets a statistic lies, as in the paper
    known="own"                                     one's own contribution, for each of the largest contributors
    known="unordered"                               the databases have no order, although labels are dates or numbers
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from empriv.errors import InputError

AUTO, NOTHING, UNORDERED, OWN, BUCKETS = "auto", "nothing", "unordered", "own", "buckets:"
VALUES_GIVEN = "values given"  # in place of a name
_PREVIOUS = re.compile(r"previous(?::(.*))?", re.DOTALL)
_MOST_PREVIOUS = 1_000


@dataclass(frozen=True, eq=False, init=False)
class Given:
    """Readers who know part of what the results are made of: only the residuals protect people from them.

    What is known is fitted to the results of all databases by regression and taken out of both sides of every pair.
    The residuals are then measured as any results are, with bounds, checks, verdict and noise. Whether the spread
    depends on what is known is decided by the fit.

    Parameters
    ----------
    quantities : the words ``"calendar"`` (trend, weekday, month or season, as far as the databases carry them),
        ``"previous"`` (the previous answer; ``"previous:2"`` the last two) and ``"auto"`` (the logarithm, the calendar,
        previous answers and the spread, as far as it takes until residuals look independent and identically
        distributed); and quantities of each database: SQL, a function of the rows, an array, labels, a mapping from
        database to value, or a frame with the databases for index. Numbers enter as they are, text as categories.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> customers = rng.normal(100.0, 10.0, 90)
    >>> q = 5.0 * customers + rng.normal(0.0, 10.0, 90)
    >>> results = empriv.Results.from_arrays(q, (q - 3.0)[None])
    >>> risk = empriv.measure(results, known=empriv.Given(customers))
    >>> print(f"{risk.unconditional.delta(0.1):.3f}; knowing the customers {risk.delta(0.1):.3f}")
    0.004; knowing the customers 0.086
    """

    quantities: tuple[Any, ...] = field(repr=False)
    calendar: bool
    previous: int
    auto: bool

    def __init__(self, *quantities: Any) -> None:
        if not quantities:
            raise InputError('`Given` must say what is known, got nothing. Hint: Given("calendar", "count(*)").')
        rest, lags = [], [0]
        for quantity in quantities:
            lag = _previous(quantity)
            if lag:
                lags.append(lag)
            elif not (isinstance(quantity, str) and quantity in ("calendar", AUTO)):
                rest.append(quantity)
        words = [quantity for quantity in quantities if isinstance(quantity, str)]
        self._put(rest, calendar="calendar" in words, previous=max(lags), auto=AUTO in words)

    def _put(self, quantities: Sequence[Any], *, calendar: bool, previous: int, auto: bool) -> None:
        for name, value in (("quantities", tuple(quantities)), ("calendar", calendar), ("previous", previous)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "auto", auto)

    @property
    def words(self) -> tuple[str, ...]:
        """The words among what is known, as a setting has them."""
        previous = {0: (), 1: ("previous",)}.get(self.previous, (f"previous:{self.previous}",))
        return (*(("calendar",) if self.calendar else ()), *previous, *((AUTO,) if self.auto else ()))

    @property
    def only_auto(self) -> bool:
        """Whether nobody said more than "auto"."""
        return self.words == (AUTO,) and not self.quantities

    @staticmethod
    def of_words(words: Sequence[str], names: Sequence[str]) -> Given:
        """What is known by words, and by quantities of these names, whatever the names are."""
        given = Given(*words) if words else object.__new__(Given)
        given._put(names, calendar="calendar" in words, previous=given.previous if words else 0, auto=AUTO in words)
        return given


@dataclass(frozen=True, eq=False)
class Buckets:
    """Readers who know in which of a few buckets a quantity of each database lies, as in the paper's Definition 4.

    Every bucket is measured alone; delta is the largest of them.

    Parameters
    ----------
    g : SQL, a function of the rows, or an array; labels (text, booleans, whole numbers) make a bucket each
    count : number of quantile buckets; default floor(n / 50), at least 1 and at most 5

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> known = empriv.Buckets("count(*)", count=3)
    >>> print(f'{empriv.audit(data, "avg(delay)", known=known).delta(0.1):.3f}')
    0.006
    """

    g: Any = field(repr=False)
    count: int | None = None

    def __post_init__(self) -> None:
        if self.count is not None and (isinstance(self.count, bool) or self.count < 1):
            raise InputError(f"`count` must be at least 1, got {self.count}.")


@dataclass(frozen=True, eq=False)
class OwnContribution:
    """Readers who know their own contribution, each of the largest contributors in turn, as in the paper.

    The results given that contribution are measured for everybody else; delta is the largest over the contributors.

    Parameters
    ----------
    contributions : (individuals, n), NaN where an individual is in no row of the database
        What each knows. By default the change that their rows make to the result, q - q_i: their own contribution
        where the query adds up over individuals (sums, counts). For an average that difference also holds the
        others' average, which nobody knows: give the contributions.
    top : how many contributors are asked, those whose contributions vary most

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> contributions = rng.exponential(2.0, (4, 60))
    >>> q = rng.normal(100.0, 10.0, 60) + contributions.sum(axis=0)
    >>> results = empriv.Results.from_arrays(q, q - contributions)
    >>> risk = empriv.measure(results, known=empriv.OwnContribution())
    >>> print(f"{risk.delta(0.1):.2f}")
    0.05
    """

    contributions: Any = field(default=None, repr=False)
    top: int = 5

    def __post_init__(self) -> None:
        if isinstance(self.top, bool) or not isinstance(self.top, int) or self.top < 1:
            raise InputError(f"`top` must be a whole number of at least 1, got {self.top!r}.")


Known = Given | Buckets | OwnContribution


@dataclass(frozen=True, eq=False)
class Said:
    """What a setting says: what is known, None for nothing; and whether the databases have an order."""

    known: Known | None
    ordered: bool = True


def parse_known(known: Any) -> Said:
    """What the setting ``known`` says: a word, a statistic, an array, a list of these, or one of the classes above."""
    if isinstance(known, Given | Buckets | OwnContribution):
        return Said(known)
    if known is None or (isinstance(known, Sequence) and len(known) == 0):
        raise InputError('`known` must say what is known, got nothing. Hint: known="nothing" counts nothing as known.')
    listed = list(known) if isinstance(known, list | tuple) and not _numbers(known) else [known]
    ordered = not any(isinstance(one, str) and one == UNORDERED for one in listed)
    listed = [one for one in listed if not (isinstance(one, str) and one == UNORDERED)] or [AUTO]
    buckets = [one.removeprefix(BUCKETS) for one in listed if isinstance(one, str) and one.startswith(BUCKETS)]
    alone = [one for one in listed if isinstance(one, str) and one in (NOTHING, OWN)]
    if (alone or buckets) and len(listed) > 1:
        name = alone[0] if alone else BUCKETS.removesuffix(":")
        raise InputError(f"`known` must be {name} alone, got more beside it.")
    if alone:
        return Said(None if alone == [NOTHING] else OwnContribution(), ordered)
    if buckets:
        if not buckets[0].strip():
            raise InputError('`known` must name a statistic after "buckets:", got none. Hint: "buckets:count(*)".')
        return Said(Buckets(buckets[0]), ordered)
    return Said(Given(*listed), ordered)


def kind_of(known: Known) -> str:
    """Its kind, as files and sentences know it."""
    match known:
        case Given():
            return "given"
        case Buckets():
            return "buckets"
        case OwnContribution():
            return "own contribution"


def quantity_name(quantity: Any) -> str:
    """SQL text, or the name of a function; empty for values."""
    return quantity if isinstance(quantity, str) else str(getattr(quantity, "__qualname__", ""))


def _previous(quantity: Any) -> int:
    """How many previous answers a word says are known; 0 if it is another word."""
    found = _PREVIOUS.fullmatch(quantity) if isinstance(quantity, str) else None
    if found is None:
        return 0
    count = found[1]
    if count is None:
        return 1
    if not (count.isascii() and count.isdigit() and 1 <= int(count[:9]) <= _MOST_PREVIOUS and len(count) < 9):
        raise InputError(
            f"`known` must name a whole number of answers from 1 to {_MOST_PREVIOUS:,} after `previous:`, got "
            f"{count[:20]!r}. Hint: previous:2."
        )
    return int(count)


def _numbers(listed: Sequence[Any]) -> bool:
    """Whether a list is one quantity, a number for each database."""
    return all(isinstance(one, int | float | np.number) for one in listed)
