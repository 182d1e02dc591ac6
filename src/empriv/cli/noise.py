"""The command `noise`: parse, call the public API, print, for one number or several together.

Numerics and rich are imported inside commands, so that ``--help`` is quick.
"""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from empriv.cli.inputs import check_targets, load_audit
from empriv.cli.options import PRESENCES
from empriv.cli.output import POLICY_FAILED, write_json, write_to
from empriv.cli.running import PAGE, bar_of, interruptible
from empriv.errors import CertificateError, InputError
from empriv.noise import METHODS

if TYPE_CHECKING:
    from rich.console import Console

    from empriv.auditing.audit import Audit
    from empriv.base.progress import Bar
    from empriv.judge.noise_kernels import NoiseKernel
    from empriv.noise.noise import Noise
    from empriv.noise.table_noise import TableNoise


_NOT_SAVED = "The noise is not saved: answers must not be released with it."


@dataclass(frozen=True)
class _Designed:
    """A design beside classical noise, and the verdict without it; ``against`` says why it may not be released."""

    made: Noise
    classical: NoiseKernel | None
    before: Any
    against: tuple[str, ...]
    results: Any


@click.command()
@click.argument("path", metavar="SAVED")
@click.option("--epsilon", type=float, required=True, metavar="E", help="The epsilon to reach.")
@click.option(
    "--delta", type=float, metavar="D", help="Limit on each individual's delta_i. [several numbers: default 0]"
)
@click.option(
    "--method",
    type=click.Choice(METHODS),
    default="least",
    help="How to design the noise; as-it-is adds none, and says what that assumes. [default: least]",
)
@click.option("--dither", is_flag=True, help="At least as much noise as lets the bound assume nothing of the answers.")
@click.option(
    "--granularity",
    type=float,
    metavar="G",
    help="Answers are released in multiples of it: a decimal such as 0.01, or a power of two.",
)
@click.option(
    "--bound", type=float, metavar="B", help="The most that one individual can change an answer, if you know it."
)
@click.option(
    "--times",
    type=click.IntRange(min=1),
    default=1,
    metavar="N",
    help="Publications, each from a database of its own, that together keep the target. [default: 1]",
)
@click.option(
    "--presence",
    type=click.Choice(PRESENCES),
    help="Where the target must be met: in a random database and on the day that people are in, or in a random one "
    "alone. [default: both]",
)
@click.option("--consistent", is_flag=True, help="Of several numbers: make margins add up again after the noise.")
@click.option("--save", metavar="PATH", help="Save the noise, for `empriv release` (mode 0600).")
@click.option("--report", metavar="PATH", help="Write the page of the answer with this noise, one file of HTML.")
@click.option("--json", "json_path", metavar="PATH", help="Write the figures; - prints them instead.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing; only the exit code matters.")
def noise(
    path: str,
    epsilon: float,
    delta: float | None,
    method: str,
    dither: bool,
    granularity: float | None,
    bound: float | None,
    times: int,
    presence: str | None,
    consistent: bool,
    save: str | None,
    report: str | None,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Design the least noise for an audit that was saved with --save; the same bound judges it as judges the answer.

    Exit codes: 0 done, 3 no noise keeps the promise; nothing is saved then.

    \b
    Example:
      empriv noise audit.empriv --epsilon 0.1 --delta 0.05 --dither --granularity 0.25 --save noise.empriv
    """
    check_targets((save, report, json_path), (path,))
    quiet = quiet or json_path == "-"
    bar = bar_of(_stages(report), quiet=quiet)
    bar.begin("Measuring")
    audit = interruptible(lambda: load_audit(path, (epsilon,)).alone)
    from empriv.noise.design.design import noise_for_one

    if audit.results.components is not None:
        if method != "least" or dither or times > 1 or bound is not None:
            raise click.UsageError(
                "Several numbers together take only --epsilon, --delta, --granularity, --presence and --consistent."
            )
        try:
            _design_for_table(
                audit, path, epsilon=epsilon, delta=delta or 0.0, granularity=granularity, consistent=consistent,
                presence=presence, save=save, report=report, json_path=json_path, quiet=quiet, bar=bar,
            )  # fmt: skip
        except CertificateError as error:
            _missed(error, bar)
        return
    if consistent:
        raise click.UsageError("--consistent must be for several numbers, got one.")
    if delta is None:
        raise click.UsageError("--delta must be given for noise on one number.")

    def work() -> _Designed:
        bar.begin("Designing noise")
        made = noise_for_one(
            audit, epsilon=epsilon, delta=delta, method=method, dither=dither, granularity=granularity, bound=bound,
            times=times, presence=presence,
        )  # fmt: skip
        bar.begin("Judging")
        return _judged(audit, made)

    try:
        outcome = interruptible(work)
    except CertificateError as error:
        _missed(error, bar)
    bar.pause()
    if not quiet:
        from empriv.cli.terminal import console_for

        _show(outcome, console_for(sys.stdout))
    if save is not None and outcome.against and not quiet:
        click.echo(_NOT_SAVED)
    elif save is not None and not outcome.against:
        outcome.made.save(save, density=audit.density)
        _say_next(path, save, outcome.made, quiet=quiet)
    if report is not None:
        write_noise_page(outcome.made, audit, report, bar, quiet=quiet)
    if json_path is not None:
        classical = outcome.classical
        figures = {
            **outcome.made.to_json(),
            "classical": None
            if classical is None
            else {"kernel": classical.kind, "scale": classical.scale, "expected_error": classical.error},
            "verdict_before": str(outcome.before),
            "against": list(outcome.against),
        }
        write_json(json_path, figures)
    if outcome.against:
        click.get_current_context().exit(POLICY_FAILED)


def _stages(report: str | None) -> tuple[str, ...]:
    """What the command does."""
    return ("Measuring", "Designing noise", "Judging", *(() if report is None else (PAGE,)))


def write_noise_page(designed: Noise | TableNoise, audit: Audit, path: str, bar: Bar, *, quiet: bool) -> None:
    """Write the page of an answer with noise, and say where it is."""
    from empriv.cli.terminal import printable
    from empriv.report import write_report

    def write(page: str) -> None:
        write_report(audit, page, noise=designed)

    bar.begin(PAGE)
    write_to(path, write)
    bar.pause()
    if not quiet:
        click.echo(printable(f"Wrote {Path(path).name}."))


def show_noise(path: str, audit: Audit, *, report: str | None, json_path: str | None, quiet: bool) -> None:
    """Show an audit's answer with saved noise, certified anew for it; exit with code 3 if it keeps no promise there."""
    import empriv

    saved = empriv.load(path)
    if not isinstance(saved, empriv.Noise | empriv.TableNoise):
        raise InputError("--noise must name saved noise, got another file. Hint: `empriv noise --save` writes it.")
    from empriv.auditing.deciding import reasons_against

    alone = audit.alone
    bar = bar_of(("Certifying", "Judging", PAGE), quiet=quiet)
    bar.begin("Certifying")
    try:
        made = interruptible(lambda: saved.certified_for(alone))
    except CertificateError as error:
        _missed(error, bar)
    if not quiet:
        bar.begin("Judging")
        if isinstance(made, empriv.TableNoise):
            bar.pause()
            _show_table(made, reasons_against(made, alone))
        else:
            outcome = interruptible(lambda: _judged(alone, made))
            bar.pause()
            from empriv.cli.terminal import console_for

            _show(outcome, console_for(sys.stdout))
    if json_path is not None:
        write_json(json_path, made.to_json())
    if report is not None:
        write_noise_page(made, alone, report, bar, quiet=quiet)


def _missed(error: CertificateError, bar: Bar) -> NoReturn:
    bar.pause()
    click.echo(f"Error: {error}", err=True)
    click.get_current_context().exit(POLICY_FAILED)


def _judged(audit: Audit, made: Noise) -> _Designed:
    from empriv.auditing.deciding import reasons_against
    from empriv.noise.design.design import classical_noise

    before = audit.verdict(epsilon=made.epsilon, delta=made.delta, presence=made.presence)
    return _Designed(made, classical_noise(made), before, reasons_against(made, audit, [before]), audit.results)


def _show(outcome: _Designed, console: Console) -> None:
    from rich.text import Text

    from empriv.auditing.deciding import typical_answer
    from empriv.cli.terminal import printable
    from empriv.words.sentences import amount, leaves_little, number, tells_little

    def say(text: str, style: str = "") -> None:
        console.print(Text(printable(text, console.encoding), style=style))

    made, classical = outcome.made, outcome.classical
    say(f"Noise for epsilon {made.epsilon:g}, delta {made.delta:g} ({made.method})", "bold")
    say(made.law.words)
    say(f"It moves an answer by ±{amount(made.expected_error, made.unit)} on average.")
    if classical is not None and classical.error > 0:
        say(
            "Classical noise that hides the same move at the same epsilon and delta: "
            f"±{amount(classical.error, made.unit)} ({classical.kind}); "
            f"this is {number(made.expected_error / classical.error)} of it."
        )
    often = f" after {made.times:,} publications" if made.times > 1 else ""
    say(f"Upper bound on delta with it{often}: {number(made.achieved_delta())} at epsilon {made.epsilon:g}.")
    if made.times == 1 and made.presence == "both":
        say(f"It hides anyone who moves the answer by up to {amount(made.cover, made.unit)}.")
    say(f"Verdict without noise: {outcome.before}. With it: {'unresolved' if outcome.against else 'pass'}.")
    little = [leaves_little()] if tells_little(made.expected_error, typical_answer(outcome.results)) else []
    for sentence in (*outcome.against, *little, *made.notes):
        say(sentence)


def _design_for_table(
    audit: Audit,
    path: str,
    *,
    epsilon: float,
    delta: float,
    granularity: float | None,
    consistent: bool,
    presence: str | None,
    save: str | None,
    report: str | None,
    json_path: str | None,
    quiet: bool,
    bar: Bar,
) -> None:
    """Design, print and save noise on each of several numbers."""
    from empriv.auditing.deciding import reasons_against
    from empriv.noise.design.design import design_noise
    from empriv.noise.table_noise import TableNoise

    def work() -> tuple[TableNoise, tuple[str, ...]]:
        bar.begin("Designing noise")
        designed = design_noise(
            audit, epsilon=epsilon, delta=delta, granularity=granularity, consistent=consistent, presence=presence
        )  # fmt: skip
        assert isinstance(designed, TableNoise)
        bar.begin("Judging")
        return designed, reasons_against(designed, audit)

    designed, against = interruptible(work)
    bar.pause()
    if not quiet:
        _show_table(designed, against)
    if save is not None and against and not quiet:
        click.echo(_NOT_SAVED)
    elif save is not None and not against:
        designed.save(save)
        _say_next(path, save, designed, quiet=quiet)
    if report is not None:
        write_noise_page(designed, audit, report, bar, quiet=quiet)
    if json_path is not None:
        write_json(json_path, {**designed.to_json(), "against": list(against)})
    if against:
        click.get_current_context().exit(POLICY_FAILED)


def _say_next(path: str, saved: str, made: Noise | TableNoise, *, quiet: bool) -> None:
    """How answers are released with noise that was saved."""
    from empriv.cli.hints import as_typed
    from empriv.cli.terminal import printable

    if quiet:
        return
    if not made.declared_granularity:
        click.echo("To release answers with it, declare what they are multiples of: --granularity.")
        return
    limits = f"--epsilon {made.epsilon:g} --delta {made.delta:g}"
    click.echo("Next: make a ledger once, and release through it; LABEL names the database:")
    for command in (
        f"empriv ledger init releases.ledger {limits}",
        f"empriv release {shlex.quote(saved)} --audit {shlex.quote(path)} --ledger releases.ledger --database LABEL",
    ):
        click.echo(printable(f"  {as_typed(command)}"))


def _show_table(designed: TableNoise, against: tuple[str, ...]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from empriv.cli.terminal import console_for, printable
    from empriv.words.sentences import number

    console = console_for(sys.stdout)

    def say(text: str, style: str = "") -> None:
        console.print(Text(printable(text, console.encoding), style=style))

    say(
        f"Noise for {len(designed.laws)} numbers together, epsilon {designed.epsilon:g}, delta {designed.delta:g}",
        "bold",
    )
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="dim")
    for header in ("number", "expected error", "law"):
        table.add_column(header, justify="right" if header == "expected error" else "left")
    for name, law in designed.laws.items():
        words = printable(law.words, console.encoding)
        error = designed.expected_error[name]
        table.add_row(Text(printable(name, console.encoding)), f"{error:.5g}", Text(words))
    console.print(table)
    say(f"Upper bound on delta with it: {number(designed.achieved_delta())} at epsilon {designed.epsilon:g}.")
    for note in (*against, *designed.notes):
        say(note)
