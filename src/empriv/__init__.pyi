__all__ = [
    "KERNELS",
    "Advice",
    "Audit",
    "BestOf",
    "Bounds",
    "Buckets",
    "Comparison",
    "Databases",
    "DuckDBEngine",
    "Ecdf",
    "EmprivError",
    "Given",
    "InputError",
    "Kde",
    "Ledger",
    "Message",
    "Noise",
    "Outcome",
    "OwnContribution",
    "Policy",
    "Query",
    "QueryError",
    "RefusalError",
    "Results",
    "Risk",
    "SparkEngine",
    "TableNoise",
    "VariableKde",
    "Verdict",
    "advise",
    "audit",
    "collect",
    "compare",
    "databases",
    "datasets",
    "design_noise",
    "load",
    "measure",
    "protocols",
    "repeats",
    "report",
    "splits",
    "subsamples",
]

from . import datasets, protocols, report
from .auditing.audit import Audit
from .auditing.make_audit import audit, load
from .collecting.engines.duckdb import DuckDBEngine
from .collecting.engines.spark import SparkEngine
from .collecting.queries import Query
from .collecting.run_query import collect
from .collecting.sources import Databases, databases, repeats, splits, subsamples
from .comparing import Advice, Comparison, advise, compare
from .errors import EmprivError, InputError, QueryError, RefusalError
from .ledger import Ledger, Policy
from .measuring.densities.density import BestOf, Ecdf, Kde, VariableKde
from .measuring.densities.kernels import KERNELS
from .measuring.given.reader_knowledge import Buckets, Given, OwnContribution
from .measuring.line.risk import Risk
from .measuring.measures import measure
from .noise.design import design_noise
from .noise.noise import Noise
from .noise.table_noise import TableNoise
from .results import Outcome, Results
from .validate.bounds import Bounds
from .validate.verdict import Verdict
from .words.message import Message

__version__: str
