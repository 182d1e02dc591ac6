"""Files that somebody hostile put in the folder, and forms that no page sends: a sentence, never more."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.conftest import Answer, RunningDesk, Visitor, running, sales
from app.test_app_release import audited
from empriv.app.folder import Folder
from empriv.app.jobs import all_jobs
from empriv.cli.config import Settings
from empriv.errors import InputError

WHOLE = 'files = "rows.csv"\nindividual = "client"\ndatabase = "day"\nquery = "avg(amount)"\n'
PAGES = ("data", "data/preview", "data/form", "promise", "decision", "delete")
SECRET = "somebody"  # in the files outside
ENDLESS = "9" * 5000


@pytest.fixture(scope="module")
def outside(desk: RunningDesk) -> Path:
    """A folder beside that of the app, whose files are nobody's business."""
    place = desk.folder.parent / f"{desk.folder.name}-outside"
    place.mkdir()
    (place / "secret.csv").write_text(f"day,client,amount\n2024-01-01,{SECRET},1\n", encoding="utf-8")
    with sqlite3.connect(place / "secret.sqlite") as written:
        written.execute("CREATE TABLE t (day, client, amount)")
        written.execute("INSERT INTO t VALUES ('2024-01-01', ?, 1)", [SECRET])
    (place / "settings.toml").write_text(f'query = "{SECRET}"\n', encoding="utf-8")
    return place


@pytest.fixture(autouse=True)
def rows(desk: RunningDesk) -> None:
    (desk.folder / "rows.csv").write_bytes(sales(days=3, people=5))


@pytest.fixture
def hostile(desk: RunningDesk) -> Iterator[Path]:
    """The settings that somebody put in the folder."""
    path = desk.folder / "hostile.toml"
    yield path
    path.unlink(missing_ok=True)


def sent(visitor: Visitor, path: str, fields: Any) -> Answer:
    return visitor.post(path, fields, page="/new", follow=False)


