"""The command `release`: one answer with saved noise, written to the ledger before it is printed.

Numerics are imported inside the command, so that ``--help`` is quick.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from empriv.cli.inputs import check_targets, load_audit
from empriv.cli.output import POLICY_FAILED, write_json
from empriv.cli.running import bar_of, interruptible
from empriv.errors import InputError, RefusalError

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit
    from empriv.noise.noise import Noise
    from empriv.noise.table_noise import TableNoise


@click.command()
@click.argument("path", metavar="NOISE")
@click.option(
    "--value", "values", multiple=True, metavar="V",
    help="The answer; - reads it from standard input, so that no list of processes shows it. For several numbers "
    "NAME=V, repeated, or a line of input for each.",
)  # fmt: skip
@click.option(
    "--database",
    metavar="LABEL",
    help="The database that the answer comes from; without --value, its audited answer is used.",
)
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
    "--json", "json_path", metavar="PATH", help="Write the answer and its entry of the ledger; - prints them instead."
)
def release(
    path: str,
    values: tuple[str, ...],
    database: str | None,
    ledger: str | None,
    audit: str | None,
    rows: str | None,
    json_path: str | None,
) -> None:
    """Print an answer with noise that was saved by `empriv noise --save`.

    Without a ledger every call spends more privacy, and nothing keeps track of it. With one, the same release gives the
    same answer, and a release that would break the ledger's policy is refused (exit code 3).

    \b
    Examples:
      echo 1234.5 | empriv release noise.empriv --value -
      empriv release noise.empriv --audit audit.empriv --database 1998-06-30 --ledger releases.ledger
      empriv release noise.empriv --audit audit.empriv --rows today.parquet --ledger releases.ledger
    """
    if not values and database is None and rows is None:
        raise click.UsageError("Give --value, --database, or both; or --rows.")
    if rows is not None and (values or ledger is None):
        raise click.UsageError("--rows must be given with --ledger, and without --value.")
    if (ledger is None) != (audit is None):
        raise click.UsageError("--ledger and --audit must be given together.")
    if ledger is not None and database is None and rows is None:
        raise click.UsageError("--ledger needs --database, which says where the answer comes from.")
    check_targets((json_path,), [name for name in (path, ledger, audit, rows) if name is not None])
    import empriv
    from empriv.noise.table_noise import TableNoise

    saved: Any = empriv.load(path)
    if not isinstance(saved, empriv.Noise | TableNoise):
        raise InputError("NOISE must be a file that `empriv noise --save` wrote, got a different one.")
    if audit is None:  # else the audit judges it, as it did when it was designed
        saved.check_release()
    bar = bar_of(("Measuring", "Certifying"), quiet=False)
    bar.begin("Measuring")
    loaded = None if audit is None else interruptible(lambda: load_audit(str(audit), (saved.epsilon,)))
    answer: Any = None
    entry: dict[str, Any] = {}
    if rows is None:
        answer = _answers(saved, values) if values else _audited(saved, loaded, str(database))
    if ledger is None:
        noisy: Any = saved.release(answer)
        noisy = tuple(noisy.values()) if isinstance(noisy, dict) else noisy
    else:
        from empriv.ledger import Ledger

        assert loaded is not None
        label = None if database is None else _label(loaded.results.databases.tolist(), database)
        book = Ledger(ledger, create=False)
        bar.begin("Certifying")
        try:
            # Stopped at any moment, it is in the ledger whole or not at all, and then gives the same answer again.
            released = interruptible(
                lambda: loaded.release(answer, noise=saved, ledger=book, database=label, rows=rows)
            )
        except RefusalError as error:
            bar.pause()
            click.echo(f"Refused: {error}", err=True)
            click.get_current_context().exit(POLICY_FAILED)
        noisy = released.answer
        entry = {"repeated": released.repeated, "entry": released.entry.id, "time": released.entry.time}
        bar.pause()
        if released.repeated:
            click.echo("Released before: this is the answer that was given then.", err=True)
    bar.pause()
    click.echo(_said(saved), err=True)
    if json_path is not None:
        names = tuple(saved.laws) if isinstance(saved, TableNoise) else None
        write_json(json_path, {"answer": noisy if names is None else dict(zip(names, noisy, strict=True)), **entry})
    if json_path == "-":
        return
    for number in noisy if isinstance(noisy, tuple) else (noisy,):
        click.echo(repr(number))


def _said(saved: Noise | TableNoise) -> str:
    delta = f", delta {saved.delta:g}"
    laws = [saved.law] if not hasattr(saved, "laws") else list(saved.laws.values())
    return f"Noisy answer at epsilon {saved.epsilon:g}{delta}; " + "; ".join(
        f"{law.words[0].lower()}{law.words[1:]}" for law in laws
    )


def _answers(saved: Noise | TableNoise, values: tuple[str, ...]) -> float | dict[str, float]:
    if not hasattr(saved, "laws"):
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


def _audited(saved: Noise | TableNoise, audit: Audit | None, database: str) -> float | dict[str, float]:
    """The answer, or the answers by name, of one audited database."""
    results = saved.risk.results
    if getattr(saved, "given", False):
        if audit is None:
            raise InputError(
                "`--database` must go with --audit and --ledger for noise given what is known, whose file holds no "
                "answers. Hint: --value."
            )
        results = audit.alone.results
    from empriv.base.harmless import shortened
    from empriv.ledger.values import label_text

    # 2023-12-01 finds 2023-12-01 00:00:00
    wanted = label_text(database)
    matching = [index for index, label in enumerate(results.databases) if label_text(label) == wanted]
    if len(matching) != 1:
        named = [shortened(label_text(label), 30) for label in results.databases.tolist()]
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


def _label(labels: list[Any], text: str) -> Any:
    """The audited label that this text stands for, or the text itself for a database that was not audited."""
    from empriv.ledger.values import label_text

    return next((label for label in labels if label_text(label) == label_text(text)), text)
