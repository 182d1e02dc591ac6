"""Every aggregate of the table against brute force, on tables made to be awkward."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from brute import check_against_brute_force, classify
from empriv.collecting import Engine, collect, databases
from empriv.collecting.queries import query_of
from empriv.collecting.sql.aggregates import AGGREGATES
from empriv.collecting.sql.decompose import decompose
from empriv.results import Outcome

pytestmark = pytest.mark.slow

# At least one call of every aggregate in the table; a new aggregate needs a line here, and is then tested.
CALLS = {
    "count": ["count(*)", "count(x)", "count(x) FILTER (WHERE k > 1)"],
    "count distinct": ["count(DISTINCT k)", "count(DISTINCT x)", "count(DISTINCT who)"],
    "sum": ["sum(x)", "sum(k)", "sum(m)", "sum(CASE WHEN k > 1 THEN x END)", "sum(x * k) FILTER (WHERE k < 3)"],
    "avg": ["avg(x)", "avg(k)", "avg(m)"],
    "mean": ["mean(x)"],
    "min": ["min(x)", "min(m)"],
    "max": ["max(x)", "max(k) FILTER (WHERE x > 0)"],
    "bool_and": ["bool_and(k > 0)"],
    "bool_or": ["bool_or(x > 2)"],
    "var_pop": ["var_pop(k)"],
    "variance": ["var_samp(k)", "variance(m)"],
    "stddev_pop": ["stddev_pop(k)"],
    "stddev_samp": ["stddev_samp(m)"],
    "stddev": ["stddev(k) FILTER (WHERE x > 0)"],
    "median": ["median(x)", "median(k)", "median(m)"],
    "quantile_cont": ["quantile_cont(x, 0.3)", "percentile_cont(0.9) WITHIN GROUP (ORDER BY k DESC)"],
    "quantile_disc": ["quantile_disc(x, 0.25)", "quantile_disc(k, 1)"],
    "quantile": ["quantile(m, 0.6)"],
}
COLUMNS = "day, who, CAST(x AS DOUBLE) AS x, CAST(k AS INTEGER) AS k, CAST(m AS DECIMAL(10, 2)) AS m"
NUMBERS = st.sampled_from([0.0, -0.0, 1.5, -2.25, 1e15, -1e15, 1e-3, 0.1, 0.2, 0.3, 7.0]) | st.floats(-1e3, 1e3)
# Sums of these are exact in doubles, so that the engine's own sum, which brute force uses, is right in any order.
EXACT_NUMBERS = st.sampled_from([0.0, -0.0, 1.5, -2.25, 2.0**30, -(2.0**30), 7.0]) | st.integers(-(2**26), 2**26).map(
    lambda k: k / 2**16
)


@st.composite
def tables(draw: st.DrawFn) -> pd.DataFrame:
    """A few rows of a few individuals in a few databases, with NULLs, repeated values and outliers."""
    row = st.tuples(
        st.integers(1, 3),
        st.sampled_from("abcd"),
        st.none() | EXACT_NUMBERS,
        st.none() | st.integers(0, 4),
        st.none() | st.integers(-300, 300),
    )
    rows = draw(st.lists(row, min_size=1, max_size=14))
    frame = pd.DataFrame(rows, columns=["day", "who", "x", "k", "m"])
    return frame.astype({"x": "float64", "k": "Int64", "m": "float64"}).assign(m=lambda t: t["m"] / 100)


def source(frame: pd.DataFrame) -> object:
    import duckdb

    with duckdb.connect() as connection:
        connection.register("frame", frame)
        return connection.sql(f"SELECT {COLUMNS} FROM frame").to_arrow_table()


def test_every_aggregate_of_the_table_is_tested() -> None:
    assert set(CALLS) == set(AGGREGATES)
    for name, calls in CALLS.items():
        for call in calls:
            assert decompose(query_of(call)).calls[0].name == name


def check_calls(frame: pd.DataFrame, engine: Engine, calls: list[str]) -> None:
    """What calls give without each individual, against brute force."""
    query = f"SELECT {', '.join(f'{call} AS c{n}' for n, call in enumerate(calls))} FROM data"
    results = collect(databases(source(frame), database="day", individual="who"), query, engine=engine)
    check_against_brute_force(results, frame, query, columns=COLUMNS, atol=1e-12)


AWKWARD = pd.DataFrame(
    {
        "day": [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3],
        "who": list("aabbcdabcdaa"),
        "x": [1.5, None, -2.25, 2.0**30, 7.0, 7.0, None, None, 0.5, -0.0, -(2.0**30), 3.0],
        "k": pd.array([0, 4, 2, 2, None, 1, 3, 3, 0, 4, None, 1], "Int64"),
        "m": [0.07, -3.0, 2.5, None, 2.5, 0.01, None, 1.1, 1.1, -2.99, 0.0, None],
    }
)


@pytest.mark.parametrize("name", AGGREGATES)
def test_aggregate_equals_brute_force(name: str, engine: Engine) -> None:
    check_calls(AWKWARD, engine, CALLS[name])


@settings(max_examples=3)
@given(frame=tables())
def test_all_aggregates_at_once_equal_brute_force(frame: pd.DataFrame, engine: Engine) -> None:
    check_calls(frame, engine, [calls[-1] for calls in CALLS.values()])


def moments(xs: Sequence[float]) -> dict[str, float | None]:
    """What SQL's aggregates of x are, in rational arithmetic, which no outlier disturbs; NaN stands for NULL."""
    values = [Fraction(x) for x in xs if not math.isnan(x)]
    n, mean = len(values), sum(values, Fraction(0)) / max(1, len(values))
    square = sum(((x - mean) ** 2 for x in values), Fraction(0))
    return {
        "sum(x)": float(sum(values)) if n else None,
        "avg(x)": float(mean) if n else None,
        "var_pop(x)": float(square / n) if n else None,
        "var_samp(x)": float(square / (n - 1)) if n > 1 else None,
        "stddev_pop(x)": _root(square / n) if n else None,
        "stddev_samp(x)": _root(square / (n - 1)) if n > 1 else None,
    }


