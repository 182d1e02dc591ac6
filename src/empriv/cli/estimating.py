"""What an audit will take, said on request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from empriv.base.progress import whole
from empriv.cli.config import Settings
from empriv.cli.inputs import source_of
from empriv.cli.output import write_json
from empriv.cli.running import LOOKING, engine_of, interruptible, limits_of
from empriv.cli.terminal import printable

if TYPE_CHECKING:
    from empriv.auditing.costs import Expected


def say_estimate(settings: Settings) -> None:
    """Print what an audit will take, or write it with --json."""
    cost = _estimated(settings)
    if settings.json is not None:
        write_json(settings.json, cost.to_json())
    if not _is_quiet(settings):
        for sentence in cost.sentences:
            click.echo(printable(sentence))


def _is_quiet(settings: Settings) -> bool:
    return settings.quiet or settings.json == "-"


def _estimated(settings: Settings) -> Expected:
    from empriv.auditing.costs import estimate
    from empriv.collecting.run_options import Run

    with (
        whole((LOOKING,), show=False if _is_quiet(settings) else None) as bar,
        engine_of(limits_of(settings)) as engine,
    ):
        bar.begin(LOOKING)
        return interruptible(lambda: estimate(source_of(settings), settings.query, Run(engine=engine)))
