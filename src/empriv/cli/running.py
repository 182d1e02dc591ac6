"""Running an audit for a command: work that Ctrl-C stops, then the screen, the files and the exit code.

Nothing here imports numerics before a command runs.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from empriv.base.progress import Bar, whole
from empriv.base.scratch import scratch_directory
from empriv.cli.config import Settings
from empriv.cli.terminal import audit_screen, console_for, fits, print_screen, printable, quoted, short_screen
from empriv.errors import InputError
from empriv.words.decision import NO_TARGET, PUBLISH

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.collecting import Databases, DuckDBEngine
    from empriv.comparing.ways import Action
    from empriv.results import Results
    from empriv.validate.verdict import Verdict
    from empriv.words.decision import Decision


DONE, ERROR, USAGE, POLICY_FAILED, UNRESOLVED, INTERRUPTED = 0, 1, 2, 3, 4, 130
WORKER = "empriv audit"
PAGE, LOOKING = "Writing the page", "Looking at the data"
_WAYS = "Trying what can be done"
_NOT_TAKEN = {"json", "quiet", "target", "write_config"}  # by the command that is named next
T = TypeVar("T")


@dataclass(frozen=True)
class Finished:
    """An audit with what is said and written of it.

    Attributes
    ----------
    verdicts : each target in words, with its verdict
    figures : for --json
    advice : what was tried, for the page
    screen : what is printed; empty where nothing is
    salt : of the pseudonyms of this run
    """

    audit: Audit
    verdicts: tuple[tuple[str, Verdict], ...]
    figures: dict[str, Any] | None
    advice: Any
    screen: Sequence[Any]
    salt: bytes


def finish(
    make: Callable[[Any], Audit],
    settings: Settings,
    *,
    epsilons: tuple[float, ...] | None = None,
    save: str | None = None,
    saved: str | None = None,
    text: tuple[str, Callable[[Finished], str]] | None = None,
    further: Callable[[Audit], Sequence[str]] | None = None,
    short: bool = False,
    exits: bool = True,
    rows: Callable[[], Databases] | None = None,
    advise: str = "",
    here: bool = False,
) -> None:
    """Make an audit, print it, write its files, and exit with 3 if a target failed, 4 if one is unresolved.

    Parameters
    ----------
    make : the audit, from an engine
    epsilons : to report; default: the audit's own
    save, saved : where the audit is saved, and where it came from
    text : a further file, with what it holds; - prints it in place of the audit
    further : sentences to print after the figures
    short : print the decision and the verdicts alone
    exits : whether a verdict decides the exit code
    rows : gives the databases, on which a page tries what can be done
    advise : the command that advises on them; default: the one that runs now, with another name
    here : whether the audit is made in this thread, where Ctrl-C arrives: a checkpoint is then closed
    """
    quiet = settings.silent or (text is not None and text[0] == "-")
    bar = bar_of(audit_stages(settings), quiet=quiet)
    console = console_for(sys.stdout)
    advise = advise or (typed_for("advise") if rows is not None else "")
    with engine_of(limits_of(settings)) as engine:
        bar.begin("Collecting")
        made = make(engine) if here else None

        def work() -> Finished:
            audit = make(engine) if made is None else made
            bar.begin("Measuring")
            grid = audit.epsilons if epsilons is None else epsilons
            if not short:
                audit.delta(grid)
            bar.begin("Judging")
            if not short and settings.json is not None:  # at once at all of them, of which the first is one
                audit.bounds(grid)
            return judged(
                audit, settings, console, bar, epsilons=epsilons, saved=save or saved, further=further,
                short=short, quiet=quiet, figures=settings.json is not None or (short and text is not None),
                rows=rows, engine=engine, advise=advise,
            )  # fmt: skip

        finished = interruptible(work)
    bar.pause()
    with printing():
        print_screen(finished.screen, console)
        if text is not None and text[0] == "-":
            click.echo(text[1](finished), nl=False)
    _write_files(finished, settings, bar, save=save, text=text, quiet=quiet)
    outcomes = {str(verdict) for _, verdict in finished.verdicts} if exits else set()
    if "fail" in outcomes:
        click.get_current_context().exit(POLICY_FAILED)
    if "unresolved" in outcomes:
        click.get_current_context().exit(UNRESOLVED)


def audit_stages(settings: Settings) -> tuple[str, ...]:
    """The stages of a command that audits."""
    return ("Collecting", "Measuring", "Judging", *((_WAYS, PAGE) if settings.report else ()))


def bar_of(stages: Sequence[str], *, quiet: bool) -> Bar:
    """One bar for all stages of the command that runs now; it ends with it."""
    return click.get_current_context().with_resource(whole(stages, show=False if quiet else None))


def judged(
    audit: Audit,
    settings: Settings,
    console: Any,
    bar: Bar,
    *,
    epsilons: tuple[float, ...] | None = None,
    saved: str | None = None,
    further: Callable[[Audit], Sequence[str]] | None = None,
    short: bool = False,
    quiet: bool = False,
    figures: bool = False,
    rows: Callable[[], Databases] | None = None,
    engine: Any = None,
    advise: str = "",
) -> Finished:
    """The audit with its verdicts, its decision and the words about it."""
    from empriv.auditing.deciding import verdicts_on

    # In this order, the curves at the epsilons asked for are computed only once.
    summary = None if quiet or short else audit.summary(epsilons)
    facts = audit.to_json(epsilons) if figures else None
    verdicts = verdicts_on(audit, settings.targets)
    salt = secrets.token_bytes(32)
    if quiet and facts is None and settings.report is None:
        return Finished(audit, verdicts, None, None, (), salt)
    given = [verdict for _, verdict in verdicts]
    decision = audit.decision(given)
    advice, instead, best = None, "", None
    if settings.report is not None:
        from empriv.report.page.actions import instead_of, quick_advice, worst_first

        bar.begin(_WAYS)
        worst, data = [verdict for _, verdict in worst_first(verdicts)], None if rows is None else rows()
        advice = quick_advice(audit, worst, saved or "audit.empriv", data=data, engine=engine)
        instead, meets = instead_of(decision, advice, audit)
        best = advice.best if advice is not None and meets else None
    tried = instead and not (best is not None and best.toml)  # that takes an audit.toml, which `empriv advise` writes
    asked_at = epsilons or audit.epsilons
    ranked_at = max(given, key=_how_bad).epsilon if given else asked_at[0]
    exposed = None
    if settings.top and (summary is not None or facts is not None):
        from empriv.auditing.summary import most_exposed, names_of

        names = names_of(audit.results, None if settings.show_ids else salt)
        exposed = most_exposed(audit, ranked_at, names, settings.top)
    if facts is not None and verdicts:
        facts["decision"] = decision.to_json()
        facts["verdicts"] = [{"target": text, **verdict.to_json()} for text, verdict in verdicts]
    if facts is not None and advice is not None:
        facts["advice"] = advice.to_json()
    if facts is not None and exposed is not None and not settings.show_ids:
        facts["most_exposed"] = exposed.to_json()
    screen: Sequence[Any] = ()
    if summary is not None:
        from empriv.auditing.summary import tail_sentence, with_validity

        often = _how_often(audit, verdicts) if audit.times > 1 else ()
        tail = settings.verbose and audit.measured.tells_epsilon(0.0)
        single = audit.results.components is None  # influence on several is in spreads of each
        screen = audit_screen(
            console, decision, verdicts, with_validity(audit, summary), exposed=exposed, ranked_at=ranked_at,
            instead=instead, named=settings.show_ids, n_individuals=audit.n_individuals,
            once=None if audit.times == 1 else [float(delta) for delta in audit.once.delta(asked_at)],
            unit=audit.unit if single else "spreads", answer="the answer" if single else "a number",
            further=(*often, *(() if further is None else further(audit))),
            next_step=_next_tried(best) if tried else next_step(audit, given, decision, saved, advise),
            verbose=settings.verbose, tail=tail_sentence(audit.epsilon(0.0)) if tail else "",
        )  # fmt: skip
    elif not quiet:
        screen = short_screen(console, decision, verdicts)
    return Finished(audit, verdicts, facts, advice, screen, salt)


def _how_bad(verdict: Verdict) -> int:
    return ("pass", "unresolved", "fail").index(verdict)


def _how_often(audit: Audit, verdicts: Sequence[tuple[str, Verdict]]) -> tuple[str, ...]:
    """How often each target on delta allows to publish."""
    targets = [(verdict, target) for _, verdict in verdicts for target in verdict.targets]
    return tuple(
        audit.how_often(epsilon=verdict.epsilon, delta=target.limit, presence=verdict.presence).sentence
        for verdict, target in targets
        if target.name == "delta"
    )


def typed_for(name: str) -> str:
    """The command that runs now, as another one with the same rows, question and files; nothing if it does not take
    them."""
    here = click.get_current_context()
    root = here.find_root().command
    other = root.get_command(here, name) if isinstance(root, click.Group) else None
    taken = set() if other is None else {parameter.name for parameter in other.params} - _NOT_TAKEN
    words: list[str] = []
    for parameter in here.command.params:
        value = here.params.get(parameter.name or "")
        if here.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE or not value:
            continue
        if parameter.name == "update" or (parameter.name == "files" and "files" not in taken):
            return ""
        if parameter.name not in taken:
            continue
        if isinstance(parameter, click.Argument):
            words += value
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            words.append(parameter.opts[0])
        else:
            joined = [",".join(value)] if parameter.name == "individual" else value
            several = joined if isinstance(joined, list | tuple) else (joined,)
            words += [word for one in several for word in (parameter.opts[0], str(one))]
    return " ".join(("empriv", name, *map(quoted, words)))


def _next_tried(best: Action | None) -> tuple[str, str]:
    """The command of what was tried and serves; nothing if nothing does."""
    return ("", "") if best is None else ("do that:", best.command)


def next_step(
    audit: Audit, verdicts: Sequence[Verdict], decision: Decision, saved: str | None, advise: str = ""
) -> tuple[str, str]:
    """What to do next, and the command that does it, if one does; ``advise`` is that for advice with the rows."""
    from empriv.validate.checks import outlasts_noise  # only audits need it

    if decision.word == NO_TARGET:
        return 'say what is private enough, such as --target "delta <= 0.05 at 0.1", for a decision.', ""
    if decision.word == PUBLISH:
        return "if you publish it again and again, ask for that, such as --times 30.", ""
    worst = max(verdicts, key=_how_bad)
    few = [check for check in worst.checks if check.code == "databases" and check.severity == "error"]
    if few:
        judged, n = few[0].numbers["n"], audit.n_databases
        left = f"what readers know leaves {judged:,} of the {n:,} to judge, and " if judged < n else ""
        return f"collect more databases: {left}with fewer than 30 there is no upper bound.", ""
    # the strictest limits at its epsilon, by figure: advice is about one epsilon
    limits: dict[str, float] = {}
    for verdict in verdicts:
        for target in verdict.targets if verdict.epsilon == worst.epsilon else ():
            limits[target.name] = min(target.limit, limits.get(target.name, 1.0))
    name, at = shlex.quote(saved or "audit.empriv"), f"{worst.epsilon:g}"
    one_number = audit.results.components is None
    one = one_number and audit.times == 1
    if not one_number and _cells_come_and_go(audit):
        return f"{_always_there(audit.results)}; and audit again.", ""
    if not one and any(check.severity == "error" and outlasts_noise(check) for check in worst.checks):
        return (
            "the databases are not alike, which no noise mends (--verbose): audit those since they last changed, or "
            "say more of what readers know, such as --known calendar --known count(*)."
        ), ""
    if audit.in_chunks or not (one or (audit.takes_noise and "delta" in limits)):
        return "ask for less, such as sum(least(amount, 60)) for amounts up to 60, and audit again.", ""
    if one:
        asked = (f"--target {shlex.quote(f'{figure} <= {limit:g} at {at}')}" for figure, limit in limits.items())
        command = f"{advise or f'empriv advise {name}'} {' '.join(asked)}"
        saved = saved or advise
    else:
        times = "" if audit.times == 1 else f" --times {audit.times}"
        command = f"empriv noise {name} --epsilon {at} --delta {limits['delta']:g}{times}"
    return "see what you can do, and what it costs" + (":" if saved else " (after --save audit.empriv):"), command


def _always_there(results: Results) -> str:
    """What to ask in place of numbers that come and go with one person."""
    cell = max(results.cells or (), key=lambda cell: len(cell.keys), default=None)
    if cell is None or not cell.keys:
        return "ask for numbers that are always there, such as coalesce(sum(x), 0) in place of sum(x)"
    columns = [column for column, _ in cell.keys]
    here = " AND ".join(f"{column} = 'a'" for column in columns)
    one = f"count(*) FILTER (WHERE {here}) AS a"
    return (
        f"ask for each cell by itself, so that none comes and goes with one person: {one}, ... in place of GROUP BY "
        f"{', '.join(columns)}, and coalesce(..., 0) around sums"
    )


def _cells_come_and_go(audit: Audit) -> bool:
    """Whether one person's absence decides whether a number of a table is there, which no noise hides."""
    results = audit.results
    return bool((results.entry_outcomes != results.outcomes[results.entry_database]).any())


