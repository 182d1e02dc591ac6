"""A Spark session, the same that other tests of the same process use."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from spark_sessions import start


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    session = start(tmp_path_factory.mktemp("spark"))
    yield session
    session.stop()
