"""What the documents show, run: blocks taken from Markdown, executed page by page, their output compared.

- `python`: executed. Blocks of a page share their names.
- `pycon`: executed, and what it prints is compared; `...` stands for anything.
- `console`: lines after `$ empriv` are run as commands; output shown below them is compared, `...` stands for anything.
  Other programs are not run.
- `<!-- not run: REASON -->` on a line of its own before a block: not executed.
"""

from __future__ import annotations

import doctest
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from click.testing import CliRunner

LANGUAGES = ("python", "pycon", "console")
_FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_BLOCK = re.compile(
    r"^(?:<!-- not run: (?P<reason>[^\n]+) -->\n+)?```(?P<language>\w+)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
# What is said by exit codes 3 and 4 is an answer, not an error, where one of these asks for it.
_MAY_SAY_NO = ("--target", "--fail-if", "noise", "release", "verify")


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


def _doctest(block: Block, names: dict[str, Any]) -> None:
    said: list[str] = []
    test = doctest.DocTestParser().get_doctest(block.text, names, "block", None, block.line)
    runner = doctest.DocTestRunner(optionflags=_FLAGS, verbose=False)
    failed = runner.run(test, out=said.append, clear_globs=False).failed
    names.update(test.globs)
    assert not failed, "".join(said)


def _command(command: Command, line: int) -> None:
    from empriv.cli.main import main

    result = CliRunner().invoke(main, list(command.words), input=command.given)
    asked = any(word in command.words for word in _MAY_SAY_NO)
    assert result.exit_code in ((0, 3, 4) if asked else (0,)), f"line {line}: {command.words}: {result.output}"
    if command.shown.strip():
        same = doctest.OutputChecker().check_output(command.shown, result.stdout, _FLAGS)
        assert same, f"line {line}: {command.words} printed:\n{result.stdout}"