def _root(x: Fraction) -> float:
    """Square root of a fraction of any size."""
    return float(Fraction(math.isqrt(x.numerator * 2**4000 // x.denominator), 2**2000))


OUTLIER = pd.DataFrame({"day": 1, "who": list("abcde"), "x": [1e15, 0.001, 0.002, 0.003, 0.005]})


@settings(max_examples=3)
@given(
    rows=st.lists(
        st.tuples(st.integers(1, 2), st.sampled_from("abc"), NUMBERS | st.just(np.nan)), min_size=1, max_size=12
    )
)
@example(rows=OUTLIER.to_numpy().tolist())
@example(rows=OUTLIER.assign(x=[1e15, 0.1, 0.1, 0.1, 0.1]).to_numpy().tolist())
@example(rows=OUTLIER.assign(x=[1e120, 1e-100, 2e-100, 0.0, 1e-100]).to_numpy().tolist())
def test_moments_are_exact_beside_outliers(rows: list[tuple[int, str, float]], engine: Engine) -> None:
    frame = pd.DataFrame(rows, columns=["day", "who", "x"])
    names = list(moments([0.0]))
    data = databases(frame, database="day", individual="who")
    results = collect(data, f"SELECT {', '.join(names)} FROM data", engine=engine)
    for i, person in enumerate(results.individuals):
        for entry in range(results.starts[i], results.starts[i + 1]):
            day = results.databases[results.entry_database[entry]]
            expected = moments(frame[(frame["day"] == day) & (frame["who"] != person)]["x"].tolist())
            for k, name in enumerate(names):
                number, code = classify(expected[name])
                assert results.entry_outcomes[entry, k] == code, name
                if code == Outcome.NUMBER:
                    np.testing.assert_allclose(results.entry_q[entry, k], number, rtol=1e-9, err_msg=name)


def test_nothing_is_lost_when_the_outlier_leaves() -> None:
    data = databases(OUTLIER, database="day", individual="who")
    results = collect(data, "SELECT sum(x), stddev_samp(x) FROM data")
    rest = OUTLIER["x"].to_numpy()[1:]
    assert results.without("a")[0, 0] == pytest.approx(0.011, rel=1e-15)
    assert results.without("a")[0, 1] == pytest.approx(np.std(rest, ddof=1), rel=1e-12)


def test_who_contributes_nothing_changes_no_bit() -> None:
    rng = np.random.default_rng(5)
    frame = pd.DataFrame({"day": 1, "who": rng.integers(0, 40, 4000), "x": rng.normal(1e3, 1e-2, 4000)})
    frame.loc[frame["who"] == 7, "x"] = np.nan
    data = databases(frame, database="day", individual="who")
    results = collect(data, "SELECT sum(x), avg(x), stddev(x), median(x), max(x) FROM data")
    np.testing.assert_array_equal(results.without(7), results.q)
    assert not np.array_equal(results.without(8), results.q)


def test_results_do_not_depend_on_order_or_threads() -> None:
    from empriv.collecting import DuckDBEngine

    rng = np.random.default_rng(6)
    count = 150_000  # more than one thread reads at a time
    frame = pd.DataFrame(
        {"day": rng.integers(0, 3, count), "who": rng.integers(0, 50, count), "x": rng.lognormal(0, 8, count)}
    )
    query = "SELECT sum(x), avg(x), stddev(x), median(x) FROM data"
    found = []
    for threads, rows in ((1, frame), (2, frame), (2, frame.sample(frac=1, random_state=1))):
        data = databases(rows, database="day", individual="who")
        found.append(collect(data, query, engine=DuckDBEngine(threads=threads)))
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].q, other.q)
        np.testing.assert_array_equal(found[0].entry_q, other.entry_q)


@pytest.mark.parametrize("kind", ["continuous", "ties", "heavy"])
def test_quantiles_of_many_rows(kind: str) -> None:
    rng = np.random.default_rng(3)
    count, shares = 6000, (0.0, 0.01, 0.5, 0.97, 1.0)
    who = rng.integers(0, 300, count)
    if kind == "heavy":
        who[: count // 2] = 0  # one individual has half of the rows, more than any window holds
    x = rng.integers(0, 4, count).astype(float) if kind == "ties" else rng.normal(size=count)
    data = databases(pd.DataFrame({"day": 1, "who": who, "x": x}), database="day", individual="who")
    items = [f"quantile_cont(x, {share}), quantile_disc(x, {share})" for share in shares]
    results = collect(data, f"SELECT {', '.join(items)} FROM data")
    for i, person in enumerate(results.individuals):
        left = x[who != person]
        np.testing.assert_allclose(results.entry_q[i, ::2], np.quantile(left, shares), rtol=1e-12, atol=1e-12)
        np.testing.assert_array_equal(results.entry_q[i, 1::2], np.quantile(left, shares, method="inverted_cdf"))
