"""The command `check`: an audit.toml as a gate, whose exit code says whether what it promises is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from empriv.cli.audit import run_audit
from empriv.cli.config import Settings, read_config, settings_of, to_toml
from empriv.cli.inputs import beside_report, check_targets, density_from_name, paths_read, source_of
from empriv.cli.markdown import as_markdown
from empriv.cli.options import quiet_option
from empriv.cli.output import exit_by, judged, print_outcomes, printing, verdict_on, write_json, write_to
from empriv.cli.policy import Judgement, judge, parse_policy, parse_target
from empriv.cli.running import check_report, engine_of, interruptible, limits_of
from empriv.cli.terminal import printable
from empriv.cli.trust import check_trust
from empriv.errors import InputError

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.validate.verdict import Verdict
    from empriv.words.decision import Decision


@dataclass(frozen=True)
class Checked:
    """An audit, and the outcomes of all that was promised."""

    audit: Audit
    outcomes: tuple[Judgement, ...]
    verdicts: tuple[tuple[str, Verdict], ...]

    @property
    def decision(self) -> Decision:
        return self.audit.decision([verdict for _, verdict in self.verdicts])

    @property
    def figures(self) -> dict[str, Any]:
        return {**self.audit.to_json(), **judged(self.decision, self.outcomes, self.verdicts)}


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

    Promises are its `target` and `fail_if`. What it writes (report, json, save) is written as by `empriv audit`.

    \b
    Examples:
      empriv init sales.csv
      empriv check audit.toml --dry-run
      empriv check audit.toml --markdown summary.md
    """
    settings = _settings(path, trusted=trust_config)
    silent = bool(quiet) or settings.quiet
    written = (settings.json, settings.save, settings.report, None if markdown == "-" else markdown)
    read = [*paths_read(settings), path, *([] if settings.ledger is None else [settings.ledger])]
    check_targets((*written, *beside_report(settings.report, everything=settings.beside)), read)
    with engine_of(limits_of(settings)) as engine:
        if dry_run:
            interruptible(lambda: _validate(settings, engine), quiet=silent, saying="Looking at the data")
            if not silent:
                click.echo(printable(f"{Path(path).name} is valid: its files, columns, queries and promises."))
            return
        checked = interruptible(lambda: _checked(run_audit(settings, engine), settings), quiet=silent)
    with printing():
        if markdown == "-":
            click.echo(as_markdown(checked.figures), nl=False)
        elif not silent:
            _print(checked)
    _write(checked, settings, None if markdown == "-" else markdown, silent=silent or markdown == "-")
    exit_by(checked.outcomes, checked.verdicts)


def _settings(path: str, *, trusted: bool) -> Settings:
    config = read_config(path)
    settings = settings_of(config, {})
    name = Path(path).name
    for key in ("files", "individual", "query"):
        if not getattr(settings, key):
            raise InputError(f"{name} must hold `{key}`. Hint: empriv init writes a file to begin with.")
    if not settings.target and not settings.fail_if:
        raise InputError(f'{name} must promise something. Hint: target = ["delta <= 0.05 at 0.1"].')
    settings.check_adversary()
    check_report(settings)
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


def _checked(audit: Audit, settings: Settings) -> Checked:
    outcomes = tuple(judge(parse_policy(text), audit) for text in settings.fail_if)
    verdicts = tuple(
        (text, verdict_on(audit, parse_target(text), settings.basis, settings.presence)) for text in settings.target
    )
    return Checked(audit, outcomes, verdicts)


def _print(checked: Checked) -> None:
    """The decision, and each promise with its outcome."""
    if checked.verdicts:
        decision = checked.decision
        click.secho(printable(decision.line), bold=True)
        for line in (decision.reason, decision.condition):
            click.echo(click.wrap_text(printable(line), 80))
    for text, verdict in checked.verdicts:
        colour = {"pass": "green", "fail": "red"}.get(verdict, "yellow")
        click.secho(printable(f"{verdict.upper()}: {text}"), fg=colour)
    print_outcomes(checked.outcomes)


def _write(checked: Checked, settings: Settings, markdown: str | None, *, silent: bool) -> None:
    from empriv.base.storage import write_atomically

    audit, written = checked.audit, []
    if settings.save is not None:
        write_to(settings.save, audit.save)
        written.append(settings.save)
    if settings.json is not None:
        write_json(settings.json, checked.figures)
        written += [] if settings.json == "-" else [settings.json]
    if settings.report is not None:
        config = None if settings.public else to_toml(settings)
        shown: dict[str, Any] = {"show_ids": settings.show_ids, "public": settings.public, "beside": settings.beside}
        made: list[Any] = []
        write_to(
            settings.report,
            lambda page: made.append(audit.report(page, verdicts=checked.verdicts, config=config, **shown)),
        )
        written.append(settings.report)
    if markdown is not None:
        text = as_markdown(checked.figures).encode()
        write_to(markdown, lambda target: write_atomically(target, text, mode=0o644))
        written.append(markdown)
    if written and not silent:
        click.echo(printable(f"Wrote {', '.join(written)}."))
