"""Audits to report, and a real browser to read the reports with."""

from __future__ import annotations

import os
import shutil
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


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="install playwright (a development dependency)")
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("install a browser: apt-get install chromium")
    quiet = (
        "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
        "--disable-component-update", "--disable-sync",
    )  # fmt: skip
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, headless=True, args=list(quiet))
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe-core."""
    here = os.environ.get("EMPRIV_AXE", str(Path(__file__).parents[2] / "node_modules" / "axe-core" / "axe.min.js"))
    if not Path(here).is_file():
        pytest.skip("install axe-core: npm install --no-save axe-core, or name its axe.min.js in EMPRIV_AXE")
    return Path(here).read_text(encoding="utf-8")


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

    def slide(self, to: int) -> None:
        move = "(slider, to) => { slider.value = to; slider.dispatchEvent(new Event('input')); }"
        self.page.eval_on_selector("#epsilon", move, to)

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
