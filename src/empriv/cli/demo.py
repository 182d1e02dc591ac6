"""The command `demo`: an audit of data that the package carries, and how to do the same by hand."""

from __future__ import annotations

import shlex
from typing import Any

import click

from empriv.cli.config import Settings, settings_of
from empriv.cli.inputs import source_of
from empriv.cli.options import (
    epsilon_option,
)
from empriv.cli.running import Wanted, finish

DEMO_SOURCE = "SELECT * FROM purchases WHERE date >= DATE '1997-04-01'"
DEMO_QUERY = "sum(amount)"


@click.command()
@epsilon_option
def demo(epsilon: tuple[float, ...] | None) -> None:
    """Audit real data that the package carries: the daily revenue of a shop.

    \b
    Example:
      empriv demo --epsilon 0.1,1
    """
    from empriv.datasets import cdnow

    settings = settings_of(
        {},
        {"files": (DEMO_SOURCE,), "database": "date", "individual": ("customer_id",), "query": (DEMO_QUERY,),
         "tables": {"purchases": str(cdnow())}, "epsilon": epsilon},
    )  # fmt: skip

    def run(engine: Any) -> Any:
        import empriv

        return empriv.audit(source_of(settings), settings.asked, epsilon=settings.epsilon, engine=engine)

    click.echo("Real purchases of CDNOW's customers, April 1997 to June 1998: each day is a")
    click.echo("database, the query is its revenue. How much does it reveal about one customer?")
    finish(run, Wanted.of(settings))
    click.echo(_recipe(settings))


def _recipe(settings: Settings) -> str:
    """How to do the demo by hand."""
    epsilons = ", ".join(f"{epsilon:g}" for epsilon in settings.epsilon)
    return f"""\
The same on the command line:
  empriv audit "{DEMO_SOURCE}" \\
    --table purchases={shlex.quote(settings.tables["purchases"])} \\
    --database date --individual customer_id --query "{DEMO_QUERY}" --epsilon {epsilons.replace(" ", "")}
and in Python:
  import empriv
  data = empriv.databases("{DEMO_SOURCE}", database="date",
                          individual="customer_id", tables={{"purchases": empriv.datasets.cdnow()}})
  audit = empriv.audit(data, "{DEMO_QUERY}", epsilon=[{epsilons}])
"""
