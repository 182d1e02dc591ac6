"""For all tests: Hypothesis made repeatable, and markers for what needs Spark or a browser."""

from __future__ import annotations

from collections.abc import Iterator

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
