"""Running an audit from the command line: interruptible work, then printing, files and the exit code.

`output` prints. Nothing here imports numerics before a command runs.
"""

from __future__ import annotations

import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import click

from empriv.base.progress import Bar, whole
from empriv.base.scratch import scratch_directory
from empriv.cli.config import Settings
from empriv.cli.output import (
    exit_by,
    judged,
    next_step,
    printing,
    verdict_on,
    write_json,
    write_to,
)
from empriv.cli.targets import parse_target
from empriv.cli.terminal import Page, console_for, printable, round_up, show
from empriv.errors import InputError

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.collecting import DuckDBEngine
    from empriv.validate.verdict import Verdict

T = TypeVar("T")
WORKER = "empriv audit"
_CURVE_POINTS = 25
PAGE, LOOKING = "Writing the page", "Looking at the data"
_WAYS = "Trying what can be done"
_STAGES = ("Collecting", "Measuring", "Judging", _WAYS, PAGE)


@dataclass(frozen=True)
class Wanted:
    """What to show and write of an audit; ``saved`` is the file that it came from."""

    json: str | None
    targets: tuple[str, ...]
    basis: str
    presence: str
    show_ids: bool
    top: int
    quiet: bool
    report: str | None = None
    public: bool = False
    answers: bool = False
    beside: bool = False
    epsilons: tuple[float, ...] | None = None
    config: str | None = None
    verbose: bool = False
    saved: str | None = None
    salt: bytes = field(default_factory=lambda: secrets.token_bytes(32))  # of the pseudonyms of this run

    @staticmethod
    def of(
        settings: Settings,
        *,
        epsilons: tuple[float, ...] | None = None,
        config: str | None = None,
        saved: str | None = None,
    ) -> Wanted:
        check_report(settings)
        return Wanted(
            settings.json, settings.target, settings.basis, settings.presence, settings.show_ids,
            settings.top, settings.quiet or settings.json == "-", settings.report, settings.public,
            settings.answers, settings.beside, epsilons, config, settings.verbose, saved,
        )  # fmt: skip


def check_report(settings: Settings) -> None:
    """Refuse options of the report that do not go together."""
    for name in ("public", "answers", "beside"):
        if getattr(settings, name) and settings.report is None:
            raise click.UsageError(f"--{name} must be given with --report.")
    if settings.public and (settings.show_ids or settings.answers or settings.beside):
        raise click.UsageError("--public must not be given with --show-ids, --answers or --beside.")


@dataclass(frozen=True)
class Finished:
    """An audit with what is to be said of it; ``page`` is None where nothing is printed."""

    audit: Audit
    figures: dict[str, Any] | None
    verdicts: tuple[tuple[str, Verdict], ...]
    page: Page | None
    advice: Any = None


def finish(
    run: Callable[[Any], Audit],
    wanted: Wanted,
    *,
    save: str | None = None,
    config: tuple[str, str] | None = None,
    limits: Mapping[str, Any] | None = None,
    further: Callable[[Audit], Sequence[str]] = lambda audit: (),  # noqa: ARG005 — nothing further
    exits: bool = True,
) -> None:
    """Run an audit, print it, write its files, and exit with 3 if a target failed, 4 if one is unresolved.

    ``further`` gives sentences to print; ``exits`` is False where a verdict is no failure.
    """
    bar = bar_of(stages_of(wanted), quiet=wanted.quiet)
    with engine_of(limits or {}) as engine:

        def work() -> Finished:
            bar.begin("Collecting")
            audit = run(engine)
            measure_in_turn(audit, wanted, bar)
            said = () if wanted.quiet else further(audit)
            return judged_audit(audit, wanted, bar, save=save, further=said)

        finished = interruptible(work)
    bar.pause()
    show_finished(finished, wanted)
    write_files(finished, wanted, bar, save=save, text=config)
    if exits:
        exit_by(finished.verdicts)


def bar_of(stages: Sequence[str], *, quiet: bool) -> Bar:
    """One bar for all stages of the command that runs now; it ends with it."""
    return click.get_current_context().with_resource(whole(stages, show=False if quiet else None))


def stages_of(wanted: Wanted) -> tuple[str, ...]:
    """The stages of a command that audits."""
    return _STAGES if wanted.report else _STAGES[:3]


def measure_in_turn(audit: Audit, wanted: Wanted, bar: Bar) -> None:
    """Measure and judge an audit, and show what is known of it as soon as it is."""
    bar.begin("Measuring")
    for place, sentence in enumerate(audit.in_turn(wanted.epsilons, every=wanted.json is not None)):
        if place == 0:
            bar.begin("Judging")
        bar.know(printable(sentence))


def show_finished(finished: Finished, wanted: Wanted) -> None:
    """Print an audit."""
    with printing():
        if finished.page is not None:
            show(finished.page, console_for(sys.stdout), verbose=wanted.verbose)


