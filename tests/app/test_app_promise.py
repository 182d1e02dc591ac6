"""The step Promise: what its form writes, says live, keeps and refuses."""

from __future__ import annotations

import re
from dataclasses import replace
from html import unescape
from typing import Any

import pytest

import empriv
from app.conftest import Made, Step, chosen, sales

USUAL = {
    "target": "delta <= 0.05 at 0.1",
    "targets": "",
    "times": "1",
    "known": "auto",
    "named": "",
    "presence": "both",
}


def promise_of(step: Step) -> Step:
    return replace(step, form=USUAL, step="promise", live_end="said")


@pytest.fixture
def step(ready: Step) -> Step:
    return promise_of(ready)


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
    step: Step, fields: dict[str, str], written: dict[str, Any]
) -> None:
    answer = step.send(follow=False, **fields)
    assert answer.headers["location"] == f"/audits/{step.name}/decision"
    assert {key: getattr(step.settings, key) for key in written} == written
    step.settings.check_known()
    for field in ("target", "known", "presence"):
        assert chosen(step.page(), field) == [fields.get(field, USUAL[field])]


def test_the_whole_promise_in_words(step: Step) -> None:
    said = step.live(times="12")
    assert (
        "A reader who guesses 50:50 whether a client's rows were counted gets at most 52.5% sure from all 12 "
        "publications, but surer in at most 5% of cases. That holds for readers who may know what the calendar and "
        "previous answers tell and one client's rows (epsilon 0.1, delta 0.05)." in said
    )
    assert "40 databases cannot support any delta below 0.072" in said
    said = step.live(target="own", targets="delta <= 0.1 at 0", known="nothing", presence="random")
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
        ({"known": "some", "named": ""}, "known", "at least one thing"),
        ({"known": "some", "named": "previous:-1"}, "known", "whole number of answers"),
    ],
)
def test_what_is_refused_is_said_beside_its_field_and_kept(
    step: Step, fields: dict[str, str], field: str, says: str
) -> None:
    before = step.file.read_bytes()
    answer = step.send(**{"named": "count(*)", **fields})
    assert answer.status == 400
    wrong = re.search(rf'id="wrong-{field}"[^>]*>([^<]*)<', answer.text)
    assert wrong
    assert says in unescape(wrong[1])
    assert (">count(*)</textarea>" in answer.text) == ("named" not in fields)
    assert step.file.read_bytes() == before
    for typed in fields.values():
        assert typed in unescape(answer.text)
    assert "<b>" not in answer.text


def test_random_samples_have_no_order(of: Made) -> None:
    step = promise_of(of(sales(days=4), individual=["client"], subsamples=50))
    assert "random samples have no order" in step.send(known="some", named="calendar").text
    assert "one client's rows" in step.live()


def test_targets_of_another_hand_are_kept(of: Made) -> None:
    targets = ["delta <= 0.01 at 0.1", "delta <= 0.001 at 1"]
    step = promise_of(of(sales(days=4), target=targets, times=3, known=["calendar", "previous"]))
    page = step.page()
    assert chosen(page, "target") == ["own"]
    assert chosen(page, "known") == ["some"]
    assert "\n".join(targets) in unescape(page)
    own = {"target": "own", "targets": "\r\n".join(targets), "times": "3"}
    assert "delta 0.001" in step.live(**own)
    step.send(follow=False, **own)
    assert step.settings.target == tuple(targets)
    assert step.settings.epsilon == (0.1, 1.0)


def test_earlier_releases(step: Step) -> None:
    assert "Nothing was released" in step.page()
    ledger = empriv.Ledger(step.desk.folder / "releases.ledger", policy=empriv.Policy(queries=3))
    try:
        assert chosen(step.page(), "ledger") == ["releases.ledger"]
        assert "must be in the folder" in step.send(ledger="../releases.ledger").text
        assert 'id="wrong-known"' in step.send(ledger="releases.ledger", known="some", named="calendar").text
        for chosen_ledger in ("releases.ledger", ""):
            step.send(follow=False, ledger=chosen_ledger)
            assert step.settings.ledger == (chosen_ledger or None)
    finally:
        ledger.path.unlink()


def test_an_audit_that_was_changed_elsewhere(step: Step) -> None:
    answer = step.send(seen="0" * 16)
    assert (answer.status, "changed elsewhere" in answer.text) == (409, True)
