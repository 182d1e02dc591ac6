"""Pictures of pages, and how long and large they are. Run: python scripts/make_report_pictures.py [NAME ...]

Needs Chromium and playwright. Writes docs/images/screen-NAME.png and screen-NAME-phone.png, the first screen of a page
for each case of the gallery (docs/decision.md), report-print.png and table.png, and counts words and numbers. With
--sizes it prints times and sizes of pages instead, and writes nothing into docs.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow

import empriv
from empriv import datasets
from empriv.auditing.summary import with_validity
from empriv.report import write_report
from empriv.report.actions import quick_advice

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH, PHONE, PAPER = 1280, 390, 688
FLIGHTS = {"database": "date", "individual": "aircraft"}


def flights(source: str = "") -> empriv.Databases:
    """Days of flights; ``source`` may choose some of the rows."""
    return empriv.databases(source or datasets.flights(), **FLIGHTS, tables={"flights": str(datasets.flights())})


def delays(source: str = "") -> empriv.Audit:
    """The average delay of a day."""
    return empriv.audit(flights(source), "avg(delay)", unit="min")


def wards() -> empriv.Audit:
    rows = empriv.databases(arrow.table(datasets.admissions()), database="week", individual="patient")
    return empriv.audit(rows, "SELECT ward, age, count(*) AS patients FROM data GROUP BY ward, age", epsilon=1.0)


def visitors() -> empriv.Audit:
    """Clients a day of a (synthetic) shop: on some days more come than on others."""
    rng = np.random.default_rng(0)
    here = rng.random((365, 1_000)) < rng.normal(0.35, 0.06, (365, 1))
    day, client = np.nonzero(here)
    rows = arrow.table({"day": np.datetime64("2024-01-01") + day, "client": client})
    data = empriv.databases(rows, database="day", individual="client")
    return empriv.audit(data, "count(DISTINCT client)", epsilon=0.1, known="nothing")


def takings() -> empriv.Audit:
    """Takings of a (synthetic) shop: many clients, none of whom moves the sum by much."""
    rng = np.random.default_rng(0)
    spent = rng.exponential(10.0, (400, 365)) * (rng.random((400, 365)) < 0.3)
    q = spent.sum(axis=0) + rng.normal(0.0, 400.0, 365)
    days = np.datetime64("2024-01-01") + np.arange(365)
    found = empriv.Results.from_arrays(q, q - spent, databases=days)
    return empriv.audit(found, epsilon=0.1, unit="€", noun="client", known="nothing")


def one_apart() -> empriv.Audit:
    """Two totals whose difference is what one aircraft did."""
    others = "sum(delay) FILTER (WHERE aircraft <> 'N178JB')"
    rows = empriv.databases(datasets.flights(), **FLIGHTS)
    return empriv.audit(rows, f"SELECT sum(delay) AS total, {others} AS others FROM data", unit="min")


def revenue() -> empriv.Audit:
    """Ten thousand customers on more than a year of days."""
    source = "SELECT * FROM purchases WHERE date >= DATE '1997-04-01'"
    data = empriv.databases(
        source, database="date", individual="customer_id", tables={"purchases": str(datasets.cdnow())}
    )
    return empriv.audit(data, "sum(amount)", unit="$")


# each first screen: how the audit is made, the target, and whether noise is added
CASES: dict[str, tuple[Callable[[], empriv.Audit], float, float, bool]] = {
    "pass": (visitors, 0.1, 0.05, False),
    "noise": (takings, 0.1, 0.05, True),
    "cap": (revenue, 1.0, 0.05, False),
    "fail": (delays, 1.0, 0.05, False),
    "few": (lambda: delays("SELECT * FROM flights WHERE date < DATE '2013-01-26'"), 0.1, 0.05, False),
    "table": (wards, 1.0, 0.1, False),
    "series": (lambda: delays().repeated(52), 1.0, 0.05, False),
    "leak": (one_apart, 0.1, 0.05, False),
}


def pictures(names: list[str], folder: Path) -> None:
    """Make the pages in ``folder``, and pictures of their first screens in docs; count their words and figures."""
    from playwright.sync_api import sync_playwright

    pages = {}
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        make, epsilon, delta, noisy = CASES[name]
        audit = make()
        noise = empriv.design_noise(audit, epsilon=epsilon, delta=delta, granularity=0.5) if noisy else None
        verdicts = [(f"delta <= {delta:g} at {epsilon:g}", audit.verdict(epsilon=epsilon, delta=delta))]
        # as `empriv audit --report` does it: what can be done is tried on the rows
        advice = quick_advice(audit, [verdicts[0][1]], data=flights()) if name == "fail" else None
        path = folder / f"{name}.html"
        pages[name] = write_report(audit, path, verdicts=verdicts, noise=noise, advice=advice).page
        if name == "table":
            audit.chart("table").save(IMAGES / "table.png", scale=1.25)
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        for name, path in pages.items():
            page = browser.new_page(viewport={"width": WIDTH, "height": 800})
            page.goto(path.as_uri())
            said = " ".join(page.locator(".decision p:not(.small)").all_inner_texts())
            print(f"{name}: {len(said.split())} words, {len(re.findall(r'[0-9][0-9.,]*', said))} numbers")
            _save(page, f"screen-{name}", {"width": WIDTH, "height": 660})
            page.set_viewport_size({"width": PHONE, "height": 844})
            _save(page, f"screen-{name}-phone", {"width": PHONE, "height": 844})
            if name == "fail":
                page.set_viewport_size({"width": PAPER, "height": 1017})
                page.emulate_media(media="print")
                _save(page, "report-print", {"width": PAPER, "height": 1017})
            page.close()
        browser.close()


def _save(page: Any, name: str, size: dict[str, float]) -> None:
    page.screenshot(path=IMAGES / f"{name}.png", clip={"x": 0, "y": 0, **size}, full_page=True)
    print(f"{name}.png {(IMAGES / f'{name}.png').stat().st_size / 1024:.0f} KiB")


def crowd(n_individuals: int, n_databases: int = 40) -> empriv.Results:
    """Individuals in one database each, whose results are numbers of one scale."""
    rng = np.random.default_rng(0)
    q = rng.normal(size=n_databases)
    where = rng.integers(0, n_databases, size=n_individuals)
    return empriv.Results(
        q=q,
        outcomes=np.zeros(n_databases, np.int8),
        databases=np.arange(n_databases),
        individuals=np.arange(n_individuals),
        starts=np.arange(n_individuals + 1),
        entry_database=where.astype(np.int32),
        entry_q=q[where] - rng.exponential(0.05, size=n_individuals),
        entry_outcomes=np.zeros(n_individuals, np.int8),
    )


def sizes() -> None:
    made = datasets.precipitation()
    rain = empriv.Results.from_arrays(made.q, made.q_without, individuals=made.individuals, databases=made.databases)
    rng = np.random.default_rng(0)
    q = rng.normal(size=10_000)
    many = empriv.Results.from_arrays(q, q - rng.exponential(0.05, size=(30, 10_000)))
    cases = {
        "10,368 individuals x 41 databases x 50 epsilons": (rain, np.linspace(0.004, 0.2, 50)),
        "9,988 individuals x 456 databases (CDNOW)": (revenue().results, None),
        "30 individuals x 10,000 databases": (many, None),
        "1,000,000 individuals x 40 databases": (crowd(1_000_000), None),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.html"
        write_report(empriv.audit(crowd(50)), path)  # imports and vl-convert's start are not counted
        for name, (results, epsilons) in cases.items():
            start = time.perf_counter()
            audit = empriv.audit(results, epsilon=[0.05, 0.1])
            with_validity(audit, audit.summary())
            measured = time.perf_counter() - start
            start = time.perf_counter()
            size = write_report(audit, path, epsilons=epsilons).page.stat().st_size
            took = time.perf_counter() - start
            print(
                f"{name}: measured, bounded and checked in {measured:.1f} s; report in {took:.1f} s "
                f"({took / measured:.1f} times), {size / 1e6:.2f} MB"
            )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--pages", metavar="FOLDER", help="keep the pages there")
    parser.add_argument("--sizes", action="store_true", help="print times and sizes")
    given = parser.parse_args()
    if given.sizes:
        sizes()
    elif given.pages:
        pictures(given.names or list(CASES), Path(given.pages))
    else:
        with tempfile.TemporaryDirectory() as scratch:
            pictures(given.names or list(CASES), Path(scratch))
