"""The command `compare`: saved audits, or the protocols of an audit.toml, side by side."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import click

from empriv.cli.config import Settings, config_options, settings_of
from empriv.cli.inputs import check_targets, density_from_name, load_audit, paths_read, source_of
from empriv.cli.options import PRESENCES, Sentence, epsilon_option, json_option, quiet_option
from empriv.cli.output import POLICY_FAILED, write_json
from empriv.cli.running import PAGE, bar_of, engine_of, interruptible, limits_of
from empriv.cli.targets import goal_of, parse_target
from empriv.cli.trust import check_trust
from empriv.errors import InputError

# Keys by which `empriv audit` writes or judges: a comparison must not write over an audit's files.
_OF_AUDITS = ("json", "save", "report", "public", "answers", "beside", "basis", "show_ids", "top")


@click.command()
@click.argument("paths", nargs=-1, metavar="[SAVED...]")
@config_options("Compare the protocols of this audit.toml, instead of saved audits.", without=_OF_AUDITS)
@click.option("--truth", metavar="NAME", help="The protocol whose answers are right: errors are measured from it.")
@epsilon_option
@click.option(
    "--draws", type=click.IntRange(min=1), metavar="N", help="Draws of randomised protocols for each database."
)
@click.option("--rng", type=click.IntRange(min=0), metavar="N", help="Seed of all random numbers. [default: 0]")
@click.option(
    "--target", multiple=True, type=Sentence(parse_target), metavar="TARGET",
    help='What is to be met, such as "delta <= 0.01 at 0.1": recommends the least error among those that meet it; exit '
    "with code 3 if none does. One of delta and one of total_risk, at one epsilon.",
)  # fmt: skip
@click.option(
    "--presence", type=click.Choice(PRESENCES),
    help="Where the target must be met: in a random database and in one that people are in, or in a random one alone. "
    "[default: both]",
)  # fmt: skip
@json_option
@click.option("--report", metavar="PATH", help="Write the comparison as one page of HTML.")
@quiet_option
def compare(paths: tuple[str, ...], config: str | None, trust_config: bool, **given: Any) -> None:
    """Put protocols side by side: delta, its upper bound, total risk and errors.

    SAVED are audits that were saved with --save; they are named after their files. Or --config names an audit.toml
    with tables such as [protocols.rounded], each with a kind and its options.

    \b
    Examples:
      empriv compare raw.empriv rounded.empriv --truth raw --epsilon 0.1 --report compare.html
      empriv compare --config audit.toml --json compare.json
    """
    if (config is None) == (not paths):
        raise click.UsageError("Either SAVED files or --config must be given.")
    in_file = click.get_current_context().default_map or {}
    settings = settings_of(in_file, given)
    if config is not None and not trust_config:
        check_trust(config, in_file)
    quiet = settings.quiet or settings.json == "-"
    read_too = list(paths) if config is None else [config, *paths_read(settings)]
    check_targets((settings.json, settings.report), read_too)

    page = () if settings.report is None else (PAGE,)
    bar = bar_of(("Collecting and measuring", "Comparing", *page), quiet=quiet)

    def work(engine: Any) -> Any:
        bar.begin("Collecting and measuring")
        compared = _saved(paths, settings, given["epsilon"]) if config is None else _asked(settings, engine, quiet)
        bar.begin("Comparing")
        figures = None if settings.json is None else compared.to_json()
        return compared, figures, None if quiet else str(compared)

    with nullcontext() if config is None else engine_of(limits_of(settings)) as engine:
        compared, figures, text = interruptible(lambda: work(engine))
    bar.pause()
    from empriv.cli.terminal import printable

    if text is not None:
        click.echo("\n".join(map(printable, text.splitlines())))
    if settings.json is not None and figures is not None:
        write_json(settings.json, figures)
    if settings.report is not None:
        bar.begin(PAGE)
        compared.report(settings.report)
        bar.pause()
        if not quiet:
            click.echo(printable(f"Wrote {Path(settings.report).name}."))
    recommendation = compared.recommendation
    if recommendation is not None and "pass" not in recommendation.verdicts.values():
        click.get_current_context().exit(POLICY_FAILED)


def _target(settings: Settings) -> dict[str, Any] | None:
    """The target of a recommendation, as `empriv.compare` takes it."""
    return {**goal_of(settings.target), "presence": settings.presence} if settings.target else None


def _saved(paths: tuple[str, ...], settings: Settings, epsilons: tuple[float, ...] | None) -> Any:
    if len(paths) < 2:
        raise click.UsageError("SAVED must name at least two files.")
    names = [Path(path).stem for path in paths]
    if len(set(names)) < len(names):
        raise InputError("Files must have different names: the audits are named after them.")
    from empriv.comparing import compare as compare_all

    audits = {name: load_audit(path, settings.epsilon) for name, path in zip(names, paths, strict=True)}
    audited_epsilons = sorted({epsilon for audit in audits.values() for epsilon in audit.epsilons})
    return compare_all(
        audits,
        truth=settings.truth,
        epsilon=epsilons or audited_epsilons,
        rng=settings.rng,
        target=_target(settings),
    )


def _asked(settings: Settings, engine: Any, quiet: bool) -> Any:
    """The protocols of a file, on its rows."""
    for name in ("files", "individual", "protocols"):
        if not getattr(settings, name):
            raise click.UsageError(f"--config must name a file with {name!r}.")
    settings.check_comparison()
    from empriv.comparing import compare as compare_all

    return compare_all(
        protocols_of(settings), source_of(settings), truth=settings.truth, epsilon=settings.epsilon,
        density=density_from_name(settings.density), component=settings.component, known=settings.known or "nothing",
        draws=settings.draws, target=_target(settings),
        rng=settings.rng, engine=engine, notice=_unsaid if quiet else None,
    )  # fmt: skip


def protocols_of(settings: Settings) -> dict[str, Any]:
    """The protocols that a file describes, each on the file's query unless it has a query of its own or a base."""
    from empriv import protocols

    by_name: dict[str, Any] = {}

    def build(name: str, above: tuple[str, ...]) -> Any:
        if name in by_name:
            return by_name[name]
        if name in above:
            raise InputError(f"`protocols.{name}.base` must not lead back to itself.")
        table = dict(settings.protocols[name])
        kind, base, query = table.pop("kind"), table.pop("base", None), table.pop("query", None)
        if base is not None:
            start = build(base, (*above, name))
        else:
            start = query or (settings.asked if settings.query else None)
            if start is None:
                raise InputError(f"`protocols.{name}` must have a query, or the file must have one for all.")
        if kind == "noised":
            from empriv.auditing.make_audit import load

            table["noise"] = load(table["noise"])
        by_name[name] = getattr(protocols, kind)(start, **table)
        return by_name[name]

    return {name: build(name, ()) for name in settings.protocols}


def _unsaid(sentence: str) -> None:
    """No notice about long runs if only figures are wanted."""
    del sentence
