"""The step of improving: live on a sample, then for sure by the commands."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import empriv
from app.conftest import RunningDesk, Visitor, sales, wait_for
from empriv.app import improve
from empriv.app.folder import Folder
from empriv.app.trade_off import Place, chart_of
from empriv.app.work import latest
from empriv.cli.main import main

HOSTILE = "<img src=x onerror=alert(1)>"
TARGET = "delta <= 0.2 at 0.1"


@pytest.fixture(scope="module")
def folder(desk: RunningDesk) -> Folder:
    """A desk with an audit that the command line has made."""
    here = desk.folder
    (here / "sales.csv").write_bytes(sales(days=40, people=20))
    given = ["--database", "day", "--individual", "client", "--query", "sum(amount)", "--adversary", "none"]
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
    monkeypatch.setattr(improve, "start", lambda _folder, _name, _title, command: commands.append(tuple(command)))
    return commands


def advice(**row: Any) -> dict[str, Any]:
    """The figures of `empriv advise --json`, with one row."""
    whole = {
        "code": "rounding", "parameters": {"to": 5.0}, "title": "Round to 5", "delta": 0.1, "upper": 0.2, "error": 1.0,
        "share": 0.1, "unanswered": 0.0, "verdict": "pass", **row,
    }  # fmt: skip
    return {"format": "empriv advice", "unit": "", "options": [whole], "classical": None}


def test_what_comes_first_is_said(folder: Folder, visitor: Visitor) -> None:
    (folder.path / "planned.toml").write_text('query = "sum(1)"\n')
    assert "must be run first" in visitor.get("/audits/planned/improve").text
    assert "must have been run" in visitor.get("/audits/planned/improve/sliders").text
    empriv.audit(empriv.Results.from_arrays([1.0, 2.0, 4.0], [[1.0, 2.0, 3.0]]), adversary=None).save(
        folder.path / "aimless.empriv"
    )
    assert "what is private enough first" in visitor.get("/audits/aimless/improve").text


@pytest.mark.usefixtures("folder")
def test_sliders_say_that_they_are_of_a_sample(visitor: Visitor) -> None:
    page = visitor.get("/audits/sales/improve")
    assert "delta &lt;= 0.2 at epsilon 0.1" in page.text
    piece = visitor.get("/audits/sales/improve/sliders").text
    assert piece.count('type="range"') == 3
    assert "most exposed of 20 people" in piece
    assert "must still be made sure of" in piece
    assert "Cap amount at" in piece


@pytest.mark.usefixtures("folder")
def test_a_look_measures_where_the_sliders_stand(visitor: Visitor) -> None:
    places = {"noise": "11", "rounding": "0", "clipping": "1"}
    piece = visitor.post("/audits/sales/improve/look", places, page="/audits/sales/improve")
    assert "Noise: ±" in piece.text
    assert "within the promise" in piece.text
    assert "data-poll" in piece.text  # what else there is follows
    for _ in range(4):
        piece = visitor.get("/audits/sales/improve/look?noise=11&rounding=0&clipping=1")
    for row in ("As it is", "Rounding: to", "Clipping: Cap amount at"):
        assert f'<th scope="row">{row}' in piece.text
    assert "the promise: 0.2" in piece.text
    # places that are none of a slider's are left out
    assert visitor.get("/audits/sales/improve/look?noise=999&rounding=x&other=1").status == 200


def test_noise_is_made_sure_of_by_the_command(folder: Folder, visitor: Visitor) -> None:
    visitor.post("/audits/sales/improve", {"way": "noise", "noise": "11"})
    work = wait_for(lambda: (last := latest(folder, "sales")) and not last.running and last)
    assert (work.state, work.arguments[:2]) == ("done", ("noise", "sales.empriv"))
    noise = empriv.load(folder.path / "sales.noise.empriv")
    assert noise.certificate.holds
    assert noise.delta <= 0.2  # never less than what was promised
    page = visitor.get("/audits/sales/improve").text
    assert "designed and certified for everybody" in page
    assert 'href="/audits/sales/release"' in page
    assert visitor.get("/audits/sales/written/noise").text == (folder.path / "sales.noise.html").read_text("utf-8")


def test_less_noise_than_the_promise_needs_is_not_designed(
    folder: Folder, visitor: Visitor, started: list[tuple[str, ...]]
) -> None:
    for place in ("0", "11"):
        visitor.post("/audits/sales/improve", {"way": "noise", "noise": place})
    deltas = [float(command[command.index("--delta") + 1]) for command in started]
    assert max(deltas) <= 0.2
    assert folder.saved("sales")
    # where the slider stands at first, the least noise for the promise is designed, and no more
    (place,) = re.findall(r'name="noise"[^>]* value="(\d+)"', visitor.get("/audits/sales/improve/sliders").text)
    visitor.post("/audits/sales/improve", {"way": "noise", "noise": place})
    assert started[-1][started[-1].index("--delta") + 1] == "0.2"


def test_changed_answers_are_audits_of_their_own(
    folder: Folder, visitor: Visitor, started: list[tuple[str, ...]]
) -> None:
    visitor.post("/audits/sales/improve", {"way": "rounding", "rounding": "7"})
    visitor.post("/audits/sales/improve", {"way": "clipping", "clipping": "3"})
    rounded, capped = folder.settings("sales-rounded"), folder.settings("sales-capped")
    assert "ROUND(" in rounded.query[0]
    assert "CASE WHEN amount >" in capped.query[0]
    assert rounded.target == capped.target == (TARGET,)
    assert [command[:3] for command in started] == [
        ("audit", "--config", "sales-rounded.toml"), ("audit", "--config", "sales-capped.toml"),
    ]  # fmt: skip
    assert ">sales-rounded</a>" in visitor.get("/audits/sales/improve").text


def test_rows_of_advice_can_be_taken(folder: Folder, visitor: Visitor, started: list[tuple[str, ...]]) -> None:
    path = folder.path / "sales.advice.json"
    path.write_text(json.dumps(advice(title=HOSTILE)))
    page = visitor.get("/audits/sales/improve").text
    assert HOSTILE not in page
    assert "&lt;img src=x" in page
    visitor.post("/audits/sales/improve", {"way": "take", "row": "0"})
    assert started[-1][:2] == ("audit", "--config")
    path.write_text(json.dumps(advice(code="coarser", parameters={"by": "week"})))
    visitor.post("/audits/sales/improve", {"way": "take", "row": "0"})
    assert folder.settings("sales-coarser").database == "date_trunc('week', CAST((day) AS TIMESTAMP))"
    for wrong in (
        advice(parameters={"to": "1); DROP"}), advice(parameters={"to": -1}), advice(code="minimum"),
        advice(code="top-coding", parameters={"column": "client", "at": 1.0}),
        advice(code="coarser", parameters={"by": "x')) --"}),
    ):  # fmt: skip
        path.write_text(json.dumps(wrong))
        before = len(started)
        assert visitor.post("/audits/sales/improve", {"way": "take", "row": "0"}).status == 400
        assert len(started) == before
    for damaged in ("[" * 50_000, "{}", '{"format": "empriv advice", "unit": 1, "options": 3, "classical": 0}', "7"):
        path.write_text(damaged)
        assert visitor.get("/audits/sales/improve").status == 200
        assert visitor.post("/audits/sales/improve", {"way": "take", "row": "0"}).status == 400
    path.unlink()


@pytest.mark.usefixtures("folder")
def test_trying_everything_is_the_command(visitor: Visitor, started: list[tuple[str, ...]]) -> None:
    visitor.post("/audits/sales/improve", {"way": "everything"})
    assert started == [("advise", "--config", "sales.toml", "--json", "sales.advice.json")]
    assert visitor.post("/audits/sales/improve", {"way": "nonsense"}).status == 400


def test_several_numbers_have_no_sliders_but_noise(
    folder: Folder, visitor: Visitor, started: list[tuple[str, ...]]
) -> None:
    data = empriv.databases(str(folder.path / "sales.csv"), database="day", individual="client")
    empriv.audit(data, ["sum(amount)", "count(*)"], adversary=None).save(folder.path / "pair.empriv")
    (folder.path / "pair.toml").write_text(f'target = ["{TARGET}"]\n')
    (folder.path / "pair.json").write_text('{"format": "empriv audit figures", "n_components": 2}')
    assert "have no sliders" in visitor.get("/audits/pair/improve/sliders").text
    assert visitor.post("/audits/pair/improve", {"way": "several", "granularity": "much"}).status == 400
    visitor.post("/audits/pair/improve", {"way": "several", "granularity": "0.5"})
    aim = ("--epsilon", "0.1", "--delta", "0.2", "--granularity", "0.5")
    assert [command[:8] for command in started] == [("noise", "pair.empriv", *aim)]


def test_damaged_files_are_told(folder: Folder, visitor: Visitor) -> None:
    (folder.path / "torn.empriv").write_bytes((folder.path / "sales.empriv").read_bytes()[:-200])
    (folder.path / "torn.toml").write_text(f'target = ["{TARGET}"]\n')
    assert visitor.get("/audits/torn/improve").status == 200
    (folder.path / "hollow.empriv").write_bytes((folder.path / "sales.empriv").read_bytes())
    (folder.path / "hollow.toml").write_text(f'target = ["{TARGET}"]\n')
    kept = folder.own / "improve" / "hollow.json"
    kept.parent.mkdir(exist_ok=True)
    for text in ("[" * 50_000, "{}", '{"stamp": 1}', "null"):
        kept.write_text(text)
        piece = visitor.get("/audits/hollow/improve/sliders")
        assert piece.status == 200
        assert "Clipping needs the rows" in piece.text
    (folder.path / "wrong.toml").write_text('target = ["nonsense"]\n')
    assert visitor.get("/audits/wrong/improve").status == 400


def test_rows_outside_the_folder_are_not_read(folder: Folder, visitor: Visitor, tmp_path: Path) -> None:
    (tmp_path / "secret.csv").write_bytes(sales(days=40, people=20))
    (folder.path / "prying.empriv").write_bytes((folder.path / "sales.empriv").read_bytes())
    settings = (folder.path / "sales.toml").read_text().replace('"sales.csv"', json.dumps(str(tmp_path / "secret.csv")))
    (folder.path / "prying.toml").write_text(settings)
    assert "Clipping needs the rows" in visitor.get("/audits/prying/improve/sliders").text


def test_the_chart_has_a_place_for_everything() -> None:
    ways = [
        ("as-is", "As it is", [Place(0.0, 0.3, here=True)]),
        ("noise", "Noise", [Place(0.1, 0.2), Place(1.0, 0.02, here=True), Place(10.0, 0.0)]),
        ("clipping", "Clipping", []),
    ]
    chart = chart_of(ways, 0.05)
    assert chart is not None
    xs, ys = zip(*(dot for curve in chart.curves for dot in curve.dots), strict=True)
    assert chart.left <= min(xs) <= max(xs) <= chart.right
    assert chart.top <= min(ys) <= max(ys) <= chart.bottom
    assert chart.target is not None
    first, middle, last = chart.curves[1].dots
    assert first[0] < middle[0] < last[0]  # error rises
    assert first[1] < chart.target < middle[1] < last[1]  # and risk falls, through the promise
    assert chart.curves[1].mark == middle
    assert chart_of([("as-is", "As it is", [Place(0.0, 0.3)])], None) is None
