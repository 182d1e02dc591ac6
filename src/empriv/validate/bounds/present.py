"""Bounds given presence: every database serves as "others", with the influences as they were seen.

Kept for the cells of tables and for publishing again, until these are judged by the cover.

Everyone gets the parts that make up the bound of one number (a smooth set at a narrowed bandwidth, half-lines, end
runs, the floor), block by block, their influences grouped. The most exposed get the whole bound of one number on their
own pair of laws, which also looks at ties and clusters.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np

from empriv.base.native import DOUBLE, DOUBLES, LONG, LONGS
from empriv.judge import lower, upper
from empriv.measuring.given.presence import GroupedPeople, PresenceRisk, WhenPresent
from empriv.measuring.given.presence_block import PresenceBlock
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds.line_bounds import floor, lower_of_people, upper_of_people
from empriv.validate.bounds.moments import bound_of, groups, narrowing, quantile, skewed

WHOLE = 24  # people who get the whole bound, the most exposed


def presence_upper_bounds(risk: PresenceRisk, epsilons: FloatArray, level: float, *, whole: int = WHOLE) -> FloatArray:
    """(individuals, epsilons) the bound for everyone, the whole of it for ``whole`` of them."""
    n = risk.results.n_databases
    out = np.full((risk.results.n_individuals, len(epsilons)), floor(n, level))
    rows = np.flatnonzero(risk.largest_shifts > 0)

    def task(block_rows: IntArray) -> FloatArray:
        people = risk.by_database(block_rows)
        bound = None if people is None else grouped_bounds(people, epsilons, level)
        if bound is not None:
            return bound
        return np.stack([whole_bound(risk, int(row), epsilons, level) for row in block_rows])

    for block_rows, found in risk.in_blocks(rows, task):
        out[block_rows] = np.maximum(out[block_rows], found)
    for row in rows[np.argsort(-out[rows, 0], kind="stable")][:whole].tolist():
        out[row] = np.maximum(out[row], whole_bound(risk, row, epsilons, level))
    return np.asarray(np.minimum(out, 1.0))


def presence_lower_bounds(risk: PresenceRisk, epsilons: FloatArray, level: float) -> FloatArray:
    """(epsilons,) the lower bound of the person who moves the results most, chosen by influence alone, which the bounds
    take as it was seen."""
    shifts = risk.largest_shifts
    if not len(shifts) or not shifts.max() > 0:
        return np.zeros(len(epsilons))
    # few influences: the time grows with the square of them, and what thinning changes is taken off
    person = risk.person(int(np.argmax(shifts)), most=4)
    if not isinstance(person, WhenPresent):
        return lower_of_people(person, epsilons, level)
    pairs = person.pairs
    found = lower.of_pairs(pairs.points, pairs.entries.reshape(1, -1), epsilons, draws=pairs.draws, level=level)[0]
    return np.asarray(np.clip(found - np.exp(epsilons) * person.thinned, 0.0, 1.0))


def whole_bound(risk: PresenceRisk, row: int, epsilons: FloatArray, level: float) -> FloatArray:
    """(epsilons,) the bound of one number for one person."""
    person = risk.person(row, most=64)
    if not isinstance(person, WhenPresent):
        return np.asarray(upper_of_people(person, epsilons, level).values[0])
    pairs = person.pairs
    found = upper.of_pairs(
        pairs.points, pairs.entries.reshape(1, -1), epsilons, draws=pairs.draws, level=level, known_smooth=True
    )
    return np.asarray(found.values[0] + person.thinned)


def grouped_bounds(people: GroupedPeople, epsilons: FloatArray, level: float) -> FloatArray | None:
    """(people, epsilons) the smooth part and the ends, without the floor; None where points are too far apart."""
    narrow = people.block.narrowed(narrowing(people.block.n))
    if narrow is None:
        return None
    upper = np.maximum(_smooth(narrow, epsilons, level), _ends(people, epsilons, level))
    return np.asarray(upper + people.thinned[:, None])


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
