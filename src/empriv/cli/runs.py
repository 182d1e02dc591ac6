"""What a command runs and how it ends: sources, interruptible work, errors.

What it prints and writes is in `cli_output`. Nothing here imports numerics before a command runs.
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import click

from empriv.cli.config import Settings
from empriv.cli.output import (
    DONE,
    ERROR,
    INTERRUPTED,
    USAGE,
    exit_by,
    judged,
    print_outcomes,
    print_verdicts,
    printing,
    ranking,
    verdict_on,
    write_json,
    write_to,
)
from empriv.cli.policy import Outcome, judge, parse_policy, parse_target
from empriv.cli.terminal import Page, console_for, printable, round_up, show
from empriv.errors import EmprivError, InputError, SourceError

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.collecting import DuckDBEngine
    from empriv.collecting.sources import Unidentified
    from empriv.validate.verdict import Verdict

T = TypeVar("T")
_CURVE_POINTS = 25
_QUIET_SECONDS = 2.0
_WORKER = "empriv audit"


class Commands(click.Group):
    """A group of commands whose errors are one line on stderr, and whose exit codes are as documented."""

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        run: Callable[..., Any] = super().main
        if not standalone_mode:
            return run(*args, standalone_mode=False, **extra)
        try:
            code = run(*args, standalone_mode=False, **extra)
        except click.UsageError as error:
            error.show()
            _exit(USAGE)
        except click.Abort:
            _stop("Interrupted: no file is half-written.", INTERRUPTED)
        except EmprivError as error:
            _stop(f"Error: {error}", ERROR)
        except OSError as error:
            name = "" if error.filename is None else f" {Path(os.fsdecode(error.filename)).name!r}:"
            _stop(f"Error:{name} {error.strerror or type(error).__name__}.", ERROR)
        except MemoryError:
            _stop("Error: there is not enough memory. Hint: --memory-limit makes the engine write to disk.", ERROR)
        except Exception as error:
            # Its message may quote rows, so it is shown only to who asks.
            if os.environ.get("EMPRIV_TRACEBACK"):
                traceback.print_exc()
            last = traceback.extract_tb(error.__traceback__)[-1]
            _stop(
                f"Error: unexpected {type(error).__name__} in {Path(last.filename).name}, line {last.lineno}. Hint: "
                "EMPRIV_TRACEBACK=1 shows where it comes from, and may show data.",
                ERROR,
            )
        return _exit(code if isinstance(code, int) else DONE)


@dataclass(frozen=True)
class Wanted:
    """What is to be shown and written of an audit."""

    json: str | None
    policies: tuple[str, ...]
    targets: tuple[str, ...]
    basis: str
    show_ids: bool
    top: int
    quiet: bool
    report: str | None = None
    public: bool = False
    beside: bool = False
    epsilons: tuple[float, ...] | None = None
    config: str | None = None

    @staticmethod
    def of(settings: Settings, *, epsilons: tuple[float, ...] | None = None, config: str | None = None) -> Wanted:
        for name in ("public", "beside"):
            if getattr(settings, name) and settings.report is None:
                raise click.UsageError(f"--{name} must be given with --report.")
        if settings.public and (settings.show_ids or settings.beside):
            raise click.UsageError("--public must not be given with --show-ids or --beside.")
        return Wanted(
            settings.json, settings.fail_if, settings.target, settings.basis, settings.show_ids, settings.top,
            settings.quiet or settings.json == "-", settings.report, settings.public,
            settings.beside, epsilons, config,
        )  # fmt: skip


@dataclass(frozen=True)
class _Done:
    audit: Audit
    figures: dict[str, Any] | None
    outcomes: tuple[Outcome, ...]
    verdicts: tuple[tuple[str, Verdict], ...]
    page: Page | None


def finish(
    run: Callable[[Any], Audit],
    wanted: Wanted,
    *,
    save: str | None = None,
    config: tuple[str, str] | None = None,
    memory_limit: str | None = None,
) -> None:
    """Run an audit, print it, write its files, and exit with 3 if a policy or target failed, 4 if one is unresolved."""
    with engine_of(memory_limit) as engine:
        done = interruptible(lambda: _work(run(engine), wanted), quiet=wanted.quiet)
    with printing():
        _print(done, wanted)
    from empriv.base.storage import write_atomically

    # The summary is on the screen by now: a file that cannot be written loses nothing else.
    if save is not None:
        write_to(save, done.audit.save)
    if wanted.json is not None and done.figures is not None:
        write_json(wanted.json, done.figures)
    if wanted.report is not None:
        write_to(wanted.report, lambda path: _report(done, wanted, path))
    if config is not None:
        path, toml = config
        write_to(path, lambda target: write_atomically(target, _utf8(toml), mode=0o644))
    exit_by(done.outcomes, done.verdicts)


def _report(done: _Done, wanted: Wanted, path: str) -> None:
    written = done.audit.report(
        path, show_ids=wanted.show_ids, public=wanted.public, verdicts=done.verdicts,
        config=None if wanted.public else wanted.config, beside=wanted.beside,
    )  # fmt: skip
    if not wanted.quiet:
        key = "" if written.key is None else f"; {written.key.name} tells who is who"
        click.echo(printable(f"Wrote {written.page.name}{key}."))


@contextmanager
def engine_of(memory_limit: str | None) -> Iterator[DuckDBEngine]:
    """An engine that writes what does not fit in memory to a directory of its own."""
    from empriv.collecting import DuckDBEngine

    directory = tempfile.mkdtemp(prefix="empriv-")
    try:
        yield DuckDBEngine(memory_limit=memory_limit, temp_directory=directory)
    finally:
        # Whatever the engine wrote there is people's data.
        shutil.rmtree(directory, ignore_errors=True)


def load_audit(path: str, epsilons: tuple[float, ...]) -> Audit:
    """A saved audit, or an audit of saved results."""
    import empriv

    found = empriv.load(path)
    if not isinstance(found, empriv.Audit | empriv.Results):
        scanned = isinstance(found, empriv.Scan)
        held, hint = ("a scan", "`empriv show` takes it") if scanned else ("noise", "`empriv release` takes it")
        raise InputError(f"SAVED must hold an audit or results, got {held}. Hint: {hint}.")
    return empriv.audit(found, epsilon=epsilons) if isinstance(found, empriv.Results) else found


def adversary_of(settings: Settings) -> Any:
    """Who the adversary is, None if nobody is named."""
    if settings.own_contribution:
        from empriv.measuring.given.adversaries import OwnContribution

        return OwnContribution()
    if not settings.adversary:
        return None
    from empriv.measuring.given.adversaries import Buckets, Weighted

    known = settings.adversary[0] if len(settings.adversary) == 1 else list(settings.adversary)
    return Weighted(known) if settings.buckets is None else Buckets(known, settings.buckets)


def ledger_of(settings: Settings) -> Any:
    """The ledger, None if there is none; it must exist, so that a wrong path is no new and empty one."""
    if settings.ledger is None:
        return None
    from empriv.ledger import Ledger

    return Ledger(settings.ledger, create=False)


def source_of(settings: Settings) -> Any:
    """The databases that files and options describe."""
    from empriv.collecting import databases
    from empriv.collecting.sources import Files, table_of

    for text in (*settings.files, *settings.tables.values()):
        _check_exists(text)
    source: Any = list(settings.files)
    if settings.database is None:
        source = [file for text in settings.files for file in _expanded(text)]
        if len(source) == 1:
            raise InputError(
                "FILES must be several where each is one database, got one. "
                "Hint: --database names the column that says which database a row is in."
            )
    elif len(source) == 1:
        source = source[0]
    else:
        tables = [table for table in map(table_of, source) if isinstance(table, Files)]
        if len(tables) < len(source) or len({table.kind for table in tables}) > 1:
            raise InputError("FILES that --database cuts must be of one kind, all Parquet, all CSV or all JSON.")
        source = Files(tuple(path for table in tables for path in table.paths), tables[0].kind)
    return databases(
        source, database=settings.database, individual=settings.individual, tables=settings.tables,
        unidentified=cast("Unidentified", settings.unidentified),
    )  # fmt: skip


def paths_read(settings: Settings) -> list[str]:
    """Files that an audit reads."""
    texts = [text for text in (*settings.files, *settings.tables.values()) if _is_path(text)]
    return [path.partition("::")[0] for text in texts for path in _expanded(text)]


def check_targets(paths: Sequence[str | None], read: Sequence[str]) -> None:
    """Refuse, before any work, paths that could not be written, are being read, or are one and the same."""
    files = [path for path in paths if path is not None and path != "-"]
    if len({os.path.realpath(path) for path in files}) < len(files):
        raise InputError("Output must go to different files, got one path twice.")
    for path in files:
        _check_target(path, read)


def _check_target(path: str, read: Sequence[str]) -> None:
    target = Path(path)
    if target.exists() and not target.is_file():
        raise InputError(f"Output must go to a file, got {path!r}, which is not one.")
    if not target.parent.is_dir():
        raise InputError(f"Output must go to a directory that exists, got {path!r}.")
    if not os.access(target.parent, os.W_OK):
        raise InputError(f"Output must go to a directory that can be written, got {path!r}.")
    if target.exists() and any(target.samefile(source) for source in read if Path(source).exists()):
        raise InputError(f"Output must not replace what is read, got {path!r}.")


def _work(audit: Audit, wanted: Wanted) -> _Done:
    # In this order the curves at the epsilons asked for are computed once.
    said = audit.summary(wanted.epsilons)
    figures = None if wanted.json is None else audit.to_json(wanted.epsilons)
    outcomes = tuple(judge(parse_policy(text), audit) for text in wanted.policies)
    verdicts = tuple((text, verdict_on(audit, parse_target(text), wanted.basis)) for text in wanted.targets)
    if figures is not None:
        figures |= judged(outcomes, verdicts)
    if wanted.quiet:
        return _Done(audit, figures, outcomes, verdicts, None)
    said = audit.with_validity(said)
    from empriv.words.summary import tail_sentence

    first = said.figures[0].epsilon
    page = Page(
        summary=said, curve=_curve(audit, said.figures[-1].epsilon),
        ranking=ranking(audit.individuals(first, top=wanted.top), wanted.show_ids) if wanted.top else None,
        ranked_at=first,
        pseudonyms=not wanted.show_ids, n_individuals=audit.results.n_individuals,
        tail=tail_sentence(audit.epsilon(0.0)),
    )  # fmt: skip
    return _Done(audit, figures, outcomes, verdicts, page)


def _curve(audit: Audit, largest: float) -> tuple[list[float], list[float]]:
    end = round_up(2.0 * largest) if largest > 0 else 1.0
    epsilons = [end * k / (_CURVE_POINTS - 1) for k in range(_CURVE_POINTS)]
    return epsilons, [float(delta) for delta in audit.delta(epsilons)]


def _print(done: _Done, wanted: Wanted) -> None:
    if not wanted.quiet:
        print_verdicts(done.verdicts)
    if done.page is not None:
        show(done.page, console_for(sys.stdout))
    if not wanted.quiet:
        print_outcomes(done.outcomes)


def interruptible(work: Callable[[], T], *, quiet: bool, saying: str = "Collecting and measuring") -> T:
    """Do the work in a thread, so that Ctrl-C is heard while an engine or NumPy computes."""
    found: list[T] = []
    failed: list[BaseException] = []

    def task() -> None:
        try:
            found.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=task, name=_WORKER, daemon=True)
    thread.start()
    thread.join(_QUIET_SECONDS)
    if thread.is_alive() and not quiet and sys.stderr.isatty():
        click.echo(f"{saying}; Ctrl-C stops it.", err=True)
    while thread.is_alive():
        thread.join(0.2)
    if failed:
        raise failed[0]
    return found[0]


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputError("`--write-config` must be given names that are Unicode, got a path that is not.") from None


def _is_path(text: str) -> bool:
    from empriv.collecting.sources import Select, table_of

    return "://" not in text and not isinstance(table_of(text), Select)


def _check_exists(text: str) -> None:
    if not _is_path(text):
        return
    path = text.partition("::")[0]
    if not (Path(path).exists() or _matches(path)):
        kind = "match a file" if glob.has_magic(path) else "exist"
        raise SourceError(f"The file must {kind}, got {path!r}.")


def _expanded(text: str) -> list[str]:
    """The files of a glob; anything else as it is."""
    if not _is_path(text) or Path(text).exists() or not glob.has_magic(text):
        return [text]
    return _matches(text) or [text]


def _matches(pattern: str) -> list[str]:
    # Not Path.glob, which takes no absolute pattern.
    return sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207


def _stop(message: str, code: int) -> NoReturn:
    # An error about a query shows its line, and the place, on lines of their own.
    click.echo("\n".join(map(printable, message.split("\n"))), err=True)
    _exit(code)


def _exit(code: int) -> NoReturn:
    if any(thread.name == _WORKER for thread in threading.enumerate()):
        # A thread still computes and cannot be asked to stop; it writes no files.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)
