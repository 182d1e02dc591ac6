"""How numbers, counts, nouns, outcomes and cells are written, and what several folders say of them."""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from empriv.base.text import shortened

if TYPE_CHECKING:  # numerics are loaded after the help is shown
    from empriv.results import Cell

ALL = "all"  # of the values of a column, in a margin
OUTCOMES = {
    "null": "is empty (null)",
    "nan": "is nan",
    "plus_infinity": "is plus infinity",
    "minus_infinity": "is minus infinity",
    "error": "is error",
    "common": "is the value that most databases have",
    "only_other": "is the only other value",
    "unseen": "is a number never seen with everyone",
    "off_lattice": "is off the lattice that all results with everyone lie on",
    "constant_without": "is constant, or mostly so, without the individual",
    "round_without": "is not round, as all results without the individual are",
}
_CODES = {f"result {words}": code for code, words in OUTCOMES.items()}
_OF_ONE = {"are": "is", "give": "gives"}
_BEFORE, _CLOSE = ("$", "€", "£", "¥"), ("%", "‰", "°")  # units that stand before a number, or close after it
_LONGEST = 24
_ENDINGS = ("_id", "_key", "_code", "_number", "_no", "_uuid", "_hash", "_name", "id")  # of a column that identifies
_NOT_A_NOUN = re.compile(r"([ _]?(id|key|code|number|num|no|nr|uuid|hash|name))+")  # idNum, id_code
_EMPTY = ("id", "key", "code", "uuid", "uid", "user", "individual", "person", "index", "name", "hash", "pid", "who")
_TIMES = ("hour", "day", "week", "month", "quarter", "year")
_MIDNIGHT = re.compile(r"[T ]00:00:00(\.0+)?([+-]\d\d(:?\d\d)?|Z)?$")
_GAPS = {"day": (1, 1), "week": (7, 7), "month": (28, 31), "quarter": (90, 92), "year": (365, 366)}  # days between


def number(value: float, digits: int = 2) -> str:
    """A few significant digits, without an exponent where that is readable."""
    if value == 0:
        return "0"  # never -0
    if 1e-6 <= abs(value) < 1e6:
        if 1 - 0.5 * 10.0**-digits <= value < 1:
            return f">0.{'9' * digits}"  # 1 is for certainty alone
        if abs(value) >= 100:
            return f"{value:,.0f}"
        short = f"{Decimal(f'{value:.{digits}g}'):f}"  # no digits but those, where a double would show its own
        return short.rstrip("0").rstrip(".") if "." in short else short
    return f"{value:.{digits - 1}e}"


def quantity(value: float) -> str:
    """A number of the user's own, such as an influence: five digits, and all before the point where there are more."""
    return f"{value:,.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:,.5g}"


def amount(value: float, unit: str = "") -> str:
    """A number of the user's own for a sentence: three digits, or all before the point, with its unit."""
    if not math.isfinite(value):
        return "unknown"
    value, size = value + 0.0, abs(value)  # -0 is 0
    text = f"{value:,.0f}" if 1000 <= size < 1e15 else f"{value:.3g}"
    if unit in _BEFORE:
        return f"-{unit}{text[1:]}" if text.startswith("-") else f"{unit}{text}"
    return text if not unit else f"{text}{unit}" if unit in _CLOSE else f"{text} {unit}"


def tells_little(error: float, typical: float) -> bool:
    """Whether an error leaves little of an answer: it is more than half of a typical one."""
    return error > 0.5 * typical


def leaves_little() -> str:
    return "Its error is more than half of a typical answer: what is published tells little."


def percent(share: float) -> str:
    """A share as a percentage of two significant digits; 0% and 100% only for exactly 0 and 1."""
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    if 0.99 < share < 1:
        return "more than 99%"
    return f"{number(100 * share)}%"


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence: "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def people(count: int) -> str:
    return "1 individual" if count == 1 else f"{count:,} individuals"


