"""Steps on cells of a table, against a slow run that really leaves each individual out; hidden cells had back."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import pytest
import slow

import empriv
from empriv import protocols
from empriv.measuring.tables.relations import relations_of
from empriv.protocols.cell_steps import NamedCells
from empriv.results import Outcome, Results

HOSTILE = 'x"; DROP TABLE data; --<b>\x1b[31m'
KINDS = ["a", "b", HOSTILE]
TABLE = "SELECT kind, sum(amount) AS s FROM data GROUP BY kind"
TOTAL = "SELECT sum(amount) AS total FROM data"


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(2)
    size = 70
    rows = pd.DataFrame(
        {
            "day": rng.integers(0, 5, size),
            "who": rng.choice(list("pqrstu"), size),
            "kind": rng.choice(KINDS, size, p=[0.5, 0.35, 0.15]),
            "amount": np.round(rng.gamma(0.6, 40.0, size), 1),
        }
    )
    rows.loc[::9, "amount"] = None
    return rows


def data_of(frame: pd.DataFrame, **options: Any) -> empriv.Databases:
    return empriv.databases(frame, database="day", individual="who", **options)


def cells(rows: Sequence[slow.Row]) -> dict[str, list[slow.Row]]:
    return {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}


def total(rows: Sequence[slow.Row]) -> float | None:
    values = [row["amount"] for row in rows if row["amount"] is not None]
    return math.fsum(values) if values else None


def dominated(rows: Sequence[slow.Row], top: int, share: float) -> bool:
    by: dict[Any, float] = {}
    for row in rows:
        by[row["who"]] = by.get(row["who"], 0.0) + abs(row["amount"] or 0.0)
    return sum(sorted(by.values(), reverse=True)[:top]) > share * sum(by.values()) * (1 + 1e-12)


def named(results: Results) -> list[str]:
    """The kinds, in the order of the table's cells."""
    assert results.components is not None
    return [next(kind for kind in KINDS if name == kind or name.endswith(f": {kind}")) for name in results.components]


@pytest.mark.parametrize(("top", "share"), [(1, 0.5), (2, 0.75), (1, 0.999), (9, 0.5)])
def test_dominance(frame: pd.DataFrame, top: int, share: float) -> None:
    results = protocols.dominance(TABLE, column="amount", share=share, top=top).collect(data_of(frame))
    kinds = named(results)

    def answer(rows: Sequence[slow.Row]) -> list[float | None]:
        parts = cells(rows)
        return [None if dominated(parts[kind], top, share) else total(parts[kind]) for kind in kinds]

    slow.check(results, frame, [], answer)
    if (top, share) == (1, 0.5):
        before = results.outcomes[results.entry_database]
        assert ((before == Outcome.NUMBER) & (results.entry_outcomes == Outcome.NULL)).any()
        assert ((before == Outcome.NULL) & (results.entry_outcomes == Outcome.NUMBER)).any()
        with pytest.raises(AssertionError):
            slow.check(results, frame, [], lambda rows: [total(cells(rows)[kind]) for kind in kinds])
    if top == 9:  # nobody is left: every cell is hidden
        assert (results.outcomes == Outcome.NULL).all()
        assert empriv.measure(results).delta(0.1) == 0


def test_dominance_of_rows_with_other_steps(frame: pd.DataFrame) -> None:
    protocol = protocols.top_coded(protocols.suppressed(TABLE, fewer_than=3), "amount", at=60)
    results = protocols.rounded(protocols.dominance(protocol, share=0.5), to=10).collect(data_of(frame))
    kinds = named(results)

    def answer(rows: Sequence[slow.Row]) -> list[float | None]:
        out: list[float | None] = []
        for kind in kinds:
            part = cells(rows)[kind]
            counted = [{**row, "amount": 1.0} for row in part]
            amount = total(part)
            hide = len(part) < 3 or dominated(counted, 1, 0.5) or amount is None
            out.append(None if hide or amount is None else float(np.rint(amount / 10) * 10))
        return out

    slow.check(results, frame, [slow.clip("amount", -math.inf, 60)], answer)
    assert (results.outcomes == Outcome.NUMBER).any()


