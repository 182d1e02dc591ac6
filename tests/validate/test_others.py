"""People who come when the others do much: the cover takes the others to be as on any day, and a check objects."""

from __future__ import annotations

import numpy as np
import pytest

import empriv
from empriv.results import Results
from empriv.validate.verdict import verdict


def results_of(others: np.ndarray, days: np.ndarray, move: float) -> Results:
    """One person, who adds ``move`` on these days."""
    q = others.copy()
    q[days] += move
    codes = np.zeros(len(q), np.int8)
    return Results(
        q=q, outcomes=codes, databases=np.arange(len(q)), individuals=np.array(["a"]),
        starts=np.array([0, len(days)]), entry_database=days.astype(np.int32), entry_q=others[days],
        entry_outcomes=codes[days],
    )  # fmt: skip


def severity(results: Results) -> str:
    found = [check for check in empriv.audit(results, known="nothing", epsilon=0.1).checks if check.code == "others"]
    return found[0].severity


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.1, 0.3])
def test_who_comes_on_the_highest_days_is_not_passed(share: float) -> None:
    for seed in range(5):
        others = np.random.default_rng(seed).normal(size=365)
        days = np.flatnonzero(others >= np.quantile(others, 1 - share))
        results = results_of(others, days, 0.1)  # by the law of any day that is little
        assert severity(results) == "error"
        assert verdict(empriv.measure(results), epsilon=1.0, delta=0.1) != "pass"


def test_who_comes_on_any_day_is_not_objected_to() -> None:
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        found.append(severity(results_of(rng.normal(size=100), np.flatnonzero(rng.random(100) < 0.3), 0.1)))
    assert found.count("error") <= 3  # 1% of them by chance: more than 3 of 60 happen in 0.3% of such tests
    assert found.count("info") >= 50
