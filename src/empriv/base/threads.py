"""How many threads the mathematics may take."""

from __future__ import annotations

import os


def workers(most: int | None = None) -> int:
    """As many as there are processors, or as ``OMP_NUM_THREADS`` says, which Spark sets to an executor's cores."""
    said = os.environ.get("OMP_NUM_THREADS", "")
    found = int(said) if said.isdigit() and int(said) > 0 else os.cpu_count() or 1
    return found if most is None else min(most, found)
