"""What an audit will take, before it starts: counts are right, words say what to do, nothing is run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pytest
from click.testing import CliRunner

import empriv
from empriv.auditing import memory
from empriv.auditing.memory import Expected, estimate
from empriv.base import machine
from empriv.base.machine import free_memory
from empriv.cli.main import main
from empriv.collecting.queries import query_of
from empriv.collecting.run_query import Run

ASKED = [
    str(empriv.datasets.flights()), "--database", "date", "--individual", "aircraft", "--query", "avg(delay)",
]  # fmt: skip


@pytest.fixture
def flights() -> Any:
    return empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")


def test_counts_are_those_of_the_data(flights: Any) -> None:
    results = empriv.collect(flights, "avg(delay)")
    cost = estimate(flights, ["avg(delay)"], Run())
    assert (cost.rows, cost.databases, cost.individuals) == (54_635, results.n_databases, results.n_individuals)
    assert cost.entries == len(results.entry_q)
    assert (cost.numbers, cost.one_by_one) == (1, 0)


def test_entries_of_random_databases_are_those_on_average() -> None:
    data = empriv.subsamples(empriv.datasets.flights(), individual="aircraft", count=20, fraction=0.5)
    results = empriv.collect(data, "count(*)")
    cost = estimate(data, ["count(*)"], Run())
    assert (cost.rows, cost.databases, cost.individuals) == (54_635, 20, results.n_individuals)
    assert len(results.entry_q) / 1.1 < cost.entries < 1.1 * len(results.entry_q)


def test_numbers_of_a_table_and_runs_once_per_individual() -> None:
    rng = np.random.default_rng(0)
    days = np.arange(600)
    rows = pd.DataFrame({"day": days % 30, "who": rng.integers(0, 12, 600), "x": rng.random(600), "kind": days % 4})
    data = empriv.databases(rows, database="day", individual="who")
    table = estimate(data, ["SELECT kind, count(*) FROM data GROUP BY kind"], Run())
    assert table.numbers == 4
    assert table.memory > estimate(data, ["sum(x)"], Run()).memory
    slow = "SELECT sum(a.x * b.range) FROM (SELECT * FROM data LIMIT 9) a, range(3) b"
    cost = estimate(data, ["sum(x)", slow], Run())
    assert (cost.numbers, cost.one_by_one) == (2, 1)
    assert "once per individual" in " ".join(cost.sentences)


def cost_of(memory_needed: int, free: int | None) -> Expected:
    return Expected(10, 5, 4, 8, 1, memory_needed, free)


def test_words_say_what_is_short_and_what_to_do() -> None:
    plenty, unknown, short, none = cost_of(10, 100), cost_of(10, None), cost_of(200, 100), cost_of(400, 100)
    assert [cost.fits for cost in (plenty, unknown, short, none)] == [True, True, False, False]
    assert [cost.hopeless for cost in (plenty, unknown, short, none)] == [False, False, False, True]
    assert not any("chunks" in sentence for sentence in (*plenty.sentences, *unknown.sentences))
    assert "how much is free is not known" in unknown.sentences[1]
    assert "so people are measured in chunks" in short.sentences[-1]
    for other in (replace(short, numbers=2), replace(short, one_by_one=1)):
        assert "can be measured in chunks" in other.sentences[-1]
        assert "Spark" in other.sentences[-1]


def test_a_limit_is_read_as_duckdb_reads_it() -> None:
    limits = {"2GB": 2 * 10**9, "1.5 GiB": 1.5 * 2**30, "500mb": 5 * 10**8, "300 B": 300, "80%": None, "much": None}
    for said, meant in limits.items():
        assert memory.limit_of(empriv.DuckDBEngine(memory_limit=said)) == meant
    assert memory.limit_of(empriv.DuckDBEngine()) is None


def test_the_command_says_it_and_runs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("empriv.audit", lambda *_, **__: pytest.fail("nothing is to be run"))
    written = tmp_path / "estimate.json"
    done = CliRunner().invoke(main, ["audit", *ASKED, "--estimate"])
    assert done.exit_code == 0, done.output
    said = " ".join(done.output.split())
    assert said.startswith("54,635 rows of 193 individuals in 365 databases: about 34,000 results without")
    assert "An audit takes about " in said
    assert CliRunner().invoke(main, ["audit", *ASKED, "--estimate", "--json", str(written)]).exit_code == 0
    facts = json.loads(written.read_text())
    assert (facts["format"], facts["rows"], facts["entries"]) == ("empriv estimate", 54_635, 34_268)


TABLE = "SELECT avg(delay), count(*) FROM data"


@pytest.mark.slow
def test_an_audit_is_refused_before_it_starts_where_the_memory_will_not_do(
    flights: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What can be measured in chunks is; a table cannot."""
    monkeypatch.setattr("empriv.collecting.run_query.run_query", lambda *_, **__: pytest.fail("nothing is to be run"))
    monkeypatch.setattr(memory, "free_memory", lambda: 2**20)
    monkeypatch.setattr(memory, "LARGE", 0)
    refused = CliRunner().invoke(main, ["audit", *ASKED[:-1], TABLE])
    assert refused.exit_code == 1
    assert refused.stderr.startswith("Error: An audit takes about ")
    assert "There is too little memory for that. Hint: a query of one number" in refused.stderr
    assert "--in-chunks" in refused.stderr
    rows = pd.read_parquet(empriv.datasets.flights())
    for data in (flights, empriv.databases(rows, database="date", individual="aircraft")):
        with pytest.raises(empriv.InputError, match="There is too little memory for that"):
            empriv.audit(data, TABLE, progress=False)
    assert empriv.audit(flights, "avg(delay)", known="nothing", epsilon=0.1, progress=False).in_chunks


