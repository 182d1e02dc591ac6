"""How results are printed and written, and the exit code with which a command ends.

Nothing here imports numerics before there is something to print.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from empriv.cli.targets import Target
from empriv.errors import InputError
from empriv.words.decision import NO_TARGET, PUBLISH

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.validate.verdict import Verdict
    from empriv.words.decision import Decision

DONE, ERROR, USAGE, POLICY_FAILED, UNRESOLVED, INTERRUPTED = 0, 1, 2, 3, 4, 130


def verdict_on(audited: Audit, target: Target, basis: str, presence: str) -> Verdict:
    """The verdict on a target of --target."""
    limits: dict[str, Any] = {target.figure: target.limit}
    if audited.paper:  # which says how it is asked
        return audited.verdict(epsilon=target.epsilon, **limits)
    return audited.verdict(epsilon=target.epsilon, basis=basis, presence=presence, **limits)


def exit_by(verdicts: Sequence[tuple[str, Verdict]]) -> None:
    """End with 3 if a target failed, with 4 if one is unresolved, else go on."""
    given = {str(verdict) for _, verdict in verdicts}
    if "fail" in given:
        click.get_current_context().exit(POLICY_FAILED)
    if "unresolved" in given:
        click.get_current_context().exit(UNRESOLVED)


def judged(decision: Decision, verdicts: Sequence[tuple[str, Verdict]]) -> dict[str, Any]:
    """The decision and the verdicts on all targets, for the JSON beside the figures."""
    if not verdicts:
        return {}
    given = [{"target": text, **verdict.to_json()} for text, verdict in verdicts]
    return {"decision": decision.to_json(), "verdicts": given}


def next_step(audit: Audit, verdicts: Sequence[Verdict], decision: Decision, saved: str | None) -> tuple[str, str]:
    """What to do next, and the command that does it, if one does."""
    if decision.word == NO_TARGET:
        return 'say what is private enough, such as --target "delta <= 0.05 at 0.1", for a decision.', ""
    if decision.word == PUBLISH:
        return "if you publish it again and again, ask for that, such as --times 30.", ""
    worst = max(verdicts, key=("pass", "unresolved", "fail").index)
    if any(check.code == "databases" and check.severity == "error" for check in worst.checks):
        return "collect more databases: at least 30 give an upper bound.", ""
    limits = _limits(verdicts, worst.epsilon)
    name = shlex.quote(saved or "audit.empriv")
    one = audit.results.components is None
    if not audit.takes_noise or ("delta" not in limits and not (one and audit.times == 1)):
        return "ask for less, such as sum(least(amount, 60)) for amounts up to 60, and audit again.", ""
    if one and audit.times == 1:
        asked = " ".join(
            f"--target {shlex.quote(f'{figure} <= {limit:g} at {worst.epsilon:g}')}" for figure, limit in limits.items()
        )
        command = f"empriv advise {name} {asked}"
    else:
        times = "" if audit.times == 1 else f" --times {audit.times}"
        command = f"empriv noise {name} --epsilon {worst.epsilon:g} --delta {limits['delta']:g}{times}"
    return "see what you can do, and what it costs" + (":" if saved else " (after --save audit.empriv):"), command


def _limits(verdicts: Sequence[Verdict], epsilon: float) -> dict[str, float]:
    """The strictest limits at an epsilon, by figure: advice is about one epsilon."""
    limits: dict[str, float] = {}
    for verdict in verdicts:
        for target in verdict.targets if verdict.epsilon == epsilon else ():
            limits[target.name] = min(target.limit, limits.get(target.name, 1.0))
    return limits


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


def write_json(path: str, figures: Mapping[str, Any]) -> None:
    """Write figures to a file, or print them for ``-``."""
    from empriv.base.storage import write_atomically

    text = json.dumps(figures, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    content = text.encode("utf-8", "backslashreplace")
    if path == "-":
        click.echo(content.decode(), nl=False)
    else:
        write_to(path, lambda target: write_atomically(target, content))


def write_to(path: str, write: Callable[[str], None]) -> None:
    """Write one file, or say in a sentence why it cannot be written."""
    try:
        write(path)
    except OSError as error:
        raise InputError(f"Output must go to a file that can be written, got {path!r}: {error.strerror}.") from None
