"""What was released from the folder, and what is left of each policy: what the ledgers say, without identifiers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from empriv.base.harmless import shortened
from empriv.errors import EmprivError

if TYPE_CHECKING:
    from empriv.ledger import Ledger, ReleaseEntry

_SHOWN = 200


@dataclass(frozen=True)
class ListedRelease:
    """One release.

    Attributes
    ----------
    when : in UTC
    asked : the query
    answer : what was released
    error : the expected size of its noise
    told : what it tells of the most exposed person, in words
    database : what it was of: the label, and a pseudonym of the rows
    databases, people : that were audited for it, counted
    """

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
    """One ledger: its limits and what is left of them in sentences, and its releases, latest first."""

    name: str
    sentences: tuple[str, ...]
    releases: tuple[ListedRelease, ...] = ()
    problem: str = ""


def ledgers_here() -> tuple[ListedLedger, ...]:
    """All ledgers of the working directory; called beside the server."""
    here = Path.cwd().resolve()
    paths = sorted(path for path in here.glob("*.ledger") if path.is_file() and path.resolve().parent == here)
    return tuple(_ledger(path) for path in paths)


def _ledger(path: Path) -> ListedLedger:
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
    from empriv.cli.ledger import left_words, policy_words

    policy = ledger.policy
    sentences: tuple[str, ...] = (f"Limits: {policy_words(policy)}.",)
    if policy.window is not None:
        sentences = left_words(ledger.left())
    if policy.queries is not None:
        asked = len({(entry.query, entry.component) for entry in releases})
        spent = f"{asked:,} of {policy.queries:,} queries {'was' if asked == 1 else 'were'} released at least once."
        sentences = (*sentences, spent)
    joint = next((entry.joint for entry in reversed(releases) if entry.joint is not None), None)
    if policy.window is None and joint is not None:
        from empriv.cli.ledger import figures_words

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
