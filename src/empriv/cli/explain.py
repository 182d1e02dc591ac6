"""The command `explain`: print the SQL that is run instead of a query."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import click

from empriv.cli.config import settings_of
from empriv.cli.estimating import say_estimate
from empriv.cli.inputs import source_of
from empriv.cli.options import estimate_option, query_option, source_options


@click.command()
@source_options
@query_option
@estimate_option
def explain(estimate: bool, **given: Any) -> None:
    """Print the SQL that is run instead of a query, which leaves out each individual in turn.

    Without FILES the types of columns are not known, and all are assumed to be integers.

    \b
    Example:
      empriv explain --query "avg(amount)"
      empriv explain sales.parquet --database day --individual client_id --query "avg(amount)"
    """
    query = given.pop("query")
    settings = settings_of({}, given)
    if not query:
        raise click.UsageError("Missing option '--query'.")
    if (settings.files or estimate) and not settings.individual:
        raise click.UsageError("Missing option '--individual'.")
    if estimate:
        if not settings.files:
            raise click.UsageError("--estimate must be given with FILES.")
        say_estimate(replace(settings, query=(query,)))
        return
    from empriv.cli.running import engine_of
    from empriv.cli.terminal import printable
    from empriv.collecting import explain as explain_query

    with engine_of({}) if settings.files else nullcontext() as engine:
        text = explain_query(source_of(settings) if settings.files else None, query, engine=engine)
    click.echo("\n".join(map(printable, text.splitlines())))
