"""`profile`: which columns of a table may say whom a row belongs to, when it was, and what was measured.

By names, types, counts of different values, and whether values come back in several databases: a person does, the
number of a receipt does not. `empriv init` writes down what it suggests, and a person decides.
`count` says how many databases and people a choice makes, and `gives` what a query gives, before anything is run.
`values` are for the eyes of that person, and `gives` gives names of groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from empriv.collecting.engines.engine import DATA, DATABASE, INDIVIDUAL, MASTER, Engine, Session
from empriv.collecting.queries import query_of
from empriv.collecting.sources import Databases, Draws, Source, table_of
from empriv.collecting.sql.aggregates import NotDecomposable
from empriv.collecting.sql.execute import count_individuals, explain
from empriv.collecting.sql.groups import components_of
from empriv.collecting.sql.printing import fill
from empriv.errors import QueryError

# Parts of names that people give to such columns.
_PEOPLE = {
    "id", "uid", "client", "customer", "patient", "person", "user", "member", "account", "card", "employee", "staff",
    "worker", "student", "household", "subscriber", "visitor", "driver", "owner", "who", "name", "email", "aircraft",
    "individual", "citizen", "tenant", "meter", "device", "player",
}  # fmt: skip
_ROWS = {"row", "rowid", "index", "transaction", "order", "invoice", "event", "line", "record", "visit", "entry"}
_DAYS = {"day", "date"}
_TIMES = {
    "day", "date", "time", "timestamp", "t", "at", "when", "month", "week", "hour", "year", "admitted", "admission",
    "booked", "ordered", "paid", "sold",
}  # fmt: skip
_COUNTED = {"day", "week", "month", "quarter", "year", "season", "period", "round", "wave"}  # by numbers
_AMOUNTS = {
    "amount", "value", "price", "total", "cost", "revenue", "salary", "pay", "wage", "income", "delay", "duration",
    "minutes", "seconds", "hours", "quantity", "kwh", "usage", "score", "x", "size", "weight", "spend",
}  # fmt: skip
_CODES = {"zip", "postcode", "code", "phone", "lat", "lon", "latitude", "longitude"}
_AT_A_TIME = 20  # columns whose values are counted in one statement
_MOST_COMPARED = 8  # columns whose values are sought in several databases
_RETURNS = 1.1  # databases that a person is in, on average; a receipt is in one, or in two around midnight
_FEW = 3.0  # databases that a receipt of several days, a trip or a stay may be in
_MOST_RECEIPTS = 50  # of a person, for a column to be taken for their receipts
_MOST_COUNTED = 4_000_000  # values of a table whose different values are all counted; beyond, most are estimated
LEAST_DATABASES = 30  # below which random samples are suggested instead
ROW_NUMBERS = "It differs in every row: does it number rows, rather than people?"
# Words of SQL that are no names unless they are quoted.
_RESERVED = (
    "all analyse analyze and anti any array as asc asof asymmetric at authorization binary both by case cast check "
    "collate collation column columns concurrently constraint create cross cube default deferrable desc describe "
    "distinct do else end except false fetch for foreign freeze from full generated glob group having if ilike in "
    "initially inner intersect into is isnull join lambda lateral leading left like limit lock map natural not notnull "
    "null offset on only or order outer overlaps pivot pivot_longer pivot_wider placing positional primary qualify "
    "references returning right rollup select semi show similar some struct summarize symmetric table tablesample then "
    "to trailing true try_cast tuple union unique unpack unpivot using variadic verbose when where window with"
)


@dataclass(frozen=True)
class ColumnProfile:
    """A column, and what its values look like.

    Attributes
    ----------
    name : of the column
    kind : "integer", "decimal", "double", "boolean" or "other"
    filled, different : rows in which it is not NULL, and how many different values it has
    times, moments : rows in which it can be read as a time, and in which that is not midnight
    zoned : rows in which it is a moment, whose day depends on the time zone
    days, weeks : different days and weeks
    as_text : whether its times are written as text
    fractions : rows in which it is a double that is not whole: numbers such as 17850.0 may be names
    about : whether ``different`` is an estimate, of a column of a large table that is neither a person nor a time
    each_in : databases that a value is in, on average, of those that may say whom a row belongs to; 0 if not counted
    """

    name: str
    kind: str
    filled: int
    different: int
    times: int = 0
    moments: int = 0
    days: int = 0
    weeks: int = 0
    zoned: int = 0
    as_text: bool = False
    fractions: int = 0
    about: bool = False
    each_in: float = 0.0

    @property
    def words(self) -> set[str]:
        """The parts of its name: clientId and client_id are client and id."""
        return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", self.name)}

    @property
    def is_time(self) -> bool:
        return self.kind == "other" and self.filled > 0 and self.times == self.filled

    @property
    def is_whole(self) -> bool:
        return self.kind in ("integer", "other") or (self.kind == "double" and self.filled > 0 == self.fractions)

    @property
    def is_number(self) -> bool:
        return self.kind in ("integer", "decimal", "double")

    @property
    def as_database(self) -> str:
        """What says that each value is a database: the name, quoted where it would be read as something else."""
        return self.name if _is_name(self.name) else in_sql(self.name)

    def cut(self, unit: str) -> str:
        """The expression that puts the rows of an hour, a day, a week or a month in one database."""
        if unit == "day" and self.moments == 0:
            return self.as_database
        column = in_sql(self.name)
        return f"date_trunc('{unit}', {f'CAST({column} AS TIMESTAMP)' if self.as_text else column})"


@dataclass(frozen=True)
class TableProfile:
    """What a table looks like.

    Attributes
    ----------
    rows : how many
    columns : all of them, in their order
    individuals : names that may say whom a row belongs to, likeliest first
    databases : expressions that may cut it into databases, likeliest first, and how many each makes
    amounts : names of what may have been measured, likeliest first
    row_numbers : names that differ in every row, and so may number rows rather than people
    details : what the values of each column look like
    said : how the rows were read, where that had to be found out
    """

    rows: int
    columns: tuple[str, ...]
    individuals: tuple[str, ...]
    databases: tuple[tuple[str, int], ...]
    amounts: tuple[str, ...]
    row_numbers: tuple[str, ...]
    details: tuple[ColumnProfile, ...] = ()
    said: tuple[str, ...] = ()


@dataclass(frozen=True)
class Counted:
    """How many databases and individuals a cut makes.

    Attributes
    ----------
    rows, unidentified : all rows, and those that belong to nobody
    databases, individuals : how many there are, as rows of nobody are kept, dropped, or refused
    out_of_order : what to say of databases named by dates that do not sort, if they are
    first, last : labels of the databases that sort first and last
    pairs : of an individual and a database that they are in; of random samples, none are counted
    """

    rows: int
    unidentified: int
    databases: int
    individuals: int
    out_of_order: str | None = None
    first: str = ""
    last: str = ""
    pairs: int = 0


def in_sql(column: str) -> str:
    """A column's name as a query has it: quoted only where it must be."""
    quoted = not re.fullmatch(r"[a-z_]\w*", column, re.ASCII) or column in _RESERVED.split() or not _is_name(column)
    return str(exp.to_identifier(column, quoted=quoted).sql(dialect="duckdb"))


