"""The ledgers of the folder: which one an audit's answers go through, its limits, and what was released through each.

Functions that open a ledger are called beside the server, in the folder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from empriv.app.folder import Folder
from empriv.app.pages import folder_of
from empriv.app.table import remembered
from empriv.base.targets import Target, parse_target
from empriv.base.text import shortened
from empriv.cli.config import Settings
from empriv.errors import EmprivError, InputError

if TYPE_CHECKING:
    from empriv.ledger import Ledger, ReleaseEntry

_SHOWN = 200


@dataclass(frozen=True)
class ListedRelease:
    """One release: ``when`` in UTC, the expected noise, what it tells alone, the database with a pseudonym of rows."""

    when: str
    asked: str
    answer: str
    error: str
    told: str
    database: str
    databases: str
    people: str


@dataclass(frozen=True)
class ListedLedger:
    """One ledger: its limits and what they still allow in sentences, and its releases, latest first."""

    name: str
    sentences: tuple[str, ...]
    releases: tuple[ListedRelease, ...] = ()
    problem: str = ""


def ledger_named(folder: Folder, name: str) -> str:
    """The name of a ledger in the folder, there or to be made."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_. -]{0,99}\.ledger", name) or (folder.path / name).is_symlink():
        raise InputError("`book` must be a name that ends in .ledger, such as releases.ledger.")
    return name


async def ledger_of(request: Request, name: str) -> str:
    """The ledger that an audit's answers are released through: one for each promise.

    The one that its settings name; else one with the limits of its promise, or without any; else a new one.
    """
    folder = folder_of(request)
    settings = folder.settings(name)
    if settings.ledger is not None:
        return ledger_named(folder, settings.ledger)
    limits = limits_of_promise(settings)
    there = folder.ledgers()
    changed = tuple((folder.path / book).stat().st_mtime_ns for book in there)
    policies = await remembered(request, (there, changed), policies_of, there)
    readable = [(book, policy) for book, policy in zip(there, policies, strict=True) if policy is not None]
    same = [book for book, policy in readable if all(policy.get(key) == value for key, value in limits.items())]
    without = [book for book, policy in readable if policy.get("epsilon") is None]  # it limits no figure
    if same or without:
        return (same or without)[0]
    free = (f"releases{number}.ledger" for number in ("", *(f"-{k}" for k in range(2, 1000))))
    return next(book for book in free if not (folder.path / book).exists())


def limits_of_promise(settings: Settings) -> dict[str, Any]:
    """The limits of a promise, as a ledger has them; no limit where nothing is promised."""
    if not settings.target:
        return {"epsilon": None}
    target = target_of(settings)
    return {"epsilon": target.epsilon, target.figure: target.limit}


def new_limits(settings: Settings) -> dict[str, Any]:
    """The limits of a new ledger: the promise, over as many releases in a row as it is for."""
    return {**limits_of_promise(settings), "window": settings.times or 1} if settings.target else {}


def target_of(settings: Settings) -> Target:
    """What was promised; an error if nothing was."""
    if not settings.target:
        raise InputError("The promise must say what is private enough. Hint: the step of the promise.")
    return parse_target(settings.target[0])


def policies_of(books: tuple[str, ...]) -> tuple[dict[str, Any] | None, ...]:
    """The limits of each ledger, None if it cannot be read."""
    from empriv.ledger import Ledger

    limits: list[dict[str, Any] | None] = []
    for book in books:
        try:
            limits.append(dict(vars(Ledger(book, create=False).policy)))
        except EmprivError:
            limits.append(None)
    return tuple(limits)


def make_ledger(name: str, limits: Mapping[str, Any]) -> None:
    """Make a ledger, as `empriv ledger init` does."""
    from empriv.ledger import Ledger, Policy

    Ledger(name, policy=Policy(**limits))


