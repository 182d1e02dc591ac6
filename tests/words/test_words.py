"""One word for one thing: the glossary's twelve are used, and other words for the same things are not.

Looked for in what people read: strings of the sources (docstrings, messages, help), templates and scripts of pages,
README, documents and the tour. Names and comments of the code are not looked at.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import empriv

ROOT = Path(__file__).parents[2]
SOURCES = Path(empriv.__file__).parent
DOCS = ROOT / "docs"
GLOSSARY = DOCS / "index.md"

INSTEAD = {
    "individual": ("data subject", "participant", "respondent"),
    "database": ("snapshot",),
    "reader": ("adversary", "adversaries", "attacker", "eavesdropper", "intruder", "observer", "onlooker", "watcher"),
    "epsilon": ("budget",),
    "delta": ("leakage",),
    "cover": ("protected amount",),
    "verdict": ("inconclusive", "undecided"),
    "exact leak": ("certain leak", "deterministic leak", "perfect leak", "sure leak"),
    "residuals": ("left over", "leftover"),
    "dither": ("jitter", "random rounding", "rounded at random"),
    "cap": ("truncation", "winsorize"),
    "ledger": ("logbook",),
}
"""Of each word of the glossary, what is not said instead."""
IDIOMS = (
    "battery",
    "cautions",
    "closed door",
    "hangs on",
    "hopeless",
    "rung",
    "second look",
    "mass of its own",
    "mass of their own",
    "nobody's row",
    "what is left of",
)
"""Coined for what has a plain name: tests, warnings, allowlist, depends on, impossible, step, recheck, point mass, rows
without an individual, residuals of."""
QUOTED = {"docs/index.md": ("adversary",), "docs/method.md": ("adversary",), "CHANGELOG.md": ("adversary", "cautions")}
"""The paper's own words, where its terms are translated; names of the preview, where they are said to be gone."""

BANNED = (*IDIOMS, *(word for words in INSTEAD.values() for word in words))
_PATTERN = re.compile(rf"\b({'|'.join(BANNED)})s?\b", re.IGNORECASE)


def banned_in(text: str) -> set[str]:
    """The banned words in a text, broken lines or not."""
    return {found[1].lower() for found in _PATTERN.finditer(re.sub(r"\s+", " ", text))}


def what_is_read(path: Path) -> list[str]:
    """The text of a file that reaches people: of Python its strings, of anything else all."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return [text]
    nodes = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Constant))
    return [node.value for node in nodes if isinstance(node.value, str)]


@pytest.fixture(scope="module")
def read() -> dict[Path, list[str]]:
    """What is read of sources, templates, scripts of pages, and documents."""
    shown = [path for ending in ("py", "html", "js") for path in SOURCES.rglob(f"*.{ending}")]
    beside = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md")]
    pages = [*beside, *DOCS.glob("*.md"), *DOCS.glob("reference/*.md"), DOCS / "tour.ipynb"]
    return {path: what_is_read(path) for path in sorted({*shown, *pages})}


@pytest.mark.slow
def test_nobody_says_a_banned_word(read: dict[Path, list[str]]) -> None:
    found = {}
    for path, texts in read.items():
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name
        words = {word for text in texts for word in banned_in(text)} - {*QUOTED.get(name, ())}
        if words:
            found[name] = words
    assert found == {}


@pytest.mark.parametrize("word", BANNED)
def test_a_banned_word_is_noticed(word: str, tmp_path: Path) -> None:
    page, module = tmp_path / "page.md", tmp_path / "module.py"
    page.write_text(f"What the {word.upper().replace(' ', chr(10))} learns.")
    module.write_text(f'# an {word} in a comment\nraise ValueError(f"the {word}s of {{1}}")\n')
    for path in (page, module):
        assert {found for text in what_is_read(path) for found in banned_in(text)} == {word}
    module.write_text(f"# an {word} in a comment\n")
    assert not what_is_read(module)


@pytest.mark.slow
def test_the_glossary_has_twelve_words_and_they_are_used(read: dict[Path, list[str]]) -> None:
    glossary = GLOSSARY.read_text(encoding="utf-8").partition("## Twelve words")[2]
    words = re.findall(r"^\| ([a-z ]+) \|", glossary, re.MULTILINE)[1:]
    assert words == list(INSTEAD)
    assert len(words) == 12
    said = " ".join(text for path, texts in read.items() if path.suffix == ".py" for text in texts).lower()
    pages = " ".join(
        texts[0] for path, texts in read.items() if path.parent == DOCS and path.suffix == ".md" and path != GLOSSARY
    ).lower()
    for word in words:
        assert word in said, word
        assert word in pages, word
