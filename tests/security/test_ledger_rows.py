"""Attacks on what the ledger knows of rows, and beside each the honest neighbour that is released.

The same rows by other labels, cuts, files, zones and dates; other words for the same question; dates of one's own
choice; idle releases.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import empriv
from empriv.base.row_sketches import MOST, RowSketch, shares_rows
from empriv.cli.main import main
from empriv.collecting.origins import describe
from empriv.errors import RefusalError
from empriv.ledger import Content, Figures, Policy, Prices, Release, ReleaseEntry, identity_of
from empriv.ledger.limits import Plans

DAYS, PEOPLE, DAY = 30, 8, 3
SUM = "sum(x)"


def table() -> pd.DataFrame:
    """A value for each person and day; the largest, on the first day, sets the noise."""
    values = np.random.default_rng(7).lognormal(0.0, 0.3, (DAYS, PEOPLE)).round(2)
    values[0, 0] = 9.0
    moments = np.repeat(pd.date_range("2025-03-01", periods=DAYS), PEOPLE) + pd.to_timedelta(
        np.tile(np.arange(PEOPLE) * 3, DAYS), "h"
    )
    return pd.DataFrame({"moment": moments, "who": np.tile(np.arange(PEOPLE), DAYS), "x": values.ravel()}).assign(
        day=lambda rows: rows["moment"].dt.floor("D")
    )


@cache
def audited_table(query: str = SUM, database: str = "day") -> Any:
    """The audit of the table as it is, made once."""
    return audited(table(), query, database)


def audited(data: Any, query: Any = SUM, database: str | None = "day", **more: Any) -> Any:
    options = {name: more.pop(name) for name in ("scope", "ledger") if name in more}
    given = data if isinstance(data, empriv.Databases) else empriv.databases(
        data, database=database, individual=more.pop("individual", "who"), **more
    )  # fmt: skip
    return empriv.audit(given, query, known="nothing", **options)


@cache
def noise_of(audit: Any) -> Any:
    return empriv.design_noise(audit.alone, epsilon=1.0, delta=0.0, method="classical", granularity=2.0**-6)


def release(ledger: Any, audit: Any, place: int = DAY) -> Any:
    own, noise = audit.alone, noise_of(audit)
    label = own.results.databases[place].item()
    return audit.release(float(own.results.q[place]), noise=noise, ledger=ledger, database=label)


@pytest.fixture
def ledger(tmp_path: Path) -> Any:
    """No limit at all: whatever is drawn twice shows."""
    return empriv.Ledger(tmp_path / "a.ledger")


@pytest.fixture
def limited(tmp_path: Path) -> Any:
    return empriv.Ledger(tmp_path / "b.ledger", policy=Policy(epsilon=1.0, delta=0.9, window=5))


def drawn(ledger: Any) -> list[ReleaseEntry]:
    return [entry for entry in ledger.entries() if isinstance(entry, ReleaseEntry)]


@pytest.mark.parametrize(
    "cut",
    [
        "day + INTERVAL 400 DAY", "day - INTERVAL (800) DAY", "'ward ' || strftime(day, '%j')", "dayofyear(day)",
        "moment::DATE", "CAST(strftime(day, '%d') AS INTEGER) * -1",
    ],
)  # fmt: skip
def test_the_same_rows_by_another_cut(ledger: Any, cut: str) -> None:
    first = release(ledger, audited_table())
    other = audited_table(database=cut)
    wanted = audited_table().results.q
    same = int(np.abs(other.results.q - wanted[DAY]).argmin())
    again = release(ledger, other, same)
    assert (again.repeated, again.answer) == (True, first.answer)
    neighbour = int(np.abs(other.results.q - wanted[DAY + 1]).argmin())
    assert not release(ledger, other, neighbour).repeated  # a genuinely new day
    assert len(drawn(ledger)) == 2


def _shuffled(rows: pd.DataFrame, _: Path) -> Any:
    return rows.sample(frac=1.0, random_state=1)


def _other_columns(rows: pd.DataFrame, _: Path) -> Any:
    return rows[["x", "day", "who", "moment"]]


def _copied_as_csv(rows: pd.DataFrame, folder: Path) -> Any:
    rows.to_csv(folder / "copy.csv", index=False)
    return str(folder / "copy.csv")


def _copied_as_parquet(rows: pd.DataFrame, folder: Path) -> Any:
    rows.astype({"who": "int16"}).to_parquet(folder / "copy.parquet")
    return str(folder / "copy.parquet")


def _in_a_zone(rows: pd.DataFrame, _: Path) -> Any:
    return rows.assign(moment=rows["moment"].dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo"))


@pytest.mark.parametrize("change", [_shuffled, _other_columns, _copied_as_csv, _copied_as_parquet, _in_a_zone])
def test_the_same_rows_from_another_place(ledger: Any, tmp_path: Path, change: Any) -> None:
    first = release(ledger, audited_table())
    again = release(ledger, audited(change(table(), tmp_path), database="day - INTERVAL 365 DAY"))
    assert (again.repeated, again.answer) == (True, first.answer)
    assert not release(ledger, audited(change(table(), tmp_path)), DAY + 1).repeated
    assert len({entry.rows for entry in drawn(ledger)}) == 2


@cache
def with_halves() -> Any:
    """The table with days cut in halves, and its audit by days."""
    rows = table().assign(day_of_half=lambda rows: rows["day"].dt.day_of_year * 2 + (rows["who"] > 3))
    return rows, audited(rows)


def _one_less(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.drop(index=DAY * PEOPLE + 5)


def _one_more(rows: pd.DataFrame) -> pd.DataFrame:
    return pd.concat([rows, rows.iloc[[DAY * PEOPLE + 5]].assign(x=1.5)])


@pytest.mark.parametrize(
    ("change", "cut", "place"),
    [
        (_one_less, "day + INTERVAL 400 DAY", DAY),
        (_one_more, "day + INTERVAL 400 DAY", DAY),
        (lambda rows: rows, "date_trunc('week', day) + INTERVAL 700 DAY", 1),
        (lambda rows: rows, "day_of_half", 2 * DAY),
        (lambda rows: rows, "CAST(moment + INTERVAL 6 HOUR AS DATE)", DAY),
        (lambda rows: rows[rows["who"] > 2], "day + INTERVAL 400 DAY", DAY),
    ],
)
def test_databases_that_share_rows_must_be_measured_together(limited: Any, change: Any, cut: str, place: int) -> None:
    rows, first = with_halves()
    release(limited, first)
    with pytest.raises(RefusalError, match=r"no joint figures|It cannot be told|must not be released"):
        release(limited, audited(change(rows), database=cut), place)
    assert len(drawn(limited)) == 1
    assert not release(limited, first, DAY + 1).repeated
    assert limited.verify().intact


def test_measured_together_they_are_released(limited: Any) -> None:
    first = release(limited, audited_table())
    again = audited(table(), "max(x)", "day + INTERVAL 400 DAY", ledger=limited)
    assert again.composition is not None
    assert first.entry.id in again.composition.entries
    limited.change_policy(Policy(epsilon=1.0, delta=1.0, window=5))
    done = release(limited, again)
    assert done.entry.joint is not None


@pytest.mark.parametrize(
    "query", ["sum(x) + 7 - 7", "avg(x) * count(*)", "SELECT sum(y) FROM (SELECT x AS y FROM data)"]
)
def test_the_same_question_in_other_words(ledger: Any, query: str) -> None:
    first = release(ledger, audited_table())
    again = release(ledger, audited_table(query, "day + INTERVAL 400 DAY"))
    assert (again.repeated, again.answer) == (True, first.answer)
    assert len(drawn(ledger)) == 1


@pytest.mark.parametrize("query", ["sum(x) + 5", "2 * sum(x)", "-sum(x)", "3 - sum(x) / 4"])
def test_the_same_question_shifted_or_scaled(ledger: Any, query: str) -> None:
    entry = release(ledger, audited_table()).entry
    with pytest.raises(RefusalError, match=f"Entry {entry.id} is of the same rows and of the same question"):
        release(ledger, audited_table(query, "day + INTERVAL 400 DAY"))
    assert len(drawn(ledger)) == 1
    assert not release(ledger, audited_table(query), DAY + 1).repeated  # of another day it is another answer
    assert not release(ledger, audited_table("max(x)")).repeated  # and another question is one


def test_dates_that_were_changed_in_a_copy(ledger: Any) -> None:
    """Other values make other rows; that everybody changes the answer just as before shows them all the same."""
    first = release(ledger, audited_table())
    moved = table().assign(day=lambda rows: rows["day"] - pd.Timedelta(days=500), note="a copy")
    again = release(ledger, audited(moved))
    assert (again.repeated, again.answer) == (True, first.answer)
    assert not release(ledger, audited(moved), DAY + 1).repeated


def test_two_analysts_who_audit_the_same_rows(limited: Any, tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "ann.parquet")
    table().assign(who=lambda rows: rows["who"]).to_csv(tmp_path / "bob.csv", index=False)
    ann = release(limited, audited(str(tmp_path / "ann.parquet"), scope="ann"))
    bob = release(limited, audited(str(tmp_path / "bob.csv"), scope="bob"))
    assert (bob.repeated, bob.answer) == (True, ann.answer)
    with pytest.raises(RefusalError, match="no joint figures"):
        release(limited, audited(str(tmp_path / "bob.csv"), "max(x)", scope="bob"))
    assert not release(limited, audited(str(tmp_path / "bob.csv"), scope="bob"), DAY + 1).repeated


def test_a_source_that_computes_is_told_apart_from_none_but_itself(limited: Any, tmp_path: Path) -> None:
    table().to_parquet(tmp_path / "t.parquet")
    release(limited, audited(str(tmp_path / "t.parquet")))

    tables = {"t": str(tmp_path / "t.parquet")}
    sql = "SELECT day - INTERVAL 500 DAY AS day, who, x + 1e-9 * who AS x, 1 AS k FROM t"
    data = empriv.databases(sql, database="day", individual="who", tables=tables)
    assert (describe(data).computed, describe(data).dated) == (True, False)
    with pytest.raises(RefusalError, match="no joint figures"):
        release(limited, audited(data, "max(x)"))


@pytest.mark.parametrize(
    ("database", "dated"),
    [
        ("day", True), ("moment::DATE", True), ("date_trunc('month', moment)", True), ('"day"', True),
        ("day + INTERVAL 400 DAY", False), ("CASE WHEN who = 7 THEN day END", False), ("strptime('2020', '%Y')", False),
        ("timezone('Asia/Tokyo', moment)", False), ("DATE '2020-01-01'", False),
    ],
)  # fmt: skip
def test_which_dates_are_the_datas_own(database: str, dated: bool) -> None:
    assert describe(empriv.databases(table(), database=database, individual="who")).dated is dated


def test_files_that_are_databases_have_names_of_anybodys_choice(tmp_path: Path) -> None:
    for day in ("2020-01-01", "2021-06-01"):
        table().to_parquet(tmp_path / f"{day}.parquet")
    paths = sorted(map(str, tmp_path.glob("*.parquet")))
    assert not describe(empriv.databases(paths, individual="who")).dated


# Windows, by releases without rows of their own: what counts is price, date, and when.

SQUARE = 0.02
TODAY = datetime.now(UTC).date()


def priced(day: Any, square: float = SQUARE, query: str = "sum(x)", **more: Any) -> Release:
    prices = Prices(["Ada", "Bob"], np.array([square, square / 2]), np.zeros(2))
    facts: dict[str, Any] = {
        "identity": identity_of([day]), "database": day, "query": query, "method": "robust", "law": {"scale": 1.0},
        "asked": Figures(1.0, 0.01), "achieved": Figures(1.0, 0.0), "n_individuals": 2, "prices": prices,
        "plan": f"plan {square}", **more,
    }  # fmt: skip
    return Release(**facts)


def windowed(tmp_path: Path, window: str | int, fits: int) -> Any:
    """A ledger in which so many releases at the full price fit in a window."""
    full = Plans(np.array([[SQUARE]]), np.zeros((1, 1))).figures(np.array([float(fits)]), 1.0)
    assert full.delta is not None
    return empriv.Ledger(tmp_path / "w.ledger", policy=Policy(epsilon=1.0, delta=full.delta + 1e-12, window=window))


def test_dates_of_ones_own_choice_do_not_leave_the_window(tmp_path: Path) -> None:
    """06a with other rows each time: the labels are 400 days apart, and the releases minutes."""
    ledger = windowed(tmp_path, "365d", 3)
    days = [str(TODAY - timedelta(days=400 * k)) for k in range(40)]
    done = refused = 0
    for day in days:
        try:
            ledger.release(priced(day, dated=False), lambda: 1.0)
            done += 1
        except RefusalError:
            refused += 1
    assert (done, refused) == (3, 37)
    assert ledger.left().more == 0
    with pytest.raises(RefusalError):  # nor do they make room for dates that are the data's own
        ledger.release(priced("2015-01-01"), lambda: 1.0)


def test_days_of_the_datas_own_are_released_at_their_price(tmp_path: Path) -> None:
    ledger = windowed(tmp_path, "365d", 3)
    days = [str(TODAY - timedelta(days=400 * k)) for k in range(20)]
    assert [ledger.release(priced(day), lambda: 1.0).repeated for day in days] == [False] * 20
    assert ledger.release(priced(days[0], dated=False, query="sum(y)", identity=identity_of(["2020-02-02"]),
                                 database="2020-02-02"), lambda: 1.0).entry.day is None  # fmt: skip


def test_undated_releases_leave_the_window_with_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from empriv.ledger import limits

    ledger = windowed(tmp_path, "30d", 1)
    ledger.release(priced("2020-01-01", dated=False), lambda: 1.0)
    with pytest.raises(RefusalError):
        ledger.release(priced("2021-01-01", dated=False), lambda: 1.0)
    later = TODAY.toordinal() + 31
    monkeypatch.setattr(limits, "today", lambda: later)
    ledger.release(priced("2021-01-01", dated=False), lambda: 1.0)


@pytest.mark.parametrize("ahead", [2, 400, 16000])
def test_days_to_come_are_refused(tmp_path: Path, ahead: int) -> None:
    ledger = windowed(tmp_path, "365d", 3)
    with pytest.raises(RefusalError, match="dated after today"):
        ledger.release(priced(str(TODAY + timedelta(days=ahead))), lambda: 1.0)
    ledger.release(priced(str(TODAY)), lambda: 1.0)


@pytest.mark.parametrize("cheap", [0.0, 1e-12, SQUARE / 50])
def test_idle_releases_push_none_out(tmp_path: Path, cheap: float) -> None:
    """06b: a window of 5 releases in which 3 at the full price fit, and idle ones between."""
    ledger = windowed(tmp_path, 5, 3)
    done = refused = 0
    for number in range(12):
        try:
            ledger.release(priced(1000 * number), lambda: 1.0)
            done += 1
        except RefusalError:
            refused += 1
        for idle in range(5):
            ledger.release(priced(1000 * number + idle + 1, cheap, "0 * count(*)"), lambda: 1.0)
    assert done == (3 if cheap <= 1e-12 else 2)
    assert refused == 12 - done


def test_releases_at_a_fair_price_go_on_as_before(tmp_path: Path) -> None:
    ledger = windowed(tmp_path, 5, 5)
    for number in range(30):
        ledger.release(priced(number, SQUARE if number % 2 else SQUARE / 3), lambda: 1.0)
    assert ledger.left().more is None


# The sketch itself.


def sketched(digests: Any, reach: float = 1.0) -> RowSketch:
    return RowSketch("k", np.sort(np.asarray(digests, np.uint64)), reach)


def of_rows(rows: np.ndarray[Any, Any]) -> RowSketch:
    own = np.sort(rows)
    return sketched(own, 1.0) if len(own) < MOST else sketched(own[:MOST], float(own[MOST - 1]) / 2.0**64)


@pytest.mark.parametrize(("share", "same"), [(1.0, True), (0.5, True), (0.25, True), (0.02, False), (0.0, False)])
@pytest.mark.parametrize(("small", "large"), [(50, 60), (100, 5_000), (3_000, 3_000), (2_000, 20_000)])
def test_sketches_tell_how_much_is_shared(share: float, same: bool, small: int, large: int) -> None:
    rng = np.random.default_rng(3)
    for _ in range(8):
        ours = rng.integers(0, 2**64, small, np.uint64)
        theirs = np.concatenate(
            (ours[: int(share * small)], rng.integers(0, 2**64, large - int(share * small), np.uint64))
        )
        one, other = of_rows(ours), of_rows(theirs)
        for left, right in ((one, other), (other, one)):
            shared = len(np.intersect1d(left.digests, right.digests))
            told = shares_rows(left, shared, len(right.digests), right.reach)
            if left.below(right.reach) >= 20 and right.below(left.reach) >= 20:
                assert told is same


def test_the_sketch_is_of_rows_and_saved(tmp_path: Path) -> None:
    one = audited_table()
    one.save(tmp_path / "a.empriv")
    again = empriv.load(tmp_path / "a.empriv")
    assert np.array_equal(again.results.rows.digests, one.results.rows.digests)
    assert not np.array_equal(audited(table().assign(x=1.0), "count(*)").results.rows.digests, one.results.rows.digests)
    many = pd.DataFrame(
        {"day": np.repeat(np.arange(5), 4000), "who": np.tile(np.arange(40), 500), "x": np.arange(20_000)}
    )
    sketches = audited(pd.concat([many, many[:30].assign(day=9)]), "count(*)").results.rows
    assert np.diff(sketches.starts).tolist() == [MOST] * 5 + [30]
    assert sketches.reach[5] == 1.0


def test_the_list_says_which_rows(ledger: Any) -> None:
    first = release(ledger, audited_table()).entry
    release(ledger, audited_table("max(x)", "day + INTERVAL 400 DAY"))
    said = CliRunner().invoke(main, ["ledger", "list", str(ledger.path)]).stdout
    assert first.rows is not None
    assert said.count(f"rows {first.rows[:12]}") == 2
    assert "of 2025-03-04" in said
    assert "of 2026-04-08" in said
    ledger.export(ledger.path.with_name("out.jsonl"))
    exported = ledger.path.with_name("out.jsonl").read_text()
    assert first.rows not in exported
    assert "2025-03-04" not in exported
    assert b"2025-03-04" not in ledger.path.read_bytes()


def test_what_was_verified_is_recorded(tmp_path: Path) -> None:
    ledger = empriv.Ledger(tmp_path / "a.ledger")
    done = ledger.release(
        priced("2025-01-01", verified="Verified by deleting half of the people, 10 times."), lambda: 1.0
    )
    assert done.entry.verified == ledger.entries()[1].verified == "Verified by deleting half of the people, 10 times."  # type: ignore[attr-defined]


def test_rows_that_were_tampered_with_are_found(ledger: Any) -> None:
    import sqlite3

    release(ledger, audited_table())
    with sqlite3.connect(ledger.path, isolation_level=None) as connection:
        (trigger,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'row_digests_no_delete'").fetchone()
        connection.execute("DROP TRIGGER row_digests_no_delete")
        connection.execute("DELETE FROM row_digests WHERE digest = (SELECT max(digest) FROM row_digests)")
        connection.execute(trigger)
    connection.close()
    assert not ledger.verify().intact


def test_content_without_rows_is_known_by_its_label(tmp_path: Path) -> None:
    ledger = empriv.Ledger(tmp_path / "a.ledger")
    content = Content("[1]", "people")
    first = ledger.release(priced("2025-01-01", content=content), lambda: 1.0)
    assert ledger.release(priced("2025-01-01", content=content), lambda: 2.0).answer == first.answer
