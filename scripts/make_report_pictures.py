"""Pictures of pages, and how long and large they are. Run: python scripts/make_report_pictures.py [NAME ...]

Needs Chromium and playwright. Writes docs/images/gallery-NAME.png, the first screen of a page for each case of the
gallery (docs/gallery.md), and report-phone.png, report-print.png and table.png. With --sizes it prints times and sizes
of pages instead, and writes nothing into docs.
"""

from __future__ import annotations

import argparse
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
from empriv.report import noise_report, write_report

IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH, PHONE, PAPER = 1000, 390, 688
FLIGHTS = {"database": "date", "individual": "aircraft"}


def delays(source: str = "", **options: Any) -> empriv.Audit:
    """The average delay of a day; ``source`` may choose some of the rows."""
    rows = empriv.databases(source or datasets.flights(), **FLIGHTS, tables={"flights": str(datasets.flights())})
    return empriv.audit(rows, "avg(delay)", unit="min", **options)


def longest() -> empriv.Audit:
    return empriv.audit(empriv.databases(datasets.flights(), **FLIGHTS), "max(delay)", unit="min")


def wards() -> empriv.Audit:
    rows = empriv.databases(arrow.table(datasets.admissions()), database="week", individual="patient")
    return empriv.audit(rows, "SELECT ward, age, count(*) AS patients FROM data GROUP BY ward, age", epsilon=1.0)


# each case of the gallery: how the audit is made, and the target
CASES: dict[str, tuple[Callable[[], empriv.Audit], float, float]] = {
    "pass": (delays, 0.1, 0.2),
    "noise": (delays, 0.1, 0.05),
    "stop": (longest, 0.1, 0.05),
    "few": (lambda: delays("SELECT * FROM flights WHERE date < DATE '2013-01-26'"), 0.1, 0.05),
    "table": (wards, 1.0, 0.1),
    "known": (lambda: delays(known=("count(*)", "calendar", "previous")), 0.1, 0.05),
}


def revenue() -> empriv.Audit:
    """Ten thousand customers on more than a year of days."""
    source = "SELECT * FROM purchases WHERE date >= DATE '1997-04-01'"
    data = empriv.databases(
        source, database="date", individual="customer_id", tables={"purchases": str(datasets.cdnow())}
    )
    return empriv.audit(data, "sum(amount)", unit="$")


def pictures(names: list[str], folder: Path) -> None:
    """Make the pages in ``folder``, and pictures of their first screens in docs."""
    from playwright.sync_api import sync_playwright

    pages = {}
    for name in names:
        make, epsilon, delta = CASES[name]
        audit = make()
        verdict = audit.verdict(epsilon=epsilon, delta=delta)
        text = f"delta <= {delta:g} at {epsilon:g}"
        pages[name] = write_report(audit, folder / f"{name}.html", verdicts=[(text, verdict)]).page
        if name == "table":
            audit.chart("table").save(IMAGES / "table.png", scale=1.25)
        if name == "noise":
            noise = empriv.design_noise(audit, epsilon=epsilon, delta=delta, granularity=0.125)
            pages["with-noise"] = noise_report(noise, folder / "with-noise.html", audit=audit)
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        for name, path in pages.items():
            page = browser.new_page(viewport={"width": WIDTH, "height": 1000})
            page.goto(path.as_uri())
            last = page.locator("#cells ~ figure svg, #who ~ table, #answers ~ div figure").first.bounding_box()
            _save(page, f"gallery-{name}", {"width": WIDTH, "height": last["y"] + last["height"] + 20})
            if name == "noise":
                page.set_viewport_size({"width": PHONE, "height": 900})
                _save(page, "report-phone", {"width": PHONE, "height": 1500})
                page.set_viewport_size({"width": PAPER, "height": 1017})
                page.emulate_media(media="print")
                _save(page, "report-print", {"width": PAPER, "height": page.locator("#who").bounding_box()["y"] - 10})
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
            audit.with_validity(audit.summary())
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
