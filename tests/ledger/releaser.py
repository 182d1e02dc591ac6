"""A process that releases: ``releaser.py LEDGER NAME OWN SHARED``. Prints a JSON line for each answer that it is shown.

OWN queries are its own, SHARED are the same for all processes. With a policy, refusals are printed as null.
"""

from __future__ import annotations

import json
import random
import sys

from asking import asked

from empriv.collecting.sql.forms import form_of
from empriv.errors import RefusalError
from empriv.ledger import Ledger


def main() -> None:
    path, name, own, shared = sys.argv[1:]
    queries = [f"{name} own {k}" for k in range(int(own))] + [f"shared {k}" for k in range(int(shared))]
    random.Random(name).shuffle(queries)
    ledger = Ledger(path)
    form_of("warm")  # the parser is loaded before the race begins
    print("ready", flush=True)
    for query in queries:
        try:
            done = ledger.release(asked(query), random.SystemRandom().random)
            print(json.dumps([query, done.answer, done.repeated]), flush=True)
        except RefusalError:
            print(json.dumps([query, None, False]), flush=True)


main()