def databases(n: int) -> str:
    return "1 database" if n == 1 else f"{n:,} databases"


def so_many(n: int, verb: str) -> str:
    """Databases as the subject of "are" or "give"."""
    return f"{databases(n)} {_OF_ONE[verb] if n == 1 else verb}"


def floor(n: int, least: float, *, below: bool = False) -> str:
    """``below`` says whether some of the estimates shown are smaller."""
    return (
        f"{databases(n)} cannot support any delta below {number(least)}: "
        "behaviour rarer than that may never have been seen."
        + (" Smaller estimates, as here, rest on the density that was fitted." if below else "")
    )


def too_few_for_a_bound(n: int, least: int) -> str:
    return f"{so_many(n, 'give')} no upper bound: at least {least} are needed."


def few_databases(n: int) -> str:
    return f"{so_many(n, 'are')} few: from 30 to 99 the upper bound is weak, and rare behaviour goes unseen."


def how_often(epsilon: float, delta: float, level: float, by_bound: int, by_estimate: int) -> str:
    target = f"delta {number(delta)} at epsilon {epsilon:g}"
    if by_bound == 0:
        sure = f"not even one publication is within {target} at {percent(level)} confidence"
    else:
        sure = f"{_count(by_bound)} within {target} at {percent(level)} confidence"
    if by_estimate == by_bound:
        return f"{sure[0].upper()}{sure[1:]}."
    guess = "none is" if by_estimate == 0 else _count(by_estimate)
    return f"{sure[0].upper()}{sure[1:]}; by the estimate {guess}."


def _count(publications: int) -> str:
    if publications == 1:
        return "one publication is"
    more = " or more" if publications >= 1_000_000 else ""
    return f"{publications:,} publications{more} are"


def what_samples_hide() -> str:
    return (
        "The only chance is who was sampled. That stays hidden if the answer of one sample is published and nobody "
        "learns who was in it. The answer of the whole table has no chance in it and is not covered; what holds for "
        "the whole table is not hidden; and the answer of another sample is a further publication."
    )


def outcome_name(code: str) -> str:
    """The outcome in words."""
    return f"result {OUTCOMES[code]}" if code in OUTCOMES else code


def outcome_code(name: str) -> str:
    """The inverse of `outcome_name`, for files, which hold names."""
    return _CODES.get(name, name)


def cells_in_words(cells: Sequence[Cell]) -> list[str]:
    """Cells as people say them: ``ward A, age 60+``, with the number that stands there if there are several."""
    several = len({cell.number for cell in cells}) > 1
    keys = [", ".join(f"{column} {value}".strip() for column, value in cell.keys) or ALL for cell in cells]
    return [shortened(f"{c.number}: {k}" if several else k, 80) for c, k in zip(cells, keys, strict=True)]


def riskiest_cells(cells: Sequence[tuple[str, float, int]]) -> str:
    """The cells that expose a person most: name, delta, and how many individuals they expose."""
    listed = "; ".join(f"{name}: {number(delta)}, {people(count)}" for name, delta, count in cells)
    return f"The riskiest cells, given all others (the largest delta_i, and how many they expose): {listed}."


def cells_that_follow(follow: int, count: int) -> str:
    """That margins tell nothing more, and what hiding a cell beside them does."""
    number_of = "One" if follow == 1 else f"{follow:,}"
    follows, adds = ("follows", "it adds") if follow == 1 else ("follow", "they add")
    return (
        f"{number_of} of the {count:,} numbers {follows} from the others, as a total does from its cells: {adds} "
        "nothing to anybody's delta. But hiding one cell beside its total changes nothing either: it is the total "
        "minus the other cells."
    )


def many_outcomes(outcomes: Sequence[tuple[str, float, int]]) -> str:
    """Point masses, too many to list: name, share, and how many individuals can move it."""
    name, mass, _ = outcomes[0]
    most = max(count for _, _, count in outcomes)
    return (
        f"{len(outcomes):,} outcomes are point masses, compared by counts; the most frequent is {name} "
        f"({percent(mass)}). Up to {people(most)} can move such a share."
    )


