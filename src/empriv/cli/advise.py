"""The command `advise`: try ways to publish an answer, print them best first, and write what redoes them."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

from empriv.cli.config import Settings, config_options, settings_of, to_toml, values_from_file
from empriv.cli.inputs import check_targets, density_from_name, load_audit, paths_read, source_of
from empriv.cli.options import (
    PRESENCES,
    Sentence,
    json_option,
    known_options,
    limit_options,
    queries_option,
    quiet_option,
    source_options,
    unit_option,
)
from empriv.cli.output import POLICY_FAILED, printing, write_json, write_to
from empriv.cli.running import bar_of, engine_of, interruptible, limits_of
from empriv.cli.targets import goal_of, parse_target
from empriv.cli.trust import check_trust
from empriv.errors import InputError

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.comparing.ways import Action, Advice

AS_IT_IS = "as_it_is"
"""The protocol that the others are compared with, in the file of --write-config."""

# Keys by which `empriv audit` reports and writes: advice must not write over an audit's files.
_OF_AUDITS = ("epsilon", "json", "save", "report", "quiet")


@click.command()
@source_options
@queries_option
@unit_option
@click.option("--density", metavar="NAME", help="How densities are estimated, as for `empriv audit`.")
@known_options
@limit_options
@click.option(
    "--target",
    multiple=True,
    type=Sentence(parse_target),
    metavar="TARGET",
    help='What is to be met, such as "delta <= 0.01 at 0.1"; one of delta and one of total_risk, at one epsilon.',
)
@click.option("--epsilon", type=float, metavar="E", help="In place of --target: the epsilon to reach.")
@click.option("--delta", type=float, metavar="D", help="With --epsilon: limit on each individual's delta_i.")
@click.option("--total-risk", type=float, metavar="T", help="With --epsilon: limit on the total risk.")
@click.option(
    "--presence",
    type=click.Choice(PRESENCES),
    help="Where the target must be met: in a random database and in one that people are in, or in a random one alone. "
    "[default: both]",
)
@click.option("--granularity", type=float, metavar="G", help="What noisy answers are multiples of, such as 0.01.")
@click.option("--rng", type=click.IntRange(min=0), metavar="N", help="Seed of all random numbers. [default: 0]")
@click.option("--save", metavar="PATH", help="Save the audit, for the commands of the rows (mode 0600).")
@click.option("--write-config", metavar="PATH", help="Write the audit.toml that redoes the row with the least error.")
@click.option("--row", type=click.IntRange(min=1), metavar="N", help="With --write-config: redo this row instead.")
@json_option
@quiet_option
@config_options(
    "Read the rows, the query and the target from this audit.toml; options given here win.", without=_OF_AUDITS
)
def advise(
    config: str | None,
    trust_config: bool,
    target: tuple[str, ...],
    epsilon: float | None,
    delta: float | None,
    total_risk: float | None,
    granularity: float | None,
    write_config: str | None,
    row: int | None,
    **given: Any,
) -> None:
    """Try what can be done about an answer, on the same databases: ways that meet the target first, by their error.

    FILES are as for `empriv audit`; or one audit that was saved with --save, of which only what needs no rows is tried.
    Exit codes: 0 a way meets the target, 3 none does.

    \b
    Examples:
      empriv advise sales.parquet --database day --individual client_id --query "sum(amount)" \\
        --target "delta <= 0.05 at 0.1" --save audit.empriv
      empriv advise audit.empriv --target "delta <= 0.05 at 0.1"
      empriv advise --config audit.toml
    """
    rng = given.pop("rng") or 0
    settings = replace(settings_of({}, given), rng=rng)
    in_file = values_from_file({**given, "target": target})
    aim = _aim(() if epsilon is not None and "target" in in_file else target, epsilon, delta, total_risk)
    if config is not None and not trust_config:
        check_trust(config, in_file)
    if not settings.files:
        raise click.UsageError("Missing argument 'FILES...'.")
    from_file = not settings.query
    if from_file and (len(settings.files) > 1 or settings.individual or settings.save):
        raise click.UsageError("Missing option '--query'.")
    if not from_file and not settings.individual:
        raise click.UsageError("Missing option '--individual'.")
    if from_file and write_config is not None:
        raise click.UsageError("--write-config must be given with the rows: a saved audit does not hold them.")
    quiet = settings.quiet or settings.json == "-"
    check_targets((settings.json, settings.save, write_config), paths_read(settings))
    settings.check_known()

    bar = bar_of(("Collecting and measuring", "Trying ways to publish"), quiet=quiet)

    def work(engine: Any) -> tuple[Audit, Advice]:
        import empriv

        bar.begin("Collecting and measuring")
        data = None if from_file else source_of(settings)
        if data is None:
            audited = load_audit(settings.files[0], (aim["epsilon"],))
        else:
            audited = empriv.audit(
                data, settings.asked, epsilon=aim["epsilon"], density=density_from_name(settings.density),
                known=settings.known or "auto", unit=settings.unit, noun=settings.noun,
                engine=engine,
            )  # fmt: skip
        bar.begin("Trying ways to publish")
        saved = settings.files[0] if from_file else settings.save or "audit.empriv"
        return audited, empriv.advise(
            audited, data, **aim, presence=settings.presence, granularity=granularity, rng=rng, saved=saved,
            config=write_config or "advice.toml", engine=engine,
        )  # fmt: skip

    with engine_of(limits_of(settings)) as engine:
        audited, advice = interruptible(lambda: work(engine))
    bar.pause()
    chosen = _chosen(advice, row)
    files = {} if from_file else {id(action): config_of(settings, action, aim) for action in advice.rows}
    if not quiet:
        with printing():
            _print(advice, saved=from_file or settings.save is not None, rows=not from_file, written=write_config)
    if settings.save is not None:
        write_to(settings.save, audited.save)
    if write_config is not None:
        from empriv.base.storage import write_atomically

        write_to(write_config, lambda path: write_atomically(path, files[id(chosen)].encode(), mode=0o644))
    if settings.json is not None:
        figures = advice.to_json()
        rows = [*figures["options"], *([] if figures["classical"] is None else [figures["classical"]])]
        for figure, action in zip(rows, advice.rows, strict=True):
            figure["config"] = files.get(id(action))
        write_json(settings.json, figures)
    if advice.best is None:
        click.get_current_context().exit(POLICY_FAILED)


def config_of(settings: Settings, action: Action, aim: dict[str, Any]) -> str:
    """The audit.toml with which the command of a row redoes it."""
    limits = (("delta", aim["delta"]), ("total_risk", aim["total_risk"]))
    targets = tuple(f"{name} <= {limit:g} at {aim['epsilon']:g}" for name, limit in limits if limit is not None)
    own = tomllib.loads(action.toml)
    plain = replace(settings, epsilon=(aim["epsilon"],), target=targets, json=None, save=None, report=None)
    if "query" in own:  # noise will meet the target, not this query by itself
        plain = replace(plain, target=())
    if "protocols" not in own:
        changed: dict[str, Any] = {name: (text,) if name == "query" else text for name, text in own.items()}
        return to_toml(replace(plain, **changed))
    protocols = {AS_IT_IS: {"kind": "plain"}, **own["protocols"]}
    return to_toml(replace(plain, known=plain.known or ("auto",), truth=AS_IT_IS, protocols=protocols))


def _aim(
    target: tuple[str, ...], epsilon: float | None, delta: float | None, total_risk: float | None
) -> dict[str, Any]:
    """Epsilon, delta and total risk, from --target or from options of their own."""
    if bool(target) == (epsilon is not None):
        raise click.UsageError('Either --target, such as "delta <= 0.01 at 0.1", or --epsilon must be given.')
    if not target:
        if delta is None and total_risk is None:
            raise click.UsageError("--epsilon must be given with --delta or --total-risk.")
        return {"epsilon": epsilon, "delta": delta, "total_risk": total_risk}
    if delta is not None or total_risk is not None:
        raise click.UsageError("--delta and --total-risk must be given with --epsilon.")
    try:
        return goal_of(target)
    except InputError as error:
        raise click.UsageError(str(error)) from None


def _chosen(advice: Advice, row: int | None) -> Action:
    if row is not None and row > len(advice.rows):
        raise click.UsageError(f"--row must be at most {len(advice.rows)}, got {row}.")
    return advice.rows[0 if row is None else row - 1]


def _print(advice: Advice, *, saved: bool, rows: bool, written: str | None) -> None:
    """The rows, and the command of each; a row that needs a file says how to have it written."""
    from empriv.cli.hints import as_typed
    from empriv.cli.terminal import printable

    for line in str(advice).splitlines():
        click.echo(printable(line))
    commands: dict[str, list[int]] = {}
    for place, action in enumerate(advice.rows, start=1):
        if action.toml and not rows:
            command = "give the files of the rows and --query instead of the saved audit, and --write-config"
        elif action.toml:
            first = "" if written is not None else "with --write-config advice.toml --row N, then "
            command = f"{first}{as_typed(action.command)}"
        else:
            command = as_typed(action.command)
        commands.setdefault(command, []).append(place)
    click.echo(f"\nWhat does it, by row{'' if saved else ' (after --save audit.empriv)'}:")
    for command, places in commands.items():
        click.echo(printable(f"  {', '.join(map(str, places))}: {command}"))
