"""The first hour with data of many shapes: from `init` to `compare`, no step contradicts another, and whatever a
command suggests runs (`first_hour.py`).

Each panel has vices that real data have. `benchmarks/first_hours.py` does the same with real tables.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.measuring.given.given_risk import GivenRisk, bends
from first_hour import Panel, first_hour

pytestmark = pytest.mark.slow


def days(count: int, first: date = date(2025, 1, 6)) -> list[date]:
    return [first + timedelta(days=k) for k in range(count)]


def visits(rng: np.random.Generator, n: int, people: int, share: float) -> tuple[list[int], list[int]]:
    """Who is there on which day, as two columns."""
    there = rng.random((n, people)) < share
    day, who = np.nonzero(there)
    return day.tolist(), who.tolist()


def flights() -> Panel:
    rows = pd.read_parquet(empriv.datasets.flights())
    first = sorted(rows["date"].unique())[:90]
    return Panel(rows[rows["date"].isin(first)], "date", "aircraft", "avg(delay)", "0.25")


def once_only() -> Panel:
    """Everyone is in one database only."""
    rng, n = np.random.default_rng(1), 60
    counts = rng.poisson(15, n)
    day = np.repeat(np.arange(n), counts)
    rows = {"day": [days(n)[k] for k in day], "visitor": [f"v{k}" for k in range(len(day))]}
    return Panel(pd.DataFrame(rows), "day", "visitor", "count(*)", "1")


def thousand() -> Panel:
    """A thousand databases, of one or two people each."""
    rng, n = np.random.default_rng(2), 1_000
    day = np.repeat(np.arange(n), rng.integers(1, 3, n))
    rows = {"batch": day, "worker": rng.integers(0, 40, len(day)), "minutes": np.round(rng.gamma(3.0, 10.0, len(day)))}
    return Panel(pd.DataFrame(rows), "batch", "worker", "sum(minutes)", "1")


def one_person_days() -> Panel:
    """Some days have one person, whose average it is."""
    rng, n = np.random.default_rng(3), 50
    day, who = visits(rng, n, 30, 0.3)
    alone = {3, 17}
    kept = [(d, w) for d, w in zip(day, who, strict=True) if d not in alone]
    kept += [(d, 7) for d in alone]
    rows = {"day": [days(n)[d] for d, _ in kept], "patient": [w for _, w in kept]}
    return Panel(pd.DataFrame(rows).assign(score=rng.normal(50, 8, len(kept))), "day", "patient", "avg(score)", "0.01")


def nulls() -> Panel:
    """Amounts that are missing, rows that are nobody's, and the same rows twice."""
    rng, n = np.random.default_rng(4), 50
    day, who = visits(rng, n, 25, 0.4)
    rows = pd.DataFrame({"day": [days(n)[k] for k in day], "client": pd.array(who, "Int64")})
    rows["amount"] = np.where(rng.random(len(rows)) < 0.2, np.nan, np.round(rng.gamma(2.0, 20.0, len(rows)), 2))
    return Panel(pd.concat([rows, rows.iloc[::7]]), "day", "client", "sum(amount)", "0.01")


def float_ids() -> Panel:
    """Identifiers such as 17850.0, and returns as negative amounts."""
    rng, n = np.random.default_rng(5), 60
    day, who = visits(rng, n, 40, 0.3)
    amount = np.round(rng.gamma(2.0, 20.0, len(day)), 2) * np.where(rng.random(len(day)) < 0.1, -1, 1)
    rows = {"day": [days(n)[k] for k in day], "customer": 17_850.0 + np.array(who), "amount": amount}
    return Panel(pd.DataFrame(rows), "day", "customer", "sum(amount)", "0.01")


def clock_changes() -> Panel:
    """Timestamps over the night in which clocks change, in days of 23 and 25 hours elsewhere."""
    rng, n = np.random.default_rng(6), 45
    day, who = visits(rng, n, 40, 0.4)
    begin = datetime(2025, 3, 1, tzinfo=UTC)
    at = [begin + timedelta(days=d, hours=float(h)) for d, h in zip(day, rng.uniform(0, 24, len(day)), strict=True)]
    rows = {
        "measured": pd.to_datetime(at).tz_localize(None),
        "meter": who,
        "kwh": np.round(rng.gamma(4.0, 2.0, len(day)), 1),
    }
    return Panel(pd.DataFrame(rows), "measured::date", "meter", "sum(kwh)", "0.1")


def partial_week() -> Panel:
    """Weeks, of which the last has two days."""
    rng, n = np.random.default_rng(7), 7 * 40 + 2
    day, who = visits(rng, n, 20, 0.2)
    rows = {"day": [days(n)[k] for k in day], "card": who, "paid": np.round(rng.gamma(2.0, 15.0, len(day)), 2)}
    return Panel(pd.DataFrame(rows), "date_trunc('week', day)", "card", "sum(paid)", "0.01")


def thousandths() -> Panel:
    """Prices with three decimals, which one person alone has."""
    rng, n = np.random.default_rng(8), 60
    day, who = visits(rng, n, 30, 0.4)
    price = np.round(rng.gamma(2.0, 20.0, len(day)), 2) + np.where(np.array(who) == 5, 0.001, 0.0)
    rows = {"day": [days(n)[k] for k in day], "buyer": who, "price": price}
    return Panel(pd.DataFrame(rows), "day", "buyer", "sum(price)", "0.01")


def few() -> Panel:
    """Twelve databases."""
    rng, n = np.random.default_rng(9), 12
    day, who = visits(rng, n, 60, 0.5)
    rows = {"month": [f"2025-{k + 1:02d}" for k in day], "member": who, "hours": rng.integers(1, 9, len(day))}
    return Panel(pd.DataFrame(rows), "month", "member", "sum(hours)", "1")


def calm() -> Panel:
    """A crowd in which nobody matters."""
    rng, n = np.random.default_rng(10), 200
    counts = rng.poisson(300, n)
    day = np.repeat(np.arange(n), counts)
    rows = {
        "day": np.repeat(np.array(days(n), dtype="datetime64[D]"), counts),
        "visitor": rng.integers(0, 1_300, len(day)),
    }
    return Panel(pd.DataFrame(rows), "day", "visitor", "count(DISTINCT visitor)", "1")


PANELS = (
    flights, once_only, thousand, one_person_days, nulls, float_ids, clock_changes, partial_week, thousandths, few,
    calm,
)  # fmt: skip


@pytest.mark.parametrize("make", PANELS, ids=lambda make: make.__name__)
def test_the_first_hour(make: Callable[[], Panel], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first_hour(make())


def test_growth_that_slows_is_known_and_is_no_objection() -> None:
    """A service whose users come more and more, and then no longer more; each of those counted comes once."""
    n = 260
    growth = np.sqrt(np.linspace(0.04, 1, n))
    q = np.random.default_rng(11).poisson(900 * growth).astype(float)
    results = empriv.Results.from_arrays(q, q - np.eye(n), databases=np.array(days(n), dtype="datetime64[D]"))
    audit = empriv.audit(results, epsilon=0.5)
    assert audit.verdict(epsilon=0.5, delta=0.05) == "pass"
    assert not [check for check in audit.checks if check.severity == "error"]
    assert isinstance(audit.against, GivenRisk)
    assert bends(audit.against.residuals.fit.terms)
