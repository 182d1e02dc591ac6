"""People given presence where some outcomes are no numbers, many at once: what `PresenceRisk.person` gives one by one.

A cell that nobody is in has no answer, so that in a table of small cells everybody's results have an atom. Written out,
a person has a pair of points for every database and every influence, and is looked at for atoms of numbers, for
lattices and for changes of the spread. Here that is done for a block of people: influences that are equal are taken
together, points that are no numbers have no weight, and what can have no atom of numbers is proved by what all people
of the cell have in common. Whoever is not proved to be so plain is left to `PresenceRisk.person`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from empriv.measuring.given import compiled_blocks
from empriv.measuring.given.presence_block import REACH
from empriv.measuring.line.atoms import is_round, lattice, on_lattice, tie_tolerance
from empriv.measuring.line.laplace import CROSSING_LIMIT, slack
from empriv.measuring.line.spreads import NARROW
from empriv.results import FloatArray, IntArray, Outcome, Results

BoolArray = npt.NDArray[np.bool_]

LARGEST_E = 1e3  # beyond, crossings cancel too much
MOST_POINTS = 20_000  # of one person, written out
_EQUAL = 1e-12  # of delta, changed by taking influences together that differ by rounding
_MOST = 256  # different influences
_KINDS = len(Outcome) - 1
_LOOKED_AT = 8  # numbers that show that there is no lattice
_LEAST_SHOWN = 5  # distinct numbers that show one


class _Influences(NamedTuple):
    """What people of a block do: entries one after the other, of ``counts`` each.

    Attributes
    ----------
    owner, at : (entries,) the person, by position in the block, and the database
    change : (entries,) of a number that stays one, 0 where the outcome stays another
    turned : (entries,) whether the kind of the outcome changes
    kind : (entries,) the outcome with the person
    """

    owner: IntArray
    at: IntArray
    counts: IntArray
    change: FloatArray
    turned: BoolArray
    kind: npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False, repr=False)
class OutcomesApart:
    """Results of one number, some of which are none, and the bandwidth of the Laplace density on both sides.

    ``digits`` is whether patterns in the last digits are looked for, of which plain people have none.
    """

    results: Results
    bandwidth: float
    digits: bool

    @property
    def possible(self) -> bool:
        """Whether there is anybody for whom this can serve."""
        return compiled_blocks.compiled is not None and self.results.draws in (None, 1) and len(self._numbers) > 1

    def curves(self, rows: IntArray, epsilons: FloatArray) -> tuple[FloatArray, BoolArray]:
        """(rows, epsilons) delta where somebody is there, and (rows,) whom this holds for; others are to be looked at
        one by one."""
        out, plain = np.zeros((len(rows), len(epsilons))), np.zeros(len(rows), bool)
        e = np.exp(np.minimum(epsilons, np.log(2 * LARGEST_E)))
        if e[-1] > LARGEST_E:
            return out, plain
        counts = self.results.starts[rows + 1] - self.results.starts[rows]
        plain = (counts > 0) & (counts * self.results.n_databases <= MOST_POINTS)
        if plain.any():
            curves, proved = self._block(rows[plain], e)
            out[plain], plain[plain] = curves, proved
        return out, plain

    def _block(self, rows: IntArray, e: FloatArray) -> tuple[FloatArray, BoolArray]:
        code = compiled_blocks.compiled
        assert code is not None
        n, people = self.results.n_databases, len(rows)
        own = self._influences(rows)
        others, kinds = self._others(rows, own)
        numbers = kinds == 0
        stay = np.bincount(own.owner, ~own.turned, people) / own.counts
        lands = own.turned & (own.kind == 0)
        landing = np.bincount(own.owner, lands, people) / own.counts

        # equal influences together, then a run for each number that an outcome turns to
        means, weights, counts, changed = self._grouped(own, people)
        width = int(counts.max())
        person, place, share = _landings(own, lands, self.results.q.reshape(-1))
        column = counts[person] + np.arange(len(person)) - np.searchsorted(person, person)
        runs = 1 + counts + np.bincount(person, minlength=people)
        most = int(runs.max())
        left = np.where(numbers, others - self._middle, 0.0) / self.bandwidth
        places, masses = np.zeros((people, most, n)), np.zeros((people, most, n))
        places[:, 0], masses[:, 0] = left, numbers
        places[:, 1 : width + 1] = left[:, None, :] + (means[:, :width] / self.bandwidth)[:, :, None]
        masses[:, 1 : width + 1] = (weights[:, :width] * stay[:, None])[:, :, None] * numbers[:, None, :]
        places[person, column + 1] = ((place - self._middle) / self.bandwidth)[:, None]
        masses[person, column + 1] = share[:, None]
        x, mass = places.reshape(people, -1), masses.reshape(people, -1)
        order = code.order(x, runs, n)

        spread = code.spreads(x, order, mass, runs, n, own.counts.astype(float))
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = spread[:, 1] / spread[:, 0]
        narrow = (ratio > 0) & (ratio < NARROW) & self._far(own, spread[:, 0] * self.bandwidth, people)
        if narrow.any():
            x = x / np.where(narrow, ratio, 1.0)[:, None]
        plain = (np.abs(x).max(axis=1) <= REACH) & (changed <= 2 * _EQUAL) & (stay > 0)
        plain &= self._plain(own.counts, landing) & self._not_round(others, kinds, means[:, 0])
        if self.digits:
            plain &= self._without_steps(own.counts, spread[:, 0] * self.bandwidth)
        up = np.exp(np.clip(x, -REACH, REACH))

        loose = slack(np.empty(n * int(own.counts.max()))) * max(1.0, float(e[-1]) / CROSSING_LIMIT)
        lower = e * (1.0 - loose)
        sticks, low, high = code.placed(up, order, mass, runs, n, lower)
        sticks /= n
        largest = np.maximum(high, 1.0 / np.maximum(low, 1e-300))
        before, after = self._masses(own, kinds, stay)
        sticks[:, 0] += np.maximum(before[:, None] - lower[:, None] * after[:, None], 0.0).sum(axis=2)
        sticks[:, 1] += np.maximum(after[:, None] - lower[:, None] * before[:, None], 0.0).sum(axis=2)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.nan_to_num(np.maximum(before / after, after / before), nan=0.0, posinf=np.inf)
        largest = np.maximum(largest, ratios.max(axis=1))
        curves = np.clip(sticks.max(axis=1), 0.0, 1.0 - loose) + loose
        return np.where(largest[:, None] / (1.0 - loose) <= e, 0.0, curves), plain

    def _influences(self, rows: IntArray) -> _Influences:
        results = self.results
        counts = results.starts[rows + 1] - results.starts[rows]
        owner = np.repeat(np.arange(len(rows)), counts)
        entry = np.arange(len(owner)) + np.repeat(results.starts[rows] - (np.cumsum(counts) - counts), counts)
        at = results.entry_database[entry]
        is_now, was = results.outcomes.reshape(-1)[at], results.entry_outcomes.reshape(-1)[entry]
        before, after = results.q.reshape(-1)[at], results.entry_q.reshape(-1)[entry]
        both = (is_now == 0) & (was == 0)
        change = np.where(both, np.where(both, before, 0.0) - np.where(both, after, 0.0), 0.0)
        change[np.abs(change) <= self._tie] = 0.0
        return _Influences(owner, at, counts, change, was != is_now, is_now)

    def _others(self, rows: IntArray, own: _Influences) -> tuple[FloatArray, npt.NDArray[np.int8]]:
        """(rows, n) results without each, and which kind of outcome they are."""
        results = self.results
        entry = np.concatenate([np.arange(results.starts[row], results.starts[row + 1]) for row in rows.tolist()])
        others = np.repeat(results.q.reshape(1, -1), len(rows), axis=0)
        kinds = np.repeat(results.outcomes.reshape(1, -1), len(rows), axis=0)
        others[own.owner, own.at] = results.entry_q.reshape(-1)[entry]
        kinds[own.owner, own.at] = results.entry_outcomes.reshape(-1)[entry]
        return others, kinds

    def _grouped(self, own: _Influences, people: int) -> tuple[FloatArray, FloatArray, IntArray, FloatArray]:
        """Means and weights (people, groups) of the influences that leave the kind of an outcome, how many groups there
        are, and what taking them together changes of delta."""
        code = compiled_blocks.compiled
        assert code is not None
        owner, change = own.owner[~own.turned], own.change[~own.turned]
        # somebody who always turns the outcome has an influence here that nothing is made of
        missing = np.flatnonzero(np.bincount(owner, minlength=people) == 0)
        owner, change = np.append(owner, missing), np.append(change, np.zeros(len(missing)))
        order = np.lexsort((change, owner))
        starts = np.concatenate(([0], np.cumsum(np.bincount(owner, minlength=people))))
        return code.groups(change[order], starts, np.full(people, self.bandwidth), _EQUAL, _MOST)

    def _masses(self, own: _Influences, kinds: npt.NDArray[np.int8], stay: FloatArray) -> tuple[FloatArray, FloatArray]:
        """(people, kinds) of outcomes that are no numbers: the others', and with the person."""
        n, people = self.results.n_databases, len(kinds)
        before = np.stack([np.count_nonzero(kinds == kind, axis=1) for kind in range(1, _KINDS + 1)], axis=1) / n
        turned = own.turned & (own.kind > 0)
        place = own.owner[turned] * _KINDS + own.kind[turned] - 1
        to = np.bincount(place, minlength=people * _KINDS).reshape(people, _KINDS) / own.counts[:, None]
        return before, before * stay[:, None] + to

    def _far(self, own: _Influences, spread: FloatArray, people: int) -> BoolArray:
        """Who moves results far enough for their spread to change: `spread_ratios` looks at nobody else."""
        least = 0.5 * 1.349 * (1 - NARROW) * spread
        far = own.turned | (np.abs(own.change) > least[own.owner])
        return np.asarray(np.bincount(own.owner, far, people) > 0)

    # What can have no atom of numbers

    @cached_property
    def _numbers(self) -> FloatArray:
        return np.asarray(self.results.q[self.results.outcomes == 0])

    @cached_property
    def _middle(self) -> float:
        return float(np.median(self._numbers))

    @cached_property
    def _tie(self) -> float:
        return tie_tolerance(self._numbers)

    @cached_property
    def _most_tied(self) -> int:
        rising = np.sort(self._numbers)
        return int((np.searchsorted(rising, rising + 4 * self._tie, side="right") - np.arange(len(rising))).max())

    @cached_property
    def _free_of_lattices(self) -> int:
        """How many sets of databases there are, without one in common, whose numbers lie on no lattice. Whoever changes
        fewer databases leaves one of these sets as it is, and the others' results are on no lattice either."""
        most, free = int(self.results.presence.max()), 0
        for part in np.split(self._numbers, np.arange(_LOOKED_AT, len(self._numbers), _LOOKED_AT)):
            free += len(np.unique(part)) >= _LEAST_SHOWN and lattice(part) is None
            if free > most:
                break
        return free

    @cached_property
    def _lattice(self) -> tuple[float, int] | None:
        """The step of the lattice that all results lie on, and how many databases somebody may change at most and leave
        values that show this step: the others' results are on this lattice then, and so is what the person adds."""
        grid = lattice(self._numbers)
        entries = self.results.entry_q.reshape(-1)[self.results.entry_outcomes.reshape(-1) == 0]
        if grid is None or not on_lattice(np.concatenate((self._numbers, entries)), *grid).all():
            return None
        offset, step = grid
        turns, counts = np.unique(np.round((self._numbers - offset) / step).astype(np.int64), return_counts=True)
        order = np.argsort(-counts, kind="stable")
        for shown in range(_LEAST_SHOWN, len(order) + 1):
            if np.gcd.reduce(np.diff(np.sort(turns[order[:shown]]))) == 1:
                return step, int(counts[order[shown - 1]]) - 1
        return None

    def _plain(self, counts: IntArray, landing: FloatArray) -> BoolArray:
        """Who gives no value more than half of the results, without them or with them, nor takes them off a lattice."""
        tied = self._most_tied + counts
        n = self.results.n_databases
        none_holds_half = (tied < len(self._numbers) - counts) & (landing + (1.0 - landing) * tied / n <= 0.5)
        at_most = -1 if self._lattice is None else self._lattice[1]
        return none_holds_half & ((counts < self._free_of_lattices) | (counts <= at_most))

    def _not_round(self, others: FloatArray, kinds: npt.NDArray[np.int8], change: FloatArray) -> BoolArray:
        """Whose results are not round with them alone."""
        absent = kinds != 0
        with_person = (is_round(np.where(absent, 0.0, others + change[:, None])) | absent).all(axis=1)
        without = (is_round(np.where(absent, 0.0, others)) | absent).all(axis=1)
        return np.asarray(~with_person | without)

    def _without_steps(self, counts: IntArray, spread: FloatArray) -> BoolArray:
        """For whom no pattern of last digits is tried: `candidate_steps` has steps of a quarter of the spread at most,
        and of one and a half steps of the lattice at least."""
        if self._lattice is None:
            return np.zeros(len(counts), bool)
        step, at_most = self._lattice
        return (counts <= at_most) & (spread / 4 < 1.5 * step * (1 - 1e-9))


def _landings(own: _Influences, lands: BoolArray, q: FloatArray) -> tuple[IntArray, FloatArray, FloatArray]:
    """Numbers that outcomes turn to, (person, number, share of what the person does), equal ones together."""
    owner, place = own.owner[lands], q[own.at[lands]]
    order = np.lexsort((place, owner))
    owner, place = owner[order], place[order]
    new = np.ones(len(owner), bool)
    new[1:] = (owner[1:] != owner[:-1]) | (place[1:] != place[:-1])
    group = np.cumsum(new) - 1
    size = np.bincount(group, minlength=int(new.sum()))
    return owner[new], place[new], size / own.counts[owner[new]]
