"""A large text file is parsed once, into a copy that nobody else may read and that goes when the desk stops."""

from __future__ import annotations

import stat
from dataclasses import replace
from pathlib import Path

import pytest

from app.conftest import running, sales
from empriv.app import table
from empriv.app.folder import COPIES, OWN
from empriv.app.table import count_of, profile_of, values_at, with_parsed_copy
from empriv.cli.config import Settings

SETTINGS = Settings(files=("sales.csv",), individual=("client",), database="day")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with rows, in which every file of text is large."""
    (tmp_path / OWN).mkdir(mode=0o700)
    (tmp_path / "sales.csv").write_bytes(sales(days=40, people=8))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(table, "_LARGE", 1)
    return tmp_path


@pytest.mark.slow
def test_what_is_seen_of_the_copy_is_what_the_file_holds(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, counted = profile_of(SETTINGS), count_of(SETTINGS)
    values = values_at(SETTINGS, ("amount", "day"))
    (copy,) = (place / COPIES).iterdir()
    assert with_parsed_copy(SETTINGS).files == (str(copy.relative_to(place)),)
    assert stat.S_IMODE(copy.parent.stat().st_mode) == 0o700
    monkeypatch.setattr(table, "_LARGE", 1 << 40)
    assert with_parsed_copy(SETTINGS) == SETTINGS
    assert (profile_of(SETTINGS), count_of(SETTINGS), values_at(SETTINGS, ("amount", "day"))) == (seen, counted, values)


@pytest.mark.slow
def test_a_file_that_changes_is_parsed_again_and_few_copies_stay(place: Path) -> None:
    for people in range(2, 8):
        (place / "sales.csv").write_bytes(sales(days=40, people=people))
        assert count_of(SETTINGS).individuals == people
    assert len(list((place / COPIES).iterdir())) == 3


def test_what_is_no_text_file_is_read_where_it_is(place: Path) -> None:
    for other in (
        replace(SETTINGS, files=("sales.csv", "sales.csv")),
        replace(SETTINGS, sql="SELECT 1 AS x"),
        Settings(),
    ):
        assert with_parsed_copy(other) == other
    assert not (place / COPIES).exists()


def test_dates_that_could_be_swapped_leave_no_copy(place: Path) -> None:
    (place / "sales.csv").write_text("client,day\n" + "".join(f"p{k % 5},0{1 + k % 9}/01/2026\n" for k in range(40)))
    with pytest.raises(Exception, match="Dates must tell the day from the month"):
        profile_of(SETTINGS)
    assert list((place / COPIES).iterdir()) == []


def test_copies_go_when_the_desk_stops(tmp_path: Path) -> None:
    with running(tmp_path):
        (tmp_path / COPIES).mkdir()
        (tmp_path / COPIES / "old.parquet").write_bytes(b"")
    assert not (tmp_path / COPIES).exists()
