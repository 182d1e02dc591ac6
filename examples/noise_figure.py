"""The paper's figure of noise: a Gaussian kernel of sigma 0.002 deconvolved from Laplace(0.89), one million draws.

Run: python examples/noise_figure.py [folder]; writes noise-figure.svg and noise-figure.png (default: docs/images).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import vl_convert

from empriv import KERNELS
from empriv.noise.law import Law, suggested_granularity
from empriv.noise.paper import fourier

SIGMA, SCALE, DRAWS = 0.002, 0.89, 1_000_000


def law() -> Law:
    granularity = suggested_granularity(SIGMA)
    found = fourier(KERNELS["gaussian"], SIGMA, SCALE, granularity)
    assert found is not None
    share, table = found
    return Law.of(granularity, [("laplace", share, SCALE), ("table", 1.0 - share, 0.0, table)])


def histogram(draws: np.ndarray[Any, Any], edges: np.ndarray[Any, Any]) -> list[dict[str, float]]:
    counts = np.histogram(draws, edges)[0]
    density = counts / (len(draws) * np.diff(edges))
    return [
        {"x": float(a), "x2": float(b), "density": float(d)}
        for a, b, d in zip(edges[:-1], edges[1:], density, strict=True)
    ]


def panel(title: str, bars: list[dict[str, float]], line: list[dict[str, float]], low: float = 0.0) -> dict[str, Any]:
    axis = {"x": {"field": "x", "type": "quantitative", "title": "noise"}}
    return {
        "title": title,
        "width": 360,
        "height": 240,
        "layer": [
            {
                "data": {"values": bars},
                "mark": {"type": "rect", "color": "#9ec5d8"},
                "encoding": {
                    **axis,
                    "x2": {"field": "x2"},
                    "y": {"field": "density", "type": "quantitative", "title": "density", "scale": {"zero": low == 0}},
                    "y2": {"datum": low},
                },
            },
            {
                "data": {"values": line},
                "mark": {"type": "line", "color": "#b3423a", "strokeWidth": 1.5},
                "encoding": {**axis, "y": {"field": "density", "type": "quantitative"}},
            },
        ],
    }


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "docs" / "images")
    noise = law()
    draws = noise.law.sample(DRAWS, rng=0)
    smoothed = draws + np.random.default_rng(1).normal(0.0, SIGMA, DRAWS)
    grid = np.linspace(-4, 4, 401)
    near = np.arange(-80, 81)  # cells

    def laplace(x: np.ndarray[Any, Any]) -> list[dict[str, float]]:
        return [{"x": float(one), "density": float(np.exp(-abs(one) / SCALE) / (2 * SCALE))} for one in x]

    step = noise.step
    cells = [
        {"x": (k - 0.5) * step, "x2": (k + 0.5) * step, "density": float(mass) / step}
        for k, mass in zip(near.tolist(), noise.pmf(near), strict=True)
    ]
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "hconcat": [
            panel(
                "One million draws of the noise, and Laplace(0.89)",
                histogram(draws, np.linspace(-4, 4, 161)),
                laplace(grid),
            ),
            panel("The law itself close to 0, and Laplace(0.89)", cells, laplace(step * near), low=0.55),
        ],
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "noise-figure.svg").write_text(vl_convert.vegalite_to_svg(spec))
    (folder / "noise-figure.png").write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
    print(f"Laplace({SCALE}) with probability {noise.parts[-1].weight / 2**64:.8f}, else a table about 0")
    print(f"expected error {noise.expected_error:.6f}; mean |draw| {np.abs(draws).mean():.4f}")
    print(f"draws with kernel noise, mean |.| {np.abs(smoothed).mean():.4f}; Laplace({SCALE}) has {SCALE}")


if __name__ == "__main__":
    main()
