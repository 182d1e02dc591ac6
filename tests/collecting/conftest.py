"""Engines under test, and Hypothesis made repeatable."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings

from empriv.collecting import DuckDBEngine, Engine

settings.register_profile(
    "collect",
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
settings.load_profile("collect")


@pytest.fixture(params=["duckdb"])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Every engine must pass every test that takes this fixture."""
    engines: dict[str, Engine] = {"duckdb": DuckDBEngine(threads=2)}
    return engines[request.param]
