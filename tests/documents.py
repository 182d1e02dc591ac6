"""What the documents show, run: blocks taken from Markdown, executed page by page, their output compared.

- `python`: executed. Blocks of a page share their names.
- `pycon`: executed, and what it prints is compared; `...` stands for anything.
- `console`: lines after `$ empriv` are run as commands; output shown below them is compared, `...` stands for anything.
  Other programs are not run.
- `<!-- not run: REASON -->` on a line of its own before a block: not executed.
"""

from __future__ import annotations

import csv
import datetime
import doctest
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from click.testing import CliRunner

import empriv

LANGUAGES = ("python", "pycon", "console")
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n+)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
# What is said by exit codes 3 and 4 is an answer, not an error, where one of these asks for it.
_MAY_SAY_NO = ("--target", "check", "compare", "noise", "release", "verify")


@dataclass(frozen=True)
class Block:
    """A block of code, and why it is not run if it is not."""

    line: int
    language: str
    text: str
    reason: str | None


@dataclass(frozen=True)
class Command:
    """A command, what is written to its standard input, and the output that is shown, if any."""

    words: tuple[str, ...]
    given: str | None
    shown: str


def blocks(markdown: str) -> list[Block]:
    """The blocks in languages that are run."""
    return [
        Block(markdown.count("\n", 0, found.start("text")), found["language"], found["text"], found["reason"])
        for found in _BLOCK.finditer(markdown)
        if found["language"] in LANGUAGES
    ]


def commands(text: str) -> Iterator[Command]:
    """The commands of empriv in a console block."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        count = 1
        while lines[count - 1].endswith("\\"):
            count += 1
        line = " ".join(one.removesuffix("\\") for one in lines[:count])
        echoed, pipe, piped = line.partition(" | empriv ")
        words = shlex.split(f"empriv {piped}" if pipe else line, comments=True)
        given = shlex.split(echoed)[1] + "\n" if pipe else None
        if words[0] == "empriv":
            yield Command(tuple(words[1:]), given, "\n".join(lines[count:]))


def run_page(markdown: str, names: dict[str, Any]) -> int:
    """Run the blocks of a page from top to bottom, in the present directory; how many there were."""
    done = 0
    for block in blocks(markdown):
        if block.reason is not None:
            continue
        if block.language == "python":
            exec(compile(block.text, f"line {block.line}", "exec"), names)
        elif block.language == "pycon":
            _doctest(block, names)
        else:
            for command in commands(block.text):
                _command(command, block.line)
        done += 1
    return done


def rewrite_page(markdown: str, names: dict[str, Any]) -> str:
    """The page with the output that its blocks print now; what is left out by `...` stays left out."""
    for block in blocks(markdown):
        if block.reason is not None:
            continue
        if block.language == "python":
            exec(compile(block.text, f"line {block.line}", "exec"), names)
            continue
        text = block.text
        if block.language == "pycon":
            text = rewrite_examples(text, names)
        else:
            for command in commands(block.text):
                printed = _invoke(command, block.line)
                if command.shown.strip() and not _same(command.shown, printed):
                    text = text.replace(command.shown, _shortened(command.shown, printed), 1)
        markdown = markdown.replace(block.text, text, 1)
    return markdown


def rewrite_examples(text: str, names: dict[str, Any]) -> str:
    """The examples of an interpreter's session, each with what it prints now."""
    test = doctest.DocTestParser().get_doctest(text, names, "block", None, 0)
    printed: dict[str, str] = {}

    class Runner(doctest.DocTestRunner):
        def report_failure(self, _: Any, __: Any, example: doctest.Example, got: str) -> None:
            printed[example.want] = got

    Runner(optionflags=_FLAGS, verbose=False).run(test, out=lambda _: None, clear_globs=False)
    names.update(test.globs)
    for want, got in printed.items():
        text = text.replace(want, _shortened(want.rstrip("\n"), got) + "\n", 1)
    return text