def write_files(
    finished: Finished, wanted: Wanted, bar: Bar, *, save: str | None = None, text: tuple[str, str] | None = None
) -> None:
    """Write the files of an audit, and say which; ``text`` is a further file and what it holds."""
    from empriv.base.storage import write_atomically

    # The summary is on the screen by now: a file that cannot be written loses nothing else.
    written: list[str] = []
    keys: list[str] = []
    try:
        if save is not None:
            write_to(save, finished.audit.save)
            written.append(save)
        if wanted.json is not None and finished.figures is not None:
            write_json(wanted.json, finished.figures)
            written += [] if wanted.json == "-" else [wanted.json]
        if wanted.report is not None:
            bar.begin(PAGE)
            write_to(wanted.report, lambda path: keys.extend(_write_report(finished, wanted, path)))
            written.append(wanted.report)
        if text is not None:
            path, content = text
            write_to(path, lambda target: write_atomically(target, _utf8(content), mode=0o644))
            written.append(path)
    finally:
        bar.pause()
        if written and not wanted.quiet:
            with printing():
                click.echo(printable(f"Wrote {', '.join(written)}{''.join(keys)}."))


def _write_report(finished: Finished, wanted: Wanted, path: str) -> list[str]:
    """Write the page of an audit; what to say of the key to its pseudonyms."""
    page = finished.audit.report(
        path, show_ids=wanted.show_ids, salt=wanted.salt, public=wanted.public, verdicts=finished.verdicts,
        config=None if wanted.public else wanted.config, beside=wanted.beside, advice=finished.advice,
        answers=wanted.answers,
    )  # fmt: skip
    return [] if page.key is None else [f"; {page.key.name} tells who is who"]


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


def judged_audit(
    audit: Audit,
    wanted: Wanted,
    bar: Bar,
    *,
    save: str | None = None,
    further: Sequence[str] = (),
    curve: bool = True,
) -> Finished:
    """The audit with its verdicts, its decision and the words about it."""
    # In this order, the curves at the epsilons asked for are computed only once.
    summary = audit.summary(wanted.epsilons)
    figures = None if wanted.json is None else audit.to_json(wanted.epsilons)
    verdicts = judge_all(audit, wanted)
    given = [verdict for _, verdict in verdicts]
    if wanted.quiet and figures is None and wanted.report is None:
        return Finished(audit, None, verdicts, None)
    advice = None
    decision = audit.decision(given)
    if wanted.report is not None and not wanted.public:
        from empriv.report.page.actions import quick_advice, worst_first

        bar.begin(_WAYS)
        worst = [verdict for _, verdict in worst_first(verdicts)]
        advice = quick_advice(audit, worst, save or wanted.saved or "audit.empriv")
    asked_at = wanted.epsilons or audit.epsilons
    ranked_at = asked_at[0] if not given else max(given, key=("pass", "unresolved", "fail").index).epsilon
    exposed = None
    if wanted.top and not (wanted.quiet and figures is None):
        from empriv.auditing.ranking import most_exposed, names_of

        names = names_of(audit.results, None if wanted.show_ids else wanted.salt)
        exposed = most_exposed(audit, ranked_at, names, wanted.top)
    if figures is not None:
        figures |= judged(decision, verdicts)
        figures |= {} if exposed is None or wanted.show_ids else {"most_exposed": exposed.to_json()}
    if wanted.quiet:
        return Finished(audit, figures, verdicts, None, advice)
    often = _how_often(audit, verdicts, wanted.presence) if audit.times > 1 else ()
    summary = audit.with_validity(summary)
    from empriv.words.summary import tail_sentence

    single = audit.results.components is None  # influence on several is in spreads of each
    page = Page(
        decision=decision, verdicts=verdicts, summary=summary,
        curve=_curve(audit, asked_at[-1]) if curve and wanted.verbose else ((), ()),
        exposed=exposed,
        ranked_at=ranked_at, pseudonyms=not wanted.show_ids, n_individuals=audit.n_individuals,
        tail=tail_sentence(audit.epsilon(0.0)) if wanted.verbose and audit.measured.tells_epsilon(0.0) else "",
        next_step=next_step(audit, given, decision, save or wanted.saved),
        once=None if audit.times == 1 else [float(delta) for delta in audit.once.delta(asked_at)],
        unit=audit.unit if single else "spreads", answer="the answer" if single else "a number",
        further=(*often, *further),
    )  # fmt: skip
    return Finished(audit, figures, verdicts, page, advice)


def judge_all(audit: Audit, wanted: Wanted) -> tuple[tuple[str, Verdict], ...]:
    """The verdicts on all targets."""
    return tuple(
        (text, verdict_on(audit, parse_target(text), wanted.basis, wanted.presence)) for text in wanted.targets
    )


def _how_often(audit: Audit, verdicts: Sequence[tuple[str, Verdict]], presence: str) -> tuple[str, ...]:
    """How often each target on delta allows to publish."""
    targets = [(verdict.epsilon, target) for _, verdict in verdicts for target in verdict.targets]
    return tuple(
        audit.how_often(epsilon=epsilon, delta=target.limit, presence=presence).sentence
        for epsilon, target in targets
        if target.name == "delta"
    )


def _curve(audit: Audit, largest: float) -> tuple[list[float], list[float]]:
    end = round_up(2.0 * largest) if largest > 0 else 1.0
    epsilons = [end * k / (_CURVE_POINTS - 1) for k in range(_CURVE_POINTS)]
    return epsilons, [float(delta) for delta in audit.delta(epsilons)]


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


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise InputError("`--write-config` must be given names that are Unicode, got a path that is not.") from None
