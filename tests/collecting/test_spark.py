"""Spark: the same answers as DuckDB, every failure one sentence, and nothing left behind.

What every engine must do alike is in `test_contract.py`, and what needs a driver of its own (a cluster whose executors
are killed, Ctrl-C, Spark Connect) in `test_spark_processes.py`.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

import empriv
from empriv.auditing import cluster
from empriv.auditing.chunked import ChunkOptions, model_of, nobody_listed
from empriv.auditing.cluster import measured_batches
from empriv.collecting import SparkEngine, collect, databases, subsamples
from empriv.collecting.engines.spark.tables import querying
from empriv.errors import InputError, QueryError, SourceError
from empriv.measuring.line import risk
from empriv.results import Outcome
from spark_sessions import EPSILONS, JAVA, QUIET, SPARK, in_chunks, leftovers, rows

pytestmark = [JAVA, SPARK, QUIET]
GRID = np.array(EPSILONS)


def agree(found: empriv.Audit, audit: empriv.Audit) -> None:
    np.testing.assert_allclose(found.delta(GRID), audit.delta(GRID), atol=1e-9)
    np.testing.assert_allclose(found.total_risk(GRID), audit.total_risk(GRID), atol=1e-9)
    np.testing.assert_allclose(found.bounds(GRID).upper, audit.bounds(GRID).upper, atol=1e-9)
    np.testing.assert_allclose(found.epsilon(0.0), audit.epsilon(0.0), rtol=1e-6)
    assert found.n_individuals == audit.results.n_individuals
    mine, whole = found.individuals(0.1, top=5), audit.individuals(0.1, top=5)
    assert mine["individual"].tolist() == whole["individual"].tolist()
    np.testing.assert_allclose(mine["delta_i"], whole["delta_i"], atol=1e-9)


def test_people_in_chunks_have_the_figures_of_the_audit_and_all_that_is_judged_is_the_same(spark: Any) -> None:
    """One of them has a third of the rows, and one database a third of the others; logarithms are taken."""
    frame = rows(1_500).assign(
        x=lambda f: f["x"] * np.exp(f["day"] / 10), who=lambda f: "person " + f["who"].astype(str)
    )
    data, query = databases(frame, database="day", individual="who"), "SELECT coalesce(sum(x), 0) FROM data WHERE k < 7"
    audit = empriv.audit(data, query, epsilon=EPSILONS)
    found = in_chunks(data, query, epsilon=EPSILONS, engine=SparkEngine(spark, partitions=3), keep=5)
    agree(found, audit)
    assert found.to_json()["known"]["logarithm"] is audit.to_json()["known"]["logarithm"] is True
    assert found.results.verified is not None
    verdict, whole = (one.verdict(epsilon=0.1, delta=0.05) for one in (found, audit))
    assert verdict == whole
    assert found.cover(0.1, 0.05) == pytest.approx(audit.cover(0.1, 0.05), rel=1e-9)
    mine, theirs = (one.moved(top=5, show_ids=True) for one in (found, audit))
    assert mine.individual == theirs.individual
    np.testing.assert_allclose(mine.moved, theirs.moved, rtol=1e-9)
    assert leftovers(spark) == []
    with pytest.raises(AssertionError):
        agree(found, empriv.audit(data, "sum(x + k)", epsilon=EPSILONS))


def test_logarithms_are_not_taken_where_nothing_is_left_without_somebody(spark: Any) -> None:
    frame = rows(700)
    someone = frame.loc[frame["day"] == 3, "who"].iloc[0]
    alone = frame[(frame["day"] != 3) | (frame["who"] == someone)].assign(x=lambda f: np.exp(f["day"] / 10))
    data = databases(alone, database="day", individual="who")
    assert empriv.audit(data, "coalesce(sum(x), 0)", epsilon=EPSILONS).to_json()["known"]["logarithm"] is False
    found = in_chunks(data, "coalesce(sum(x), 0)", epsilon=EPSILONS, engine=SparkEngine(spark))
    assert found.to_json()["known"]["logarithm"] is False


def test_a_spark_frame_is_a_source_and_every_individual_goes_to_a_table(spark: Any) -> None:
    numbers = [tuple(map(float, row)) for row in rows(1_500).to_numpy()]
    frame = spark.createDataFrame(numbers, "day double, who double, x double, k double")
    frame = frame.selectExpr("int(day) AS day", "bigint(who) AS who", "x")
    local = databases(rows(1_500), database="day", individual="who")
    audit = empriv.audit(local, "avg(x)", epsilon=EPSILONS)
    data = databases(frame, database="day", individual="who")
    deltas = (0.0, 0.01)
    agree(in_chunks(data, "avg(x)", epsilon=EPSILONS, deltas=deltas, results_table="people"), audit)
    table = spark.table("people").orderBy("individual").collect()
    spark.sql("DROP TABLE people")
    assert [row["individual"] for row in table] == audit.results.individuals.tolist()
    found = {name: np.array([row[name] for row in table]) for name in ("delta_i", "epsilon_i", "upper_i", "databases")}
    np.testing.assert_allclose(found["delta_i"], audit.delta_i(GRID), atol=1e-9)
    np.testing.assert_allclose(
        found["epsilon_i"], np.stack([audit.measured.epsilon_i(delta) for delta in deltas], axis=1), rtol=1e-6
    )
    assert np.any(found["epsilon_i"][:, 1] < found["epsilon_i"][:, 0])
    np.testing.assert_array_equal(found["databases"], audit.results.presence)
    assert np.all(found["upper_i"] >= found["delta_i"])
    assert leftovers(spark) == []


def test_a_component_of_a_table_is_measured(spark: Any) -> None:
    data, query = (
        databases(rows(1_500), database="day", individual="who"),
        "SELECT k, sum(x), max(k) FROM data GROUP BY k",
    )
    collected = collect(data, query)
    name = (collected.components or ())[6]
    found = in_chunks(data, query, component=name, epsilon=EPSILONS, engine=SparkEngine(spark))
    whole = empriv.audit(collected.component(name), epsilon=EPSILONS)
    np.testing.assert_allclose(found.delta(GRID), whole.delta(GRID), atol=1e-9)
    np.testing.assert_allclose(found.total_risk(GRID), whole.total_risk(GRID), atol=1e-9)
    assert found.n_individuals == whole.results.n_individuals
    with pytest.raises(InputError, match="`component`"):
        in_chunks(data, query, component="nothing", engine=SparkEngine(spark))
    assert leftovers(spark) == []


def test_more_results_than_a_driver_should_hold_are_measured_in_chunks(
    spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = databases(rows(300), database="day", individual="who")
    few = empriv.audit(data, "sum(x)", epsilon=0.1, engine=SparkEngine(spark))
    assert not few.in_chunks
    monkeypatch.setattr("empriv.auditing.memory.MOST_ON_DRIVER", 100)
    many = empriv.audit(data, "sum(x)", epsilon=0.1, engine=SparkEngine(spark))
    assert many.in_chunks
    assert many.delta(0.1) == pytest.approx(few.delta(0.1), abs=1e-9)


def test_dates_nulls_and_several_columns_are_the_same_and_who_adds_nothing_changes_no_bit(spark: Any) -> None:
    """Doubles are added in integers, in whatever order executors are ready: individual 9 adds zeros."""
    frame = rows(400).assign(
        day=lambda f: pd.Timestamp("2026-01-30") + pd.to_timedelta(f["day"], unit="D"),
        house=lambda f: pd.array(np.where(f["who"] % 7 == 0, None, f["who"]), dtype="Int64"),
        x=lambda f: f["x"].where(f["k"] != 2),
        flat=lambda f: "flat " + (f["who"] % 5).astype(str),
    )
    data = databases(frame, database="date_trunc('month', day)", individual=["house", "flat"], unidentified="keep")
    query = "SELECT sum(x), count(x), count(*), sum(k) FROM data"
    one, other = collect(data, query, engine=SparkEngine(spark)), collect(data, query)
    assert one.individuals.tolist() == other.individuals.tolist()
    for name in ("starts", "entry_database", "entry_outcomes"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_allclose(one.entry_q, other.entry_q, rtol=4e-16)
    np.testing.assert_array_equal(one.without('[9, "flat 4"]')[:, 0], one.q[:, 0])
    assert not np.array_equal(one.without('[5, "flat 0"]')[:, 0], one.q[:, 0])


def test_draws_and_functions_in_the_executors_are_the_same(spark: Any) -> None:
    """Who is in which database follows from the seed alone; and so does a randomised function."""
    data = subsamples(rows(120), individual="who", count=5, fraction=0.5, rng=3)
    driver = os.getpid()

    def noisy(table: dict[str, Any], rng: np.random.Generator) -> float | None:
        assert os.getpid() == driver or "pyspark" in " ".join(psutil.Process().cmdline()), "not in an executor"
        if not np.any(table["who"] == 5):
            return None
        own = [rng.for_individual(who).normal() for who in table["who"]]  # type: ignore[attr-defined]
        return float(np.sum(np.sort(table["x"])) + np.sum(own) + rng.normal())

    found, expected = (
        collect(data, noisy, draws=2, rng=7, engine=one, progress=False, jobs=jobs)
        for one, jobs in ((SparkEngine(spark), None), (None, 1))
    )
    assert found.draws == 2
    assert 0 < np.mean(found.entry_outcomes == Outcome.NULL) < 0.9
    for name in ("starts", "entry_database", "outcomes", "entry_outcomes"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))
    np.testing.assert_allclose(found.q, expected.q, rtol=1e-12)
    np.testing.assert_allclose(found.entry_q, expected.entry_q, rtol=1e-12)
    assert not np.allclose(found.q, collect(data, noisy, draws=2, rng=8, progress=False, jobs=1).q, equal_nan=True)
    assert leftovers(spark) == []


def test_a_python_process_that_is_killed_again_and_again_is_one_clear_error(spark: Any) -> None:
    """As the kernel does with a process that takes more memory than there is."""
    data = databases(rows(10).assign(day=1), database="day", individual="who")

    def greedy(_: object) -> float:
        os.kill(os.getpid(), signal.SIGKILL)
        return 0.0

    with pytest.raises(QueryError, match="not enough memory") as caught:
        collect(data, greedy, engine=SparkEngine(spark))
    assert caught.value.__cause__ is None
    assert leftovers(spark) == []


def starved() -> Callable[[Iterator[Any]], Iterator[Any]]:
    """What an executor does with 800,000 entries, with 64 KiB of address space to spare."""

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        import ctypes
        import resource

        import pyarrow

        list(batches)
        # One thread, as a task has one core: NumPy itself may crash where another one takes the last of the memory.
        risk._WORKERS = 1
        rng = np.random.default_rng(0)
        q = rng.normal(size=365)
        everyone = nobody_listed(q, np.zeros(365, np.int8), np.arange(365))
        model = model_of(
            everyone, ChunkOptions(EPSILONS, (0.0,), empriv.Kde(), None, True, 10), lambda *_: (None, None),
            people=10_000, n_components=None, positive=lambda: True,
        )  # fmt: skip
        where = np.tile(np.arange(80) * 4, 10_000)
        columns = {"individual": np.repeat(np.arange(10_000), 80), "database": where.astype(np.int32)}
        entries = pyarrow.record_batch({**columns, "q": q[where] - 0.002 * rng.lognormal(0.0, 1.0, len(where))})
        few = entries.slice(0, 8_000)  # what is imported when first used, is now
        list(measured_batches(model, iter([few]), each=True, integers=True))
        before = resource.getrlimit(resource.RLIMIT_AS)
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # what the process had before, and kept
        now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + 2**16, before[1]))
        try:
            found = list(measured_batches(model, iter([entries]), each=True, integers=True, entries=10**9))
        finally:
            resource.setrlimit(resource.RLIMIT_AS, before)
        yield pyarrow.record_batch({"pieces": [len(found)]})

    return work  # sent by its value: this file is not there where it runs


def test_an_executor_without_memory_says_so(spark: Any) -> None:
    with pytest.raises(QueryError, match="not enough memory"), querying():
        spark.range(0, 1, 1, 1).mapInArrow(starved(), "pieces bigint").collect()


def test_an_interrupted_run_leaves_nothing_and_a_second_one_goes_on_from_what_it_saved(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, collections = tmp_path / "rows.parquet", []
    rows(300).to_parquet(file)
    data, engine = databases(str(file), database="day", individual="who"), SparkEngine(spark)
    collected = cluster._collected

    def counted(*arguments: Any) -> Any:
        collections.append("collected")
        return collected(*arguments)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def ran() -> empriv.Audit:
        return in_chunks(data, "sum(x)", epsilon=EPSILONS, engine=engine, checkpoint=tmp_path / "saved")

    def interrupted(step: str) -> None:
        with monkeypatch.context() as broken:
            broken.setattr(cluster, step, interrupt)
            with pytest.raises(KeyboardInterrupt):
                ran()
        assert leftovers(spark) == []

    interrupted("_collected")
    monkeypatch.setattr(cluster, "_collected", counted)
    interrupted("_measured")
    assert collections == ["collected"]
    np.testing.assert_allclose(ran().delta(GRID), empriv.audit(data, "sum(x)", epsilon=EPSILONS).delta(GRID), atol=1e-9)
    assert collections == ["collected"]
    # What was not saved to the end is collected again.
    for done in tmp_path.glob("saved/*/done/*"):
        done.unlink()
    interrupted("_measured")
    assert collections == ["collected"] * 2
    # And so are rows that are not the same any more, though file and query are called the same.
    rows(300).assign(x=lambda frame: frame["x"] + (frame["who"] == 3)).to_parquet(file)
    interrupted("_measured")
    assert collections == ["collected"] * 3


def test_what_spark_says_is_not_passed_on(spark: Any) -> None:
    engine = SparkEngine(spark)
    frame = pd.DataFrame({"day": [1, 2], "who": ["a", "b"], "x": ["SECRET", "SECRET"]})
    data = databases(frame, database="day", individual="who")
    with pytest.raises(QueryError) as caught:
        collect(data, "sum(CAST(x AS INTEGER))", engine=engine, progress=False)
    assert "SECRET" not in str(caught.value)
    with pytest.raises(SourceError, match="cannot be read"):
        collect(databases("nowhere/*.parquet", database="day", individual="who"), "count(*)", engine=engine)
    assert leftovers(spark) == []


def test_what_is_no_cluster_is_refused(spark: Any) -> None:
    with pytest.raises(InputError, match="SparkSession"):
        SparkEngine(3)
    with pytest.raises(InputError, match="`partitions`"):
        SparkEngine(spark, partitions=0)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        with pytest.raises(InputError, match="ansi"):
            SparkEngine(spark)
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


def test_days_are_cut_in_the_zone_named_and_the_session_keeps_its_own(spark: Any) -> None:
    hours = pd.DataFrame({"t": pd.date_range("2024-03-04", periods=168, freq="h", tz="UTC"), "who": range(168)})
    zone = "spark.sql.session.timeZone"
    before = spark.conf.get(zone)
    spark.conf.set(zone, "Asia/Kolkata")
    try:
        rows, engine, day = spark.createDataFrame(hours), SparkEngine(spark), "date_trunc('day', t)"
        with engine.session(databases(rows, database=day, individual="who")) as session:
            assert len(session.databases) == 7
        paris = databases(rows, database=day, individual="who", timezone="Europe/Paris")
        assert collect(paris, "count(*)", engine=engine).q.tolist() == [23.0, *[24.0] * 6, 1.0]
        assert spark.conf.get(zone) == "Asia/Kolkata"
    finally:
        spark.conf.set(zone, before)


def test_small_frames_are_read_here_with_the_answers_of_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dates, decimals, NULLs and texts."""
    from empriv.collecting.engines.spark import tables
    from empriv.collecting.run_query import Run

    spark.sql(
        "SELECT date_add(DATE'2024-02-27', int(id % 5)) AS day, nullif('p' || id % 9, 'p4') AS who, "
        "CAST(id % 11 / 4 AS DECIMAL(9, 2)) AS m, id / 7 AS x FROM range(300)"
    ).write.parquet(str(tmp_path / "rows"))
    frame, shops = spark.read.parquet(str(tmp_path / "rows")), spark.sql("SELECT 'p1' AS name, 2.5D AS size")
    data = databases(frame, database="day", individual="who", unidentified="keep", tables={"shops": shops})
    query = "SELECT sum(m), stddev_samp(x), count(s.name) FROM data LEFT JOIN shops AS s ON who = name"
    here, there = (collect(data, query, engine=engine) for engine in (None, SparkEngine(spark)))
    assert here.digest == replace(there, q=here.q, entry_q=here.entry_q).digest
    np.testing.assert_allclose(here.entry_q, there.entry_q, rtol=1e-12)
    run = Run()
    assert isinstance(run.on(data)[0], tables.DriverEngine)
    assert isinstance(run.on(data, cluster=True)[0], SparkEngine)
    unknown = spark.createDataFrame(spark.sparkContext.parallelize([(1, 2, 3.0)]), "day int, who int, x double")
    for other in (unknown, frame.selectExpr("CAST(day AS TIMESTAMP) AS day", "who")):
        assert isinstance(run.on(databases(other, database="day", individual="who"))[0], SparkEngine)
    monkeypatch.setattr(tables, "MOST_ROWS", 299)
    assert isinstance(run.on(data)[0], SparkEngine)