def more_leaks(leaks: Sequence[tuple[int, float]]) -> str:
    """Exact leaks beyond those that are listed: how many individuals each gives away, and in which share at most."""
    which = "1 more" if len(leaks) == 1 else f"{len(leaks):,} more, each"
    most, share = max(count for count, _ in leaks), max(share for _, share in leaks)
    return f"EXACT LEAK: {which} of up to {people(most)}, in up to {percent(share)} of databases."


@dataclass(frozen=True)
class Nouns:
    """Singular nouns; an empty one stands for "person", "database".

    Attributes
    ----------
    individual : such as "aircraft"
    database : such as "day"
    """

    individual: str = ""
    database: str = ""

    @property
    def anyone_who(self) -> str:
        """Subject of a clause: "anyone who", "any aircraft that"."""
        return f"any {self.individual} that" if self.individual else "anyone who"

    @property
    def somebody(self) -> str:
        return f"one {self.individual or 'person'}"

    @property
    def nobody(self) -> str:
        return f"no {self.individual}" if self.individual else "nobody"

    @property
    def one(self) -> str:
        """With its article: "a person", "an aircraft"."""
        noun = self.individual or "person"
        return f"an {noun}" if noun[0].lower() in "aeiou" else f"a {noun}"

    @property
    def each(self) -> str:
        return f"each {self.individual or 'person'}"

    def days(self, count: int = 2) -> str:
        """What one individual did on one database: "aircraft-day", or "aircraft-days" of several."""
        if self.database:
            return f"{self.individual or 'person'}-{self.database}{'' if count == 1 else 's'}"
        several = f"{self.individual}s" if self.individual else "people"
        return f"{self.individual or 'person' if count == 1 else several} in a database"

    def databases(self, count: int) -> str:
        """So many of them: "1 day", "365 days"."""
        noun = self.database or "database"
        return f"1 {noun}" if count == 1 else f"{count:,} {noun}s"

    def people(self, count: int) -> str:
        """So many individuals; the user's noun has no plural that can be known, so that it stands in the singular."""
        if self.individual:
            return f"{count:,} × {self.individual}" if count != 1 else f"1 {self.individual}"
        return "1 person" if count == 1 else f"{count:,} people"


def individual_noun(columns: Sequence[str]) -> str:
    """A noun from the column that identifies an individual: "customer" of ``customer_id``; nothing if it tells none."""
    if len(columns) != 1:
        return ""
    noun = columns[0].strip('"').lower().replace(" ", "_")
    for ending in _ENDINGS:
        if noun.endswith(ending) and len(noun) > len(ending) + 2:
            noun = noun.removesuffix(ending)
            break
    noun = noun.replace("_", " ").strip()
    plain = re.fullmatch(r"[a-z][a-z ]+", noun) is not None and len(noun) <= _LONGEST
    return noun if plain and noun not in _EMPTY and not _NOT_A_NOUN.fullmatch(noun) else ""


def database_noun(column: str | None, labels: Sequence[Any]) -> str:
    """A noun for databases: by the time between labels that are dates, or by the column; nothing if neither tells."""
    days = days_of([str(label) for label in labels])
    if days is not None and len(days) > 1:
        ordered = sorted(days)
        gap = min((later - earlier).days for earlier, later in pairwise(ordered))
        return next((noun for noun, (least, most) in _GAPS.items() if least <= gap <= most), "")
    return column.lower() if column is not None and column.lower() in _TIMES else ""


def days_of(labels: Sequence[str]) -> list[datetime.date] | None:
    """Labels as days; None if one of them is no day."""
    days = []
    for label in labels:
        text = _MIDNIGHT.sub("", label)
        try:
            days.append(datetime.date.fromisoformat(text))
        except ValueError:
            return None
    return days
