"""The step of improving: what was tried, and what is made of it by the commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import empriv
from app.conftest import RunningDesk, Visitor, sales, wait_for
from empriv.app import tried_actions
from empriv.app.folder import Folder
from empriv.app.jobs import latest
from empriv.cli.main import main

HOSTILE = "<img src=x onerror=alert(1)>"
TARGET = "delta <= 0.2 at 0.1"


@pytest.fixture(scope="module")
def folder(desk: RunningDesk) -> Folder:
    """A desk with an audit that the command line has made."""
    here = desk.folder
    (here / "sales.csv").write_bytes(sales(days=40, people=20))
    given = ["--database", "day", "--individual", "client", "--query", "sum(amount)", "--known", "nothing"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        with pytest.raises(SystemExit):
            main(
                ["audit", "sales.csv", *given, "--target", TARGET, "--quiet", "--save", "sales.empriv", "--json",
                 "sales.json", "--write-config", "sales.toml"]
            )  # fmt: skip
    return Folder.opened(here)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Commands that would have been started."""
    commands: list[tuple[str, ...]] = []
    monkeypatch.setattr(tried_actions, "start", lambda _folder, _name, _title, command: commands.append(tuple(command)))
    return commands


def advice(**row: Any) -> dict[str, Any]:
    """The figures of `empriv advise --json`, with one row."""
    whole = {
        "code": "cap", "parameters": {"at": 30.0}, "title": "Cap each person at 30, add noise", "delta": 0.1,
        "upper": 0.2, "error": 1.0, "share": 0.1, "verdict": "pass", **row,
    }  # fmt: skip
    return {"format": "empriv advice", "unit": "", "options": [whole], "classical": None}


def test_what_comes_first_is_said(folder: Folder, visitor: Visitor) -> None:
    (folder.path / "planned.toml").write_text('query = "sum(1)"\n')
    assert "Choose the data." in visitor.get("/audits/planned/decision").text
    assert "must have been run" in visitor.post("/audits/planned/actions", {"way": "everything"}, page="/new").text
    empriv.audit(empriv.Results.from_arrays([1.0, 2.0, 4.0], [[1.0, 2.0, 3.0]]), known="nothing").save(
        folder.path / "aimless.empriv"
    )
    assert "what is private enough first" in visitor.get("/audits/aimless/decision").text


def test_noise_is_made_sure_of_by_the_command(folder: Folder, visitor: Visitor) -> None:
    visitor.post("/audits/sales/actions", {"way": "noise", "granularity": "1"})
    work = wait_for(lambda: (last := latest(folder, "sales")) and not last.running and last)
    assert (work.state, work.arguments[:2]) == ("done", ("noise", "sales.empriv"))
    noise = empriv.load(folder.path / "sales.noise.empriv")
    assert noise.holds
    assert noise.delta <= 0.2  # never less than what was promised
    assert "I release this answer" in visitor.get("/audits/sales/decision").text
    assert visitor.get("/audits/sales/written/noise").text == (folder.path / "sales.noise.html").read_text("utf-8")


