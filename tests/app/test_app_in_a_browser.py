"""The desk in a real browser: whole ways through it, by keyboard, on a telephone, and with hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import empriv
from app.conftest import PATIENCE, RunningDesk, sales
from empriv.ledger.values import ReleaseEntry

pytestmark = pytest.mark.slow


class Tab:
    """A tab in the browser that notes what a desk must not do."""

    def __init__(self, browser: Any, desk: RunningDesk, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.desk = desk
        self.noises: list[str] = []
        self.elsewhere: list[str] = []
        self.page.on("console", lambda message: self.noises.append(message.text))
        self.page.on("pageerror", lambda error: self.noises.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.noises.append("dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self._note(request.url))
        self.page.goto(desk.address)

    def _note(self, url: str) -> None:
        if not url.startswith((f"http://127.0.0.1:{self.desk.port}/", "data:", "blob:")):
            self.elsewhere.append(url)

    def go(self, path: str) -> None:
        self.page.goto(self.desk.at(path))

    def wrong_by_axe(self, axe: str) -> list[Any]:
        """What axe-core objects to on the page."""
        self.page.wait_for_function("() => !document.querySelector('[data-load], .busy')")
        # evaluated as a debugger would, which the page's Content-Security-Policy leaves alone
        session = self.context.new_cdp_session(self.page)
        session.send("Runtime.evaluate", {"expression": axe + "; undefined"})
        expression = (
            "axe.run(document, {resultTypes: ['violations']})"
            ".then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))"
        )
        found = session.send(
            "Runtime.evaluate", {"expression": expression, "awaitPromise": True, "returnByValue": True}
        )
        return list(found["result"]["value"])

    def width(self) -> int:
        return int(self.page.evaluate("document.documentElement.scrollWidth"))


@pytest.fixture
def tab(browser: Any, desk: RunningDesk) -> Iterator[Any]:
    tabs: list[Tab] = []

    def opened(**options: Any) -> Tab:
        tabs.append(Tab(browser, desk, **options))
        return tabs[-1]

    yield opened
    for each in tabs:
        each.context.close()


HOSTILE = "<img src=x onerror=alert(1)>"


def hostile_sales() -> bytes:
    """Sales whose column of people, and whose regions, look like markup."""
    text = sales(days=60, people=8).decode()
    return text.replace("day,client,", f'day,"{HOSTILE}",').replace("north", "<script>alert(2)</script>").encode()


class Keys:
    """Somebody without a mouse: goes from place to place by Tab, and presses keys there."""

    def __init__(self, page: Any) -> None:
        self.page = page

    def to(self, selector: str) -> None:
        """Press Tab until the focus is on something."""
        self.page.wait_for_selector(selector, state="attached")
        for _ in range(200):
            self.page.keyboard.press("Tab")
            if self.page.evaluate("selector => document.activeElement.matches(selector)", selector):
                return
        raise AssertionError(f"no key leads to {selector}")

    def press(self, selector: str, key: str = "Enter") -> None:
        self.to(selector)
        self.page.keyboard.press(key)


def reloaded(tab: Tab) -> None:
    """Reload, go back and come again: the page is the same."""
    address, heading = tab.page.url, tab.page.inner_text("h1")
    tab.page.reload()
    assert (tab.page.url, tab.page.inner_text("h1")) == (address, heading)
    tab.page.go_back()
    tab.page.go_forward()
    assert (tab.page.url, tab.page.inner_text("h1")) == (address, heading)


def test_a_newcomer_goes_from_a_file_to_a_release_by_keyboard_on_a_telephone(
    tab: Any, desk: RunningDesk, axe: str, tmp_path: Path
) -> None:
    """Hostile names, no mouse, 390 pixels, and back and reload at each step; each page can be read by all."""
    rows = tmp_path / "sales.csv"
    rows.write_bytes(hostile_sales())
    here = tab(viewport={"width": 390, "height": 800})
    page, keys = here.page, Keys(here.page)
    read: list[str] = []

    def look(step: str) -> None:
        """The page of a step, which all can read, and which fits."""
        page.wait_for_url(f"**/{step}")
        page.wait_for_function("() => !document.querySelector('.busy')")
        assert here.wrong_by_axe(axe) == [], step
        assert here.width() <= 390, step
        reloaded(here)
        page.wait_for_function("() => !document.querySelector('.busy')")
        read.append(step)

    assert here.wrong_by_axe(axe) == []
    keys.press("a[href$='/new']")
    page.wait_for_url("**/new")
    page.set_input_files("#upload", str(rows))  # the browser's own dialogue, which no page can test
    keys.press("form:has(#upload) button")
    look("data")
    page.wait_for_selector("table")
    keys.press("a[href$='/people']")
    look("people")
    keys.press(f'input[name=individual][value="{HOSTILE}"]', "Space")  # no name tells that this is who
    page.wait_for_selector("text=60 days, 8 people")
    keys.press("button.first")
    look("statistic")
    keys.press("button.first")
    look("promise")
    keys.press("button.first")
    look("run")
    keys.press("button.first")
    page.wait_for_url("**/decision", timeout=1000 * PATIENCE)
    look("decision")
    keys.press("a[href$='/improve']")
    look("improve")
    keys.press("button[value=noise]")
    page.wait_for_selector("a.first[href$='/release']", timeout=1000 * PATIENCE)
    look("improve")
    keys.press("a.first[href$='/release']")
    look("release")
    keys.press("form[action$='/ledger'] button")
    keys.to("#database")
    page.keyboard.type("2024-01-05")
    keys.press("input[name=confirm]", "Space")
    keys.press("form:has(#database) button.first")
    page.wait_for_selector("section[aria-label=Released]", timeout=1000 * PATIENCE)
    answer = page.inner_text("section[aria-label=Released] .line")
    look("release")
    assert page.inner_text("section[aria-label=Released] .line") == answer  # a reload releases nothing
    written = empriv.Ledger(desk.folder / "releases.ledger", create=False).entries()
    assert len([entry for entry in written if isinstance(entry, ReleaseEntry)]) == 1
    here.go("/")
    assert "avg(amount)" in page.inner_text("main")
    assert here.noises == []
    assert here.elsewhere == []