def _shortened(shown: str, printed: str) -> str:
    """What is printed, with as many lines before and after a line of `...` as were shown."""
    parts = re.split(r"^ *\.\.\.$", shown.strip("\n"), maxsplit=1, flags=re.MULTILINE)
    lines = [line.rstrip() for line in printed.strip("\n").splitlines()]
    if len(parts) == 1:
        return "\n".join(lines)
    before, after = (len(part.strip("\n").splitlines()) for part in parts)
    return "\n".join([*lines[:before], "...", *lines[len(lines) - after :]])


def _doctest(block: Block, names: dict[str, Any]) -> None:
    said: list[str] = []
    test = doctest.DocTestParser().get_doctest(block.text, names, "block", None, block.line)
    runner = doctest.DocTestRunner(optionflags=_FLAGS, verbose=False)
    failed = runner.run(test, out=said.append, clear_globs=False).failed
    names.update(test.globs)
    assert not failed, "".join(said)


def _command(command: Command, line: int) -> None:
    printed = _invoke(command, line)
    if command.shown.strip():
        assert _same(command.shown, printed), f"line {line}: {command.words} printed:\n{printed}"


def _invoke(command: Command, line: int) -> str:
    from empriv.cli.main import main

    result = CliRunner().invoke(main, list(command.words), input=command.given)
    asked = any(word in command.words for word in _MAY_SAY_NO)
    assert result.exit_code in ((0, 3, 4) if asked else (0,)), f"line {line}: {command.words}: {result.output}"
    return result.stdout


def _same(shown: str, printed: str) -> bool:
    return doctest.OutputChecker().check_output(shown, printed, _FLAGS)


def prepare_shop(folder: Path) -> Path:
    """The files that pages take as given: a shop's sales, saved audits of them, noise."""
    import duckdb

    (folder / "sales").mkdir()
    rng = np.random.default_rng(0)
    first = datetime.datetime(2026, 7, 4)
    with (folder / "sales" / "sales.csv").open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["t", "day", "client_id", "amount"])
        for day in range(120):
            time = first + datetime.timedelta(days=day)  # the last is 2026-10-31
            for client in np.flatnonzero(rng.random(30) < 0.6):
                rows.writerow([time, time.date(), client, round(rng.exponential(20.0), 2)])
    text = "client_id,adult\n" + "".join(f"{client},{client % 5 > 0}\n" for client in range(30))
    (folder / "clients.csv").write_text(text)
    with duckdb.connect() as connection:
        for place in ("sales/sales.parquet", "sales.parquet"):
            source, target = folder / "sales" / "sales.csv", folder / place
            connection.execute(f"COPY (SELECT * FROM '{source}') TO '{target}'")
        # the day after the last: as a Saturday in July was
        connection.execute(
            f"COPY (SELECT t + INTERVAL 120 DAY AS t, day + 120 AS day, client_id, amount FROM '{source}' "
            f"WHERE day = DATE '2026-07-04') TO '{folder / 'today.parquet'}'"
        )
    data = empriv.databases(str(folder / "sales.parquet"), database="day", individual="client_id")
    audit = empriv.audit(data, "avg(amount)", epsilon=[0.05, 0.1])
    rounded = empriv.audit(data, "round(avg(amount), 0)", epsilon=[0.05, 0.1])
    for name, saved in {"audit": audit, "raw": audit, "rounded": rounded}.items():
        saved.save(folder / f"{name}.empriv")
    empriv.design_noise(audit, epsilon=0.1, delta=0.05, granularity=0.25).save(folder / "noise.empriv")
    return folder


def names_on_a_page(shop: Path) -> dict[str, Any]:
    """The names that fragments on a page take as given, of the files in this folder."""
    audit = empriv.load(shop / "audit.empriv")
    return {
        "__name__": "page",
        "empriv": empriv,
        "data": empriv.databases(str(shop.resolve() / "sales.parquet"), database="day", individual="client_id"),
        "query": "avg(amount)",
        "audit": audit,
        "results": audit.results,
        "noise": empriv.Noise.load(shop / "noise.empriv"),
        "value": 17.0,
    }