def profile(engine: Engine, source: Source) -> TableProfile:
    """Profile a table."""
    with engine.session(whole(source)) as session:
        found = replace(_suggested(*_counted_columns(session)), said=tuple(session.said))
        return _returning_first(session, found)


@dataclass(frozen=True)
class Values:
    """The first rows as text, and the smallest and largest value of each column of numbers or times; None for NULL."""

    rows: tuple[tuple[str | None, ...], ...]
    ends: Mapping[str, tuple[str | None, str | None]]


def values(engine: Engine, source: Source, rows: int, ordered: Sequence[str]) -> Values:
    """The first rows of a table, and the ends of columns that have an order."""
    with engine.session(whole(source)) as session:
        return Values(_first_rows(session, rows), _ends(session, ordered))


def count(engine: Engine, data: Databases) -> Counted:
    """Count databases and individuals, whether or not some rows are nobody's."""
    with engine.session(replace(data, unidentified="keep")) as session:
        every_row = MASTER if session.drawn else DATA
        counts = exp.select("COUNT(*) AS n", f"COUNT({INDIVIDUAL}) AS known").from_(every_row)
        rows, known = (int(column.values[0]) for column in session.fetch(counts).values())
        labels = session.databases
        ends = [str(label) for label in (*labels[:1].tolist(), *labels[-1:].tolist())] or ["", ""]
        pairs = 0
        if not session.drawn:
            both = exp.select(DATABASE, INDIVIDUAL).distinct().from_(DATA).where(f"{INDIVIDUAL} IS NOT NULL")
            (counts_of_pairs,) = session.fetch(exp.select("COUNT(*) AS n").from_(both.subquery("pairs"))).values()
            pairs = int(counts_of_pairs.values[0])
        counted = Counted(
            rows, rows - known, len(labels), count_individuals(session), out_of_order(labels, data.database),
            ends[0], ends[-1], pairs,
        )  # fmt: skip
    if counted.unidentified and known and data.unidentified == "drop":
        with engine.session(data) as session:
            return replace(counted, databases=len(session.databases))
    return counted


