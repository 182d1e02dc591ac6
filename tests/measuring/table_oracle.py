"""What a whole table reveals of one person: slow and plain, written from the mathematics and not from the library.

Only the engine for one number is the library's (`empriv.measure`, which has oracles of its own). Notation: y (n, d) is
the table of the others, D_k (d,) what the person adds on database k where they are there.

* Fit once: Y is y less its mean, r its rank, p = 1 + r, K = (n - p)(Y'Y)^+, the precision of the cells.
* A direction a carries ``t = Y K a/(a'K a)``, on which an influence D weighs ``D'K a/(a'K a)``.
* D outside the span of Y tells for certain: some combination of cells is constant, and not with the person.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import empriv

Array = npt.NDArray[np.float64]
SMALLEST = 1e-9  # singular values below, in units of the largest, are rounding
OUTSIDE = 1e-7  # what of an influence lies outside the span and is not rounding


@dataclass(frozen=True, eq=False)
class Fit:
    """A table less its mean, in cells scaled to spread 1.

    Attributes
    ----------
    y : (n, d) scaled and centred
    scale : (d,) what cells were divided by
    span : (d, r) orthonormal, the combinations of cells that vary
    precision : (d, d), K
    parameters : p, with the mean
    """

    y: Array
    scale: Array
    span: Array
    precision: Array
    parameters: int


def fit(table: Array) -> Fit:
    n = len(table)
    centred = table - table.mean(axis=0)
    spread = centred.std(axis=0)
    scale = np.where(spread > 1e-12 * np.abs(table).max(axis=0, initial=1e-300), spread, 1.0)
    y = centred / scale
    y[:, spread <= 1e-12 * np.abs(table).max(axis=0, initial=1e-300)] = 0.0
    _, s, v = np.linalg.svd(y, full_matrices=False)
    r = int(np.count_nonzero(s > SMALLEST * s.max(initial=0.0))) if s.max(initial=0.0) > 0 else 0
    p = 1 + r
    span = v[:r].T
    precision = (n - p) * (span / s[:r] ** 2) @ span.T
    return Fit(y, scale, span, precision, p)


def leaves_span(fitted: Fit, influence: Array) -> bool:
    """Whether the influence is outside of what the table of the others spans."""
    scaled = influence / fitted.scale
    outside = scaled - fitted.span @ (fitted.span.T @ scaled)
    return bool(np.linalg.norm(outside) > OUTSIDE * np.linalg.norm(scaled))


def direction(fitted: Fit, influence: Array) -> Array:
    """(n,) the number that tells most of this influence (all, if cells are normal), on which it weighs 1."""
    a = influence / fitted.scale
    loaded = fitted.precision @ a
    return np.asarray(fitted.y @ loaded / (a @ loaded))


def distance(fitted: Fit, influence: Array) -> float:
    """sqrt(D'K D): how many standard deviations apart the tables are."""
    a = influence / fitted.scale
    return math.sqrt(max(0.0, float(a @ fitted.precision @ a)))


def random_day_estimate(others: Array, added: Array, epsilon: float) -> float:
    """delta of somebody who adds ``added`` (n, d) to the others' table, in the direction of the summed influence."""
    fitted, whole = fit(others), added.sum(axis=0)
    if not whole.any() or leaves_span(fitted, whole):
        return float(np.mean(added.any(axis=1)))
    a = whole / fitted.scale
    loaded = fitted.precision @ a / (a @ fitted.precision @ a)
    left = direction(fitted, whole)
    return float(empriv.measure(left + (added / fitted.scale) @ loaded, left[None]).delta(epsilon))
