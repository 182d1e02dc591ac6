"""Calls of a Python function on rows in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from empriv.collecting.function_calls import Fetch, FunctionQuery
from empriv.collecting.function_runs import Presence, collect_calls
from empriv.results import Results


def called(
    function: Callable[..., Any],
    *,
    fetch: Fetch,
    databases: Any,
    individuals: Any,
    starts: Any,
    entry_database: Any,
    **options: Any,
) -> Results:
    """Results; ``options`` are those of the query and of `collect_calls`."""
    own = {name: options.pop(name) for name in ("draws", "seed") if name in options}
    there = Presence(np.asarray(databases), np.asarray(individuals), np.asarray(starts), np.asarray(entry_database))
    return collect_calls(FunctionQuery(function, **own), fetch, there, **options)
