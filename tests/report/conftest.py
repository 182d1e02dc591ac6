"""Audits to report, and a real browser to read the reports with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import empriv
from report.cases import results


@pytest.fixture(scope="session")
def ordinary() -> empriv.Audit:
    return empriv.audit(
        results(individuals=[f"client {k}" for k in range(30)], level=20.0, seed=1), epsilon=[0.05, 0.2]
    )


class Reader:
    """A page in the browser that notes what a report must not do; what is folded at first is open, unless asked not."""

    def __init__(self, browser: Any, path: Path, *, folded: bool = False, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.noises: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.noises.append(message.text))
        self.page.on("pageerror", lambda error: self.noises.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.noises.append("dialog"), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        if not folded and options.get("java_script_enabled", True):
            self.page.evaluate("() => document.querySelectorAll('details.fold').forEach(part => { part.open = true; })")

    def texts(self, selector: str) -> list[str]:
        return [str(text) for text in self.page.locator(selector).all_inner_texts()]


@pytest.fixture
def read(browser: Any) -> Iterator[Any]:
    readers: list[Reader] = []

    def open_page(path: Path, **options: Any) -> Reader:
        readers.append(Reader(browser, path, **options))
        return readers[-1]

    yield open_page
    for reader in readers:
        reader.context.close()
