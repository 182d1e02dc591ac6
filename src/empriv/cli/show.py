"""The command `show`: a saved audit or scan, in the same words as when it was made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from empriv.cli.config import Settings, settings_of
from empriv.cli.inputs import check_targets, load_audit
from empriv.cli.noise import show_noise
from empriv.cli.options import (
    epsilon_option,
    json_option,
    quiet_option,
    report_options,
    show_ids_option,
    target_options,
    times_option,
    top_option,
    unit_option,
    verbose_option,
)
from empriv.cli.running import Wanted, finish
from empriv.cli.scan import show_scan


@click.command()
@click.argument("path", metavar="SAVED")
@epsilon_option
@unit_option
@times_option
@json_option
@report_options
@click.option(
    "--noise", metavar="FILE",
    help="Show the answer with this saved noise, certified anew for the audit; --report and --json are then of that.",
)  # fmt: skip
@target_options
@show_ids_option
@top_option
@quiet_option
@verbose_option
def show(path: str, noise: str | None, **given: Any) -> None:
    """Show an audit or a scan that was saved with --save, or audit saved results.

    \b
    Examples:
      empriv show audit.empriv --epsilon 0.1,0.5
      empriv show audit.empriv --noise noise.empriv --report noisy.html
    """
    settings = settings_of({}, given)
    check_targets((settings.json, settings.report), (path, *(() if noise is None else (noise,))))
    from empriv.base.storage import kind_of

    if noise is not None:
        _with_noise(path, noise, settings)
        return
    if kind_of(path) == "scan":
        if settings.times is not None:
            raise click.UsageError("--times must be asked of an audit: a scan keeps too little of most people.")
        show_scan(path, settings, given["epsilon"])
        return

    def run(engine: Any) -> Any:
        del engine
        audited = load_audit(path, settings.epsilon)
        audited = replace(audited, unit=settings.unit or audited.unit, noun=settings.noun or audited.noun)
        return audited if settings.times is None else audited.repeated(settings.times)

    finish(run, Wanted.of(settings, epsilons=given["epsilon"], saved=path))


def _with_noise(path: str, noise: str, settings: Settings) -> None:
    """Show the answer with saved noise."""
    other = ("times", "target", "public", "answers", "beside", "show_ids")
    wrong = [name for name in other if getattr(settings, name)]
    if wrong:
        raise click.UsageError(f"--{wrong[0].replace('_', '-')} must not be given with --noise, which has a target.")
    audited = load_audit(path, settings.epsilon)
    audited = replace(audited, unit=settings.unit or audited.unit, noun=settings.noun or audited.noun)
    quiet = settings.quiet or settings.json == "-"
    show_noise(noise, audited, report=settings.report, json_path=settings.json, quiet=quiet)
