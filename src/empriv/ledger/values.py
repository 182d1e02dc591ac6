"""What a ledger is asked, and what it remembers: small values, checked when they are made.

No file and no engine here: the file is `store`'s, the chain `chain`'s, what a policy allows is `limits`'s to say.
"""

from __future__ import annotations

import json
import math
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from empriv.errors import InputError

if TYPE_CHECKING:
    from empriv.base.row_sketches import RowSketch
    from empriv.collecting.origins import Origin
    from empriv.ledger.limits import Prices
    from empriv.results import Results


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


Answer = float | tuple[float, ...]

_NUMBER = re.compile(r"[+-]?\d{1,400}(\.\d{1,400})?(e[+-]?\d{1,2})?", re.IGNORECASE | re.ASCII)
_MOMENT = re.compile(
    r"(?P<day>\d{4}-\d\d-\d\d)([T ](?P<time>\d\d:\d\d(:\d\d)?)(\.(?P<part>\d+))?)?"
    r"\s*(Z|UTC|(?P<sign>[+-])(?P<hours>\d\d)(:?(?P<minutes>\d\d))?)?",
    re.IGNORECASE | re.ASCII,
)
_UNNAMED = frozenset(("a table in memory", "results"))


@dataclass(frozen=True)
class Identity:
    """Which databases a release concerns, without their rows.

    Attributes
    ----------
    labels : labels of the databases, as text, sorted and without doubles
    sources : names of what the rows were read from, sorted and without doubles
    cut : how the rows were cut into databases: a column, an expression, or how they were drawn
    individual : columns that identify the unit of protection
    scope : name of a body of data; databases of different scopes never overlap by name
    apart : whether each row is in one of the databases only, and in the values that it is stored with
    """

    labels: tuple[str, ...] = field(repr=False)
    sources: tuple[str, ...]
    cut: str
    individual: tuple[str, ...]
    scope: str = ""
    apart: bool = True

    def __post_init__(self) -> None:
        if not self.labels:
            raise InputError("`labels` must name at least one database, got none.")

    @property
    def named(self) -> bool:
        """Whether sources and cut say which rows a label stands for: in one cut of one source each row has one label.

        Tables in memory all have the same name, drawn databases share rows, and where each file is a database its
        label is a name that anybody can change.
        """
        drawn = self.cut.startswith("drawn: ")
        return bool(self.cut) and not drawn and bool(self.sources) and not _UNNAMED & set(self.sources)


def identity_of(labels: Iterable[Any], origin: Origin | None = None, *, scope: str = "") -> Identity:
    """Identity of the databases of an audit.

    Parameters
    ----------
    labels : labels of the databases, such as ``results.databases``
    origin : where the rows came from, such as ``audit.origin``; None if results were given
    scope : name of a body of data, if one ledger is kept for several that have nothing to do with each other
    """
    if isinstance(labels, str | bytes):
        raise InputError(f"`labels` must be labels of databases, got {type(labels).__name__}.")
    texts = tuple(sorted({label_text(label) for label in labels}))
    if origin is None:
        return Identity(texts, sources=("results",), cut="", individual=(), scope=scope)
    cut = origin.database if origin.drawn is None else f"drawn: {origin.drawn}"
    apart = origin.drawn is None and not origin.computed
    return Identity(texts, tuple(sorted(set(origin.sources))), cut or "", tuple(origin.individual), scope, apart)


def label_text(label: Any) -> str:
    """Text of a label, the same for a number or a moment however it is written: ``3``, ``"03"``, ``"3.0 "``.

    A moment with a time zone is the one in UTC, and midnight is the day.
    """
    text = unicodedata.normalize("NFC", str(label)).strip()
    if _NUMBER.fullmatch(text):
        return _plain_number(text)
    found = _MOMENT.fullmatch(text)
    return text if found is None else _plain_moment(found) or text


def _plain_number(text: str) -> str:
    number = Decimal(text)
    if not number:
        return "0"
    plain = f"{number:f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _plain_moment(found: re.Match[str]) -> str | None:
    """A moment in UTC, without a time that is midnight; None where there is no such day."""
    try:
        moment = datetime.fromisoformat(f"{found['day']} {found['time'] or '00:00'}")
        if found["sign"] is not None:
            ahead = timedelta(hours=int(found["hours"]), minutes=int(found["minutes"] or 0))
            moment += -ahead if found["sign"] == "+" else ahead
    except (ValueError, OverflowError):
        return None
    part = (found["part"] or "").rstrip("0")
    day, time = moment.isoformat(" ").split(" ")
    return day if time == "00:00:00" and not part else f"{day} {time}{'.' if part else ''}{part}"


