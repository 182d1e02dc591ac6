"""Steps on rows, before the query: how a column changes, or which rows are kept, as SQL.

A random step draws for each row from a hash, the 128 bits of md5 of (seed, step, draw, row), so that a row has the same
noise, and is kept or not, whoever else is there. `stepped` runs the steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

NoiseLaw = Literal["laplace", "gaussian"]


@dataclass(frozen=True)
class Clipped:
    """Values of a column beyond a limit become the limit."""

    column: str
    lower: float | None
    upper: float
    kind: ClassVar[str] = "clipped"
    randomised: ClassVar[bool] = False

    def write(self, x: str, drawn: str, *, double: bool) -> str:  # noqa: ARG002 — nothing is drawn
        """SQL of the new value of ``x``; NULL and NaN stay as they are."""
        cases = [f"WHEN ISNAN({x}) THEN {x}"] if double else []  # DuckDB sorts NaN above all numbers
        if self.lower is not None:
            cases.append(f"WHEN {x} < {_literal(self.lower)} THEN {_literal(self.lower)}")
        cases.append(f"WHEN {x} > {_literal(self.upper)} THEN {_literal(self.upper)}")
        return f"CASE {' '.join(cases)} ELSE {x} END"

    @property
    def words(self) -> str:
        if self.lower is None:
            return f"{self.column} at most {self.upper:g}"
        return f"{self.column} kept between {self.lower:g} and {self.upper:g}"


@dataclass(frozen=True)
class LocalNoise:
    """Add noise to each value of a column."""

    column: str
    scale: float
    law: NoiseLaw
    kind: ClassVar[str] = "local noise"
    randomised: ClassVar[bool] = True

    def write(self, x: str, drawn: str, *, double: bool) -> str:  # noqa: ARG002 — of any kind of number
        """SQL of the new value of ``x``; both laws are drawn from the same two uniform numbers."""
        exponential = f"-LN((CAST({drawn} >> 64 AS DOUBLE) + 1) * {2.0**-64!r})"
        uniform = f"CAST({drawn} & CAST('{2**64 - 1}' AS UHUGEINT) AS DOUBLE) * {2.0**-64!r}"
        if self.law == "laplace":
            noise = f"({exponential}) * CASE WHEN {uniform} < 0.5 THEN 1 ELSE -1 END"
        else:  # Box and Muller
            noise = f"SQRT(2 * ({exponential})) * COS({2 * math.pi!r} * {uniform})"
        return f"CAST({x} AS DOUBLE) + CAST('{self.scale!r}' AS DOUBLE) * {noise}"

    @property
    def words(self) -> str:
        named = {"laplace": "Laplace noise of scale", "gaussian": "Gaussian noise of standard deviation"}[self.law]
        return f"each {self.column} with {named} {self.scale:g}"


@dataclass(frozen=True)
class Subsampled:
    """Each row is kept with a probability."""

    share: float
    column: ClassVar[None] = None
    kind: ClassVar[str] = "subsampled"
    randomised: ClassVar[bool] = True

    def write(self, x: str, drawn: str, *, double: bool) -> str:  # noqa: ARG002 — depends on no value
        """SQL of the condition under which a row is kept."""
        if self.share >= 1:
            return "TRUE"
        return f"{drawn} < CAST('{int(self.share * 2**128)}' AS UHUGEINT)"

    @property
    def words(self) -> str:
        return f"each row kept with probability {self.share:g}"


RowStep = Clipped | LocalNoise | Subsampled


def _literal(number: float) -> str:
    """Whole limits as integers, so that integer columns stay integer."""
    return str(int(number)) if float(number).is_integer() and abs(number) < 2**53 else repr(float(number))
