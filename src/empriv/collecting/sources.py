"""Where the rows are, who the individual is, and how the rows are split into databases.

`databases`, `subsamples`, `splits` and `repeats` return a `Databases`, which describes the rows without reading
them. An engine reads them, so the same description serves every engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from numbers import Integral
from os import PathLike, fspath
from pathlib import Path, PurePath
from typing import Any, Literal, Protocol, TypeAlias, get_args

from empriv.errors import InputError, SourceError

Unidentified = Literal["error", "keep", "drop"]
Unit = Literal["individual", "row"]
FileKind = Literal["parquet", "csv", "json"]

_KINDS: dict[str, FileKind] = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "csv",
    ".tsv": "csv",
    ".txt": "csv",
    ".json": "json",
    ".jsonl": "json",
    ".ndjson": "json",
}
_COMPRESSED = {".gz", ".zst"}
_SHEETS = {".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".numbers"}
_DUCKDB_FILES = {".duckdb", ".ddb", ".db"}
_SQLITE_FILES = {".sqlite", ".sqlite3", ".db3"}
_SQLITE_BEGINS = b"SQLite format 3\0"
_SERVERS = ("postgresql://", "postgres://")
REMOTE = ("http://", "https://", "s3://", "gs://", "gcs://", "r2://", "hf://")


@dataclass(frozen=True, repr=False)
class Address:
    """Where a server, a database file or a remote file is. It may hold a password, and so it is never shown."""

    text: str

    def __repr__(self) -> str:
        return "Address(...)"


@dataclass(frozen=True)
class Files:
    """Files of one kind; each path may be a glob."""

    paths: tuple[str, ...]
    kind: FileKind

    def __repr__(self) -> str:
        return f"Files({tuple(map(shown_path, self.paths))}, {self.kind!r})"


@dataclass(frozen=True)
class Stored:
    """A table or view of a DuckDB file."""

    path: str
    table: str


@dataclass(frozen=True)
class Select:
    """The rows of an SQL query over the extra tables."""

    sql: str


@dataclass(frozen=True)
class Connected:
    """A table of a PostgreSQL server or of an SQLite file, or the rows of one SELECT there.

    Attributes
    ----------
    kind : whose dialect is spoken
    address : of the server or the file
    table : the table or view, with its schema if it has one; None if there is a SELECT
    sql : the SELECT; None if there is a table
    """

    kind: Literal["postgresql", "sqlite"]
    address: Address
    table: str | None = None
    sql: str | None = None


@dataclass(frozen=True, eq=False)
class Frame:
    """A pandas, polars, Arrow or Spark table, or any object that speaks Arrow.

    ``once`` is there for a stream, which can be read once only: it is emptied when the stream is read.
    """

    frame: Any = field(repr=False)
    once: list[Any] | None = field(default=None, repr=False)


Table = Files | Stored | Select | Connected | Frame


class HasColumns(Protocol):
    """A pandas, polars, Arrow or Spark table, as far as a type can tell without importing any of them."""

    @property
    def columns(self) -> Any: ...


class SpeaksArrow(Protocol):
    """A DuckDB relation, an Ibis table, a reader of ADBC: anything whose rows can be had as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


Source: TypeAlias = str | PathLike[str] | HasColumns | SpeaksArrow | Table
"""One table as a user gives it: a path or glob, SQL text, a table of a database, a frame, or an Arrow stream."""


@dataclass(frozen=True)
class Draws:
    """Random databases from one master table, or the same rows repeated.

    Attributes
    ----------
    count : how many databases
    fraction : share of units that a database holds (1 repeats all rows) or, for splits, that its test part holds
    by : a unit is all rows of an individual, or a row
    seed : number that determines all draws
    split : keep all rows and mark the test part in a column ``is_test``, instead of leaving rows out
    """

    count: int
    fraction: float
    by: Unit
    seed: int
    split: bool

    @property
    def repeats(self) -> bool:
        """Whether every database has the same rows."""
        return self.fraction == 1.0 and not self.split

    @property
    def of_individuals(self) -> bool:
        """Whether every database is a random sample of individuals, with all their rows."""
        return self.by == "individual" and not self.split and not self.repeats


