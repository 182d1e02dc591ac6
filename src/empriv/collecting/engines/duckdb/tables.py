"""Every kind of source as a relation of a DuckDB connection: files, SQL, frames, streams, and other databases."""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import Any

import duckdb
from sqlglot import exp

from empriv.base.progress import progress
from empriv.collecting.engines.connections import Incoming, connected, different, of_stream
from empriv.collecting.engines.duckdb.connection import Statements, reading
from empriv.collecting.engines.duckdb.recheck import check_same, parsed
from empriv.collecting.engines.engine import quoted, text_literal
from empriv.collecting.sources import REMOTE, Connected, Databases, Files, Frame, Select, Stored, Table
from empriv.collecting.sql.allowlist import one_select
from empriv.collecting.sql.printing import listed, names_in, printed, secret
from empriv.errors import QueryError, SourceError

_READERS = {"parquet": "read_parquet", "csv": "read_csv", "json": "read_json_auto"}


@dataclass(eq=False)
class TableReader:
    """Reads tables into relations.

    Attributes
    ----------
    at : the connection
    zone : where days begin
    show : whether reading rows from a database shows progress
    views : whether views of DuckDB files are read
    files : Parquet files that are read while queries run
    said : sentences about how rows were read
    """

    at: Statements
    zone: str
    show: bool | None = None
    views: bool = True
    files: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)

    def read(self, data: Databases) -> list[str]:
        """Make the tables that a query may join, and give the relations of the rows."""
        for name, table in data.tables.items():
            if _is_stream(table):
                self._receive(table, name)
                continue
            made = "TABLE" if _is_loaded(table) else "VIEW"
            relation = self._relation(table, f"empriv_{name}")
            self.at.run(f"CREATE TEMP {made} {quoted(name)} AS SELECT * FROM {relation}")
            self._check_text(table, quoted(name))
        relations = [self._read_part(part, f"empriv_part{number}") for number, part in enumerate(data.parts)]
        self._check_rows(data.parts, relations)
        return relations

    def _read_part(self, part: Table, name: str) -> str:
        if _is_stream(part):
            self._receive(part, name)
            return name
        relation = self._relation(part, name)
        if not _is_loaded(part):
            return relation
        order = " ORDER BY ALL" if isinstance(part, Select) else ""
        self._load(part, f"CREATE TEMP TABLE {name} AS SELECT * FROM ", relation, order)
        self._check_text(part, name)
        return name

    def _receive(self, table: Table, name: str) -> None:
        """Read the rows of a stream or a connection, once, into a table of this name."""
        match table:
            case Connected():
                with connected(table, timezone=self.zone, timeout=self.at.seconds_left()) as source:
                    try:
                        self._pour(source.stream(), name, source.cancel)
                    except duckdb.ConversionException:  # a numeric that is NaN, or a date that is none
                        self._pour(source.stream(declared=False), name, source.cancel)
            case Frame(frame, once):
                if once is not None and not once:
                    raise SourceError(
                        "A stream can be read once, and was. Hint: give a table of its rows, such as "
                        "pyarrow.table(stream), or audit several queries each with a stream of its own."
                    )
                self._pour(of_stream(frame if once is None else once.pop()), name, None)

    def _pour(self, incoming: Incoming, name: str, stop: Callable[[], None] | None) -> None:
        """Make a table of rows as they come in."""
        columns = ", ".join(
            f"CAST({quoted(column)} AS {incoming.types[column]}) AS {quoted(column)}"
            if column in incoming.types
            else quoted(column)
            for column in incoming.columns()
        )
        failure = None
        if stop is not None:
            self.at.stops.append(stop)
        try:
            with progress(1, "Reading rows", show=self.show):
                self.at.register("empriv_incoming", incoming.batches())
                self.at.run(f"CREATE OR REPLACE TEMP TABLE {quoted(name)} AS SELECT {columns} FROM empriv_incoming")
        except duckdb.Error:
            failure = incoming.failure
            if failure is None:
                raise
        finally:
            if stop is not None:
                self.at.stops.remove(stop)
            self.at.unregister("empriv_incoming")
        if failure is not None:
            raise failure

    def one_reading(self, tree: exp.Expr, text: str) -> str:
        """A source's tree as text; DuckDB must find the same names in it as we do, and in what somebody wrote."""
        said = printed(tree)
        try:
            for one in (text, said):
                ((serialized,),) = self.at.send("SELECT CAST(json_serialize_sql($text) AS VARCHAR)", {"text": one})
                check_same(parsed(serialized), names_in(tree), functions=False)
        except QueryError as error:
            raise SourceError(str(error).replace("The query", "The SQL of a source")) from None
        return said

    def _load(self, table: Table, made: str, relation: str, order: str) -> None:
        """Load a table. Numbers of a CSV file, of which a later line has a text, are read as text, and that is said."""
        try:
            self.at.run(made + relation + order)
        except duckdb.ConversionException:
            if not (isinstance(table, Files) and table.kind == "csv" and len(table.paths) == 1):
                raise
            by_all_lines = f"{relation[:-1]}, sample_size=-1)"
            first, then = self.at.columns_of(relation), self.at.columns_of(by_all_lines)
            changed = [column for column, kind in first.items() if then.get(column) != kind]
            if any(first[column] not in ("BIGINT", "DOUBLE") for column in changed):
                raise  # a date that is none would be a database of its own
            self.at.run(made + by_all_lines + order)
            self.said.append(
                f"Read as text, since some values are not numbers: {listed(changed)}. "
                "Hint: TRY_CAST(... AS DOUBLE) gives NULL in their place."
            )

    def _check_text(self, table: Table, name: str) -> None:
        """Refuse a table read from text whose dates could be read in two ways."""
        if isinstance(table, Files) and table.kind != "parquet":
            columns = self.at.columns_of(name)
            self.said.extend(named_twice(table, list(columns), self.at.run))
            self.said.extend(check_dates(table, name, columns, self.at.run))

    def _check_rows(self, tables: Sequence[Table], relations: Sequence[str]) -> None:
        """Refuse text files without rows before their columns are taken for text."""
        parts = [part for part in tables if isinstance(part, Files) and part.kind != "parquet"]
        if len(parts) < len(relations) or any(self.at.run(f"SELECT 1 FROM {name} LIMIT 1") for name in relations):
            return
        name = PurePath(parts[0].paths[0]).name
        raise SourceError(f"The file must hold rows, got {name!r}, which holds none below its header.")

    def _relation(self, table: Table, name: str) -> str:
        match table:
            case Files(paths, kind):
                files = list(paths)
                if _is_remote(table):
                    self._load_remote_reader()
                elif kind == "parquet":
                    files = [file for path in paths for file in self._matching(path)]
                    self.files += files
                return f"{_READERS[kind]}([{', '.join(map(text_literal, files))}])"
            case Stored(path, stored):
                self.at.run(f"ATTACH {text_literal(path)} AS {quoted(name + '_file')} (READ_ONLY)")
                self._check_view(secret(f"{name}_file", self.at.nonce), stored.split(".")[-1])
                return ".".join(map(quoted, (name + "_file", *stored.split("."))))
            case Select(sql):
                return f"({self.one_reading(one_select(sql), sql)})"
            case Connected():
                raise AssertionError("rows of a connection are received")
            case Frame(frame):
                named = getattr(frame, "columns", getattr(frame, "schema", ()))
                different([str(column) for column in getattr(frame, "column_names", named)])
                self.at.register(f"{name}_frame", frame)
                return quoted(f"{name}_frame")

    def _check_view(self, database: str, name: str) -> None:
        """Refuse a view of a DuckDB file, which can read any file, where nobody was asked whether it is trusted."""
        known = "SELECT 1 FROM duckdb_views() WHERE database_name = $database AND lower(view_name) = lower($name)"
        if not self.views and self.at.run(known, {"database": database, "name": name}):
            raise SourceError(
                "The table must be one that holds its rows, got a view, which can read any file. "
                "Hint: make a table of it, or use the command line."
            )

    def _load_remote_reader(self) -> None:
        try:
            self.at.run("LOAD httpfs")
        except duckdb.Error:
            raise SourceError(
                "Files at https:// and s3:// are read by DuckDB's extension httpfs, which is not installed. "
                "Hint: INSTALL httpfs in DuckDB gets it, once; or download the files."
            ) from None

    def _matching(self, path: str) -> list[str]:
        """The files that a pattern names, one by one: a locked connection lists no folder."""
        if not re.search(r"[*?\[{]", path):
            return [path]
        files = self.at.run("SELECT file FROM glob($path) ORDER BY file", {"path": path})
        return [str(file) for (file,) in files] or [path]


