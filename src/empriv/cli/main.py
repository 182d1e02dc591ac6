"""The command line: parse, call the public API, print.

Numerics, engines and rich are imported inside commands, so that ``--help`` is quick. What is run and how it ends is in
`cli_runs`; documented in docs/command-line.md.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import click

from empriv.cli.compare import compare
from empriv.cli.config import Settings, read_config, settings_of, to_toml
from empriv.cli.ledger import ledger
from empriv.cli.noise import noise
from empriv.cli.options import (
    adversary_options,
    epsilon_option,
    fail_if_option,
    json_option,
    ledger_options,
    queries_option,
    query_option,
    quiet_option,
    report_options,
    show_ids_option,
    source_options,
    target_options,
    top_option,
)
from empriv.cli.policy import parse_policy, parse_target
from empriv.cli.release import release
from empriv.cli.runs import (
    Commands,
    Wanted,
    adversary_of,
    check_targets,
    finish,
    ledger_of,
    load_audit,
    paths_read,
    source_of,
)  # fmt: skip
from empriv.cli.scan import scan, show_scan
from empriv.errors import InputError

DEMO_SOURCE = "SELECT * FROM purchases WHERE date >= DATE '1997-04-01'"
DEMO_QUERY = "sum(amount)"


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="empriv", message="empriv %(version)s")
def main() -> None:
    """How private a statistic already is, from the data's own randomness.

    Exit codes: 0 done, 1 an error, 2 wrong usage, 3 a policy or a target failed, 4 a target is unresolved,
    130 interrupted.

    \b
    Example:
      empriv demo
    """


for _command in (scan, noise, release, ledger, compare):
    main.add_command(_command)


@main.command(short_help="Audit a query on your data.")
@source_options
@queries_option
@epsilon_option
@click.option(
    "--density",
    metavar="NAME",
    help="laplace, gaussian, logistic, epanechnikov or student, with :RULE or :BANDWIDTH (laplace:one-se, "
    "gaussian:0.5); variable:KERNEL:METHOD (variable:gaussian:breiman); ecdf; best. [default: laplace:one-se]",
)
@click.option("--component", metavar="NAME", help="Audit this one of several numbers that the query gives.")
@adversary_options
@ledger_options
@click.option("--memory-limit", metavar="SIZE", help="Such as 2GB: beyond it the engine writes to disk.")
@json_option
@click.option("--save", metavar="PATH", help="Save the audit, for `empriv show` and empriv.load (mode 0600).")
@report_options
@fail_if_option
@target_options
@show_ids_option
@top_option
@quiet_option
@click.option("--config", metavar="PATH", help="Read options from this audit.toml; those given here win.")
@click.option("--write-config", metavar="PATH", help="Write the audit.toml that repeats this run.")
def audit(config: str | None, write_config: str | None, **given: Any) -> None:
    """Audit a query: run it with everyone and without each individual, and measure what that tells.

    FILES are Parquet, CSV or JSON files, globs, file.duckdb::table, or an SQL text over the tables given by --table.

    \b
    Examples:
      empriv audit sales.parquet --database day --individual client_id --query "avg(amount)"
      empriv audit "sales/*.csv" --database "date_trunc('month', t)" --individual client_id \\
        --query "SELECT sum(amount) FROM data JOIN clients USING (client_id) WHERE adult" \\
        --table clients=clients.csv --epsilon 0.05,0.1 --json audit.json --fail-if "total_risk > 0.01 at 0.1"
    """
    settings = _settings(config, given)
    check_targets((settings.json, settings.save, settings.report, write_config), paths_read(settings))
    density = _usage(_density, settings.density)

    def run(engine: Any) -> Any:
        import empriv

        return empriv.audit(
            source_of(settings), settings.asked, epsilon=settings.epsilon, density=density,
            component=settings.component, adversary=adversary_of(settings), ledger=ledger_of(settings),
            scope=settings.scope, engine=engine, progress=False if settings.quiet else None,
            notice=_unsaid if settings.quiet else None,
        )  # fmt: skip

    wanted = Wanted.of(settings, config=to_toml(settings))
    written = None if write_config is None else (write_config, to_toml(settings))
    finish(run, wanted, save=settings.save, config=written, memory_limit=settings.memory_limit)


@main.command(short_help="Print the SQL that is run instead of a query.")
@source_options
@query_option
def explain(**given: Any) -> None:
    """Print the SQL that is run instead of a query, to leave everyone out once.

    Without FILES the columns' types are not known, and all are taken for integers.

    \b
    Example:
      empriv explain --query "avg(amount)"
      empriv explain sales.parquet --database day --individual client_id --query "avg(amount)"
    """
    query = given.pop("query")
    settings = settings_of({}, {**given, "files": given["files"] or None})
    if not query:
        raise click.UsageError("Missing option '--query'.")
    if settings.files and not settings.individual:
        raise click.UsageError("Missing option '--individual'.")
    from empriv.cli.terminal import printable
    from empriv.collecting import explain as explain_query

    text = explain_query(source_of(settings) if settings.files else None, query)
    click.echo("\n".join(map(printable, text.splitlines())))


@main.command(short_help="Show a saved audit or scan.")
@click.argument("path", metavar="SAVED")
@epsilon_option
@json_option
@report_options
@fail_if_option
@target_options
@show_ids_option
@top_option
@quiet_option
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
        show_scan(path, settings, given["epsilon"])
        return

    def run(engine: Any) -> Any:
        del engine
        return load_audit(path, settings.epsilon)

    finish(run, Wanted.of(settings, epsilons=given["epsilon"]))


@main.command(short_help="Audit real data that the package carries.")
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
    click.echo("database, the query is its revenue. How much does it tell about one customer?")
    finish(run, Wanted.of(settings))
    click.echo(_recipe(settings))


def _recipe(settings: Settings) -> str:
    """How to do the demo by hand."""
    epsilons = ", ".join(f"{one:g}" for one in settings.epsilon)
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


def _settings(config: str | None, given: dict[str, Any]) -> Settings:
    """Settings from the file and the command line; what is missing is wrong usage."""
    read = {} if config is None else _usage(read_config, config)
    settings = settings_of(read, {**given, "files": given["files"] or None})
    for policy in settings.fail_if:
        _usage(parse_policy, policy)
    for target in settings.target:
        _usage(parse_target, target)
    if not settings.files:
        raise click.UsageError("Missing argument 'FILES...'.")
    try:
        settings.check_adversary()
    except InputError as error:
        raise click.UsageError(str(error)) from None
    for name in ("individual", "query"):
        if not getattr(settings, name):
            raise click.UsageError(f"Missing option '--{name}'.")
    return settings


def _density(text: str) -> Any:
    from empriv.measuring.densities.specs import density_from_text

    return density_from_text(text)


def _usage(function: Callable[[str], Any], argument: str) -> Any:
    """Call a parser, whose errors are wrong usage."""
    try:
        return function(argument)
    except InputError as error:
        raise click.UsageError(str(error)) from None


def _unsaid(sentence: str) -> None:
    """What would be said of a long run is not, under --quiet."""
    del sentence