@dataclass(frozen=True)
class Databases:
    """The rows, split into databases, and whom they belong to.

    Made by `empriv.databases`, `subsamples`, `splits` and `repeats`.

    Attributes
    ----------
    parts : one table that ``database`` or ``draws`` splits, or one table per database
    labels : names of the databases if there is one part for each, else None
    database : column or SQL expression whose value says which database a row is in, or None
    individual : column or columns that identify the unit of protection
    tables : other tables that queries may join
    unidentified : what to do with rows whose individual is NULL
    draws : random databases from one master table, or None
    timezone : in which time zone days begin; None for that of the column

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> data.database, data.individual
    ('date', ('aircraft',))
    """

    parts: tuple[Table, ...]
    labels: tuple[str, ...] | tuple[int, ...] | None
    database: str | None
    individual: tuple[str, ...]
    tables: Mapping[str, Table]
    unidentified: Unidentified
    draws: Draws | None = None
    timezone: str | None = None


def databases(
    source: Source | Sequence[Source],
    *,
    database: str | None = None,
    individual: str | Sequence[str],
    table: str | None = None,
    sql: str | None = None,
    tables: Mapping[str, Source] | None = None,
    unidentified: Unidentified = "error",
    timezone: str | None = None,
) -> Databases:
    """Describe existing databases: a table split by a column, or a list of tables.

    Parameters
    ----------
    source : path or glob (Parquet, CSV, TSV, JSON), frame, Arrow stream, ``"postgresql://..."``, ``"file.sqlite"`` or
        ``"file.duckdb"`` with ``table``, SQL text, or a list of these
        In a list, each member is one database.
    database : column, or SQL expression such as ``date_trunc('day', t)``; not given for a list
    individual : column that says whom a row belongs to, or several columns
    table : which table or view of the server or of the database file; ``"file.duckdb::table"`` says it in one text
    sql : in its place, one SELECT in the language of the PostgreSQL server or SQLite file
    tables : other tables that the query may join, by name
    unidentified : ``"error"``, ``"keep"`` (rows without an individual) or ``"drop"`` for rows without individual
    timezone : such as ``"Europe/Paris"``: where days and hours begin, for times that are moments. Default: the
        column's own, or UTC where it has none; never the machine's

    Examples
    --------
    >>> data = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    >>> data.individual
    ('aircraft',)
    """
    source = chosen(source, table, sql)
    if isinstance(source, list):
        if database is not None:
            raise InputError("`database` must not be given for a list of tables: each of them is one database.")
        if not source:
            raise InputError("`source` must hold at least one table, got an empty list.")
        parts = tuple(table_of(member) for member in source)
        labels = _part_labels(source)
    else:
        if database is None:
            raise InputError(
                "`database` must say which database a row is in. Hint: name a column, give a list of tables, "
                "or draw databases from one table with `subsamples`."
            )
        if not isinstance(database, str) or not database.strip():
            raise InputError("`database` must be a column name or an SQL expression.")
        parts, labels = (table_of(source),), None
    return Databases(
        parts, labels, database, _columns(individual), _tables(tables), _unidentified(unidentified),
        timezone=_timezone(timezone),
    )  # fmt: skip


def subsamples(
    source: Source,
    *,
    individual: str | Sequence[str],
    count: int,
    fraction: float,
    by: Unit = "individual",
    rng: int = 0,
    table: str | None = None,
    sql: str | None = None,
    tables: Mapping[str, Source] | None = None,
    unidentified: Unidentified = "error",
    timezone: str | None = None,
) -> Databases:
    """Describe ``count`` random databases, each of which holds every unit with probability ``fraction``.

    The seed alone decides who is in which database (by a hash of seed, draw and unit), the same on every engine.

    Parameters
    ----------
    source, individual, table, sql, tables, unidentified, timezone : as for `databases`
    count : number of databases
    fraction : probability with which a unit is in a database
    by : draw individuals with all their rows, or single rows
    rng : seed

    Examples
    --------
    >>> data = empriv.subsamples(empriv.datasets.flights(), individual="aircraft", count=40, fraction=0.5)
    >>> empriv.collect(data, "avg(delay)").n_databases
    40
    """
    draws = _draws(count, "fraction", fraction, by, rng, split=False)
    return _drawn(chosen(source, table, sql), individual, tables, unidentified, timezone, draws)


