"""A supplier blurs every reading and does not say how: how much privacy is that, and what is missing?

GENERATED data: the kilometres that 40 employees walk in a day, of whom one runs marathons. The firm publishes the day's
average. The supplier's box is a function that can be called and not read; empriv only calls it, again and again.

    python examples/upstream.py [--out upstream.svg] [--quick]
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import pyarrow as pa

import empriv
from empriv import protocols

EPSILON, DELTA = 0.5, 0.05  # the target


def readings(employees: int, days: int, seed: int = 0) -> pa.Table:
    rng = np.random.default_rng(seed)
    habit = rng.lognormal(np.log(5.0), 0.3, employees)
    habit[0] = 21.0  # the runner
    walked = habit * rng.lognormal(0, 0.08, (days, 1)) * rng.lognormal(0, 0.3, (days, employees))
    day, employee = np.repeat(np.arange(days), employees), np.tile(np.arange(employees), days)
    return pa.table({"day": day, "employee": employee, "km": walked.ravel()})


def box(km: Any, rng: np.random.Generator) -> Any:
    """What the supplier does; nothing below looks into it."""
    return np.minimum(km, 14.0) * rng.uniform(0.5, 1.5, len(km))


def published(rows: dict[str, Any], rng: np.random.Generator) -> float:
    return float(np.mean(box(rows["km"], rng)))


def main(out: str, *, quick: bool) -> None:
    table, draws = (readings(employees=12, days=50), 3) if quick else (readings(employees=40, days=100), 10)
    data = empriv.databases(table, database="day", individual="employee")
    raw = empriv.audit(data, "avg(km)", epsilon=[EPSILON])
    blurred = empriv.audit(data, published, draws=draws, epsilon=[EPSILON], jobs=1)
    alone, added = (
        empriv.design_noise(audit, epsilon=EPSILON, delta=DELTA, granularity=2**-10) for audit in (raw, blurred)
    )
    comparison = empriv.compare(
        {
            "raw readings": raw,
            "noise alone": protocols.noised("avg(km)", alone),
            "the box alone": blurred,
            "the box and noise": protocols.noised(published, added),
        },
        data,
        truth="raw readings",
        epsilon=[EPSILON],
        draws=draws,
        jobs=1,
    )

    print(f"{raw.results.n_databases} days, {raw.results.n_individuals} employees, {draws} draws")
    print(
        f"noise for a delta of {DELTA} at epsilon {EPSILON}:",
        f"{alone.expected_error:.2f} km for raw readings, {added.expected_error:.2f} km after the box",
    )
    print(f"{'':18} delta at {EPSILON}   at most (95%)   average error")
    table = comparison.table(EPSILON)
    for row in zip(*(table[k] for k in ("protocol", "delta", "upper_bound", "mean_absolute")), strict=True):
        print("{:18} {:12.3f} {:15.3f} {:12.2f} km".format(*row))
    comparison.chart(EPSILON).save(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="upstream.svg", help="the picture: .svg, .png, .pdf or .html")
    parser.add_argument("--quick", action="store_true", help="fewer employees, days and draws")
    main(**vars(parser.parse_args()))
