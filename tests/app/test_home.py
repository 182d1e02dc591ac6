"""The desk: what is in the folder is listed, whoever made it and however damaged it is."""

from __future__ import annotations

import http.client
import io
import json
import os
import re
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import empriv
from app.conftest import RunningDesk, Visitor, running
from empriv.app.folder import Folder
from empriv.app.home import AUDITED, CHANGED, DAMAGED, NOT_RUN, listed_audit, listed_audits, unlisted_files
from empriv.cli.main import main

HOSTILE = "<script>alert(1)</script>"


def small_audit(shift: float = 1.0, seed: int = 0) -> empriv.Audit:
    q = np.random.default_rng(seed).normal(100.0, 10.0, 30)
    return empriv.audit(empriv.Results.from_arrays(q, [q - shift, q - 2 * shift]), epsilon=0.1, known="nothing")


@pytest.fixture(scope="module")
def folder(desk: RunningDesk) -> Path:
    """Files that the command line made, and files that nobody should trust."""
    here = desk.folder
    for name, shift in (("alpha", 1.0), ("beta", 4.0)):
        small_audit(shift).save(here / f"{name}.empriv")
    figures = {
        "format": "empriv audit figures", "query": f"avg({HOSTILE})", "n_databases": 30, "n_individuals": 2,
        "figures": [{"epsilon": 0.1, "delta": 0.02}],
        "decision": {"line": f"Publish with noise {HOSTILE}"},
    }  # fmt: skip
    (here / "alpha.json").write_text(json.dumps(figures))
    (here / "alpha.html").write_text("<p>page</p>")
    (here / "alpha.key.json").write_text('{"who": "is who"}')
    (here / "planned.toml").write_text('query = "=sum(amount)"\n')
    (here / "bad-toml.toml").write_bytes(b"query = \xff\n")
    (here / "bad-archive.empriv").write_bytes(b"PK not an archive")
    (here / "bad-figures.json").write_text("[" * 50_000)
    (here / "bad-figures.toml").write_text('query = "sum(1)"\n')
    (here / "odd-figures.json").write_text('{"format": "empriv audit figures", "figures": [7], "decision": 3}')
    (here / "odd-figures.toml").write_text("query = 7\n")
    (here / f"{HOSTILE.replace('/', '')}.toml").write_text("")
    (here / "torn.ledger").write_bytes(b"not a ledger")
    (here / "outside.toml").symlink_to(Path(__file__))
    empriv.Ledger(here / "releases.ledger", policy=empriv.Policy(queries=3))
    return here


@pytest.mark.slow
def test_everything_is_listed_and_nothing_breaks_the_page(folder: Path, visitor: Visitor) -> None:
    page = visitor.get("/")
    assert page.status == 200
    states = {audit.name: audit.state for audit in listed_audits(Folder.opened(folder))}
    assert all(f">{name}</a>" in page.text for name in states)
    assert (states["alpha"], states["beta"]) == (AUDITED, AUDITED)
    assert states["planned"] == states["bad-figures"] == NOT_RUN
    assert states["bad-toml"] == states["bad-archive"] == DAMAGED
    assert "outside" not in states  # a link out of the folder
    assert "Publish with noise &lt;script&gt;" in page.text
    assert HOSTILE not in page.text
    assert "&lt;script&gt;alert(1)&lt;script&gt;.toml" in page.text  # named, not opened
    assert "bad-toml.toml cannot be read" in page.text
    assert "bad-archive.empriv is damaged" in page.text


def test_settings_that_were_written_after_the_audit_are_told(tmp_path: Path) -> None:
    small_audit().save(tmp_path / "sales.empriv")
    (tmp_path / "sales.toml").write_text('query = "sum(1)"\n')
    folder = Folder.opened(tmp_path)
    assert listed_audit(folder, "sales").state == AUDITED  # one command may write both
    late = (tmp_path / "sales.empriv").stat().st_mtime + 60
    os.utime(tmp_path / "sales.toml", (late, late))
    assert listed_audit(folder, "sales").state == CHANGED
    (tmp_path / "sales.html").write_text("")  # the command writes its page after the audit, and then the settings
    os.utime(tmp_path / "sales.html", (late, late))
    assert listed_audit(folder, "sales").state == AUDITED


def test_the_list_is_searched_for_all_words_and_filtered_by_decision(folder: Path, visitor: Visitor) -> None:
    found = visitor.get("/?q=NOISE+alpha").text
    assert ">alpha</a>" in found
    assert ">beta</a>" not in found
    assert "No audit has all these words" in visitor.get("/?q=%3Cnothing%3E").text
    assert visitor.get("/").text.count('class="mark ') == len(Folder.opened(folder).audits())
    for kind in ("publish", "stop", "open"):
        shown = visitor.get(f"/?kind={kind}").text
        assert set(re.findall(r'class="mark (\w+)"', shown)) <= {kind}


