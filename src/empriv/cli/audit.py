"""The commands `audit`, `show`, `demo` and `export`: an audit is made, read, printed, and exported for the record."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial
from typing import Any

import click

from empriv.cli.config import Settings, config_options, settings_given, settings_of, to_toml, values_from_file
from empriv.cli.inputs import (
    audit_of,
    check_targets,
    check_trust,
    key_of,
    paths_read,
    saved_audit,
    saved_noise,
    source_of,
)
from empriv.cli.options import (
    SectionedCommand,
    chunk_options,
    epsilon_option,
    json_option,
    known_option,
    ledger_option,
    limit_options,
    paper_option,
    queries_option,
    quiet_option,
    report_option,
    show_ids_option,
    source_options,
    target_options,
    times_option,
    top_option,
    unit_option,
    verbose_option,
)
from empriv.cli.running import at_the_data, finish, limits_of, say_written, write_json, write_text, write_to
from empriv.cli.terminal import echo, quoted, quoted_path
from empriv.errors import InputError


@click.command(cls=SectionedCommand)
@source_options
@queries_option
@epsilon_option
@times_option
@unit_option
@known_option
@paper_option
@ledger_option
@limit_options
@chunk_options
@json_option
@click.option("--save", metavar="PATH", help="Save the audit, for `empriv show` and empriv.load (mode 0600).")
@report_option
@target_options
@show_ids_option
@top_option
@quiet_option
@verbose_option
@click.option(
    "--estimate", is_flag=True,
    help="Say what an audit would take, in rows and memory, from a small sample; run nothing.",
)  # fmt: skip
@config_options("Read options from this audit.toml; those given here win.")
@click.option("--write-config", metavar="PATH", help="Write the audit.toml that repeats this run.")
@click.option(
    "--update", metavar="SAVED",
    help="Add the databases in FILES to this saved audit, whose query, individual and database hold. Only FILES are "
    "read. The file is replaced, unless --save names another.",
)  # fmt: skip
def audit(
    config: str | None, trust_config: bool, write_config: str | None, update: str | None, estimate: bool, **given: Any
) -> None:
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
    settings = settings_given(given)
    if not settings.files:
        raise click.UsageError("Missing argument 'FILES...'.")
    if update is not None:
        if config is not None or write_config is not None or estimate:
            raise click.UsageError("--update must not be given with --config, --write-config or --estimate.")
        _update(update, settings)
        return
    for name in ("individual", "query"):
        if not getattr(settings, name):
            raise click.UsageError(f"Missing option '--{name}'.")
    try:
        settings.check()
    except InputError as error:
        raise click.UsageError(str(error)) from None
    if config is not None and not trust_config:
        check_trust(config, values_from_file(given))
    read = paths_read(settings)
    check_targets((settings.json, settings.save, settings.report, settings.checkpoint, write_config), read)
    # A config must not have itself replaced, nor the ledger; --write-config is the user's own word.
    written = (settings.json, settings.save, settings.report, settings.checkpoint, *key_of(settings.report))
    check_targets(written, [*read, config, settings.ledger])
    if estimate:
        _estimate(settings)
        return
    text = None
    if write_config is not None:
        repeats = to_toml(settings)
        text = (write_config, lambda finished: repeats)  # noqa: ARG005
    rows = partial(source_of, settings)
    finish(
        lambda engine: audit_of(settings, engine), settings, text=text, rows=rows,
        in_this_thread=bool(settings.in_chunks or settings.checkpoint),
    )  # fmt: skip


def _estimate(settings: Settings) -> None:
    """Print what an audit will take, or write it with --json."""
    from empriv.auditing.memory import estimate
    from empriv.collecting.run_query import Run

    cost = at_the_data(
        lambda engine: estimate(source_of(settings), settings.query, Run(engine=engine)), limits_of(settings),
        quiet=settings.silent,
    )  # fmt: skip
    if settings.json is not None:
        write_json(settings.json, cost.to_json())
    if not settings.silent:
        for sentence in cost.sentences:
            echo(sentence)


def _update(path: str, settings: Settings) -> None:
    """Add databases to a saved audit, and show it as it is then."""
    for name in ("query", "individual", "database", "known", "ledger", "subsamples", "checkpoint"):
        if getattr(settings, name):
            raise click.UsageError(f"--update must not be given with --{name}: the audit has it.")
    written = (settings.json, settings.save, settings.report)
    check_targets(written, [*paths_read(settings), path])
    saved = saved_audit(path, replace(settings, times=None))
    origin = saved.origin
    if origin is None:
        raise InputError("SAVED must be an audit of rows, got one of results.")
    rows = replace(
        settings, database=origin.database, individual=origin.individual, unidentified=origin.unidentified
    )  # fmt: skip

    def grown(engine: Any) -> Any:
        made = saved.updated(source_of(rows), engine=engine, progress=False if settings.quiet else None)
        made = replace(made, targets=tuple(dict.fromkeys((*saved.targets, *settings.targets))))
        return made if settings.times is None else made.repeated(settings.times)

    finish(
        grown, replace(settings, save=settings.save or path),
        further=lambda made: (made.anytime_bounds(made.epsilons[0]).sentence,),
    )  # fmt: skip


@click.command()
@click.argument("path", metavar="SAVED")
@epsilon_option
@unit_option
@times_option
@json_option
@report_option
@click.option(
    "--noise", metavar="FILE",
    help="Show the answer with this saved noise, certified anew for the audit; --report and --json are then of that.",
)  # fmt: skip
@target_options
@show_ids_option
@top_option
@quiet_option
@verbose_option
def show(path: str, noise: str | None, **given: Any) -> None:
    """Show an audit that was saved with --save, or audit saved results.

    \b
    Examples:
      empriv show audit.empriv --epsilon 0.1,0.5
      empriv show audit.empriv --noise noise.empriv --report noisy.html
    """
    settings = settings_of({}, given)
    check_targets((settings.json, settings.report), (path, noise))
    if noise is not None:
        for name in ("times", "target", "show_ids"):
            if getattr(settings, name):
                option = name.replace("_", "-")
                raise click.UsageError(f"--{option} must not be given with --noise, which has a target.")
        from empriv.cli.noise import show_noise

        show_noise(noise, path, settings)
        return
    finish(lambda engine: saved_audit(path, settings), settings, epsilons=given["epsilon"], saved=path)  # noqa: ARG005


DEMO_QUERY = "avg(delay)"
DEMO_TARGET = "delta <= 0.05 at 1"
_DEMO_PAGE, _DEMO_SAVED = "empriv-demo.html", "empriv-demo.empriv"


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

    asked = {
        "files": (str(flights()),), "database": "date", "individual": ("aircraft",), "query": (DEMO_QUERY,),
        "target": (DEMO_TARGET,), "unit": "min", "top": 0, "report": _DEMO_PAGE,
        "save": _DEMO_SAVED, "epsilon": epsilon,
    }  # fmt: skip
    settings = settings_of({}, asked)
    check_targets((_DEMO_PAGE, _DEMO_SAVED), ())
    named = ("--database", "date", "--individual", "aircraft", "--query", DEMO_QUERY, "--unit", "min")
    advise = " ".join(("empriv advise", quoted_path(flights()), *map(quoted, named)))
    finish(
        lambda engine: audit_of(settings, engine), settings, exits=False,
        rows=partial(source_of, settings), advise=advise,
    )  # fmt: skip


@click.command()
@click.argument("path", metavar="SAVED")
@target_options
@click.option("--noise", metavar="FILE", help="Saved noise that the answer is released with.")
@click.option("--dpia", metavar="PATH", help="Write a section of an impact assessment: .md or .html.")
@click.option("--public", metavar="PATH", help="Write the page that may be published (.html): decision and promise.")
@click.option("--registry", metavar="PATH", help="Write an entry of OpenDP's registry of deployments (YAML).")
@click.option("--curator-type", metavar="TYPE", help="With --registry: Government, Industry or Nonprofit.")
@click.option("--review", default="", metavar="DATE", help="When the release is to be reviewed, such as 2030-01-31.")
@click.option("--exception", default="", metavar="TEXT", help="Why something that is not a pass is accepted.")
@click.option("--checker", default="", metavar="NAME", help="Who checked it.")
@unit_option
def export(
    path: str, noise: str | None, dpia: str | None, public: str | None, registry: str | None, curator_type: str | None,
    review: str, exception: str, checker: str, **given: Any,
) -> None:  # fmt: skip
    """Write files for the record of an audit that was saved with --save: the same decision as on its page.

    \b
    Examples:
      empriv export audit.empriv --target "delta <= 0.05 at 0.1" --dpia release.md --review 2030-01-31
      empriv export audit.empriv --target "delta <= 0.05 at 0.1" --noise noise.empriv \\
        --public page.html --registry entry.yaml --curator-type Government
    """
    if dpia is None and public is None and registry is None:
        raise click.UsageError("--dpia, --public or --registry must be given.")
    if dpia is not None and not dpia.lower().endswith((".md", ".html")):
        raise click.UsageError("--dpia must end in .md or .html.")
    if registry is not None and curator_type is None:
        raise click.UsageError("--registry needs --curator-type: Government, Industry or Nonprofit.")
    settings = settings_of({}, given)
    check_targets((dpia, public, registry), (path, noise))
    from empriv.auditing.deciding import verdicts_on
    from empriv.report.export import Accepted, html_of, impact_assessment, markdown_of, registry_entry, to_fill, yaml_of

    audit = saved_audit(path, settings)
    verdicts = verdicts_on(audit, settings.targets)
    if not verdicts:
        raise click.UsageError("Missing option '--target', which the audit was not made with.")
    saved = None if noise is None else saved_noise(noise, "--noise").certified_for(audit.alone)
    if dpia is not None:
        command = ["empriv", "show", path, *(part for text in settings.target for part in ("--target", text))]
        accepted = Accepted(review, exception, checker, shlex.join(command))
        sections = impact_assessment(audit, verdicts, noise=saved, accepted=accepted)
        write_text(dpia, (html_of if dpia.lower().endswith(".html") else markdown_of)(sections), mode=0o600)
    if public is not None:
        write_to(public, lambda target: audit.report(target, public=True, verdicts=verdicts, noise=saved))
    if registry is not None:
        entry = registry_entry(audit, verdicts, curator_type=curator_type or "", noise=saved)
        write_text(registry, yaml_of(entry))
    say_written(*filter(None, (dpia, public, registry)))
    if registry is not None and (unfilled := to_fill(entry)):
        echo(f"To be filled in, in {registry}: {', '.join(unfilled)}.")