def check_files(data: Databases) -> None:
    """Refuse files on this machine that are missing or empty, by name and without their folders."""
    for part in (*data.parts, *data.tables.values()):
        for path in part.paths if isinstance(part, Files) else ():
            if "://" in path or "{" in path:
                continue  # elsewhere, or a pattern of the engine's own
            if glob.has_magic(path) and not Path(path).exists():
                if not glob.glob(path, recursive=True):  # noqa: PTH207 — a pattern may be absolute
                    raise SourceError(f"`source` must match a file, got {PurePath(path).name!r}.")
                continue
            place, name = Path(path), PurePath(path).name
            if not place.exists():
                raise SourceError(f"The file must exist, got {name!r}.")
            if place.is_file() and place.stat().st_size == 0:
                raise SourceError(f"The file must hold rows, got {name!r}, which is empty.")


def _is_loaded(table: Table) -> bool:
    """Whether rows are read once: text is slow to parse, each statement reads the rows more than once, and SQL may
    read what is out of reach later, as remote files are."""
    return isinstance(table, Select) or (isinstance(table, Files) and (table.kind != "parquet" or _is_remote(table)))


def _is_remote(table: Files) -> bool:
    return any(path.lower().startswith(REMOTE) for path in table.paths)


def _is_stream(table: Table) -> bool:
    """Whether rows arrive as a stream: from a connection, or from an object that speaks Arrow and is no table."""
    if isinstance(table, Frame):
        home = type(table.frame).__module__.partition(".")[0]
        return table.once is not None or home not in {"pandas", "polars", "pyarrow"}
    return isinstance(table, Connected)


