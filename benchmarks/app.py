"""How long `empriv app` takes to start, and its pages to be seen first.

Run: python benchmarks/app.py [--runs N]

On the demo's data, audited; then the list once more, with 200 further audits; then the form and the first rows of a
large text file with 500 columns, which is parsed once. The start is until the first page is answered, beside the import
of the server's own packages; a first paint is the median of what Chromium reports, and needs Chromium and playwright:
without them, it is until the page's text is there.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from pathlib import Path
from typing import Any

PAGES = ("/", "/new", *(f"/audits/demo/{step}" for step in (
    "data", "promise", "decision",
)))  # fmt: skip
LISTED = 200
COLUMNS, ROWS = 500, 62_000  # of a large file
START, PAINT = 1.5, 0.3  # seconds, the goals
AUDIT = (
    "audit", "demo-flights.parquet", "--database", "date", "--individual", "aircraft", "--query", "avg(delay)",
    "--unit", "min", "--target", "delta <= 0.05 at 0.1", "--save", "demo.empriv", "--json", "demo.json",
    "--report", "demo.html", "--write-config", "demo.toml", "--quiet",
)  # fmt: skip


def demo_folder(folder: Path) -> None:
    """A desk with the demo's data and its audit."""
    from empriv.app.folder import Folder, put_demo

    put_demo(Folder.opened(folder))
    subprocess.run([sys.executable, "-m", "empriv", *AUDIT], cwd=folder, check=False)


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, float]]:
    """The address of a desk that runs, and how long it took until its first page was there."""
    began = time.perf_counter()
    command = [sys.executable, "-m", "empriv", "app", "--no-browser", "--folder", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        match = re.search(r"http://\S+", process.stdout.readline())
        assert match is not None
        visit(match[0])
        yield match[0], time.perf_counter() - began
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def visit(address: str) -> Any:
    """Somebody with the cookie, who opens pages."""
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(CookieJar()))
    opener.open(address).read()
    return opener


def started(folder: Path, runs: int) -> None:
    """Print how long it takes to start."""
    times, imports = [], []
    for _ in range(runs):
        with served(folder) as (_, seconds):
            times.append(seconds)
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import starlette.applications, uvicorn, jinja2"], check=True)
        imports.append(time.perf_counter() - began)
    took, peer = min(times), min(imports)
    print(f"{'start':28} {1000 * took:6.0f} ms   {took / peer:5.2f} x import of its packages   {_within(took, START)}")


def painted(folder: Path, pages: tuple[str, ...], runs: int, note: str = "") -> None:
    """Print when each page is seen first."""
    with served(folder) as (address, _):
        base = address.partition("/?")[0]
        for page, times in _paints(address, [f"{base}{page}" for page in pages], runs).items():
            took = statistics.median(times)
            print(f"{page.removeprefix(base) + note:28} {1000 * took:6.0f} ms   {_within(took, PAINT)}")


def large_file(folder: Path) -> None:
    """Print how long the form and the first rows of a large text file take, at first and again."""
    import duckdb

    numbers = (f"round(100 + 20 * random(), 4) AS x{k}" for k in range(COLUMNS - 3))
    columns = ("i // 3 AS basket_id", "hash(i // 3) % 2500 AS household", "DATE '2024-01-01' + (i // 170)::INT AS day")
    rows = f"SELECT {', '.join((*columns, *numbers))} FROM range({ROWS}) AS r(i)"
    duckdb.sql(f"COPY ({rows}) TO '{folder / 'wide.csv'}'")
    (folder / "wide.toml").write_text('files = ["wide.csv"]\n')
    megabytes = (folder / "wide.csv").stat().st_size / 1e6
    with served(folder) as (address, _):
        base, opener = address.partition("/?")[0], visit(address)
        for what in ("form", "preview", "form"):
            took = _read(opener, f"{base}/audits/wide/data/{what}")
            print(f"{what + f' of {megabytes:.0f} MB':28} {1000 * took:6.0f} ms")


def _paints(address: str, pages: list[str], runs: int) -> dict[str, list[float]]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        path = None
    if path is None:
        print("(without a browser: until the text is there)")
        opener = visit(address)
        return {page: [_read(opener, page) for _ in range(runs)] for page in pages}
    asked = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        tab.goto(address)
        times: dict[str, list[float]] = {page: [] for page in pages}
        for _ in range(runs):
            for page in pages:
                tab.goto(page)
                tab.wait_for_function(asked)
                times[page].append(float(tab.evaluate(asked)) / 1000)
        browser.close()
    return times


def _read(opener: Any, page: Any) -> float:
    began = time.perf_counter()
    opener.open(page).read()
    return time.perf_counter() - began


def _within(seconds: float, goal: float) -> str:
    return f"{'within' if seconds <= goal else 'BEYOND'} the goal of {1000 * goal:.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5)
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        demo_folder(folder)
        started(folder, runs)
        painted(folder, PAGES, runs)
        for number in range(LISTED):
            for ending in (".toml", ".json", ".empriv"):
                shutil.copyfile(folder / f"demo{ending}", folder / f"other-{number}{ending}")
        painted(folder, ("/",), runs, f", {LISTED} audits")
        large_file(folder)


if __name__ == "__main__":
    main()