def test_dominance_with_values_that_are_not_finite_and_rows_of_nobody(frame: pd.DataFrame) -> None:
    frame["amount"] = frame["amount"].fillna(1.0)
    frame.loc[3, "amount"], frame.loc[4, "amount"], frame.loc[5, "amount"] = math.inf, -50.0, -math.inf
    frame.loc[6, "who"] = None
    data = data_of(frame, unidentified="keep")
    shown = protocols.dominance("sum(abs(amount))", column="amount", share=0.4).collect(data)
    for day, number in enumerate(shown.databases.tolist()):
        rows = [row for row in slow.rows_of(frame) if row["day"] == number]
        finite = [row for row in rows if math.isfinite(row["amount"])]
        own = [row for row in finite if row["who"] is not None]
        largest = max(sum(abs(r["amount"]) for r in own if r["who"] == who) for who in "pqrstu")
        dominant = largest > 0.4 * sum(abs(row["amount"]) for row in finite)
        assert (shown.outcomes[day] == Outcome.NULL) == dominant
    assert {Outcome.NULL} < set(shown.outcomes.tolist())


def test_counts_are_of_the_rows_of_a_filter(frame: pd.DataFrame) -> None:
    parts = ", ".join(f"sum(amount) FILTER (WHERE kind = '{kind}') AS k{k}" for k, kind in enumerate("ab"))
    query = f"SELECT {parts}, count(*) AS n FROM data"
    results = protocols.k_threshold(protocols.suppressed(query, fewer_than=5), k=4).collect(data_of(frame))
    dominant = protocols.dominance(query, column="amount", share=0.5).collect(data_of(frame))

    def enough(rows: Sequence[slow.Row]) -> bool:
        return len(rows) >= 5 and len({row["who"] for row in rows}) >= 4

    def answer(rows: Sequence[slow.Row]) -> list[float | None]:
        parts = cells(rows)
        out = [total(parts[kind]) if enough(parts[kind]) else None for kind in "ab"]
        return [*out, float(len(rows)) if enough(rows) else None]

    def undominated(rows: Sequence[slow.Row]) -> list[float | None]:
        parts = cells(rows)
        out = [None if dominated(parts[kind], 1, 0.5) else total(parts[kind]) for kind in "ab"]
        return [*out, None if dominated(rows, 1, 0.5) else float(len(rows))]

    slow.check(results, frame, [], answer)
    slow.check(dominant, frame, [], undominated)


def test_complementary(frame: pd.DataFrame) -> None:
    table = (TOTAL, TABLE)
    results = protocols.complementary(protocols.k_threshold(table, k=4), keep=["total"]).collect(data_of(frame))
    plain = protocols.plain(table).collect(data_of(frame))
    sizes = np.nan_to_num(np.abs(plain.q)).mean(axis=0)
    assert results.components is not None
    kinds = named(results.select(results.components[1:]))
    smallest = [kinds[k] for k in np.argsort(sizes[1:], kind="stable")]

    def answer(rows: Sequence[slow.Row]) -> list[float | None]:
        parts = cells(rows)
        hide = {kind: len({row["who"] for row in parts[kind]}) < 4 for kind in KINDS}
        there = [kind for kind in KINDS if total(parts[kind]) is not None]
        out = {kind: None if hide[kind] else total(parts[kind]) for kind in KINDS}
        missing = [kind for kind in there if hide[kind]]
        few = len({row["who"] for row in rows}) < 4  # then the total is hidden, and a cell does not follow
        if len(missing) == 1 and not few:
            further = [kind for kind in smallest if kind in there and not hide[kind]]
            for kind in further[:1]:
                out[kind] = None
        return [None if few else total(rows), *(out[kind] for kind in kinds)]

    slow.check(results, frame, [], answer)
    relations = relations_of(plain)
    hidden = (results.outcomes == Outcome.NULL) & (plain.outcomes == Outcome.NUMBER)
    guarded = protocols.k_threshold(table, k=4).collect(data_of(frame))
    primary = (guarded.outcomes == Outcome.NULL) & (plain.outcomes == Outcome.NUMBER)
    assert primary.any()
    for day in range(len(hidden)):
        empty = plain.outcomes[day] == Outcome.NULL
        others = np.flatnonzero(~empty)
        assert not (relations.recovered(hidden[day]) & primary[day]).any() or hidden[day][others[1:]].all()
    assert any(relations.recovered(row).any() for row in primary)


def two_way(rng: np.random.Generator, rows: int = 3, columns: int = 4, n: int = 80) -> Results:
    """A table of two ways with both margins and the grand total, and people in one cell each."""
    inner = rng.poisson(20.0, (n, rows, columns)).astype(float)
    parts, moves = {}, {}
    people = [(r, c) for r in range(rows) for c in range(columns)]

    def add(name: str, values: Any, who: Any) -> None:
        parts[name], moves[name] = values, np.array([float(who(r, c)) for r, c in people])

    for r in range(rows):
        for c in range(columns):
            add(f"{r}{c}", inner[:, r, c], lambda i, j, r=r, c=c: (i, j) == (r, c))
    for r in range(rows):
        add(f"row {r}", inner[:, r].sum(axis=1), lambda i, _, r=r: i == r)
    for c in range(columns):
        add(f"column {c}", inner[:, :, c].sum(axis=1), lambda _, j, c=c: j == c)
    add("all", inner.sum(axis=(1, 2)), lambda *_: True)
    return Results.stack(
        {name: Results.from_arrays(values, values - moves[name][:, None]) for name, values in parts.items()}
    )


