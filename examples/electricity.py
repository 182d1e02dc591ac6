"""A village's use of electricity, month by month: is one household hidden, also from somebody who knows the weather?

GENERATED data: 300 households over ten years, a few of them workshops that use far more than a home. A household's use
has no upper limit, so that classical differential privacy has no sensitivity to scale its noise by. Each month is a
database.

    python examples/electricity.py [--out electricity.svg] [--quick]
"""

from __future__ import annotations

import argparse
import textwrap

import numpy as np
import pyarrow as pa

import empriv
from empriv.report.charts.chart import BLUE, VERMILION, Chart, Scale, layer, records, spec_of


def village(households: int, years: int, seed: int = 0) -> pa.Table:
    """A row for each household and month, with the month's temperature, which everybody knows."""
    rng = np.random.default_rng(seed)
    months = np.arange(12 * years)
    temperature = 10 - 9 * np.cos(2 * np.pi * months / 12) + rng.normal(0, 1.5, len(months))
    home = rng.lognormal(np.log(250), 0.5, households)
    workshop = 250 * rng.pareto(1.5, households) * (rng.random(households) < 0.02)
    heating = rng.beta(2, 4, households) / 8
    chance = rng.lognormal(0, 0.25, (len(months), households))
    kwh = (home + workshop) * (1 + heating * np.maximum(0, 22 - temperature[:, None])) * chance
    return pa.table(
        {
            "month": np.repeat([f"{2016 + month // 12}-{month % 12 + 1:02}" for month in months], households),
            "household": np.tile(np.arange(households), len(months)),
            "temperature": np.repeat(temperature, households),
            "kwh": kwh.ravel(),
        }
    )


def main(out: str, *, quick: bool) -> None:
    table = village(households=40, years=6) if quick else village(households=300, years=10)
    data = empriv.databases(table, database="month", individual="household")
    alone = empriv.audit(data, "sum(kwh)", known="nothing")
    calendar = empriv.audit(data, "sum(kwh)")
    informed = empriv.audit(data, "sum(kwh)", known=("min(temperature)", "calendar"))

    results, ranked = alone.results, alone.individuals(0.1)
    print(f"{results.n_databases} months, {results.n_individuals} households")
    print(f"a month's total: {results.q.mean():,.0f} kWh on average, {results.q.std():,.0f} standard deviation")
    print(f"the largest use of one household in one month: {np.max(ranked['largest_influence']):,.0f} kWh")
    print("                       delta at 0.1   delta at 0.5")
    rows = {
        "knows nothing else": alone, "knows what everybody does": calendar, "knows the temperature": informed,
    }  # fmt: skip
    for name, audit in rows.items():
        print(f"{name:25} {audit.delta(0.1):10.3f} {audit.delta(0.5):14.3f}")
    verdict = calendar.verdict(epsilon=0.1, delta=0.05, presence="random")
    print(f"is delta at most 0.05? {verdict}")
    alike = [check.sentence for check in alone.checks if check.code == "iid"]
    for sentence in alike:
        print(textwrap.fill(f"- {sentence}", 110, subsequent_indent="  "))
    print("noise that hides everybody from somebody who knows the temperature:")
    capped = empriv.audit(data, "sum(least(kwh, 1000))", known=("min(temperature)", "calendar"))
    for audit in (informed, capped):
        noise = empriv.design_noise(audit, epsilon=0.1, delta=0.05, granularity=1.0)
        print(f"{audit.query:25} expected error {noise.expected_error:6,.0f} on {audit.results.q.mean():,.0f} kWh")

    picture(empriv.collect(data, "min(temperature)").q, results.q, results.without(ranked["individual"][0])).save(out)


def scale(values: np.ndarray, step: float) -> Scale:
    return Scale(step * float(np.floor(values.min() / step)), step * float(np.ceil(values.max() / step)))


def picture(temperature: np.ndarray, total: np.ndarray, without: np.ndarray) -> Chart:
    """Each month's total against its temperature, with everyone and without the most exposed household."""
    names = ["with everyone", "without the most exposed household"]
    points = records(
        x=np.tile(temperature, 2), y=np.concatenate([total, without]) / 1000, which=np.repeat(names, len(total))
    )
    kind = {"field": "which", "type": "nominal"}
    encoding = {
        "x": scale(temperature, 5.0).encoding("x", "temperature of the month, degrees"),
        "y": scale(np.concatenate([total, without]) / 1000, 10.0).encoding("y", "total of the village, MWh"),
        "color": {**kind, "scale": {"domain": names, "range": [BLUE, VERMILION]}},
        "shape": {**kind, "scale": {"domain": names, "range": ["circle", "diamond"]}},
    }
    spec = spec_of(layer=[layer("months", {"type": "point", "filled": True, "size": 40}, points, encoding)])
    return Chart(
        name="months",
        title="Total against temperature",
        caption="The household is hidden among all months, and not among those of one temperature.",
        spec=spec,
        data={"temperature": temperature.tolist(), "with everyone": total.tolist(), "without": without.tolist()},
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="electricity.svg", help="the picture: .svg, .png, .pdf or .html")
    parser.add_argument("--quick", action="store_true", help="a hamlet of 40 households over six years")
    main(**vars(parser.parse_args()))
