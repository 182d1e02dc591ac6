"""The command `noise`: noise is designed, or read, for a saved audit, and shown, of one number or several."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from empriv.base.targets import PRESENCES
from empriv.cli.config import Settings, settings_of
from empriv.cli.inputs import check_targets, saved_audit, saved_noise
from empriv.cli.options import quiet_option
from empriv.cli.running import (
    PAGE,
    POLICY_FAILED,
    bar_of,
    interruptible,
    printing,
    say_written,
    write_json,
    write_to,
)
from empriv.cli.terminal import (
    as_typed,
    console_for,
    echo,
    line_of,
    print_screen,
    printable,
    table_of,
    with_options,
)
from empriv.errors import CertificateError
from empriv.noise import METHODS

if TYPE_CHECKING:
    from rich.console import Console

    from empriv.auditing.audit import Audit
    from empriv.noise.noise import Noise
    from empriv.noise.table_noise import TableNoise
    from empriv.validate.verdict import Verdict


@click.command()
@click.argument("path", metavar="SAVED")
@click.option("--epsilon", type=float, required=True, metavar="E", help="The epsilon to reach.")
@click.option(
    "--delta", type=float, metavar="D", help="Limit on each individual's delta_i. [several numbers: default 0]"
)
@click.option(
    "--method", type=click.Choice(METHODS), default="least",
    help="How to design the noise; as-it-is adds none, and says what that assumes. [default: least]",
)  # fmt: skip
@click.option("--dither", is_flag=True, help="At least as much noise as lets the bound assume nothing of the answers.")
@click.option(
    "--granularity", type=float, metavar="G",
    help="Answers are released in multiples of it: a decimal such as 0.01, or a power of two.",
)  # fmt: skip
@click.option(
    "--bound", type=float, metavar="B", help="The most that one individual can change an answer, if you know it."
)
@click.option(
    "--times", type=click.IntRange(min=1), metavar="N",
    help="Publications, each from a database of its own, that together keep the target. [default: as the audit asks]",
)  # fmt: skip
@click.option(
    "--presence", type=click.Choice(PRESENCES),
    help="Where the target must be met: in a random database and on the day that people are in, or in a random one "
    "alone. [default: both]",
)  # fmt: skip
@click.option("--consistent", is_flag=True, help="Of several numbers: make margins add up again after the noise.")
@click.option("--save", metavar="PATH", help="Save the noise, for `empriv release` (mode 0600).")
@click.option("--report", metavar="PATH", help="Write the page of the answer with this noise, one file of HTML.")
@click.option("--json", metavar="PATH", help="Write the figures; - prints them instead.")
@quiet_option
def noise(
    path: str, epsilon: float, delta: float | None, save: str | None, report: str | None, json: str | None,
    quiet: bool | None, **asked: Any,
) -> None:  # fmt: skip
    """Design the least noise for an audit that was saved with --save; the same bound judges it as judges the answer.

    Exit codes: 0 done, 3 no noise keeps the promise; nothing is saved then.

    \b
    Example:
      empriv noise audit.empriv --epsilon 0.1 --delta 0.05 --dither --granularity 0.25 --save noise.empriv
    """
    from empriv.noise.design import design_noise

    check_targets((save, report, json), (path,))
    settings = settings_of({}, {"json": json, "report": report, "quiet": quiet, "epsilon": (epsilon,)})
    audit = interruptible(lambda: saved_audit(path, settings).alone)
    if audit.results.components is None:
        if asked["consistent"]:
            raise click.UsageError("--consistent must be for several numbers, got one.")
        if delta is None:
            raise click.UsageError("--delta must be given for noise on one number.")
    elif asked["method"] != "least" or asked["dither"] or (asked["times"] or 1) > 1 or asked["bound"] is not None:
        raise click.UsageError(
            "Several numbers together take only --epsilon, --delta, --granularity, --presence and --consistent."
        )

    _tell(lambda: design_noise(audit, epsilon=epsilon, delta=delta or 0.0, **asked), audit, settings, path, save)


def show_noise(noise_path: str, path: str, settings: Settings) -> None:
    """Show an audit's answer with saved noise, certified anew for it; exit with code 3 if it keeps no promise there."""
    saved = saved_noise(noise_path, "--noise")
    audit = saved_audit(path, settings).alone
    _tell(lambda: saved.certified_for(audit), audit, settings, path)


