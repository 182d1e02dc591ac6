"""Rows → `Results`: a query's result on every database, with everyone and without each individual.

`sources` says where the rows are, `queries` what is asked, `sql` how it is asked once for everybody, `function_runs`
how a Python function is; an engine such as `duckdb` does it, and `run_query` joins them. What results mean is for
`measuring`. Names are imported when first used, so that a worker process which only calls a function loads neither
an engine nor a parser of SQL.
"""

from typing import Any

import lazy_loader

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _load(name)