@dataclass(frozen=True)
class Gives:
    """What a query gives of each database: ``names`` of several numbers, None if it gives one or nobody can tell yet.

    ``slow`` says why it takes long, if it does.
    """

    names: tuple[str, ...] | None
    slow: str | None


def gives(engine: Engine, data: Databases, query: str) -> Gives:
    """See whether a query can be audited, as far as that shows before it is run."""
    asked = query_of(query)
    with engine.session(data) as session:
        statement = explain(session, asked)
        slow = statement if statement.startswith("The query runs once per individual") else None
        names = None
        with suppress(NotDecomposable):  # groups are known when it is run
            names = components_of(session, asked)
    return Gives(None if names is None else tuple(names), slow)


def _first_rows(session: Session, count: int) -> tuple[tuple[str | None, ...], ...]:
    as_text = [
        exp.alias_(fill("CAST(x AS VARCHAR)", x=exp.column(name, quoted=True)), f"c{k}")
        for k, name in enumerate(session.columns[DATA])
    ]
    columns = session.fetch(exp.select(*as_text).from_(DATA).limit(count)).values()
    texts = [
        [None if null else str(value) for value, null in zip(column.values, column.null, strict=True)]
        for column in columns
    ]
    return tuple(zip(*texts, strict=True))


def _ends(session: Session, names: Sequence[str]) -> dict[str, tuple[str | None, str | None]]:
    """The ends of what each of these columns holds, as text; None if it holds nothing."""
    if not names:
        return {}
    ends = [
        exp.alias_(fill(f"CAST({end}(x) AS VARCHAR)", x=exp.column(name, quoted=True)), f"{end.lower()}{k}")
        for k, name in enumerate(names)
        for end in ("MIN", "MAX")
    ]
    columns = session.fetch(exp.select(*ends).from_(DATA)).values()
    texts = [None if column.null[0] else str(column.values[0]) for column in columns]
    return {name: (texts[2 * k], texts[2 * k + 1]) for k, name in enumerate(names)}


def _is_name(word: str) -> bool:
    """Whether a word stands for a column wherever it stands: current_date does not."""
    try:
        tree = parse_one(word, dialect="duckdb")
    except SqlglotError:
        return False
    return isinstance(tree, exp.Column) and tree.name == word


def whole(source: Source) -> Databases:
    """A table as one database of rows without an individual."""
    return Databases((table_of(source),), None, None, (), {}, "keep", Draws(1, 1.0, "individual", 0, split=False))


