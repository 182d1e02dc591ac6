"""The paper's example: the annual precipitation averaged over all places on Earth, each place an individual.

Without ``--file`` the numbers are a GENERATED stand-in of the same shape (41 years, 10,368 places, the same spread).
With it they are the real ones: ``precip.mon.mean.nc`` of the Global Precipitation Climatology Project, version 2.3.

    python examples/precipitation.py [--file precip.mon.mean.nc] [--out FOLDER]

asks as the paper does (``paper=True``: nothing is known, databases are random, the estimate decides) and writes its
five figures: year.svg, delta.svg, total-risk.svg, density.svg, and noise.svg, its noise on these answers. The paper's
own figure of noise is of other numbers: examples/noise_figure.py.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import vl_convert

import empriv

FIGURES = {"year": "results", "delta": "delta", "total-risk": "total_risk", "density": "density"}
ASKED = (0.05, 0.085, 0.12)


def main(out: str, *, file: str | None) -> None:
    rain = empriv.datasets.read_gpcp(file, years=(1979, 2019)) if file else empriv.datasets.precipitation()
    results = empriv.Results.from_arrays(
        rain.q,
        rain.q_without,
        individuals=rain.individuals,
        databases=rain.databases,
    )
    audit = empriv.audit(results, epsilon=ASKED, paper=True)

    kind = "GENERATED stand-in" if rain.synthetic else "Real data"
    print(f"{kind}: {len(rain.databases)} years, {len(rain.individuals):,} places")
    print(f"standard deviation over places within a year, on average: {rain.annual.std(axis=0).mean():.0f} mm")
    print(f"density: {audit.risk.density.name}")
    for epsilon in ASKED:
        delta_i = audit.delta_i(epsilon)
        print(
            f"epsilon {epsilon}: delta {audit.delta(epsilon):.5f}, total risk {audit.total_risk(epsilon):.4f};",
            f"places with delta_i above 0: {np.sum(delta_i > 0)}, above 0.001: {np.sum(delta_i > 0.001)}",
        )
    print(f"everybody is protected from epsilon {audit.epsilon(0.0):.3f} on")
    noise = empriv.design_noise(audit, epsilon=0.085, delta=0.0, method="paper")
    print(f"the paper's noise at (0.085, 0): mean size {noise.expected_error:.3g} mm on {results.q.mean():.0f} mm")
    bounds, cover = audit.bounds(0.085), audit.cover(0.085, 0.1)
    print(f"what the judge adds: with 95% confidence delta at 0.085 is at most {bounds.upper:.2f};", end=" ")
    print(f"at (0.085, 0.1) it hides moves up to {cover:.2g} mm, and the largest was {audit.moved(top=1).most:.2g} mm")

    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    for name, chart in FIGURES.items():
        audit.chart(chart, 0.085).save(folder / f"{name}.svg")
    (folder / "noise.svg").write_text(noise_figure(audit.risk, noise), encoding="utf-8")


def noise_figure(risk: empriv.Risk, noise: empriv.Noise) -> str:
    """The density of the results, and that of results with the noise, as SVG."""
    reach = 4 * noise.expected_error + 4 * float(np.std(risk.results.q))
    steps = np.arange(-reach, reach, reach / 1000)
    x = steps + float(np.mean(risk.results.q))
    before = risk.density.pdf(x, np.ravel(risk.results.q))
    cells = np.floor((np.append(steps, reach) - reach / 2000) / noise.step).astype(int)
    after = np.convolve(before, np.diff(noise.law.cdf(cells)), mode="same")
    values = [
        {"mm": float(at), "density": float(height), "answers": name}
        for name, heights in (("as they are", before), ("with noise", after))
        for at, height in zip(x[::4], heights[::4], strict=True)
    ]
    axes = {name: {"field": name, "type": "quantitative", "scale": {"zero": False}} for name in ("mm", "density")}
    spec = {
        "$schema": "https://vega.github.io/schema/vega-lite/v5.json",
        "background": "white",
        "width": 420,
        "height": 240,
        "data": {"values": values},
        "mark": {"type": "line", "strokeWidth": 2},
        "encoding": {"x": axes["mm"], "y": axes["density"], "color": {"field": "answers"}},
    }
    return str(vl_convert.vegalite_to_svg(spec))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="precipitation", help="the folder for the pictures")
    parser.add_argument("--file", help="the real data, precip.mon.mean.nc")
    main(**vars(parser.parse_args()))