def test_an_audit_that_may_not_fit_is_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def began(*_: Any, **__: Any) -> None:
        raise empriv.InputError("It began.")

    monkeypatch.setattr("empriv.collecting.run_query.run_query", began)
    monkeypatch.setattr(memory, "free_memory", lambda: 200 * 2**20)
    monkeypatch.setattr(memory, "LARGE", 0)
    warned = CliRunner().invoke(main, ["audit", "--in-memory", *ASKED])
    assert "There is too little memory for that." in warned.stderr
    assert "It began." in warned.stderr
    quiet = CliRunner().invoke(main, ["audit", "--in-memory", *ASKED, "--quiet"])
    assert "too little memory" not in quiet.stderr


def test_few_rows_and_rows_that_are_read_once_are_not_looked_at(flights: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "estimate", lambda *_: pytest.fail("nothing is to be looked at"))
    question = [query_of("avg(delay)")]
    assert memory.expected_of(flights, question, Run(), None) is None
    monkeypatch.setattr(memory, "LARGE", 0)
    rows = pd.read_parquet(empriv.datasets.flights())
    stream = pyarrow.Table.from_pandas(rows).to_reader()
    once = empriv.databases(stream, database="date", individual="aircraft")
    assert memory.expected_of(once, question, Run(), 2**20) is None
    assert memory.expected_of(flights, [query_of(len)], Run(), None) is None


def test_free_memory_is_what_the_machine_and_the_container_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = free_memory()
    assert told is None or told > 2**20
    meminfo, group = tmp_path / "meminfo", tmp_path / "group"
    group.mkdir()
    monkeypatch.setattr(machine, "_MEMINFO", meminfo)
    monkeypatch.setattr(machine, "_GROUP", group)
    meminfo.write_text("MemTotal: 9000 kB\nMemAvailable: 5000 kB\n")
    monkeypatch.setattr(machine.sys, "platform", "linux")
    assert free_memory() == 5000 * 1024
    (group / "memory.max").write_text("max\n")
    assert free_memory() == 5000 * 1024
    (group / "memory.max").write_text("3000\n")
    (group / "memory.current").write_text("1000\n")
    assert free_memory() == 2000
    (group / "memory.current").write_text("4000\n")
    assert free_memory() == 0
    meminfo.write_text("nothing that is known\n")
    (group / "memory.max").write_text("max\n")
    monkeypatch.setattr(machine.os, "sysconf", lambda _: (_ for _ in ()).throw(ValueError))
    assert free_memory() is None
    assert replace(cost_of(10, None), memory=2**40).fits