def table_names(path: str) -> tuple[str, ...]:
    """Tables that hold their rows, by name, those of other schemas with it; no views, which can read any file."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": "false",
        "python_enable_replacements": "false",
    }
    with reading(), duckdb.connect(path, read_only=True, config=config) as connection:
        rows = connection.execute(
            "SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal ORDER BY ALL"
        ).fetchall()
    plain = [(schema, table) for schema, table in rows if "." not in f"{schema}{table}"]  # a dot parts schema and table
    return tuple(table if schema == "main" else f"{schema}.{table}" for schema, table in plain)


_YEAR_LAST = re.compile(r"\s*\d{1,2}\s*([-/. ])\s*\d{1,2}\s*[-/. ]\s*(\d{4}|\d{2})(?!\d)")
_MONTHS = 12
Run = Callable[[str], list[tuple[Any, ...]]]


def named_twice(files: Files, columns: Sequence[str], run: Run) -> list[str]:
    """Say which columns of CSV files have a name that another one has, and what they are called instead."""
    if files.kind != "csv" or not any(re.search(r"_\d+$", column) for column in columns):
        return []
    paths = f"[{', '.join(map(text_literal, files.paths))}]"
    first = run(f"SELECT * FROM read_csv({paths}, header=false, all_varchar=true) LIMIT 1")
    written = [str(name).strip() for name in first[0]] if first else []
    if len(written) != len(columns):
        return []
    lower = [name.lower() for name in written]
    twice = [
        (name, read)
        for number, (name, read) in enumerate(zip(written, columns, strict=True))
        if lower[number] in lower[:number] and read.lower() != lower[number]
    ]
    return [
        f"The file has more than one column {name!r}: a further one is called {read!r} here." for name, read in twice
    ]


def check_dates(files: Files, name: str, columns: Mapping[str, str], run: Run) -> list[str]:
    """Refuse a table read from text, by name, if one of its dates fits both orders of day and month.

    Of dates that fit one order only, it is said which.
    """
    said = []
    for column, kind in columns.items():
        if not (kind == "DATE" or kind.startswith("TIMESTAMP")):
            continue
        written = _YEAR_LAST.match(_first_text(files, column, run))
        if written is None:
            continue
        between, year = written.groups()
        at = quoted(column)
        largest, differ = run(f"SELECT max(day({at})), bool_or(day({at}) <> month({at})) FROM {name}")[0]
        # of three numbers of two digits, DuckDB may take any for the year
        if len(year) == 2 or (differ and largest <= _MONTHS):
            raise SourceError(_could_be_swapped(files, column, between, year))
        if differ:
            said.append(
                f"Dates of {column!r} are read with the {_first_of(files, column, run)} first: no other order fits."
            )
    return said


def _first_of(files: Files, column: str, run: Run) -> str:
    """Whether the day or the month comes first in dates that fit one order."""
    source, value = _as_text(files, column)
    first = f"TRY_CAST(regexp_extract({value}, '^\\s*(\\d+)', 1) AS INTEGER)"
    ((largest,),) = run(f"SELECT max({first}) FROM {source}")
    return "day" if largest is not None and largest > _MONTHS else "month"


def _first_text(files: Files, column: str, run: Run) -> str:
    """One date as the file writes it."""
    source, value = _as_text(files, column)
    rows = run(f"SELECT {value} FROM {source} WHERE {value} IS NOT NULL LIMIT 1")
    return str(rows[0][0]) if rows else ""


def _as_text(files: Files, column: str) -> tuple[str, str]:
    """A column of files as they write it: what is read, and the value."""
    paths = f"[{', '.join(map(text_literal, files.paths))}]"
    if files.kind == "csv":
        return f"read_csv({paths}, all_varchar=true)", quoted(column)
    place = text_literal(f'$."{column}"')
    return f"read_json_objects({paths}, format='auto')", f"json_extract_string(json, {place})"


def _could_be_swapped(files: Files, column: str, between: str, year: str) -> str:
    name, read = PurePath(files.paths[0]).name, "read_csv" if files.kind == "csv" else "read_json"
    form = between.join(("%d", "%m", "%Y" if len(year) == 4 else "%y"))
    return (
        f"Dates must tell the day from the month, got the column {column!r} of {name!r}, where both orders fit every "
        f"date. Hint: write them as 2026-01-31; or say how they are written, and read the file by SQL: "
        f"\"SELECT * FROM {read}('{name}', dateformat='{form}')\", with %m first if the month comes first."
    )
