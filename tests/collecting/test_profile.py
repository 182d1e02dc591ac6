"""What a table looks like, from names, types and counts alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from empriv.collecting.engines.duckdb import DuckDBEngine
from empriv.collecting.profile import TableProfile, profile


def seen(**columns: object) -> TableProfile:
    return profile(DuckDBEngine(), pd.DataFrame(columns))


N = np.arange(400)


def test_a_shop() -> None:
    table = seen(
        transaction=N,
        t=pd.to_datetime("2026-01-01 08:00") + pd.to_timedelta(N * 7, "h"),
        client_id=N % 37,
        amount=N / 7,
        site=np.where(N % 2, "a", "b"),
    )
    assert table.individuals == ("client_id",)
    assert table.databases == (("date_trunc('day', t)", 117), ("date_trunc('week', t)", 18))
    assert table.amounts == ("amount",)
    assert "transaction" in table.row_numbers


def test_days_as_text_are_days() -> None:
    table = seen(day=[f"2026-{1 + n % 12:02}-{1 + n % 28:02}" for n in N], patientName=[f"p{n % 50}" for n in N])
    assert table.databases[0] == ("day", 84)
    assert table.individuals == ("patientName",)
    assert table.amounts == ()


@pytest.mark.parametrize("name", ["my day", 'a "b"', "Größe", "<b>t</b>"])
def test_awkward_names_are_quoted(name: str) -> None:
    table = seen(**{name: pd.to_datetime("2026-01-01 01:00") + pd.to_timedelta(N, "h"), "who": N % 9})
    escaped = name.replace('"', '""')
    assert table.databases[0][0] == f"date_trunc('day', \"{escaped}\")"


def test_a_number_of_each_row_is_suspicious_and_nobody_may_be_found() -> None:
    table = seen(customer_id=N, x=N * 0.5)
    assert table.individuals == ("customer_id",) == table.row_numbers
    assert table.databases == ()
    assert seen(x=N * 0.5).individuals == ()


def test_columns_of_nothing_are_nothing() -> None:
    table = seen(who=[None] * 5, x=[np.nan] * 5, t=pd.Series([pd.NaT] * 5))
    assert table.individuals == ()
    assert table.databases == ()
    assert table.rows == 5


def test_dates_that_are_text_may_still_be_databases() -> None:
    table = seen(who=["a", "b"] * 40, date=[f"week {k // 2} of 24" for k in range(80)], x=[1.5] * 80)
    assert table.databases == (("date", 40),)


def test_receipts_that_now_and_then_go_on_after_midnight_are_not_taken_for_people() -> None:
    rng = np.random.default_rng(0)
    receipt = np.repeat(np.arange(4000), 3)
    day = receipt // 40 + (np.tile([0, 0, 1], 4000) * (receipt % 20 == 0))  # one in twenty is in two databases
    days = np.datetime64("2024-01-01") + day
    household = np.repeat(rng.integers(0, 300, 4000), 3)
    table = seen(basket_id=receipt, household=household, day=days, amount=rng.random(12_000))
    assert table.individuals[:2] == ("household", "basket_id")


def test_receipts_of_two_days_are_not_taken_for_people() -> None:
    """A basket of which every second goes on the next day is in 1.5 databases, a household in many."""
    rng = np.random.default_rng(1)
    basket = np.repeat(np.arange(3000), 2)
    day = basket % 365 + np.tile([0, 1], 3000) * (basket % 2)
    table = seen(
        basket_id=basket, household_id=basket % 300, day=np.datetime64("2024-01-01") + day, amount=rng.random(6000)
    )
    assert table.individuals[:2] == ("household_id", "basket_id")
    each_in = {column.name: column.each_in for column in table.details}
    assert each_in["basket_id"] == 1.5
    assert each_in["household_id"] > 10
    patients = seen(
        patient_id=basket // 3, ward_id=basket % 20, day=np.datetime64("2024-01-01") + day, cost=rng.random(6000)
    )
    assert patients.individuals[0] == "patient_id"  # who is rarely there is still a person, whatever wards have


def test_a_large_table_is_estimated_where_nothing_hangs_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = {"client_id": N % 37, "day": [f"2026-01-{1 + n % 28:02}" for n in N], "x": N / 7, "row": N, "note": "a"}
    exact = seen(**columns)
    monkeypatch.setattr("empriv.collecting.profile._MOST_COUNTED", 10)
    quick = seen(**columns)
    assert [column.name for column in quick.details if column.about] == ["x", "note"]
    for name in ("rows", "individuals", "databases", "amounts", "row_numbers"):
        assert getattr(quick, name) == getattr(exact, name)
    for column, other in zip(quick.details, exact.details, strict=True):
        assert column.different == pytest.approx(other.different, rel=0.2)
        assert column.about or column == other
