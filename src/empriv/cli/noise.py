"""The command `noise`: parse, call the public API, print, for one number or several together.

Numerics and rich are imported inside commands, so that ``--help`` is quick.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

import click

from empriv.cli.inputs import check_targets, load_audit
from empriv.cli.output import POLICY_FAILED, write_json
from empriv.cli.running import interruptible
from empriv.errors import CertificateError, InputError
from empriv.noise import METHODS

if TYPE_CHECKING:
    from rich.console import Console

    from empriv.auditing.audit import Audit
    from empriv.noise.joint_noise import JointNoise
    from empriv.noise.noise import Noise

RISKIEST = 20
"""Individuals whose noisy answers are measured anew."""

_POINTS, _DRAWS = 2_000, 32  # noisy answers that a density is fitted to, and draws for each database, at most
_KEPT = ("iid", "databases")  # checks of the audit that noise does not change


@dataclass(frozen=True)
class _Designed:
    """A design, those beside it (``missed`` are the reasons of those without), and the verdicts before and after."""

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
@click.option("--delta", type=float, metavar="D", help="Each individual's delta_i at most. [default: 0]")
@click.option("--total-risk", type=float, metavar="T", help="The total risk at most; alone, there is no --delta.")
@click.option("--method", type=click.Choice(METHODS), default="robust", help="How the law is found. [default: robust]")
@click.option("--granularity", type=float, metavar="G", help="A power of two; answers are released in multiples of it.")
@click.option("--bound", type=float, metavar="B", help="The most that one individual can move an answer, if you know.")
@click.option("--compare", is_flag=True, help="Design by every method, side by side.")
@click.option("--save", metavar="PATH", help="Save the noise, for `empriv release` (mode 0600).")
@click.option("--json", "json_path", metavar="PATH", help="Write the figures; - prints them instead.")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing; the exit code tells.")
def noise(
    path: str,
    epsilon: float,
    delta: float | None,
    total_risk: float | None,
    method: str,
    granularity: float | None,
    bound: float | None,
    compare: bool,
    save: str | None,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Design noise for an audit that was saved with --save, and certify what it achieves.

    Exit codes: 0 done, 3 no noise keeps the promise.

    \b
    Example:
      empriv noise audit.empriv --epsilon 0.05 --delta 0.01 --granularity 0.25 --save noise.empriv
    """
    check_targets((save, json_path), (path,))
    quiet = quiet or json_path == "-"
    audit = interruptible(lambda: load_audit(path, (epsilon,)).alone, quiet=quiet, saying="Measuring")
    from empriv.noise.design.design import design_noise

    if audit.results.components is not None:
        if method != "robust" or compare or bound is not None or total_risk is not None:
            raise click.UsageError("Several numbers together take --epsilon, --delta and --granularity only.")
        try:
            _design_jointly(
                audit, epsilon=epsilon, delta=delta or 0.0, granularity=granularity, save=save, json_path=json_path,
                quiet=quiet,
            )  # fmt: skip
        except CertificateError as error:
            _missed(error)
        return

    def work() -> _Designed:
        def design(chosen: str) -> Noise:
            return design_noise(
                audit.risk, epsilon=epsilon, delta=delta, total_risk=total_risk, method=chosen,
                granularity=granularity, bound=bound, progress=False if quiet else None,
            )  # fmt: skip

        made = design(method)
        others, missed = {method: made}, {}
        names = (method, *(METHODS if compare else ("classical", "paper")))
        for name in dict.fromkeys(names):
            if name not in others:
                try:
                    others[name] = design(name)
                except (CertificateError, InputError) as error:
                    missed[name] = str(error)
        return _Designed(audit, made, others, missed, tuple(dict.fromkeys(names)), *_verdicts(audit, made))

    try:
        done = interruptible(work, quiet=quiet, saying="Designing noise")
    except CertificateError as error:
        _missed(error)
    made = done.made
    if not quiet:
        from empriv.cli.terminal import console_for

        _show(done, console_for(sys.stdout))
    if save is not None:
        made.save(save, density=done.audit.density)
    if json_path is not None:
        figures = {
            **made.to_json(),
            "compared": {name: other.expected_error for name, other in done.others.items()},
            "verdict_before": str(done.before),
            "verdict_after": {
                "by_certificate": _held(made),
                "by_bound": None if done.after is None else done.after.by_bound,
                "individuals": None if done.after is None else done.individuals,
            },
        }
        write_json(json_path, figures)