def test_an_archive_holds_what_a_checker_may_have(folder: Path, visitor: Visitor, desk: RunningDesk) -> None:
    cookie = "; ".join(f"{name}={value}" for name, value in visitor.cookies.items())
    with closing(http.client.HTTPConnection("127.0.0.1", desk.port)) as connection:
        connection.request("GET", f"{visitor.root}/export/alpha.zip", headers={"Cookie": cookie})
        content = connection.getresponse().read()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        assert sorted(archive.namelist()) == ["alpha.html", "alpha.json"]  # not who is who, and no results
        assert archive.read("alpha.html") == (folder / "alpha.html").read_bytes()
    assert visitor.get("/export/nothing.zip").status == 400
    assert visitor.get("/export/..%2Falpha.zip").status in (400, 404)


@pytest.mark.usefixtures("folder")
def test_releases_and_what_is_left_are_told_without_a_script_of_theirs(visitor: Visitor) -> None:
    piece = visitor.get("/releases").text
    assert "at most 3 queries" in piece
    assert "0 of 3 queries were released" in piece
    assert "torn.ledger" in piece
    assert "Nothing is released yet" in piece


@pytest.mark.slow
def test_releases_of_the_command_line_are_shown_with_their_database(tmp_path: Path) -> None:
    pytest.importorskip("opendp", reason="install opendp: pip install 'empriv[release]'")
    q = np.random.default_rng(0).normal(100.0, 10.0, 60)
    labels = [f"secret day {k}" for k in range(60)]
    results = empriv.Results.from_arrays(q, [q - 2.0], databases=labels, individuals=["secret person"])
    audit = empriv.audit(results, epsilon=0.1, known="nothing")
    noise = empriv.design_noise(audit, epsilon=0.1, delta=0.05, granularity=0.25)
    ledger = empriv.Ledger(tmp_path / "releases.ledger", policy=empriv.Policy(epsilon=0.1, delta=0.5))
    audit.release(float(q[0]), noise=noise, database=labels[0], ledger=ledger)
    with running(tmp_path) as served:
        piece = served.visitor().get("/releases").text
    assert f"±{noise.expected_error:.3g}" in piece
    assert "delta at most 0.5 at epsilon 0.1" in piece
    assert "secret day 0" in piece
    assert "secret person" not in piece


def test_an_empty_folder_says_how_to_begin(tmp_path: Path) -> None:
    with running(tmp_path) as served:
        page = served.visitor().get("/")
        assert "Nothing here yet" in page.text
        assert "Nothing is released yet" in served.visitor().get("/releases").text


@pytest.mark.slow
def test_an_audit_is_deleted_after_a_confirmation_and_nothing_that_others_made(tmp_path: Path) -> None:
    with running(tmp_path) as served:
        small_audit().save(tmp_path / "old.empriv")
        (tmp_path / "old.toml").write_text('files = ["rows.csv"]')
        kept = {"rows.csv": "a,b\n1,2\n", "old.json": '[{"a": 1}]', "old.html": "<p>mine", "older.toml": "top = 3"}
        for file, content in kept.items():
            (tmp_path / file).write_text(content)
        visitor = served.visitor()
        asked = visitor.get("/audits/old/delete")
        assert "old.empriv" in asked.text
        assert "old.json" not in asked.text
        assert (tmp_path / "old.empriv").exists()
        visitor.post("/audits/old/delete", {}, follow=False)  # without the confirmation
        assert (tmp_path / "old.toml").exists()
        visitor.post("/audits/old/delete", {"confirm": "yes"})
        assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == sorted(kept)
        assert visitor.get("/audits/old/delete").status == 400


@pytest.mark.slow
def test_files_of_the_command_line_show_up(tmp_path: Path) -> None:
    rows = "day,client,amount\n" + "".join(f"{d},c{c},{c + d}\n" for d in range(12) for c in range(6))
    (tmp_path / "sales.csv").write_text(rows)
    given = [str(tmp_path / "sales.csv"), "--database", "day", "--individual", "client", "--query", "sum(amount)"]
    written = ["--save", str(tmp_path / "sales.empriv"), "--json", str(tmp_path / "sales.json")]
    with pytest.raises(SystemExit):
        main(["audit", *given, *written, "--known", "nothing", "--target", "delta <= 0.5 at 0.1", "--quiet"])
    (audit,) = listed_audits(Folder.opened(tmp_path))
    assert (audit.state, audit.asked, audit.count("n_databases"), audit.count("n_individuals")) == (
        AUDITED, "sum(amount)", "12", "6",
    )  # fmt: skip
    assert audit.line
    assert unlisted_files(Folder.opened(tmp_path)) == ()