@dataclass(frozen=True)
class Content:
    """What is released from, as the query sees it. A ledger keeps keyed digests of it, so that it knows it again.

    Attributes
    ----------
    answer : the true answer on the lattice that it is released on
    people : the answers without each individual, on that lattice; None for a database that was not audited
    results : digest of all results that were audited
    shape : what everybody changes the answer by, beside the one who changes it most: the same for a question that is
        shifted or scaled. In two roundings, of which one is alike where last digits differ; none where nobody does
    distinctive : whether people change the answer by so many different amounts that other rows would not do for it
    rows : the sketch of its rows, None if nobody made one
    """

    answer: str = field(repr=False)
    people: str | None = field(default=None, repr=False)
    results: str | None = field(default=None, repr=False)
    shape: tuple[str, ...] = field(default=(), repr=False)
    distinctive: bool = field(default=False, repr=False)
    rows: RowSketch | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Figures:
    """Privacy figures: delta and total_risk at an epsilon; None where nobody measured them."""

    epsilon: float
    delta: float | None = None
    total_risk: float | None = None

    def __post_init__(self) -> None:
        _check(self, "epsilon", most=math.inf)
        _check(self, "delta", most=1.0)
        _check(self, "total_risk", most=1.0)


@dataclass(frozen=True)
class Joint(Figures):
    """Figures of a release together with earlier ones, measured jointly.

    ``entries`` are the ids of the earlier entries that were measured with it: a joint audit that a later release has
    overtaken does not cover it.
    """

    entries: tuple[int, ...] = ()


@dataclass(frozen=True)
class Policy:
    """Limits on everything that is released from overlapping databases together.

    Attributes
    ----------
    epsilon : the joint figures must be measured at this epsilon or a smaller one
    delta, total_risk : and must be at most this there
    queries : how many different queries there may be; the same query, with the same noise, released from one database
        after the other is one
    window : ``"365d"`` or ``52``: delta and total_risk then hold for all releases from any 365 days of databases, or
        from any 52 releases in a row, composed; None looks at overlapping databases only

    Examples
    --------
    >>> ledger = empriv.Ledger("releases.ledger", policy=empriv.Policy(epsilon=0.1, delta=0.05, queries=3))
    >>> ledger.policy
    Policy(epsilon=0.1, delta=0.05, total_risk=None, queries=3, window=None)
    """

    epsilon: float | None = None
    delta: float | None = None
    total_risk: float | None = None
    queries: int | None = None
    window: str | int | None = None

    def __post_init__(self) -> None:
        _check(self, "epsilon", most=math.inf)
        _check(self, "delta", most=1.0)
        _check(self, "total_risk", most=1.0)
        count = self.queries
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise InputError(f"`queries` must be a whole number of at least 1, got {count!r}.")
        if (self.epsilon is None) != (self.delta is None and self.total_risk is None):
            raise InputError(
                "`epsilon` must be given with `delta` or `total_risk`, and they with `epsilon`: "
                "a limit on one alone says nothing."
            )
        if self.window is not None:
            length = window_of(self.window)
            if self.epsilon is None:
                raise InputError("`window` must go with `epsilon` and `delta` or `total_risk`, which it is for.")
            object.__setattr__(self, "window", f"{length.length}d" if length.days else length.length)

    def to_json(self) -> dict[str, Any]:
        return to_json(self)


@dataclass(frozen=True)
class Review:
    """What a checker said of a release before it was made: "approved" or "refused", who, in which role, why and when.

    Examples
    --------
    >>> from empriv.ledger import Review
    >>> said = Review("approved", "Ada Lovelace", "data protection officer", "weekly totals", "2026-11-18T09:00:00Z")
    """

    outcome: str
    checker: str
    role: str
    reason: str
    time: str

    def __post_init__(self) -> None:
        if self.outcome not in ("approved", "refused"):
            raise InputError(f"`outcome` must be approved or refused, got {self.outcome!r}.")
        for name, most in (("checker", 100), ("role", 100), ("reason", 2000)):
            text = getattr(self, name)
            if not isinstance(text, str) or not text.strip() or len(text) > most:
                raise InputError(f"`{name}` must be given, in at most {most:,} letters.")
        try:
            datetime.fromisoformat(self.time)
        except (TypeError, ValueError):
            raise InputError(f"`time` must be a date with a time, got {self.time!r}.") from None


