"""Spark: the same answers as DuckDB from a cluster of two executors, also when one is killed, and nothing left behind.

Every test runs on a real ``local-cluster`` session, whose executors are processes of their own.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import psutil
import pytest

import empriv
from empriv.collecting import SparkEngine, collect, databases
from empriv.errors import InputError, QueryError, SourceError
from empriv.scale import cluster
from spark_sessions import GROUP, JAVA, QUIET

pytestmark = [JAVA, GROUP, QUIET]

EPSILONS = (0.02, 0.1, 0.3)


def rows(n: int = 4_000) -> pd.DataFrame:
    """35 databases, 40 individuals; one of them has a third of the rows, and one database a third of the rest."""
    rng = np.random.default_rng(11)
    who = np.where(rng.random(n) < 0.3, 5, rng.integers(0, 40, n))
    day = np.where((rng.random(n) < 0.3) & (who != 5), 0, rng.integers(0, 35, n))
    return pd.DataFrame(
        {"day": day, "who": who, "x": rng.lognormal(0.0, 1.0, n) * (who != 9), "k": rng.integers(0, 9, n)}
    )


def agree(found: empriv.Scan, audit: empriv.Audit) -> None:
    grid = np.array(EPSILONS)
    np.testing.assert_allclose(found.delta(grid), audit.delta(grid), atol=1e-9)
    np.testing.assert_allclose(found.total_risk(grid), audit.total_risk(grid), atol=1e-9)
    np.testing.assert_allclose(found.bounds(grid).upper, audit.bounds(grid).upper, atol=1e-9)
    np.testing.assert_allclose(found.epsilon(0.0), audit.epsilon(0.0), rtol=1e-6)
    assert found.n_individuals == audit.results.n_individuals
    mine, whole = found.individuals(0.1, top=5), audit.individuals(0.1, top=5)
    assert mine["individual"].tolist() == whole["individual"].tolist()
    np.testing.assert_allclose(mine["delta_i"], whole["delta_i"], atol=1e-9)


def leftovers(spark: Any) -> list[str]:
    """Views, and frames kept in memory."""
    views = [table.name for table in spark.catalog.listTables() if table.name.startswith("empriv")]
    kept = spark.sparkContext._jsc.getPersistentRDDs().size()
    return views + ["kept"] * kept


@pytest.mark.parametrize("query", ["sum(x)", "SELECT stddev_samp(x) FROM data WHERE k < 7"])
def test_scan_on_the_cluster_has_the_figures_of_the_audit(spark: Any, query: str) -> None:
    frame = rows().assign(who=lambda f: "person " + f["who"].astype(str))
    data = databases(frame, database="day", individual="who")
    audit = empriv.audit(data, query, epsilon=EPSILONS)
    found = empriv.scan(data, query, epsilon=EPSILONS, engine=SparkEngine(spark, partitions=3), top=5)
    agree(found, audit)
    assert leftovers(spark) == []
    with pytest.raises(AssertionError):
        agree(found, empriv.audit(data, "sum(x + k)", epsilon=EPSILONS))


def test_a_spark_frame_is_a_source_and_every_delta_i_goes_to_a_table(spark: Any) -> None:
    numbers = [tuple(map(float, row)) for row in rows(1_500).to_numpy()]
    frame = spark.createDataFrame(numbers, "day double, who double, x double, k double")
    frame = frame.selectExpr("int(day) AS day", "bigint(who) AS who", "x")
    local = databases(rows(1_500), database="day", individual="who")
    audit = empriv.audit(local, "avg(x)", epsilon=EPSILONS)
    data = databases(frame, database="day", individual="who")
    agree(empriv.scan(data, "avg(x)", epsilon=EPSILONS, results_table="people"), audit)
    table = spark.table("people").orderBy("individual").collect()
    spark.sql("DROP TABLE people")
    assert [row["individual"] for row in table] == audit.results.individuals.tolist()
    delta_i = np.array([row["delta_i"] for row in table])
    np.testing.assert_allclose(delta_i, audit.delta_i(np.array(EPSILONS)), atol=1e-9)
    assert leftovers(spark) == []


def test_who_adds_nothing_changes_no_bit(spark: Any) -> None:
    """Doubles are added in integers, in whatever order executors are ready: individual 9 adds zeros."""
    data = databases(rows(), database="day", individual="who")
    results = collect(data, "sum(x)", engine=SparkEngine(spark))
    np.testing.assert_array_equal(results.without(9), results.q)
    assert not np.array_equal(results.without(5), results.q)
    duck = collect(data, "sum(x)")
    np.testing.assert_allclose(results.entry_q, duck.entry_q, rtol=4e-16)


def test_an_executor_killed_in_mid_job_changes_nothing(spark: Any) -> None:
    data = databases(rows(), database="day", individual="who")
    audit = empriv.audit(data, "sum(x)", epsilon=EPSILONS)
    killed: list[int] = []
    done = threading.Event()

    def kill() -> None:
        # As soon as an executor runs the measuring, which is what Python processes are for.
        while not done.wait(0.05):
            for process in psutil.Process().children(recursive=True):
                try:
                    line = " ".join(process.cmdline())
                    if "CoarseGrainedExecutorBackend" in line and any(
                        "pyspark" in " ".join(child.cmdline()) for child in process.children(recursive=True)
                    ):
                        os.kill(process.pid, signal.SIGKILL)
                        killed.append(process.pid)
                        return
                except psutil.Error:
                    continue

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        found = empriv.scan(data, "sum(x)", epsilon=EPSILONS, engine=SparkEngine(spark, partitions=4))
    finally:
        done.set()
        killer.join()
    assert killed, "no executor was killed"
    agree(found, audit)


def test_a_second_run_resumes_from_saved_results(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = databases(rows(), database="day", individual="who")
    engine = SparkEngine(spark)

    def fail(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as broken:
        broken.setattr(cluster, "_measured", fail)
        with pytest.raises(KeyboardInterrupt):
            empriv.scan(data, "sum(x)", epsilon=EPSILONS, engine=engine, checkpoint=tmp_path / "saved")
    assert leftovers(spark) == []
    monkeypatch.setattr(cluster, "_collected", fail)  # would collect once more
    found = empriv.scan(data, "sum(x)", epsilon=EPSILONS, engine=engine, checkpoint=tmp_path / "saved")
    agree(found, empriv.audit(data, "sum(x)", epsilon=EPSILONS))
    with pytest.raises(KeyboardInterrupt):
        empriv.scan(data, "sum(k)", epsilon=EPSILONS, engine=engine, checkpoint=tmp_path / "saved")


def test_a_function_is_called_in_the_executors(spark: Any) -> None:
    data = databases(rows(600), database="day", individual="who")

    def total(table: dict[str, Any]) -> float:
        assert "pyspark" in " ".join(psutil.Process().cmdline()), "not in an executor"
        return float(np.sum(np.sort(table["x"])))

    called = collect(data, total, engine=SparkEngine(spark))
    by_sql = collect(data, "sum(x)")
    np.testing.assert_array_equal(called.starts, by_sql.starts)
    np.testing.assert_allclose(called.q, by_sql.q)
    assert leftovers(spark) == []


def test_what_spark_says_is_not_passed_on(spark: Any) -> None:
    engine = SparkEngine(spark)
    frame = pd.DataFrame({"day": [1, 2], "who": ["a", "b"], "x": ["SECRET", "SECRET"]})
    data = databases(frame, database="day", individual="who")
    with pytest.raises(QueryError) as caught:
        collect(data, "sum(CAST(x AS INTEGER))", engine=engine, progress=False)
    assert "SECRET" not in str(caught.value)
    with pytest.raises(QueryError, match="'nothing'"):
        collect(data, "sum(nothing)", engine=engine)
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


def test_an_interrupted_job_is_cancelled(spark: Any) -> None:
    data = databases(rows(600), database="day", individual="who")

    def slow(_: object) -> float:
        time.sleep(60)
        return 0.0

    began = time.monotonic()
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(15.0, lambda: signal.pthread_kill(main, signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        collect(data, slow, engine=SparkEngine(spark))
    assert time.monotonic() - began < 55
    assert leftovers(spark) == []
    assert spark.range(5).count() == 5
