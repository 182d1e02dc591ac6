"""Empirical differential privacy: how private a statistic already is, from the data's own randomness.

    rows ──collect──▶ Results ──measure──▶ Risk

`databases` says where the rows are and who the individuals are; `audit` does all of it at once; `collect` and
`measure` are its two stages. Names are imported when first used, so that ``import empriv`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from empriv import datasets
    from empriv.auditing import Audit, audit, load
    from empriv.collecting import (
        Databases,
        DuckDBEngine,
        Query,
        SparkEngine,
        collect,
        databases,
        explain,
        splits,
        subsamples,
    )
    from empriv.errors import (
        EmprivError,
        FileFormatError,
        InputError,
        MissingExtraError,
        QueryError,
        SourceError,
    )
    from empriv.measuring.densities import BestOf, Density, Ecdf, Kde, Model, VariableKde
    from empriv.measuring.kernels import KERNELS, Kernel
    from empriv.measuring.risk import Risk, measure
    from empriv.results import Outcome, Results
    from empriv.scale.scanning import scan
    from empriv.scale.scans import Scan
    from empriv.validate.bounds import Bounds, bounds
    from empriv.validate.checks import Check, checks
    from empriv.validate.verdict import Verdict

_HOMES = {
    "auditing": ("Audit", "audit", "load"),
    "collecting": (
        "Databases",
        "DuckDBEngine",
        "Query",
        "SparkEngine",
        "collect",
        "databases",
        "explain",
        "splits",
        "subsamples",
    ),
    "errors": ("EmprivError", "FileFormatError", "InputError", "MissingExtraError", "QueryError", "SourceError"),
    "measuring.densities": ("BestOf", "Density", "Ecdf", "Kde", "Model", "VariableKde"),
    "measuring.kernels": ("KERNELS", "Kernel"),
    "measuring.risk": ("Risk", "measure"),
    "results": ("Outcome", "Results"),
    "scale.scanning": ("scan",),
    "scale.scans": ("Scan",),
    "validate.bounds": ("Bounds", "bounds"),
    "validate.checks": ("Check", "checks"),
    "validate.verdict": ("Verdict",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "KERNELS",
    "Audit",
    "BestOf",
    "Bounds",
    "Check",
    "Databases",
    "Density",
    "DuckDBEngine",
    "Ecdf",
    "EmprivError",
    "FileFormatError",
    "InputError",
    "Kde",
    "Kernel",
    "MissingExtraError",
    "Model",
    "Outcome",
    "Query",
    "QueryError",
    "Results",
    "Risk",
    "Scan",
    "SourceError",
    "SparkEngine",
    "VariableKde",
    "Verdict",
    "audit",
    "bounds",
    "checks",
    "collect",
    "databases",
    "datasets",
    "explain",
    "load",
    "measure",
    "scan",
    "splits",
    "subsamples",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"empriv.{_HOME[name]}"), name)
    if name == "datasets":
        return import_module("empriv.datasets")
    raise AttributeError(f"module 'empriv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
