"""Shares: how much of the noisy answer's law each pair makes up, which bounds what a change of few pairs can do.

With everyone, the law of the noisy answer is the mean P of the laws f_j of N pairs. Without somebody some pairs change
from f_j to f'_j, whose log ratio is at most lambda_j (`screen`). Where f_j has only a share rho_j of P, at most

    1 - sum_j rho_j (1 - e^-lambda_j)  <=  Q/P  <=  1 + sum_j rho_j (e^lambda_j - 1),        rho_j = sup f_j/(N P).

The hockey stick P - e Q is at most sum_j e t_j f_j/N - (e - 1) P with t_j = 1 - e^-lambda_j, and Q - e P at most
sum_j u_j f_j/N - (e - 1) P with u_j = e^lambda_j - 1. Cutting (e - 1) P into parts in proportion to t_j (or u_j), with
S their sum, each is at most a mean over the changed pairs of

    T_j(S) = sum_x [S f_j/N - (e - 1) P]_+ = S/N sum_x [f_j - k P]_+,        k = N (e - 1)/S,

a convex falling function of k, so that a chord between two values of k bounds it. A pair among many others hardly
counts, however far it moves: that is what `screen`, which looks at pairs one by one, does not see. Both are laid over
each other. Laws f_j against P go through the same `Window` as individuals do, with all that lies beyond it.
"""

from __future__ import annotations

import math

import numpy as np

from empriv.noise.certify.screen import Screen
from empriv.results import FloatArray, IntArray

LEVELS = 24


def levels(pairs: int) -> FloatArray:
    """Values of k at which sticks are computed: no pair is more than N times the mean, so that none is left at N."""
    return np.geomspace(1.0 / 16.0, float(pairs), LEVELS)


def largest_by_share(screen: Screen, log_ratio: FloatArray, share: FloatArray) -> FloatArray:
    """Upper bound of each individual's largest log ratio, from those of the changed pairs and each pair's share."""
    rho = share[screen.pair]
    with np.errstate(over="ignore", invalid="ignore"):
        up = np.where(log_ratio > 0, rho * np.expm1(log_ratio), 0.0)
    down = -rho * np.expm1(-log_ratio)
    rises, falls = (np.bincount(screen.owner, change, screen.individuals) * (1 + 1e-12) for change in (up, down))
    with np.errstate(divide="ignore", invalid="ignore"):
        below = np.where(falls < 1.0, -np.log1p(-np.minimum(falls, 1.0)), np.inf)
    return np.asarray(np.where(screen.blind, np.inf, np.maximum(np.log1p(rises), below)))


def deltas_by_share(screen: Screen, log_ratio: FloatArray, sticks: FloatArray, epsilon: float) -> FloatArray:
    """Upper bound of each individual's delta_i, from ``sticks`` (pairs, levels) of each pair against the mean."""
    n = len(sticks)
    with np.errstate(over="ignore"):
        ways = (math.exp(min(epsilon, 700.0)) * -np.expm1(-log_ratio), np.expm1(log_ratio))
    out = np.zeros(screen.individuals)
    for change in ways:
        change = np.minimum(change, 1e300)
        total = np.bincount(screen.owner, change, screen.individuals)[screen.owner]
        with np.errstate(divide="ignore", invalid="ignore"):
            k = n * math.expm1(min(epsilon, 700.0)) / total
            stick = np.where(change > 0, change / n * _chords(sticks, screen.pair, k), 0.0)
        out = np.maximum(out, np.bincount(screen.owner, stick, screen.individuals))
    return np.where(screen.blind, 1.0, np.minimum(out * (1 + 1e-12), 1.0))


def _chords(sticks: FloatArray, pair: IntArray, k: FloatArray) -> FloatArray:
    """The stick of each of these pairs at its own k, by the chord above it; at k = 0 it is 1."""
    grid = np.concatenate(([0.0], levels(len(sticks))))
    heights = np.column_stack((np.ones(len(sticks)), sticks))
    place = np.clip(np.searchsorted(grid, k, side="right") - 1, 0, len(grid) - 2)
    along = np.clip((k - grid[place]) / (grid[place + 1] - grid[place]), 0.0, 1.0)
    return np.asarray((1.0 - along) * heights[pair, place] + along * heights[pair, place + 1])
