"""How long a release takes in a ledger of few and of many entries: ``python benchmarks/ledger.py [--many 100000]``.

Entries are written as the ledger writes them, many in one transaction, since waiting for the disk is no part of the
question. Then releases are timed, each by the median of 60, in two ledgers: one of different queries without limits,
and one of the same query, audited each day on the last 30 and released of the last, under a limit on queries.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from empriv.collecting.origins import Origin
from empriv.ledger import Figures, Head, Ledger, Policy, Release, book, identity_of, store

DAYS = tuple(range(30))
SHOP = Origin(sources=("sales.parquet",), database="day", individual=("client",))


def release(number: int, same_query: bool) -> Release:
    # Of the second kind each release has an audit of its own, on the latest days.
    labels = [number + day for day in DAYS] if same_query else DAYS
    return Release(
        identity=identity_of(labels, SHOP),
        database=labels[-1],
        query="SELECT avg(amount) FROM data" if same_query else f"sum(x{number})",
        method="least",
        law={"kind": "laplace", "scale": 1.5},
        asked=Figures(0.1, 0.01),
        achieved=Figures(0.1, 0.005),
        n_individuals=100,
    )


def fill(ledger: Ledger, count: int, same_query: bool) -> None:
    """So many releases within one transaction, none of which looks at the chain again."""
    head = ledger.head
    with store.opened(ledger.path, timeout=30.0) as connection, store.transaction(connection, write=True):
        key = store.read_key(connection)

        @contextmanager
        def kept(*_: Any, **__: Any) -> Any:
            yield connection

        @contextmanager
        def joined(*_: Any, **__: Any) -> Any:
            yield

        with (
            mock.patch.object(store, "opened", kept),
            mock.patch.object(store, "transaction", joined),
            mock.patch.object(book, "check_recent_entries", side_effect=lambda *_: (key, head)),
        ):
            for number in range(count):
                entry = ledger.release(release(number, same_query), lambda: 1.0).entry
                head = Head(entry.id, entry.hash)


def seconds(folder: Path, count: int, same_query: bool) -> tuple[float, float]:
    """Median time of a release in a ledger of so many: on the clock, and of the processor."""
    policy = Policy(queries=5) if same_query else Policy()
    ledger = Ledger(folder / f"{count}.{same_query}.ledger", policy=policy)
    fill(ledger, count, same_query)
    times = []
    for number in range(count, count + 60):
        asked = release(number, same_query)
        start = time.perf_counter(), time.process_time()
        ledger.release(asked, lambda: 1.0)
        times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
    assert ledger.head.count == count + 61
    clock, processor = zip(*times, strict=True)
    return statistics.median(clock), statistics.median(processor)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--many", type=int, default=100_000)
    many = parser.parse_args().many
    with tempfile.TemporaryDirectory(prefix="empriv-benchmark-") as name:
        for same_query, words in ((False, "different queries, no limits"), (True, "one query day after day, a limit")):
            few, lots = (seconds(Path(name), count, same_query) for count in (100, many))
            for what, one, other in zip(("clock", "processor"), few, lots, strict=True):
                times = f"{one * 1e3:.1f} ms at 100 entries, {other * 1e3:.1f} ms at {many:,}"
                print(f"{words}, {what}: {times}, ratio {other / one:.2f}")


if __name__ == "__main__":
    main()
