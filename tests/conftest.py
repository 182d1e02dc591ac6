"""For all tests: Hypothesis made repeatable, a browser, and markers for what needs Spark or a browser."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import postgres_server

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def server() -> Iterator[postgres_server.Server]:
    """A PostgreSQL server."""
    with postgres_server.started() as running:
        yield running


# Whole audits, processes and files by the hundred: for `make test`.
SLOW_FOLDERS = {"fuzz", "security"}
SLOW_FILES = {
    "test_given.py",
    "test_given_audits.py",
    "test_ledger_upgrade.py",
    "test_risk_contract.py",
    "test_scans.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """`make check` leaves these out. They are known by what they use, so that nobody has to mark a new one."""
    for item in items:
        if item.path.parent.name in SLOW_FOLDERS or item.path.name in SLOW_FILES:
            item.add_marker("slow")
        group = item.get_closest_marker("xdist_group")
        if group is not None and "spark" in group.args:
            item.add_marker("spark")
        if "server" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")  # a PostgreSQL server is started
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")


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
    here = os.environ.get("EMPRIV_AXE", str(Path(__file__).parents[1] / "node_modules" / "axe-core" / "axe.min.js"))
    if not Path(here).is_file():
        pytest.skip("install axe-core: npm install --no-save axe-core, or name its axe.min.js in EMPRIV_AXE")
    return Path(here).read_text(encoding="utf-8")
