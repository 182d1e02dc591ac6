"""`TableCertificate`: what Gaussian noise on each cell of a table achieves for everybody, in a database they are in.

In units of the noise, what somebody touches has noise of variance one in every direction. Turned to the axes of what is
left of those cells without noise, directions do not correlate: each is a pair of laws of one number, the data's with
the noise against the same moved, and the pairs are composed exactly, by privacy-loss distributions. In a direction that
the rest of the table determines (an exact leak) there is the noise alone.

Two figures, and the smaller counts. By the noise alone: holds under any law of the data, for the changes observed. By
the noise and the data: at half the bandwidth, for the databases and resamples of them, at 0.9 epsilon. It assumes that
directions that do not correlate are independent, and that what is left of the cells is the same law whatever the rest.

The answer is rounded to the lattice, and the noise is on it: sums over a lattice differ from the integrals that are
computed here, by no more than a step squared at each kink. That is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from empriv.base.threads import workers
from empriv.measuring.series.composition import Losses, between_ends, certain_after, gaussian_delta, losses_of, step_of
from empriv.noise.law import Law
from empriv.noise.touched import Touched, TouchedCells
from empriv.results import FloatArray

MARGIN = 0.9  # of epsilon, where the data's law is counted on
RESAMPLES = 12
LEAST_STEPS = 2.0  # of the lattice in a standard deviation of the noise
_KINK = 0.05  # more than max density/12 of the square of a step, in units of the noise and of the change
_NOTHING = 1e-6  # of the noise's variance: data that vary less hide nothing
_FINE = 6  # cells in the width of a kernel
_MOST_CELLS = 1_200
_REACH = 8.0


@dataclass(frozen=True, eq=False)
class TableCertificate:
    """What Gaussian noise on each cell achieves at one epsilon.

    Attributes
    ----------
    touched : who changes what
    scales : (d,) standard deviation of the noise on each cell; 0 for none
    epsilon : of the promise
    enough : a delta of which nobody asks for less: where the noise alone achieves it, the data are not looked at
    most : None looks at everybody. A number is for a search that wants a quick look: at so many, the worst; others are
        taken as normal, and as much worse than that as the worst of those
    """

    touched: TouchedCells = field(repr=False)
    scales: FloatArray = field(repr=False)
    epsilon: float
    enough: float = 0.0
    most: int | None = None

    @cached_property
    def by_kind(self) -> FloatArray:
        """(kinds of people,) delta of each, in a database that they are in."""
        people = self.touched.people
        out = np.array([noise_alone(k, self._scales_of(k), self._steps_of(k), self.epsilon) for k in people])
        looked_at, others = np.flatnonzero(out > self.enough), np.zeros(0, np.int64)
        guess = np.zeros(len(people))
        if self.most is not None and len(looked_at) > self.most:
            for place in looked_at:
                guess[place] = gaussian_guess(self.touched, people[place], self.scales, self.epsilon)
            order = looked_at[np.argsort(-guess[looked_at], kind="stable")]
            looked_at, others = order[: self.most], order[self.most :]
        _ = self._resamples  # drawn once, not by each thread
        for place in looked_at:
            self.touched.relative_bandwidth(people[place].cells)
        with ThreadPoolExecutor(workers()) as pool:
            by_both = list(pool.map(lambda place: self.with_data(people[place]), looked_at))
        known = np.array([np.inf if delta is None else delta for delta in by_both])
        out[looked_at] = np.minimum(out[looked_at], known)
        if len(others):
            ratio = float((out[looked_at] / np.maximum(guess[looked_at], 1e-12)).max(initial=1.0))
            out[others] = np.minimum(out[others], ratio * guess[others])
        return out

    @property
    def achieved_delta_i(self) -> FloatArray:
        """(individuals,) what the noise achieves, and what no noise hides."""
        out = self.touched.turned.copy()
        for kind, delta in zip(self.touched.people, self.by_kind, strict=True):
            out[kind.rows] += delta
        return np.minimum(out, 1.0)

    @property
    def achieved_delta(self) -> float:
        return float(self.achieved_delta_i.max(initial=0.0))

    def with_data(self, kind: Touched) -> float | None:
        """delta by the noise and the data; None where the data are not counted on."""
        scales, steps = self._scales_of(kind), self._steps_of(kind)
        left = self.touched.left(kind.cells)
        if left is None or not scales.all() or (scales < LEAST_STEPS * steps).any():
            return None
        shifts, shares = kind.grouped(scales)
        points, axes, deviations = _turned(left / scales)
        bandwidths = 0.5 * self.touched.relative_bandwidth(kind.cells) * deviations
        moves = (shifts / scales) @ axes
        most = np.zeros(1 + RESAMPLES)
        weights = self._resamples
        for move, share, change in zip(moves, shares, shifts, strict=True):
            most += share * _pair_delta(points, bandwidths, move, weights, MARGIN * self.epsilon)
            most += share * 2 * _lattice_error(change[None], scales, steps)
        return float(min(1.0, most.max()))

    @cached_property
    def _resamples(self) -> FloatArray:
        """(1 + resamples, N) weights of the databases: as they are, and drawn again."""
        n, draws = self.touched.results.n_databases, self.touched.results.draws or 1
        rng = np.random.default_rng(0)
        drawn = rng.multinomial(n, np.full(n, 1.0 / n), size=RESAMPLES)
        weights = np.concatenate((np.ones((1, n)), drawn)) / (n * draws)
        return np.repeat(weights, draws, axis=1)

    def _scales_of(self, kind: Touched) -> FloatArray:
        return np.asarray(self.scales[kind.cells])

    def _steps_of(self, kind: Touched) -> FloatArray:
        return np.asarray(self.touched.steps[kind.cells])


def scales_of(laws: Mapping[str, Law]) -> FloatArray:
    """(d,) standard deviations of laws of one Gaussian part each, or of none."""
    out = []
    for law in laws.values():
        part = law.parts[0]
        if len(law.parts) > 1 or part.kind not in ("gaussian", "point"):
            raise ValueError("a law of another kind")
        out.append(part.scale)
    return np.array(out)


def noise_alone(kind: Touched, scales: FloatArray, steps: FloatArray, epsilon: float) -> float:
    """delta by the noise alone, on average over the databases that somebody is in."""
    if (scales < LEAST_STEPS * steps).any():
        return float(min(1.0, len(kind.shifts) * kind.share))  # some cell without noise, or with next to none
    sizes = np.sqrt(((kind.shifts / scales) ** 2).sum(axis=1))
    deltas = gaussian_delta(sizes, epsilon) + _lattice_error(kind.shifts, scales, steps)
    return float(np.minimum(deltas, 1.0).sum() * kind.share)


def gaussian_guess(touched: TouchedCells, kind: Touched, scales: FloatArray, epsilon: float) -> float:
    """delta if what is left of the cells were normal: for ranking alone."""
    left, own = touched.left(kind.cells), scales[kind.cells]
    covariance = np.diag(own**2)
    if left is not None:
        covariance = covariance + left.T @ left / len(left)
    shifts, shares = kind.grouped(np.where(own > 0, own, 1.0))
    sizes = np.einsum("ka,ab,kb->k", shifts, np.linalg.pinv(covariance, hermitian=True), shifts)
    return float(shares @ gaussian_delta(np.sqrt(np.maximum(sizes, 0.0)), MARGIN * epsilon))


def _lattice_error(shifts: FloatArray, scales: FloatArray, steps: FloatArray) -> FloatArray:
    """(m,) by how much a sum over the lattice may be above the integral."""
    return np.asarray(_KINK * (np.abs(shifts) / scales * (steps / scales) ** 2).sum(axis=1))


def _turned(left: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Points (N, u) on the axes of their covariance, the axes (u, u), and the standard deviation along each."""
    values, axes = np.linalg.eigh(left.T @ left / len(left))
    points = left @ axes
    points[:, values <= _NOTHING] = 0.0
    return points, axes, np.sqrt(np.maximum(values, 0.0))


