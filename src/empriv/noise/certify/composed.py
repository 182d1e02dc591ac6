"""`ComposedCertificate`: what noise achieves over many publications, each from a database of its own.

A noisy answer has the law of the noise around each result, so that the pair of laws is known up to the sampling of the
databases: no density is fitted where the noise is wider than the bandwidths that `measuring.series` takes. The pair is
composed exactly, by privacy-loss distributions. Every cell's mass is split between the ratios at its two ends, which
never understates. Sampling is counted as `measuring.series` counts it, by an upper figure of the effect size: the
influences are stretched until the pair is that far apart.

People whose Gaussian curve is far below the worst are not composed exactly: that curve is their figure. Those whom
noise alone must hide have no smooth pair, since they change patterns finer than any bandwidth, or outcomes with a mass
of their own. For them the curve of delta over epsilon that the noise alone leaves of their moves is composed: a pair of
laws with that curve tells at least as much as theirs.

One publication is judged by `noise.judging`. This is for several, until these are judged like one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from empriv.measuring.densities.density import Mixture
from empriv.measuring.line.atoms import Pairs, share_at_most, split
from empriv.measuring.line.risk import Risk
from empriv.measuring.series.composition import certain_after, composed_delta, gaussian_delta
from empriv.measuring.series.effects import blocks_of, looks_of, moments
from empriv.measuring.series.sizes import NARROW, WIDE, mean_influence, moving, near_edges
from empriv.noise.judging import by_noise_alone
from empriv.noise.law import WHOLE, Law
from empriv.noise.measured import hidden_by_noise_alone
from empriv.results import FloatArray, IntArray

EXACT = 24  # people composed exactly at most, the worst by their Gaussian curves
_BEHIND = 0.8  # of the worst so far: whose curve is lower is not composed exactly
_FINE = 8  # cells in the narrowest width
_MOST_CELLS = 3_000
_TAIL = 9.0  # standard deviations of a Gaussian beyond the last result
_Z = 1.6448536269514722
_MOST_LOSS = 5.0  # above twice epsilon: one publication of a greater loss tells all
_LOSSES, _LOSSES_SPAN = 48, 300.0  # losses of a curve that is composed, and the greatest over the least
_SHORT = 15.0  # over n: by how much of itself a normal quantile is short where databases are few


@dataclass(frozen=True, eq=False)
class ComposedCertificate:
    """What a law of noise achieves over ``times`` publications, by the upper figure at 95% confidence.

    Attributes
    ----------
    risk, law : what was certified
    epsilon, delta : the target of all publications together
    times : publications
    rows : individuals looked at, by position; None looks at all
    """

    risk: Risk = field(repr=False)
    law: Law = field(repr=False)
    epsilon: float
    delta: float
    times: int
    rows: IntArray | None = field(default=None, repr=False)

    @property
    def holds(self) -> bool:
        """Whether every individual's target is met."""
        return self.achieved_delta() <= self.delta

    def achieved_delta(self) -> float:
        """Largest delta_i of all publications together, the upper figure."""
        return float(self.achieved_delta_i.max(initial=0.0))

    def estimated_delta(self) -> float:
        """The same by the estimate."""
        return float(self._deltas(upper=False).max(initial=0.0))

    @cached_property
    def achieved_delta_i(self) -> FloatArray:
        """(individuals,) upper figure of each individual's delta_i."""
        return self._deltas(upper=True)

    def worst(self, most: int) -> IntArray:
        """Individuals of the largest delta_i, by position."""
        return np.argsort(-self.achieved_delta_i, kind="stable")[:most]

    def of(self, times: int) -> ComposedCertificate:
        """Of so many publications instead."""
        other = ComposedCertificate(self.risk, self.law, self.epsilon, self.delta, times, self.rows)
        other.__dict__["_one_look"] = self._one_look
        return other

    def _deltas(self, *, upper: bool) -> FloatArray:
        squared, apart, certain = self._one_look.figures(upper)
        epsilon = np.array([self.epsilon])
        told = certain_after(certain, self.times)
        curve = gaussian_delta(np.sqrt(squared * self.times), self.epsilon)
        order = np.argsort(-curve, kind="stable")[:EXACT]
        best, known = 0.0, {}
        for row in order[curve[order] > 0].tolist():
            if not curve[row] > _BEHIND * best:
                break  # nobody further down can be the worst
            stretch = float(np.sqrt(squared[row] / apart[row])) if apart[row] > 0 else 1.0
            p, q = self._one_look.masses(row, stretch, upper)
            known[row] = composed_delta(p, q, self.times, epsilon)[0]
            if not best and squared[row] > 0:
                # one Laplace kernel stood for the noise: this is what the noise itself makes of it
                truly = -8.0 * np.log(np.sqrt(p * q).sum() / np.sqrt(p.sum() * q.sum()))
                curve = gaussian_delta(np.sqrt(squared * self.times * max(truly, 0.0) / squared[row]), self.epsilon)
            best = max(best, float(known[row]))
        curve[list(known)] = list(known.values())
        deltas = np.asarray(told + (1.0 - told) * curve)
        rows = self._unsmoothed
        if len(rows):
            deltas[rows] = np.maximum(deltas[rows], self._by_curves(rows))
        return deltas

    def _by_curves(self, rows: IntArray) -> FloatArray:
        """delta_i of all publications together, from what the noise alone leaves of one."""
        last = 2.0 * self.epsilon + _MOST_LOSS
        epsilons = np.append(0.0, np.geomspace(last / _LOSSES_SPAN, last, _LOSSES))
        curves = np.stack([self._alone(row, epsilons) for row in rows.tolist()])
        out = np.zeros(len(rows))
        # people of like curves share the one above all of theirs
        for alike in np.array_split(np.argsort(-curves.sum(axis=1), kind="stable"), min(EXACT, len(rows))):
            p, q = pair_of_curve(epsilons, curves[alike].max(axis=0))
            out[alike] = composed_delta(p, q, self.times, np.array([self.epsilon]))[0]
        return out

    def _alone(self, row: int, epsilons: FloatArray) -> FloatArray:
        """(epsilons,) what the noise alone leaves of one publication: by joint convexity at most the mean over the
        databases of what it leaves of the move there; all of it where there is a number on one side only."""
        pairs = self._one_look.pairs
        before, after = pairs.points, pairs.dense(np.array([row]))[0]
        numbers = np.isfinite(before) & np.isfinite(after)
        move = np.abs(np.subtract(before, after, out=np.zeros(len(before)), where=numbers))
        lost = np.isfinite(before) != np.isfinite(after)
        sizes, counts = np.unique(move, return_counts=True)
        told = counts @ by_noise_alone(self.law, sizes[:, None], epsilons[None, :])
        return np.asarray((told + np.count_nonzero(lost)) / len(before))

    @cached_property
    def _unsmoothed(self) -> IntArray:
        """Of those looked at, people whom the smooth pair does not show: noise alone must hide what they change."""
        pairs, plain = self.risk.pairs, self._one_look.pairs.names
        alone = np.zeros(pairs.n_individuals, dtype=bool)
        alone[[*hidden_by_noise_alone(self.risk), *(row for row, _ in pairs.own)]] = True
        found = [place for place, name in enumerate(pairs.names) if name not in plain]
        alone |= np.any(pairs.mass_without[:, found] != pairs.mass[found], axis=1)
        rows = np.flatnonzero(alone)
        return rows if self.rows is None else np.intersect1d(rows, self.rows)

    @cached_property
    def _one_look(self) -> _OneLook:
        return _OneLook(self.risk, self.law, self.rows)


