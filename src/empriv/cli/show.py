"""The command `show`: a saved audit or scan, in the same words as when it was made."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from empriv.cli.config import settings_of
from empriv.cli.inputs import check_targets, load_audit
from empriv.cli.options import (
    epsilon_option,
    fail_if_option,
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
@fail_if_option
@target_options
@show_ids_option
@top_option
@quiet_option
@verbose_option
def show(path: str, **given: Any) -> None:
    """Show an audit or a scan that was saved with --save, or audit saved results.

    \b
    Example:
      empriv show audit.empriv --epsilon 0.1,0.5
    """
    settings = settings_of({}, given)
    check_targets((settings.json, settings.report), (path,))
    from empriv.base.storage import kind_of

    if kind_of(path) == "scan":
        if settings.times is not None:
            raise click.UsageError("--times must be asked of an audit: a scan keeps too little of most people.")
        show_scan(path, settings, given["epsilon"])
        return

    def run(engine: Any) -> Any:
        del engine
        audited = load_audit(path, settings.epsilon)
        audited = replace(audited, unit=settings.unit or audited.unit)
        return audited if settings.times is None else audited.repeated(settings.times)

    finish(run, Wanted.of(settings, epsilons=given["epsilon"], saved=path))
