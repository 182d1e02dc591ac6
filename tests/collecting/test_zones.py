"""Days begin where the user says, or where the column is; never where the machine happens to stand."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import polars
import pyarrow as pa
import pytest
from click.testing import CliRunner

from empriv.cli.main import main
from empriv.collecting import Databases, collect, databases
from empriv.collecting.engines.data_view import zone_of
from empriv.errors import SourceError
from postgres_server import NEEDED, Server

# A week of hours, from midnight in UTC: seven days there, and eight where midnight is at another hour.
HOURS = pd.DataFrame({"t": pd.date_range("2024-03-04", periods=168, freq="h", tz="UTC"), "x": 1.0})
HOURS["who"] = HOURS.index % 5
DAY = "date_trunc('day', t)"


def stand(patch: pytest.MonkeyPatch, zone: str) -> None:
    """Put the machine somewhere."""
    patch.setenv("TZ", zone)
    time.tzset()


@pytest.fixture(params=["America/New_York", "Asia/Kolkata"])
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the machine stands."""
    stand(monkeypatch, request.param)
    yield request.param
    monkeypatch.undo()
    time.tzset()


def sizes(data: Databases, **options: Any) -> list[float]:
    return [float(size) for size in collect(data, "count(*)", **options).q]


def cut(source: Any, **options: Any) -> Databases:
    return databases(source, database=DAY, individual="who", **options)


@pytest.mark.slow
@pytest.mark.usefixtures("machine")
def test_days_are_those_of_the_zone_named_or_of_the_column() -> None:
    for source in (HOURS, pa.Table.from_pandas(HOURS), polars.from_pandas(HOURS)):
        assert sizes(cut(source)) == [24.0] * 7
        assert sizes(cut(source, timezone="Europe/Paris")) == [23.0, *[24.0] * 6, 1.0]
    paris = HOURS.assign(t=HOURS["t"].dt.tz_convert("Europe/Paris"))
    for source in (paris, pa.Table.from_pandas(paris), polars.from_pandas(paris)):
        assert sizes(cut(source)) == [23.0, *[24.0] * 6, 1.0]
        assert sizes(cut(source, timezone="UTC")) == [24.0] * 7
    assert collect(cut(paris), "count(*)").databases[0] == "2024-03-04 00:00:00+01"


@pytest.mark.usefixtures("machine")
def test_times_without_a_zone_are_what_they_say() -> None:
    local = HOURS.assign(t=HOURS["t"].dt.tz_localize(None))
    assert sizes(cut(local)) == sizes(cut(local, timezone="Europe/Paris")) == [24.0] * 7


@pytest.mark.slow
@pytest.mark.usefixtures("machine")
def test_files_are_cut_alike(tmp_path: Path) -> None:
    HOURS.to_parquet(tmp_path / "hours.parquet")
    HOURS.to_csv(tmp_path / "hours.csv", index=False)
    for name in ("hours.parquet", "hours.csv"):
        assert sizes(cut(tmp_path / name)) == [24.0] * 7
        assert sizes(cut(tmp_path / name, timezone="Europe/Paris")) == [23.0, *[24.0] * 6, 1.0]


@NEEDED
def test_a_server_is_asked_in_the_same_zone(server: Server, machine: str) -> None:
    del machine
    server.put("hours", pa.Table.from_pandas(HOURS))
    server.run("ALTER DATABASE postgres SET timezone = 'Australia/Sydney'")
    try:
        assert sizes(cut(server.address, table="hours")) == [24.0] * 7
        assert sizes(cut(server.address, table="hours", timezone="Europe/Paris")) == [23.0, *[24.0] * 6, 1.0]
        truncated = cut(server.address, sql="SELECT date_trunc('day', t)::timestamp AS t, who FROM hours")
        assert sizes(truncated) == [24.0] * 7
    finally:
        server.run("ALTER DATABASE postgres RESET timezone")


def zoned(**zones: str) -> pa.Table:
    moment = [datetime(2024, 1, 1, tzinfo=UTC)]
    return pa.table({name: pa.array(moment, pa.timestamp("us", zone)) for name, zone in zones.items()})


@pytest.mark.parametrize(
    ("table", "zone"),
    [
        (zoned(t="Europe/Paris", seen="Asia/Tokyo"), "Europe/Paris"),  # the one that cuts
        (zoned(begun="Europe/Paris", seen="Asia/Tokyo"), "UTC"),  # neither does
        (zoned(begun="Europe/Paris", seen="Europe/Paris"), "Europe/Paris"),
        (zoned(t="+01:00"), "Etc/GMT-1"),
        (pd.DataFrame({"t": [datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=-5)))]}), "Etc/GMT+5"),
        (zoned(t="+00:00"), "UTC"),
        (pa.table({"t": ["2024-01-01"]}), "UTC"),
    ],
)
def test_the_zone_of_a_column(table: Any, zone: str) -> None:
    assert zone_of(cut(table)) == zone
    assert zone_of(cut(table, timezone="America/Lima")) == "America/Lima"


def test_zones_that_disagree_or_have_no_name_must_be_named() -> None:
    with pytest.raises(SourceError, match=r"in one time zone, got several\. Hint: timezone="):
        zone_of(databases(zoned(t="Europe/Paris", u="Asia/Tokyo"), database="t - u", individual="who"))
    with pytest.raises(SourceError, match="has a name, got an offset"):
        zone_of(cut(zoned(t="+05:30")))


@pytest.mark.slow
def test_the_command_line_has_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    HOURS.assign(x=HOURS.index % 7).to_csv(tmp_path / "hours.csv", index=False)
    command = [
        "audit", str(tmp_path / "hours.csv"), "--database", DAY, "--individual", "who", "--query", "sum(x)",
        "--timezone", "Europe/Paris", "--json", "-",
    ]  # fmt: skip
    found = []
    for zone in ("UTC", "America/New_York"):
        stand(monkeypatch, zone)
        ran = CliRunner().invoke(main, command)
        found.append({**json.loads(ran.stdout), "most_exposed": None})  # whose pseudonyms are of each run
    monkeypatch.undo()
    time.tzset()
    assert found[0] == found[1]
    figures = found[0]
    assert (figures["n_databases"], figures["source"]["timezone"]) == (8, "Europe/Paris")
