"""Engines under test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from empriv.collecting import DuckDBEngine, Engine
from spark_sessions import start


@pytest.fixture(params=["duckdb"], scope="session")
def engine(request: pytest.FixtureRequest) -> Engine:
    """The engine of tests that need one only."""
    engines: dict[str, Engine] = {"duckdb": DuckDBEngine(threads=2)}
    return engines[request.param]


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session with two executors in processes of their own."""
    session = start(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