class TestSettingsOfSomebodyElse:
    @pytest.mark.slow
    def test_two_colons_do_not_lead_out(
        self, desk: RunningDesk, visitor: Visitor, outside: Path, hostile: Path
    ) -> None:
        (desk.folder / "a").touch()
        (desk.folder / "a::b").mkdir()
        hostile.write_text(f'files = "a::b/../../{outside.name}/secret.csv"\n', encoding="utf-8")
        assert SECRET not in visitor.get("/audits/hostile/data/preview").text

    def test_a_folder_called_like_a_scheme_does_not_lead_out(
        self, desk: RunningDesk, visitor: Visitor, outside: Path, hostile: Path
    ) -> None:
        decoy = desk.folder / "sqlite:" / str(outside / "secret.sqlite").lstrip("/")
        decoy.parent.mkdir(parents=True)
        decoy.touch()
        hostile.write_text(f'files = "sqlite:///{outside / "secret.sqlite"}"\ntable = "t"\n', encoding="utf-8")
        assert SECRET not in visitor.get("/audits/hostile/data/preview").text

    def test_nobody_s_home_is_inside(self, desk: RunningDesk) -> None:
        (desk.folder / "~").mkdir()
        (desk.folder / "~" / "rows.csv").touch()
        with pytest.raises(InputError, match="in the folder"):
            Folder.opened(desk.folder).check_sources(Settings(files=("~/rows.csv",)))

    def test_a_hidden_link_is_not_followed_by_a_pattern(
        self, desk: RunningDesk, visitor: Visitor, outside: Path, hostile: Path
    ) -> None:
        (desk.folder / "many").mkdir()
        (desk.folder / "many" / "one.csv").write_bytes(sales(days=1))
        (desk.folder / "many" / ".two.csv").symlink_to(outside / "secret.csv")
        hostile.write_text('files = "many/*.csv"\n', encoding="utf-8")
        assert SECRET not in visitor.get("/audits/hostile/data/preview").text

    def test_a_view_of_a_database_file_reads_no_other_file(
        self, desk: RunningDesk, visitor: Visitor, outside: Path, hostile: Path
    ) -> None:
        duckdb = pytest.importorskip("duckdb")
        with duckdb.connect(str(desk.folder / "views.duckdb")) as written:
            written.execute(f"CREATE VIEW t AS SELECT * FROM read_csv('{outside / 'secret.csv'}')")
            written.execute("CREATE TABLE own AS SELECT 'kept here' AS client, DATE '2024-01-01' AS day, 1 AS amount")
        hostile.write_text('files = "views.duckdb"\ntable = "t"\n', encoding="utf-8")
        assert SECRET not in visitor.get("/audits/hostile/data/preview").text
        hostile.write_text('files = "views.duckdb"\ntable = "own"\n', encoding="utf-8")
        assert "kept here" in visitor.get("/audits/hostile/data/preview").text

    def test_a_server_that_nobody_typed_is_not_asked(self, visitor: Visitor, hostile: Path) -> None:
        hostile.write_text('files = "postgresql://127.0.0.1:1/shop"\ntable = "t"\n', encoding="utf-8")
        assert "typed here" in visitor.get("/audits/hostile/data/preview").text
        visitor.post("/new", {"way": "server", "address": "postgresql://127.0.0.1:1/shop", "table": "t"})
        assert "typed here" not in visitor.get("/audits/hostile/data/preview").text

    def test_settings_behind_a_link_are_not_read(self, visitor: Visitor, outside: Path, hostile: Path) -> None:
        hostile.symlink_to(outside / "settings.toml")
        assert SECRET not in visitor.get("/audits/hostile/decision").text

    @pytest.mark.parametrize(
        "text",
        [
            f"files = {'[' * 5000}{']' * 5000}",
            f"times = {ENDLESS}",
            'files = "a\\u0000b.csv"',
            f'files = "{"x" * 5000}.csv"',
            'files = "loop.csv"',
            f'{WHOLE}ledger = "a\\u0000b"',
            f'{WHOLE}ledger = "{"x" * 5000}"',
            WHOLE.replace('"day"', f'"{"(" * 3000}1{")" * 3000}"'),
        ],
        ids=["brackets", "digits", "nul", "long", "loop", "ledger-nul", "ledger-long", "parentheses"],
    )
    def test_what_cannot_be_read_is_a_sentence(
        self, desk: RunningDesk, visitor: Visitor, hostile: Path, text: str
    ) -> None:
        if not (desk.folder / "loop.csv").is_symlink():
            (desk.folder / "loop.csv").symlink_to("loop.csv")
        hostile.write_text(text, encoding="utf-8")
        for page in PAGES:
            assert visitor.get(f"/audits/hostile/{page}").status < 500, page
        assert sent(visitor, "/audits/hostile/data/live", {"measure": "count"}).status < 500

    def test_settings_without_end_are_named_and_not_read(self, visitor: Visitor, hostile: Path) -> None:
        with hostile.open("wb") as file:
            file.truncate(1 << 33)
        shown = visitor.get("/")
        assert shown.status == 200
        assert "hostile.toml" in shown.text  # told of, and not opened
        assert all(visitor.get(f"/audits/hostile/{page}").status == 200 for page in ("data", "decision"))


class TestForms:
    @pytest.mark.parametrize("text", ["a\0b", "x" * 5000, ENDLESS], ids=["nul", "long", "digits"])
    @pytest.mark.parametrize("path", ["/new", "/audits/mine/data"])
    def test_what_no_page_sends_is_refused(self, desk: RunningDesk, visitor: Visitor, path: str, text: str) -> None:
        (desk.folder / "mine.toml").write_text(WHOLE, encoding="utf-8")
        seen = visitor.get("/audits/mine/data").field("seen")
        fields = {"way": "files", "files": text, "seen": seen}
        assert sent(visitor, path, fields).status == 400

    def test_too_many_fields_are_told_as_such(self, visitor: Visitor) -> None:
        answer = sent(visitor, "/new", [(f"field{k}", "1") for k in range(10_000)])
        assert answer.status == 400
        assert "no such page" not in answer.text

    def test_a_long_name_of_an_upload_is_refused(self, visitor: Visitor) -> None:
        assert visitor.upload("/new", f"{'é' * 200}.csv", sales(days=1)).status == 400

    def test_a_missing_audit_has_no_databases(self, visitor: Visitor) -> None:
        answer = visitor.get("/audits/absent/release/labels")
        assert answer.status == 400
        assert "must be run before anything is released" in answer.text


