"""Pictures of `empriv app`. Run: python scripts/make_app_pictures.py [NAME ...] [--folder DIR]

Needs Chromium and playwright. Writes docs/images/app-NAME.png: pages of a desk on the demo's data, which is audited and
whose noise is designed first, by the commands that the desk runs; in DIR, they are run once.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH = 1000
MINUTES = 10 * 60_000
COMMANDS = (
    ("audit", "demo-flights.parquet", "--database", "date", "--individual", "aircraft", "--query", "avg(delay)",
     "--unit", "min", "--target", "delta <= 0.05 at 0.1", "--save", "delays.empriv", "--json", "delays.json",
     "--report", "delays.html", "--write-config", "delays.toml", "--quiet"),
    ("audit", "--config", "delays.toml", "--query", "count(*)", "--unit", "flights", "--save", "flights.empriv",
     "--json", "flights.json", "--report", "flights.html", "--write-config", "flights.toml", "--quiet"),
    ("noise", "delays.empriv", "--epsilon", "0.1", "--delta", "0.05", "--granularity", "0.01", "--save",
     "delays.noise.empriv", "--report", "delays.noise.html", "--json", "delays.noise.json", "--quiet"),
    ("ledger", "init", "releases.ledger", "--epsilon", "0.1", "--delta", "0.2", "--window", "30d"),
    ("release", "delays.noise.empriv", "--audit", "delays.empriv", "--database", "2013-12-31", "--ledger",
     "releases.ledger"),
)  # fmt: skip
# each picture: the page, how wide, and where it ends
PICTURES = {
    "desk": ("/", WIDTH, "#releases ~ div table"),
    "data": ("/audits/delays/data", WIDTH, ".beside"),
    "decision": ("/audits/delays/decision", WIDTH, "iframe.page"),
}
_READY = """() => !document.querySelector('[data-load]:not(details:not([open]) *), [data-poll], .busy')
    && !/(Looking|Counting|Measuring|Reading)[^.]*…/.test(document.body.innerText)"""


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """The address of a desk that runs."""
    command = [sys.executable, "-m", "empriv", "app", "--no-browser", "--demo", "--folder", str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        match = re.search(r"http://\S+", process.stdout.readline())
        assert match is not None
        yield match[0]
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def pictures(names: list[str], folder: Path) -> None:
    """Run the commands in ``folder``, and take pictures of the desk there."""
    from playwright.sync_api import sync_playwright

    with served(folder) as address, sync_playwright() as playwright:
        for command in () if (folder / "releases.ledger").exists() else COMMANDS:
            subprocess.run(
                [sys.executable, "-m", "empriv", *command], cwd=folder, check=False, stdout=subprocess.DEVNULL
            )
        options = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        tab = browser.new_page()
        tab.goto(address)
        for name in names:
            path, width, end = PICTURES[name]
            tab.set_viewport_size({"width": width, "height": 1000})
            tab.goto(address.partition("/audits")[0] + path)
            tab.wait_for_selector(end, timeout=MINUTES)
            # until everything that the page asks for by itself is there
            tab.wait_for_function(_READY, timeout=MINUTES)
            _save(tab, name, width, end)
        browser.close()


def _save(tab: Any, name: str, width: int, end: str) -> None:
    """A picture down to the end of an element; a frame is drawn as far as it is in the window."""
    path = IMAGES / f"app-{name}.png"
    for _ in range(2):  # a window that grows may move the end
        last = tab.locator(end).first.bounding_box()
        tab.set_viewport_size({"width": width, "height": int(last["y"] + last["height"] + 20)})
        tab.wait_for_timeout(2000)
    tab.screenshot(path=path)
    print(f"{path.name} {path.stat().st_size / 1024:.0f} KiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pictures(given.names or list(PICTURES), given.folder or Path(folder))


if __name__ == "__main__":
    main()
