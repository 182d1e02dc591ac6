"""Attacks that worked once: group names that identify, rows read as one value, outputs that replace what is read."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import empriv
from empriv.cli.main import main
from empriv.errors import QueryError

ROWS = pd.DataFrame(
    {
        "day": np.repeat(np.arange(4), 18),
        "who": np.tile(np.arange(9), 8),
        "x": np.arange(72) + 0.5,
        "kind": np.tile(["a", "a", "b", "b", "b", "a"], 12),
    }
)


@pytest.fixture
def data() -> empriv.Databases:
    return empriv.databases(ROWS, database="day", individual="who")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT (kind, who) AS g, sum(x) FROM data GROUP BY g",
        "SELECT who // 3 AS a, who % 3 AS b, sum(x) FROM data GROUP BY a, b",
        "SELECT CASE WHEN who < 4 THEN CAST(who AS TEXT) ELSE 'others' END AS g, sum(x) FROM data GROUP BY g",
        "SELECT x, count(*) FROM data GROUP BY x",
        "SELECT x, count(*) FROM data WHERE who = 3 GROUP BY x",
        "SELECT (kind, who) AS g, product(x) FROM data GROUP BY g",
        "SELECT (SELECT max(x) FROM data WHERE who = 3) AS g, count(*) FROM data GROUP BY g",
    ],
)
def test_names_of_groups_that_are_one_individuals_each_are_refused(query: str, data: empriv.Databases) -> None:
    with pytest.raises(QueryError, match="must not group by what identifies individuals"):
        empriv.collect(data, query)


def test_groups_that_several_individuals_share_are_answered(data: empriv.Databases) -> None:
    for query in ("SELECT kind, sum(x) FROM data GROUP BY kind", "SELECT kind, product(x) FROM data GROUP BY kind"):
        assert empriv.collect(data, query).components == ("a", "b")


@pytest.mark.parametrize(
    "query",
    [
        "SELECT sum(length(data::TEXT)) FROM data",
        "SELECT sum(length(d::TEXT)) FROM data AS d",
        "SELECT sum(len(struct_keys(DATA))) FROM data",
        "SELECT sum(x) FROM data WHERE len(struct_keys(data)) = 4",
    ],
)
def test_a_row_as_one_value_holds_its_own_columns_alone(query: str, data: empriv.Databases) -> None:
    results = empriv.collect(data, query)
    for left_out, got in ((None, results.q), (3, results.without(3))):
        for day in range(4):
            kept = ROWS[(ROWS.day == day) & (ROWS.who != (-1 if left_out is None else left_out))]
            connection = duckdb.connect()
            connection.register("kept", kept)
            connection.execute("CREATE TABLE data AS FROM kept")
            told = connection.execute(query).fetchone()
            assert told is not None
            assert got[day] == told[0]


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("run.toml", 'json = "run.toml"'),
        ("own.key.json", 'report = "own.html"\nledger = "own.key.json"'),
        ("rows.csv", 'save = "rows.csv"'),
        ("own.ledger", 'ledger = "own.ledger"\njson = "own.ledger"'),
    ],
)
def test_a_config_replaces_nothing_that_is_read(
    name: str, lines: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ROWS.to_csv("rows.csv", index=False)
    Path("own.ledger").write_text("a ledger")
    Path("own.key.json").write_text("a ledger")
    asked = 'files = "rows.csv"\ndatabase = "day"\nindividual = "who"\nquery = "sum(x)"'
    Path("run.toml").write_text(f"{asked}\n{lines}\n")
    before = Path(name).read_bytes()
    done = CliRunner().invoke(main, ["audit", "--config", "run.toml", "--quiet"])
    assert done.exit_code == 1
    assert "must not replace what is read" in done.output
    assert Path(name).read_bytes() == before