def splits(
    source: Source,
    *,
    individual: str | Sequence[str],
    count: int,
    test: float = 0.25,
    by: Unit = "individual",
    rng: int = 0,
    table: str | None = None,
    sql: str | None = None,
    tables: Mapping[str, Source] | None = None,
    unidentified: Unidentified = "error",
    timezone: str | None = None,
) -> Databases:
    """Describe ``count`` random splits of one table into a training and a test part.

    Each database is the whole table with one more column, ``is_test``, true with probability ``test``.

    Parameters
    ----------
    source, individual, table, sql, tables, unidentified, timezone : as for `databases`
    count, by, rng : as for `subsamples`
    test : probability with which a unit falls in the test part

    Examples
    --------
    >>> data = empriv.splits(empriv.datasets.flights(), individual="aircraft", count=20, test=0.25)
    >>> empriv.collect(data, "avg(delay) FILTER (WHERE is_test)").n_databases
    20
    """
    draws = _draws(count, "test", test, by, rng, split=True)
    return _drawn(chosen(source, table, sql), individual, tables, unidentified, timezone, draws)


def repeats(
    source: Source,
    *,
    individual: str | Sequence[str],
    count: int,
    table: str | None = None,
    sql: str | None = None,
    tables: Mapping[str, Source] | None = None,
    unidentified: Unidentified = "error",
    timezone: str | None = None,
) -> Databases:
    """Describe ``count`` databases with the same rows, to audit a randomised function on fixed data.

    All randomness is then the function's own, and each database is one run of it: ``audit(repeats(...), function,
    draws=1)`` measures a mechanism of classical differential privacy at these rows (docs/judge.md). A query
    that is not randomised gives the same result each time, and leaks whoever changes it.

    Parameters
    ----------
    source, individual, table, sql, tables, unidentified, timezone : as for `databases`
    count : number of databases, each an independent run

    Examples
    --------
    >>> rows = "SELECT * FROM (VALUES ('p', 1.0), ('q', 0.0)) AS t(who, value)"
    >>> data = empriv.repeats(rows, individual="who", count=50)
    >>> results = empriv.collect(data, lambda rows, rng: sum(rows["value"]) + rng.laplace(), draws=1, jobs=1)
    >>> results.q.shape
    (50, 1)
    """
    draws = Draws(_count(count), 1.0, "individual", 0, split=False)
    return _drawn(chosen(source, table, sql), individual, tables, unidentified, timezone, draws)


def table_of(source: Any) -> Table:
    """Parse one table as the user gave it."""
    if isinstance(source, Files | Stored | Select | Connected | Frame):
        return source
    if isinstance(source, str | PathLike):
        return _text_table(fspath(source), is_path=not isinstance(source, str))
    if type(source).__module__.partition(".")[0] in {"pandas", "polars", "pyarrow", "pyspark"}:
        is_stream = hasattr(type(source), "read_next_batch")  # a Spark frame has any attribute: its columns
        frame = source.collect() if type(source).__name__ == "LazyFrame" else source
        return Frame(None, [frame]) if is_stream else Frame(frame)
    if hasattr(source, "__arrow_c_stream__"):
        # What gives its rows anew each time says how many there are, or runs a query. A stream is over at its end.
        again = type(source).__module__.partition(".")[0] in {"duckdb", "_duckdb", "ibis"} or any(
            hasattr(type(source), name) for name in ("__len__", "num_rows", "shape")
        )
        return Frame(source) if again else Frame(None, [source])
    raise InputError(
        "`source` must be a path, a glob, a pandas, polars, Arrow or Spark table, an object that speaks Arrow, a table "
        f"of PostgreSQL, SQLite or DuckDB, or SQL text, got {type(source).__name__}."
    )


