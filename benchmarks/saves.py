"""What designed noise saves: its error beside that of classical Laplace noise for the largest influence seen.

    python benchmarks/saves.py

On the data that the package carries, for one target. "Also when there" asks for the promise in a random database and in
one that people are in, given what everybody knows of the calendar, as the verdict on an audit does; "as in the paper"
in a random database, with nothing known. The first line is the one that README.md opens with.
"""

from __future__ import annotations

import numpy as np

import empriv

EPSILON, DELTA = 0.1, 0.01
REVENUE = "SELECT * FROM purchases WHERE date >= DATE '1997-04-01'"


def cases() -> list[tuple[str, empriv.Databases, str]]:
    """What is published, of which databases."""
    shop = empriv.databases(
        REVENUE, database="date", individual="customer_id", tables={"purchases": empriv.datasets.cdnow()}
    )
    flights = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    return [
        ("a shop's daily revenue", shop, "sum(amount)"),
        ("its average purchase", shop, "avg(amount)"),
        ("average delay of a day's flights", flights, "avg(delay)"),
    ]


def said(number: float) -> str:
    """Three digits, and all before the point."""
    return f"{number:,.3g}" if number < 1000 else f"{number:,.0f}"


def main() -> None:
    rows = []
    for name, data, query in cases():
        audit = empriv.audit(data, query)
        typical = float(np.abs(audit.results.q).mean())
        errors = [
            empriv.design_noise(risk, epsilon=EPSILON, delta=DELTA, method=method, presence=presence).expected_error
            for risk, method, presence in (
                (audit, "classical", "random"), (audit, "robust", "both"), (audit.risk, "robust", "random"),
            )
        ]  # fmt: skip
        rows.append((name, typical, *errors))
    _, typical, classical, design, _ = rows[-1]
    print(
        f"At epsilon {EPSILON:g} and delta {DELTA:g}, classical noise on the average delay of a day's flights is "
        f"±{said(classical)} minutes on a typical {said(typical)}; empriv's design needs ±{said(design)}."
    )
    print()
    print("| what is published | typical | classical | design, also when there | design, as in the paper |")
    print("|---|---|---|---|---|")
    for name, *numbers in rows:
        print(
            f"| {name} | {' | '.join(f'{number:,.3g}' if number < 1000 else f'{number:,.0f}' for number in numbers)} |"
        )


if __name__ == "__main__":
    main()
