"""Buckets of databases in which what the adversary knows is alike, each measured like any set of databases.

As the paper proposes. Within a bucket the linear trend of the results in what is known is taken out of both sides;
where results have atoms of numbers, which that would blur, they are measured as they are too, and the larger counts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.densities.density import Density, is_literal
from empriv.measuring.given.adversaries import LEAST_EFFECTIVE, bucket_labels, known_columns, trend
from empriv.measuring.given.conditional import ViewSearch
from empriv.measuring.given.views import View, database_means, exactness
from empriv.measuring.given.written_out import rows_of
from empriv.measuring.line.atoms import Pairs, split, tie_tolerance
from empriv.measuring.line.risk import Risk, measure_line
from empriv.results import FloatArray, IntArray, Results


@dataclass(frozen=True, eq=False)
class Bucket:
    """One bucket: the risks measured in it, of which the larger counts, and what exact knowledge gives at least."""

    risks: tuple[Risk, ...]
    floors: FloatArray  # (individuals,)
    determined: bool

    def curves(self, epsilon: FloatArray) -> FloatArray:
        found = np.maximum.reduce([risk.delta_i(epsilon) for risk in self.risks])
        return np.asarray(np.maximum(found, self.floors[:, None]))

    def epsilons(self, delta: float) -> FloatArray:
        found = np.maximum.reduce([risk.epsilon_i(delta) for risk in self.risks])
        return np.where(self.floors > delta, np.inf, found)


@dataclass(frozen=True, eq=False)
class BucketSearch:
    """delta_i in the worst bucket.

    Attributes
    ----------
    buckets : those with at least 20 databases
    values : their names
    sizes, left_out : databases of each, and of each bucket that was left out
    """

    buckets: tuple[Bucket, ...]
    values: npt.NDArray[Any]
    sizes: FloatArray
    left_out: FloatArray

    @property
    def n_conditions(self) -> int:
        return len(self.buckets)

    @property
    def n_determined(self) -> int:
        """Buckets in which what is known determines the results."""
        return sum(bucket.determined for bucket in self.buckets)

    def curves(self, epsilon: FloatArray) -> tuple[FloatArray, IntArray]:
        """(individuals, epsilons): delta_i, and the worst bucket (-1 where delta_i is 0)."""
        found = np.stack([bucket.curves(epsilon) for bucket in self.buckets])
        best = found.max(axis=0)
        return best, np.where(best > 0, found.argmax(axis=0), -1)

    def epsilons(self, delta: float, *, only_worst: bool = False) -> FloatArray:
        """(individuals,) smallest epsilon that suffices in every bucket; with ``only_worst`` the largest alone."""
        if only_worst:
            tops = [float(risk.epsilon(delta)) for bucket in self.buckets for risk in bucket.risks]
            exact = any(np.any(bucket.floors > delta) for bucket in self.buckets)
            return np.array([np.inf if exact else max(tops)])
        return np.asarray(np.maximum.reduce([bucket.epsilons(delta) for bucket in self.buckets]))

    def by_condition(self, individual: int, epsilon: float) -> FloatArray:
        """(buckets,) delta_i of one individual."""
        return np.array([bucket.curves(np.array([epsilon]))[individual, 0] for bucket in self.buckets])


def bucket_search(results: Results, known: Any, density: Density, *, count: int | None) -> BucketSearch:
    """Cut the databases into buckets and measure each."""
    n = results.n_databases
    labels, names = bucket_labels(known, n, count)
    sizes = np.bincount(labels, minlength=len(names)).astype(float)
    enough = np.flatnonzero(sizes >= LEAST_EFFECTIVE)
    if not len(enough):
        raise InputError(
            f"There must be at least {LEAST_EFFECTIVE:.0f} databases in some bucket, got {sizes.max():.0f} at most. "
            "Hint: a smaller `count`, or more databases."
        )
    numeric = [column for column in known_columns(known, n) if column.dtype.kind in "iuf"]
    columns = np.column_stack(numeric).astype(float) if numeric else np.zeros((n, 0))
    buckets = tuple(_bucket(results, columns, np.flatnonzero(labels == b), density) for b in enough)
    return BucketSearch(buckets, np.array([names[b] for b in enough]), sizes[enough], np.delete(sizes, enough))


def _bucket(results: Results, columns: FloatArray, databases: IntArray, density: Density) -> Bucket:
    some = results.on_databases(databases)
    known = columns[databases][:, np.isfinite(columns[databases]).all(axis=0)]
    pairs = split(some, look=not is_literal(density))
    mean, counts = database_means(pairs)
    taken = trend(mean, known, counts) if known.shape[1] else np.zeros(len(databases))
    if not taken.any():
        return Bucket((measure_line(some, density),), np.zeros(some.n_individuals), determined=False)
    plain, determined = _without_trend(some, taken)
    risks = [measure_line(plain, density)]
    numbers_at_atoms = np.isinf(pairs.points) & (some.outcomes.reshape(-1) == 0)
    entries_at_atoms = np.isinf(pairs.entries) & (some.entry_outcomes.reshape(pairs.entries.shape) == 0)
    if numbers_at_atoms.any() or entries_at_atoms.any() or pairs.own:
        risks.append(measure_line(some, density))
    return Bucket(tuple(risks), _floors(some, pairs, known, taken), determined)


def _without_trend(results: Results, taken: FloatArray) -> tuple[Results, bool]:
    """Both sides of every pair with the same taken out; and whether nothing is left of the results."""
    shape = (-1, *(1,) * (results.q.ndim - 1))
    q = results.q - taken.reshape(shape)
    entry_q = results.entry_q - taken[results.entry_database].reshape(shape)
    left = q[results.outcomes == 0]
    determined = bool(len(left)) and float(np.ptp(left)) <= exactness(results.q)
    if determined:  # one value, so that it is seen as the constant that it is
        value = float(np.median(left))
        with np.errstate(invalid="ignore"):
            same = np.abs(results.entry_q - results.q[results.entry_database]) <= tie_tolerance(results.q)
        q, entry_q = np.where(np.isnan(q), q, value), np.where(same, value, entry_q)
    return replace(results, q=q, entry_q=entry_q), determined


def _floors(results: Results, pairs: Pairs, known: FloatArray, taken: FloatArray) -> FloatArray:
    """delta_i of whoever's absence makes the results a linear function of what is known."""
    n = len(taken)
    design = np.column_stack((np.ones(n), known - known.mean(axis=0)))
    nothing = known[:0], np.zeros(0)
    every = np.full((1, n), 1.0 / n)
    as_is = np.ones((1, n))
    view = View(-1, -1, known[:1], every, np.array([float(n)]), taken, as_is, np.ones(1), design, *nothing)
    search = ViewSearch(results, pairs, (view,))
    floors = np.zeros(results.n_individuals)
    rows = np.flatnonzero(search.shifts >= 0.999 * search.leftovers[0])
    for start in range(0, len(rows), 4096):
        block = rows[start : start + 4096]
        found = search.floors(rows_of(results, pairs, block))
        if found is not None:
            floors[block] = found[0]
    return floors
