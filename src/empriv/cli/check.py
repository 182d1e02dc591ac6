"""The command `check`: an audit.toml as a gate, whose exit code says whether what it promises is kept."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from empriv.cli.audit import run_audit
from empriv.cli.config import Settings, read_config, settings_of, to_toml
from empriv.cli.hints import with_keys
from empriv.cli.inputs import beside_report, check_targets, density_from_name, paths_read, source_of
from empriv.cli.markdown import as_markdown
from empriv.cli.options import quiet_option
from empriv.cli.output import exit_by, judged, printing
from empriv.cli.running import (
    LOOKING,
    Finished,
    Wanted,
    bar_of,
    engine_of,
    interruptible,
    judge_all,
    limits_of,
    stages_of,
    write_files,
)
from empriv.cli.terminal import printable
from empriv.cli.trust import check_trust
from empriv.errors import EmprivError, InputError

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.words.decision import Decision


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
    settings = _settings(path, trusted=trust_config)
    wanted = Wanted.of(settings, config=to_toml(settings))
    wanted = replace(wanted, quiet=wanted.quiet or bool(quiet) or markdown == "-")
    written = (settings.json, settings.save, settings.report, None if markdown == "-" else markdown)
    read = [*paths_read(settings), path, *([] if settings.ledger is None else [settings.ledger])]
    check_targets((*written, *beside_report(settings.report, everything=settings.beside)), read)
    bar = bar_of((LOOKING,) if dry_run else stages_of(wanted), quiet=wanted.quiet)
    with engine_of(limits_of(settings)) as engine:
        if dry_run:
            bar.begin(LOOKING)
            with keys_in_hints():
                interruptible(lambda: _validate(settings, engine))
            bar.pause()
            if not wanted.quiet:
                click.echo(printable(f"{Path(path).name} is valid: its files, columns, queries and promises."))
            return
        figures_wanted = wanted.json is not None or markdown is not None

        def work() -> tuple[Finished, Decision]:
            bar.begin("Collecting")
            audit = run_audit(settings, engine)
            bar.begin("Judging")
            return _checked(audit, wanted, figures=figures_wanted)

        with keys_in_hints():
            checked, decision = interruptible(work)
    bar.pause()
    summary = None if markdown is None or checked.figures is None else as_markdown(checked.figures)
    with printing():
        if markdown == "-" and summary is not None:
            click.echo(summary, nl=False)
        elif not wanted.quiet:
            _print(checked, decision)
    text = None if markdown in (None, "-") or summary is None else (str(markdown), summary)
    write_files(checked, wanted, bar, save=settings.save, text=text)
    exit_by(checked.verdicts)


@contextmanager
def keys_in_hints() -> Iterator[None]:
    """Say what was wrong with the keys of the file, which this command takes instead of options."""
    try:
        yield
    except EmprivError as error:
        raise InputError(with_keys(str(error))) from error


def _settings(path: str, *, trusted: bool) -> Settings:
    config = read_config(path)
    settings = settings_of(config, {})
    name = Path(path).name
    for key in ("files", "individual", "query"):
        if not getattr(settings, key):
            raise InputError(f"{name} must hold `{key}`. Hint: empriv init writes a file to begin with.")
    if not settings.target:
        raise InputError(f'{name} must promise something. Hint: target = ["delta <= 0.05 at 0.1"].')
    settings.check_known()
    density_from_name(settings.density)
    if not trusted:
        check_trust(path, config)
    return settings


def _validate(settings: Settings, engine: Any) -> None:
    """Refuse what an audit would refuse before it runs the queries."""
    from empriv.collecting import explain

    data = source_of(settings)
    for query in settings.query:
        explain(data, query, engine=engine)


def _checked(audit: Audit, wanted: Wanted, *, figures: bool) -> tuple[Finished, Decision]:
    """The verdicts on all that was promised, and the decision."""
    verdicts = judge_all(audit, wanted)
    decision = audit.decision([verdict for _, verdict in verdicts])
    shown = {**audit.to_json(), **judged(decision, verdicts)} if figures else None
    return Finished(audit, shown, verdicts, None), decision


def _print(checked: Finished, decision: Decision) -> None:
    """The decision, and each promise with its outcome."""
    click.secho(printable(decision.line), bold=True)
    for line in (decision.reason, decision.condition):
        click.echo(click.wrap_text(printable(line), 80))
    for text, verdict in checked.verdicts:
        colour = {"pass": "green", "fail": "red"}.get(verdict, "yellow")
        click.secho(printable(f"{verdict.upper()}: {text}"), fg=colour)