def _counted_columns(session: Session) -> tuple[int, list[ColumnProfile]]:
    names, rows = session.columns[DATA], _rows(session)
    types = session.types(exp.select(*(exp.column(name, quoted=True) for name in names)).from_(DATA))
    large = rows * len(names) > _MOST_COUNTED
    as_time = "TRY_CAST(CAST(x AS VARCHAR) AS TIMESTAMP)"
    first = {"filled": "COUNT(x)", "different": "APPROX_COUNT_DISTINCT(x)" if large else "COUNT(DISTINCT x)"}
    whole = {"fractions": "COUNT(CASE WHEN x <> FLOOR(x) THEN 1 END)"}
    # If all values are times, so are the first and the last: most columns are told by two values.
    end = "CASE WHEN TRY_CAST(CAST({}(x) AS VARCHAR) AS TIMESTAMP) IS NULL THEN 0 ELSE 1 END"
    ends = {"first": end.format("MIN"), "last": end.format("MAX")}
    more = {"double": whole, "other": ends}
    counts = _measured(session, {name: first | more.get(types[name].kind, {}) for name in names})
    times = [name for name in names if counts[name].get("first") and counts[name]["last"]]
    closer = {
        "times": f"COUNT({as_time})",
        "moments": f"COUNT(CASE WHEN {as_time} > DATE_TRUNC('day', {as_time}) THEN 1 END)",
        "days": f"COUNT(DISTINCT DATE_TRUNC('day', {as_time}))",
        "weeks": f"COUNT(DISTINCT DATE_TRUNC('week', {as_time}))",
        "zoned": "COUNT(CASE WHEN CAST(x AS VARCHAR) LIKE '%:%+00' THEN 1 END)",  # the session's zone is UTC
    }
    counted_times: dict[str, Any] = _measured(session, dict.fromkeys(times, closer))
    columns = []
    for name in names:
        measured: dict[str, Any] = {measure: n for measure, n in counts[name].items() if measure not in ends}
        columns.append(ColumnProfile(name, types[name].kind, **measured, **counted_times.get(name, {})))
    if large:
        sure = [column.name for column in columns if _is_counted(column, rows)]
        exact = _measured(session, {name: {"different": "COUNT(DISTINCT x)"} for name in sure})
        columns = [replace(column, **exact.get(column.name, {"about": True})) for column in columns]  # type: ignore[arg-type]
    return rows, [
        replace(column, as_text=_is_text(session, column.name)) if column.is_time else column for column in columns
    ]


def _is_counted(column: ColumnProfile, rows: int) -> bool:
    """Whether the different values of a column of a large table are counted, and not estimated."""
    named = column.words & (_PEOPLE | _TIMES | _COUNTED)
    return column.is_time or (column.is_whole and (bool(named) or column.different > 0.8 * rows))


def _rows(session: Session) -> int:
    return int(session.fetch(exp.select("COUNT(*) AS n").from_(DATA))["n"].values[0])


def _measured(session: Session, wanted: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, int]]:
    """Counts of columns by templates of ``x``, some columns at a time: a table may have hundreds."""
    names = list(wanted)
    found: dict[str, dict[str, int]] = {name: {} for name in names}
    for start in range(0, len(names), _AT_A_TIME):
        some = names[start : start + _AT_A_TIME]
        measures = [
            exp.alias_(fill(template, x=exp.column(name, quoted=True)), f"{measure}{number}")
            for number, name in enumerate(some)
            for measure, template in wanted[name].items()
        ]
        counted = session.fetch(exp.select(*measures).from_(DATA))
        for number, name in enumerate(some):
            found[name] = {measure: int(counted[f"{measure}{number}"].values[0]) for measure in wanted[name]}
    return found


