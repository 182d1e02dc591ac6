"""What the data that the package carries hide: cover, moves and decision for plain questions, with times.

    python benchmarks/panels.py

Cover and moves are in the answer's units, as it is on a typical database. Dither is noise of the mean size in brackets.
"Beyond" is the share of person-days on which somebody moved the answer by more than it hides as it is. Processor
seconds are of one audit from the rows and its verdict, verification by deletion included.
"""

from __future__ import annotations

import time

import numpy as np

import empriv
from empriv.judge.cover import dither
from empriv.noise.judging import JudgedAnswer, one_number
from empriv.validate.covers import line_cover_of
from saves import said, shop_and_flights

TARGETS = ((0.1, 0.05), (1.0, 0.05))


def cases() -> list[tuple[str, empriv.Databases, str]]:
    """What is published, of which databases."""
    shop, flights = shop_and_flights()
    return [
        ("shop, customers a day", shop, "count(DISTINCT customer_id)"),
        ("shop, purchases a day", shop, "count(*)"),
        ("shop, takings a day", shop, "sum(amount)"),
        ("shop, average purchase", shop, "avg(amount)"),
        ("flights, flights a day", flights, "count(*)"),
        ("flights, average delay", flights, "avg(delay)"),
        ("flights, share late", flights, "avg(CASE WHEN delay > 15 THEN 1.0 ELSE 0 END)"),
    ]


def main() -> None:
    print("| panel | n | epsilon, delta | hides up to, as it is | with dither (±) | moved: median, 99%, most "
          "| beyond | decision | processor, s |")  # fmt: skip
    print("|---" * 9 + "|")
    for name, data, query in cases():
        for epsilon, delta in TARGETS:
            start = time.process_time()
            audit = empriv.audit(data, query, epsilon=epsilon, progress=False)
            verdict = audit.verdict(epsilon=epsilon, delta=delta)
            spent = time.process_time() - start
            day = verdict.day
            assert day is not None
            pairs = JudgedAnswer(one_number(audit)).pairs
            noise = dither(pairs.points, draws=pairs.draws)
            scale = 0.0 if noise is None else noise.scale
            sizes = line_cover_of(audit.once, None).moves.sizes
            moved = ", ".join(said(float(np.quantile(sizes, share))) for share in (0.5, 0.99, 1.0))
            print(
                f"| {name} | {audit.n_databases} | {epsilon:g}, {delta:g} | {said(day.cover)} "
                f"| {said(audit.cover(epsilon, delta, noise=scale))} ({said(scale)}) | {moved} "
                f"| {day.beyond / max(day.days, 1):.2%} | {verdict} | {spent:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
