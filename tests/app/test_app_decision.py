"""The step Decision: the run, its files, what ends it, and what can be done about the answer."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import empriv
from app.conftest import RunningDesk, Visitor, sales, wait_for
from empriv.app import decision_step
from empriv.app.decision_step import advice_of, audit_command, lacking, what_needs_trust
from empriv.app.folder import Folder
from empriv.app.jobs import all_jobs, cancel, latest
from empriv.cli.config import Settings
from empriv.cli.main import main

pytestmark = pytest.mark.slow

SETTINGS = Settings(
    files=("sales.csv",), database="day", individual=("client",), query=("avg(amount)",),
    target=("delta <= 0.9 at 0.5",), epsilon=(0.5,), unit="eur", known=("nothing",), presence="random",
)  # fmt: skip


def put(folder: Path, name: str = "shop", settings: Settings = SETTINGS) -> Folder:
    """Rows and settings of a small audit, as a person at the command line would have them."""
    opened = Folder.opened(folder)
    (folder / "sales.csv").write_bytes(sales(days=32, people=6))
    opened.write(name, settings)
    return opened


def ended(visitor: Visitor, name: str) -> str:
    """The page of the run once nothing is under way."""
    assert wait_for(lambda: "data-reload" in visitor.get(f"/audits/{name}/run/progress").text)
    return visitor.get(f"/audits/{name}/decision").text


def slow(folder: Folder, name: str) -> None:
    """Settings of an audit that lasts until somebody ends it."""
    folder.write(name, replace(SETTINGS, query=("SELECT avg(amount) FROM data, range(100000000000) AS r(i)",)))


@pytest.fixture(scope="module")
def audited(desk: RunningDesk) -> Folder:
    """A small audit that was run from its page."""
    folder = put(desk.folder)
    visitor = desk.visitor()
    page = visitor.post("/audits/shop/run", {})
    assert "under-way" in page.text
    assert "<iframe" in ended(visitor, "shop")
    return folder


def test_the_page_and_the_command_give_the_same_figures(
    audited: Folder, tmp_path: Path, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"page": (audited.path / "shop.json").read_bytes()}
    put(tmp_path)
    monkeypatch.chdir(tmp_path)
    main(audit_command("shop"), standalone_mode=False)
    told["command"] = (tmp_path / "shop.json").read_bytes()
    figures = {name: json.loads(text) for name, text in told.items()}
    for name in ("page", "command"):  # under pseudonyms of each run
        assert figures[name].pop("most_exposed")
        assert figures[name].pop("advice")["format"] == "empriv advice"
    assert figures["page"] == figures["command"]
    assert json.loads(told["page"])["decision"]["word"] == "Do not publish"
    # what the audit tried can be done at once: noise has one button
    assert [row["takes"] for row in advice_of(audited, "shop") if row["code"] == "noise"] == [""]
    assert "Design the least noise" in visitor.get("/audits/shop/decision").text
    assert audited.saved("shop")
    command = re.search(r"(empriv audit[^<\n]*)", visitor.get("/audits/shop/decision").text)
    assert command is not None
    assert command[1].split()[1:] == list(audit_command("shop"))


def test_the_page_is_framed_without_the_rights_of_the_app(audited: Folder, visitor: Visitor) -> None:
    page = visitor.get("/audits/shop/decision").text
    frame = re.search(r"<iframe[^>]*>", page)
    assert frame is not None
    assert 'sandbox="allow-scripts allow-modals"' in frame[0]
    written = visitor.get("/audits/shop/written/report")
    assert written.text == (audited.path / "shop.html").read_text(encoding="utf-8")
    assert "sandbox allow-scripts" in written.headers["content-security-policy"]
    for other in ("toml", "key", "..%2f..%2fetc%2fpasswd", "json"):
        assert visitor.get(f"/audits/shop/written/{other}").status == 404
    (audited.path / "other.html").symlink_to("/etc/hostname")
    assert visitor.get("/audits/other/written/report").status == 404


@pytest.mark.usefixtures("audited")
def test_a_written_page_does_not_learn_the_path_of_the_desk(desk: RunningDesk, visitor: Visitor) -> None:
    """Its script, which may be anybody's, can tell its own address and who linked to it."""
    page = visitor.get("/audits/shop/decision")
    linked = re.search(r'<iframe[^>]* src="([^"]*)"', page.text)
    assert linked is not None
    assert not linked[1].startswith((visitor.root, "/audits"))
    assert page.headers["referrer-policy"] == "origin"
    anybody = Visitor(desk.port)  # the frame belongs to no site, and has no cookie
    answer = anybody.ask("GET", linked[1])
    assert (answer.status, answer.text[:9]) == (200, "<!doctype")
    assert answer.headers["referrer-policy"] == "no-referrer"
    root = linked[1].partition("/audits")[0]
    for path in ("/", "/audits/shop/decision", "/audits/other/written/report", "/audits/shop/written/noise"):
        assert anybody.ask("GET", root + path).status == 403
    assert anybody.ask("GET", f"{linked[1]}?page=noise").status == 403
    assert anybody.ask("POST", linked[1]).status == 403


