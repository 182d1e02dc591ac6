"""A shop's daily takings, and an adversary who knows how many customers came. Run: python examples/adversaries.py

Prints the figures of docs/adversaries.md and draws its pictures, docs/images/adversaries-*.svg. The data are made up.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import vl_convert
from empriv.measuring.given.conditional import ViewSearch

import empriv
from empriv.results import FloatArray

IMAGES = Path(__file__).parent.parent / "docs" / "images"
EPSILON = 0.1
BLUE, RED, OCHRE = "#2f6f9f", "#b5432e", "#c9952f"


def shop(days: int = 365, seed: int = 1) -> pd.DataFrame:
    """A row for each purchase. Three regulars spend the same every day; all others are nobody in particular."""
    rng = np.random.default_rng(seed)
    customers = rng.poisson(rng.normal(200, 30, size=days).clip(100))
    amounts = [np.concatenate((rng.gamma(4.0, 5.0, size=count), [100.0, 40.0, 10.0])) for count in customers]
    names = [np.concatenate((np.full(count, None), ["anna", "bert", "cora"])) for count in customers]
    day = np.repeat(np.arange(days), customers + 3)
    return pd.DataFrame({"day": day, "client": np.concatenate(names), "amount": np.concatenate(amounts)})


def line(field: str, title: str) -> dict[str, Any]:
    return {"field": field, "type": "quantitative", "title": title}


def write(name: str, spec: dict[str, Any]) -> None:
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "config": {"font": "sans-serif", "axis": {"grid": False}, "view": {"stroke": None}},
        **spec,
    }
    IMAGES.mkdir(parents=True, exist_ok=True)
    (IMAGES / name).write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")


def curve(x: FloatArray, points: FloatArray, weights: FloatArray, h: float) -> FloatArray:
    """Density at x of a weighted Laplace mixture."""
    return np.asarray((weights * np.exp(-np.abs(x[:, None] - points) / h)).sum(axis=1) / (2 * h))


def main() -> None:
    rows = shop()
    data = empriv.databases(rows, database="day", individual="client", unidentified="keep")
    audit = empriv.audit(data, "sum(amount)", adversary="count(*)", progress=False)
    weighted = audit.against
    assert weighted is not None
    results, customers = audit.results, weighted.known[0]
    buckets = empriv.measure(results, known=empriv.Buckets(customers.astype(float)))
    print(f"{results.n_databases} days, {results.n_individuals} regulars; delta at epsilon {EPSILON}")
    print(f"knowing nothing          {audit.risk.delta(EPSILON):.3f}")
    print(f"customers, by weights    {audit.delta(EPSILON):.3f}")
    print(f"customers, five buckets  {buckets.delta(EPSILON):.3f}")
    for said in (*weighted.sentences, *weighted.warnings):
        print(said)

    search = weighted.search
    assert isinstance(search, ViewSearch)
    condition = int(np.argmin(np.abs(weighted.conditions.values - np.median(customers))))
    z = float(weighted.conditions.values[condition])
    risk, model = weighted.unconditional, weighted.unconditional.density
    assert model is not None
    # the takings that a day with z customers may have: what is left of the trend, spread as at z
    takings, trend = results.q, search.trends[0]
    at_z = (takings - trend) * search.scaling[condition] + trend[np.argmin(np.abs(customers - z))]
    regular = int(np.argmax(risk.delta_i(EPSILON)))
    without = at_z + results.without(results.individuals[regular]) - takings
    x = np.linspace(2400, 5600, 500)
    panels = {
        "Knowing nothing": (risk.pdf(x), risk.pdf_without(results.individuals[regular], x)),
        f"Knowing that {z:.0f} customers came": tuple(
            curve(x, side, search.weights[condition], search.bandwidths[condition]) for side in (at_z, without)
        ),
    }
    points = [
        {"panel": panel, "takings": float(place), "density": 1000 * float(height), "side": side}
        for panel, pair in panels.items()
        for side, heights in zip(("with everyone", "without the regular"), pair, strict=True)
        for place, height in zip(x, heights, strict=True)
    ]
    write(
        "adversaries-densities.svg",
        {
            "data": {"values": points},
            "facet": {"field": "panel", "type": "nominal", "title": None, "sort": list(panels)},
            "columns": 1,
            "spec": {
                "width": 520,
                "height": 150,
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {
                    "x": {**line("takings", "takings of a day"), "scale": {"zero": False, "nice": False}},
                    "y": line("density", "density, per 1,000"),
                    "color": {
                        "field": "side",
                        "type": "nominal",
                        "title": None,
                        "scale": {"domain": ["with everyone", "without the regular"], "range": [BLUE, RED]},
                        "legend": {"orient": "top"},
                    },
                },
            },
        },
    )

    by_z = weighted.by_condition(EPSILON)
    in_buckets = buckets.by_condition(EPSILON)["delta_i"]
    edges = np.quantile(customers, np.linspace(0, 1, len(in_buckets) + 1))
    y = {**line("delta", f"delta of the worst-off regular, epsilon = {EPSILON}"), "scale": {"domain": [0, 0.32]}}
    write(
        "adversaries-by-value.svg",
        {
            "width": 520,
            "height": 260,
            "layer": [
                {
                    "data": {
                        "values": [
                            {"z": float(low), "to": float(high), "delta": float(delta), "by": "buckets"}
                            for low, high, delta in zip(edges[:-1], edges[1:], in_buckets, strict=True)
                        ]
                    },
                    "mark": {"type": "rule", "strokeWidth": 5, "opacity": 1},
                    "encoding": {
                        "x": {**line("z", "customers of the day, as the adversary knows"), "scale": {"zero": False}},
                        "x2": {"field": "to"},
                        "y": y,
                        "color": {"field": "by", "type": "nominal", "title": None},
                    },
                },
                {
                    "data": {
                        "values": [
                            {"z": float(z), "delta": float(delta), "by": "weights"}
                            for z, delta in zip(by_z["z"], by_z["delta_i"], strict=True)
                        ]
                    },
                    "mark": {"type": "line", "strokeWidth": 2, "point": {"size": 30, "opacity": 1}},
                    "encoding": {
                        "x": line("z", "customers of the day, as the adversary knows"),
                        "y": y,
                        "color": {"field": "by", "type": "nominal", "title": None},
                    },
                },
                {
                    "data": {"values": [{"delta": float(risk.delta(EPSILON)), "by": "knowing nothing"}]},
                    "mark": {"type": "rule", "strokeDash": [5, 4], "strokeWidth": 2},
                    "encoding": {
                        "y": y,
                        "color": {
                            "field": "by",
                            "type": "nominal",
                            "title": None,
                            "scale": {
                                "domain": ["buckets", "weights", "knowing nothing"],
                                "range": [OCHRE, BLUE, RED],
                            },
                            "legend": {"orient": "top"},
                        },
                    },
                },
            ],
        },
    )


if __name__ == "__main__":
    main()
