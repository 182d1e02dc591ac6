"""Audits that grow: figures are those of a fresh audit, and bounds hold whenever one looks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import empriv
from empriv.auditing.updating import anytime_bounds, error_at_look, with_further_databases
from empriv.collecting.run_query import Run

pytestmark = pytest.mark.slow


def _rows(first: int, last: int) -> dict[str, np.ndarray]:
    """One row for each person and day; another person from day 40 on, and one who leaves."""
    days, people, amounts = [], [], []
    for day in range(first, last):
        rng = np.random.default_rng(day)
        here = [name for name in ["Ada", "Bob", "Eve", "Zoe"] if not (name == "Eve" and day < 40)]
        days += [day] * len(here)
        people += here
        amounts += rng.exponential(20.0, len(here)).tolist()
    return {"day": np.array(days), "who": np.array(people), "amount": np.array(amounts)}


def _data(first: int, last: int) -> empriv.Databases:
    import pyarrow as pa

    return empriv.databases(pa.table(_rows(first, last)), database="day", individual="who")


@pytest.mark.parametrize("known", ["nothing", "calendar"])
def test_an_updated_audit_is_the_fresh_one(known: str) -> None:
    fresh = empriv.audit(_data(0, 50), "sum(amount)", known=known)
    grown = empriv.audit(_data(0, 39), "sum(amount)", known=known)
    for first, last in ((39, 40), (45, 50), (40, 45)):
        grown = with_further_databases(grown, _data(first, last), Run())
    for name in ("databases", "individuals", "starts", "entry_database"):
        assert np.array_equal(getattr(grown.results, name), getattr(fresh.results, name))
    for name in ("q", "entry_q"):
        np.testing.assert_allclose(getattr(grown.results, name), getattr(fresh.results, name), rtol=1e-13)
    for epsilon in (0.0, 0.1, 0.5):
        np.testing.assert_allclose(grown.delta_i(epsilon), fresh.delta_i(epsilon), rtol=0, atol=1e-9)
    assert grown.bounds(0.1).upper == pytest.approx(fresh.bounds(0.1).upper, abs=1e-9)


def test_a_database_that_is_there_is_refused() -> None:
    audit = empriv.audit(_data(0, 40), "sum(amount)", known="nothing")
    with pytest.raises(empriv.InputError, match="further databases"):
        with_further_databases(audit, _data(39, 41), Run())


def test_labels_of_another_type_are_refused() -> None:
    results = empriv.collect(_data(0, 40), "sum(amount)")
    texts = empriv.Results.from_arrays([1.0], [[0.5]], databases=["x"], individuals=["Ada"])
    with pytest.raises(empriv.InputError, match="labels of another type"):
        results.with_databases(texts)


def test_a_function_cannot_be_asked_again() -> None:
    audit = empriv.audit(_data(0, 40), lambda rows: float(np.sum(rows["amount"])), known="nothing")
    with pytest.raises(empriv.InputError, match="its code is not in the audit"):
        with_further_databases(audit, _data(40, 41), Run())


def test_errors_of_all_looks_add_up() -> None:
    assert sum(error_at_look(number, 0.95) for number in range(1, 100_000)) == pytest.approx(0.05, abs=1e-6)


def test_anytime_bounds_are_wider_and_move_at_looks_only() -> None:
    audit = empriv.audit(_data(0, 125), "sum(amount)", known="nothing")
    at_any_time = anytime_bounds(audit, 0.1)
    assert at_any_time.looks == (30, 60, 120)
    assert at_any_time.next_look == 240
    assert at_any_time.lower <= audit.delta(0.1) <= at_any_time.upper
    assert at_any_time.upper > audit.bounds(0.1).upper
    fewer = anytime_bounds(empriv.audit(_data(0, 121), "sum(amount)", known="nothing"), 0.1)
    assert fewer == at_any_time
    none_yet = anytime_bounds(empriv.audit(_data(0, 29), "sum(amount)", known="nothing"), 0.1)
    assert (none_yet.lower, none_yet.upper, none_yet.next_look) == (0.0, 1.0, 30)


def test_an_updated_audit_names_what_was_added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, first in (("year.csv", 0), ("today.csv", 40)):
        rows = [f"{first + day},{who},{rng.normal():.3f}" for day in range(40 if first == 0 else 1) for who in range(5)]
        Path(name).write_text("day,who,x\n" + "\n".join(rows) + "\n")
    data = empriv.databases("year.csv", database="day", individual="who")
    grown = empriv.audit(data, "sum(x)", epsilon=0.1, known="nothing").updated("today.csv")
    assert "(by day in year.csv and today.csv)" in grown.summary().asked
    assert grown.origin is not None
    assert grown.origin.sources == ("year.csv",)  # by which a ledger knows the data
    grown.save("grown.empriv")
    assert empriv.load("grown.empriv").origin == grown.origin


def test_a_table_grows_by_cells_that_come_and_keeps_those_that_went() -> None:
    table = (
        "SELECT CASE WHEN who = 'Eve' THEN 'late' WHEN who = 'Ada' AND day < 39 THEN 'early' ELSE 'others' END AS kind,"
        " sum(amount) AS spent FROM data GROUP BY kind"
    )
    fresh = empriv.audit(_data(0, 50), table, known="nothing")
    grown = empriv.audit(_data(0, 39), table, known="nothing")
    assert grown.results.components == ("early", "others")
    grown = with_further_databases(grown, _data(39, 50), Run())
    assert grown.results.components == ("early", "others", "late")
    in_order = grown.results.select(fresh.results.components or ())
    np.testing.assert_array_equal(in_order.outcomes, fresh.results.outcomes)
    np.testing.assert_array_equal(in_order.entry_outcomes, fresh.results.entry_outcomes)
    np.testing.assert_allclose(in_order.entry_q, fresh.results.entry_q, rtol=1e-13)
