"""What an adversary knows, collected from rows."""

from __future__ import annotations

import numpy as np
import pandas
import pytest

import empriv
from empriv.auditing.knowledge import known_values
from empriv.measuring.given.adversaries import Buckets, OwnContribution, Weighted
from empriv.measuring.given.adversary_risk import measure_against


@pytest.fixture
def rows() -> dict[str, list[float]]:
    rng = np.random.default_rng(4)
    n = 40
    day, who = np.repeat(np.arange(n), 5), np.tile(np.arange(5), n)
    return {"day": day.tolist(), "who": who.tolist(), "amount": rng.exponential(size=5 * n).round(3).tolist()}


@pytest.mark.slow
def test_sql_functions_and_arrays(rows: dict[str, list[float]]) -> None:
    frame = pandas.DataFrame(rows)
    data = empriv.databases(frame, database="day", individual="who")
    results = empriv.collect(data, "sum(amount)")
    largest = frame.groupby("day")["amount"].max().to_numpy()
    one = known_values(Weighted("max(amount)"), data, databases=results.databases)
    np.testing.assert_allclose(one, largest)
    np.testing.assert_allclose(known_values(Buckets(largest), None, databases=results.databases), largest)
    several = known_values(
        Weighted(["max(amount)", lambda rows: float(len(rows["amount"])), largest]), data, databases=results.databases
    )
    np.testing.assert_allclose(several, [largest, np.full(40, 5.0), largest])
    vector = known_values(Weighted("select max(amount) as a, count(*) as b"), data, databases=results.databases)
    np.testing.assert_allclose(vector, [largest, np.full(40, 5.0)])
    assert measure_against(results, Weighted(one)).delta(0.1) > 0
    assert known_values(OwnContribution(), data, databases=results.databases) is None


def test_what_cannot_be_known(rows: dict[str, list[float]]) -> None:
    data = empriv.databases(pandas.DataFrame(rows), database="day", individual="who")
    with pytest.raises(empriv.InputError, match="no rows"):
        known_values(Weighted("max(amount)"), None, databases=np.arange(40))
    with pytest.raises(empriv.InputError, match="got different ones"):
        known_values(Weighted("max(amount)"), data, databases=np.arange(39))