def _write_files(
    finished: Finished, settings: Settings, bar: Bar, *, save: str | None,
    text: tuple[str, Callable[[Finished], str]] | None, quiet: bool,
) -> None:  # fmt: skip
    """Write the files of an audit, and say which."""
    # The summary is on the screen by now: a file that cannot be written loses nothing else.
    written: list[str] = []
    try:
        if save is not None:
            write_to(save, finished.audit.save)
            written.append(save)
        if settings.json is not None and finished.figures is not None:
            write_json(settings.json, finished.figures)
            written += [] if settings.json == "-" else [settings.json]
        if text is not None and text[0] != "-":
            write_text(text[0], text[1](finished))
            written.append(text[0])
        if settings.report is not None:
            bar.begin(PAGE)
            page = write_to(settings.report, lambda path: _write_report(finished, settings, path))
            written.append(settings.report + ("" if page.key is None else f"; {page.key.name} tells who is who"))
    finally:
        bar.pause()
        if not quiet:
            say_written(*written)


def _write_report(finished: Finished, settings: Settings, path: str) -> Any:
    return finished.audit.report(
        path, show_ids=settings.show_ids, salt=finished.salt, verdicts=finished.verdicts,
        advice=finished.advice,
    )  # fmt: skip


def say_written(*paths: str) -> None:
    """Say which files were written, on one line if it fits the terminal."""
    if paths:
        text = f"Wrote {', '.join(paths)}."
        lines = [text] if fits(text) else [f"Wrote {path}." for path in paths]
        with printing():
            click.echo("\n".join(map(printable, lines)))