def test_settings_that_change_after_the_run_are_told_wherever_the_old_figures_are(
    audited: Folder, visitor: Visitor
) -> None:
    before = audited.settings("shop")
    changed = "settings that have changed since"
    assert changed not in visitor.get("/audits/shop/decision").text
    audited.write("shop", replace(before, unit="guilder"))
    try:
        assert changed in visitor.get("/audits/shop/decision").text
    finally:
        audited.write("shop", before)  # the same settings again: the figures are theirs
    assert changed not in visitor.get("/audits/shop/decision").text


def test_what_is_missing_is_named_with_the_step_that_asks_for_it(desk: RunningDesk, visitor: Visitor) -> None:
    Folder.opened(desk.folder).write("begun", Settings(files=("sales.csv",)))
    page = visitor.get("/audits/begun/decision").text
    assert len(lacking(Settings(files=("sales.csv",)))) == 3
    for sentence, step in lacking(Settings(files=("sales.csv",))).items():
        assert sentence in page
        assert f'href="/audits/begun/{step}"' in page
    refused = visitor.post("/audits/begun/run", {}, page="/new")
    assert (refused.status, "changed elsewhere" in refused.text) == (400, True)  # the form is of another page
    refused = visitor.post(
        "/audits/begun/run", {"seen": Folder.opened(desk.folder).settings_mark("begun")}, page="/new"
    )
    assert refused.status == 400
    assert "Say which column tells the databases apart." in refused.text
    assert latest(Folder.opened(desk.folder), "begun") is None


def test_a_failed_run_says_why_and_where_to_mend_it(audited: Folder, visitor: Visitor) -> None:
    audited.write("wrong", replace(SETTINGS, query=("avg(amounts)",)))
    visitor.post("/audits/wrong/run", {})
    page = ended(visitor, "wrong")
    assert "The last run failed" in page
    assert "amounts" in page
    assert 'Mend it in the steps <a href="/audits/wrong/data">' in page
    assert not audited.file("wrong", ".empriv").exists()


def test_what_needs_trust_is_what_the_command_would_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert not what_needs_trust(SETTINGS)
    assert not what_needs_trust(replace(SETTINGS, report="/elsewhere/page.html"))  # the command is told where to write
    assert "/etc/passwd" in what_needs_trust(replace(SETTINGS, files=("/etc/passwd.csv",)))


def test_settings_that_lead_out_of_the_folder_are_run_only_if_somebody_says_so(
    audited: Folder, tmp_path: Path, visitor: Visitor
) -> None:
    elsewhere = tmp_path / "elsewhere.csv"
    elsewhere.write_bytes(b"day,client,amount\n")
    audited.write("outside", replace(SETTINGS, files=(str(elsewhere),)))
    assert "outside the file&#39;s folder" in visitor.get("/audits/outside/decision").text
    assert visitor.post("/audits/outside/run", {}).status == 400
    assert latest(audited, "outside") is None
    assert "--trust-config" in visitor.get("/audits/outside/decision").text


def test_a_second_click_starts_nothing(desk: RunningDesk, audited: Folder) -> None:
    slow(audited, "first")
    desk.visitor().post("/audits/first/run", {})
    desk.visitor().post("/audits/first/run", {})
    (only,) = all_jobs(audited, "first")
    cancel(audited, only.key)


def test_files_of_an_earlier_run_are_not_taken_for_those_of_the_last(tmp_path: Path) -> None:
    """A run that is killed between its files leaves each of them whole, and some of the run before."""
    folder = put(tmp_path)
    for ending in (".json", ".html"):
        folder.file("shop", ending).write_text('{"format": "empriv audit figures", "decision": {"word": "Publish"}}')
    folder.file("shop", ".empriv").write_bytes(b"")
    assert folder.current("shop", ".html") is not None
    assert folder.figures("shop")
    earlier = folder.file("shop", ".empriv").stat().st_mtime - 60
    for ending in (".json", ".html"):
        os.utime(folder.file("shop", ending), (earlier, earlier))
    assert folder.current("shop", ".html") is None
    assert not folder.figures("shop")
    assert not folder.decided("shop")


# What was tried, and what is made of it by the commands

HOSTILE = "<img src=x onerror=alert(1)>"
TARGET = "delta <= 0.2 at 0.1"


@pytest.fixture(scope="module")
def shop(desk: RunningDesk) -> Folder:
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
    monkeypatch.setattr(decision_step, "start", lambda _folder, _name, _title, command: commands.append(tuple(command)))
    return commands


def advice(**row: Any) -> dict[str, Any]:
    """The figures of `empriv advise --json`, with one row."""
    whole = {
        "code": "cap", "parameters": {"at": 30.0}, "title": "Cap each person at 30, add noise", "delta": 0.1,
        "upper": 0.2, "error": 1.0, "share": 0.1, "verdict": "pass", **row,
    }  # fmt: skip
    return {"format": "empriv advice", "unit": "", "options": [whole], "classical": None}


