"""How many threads the mathematics may take."""

from __future__ import annotations

import os


def workers(most: int | None = None) -> int:
    """As many as there are processors, or as ``OMP_NUM_THREADS`` says, which Spark sets to an executor's cores."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(setting) if setting.isdigit() and int(setting) > 0 else os.cpu_count() or 1
    return threads if most is None else min(most, threads)
