"""The command `release`: one answer with saved noise, written to the ledger before it is printed."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from empriv.cli.config import Settings
from empriv.cli.inputs import check_targets, saved_audit, saved_noise
from empriv.cli.running import POLICY_FAILED, bar_of, interruptible, write_json
from empriv.cli.terminal import with_options
from empriv.errors import InputError, RefusalError

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.ledger import Review
    from empriv.results import Results


@click.command()
@click.argument("path", metavar="NOISE")
@click.option(
    "--value", "values", multiple=True, metavar="V",
    help="The answer; - reads it from standard input, so that no list of processes shows it. For several numbers "
    "NAME=V, repeated, or a line of input for each.",
)  # fmt: skip
@click.option(
    "--database", metavar="LABEL",
    help="The database that the answer comes from; without --value, its audited answer is used.",
)  # fmt: skip
@click.option(
    "--ledger", metavar="PATH", help="Write the release to this ledger first, which may refuse it. Needs --audit."
)
@click.option("--audit", metavar="SAVED", help="The saved audit that the noise was designed for.")
@click.option(
    "--rows", metavar="FILE",
    help="Rows of one further database, such as today's: the audit's query is run on them, and its answer is released "
    "if the database is like those audited. Needs --ledger.",
)  # fmt: skip
@click.option(
    "--review", metavar="FILE",
    help="What a checker said, which the ledger keeps with the release: JSON with outcome (approved or refused), "
    'checker, role, reason and time; of several under "reviews", the last. Needs --ledger.',
)  # fmt: skip
@click.option(
    "--json", "json_path", metavar="PATH", help="Write the answer and its entry of the ledger; - prints them instead."
)
def release(
    path: str, values: tuple[str, ...], database: str | None, ledger: str | None, audit: str | None, rows: str | None,
    review: str | None, json_path: str | None,
) -> None:  # fmt: skip
    """Print an answer with noise that was saved by `empriv noise --save`.

    Without a ledger every call spends more privacy, and nothing keeps track of it. With one, the same release gives the
    same answer, and a release that would break the ledger's policy is refused (exit code 3).

    \b
    Examples:
      echo 1234.5 | empriv release noise.empriv --value -
      empriv release noise.empriv --audit audit.empriv --database 2026-10-31 --ledger releases.ledger
      empriv release noise.empriv --audit audit.empriv --rows today.parquet --ledger releases.ledger
    """
    if not values and database is None and rows is None:
        raise click.UsageError("Give --value, --database, or both; or --rows.")
    if rows is not None and (values or ledger is None):
        raise click.UsageError("--rows must be given with --ledger, and without --value.")
    if (ledger is None) != (audit is None):
        raise click.UsageError("--ledger and --audit must be given together.")
    if review is not None and ledger is None:
        raise click.UsageError("--review must be given with --ledger, which keeps it.")
    if ledger is not None and database is None and rows is None:
        raise click.UsageError("--ledger needs --database, which says where the answer comes from.")
    check_targets((json_path,), (path, ledger, audit, rows, review))
    saved = saved_noise(path, "NOISE")
    laws = saved.laws if hasattr(saved, "laws") else {"": saved.law}
    if audit is None:  # else the audit judges it, as it did when it was designed
        saved.check_release()
    bar = bar_of(("Measuring", "Certifying"), quiet=False)
    bar.begin("Measuring")
    asked = Settings(epsilon=(saved.epsilon,))
    loaded = None if audit is None else interruptible(lambda: saved_audit(str(audit), asked))
    answer: Any = None
    if values:
        answer = _given(values, several=hasattr(saved, "laws"))
    elif database is not None and rows is None:
        answer = _audited(_results(saved, loaded), database)
    entry: dict[str, Any] = {}
    if loaded is None:
        noisy: Any = saved.release(answer)
        noisy = tuple(noisy.values()) if isinstance(noisy, dict) else noisy
    else:
        bar.begin("Certifying")
        try:
            released = interruptible(lambda: _through(str(ledger), loaded, saved, answer, database, rows, review))
        except RefusalError as error:
            bar.pause()
            click.echo(f"Refused: {with_options(str(error))}", err=True)
            click.get_current_context().exit(POLICY_FAILED)
        noisy = released.answer
        entry = {"repeated": released.repeated, "entry": released.entry.id, "time": released.entry.time}
    bar.pause()
    if entry.get("repeated"):
        click.echo("Released before: this is the answer that was given then.", err=True)
    elif values and saved.presence == "both" and not _is_audited(saved, loaded, database):
        click.echo(
            "No rows were given with this answer, so nobody checked whether somebody moves it by more than the noise "
            "hides. --rows checks, and --database alone takes an audited answer.",
            err=True,
        )
    words = "; ".join(f"{law.words[0].lower()}{law.words[1:].rstrip('.')}" for law in laws.values())
    click.echo(f"Noisy answer at epsilon {saved.epsilon:g}, delta {saved.delta:g}; {words}.", err=True)
    numbers = noisy if isinstance(noisy, tuple) else (noisy,)
    if json_path is not None:
        several = dict(zip(laws, numbers, strict=True)) if hasattr(saved, "laws") else noisy
        write_json(json_path, {"answer": several, **entry})
    if json_path != "-":
        click.echo("\n".join(map(repr, numbers)))


def _through(
    ledger: str, audit: Audit, noise: Any, answer: Any, database: str | None, rows: str | None, review: str | None
) -> Any:
    """The release through a ledger: stopped at any moment, it is in there whole, and then repeated, or not at all."""
    from empriv.ledger import Ledger
    from empriv.ledger.values import label_text

    labels = [] if database is None else audit.results.databases.tolist()
    # the audited label that the text stands for, or the text itself for a database that was not audited
    label = next((label for label in labels if label_text(label) == label_text(str(database))), database)
    said = None if review is None else read_review(review)
    book = Ledger(ledger, create=False)
    return audit.release(answer, noise=noise, ledger=book, database=label, rows=rows, review=said)


def read_review(path: str) -> Review:
    """What a checker said, from a file."""
    from dataclasses import fields

    from empriv.base.storage import WRONG_FACTS
    from empriv.ledger import Review

    try:
        content = json.loads(Path(path).read_bytes())
        said = content["reviews"][-1] if "reviews" in content else content
        return Review(**{one.name: said[one.name] for one in fields(Review)})
    except (OSError, *WRONG_FACTS):
        raise InputError("`--review` must be a JSON file with outcome, checker, role, reason and time.") from None


def _given(values: tuple[str, ...], *, several: bool) -> float | dict[str, float]:
    """The answer that was given, or the answers by name."""
    if not several:
        if len(values) != 1:
            raise click.UsageError("--value must be given once for one number.")
        return _number(sys.stdin.readline().strip() if values[0] == "-" else values[0])
    if values == ("-",):
        values = tuple(line.rstrip("\r\n") for line in sys.stdin if line.strip())
    pairs = [value.rpartition("=") for value in values]
    if any(not equals for _, equals, _ in pairs):
        raise click.UsageError("--value must read NAME=V for several numbers.")
    return {name: _number(text) for name, _, text in pairs}


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError("`--value` must be a number.") from None  # the message must not repeat the answer


def _results(noise: Any, audit: Audit | None) -> Results:
    """The results that audited answers are taken from."""
    if not noise.given:
        own: Results = noise.risk.results
        return own
    if audit is None:
        raise InputError(
            "`--database` must go with --audit and --ledger for noise given what is known, whose file holds no "
            "answers. Hint: --value."
        )
    return audit.alone.results


def _is_audited(noise: Any, audit: Audit | None, database: str | None) -> bool:
    """Whether the database was audited, so that the noise was designed for what people did there."""
    from empriv.ledger.values import label_text

    if database is None or (audit is None and noise.given):
        return False
    return label_text(database) in map(label_text, _results(noise, audit).databases.tolist())


def _audited(results: Results, database: str) -> float | dict[str, float]:
    """The answer, or the answers by name, of one audited database."""
    from empriv.base.text import shortened
    from empriv.ledger.values import label_text

    # 2023-12-01 finds 2023-12-01 00:00:00
    labels = [label_text(label) for label in results.databases.tolist()]
    matching = [index for index, label in enumerate(labels) if label == label_text(database)]
    if len(matching) != 1:
        named = [shortened(label, 30) for label in labels]
        listed = f"{named[0]}, {named[1]}, ..., {named[-1]}" if len(named) > 3 else ", ".join(named)
        raise InputError(
            f"`--database` must name one of the databases, got a label that matches {len(matching)}. Hint: the "
            f"{len(named):,} databases are {listed}."
        )
    if results.draws is not None:
        raise InputError("`--database` must be of a query without draws. Hint: --value.")
    if results.outcomes[matching[0]].any():
        raise InputError("`--database` must have answers that are numbers.")
    if results.components is None:
        return float(results.q[matching[0]])
    return dict(zip(results.components, map(float, results.q[matching[0]]), strict=True))