@dataclass(frozen=True)
class Release:
    """A release that is asked for.

    Attributes
    ----------
    identity : the databases that the query was audited on, and the one that is released from
    database : label of the database whose answer is released
    query : text of the query, in the form in which the same query always comes
    method : how the noise was designed
    law : the law of the noise, a mapping fit for JSON
    asked : the figures that the noise was to reach
    achieved : the figures of this release alone, with its noise
    n_individuals : how many individuals were audited
    component : the component of a vector query, or None
    joint : figures together with all earlier releases from overlapping databases, if there are any
    results : results behind the query, for queries that cannot be run again from their text; they are kept in the
        ledger, which is then to be treated like the data
    content : what the database holds. Without it, a query is known again by its text, its noise and the label alone
    plan : name of the prices, the same for all releases that have the same
    prices : what the release tells of each person by name, for a policy with a window; None if the ledger has them by
        ``plan`` already, or to take everybody for the one who is told most
    dated : whether the date in the label is the data's own; otherwise a window of days goes by when it is released
    verified : what was done to verify the answer, in words, for the record
    review : what a checker said of it; what a checker refused is not released
    """

    identity: Identity
    database: Any = field(repr=False)
    query: str
    method: str
    law: Mapping[str, Any] = field(repr=False)
    asked: Figures
    achieved: Figures
    n_individuals: int
    component: str | None = None
    joint: Joint | None = None
    results: Results | None = field(default=None, repr=False)
    content: Content | None = field(default=None, repr=False)
    plan: str | None = field(default=None, repr=False)
    prices: Prices | None = field(default=None, repr=False)
    dated: bool = True
    verified: str | None = None
    review: Review | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.query, str) or not self.query.strip():
            raise InputError("`query` must be the text of a query, got none.")
        if label_text(self.database) not in self.identity.labels:
            raise InputError(
                "`database` must be one of the databases of `identity`, got another. "
                "Hint: identity_of([*results.databases, database], origin) for one that was not audited."
            )
        canonical(dict(self.law) if isinstance(self.law, Mapping) else object(), name="law")

    @property
    def audited(self) -> bool:
        """Whether its database was audited, or nobody said."""
        return self.content is None or self.content.people is not None

    @property
    def rows(self) -> RowSketch | None:
        """The sketch of its rows, if there is one."""
        return None if self.content is None else self.content.rows


@dataclass(frozen=True)
class Head:
    """Where a chain ends: the number of its entries and the hash of the last. Written ``COUNT:HASH``."""

    count: int
    hash: str

    def __str__(self) -> str:
        return f"{self.count}:{self.hash}"

    @staticmethod
    def parse(text: str) -> Head:
        """Understand what ``str`` gave."""
        found = re.fullmatch(r"([1-9]\d{0,17}):([0-9a-f]{64})", text.strip())
        if found is None:
            raise InputError("`head` must read COUNT:HASH, as `empriv ledger verify` prints it.")
        return Head(int(found[1]), found[2])


@dataclass(frozen=True)
class Entry:
    """One link of the chain. ``hash`` is SHA-256 of the previous hash, a newline and the entry's canonical JSON.

    Attributes
    ----------
    id : its place in the chain, from 1
    time : when it was written, in UTC
    kind : "created", "policy", "prices" or "release"
    previous, hash : hashes of the entry before and of this one
    """

    id: int
    time: str
    kind: str
    previous: str
    hash: str


@dataclass(frozen=True)
class PolicyEntry(Entry):
    """The policy from here on, set when the ledger was created or changed later."""

    policy: Policy


@dataclass(frozen=True)
class PriceEntry(Entry):
    """What releases of one plan tell of each person, kept with this entry under digests of their names.

    ``plan`` is a keyed digest of the plan's name, ``results`` the SHA-256 of what is kept.
    """

    plan: str
    results: str