class TestFilesOfResults:
    @pytest.fixture
    def figures(self, desk: RunningDesk) -> Iterator[Path]:
        (desk.folder / "told.toml").write_text(WHOLE, encoding="utf-8")
        yield desk.folder / "told.json"
        (desk.folder / "told.json").unlink()

    @pytest.mark.parametrize(
        "facts",
        [
            {"query": "\ud800", "decision": {"word": "x", "line": "\ud800", "reason": "x"}},
            {"figures": [{"epsilon": int("1" * 400), "delta": int("1" * 400)}]},
            {"verdicts": 5, "decision": 5, "figures": 5},
        ],
    )
    def test_figures_of_somebody_else_are_shown_or_left_out(
        self, visitor: Visitor, figures: Path, facts: dict[str, Any]
    ) -> None:
        figures.write_text(json.dumps({"format": "empriv audit figures", **facts}), encoding="utf-8")
        for path in ("/", *(f"/audits/told/{step}" for step in ("decision", "data"))):
            assert visitor.get(path).status == 200, path

    def test_a_file_whose_name_is_no_text_is_listed(self, desk: RunningDesk, visitor: Visitor) -> None:
        name = os.fsencode(desk.folder) + b"/\xff.csv"
        try:
            with open(name, "wb") as file:  # noqa: PTH123 — a path of bytes
                file.write(b"a\n1\n")
        except OSError:
            pytest.skip("this system has no such names")
        assert visitor.get("/new").status == 200
        os.unlink(name)  # noqa: PTH108

    def test_pages_figures_and_noise_of_somebody_else_stay_where_they_are(
        self, desk: RunningDesk, visitor: Visitor, outside: Path
    ) -> None:
        """Too large to be read as a whole, or behind a link."""
        audited(desk.folder, "large")
        for ending in (".html", ".json", ".noise.html"):
            with (desk.folder / f"large{ending}").open("wb") as file:
                file.truncate(1 << 33)
        for path in ("written/report", "written/noise"):
            assert visitor.get(f"/audits/large/{path}").status == 404
        assert visitor.get("/export/large.zip").status == 200
        (outside / "other.empriv").write_bytes(b"not noise")
        (desk.folder / "large.noise.empriv").symlink_to(outside / "other.empriv")
        told = visitor.get("/audits/large/decision")
        assert told.status == 200
        assert "I release this answer" not in told.text  # nobody has looked at it
        for path in desk.folder.glob("large*"):
            path.unlink()

    def test_a_pipe_in_the_place_of_a_file_of_work_is_not_waited_for(self, tmp_path: Path) -> None:
        folder = Folder.opened(tmp_path)
        place = folder.own / "work" / f"{'2' * 20}-{'0' * 8}"
        place.mkdir(parents=True)
        os.mkfifo(place / "asked.json")
        assert list(all_jobs(folder)) == []

    @pytest.mark.slow
    def test_damaged_work_is_passed_over(self, tmp_path: Path) -> None:
        whole = {"audit": "told", "title": "Audit", "arguments": [], "began": 1.0}
        damages: list[tuple[str, dict[str, Any]]] = [
            ("asked.json", {}),
            ("asked.json", {"audit": "told", "title": "Audit", "arguments": 5, "began": "x"}),
            ("asked.json", {**whole, "began": 1e300}),
            ("ended.json", {"code": "x"}),
            ("ended.json", {"code": 0, "at": "x"}),
            ("ended.json", {"code": 0, "at": 1e300}),
            ("ended.json", {"code": 1e300, "at": 1.0}),
            ("progress.json", {"share": "x"}),
        ]
        place = tmp_path / ".empriv-app" / "work" / f"{'2' * 20}-{'0' * 8}"
        with running(tmp_path) as desk:
            (tmp_path / "told.toml").write_text(WHOLE, encoding="utf-8")
            visitor = desk.visitor()
            for file, facts in damages:
                place.mkdir(parents=True)
                (place / "asked.json").write_text(json.dumps(whole), encoding="utf-8")
                (place / file).write_text(json.dumps(facts), encoding="utf-8")
                for path in ("/", "/state/told", "/audits/told/decision", "/audits/told/data"):
                    assert visitor.get(path).status == 200, (file, facts, path)
                shutil.rmtree(place)


class TestTheFolderOfTheAppAlone:
    def test_it_is_closed_to_others_even_if_they_made_it(self, tmp_path: Path) -> None:
        (tmp_path / ".empriv-app").mkdir(mode=0o777)
        (tmp_path / ".empriv-app").chmod(0o777)
        assert stat.S_IMODE(Folder.opened(tmp_path).own.stat().st_mode) == 0o700

    def test_it_is_no_link(self, tmp_path: Path) -> None:
        (tmp_path / "elsewhere").mkdir()
        (tmp_path / "desk").mkdir()
        (tmp_path / "desk" / ".empriv-app").symlink_to(tmp_path / "elsewhere")
        with pytest.raises(InputError, match="link"):
            Folder.opened(tmp_path / "desk")
