"""Where an audit's rows came from, in a form that may be shown and saved: names and digests, never folders or rows.

`describe` gives an `Origin`; `sketch_rows` gives digests of the rows, by which a ledger knows them again whatever they
are called.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.base.row_sketches import MOST, RowSketches, sketches_of
from empriv.collecting.engines.engine import DATA, DATABASE, Session, quoted

if TYPE_CHECKING:
    from sqlglot import exp

    from empriv.collecting import Databases

_PLAIN = {"expressions", "from", "from_", "where", "kind"}  # what a SELECT may have that only leaves rows out
_NAMED = {"this", "db", "catalog", "alias"}
_CHANGING = ("zone", "expressions", "format", "action", "default")  # arguments of a cast or a truncation


@dataclass(frozen=True)
class Origin:
    """Where the rows came from, in a form that may be shown: file names without their folders.

    Attributes
    ----------
    sources : names of files, ``file.duckdb::table``, ``postgresql::table``, SQL text, or "a table in memory"
    database : column or expression that split the rows into databases, or None
    individual : columns that identify the unit of protection
    tables : names of other tables that the query could join
    unidentified : what was done with rows without individual
    drawn : how random databases were drawn, in words, or None
    sampled : whether databases are random samples of one table, which is all that makes results vary
    timezone : in which time zone days begin, if one was named
    added : names of files and tables whose databases were added later
    computed : whether a source is a query that computes, and can show the same rows in other values
    dated : whether a label that is a date is the value of a column of the source, and not what an expression made of it
    """

    sources: tuple[str, ...]
    database: str | None
    individual: tuple[str, ...]
    tables: tuple[str, ...] = ()
    unidentified: str = "error"
    drawn: str | None = None
    sampled: bool = False
    timezone: str | None = None
    added: tuple[str, ...] = ()
    computed: bool = False
    dated: bool = False


def describe(data: Databases) -> Origin:
    """Where databases come from, in a form that may be shown."""
    drawn = None
    if data.draws is not None:
        d = data.draws
        unit = "individual" if d.by == "individual" else "row"
        database_kind = "split" if d.split else "subsample"
        part = "in the test part" if d.split else "in"
        drawn = f"random {database_kind}s, each {unit} {part} with probability {d.fraction:g}, seed {d.seed},"
        if d.repeats:
            drawn = "the same rows each time,"
    computed = any(map(is_computed, data.parts))
    names = dict.fromkeys(name for part in data.parts for name in _names(part))
    return Origin(
        sources=tuple(names),
        database=data.database,
        individual=data.individual,
        tables=tuple(data.tables),
        unidentified=data.unidentified,
        drawn=drawn,
        sampled=data.draws is not None and not data.draws.split and not data.draws.repeats,
        timezone=data.timezone,
        computed=computed,
        dated=not computed and data.labels is None and data.draws is None and _is_day(data.database),
    )


def is_computed(part: Any) -> bool:
    """Whether a source is a query of which rows may come out with other values than they are stored with.

    ``SELECT * FROM a_table WHERE ...`` leaves rows out, and leaves those that it gives as they are.
    """
    from empriv.collecting.sources import Connected, Select

    if isinstance(part, Select):
        return not _only_leaves_out(part.sql, "duckdb")
    if isinstance(part, Connected) and part.sql is not None:
        return not _only_leaves_out(part.sql, "postgres" if part.kind == "postgresql" else "sqlite")
    return False


def _only_leaves_out(sql: str, dialect: str) -> bool:
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    try:
        tree = parse_one(sql, dialect=dialect)
    except SqlglotError:
        return False
    if not isinstance(tree, exp.Select) or _given(tree) - _PLAIN:
        return False
    every = len(tree.expressions) == 1 and isinstance(tree.expressions[0], exp.Star)
    source = (tree.args.get("from_") or tree.args.get("from") or exp.From()).this
    named = isinstance(source, exp.Table) and isinstance(source.this, exp.Identifier)
    plain = [node for node in (*tree.expressions, source) if node is not None]
    return every and named and not any(_given(node) - _NAMED for node in plain)


def _given(node: Any) -> set[str]:
    return {name for name, value in node.args.items() if value}


def _is_day(database: str | None) -> bool:
    """Whether databases are cut by a column, as it is or by its day, month or year: nothing moves its date."""
    from sqlglot import exp, parse_one
    from sqlglot.errors import SqlglotError

    if database is None:
        return False
    try:
        tree = parse_one(database, dialect="duckdb")
    except SqlglotError:
        return True  # the name of a column that is no expression
    while isinstance(tree, exp.Cast | exp.TimestampTrunc | exp.DateTrunc | exp.TsOrDsToDate | exp.Date | exp.Paren):
        if any(tree.args.get(name) for name in _CHANGING):
            return False
        tree = tree.this
    return isinstance(tree, exp.Column) and not isinstance(tree.this, exp.Star)


def _names(part: Any) -> tuple[str, ...]:
    """What a table is called: its path without folders."""
    from empriv.collecting.sources import Connected, Files, Select, Stored, shown_path

    match part:
        case Files(paths, _):
            return tuple(PurePath(shown_path(path)).name for path in paths)
        case Stored(path, table):
            return (f"{PurePath(path).name}::{table}",)
        case Connected("sqlite", address, str(table)):
            return (f"{PurePath(address.text).name}::{table}",)
        case Connected("postgresql", _, str(table)):
            return (f"postgresql::{table}",)  # neither server nor user: who moves the table keeps its ledger
        case Connected(sql=str(sql)) | Select(sql):
            return (sql,)
        case _:
            return ("a table in memory",)


def origin_to_json(origin: Origin | None) -> dict[str, Any] | None:
    """Where the rows came from, as JSON: lists, not tuples."""
    if origin is None:
        return None
    return {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(origin).items()}


def origin_from_json(source: Any) -> Origin | None:
    """The inverse of `origin_to_json`; everything is checked."""
    if source is None:
        return None
    return Origin(
        sources=tuple(map(text, source["sources"])),
        database=text_or_none(source["database"]),
        individual=tuple(map(text, source["individual"])),
        tables=tuple(map(text, source["tables"])),
        unidentified=text(source["unidentified"]),
        drawn=text_or_none(source["drawn"]),
        sampled=source.get("sampled") is True,
        timezone=text_or_none(source.get("timezone")),  # files of earlier versions have none
        added=tuple(map(text, source.get("added", ()))),
        computed=source.get("computed") is True,
        dated=source.get("dated") is True,
    )


def text(value: Any) -> str:
    """A string read from a file; anything else is refused."""
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def text_or_none(value: Any) -> str | None:
    """A string read from a file, or null."""
    return None if value is None else text(value)


_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
            "UHUGEINT", "FLOAT", "DOUBLE", "BOOLEAN", "DECIMAL")  # fmt: skip
_KNOWN = "HASH(1.5::DOUBLE, 'a', 'a text of more than twelve letters', 7::BIGINT, NULL)"


def sketch_rows(session: Session, data: Databases) -> RowSketches | None:
    """Sketches of the rows of each database; None for random databases."""
    if data.draws is not None:
        return None
    own = sorted(session.columns[DATA], key=str.lower)
    types = session.fetch(_parsed(f"SELECT {', '.join(f'TYPEOF({quoted(c)}) AS c{k}' for k, c in enumerate(own))} "
                                  f"FROM {DATA} LIMIT 1"))  # fmt: skip
    row = ", ".join(_value(name, str(types[f"c{k}"].values[0])) for k, name in enumerate(own))
    found = session.fetch(
        _parsed(
            f"SELECT d.code AS d, UNNEST(s.least) AS h FROM (SELECT {DATABASE}, MIN(h, {MOST}) AS least FROM "
            f"(SELECT {DATABASE}, HASH({row}) AS h FROM {DATA}) AS r GROUP BY {DATABASE}) AS s "
            f"JOIN empriv_databases AS d ON d.label = s.{DATABASE}"
        )
    )
    databases, digests = found["d"].values.astype(np.int64), found["h"].values.astype(np.uint64)
    return sketches_of(_kind(session, data), databases, digests, len(session.databases))


def _value(name: str, type_: str) -> str:
    """A value in the form in which it is digested, whatever the source's type for it."""
    column = quoted(name)
    if type_.startswith(_NUMBERS):
        return f"CAST({column} AS DOUBLE)"
    if type_ == "TIMESTAMP WITH TIME ZONE":
        return f"EPOCH_US({column})"
    if type_ == "DATE" or type_.startswith("TIMESTAMP"):
        return f"EPOCH_US(CAST({column} AS TIMESTAMP))"
    return column if type_.startswith("VARCHAR") else f"CAST({column} AS VARCHAR)"


def _kind(session: Session, data: Databases) -> str:
    """How rows are digested here. A source that computes can show rows in other values: it has its own kind."""
    known = session.fetch(_parsed(f"SELECT {_KNOWN} AS h"))["h"].values[0]
    texts = [repr(part) for part in data.parts if is_computed(part)]
    own = hashlib.sha256("\n".join(texts).encode()).hexdigest() if texts else ""
    return f"duckdb {int(known):x} {own}".strip()


def _parsed(text: str) -> exp.Expr:
    from sqlglot import parse_one

    return parse_one(text, dialect="duckdb")
