"""The command `demo`: an audit of data that the package carries, from the question to what to do."""

from __future__ import annotations

from typing import Any

import click

from empriv.cli.config import settings_of
from empriv.cli.inputs import check_targets, source_of
from empriv.cli.options import epsilon_option
from empriv.cli.running import Wanted, finish

DEMO_QUERY = "avg(delay)"
DEMO_TARGET = "delta <= 0.05 at 0.1"
PAGE, SAVED = "empriv-demo.html", "empriv-demo.empriv"


@click.command()
@epsilon_option
def demo(epsilon: tuple[float, ...] | None) -> None:
    """Audit real data that the package carries: may the average delay of each day's flights be published?

    Each day is a database, each aircraft an individual. Writes empriv-demo.html, the page of the audit, and
    empriv-demo.empriv, the audit itself, here.

    \b
    Example:
      empriv demo
    """
    from empriv.datasets import flights

    settings = settings_of(
        {},
        {"files": (str(flights()),), "database": "date", "individual": ("aircraft",), "query": (DEMO_QUERY,),
         "epsilon": epsilon, "target": (DEMO_TARGET,), "unit": "min", "top": 2, "report": PAGE, "save": SAVED},
    )  # fmt: skip
    check_targets((PAGE, SAVED), ())

    def run(engine: Any) -> Any:
        import empriv

        return empriv.audit(
            source_of(settings),
            settings.asked,
            epsilon=settings.epsilon,
            unit=settings.unit,
            noun=settings.noun,
            engine=engine,
        )

    finish(run, Wanted.of(settings), save=SAVED, exits=False)