def _missed(error: CertificateError) -> NoReturn:
    click.echo(f"Error: {error}", err=True)
    click.get_current_context().exit(POLICY_FAILED)


def _verdicts(audit: Any, made: Noise) -> tuple[Any, Any, int]:
    """The verdict on the audit; that on noisy answers of the riskiest measured anew, or None; and how many they are."""
    from empriv.validate.checks.one_number import leak_checks
    from empriv.validate.verdict import verdict

    before = audit.verdict(epsilon=made.epsilon, delta=made.delta, total_risk=made.total_risk)
    if made.delta is None:  # a total over the riskiest says nothing about everyone's
        return before, None, 0
    draws = max(1, min(_DRAWS, _POINTS // max(1, audit.results.q.size)))
    risk = made.remeasure(draws=draws, rng=0, most=RISKIEST)
    kept = [check for check in before.checks if check.code in _KEPT]
    after = verdict(risk, epsilon=made.epsilon, delta=made.delta, checks_made=[*kept, *leak_checks(risk)])
    return before, after, risk.results.n_individuals


def _held(made: Noise) -> str:
    return "pass" if made.certificate.holds else "fail"


def _show(done: _Designed, console: Console) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from empriv.cli.terminal import printable

    def say(text: str, style: str = "") -> None:
        console.print(Text(printable(text, console.encoding), style=style))

    made, rows = done.made, {name: done.others.get(name) for name in done.names}
    limit = "" if made.delta is None else f", delta {made.delta:g}"
    limit += "" if made.total_risk is None else f", total risk {made.total_risk:g}"
    say(f"Noise for epsilon {made.epsilon:g}{limit} ({made.method})", "bold")
    say(made.law.words)
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
            _epsilon(law.achieved_epsilon), f"{law.achieved_delta():.3g}",
        )  # fmt: skip
    console.print(table)
    console.print()
    for name, sentence in done.missed.items():
        say(f"{name}: {sentence}")
    say(f"Verdict without noise: {done.before}. With noise, by the certificate: {_held(made)}.")
    if done.after is not None:
        say(
            f"Noisy answers of the {done.individuals} riskiest individuals, measured anew: {done.after.by_bound} "
            f"at {100 * done.after.level:g}% confidence (upper bound on delta {done.after.targets[0].upper:.2g})."
        )
    for note in made.notes:
        say(note)


def _ratio(made: Noise, other: Noise | None) -> str:
    return "" if other is None or not other.expected_error else f"{made.expected_error / other.expected_error:.3f}"


def _epsilon(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "none"


def _design_jointly(
    audit: Audit,
    *,
    epsilon: float,
    delta: float,
    granularity: float | None,
    save: str | None,
    json_path: str | None,
    quiet: bool,
) -> None:
    """Independent noise on each of several numbers that keeps a joint promise: designed, printed, saved."""
    from empriv.noise.joint_noise import design_joint_noise

    risk: Any = audit.risk
    made = design_joint_noise(
        risk, epsilon=epsilon, delta=delta, granularity=granularity, progress=False if quiet else None
    )
    before, after = risk.delta(epsilon), made.remeasure(draws=_DRAWS, rng=0).delta(epsilon)
    if not quiet:
        _show_joint(made, before, after)
    if save is not None:
        made.save(save)
    if json_path is not None:
        write_json(json_path, {**made.to_json(), "delta_before": before, "delta_measured_anew": after})


def _show_joint(made: JointNoise, before: float, after: float) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from empriv.cli.terminal import console_for, printable
    from empriv.words.sentences import number

    console = console_for(sys.stdout)

    def say(text: str, style: str = "") -> None:
        console.print(Text(printable(text, console.encoding), style=style))

    say(f"Noise for {len(made.laws)} numbers together, epsilon {made.epsilon:g}, delta {made.delta:g}", "bold")
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="dim")
    for header in ("number", "expected error", "law"):
        table.add_column(header, justify="right" if header == "expected error" else "left")
    for name, law in made.laws.items():
        words = printable(law.words, console.encoding)
        table.add_row(Text(printable(name, console.encoding)), f"{law.expected_error:.5g}", Text(words))
    console.print(table)
    say(f"Achieved epsilon: {made.achieved_epsilon:.4g}, for every influence observed.")
    say(
        f"delta at epsilon {made.epsilon:g}: {number(before)} without noise; {number(after)} with it, measured anew "
        f"from {_DRAWS} draws for each database."
    )
    for note in made.notes:
        say(note)
