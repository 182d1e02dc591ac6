"""Dates in text whose day and month could be swapped are refused; those that settle it are read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import empriv
from empriv.collecting.profile import out_of_order
from empriv.errors import SourceError


def collected(path: Path | str, database: str = "day") -> list[str]:
    data = empriv.databases(str(path), database=database, individual="who")
    return [str(label)[:10] for label in empriv.collect(data, "sum(x)").databases.tolist()]


def write(path: Path, days: list[str]) -> Path:
    path.write_text("day,who,x\n" + "".join(f"{day},{k % 2},{k}\n" for k, day in enumerate(days)))
    return path


@pytest.mark.parametrize(
    "days",
    [["03/01/2026", "04/01/2026"], ["3-1-2026", "4-1-2026"], ["03.01.26", "14.02.26"], ["01/02/2026", "01/03/2026"]],
)
def test_dates_that_could_be_swapped_are_refused_without_quoting_them(tmp_path: Path, days: list[str]) -> None:
    with pytest.raises(SourceError, match="Dates must tell the day from the month, got the column 'day'") as refused:
        collected(write(tmp_path / "a.csv", days))
    assert "dateformat='%d" in str(refused.value)
    assert not any(day in str(refused.value) for day in days)


@pytest.mark.parametrize(
    ("days", "read"),
    [
        (["2026-01-03", "2026-01-04"], ["2026-01-03", "2026-01-04"]),
        (["03/01/2026", "13/01/2026"], ["2026-01-03", "2026-01-13"]),
        (["01/03/2026", "01/13/2026"], ["2026-01-03", "2026-01-13"]),
        (["01/01/2026", "02/02/2026"], ["2026-01-01", "2026-02-02"]),
    ],
)
def test_dates_that_are_settled_are_read(tmp_path: Path, days: list[str], read: list[str]) -> None:
    assert collected(write(tmp_path / "a.csv", days)) == read


def test_the_hint_settles_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "a.csv", ["03/01/2026", "04/01/2026"])
    with pytest.raises(SourceError) as refused:
        collected("a.csv")
    hint = str(refused.value).split('"')[1]
    assert collected(hint) == ["2026-01-03", "2026-01-04"]
    assert collected(hint.replace("%d/%m", "%m/%d")) == ["2026-03-01", "2026-04-01"]


def test_json_and_joined_tables_are_checked_too(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("".join(f'{{"day": "0{k}-01-2026", "who": {k % 2}, "x": {k}}}\n' for k in range(1, 9)))
    with pytest.raises(SourceError, match="Dates must tell the day from the month"):
        collected(path)
    settled = str(write(tmp_path / "a.csv", ["2026-01-03", "2026-01-04"]))
    tables = {"b": str(write(tmp_path / "b.csv", ["03/01/2026", "04/01/2026"]))}
    with pytest.raises(SourceError, match=r"'day' of 'b.csv'"):
        empriv.collect(empriv.databases(settled, database="day", individual="who", tables=tables), "sum(x)")


def test_labels_of_text_that_fit_both_orders_are_asked_about() -> None:
    both = out_of_order(np.array(["02/01/2026", "01/02/2026", "03/01/2026"]), "day")
    assert both is not None
    assert "'%d/%m/%Y'" in both
    assert "'%m/%d/%Y') if the month comes first" in both
    one = out_of_order(np.array(["01/02/2026", "22/01/2026"]), "day")
    assert one is not None
    assert "month comes first" not in one


def test_a_header_alone_and_text_in_place_of_dates_get_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "h.csv").write_text("day,who,x\n")
    with pytest.raises(SourceError, match=r"must hold rows, got 'h.csv', which holds none below its header"):
        collected(tmp_path / "h.csv", "date_trunc('month', day)")
    write(tmp_path / "t.csv", ["on Monday", "on Tuesday"])
    with pytest.raises(SourceError, match=r"got text where a date or a number is needed. Hint: strptime"):
        collected(tmp_path / "t.csv", "date_trunc('month', day)")