def _pair_delta(
    points: FloatArray, bandwidths: FloatArray, move: FloatArray, weights: FloatArray, epsilon: float
) -> FloatArray:
    """(weightings,) delta of the noisy law against itself moved, all directions together, the worse way round."""
    still = ~points.any(axis=0)
    sides = []
    plain = float(np.sqrt((move[still] ** 2).sum()))
    if plain > 0:  # the noise alone: one direction stands for all of these
        one = _side_masses(np.zeros((1, 1)), 1.0, plain, np.ones((1, 1)))
        sides.append(tuple(np.repeat(side, len(weights), axis=0) for side in one))
    for k in np.flatnonzero(~still & (np.abs(move) > 1e-9)).tolist():
        width = float(np.sqrt(1.0 + bandwidths[k] ** 2))
        sides.append(_side_masses(points[:, k : k + 1], width, float(move[k]), weights))
    if not sides:
        return np.zeros(len(weights))
    if len(sides) == 1:
        p, q = sides[0]
        factor = np.exp(epsilon)
        one, other = (np.maximum(a - factor * b, 0.0).sum(axis=1) for a, b in ((p, q), (q, p)))
        return np.asarray(np.maximum(one, other))
    ways = [[(p, q) for p, q in sides], [(q, p) for p, q in sides]]
    first = [composed_pairs([(p[0], q[0]) for p, q in way], epsilon) for way in ways]
    worse = ways[int(np.argmax(first))]  # in resamples, the way round that is worse in the databases themselves
    again = [composed_pairs([(p[row], q[row]) for p, q in worse], epsilon) for row in range(1, len(weights))]
    return np.array([max(first), *again])