def _tell(
    make: Callable[[], Noise | TableNoise], audit: Audit, settings: Settings, path: str, save: str | None = None
) -> None:
    """Print noise and write its files; exit with code 3 if an answer must not be released with it."""
    from empriv.noise.design import classical_noise
    from empriv.noise.noise import Noise
    from empriv.report import write_report

    page = () if settings.report is None else (PAGE,)
    bar = bar_of(("Designing noise", "Judging", *page), quiet=settings.silent)
    console = console_for(sys.stdout)

    def work() -> tuple[Any, dict[str, Any], Sequence[str], Sequence[Any]]:
        from empriv.auditing.deciding import reasons_against

        bar.begin("Designing noise")
        made = make()
        bar.begin("Judging")
        if not isinstance(made, Noise):
            against = reasons_against(made, audit)
            return made, {}, against, () if settings.silent else _screen_of_table(console, made, against)
        before = audit.verdict(epsilon=made.epsilon, delta=made.delta, presence=made.presence)
        against = reasons_against(made, audit, [before])
        classical = classical_noise(made)
        beside = None
        if classical is not None:
            beside = {"kernel": classical.kind, "scale": classical.scale, "expected_error": classical.error}
        figures = {"classical": beside, "verdict_before": str(before)}
        screen = () if settings.silent else _screen(console, made, beside, before, against, audit)
        return made, figures, against, screen

    try:
        made, figures, against, screen = interruptible(work)
    except CertificateError as error:
        bar.pause()
        click.echo(f"Error: {with_options(str(error))}", err=True)
        click.get_current_context().exit(POLICY_FAILED)
    bar.pause()
    with printing():
        print_screen(screen, console)
    if save is not None and not against:
        made.save(save, **({"density": audit.density} if isinstance(made, Noise) else {}))
    if save is not None and not settings.silent:
        with printing():
            _say_next(made, path, save, against)
    if settings.report is not None:
        bar.begin(PAGE)
        write_to(settings.report, lambda target: write_report(audit, target, noise=made))
        bar.pause()
        if not settings.silent:
            say_written(Path(settings.report).name)
    if settings.json is not None:
        write_json(settings.json, {**made.to_json(), **figures, "against": list(against)})
    if against:
        click.get_current_context().exit(POLICY_FAILED)


def _screen(
    console: Console, made: Noise, classical: dict[str, Any] | None, before: Verdict, against: Sequence[str],
    audit: Audit,
) -> list[Any]:  # fmt: skip
    from empriv.auditing.deciding import typical_answer
    from empriv.words.sentences import amount, leaves_little, number, tells_little

    lines = [made.law.words, f"It moves an answer by ±{amount(made.expected_error, made.unit)} on average."]
    if classical is not None and classical["expected_error"] > 0:
        usual = classical["expected_error"]
        lines.append(
            "Classical noise that hides the same move at the same epsilon and delta: "
            f"±{amount(usual, made.unit)} ({classical['kernel']}); this is {number(made.expected_error / usual)} of it."
        )
    often = f" after {made.times:,} publications" if made.times > 1 else ""
    lines.append(f"Upper bound on delta with it{often}: {number(made.achieved_delta())} at epsilon {made.epsilon:g}.")
    if made.times == 1 and made.presence == "both":
        lines.append(f"It hides anyone who moves the answer by up to {amount(made.cover, made.unit)}.")
    lines.append(f"Verdict without noise: {before}. With it: {'unresolved' if against else 'pass'}.")
    little = tells_little(made.expected_error, typical_answer(audit.results))
    lines += [*against, *([leaves_little()] if little else []), *made.notes]
    title = f"Noise for epsilon {made.epsilon:g}, delta {made.delta:g} ({made.method})"
    return [line_of(title, console, "bold"), *(line_of(line, console) for line in lines)]


def _screen_of_table(console: Console, made: TableNoise, against: Sequence[str]) -> list[Any]:
    from empriv.words.sentences import number

    title = f"Noise for {len(made.laws)} numbers together, epsilon {made.epsilon:g}, delta {made.delta:g}"
    table = table_of("number", "expected error", "law")
    table.columns[0].justify = table.columns[2].justify = "left"
    for name, law in made.laws.items():
        cells = (name, f"{made.expected_error[name]:.5g}", law.words)
        table.add_row(*(line_of(cell, console) for cell in cells))
    lines = [f"Upper bound on delta with it: {number(made.achieved_delta())} at epsilon {made.epsilon:g}."]
    lines += [*against, *made.notes]
    return [line_of(title, console, "bold"), table, *(line_of(line, console) for line in lines)]


def _say_next(made: Noise | TableNoise, path: str, saved: str, against: Sequence[str]) -> None:
    """How answers are released with noise that was saved, or why it was not."""
    if against:
        echo("The noise is not saved: answers must not be released with it.")
        return
    if not made.declared_granularity:
        echo("To release answers with it, declare what they are multiples of: --granularity.")
        return
    limits = f"--epsilon {made.epsilon:g} --delta {made.delta:g}"
    echo("Next: make a ledger once, and release through it; LABEL names the database:")
    for command in (
        f"empriv ledger init releases.ledger {limits}",
        f"empriv release {shlex.quote(saved)} --audit {shlex.quote(path)} --ledger releases.ledger --database LABEL",
    ):
        click.echo(printable(f"  {as_typed(command)}"))