def shown_path(path: str) -> str:
    """A path or address as it may be shown: of a remote file its name alone, since the rest may hold a password."""
    return path if not path.lower().startswith(REMOTE) else re.split(r"[?#]", path)[0].rpartition("/")[2]


def shown_address(text: str) -> str:
    """The address of a server or a remote file as it may be written down: without user, password and parameters."""
    address, separator, table = text.rpartition("::")
    if not separator or re.search(r"[/\]]", table):
        address, separator, table = text, "", ""
    if not is_address(address) and not address.lower().startswith(REMOTE):
        return text
    # What is not of this form to the letter may hold a password anywhere.
    plain = re.fullmatch(
        r"(\w+://)(?:[^@/?#]*@)?((?:[\w.-]+|\[[\da-fA-F:]+\])?(?::\d+)?(?:/[\w./%*-]*)?)(?:[?#].*)?",
        address,
        re.DOTALL,
    )
    return f"{address.partition('://')[0]}://..." if plain is None else f"{plain[1]}{plain[2]}{separator}{table}"


def is_address(text: str) -> bool:
    """Whether a text is the address of a server."""
    return text.lower().startswith(_SERVERS)


def chosen(source: Any, table: Any, sql: Any) -> Any:
    """The source, with the table or the SELECT of it that is asked for."""
    if table is None and sql is None:
        return source
    for name, value in (("table", table), ("sql", sql)):
        if value is not None and not (isinstance(value, str) and value.strip()):
            raise InputError(f"`{name}` must be a text.")
    if table is not None and sql is not None:
        raise InputError("`table` must not be given beside `sql`: one of them says which rows are read.")
    if (
        not isinstance(source, str | PathLike)
        or (isinstance(source, str) and is_sql(source))
        or (not is_address(fspath(source)) and PurePath(source).suffix.lower() in _KINDS)
    ):
        given = "table" if sql is None else "sql"
        raise InputError(
            f"`source` must be the address of a PostgreSQL server or a database file if `{given}` is given."
        )
    return _in_database(fspath(source), table, sql)


def _in_database(place: str, table: str | None, sql: str | None) -> Table:
    """A table of a server or a database file, or a SELECT there."""
    if is_address(place):
        return Connected("postgresql", Address(place), table, sql)
    if is_sqlite(place):
        return Connected("sqlite", Address(place), table, sql)
    if sql is not None:
        raise InputError(
            "`sql` must be given for a PostgreSQL server or an SQLite file. "
            "Hint: a SELECT that DuckDB is to run can be the source itself."
        )
    return Stored(place, str(table))


def is_sqlite(path: str) -> bool:
    """Whether a file is one of SQLite, by its name or by how it begins: others call theirs .db too."""
    suffix = PurePath(path).suffix.lower()
    if suffix in _SQLITE_FILES:
        return True
    try:
        with Path(path).open("rb") as file:
            return suffix in _DUCKDB_FILES and file.read(len(_SQLITE_BEGINS)) == _SQLITE_BEGINS
    except (OSError, ValueError):
        return False


def is_sql(text: str) -> bool:
    """Whether a source given as text is SQL, rather than the path of a file; an engine accepts one SELECT."""
    return re.match(r"[\s(]*(select|with|from)\b(?![./\\:])", text, re.IGNORECASE) is not None