def _side_masses(points: FloatArray, width: float, move: float, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(weightings, cells) masses of a mixture and of the same moved, in cells whose ratios err upwards."""
    from scipy.special import ndtr  # heavy, and seldom needed

    low = min(points.min(), points.min() + move) - _REACH * width
    high = max(points.max(), points.max() + move) + _REACH * width
    edges = np.linspace(low, high, int(min(_MOST_CELLS, np.ceil((high - low) / width * _FINE))) + 1)

    def side(at: FloatArray) -> tuple[FloatArray, FloatArray]:
        z = (at - points) / width
        below = weights @ ndtr(z)
        density = weights @ np.exp(-0.5 * z * z)
        whole = weights.sum(axis=1, keepdims=True)
        cuts = np.concatenate((np.zeros_like(whole), below, whole), axis=1)
        return np.maximum(np.diff(cuts, axis=1), 0.0), density

    (p, p_at), (q, q_at) = side(edges), side(edges - move)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(q_at > 0, p_at / q_at, np.where(p_at > 0, np.inf, 1.0))
    ratios = np.concatenate((ratio[:, :1], ratio, ratio[:, -1:]), axis=1)
    return between_ends(p, q, ratios[:, :-1], ratios[:, 1:])


def composed_pairs(pairs: list[tuple[FloatArray, FloatArray]], epsilon: float) -> float:
    """delta of independent looks at several pairs of masses, this way round; on one grid, never understated."""
    from scipy.signal import fftconvolve  # heavy, and seldom needed

    # steps are a share of each standard deviation, and variances add up
    step = float(np.sqrt(sum(step_of(p, q) ** 2 for p, q in pairs)))
    parts = [losses_of(p, q, step=step) for p, q in pairs]
    certain = 1.0 - float(np.prod([1.0 - certain_after(part.certain, 1) for part in parts]))
    masses, start = np.ones(1), 0
    for part in parts:
        masses = np.maximum(fftconvolve(masses, part.masses), 0.0) if len(part.masses) else np.zeros(1)
        start += part.first
    return float(Losses(step, start, masses, certain).delta(np.array([epsilon]))[0])
