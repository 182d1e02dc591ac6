"""A process that releases day after day: ``daily.py LEDGER FIRST LAST``. Prints a JSON line for each."""

from __future__ import annotations

import json
import random
import sys
from datetime import date, timedelta

import numpy as np
from asking import asked

from empriv.errors import RefusalError
from empriv.ledger import Ledger, Prices, Release, identity_of

START = date(2020, 1, 1)
PEOPLE = ["Ada", "Bob", "Eve"]
SQUARES = np.array([0.020, 0.011, 0.0])


def of_day(number: int, **changed: object) -> Release:
    """The release of one day; Ada's price is the largest."""
    day = str(START + timedelta(days=number))
    prices = Prices(PEOPLE, SQUARES, np.array([0.0, 1e-5, 0.0]))
    facts = {"identity": identity_of([day]), "database": day, "plan": "one plan", "prices": prices, **changed}
    return asked(**facts)  # type: ignore[arg-type]


def main() -> None:
    path, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    ledger = Ledger(path, create=False)
    print("ready", flush=True)
    for number in range(first, last):
        try:
            done = ledger.release(of_day(number), random.SystemRandom().random)
            print(json.dumps([number, done.answer]), flush=True)
        except RefusalError:
            print(json.dumps([number, None]), flush=True)


if __name__ == "__main__":
    main()
