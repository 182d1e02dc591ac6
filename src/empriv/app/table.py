"""The table of an audit as its pages need it: what its columns look like, and how many databases a choice makes.

Looking takes a process beside the server, and is remembered until a file changes, so that pages are there at once.
Large files of text are parsed once, into a copy that nobody else may read.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import Request

from empriv.app.folder import COPIES, TEXT
from empriv.app.jobs import engine_beside
from empriv.app.pages import folder_of, workers_of
from empriv.cli.config import Settings

if TYPE_CHECKING:
    from empriv.collecting.profile import ColumnProfile, TableProfile, Values

T = TypeVar("T")
UNITS = ("hour", "day", "week", "month")
FILES, SAMPLES, SQL = ":files", ":samples", ":sql"
"""What databases may be besides expressions of the table's columns; no SQL begins with a colon."""
_LEAST = 30  # databases, below which random samples are suggested, as `empriv init` does
_REMEMBERED = 64
_WHILE = 600.0  # seconds
_LARGE = 16 << 20  # bytes of text that are parsed once
_KEPT = 3  # copies
_FIRST_ROWS = 8


@dataclass(frozen=True)
class TablePreview:
    """A table as it was seen, and of how many files it is."""

    seen: TableProfile
    files: int

    @property
    def columns(self) -> tuple[ColumnProfile, ...]:
        return self.seen.details

    @property
    def names(self) -> tuple[str, ...]:
        return self.seen.columns

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns of numbers, likeliest first."""
        amounts = self.seen.amounts
        return (*amounts, *(c.name for c in self.columns if c.is_number and c.name not in amounts))

    def column_named(self, text: str) -> str:
        return as_written(text, self.names)

    @cached_property
    def choices(self) -> dict[str, tuple[str, str]]:
        """What a database may be: expressions of time and of each column, and more; with a title and a noun."""
        choices: dict[str, tuple[str, str]] = {}
        for column in (column for column in self.columns if column.is_time):
            for unit in UNITS if column.moments else UNITS[1:]:
                choices[self.cut(column, unit)] = (f"Each {unit} of {column.name}", unit)
        for column in self.columns:
            title = f"Each value of {column.name} ({different_in_words(column)})"
            choices.setdefault(self.cut(column), (title, "database"))
        if self.files > 1:
            choices[FILES] = (f"Each file ({self.files})", "file")
        choices[SAMPLES] = ("There is one table only: random samples of people from it", "random sample")
        choices[SQL] = ("An SQL expression", "database")
        return choices

    @property
    def likeliest(self) -> str:
        """The likeliest of the choices."""
        cuts = (cut for cut, count in self.seen.databases if count >= _LEAST and cut in self.choices)
        return next(cuts, FILES if self.files >= _LEAST else SAMPLES)

    def cut(self, column: ColumnProfile, unit: str = "") -> str:
        """The expression that makes a database of each unit of a time, or of each value."""
        expression = column.cut(unit) if unit else column.as_database
        return column.name if expression in self.names else expression  # which another column may be called


@dataclass(frozen=True)
class DataReach:
    """How far the databases of a choice reach: counts, the smallest delta that they support, and what to warn of.

    ``first`` and ``last`` are labels of the databases that sort first and last; ``each_in`` says in how many a person
    is on average, and ``once`` whether nobody is in more than one.
    """

    rows: int
    unidentified: int
    databases: int
    individuals: int
    least_delta: float
    enough: int
    warnings: tuple[str, ...]
    first: str = ""
    last: str = ""
    each_in: str = ""
    once: bool = False


def as_written(text: str, among: Collection[str]) -> str:
    """A text as it was before a form sent it, which writes every line break as CR LF."""
    return text if text in among else next((each for each in among if each.splitlines() == text.splitlines()), text)


async def table_of_audit(request: Request, settings: Settings) -> TablePreview:
    """Look at the table, unless it was looked at before."""
    folder_of(request).check_sources(settings)
    return await remembered(request, _rows_of(request, settings), profile_of, settings)


def table_if_known(request: Request, settings: Settings) -> TablePreview | None:
    """The table, if it was looked at before."""
    table: TablePreview | None = _memory(request).get((profile_of, _rows_of(request, settings)))
    return table


async def values_of_audit(request: Request, settings: Settings, table: TablePreview) -> Values:
    """The first rows and the ends of columns."""
    ordered = tuple(column.name for column in table.columns if column.is_number or column.is_time)
    return await remembered(request, _rows_of(request, settings), values_at, settings, ordered)


async def reach_of_audit(request: Request, settings: Settings) -> DataReach:
    """Count databases and people."""
    folder_of(request).check_sources(settings)
    made = (settings.individual, settings.database, settings.subsamples, settings.fraction)
    key = (_rows_of(request, settings), *made, settings.unidentified, settings.timezone)
    return await remembered(request, key, count_of, settings)


async def remembered(request: Request, key: Any, function: Callable[..., T], *arguments: Any) -> T:
    """What a function gives beside the server; what it gave before, if the key is the same."""
    memory = _memory(request)
    if (function, key) not in memory:
        answer = await workers_of(request).run(function, *arguments)
        while len(memory) >= _REMEMBERED:
            memory.pop(next(iter(memory)))
        memory[function, key] = answer
    given: T = memory[function, key]
    return given


def with_parsed_copy(settings: Settings) -> Settings:
    """Settings that read the same rows, of a large text file from its copy; called beside the server, in the folder."""
    file = Path(settings.files[0]) if len(settings.files) == 1 and settings.sql is None else Path()
    if file.suffix.lower() not in TEXT or not file.is_file() or file.stat().st_size < _LARGE:
        return settings
    state = file.stat()
    mark = hashlib.sha256(repr((str(file.resolve()), state.st_mtime_ns, state.st_size)).encode()).hexdigest()[:32]
    copy = Path(COPIES) / f"{mark}.parquet"
    if not copy.exists():
        _copy(settings, copy)
    return replace(settings, files=(str(copy),))


def _copy(settings: Settings, copy: Path) -> None:
    from empriv.cli.inputs import one_table
    from empriv.collecting.profile import whole

    copy.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = copy.with_suffix(f".{secrets.token_hex(4)}")
    try:
        with engine_beside() as engine, engine.session(whole(one_table(settings))) as session:
            session.copy_rows(str(temporary))
        temporary.replace(copy)
    finally:
        temporary.unlink(missing_ok=True)
    for old in sorted(copy.parent.glob("*.parquet"), key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        old.unlink(missing_ok=True)


def profile_of(settings: Settings) -> TablePreview:
    """What a table holds; called beside the server."""
    from empriv.cli.inputs import one_table, paths_read
    from empriv.collecting.profile import profile

    with engine_beside() as engine:
        return TablePreview(
            profile(engine, one_table(with_parsed_copy(settings))), len(paths_read(replace(settings, tables={})))
        )


def values_at(settings: Settings, ordered: tuple[str, ...]) -> Values:
    """Some values of a table; called beside the server."""
    from empriv.cli.inputs import one_table
    from empriv.collecting.profile import values

    with engine_beside() as engine:
        return values(engine, one_table(with_parsed_copy(settings)), _FIRST_ROWS, ordered)


def kind_in_words(column: ColumnProfile) -> str:
    """A column's kind, as people who know no SQL would say it."""
    if column.is_time:
        return "time" if column.moments else "date"
    words = {"integer": "whole number", "decimal": "decimal number", "double": "number", "boolean": "yes or no"}
    return words.get(column.kind, "text")


