"""The commands `compare` and `advise`: audits side by side, and ways to publish that are tried."""

from __future__ import annotations

import shlex
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from empriv.base.targets import goal_of
from empriv.cli.config import Settings, config_options, settings_given, settings_of, to_toml, values_from_file
from empriv.cli.inputs import (
    audit_of,
    check_targets,
    check_trust,
    paths_read,
    saved_audit,
    source_of,
)
from empriv.cli.options import (
    epsilon_option,
    goal_option,
    json_option,
    known_option,
    limit_options,
    presence_option,
    queries_option,
    quiet_option,
    source_options,
    times_option,
    unit_option,
)
from empriv.cli.running import (
    PAGE,
    POLICY_FAILED,
    bar_of,
    engine_of,
    interruptible,
    limits_of,
    printing,
    say_written,
    write_json,
    write_text,
    write_to,
)
from empriv.cli.terminal import as_typed, printable
from empriv.errors import InputError

if TYPE_CHECKING:
    from empriv.comparing.ways import Action, Advice


@click.command()
@click.argument("paths", nargs=-1, required=True, metavar="SAVED...")
@click.option("--truth", metavar="NAME", help="The audit whose answers are right: errors are measured from it.")
@epsilon_option
@goal_option
@presence_option
@json_option
@click.option("--report", metavar="PATH", help="Write the comparison as one page of HTML.")
@quiet_option
def compare(paths: tuple[str, ...], truth: str | None, **given: Any) -> None:
    """Put saved audits side by side: delta, its upper bound, total risk and errors.

    SAVED are audits that were saved with --save; they are named after their files.

    \b
    Example:
      empriv compare raw.empriv rounded.empriv --truth raw --epsilon 0.1 --report compare.html
    """
    if len(paths) < 2:
        raise click.UsageError("SAVED must name at least two files.")
    names = [Path(path).stem for path in paths]
    if len(set(names)) < len(names):
        raise InputError("Files must have different names: the audits are named after them.")
    settings = settings_of({}, given)
    check_targets((settings.json, settings.report), paths)
    page = () if settings.report is None else (PAGE,)
    bar = bar_of(("Reading", "Comparing", *page), quiet=settings.silent)

    def work() -> Any:
        from empriv.comparing import compare as compare_all

        bar.begin("Reading")
        audits = {name: saved_audit(path, settings) for name, path in zip(names, paths, strict=True)}
        bar.begin("Comparing")
        audited_at = sorted({epsilon for audit in audits.values() for epsilon in audit.epsilons})
        target = {**goal_of(settings.target), "presence": settings.presence} if settings.target else None
        compared = compare_all(audits, truth=truth, epsilon=given["epsilon"] or audited_at, target=target)
        figures = None if settings.json is None else compared.to_json()
        return compared, figures, "" if settings.silent else str(compared)

    compared, figures, text = interruptible(work)
    bar.pause()
    if not settings.silent:
        with printing():
            click.echo("\n".join(map(printable, text.splitlines())))
    if settings.json is not None:
        write_json(settings.json, figures)
    if settings.report is not None:
        bar.begin(PAGE)
        compared.report(settings.report)
        bar.pause()
        if not settings.silent:
            say_written(Path(settings.report).name)
    recommendation = compared.recommendation
    if recommendation is not None and "pass" not in recommendation.verdicts.values():
        click.get_current_context().exit(POLICY_FAILED)


# Keys by which `empriv audit` reports and writes: advice must not write over an audit's files.
_NOT_ADVISED = ("json", "save", "report", "quiet")


