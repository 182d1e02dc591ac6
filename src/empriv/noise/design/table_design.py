"""The least noise on the cells of a table, by bisecting one scale for all of them.

Each cell gets noise in proportion to the most that anybody moved it, to its spread, or to the mean of both on a
logarithmic scale; Gaussian or Laplace. For each of these the least scale with which the judge hides every day of
everybody is found, and that of the smallest error is taken, added up over cells in units of their spreads.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from empriv.base.arguments import finite_epsilon, probability
from empriv.errors import CertificateError, InputError
from empriv.judge.noise_kernels import NoiseKernel, classical
from empriv.measuring.densities.selection import spread
from empriv.measuring.tables import GivenTableRisk, TableRisk
from empriv.noise.law import Law, check_granularity, suggested_granularity
from empriv.noise.table_noise import TableNoise
from empriv.results import FloatArray
from empriv.validate.table_cover import TableHiding, days_of, table_upper

_ASKED = 8  # days of several cells that the search looks at, the furthest
_TOLERANCE = 0.01  # of the scale
_FALL = 4.0
_NARROWEST = 2.0**-16  # of noise that hides everybody whatever the data are
_WIDER, _ROUNDS = 1.03, 24  # where a day was overlooked


def design_table_noise(
    risk: TableRisk,
    *,
    epsilon: float,
    delta: float,
    granularity: float | Mapping[str, float] | None = None,
    consistent: bool = False,
    presence: str = "both",
) -> TableNoise:
    """The least noise found on each of several numbers that the judge accepts; see `empriv.design_noise`."""
    if not (finite_epsilon(epsilon) > 0):
        raise InputError(f"`epsilon` must be positive and finite, got {epsilon:g}.")
    probability("delta", delta)
    if not isinstance(consistent, bool):
        raise InputError(f"`consistent` must be True or False, got {consistent!r}.")
    names = tuple(risk.components)
    steps = _granularities(risk, names, granularity)
    found = least_scales(TableTarget(risk, np.array(steps), float(epsilon), float(delta), presence))
    if found is None:
        raise CertificateError(
            f"No noise keeps delta at {delta:g}: somebody decides on some database whether a number is there at all "
            "(NULL, NaN, an error). Hint: a query that always gives numbers, such as coalesce(sum(x), 0); or "
            "presence='random', where that may happen seldom enough for the target."
        )
    kind, scales = found
    laws = {
        name: Law.of(step, [(kind, 1.0, scale)] if scale > 0 else [("point", 1.0, 0.0)])
        for name, step, scale in zip(names, steps, scales.tolist(), strict=True)
    }
    noise = TableNoise(
        laws=laws,
        risk=risk,
        epsilon=float(epsilon),
        delta=float(delta),
        declared_granularity=granularity is not None,
        consistent=consistent,
        presence=presence,
        given=isinstance(risk, GivenTableRisk),
    )
    if consistent:
        _ = noise.relations  # where it cannot be seen how cells add up, that is said now
    return noise


@dataclass(frozen=True, eq=False)
class TableTarget:
    """What noise on a table must keep.

    Attributes
    ----------
    risk : of the table
    steps : (cells,) granularity of each
    epsilon, delta : the target
    presence : "both", on the day that people are in, and so in a random database; "random", in that alone
    """

    risk: TableRisk = field(repr=False)
    steps: FloatArray
    epsilon: float
    delta: float
    presence: str = "both"

    def kernels(self, kind: str, scales: FloatArray) -> tuple[NoiseKernel | None, ...]:
        """Noise of these scales (cells,), none where a scale is 0."""
        both = zip(scales.tolist(), self.steps.tolist(), strict=True)
        return tuple(NoiseKernel(kind, scale, step) if scale > 0 else None for scale, step in both)

    def kept(self, kernels: Sequence[NoiseKernel | None]) -> bool:
        """Whether everybody is within the target."""
        return table_upper(self.risk, tuple(kernels), self.epsilon, self.delta, self.presence) <= self.delta

    def looks_kept(self, kernels: Sequence[NoiseKernel | None]) -> bool:
        """The same for those whom a search looks at."""
        if self.presence == "random":
            return self.kept(kernels)
        return TableHiding(self.risk, tuple(kernels)).meets(self.epsilon, self.delta, asked=_ASKED)


def least_scales(target: TableTarget) -> tuple[str, FloatArray] | None:
    """The kind of noise and (cells,) its scales; None if no noise keeps the target."""
    risk = target.risk
    moved = np.where(days_of(risk).most > 0, np.maximum(days_of(risk).most, target.steps), 0.0)
    if not moved.any():
        return "laplace", moved
    spreads = np.array([spread(q) for q in _columns(risk)])
    spreads = np.where(spreads > 0, spreads, np.where(moved > 0, moved, 1.0))
    shapes = [moved, np.where(moved > 0, spreads, 0.0), np.sqrt(moved * spreads)]
    best: tuple[float, str, FloatArray] | None = None
    for kind in ("gaussian", "laplace") if target.delta > 0 else ("laplace",):
        for shape in shapes:
            cost = float((shape / spreads).sum()) * NoiseKernel(kind, 1.0).error
            found = _bisected(target, kind, shape, np.inf if best is None else best[0] / cost)
            if found is not None:
                best = found * cost, kind, found * shape
    return None if best is None else (best[1], best[2])


def _bisected(target: TableTarget, kind: str, shape: FloatArray, most: float) -> float | None:
    """The least factor of a shape that keeps the target, below ``most``; None if there is none."""

    def enough(factor: float) -> bool:
        return target.looks_kept(target.kernels(kind, factor * shape))

    high = min(_alone(target, kind, shape), most)
    if not high > 0 or not enough(high):
        return None
    low = _NARROWEST * high
    while high / _FALL > low and enough(high / _FALL):
        high /= _FALL
    low = max(low, high / _FALL)
    while high / low > 1 + _TOLERANCE:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    for _ in range(_ROUNDS):
        if high >= most:
            return None
        if target.kept(target.kernels(kind, high * shape)):
            return high
        high *= _WIDER
    return None


def _alone(target: TableTarget, kind: str, shape: FloatArray) -> float:
    """A factor with which the noise alone hides every day of everybody."""
    days = days_of(target.risk)
    steps = np.maximum(target.steps, 1e-300)
    moved = np.ceil(np.abs(days.moves) / steps[days.cells] - 1e-9) * steps[days.cells] / shape[days.cells]
    if kind == "laplace":  # |d|/s adds up to epsilon at most
        return float(np.bincount(days.day, moved).max(initial=0.0)) / target.epsilon * (1 + 1e-9)
    size = math.sqrt(float(np.bincount(days.day, moved**2).max(initial=0.0)))
    return classical(target.epsilon, target.delta, size, "gaussian").scale * (1 + 1e-9) if size > 0 else 0.0


def _columns(risk: TableRisk) -> list[FloatArray]:
    """The answers of each cell that are numbers."""
    d = len(risk.fit.cells)
    q, codes = risk.results.q.reshape(-1, d), risk.results.outcomes.reshape(-1, d)
    return [q[codes[:, cell] == 0, cell] for cell in range(d)]


def _granularities(
    risk: TableRisk, names: tuple[str, ...], granularity: float | Mapping[str, float] | None
) -> list[float]:
    if isinstance(granularity, Mapping):
        if set(granularity) != set(names):
            raise InputError(f"`granularity` must hold each of the {len(names)} numbers by name, and no other.")
        return [check_granularity(granularity[name]) for name in names]
    if granularity is not None:
        return [check_granularity(granularity)] * len(names)
    return [suggested_granularity(_width(risk, name)) for name in names]


def _width(risk: TableRisk, name: str) -> float:
    results = risk.components[name].results
    influence = np.nan_to_num(risk.components[name].influence(), nan=0.0)
    return float(influence.max(initial=0.0)) or spread(results.q[results.outcomes == 0].ravel()) or 1.0