def test_hidden_cells_of_a_table_with_margins() -> None:
    results = two_way(np.random.default_rng(0))
    alone = protocols.check_hidden(results, ["11"])
    assert set(alone.recovered) == {"11"}
    assert len(alone.further) == 3  # a rectangle
    assert alone.possible
    again = protocols.check_hidden(results, ["11", *alone.further])
    assert not again.recovered
    assert str(again) == "No hidden cell follows from the published ones."
    row = protocols.check_hidden(results, ["11", "12"])
    assert set(row.recovered) == {"11", "12"}  # by the columns
    assert len(row.further) == 2
    kept = protocols.check_hidden(results, ["all"], keep=[name for name in results.components or () if name != "all"])
    assert not kept.possible
    assert "Nothing else" in str(kept)
    words = alone.recovered["11"]
    assert words in ("row 1 - 10 - 12 - 13", "column 1 - 01 - 21")


def test_the_check_against_least_squares() -> None:
    """A cell follows if and only if tables that agree in all published cells agree in it."""
    rng = np.random.default_rng(3)
    results = two_way(rng)
    assert results.components is not None
    relations = relations_of(results)
    q = np.concatenate((results.q - results.q.mean(axis=0), results.entry_q - results.q[results.entry_database]))
    for _ in range(60):
        hidden = rng.random(q.shape[1]) < rng.uniform(0.05, 0.5)
        follows = relations.recovered(hidden)
        for cell in np.flatnonzero(hidden):
            x = q[:, ~hidden]
            left = q[:, cell] - x @ np.linalg.lstsq(x, q[:, cell], rcond=None)[0]
            assert follows[cell] == (np.abs(left).max() < 1e-6)
        further = relations.complement(hidden, np.zeros(len(hidden), bool))
        both = hidden.copy()
        both[list(further)] = True
        assert not (relations.recovered(both) & hidden).any()


def test_a_total_less_the_other_eleven() -> None:
    rng = np.random.default_rng(1)
    wards = rng.poisson(30.0, (60, 12)).astype(float)
    parts = {f"ward {w}": Results.from_arrays(wards[:, w], wards[:, w] - np.eye(12)[w][:, None]) for w in range(12)}
    whole = wards.sum(axis=1)
    parts["total"] = Results.from_arrays(whole, whole - np.ones((12, 1)))
    checked = protocols.check_hidden(Results.stack(parts), ["ward 3"])
    assert checked.recovered["ward 3"].startswith("total - ward 0 - ward 1")
    assert checked.recovered["ward 3"].endswith("and 6 more such terms")
    assert len(checked.further) == 1
    assert checked.further != ("total",)


def test_hiding_one_cell_beside_a_total_changes_nothing() -> None:
    rng = np.random.default_rng(0)
    inner = 100 + 10 * rng.normal(size=(200, 5))
    table = np.c_[inner, inner.sum(axis=1)]
    parts = {k: Results.from_arrays(table[:, k], [table[:, k] - 2.0 * (k in (0, 5))]) for k in range(6)}
    whole = Results.stack({f"c{k}": part for k, part in parts.items()})

    def delta(*hidden: str) -> float:
        return float(empriv.measure(NamedCells(hidden).hide(whole, lambda _: whole)).delta(0.1))

    assert delta("c0") == pytest.approx(delta(), rel=1e-6)
    assert delta("c0", "c1") < 0.7 * delta()


def test_hidden_and_noise_by_cell(frame: pd.DataFrame) -> None:
    data = data_of(frame)
    plain = protocols.plain((TOTAL, TABLE)).collect(data)
    assert plain.components is not None
    results = protocols.hidden((TOTAL, TABLE), plain.components[:1]).collect(data)
    assert (results.outcomes[:, 0] == Outcome.NULL).all()
    assert (results.entry_outcomes[:, 0] == Outcome.NULL).all()
    np.testing.assert_array_equal(results.q[:, 1:], plain.q[:, 1:])
    scales = {name: 10.0**k for k, name in enumerate(plain.components)}
    noisy = protocols.cell_noise((TOTAL, TABLE), scale=scales).collect(data, draws=400, rng=1)
    added = noisy.q - plain.q[:, None]
    np.testing.assert_allclose(np.nanmean(np.abs(added), axis=(0, 1)), list(scales.values()), rtol=0.1)
    np.testing.assert_allclose(noisy.entry_q - plain.entry_q[:, None], added[plain.entry_database], atol=1e-9)
    same = protocols.cell_noise((TOTAL, TABLE), scale=2.0, law="gaussian").collect(data, draws=400, rng=1)
    np.testing.assert_allclose(np.nanstd(same.q - plain.q[:, None], axis=(0, 1)), 2.0, rtol=0.1)


