"""The step Promise: what its form writes, says live, keeps and refuses."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest

import empriv
from app.conftest import RunningDesk, Visitor, sales
from app.test_app_data import audit_of, chosen, live, settings

USUAL = {"target": "delta <= 0.05 at 0.1", "targets": "", "times": "1", "known": "auto", "presence": "both"}


@pytest.fixture
def ready(desk: RunningDesk) -> str:
    """An audit for which it is said who and when."""
    return audit_of(desk, sales(days=40, people=8), individual=["client"], database="day")


@pytest.mark.parametrize(
    ("fields", "written"),
    [
        ({}, {"target": ("delta <= 0.05 at 0.1",), "epsilon": (0.1,), "times": None, "known": ("auto",)}),
        ({"target": "delta <= 0.01 at 0.1", "times": "12"}, {"target": ("delta <= 0.01 at 0.1",), "times": 12}),
        (
            {"target": "own", "targets": "delta <= 1e-3 at 0.5\n\n total_risk <= 0.2 at 0.5 "},
            {"target": ("delta <= 1e-3 at 0.5", "total_risk <= 0.2 at 0.5"), "epsilon": (0.5,)},
        ),
        ({"known": "nothing", "presence": "random"}, {"known": ("nothing",), "presence": "random"}),
        (
            {"known": "some", "named": "calendar\nprevious:2\n\ncount(*)\n sum(amount) "},
            {"known": ("calendar", "previous:2", "count(*)", "sum(amount)")},
        ),
        ({"known": "some", "named": "own"}, {"known": ("own",)}),
    ],
)
def test_what_is_promised_is_written_and_shown_again(
    desk: RunningDesk, visitor: Visitor, ready: str, fields: dict[str, str], written: dict[str, Any]
) -> None:
    path = f"/audits/{ready}/promise"
    answer = visitor.post(path, {**USUAL, **fields}, follow=False)
    assert answer.headers["location"] == f"/audits/{ready}/decision"
    settled = settings(desk, ready)
    assert {key: getattr(settled, key) for key in written} == written
    settled.check_known()
    page = visitor.get(path).text
    assert chosen(page, "target") == [fields.get("target", USUAL["target"])]
    assert chosen(page, "known") == [fields.get("known", "auto")]
    assert chosen(page, "presence") == [fields.get("presence", "both")]


def test_the_whole_promise_in_words(visitor: Visitor, ready: str) -> None:
    path = f"/audits/{ready}/promise"
    said = live(visitor, f"{path}/said", path, {**USUAL, "times": "12"})
    assert (
        "A reader who guesses 50:50 whether a client's rows were counted gets at most 52.5% sure from all 12 "
        "publications, but surer in at most 5% of cases. That holds for readers who may know what the calendar and "
        "previous answers tell and one client's rows (epsilon 0.1, delta 0.05)." in said
    )
    assert "40 databases cannot support any delta below 0.072" in said
    own = {"target": "own", "targets": "delta <= 0.1 at 0"}
    nothing = {**USUAL, **own, "known": "nothing", "presence": "random"}
    said = live(visitor, f"{path}/said", path, nothing)
    assert "at most 50% sure" in said
    assert "readers who know no more (epsilon 0, delta 0.1)" in said
    assert "cannot support" not in said


@pytest.mark.parametrize(
    ("fields", "field", "says"),
    [
        ({"target": ""}, "target", "must be one of"),
        ({"target": "own", "targets": " "}, "targets", "what is private enough"),
        ({"target": "own", "targets": "delta <= small at 0.1"}, "targets", "must read like"),
        ({"target": "own", "targets": "delta <= 5 at <b>"}, "targets", "must read like"),
        ({"target": "own", "targets": "delta <= 5 at 1"}, "targets", "from 0 to 1"),
        ({"times": "often"}, "times", "must be a whole number"),
        ({"known": "some", "named": ""}, "known", "must be something"),
        ({"known": "some", "named": "previous:-1"}, "known", "whole number of answers"),
    ],
)
def test_what_is_refused_is_said_beside_its_field_and_kept(
    desk: RunningDesk, visitor: Visitor, ready: str, fields: dict[str, str], field: str, says: str
) -> None:
    before = (desk.folder / f"{ready}.toml").read_bytes()
    answer = visitor.post(f"/audits/{ready}/promise", {**USUAL, "named": "count(*)", **fields})
    assert answer.status == 400
    wrong = re.search(rf'id="wrong-{field}"[^>]*>([^<]*)<', answer.text)
    assert wrong
    assert says in unescape(wrong[1])
    assert (">count(*)</textarea>" in answer.text) == ("named" not in fields)
    assert (desk.folder / f"{ready}.toml").read_bytes() == before
    for typed in fields.values():
        assert typed in unescape(answer.text)
    assert "<b>" not in answer.text


def test_random_samples_have_no_order(desk: RunningDesk, visitor: Visitor) -> None:
    name = audit_of(desk, sales(days=4), individual=["client"], subsamples=50)
    path = f"/audits/{name}/promise"
    answer = visitor.post(path, {**USUAL, "known": "some", "named": "calendar"})
    assert "random samples have no order" in answer.text
    assert "one client's rows" in live(visitor, f"{path}/said", path, USUAL)


def test_targets_of_another_hand_are_kept(desk: RunningDesk, visitor: Visitor) -> None:
    targets = ["delta <= 0.01 at 0.1", "delta <= 0.001 at 1"]
    name = audit_of(desk, sales(days=4), target=targets, times=3, known=["calendar", "previous"])
    page = visitor.get(f"/audits/{name}/promise").text
    assert chosen(page, "target") == ["own"]
    assert chosen(page, "known") == ["some"]
    path, own = f"/audits/{name}/promise", {**USUAL, "target": "own", "targets": "\r\n".join(targets), "times": "3"}
    assert unescape("\n".join(targets)) in unescape(page)
    assert "delta 0.001" in live(visitor, f"{path}/said", path, own)
    visitor.post(path, own, follow=False)
    assert settings(desk, name).target == tuple(targets)
    assert settings(desk, name).epsilon == (0.1, 1.0)


def test_earlier_releases(desk: RunningDesk, visitor: Visitor, ready: str) -> None:
    path = f"/audits/{ready}/promise"
    assert "Nothing was released" in visitor.get(path).text
    ledger = empriv.Ledger(desk.folder / "releases.ledger", policy=empriv.Policy(queries=3))
    try:
        page = visitor.get(path).text
        assert chosen(page, "ledger") == ["releases.ledger"]
        outside = {**USUAL, "ledger": "../releases.ledger"}
        assert "must be in the folder" in visitor.post(path, outside).text
        more = {**USUAL, "ledger": "releases.ledger", "known": "some", "named": "calendar"}
        assert 'id="wrong-known"' in visitor.post(path, more).text
        visitor.post(path, {**USUAL, "ledger": "releases.ledger"}, follow=False)
        assert settings(desk, ready).ledger == "releases.ledger"
        visitor.post(path, USUAL, follow=False)
        assert settings(desk, ready).ledger is None
    finally:
        ledger.path.unlink()


def test_an_audit_that_was_changed_elsewhere(visitor: Visitor, ready: str) -> None:
    answer = visitor.post(f"/audits/{ready}/promise", {**USUAL, "seen": "0" * 16})
    assert answer.status == 409
    assert "changed elsewhere" in answer.text