def fits_in_words(name: str, book: str, limits: Mapping[str, Any] | None) -> tuple[str, bool]:
    """How many releases with the noise of an audit fit in a ledger, or in one with these limits, and if without end.

    "" if the ledger says it itself.
    """
    import empriv
    from empriv.auditing.releasing import releases_fitting
    from empriv.ledger.values import window_of

    policy = empriv.Policy(**limits) if limits is not None else empriv.Ledger(book, create=False).policy
    if policy.window is None or (limits is None and empriv.Ledger(book, create=False).left().releases):
        return "", False
    noise = empriv.load(f"{name}.noise.empriv")
    if not isinstance(noise, empriv.Noise | empriv.TableNoise):
        raise InputError(f"{name}.noise.empriv must hold noise, got something else.")
    fitting, window = releases_fitting(noise, policy), window_of(policy.window)
    if fitting is None:
        return "Releases with this noise may go on without end: they add nothing.", True
    if fitting == 0:
        return "Not one release with this noise fits: the ledger would refuse it.", False
    if window.length == 1 and not window.days:
        return "Each release with this noise keeps the promise alone. What several tell together has no limit.", True
    fit = "1 release with this noise fits" if fitting == 1 else f"{fitting:,} releases with this noise fit"
    if fitting < window.length:
        return f"{fit}, one after the other. The ledger refuses the next.", False
    beyond = f"What more than {window.words} tell together has no limit."
    return f"{fit} in one window, which moves on before it is full. {beyond}", True


def ledgers_here() -> tuple[ListedLedger, ...]:
    """All ledgers of the folder."""
    here = Path.cwd().resolve()
    paths = sorted(path for path in here.glob("*.ledger") if path.is_file() and path.resolve().parent == here)
    return tuple(_listed(path) for path in paths)


def _listed(path: Path) -> ListedLedger:
    from empriv.ledger import Ledger, ReleaseEntry

    name = shortened(path.name)
    try:
        ledger = Ledger(path, create=False)
        releases = [entry for entry in ledger.entries() if isinstance(entry, ReleaseEntry)]
        left = tuple(sentence.replace("total_risk", "total risk") for sentence in _left(ledger, releases))
        return ListedLedger(name, left, tuple(map(_release, reversed(releases))))
    except EmprivError as error:
        return ListedLedger(name, (), problem=str(error))


def _left(ledger: Ledger, releases: list[ReleaseEntry]) -> tuple[str, ...]:
    from empriv.cli.ledger import figures_words, left_words, policy_words

    policy = ledger.policy
    sentences: tuple[str, ...] = (f"Limits: {policy_words(policy)}.",)
    if policy.window is not None and ledger.left().releases:
        sentences = left_words(ledger.left())
    if policy.queries is not None:
        asked = len({(entry.query, entry.component) for entry in releases})
        spent = f"{asked:,} of {policy.queries:,} queries {'was' if asked == 1 else 'were'} released at least once."
        sentences = (*sentences, spent)
    joint = next((entry.joint for entry in reversed(releases) if entry.joint is not None), None)
    if policy.window is None and joint is not None:
        sentences = (*sentences, f"Spent: the last release and those it shares rows with, {figures_words(joint)}.")
    return sentences


def _release(entry: ReleaseEntry) -> ListedRelease:
    from empriv.cli.ledger import figures_words

    answers = entry.answer if isinstance(entry.answer, tuple) else (entry.answer,)
    shown = ", ".join(f"{answer:.10g}" for answer in answers[:4])
    asked = " ".join(entry.query.split())
    return ListedRelease(
        when=f"{entry.time[:16].replace('T', ' ')} UTC",
        asked=shortened(asked if entry.component is None else f"{asked} [{entry.component}]", _SHOWN),
        answer=shown + (f" and {len(answers) - 4:,} more" if len(answers) > 4 else ""),
        error=_error(entry),
        told=figures_words(entry.achieved).replace("total_risk", "total risk"),
        database=shortened(entry.label + ("" if entry.rows is None else f" ({entry.rows[:12]})"), _SHOWN),
        databases=f"{entry.n_databases:,}",
        people=f"{entry.n_individuals:,}",
    )


def _error(entry: ReleaseEntry) -> str:
    """The expected noise; the largest, of several numbers."""
    from empriv.auditing.composing import laws_of

    try:
        errors = [law.expected_error for law in laws_of(entry)]
    except EmprivError:
        return "not known"
    return f"±{max(errors):.3g}" + (" at most" if len(errors) > 1 else "")