@dataclass(frozen=True, eq=False)
class _OneLook:
    """One publication: the pair of laws of a noisy answer for everyone, computed once for any number of them."""

    risk: Risk
    law: Law
    rows: IntArray | None

    def figures(self, upper: bool) -> tuple[FloatArray, FloatArray, FloatArray]:
        """mu² of one look, how far apart the pair of laws is by itself, and the share that tells for certain."""
        if upper not in self._known:
            self._known[upper] = (*self._sizes_of(upper), self._certain[upper])
        return self._known[upper]

    @cached_property
    def _known(self) -> dict[bool, tuple[FloatArray, FloatArray, FloatArray]]:
        return {}

    @cached_property
    def pairs(self) -> Pairs:
        """Answers rounded to the lattice, outcomes that are not numbers apart."""
        pairs, g = split(self.risk.results, look=False), self.law.granularity
        points, entries = (np.rint(values / g) * g for values in (pairs.points, pairs.entries))
        return Pairs(
            points, pairs.draws, pairs.starts, pairs.entry_database, entries, pairs.names, pairs.mass,
            pairs.mass_without,
        )  # fmt: skip

    @cached_property
    def _least(self) -> dict[bool, float]:
        """The narrowest kernel that is taken: below, the results' own law is fitted, as without noise."""
        model = self.risk.density
        if not isinstance(model, Mixture) or not np.isfinite(model.bandwidth):
            return {False: 0.0, True: 0.0}
        return {False: WIDE * model.bandwidth, True: NARROW * min(model.bandwidth, model.likeliest)}

    def _kernels(self, *, upper: bool) -> list[tuple[str, float, float]]:
        """(kind, weight, width) of the noise, each at least as wide as `_least`."""
        least = max(self._least[upper], self.law.granularity / 2)
        out = []
        for part in self.law.parts:
            share = part.weight / WHOLE
            wide = part.kind == "gaussian" and part.scale >= np.sqrt(2.0) * least
            out.append(("gaussian", share, part.scale) if wide else ("laplace", share, max(part.scale, least)))
        return out

    def _sizes_of(self, upper: bool) -> tuple[FloatArray, FloatArray]:
        pairs = self.pairs
        squared, apart = np.zeros((2, pairs.n_individuals))
        # the narrowest kernel tells most: one Laplace kernel stands for the noise
        width = min(width for _, _, width in self._kernels(upper=upper))
        z = _Z * (1.0 + _SHORT * pairs.draws / len(pairs.points))
        rows = np.flatnonzero(moving(pairs)) if self.rows is None else self.rows
        for block in blocks_of(pairs, rows, width):
            found = moments(looks_of(pairs, block), width, errors=upper)
            squared[block] = found.squared + (z * found.error * found.ratio if upper else 0.0)
            apart[block] = found.hellinger
        return squared, apart

    @cached_property
    def _certain(self) -> dict[bool, FloatArray]:
        """Share of looks that tell for certain: outcomes that are not numbers, and edges where noise is narrow."""
        pairs = self.pairs
        n = len(pairs.points) // pairs.draws
        p, q = np.broadcast_to(pairs.mass, pairs.mass_without.shape), pairs.mass_without
        seen = np.abs(p - q).sum(axis=1) if len(pairs.names) else np.zeros(pairs.n_individuals)
        most = np.where(seen > 0, share_at_most(np.rint(seen * n), n, 0.95), 0.0)
        model = self.risk.density
        h = model.bandwidth if isinstance(model, Mixture) else 0.0
        if h > 0 and min(width for _, _, width in self._kernels(upper=True)) < h:
            ends = near_edges(pairs.points[np.isfinite(pairs.points)], h)
            beyond = sum(float(share_at_most(np.array(count), n, 0.95)) for count in ends)
            most = np.minimum(1.0, most + mean_influence(pairs)[1] / h * beyond)
        return {False: np.minimum(seen, 1.0), True: np.minimum(most, 1.0)}

    def masses(self, row: int, stretch: float, upper: bool) -> tuple[FloatArray, FloatArray]:
        """Masses of the noisy answer with everyone and without one individual, in cells whose ratios err upwards."""
        if (row, upper) not in self._masses:
            self._masses[row, upper] = self._masses_of(row, stretch, upper)
        return self._masses[row, upper]

    @cached_property
    def _masses(self) -> dict[tuple[int, bool], tuple[FloatArray, FloatArray]]:
        return {}

    def _masses_of(self, row: int, stretch: float, upper: bool) -> tuple[FloatArray, FloatArray]:
        pairs = self.pairs
        before = pairs.points
        after = pairs.dense(np.array([row]))[0]
        numbers = np.isfinite(before) & np.isfinite(after)
        before, after = before[numbers], after[numbers]
        after = before - stretch * (before - after)
        kernels = self._kernels(upper=upper)
        narrow = min(width for _, _, width in kernels)
        wide = max(width * _TAIL if kind == "gaussian" else 0.0 for kind, _, width in kernels)
        ends = np.concatenate((before, after))
        low, high = ends.min() - wide, ends.max() + wide
        mixed = len({width for _, _, width in kernels}) > 1  # several widths: the ratio settles far out only
        if mixed:
            reach = 30.0 * max(width for _, _, width in kernels)
            low, high = low - reach, high + reach
        count = int(min(_MOST_CELLS, np.ceil((high - low) / narrow * _FINE))) + 1
        edges = np.linspace(low, high, count)
        p, p_at = _side(before, edges, kernels)
        q, q_at = _side(after, edges, kernels)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(q_at > 0, p_at / q_at, np.inf)
        ratios = np.concatenate((ratio[:1], ratio, ratio[-1:]))
        return between_ends(p, q, ratios[:-1], ratios[1:])