def _text_table(text: str, *, is_path: bool) -> Table:
    if not is_path and is_sql(text):
        return Select(text)
    # From the right, and no address of a host in brackets: postgresql://[::1]/shop::sales.
    path, separator, table = text.rpartition("::")
    if separator and table and not re.search(r"[/\]]", table):
        return _in_database(path, table, None)
    if is_address(text):
        raise SourceError(
            "A PostgreSQL server must be given with a table or a SELECT. "
            'Hint: table="sales" or sql="SELECT ..." (--table sales or --sql on the command line).'
        )
    suffixes = [suffix.lower() for suffix in PurePath(_without_parameters(text)).suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    if suffixes and suffixes[-1] in _KINDS:
        return Files((text,), _KINDS[suffixes[-1]])
    if suffixes and (suffixes[-1] in _DUCKDB_FILES | _SQLITE_FILES or is_sqlite(text)):
        kind = "An SQLite file" if is_sqlite(text) else "A DuckDB file"
        raise SourceError(
            f'{kind} must be given with its table. Hint: table="sales" (--table sales on the command line), or '
            f'"{PurePath(text).name}::sales" in one text.'
        )
    if suffixes and suffixes[-1] in _SHEETS:
        raise SourceError(
            f"`source` must not be a spreadsheet, got {PurePath(text).name!r}. Hint: save the sheet as CSV, or give "
            "the frame that pandas.read_excel returns."
        )
    if not suffixes and (text in (".", "..") or text.endswith(("/", "\\")) or Path(text).is_dir()):
        raise SourceError('`source` must be files, got a folder. Hint: "folder/*.csv" names all CSV files in it.')
    raise SourceError(
        f"`source` must be a file whose name ends in one of {', '.join(_KINDS)}, or the address of a PostgreSQL "
        f"server, got {PurePath(shown_path(text)).name!r}."
    )


def _without_parameters(text: str) -> str:
    """A remote address without what follows the name of the file."""
    return re.split(r"[?#]", text)[0] if text.lower().startswith(REMOTE) else text


def _part_labels(source: list[Any]) -> tuple[str, ...] | tuple[int, ...]:
    if not all(isinstance(member, str | PathLike) and isinstance(table_of(member), Files) for member in source):
        return tuple(range(len(source)))
    paths = [PurePath(shown_path(fspath(member))) for member in source]
    for labels in (tuple(path.name for path in paths), tuple(map(str, paths))):
        if len(set(labels)) == len(labels):
            return labels
    raise InputError("`source` must not name the same file twice.")


def _drawn(
    source: Any, individual: str | Sequence[str], tables: Any, unidentified: Any, timezone: Any, draws: Draws
) -> Databases:
    if isinstance(source, list):
        raise InputError("`source` must be one table to draw databases from, got a list.")
    parts = (table_of(source),)
    return Databases(
        parts, None, None, _columns(individual), _tables(tables), _unidentified(unidentified), draws,
        _timezone(timezone),
    )  # fmt: skip


def _draws(count: Any, name: str, fraction: Any, by: Any, rng: Any, *, split: bool) -> Draws:
    count = _count(count)
    if not 0 < float(fraction) < 1:
        raise InputError(f"`{name}` must be between 0 and 1, got {fraction!r}.")
    if by not in get_args(Unit):
        raise InputError(f"`by` must be 'individual' or 'row', got {by!r}.")
    if not isinstance(rng, Integral):
        raise InputError(f"`rng` must be an integer, which gives the same databases on every engine, got {rng!r}.")
    return Draws(count, float(fraction), by, int(rng), split)


def _count(count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, Integral) or count < 1:
        raise InputError(f"`count` must be a positive integer, got {count!r}.")
    return int(count)


def _columns(individual: Any) -> tuple[str, ...]:
    columns = (individual,) if isinstance(individual, str) else tuple(individual) if individual is not None else ()
    if not columns or not all(isinstance(column, str) and column for column in columns):
        raise InputError("`individual` must be a column name, or several.")
    if len(set(columns)) != len(columns):
        raise InputError("`individual` must not name a column twice.")
    return columns


def _tables(tables: Mapping[str, Any] | None) -> dict[str, Table]:
    named = {name: table_of(table) for name, table in (tables or {}).items()}
    for name in named:
        if name.lower() == "data" or name.lower().startswith("empriv_"):
            raise InputError(f"`tables` must not use the name {name!r}, which empriv needs itself.")
    return named


def _unidentified(choice: Any) -> Unidentified:
    if choice not in get_args(Unidentified):
        raise InputError(f"`unidentified` must be 'error', 'keep' or 'drop', got {choice!r}.")
    return choice  # type: ignore[no-any-return]


def _timezone(name: Any) -> str | None:
    """A time zone that the tables of zones know, by its name."""
    if name is None:
        return None
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name).key
    except (OSError, ValueError, TypeError, AttributeError, LookupError):
        raise InputError(f'`timezone` must be the name of a time zone, such as "Europe/Paris", got {name!r}.') from None
