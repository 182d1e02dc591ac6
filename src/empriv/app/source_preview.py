"""The table of an audit as its pages need it: columns, what they may be, and how many databases a choice makes.

Looking takes a process beside the server, and is remembered until a file changes, so that pages are there at once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass, replace
from typing import Any, TypeVar

from starlette.requests import Request

from empriv.app.pages import folder_of, workers_of
from empriv.app.workers import engine_beside
from empriv.cli.config import Settings

T = TypeVar("T")
UNITS = ("hour", "day", "week", "month")
_REMEMBERED = 64
_WHILE = 600.0  # seconds


@dataclass(frozen=True)
class PreviewedColumn:
    """A column; ``facts`` are all that was seen of it, for who looks closer beside the server.

    ``cuts`` are the expressions that make a database of each of `UNITS`, if it is a time, and ``as_database`` is the
    one that makes a database of each value.
    """

    name: str
    says: str
    filled: int
    different: int
    is_number: bool
    is_time: bool
    moments: bool
    zoned: bool
    cuts: tuple[str, ...]
    as_database: str
    facts: tuple[Any, ...]


@dataclass(frozen=True)
class SourcePreview:
    """A table, with columns that may say whom a row belongs to and expressions that may cut it, likeliest first."""

    rows: int
    columns: tuple[PreviewedColumn, ...]
    individuals: tuple[str, ...]
    databases: tuple[tuple[str, int], ...]
    amounts: tuple[str, ...]
    files: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    def column_named(self, text: str) -> str:
        """A column as a form sends it, which writes every line break of a name as CR LF."""
        if text in self.names:
            return text
        return next((name for name in self.names if name.splitlines() == text.splitlines()), text)

    @property
    def times(self) -> tuple[PreviewedColumn, ...]:
        return tuple(column for column in self.columns if column.is_time)

    @property
    def numbers(self) -> tuple[str, ...]:
        """Columns of numbers, likeliest first."""
        return (*self.amounts, *(c.name for c in self.columns if c.is_number and c.name not in self.amounts))


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


async def table_of_audit(request: Request, settings: Settings) -> SourcePreview:
    """Look at the table, unless it was looked at before."""
    folder_of(request).check_sources(settings)
    return await remembered(request, _rows_of(request, settings), look_at, settings)


def table_if_known(request: Request, settings: Settings) -> SourcePreview | None:
    """The table, if it was looked at before."""
    table: SourcePreview | None = _memory(request).get((look_at, _rows_of(request, settings)))
    return table


async def reach_of_audit(request: Request, settings: Settings) -> DataReach:
    """Count databases and people."""
    folder_of(request).check_sources(settings)
    return await remembered(request, databases_of(request, settings), count_of, settings)


def databases_of(request: Request, settings: Settings) -> tuple[Any, ...]:
    """By what databases and people are known again."""
    return (
        _rows_of(request, settings), settings.individual, settings.database, settings.subsamples, settings.fraction,
        settings.unidentified, settings.timezone,
    )  # fmt: skip


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


def look_at(settings: Settings) -> SourcePreview:
    """What a table holds; called beside the server."""
    from empriv.cli.inputs import one_table, paths_read
    from empriv.collecting.looking import look

    with engine_beside() as engine:
        seen = look(engine, one_table(settings))

    def unmistakable(expression: str, name: str) -> str:
        """The expression, unless another column is called like it: then the name alone."""
        return name if expression in seen.columns else expression

    columns = tuple(
        PreviewedColumn(
            column.name, kind_in_words(column.kind, column.is_time, column.moments), column.filled, column.different,
            column.is_number, column.is_time, column.moments > 0, column.zoned > 0,
            tuple(unmistakable(column.cut(unit), column.name) for unit in UNITS) if column.is_time else (),
            unmistakable(column.as_database, column.name), astuple(column),
        )
        for column in seen.closely
    )  # fmt: skip
    files = len(paths_read(replace(settings, tables={})))
    return SourcePreview(seen.rows, columns, seen.individuals, seen.databases, seen.amounts, files)


def kind_in_words(kind: str, is_time: bool, moments: int) -> str:
    """The type of a column for people who do not know types."""
    if is_time:
        return "time" if moments else "date"
    words = {"integer": "whole number", "decimal": "decimal number", "double": "number", "boolean": "yes or no"}
    return words.get(kind, "text")


def count_of(settings: Settings) -> DataReach:
    """How far databases reach; called beside the server."""
    from empriv.cli.inputs import source_of
    from empriv.collecting.looking import ROW_NUMBERS, count
    from empriv.ledger.values import label_text
    from empriv.validate.bounds import LEAST_DATABASES
    from empriv.validate.facts_by_kind import smallest_supported_delta
    from empriv.words.planning import too_few

    with engine_beside() as engine:
        counted = count(engine, source_of(settings))
    warnings = [counted.out_of_order, too_few(counted.databases, LEAST_DATABASES)]
    if counted.individuals == counted.rows - counted.unidentified > 1:
        warnings.append(f"Who a row belongs to: {ROW_NUMBERS[0].lower()}{ROW_NUMBERS[1:]}")
    if counted.individuals <= 1:
        warnings.append("There must be several people: what one person adds is all that there is.")
    mean = counted.pairs / counted.individuals if counted.individuals else 0.0
    once = counted.individuals > 1 and counted.databases > 1 and counted.pairs == counted.individuals
    if once and counted.individuals != counted.rows - counted.unidentified:
        warnings.append(
            "Nobody is in more than one database. Does this column name receipts or visits, rather than people? People "
            "come back."
        )
    return DataReach(
        counted.rows, counted.unidentified, counted.databases, counted.individuals,
        smallest_supported_delta(counted.databases), LEAST_DATABASES, tuple(filter(None, warnings)),
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
    if not hasattr(state, "tables_at_hand"):
        state.tables_at_hand = {}
    memory: dict[Any, Any] = state.tables_at_hand
    return memory
