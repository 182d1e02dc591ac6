"""`Nouns`: what sentences call the individuals and the databases of an audit, in the user's own words.

"aircraft" and "day" where rows are of aircraft and databases are days; else "person" and "database".
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

_LONGEST = 24
_ENDINGS = ("_id", "_key", "_code", "_number", "_no", "_uuid", "_hash", "_name", "id")  # of a column that identifies
_NOT_A_NOUN = re.compile(r"([ _]?(id|key|code|number|num|no|nr|uuid|hash|name))+")  # idNum, id_code
_EMPTY = ("id", "key", "code", "uuid", "uid", "user", "individual", "person", "index", "name", "hash", "pid", "who")
_TIMES = ("hour", "day", "week", "month", "quarter", "year")
_MIDNIGHT = re.compile(r"[T ]00:00:00(\.0+)?([+-]\d\d(:?\d\d)?|Z)?$")
_GAPS = {"day": (1, 1), "week": (7, 7), "month": (28, 31), "quarter": (90, 92), "year": (365, 366)}  # days between


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
