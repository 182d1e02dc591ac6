"""What is printed: pseudonyms, harmless text, lines that fit."""

from __future__ import annotations

import io

import pytest

from empriv.base.text import pseudonyms
from empriv.cli.terminal import console_for, echo, printable


def test_control_characters_are_escaped() -> None:
    assert printable("a\x1b[31mb\x00\r\n\x9b\u202e\u2028\ud800é") == (
        "a\\x1b[31mb\\x00\\x0d\\x0a\\x9b\\u202e\\u2028\\ud800é"
    )
    assert printable("é日", "ascii") == "\\xe9\\u65e5"


def test_pseudonyms_depend_on_the_salt_and_do_not_repeat() -> None:
    labels = [f"client {k}" for k in range(3000)]
    names = pseudonyms(labels, b"salt")
    assert len(set(names)) == 3000
    assert names == pseudonyms(labels, b"salt")
    assert not set(pseudonyms(labels[:5], b"other")) & set(pseudonyms(labels[:5], b"salt"))
    assert not any("client" in name for name in names)


def test_consoles_take_nothing_for_markup() -> None:
    stream = io.StringIO()
    console_for(stream).print("[red]a[/red] :smile:")
    assert stream.getvalue() == "[red]a[/red] :smile:\n"


def test_sentences_fit_the_terminal_and_paths_stay_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    path = "a-folder/" * 12 + "audit.html"
    echo(f"Wrote audit.empriv and, because it was asked for with an option that names it, {path}.")
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"{path}."
    assert all(len(line) <= 80 for line in lines[:-1])
