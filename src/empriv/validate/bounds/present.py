"""Bounds given presence: every database serves as "others", with the influences as they were seen.

Everyone gets the parts that make up the bound of one number (a smooth set at a narrowed bandwidth, half-lines, end
runs, the floor), block by block, their influences grouped. The most exposed get the whole bound of one number on their
own pair of laws, which also looks at ties and clusters.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec

import numpy as np

from empriv.base.native import DOUBLE, DOUBLES, LONG, LONGS
from empriv.measuring.given.presence import GroupedPeople, PresenceRisk, WhenPresent
from empriv.measuring.given.presence_block import PresenceBlock
from empriv.measuring.line.atoms import tie_tolerance
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds.analytic import HALF, TOTAL_WIDTH, Upper, floor, narrowing, total_bound, upper_bounds
from empriv.validate.bounds.cross_fitted import limits_of
from empriv.validate.bounds.lower import lower_bounds
from empriv.validate.bounds.moments import bound_of, groups, quantile, skewed
from empriv.validate.ground import Ground, ground_of

WHOLE = 24  # people who get the whole bound, the most exposed


def presence_upper_bounds(risk: PresenceRisk, epsilons: FloatArray, level: float, *, whole: int = WHOLE) -> Upper:
    """The analytic bound for everyone, the whole of it for ``whole`` of them; and the indicative one on total risk."""
    n = risk.results.n_databases
    out = np.full((risk.results.n_individuals, len(epsilons)), floor(n, level))
    exponent, spread = np.zeros(len(epsilons)), np.zeros((len(epsilons), n))
    rows = np.flatnonzero(risk.largest_shifts > 0)

    def task(block_rows: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        people = risk.by_database(block_rows)
        upper = None if people is None else grouped_bounds(people, epsilons, level)
        total = None if people is None else people.block.narrowed(TOTAL_WIDTH)
        if upper is None or total is None:
            parts = [whole_bound(risk, int(row), epsilons, level) for row in block_rows]
            upper = np.concatenate([part.upper_i for part in parts])
            return (
                upper,
                np.sum([part.exponent for part in parts], axis=0),
                np.sum([part.spread for part in parts], axis=0),
            )
        return upper, *total_parts(total, epsilons)

    for block_rows, (upper, losses, sums) in risk.in_blocks(rows, task):
        out[block_rows] = np.maximum(out[block_rows], upper)
        exponent += losses
        spread += sums
    for row in rows[np.argsort(-out[rows, 0], kind="stable")][:whole].tolist():
        out[row] = np.maximum(out[row], whole_bound(risk, row, epsilons, level).upper_i[0])
    return Upper(np.minimum(out, 1.0), total_bound(exponent, spread, level), exponent, spread)


def presence_lower_bounds(
    risk: PresenceRisk, epsilons: FloatArray, level: float, rng: int
) -> tuple[FloatArray, FloatArray]:
    """The bound by betting and the cross-fitted limit: of the person who moves the results most, chosen by influence
    alone, which the bounds take as it was seen."""
    shifts = risk.largest_shifts
    if not len(shifts) or not shifts.max() > 0:
        return np.zeros(len(epsilons)), np.zeros(len(epsilons))
    # few influences: the time grows with the square of them, and what thinning changes is taken off
    ground, thinned = ground_of_person(risk, int(np.argmax(shifts)), most=4)
    both = lower_bounds(ground, epsilons, level, rng), limits_of(ground, epsilons, level, rng).delta
    lower, limit = (np.clip(values - np.exp(epsilons) * thinned, 0.0, 1.0) for values in both)
    return lower, limit


def ground_of_person(risk: PresenceRisk, row: int, *, most: int = 64) -> tuple[Ground, float]:
    """What a bound for one person stands on, ``most`` influences at most, and what thinning may have changed."""
    person = risk.person(row, most=most)
    if not isinstance(person, WhenPresent):
        return ground_of(person), 0.0
    numbers = risk.results.q[risk.results.outcomes == 0]
    pairs = replace(person.pairs, people=risk.on_random_day.pairs.people)
    ground = Ground(
        values=pairs,
        marked=pairs,
        bandwidth=person.bandwidth,
        shifts=np.array([person.shift]),
        tolerance=tie_tolerance(numbers),
        refitted=False,
    )
    return ground, person.thinned


def grouped_bounds(people: GroupedPeople, epsilons: FloatArray, level: float) -> FloatArray | None:
    """(people, epsilons) the smooth part and the ends, without the floor; None where points are too far apart."""
    narrow = people.block.narrowed(narrowing(people.block.n, HALF))
    if narrow is None:
        return None
    upper = np.maximum(_smooth(narrow, epsilons, level), _ends(people, epsilons, level))
    return np.asarray(upper + people.thinned[:, None])


def whole_bound(risk: PresenceRisk, row: int, epsilons: FloatArray, level: float) -> Upper:
    """The whole bound of one number for one person."""
    ground, thinned = ground_of_person(risk, row)
    upper = upper_bounds(ground, epsilons, level)
    return upper._replace(upper_i=upper.upper_i + thinned)


def _smooth(block: PresenceBlock, epsilons: FloatArray, level: float) -> FloatArray:
    """(people, epsilons) the smooth part, at the bandwidth that the block has."""
    return np.asarray(bound_of(block.values(np.exp(epsilons)), level).max(axis=1).T)


def _ends(people: GroupedPeople, epsilons: FloatArray, level: float) -> FloatArray:
    """(people, epsilons) half-lines at both ends that hold up to 5% of a sample, and end runs."""
    if compiled is None:
        return ends_in_numpy(people, epsilons, level)
    others, block = people.others[:, None, :], people.block
    places = np.concatenate((others, others + people.change), axis=1)
    depth = int(0.05 * block.n) + 1
    parts = groups(2 * depth - 1)
    best, alone = np.empty((len(others), len(epsilons))), np.empty(len(others))
    scratch = np.empty(2 * depth + 2 * block.n * len(parts) + places.shape[1])
    compiled(
        len(others), places.shape[1], block.n, block.runs, block.order, places, block.weights.copy(), depth, len(parts),
        np.array([0, *(last for _, last in parts)]), len(epsilons), np.exp(epsilons), quantile(level), best, alone,
        scratch,
    )  # fmt: skip
    return np.asarray(np.maximum(best - 1.0 / block.n, _runs(alone, block.n, level)[:, None]))


def ends_in_numpy(people: GroupedPeople, epsilons: FloatArray, level: float) -> FloatArray:
    """The same as the compiled function, more slowly."""
    others, moved = people.others, people.others[:, None, :] + people.change
    n = others.shape[1]
    best = np.zeros((len(others), len(epsilons)))
    alone = np.zeros(len(others))
    for sign in (1.0, -1.0):
        base, present = sign * others, sign * moved
        order = np.argsort(base, axis=1)
        base = np.take_along_axis(base, order, axis=1)
        present = np.take_along_axis(present, order[:, None, :], axis=2)
        depth = int(0.05 * n) + 1
        # the others' first points, and the first of each group's, end half-lines
        firsts = np.where(people.weights[:, :, None] > 0, np.sort(present, axis=2)[:, :, :depth], np.inf)
        lines = np.sort(np.concatenate((base[:, :depth], firsts.reshape(len(base), -1)), axis=1), axis=1)
        lines = lines[:, : 2 * depth]
        last = lines[np.isfinite(lines)].max()
        near = np.any(np.minimum(base, present.min(axis=1)) < last, axis=0)  # others lie in no half-line
        below = base[:, None, near] < lines[:, :, None]
        share = np.zeros(below.shape)
        for group in range(present.shape[1]):
            share += people.weights[:, group, None, None] * (present[:, group][:, None, near] < lines[:, :, None])
        # averages over the half-lines of a group; lines that a person has not are none
        there = np.isfinite(lines)
        starts = np.array([first for first, _ in groups(lines.shape[1] - 1)])
        number = np.maximum(np.add.reduceat(there, starts, axis=1, dtype=float), 1.0)[:, :, None]
        without, present_share = (
            np.add.reduceat(part * there[:, :, None], starts, axis=1, dtype=float) / number for part in (below, share)
        )
        for column, e in enumerate(np.exp(epsilons)):
            for own, other in ((without, present_share), (present_share, without)):
                best[:, column] = np.maximum(best[:, column], _bounds(own - e * other, n, level).max(axis=1))
        first_other = base[:, :1]
        first_present = np.where(people.weights > 0, present.min(axis=2), np.inf).min(axis=1)[:, None]
        np.maximum(alone, np.count_nonzero(base < first_present, axis=1), out=alone)
        ahead = np.count_nonzero(present < first_other[:, None, :], axis=2)
        np.maximum(alone, (ahead * people.weights).sum(axis=1), out=alone)
    return np.asarray(np.maximum(best - 1.0 / n, _runs(alone, n, level)[:, None]))


def _bounds(w: FloatArray, n: int, level: float) -> FloatArray:
    """`moments.bound_of` of n values of which those not given are 0."""
    first, second = w.sum(axis=-1) / n, np.einsum("...k,...k->...", w, w) / n
    third = np.einsum("...k,...k,...k->...", w, w, w) / n
    variance = np.maximum(second - first * first, 0.0)
    return skewed(first, variance, third - 3 * first * second + 2 * first**3, n, level)


def _runs(alone: FloatArray, n: int, level: float) -> FloatArray:
    """Bound on the mass where one sample has nothing, after so many of n points were found there."""
    z = quantile(level)
    p = np.maximum(alone - 1, 0) / n
    return np.asarray(p + z * np.sqrt(p * (1 - p) / max(n - 1, 1)) + (1 + 2 * z * z) / 6 * (1 - 2 * p) / n)


def total_parts(block: PresenceBlock, epsilons: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Σ -log1p(-d_i) for each epsilon, and Σ_i W_ij/(1 - d_i) for each database, in i's larger direction."""
    losses, sums = np.zeros(len(epsilons)), np.zeros((len(epsilons), block.n))
    for column, both in enumerate(block.values(np.exp(epsilons))):
        means = both.mean(axis=2)
        w = np.where((means[0] >= means[1])[:, None], both[0], both[1])
        d = np.clip(np.maximum(*means), 0.0, 1.0)
        w, d = w[d > 0], d[d > 0]
        with np.errstate(divide="ignore", invalid="ignore"):
            losses[column] = -np.log1p(-d).sum()
            sums[column] = (w / (1 - d)[:, None]).sum(axis=0)
    return losses, np.where(np.isfinite(sums), sums, 0.0)


def _load() -> Callable[..., None] | None:
    spec = find_spec("empriv.validate.bounds._present")
    if spec is None or spec.origin is None:
        return None
    function = ctypes.CDLL(spec.origin).empriv_presence_ends
    function.argtypes = [
        LONG, LONG, LONG, LONGS, LONGS, DOUBLES, DOUBLES, LONG, LONG, LONGS, LONG, DOUBLES, DOUBLE, DOUBLES, DOUBLES,
        DOUBLES,
    ]  # fmt: skip
    function.restype = None
    return function


compiled = _load()