def _side(
    points: FloatArray, edges: FloatArray, kernels: list[tuple[str, float, float]]
) -> tuple[FloatArray, FloatArray]:
    """Mass of each cell between the edges and beyond them, and the density at each edge."""
    from scipy.special import ndtr  # heavy, and seldom needed

    below, density = np.zeros(len(edges)), np.zeros(len(edges))
    for kind, weight, width in kernels:
        for start in range(0, len(points), 256):
            z = (edges[:, None] - points[start : start + 256]) / width
            if kind == "gaussian":
                below += weight * ndtr(z).sum(axis=1)
                density += weight * (np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi)).sum(axis=1) / width
            else:
                tail = 0.5 * np.exp(-np.abs(z))
                below += weight * np.where(z < 0, tail, 1.0 - tail).sum(axis=1)
                density += weight * tail.sum(axis=1) / width
    below, density = below / len(points), density / len(points)
    return np.maximum(np.diff(np.concatenate(([0.0], below, [1.0]))), 0.0), density


def pair_of_curve(epsilons: FloatArray, deltas: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Masses of a pair of laws whose delta is at least the curve's at every epsilon, in both directions.

    Between two points of the curve the pair's is the chord in e^epsilon, which lies above it, as such curves are
    convex; after the last it stays.

    Parameters
    ----------
    epsilons, deltas : the curve, from epsilon 0 on
    """
    ratios = np.exp(epsilons)
    slopes = -np.diff(deltas) / np.diff(ratios)
    slopes = np.maximum.accumulate(np.append(slopes, 0.0)[::-1])[::-1]  # rounding must not bend it the other way
    above = -np.diff(slopes)  # q where p is this many times q
    likelier, certain = ratios[1:] * above, deltas[-1]
    rest = max(0.0, 1.0 - certain - float((likelier + above).sum()))
    p, q = (np.concatenate((first, second, [rest])) for first, second in ((likelier, above), (above, likelier)))
    return np.append(p, [certain, 0.0]), np.append(q, [0.0, certain])


def between_ends(p: FloatArray, q: FloatArray, first: FloatArray, last: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Masses split so that all of a cell's has the ratio of one of its ends, p and q unchanged in total."""
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(q > 0, p / q, np.inf)
        low = np.minimum(np.minimum(first, last), own)
        high = np.maximum(np.maximum(first, last), own)
        apart = np.isfinite(high) & (high > low * (1 + 1e-12))
        at_low = np.where(apart, (q * high - p) / np.where(apart, high - low, 1.0), q)
    at_low = np.clip(at_low, 0.0, q)
    p_low = np.where(apart, np.minimum(at_low * np.where(apart, low, 0.0), p), p)
    return np.concatenate((p_low, p - p_low), axis=-1), np.concatenate((at_low, q - at_low), axis=-1)
