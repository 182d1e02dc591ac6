"""The options that commands share: what they are called, what they take, what their help says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from empriv.cli.config import BASES, UNIDENTIFIED, epsilons_of
from empriv.cli.policy import parse_policy, parse_target
from empriv.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])


def _epsilons(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[float, ...] | None:
    try:
        return None if value is None else epsilons_of([float(one) for one in value.split(",")])
    except ValueError:
        message = f"must be numbers of at least 0, separated by commas, got {value!r}."
        raise click.BadParameter(message, ctx, param) from None


def _columns(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...] | None:
    columns = None if value is None else tuple(one.strip() for one in value.split(","))
    if columns is not None and not all(columns):
        message = f"must be a column, or several separated by commas, got {value!r}."
        raise click.BadParameter(message, ctx, param)
    return columns


def _tables(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> dict[str, str] | None:
    tables = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not (name and equals and path):
            raise click.BadParameter(f"must read NAME=PATH, got {value!r}.", ctx, param)
        tables[name] = path
    return tables or None


def _policies(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...] | None:
    for value in values:
        try:
            parse_policy(value)
        except InputError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return tuple(values) or None


def _targets(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...] | None:
    for value in values:
        try:
            parse_target(value)
        except InputError as error:
            raise click.BadParameter(str(error), ctx, param) from None
    return tuple(values) or None


def _several(ctx: click.Context, param: click.Parameter, values: Sequence[str]) -> tuple[str, ...] | None:
    del ctx, param
    return tuple(values) or None


def options(*several: Callable[[F], F]) -> Callable[[F], F]:
    def add(command: F) -> F:
        for option in reversed(several):
            command = option(command)
        return command

    return add


epsilon_option = click.option(
    "--epsilon", callback=_epsilons, metavar="E[,E...]", help="Epsilons to report. [default: 0.05,0.1,0.2]"
)
json_option = click.option(
    "--json", metavar="PATH", help="Write the figures, without identifiers; - prints them instead of the summary."
)
show_ids_option = click.option(
    "--show-ids/--hide-ids", default=None, help="Name the riskiest individuals, instead of pseudonyms for this run."
)
top_option = click.option(
    "--top", type=click.IntRange(min=0), metavar="N", help="How many individuals to list. [default: 5]"
)
fail_if_option = click.option(
    "--fail-if",
    multiple=True,
    callback=_policies,
    metavar="POLICY",
    help='Exit with code 3 if it holds, such as "total_risk > 0.01 at 0.1", "delta >= 0.001 at 0.05" or '
    '"epsilon > 0.2 at delta 0"; upper(delta) and upper(total_risk) are upper bounds. May be repeated.',
)
target_options = options(
    click.option(
        "--target",
        multiple=True,
        callback=_targets,
        metavar="TARGET",
        help='Give a verdict on it, such as "delta <= 0.01 at 0.1" or "total_risk <= 0.05 at 0.1": exit with code 3 '
        "if it fails, 4 if it is unresolved. May be repeated.",
    ),
    click.option(
        "--basis",
        type=click.Choice(BASES),
        help="What decides a verdict: the upper bound, or the estimate, as in the paper. [default: bound]",
    ),
)
quiet_option = click.option("--quiet/--no-quiet", "-q", default=None, help="Print nothing; the exit code tells.")
source_options = options(
    click.argument("files", nargs=-1),
    click.option(
        "--database",
        metavar="EXPR",
        help="Column or SQL expression that says which database a row is in. Without it, each file is one database.",
    ),
    click.option(
        "--individual", callback=_columns, metavar="COL[,COL]", help="Column that says whose a row is, or several."
    ),
    click.option(
        "--table", "tables", multiple=True, callback=_tables, metavar="NAME=PATH",
        help="Another table that the query joins. May be repeated.",
    ),
    click.option(
        "--unidentified", type=click.Choice(UNIDENTIFIED),
        help="Rows without an individual: refuse them, keep them as nobody's, or drop them. [default: error]",
    ),
)  # fmt: skip
query_option = click.option(
    "--query", metavar="SQL", help="SELECT ... FROM data, or an expression such as avg(amount)."
)
queries_option = click.option(
    "--query",
    multiple=True,
    callback=_several,
    metavar="SQL",
    help="SELECT ... FROM data, or an expression such as avg(amount). Repeated: all of them are released together.",
)
adversary_options = options(
    click.option(
        "--adversary",
        multiple=True,
        callback=_several,
        metavar="SQL",
        help="What an adversary knows of each database, such as count(*): delta is the largest over what they may see. "
        "Repeated: all of it is known.",
    ),
    click.option(
        "--buckets",
        type=click.IntRange(min=1),
        metavar="N",
        help="The adversary knows in which of N quantile buckets it lies, as in the paper.",
    ),
    click.option(
        "--own-contribution/--no-own-contribution",
        default=None,
        help="Every individual as an adversary who knows their own contribution.",
    ),
)
ledger_options = options(
    click.option(
        "--ledger", metavar="PATH", help="Audit together with what this ledger says was released from these databases."
    ),
    click.option("--scope", metavar="NAME", help="Name of the body of data in the ledger, if it is kept for several."),
)
report_options = options(
    click.option(
        "--report", metavar="PATH", help="Write the report, one page of HTML, with the key to its pseudonyms."
    ),
    click.option(
        "--public/--no-public",
        default=None,
        help="Make the report fit to be published: no individuals, no results, coarse figures.",
    ),
    click.option(
        "--beside/--no-beside",
        default=None,
        help="Write the figures (.json), the individuals (.individuals.parquet) and the run (.toml) beside the report.",
    ),
)
