"""The command `audit`: parse, call the public API, print."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import click

from empriv.cli.config import Settings, config_options, settings_of, to_toml, values_from_file
from empriv.cli.estimating import say_estimate
from empriv.cli.inputs import (
    beside_report,
    check_targets,
    density_from_name,
    ledger_of,
    load_audit,
    paths_read,
    source_of,
)
from empriv.cli.options import (
    epsilon_option,
    estimate_option,
    json_option,
    known_options,
    ledger_options,
    limit_options,
    queries_option,
    quiet_option,
    report_options,
    show_ids_option,
    source_options,
    target_options,
    times_option,
    top_option,
    unit_option,
    verbose_option,
)
from empriv.cli.running import Wanted, finish, limits_of
from empriv.cli.trust import check_trust
from empriv.errors import InputError


@click.command()
@source_options
@queries_option
@epsilon_option
@times_option
@unit_option
@click.option(
    "--density",
    metavar="NAME",
    help="laplace, gaussian, logistic, epanechnikov or student, with :RULE or :BANDWIDTH (laplace:one-se, "
    "gaussian:0.5); variable:KERNEL:METHOD (variable:gaussian:breiman); ecdf; best. [default: laplace:one-se]",
)
@click.option("--component", metavar="NAME", help="Audit only this one of the numbers that the query gives.")
@known_options
@ledger_options
@limit_options
@json_option
@click.option("--save", metavar="PATH", help="Save the audit, for `empriv show` and empriv.load (mode 0600).")
@report_options
@target_options
@show_ids_option
@top_option
@quiet_option
@verbose_option
@estimate_option
@config_options("Read options from this audit.toml; those given here win.")
@click.option("--write-config", metavar="PATH", help="Write the audit.toml that repeats this run.")
@click.option(
    "--update", metavar="SAVED",
    help="Add the databases in FILES to this saved audit, whose query, individual and database hold. Only FILES are "
    "read. The file is replaced, unless --save names another.",
)  # fmt: skip
def audit(config: str | None, trust_config: bool, write_config: str | None, update: str | None, **given: Any) -> None:
    """Audit a query: run it with everyone and without each individual, and measure what the difference reveals.

    FILES are Parquet, CSV or JSON files, globs, the address of a PostgreSQL server or an SQLite or DuckDB file with
    --table, or SQL over the tables given by --table NAME=PATH.

    \b
    Examples:
      empriv audit sales.parquet --database day --individual client_id --query "avg(amount)"
      empriv audit "sales/*.csv" --database "date_trunc('month', t)" --individual client_id \\
        --query "SELECT sum(amount) FROM data JOIN clients USING (client_id) WHERE adult" \\
        --table clients=clients.csv --epsilon 0.05,0.1 --json audit.json --target "total_risk <= 0.01 at 0.1"
      empriv audit --update audit.empriv today.parquet
    """
    only_estimate = given.pop("estimate")
    if update is not None:
        if only_estimate:
            raise click.UsageError("--estimate must not be given with --update.")
        _update(update, config, write_config, given)
        return
    settings = _settings(config, trust_config, given)
    read = paths_read(settings)
    if only_estimate:
        check_targets((settings.json,), read)
        say_estimate(settings)
        return
    check_targets((settings.json, settings.save, settings.report, write_config), read)
    # A config must not have itself replaced, nor the ledger; --write-config is the user's own word. The TOML beside a
    # report holds the same settings as the config that asked for it, and may be run again from where it lies.
    read_too = [*read, *(path for path in (config, settings.ledger) if path is not None)]
    beside = beside_report(settings.report, everything=settings.beside)
    check_targets((settings.json, settings.save, settings.report), read_too)
    check_targets([path for path in beside if not path.endswith(".toml")], read_too)
    check_targets([path for path in beside if path.endswith(".toml")], [path for path in read_too if path != config])

    wanted = Wanted.of(settings, config=to_toml(settings))
    written = None if write_config is None else (write_config, to_toml(settings))
    finish(
        lambda engine: run_audit(settings, engine), wanted,
        save=settings.save, config=written, limits=limits_of(settings),
    )  # fmt: skip


def run_audit(settings: Settings, engine: Any) -> Any:
    """The audit that settings ask for."""
    import empriv

    audited = empriv.audit(
        source_of(settings), settings.asked, epsilon=settings.epsilon, density=density_from_name(settings.density),
        component=settings.component, known=settings.known or "auto", unit=settings.unit, noun=settings.noun,
        paper=settings.paper,
        ledger=ledger_of(settings), scope=settings.scope, engine=engine,
        progress=False if settings.quiet else None, notice=_unsaid if settings.quiet else None,
    )  # fmt: skip
    return audited if settings.times is None else audited.repeated(settings.times)


def _update(path: str, config: str | None, write_config: str | None, given: dict[str, Any]) -> None:
    """Add databases to a saved audit, and show it as it is then."""
    settings = settings_of({}, given)
    if not settings.files:
        raise click.UsageError("Missing argument 'FILES...'.")
    held = ("query", "individual", "database", "known", "ledger", "component", "subsamples")
    wrong = [f"--{name.replace('_', '-')}" for name in held if getattr(settings, name)]
    if wrong or config is not None or write_config is not None:
        raise click.UsageError(
            f"--update must not be given with {wrong[0] if wrong else '--config'}: the audit has it."
        )
    check_targets((settings.json, settings.save, settings.report), [*paths_read(settings), path])
    saved = load_audit(path, settings.epsilon)
    origin = saved.origin
    if origin is None:
        raise InputError("SAVED must be an audit of rows, got one of results.")
    settings = replace(
        settings, database=origin.database, individual=origin.individual, unidentified=origin.unidentified
    )

    def run(engine: Any) -> Any:
        grown = saved.updated(source_of(settings), engine=engine, progress=False if settings.quiet else None)
        return grown if settings.times is None else grown.repeated(settings.times)

    wanted = Wanted.of(settings)

    def whenever(grown: Any) -> tuple[str, ...]:
        return (grown.bounds_whenever(grown.epsilons[0]).sentence,)

    finish(run, wanted, save=settings.save or path, limits=limits_of(settings), further=whenever)


def _settings(config: str | None, trusted: bool, given: dict[str, Any]) -> Settings:
    """Settings from the file and the command line; a missing one is wrong usage."""
    settings = settings_of({}, given)
    if not settings.files:
        raise click.UsageError("Missing argument 'FILES...'.")
    for name in ("individual", "query"):
        if not getattr(settings, name):
            raise click.UsageError(f"Missing option '--{name}'.")
    try:
        settings.check_known()
        density_from_name(settings.density)
    except InputError as error:
        raise click.UsageError(str(error)) from None
    if config is not None and not trusted:
        check_trust(config, values_from_file(given))
    return settings


def _unsaid(sentence: str) -> None:
    """No notice about long runs under --quiet."""
    del sentence