@click.command()
@source_options
@queries_option
@times_option
@unit_option
@known_option
@limit_options
@goal_option
@presence_option
@click.option("--granularity", type=float, metavar="G", help="What noisy answers are multiples of, such as 0.01.")
@click.option("--save", metavar="PATH", help="Save the audit, for the commands of the rows (mode 0600).")
@click.option("--write-config", metavar="PATH", help="Write the audit.toml that redoes the row with the least error.")
@click.option("--row", type=click.IntRange(min=1), metavar="N", help="With --write-config: redo this row instead.")
@json_option
@quiet_option
@config_options(
    "Read the rows, the query and the target from this audit.toml; options given here win.", without=_NOT_ADVISED
)
def advise(
    config: str | None, trust_config: bool, granularity: float | None, write_config: str | None, row: int | None,
    **given: Any,
) -> None:  # fmt: skip
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
    settings = settings_given(given)
    if config is not None and not trust_config:
        check_trust(config, values_from_file(given))
    if not settings.files:
        raise click.UsageError("Missing argument 'FILES...'.")
    from_file = not settings.query
    if from_file and (len(settings.files) > 1 or settings.individual or settings.save):
        raise click.UsageError("Missing option '--query'.")
    if not from_file and not settings.individual:
        raise click.UsageError("Missing option '--individual'.")
    if from_file and write_config is not None:
        raise click.UsageError("--write-config must be given with the rows: a saved audit does not hold them.")
    check_targets((settings.json, settings.save, write_config), paths_read(settings))
    settings.check()
    saved = interruptible(lambda: saved_audit(settings.files[0], settings)) if from_file else None
    goal = _goal(settings.target or (() if saved is None else tuple(kept.text for kept in saved.targets)))
    if saved is not None and goal["delta"] is not None:
        from empriv.auditing.deciding import own_targets
        from empriv.base.targets import check_as_strict

        own = [target for target in own_targets(saved) if target.figure == "delta"]
        where = settings.presence or ("random" if saved.paper else "both")
        check_as_strict(own, goal["epsilon"], goal["delta"], where)
    stages = ("Collecting and measuring", "Trying ways to publish")
    bar = bar_of(stages, quiet=settings.silent)

    def work(engine: Any) -> tuple[Any, Advice]:
        import empriv

        bar.begin(stages[0])
        audited = audit_of(replace(settings, epsilon=(goal["epsilon"],)), engine) if saved is None else saved
        bar.begin(stages[1])
        return audited, empriv.advise(
            audited, None if from_file else source_of(settings), **goal, presence=settings.presence,
            granularity=granularity, engine=engine, config=write_config or "advice.toml",
            saved=settings.files[0] if from_file else settings.save or "audit.empriv",
        )  # fmt: skip

    with engine_of(limits_of(settings)) as engine:
        audited, advice = interruptible(lambda: work(engine))
    bar.pause()
    if row is not None and row > len(advice.rows):
        raise click.UsageError(f"--row must be at most {len(advice.rows)}, got {row}.")
    files = [None if from_file else config_of(settings, action, goal["epsilon"]) for action in advice.rows]
    if not settings.silent:
        with printing():
            written = None if write_config is None else (write_config, row or 1)
            _print(advice, saved=from_file or settings.save is not None, rows=not from_file, written=written)
    if settings.save is not None:
        write_to(settings.save, audited.save)
    if write_config is not None:
        write_text(write_config, files[(row or 1) - 1] or "")
    if settings.json is not None:
        figures = advice.to_json()
        rows = [*figures["options"], *([] if figures["classical"] is None else [figures["classical"]])]
        for figure, file in zip(rows, files, strict=True):
            figure["config"] = file
        write_json(settings.json, figures)
    if advice.best is None:
        click.get_current_context().exit(POLICY_FAILED)


def _goal(targets: tuple[str, ...]) -> dict[str, Any]:
    """Epsilon, delta and total risk that are to be met."""
    if not targets:
        raise click.UsageError("Missing option '--target', such as \"delta <= 0.01 at 0.1\".")
    try:
        return goal_of(targets)
    except InputError as error:
        raise click.UsageError(str(error)) from None


def config_of(settings: Settings, action: Action, epsilon: float) -> str:
    """The audit.toml with which the command of a row redoes it."""
    own = tomllib.loads(action.toml)
    plain = replace(settings, epsilon=(epsilon,), json=None, save=None, report=None)
    if "query" in own:  # noise will meet the target, not this query by itself
        plain = replace(plain, target=())
    changed: dict[str, Any] = {name: (text,) if name == "query" else text for name, text in own.items()}
    return to_toml(replace(plain, **changed))


def _print(advice: Advice, *, saved: bool, rows: bool, written: tuple[str, int] | None) -> None:
    """The rows, and the command of each; a row that needs a file other than that ``written`` says how to have it."""
    for line in str(advice).splitlines():
        click.echo(printable(line))
    commands: dict[str, list[str]] = {}
    for place, action in enumerate(advice.rows, start=1):
        command = as_typed(action.command)
        if action.toml and not rows:
            command = "give the files of the rows and --query instead of the saved audit, and --write-config"
        elif action.toml and (written is None or written[1] != place):
            name = "advice.toml" if written is None else shlex.quote(written[0])
            command = f"with --write-config {name} --row N, then {command}"
        commands.setdefault(command, []).append(str(place))
    click.echo(f"\nWhat does it, by row{'' if saved else ' (after --save audit.empriv)'}:")
    for command, places in commands.items():
        click.echo(printable(f"  {', '.join(places)}: {command}"))