def test_what_comes_first_is_said(shop: Folder, visitor: Visitor) -> None:
    (shop.path / "planned.toml").write_text('query = "sum(1)"\n')
    assert "Choose the data." in visitor.get("/audits/planned/decision").text
    assert "must have been run" in visitor.post("/audits/planned/actions", {"way": "everything"}, page="/new").text
    empriv.audit(empriv.Results.from_arrays([1.0, 2.0, 4.0], [[1.0, 2.0, 3.0]]), known="nothing").save(
        shop.path / "aimless.empriv"
    )
    assert "what is private enough first" in visitor.get("/audits/aimless/decision").text


def test_noise_is_made_sure_of_by_the_command(shop: Folder, visitor: Visitor) -> None:
    visitor.post("/audits/sales/actions", {"way": "noise", "granularity": "1"})
    work = wait_for(lambda: (last := latest(shop, "sales")) and not last.running and last)
    assert (work.state, work.arguments[:2]) == ("done", ("noise", "sales.empriv"))
    noise = empriv.load(shop.path / "sales.noise.empriv")
    assert noise.holds
    assert noise.delta <= 0.2  # never less than what was promised
    assert "I release this answer" in visitor.get("/audits/sales/decision").text
    assert visitor.get("/audits/sales/written/noise").text == (shop.path / "sales.noise.html").read_text("utf-8")


def test_rows_of_advice_can_be_taken(shop: Folder, visitor: Visitor, started: list[tuple[str, ...]]) -> None:
    path = shop.path / "sales.advice.json"
    path.write_text(json.dumps(advice(title=HOSTILE)))
    page = visitor.get("/audits/sales/decision").text
    assert HOSTILE not in page
    assert "&lt;img src=x" in page
    visitor.post("/audits/sales/actions", {"way": "take", "row": "0"})
    assert started[-1][:3] == ("audit", "--config", "sales-capped.toml")
    assert ">sales-capped</a>" in visitor.get("/audits/sales/decision").text
    capped = shop.settings("sales-capped")
    assert "> 30 THEN 30" in capped.query[0]
    assert capped.target == (TARGET,)
    visitor.post("/audits/sales/actions", {"way": "noise", "granularity": "0.25"})
    aim = ("--epsilon", "0.1", "--delta", "0.2", "--dither", "--presence", "both", "--granularity", "0.25")
    assert started[-1][:11] == ("noise", "sales.empriv", *aim)
    path.write_text(json.dumps(advice(code="coarser", parameters={"by": "week"})))
    visitor.post("/audits/sales/actions", {"way": "take", "row": "0"})
    assert shop.settings("sales-coarser").database == "date_trunc('week', CAST((day) AS TIMESTAMP))"
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


@pytest.mark.usefixtures("shop")
def test_trying_everything_is_the_command(visitor: Visitor, started: list[tuple[str, ...]]) -> None:
    visitor.post("/audits/sales/actions", {"way": "everything"})
    assert started == [("advise", "--config", "sales.toml", "--json", "sales.advice.json")]
    assert visitor.post("/audits/sales/actions", {"way": "nonsense"}).status == 400


def test_noise_for_several_numbers(shop: Folder, visitor: Visitor, started: list[tuple[str, ...]]) -> None:
    data = empriv.databases(str(shop.path / "sales.csv"), database="day", individual="client")
    empriv.audit(data, ["sum(amount)", "count(*)"], known="nothing").save(shop.path / "pair.empriv")
    (shop.path / "pair.toml").write_text(f'target = ["{TARGET}"]\n')
    (shop.path / "pair.json").write_text('{"format": "empriv audit figures", "n_components": 2}')
    for wrong in ("much", "0", "nan", ""):
        assert visitor.post("/audits/pair/actions", {"way": "noise", "granularity": wrong}).status == 400
    visitor.post("/audits/pair/actions", {"way": "noise", "granularity": "0.5"})
    aim = ("--epsilon", "0.1", "--delta", "0.2", "--granularity", "0.5")
    assert [command[:8] for command in started] == [("noise", "pair.empriv", *aim)]


def test_damaged_files_are_told(shop: Folder, visitor: Visitor) -> None:
    (shop.path / "torn.empriv").write_bytes((shop.path / "sales.empriv").read_bytes()[:-200])
    (shop.path / "torn.toml").write_text(f'target = ["{TARGET}"]\n')
    assert visitor.get("/audits/torn/decision").status == 200
    (shop.path / "wrong.toml").write_text('target = ["nonsense"]\n')
    assert visitor.get("/audits/wrong/decision").status == 400


def test_rows_outside_the_folder_are_not_read(
    shop: Folder, visitor: Visitor, started: list[tuple[str, ...]], tmp_path: Path
) -> None:
    (tmp_path / "secret.csv").write_bytes(sales(days=40, people=20))
    (shop.path / "prying.empriv").write_bytes((shop.path / "sales.empriv").read_bytes())
    settings = (shop.path / "sales.toml").read_text().replace('"sales.csv"', json.dumps(str(tmp_path / "secret.csv")))
    (shop.path / "prying.toml").write_text(settings)
    visitor.post("/audits/prying/actions", {"way": "everything"})
    assert started[-1][:2] == ("advise", "prying.empriv")  # on what was saved, not on the rows
