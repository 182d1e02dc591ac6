"""Random databases drawn from one table: who is in them, and what queries give in them."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import empriv
from brute import check_same_without_each
from empriv.collecting import collect, subsamples
from empriv.collecting.engines.duckdb.session import DuckDBSession

pytestmark = pytest.mark.slow

RNG = np.random.default_rng(5)
ROWS = pd.DataFrame(
    {
        "who": RNG.integers(0, 60, 400),
        "x": np.where(RNG.random(400) < 0.1, np.nan, RNG.lognormal(0, 3, 400)),
        "site": RNG.choice(["a", "b", "c"], 400),
    }
)
NAMES = ROWS.assign(who=[f"p{who}" if who % 7 else None for who in ROWS.who])


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(x), avg(x), stddev(x), median(x), count(DISTINCT site) FROM data",
        "SELECT count(*), min(x), max(x) FROM data WHERE x > 1",
        "SELECT site, sum(x) FROM data GROUP BY site",
        "SELECT sum(d.x * t.price) FROM data d JOIN t ON d.site = t.site",
    ],
)
def test_adding_up_once_gives_what_each_database_gives(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    prices = pd.DataFrame({"site": ["a", "b"], "price": [2.0, 3.5]})
    data = subsamples(NAMES, individual="who", count=7, fraction=0.4, unidentified="keep", tables={"t": prices})
    once = collect(data, query)
    monkeypatch.setattr(DuckDBSession, "drawn", property(lambda _: False))
    check_same_without_each(once, collect(data, query), rtol=1e-12)


def test_results_are_those_of_the_rows_that_were_drawn() -> None:
    data = subsamples(ROWS, individual="who", count=9, fraction=0.5)
    counts = collect(data, "count(*)")
    present = np.array([counts.without(who) != counts.q for who in counts.individuals])
    sums = collect(data, "sum(x)")
    for draw in range(9):
        members = counts.individuals[present[:, draw]]
        chosen = ROWS[ROWS.who.isin(members)]
        assert counts.q[draw] == len(chosen)
        assert sums.q[draw] == pytest.approx(chosen.x.sum(), rel=1e-12)
        for who in members[:3]:
            assert sums.without(who)[draw] == pytest.approx(chosen[chosen.who != who].x.sum(), rel=1e-12)


def test_everybody_is_in_with_the_probability_that_was_asked_for_and_independently() -> None:
    people = pd.DataFrame({"who": np.arange(2_000)})
    results = collect(subsamples(people, individual="who", count=200, fraction=0.3, rng=4), "count(*)")
    present = np.array([results.without(who) != results.q for who in results.individuals], dtype=float)
    by_person, by_database = present.mean(axis=1), present.mean(axis=0)
    # Standard deviations: 0.0324 over 200 databases, 0.01025 over 2,000 people.
    assert abs(by_person.std() - 0.0324) < 0.0025
    assert abs(by_database.std() - 0.01025) < 0.002
    assert abs(present.mean() - 0.3) < 0.003
    # Correlations of two people, and of two databases, spread as those of independent draws do.
    pairs = np.corrcoef(present[:300])[np.triu_indices(300, 1)]
    assert abs(pairs.std() - 200**-0.5) < 0.002
    pairs = np.corrcoef(present.T)[np.triu_indices(200, 1)]
    assert abs(pairs.std() - 2_000**-0.5) < 0.001
    # Nor do three databases conspire: the third moment is that of independent draws.
    centred = (present[:, :60] - 0.3).T
    triples = [
        np.mean(centred[i] * centred[j] * centred[k]) for i in range(20) for j in range(20, 40) for k in range(40, 60)
    ]
    assert abs(np.std(triples) - (0.21**1.5) / 2_000**0.5) < 0.0002


def test_a_database_that_nobody_is_in_is_a_database() -> None:
    rows = pd.DataFrame({"who": ["a", "b"], "x": [1.0, 2.0]})
    results = collect(subsamples(rows, individual="who", count=40, fraction=0.1), "SELECT count(*), sum(x) FROM data")
    assert results.n_databases == 40
    assert (results.q[:, 0] == 0).sum() > 20
    assert set(results.individuals) == {"a", "b"}


def test_a_scan_of_samples_is_their_audit() -> None:
    data = subsamples(ROWS, individual="who", count=30, fraction=0.5)
    query = "sum(coalesce(x, 0))"
    assert empriv.audit(data, query, in_chunks=True).delta(0.1) == empriv.audit(data, query).delta(0.1)


def test_what_samples_hide_is_said_in_summary_verdict_and_decision() -> None:
    data = subsamples(ROWS.fillna(1.0), individual="who", count=60, fraction=0.5)
    audit = empriv.audit(data, "avg(x)")
    verdict = audit.verdict(epsilon=0.1, delta=0.5)
    whole_table = "The answer of the whole table has no chance in it and is not covered"
    assert any(whole_table in note for note in audit.summary().notes)
    assert any("who was sampled is protected, not what the whole table says" in reason for reason in verdict.reasons)
    assert "one random sample, not of the whole table" in audit.decision(verdict).condition
    assert audit.to_json()["source"]["sampled"] is True
