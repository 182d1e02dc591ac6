"""Nobody without the token, no other site's page, no other name for this machine, and no file outside the folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from app.conftest import RunningDesk, Visitor, running, sales
from empriv.app.guard import Key, written_page

FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class TestWhoMayEnter:
    @pytest.mark.slow
    def test_the_token_becomes_a_cookie_that_no_script_reads_and_no_other_site_sends(self, desk: RunningDesk) -> None:
        root, _, query = desk.address.partition(str(desk.port))[2].partition("/?")
        answer = Visitor(desk.port).ask("GET", f"{root}/?{query}")
        assert answer.status == 303
        assert answer.headers["location"] == f"{root}/"  # the token leaves the address bar
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert desk.address.partition("token=")[2].lower() not in cookie

    @pytest.mark.parametrize("path", ["/", "/new", "/asset/style.css", "/audits/x/data", "/nothing", "/?token=wrong"])
    def test_without_it_there_is_nothing_to_see(self, desk: RunningDesk, path: str) -> None:
        for root in ("", desk.visitor().root, f"/{'0' * 32}"):
            answer = Visitor(desk.port, root).ask("GET", path)
            assert answer.status == 403
            assert "empriv app" in answer.text

    def test_another_desk_of_the_same_machine_has_another_key(self, desk: RunningDesk, tmp_path: Path) -> None:
        with running(tmp_path / "other") as other:
            visitor = desk.visitor()
            visitor.port = other.port
            assert visitor.ask("GET", "/").status == 403
            visitor.root = other.visitor().root
            assert visitor.ask("GET", "/").status == 403

    def test_a_cookie_is_for_a_path_that_other_programs_of_this_machine_do_not_know(self, desk: RunningDesk) -> None:
        """A browser sends cookies to every port of this machine, but only to their path."""
        root, _, query = desk.address.partition(str(desk.port))[2].partition("/?")
        assert len(root) == 33
        cookie = Visitor(desk.port).ask("GET", f"{root}/?{query}").headers["set-cookie"]
        assert f"path={root};" in f"{cookie};".lower().replace("; ", ";")
        inside = desk.visitor()
        inside.root = ""
        assert inside.ask("GET", "/").status == 403  # the cookie alone opens nothing

    def test_the_key_does_not_show_its_token(self) -> None:
        key = Key(1234)
        assert key.token not in repr(key)
        assert key.token not in key.mark + key.pass_

    @pytest.mark.parametrize(
        "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "localhost:1", "[::1]:{port}"]
    )
    def test_another_name_for_this_machine_opens_nothing(self, visitor: Visitor, host: str) -> None:
        answer = visitor.ask("GET", "/", headers={"Host": host.format(port=visitor.port)})
        assert answer.status == 421
        assert "Desk" not in answer.text

    def test_localhost_is_this_machine(self, visitor: Visitor) -> None:
        assert visitor.ask("GET", "/", headers={"Host": f"localhost:{visitor.port}"}).status == 200


class TestOtherSites:
    @pytest.mark.parametrize(
        "headers",
        [
            {},
            {"Origin": "http://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
            {"Origin": "http://127.0.0.1:{port}", "Sec-Fetch-Site": "cross-site"},
        ],
    )
    def test_their_forms_are_not_taken(self, desk: RunningDesk, visitor: Visitor, headers: dict[str, str]) -> None:
        mark = visitor.get("/new").field("mark")
        sent = {name: value.format(port=desk.port) for name, value in headers.items()}
        answer = visitor.ask("POST", "/new", f"way=demo&mark={mark}", {**FORM, **sent})
        assert answer.status == 403
        assert not list(desk.folder.glob("*.toml"))

    @pytest.mark.parametrize("mark", ["", "x" * 64])
    def test_a_form_without_the_mark_is_not_taken(self, desk: RunningDesk, visitor: Visitor, mark: str) -> None:
        answer = visitor.ask(
            "POST", "/new", f"way=demo&mark={mark}", {**FORM, "Origin": f"http://127.0.0.1:{desk.port}"}
        )
        assert answer.status == 403
        assert not list(desk.folder.glob("*.toml"))

    @pytest.mark.parametrize("path", ["/", "/new", "/asset/app.js", "/nothing", "/audits/absent/data"])
    def test_every_answer_keeps_scripts_and_frames_of_others_out(self, visitor: Visitor, path: str) -> None:
        headers = {name.lower(): value for name, value in visitor.get(path).headers.items()}
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"

    def test_a_refusal_is_guarded_too(self, desk: RunningDesk) -> None:
        headers = {name.lower(): value for name, value in Visitor(desk.port).ask("GET", "/").headers.items()}
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


class TestFiles:
    def test_what_is_outside_the_folder_is_not_read(self, tmp_path: Path) -> None:
        outside = tmp_path / "secret.csv"
        outside.write_bytes(sales(days=2))
        inside = ["../secret.csv", ".empriv-app/open.csv", "link.csv"]
        with running(tmp_path / "desk") as desk:
            (desk.folder / "link.csv").symlink_to(outside)
            (desk.folder / ".empriv-app" / "open.csv").write_bytes(sales(days=2))
            for path in (*inside, str(outside), "/etc/passwd", "SELECT * FROM 'x.csv'"):
                answer = desk.visitor().post("/new", {"way": "files", "files": path})
                assert answer.status == 400, path
                assert "must be in the folder" in answer.text or "must name a file" in answer.text, path
                assert not list(desk.folder.glob("*.toml"))

    def test_what_was_named_at_the_start_is_read(self, tmp_path: Path) -> None:
        outside = tmp_path / "rows.csv"
        outside.write_bytes(sales(days=2))
        with running(tmp_path / "desk", (str(outside),)) as desk:
            visitor = desk.visitor()
            assert visitor.post("/new", {"way": "files", "files": str(outside)}).status == 200
            assert "client" in visitor.get("/audits/rows/data/preview").text

    @pytest.mark.slow
    @pytest.mark.parametrize("name", ["../../evil.csv", "..\\evil.csv", "/tmp/evil.csv", "evil.csv/../../evil.csv"])
    def test_an_upload_stays_in_the_folder(self, desk: RunningDesk, visitor: Visitor, name: str) -> None:
        before = set(desk.folder.iterdir())
        assert visitor.upload("/new", name, sales(days=2)).status == 200
        added = {path for path in set(desk.folder.iterdir()) - before if path.suffix == ".csv"}
        assert len(added) == 1
        (path,) = added
        assert path.name.startswith("evil")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        path.unlink()

    def test_an_upload_that_is_no_table_is_refused_beside_its_field(self, desk: RunningDesk, visitor: Visitor) -> None:
        answer = visitor.upload("/new", "page.html", b"<script>alert(1)</script>")
        assert answer.status == 400
        assert 'id="wrong-upload"' in answer.text
        assert not list(desk.folder.glob("*.html"))

    @pytest.mark.parametrize("name", ["..", "%2e%2e%2fx", "X", "a b", ".empriv-app", "x" * 80])
    def test_a_name_that_is_no_name_is_refused(self, visitor: Visitor, name: str) -> None:
        assert visitor.get(f"/audits/{name.replace(' ', '%20')}/data").status in (400, 404)

    def test_files_of_the_app_alone_are_for_this_user(self, desk: RunningDesk) -> None:
        own = desk.folder / ".empriv-app"
        assert stat.S_IMODE(own.stat().st_mode) == 0o700
        assert own.stat().st_uid == os.getuid()


def test_a_password_in_an_address_is_not_taken(desk: RunningDesk, visitor: Visitor) -> None:
    answer = visitor.post("/new", {"way": "server", "address": "postgresql://me:swordfish@host/shop", "table": "t"})
    assert answer.status == 400
    assert "swordfish" not in answer.text
    assert not [path for path in desk.folder.glob("*.toml") if "swordfish" in path.read_text(encoding="utf-8")]


def test_a_form_from_before_a_change_is_not_taken(desk: RunningDesk, visitor: Visitor) -> None:
    (desk.folder / "mine.csv").write_bytes(sales(days=3))
    visitor.post("/new", {"way": "files", "files": "mine.csv"})
    old = visitor.get("/audits/mine/data").field("seen")
    path = desk.folder / "mine.toml"
    path.write_text(path.read_text(encoding="utf-8") + 'individual = "client"\n', encoding="utf-8")
    answer = visitor.post("/audits/mine/data", {"way": "demo", "seen": old})
    assert answer.status == 409
    assert 'individual = "client"' in path.read_text(encoding="utf-8")


def test_a_page_from_a_file_belongs_to_no_site() -> None:
    policy = written_page("<script>fetch('/')</script>").headers["content-security-policy"]
    assert "sandbox" in policy
    assert "allow-same-origin" not in policy
    assert "default-src 'none'" in policy
    assert "connect-src" not in policy
    assert "frame-ancestors 'self'" in policy


def test_a_piece_of_a_page_that_is_refused_is_a_sentence_alone(visitor: Visitor) -> None:
    asked = visitor.ask("GET", "/audits/X/data/preview", headers={"Sec-Fetch-Dest": "empty"})
    assert asked.status == 400
    assert 'role="alert"' in asked.text
    assert "<main" not in asked.text
    assert "<main" in visitor.ask("GET", "/audits/X/data/preview").text
