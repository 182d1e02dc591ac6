"""Empirical differential privacy: how private a statistic already is, from the data's own randomness.

    rows ──collect──▶ Results ──measure──▶ Risk ──design_noise──▶ Noise ──release──▶ answer

`databases` says where the rows are and who the individuals are; `audit` collects and measures at once; `design_noise`
finds the least noise where the data's own randomness is not enough; `Ledger` remembers what has been released.
Names are imported when first used, so that ``import empriv`` is quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from empriv import datasets, protocols
    from empriv.auditing import audit, load
    from empriv.audits import Audit
    from empriv.collecting import (
        Databases,
        DuckDBEngine,
        Query,
        SparkEngine,
        collect,
        databases,
        explain,
        repeats,
        splits,
        subsamples,
    )
    from empriv.comparing import Comparison, Difference, Utility, compare
    from empriv.errors import (
        CertificateError,
        EmprivError,
        FileFormatError,
        InputError,
        LedgerError,
        MissingExtraError,
        QueryError,
        RefusalError,
        SourceError,
    )
    from empriv.ledger import Ledger, Policy
    from empriv.measuring.adversary import AdversaryRisk, measure_against
    from empriv.measuring.densities import BestOf, Density, Ecdf, Kde, Model, VariableKde
    from empriv.measuring.joint import JointRisk
    from empriv.measuring.kernels import KERNELS, Kernel
    from empriv.measuring.known import Buckets, OwnContribution, Weighted
    from empriv.measuring.risk import Risk, measure
    from empriv.noise.design import design_noise
    from empriv.noise.joint import JointNoise, design_joint_noise
    from empriv.noise.noise import Noise
    from empriv.results import Outcome, Results
    from empriv.scale.scanning import scan
    from empriv.scale.scans import Scan
    from empriv.validate.bounds import Bounds, bounds
    from empriv.validate.checks import Check, checks
    from empriv.validate.verdict import Verdict

_HOMES = {
    "auditing": ("audit", "load"),
    "audits": ("Audit",),
    "collecting": (
        "Databases", "DuckDBEngine", "Query", "SparkEngine", "collect", "databases", "explain", "repeats", "splits",
        "subsamples",
    ),
    "comparing": ("Comparison", "Difference", "Utility", "compare"),
    "errors": (
        "CertificateError", "EmprivError", "FileFormatError", "InputError", "LedgerError", "MissingExtraError",
        "QueryError", "RefusalError", "SourceError",
    ),
    "ledger": ("Ledger", "Policy"),
    "measuring.adversary": ("AdversaryRisk", "measure_against"),
    "measuring.densities": ("BestOf", "Density", "Ecdf", "Kde", "Model", "VariableKde"),
    "measuring.joint": ("JointRisk",),
    "measuring.kernels": ("KERNELS", "Kernel"),
    "measuring.known": ("Buckets", "OwnContribution", "Weighted"),
    "measuring.risk": ("Risk", "measure"),
    "noise.design": ("design_noise",),
    "noise.joint": ("JointNoise", "design_joint_noise"),
    "noise.noise": ("Noise",),
    "results": ("Outcome", "Results"),
    "scale.scanning": ("scan",),
    "scale.scans": ("Scan",),
    "validate.bounds": ("Bounds", "bounds"),
    "validate.checks": ("Check", "checks"),
    "validate.verdict": ("Verdict",),
}  # fmt: skip
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "KERNELS",
    "AdversaryRisk",
    "Audit",
    "BestOf",
    "Bounds",
    "Buckets",
    "CertificateError",
    "Check",
    "Comparison",
    "Databases",
    "Density",
    "Difference",
    "DuckDBEngine",
    "Ecdf",
    "EmprivError",
    "FileFormatError",
    "InputError",
    "JointNoise",
    "JointRisk",
    "Kde",
    "Kernel",
    "Ledger",
    "LedgerError",
    "MissingExtraError",
    "Model",
    "Noise",
    "Outcome",
    "OwnContribution",
    "Policy",
    "Query",
    "QueryError",
    "RefusalError",
    "Results",
    "Risk",
    "Scan",
    "SourceError",
    "SparkEngine",
    "Utility",
    "VariableKde",
    "Verdict",
    "Weighted",
    "audit",
    "bounds",
    "checks",
    "collect",
    "compare",
    "databases",
    "datasets",
    "design_joint_noise",
    "design_noise",
    "explain",
    "load",
    "measure",
    "measure_against",
    "protocols",
    "repeats",
    "scan",
    "splits",
    "subsamples",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"empriv.{_HOME[name]}"), name)
    if name in ("datasets", "protocols"):
        return import_module(f"empriv.{name}")
    raise AttributeError(f"module 'empriv' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
