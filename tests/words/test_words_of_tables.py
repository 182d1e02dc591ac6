"""Tables in words: which cells expose people, what follows from others, and long lists kept short."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.auditing.summary import (
    NamedAtom,
    Outcomes,
    leak_sentences,
    numbers_that_follow,
    outcome_sentences,
    riskiest_of,
)
from empriv.measuring.tables.leaks import combination
from empriv.measuring.tables.table_risk import TableRisk
from empriv.words.sentences import cells_that_follow, many_outcomes, more_leaks


@pytest.fixture(scope="module")
def audit() -> empriv.Audit:
    """Counts by ward and age beside those by ward, of people who come one week in four."""
    rng = np.random.default_rng(3)
    people = pd.DataFrame({"ward": rng.choice(["A", "B"], 120), "age": rng.choice(["0-39", "40+"], 120)})
    week, patient = np.nonzero(rng.random((40, 120)) < 0.25)
    rows = pd.DataFrame({"week": week, "patient": patient}).join(people, on="patient")
    data = empriv.databases(rows, database="week", individual="patient")
    queries = ["SELECT ward, age, count(*) AS n FROM data GROUP BY ward, age",
               "SELECT ward, count(*) AS n FROM data GROUP BY ward"]  # fmt: skip
    return empriv.audit(empriv.collect(data, queries), epsilon=0.1, known="nothing")


@pytest.mark.slow
def test_the_riskiest_cells_and_the_margins_are_named_as_people_say_them(audit: empriv.Audit) -> None:
    said = audit.summary().text
    assert isinstance(audit.risk, TableRisk)
    assert numbers_that_follow(audit.risk) == 2
    cells = riskiest_of(audit.risk, 0.1)
    name, delta, count = cells[0]
    assert delta == max(cell[1] for cell in cells)
    assert count > 1
    assert name.startswith("ward ")
    assert f"The riskiest cells, given all others (the largest delta_i, and how many they expose): {name}: " in said
    assert "2 of the 6 numbers follow from the others, as a total does from its cells: they add nothing" in said
    assert "SELECT" not in said


def test_few_are_listed_and_the_rest_counted() -> None:
    def outcomes(atoms: int, leaks: int) -> Outcomes:
        listed = [NamedAtom(f"cell {k}", 0.1 + k / 100, 3, leaks, 0.01 * k * leaks) for k in range(atoms)]
        return Outcomes({}, 40, {}, 40, tuple(listed))

    assert len(outcome_sentences(outcomes(4, 0))) == 4
    (counted,) = outcome_sentences(outcomes(9, 0))
    assert counted.startswith("9 outcomes are point masses, compared by counts; the most frequent is cell 8")
    alarms = leak_sentences(outcomes(9, 1))
    assert len(alarms) == 5
    assert "cell 8" in alarms[0]  # the largest share first
    assert alarms[-1] == "EXACT LEAK: 5 more, each of up to 1 individual, in up to 4% of databases."
    assert len(leak_sentences(outcomes(4, 1))) == 4


def test_sentences() -> None:
    assert cells_that_follow(1, 13).startswith("One of the 13 numbers follows from the others")
    assert cells_that_follow(1, 13).endswith("it is the total minus the other cells.")
    assert "Up to 7 individuals" in many_outcomes([("a", 0.5, 2), ("b", 0.1, 7)])
    assert more_leaks([(2, 0.25)]) == "EXACT LEAK: 1 more of up to 2 individuals, in up to 25% of databases."


@pytest.mark.parametrize(
    ("weights", "names", "words"),
    [
        ([1, -1], ["total", "rest"], "total minus rest"),
        ([1, -1, -1, -1], ["total", "a", "b", "c"], "total minus a minus b minus c"),
        ([-1, -1, -1, -1, 1], ["a", "b", "c", "d", "total"], "total minus the other 4 cells (a, b, ...)"),
        ([1, 0, -1, -1, -1, -1], ["total", "z", "a", "b", "c", "d"], "total minus 4 cells (a, b, ...)"),
        ([2, -1], ["a", "b"], "a minus 0.5 b"),
        ([0, 0], ["a", "b"], "nothing"),
    ],
)
def test_a_combination_of_many_cells_is_counted(weights: list[float], names: list[str], words: str) -> None:
    assert combination(weights, names) == words
