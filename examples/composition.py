"""Two sums that are private one by one, and reveal a person together: the figures and pictures of docs/tables.md.

python examples/composition.py [directory for the pictures, such as docs/images]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

import empriv
from empriv import Results
from empriv.measuring.tables.table_risk import TableRisk
from empriv.validate.checks import checks

EPSILONS = np.round(np.linspace(0.05, 1.0, 20), 3)
KINDS = ("constant", "normal", "lognormal", "zero in 90%")


def contribution(kind: str, n: int, rng: np.random.Generator) -> Any:
    """What the target adds to the sum of each database."""
    drawn = {
        "constant": np.full(n, 1.0),
        "normal": rng.normal(1.0, 0.3, n),
        "lognormal": rng.lognormal(0.0, 0.5, n),
        "zero in 90%": rng.lognormal(0.0, 0.5, n) * (np.arange(n) % 10 == 0),
    }
    return drawn[kind]


def differencing(kind: str, n: int) -> TableRisk:
    """f1: a sum; f2: the same sum without the target; the target, and another individual."""
    rng = np.random.default_rng(n)
    rest = rng.normal(100.0, 10.0, n)
    target, other = contribution(kind, n, rng), rng.normal(0.5, 0.2, n)
    total = rest + target
    risk = empriv.measure(
        Results.stack(
            {
                "total": Results.from_arrays(total, np.stack((rest, total - other))),
                "total_without": Results.from_arrays(rest, np.stack((rest, rest - other))),
            }
        )
    )
    assert isinstance(risk, TableRisk)
    return risk


def main(directory: Path | None) -> None:
    print("delta_i at epsilon 0.1 of the target and of another individual")
    print("| contribution | n | total alone | total_without alone | together: target | together: other | leak |")
    print("|---|---|---|---|---|---|---|")
    for n in (41, 365):
        for kind in KINDS:
            risk = differencing(kind, n)
            alone = [one.delta_i(0.1)[0] for one in risk.each_number.values()]
            both = risk.delta_i(0.1)
            leak = risk.leaks[0].direction if risk.leaks else "none"
            cells = " | ".join(f"{value:.3f}" for value in (*alone, *both))
            print(f"| {kind} | {n} | {cells} | {leak} |")
    risk = differencing("lognormal", 41)
    found = risk.bounds(0.1)
    print(f"\nlognormal, 41 databases, epsilon 0.1: delta at least {found.lower:.2f}, at most {found.upper:.2f} (95%)")
    for check in checks(risk, 0.1):
        if check.code == "exact-leak":
            print(check.sentence)
    noise = empriv.design_noise(risk, epsilon=0.5, delta=0.05, granularity=0.125)
    assert isinstance(noise, empriv.TableNoise)
    errors = ", ".join(f"{name} {error:.2f}" for name, error in noise.expected_error.items())
    print(f"\nnoise for epsilon 0.5, delta 0.05: expected errors {errors}")
    print(f"delta at epsilon 0.5: {risk.delta(0.5):.3f} without noise, at most {noise.achieved_delta():.3f} with it")
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        for name, spec in (("plane", plane(risk)), ("curves", curves(risk))):
            (directory / f"composition-{name}.svg").write_text(svg(spec), encoding="utf-8")


def plane(risk: TableRisk) -> dict[str, Any]:
    """Both sums in the plane, with everyone and without the target."""
    worlds = (("with everyone", risk.results.q), ("without the target", risk.results.without(0)))
    points = [
        {"total": float(x), "total without the target": float(y), "results": name} for name, q in worlds for x, y in q
    ]
    return {
        "width": 360,
        "height": 300,
        "data": {"values": points},
        "mark": {"type": "point", "filled": True, "size": 35},
        "encoding": {
            "x": {"field": "total", "type": "quantitative", "scale": {"zero": False}},
            "y": {"field": "total without the target", "type": "quantitative", "scale": {"zero": False}},
            "color": {"field": "results", "scale": {"range": ["#1f6f8b", "#d1495b"]}},
            "shape": {"field": "results"},
        },
    }


def curves(risk: TableRisk) -> dict[str, Any]:
    """The target's delta_i against epsilon: each sum alone, and both."""
    lines = {f"{name} alone": one.delta_i(EPSILONS)[0] for name, one in risk.each_number.items()}
    lines["both together"] = risk.delta_i(EPSILONS)[0]
    values = [
        {"epsilon": float(e), "delta_i of the target": float(d), "released": name}
        for name, line in lines.items()
        for e, d in zip(EPSILONS, line, strict=True)
    ]
    return {
        "width": 360,
        "height": 240,
        "data": {"values": values},
        "mark": {"type": "line", "strokeWidth": 2.5},
        "encoding": {
            "x": {"field": "epsilon", "type": "quantitative"},
            "y": {"field": "delta_i of the target", "type": "quantitative", "scale": {"domain": [0, 1]}},
            "color": {"field": "released", "scale": {"range": ["#d1495b", "#1f6f8b", "#66a182"]}},
            "strokeDash": {"field": "released"},
        },
    }


def svg(spec: dict[str, Any]) -> str:
    import vl_convert

    whole = {"$schema": "https://vega.github.io/schema/vega-lite/v5.json", "background": "white", **spec}
    return str(vl_convert.vegalite_to_svg(whole))


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
