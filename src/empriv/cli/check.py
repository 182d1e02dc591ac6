"""The commands `init`, `check` and `explain`: what comes before an audit, and an audit.toml as a gate."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from empriv.base.text import shortened
from empriv.cli.config import Settings, read_config, settings_of, toml_text
from empriv.cli.inputs import (
    audit_of,
    check_targets,
    check_trust,
    key_of,
    needs_trust,
    one_table,
    paths_read,
    source_of,
)
from empriv.cli.options import query_option, quiet_option, source_options
from empriv.cli.running import at_the_data, engine_of, finish, limits_of, write_text
from empriv.cli.terminal import as_typed, echo, printable, with_keys
from empriv.errors import EmprivError, InputError
from empriv.words.sentences import number

if TYPE_CHECKING:
    from empriv.collecting.profile import TableProfile


@click.command()
@click.argument("path", metavar="AUDIT.TOML")
@click.option(
    "--dry-run", is_flag=True, help="See whether files, columns, queries and promises are valid; run nothing."
)
@click.option("--markdown", metavar="PATH", help="Write the outcome for a pull request's summary; - prints it instead.")
@click.option(
    "--trust-config", is_flag=True,
    help="Let the file use SQL as a source, and files outside its own folder, in this run.",
)  # fmt: skip
@quiet_option
def check(path: str, dry_run: bool, markdown: str | None, trust_config: bool, quiet: bool | None) -> None:
    """Run an audit.toml as a gate: exit with 0 if every promise is kept, 3 if one is broken, 4 if nobody can tell.

    Promises are its `target`. What it writes (report, json, save) is written as by `empriv audit`.

    \b
    Examples:
      empriv init sales.csv
      empriv check audit.toml --dry-run
      empriv check audit.toml --markdown summary.md
    """
    config, name = read_config(path), Path(path).name
    settings = settings_of(config, {"quiet": quiet})
    for key in ("files", "individual", "query"):
        if not getattr(settings, key):
            raise InputError(f"{name} must hold `{key}`. Hint: empriv init writes a file to begin with.")
    if not settings.target:
        raise InputError(f'{name} must promise something. Hint: target = ["delta <= 0.05 at 0.1"].')
    settings.check()
    if not trust_config:
        check_trust(path, config)
    written = (settings.json, settings.save, settings.report, markdown, *key_of(settings.report))
    check_targets(written, [*paths_read(settings), path, settings.ledger])
    with _keys_in_hints():
        if dry_run:
            _validate(settings)
            if not settings.silent:
                echo(f"{name} is valid: its files, columns, queries and promises.")
            return
        text = None if markdown is None else (markdown, lambda finished: as_markdown(finished.figures or {}))
        finish(lambda engine: audit_of(settings, engine), settings, text=text, short=True)


@contextmanager
def _keys_in_hints() -> Iterator[None]:
    """Say what was wrong with the keys of the file, which this command takes instead of options."""
    try:
        yield
    except EmprivError as error:
        raise InputError(with_keys(str(error))) from error


def _validate(settings: Settings) -> None:
    """Refuse what an audit would refuse before it runs the queries."""
    from empriv.collecting import explain as explain_query

    def work(engine: Any) -> None:
        data = source_of(settings)
        for query in settings.query:
            explain_query(data, query, engine=engine)

    at_the_data(work, limits_of(settings), quiet=settings.silent)


_SIGNS = {"pass": "✅", "fail": "❌", "unresolved": "⚠️"}
_LONGEST = 300


def as_markdown(figures: Mapping[str, Any]) -> str:
    """Decision, promises and what was asked, in Markdown; ``figures`` are those of ``--json`` with a target."""
    decision, verdicts = figures["decision"], figures["verdicts"]
    worst = next((word for word in ("fail", "unresolved") if word in {v["verdict"] for v in verdicts}), "pass")
    lines = [f"### {_SIGNS[worst]} {_plain(decision['line'])}", ""]
    lines += [_plain(decision["reason"]), "", f"<sub>{_plain(decision['condition'])}</sub>", ""]
    lines += ["| promise | outcome | why |", "|---|---|---|"]
    lines += [
        f"| {_plain(v['target'])} | {_SIGNS[v['verdict']]} {v['verdict']} | {_plain(v['sentence'])} |" for v in verdicts
    ]
    first = figures["figures"][0]
    query = shortened(figures["query"], _LONGEST).replace("`", "'").replace("|", "¦")  # which would end a span of code
    lines += [
        "",
        f"- query: `{query}`",
        f"- databases: {figures['n_databases']:,}",
        f"- individuals: {figures['n_individuals']:,}",
        f"- delta at epsilon {first['epsilon']:g}: {number(first['delta'])}",
    ]
    warned = [check["sentence"] for check in figures["checks"] if check["severity"] in ("warning", "error")]
    if warned:
        lines += ["", f"<details><summary>{len(warned)} to look at</summary>", ""]
        lines += [*(f"- {_plain(sentence)}" for sentence in warned), "", "</details>"]
    return "\n".join(lines) + "\n"


def _plain(text: str) -> str:
    """Text that stays text in Markdown, in a table too, whatever it holds."""
    return re.sub(r"([\\`*_{}\[\]<>()#+!|&@~-])", r"\\\1", shortened(text, _LONGEST).replace("\n", " "))


@click.command()
@source_options
@query_option
def explain(query: str | None, **given: Any) -> None:
    """Print the SQL that is run instead of a query, which leaves out each individual in turn.

    Without FILES the types of columns are not known, and all are assumed to be integers.

    \b
    Example:
      empriv explain --query "avg(amount)"
      empriv explain sales.parquet --database day --individual client_id --query "avg(amount)"
    """
    settings = settings_of({}, given)
    if not query:
        raise click.UsageError("Missing option '--query'.")
    if settings.files and not settings.individual:
        raise click.UsageError("Missing option '--individual'.")
    from empriv.collecting import explain as explain_query

    with engine_of({}) if settings.files else nullcontext() as engine:
        text = explain_query(source_of(settings) if settings.files else None, query, engine=engine)
    click.echo("\n".join(map(printable, text.splitlines())))


_SAMPLES = 365
_TARGET = "delta <= 0.05 at 0.1"
_REPORT = "audit.html"


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

    def work(engine: Any) -> TableProfile:
        from empriv.collecting.profile import profile

        return profile(engine, one_table(settings))

    seen = at_the_data(work, {}, quiet=bool(quiet))
    text = written(settings, seen)
    write_text(path, text)
    if quiet:
        return
    # who wrote the file may trust it to read other folders
    own = {"files": files, "table": table, "report": _REPORT}
    trust = " --trust-config" if needs_trust(path, own) else ""
    command = as_typed(f"empriv check {shlex.quote(path)} --dry-run{trust}")
    click.echo(printable(f"Wrote {Path(path).name}: read it, then {command}"))
    keys = ("individual", "database", "sub", "query")
    for line in (*seen.said, *(line for line in text.splitlines() if line.startswith(keys))):
        click.echo(printable(f"  {line}"))


def written(settings: Settings, seen: TableProfile) -> str:
    """The text of the file."""
    from empriv.collecting.sources import shown_address

    files = [shown_address(text) for text in settings.files]  # without user and password
    lines = [
        "# What is audited, and what is promised. empriv check runs this file; docs/pipeline.md lists all keys.",
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
        f"report = {toml_text(_REPORT)}",
    ]
    return "\n".join(lines) + "\n"


def _individual(seen: TableProfile) -> list[str]:
    from empriv.collecting.profile import ROW_NUMBERS

    if not seen.individuals:
        return [
            f"# No column looks like it. There are: {_named(seen.columns)}.",
            f"individual = {toml_text(_likeliest(seen))}  # please choose",
        ]
    first, *others = seen.individuals
    nobodys = seen.rows - next((column.filled for column in seen.details if column.name == first), seen.rows)
    return [
        *([f"# {ROW_NUMBERS}"] if first in seen.row_numbers else []),
        *([f"# It may also be: {_named(others)}."] if others else []),
        f"individual = {toml_text(first)}",
        *(
            [
                f"# {nobodys:,} of {seen.rows:,} rows have nobody there: keep has them in as nobody's, drop has not.",
                'unidentified = "keep"',
            ]
            if nobodys
            else []
        ),
    ]


def _likeliest(seen: TableProfile) -> str:
    """A column to begin with: one whose values return, and which is no time."""
    returning = [column.name for column in seen.details if 1 < column.different < seen.rows and not column.is_time]
    return (returning or list(seen.columns))[0]


def _databases(seen: TableProfile) -> list[str]:
    from empriv.collecting.profile import LEAST_DATABASES

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
        "# What is published is then the answer of one sample, which stays secret (docs/data.md).",
        *cuts,
        f"subsamples = {_SAMPLES}",
        "fraction = 0.5",
    ]


def _query(seen: TableProfile) -> list[str]:
    from empriv.collecting.profile import in_sql

    person = seen.individuals[0] if seen.individuals else _likeliest(seen)
    numbers = [in_sql(name) for name in seen.amounts if name != person]
    if not numbers:
        return ['query = "count(*)"']
    others = [f"avg({number})" for number in numbers[1:4]]
    also = ", ".join(map(toml_text, ["count(*)", f"sum({numbers[0]})", *others]))
    return [f"# Or: {also}.", f"query = {toml_text(f'avg({numbers[0]})')}"]


def _named(names: Any) -> str:
    """Names in a comment: on one line, whatever they hold."""
    return ", ".join(toml_text(shortened(name)) for name in list(names)[:8]) + (", ..." if len(names) > 8 else "")