def test_rounded_at_random(frame: pd.DataFrame) -> None:
    data = data_of(frame)
    plain = empriv.collect(data, TOTAL)
    results = protocols.rounded(TOTAL, to=10, at_random=True).collect(data, draws=3000)
    assert set(np.unique(results.q % 10)) == {0.0}
    assert np.abs(results.q - plain.q[:, None]).max() < 10
    np.testing.assert_allclose(results.q.mean(axis=1), plain.q, atol=0.5)
    assert np.abs(protocols.rounded(TOTAL, to=10).collect(data).q - plain.q).max() > 0.5
    assert results.postprocessed_from is not None
    # it tells no more than what it was made from
    few = protocols.rounded(TOTAL, to=10, at_random=True).collect(data, draws=4)
    assert (empriv.measure(few).delta_i(0.1) <= empriv.measure(plain).delta_i(0.1) + 1e-12).all()


def test_one_cell_of_one_person() -> None:
    lonely = pd.DataFrame({"day": [1, 2, 3], "who": ["a", "a", "b"], "kind": ["x"] * 3, "amount": [1.0, 2.0, 4.0]})
    data = data_of(lonely)
    results = protocols.dominance(TABLE, column="amount", share=0.99).collect(data)
    assert (results.outcomes == Outcome.NULL).all()
    assert (results.entry_outcomes == Outcome.NULL).all()
    shown = protocols.dominance(TABLE, column="amount", share=0.99, top=2).collect(data)
    assert (shown.outcomes == Outcome.NULL).all()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: protocols.dominance(TABLE, share=1.5), "`share` must be"),
        (lambda: protocols.dominance(TABLE, share=0.5, top=0), "`top` must be a whole number of 1 or more"),
        (lambda: protocols.dominance(TABLE, share=0.5, column=""), "`column` must be the name"),
        (lambda: protocols.hidden(TABLE, "a"), "`cells` must be a list"),
        (lambda: protocols.cell_noise(TABLE, scale={}), "`scale` must hold"),
        (lambda: protocols.cell_noise(TABLE, scale={"a": -1.0}), "`scale` must be"),
        (lambda: protocols.cell_noise(TABLE, scale=1.0, law="x"), "`law` must be"),  # type: ignore[arg-type]
        (lambda: protocols.rounded(TABLE, to=5, at_random=1), "`at_random` must be"),  # type: ignore[arg-type]
        (lambda: protocols.plain([]), "at least one query"),
        (lambda: protocols.plain([TABLE, lambda rows, rng: len(rows) + rng.normal()]), "must be alone"),
    ],
)
def test_bad_arguments(make: Any, said: str) -> None:
    with pytest.raises(empriv.EmprivError, match=said):
        make()


def test_what_cannot_be_done_is_said(frame: pd.DataFrame) -> None:
    data = data_of(frame)
    with pytest.raises(empriv.QueryError, match="one SELECT"):
        protocols.dominance(lambda rows: float(len(rows["who"])), share=0.5).collect(data, jobs=1)
    with pytest.raises(empriv.EmprivError, match="amuont"):
        protocols.dominance(TABLE, column="amuont", share=0.5).collect(data)
    with pytest.raises(empriv.EmprivError, match="that it does not have"):
        protocols.hidden(TABLE, ["nowhere"]).collect(data)
    with pytest.raises(empriv.EmprivError, match="one number"):
        protocols.complementary(TOTAL).collect(data)
    with pytest.raises(empriv.EmprivError, match="by name"):
        protocols.cell_noise(TABLE, scale={"a": 1.0}).collect(data, draws=2)
    results = protocols.plain((TOTAL, TABLE)).collect(data)
    with pytest.raises(empriv.EmprivError, match="other cells"):
        protocols.check_hidden(results, ["total"], keep=["total"])
    with pytest.raises(empriv.EmprivError, match="must be Results"):
        protocols.check_hidden([1.0], ["total"])  # type: ignore[arg-type]
    few = results.on_databases(np.array([0, 1])).of_individuals(np.array([], int))
    with pytest.raises(empriv.EmprivError, match="answers for each cell"):
        protocols.check_hidden(few, ["total"])
