"""The desk in a real browser: whole ways through it, by keyboard, on a telephone, and with hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from app.conftest import RunningDesk

pytestmark = pytest.mark.slow


class Tab:
    """A tab in the browser that notes what a desk must not do."""

    def __init__(self, browser: Any, desk: RunningDesk, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.port = desk.port
        self.noises: list[str] = []
        self.elsewhere: list[str] = []
        self.page.on("console", lambda message: self.noises.append(message.text))
        self.page.on("pageerror", lambda error: self.noises.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.noises.append("dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self._note(request.url))
        self.page.goto(desk.address)

    def _note(self, url: str) -> None:
        if not url.startswith((f"http://127.0.0.1:{self.port}/", "data:", "blob:")):
            self.elsewhere.append(url)

    def go(self, path: str) -> None:
        self.page.goto(f"http://127.0.0.1:{self.port}{path}")

    def wrong_by_axe(self, axe: str) -> list[Any]:
        """What axe-core objects to on the page."""
        self.page.wait_for_function("() => !document.querySelector('[data-load], .busy')")
        # evaluated as a debugger would, which the page's Content-Security-Policy leaves alone
        session = self.context.new_cdp_session(self.page)
        session.send("Runtime.evaluate", {"expression": axe + "; undefined"})
        expression = "axe.run(document, {resultTypes: ['violations']}).then(r => r.violations.map(v => [v.id, v.nodes.map(n => n.html)]))"
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


def test_every_page_can_be_read_by_all(tab: Any, axe: str) -> None:
    desk = tab()
    for path in ("/", "/new", "/nothing"):
        desk.go(path)
        assert desk.wrong_by_axe(axe) == [], path
