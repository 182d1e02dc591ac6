"""`look`: which columns of a table may say whom a row belongs to, when it was, and what was measured.

By names, types, counts of different values, and whether values come back in several databases: a person does, the
number of a receipt does not. `empriv init` writes down what it suggests, and a person decides.
`count` says how many databases and people a choice makes, and `gives` what a query gives, before anything is run.
`first_rows` and `smallest_and_largest` are for the eyes of that person: they give values, and `gives` names of groups.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sqlglot import exp, parse_one
from sqlglot.errors import SqlglotError

from empriv.collecting.engines.engine import Engine, Session
from empriv.collecting.names import DATA, DATABASE, INDIVIDUAL, MASTER
from empriv.collecting.queries import query_of
from empriv.collecting.sources import Databases, Draws, Source, table_of
from empriv.collecting.sql.advice import out_of_order
from empriv.collecting.sql.evaluate import explain
from empriv.collecting.sql.statement import components_of, count_individuals
from empriv.collecting.sql.templates import fill
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
class ColumnSeen:
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
class TableSeen:
    """What a table looks like.

    Attributes
    ----------
    rows : how many
    columns : all of them, in their order
    individuals : names that may say whom a row belongs to, likeliest first
    databases : expressions that may cut it into databases, likeliest first, and how many each makes
    amounts : names of what may have been measured, likeliest first
    row_numbers : names that differ in every row, and so may number rows rather than people
    closely : what the values of each column look like
    said : how the rows were read, where that had to be found out
    """

    rows: int
    columns: tuple[str, ...]
    individuals: tuple[str, ...]
    databases: tuple[tuple[str, int], ...]
    amounts: tuple[str, ...]
    row_numbers: tuple[str, ...]
    closely: tuple[ColumnSeen, ...] = ()
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


def look(engine: Engine, source: Source) -> TableSeen:
    """Look at a table."""
    with engine.session(_whole(source)) as session:
        found = replace(_judged(*_seen(session)), said=tuple(session.said))
        return replace(found, individuals=_returning_first(session, found))


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
        names = components_of(session, asked) if slow is None or not asked.groups else None
    return Gives(None if names is None else tuple(names), slow)


def first_rows(
    engine: Engine, source: Source, count: int
) -> tuple[tuple[str, ...], tuple[tuple[str | None, ...], ...]]:
    """The columns of a table and some of its rows, each value as text; None where it is NULL."""
    with engine.session(_whole(source)) as session:
        names = session.columns[DATA]
        as_text = [
            exp.alias_(fill("CAST(x AS VARCHAR)", x=exp.column(name, quoted=True)), f"c{k}")
            for k, name in enumerate(names)
        ]
        columns = session.fetch(exp.select(*as_text).from_(DATA).limit(count)).values()
    texts = [
        [None if null else str(value) for value, null in zip(column.values, column.null, strict=True)]
        for column in columns
    ]
    return tuple(names), tuple(zip(*texts, strict=True))


def smallest_and_largest(
    engine: Engine, source: Source, names: Sequence[str]
) -> dict[str, tuple[str | None, str | None]]:
    """The ends of what each of these columns holds, as text; None if it holds nothing."""
    if not names:
        return {}
    with engine.session(_whole(source)) as session:
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


def _whole(source: Source) -> Databases:
    """A table as one database of nobody's rows."""
    return Databases((table_of(source),), None, None, (), {}, "keep", Draws(1, 1.0, "individual", 0, split=False))


def _seen(session: Session) -> tuple[int, list[ColumnSeen]]:
    names = session.columns[DATA]
    types = session.types(exp.select(*(exp.column(name, quoted=True) for name in names)).from_(DATA))
    as_time = "TRY_CAST(CAST(x AS VARCHAR) AS TIMESTAMP)"
    first = {"filled": "COUNT(x)", "different": "COUNT(DISTINCT x)"}
    whole = {"fractions": "COUNT(CASE WHEN x <> FLOOR(x) THEN 1 END)"}
    counts = _measured(session, {name: first | (whole if types[name].kind == "double" else {}) for name in names})
    counts_of_times = _measured(
        session, {name: {"times": f"COUNT({as_time})"} for name in names if types[name].kind == "other"}
    )
    seen = [_column(name, types[name].kind, counts[name] | counts_of_times.get(name, {})) for name in names]
    closer = {
        "moments": f"COUNT(CASE WHEN {as_time} > DATE_TRUNC('day', {as_time}) THEN 1 END)",
        "days": f"COUNT(DISTINCT DATE_TRUNC('day', {as_time}))",
        "weeks": f"COUNT(DISTINCT DATE_TRUNC('week', {as_time}))",
        "zoned": "COUNT(CASE WHEN CAST(x AS VARCHAR) LIKE '%:%+00' THEN 1 END)",  # the session's zone is UTC
    }
    times = _measured(session, {column.name: closer for column in seen if column.is_time})
    for place, column in enumerate(seen):
        if column.is_time:
            counted = counts[column.name] | counts_of_times[column.name] | times[column.name]
            seen[place] = _column(column.name, column.kind, counted, as_text=_is_text(session, column.name))
    return _rows(session), seen


def _column(name: str, kind: str, counts: Mapping[str, int], *, as_text: bool = False) -> ColumnSeen:
    return ColumnSeen(
        name, kind, counts["filled"], counts["different"], counts.get("times", 0), counts.get("moments", 0),
        counts.get("days", 0), counts.get("weeks", 0), counts.get("zoned", 0), as_text, counts.get("fractions", 0),
    )  # fmt: skip


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


def _returning_first(session: Session, found: TableSeen) -> tuple[str, ...]:
    """Names that may say whom a row belongs to; last those whose values are in one database each, as receipts are."""
    if not found.databases or len(found.individuals) < 2:
        return found.individuals
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
    once = [name for number, name in enumerate(names) if counted[f"pairs{number}"] <= counted[f"all{number}"]]
    return (*(name for name in found.individuals if name not in once), *once)


def _is_text(session: Session, name: str) -> bool:
    """Whether a column of times is text, which no engine cuts into weeks."""
    week = fill("DATE_TRUNC('week', x)", x=exp.column(name, quoted=True))
    try:
        session.types(exp.select(exp.alias_(week, "week")).from_(DATA))
    except QueryError:
        return True
    return False


def _judged(rows: int, seen: list[ColumnSeen]) -> TableSeen:
    people, times, amounts, row_numbers = [], [], [], []
    for place, column in enumerate(seen):
        every_row = column.is_whole and column.different == rows > 1
        if column.is_time:
            times.append((-len(column.words & _TIMES) - len(column.words & _DAYS), place, column))
        elif column.is_whole and column.different >= 2:
            named = len(column.words & _PEOPLE) - len(column.words & _ROWS) - len(column.words & _CODES)
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
            for column in seen
            if not times and 1 < column.different < rows
            and column.words & (_COUNTED if column.kind == "integer" else _TIMES if column.kind == "other" else set())
        ),
        key=lambda cut: -cut[1],
    )  # fmt: skip
    enough = [cut for cut in cuts if cut[1] >= LEAST_DATABASES]
    return TableSeen(
        rows=rows,
        columns=tuple(column.name for column in seen),
        individuals=tuple(found[-1] for found in sorted(people)),
        databases=tuple(dict.fromkeys([*enough, *cuts])),
        amounts=tuple(found[-1] for found in sorted(amounts)),
        row_numbers=tuple(row_numbers),
        closely=tuple(seen),
    )
