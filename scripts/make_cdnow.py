"""Make src/empriv/data/cdnow.parquet, the purchases that `empriv.datasets.cdnow` names.

The rows are CDNOW's: every purchase, up to 30 June 1998, of the customers whose first was in the first quarter of
1997, as given to research by Peter Fader and Bruce Hardie, and shipped by the Python package `lifetimes` (MIT licence)
as ``CDNOW_master.txt``. To get that file and run this script:

    pip download lifetimes==0.11.3 --no-deps -d lifetimes
    unzip lifetimes/*.whl lifetimes/datasets/CDNOW_master.txt
    python scripts/make_cdnow.py lifetimes/datasets/CDNOW_master.txt
"""

from __future__ import annotations

import argparse
import datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TARGET = Path(__file__).resolve().parents[1] / "src" / "empriv" / "data" / "cdnow.parquet"
SCHEMA = pa.schema(
    [
        pa.field("customer_id", pa.int32(), nullable=False),
        pa.field("date", pa.date32(), nullable=False),
        pa.field("quantity", pa.int16(), nullable=False),
        pa.field("amount", pa.decimal128(9, 2), nullable=False),
    ]
)


def read(path: Path) -> pa.Table:
    """Every line of the text file as a row, by date; a purchase that is there twice stays there twice."""
    header, *lines = path.read_text(encoding="ascii").splitlines()
    if header.split() != ["customer_id", "date", "number_of_cds", "dollar_value"]:
        raise SystemExit(f"{path.name} is not CDNOW_master.txt: its first line does not name its columns.")
    rows = []
    for line in lines:
        customer, date, quantity, amount = line.split()
        rows.append((datetime.datetime.strptime(date, "%Y%m%d").date(), int(customer), int(quantity), Decimal(amount)))
    rows.sort()
    dates, customers, quantities, amounts = zip(*rows, strict=True)
    return pa.table([customers, dates, quantities, amounts], schema=SCHEMA)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("master", type=Path, help="CDNOW_master.txt")
    table = read(parser.parse_args().master)
    pq.write_table(table, TARGET, compression="zstd", compression_level=19, store_schema=False)
    print(f"{TARGET.name}: {len(table):,} purchases, {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
