"""Engines under test."""

from __future__ import annotations

import pytest

from empriv.collecting import DuckDBEngine, Engine


@pytest.fixture(params=["duckdb"], scope="session")
def engine(request: pytest.FixtureRequest) -> Engine:
    """The engine of tests that need one only."""
    engines: dict[str, Engine] = {"duckdb": DuckDBEngine(threads=2)}
    return engines[request.param]