@dataclass(frozen=True)
class ReleaseEntry(Entry):
    """A release. Which databases it was from is told by digests only, keyed with a key that stays in the ledger.

    Attributes
    ----------
    fingerprint : of the databases audited
    database : digest of the database released from
    query, component, method, law, asked, achieved, joint : as in `Release`
    n_databases : how many databases the release concerns
    n_individuals : how many individuals were audited
    answer : the noisy answer, or several
    results : SHA-256 of the results kept with it, or None
    question : keyed digest of the query in its one form, the component and the law
    content : keyed digest of what the ledger keeps apart: the true answer, those without each individual, `further`
    audited : keyed digest of the results that were audited
    prices : number of the entry that holds the prices of its plan, where the policy has a window
    day : of its database, counted from a day that only the ledger knows; None where the policy has no window, or where
        the date is not the data's own
    verified : what was done to verify the answer, in words
    review : what a checker said of it
    further : whether it may be of the same database as an earlier release of the same question, and so counts beside
        it. It is not in an export, to which it would tell that two answers are the same
    rows, label : digest of the sketch of the rows that it is of, the same for the same rows by any name, and what the
        database was called; they are kept apart from the chain, and are not in an export either
    """

    fingerprint: str
    database: str
    query: str
    component: str | None
    method: str
    law: Mapping[str, Any] = field(repr=False)
    asked: Figures
    achieved: Figures
    joint: Joint | None
    n_databases: int
    n_individuals: int
    answer: Answer
    results: str | None
    question: str
    content: str
    audited: str | None
    verified: str | None
    prices: int | None = None
    day: int | None = None
    review: Review | None = None
    further: bool = False
    rows: str | None = None
    label: str = field(default="", repr=False)


def canonical(value: Any, *, name: str) -> str:
    """The one JSON text of a value: keys sorted, no spaces, ASCII, floats to the last bit."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise InputError(
            f"`{name}` must be fit for JSON: texts, finite numbers, lists and mappings of these."
        ) from None


def to_json(value: Any) -> dict[str, Any]:
    """Fields of a dataclass of plain values."""
    return {one.name: getattr(value, one.name) for one in fields(value)}


def answer_of(value: Any) -> Answer:
    """A noisy answer, or several, as floats; whatever is not finite is refused."""
    several = isinstance(value, list | tuple) or getattr(value, "ndim", 0) == 1
    given = tuple(value) if several else (value,)
    try:
        if any(isinstance(one, str | bytes) for one in given):
            raise TypeError("a text")
        numbers = tuple(float(one) for one in given)
    except (TypeError, ValueError, OverflowError):
        raise InputError("`draw` must give a number, or a sequence of numbers.") from None
    if not numbers or not all(map(math.isfinite, numbers)):
        raise InputError("`draw` must give finite numbers, at least one.")
    return numbers if several else numbers[0]


def answer_to_json(answer: Answer) -> str | list[str]:
    """Floats in hexadecimal, which lose no bit in any language."""
    return [one.hex() for one in answer] if isinstance(answer, tuple) else answer.hex()


def answer_from_json(source: Any) -> Answer:
    """The inverse of `answer_to_json`."""
    return tuple(map(float.fromhex, source)) if isinstance(source, list) else float.fromhex(source)


def entry_from_json(facts: Mapping[str, Any], *, previous: str, hash: str) -> Entry:  # noqa: A002
    """An entry from its JSON. Whatever is missing or of another kind raises KeyError, TypeError or ValueError."""
    link = {"id": facts["id"], "time": facts["time"], "kind": facts["kind"], "previous": previous, "hash": hash}
    if facts["kind"] in ("created", "policy"):
        return PolicyEntry(**link, policy=Policy(**facts["policy"]))
    if facts["kind"] == "prices":
        return PriceEntry(**link, plan=str(facts["plan"]), results=str(facts["results"]))
    if facts["kind"] != "release":
        raise ValueError("unknown kind")
    joint = facts["joint"]
    names = (
        "fingerprint", "database", "query", "component", "method", "law", "n_databases", "n_individuals",
        "results", "question", "content", "audited", "verified",
    )  # fmt: skip
    return ReleaseEntry(
        **link,
        **{name: facts[name] for name in names},
        asked=Figures(**facts["asked"]),
        achieved=Figures(**facts["achieved"]),
        joint=None if joint is None else Joint(**{**joint, "entries": tuple(joint["entries"])}),
        answer=answer_from_json(facts["answer"]),
        prices=facts.get("prices"),
        day=facts.get("day"),
        review=None if facts["review"] is None else Review(**facts["review"]),
    )


def _check(value: Any, name: str, *, most: float) -> None:
    number = getattr(value, name)
    if number is None and (name != "epsilon" or isinstance(value, Policy)):
        return
    plain = isinstance(number, int | float) and not isinstance(number, bool)
    if not plain or not (0 <= number <= min(most, sys.float_info.max)):
        rule = "a finite number of at least 0" if math.isinf(most) else f"a number from 0 to {most:g}"
        raise InputError(f"`{name}` must be {rule}, got {number!r}.")
    # 1 and 1.0 are the same limit and must have the same JSON.
    object.__setattr__(value, name, float(number))
