"""What an audit will take, said on request, and before one for which the memory will not do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from empriv.base.progress import whole
from empriv.cli.config import Settings
from empriv.cli.inputs import paths_read, source_of
from empriv.cli.output import write_json
from empriv.cli.running import LOOKING, engine_of, interruptible, limits_of
from empriv.cli.terminal import printable
from empriv.errors import InputError

if TYPE_CHECKING:
    from empriv.auditing.costs import Expected

_LARGE_FILES = 100 * 2**20  # bytes: results of less fit into any memory


def say_estimate(settings: Settings) -> None:
    """Print what an audit will take, or write it with --json."""
    cost = _estimated(settings)
    if settings.json is not None:
        write_json(settings.json, cost.to_json())
    if not _is_quiet(settings):
        for sentence in cost.sentences:
            click.echo(printable(sentence))


def check_memory(settings: Settings) -> None:
    """Refuse an audit of large files for which the memory will not do, and warn where it may not."""
    if sum(Path(path).stat().st_size for path in paths_read(settings) if Path(path).is_file()) < _LARGE_FILES:
        return
    cost = _estimated(settings)
    if cost.hopeless:
        raise InputError(f"{cost.sentences[1]} {cost.advice}")
    if not cost.fits and not _is_quiet(settings):
        click.echo(printable(f"{cost.sentences[1]} {cost.advice}"), err=True)


def _is_quiet(settings: Settings) -> bool:
    return settings.quiet or settings.json == "-"


def _estimated(settings: Settings) -> Expected:
    from empriv.auditing.costs import estimate
    from empriv.collecting.run_options import Run

    with (
        whole({LOOKING: 1.0}, show=False if _is_quiet(settings) else None) as bar,
        engine_of(limits_of(settings)) as engine,
    ):
        bar.begin(LOOKING)
        return interruptible(lambda: estimate(source_of(settings), settings.query, Run(engine=engine)))
