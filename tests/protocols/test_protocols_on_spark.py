"""Protocols whose rows are on Spark give the same as with DuckDB."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import empriv
from empriv import protocols
from spark_sessions import JAVA, QUIET, SPARK

pytestmark = [JAVA, SPARK, QUIET]


def test_people_are_capped_on_spark(spark: Any) -> None:
    rng = np.random.default_rng(0)
    rows = pd.DataFrame(
        {"day": rng.integers(0, 4, 60), "who": rng.integers(0, 7, 60), "amount": rng.gamma(2.0, 100.0, 60)}
    )
    there = empriv.databases(spark.createDataFrame(rows), database="day", individual="who")
    here = empriv.databases(rows, database="day", individual="who")
    protocol = protocols.rounded(protocols.cap_people("sum(amount) FILTER (WHERE amount > 150)", at=300), to=2)
    engine = empriv.SparkEngine(spark)  # or so few rows would be read here
    found, expected = protocol.collect(there, engine=engine), protocol.collect(here)
    for name in ("q", "outcomes", "databases", "individuals", "entry_q", "entry_outcomes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    uncapped = protocols.rounded("sum(amount) FILTER (WHERE amount > 150)", to=2).collect(here)
    assert (uncapped.q > expected.q).any()
