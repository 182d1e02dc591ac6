"""Empirical differential privacy: how private a statistic already is, from the data's own randomness.

    rows ──collect──▶ Results ──measure──▶ Risk

`databases` says where the rows are and who the individuals are; `audit` does all of it at once; `collect` and
`measure` are its two stages. Names are imported when first used, so that ``import empriv`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from empriv.errors import (
        EmprivError,
        FileFormatError,
        InputError,
        MissingExtraError,
        QueryError,
        SourceError,
    )
    from empriv.results import Outcome, Results

_HOME = {
    "EmprivError": "errors",
    "FileFormatError": "errors",
    "InputError": "errors",
    "MissingExtraError": "errors",
    "Outcome": "results",
    "QueryError": "errors",
    "Results": "results",
    "SourceError": "errors",
}

__all__ = [
    "EmprivError",
    "FileFormatError",
    "InputError",
    "MissingExtraError",
    "Outcome",
    "QueryError",
    "Results",
    "SourceError",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"empriv.{_HOME[name]}"), name)
    raise AttributeError(f"module 'empriv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
