"""What designed noise and a cap save: their errors beside the better classical noise for the same epsilon, delta, move.

    python benchmarks/saves.py

On the data that the package carries. "Least" is for the most that anybody moved the answer, on a random day and on the
day that they were there; "cap" caps what each person adds where cap and noise together err least.
"""

from __future__ import annotations

import numpy as np

import empriv

TARGETS = ((1.0, 0.05), (0.1, 0.05), (0.1, 0.01))
REVENUE = "SELECT * FROM purchases WHERE date >= DATE '1997-04-01'"


def shop_and_flights() -> tuple[empriv.Databases, empriv.Databases]:
    """The data that the package carries, by day."""
    shop = empriv.databases(
        REVENUE, database="date", individual="customer_id", tables={"purchases": empriv.datasets.cdnow()}
    )
    flights = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    return shop, flights


def cases() -> list[tuple[str, empriv.Databases, str]]:
    """What is published, of which databases."""
    shop, flights = shop_and_flights()
    return [
        ("a shop's daily revenue", shop, "sum(amount)"),
        ("its purchases a day", shop, "count(*)"),
        ("average delay of a day's flights", flights, "avg(delay)"),
    ]


def said(number: float) -> str:
    """Three digits, and all before the point."""
    return "-" if np.isnan(number) else f"{number:,.3g}" if number < 1000 else f"{number:,.0f}"


def main() -> None:
    print("| what is published | typical | epsilon, delta | classical | least | cap and noise (at) |")
    print("|---|---|---|---|---|---|")
    for name, data, query in cases():
        audit = empriv.audit(data, query)
        for epsilon, delta in TARGETS:
            rows = data if query.startswith("avg") else None  # what else takes rows is not of this table
            advice = empriv.advise(audit, rows, epsilon=epsilon, delta=delta, progress=False)
            tried = {action.code: action for action in advice.rows}
            errors = [tried[code].error if code in tried else np.nan for code in ("classical", "noise", "cap")]
            at = f" ({said(tried['cap'].parameters['at'])})" if "cap" in tried else ""
            print(
                f"| {name} | {said(advice.typical)} | {epsilon:g}, {delta:g} | "
                f"{' | '.join(said(error) for error in errors)}{at} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
