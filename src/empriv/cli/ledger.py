"""``empriv ledger``: make, read, verify and export a ledger of releases.

Parsing and printing only; `empriv.ledger` is imported inside commands. Documented in docs/again.md.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from empriv.cli.inputs import check_targets
from empriv.cli.options import options
from empriv.cli.running import POLICY_FAILED, write_json
from empriv.cli.terminal import printable
from empriv.errors import InputError

if TYPE_CHECKING:
    from empriv.ledger import Entry, Figures, Ledger, Policy, Remaining

_path = click.argument("path", metavar="LEDGER")
_json = click.option("--json", metavar="PATH", help="Write this as JSON; - prints it instead.")


_limits = options(
    click.option("--epsilon", type=float, metavar="E", help="The epsilon of --delta and --total-risk."),
    click.option("--delta", type=float, metavar="D", help="Limit on their delta together, at --epsilon."),
    click.option("--total-risk", type=float, metavar="R", help="Limit on their total risk together, at --epsilon."),
    click.option("--queries", type=click.IntRange(min=1), metavar="N", help="How many different queries are allowed."),
    click.option(
        "--window", metavar="W",
        help="365d or 52: --delta and --total-risk hold for all releases from so many days of databases, or for so "
        "many releases in a row.",
    ),
)  # fmt: skip


@click.group()
def ledger() -> None:
    """Remember what was released from which databases: releases compose only jointly.

    \b
    Example:
      empriv ledger init releases.ledger --epsilon 0.1 --delta 0.01 --queries 5
    """


@ledger.command(short_help="Make a new ledger.")
@_path
@_limits
def init(path: str, **limits: Any) -> None:
    """Make a new ledger, with limits on all releases from overlapping databases together.

    \b
    Example:
      empriv ledger init releases.ledger --epsilon 0.1 --delta 0.01 --queries 5
    """
    from empriv.ledger import Ledger

    policy = _policy(limits)
    if Path(path).exists():
        raise InputError(f"LEDGER must be a new file, got {Path(path).name!r}, which exists.")
    new_ledger = Ledger(path, policy=policy)
    _say(f"Made {new_ledger.path.name}: {policy_words(policy)}.")


@ledger.command(short_help="Show or change the limits.")
@_path
@_limits
def policy(path: str, **limits: Any) -> None:
    """Show the limits, or set new ones from now on. A change is an entry of its own; earlier entries stay.

    \b
    Example:
      empriv ledger policy releases.ledger --epsilon 0.1 --delta 0.02 --queries 8
    """
    held = _open(path)
    if any(value is not None for value in limits.values()):
        held.change_policy(_policy(limits))
    words = policy_words(held.policy)
    _say(f"{words[0].upper()}{words[1:]}.")


@ledger.command("list", short_help="Show the entries.")
@_path
@_json
def list_entries(path: str, json: str | None) -> None:
    """Show all entries, oldest first, and which database each was of: its label, and a pseudonym of its rows.

    Releases with the same pseudonym are of the same rows, whatever the labels say.

    \b
    Example:
      empriv ledger list releases.ledger
    """
    check_targets((json,), (path,))
    entries = _open(path).entries()
    if json is not None:
        write_json(json, [asdict(entry) for entry in entries])
    for entry in entries if json != "-" else ():
        for line in _lines(entry):
            _say(line)


@ledger.command(short_help="Say what is spent, and how many more releases fit.")
@_path
@_json
def left(path: str, json: str | None) -> None:
    """Say what the releases of the latest window tell together, and how many more like the last fit.

    \b
    Example:
      empriv ledger left shop.ledger
    """
    check_targets((json,), (path,))
    rest = _open(path).left()
    if json is not None:
        spent = {"epsilon": rest.spent.epsilon, "delta": rest.spent.delta, "total_risk": rest.spent.total_risk}
        fits = {"window": rest.window, "releases": rest.releases, "more": rest.more, "in_one_window": rest.in_one}
        write_json(json, {**fits, **spent, "limits": rest.limits.to_json()})
    for line in left_words(rest) if json != "-" else ():
        _say(line)


@ledger.command(short_help="Look for tampering.")
@_path
@click.option("--head", metavar="COUNT:HASH", help="A head noted earlier, which the chain must still hold.")
@_json
def verify(path: str, head: str | None, json: str | None) -> None:
    """Compute every hash again, and print the head. Exit with code 3 if the ledger is not as empriv wrote it.

    Note the head somewhere else: without it, nobody can tell whether the whole ledger was replaced.

    \b
    Example:
      empriv ledger verify releases.ledger
    """
    from empriv.ledger import Head

    try:
        noted = None if head is None else Head.parse(head)
    except InputError as error:
        raise click.UsageError(str(error)) from None
    check_targets((json,), (path,))
    checked = _open(path).verify(noted)
    if json is not None:
        end = None if checked.head is None else str(checked.head)
        found = {"intact": checked.intact, "count": checked.count, "head": end, "faults": list(checked.faults)}
        write_json(json, found)
    if json != "-":
        for fault in checked.faults:
            click.secho(fault, fg="red", bold=True)
        if checked.intact:
            against = "" if noted is None else f" Entry {noted.count} is the one that was noted."
            _say(f"Intact: {_count(checked.count)}, all as they were written.{against}")
            _say(f"Head: {checked.head}")
    if not checked.intact:
        click.get_current_context().exit(POLICY_FAILED)


@ledger.command(short_help="Write the entries as JSON lines.")
@_path
@click.argument("target", metavar="TO")
def export(path: str, target: str) -> None:
    """Write all entries as JSON lines, from which anyone can verify the chain without the ledger.

    The file holds queries, laws, figures and noisy answers; no labels of databases, no individuals and no results.

    \b
    Example:
      empriv ledger export releases.ledger releases.jsonl
    """
    count = _open(path).export(target)
    _say(f"Wrote {_count(count)} to {Path(target).name}.")


def _open(path: str) -> Ledger:
    from empriv.ledger import Ledger

    # A wrong path must not look like a ledger without releases.
    return Ledger(path, create=False)


def _policy(limits: dict[str, Any]) -> Policy:
    from empriv.ledger import Policy

    try:
        return Policy(**limits)
    except InputError as error:
        raise click.UsageError(str(error)) from None


def left_words(rest: Remaining) -> tuple[str, str, str]:
    """The limits, what is spent, and what is left."""
    number = "1 release" if rest.releases == 1 else f"{rest.releases:,} releases"
    spent = f"Spent: {number} in the latest {rest.window}, together {figures_words(rest.spent)}."
    if not rest.releases:
        left = "nothing is released yet"
    elif rest.more is not None:
        left = f"{rest.more:,} more like the last, one after the other"
    elif rest.in_one is None:
        left = "releases like the last may go on without end: they add nothing"
    else:
        left = (
            f"{rest.in_one:,} more like the last would fit in one window, which moves on before it is full: the latest "
            f"{rest.window} stay within the limits. What longer spans tell together has no limit"
        )
    return f"Limits: {policy_words(rest.limits)}.", spent, f"Left: {left}."


def policy_words(policy: Policy) -> str:
    """The limits of a policy."""
    parts = [
        f"{name} at most {limit:g} at epsilon {policy.epsilon:g}"
        for name, limit in (("delta", policy.delta), ("total_risk", policy.total_risk))
        if limit is not None
    ]
    if policy.window is not None:
        from empriv.ledger.values import window_of

        window = window_of(policy.window)
        several = f"any {window.words} in a row" if window.length > 1 else "each release alone"
        span = f"all releases from {window.words}" if window.days else several
        parts = [f"{' and '.join(parts)} for {span}"]
    if policy.queries is not None:
        parts.append(f"at most {policy.queries:,} {'query' if policy.queries == 1 else 'queries'}")
    return " and ".join(parts) if parts else "no limits"


def _lines(entry: Entry) -> list[str]:
    from empriv.ledger import PolicyEntry, PriceEntry, ReleaseEntry

    first = f"{entry.id:>4}  {entry.time[:19].replace('T', ' ')} UTC  "
    if isinstance(entry, PolicyEntry):
        event = "made" if entry.kind == "created" else "policy changed"
        return [f"{first}{event}: {policy_words(entry.policy)}"]
    if isinstance(entry, PriceEntry):
        return [f"{first}prices of the releases that follow"]
    assert isinstance(entry, ReleaseEntry)
    answers = entry.answer if isinstance(entry.answer, tuple) else (entry.answer,)
    shown = ", ".join(f"{answer:.10g}" for answer in answers[:4]) + (", ..." if len(answers) > 4 else "")
    component = "" if entry.component is None else f" [{entry.component}]"
    lines = [
        f"{first}released: {shown}",
        f"      {' '.join(entry.query.split())}{component}",
        f"      of {entry.label}{'' if entry.rows is None else f', rows {entry.rows[:12]}'}, audited with "
        f"{entry.n_databases:,} databases and {entry.n_individuals:,} individuals; {entry.method} noise; alone "
        f"{figures_words(entry.achieved)}",
    ]
    if entry.verified is not None:
        lines.append(f"      {entry.verified}")
    if entry.review is not None:
        said = entry.review
        lines.append(f"      {said.outcome} by {said.checker}, {said.role}, on {said.time[:10]}: {said.reason}")
    if entry.joint is not None:
        earlier = ", ".join(map(str, entry.joint.entries)) or "none"
        lines.append(f"      together with entries {earlier}: {figures_words(entry.joint)}")
    return lines


def figures_words(figures: Figures) -> str:
    """What releases tell, alone or together."""
    parts = (("delta", figures.delta), ("total_risk", figures.total_risk))
    figures_text = " and ".join(
        f"{name} {'below 1e-9' if 0 < value < 1e-9 else f'{value:.4g}'}" for name, value in parts if value is not None
    )
    return f"{figures_text or 'no figures'} at epsilon {figures.epsilon:g}"


def _say(line: str) -> None:
    click.echo(printable(line))


def _count(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"
