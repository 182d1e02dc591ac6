"""Views: what an adversary makes of the databases, given what they know.

The trend of the results in what is known, taken out of both sides of every pair (so that each individual's influence
stays what it was); one bandwidth for what is left, scaled to each value z; and weights of the databases for each z.
The search over views is in `conditional`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.densities.density import Density, Mixture
from empriv.measuring.given.adversaries import LEAST_EFFECTIVE, spreads_along, trend, weights_near
from empriv.measuring.line.atoms import Pairs, tie_tolerance
from empriv.measuring.line.blocks import closed_form
from empriv.results import FloatArray

_MOST_SCALED = 1.0  # logarithm: nothing is scaled by more than e


@dataclass(frozen=True, eq=False)
class View:
    """What one adversary makes of the databases.

    Attributes
    ----------
    owner, second : the individual who knows it, and another who knows the same; or -1
    places : (z, k) values of what is known
    weights, effective : (z, n), (z,)
    trend : (n,) what is taken out of the results of each database
    scaling : (z, n) what the rest is multiplied by, so that it spreads as it does at z; the influence is not
    bandwidths : (z,) of what is left, at each value; NaN if what is known determines the results
    fitted : (n, 1 + k) the columns of the trend's design, 0 for databases outside of the view
    left_out, left_out_effective : values with too few databases
    """

    owner: int
    second: int
    places: FloatArray
    weights: FloatArray
    effective: FloatArray
    trend: FloatArray
    scaling: FloatArray
    bandwidths: FloatArray
    fitted: FloatArray
    left_out: FloatArray
    left_out_effective: FloatArray

    def known_too(self, second: int) -> View:
        """The same view, which another individual has as well."""
        return replace(self, second=second)


def views_of(
    pairs: Pairs, known: FloatArray, density: Density, *, owner: int = -1
) -> list[tuple[bytes, Callable[[], View]]]:
    """The views of an adversary who knows ``known`` (n, k): what tells them apart, and the function that makes each.

    One, or two where more than half of the databases have the very same value (nobody's rows in most of them, say):
    those databases are then a condition of their own, with equal weights. A row of NaN means absence, and counts as
    a value.
    """
    n = len(known)
    absent = np.asarray(np.any(np.isnan(known), axis=1))
    plain: FloatArray = np.where(absent[:, None], 0.0, known)
    _, inverse, counts = np.unique(plain, axis=0, return_inverse=True, return_counts=True)
    same = absent if absent.any() else inverse.reshape(-1) == int(np.argmax(counts))
    apart = not same.all() and (absent.any() or 2 * np.count_nonzero(same) > n)
    parts = (same, ~same) if apart else (np.ones(n, bool),)

    def key(part: npt.NDArray[np.bool_]) -> bytes:
        inside = plain[part]
        flat = np.all(inside == inside[0])
        return part.tobytes() + (b"" if flat else inside.tobytes())

    def maker(part: npt.NDArray[np.bool_]) -> Callable[[], View]:
        return lambda: _view(pairs, known, part, density, owner)

    return [(key(part), maker(part)) for part in parts]


def _view(pairs: Pairs, known: FloatArray, part: npt.NDArray[np.bool_], density: Density, owner: int) -> View:
    n = len(known)
    inside = np.where(np.isnan(known[part]), 0.0, known[part])
    nothing = np.zeros((0, n)), np.zeros(0), np.zeros(n), np.zeros((0, n)), np.zeros(0), np.zeros((n, 1))
    if len(inside) < LEAST_EFFECTIVE:
        distinct = np.unique(known[part], axis=0)
        few = np.full(len(distinct), float(len(inside)))
        return View(owner, -1, known[:0], *nothing, distinct, few)
    near = weights_near(inside)
    weights = np.zeros((len(near.places), n))
    weights[:, part] = near.weights
    places = near.places if not np.isnan(known[part]).any() else np.full_like(near.places, np.nan)
    if not len(places):
        return View(owner, -1, places, *nothing, near.left_out, near.left_out_effective)
    mean, counts = database_means(pairs)
    taken = np.zeros(n)
    taken[part] = trend(mean[part], inside, counts[part])
    numbers = part & (counts > 0)
    taken += (mean - taken)[numbers].mean() if numbers.any() else 0.0
    points = np.where(np.repeat(part, pairs.draws), pairs.points - np.repeat(taken, pairs.draws), np.inf)
    sizes = np.where(np.isfinite(points), np.abs(points), 0.0).reshape(n, -1).sum(axis=1) / np.maximum(counts, 1.0)
    spreads = np.zeros(n)
    spreads[part] = spreads_along(sizes[part], inside, counts[part])
    at_z = spreads[np.flatnonzero(part)[near.databases]]
    scaling = np.exp(np.clip(at_z[:, None] - spreads[None, :], -_MOST_SCALED, _MOST_SCALED))
    fitted = np.zeros((n, 1 + inside.shape[1]))
    fitted[part, 0] = 1.0
    fitted[part, 1:] = inside - inside.mean(axis=0)
    # The bandwidth is that of results which all spread alike, as they do in the middle of what is known.
    alike = points * np.repeat(np.exp(np.clip(-spreads, -_MOST_SCALED, _MOST_SCALED)), pairs.draws)
    finite = points[np.isfinite(points)]
    nothing_left = not len(finite) or np.ptp(finite) <= exactness(pairs.points)
    bandwidth = float("nan") if nothing_left else _bandwidth(alike, pairs.draws, density)
    bandwidths = bandwidth * _widths(alike, points, scaling, weights, pairs.draws)
    return View(
        owner, -1, places, weights, near.effective, taken, scaling, bandwidths, fitted, near.left_out,
        near.left_out_effective,
    )  # fmt: skip


def database_means(pairs: Pairs) -> tuple[FloatArray, FloatArray]:
    """Mean of each database's results that are numbers, and how many there are."""
    q = pairs.points.reshape(-1, pairs.draws)
    here = np.isfinite(q)
    counts = here.sum(axis=1).astype(float)
    with np.errstate(invalid="ignore"):
        return np.where(here, q, 0.0).sum(axis=1) / np.maximum(counts, 1.0), counts


def exactness(points: FloatArray) -> float:
    """Results this close to a linear function of what is known are that function: a ten-millionth of their range."""
    finite = points[np.isfinite(points)]
    return max(1e-7 * float(np.ptp(finite)), 16 * tie_tolerance(finite)) if len(finite) else 0.0


def _bandwidth(points: FloatArray, draws: int, density: Density) -> float:
    model = density.fit(points, np.repeat(np.arange(len(points) // draws), draws))
    if not (isinstance(model, Mixture) and closed_form(model)):
        raise InputError(
            "`density` must be a Laplace kernel with one bandwidth for adversaries who weight databases. "
            "Hint: Buckets(g) takes any density."
        )
    return model.bandwidth


def _widths(alike: FloatArray, points: FloatArray, scaling: FloatArray, weights: FloatArray, draws: int) -> FloatArray:
    """(z,) bandwidth of each condition as a multiple of the one of all databases of the view together, ``alike``.

    Fewer databases need a wider one, by the rule's own power -1/5; results that spread less, a narrower one.
    """
    here = np.isfinite(points)
    equal = np.repeat(np.any(weights > 0, axis=0), draws).astype(float) * here
    each = np.repeat(weights, draws, axis=1) * here
    x = np.where(here, points, 0.0) * np.repeat(scaling, draws, axis=1)
    sizes, spreads = [], []
    for w, values in ((equal[None, :], np.where(here, alike, 0.0)[None, :]), (each, x)):
        total = np.maximum(w.sum(axis=1, keepdims=True), 1e-300)
        w = w / total
        mean = (w * values).sum(axis=1, keepdims=True)
        spreads.append((w * np.abs(values - mean)).sum(axis=1))
        sizes.append(1.0 / np.maximum((w**2).sum(axis=1), 1e-300))
    with np.errstate(divide="ignore", invalid="ignore"):
        narrower = np.where(spreads[0] > 0, spreads[1] / spreads[0], 1.0)
        return np.asarray((sizes[0] / sizes[1]) ** 0.2 * np.where(narrower > 0, narrower, 1.0))
