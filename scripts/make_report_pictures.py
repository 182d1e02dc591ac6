"""Pictures of reports, and how long and large they are. Run: python scripts/make_report_pictures.py

Needs Chromium and playwright. Writes docs/images/report*.png from the purchases that the package carries, and
docs/images/table.png from its synthetic hospital (with --table, that alone); with --sizes it prints the time and size
of reports of synthetic data instead, and writes nothing into docs.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas

import empriv
from empriv import datasets
from empriv.report import write_report

REVENUE = "SELECT * FROM purchases WHERE date >= DATE '1997-04-01'", "sum(amount)"
IMAGES = Path(__file__).parents[1] / "docs" / "images"
WIDTH, SCALE = 960, 1.25
# name, colour scheme, what is shown from and to, position of the slider
SHOTS = (
    ("report", "light", "header", "table.asked", None),
    ("report-charts", "light", "figure[data-chart=density]", "figure[data-chart=delta_i]", 2),
    ("report-dark", "dark", "figure[data-chart=influence]", "figure[data-chart=results]", None),
)


def revenue() -> empriv.Audit:
    data = empriv.databases(
        REVENUE[0], database="date", individual="customer_id", tables={"purchases": str(datasets.cdnow())}
    )
    return empriv.audit(data, REVENUE[1])


def pictures() -> None:
    from playwright.sync_api import sync_playwright

    audit = revenue()
    verdict = audit.verdict(epsilon=0.1, delta=0.05)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        page_path = write_report(audit, Path(folder) / "audit.html", verdicts=[("delta <= 0.05 at 0.1", verdict)]).page
        options = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        for name, scheme, first, last, stop in SHOTS:
            page = browser.new_page(
                viewport={"width": WIDTH, "height": 1000}, color_scheme=scheme, device_scale_factor=SCALE
            )
            page.goto(page_path.as_uri())
            if stop is not None:
                move = "(slider, to) => { slider.value = to; slider.dispatchEvent(new Event('input')); }"
                page.eval_on_selector("#epsilon", move, stop)
            top, end = (page.locator(one).first.bounding_box() for one in (first, last))
            low = max(0, top["y"] - 20)
            clip: Any = {"x": 0, "y": low, "width": WIDTH, "height": end["y"] + end["height"] + 20 - low}
            page.screenshot(path=IMAGES / f"{name}.png", clip=clip, full_page=True)
            print(f"{name}.png {(IMAGES / f'{name}.png').stat().st_size / 1024:.0f} KiB")
        browser.close()


def table_picture() -> None:
    data = empriv.databases(pandas.DataFrame(datasets.admissions()), database="week", individual="patient")
    audit = empriv.audit(data, "SELECT ward, age, count(*) AS patients FROM data GROUP BY ward, age", epsilon=1.0)
    audit.chart("table").save(IMAGES / "table.png", scale=SCALE)
    print(f"table.png {(IMAGES / 'table.png').stat().st_size / 1024:.0f} KiB")


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
    parser.add_argument("--sizes", action="store_true", help="print times and sizes")
    parser.add_argument("--table", action="store_true", help="draw the picture of a table alone")
    options = parser.parse_args()
    if options.sizes:
        sizes()
    else:
        table_picture()
        if not options.table:
            pictures()
