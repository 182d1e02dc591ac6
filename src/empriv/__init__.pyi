__all__ = [
    "KERNELS",
    "Action",
    "Advice",
    "Audit",
    "BestOf",
    "Bounds",
    "Buckets",
    "CertificateError",
    "Check",
    "Comparison",
    "Databases",
    "Density",
    "DuckDBEngine",
    "Ecdf",
    "EmprivError",
    "FileFormatError",
    "Given",
    "HowOften",
    "InputError",
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
    "RepeatedRisk",
    "Results",
    "Risk",
    "Scan",
    "SourceError",
    "SparkEngine",
    "TableNoise",
    "TableRisk",
    "Utility",
    "VariableKde",
    "Verdict",
    "advise",
    "audit",
    "bounds",
    "checks",
    "collect",
    "compare",
    "cover",
    "cover_by_cell",
    "databases",
    "datasets",
    "design_noise",
    "explain",
    "how_often",
    "load",
    "measure",
    "protocols",
    "repeats",
    "report",
    "scan",
    "splits",
    "subsamples",
]

from . import datasets, protocols, report
from .auditing.audit import Audit
from .auditing.make_audit import audit, load
from .collecting.engines.duckdb import DuckDBEngine
from .collecting.engines.spark import SparkEngine
from .collecting.pipeline import collect, explain
from .collecting.queries import Query
from .collecting.sources import Databases, databases, repeats, splits, subsamples
from .comparing import Action, Advice, Comparison, Utility, advise, compare
from .errors import (
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
from .ledger import Ledger, Policy
from .measuring.densities.density import BestOf, Density, Ecdf, Kde, Model, VariableKde
from .measuring.densities.kernels import KERNELS, Kernel
from .measuring.given.reader_knowledge import Buckets, Given, OwnContribution
from .measuring.line.risk import Risk
from .measuring.measures import measure
from .measuring.series.how_often import HowOften
from .measuring.series.repeated_risk import RepeatedRisk
from .measuring.tables.table_risk import TableRisk
from .noise.design.design import design_noise
from .noise.noise import Noise
from .noise.table_noise import TableNoise
from .results import Outcome, Results
from .scale.scanning import scan
from .scale.scans import Scan
from .validate.bounds import Bounds, bounds
from .validate.checks import Check, checks
from .validate.covering import cover
from .validate.how_many_publications import how_often
from .validate.table_cover import cover_by_cell
from .validate.verdict import Verdict

__version__: str
