"""What a table looks like, from names, types and counts alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from empriv.collecting.engines.duckdb import DuckDBEngine
from empriv.collecting.looking import TableSeen, look


def seen(**columns: object) -> TableSeen:
    return look(DuckDBEngine(), pd.DataFrame(columns))


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
