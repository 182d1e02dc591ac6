"""The command `noise`: parse, call the public API, print, for one number or several together.

Numerics and rich are imported inside commands, so that ``--help`` is quick.
"""

from __future__ import annotations

import math
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
    from empriv.noise.joint_noise import JointNoise
    from empriv.noise.noise import Noise

RISKIEST = 20
"""Individuals whose noisy answers are measured again."""

_POINTS, _DRAWS = 2_000, 32  # noisy answers that a density is fitted to, and draws for each database, at most
_KEPT = ("iid", "databases")  # checks of the audit that noise does not change


@dataclass(frozen=True)
class _Designed:
    """A design, those of other methods (``missed``: why a method gave none), and the verdicts before and after."""

    audit: Any
    made: Noise
    others: dict[str, Noise]
    missed: dict[str, str]
    names: tuple[str, ...]
    before: Any
    after: Any
    individuals: int


@click.command()
@click.argument("path", metavar="SAVED")
@click.option("--epsilon", type=float, required=True, metavar="E", help="The epsilon to reach.")
@click.option("--delta", type=float, metavar="D", help="Limit on each individual's delta_i. [default: 0]")
@click.option(
    "--total-risk", type=float, metavar="T", help="Limit on the total risk; if given alone, delta has no limit."
)
@click.option(
    "--method", type=click.Choice(METHODS), default="robust", help="How to design the noise. [default: robust]"
)
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
    help="Where the target must be met: in a random database and in one that people are in, or in a random one alone. "
    "[default: both]",
)
@click.option("--consistent", is_flag=True, help="Of several numbers: make margins add up again after the noise.")
@click.option("--compare", is_flag=True, help="Compare the designs of all methods.")
@click.option("--save", metavar="PATH", help="Save the noise, for `empriv release` (mode 0600).")
@click.option("--report", metavar="PATH", help="Write the page of the answer with this noise, one file of HTML.")
@click.option("--json", "json_path", metavar="PATH", help="Write the figures; - prints them instead.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing; only the exit code matters.")
def noise(
    path: str,
    epsilon: float,
    delta: float | None,
    total_risk: float | None,
    method: str,
    granularity: float | None,
    bound: float | None,
    times: int,
    presence: str | None,
    consistent: bool,
    compare: bool,
    save: str | None,
    report: str | None,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Design noise for an audit that was saved with --save, and certify what it achieves.

    Exit codes: 0 done, 3 no noise keeps the promise.

    \b
    Example:
      empriv noise audit.empriv --epsilon 0.05 --delta 0.01 --granularity 0.25 --save noise.empriv
    """
    check_targets((save, report, json_path), (path,))
    quiet = quiet or json_path == "-"
    bar = bar_of(_stages(report), quiet=quiet)
    bar.begin("Measuring")
    audit = interruptible(lambda: load_audit(path, (epsilon,)).alone)
    from empriv.noise.design.design import design_noise

    if audit.results.components is not None:
        if method != "robust" or compare or times > 1 or any(x is not None for x in (bound, total_risk, presence)):
            raise click.UsageError(
                "Several numbers together take only --epsilon, --delta, --granularity and --consistent."
            )
        try:
            _design_jointly(
                audit, epsilon=epsilon, delta=delta or 0.0, granularity=granularity, consistent=consistent, save=save,
                report=report, json_path=json_path, quiet=quiet, bar=bar,
            )  # fmt: skip
        except CertificateError as error:
            _missed(error, bar)
        return
    if consistent:
        raise click.UsageError("--consistent must be for several numbers, got one.")

    def work() -> _Designed:
        def design(chosen: str, publications: int = 1) -> Noise:
            return design_noise(
                audit, epsilon=epsilon, delta=delta, total_risk=total_risk, method=chosen, granularity=granularity,
                bound=bound, times=publications, presence=presence if publications == 1 else None,
            )  # fmt: skip

        bar.begin("Designing noise")
        designed = design(method, times)
        bar.begin("Comparing with other methods")
        others, missed = {method: designed}, {}
        names = (method, *(METHODS if compare else ("classical", "paper")))
        for name in dict.fromkeys(names):
            if name not in others:
                try:
                    others[name] = design(name)
                except (CertificateError, InputError) as error:
                    missed[name] = str(error)
        bar.begin("Judging")
        return _Designed(
            audit,
            designed,
            others,
            missed,
            tuple(dict.fromkeys(names)),
            *_verdicts(audit, designed, presence or "both"),
        )

    try:
        outcome = interruptible(work)
    except CertificateError as error:
        _missed(error, bar)
    bar.pause()
    designed = outcome.made
    if not quiet:
        from empriv.cli.terminal import console_for

        _show(outcome, console_for(sys.stdout))
    if save is not None:
        designed.save(save, density=outcome.audit.density)
    if report is not None:
        write_noise_page(designed, audit, report, bar, quiet=quiet)
    if json_path is not None:
        figures = {
            **designed.to_json(),
            "compared": {name: other.expected_error for name, other in outcome.others.items()},
            "verdict_before": str(outcome.before),
            "verdict_after": {
                "by_certificate": _held(designed),
                "by_bound": None if outcome.after is None else outcome.after.by_bound,
                "individuals": None if outcome.after is None else outcome.individuals,
            },
        }
        write_json(json_path, figures)


def _stages(report: str | None) -> dict[str, float]:
    """What the command does, and about how many seconds each may take."""
    stages = {"Measuring": 0.5, "Designing noise": 3.0, "Comparing with other methods": 2.0, "Judging": 2.0}
    return stages if report is None else {**stages, PAGE: 4.0}


def write_noise_page(designed: Noise | JointNoise, audit: Audit, path: str, bar: Bar, *, quiet: bool) -> None:
    """Write the page of an answer with noise, and say where it is."""
    from empriv.cli.terminal import printable
    from empriv.report import noise_report

    def write(page: str) -> None:
        noise_report(designed, page, audit=audit)

    bar.begin(PAGE)
    write_to(path, write)
    bar.pause()
    if not quiet:
        click.echo(printable(f"Wrote {Path(path).name}."))


def show_noise(path: str, audit: Audit, *, report: str | None, json_path: str | None, quiet: bool) -> None:
    """Show an audit's answer with saved noise, certified anew for it; exit with code 3 if it keeps no promise there."""
    import empriv

    saved = empriv.load(path)
    if not isinstance(saved, empriv.Noise | empriv.JointNoise):
        raise InputError("--noise must name saved noise, got another file. Hint: `empriv noise --save` writes it.")
    alone = audit.alone
    bar = bar_of({"Certifying": 2.0, "Judging": 2.0, PAGE: 4.0}, quiet=quiet)
    bar.begin("Certifying")
    try:
        made = interruptible(lambda: saved.certified_for(alone))
    except CertificateError as error:
        _missed(error, bar)
    if not quiet:
        bar.begin("Judging")
        if isinstance(made, empriv.JointNoise):
            figures = interruptible(lambda: _before_and_after(alone, made))
            bar.pause()
            _show_joint(made, *figures)
        else:
            presence = "random" if made.present is None else "both"
            verdicts = interruptible(lambda: _verdicts(alone, made, presence))
            outcome = _Designed(alone, made, {made.method: made}, {}, (made.method,), *verdicts)
            bar.pause()
            from empriv.cli.terminal import console_for

            _show(outcome, console_for(sys.stdout))
    if json_path is not None:
        write_json(json_path, made.to_json())
    if report is not None:
        write_noise_page(made, alone, report, bar, quiet=quiet)


def _before_and_after(audit: Audit, designed: JointNoise) -> tuple[float, float]:
    """delta of several numbers without noise, and with it, measured again."""
    again = designed.remeasure(draws=_DRAWS, rng=0)
    return float(audit.risk.delta(designed.epsilon)), float(again.delta(designed.epsilon))


def _missed(error: CertificateError, bar: Bar) -> NoReturn:
    bar.pause()
    click.echo(f"Error: {error}", err=True)
    click.get_current_context().exit(POLICY_FAILED)


def _verdicts(audit: Any, designed: Noise, presence: str) -> tuple[Any, Any, int]:
    """The verdict on the audit, the verdict on noisy answers of the riskiest measured again (or None), and how many."""
    from empriv.validate.checks.one_number import leak_checks
    from empriv.validate.verdict import verdict

    before = audit.verdict(
        epsilon=designed.epsilon, delta=designed.delta, total_risk=designed.total_risk, presence=presence
    )
    if designed.delta is None:  # total risk over the riskiest says nothing about everyone
        return before, None, 0
    draws = max(1, min(_DRAWS, _POINTS // max(1, audit.results.q.size)))
    risk = designed.remeasure(draws=draws, rng=0, most=RISKIEST)
    unchanged = [check for check in before.checks if check.code in _KEPT]
    after = verdict(risk, epsilon=designed.epsilon, delta=designed.delta, checks_made=[*unchanged, *leak_checks(risk)])
    return before, after, risk.results.n_individuals


def _held(designed: Noise) -> str:
    held = designed.certificate.holds and (designed.present is None or designed.present.holds)
    return "pass" if held else "fail"


def _show(outcome: _Designed, console: Console) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from empriv.cli.terminal import printable

    def say(text: str, style: str = "") -> None:
        console.print(Text(printable(text, console.encoding), style=style))

    designed, rows = outcome.made, {name: outcome.others.get(name) for name in outcome.names}
    limit = "" if designed.delta is None else f", delta {designed.delta:g}"
    limit += "" if designed.total_risk is None else f", total risk {designed.total_risk:g}"
    say(f"Noise for epsilon {designed.epsilon:g}{limit} ({designed.method})", "bold")
    say(designed.law.words)
    console.print()
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="dim")
    for header in ("method", "expected error", "of classical", "of the paper's", "achieved epsilon", "achieved delta"):
        table.add_column(header, justify="left" if header == "method" else "right")
    classical, paper = rows.get("classical"), rows.get("paper")
    for name, law in rows.items():
        if law is None:
            table.add_row(name, "missed", "", "", "", "")
            continue
        table.add_row(
            name, f"{law.expected_error:.5g}", _ratio(law, classical), _ratio(law, paper),
            _epsilon(law.achieved_epsilon), f"{_achieved(law):.3g}",
        )  # fmt: skip
    console.print(table)
    console.print()
    for name, sentence in outcome.missed.items():
        say(f"{name}: {sentence}")
    if designed.composed is not None:
        once = " (the other methods above are for one)" if len(rows) > 1 else ""
        achieved = designed.composed.achieved_delta()
        say(
            f"After {designed.times:,} publications{once}: delta at most {achieved:.3g} at epsilon "
            f"{designed.epsilon:g}, at 95% confidence."
        )
    say(f"Verdict without noise: {outcome.before}. With noise, by the certificate: {_held(designed)}.")
    if outcome.after is not None:
        say(
            f"Noisy answers of the {outcome.individuals} riskiest individuals, measured again: "
            f"{outcome.after.by_bound} at {100 * outcome.after.level:g}% confidence "
            f"(upper bound on delta {outcome.after.targets[0].upper:.2g})."
        )
    for note in designed.notes:
        say(note)


def _achieved(designed: Noise) -> float:
    """The delta that the noise leaves: of all publications together, if it was designed for several."""
    return designed.achieved_delta() if designed.composed is None else designed.composed.achieved_delta()


def _ratio(designed: Noise, other: Noise | None) -> str:
    return "" if other is None or not other.expected_error else f"{designed.expected_error / other.expected_error:.3f}"


def _epsilon(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "none"


def _design_jointly(
    audit: Audit,
    *,
    epsilon: float,
    delta: float,
    granularity: float | None,
    consistent: bool,
    save: str | None,
    report: str | None,
    json_path: str | None,
    quiet: bool,
    bar: Bar,
) -> None:
    """Design, print and save independent noise on each of several numbers that keeps a joint promise."""
    from empriv.noise.joint_noise import design_joint_noise

    risk: Any = audit.risk

    def work() -> tuple[JointNoise, float, float]:
        bar.begin("Designing noise")
        designed = design_joint_noise(
            risk, epsilon=epsilon, delta=delta, granularity=granularity, consistent=consistent
        )  # fmt: skip
        bar.begin("Judging")
        return designed, *_before_and_after(audit, designed)

    designed, before, after = interruptible(work)
    bar.pause()
    if not quiet:
        _show_joint(designed, before, after)
    if save is not None:
        designed.save(save)
    if report is not None:
        write_noise_page(designed, audit, report, bar, quiet=quiet)
    if json_path is not None:
        write_json(json_path, {**designed.to_json(), "delta_before": before, "delta_measured_anew": after})


def _show_joint(designed: JointNoise, before: float, after: float) -> None:
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
    if designed.achieved_delta:
        say(f"Achieved: delta {number(designed.achieved_delta)} at epsilon {designed.achieved_epsilon:.4g}.")
    else:
        say(f"Achieved epsilon: {designed.achieved_epsilon:.4g}, for every influence observed.")
    say(
        f"delta at epsilon {designed.epsilon:g}: {number(before)} without noise; {number(after)} with it, measured "
        f"again from {_DRAWS} draws for each database."
    )
    for note in designed.notes:
        say(note)
