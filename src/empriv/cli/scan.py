"""The command `scan`: parse, call the public API, print; for tables whose results do not fit in memory.

Numerics and rich are imported inside the command, so that ``--help`` is quick.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from empriv.cli.config import Settings, settings_of
from empriv.cli.inputs import check_targets, paths_read, source_of
from empriv.cli.options import (
    epsilon_option,
    json_option,
    known_option,
    limit_options,
    query_option,
    quiet_option,
    report_options,
    show_ids_option,
    source_options,
    target_options,
    top_option,
    unit_option,
    verbose_option,
)
from empriv.cli.output import exit_by
from empriv.cli.running import (
    Wanted,
    bar_of,
    check_report,
    engine_of,
    interruptible,
    judged_audit,
    limits_of,
    show_finished,
    stages_of,
    write_files,
)
from empriv.cli.targets import parse_target
from empriv.errors import InputError

if TYPE_CHECKING:
    from empriv.base.progress import Bar
    from empriv.scale.scans import Scan

KEPT = 100
"""Riskiest individuals that a scan keeps at each epsilon, unless more are listed."""


@click.command()
@source_options
@query_option
@epsilon_option
@unit_option
@click.option(
    "--delta",
    multiple=True,
    type=click.FloatRange(0.0, 1.0),
    metavar="D",
    help="Also find the smallest epsilon at which delta is at most D. May be repeated. [always: 0]",
)
@click.option(
    "--density", metavar="NAME", default="laplace:one-se", show_default=True, help="As `empriv audit` takes it."
)
@click.option("--component", metavar="NAME", help="Scan only this one of the numbers that the query gives.")
@known_option
@limit_options
@click.option("--bounds/--no-bounds", default=True, help="Upper bounds too; they take time. [default: bounds]")
@click.option("--checkpoint", metavar="PATH", help="Save progress in this file, and continue from it when run again.")
@json_option
@click.option("--save", metavar="PATH", help="Save the scan, for empriv.load (mode 0600).")
@report_options
@target_options
@show_ids_option
@top_option
@quiet_option
@verbose_option
def scan(delta: tuple[float, ...], bounds: bool, checkpoint: str | None, **given: Any) -> None:
    """Audit a query on a table whose results do not fit in memory.

    Individuals are measured a few at a time, at the epsilons asked for and no others, and summed up; the riskiest are
    kept. FILES and exit codes are as for `empriv audit`.

    \b
    Examples:
      empriv scan "sales/*.parquet" --database day --individual client_id --query "avg(amount)" --memory-limit 2GB
      empriv scan sales.parquet --database day --individual client_id --query "sum(amount)" --epsilon 0.1 \\
        --checkpoint scan.part --save scan.empriv --target "delta <= 0.01 at 0.1"
    """
    query = given.pop("query")
    settings = settings_of({}, {**given, "query": () if query is None else (query,)})
    _check_usage(settings)
    settings.check_known()
    check_report(settings)
    check_targets((settings.json, settings.save, settings.report, checkpoint), paths_read(settings))
    quiet = settings.quiet or settings.json == "-"
    bar = bar_of(("Scanning individuals", *stages_of(Wanted.of(settings))), quiet=quiet)
    bar.begin("Scanning individuals")
    scanned = _scanned(settings, deltas=delta, bounds=bounds, checkpoint=checkpoint)
    _tell(scanned, settings, bar)


def show_scan(path: str, settings: Settings, epsilons: Sequence[float] | None) -> None:
    """Show a saved scan, at the epsilons it was made for."""
    import empriv

    check_report(settings)
    quiet = settings.quiet or settings.json == "-"
    bar = bar_of(stages_of(Wanted.of(settings)), quiet=quiet)
    loaded = empriv.Scan.load(path)
    for epsilon in epsilons or ():
        loaded.delta(epsilon)  # refuses one that it was not made for
    _tell(loaded, settings, bar, saved=path)


def _tell(scanned: Scan, settings: Settings, bar: Bar, saved: str | None = None) -> None:
    """Print and write the scan, and end with the exit code of its targets."""
    wanted = Wanted.of(settings, saved=saved)
    further = [_epsilon_at(scanned, delta) for delta in scanned.deltas if delta > 0]
    bar.begin("Judging")
    finished = interruptible(
        lambda: judged_audit(scanned, wanted, bar, save=settings.save, further=further, curve=False)
    )
    bar.pause()
    show_finished(finished, wanted)
    write_files(finished, wanted, bar, save=settings.save)
    exit_by(finished.verdicts)


def _epsilon_at(scanned: Scan, delta: float) -> str:
    epsilon = scanned.epsilon(delta)
    range_text = f"from epsilon {epsilon:.4g} on" if math.isfinite(epsilon) else "at no epsilon"
    return f"delta is at most {delta:g} {range_text}."


def _check_usage(settings: Settings) -> None:
    if not settings.files:
        raise click.UsageError("Missing argument 'FILES...'.")
    for name in ("individual", "query"):
        if not getattr(settings, name):
            raise click.UsageError(f"Missing option '--{name}'.")


def _scanned(settings: Settings, *, deltas: Sequence[float], bounds: bool, checkpoint: str | None) -> Scan:
    """The scan, also at the epsilons that targets name.

    It runs in the main thread, where Ctrl-C arrives: the engine's statement then ends, and its files are removed.
    """
    import empriv
    from empriv.measuring.densities.specs import density_from_text

    try:
        density = density_from_text(settings.density)
    except InputError as error:
        raise click.UsageError(str(error)) from None
    judged_at = [parse_target(text).epsilon for text in settings.target]
    with engine_of(limits_of(settings)) as engine:
        made = empriv.scan(
            source_of(settings), settings.query[0], epsilon=[*settings.epsilon, *judged_at],
            delta=[0.0, *deltas], density=density, component=settings.component,
            known=settings.known or "nothing", top=max(KEPT, settings.top), bounds=bounds, checkpoint=checkpoint,
            engine=engine, unit=settings.unit,
        )  # fmt: skip
        return replace(made, noun=settings.noun)
