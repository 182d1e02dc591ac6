"""Running an audit for a command: work that Ctrl-C stops, then the screen, the files and the exit code.

Nothing here imports numerics before a command runs.
"""

from __future__ import annotations

import json
import os
import secrets
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
from empriv.cli.screen import audit_screen, how_bad, next_step, short_screen
from empriv.cli.terminal import console_for, fits, print_screen, printable, quoted
from empriv.errors import InputError

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.collecting import Databases, DuckDBEngine
    from empriv.validate.verdict import Verdict


DONE, ERROR, USAGE, POLICY_FAILED, UNRESOLVED, INTERRUPTED = 0, 1, 2, 3, 4, 130
WORKER = "empriv audit"
PAGE = "Writing the page"
_WAYS, _LOOKING = "Trying what can be done", "Looking at the data"
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
    saved: str | None = None,
    text: tuple[str, Callable[[Finished], str]] | None = None,
    further: Callable[[Audit], Sequence[str]] | None = None,
    short: bool = False,
    exits: bool = True,
    rows: Callable[[], Databases] | None = None,
    advise: str = "",
    in_this_thread: bool = False,
) -> None:
    """Make an audit, print it, write its files, and exit with 3 if a target failed, 4 if one is unresolved.

    Parameters
    ----------
    make : the audit, from an engine
    epsilons : to report; default: the audit's own
    saved : where the audit came from
    text : a further file, with what it holds; - prints it in place of the audit
    further : sentences to print after the figures
    short : print the decision and the verdicts alone
    exits : whether a verdict decides the exit code
    rows : gives the databases, on which a page tries what can be done
    advise : the command that advises on them; default: the one that runs now, with another name
    in_this_thread : whether the audit is made where Ctrl-C arrives: a checkpoint is then closed
    """
    quiet = settings.silent or (text is not None and text[0] == "-")
    bar = bar_of(audit_stages(settings), quiet=quiet)
    console = console_for(sys.stdout)
    advise = advise or (typed_for("advise") if rows is not None else "")
    with engine_of(limits_of(settings)) as engine:
        bar.begin("Collecting")
        made = make(engine) if in_this_thread else None

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
                audit, settings, console, bar, epsilons=epsilons, saved=settings.save or saved, further=further,
                short=short, quiet=quiet, figures=settings.json is not None or (short and text is not None),
                rows=rows, engine=engine, advise=advise,
            )  # fmt: skip

        finished = interruptible(work)
    bar.pause()
    with printing():
        print_screen(finished.screen, console)
        if text is not None and text[0] == "-":
            click.echo(text[1](finished), nl=False)
    _write_files(finished, settings, bar, text, quiet=quiet)
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
        from empriv.report.actions import instead_of, quick_advice, worst_first

        bar.begin(_WAYS)
        worst, data = [verdict for _, verdict in worst_first(verdicts)], None if rows is None else rows()
        advice = quick_advice(audit, worst, saved or "audit.empriv", data=data, engine=engine)
        instead, meets = instead_of(decision, advice, audit)
        best = advice.best if advice is not None and meets else None
    ranked_at = max(given, key=how_bad).epsilon if given else (epsilons or audit.epsilons)[0]
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
        from empriv.auditing.summary import with_validity

        often = _how_often(audit, verdicts) if audit.times > 1 else ()
        step = next_step(audit, given, decision, saved, advise)
        if instead and (best is None or not best.toml):  # else `empriv advise` writes the audit.toml that it takes
            step = ("", "") if best is None else ("do that:", best.command)
        screen = audit_screen(
            console, audit, settings, decision, verdicts, with_validity(audit, summary), instead=instead,
            exposed=exposed, ranked_at=ranked_at, further=(*often, *(() if further is None else further(audit))),
            next_step=step,
        )  # fmt: skip
    elif not quiet:
        screen = short_screen(console, decision, verdicts)
    return Finished(audit, verdicts, facts, advice, screen, salt)


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
    context = click.get_current_context()
    root = context.find_root().command
    other = root.get_command(context, name) if isinstance(root, click.Group) else None
    taken = set() if other is None else {parameter.name for parameter in other.params} - _NOT_TAKEN
    words: list[str] = []
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if context.get_parameter_source(parameter.name or "") is not ParameterSource.COMMANDLINE or not value:
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


def _write_files(
    finished: Finished, settings: Settings, bar: Bar, text: tuple[str, Callable[[Finished], str]] | None, *, quiet: bool
) -> None:
    """Write the files of an audit, and say which."""
    # The summary is on the screen by now: a file that cannot be written loses nothing else.
    written: list[str] = []
    try:
        if settings.save is not None:
            write_to(settings.save, finished.audit.save)
            written.append(settings.save)
        if settings.json is not None and finished.figures is not None:
            write_json(settings.json, finished.figures)
            written += [] if settings.json == "-" else [settings.json]
        if text is not None and text[0] != "-":
            write_text(text[0], text[1](finished))
            written.append(text[0])
        if settings.report is not None:
            bar.begin(PAGE)
            asked = {"show_ids": settings.show_ids, "verdicts": finished.verdicts, "advice": finished.advice}
            page = write_to(settings.report, lambda path: finished.audit.report(path, salt=finished.salt, **asked))
            written.append(settings.report + ("" if page.key is None else f"; {page.key.name} tells who is who"))
    finally:
        bar.pause()
        if not quiet:
            say_written(*written)


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


def at_the_data(work: Callable[[Any], T], limits: Mapping[str, Any], *, quiet: bool) -> T:
    """What a command finds out of the data before an audit, with an engine."""
    bar = bar_of((_LOOKING,), quiet=quiet)
    bar.begin(_LOOKING)
    with engine_of(limits) as engine:
        found = interruptible(lambda: work(engine))
    bar.pause()
    return found


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
