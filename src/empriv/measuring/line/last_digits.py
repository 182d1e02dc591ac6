"""Patterns in the last digits of results, such as whole euros, parity, or whole numbers ± a little.

A kernel that is wider than the pattern blurs it, and with it the person whose odd amount is all that breaks it. So
steps that people and machines use are tried (`candidate_steps`), on the results with everyone and on those without each
individual. Where results keep to a step s, the mean of exp(2 pi i x/s) is far from 0: Rayleigh's test. For results of a
smooth law ``n |mean|^2`` exceeds t in a share e^-t of cases (Mardia and Jupp, *Directional Statistics*, 2000, 6.3).

At a step that was seen, the circle of residues x mod s is cut where one side has clearly more results than the other
(`classes`). There, results become two atoms: what is found more often with everyone, and more often without. The rest
stays on the line. These are functions of arrays; the estimate and what is said of many publications share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.measuring.densities.selection import spread
from empriv.measuring.line.atoms import Pairs, lattice
from empriv.results import FloatArray, IntArray

_ALPHA = 0.005  # chance of seeing a step where there is none, with everyone, and again without anybody
_MANTISSAS = (1.0, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
_DECADES = 5
_CLOCKS = (12.0, 24.0, 60.0)
_MULTIPLES = 12  # of the lattice step; up to the 6th each has a chance of its own, half that of the one before
_STRONGEST = 4  # steps compared for an individual
_AS_STRONG = 0.8  # steps with this share of the greatest strength are as strong: parts of a step repeat it
_CELLS = 120  # of the circle of residues
_WINDOWS = (_CELLS // 24, _CELLS // 12, _CELLS // 6)  # to either side, of which the first with enough points counts
_ENOUGH = 6
_CLEAR = 1.645
_SHARP = 4.0  # deviations from which on a cell is judged by itself
_FEWEST_DATABASES = 30  # in fewer, a handful of results close together look like a pattern
_FEWEST = 5  # results that must change before any window can be clearly uneven: 1.645 sqrt(6) > 4
_VALUES = 500_000  # held at once: they stay in the processor's cache

Classes = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False)
class Steps:
    """Steps to try.

    Attributes
    ----------
    steps : largest first
    limits : Rayleigh statistic above which each is seen in the results with everyone; for one of m people, who are
        tried m times, log(m) more
    """

    steps: FloatArray
    limits: FloatArray


def candidate_steps(points: FloatArray) -> Steps:
    """Steps to try for results with everyone; atoms, at +inf, are left out."""
    numbers = points[np.isfinite(points)]
    wide = spread(numbers) / 4
    if not wide > 0:
        return Steps(np.zeros(0), np.zeros(0))
    grid = lattice(numbers)
    least = 1.5 * grid[1] if grid is not None else 0.0
    # below this, where a result lies between two multiples is a matter of rounding
    least = max(least, 1e4 * float(np.spacing(np.abs(numbers).max())))
    top = int(np.floor(np.log10(wide)))
    usual = [m * 10.0**k for k in range(top - _DECADES + 1, top + 1) for m in _MANTISSAS]
    usual += [clock for clock in _CLOCKS if not np.any(np.isclose(clock, usual, rtol=1e-9))]
    multiples = [] if grid is None else [m * grid[1] for m in range(2, _MULTIPLES + 1)]
    if multiples:
        usual = [step for step in usual if not np.any(np.isclose(step, multiples, rtol=1e-6))]
    # quartiles of counts are whole numbers, so that their spread is a rough figure
    own = [step for step in multiples[:5] if least < step <= 4 / 3 * wide]
    others = [step for step in (*usual, *multiples[5:]) if least < step <= wide]
    chances = [_ALPHA * 2.0 ** -(k + 1) for k in range(len(own))] + [_ALPHA / max(1, len(others))] * len(others)
    steps = np.array(own + others, float)
    order = np.argsort(-steps)
    return Steps(steps[order], np.log(2.0 / np.array(chances, float))[order])


def strengths(values: FloatArray, steps: FloatArray, draws: int = 1) -> FloatArray:
    """(rows, steps) Rayleigh's ``n |mean exp(2 pi i x/s)|^2`` of (rows, N) results, n the number of databases.

    Draws of a database may be as good as one, so that they count as one. Atoms, at +inf, are left out.
    """
    sums = [np.stack([part.sum(axis=1, dtype=float) for part in _on_circle(values, step)]) for step in steps]
    return _from_sums(sums, np.isfinite(values).sum(axis=1), draws)


def strengths_without(pairs: Pairs, rows: IntArray, steps: FloatArray) -> FloatArray:
    """(rows, steps) strengths without each of these individuals: what changes is added to the sums with everyone."""
    if pairs.everywhere() is not None:
        return strengths(pairs.dense(rows), steps, pairs.draws)
    entry = pairs.entries_of(rows)[1]
    before, entries = pairs.points.reshape(-1, pairs.draws), pairs.entries[entry]
    database, counts = pairs.entry_database[entry], pairs.draws * (pairs.starts[rows + 1] - pairs.starts[rows])
    firsts = np.cumsum(counts) - counts

    def summed(with_all: FloatArray, without: FloatArray) -> FloatArray:
        """(rows,) sums over results."""
        change = without - np.take(with_all, database, axis=0)
        own = np.add.reduceat(np.append(change, 0.0), firsts)
        return np.asarray(with_all.sum(dtype=float) + np.where(counts > 0, own, 0.0))

    sums = [
        np.stack([summed(*part) for part in zip(_on_circle(before, step), _on_circle(entries, step), strict=True)])
        for step in steps
    ]
    present = summed(np.isfinite(before).astype(float), np.isfinite(entries).astype(float))
    return _from_sums(sums, present, pairs.draws)


def _on_circle(values: FloatArray, step: float) -> tuple[FloatArray, FloatArray]:
    """cos(2 pi x/s) and sin(2 pi x/s), 0 for an atom; in single precision, since whole turns are taken away before."""
    turns = values / step
    with np.errstate(invalid="ignore"):
        turns -= np.rint(turns)
    angle = turns.astype(np.float32)
    angle *= np.float32(2 * np.pi)
    with np.errstate(invalid="ignore"):
        both = np.cos(angle), np.sin(angle)
    return both if np.isfinite(values).all() else (np.nan_to_num(both[0]), np.nan_to_num(both[1]))


def _from_sums(sums: Sequence[FloatArray], counts: npt.NDArray[Any], draws: int) -> FloatArray:
    """(rows, steps) from (2, rows) sums of cosines and sines at each step."""
    squares = np.stack([(part**2).sum(axis=0) for part in sums], axis=1)
    return np.asarray(squares / (np.maximum(counts, 1) * float(draws))[:, None])


def digit_steps(pairs: Pairs) -> tuple[tuple[int, float], ...]:
    """Individuals whose results differ in their last digits, each with the step at which they differ most.

    A step that the results with everyone keep to is tried for everyone. Each of ``pairs.people`` is tested for steps of
    their own, and is granted that share of the chance to err. Individuals with an atom of their own are left out.
    """
    if len(pairs.points) < _FEWEST_DATABASES * pairs.draws:
        return ()
    moved = _moved(pairs)
    moved[[row for row, _ in pairs.own]] = 0
    rows = np.flatnonzero(moved >= _FEWEST * pairs.draws)
    if not len(rows):
        return ()
    tried = candidate_steps(pairs.points)
    if not len(tried.steps):
        return ()
    shared = strengths(pairs.points[None, :], tried.steps, pairs.draws)[0]
    seen = shared > tried.limits
    limits = tried.limits + np.log(max(pairs.people, 1))
    if not seen.any():
        rows = rows[_can_be_seen(moved[rows] / len(pairs.points), shared, limits, len(pairs.points) // pairs.draws)]
    individuals = []
    block = max(1, _VALUES // max(len(pairs.points), 8 * _CELLS))
    for start in range(0, len(rows), block):
        some = rows[start : start + block]
        own = strengths_without(pairs, some, tried.steps)
        at = seen | (own > limits)
        if not at.any():
            continue
        without = pairs.dense(some)
        strength = np.where(at, np.maximum(shared, own), 0.0)
        for steps, members in _alike(strength, tried.steps):
            differences = np.stack(
                [_class_difference(classes(pairs.points, without[members], s, pairs.draws)) for s in steps]
            )
            best = differences.argmax(axis=0)
            individuals += [
                (int(some[row]), float(steps[place]))
                for row, place, most in zip(members, best, differences.max(axis=0), strict=True)
                if most > 0
            ]
    return tuple(sorted(individuals))


def _moved(pairs: Pairs) -> IntArray:
    """How many points each individual changes."""
    everywhere = pairs.everywhere()
    if everywhere is not None:
        return np.asarray(np.count_nonzero(everywhere != pairs.points, axis=1))
    change = pairs.entries != np.take(pairs.points.reshape(-1, pairs.draws), pairs.entry_database, axis=0)
    total = np.concatenate(([0], np.cumsum(np.count_nonzero(change, axis=1))))
    return np.asarray(total[pairs.starts[1:]] - total[pairs.starts[:-1]])


def _can_be_seen(moved: FloatArray, shared: FloatArray, limits: FloatArray, n: int) -> npt.NDArray[np.bool_]:
    """Who changes so large a share of the results that a step may be seen without them: each adds 2 to a sum."""
    room = np.sqrt(limits / n) - np.sqrt(shared / n)  # by how much the length of the mean must grow
    return np.asarray(2.0 * moved > room.min() * (1 - 1e-4))


def _alike(strength: FloatArray, steps: FloatArray) -> list[tuple[FloatArray, IntArray]]:
    """Individuals by the steps that are compared for them, the strongest four: (steps, positions of individuals).

    Where results keep to a step they keep to its parts as well, and among more than four that are as strong chance
    would choose. Then the largest, the smallest and two between are taken.
    """
    groups: dict[bytes, list[int]] = {}
    for row in np.flatnonzero(strength.any(axis=1)):
        equal = np.flatnonzero(strength[row] >= _AS_STRONG * strength[row].max())
        if len(equal) > _STRONGEST:
            chosen = equal[np.linspace(0, len(equal) - 1, _STRONGEST).round().astype(int)]
        else:
            order = np.argsort(-strength[row], kind="stable")[:_STRONGEST]
            chosen = np.sort(order[strength[row, order] > 0])
        groups.setdefault(chosen.tobytes(), []).append(int(row))
    return [(steps[np.frombuffer(key, np.int64)], np.array(members)) for key, members in groups.items()]


def classes(points: FloatArray, without: FloatArray, step: float, draws: int = 1) -> Classes:
    """(rows, 2, N): for points with everyone (N,), then without each (rows, N): 0 on the line, 1 where last digits are
    clearly more frequent with everyone, 2 where they are without.

    By the other half of the databases: where digits are alike, this finds no difference on average.
    """
    at = np.concatenate((_cells(points, step)[None, :], _cells(without, step)))
    half = np.arange(len(points)) // draws % 2 == 0
    out = np.empty((len(without), 2, len(points)), np.int8)
    for own in (half, ~half):
        verdict = _verdict(at[:, ~own], draws)
        out[:, 0, own] = verdict[:, at[0, own]]
        out[:, 1, own] = np.take_along_axis(verdict, at[1:, own], axis=1)
    return out


def _shares(found: Classes) -> FloatArray:
    """(rows, sides, 2) of the results, in the two classes."""
    return np.stack([(found == code).mean(axis=2) for code in (1, 2)], axis=2)


def _class_difference(found: Classes) -> FloatArray:
    """(rows,) by how much the shares of both classes differ with everyone and without each."""
    shares = _shares(found)
    return np.asarray(np.abs(shares[:, 0] - shares[:, 1]).sum(axis=1))


def _verdict(at: IntArray, draws: int) -> Classes:
    """(rows, cells) where results with everyone, whose cells are the first row of ``at``, are more frequent than those
    without each, and where they are less."""
    rows = len(at) - 1
    places = at + (_CELLS + 1) * np.arange(rows + 1)[:, None]
    counts = np.bincount(places.ravel(), minlength=(rows + 1) * (_CELLS + 1)).reshape(rows + 1, _CELLS + 1)
    here, away = np.broadcast_to(counts[:1, :_CELLS], (rows, _CELLS)), counts[1:, :_CELLS]
    # a cell that is uneven beyond doubt is judged by itself: in its neighbours' windows it would hide what they are
    both, more = here + away, here - away
    sharp = np.where((both >= _ENOUGH * draws) & (np.abs(more) > _SHARP * np.sqrt(both * draws)), np.sign(more), 0)
    a, b = (_windows(np.where(sharp == 0, side, 0)) for side in (here, away))
    total = a + b  # (windows, rows, cells)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = (a - b) / np.sqrt(total * draws)
    enough = total >= _ENOUGH * draws
    first = np.argmax(enough, axis=0)[None]
    z = np.where(enough.any(axis=0), np.take_along_axis(z, first, axis=0)[0], 0.0)
    z = np.where(sharp > 0, np.inf, np.where(sharp < 0, -np.inf, z))
    verdict = np.zeros((rows, _CELLS + 1), np.int8)  # the last is of atoms
    verdict[:, :_CELLS] = np.where(z > _CLEAR, 1, np.where(z < -_CLEAR, 2, 0))
    return verdict


def pairs_at_step(pairs: Pairs, row: int, step: float) -> Pairs:
    """One individual's pairs with two atoms more: last digits that are more frequent with everyone, and without."""
    q, without = pairs.points, pairs.dense(np.array([row]))
    found = classes(q, without, step, pairs.draws)
    shares, at = _shares(found)[0], found[0] > 0
    n = len(q) // pairs.draws
    return Pairs(
        points=np.where(at[0], np.inf, q),
        draws=pairs.draws,
        starts=np.array([0, n]),
        entry_database=np.arange(n, dtype=np.int32),
        entries=np.where(at[1], np.inf, without[0]).reshape(n, pairs.draws),
        names=(*pairs.names, "residues_with", "residues_without"),
        mass=np.append(pairs.mass, shares[0]),
        mass_without=np.append(pairs.mass_without[row], shares[1])[None, :],
    )


def _cells(values: FloatArray, step: float) -> IntArray:
    """Which cell of the circle each value's residue is in; one more for atoms."""
    present = np.isfinite(values)
    turns = np.where(present, values, 0.0) / step
    # multiples of the step are in the middle of a cell, whatever their rounding
    cell = np.floor((turns - np.floor(turns)) * _CELLS + 0.5).astype(np.int64) % _CELLS
    return np.where(present, cell, _CELLS)


def _windows(counts: IntArray) -> FloatArray:
    """(windows, rows, cells) points within each of the windows about each cell."""
    reach = _WINDOWS[-1]
    around = np.concatenate((counts[:, -reach:], counts, counts[:, :reach]), axis=1)
    total = np.concatenate((np.zeros((len(counts), 1)), np.cumsum(around, axis=1)), axis=1)
    middle = np.arange(_CELLS) + reach
    return np.stack([total[:, middle + width + 1] - total[:, middle - width] for width in _WINDOWS])
