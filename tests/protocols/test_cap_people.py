"""`cap_people`: what each person adds is capped per person and database, compared with a slow run by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv import protocols
from empriv.comparing.advising import Contributions
from empriv.errors import InputError, QueryError
from empriv.protocols.changed_queries import capped_people_text, sum_and_rows


@pytest.fixture(scope="module")
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    rows = 900
    return pd.DataFrame(
        {
            "day": rng.integers(0, 12, rows),
            "who": np.where(rng.random(rows) < 0.03, None, rng.integers(0, 15, rows).astype(str)),
            "amount": rng.normal(5.0, 20.0, rows).round(2),
        }
    )


@pytest.fixture(scope="module")
def data(frame: pd.DataFrame) -> empriv.Databases:
    return empriv.databases(frame, database="day", individual="who", unidentified="keep")


def by_hand(frame: pd.DataFrame, query: str, at: float) -> dict[tuple[int, str | None], float]:
    """The capped answer of each day, with everyone (None) and without each person, rows of nobody uncapped."""
    out = {}
    for day, rows in frame.groupby("day"):
        for left_out in [None, *rows["who"].dropna().unique()]:
            kept = rows if left_out is None else rows[rows["who"] != left_out]
            nobody, people = kept[kept["who"].isna()], kept[kept["who"].notna()].groupby("who")
            if query == "count(*)":
                answer = float(len(nobody) + people.size().clip(upper=at).sum())
            else:
                total = nobody["amount"].sum() + people["amount"].sum().clip(-at, at).sum()
                answer = float(total / len(kept)) if query == "avg(amount)" else float(total)
            out[int(day), left_out] = answer
    return out


@pytest.mark.slow
@pytest.mark.parametrize(("query", "at"), [("sum(amount)", 30.0), ("count(*)", 4.0), ("avg(amount)", 25.5)])
def test_people_are_capped_as_by_hand(data: empriv.Databases, frame: pd.DataFrame, query: str, at: float) -> None:
    results = protocols.cap_people(query, at=at).collect(data)
    wanted = by_hand(frame, query, at)
    for place, label in enumerate(results.databases.tolist()):
        assert results.q[place] == pytest.approx(wanted[label, None], abs=1e-9)
    for row, who in enumerate(results.individuals.tolist()):
        for entry in range(results.starts[row], results.starts[row + 1]):
            label = int(results.databases[results.entry_database[entry]])
            assert results.entry_q[entry] == pytest.approx(wanted[label, who], abs=1e-9)
    same = empriv.collect(data, capped_people_text(query, ["who"], at))
    np.testing.assert_allclose(same.q, results.q)


@pytest.mark.slow
@pytest.mark.parametrize("query", ["sum(amount)", "count(*)", "sum(amount) FILTER (WHERE amount > 0)"])
def test_nobody_moves_a_capped_sum_or_count_by_more(data: empriv.Databases, query: str) -> None:
    protocol = protocols.cap_people(query, at=3)
    results, plain = protocol.collect(data), empriv.collect(data, query)
    assert protocol.reach == 3.0
    moved, before = (np.nanmax(np.abs(each.q[each.entry_database] - each.entry_q)) for each in (results, plain))
    assert moved <= 3 * (1 + 1e-9)
    assert before > 3  # the cap does something
    # for sums and counts the capped answers follow from the results
    np.testing.assert_allclose(Contributions.of(plain).capped(3.0).q, results.q)
    np.testing.assert_allclose(Contributions.of(plain).capped(3.0).entry_q, results.entry_q)


@pytest.mark.slow
@pytest.mark.parametrize("query", ["avg(amount)", "SELECT avg(amount) FILTER (WHERE amount > 0) AS a FROM data"])
def test_capped_averages_follow_from_sums_and_numbers_of_rows(data: empriv.Databases, query: str) -> None:
    text = sum_and_rows(query)
    assert text is not None
    people = Contributions.of(empriv.collect(data, query), empriv.collect(data, text))
    results = protocols.cap_people(query, at=25.5).collect(data)
    np.testing.assert_allclose(people.capped(25.5).q, results.q)
    np.testing.assert_allclose(people.capped(25.5).entry_q, results.entry_q)
    for other in ("sum(amount)", "avg(DISTINCT amount)", "avg(amount) + 1", "SELECT avg(amount), count(*) FROM data"):
        assert sum_and_rows(other) is None


def test_averages_and_what_follows_declare_no_reach() -> None:
    assert protocols.cap_people("avg(amount)", at=3).reach is None
    assert protocols.rounded(protocols.cap_people("sum(amount)", at=3), to=5).reach is None
    assert protocols.plain("sum(amount)").reach is None


@pytest.mark.parametrize(
    "query",
    ["max(amount)", "count(DISTINCT who)", "SELECT who, sum(amount) FROM data GROUP BY who", "median(amount)"],
)
def test_what_cannot_be_capped_is_refused(data: empriv.Databases, query: str) -> None:
    with pytest.raises(QueryError, match="capped"):
        protocols.cap_people(query, at=3).collect(data)
    with pytest.raises(InputError, match="at"):
        protocols.cap_people(query, at=0)