def _returning_first(session: Session, found: TableProfile) -> TableProfile:
    """The table with the databases that values of likely columns are in, and with receipts after people.

    Values that hardly ever come back are receipts. So are those that are in few databases, where another column, named
    as much like people, has values that come back far more often: a receipt may be of two days.
    """
    if not found.databases or not found.individuals:
        return found
    names = found.individuals[:_MOST_COMPARED]
    cut = fill(found.databases[0][0])
    counts = []
    for number, name in enumerate(names):
        x = exp.column(name, quoted=True)
        pair = fill("COUNT(DISTINCT MD5(CONCAT(CAST(d AS VARCHAR), '/', CAST(x AS VARCHAR))))", d=cut.copy(), x=x)
        counts += [
            exp.alias_(pair, f"pairs{number}"),
            exp.alias_(fill("COUNT(DISTINCT CASE WHEN d IS NOT NULL THEN x END)", d=cut.copy(), x=x), f"all{number}"),
        ]
    counted = {key: int(column.values[0]) for key, column in session.fetch(exp.select(*counts).from_(DATA)).items()}
    each_in = {name: counted[f"pairs{number}"] / max(1, counted[f"all{number}"]) for number, name in enumerate(names)}
    details = tuple(replace(column, each_in=each_in.get(column.name, 0.0)) for column in found.details)
    compared = [column for column in details if column.name in names]
    receipts = [
        name for name in names
        if each_in[name] <= _RETURNS or any(are_receipts_of(column, other) for column in compared
                                            if column.name == name for other in compared)
    ]  # fmt: skip
    individuals = (*(name for name in found.individuals if name not in receipts), *receipts)
    return replace(found, individuals=individuals, details=details)


def are_receipts_of(column: ColumnProfile, other: ColumnProfile) -> bool:
    """Whether a column may number the receipts of the people of another one."""
    return (
        column.each_in < _FEW
        and other.each_in >= 2 * column.each_in
        and _named_like_people(other) >= _named_like_people(column)
        and column.different <= _MOST_RECEIPTS * other.different
    )


def _named_like_people(column: ColumnProfile) -> int:
    return len(column.words & _PEOPLE) - len(column.words & _ROWS) - len(column.words & _CODES)


def _is_text(session: Session, name: str) -> bool:
    """Whether a column of times is text, which no engine cuts into weeks."""
    week = fill("DATE_TRUNC('week', x)", x=exp.column(name, quoted=True))
    try:
        session.types(exp.select(exp.alias_(week, "week")).from_(DATA))
    except QueryError:
        return True
    return False


def _suggested(rows: int, columns: list[ColumnProfile]) -> TableProfile:
    people, times, amounts, row_numbers = [], [], [], []
    for place, column in enumerate(columns):
        every_row = column.is_whole and column.different == rows > 1
        if column.is_time:
            times.append((-len(column.words & _TIMES) - len(column.words & _DAYS), place, column))
        elif column.is_whole and column.different >= 2:
            named = _named_like_people(column)
            if every_row:
                row_numbers.append(column.name)
            if named > 0 or (not every_row and column.kind == "other" and column.different > 20):
                people.append((every_row, -named, -column.different, place, column.name))
        if column.is_number and not (every_row or column.words & (_PEOPLE | _ROWS | _CODES | _COUNTED)):
            named = len(column.words & _AMOUNTS)
            amounts.append((-named, column.kind == "integer", place, column.name))
    cuts = [
        (column.cut(unit), getattr(column, f"{unit}s"))
        for *_, column in sorted(times, key=lambda found: found[:2])
        for unit in ("day", "week")
    ]
    # dates that are text, and days and years that are numbers, are at least named like it
    cuts += sorted(
        (
            (column.as_database, column.different)
            for column in columns
            if not times and 1 < column.different < rows
            and column.words & (_COUNTED if column.kind == "integer" else _TIMES if column.kind == "other" else set())
        ),
        key=lambda cut: -cut[1],
    )  # fmt: skip
    enough = [cut for cut in cuts if cut[1] >= LEAST_DATABASES]
    return TableProfile(
        rows=rows,
        columns=tuple(column.name for column in columns),
        individuals=tuple(found[-1] for found in sorted(people)),
        databases=tuple(dict.fromkeys([*enough, *cuts])),
        amounts=tuple(found[-1] for found in sorted(amounts)),
        row_numbers=tuple(row_numbers),
        details=tuple(columns),
    )