def test_rows_of_advice_can_be_taken(folder: Folder, visitor: Visitor, started: list[tuple[str, ...]]) -> None:
    path = folder.path / "sales.advice.json"
    path.write_text(json.dumps(advice(title=HOSTILE)))
    page = visitor.get("/audits/sales/decision").text
    assert HOSTILE not in page
    assert "&lt;img src=x" in page
    visitor.post("/audits/sales/actions", {"way": "take", "row": "0"})
    assert started[-1][:3] == ("audit", "--config", "sales-capped.toml")
    assert ">sales-capped</a>" in visitor.get("/audits/sales/decision").text
    capped = folder.settings("sales-capped")
    assert "> 30 THEN 30" in capped.query[0]
    assert capped.target == (TARGET,)
    visitor.post("/audits/sales/actions", {"way": "noise", "granularity": "0.25"})
    aim = ("--epsilon", "0.1", "--delta", "0.2", "--dither", "--presence", "both", "--granularity", "0.25")
    assert started[-1][:11] == ("noise", "sales.empriv", *aim)
    path.write_text(json.dumps(advice(code="coarser", parameters={"by": "week"})))
    visitor.post("/audits/sales/actions", {"way": "take", "row": "0"})
    assert folder.settings("sales-coarser").database == "date_trunc('week', CAST((day) AS TIMESTAMP))"
    for wrong in (
        advice(parameters={"at": "1); DROP"}), advice(parameters={"at": -1}), advice(code="minimum"),
        advice(code="noise"), advice(code="coarser", parameters={"by": "x')) --"}),
    ):  # fmt: skip
        path.write_text(json.dumps(wrong))
        before = len(started)
        assert visitor.post("/audits/sales/actions", {"way": "take", "row": "0"}).status == 400
        assert len(started) == before
    for damaged in ("[" * 50_000, "{}", '{"format": "empriv advice", "unit": 1, "options": 3, "classical": 0}', "7"):
        path.write_text(damaged)
        assert visitor.get("/audits/sales/decision").status == 200
        assert visitor.post("/audits/sales/actions", {"way": "take", "row": "0"}).status == 400
    path.unlink()


@pytest.mark.usefixtures("folder")
def test_trying_everything_is_the_command(visitor: Visitor, started: list[tuple[str, ...]]) -> None:
    visitor.post("/audits/sales/actions", {"way": "everything"})
    assert started == [("advise", "--config", "sales.toml", "--json", "sales.advice.json")]
    assert visitor.post("/audits/sales/actions", {"way": "nonsense"}).status == 400


def test_noise_for_several_numbers(folder: Folder, visitor: Visitor, started: list[tuple[str, ...]]) -> None:
    data = empriv.databases(str(folder.path / "sales.csv"), database="day", individual="client")
    empriv.audit(data, ["sum(amount)", "count(*)"], known="nothing").save(folder.path / "pair.empriv")
    (folder.path / "pair.toml").write_text(f'target = ["{TARGET}"]\n')
    (folder.path / "pair.json").write_text('{"format": "empriv audit figures", "n_components": 2}')
    for wrong in ("much", "0", "nan", ""):
        assert visitor.post("/audits/pair/actions", {"way": "noise", "granularity": wrong}).status == 400
    visitor.post("/audits/pair/actions", {"way": "noise", "granularity": "0.5"})
    aim = ("--epsilon", "0.1", "--delta", "0.2", "--granularity", "0.5")
    assert [command[:8] for command in started] == [("noise", "pair.empriv", *aim)]


def test_damaged_files_are_told(folder: Folder, visitor: Visitor) -> None:
    (folder.path / "torn.empriv").write_bytes((folder.path / "sales.empriv").read_bytes()[:-200])
    (folder.path / "torn.toml").write_text(f'target = ["{TARGET}"]\n')
    assert visitor.get("/audits/torn/decision").status == 200
    (folder.path / "wrong.toml").write_text('target = ["nonsense"]\n')
    assert visitor.get("/audits/wrong/decision").status == 400


def test_rows_outside_the_folder_are_not_read(
    folder: Folder, visitor: Visitor, started: list[tuple[str, ...]], tmp_path: Path
) -> None:
    (tmp_path / "secret.csv").write_bytes(sales(days=40, people=20))
    (folder.path / "prying.empriv").write_bytes((folder.path / "sales.empriv").read_bytes())
    settings = (folder.path / "sales.toml").read_text().replace('"sales.csv"', json.dumps(str(tmp_path / "secret.csv")))
    (folder.path / "prying.toml").write_text(settings)
    visitor.post("/audits/prying/actions", {"way": "everything"})
    assert started[-1][:2] == ("advise", "prying.empriv")  # on what was saved, not on the rows
