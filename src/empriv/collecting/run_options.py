"""`Run`: the options of a run that `audit`, `collect`, `scan`, `compare` and protocols hand on, checked once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from empriv.base.arguments import draws_or_none, jobs_or_none, progress_or_none, whole_number
from empriv.collecting.sources import Databases, Frame
from empriv.errors import InputError

if TYPE_CHECKING:
    from empriv.collecting.engines.engine import Engine
    from empriv.collecting.functions.frames import FrameKind


@dataclass(frozen=True, kw_only=True)
class Run:
    """How a query is run.

    Attributes
    ----------
    draws : number of draws from a randomised function, None for one that is not random
    rng : seed of a randomised function
    engine : what reads the rows and answers SQL; None chooses by the data
    memory_limit : such as ``"2GB"``, for the engine that is chosen
    timeout : seconds that an SQL query may take, on the engine that is chosen
    jobs : number of processes for a function
    checkpoint : file from which an interrupted run of a function resumes
    progress : False never shows progress, True always, None if the work lasts
    notice : called with a sentence before work that may last
    frame : what a function receives
    sketch : whether rows are sketched, by which a ledger knows them again
    verified_on : label of the database on which people are deleted to verify the query; None draws some at random
    """

    draws: int | None = None
    rng: int = 0
    engine: Engine | None = None
    memory_limit: str | None = None
    timeout: float | None = None
    jobs: int | None = None
    checkpoint: str | PathLike[str] | None = None
    progress: bool | None = None
    notice: Callable[[str], None] | None = None
    frame: FrameKind = "dict"
    sketch: bool = False
    verified_on: Any = None

    def __post_init__(self) -> None:
        draws_or_none(self.draws)
        whole_number("rng", self.rng, least=0)
        jobs_or_none(self.jobs)
        progress_or_none(self.progress)
        for name in self._limits if self.engine is not None else ():
            raise InputError(f"`{name}` must not be given beside `engine`. Hint: DuckDBEngine({name}=...).")

    @property
    def _limits(self) -> list[str]:
        """Names of the limits that are given."""
        return [name for name in ("memory_limit", "timeout") if getattr(self, name) is not None]

    def on(self, data: Databases, *, cluster: bool = False) -> tuple[Engine, Run]:
        """The engine that reads these rows, and this run with it; with ``cluster``, Spark even if they are few."""
        from empriv.collecting.sql.own_rows import check_sources

        check_sources(data)
        engine = self.engine or self._engine_for(data, cluster or self.checkpoint is not None)
        return engine, replace(self, engine=engine, memory_limit=None, timeout=None)

    def of_another_query(self) -> Run:
        """The same engine and limits for a query beside the one asked: no draws, and nothing to resume from."""
        return replace(self, draws=None, rng=0, jobs=None, checkpoint=None, frame="dict", sketch=False)

    def _engine_for(self, data: Databases, cluster: bool) -> Engine:
        """Spark for a Spark DataFrame unless it is small, DuckDB for all else."""
        for part in (*data.parts, *data.tables.values()):
            if isinstance(part, Frame) and type(part.frame).__module__.startswith("pyspark."):
                for name in self._limits:
                    raise InputError(f"`{name}` must not be given with Spark, which has limits of its own.")
                from empriv.collecting.engines.spark import SparkEngine, driver_engine

                here = None if cluster else driver_engine(data, self.progress)
                return here or SparkEngine(part.frame.sparkSession)
        limits: dict[str, Any] = {
            "memory_limit": self.memory_limit, "timeout": self.timeout, "progress": self.progress
        }  # fmt: skip
        from empriv.collecting.engines.duckdb import DuckDBEngine

        return DuckDBEngine(**limits)
