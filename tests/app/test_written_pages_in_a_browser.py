"""Pages that commands wrote, inside pages of the desk, in a real browser; and a tab whose server is gone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from app.conftest import PATIENCE, RunningDesk, running
from app.test_app_releases import audited
from app.test_app_runs import put, slow

pytestmark = pytest.mark.slow


def test_the_framed_page_can_be_printed_and_reaches_nothing_of_the_desk(browser: Any, desk: RunningDesk) -> None:
    audit = audited(desk.folder, "shop")
    audit.report(desk.folder / "shop.html", verdicts=[("delta", audit.verdict(epsilon=1.0, delta=0.5))])
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(desk.address)
        page.goto(desk.at("/audits/shop/decision"))
        frame = page.frame_locator("#report")
        frame.locator("h1").wait_for()
        inner = next(frame for frame in page.frames if "written" in frame.url)
        inner.wait_for_function("() => document.documentElement.classList.contains('live')")  # its script runs
        inner.evaluate("() => { window.print = () => { window.printed = true; }; }")
        page.click("[data-print]")
        inner.wait_for_function("() => window.printed")
        assert inner.evaluate("() => window.origin") == "null"
        assert inner.evaluate("() => { try { return parent.document.title; } catch { return 'closed'; } }") == "closed"
        reached = "() => fetch('/').then(() => 'open', () => 'closed')"
        assert inner.evaluate(reached) == "closed"
    finally:
        context.close()


def test_a_tab_whose_server_is_gone_says_so(browser: Any, tmp_path: Path) -> None:
    slow(put(tmp_path), "endless")
    context = browser.new_context()
    try:
        with running(tmp_path) as desk:
            page = context.new_page()
            page.goto(desk.address)
            page.goto(desk.at("/audits/endless/run"))
            page.click("button.first")
            page.wait_for_selector("progress")
        page.wait_for_selector(".alarm", timeout=1000 * PATIENCE)
        assert "does not answer" in page.inner_text(".alarm")
    finally:
        context.close()
