"""The command `compare`: several saved audits side by side."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from empriv.cli_options import epsilon_option
from empriv.cli_runs import check_targets, load_audit
from empriv.errors import InputError


@click.command(short_help="Put saved audits side by side.")
@click.argument("paths", nargs=-1, required=True, metavar="SAVED...")
@epsilon_option
@click.option("--report", metavar="PATH", help="Write the comparison as one page of HTML.")
def compare(paths: tuple[str, ...], epsilon: tuple[float, ...] | None, report: str | None) -> None:
    """Put audits that were saved with --save side by side: delta, its upper bound and total risk.

    \b
    Example:
      empriv compare raw.empriv rounded.empriv --epsilon 0.1 --report compare.html
    """
    check_targets((report,), paths)
    if len(paths) < 2:
        raise click.UsageError("SAVED must be at least two files.")
    names = [Path(path).stem for path in paths]
    if len(set(names)) < len(names):
        raise InputError("Files must have different names, by which the audits are told apart.")
    grid = epsilon or (0.05, 0.1, 0.2)
    audits = {name: load_audit(path, grid) for name, path in zip(names, paths, strict=True)}
    if report is not None:
        from empriv.report import compare_page

        compare_page(audits, report)
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from empriv.terminal import console_for, printable
    from empriv.validate.words import number

    console = console_for(sys.stdout)
    for one in grid:
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, header_style="dim", title=f"At epsilon {one:g}")
        for header in ("audit", "delta", "upper bound", "total risk", "databases", "individuals"):
            table.add_column(header, justify="left" if header == "audit" else "right")
        for name, audit in audits.items():
            table.add_row(
                Text(printable(name, console.encoding)), number(audit.delta(one), 3),
                number(audit.bounds(one).upper, 3), number(audit.total_risk(one), 3), f"{audit.results.n_databases:,}",
                f"{audit.results.n_individuals:,}",
            )  # fmt: skip
        console.print(table)
    if report is not None:
        click.echo(printable(f"Wrote {Path(report).name}."))
