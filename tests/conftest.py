"""For all tests: Hypothesis made repeatable, a browser, and markers for what needs Spark or a browser."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

import postgres_server
import spark_sessions

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def server() -> Iterator[postgres_server.Server]:
    """A PostgreSQL server."""
    with postgres_server.started() as running:
        yield running


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session, in which functions are called in processes of Python."""
    session = spark_sessions.start(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()


# Tests in which answers are verified by really deleting people; elsewhere that would take most of the time.
VERIFIED = (
    "tests/collecting/", "tests/fuzz/", "tests/security/", "tests/test_docs.py",
    "tests/first_hours/test_daily_release.py", "tests/first_hours/test_front_door.py", "tests/app/test_app_decision.py",
    "tests/ledger/test_ledger.py", "tests/auditing/test_chunked.py",
)  # fmt: skip
# How rows are read has nothing to do with who is left out of them; others ask very many queries, about answers or
# refusals that must be right without it.
NOT_VERIFIED = (
    *(f"tests/collecting/test_{name}.py" for name in ("postgres", "connections", "zones", "text_dates")),
    "tests/collecting/test_aggregates.py::test_aggregate", "tests/collecting/test_aggregates.py::test_quantiles",
    "tests/collecting/test_cells_that", "tests/collecting/test_ordinary", "tests/security/test_allowlist.py",
    "tests/collecting/test_contract.py::test_rewritten_query_equals_brute_force[duckdb",
    "tests/collecting/test_contract.py::test_query_that_runs_once_per_individual_equals_brute_force[duckdb",
)  # fmt: skip
# With Spark a statement takes seconds: rewritten ones and people in chunks are verified there, and in tests/fuzz.
VERIFIED_ON_SPARK = (
    "tests/collecting/test_contract.py::test_rewritten", "tests/collecting/test_spark.py::test_people_in_chunks",
    "tests/collecting/test_spark.py::test_a_component",
)  # fmt: skip
WITH_ALL_DELETIONS = (
    "tests/collecting/test_deletion.py", "tests/fuzz/test_odd_queries.py", "tests/test_docs.py",
    "tests/app/test_app_decision.py",
)  # fmt: skip


@pytest.fixture(scope="session", autouse=True)
def _verified_where_that_is_tested() -> Iterator[None]:
    """Answers are verified in tests that are about that, mostly by few deletions; also where fixtures ask for them."""
    from empriv.collecting import SparkEngine, deletion, run_query
    from empriv.results import Verified

    really = run_query.verify

    def verify(engine: Any, *args: Any, **options: Any) -> Verified | None:
        test = os.environ.get("PYTEST_CURRENT_TEST", "")
        if not test.startswith(VERIFIED) or test.startswith(NOT_VERIFIED):
            return Verified(1, 1)
        if isinstance(engine, SparkEngine) and not test.startswith(VERIFIED_ON_SPARK):
            return Verified(1, 1)
        with pytest.MonkeyPatch.context() as patch:
            if not test.startswith(WITH_ALL_DELETIONS):
                for name in ("MOST_DATABASES", "HALVES", "ALONE"):
                    patch.setattr(deletion, name, 1)
            return really(engine, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_query, "verify", verify)
        patch.setattr(deletion, "verify", verify)  # of people in chunks
        yield


# Tests in which a command's queries run in a process of their own, as for a user; starting one takes half a second.
SANDBOXED = (
    "tests/security", "tests/fuzz", "tests/test_docs.py", "tests/test_packaging.py", "tests/cli/test_cli.py",
    "tests/first_hours/test_front_door.py", "tests/first_hours/test_new_user.py", "tests/app/test_app_decision.py",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _sandboxed_where_that_is_tested(request: pytest.FixtureRequest) -> Iterator[None]:
    from empriv.collecting.engines.duckdb import session

    if str(request.path.relative_to(request.config.rootpath)).startswith(SANDBOXED):
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session, "AVAILABLE", False)
        yield


# Whole audits, processes and files by the hundred: for `make test`.
SLOW_FOLDERS = {"fuzz", "security"}
SLOW_FILES = {
    "test_given.py",
    "test_given_audits.py",
    "test_any_risk.py",
    "test_scans.py",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks by what a test uses, for `make check`; and those files first which last, so that workers end together."""
    for item in items:
        if item.path.parent.name in SLOW_FOLDERS or item.path.name in SLOW_FILES:
            item.add_marker("slow")
        if "server" in getattr(item, "fixturenames", ()):
            item.add_marker("slow")  # a PostgreSQL server is started
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker("browser")
    slow = Counter(item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("browser"))
    items.sort(key=lambda item: (item.get_closest_marker("spark") is None, -slow[item.path]))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """`--dist loadfile`, but all that needs Spark goes to one worker: a second cluster takes a minute to warm up."""
    if config.getoption("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class OneCluster(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return "spark" if "spark" in nodeid else str(super()._split_scope(nodeid))

    config.option.loadscopereorder = False  # as `pytest_collection_modifyitems` has put them
    return OneCluster(config, log)


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
