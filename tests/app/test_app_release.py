"""Releasing an answer from the browser: noise, ledger, confirmation, once and not twice, and the papers."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import empriv
from app.conftest import Answer, RunningDesk, Visitor, running, wait_for
from empriv.app.decision_step import page_command
from empriv.app.folder import Folder
from empriv.app.jobs import RELEASE, latest
from empriv.app.release import new_limits, noise_arguments, release_arguments
from empriv.cli.config import Settings
from empriv.cli.main import main
from empriv.errors import InputError
from empriv.ledger import ReleaseEntry

SETTINGS = Settings(
    files=("rows.csv",), database="day", individual=("client",), query=("avg(amount)",),
    target=("delta <= 0.5 at 1",), epsilon=(1.0,), unit="eur",
)  # fmt: skip
DECISION = {"word": "Publish", "line": "Publish", "reason": "So it is.", "condition": "Always."}


def audited(folder: Path, name: str, *, decision: str = "Publish") -> empriv.Audit:
    """An audit that is saved with its figures, as `empriv audit` writes them."""
    q = np.random.default_rng(3).normal(100.0, 10.0, 40)
    results = empriv.Results.from_arrays(q, [q - 0.3, q - 0.2], databases=[f"day {k}" for k in range(40)])
    audit = empriv.audit(results, epsilon=1.0, known="nothing")
    audit.save(folder / f"{name}.empriv")
    Folder.opened(folder).write(name, SETTINGS)
    figures = {**audit.to_json(), "decision": {**DECISION, "word": decision, "line": decision}}
    (folder / f"{name}.json").write_text(json.dumps(figures))
    (folder / f"{name}.html").write_text("<p>page</p>")
    return audit


@pytest.fixture(scope="module")
def released(desk: RunningDesk) -> Folder:
    """An audit with noise."""
    audit = audited(desk.folder, "shop")
    noise = empriv.design_noise(audit, epsilon=1.0, delta=0.5, method="classical", granularity=0.25)
    noise.save(desk.folder / "shop.noise.empriv")
    return Folder.opened(desk.folder)


def after(visitor: Visitor, name: str) -> str:
    """The page of releases once nothing is under way."""
    assert wait_for(lambda: "data-reload" in visitor.get(f"/audits/{name}/run/progress").text)
    return visitor.get(f"/audits/{name}/decision").text


def ask(visitor: Visitor, form: dict[str, str]) -> Answer:
    """Fill in the form of a release, unless one is under way, and send it."""
    page = visitor.get("/audits/shop/decision")
    offer = page.field("offered") if 'name="offered"' in page.text else ""
    return visitor.post("/audits/shop/release", {"offered": offer, **form})


def entries(folder: Folder, book: str) -> list[ReleaseEntry]:
    """What was released through a ledger; nothing if it is not there."""
    if book not in folder.ledgers():
        return []
    ledger = empriv.Ledger(folder.path / book, create=False)
    return [entry for entry in ledger.entries() if isinstance(entry, ReleaseEntry)]


@pytest.mark.slow
def test_an_answer_is_released_once_however_often_it_is_asked_for(released: Folder, visitor: Visitor) -> None:
    empriv.Ledger(released.path / "once.ledger", policy=empriv.Policy(queries=2))
    asked = {"way": "database", "database": "day 7", "confirm": "yes", "book": "once.ledger"}
    unconfirmed = ask(visitor, {**asked, "confirm": ""})
    assert unconfirmed.status == 400
    assert 'id="wrong-confirm"' in unconfirmed.text
    assert 'value="day 7"' in unconfirmed.text  # what was filled in is still there
    changed = ask(visitor, {**asked, "offered": "another"})
    assert changed.status == 400
    assert "has changed since you opened the page" in changed.text
    assert not entries(released, "once.ledger")
    ask(visitor, asked)
    ask(visitor, asked)  # a second click
    page = after(visitor, "shop")
    assert "Released from day 7." in page
    (entry,) = entries(released, "once.ledger")
    assert f'<p class="line">{entry.answer} eur</p>' in page
    assert f"entry {entry.id} of the ledger" in page
    ask(visitor, asked)
    assert "Released before" in after(visitor, "shop")
    assert len(entries(released, "once.ledger")) == 1
    told = visitor.get("/releases").text
    assert "at most 2 queries" in told
    assert f"{entry.answer:.10g}" in told


@pytest.mark.slow
def test_an_answer_that_is_typed_is_in_no_file_and_no_page(released: Folder, visitor: Visitor) -> None:
    secret = "98.7654321"
    form = {"way": "value", "database": "tomorrow", "value": secret, "confirm": "yes", "book": "typed.ledger"}
    empriv.Ledger(released.path / "typed.ledger", policy=empriv.Policy(queries=2))
    wrong = ask(visitor, {**form, "value": f"{secret}x"})
    assert wrong.status == 400
    assert 'id="wrong-value"' in wrong.text
    ask(visitor, form)
    page = after(visitor, "shop")
    assert len(entries(released, "typed.ledger")) == 1
    work = latest(released, "shop", RELEASE)
    assert work is not None
    shown = [wrong.text, page, json.dumps(work.arguments)]
    assert not any(secret in text for text in shown)
    written = [path.read_bytes() for path in released.path.rglob("*") if path.is_file()]
    assert not any(secret.encode() in content for content in written)


@pytest.mark.slow
def test_what_the_ledger_refuses_is_said_and_not_released(released: Folder, visitor: Visitor) -> None:
    empriv.Ledger(released.path / "tight.ledger", policy=empriv.Policy(epsilon=1.0, delta=1e-6, window=1))
    ask(visitor, {"way": "value", "database": "another", "value": "7", "confirm": "yes", "book": "tight.ledger"})
    page = after(visitor, "shop")
    assert "refuses the release" in page
    assert "Nothing was released." in page
    assert not entries(released, "tight.ledger")


@pytest.mark.slow
def test_noise_comes_first_and_a_ledger_is_made_with_the_first_release(desk: RunningDesk, visitor: Visitor) -> None:
    audited(desk.folder, "plain")
    Folder.opened(desk.folder).write("plain", replace(SETTINGS, ledger="own.ledger", times=12))
    own = desk.folder / "own.ledger"
    assert "Prepare answers" in visitor.get("/audits/plain/decision").text
    early = {"way": "database", "database": "day 1", "confirm": "yes"}
    assert visitor.post("/audits/plain/release", early).status == 400
    page = "/audits/plain/decision"
    forms = "/audits/plain/release"
    wrong = visitor.post(f"{forms}/as-it-is", {"granularity": "much"}, page=page)
    assert 'id="wrong-granularity"' in wrong.text
    visitor.post(f"{forms}/as-it-is", {"granularity": "0.01"}, page=page)
    shown = after(visitor, "plain")
    assert "I release this answer" in shown
    assert "own.ledger (new)" in shown
    assert "answers are rounded to multiples of 0.01" in visitor.get("/audits/plain/written/noise").text
    assert 'value="day 39"' in visitor.get(f"{forms}/labels").text
    assert not own.exists()
    offer = {"offered": visitor.get(page).field("offered"), "book": "own.ledger"}
    wrong = visitor.post(forms, {**early, **offer, "database": "day 99"})
    assert (wrong.status, 'value="day 99"' in wrong.text) == (400, True)
    assert "The database must be one of those that were audited, from day 0 to day 39." in wrong.text
    assert not own.exists()  # nothing was asked for that can be released
    visitor.post(forms, {**early, **offer})
    after(visitor, "plain")
    assert empriv.Ledger(own, create=False).policy == empriv.Policy(epsilon=1.0, delta=0.5, window=12)
    audited(desk.folder, "leaky", decision="Do not publish as it is")
    refused = visitor.post("/audits/leaky/release/as-it-is", {"granularity": "1"}, page=page)
    assert refused.status == 400
    assert "not private enough as they are" in visitor.get("/audits/leaky/decision").text


@pytest.mark.slow
@pytest.mark.usefixtures("released")
def test_a_section_for_an_impact_assessment_is_written(visitor: Visitor) -> None:
    assert 'href="/export/shop.zip"' in visitor.get("/audits/shop/decision").text
    visitor.post("/audits/shop/release/record", {}, page="/audits/shop/decision")
    assert "shop.dpia.html" in after(visitor, "shop")
    section = visitor.get("/audits/shop/written/dpia").text
    assert "<h2>Publication of an answer: decision</h2>" in section
    assert "Linkability" in section


@pytest.mark.slow
def test_an_audit_that_somebody_saved_without_a_page_can_have_one(released: Folder, visitor: Visitor) -> None:
    (released.path / "bare.empriv").write_bytes((released.path / "shop.empriv").read_bytes())
    page = visitor.get("/audits/bare/decision").text
    assert "There is no page of this audit yet" in page
    assert "empriv show bare.empriv --json bare.json --report bare.html" in page
    assert "--target" in page_command("shop", SETTINGS)
    assert visitor.get("/audits/nothing/decision").status == 200
    assert "Before it can be run" in visitor.get("/audits/nothing/decision").text


def test_a_release_whose_process_is_gone_can_be_asked_for_again(released: Folder, visitor: Visitor) -> None:
    audited(released.path, "gone")
    place = released.own / "work" / "20200101000000000000-00000000"
    place.mkdir(parents=True)
    asked = {"audit": "gone", "title": RELEASE, "arguments": [], "began": 0.0}
    (place / "asked.json").write_text(json.dumps(asked))
    assert "ended before its answer was shown" in visitor.get("/audits/gone/decision").text


def test_release_of_rows_names_the_file_and_of_nothing_is_refused(released: Folder) -> None:
    (released.path / "today.csv").write_text("day,client,amount\n")
    arguments, private = release_arguments(
        released, "shop", "releases.ledger", {"way": "rows", "rows": "today.csv", "confirm": "yes"}
    )
    assert "--rows=today.csv" in arguments
    assert private is None
    for form in ({}, {"way": "database"}, {"way": "rows", "rows": "../x.csv"}, {"way": "rows", "rows": "none.csv"}):
        with pytest.raises(InputError):
            release_arguments(released, "shop", "releases.ledger", {**form, "confirm": "yes"})


def test_limits_are_those_of_the_promise() -> None:
    assert new_limits(SETTINGS) == {"epsilon": 1.0, "delta": 0.5, "window": 1}
    assert new_limits(replace(SETTINGS, times=52))["window"] == 52
    assert new_limits(Settings()) == {}
    assert "--delta=0.5" in noise_arguments("shop", SETTINGS, 0.25)


@pytest.mark.slow
def test_what_a_checker_refused_is_not_released_until_it_is_approved(released: Folder, visitor: Visitor) -> None:
    said = {"checker": "R. Voss", "role": "data protection", "reason": "<b>too few days</b>", "outcome": "refused"}
    offer = visitor.get("/audits/shop/decision").field("offered")
    for wrong in ({**said, "reason": " "}, {**said, "outcome": "maybe"}, {**said, "offered": "another"}):
        assert visitor.post("/audits/shop/review", {"offered": offer, **wrong}).status == 400
    assert not (released.path / "shop.review.json").exists()
    page = visitor.post("/audits/shop/review", {"offered": offer, **said}).text
    assert "<b>Refused</b> by R. Voss, data protection" in page
    assert "&lt;b&gt;too few days" in page
    asked = {"way": "database", "database": "day 9", "confirm": "yes", "book": "refused.ledger"}
    refused = ask(visitor, asked)
    assert (refused.status, "A checker refused this release." in refused.text) == (400, True)
    visitor.post("/audits/shop/review", {"offered": offer, **said, "outcome": "approved", "reason": "talked about"})
    kept = json.loads((released.path / "shop.review.json").read_text())["reviews"]
    assert [review["outcome"] for review in kept] == ["refused", "approved"]
    assert kept[0]["audit"] == hashlib.sha256((released.path / "shop.empriv").read_bytes()).hexdigest()
    noise = released.path / "shop.noise.empriv"
    noise.write_bytes(noise.read_bytes())  # the same noise: still approved
    assert "<b>Approved</b>" in visitor.get("/audits/shop/decision").text
    assert "refused.ledger" not in released.ledgers()
    (released.path / "shop.review.json").unlink()


@pytest.mark.slow
def test_the_ledger_keeps_the_last_review_of_what_is_released(
    released: Folder, visitor: Visitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = empriv.Ledger(released.path / "checked.ledger", policy=empriv.Policy())
    form = {"way": "database", "database": "day 11", "confirm": "yes"}
    said = {"checker": "R. Voss", "role": "data protection", "reason": "talked about", "outcome": "approved"}
    offer = visitor.get("/audits/shop/decision").field("offered")
    visitor.post("/audits/shop/review", {"offered": offer, **said})
    arguments, _ = release_arguments(released, "shop", "checked.ledger", form)
    assert arguments[arguments.index("--review") + 1] == "shop.review.json"
    monkeypatch.chdir(released.path)
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    review = ledger.entries()[-1].review
    assert review is not None
    assert (review.outcome, review.checker, review.reason) == ("approved", "R. Voss", "talked about")
    # a review of other noise is not passed on
    kept = json.loads((released.path / "shop.review.json").read_text())
    kept["reviews"][-1]["noise"] = "0" * 64
    (released.path / "shop.review.json").write_text(json.dumps(kept))
    assert "--review" not in release_arguments(released, "shop", "checked.ledger", form)[0]
    # and what was refused is refused by the ledger too
    visitor.post("/audits/shop/review", {"offered": offer, **said, "outcome": "refused"})
    arguments, _ = release_arguments(released, "shop", "checked.ledger", {**form, "database": "day 12"})
    before = len(ledger.entries())
    assert CliRunner().invoke(main, arguments).exit_code != 0
    assert len(ledger.entries()) == before
    (released.path / "shop.review.json").unlink()
    (released.path / "checked.ledger").unlink()


@pytest.mark.slow
def test_each_promise_has_a_ledger_of_its_own(tmp_path: Path) -> None:
    audit = audited(tmp_path, "strict")
    Folder.opened(tmp_path).write("strict", replace(SETTINGS, target=("delta <= 0.001 at 0.1",)))
    noise = empriv.design_noise(audit, epsilon=0.1, delta=0.001, method="classical", granularity=0.25)
    noise.save(tmp_path / "strict.noise.empriv")
    empriv.Ledger(tmp_path / "a.ledger", policy=empriv.Policy(epsilon=1.0, delta=0.5, window=1))
    with running(tmp_path) as served:
        visitor = served.visitor()
        assert "releases.ledger (new)" in visitor.get("/audits/strict/decision").text
        empriv.Ledger(tmp_path / "releases.ledger", policy=empriv.Policy(epsilon=0.1, delta=0.001, window=3))
        assert "<option selected>releases.ledger</option>" in visitor.get("/audits/strict/decision").text
