"""Scales of Gaussian noise on each cell of a table: the least, in sum over the cells' spreads, that meets a target.

The search takes what is left of the cells as normal: with covariance C without noise and S of the noise, somebody who
changes the cells by D is as far off as ``D'(C + S)^-1 D``. Scales shrink by a little in every round, and those of
cells that help somebody beyond the target most for their cost grow, until the rounds are still. `certify` says what
the scales achieve; where that is more than the search took the data and the noise to hide, it counts on less of that
for the person, and is done again. What the noise alone hides needs no correction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from empriv.measuring.series.composition import gaussian_delta
from empriv.noise.touched import Touched, TouchedCells
from empriv.results import FloatArray, IntArray

_ROUNDS = 160
_SETTLE = 60  # rounds in which scales are only raised or lowered to meet the target
_RATE = 0.35
_SHRINK = 0.04
_NOT_COUNTED = 1e12  # times what the data and the noise would tell: then the noise alone tells less
_HALVINGS = 4  # between scales that suffice and some that do not
_MARGIN = 0.9  # of epsilon, where the data's law is counted on


@dataclass(frozen=True, eq=False)
class _Batch:
    """Kinds of people who touch as many cells: positions, cells (p, u), covariances (p, u, u), changes (p, k, u)."""

    places: IntArray
    cells: IntArray
    covariances: FloatArray
    shifts: FloatArray
    shares: FloatArray
    usable: FloatArray

    def figures(self, scales: FloatArray, aim: _Aim) -> tuple[FloatArray, FloatArray]:
        """(p,) delta of each, and (p, u) how much the noise of each cell matters to it."""
        own = scales[self.cells]
        deltas, pulls = [], []
        for data, at in ((0.0, aim.epsilon), (1.0, _MARGIN * aim.epsilon)):
            covariance = data * self.covariances + own[:, :, None] * np.eye(own.shape[1]) * own[:, None, :]
            solved = np.linalg.solve(covariance, self.shifts.transpose(0, 2, 1)).transpose(0, 2, 1)
            sizes = np.maximum((self.shifts * solved).sum(axis=2), 0.0)
            delta = (self.shares * gaussian_delta(np.sqrt(sizes), at)).sum(axis=1)
            delta = delta * (aim.with_data if data else aim.alone)[self.places]
            deltas.append(np.where(self.usable > 0, delta, np.inf) if data else delta)
            pulls.append(((self.shares[:, :, None] * solved**2).sum(axis=1)) * own**2)
        better = deltas[1] < deltas[0]
        return np.minimum(*deltas), np.where(better[:, None], pulls[1], pulls[0])


@dataclass(frozen=True, eq=False)
class _Aim:
    """What is asked: costs and floors of scales (d,), epsilon, and of each kind of people the target. Times ``alone``
    and ``with_data``, what the search takes the noise, and the noise and the data, to tell is what the certificate
    says."""

    costs: FloatArray
    floors: FloatArray
    epsilon: float
    targets: FloatArray
    alone: FloatArray
    with_data: FloatArray


def _least_scales(touched: TouchedCells, batches: list[_Batch], aim: _Aim) -> FloatArray:
    """(d,) scales that keep each kind of people at its target, as far as the search can tell; 0 where nobody is."""
    costs, floors, epsilon = aim.costs, aim.floors, aim.epsilon
    d = len(costs)
    there = np.zeros(d, bool)
    largest = np.zeros(d)
    for kind in touched.people:
        there[kind.cells] = True
        np.maximum.at(largest, kind.cells, np.abs(kind.shifts).max(axis=0))
    start = np.where(there, np.maximum(largest / max(epsilon, 0.05), floors), 1.0)
    answers = [_settled(batches, _searched(batches, start, aim), aim), _settled(batches, start, aim)]
    best = min(answers, key=lambda scales: float((costs * scales)[there].sum()))
    return np.where(there, best, 0.0)


def _searched(batches: list[_Batch], scales: FloatArray, aim: _Aim) -> FloatArray:
    for round_ in range(_ROUNDS):
        shrink = _SHRINK * (1 - round_ / _ROUNDS)
        grow = np.zeros(len(scales))
        for batch in batches:
            delta, pull = batch.figures(scales, aim)
            over = np.clip(np.log(np.maximum(delta, 1e-300) / aim.targets[batch.places]), 0.0, 1.0)
            worth = pull / (aim.costs[batch.cells] * scales[batch.cells])
            tilt = worth / np.maximum(worth.max(axis=1, keepdims=True), 1e-300)
            np.maximum.at(grow, batch.cells, over[:, None] * tilt)
        scales = np.maximum(scales * np.exp(_RATE * grow - shrink), aim.floors)
    return scales


def _settled(batches: list[_Batch], scales: FloatArray, aim: _Aim) -> FloatArray:
    """Each cell by the person in it who is furthest beyond the target, or least within it."""
    for round_ in range(_SETTLE):
        worst = np.full(len(scales), -np.inf)
        for batch in batches:
            delta = batch.figures(scales, aim)[0]
            ratio = np.log(np.maximum(delta, 1e-300) / aim.targets[batch.places])
            np.maximum.at(worst, batch.cells, np.repeat(ratio[:, None], batch.cells.shape[1], axis=1))
        worst = np.where(np.isfinite(worst), np.clip(worst, -1.0, 1.0), 0.0)
        if round_ >= _SETTLE - 10:
            worst = np.maximum(worst, 0.0)  # in the end only up
        scales = np.maximum(scales * np.exp(_RATE * worst), aim.floors)
    return scales


def _batches(touched: TouchedCells, costs: FloatArray) -> list[_Batch]:
    by_size: dict[tuple[int, int], list[tuple[int, Touched, FloatArray, FloatArray]]] = {}
    for place, kind in enumerate(touched.people):
        shifts, shares = kind.grouped(1.0 / costs[kind.cells])
        by_size.setdefault((len(kind.cells), len(shares)), []).append((place, kind, shifts, shares))
    batches = []
    for group in by_size.values():
        lefts = [touched.left(kind.cells) for _, kind, _, _ in group]
        u = len(group[0][1].cells)
        batches.append(
            _Batch(
                places=np.array([place for place, *_ in group]),
                cells=np.stack([kind.cells for _, kind, _, _ in group]),
                covariances=np.stack([np.zeros((u, u)) if x is None else x.T @ x / len(x) for x in lefts]),
                shifts=np.stack([shifts for _, _, shifts, _ in group]),
                shares=np.stack([shares for _, _, _, shares in group]),
                usable=np.array([0.0 if x is None else 1.0 for x in lefts]),
            )
        )
    return batches


def designed_scales(
    touched: TouchedCells,
    costs: FloatArray,
    epsilon: float,
    delta: float,
    achieved: Callable[[FloatArray], FloatArray],
    *,
    rounds: int = 3,
) -> FloatArray:
    """Scales for which ``achieved``, the certificate's delta of each kind of people, is within the target.

    Parameters
    ----------
    touched : who changes what
    costs : (d,) of a unit of noise on each cell
    epsilon, delta : the target of everybody, to which what no noise hides counts
    achieved : what scales achieve, of each kind of people
    rounds : searches, each counting on less of the data where the last one counted on too much
    """
    limits = np.maximum([delta - touched.turned[kind.rows].max() for kind in touched.people], 1e-12)
    batches = _batches(touched, costs)
    floors = 2.0 * touched.steps
    best, missed = None, None
    # First with the noise alone, whose figures are what they are; then with the data, as far as they hold.
    ones = np.ones(len(limits))
    aim = _Aim(costs, floors, epsilon, 0.998 * limits, ones, _NOT_COUNTED * ones)
    for round_ in range(2 + rounds):
        scales = _least_scales(touched, batches, aim)
        if round_ > 1 and best is not None and (costs * scales).sum() > 0.99 * (costs * best).sum():
            break  # the data do not help
        deltas = achieved(scales)
        best, missed = (scales, missed) if (deltas <= limits).all() else (best, scales)
        believed = np.zeros(len(limits))
        for batch in batches:
            believed[batch.places] = batch.figures(scales, aim)[0]
        ratio = np.clip(deltas / np.maximum(believed, 1e-12), 0.5, 1e6)
        if round_ == 0:  # databases are grouped for the search, each by the largest change
            aim = replace(aim, alone=np.minimum(1.001 * ratio, 1.0))
        elif round_ == 1:
            aim = replace(aim, with_data=ones)
        else:
            aim = replace(aim, with_data=aim.with_data * ratio**1.05)
    for _ in range(12):
        if best is not None:
            break
        missed = scales
        scales = scales * np.where(scales > 0, 1.08, 1.0)
        best = scales if (achieved(scales) <= limits).all() else None
    if best is None:
        return scales
    for _ in range(_HALVINGS if missed is not None and (costs * missed).sum() < (costs * best).sum() else 0):
        assert missed is not None
        between = np.sqrt(best * missed)
        if (achieved(between) <= limits).all():
            best = between
        else:
            missed = between
    return best
