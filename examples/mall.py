"""A mall publishes figures for each of its access points: what do they tell about one phone?

GENERATED data: 4,000 visitors, most seen by a few of 150 access points, and the phone of a guard who walks past all of
them all day. Each access point is a database, each phone an individual.

    python examples/mall.py [--out mall.svg] [--quick]
"""

from __future__ import annotations

import argparse

import numpy as np
import pyarrow as pa

import empriv

GUARD = 0


def mall(visitors: int, access_points: int, seed: int = 0) -> pa.Table:
    """A row for each phone at each access point that saw it."""
    rng = np.random.default_rng(seed)
    busy = rng.lognormal(0, 0.5, access_points)
    roams = np.minimum(1, rng.gamma(2, 0.04, visitors))
    visitor, point = np.nonzero(rng.random((visitors, access_points)) < roams[:, None] * busy / busy.max())
    pace, linger = rng.lognormal(0, 0.4, visitors), rng.lognormal(np.log(6), 0.35, access_points)
    minutes = linger[point] * pace[visitor] * rng.lognormal(0, 0.5, len(point))
    guarded = rng.uniform(20, 60, access_points)
    return pa.table(
        {
            "access_point": np.concatenate([point, np.arange(access_points)]),
            "phone": np.concatenate([visitor + 1, np.full(access_points, GUARD)]),
            "minutes": np.round(np.concatenate([minutes, guarded]), 1),
        }
    )


def main(out: str, *, quick: bool) -> None:
    table = mall(visitors=1_000, access_points=60) if quick else mall(visitors=4_000, access_points=150)
    data = empriv.databases(table, database="access_point", individual="phone")
    for query in ("count(DISTINCT phone)", "avg(minutes)"):
        audit = empriv.audit(data, query, epsilon=[0.1, 0.2, 0.5])
        bounds, ranked = audit.bounds(0.1), audit.individuals(0.1)
        print(
            f"{query}: delta at epsilon 0.1 is {bounds.estimate:.4f}, with 95% confidence at most {bounds.upper:.2f};"
        )
        print(f"  total risk {audit.total_risk(0.1):.3f}; nobody is exposed from epsilon {audit.epsilon(0.0):.2f} on")
        for phone, delta_i, seen in zip(*(ranked[k][:3] for k in ("individual", "delta_i", "databases")), strict=True):
            who = "the guard" if phone == GUARD else "a visitor"
            if delta_i > 0:
                print(f"  {who}, seen by {seen} access points: delta_i {delta_i:.4f}")
    print(f"{audit.results.n_databases} access points, {audit.results.n_individuals:,} phones")

    audit.chart("moves", 0.1).save(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="mall.svg", help="the picture: .svg, .png, .pdf or .html")
    parser.add_argument("--quick", action="store_true", help="a smaller mall")
    main(**vars(parser.parse_args()))
