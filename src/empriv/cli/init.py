"""The command `init`: look at the data, and write an audit.toml to begin with."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from empriv.cli.config import Settings, toml_text
from empriv.cli.hints import as_typed
from empriv.cli.inputs import check_targets, one_table, paths_read
from empriv.cli.options import quiet_option
from empriv.cli.running import LOOKING, bar_of, engine_of, interruptible
from empriv.cli.terminal import printable
from empriv.errors import InputError

if TYPE_CHECKING:
    from empriv.collecting.looking import TableSeen

_SAMPLES = 365
_TARGET = "delta <= 0.05 at 0.1"


@click.command()
@click.argument("files", metavar="DATA...", nargs=-1, required=True)
@click.option("--table", metavar="TABLE", help="Which table of a PostgreSQL server or a database file.")
@click.option("--write", "path", metavar="PATH", default="audit.toml", show_default=True, help="Where to write it.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@quiet_option
def init(files: tuple[str, ...], table: str | None, path: str, force: bool, quiet: bool | None) -> None:
    """Look at the data, and write a commented audit.toml: a beginning, for you to read and change.

    It goes by names of columns, their types and how many different values they have. No value is written down.

    \b
    Examples:
      empriv init sales.csv
      empriv check audit.toml --dry-run
    """
    if Path(path).exists() and not force:
        raise InputError(f"`--write` must name a new file, got {path!r}, which is there. Hint: --force replaces it.")
    settings = Settings(files=files, table=table)
    check_targets([path], paths_read(settings))

    def work() -> TableSeen:
        from empriv.collecting.looking import look

        with engine_of({}) as engine:
            return look(engine, one_table(settings))

    bar = bar_of((LOOKING,), quiet=bool(quiet))
    bar.begin(LOOKING)
    seen = interruptible(work)
    bar.pause()
    from empriv.base.storage import write_atomically
    from empriv.cli.output import write_to

    text = written(settings, seen)
    write_to(path, lambda target: write_atomically(target, text.encode(), mode=0o644))
    if not quiet:
        click.echo(printable(f"Wrote {Path(path).name}: read it, then {_next(path, settings)}"))
        for sentence in seen.said:
            click.echo(printable(f"  {sentence}"))
        for line in (line for line in text.splitlines() if line.startswith(("individual", "database", "sub", "query"))):
            click.echo(printable(f"  {line}"))


def _next(path: str, settings: Settings) -> str:
    """The command that goes on from here; who wrote the file may trust it to read other folders."""
    from empriv.cli.trust import needs_trust

    trust = " --trust-config" if needs_trust(path, {"files": settings.files, "table": settings.table}) else ""
    return as_typed(f"empriv check {shlex.quote(path)} --dry-run{trust}")


def written(settings: Settings, seen: TableSeen) -> str:
    """The text of the file."""
    from empriv.collecting.sources import shown_address

    files = [shown_address(text) for text in settings.files]  # without user and password
    lines = [
        "# What is audited, and what is promised. empriv check runs this file; docs/formats.md lists all keys.",
        f"files = {toml_text(files if len(files) > 1 else files[0])}",
        *([] if settings.table is None else [f"table = {toml_text(settings.table)}"]),
        "",
        "# Whom a row belongs to: the person, or whatever else is to be protected.",
        *_individual(seen),
        "",
        *_databases(seen),
        "",
        "# What is published: an SQL expression of aggregates, or SELECT ... FROM data.",
        *_query(seen),
        "",
        "# The promise. At epsilon 0.1, nobody's privacy may fail with a probability above 0.05.",
        f"target = [{toml_text(_TARGET)}]",
        "",
        "# What readers know besides: auto is the calendar and previous answers, as far as they tell.",
        'known = "auto"',
        "",
        '# What is written. Add ledger = "releases.ledger" once you publish, so that releases are counted together.',
        'report = "audit.html"',
    ]
    return "\n".join(lines) + "\n"


def _individual(seen: TableSeen) -> list[str]:
    if not seen.individuals:
        return [
            f"# No column looks like it. There are: {_named(seen.columns)}.",
            f"individual = {toml_text(_likeliest(seen))}  # please choose",
        ]
    first, *others = seen.individuals
    lines = [f"individual = {toml_text(first)}"]
    if others:
        lines.insert(0, f"# It may also be: {_named(others)}.")
    nobodys = seen.rows - next((column.filled for column in seen.closely if column.name == first), seen.rows)
    if nobodys:
        lines += [
            f"# {nobodys:,} of {seen.rows:,} rows have nobody there: keep has them in as nobody's, drop has not.",
            'unidentified = "keep"',
        ]
    if first in seen.row_numbers:
        from empriv.collecting.looking import ROW_NUMBERS

        lines.insert(0, f"# {ROW_NUMBERS}")
    return lines


def _likeliest(seen: TableSeen) -> str:
    """A column to begin with: one whose values return, and which is no time."""
    returning = [column.name for column in seen.closely if 1 < column.different < seen.rows and not column.is_time]
    return (returning or list(seen.columns))[0]


def _databases(seen: TableSeen) -> list[str]:
    from empriv.collecting.looking import LEAST_DATABASES

    cuts = [f"# {toml_text(cut)} makes {count:,} databases." for cut, count in seen.databases]
    if seen.databases and seen.databases[0][1] >= LEAST_DATABASES:
        (cut, count), *_ = seen.databases
        return [
            f"# How rows are cut into databases of one kind: into {count:,}, and one answer of each is published.",
            *cuts[1:],
            f"database = {toml_text(cut)}",
        ]
    reason = "No column cuts the rows into databases" if not cuts else "Too few databases to learn from"
    return [
        f"# {reason}, so random samples of people are drawn from one table.",
        "# What is published is then the answer of one sample, which stays secret (docs/one-table.md).",
        *cuts,
        f"subsamples = {_SAMPLES}",
        "fraction = 0.5",
    ]


def _query(seen: TableSeen) -> list[str]:
    from empriv.collecting.looking import in_sql

    person = seen.individuals[0] if seen.individuals else _likeliest(seen)
    numbers = [in_sql(name) for name in seen.amounts if name != person]
    if not numbers:
        return ['query = "count(*)"']
    others = [f"avg({number})" for number in numbers[1:4]]
    also = ", ".join(map(toml_text, ["count(*)", f"sum({numbers[0]})", *others]))
    return [f"# Or: {also}.", f"query = {toml_text(f'avg({numbers[0]})')}"]


def _named(names: Any) -> str:
    """Names in a comment: on one line, whatever they hold."""
    from empriv.base.harmless import shortened

    return ", ".join(toml_text(shortened(name)) for name in list(names)[:8]) + (", ..." if len(names) > 8 else "")