@contextmanager
def printing() -> Iterator[None]:
    """Print as long as somebody reads: closing the output early, as ``| head`` does, loses no file."""
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def write_json(path: str, figures: Mapping[str, Any] | Sequence[Any]) -> None:
    """Write figures to a file, or print them for ``-``."""
    text = json.dumps(figures, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    if path == "-":
        click.echo(text.encode("utf-8", "backslashreplace").decode(), nl=False)
    else:
        write_text(path, text, mode=0o600)


def write_text(path: str, text: str, *, mode: int = 0o644) -> None:
    """Write a file that holds a text."""
    from empriv.base.storage import write_atomically

    content = text.encode("utf-8", "backslashreplace")
    write_to(path, lambda target: write_atomically(target, content, mode=mode))


def write_to(path: str, write: Callable[[str], T]) -> T:
    """Write one file, or say in a sentence why it cannot be written."""
    try:
        return write(path)
    except OSError as error:
        raise InputError(f"Output must go to a file that can be written, got {path!r}: {error.strerror}.") from None


def limits_of(settings: Settings) -> dict[str, Any]:
    """What an engine may take for a query: memory and time."""
    return {"memory_limit": settings.memory_limit, "timeout": settings.timeout}


@contextmanager
def engine_of(limits: Mapping[str, Any]) -> Iterator[DuckDBEngine]:
    """An engine that writes what does not fit in memory to a directory of its own, in a process of its own.

    Whoever wrote the query may not be who runs the command.
    """
    from empriv.collecting import DuckDBEngine

    with scratch_directory() as directory:
        yield DuckDBEngine(**limits, temp_directory=directory, sandbox=True)


def interruptible(work: Callable[[], T]) -> T:
    """Do the work in a thread, so that Ctrl-C works while an engine or NumPy computes."""
    returned: list[T] = []
    failed: list[BaseException] = []

    def task() -> None:
        try:
            returned.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=task, name=WORKER, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
    if failed:
        raise failed[0]
    return returned[0]