# How dates are written that do not sort as text.
_DATES = (
    "%b %d, %Y", "%B %d, %Y", "%d %b %Y", "%d %B %Y", "%d-%b-%Y", "%b %d %Y", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y",
    "%d-%m-%Y", "%m-%d-%Y", "%d.%m.%y", "%d/%m/%y", "%m/%d/%y",
)  # fmt: skip
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I:%M:%S %p")  # what may follow
_SWAPPED = {
    "%d/%m/%Y": "%m/%d/%Y", "%d-%m-%Y": "%m-%d-%Y", "%d.%m.%Y": "%m.%d.%Y", "%d/%m/%y": "%m/%d/%y",
    "%d.%m.%y": "%m.%d.%y",
}  # fmt: skip  # what else would fit
_MONTHS = 12
_SERIES = 10  # days from which they are taken for a series
_UNITS = {1: "day", 7: "week"}
_MIDNIGHT = re.compile(r"\d{4}-\d\d-\d\d([ T]00:00:00([+-]\d\d(:?\d\d)?)?)?")
_LOOKED_AT = 1000  # labels; databases are seldom more


def out_of_order(labels: npt.NDArray[Any], database: str | None) -> str | None:
    """What to say of databases named by dates that, as text, do not stand in the order of time."""
    if database is None or labels.dtype.kind != "U" or len(labels) < 2:
        return None
    for form, clock in product(_DATES, _CLOCKS):
        try:
            days = [datetime.strptime(label, form + clock) for label in labels[:_LOOKED_AT].tolist()]
        except ValueError:
            continue
        if days == sorted(days) and not clock:
            return None
        swapped = _SWAPPED.get(form) if max(day.day for day in days) <= _MONTHS else None
        first = "" if swapped is None else f", or {_as_day(database, swapped, clock)} if the month comes first"
        return (
            "The databases are named by dates, but sort as text: trends and cycles cannot be seen so. "
            f"Hint: {_as_day(database, form, clock)} makes dates of them{first}."
        )
    return None


def _as_day(database: str, form: str, clock: str) -> str:
    """The SQL that makes days of dates that are text."""
    moment = f"strptime({database}, '{form}{clock}')"
    return f"date_trunc('day', {moment})" if clock else moment


def missing_days(labels: npt.NDArray[Any]) -> str | None:
    """What to say of days, weeks or months that are missing in a series of them; weekdays that never come are not."""
    if labels.dtype.kind == "U" and all(map(_MIDNIGHT.fullmatch, labels.tolist())):
        with suppress(ValueError):  # there is no month 13
            labels = labels.astype("U10").astype("datetime64[s]")
    if labels.dtype.kind != "M" or len(labels) < _SERIES:
        return None
    days = np.unique(labels.astype("datetime64[D]"))
    if np.isnat(days).any() or (labels != labels.astype("datetime64[D]")).any():
        return None
    months = days.astype("datetime64[M]")
    steps, counts = np.unique(np.diff(days).astype(np.int64), return_counts=True)
    step = int(steps[np.argmax(counts)])
    if (days == months.astype("datetime64[D]")).all():
        every, unit = np.arange(months[0], months[-1] + 1).astype("datetime64[D]"), "month"
    elif step in _UNITS:
        every, unit = np.arange(days[0], days[-1] + 1, step), _UNITS[step]
        if step == 1:
            weekday = every.astype(np.int64) % 7
            every = every[np.isin(weekday, np.unique(days.astype(np.int64) % 7))]
    else:
        return None
    gone = np.setdiff1d(every, days)
    if not len(gone) or len(gone) > len(days):
        return None
    if len(gone) == 1:
        return (
            f"One {unit} of the series has no rows ({gone[0]}): it is no database, rather than one with the answer 0."
        )
    return (
        f"{len(gone):,} {unit}s of the series have no rows (the first is {gone[0]}): they are no databases, rather "
        "than databases with the answer 0."
    )
