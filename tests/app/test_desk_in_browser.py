"""The desk and its sliders in a real browser: by the keyboard, narrow, and readable by all."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from app.conftest import PATIENCE, RunningDesk
from app.test_desk import small_audit
from empriv.app.folder import Folder

pytestmark = pytest.mark.browser
HOSTILE = "<img src=x onerror=alert(1)>" + "w" * 80


@pytest.fixture(scope="module")
def folder(desk: RunningDesk) -> Folder:
    """Two audits of few people, one of which has figures with a hostile query."""
    for name, shift in (("plain", 2.0), ("other", 5.0)):
        small_audit(shift).save(desk.folder / f"{name}.empriv")
        (desk.folder / f"{name}.toml").write_text('target = ["delta <= 0.2 at 0.1"]\nunit = "min"\n')
    figures = {"format": "empriv audit figures", "query": HOSTILE, "decision": {"line": f"Publish {HOSTILE}"}}
    (desk.folder / "other.json").write_text(json.dumps(figures))
    return Folder.opened(desk.folder)


@pytest.fixture
def tab(browser: Any, desk: RunningDesk) -> Iterator[Any]:
    context = browser.new_context(viewport={"width": 390, "height": 844})
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    noises: list[str] = []
    page.on("console", lambda said: noises.append(said.text))
    page.on("pageerror", lambda error: noises.append(str(error)))
    page.on("dialog", lambda dialog: (noises.append("dialog"), dialog.dismiss()))
    page.goto(desk.address)
    yield page
    assert noises == []
    context.close()


def is_readable(page: Any, axe: str) -> None:
    page.wait_for_function("() => !document.querySelector('[data-load], .busy')")
    page.evaluate(axe)
    violations = page.evaluate("axe.run()")["violations"]
    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in violations] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def go_to(page: Any, selector: str) -> None:
    """By the tab key alone."""
    page.wait_for_selector(selector)
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"The keyboard does not reach {selector}.")


@pytest.mark.usefixtures("folder")
def test_the_desk_is_searched_and_two_are_ticked_by_keys(desk: RunningDesk, tab: Any, axe: str) -> None:
    tab.wait_for_selector("text=Nothing is released yet")
    is_readable(tab, axe)
    assert HOSTILE in tab.inner_text("main")
    go_to(tab, "#q")
    tab.keyboard.type("publish")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/?q=publish")
    assert tab.locator("tbody tr").count() == 1
    tab.goto(desk.at("/compare?audit=plain&audit=other"))
    is_readable(tab, axe)
    tab.goto(desk.at("/"))
    for name in ("other", "plain"):
        tab.focus(f"input[value={name}]")
        tab.keyboard.press("Space")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/compare?audit=other&audit=plain")
    tab.wait_for_selector("progress, iframe")
