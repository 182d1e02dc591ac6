"""What is drawn and printed: the chart, pseudonyms, harmless text."""

from __future__ import annotations

import io
import math
from itertools import pairwise

import pytest

from empriv.base.harmless import pseudonyms
from empriv.cli.terminal import chart, console_for, printable, round_up


def test_a_falling_line_is_drawn_from_corner_to_corner() -> None:
    lines = chart([0.0, 1.0], [1.0, 0.0], width=25)
    assert lines[0].startswith("  1 │⠑⠢⡀")
    assert lines[3].startswith("0.5 │")
    assert lines[6].startswith("  0 │")
    drawn = [[c for c in range(len(line) - 5) if line[c + 5] != " "] for line in lines[:7]]
    columns = [column for row in drawn for column in row]
    assert columns == sorted(columns)  # falls from left to right, row by row
    assert set(columns) == set(range(19))  # and without gaps
    assert lines[7] == "    └" + "─" * 19
    assert lines[8].split() == ["0", "1"]
    assert chart([0.0, 1.0], [1.0, 0.0], width=60)[8].split() == ["0", "0.25", "0.5", "0.75", "1"]


def test_plain_charts_are_ascii_and_mark_the_epsilons_asked_for() -> None:
    lines = chart([0.0, 0.1, 0.2], [0.5, 0.5, 0.5], marks=[0.0, 0.1, 7.0], width=40, plain=True)
    assert all(line.isascii() for line in lines)
    assert lines[0].rstrip().endswith("|" + "o" + "*" * 15 + "o" + "*" * 16)


def test_what_spans_decades_is_drawn_on_a_logarithmic_scale() -> None:
    lines = chart([0.0, 1.0, 2.0], [0.1, 0.001, 1e-5], width=40, plain=True)
    assert [line.split("|")[0].strip() for line in lines[:7]] == ["0.1", "", "", "0.001", "", "", "1e-05"]
    # A straight line, since 1e-1, 1e-3, 1e-5 is.
    ends = [line.rindex("*") for line in lines[:7]]
    steps = [b - a for a, b in pairwise(ends)]
    assert max(steps) - min(steps) <= 1


def test_zero_stands_at_the_bottom_of_either_scale() -> None:
    for values in ([0.5, 0.4, 0.0], [0.5, 0.0001, 0.0]):
        assert chart([0.0, 1.0, 2.0], values, plain=True)[6].rstrip().endswith("*")


def test_nothing_is_drawn_of_nothing() -> None:
    assert chart([0.0, 1.0], [0.0, 0.0]) == []


@pytest.mark.parametrize("value", [1e-9, 0.0037, 0.99, 1.0, 1.01, 9.99, 12345.0])
def test_rounding_up_never_rounds_down_nor_far(value: float) -> None:
    assert value * (1 - 1e-9) <= round_up(value) <= 1.5 * value
    assert math.isclose(round_up(round_up(value)), round_up(value))


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
