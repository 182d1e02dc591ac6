"""A shop publishes a figure every day: what does it tell about one customer?

Real purchases at CDNOW in the year from July 1997 (the package carries them). Each day is a database, each customer an
individual, and the question is SQL.

    python examples/retail.py [--out retail.svg] [--quick]
"""

from __future__ import annotations

import argparse

import empriv

QUESTIONS = {
    "customers": "SELECT count(DISTINCT customer_id) FROM data",
    "takings": "SELECT sum(amount) FROM data",
    "average purchase": "SELECT sum(amount) / count(*) FROM data",
}


def main(out: str, *, quick: bool) -> None:
    since = "1998-05-01" if quick else "1997-07-01"
    data = empriv.databases(
        f"SELECT * FROM purchases WHERE date >= '{since}'",
        database="date",
        individual="customer_id",
        tables={"purchases": empriv.datasets.cdnow()},
    )
    print("published each day   delta at 0.1   hides moves of up to (typical)  is it at most 0.05?")
    for name, query in QUESTIONS.items():
        audit = empriv.audit(data, query, epsilon=[0.1, 0.5])
        verdict = audit.verdict(epsilon=0.1, delta=0.05)
        print(f"{name:20} {audit.delta(0.1):12.4f} {verdict.day.cover:31.4f}   {verdict}")

    # Of the last of them, how sure the estimate is.
    bounds = audit.bounds(0.1)
    print(f"\n{audit.results.n_databases} days, {audit.results.n_individuals:,} customers")
    print(f"average purchase, epsilon 0.1: delta {bounds.estimate:.4f}, with 95% confidence at most {bounds.upper:.3f}")
    audit.chart("delta", 0.1).save(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="retail.svg", help="the picture: .svg, .png, .pdf or .html")
    parser.add_argument("--quick", action="store_true", help="two months instead of twelve")
    main(**vars(parser.parse_args()))