def different_in_words(column: ColumnProfile) -> str:
    """How many different values a column has, and in how many databases each is, where that was counted."""
    about = "about " if column.about else ""
    each = f", each in {column.each_in:.3g} databases" if column.each_in else ""
    return f"{about}{column.different:,} different{each}"


def count_of(settings: Settings) -> DataReach:
    """How far databases reach; called beside the server."""
    from empriv.cli.inputs import source_of
    from empriv.collecting.profile import ROW_NUMBERS, count
    from empriv.judge.upper import LEAST_DATABASES
    from empriv.ledger.values import label_text
    from empriv.validate.bounds import floor
    from empriv.words.decision import too_few

    with engine_beside() as engine:
        counted = count(engine, source_of(with_parsed_copy(settings)))
    identified = counted.rows - counted.unidentified
    warnings = [counted.out_of_order, too_few(counted.databases, LEAST_DATABASES)]
    if counted.individuals == identified > 1:
        warnings.append(f"Who a row belongs to: {ROW_NUMBERS[0].lower()}{ROW_NUMBERS[1:]}")
    if counted.individuals <= 1:
        warnings.append("There must be several people: what one person adds is all that there is.")
    mean = counted.pairs / counted.individuals if counted.individuals else 0.0
    once = counted.individuals > 1 and counted.databases > 1 and counted.pairs == counted.individuals
    if once and counted.individuals != identified:
        warnings.append(
            "Nobody is in more than one database. Does this column name receipts or visits, rather than people? People "
            "come back."
        )
    return DataReach(
        counted.rows, counted.unidentified, counted.databases, counted.individuals,
        floor(counted.databases, 0.95), LEAST_DATABASES, tuple(filter(None, warnings)),
        label_text(counted.first), label_text(counted.last), f"{mean:.3g}" if counted.pairs else "", once,
    )  # fmt: skip


def _rows_of(request: Request, settings: Settings) -> tuple[Any, ...]:
    """By what the rows are known again: where they are, and when files last changed; those of a server, for a while."""
    marks: list[Any] = [int(time.monotonic() / _WHILE) if any("://" in text for text in settings.files) else None]
    for text in settings.files:
        with suppress(OSError, ValueError):
            state = (folder_of(request).path / text).stat()
            marks.append((text, state.st_mtime_ns, state.st_size))
    return (settings.files, settings.table, settings.sql, tuple(settings.tables.items()), tuple(marks))


def _memory(request: Request) -> dict[Any, Any]:
    """Of this run of the app alone."""
    state = request.app.state
    if not hasattr(state, "tables_previewed"):
        state.tables_previewed = {}
    memory: dict[Any, Any] = state.tables_previewed
    return memory
