"""Given that they are there: how private the results are for people on a database that they are in.

Of one number the cover says more (`validate.covering`); this is kept for cells of tables (`tables.table_presence`) and
for publishing again (`series`), until these are judged by the cover too.

By the paper's definition delta_i is averaged over databases, those without the person among them: somebody in 1 of 100
has at most .01. Here *without* is the law of the others, and *with* is that law plus one of the influences that the
person had when they were there. The others are taken not to depend on whether the person is there, so that every
database serves: database k with draws ``others_k + d_j`` over the days j when the person was there, against
``others_k``.

Somebody who is there on many days has their influences grouped, each group to its mean, as many as it takes to change
delta by less than `THINNED`: within groups of variance v the change is below v/(2 h²), since a Laplace density has a
second derivative of total mass 2/h² at most. The most exposed are looked at without grouping.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple, TypeVar

import numpy as np

from empriv.base.threads import workers
from empriv.measuring.contract import RiskContract
from empriv.measuring.densities.density import Mixture, is_usual
from empriv.measuring.densities.kernels import kernel_named
from empriv.measuring.densities.selection import spread
from empriv.measuring.given.presence_block import PresenceBlock, block_of, groups_of
from empriv.measuring.given.presence_outcomes import MOST_POINTS, OutcomesApart
from empriv.measuring.given.residuals import Residuals
from empriv.measuring.line.atoms import Pairs, lattice, tie_tolerance
from empriv.measuring.line.blocks import Block
from empriv.measuring.line.hockeystick import LARGEST_EPSILON
from empriv.measuring.line.laplace import LaplaceBlock, slack
from empriv.measuring.line.residues import shared_steps, telling_marks
from empriv.measuring.line.risk import Risk, measure_line, pairs_of
from empriv.measuring.line.spreads import NARROW, spreads
from empriv.results import FloatArray, IntArray, Results

Answer = TypeVar("Answer")

THINNED = 0.002  # of delta, changed by thinning at most
EXACT = 20  # people looked at without thinning, the most exposed
_POINTS = 1_000_000  # of one person, held at once
_BLOCK = 32  # people looked at together
_MOST = 24  # groups of influences
_GROUPS = (1, 2, 4, 8, 16, 32, 64, 128)
_CALM = 0.05  # influences below this share of the spread leave the bandwidth alone
_NARROWEST = 0.4  # of the one-SE bandwidth


@dataclass(frozen=True, eq=False)
class WhenPresent:
    """One person, on every database as if they were in it.

    Attributes
    ----------
    pairs : the others' results as the points, with a draw for each influence; the same with the person as the entries
    bandwidth : of the Laplace density on both sides
    thinned : what thinning changes of delta, at most
    """

    pairs: Pairs
    bandwidth: float
    thinned: float

    @property
    def shift(self) -> float:
        """The largest influence in bandwidths."""
        change = self.pairs.entries.reshape(-1) - self.pairs.points
        return float(np.abs(change).max(initial=0.0)) / self.bandwidth

    def curve(self, epsilons: FloatArray) -> FloatArray:
        """(epsilons,) delta; exactly 0 where the ratio of densities is proved to stay within e^epsilon."""
        source = LaplaceBlock(self.pairs.points, self.pairs.entries.reshape(1, -1), self.bandwidth)
        block = Block(source, np.zeros(0), np.zeros((1, 0)), slack=slack(self.pairs.points))
        return np.asarray(block.curves(epsilons)[0])


class GroupedPeople(NamedTuple):
    """A block of people with their influences grouped."""

    block: PresenceBlock
    others: FloatArray  # (people, n) what is left of the others
    change: FloatArray  # (people, groups, n) by what the person moves it
    weights: FloatArray  # (people, groups)
    bandwidths: FloatArray  # (people,)
    thinned: FloatArray  # (people,) what grouping changes of delta, at most


@dataclass(frozen=True)
class ChosenOnce:
    """A Laplace density whose bandwidth was chosen from the results with everyone."""

    bandwidth: float

    def fit(self, points: FloatArray, databases: IntArray) -> Mixture:  # noqa: ARG002 — nothing is chosen again
        name = f"laplace kernel, bandwidth {self.bandwidth:.6g} (one-se)"
        return Mixture(kernel_named("laplace"), np.full(len(points), self.bandwidth), name, rule="one-se")


@dataclass(frozen=True, eq=False)
class PresenceRisk(RiskContract):
    """How private the results are for people on a database that they are in; asked like a `Risk`.

    Attributes
    ----------
    results : what was measured
    on_random_day : the risk by the paper's definition, averaged over databases with and without the person
    bandwidth : of the Laplace density, chosen from the results with everyone
    left : what is left of the results given what is known, if anything is; ``results`` are then residuals
    context : databases of one context, whose influences count, also where people were away; None counts those of all
        databases that they were in
    exact : how many people are looked at without thinning, the most exposed
    digits : whether patterns in the last digits are looked for: what a regression leaves over has none
    """

    results: Results = field(repr=False)
    on_random_day: Risk = field(repr=False)
    bandwidth: float
    left: Residuals | None = field(default=None, repr=False)
    context: IntArray | None = field(default=None, repr=False)
    exact: int = field(default=EXACT, repr=False)
    digits: bool = field(default=True, repr=False)
    made_from: RiskContract | None = field(default=None, repr=False, kw_only=True)

    def in_context(self, databases: IntArray) -> PresenceRisk:
        """The risk where what is known is as on these databases, by position: people may be there or away."""
        return replace(self, context=databases, made_from=None)

    def influences(self, row: int) -> FloatArray:
        """What a person changes where they are there, or in the context: one number for each time."""
        if self.context is None:
            return influences_of(self.source, row)
        source, n = self.source, self.results.n_databases
        change = (source.q - without(source, row)).reshape(n, -1)
        if self.left is not None and not self.left.logarithm:
            change = change * self.left.fit.calm[:, None]  # as much as it weighs beside the context's own spread
        return np.asarray(change[self.context].reshape(-1))

    def curves(self, epsilons: FloatArray) -> FloatArray:
        out = np.zeros((self.results.n_individuals, len(epsilons)))
        rows = np.flatnonzero(self.largest_shifts > epsilons[0])
        e = np.exp(np.minimum(epsilons, LARGEST_EPSILON))

        def task(block_rows: IntArray) -> FloatArray:
            grouped_people = self.block(block_rows)
            if grouped_people is None:
                return self._one_by_one(block_rows, epsilons)
            sticks = grouped_people.block.sticks(e)
            # never above 1, and 0 where the ratio of densities is proved to stay within e^epsilon
            return np.where(self.largest_shifts[block_rows, None] > epsilons, np.minimum(sticks, 1.0), 0.0)

        for block_rows, curves in self.in_blocks(rows, task):
            out[block_rows] = curves
        ranked = rows[np.argsort(-out[rows, 0], kind="stable")][: self.exact]
        for row in ranked.tolist():
            out[row] = self.curve_of(row, epsilons, exact=True)
        for row, steps in self._digits.items():
            out[row] = np.maximum(out[row], self._digit_curve(row, steps, epsilons))
        return out

    def _one_by_one(self, rows: IntArray, epsilons: FloatArray) -> FloatArray:
        """(rows, epsilons) of people who are no block; those whose only atoms are no numbers are looked at together."""
        out, plain = np.zeros((len(rows), len(epsilons))), np.zeros(len(rows), bool)
        apart = self._outcomes_apart
        if apart is not None and self._irregular[rows].all():
            out, plain = apart.curves(rows, epsilons)
        for place in np.flatnonzero(~plain).tolist():
            out[place] = self.curve_of(int(rows[place]), epsilons)
        return out

    @cached_property
    def _outcomes_apart(self) -> OutcomesApart | None:
        apart = OutcomesApart(self.results, self.bandwidth, self.digits)
        return apart if isinstance(self.on_random_day.density, Mixture) and apart.possible else None

    @cached_property
    def _digits(self) -> dict[int, FloatArray]:
        """People who may change last digits where they are there, each with steps that results keep to."""
        if self.context is not None or not self.digits:
            return {}
        seen = self.on_random_day.pairs  # which were looked at already, unless these are residuals
        if self.left is not None:
            seen = pairs_of(self.source, look=True, people=seen.people)
        steps = shared_steps(seen.points, seen.draws)
        by_person = dict.fromkeys(np.flatnonzero(self.largest_shifts > 0).tolist(), steps) if len(steps) else {}
        return {row: own for row, own in {**by_person, **dict(seen.sure_residues)}.items() if not self._irregular[row]}

    def _digit_curve(self, row: int, steps: FloatArray, epsilons: FloatArray) -> FloatArray:
        """(epsilons,) the part of delta that last digits make, whatever else is known."""
        others, _ = self._others(row)
        influences, _ = thin(self.influences(row), self.bandwidth, most=_GROUPS[4], keep=True)
        moved = (others[:, None] + influences).reshape(-1)
        draws = len(moved) // self.results.n_databases
        _, shares = telling_marks(moved, np.repeat(others, len(influences))[None, :], steps, draws)
        shares = np.concatenate((shares, 1.0 - shares.sum(axis=1, keepdims=True)), axis=1)
        return np.asarray(Block(None, shares[0], shares[1:], slack=1e-15).curves(epsilons)[0])

    def in_blocks(self, rows: IntArray, task: Callable[[IntArray], Answer]) -> Iterator[tuple[IntArray, Answer]]:
        """``task`` of blocks of people, in threads; people there equally often together."""
        rows = rows[np.argsort(self.results.presence[rows], kind="stable")]
        alone = rows[self._irregular[rows]]
        rows = rows[~self._irregular[rows]]
        blocks = [rows[start : start + _BLOCK] for start in range(0, len(rows), _BLOCK)]
        step = _BLOCK if self._outcomes_apart is not None else 1
        blocks += [alone[start : start + step] for start in range(0, len(alone), step)]
        if len(blocks) < 2 or workers() < 2:
            yield from ((block, task(block)) for block in blocks)
            return
        with ThreadPoolExecutor(workers()) as pool:
            yield from zip(blocks, pool.map(task, blocks), strict=True)

    def by_database(self, rows: IntArray) -> GroupedPeople | None:
        """`block`, if each database has one result."""
        return self.block(rows) if self.results.draws in (None, 1) else None

    def block(self, rows: IntArray) -> GroupedPeople | None:
        """These people together; None where they must be looked at one by one. Every draw counts as a database."""
        if self._irregular[rows].any():
            return None
        if self.left is None:
            others = left = without_each(self.results, rows)
        else:
            both = [self._others(row) for row in rows.tolist()]
            others, left = (np.stack(side) for side in zip(*both, strict=True))
        h = self._bandwidths(rows, left)
        logarithm = self.left is not None and self.left.logarithm
        scales = h * others.min(axis=1) if logarithm else h
        plain = self.context is None
        influences = influences_of_each(self.source, rows) if plain else [self.influences(row) for row in rows.tolist()]
        means, weights, thinned = groups_of(influences, scales, THINNED, _MOST)
        change: FloatArray = np.broadcast_to(means[:, :, None], (*means.shape, left.shape[1]))
        if logarithm:
            with np.errstate(divide="ignore"):
                change = np.log(np.maximum(others[:, None, :] + change, 0.0)) - np.log(others)[:, None, :]
        block = block_of(left, left[:, None, :] + change, weights, h)
        if block is None:
            return None
        return GroupedPeople(block, left, change, weights, h, thinned)

    def curve_of(self, row: int, epsilons: FloatArray, *, exact: bool = False) -> FloatArray:
        """(epsilons,) delta of one person."""
        person = self.person(row, exact=exact)
        return person.curve(epsilons) if isinstance(person, WhenPresent) else person.curves(epsilons)[0]

    def person(self, row: int, *, exact: bool = False, most: int = _GROUPS[-1]) -> WhenPresent | Risk:
        """One person by position, influences thinned unless ``exact``, to ``most`` at most; a `Risk` where outcomes
        have a mass of their own, which no smoothing may blur."""
        if self._irregular[row]:
            # chosen once: for every person, draws and all, that would take the square of their number
            density = ChosenOnce(self.bandwidth) if isinstance(self.on_random_day.density, Mixture) else None
            people = self.on_random_day.pairs.people
            return measure_line(self._written_out(row), density, people=people, digits=self.digits)
        others, left = self._others(row)
        influences = self.influences(row)
        size = len(others)
        h = self.bandwidth_of(row, left)
        width = h if self.left is None or not self.left.logarithm else h * float(others.min())
        thinned = 0.0
        if not exact or size * len(influences) > _POINTS:
            influences, thinned = thin(influences, width, most=most, keep=self._on_lattice)
        moved = left[:, None] + influences if self.left is None else self.left.moved(others, left, influences)
        if not np.isfinite(moved).all():  # below zero there is no logarithm: as far away as can be
            moved = np.where(np.isfinite(moved), moved, left.min() - 1e3 * h)
        n, draws = self.results.n_databases, moved.size // self.results.n_databases
        pairs = Pairs(
            points=np.repeat(left, len(influences)),
            draws=draws,
            starts=np.array([0, n]),
            entry_database=np.arange(n, dtype=np.int32),
            entries=moved.reshape(n, draws),
            names=(),
            mass=np.zeros(0),
            mass_without=np.zeros((1, 0)),
        )
        return WhenPresent(pairs, h, thinned)

    def left_of_others(self, row: int) -> FloatArray:
        """(N,) what is left of the others' results."""
        return self._others(row)[1]

    def bandwidth_of(self, row: int, left: FloatArray) -> float:
        """Of one person: narrower where the results spread less without them."""
        return float(self._bandwidths(np.array([row]), left[None, :])[0])

    def _bandwidths(self, rows: IntArray, left: FloatArray) -> FloatArray:
        out = np.full(len(rows), self.bandwidth)
        large = self.largest_shifts[rows] * self.bandwidth > _CALM * self._spread
        if self._spread > 0 and large.any():
            ratio = spreads(left[large]) / self._spread
            out[large] *= np.where((ratio > 0) & (ratio < NARROW), ratio, 1.0)
        return out

    @cached_property
    def largest_shifts(self) -> FloatArray:
        """(individuals,) largest influence in bandwidths; inf where somebody changes what kind of outcome it is."""
        source = self.source
        with np.errstate(invalid="ignore"):
            change = np.abs(source.entry_q - source.q[source.entry_database]).reshape(len(source.entry_q), -1)
        at_most = change
        if self.left is not None and self.left.logarithm:
            least = float(min(source.q.min(), source.entry_q.min(initial=np.inf)))
            # up by d from `least` is log(1 + d/least), down from there is more, without end where nothing is left
            fall = np.where(change < least, -np.log1p(-np.minimum(change / least, 1 - 1e-16)), np.inf)
            rise = np.log1p(change / least)
            at_most = np.where(
                source.entry_q.reshape(change.shape)
                > source.q[source.entry_database][:, None].reshape(change.shape[0], -1),
                fall,
                rise,
            )
        out = np.zeros(source.n_individuals)
        listed = np.diff(source.starts) > 0
        if listed.any():
            largest = np.where(np.isnan(at_most), np.inf, at_most).max(axis=1)
            out[listed] = np.maximum.reduceat(largest, source.starts[:-1][listed])
        with np.errstate(divide="ignore", invalid="ignore"):
            out = np.where(out > 0, out / self.bandwidth, 0.0)
        out[self._irregular & listed] = np.inf
        return out

    @property
    def source(self) -> Results:
        """Results in their own units, on the databases that are measured."""
        return self.results if self.left is None else self.left.original

    @cached_property
    def _spread(self) -> float:
        numbers = self.results.q[self.results.outcomes == 0]
        return float(spread(numbers)) if len(numbers) else 0.0

    @cached_property
    def _on_lattice(self) -> bool:
        numbers = self.results.q[self.results.outcomes == 0]
        return bool(len(numbers) and lattice(numbers) is not None)

    @cached_property
    def _irregular(self) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        """People whose results, or those of all, have atoms."""
        pairs = self.on_random_day.pairs
        smooth = isinstance(self.on_random_day.density, Mixture) and not len(pairs.names)
        out = np.full(self.results.n_individuals, not smooth)
        out[[row for row, _ in pairs.own]] = True
        return out

    def _others(self, row: int) -> tuple[FloatArray, FloatArray]:
        """(N,) results of the others in their own units, and what is left of them."""
        others = without(self.source, row)
        if self.left is None:
            return others.reshape(-1), others.reshape(-1)
        n = len(others)
        # what is left on databases without the person is known without rounding
        left = np.where(
            (others == self.left.original.q).reshape(n, -1),
            self.results.q.reshape(n, -1),
            self.left.left_of(others.reshape(n, -1)),
        )
        left -= self.left.others_level(others.reshape(n, -1))[:, None]
        return others.reshape(-1), left.reshape(-1)

    def _written_out(self, row: int) -> Results:
        """The pair as results of one individual, outcomes that are no numbers included: with everyone is the others."""
        results = self.results
        n = results.n_databases
        entries = slice(results.starts[row], results.starts[row + 1])
        at = results.entry_database[entries]
        q, codes = results.q.reshape(n, -1), results.outcomes.reshape(n, -1)
        others, kinds = q.copy(), codes.copy()
        others[at] = results.entry_q[entries].reshape(len(at), -1)
        kinds[at] = results.entry_outcomes[entries].reshape(len(at), -1)
        if n * q.shape[1] * len(at) > MOST_POINTS:
            # of influences in rising order, some from all along: those that were seen, and as often
            most = max(1, MOST_POINTS // (n * q.shape[1]))
            rising = at[np.argsort((q[at] - others[at]).mean(axis=1), kind="stable")]
            at = rising[((np.arange(most) + 0.5) * len(rising) / most).astype(np.int64)]
        was, is_now = kinds[at].reshape(-1), codes[at].reshape(-1)
        change = np.where((was == 0) & (is_now == 0), q[at].reshape(-1) - others[at].reshape(-1), 0.0)
        base, base_kinds = others.reshape(-1)[:, None], kinds.reshape(-1)[:, None]
        turned = was != is_now  # to or from what is no number: then the outcome is that of the day itself
        with_kinds = np.where(turned, is_now, base_kinds)
        value = np.where(turned, q[at].reshape(-1), base + change)
        tolerance = tie_tolerance(q[codes == 0])
        value = np.where(np.abs(value - base) <= tolerance, base, value)
        shape = (n, -1)
        entry_codes = with_kinds.reshape(shape).astype(np.int8)
        points = np.broadcast_to(base, value.shape).reshape(shape)
        return Results(
            q=np.ascontiguousarray(points),
            outcomes=np.broadcast_to(base_kinds, value.shape).reshape(shape).astype(np.int8),
            databases=np.arange(n),
            individuals=np.zeros(1, np.int64),
            starts=np.array([0, n]),
            entry_database=np.arange(n, dtype=np.int32),
            entry_q=np.where(entry_codes == 0, value.reshape(shape), np.nan),
            entry_outcomes=entry_codes,
            draws=points.shape[1],
        )


def presence_of(risk: Risk, left: Residuals | None = None) -> PresenceRisk:
    """The risk given presence of what a risk was measured from; with a Laplace density, as bounds are.

    On a day when they are there, people move the results far, and what smoothing hides counts for more than the noise
    that it removes. So the bandwidth is the likeliest, where that is narrower than the widest within one standard error
    of it, and not below `_NARROWEST` of that (benchmarks/given.py: two peaks are covered in 95 to 100%, not 85 to 90%).
    """
    basis = risk if is_usual(risk.density) else measure_line(risk.results, people=risk.pairs.people)
    bandwidth = _bandwidth(basis.density) if isinstance(basis.density, Mixture) else 1.0
    source = risk.made_from
    if isinstance(source, Risk):
        source = presence_of(source, None if left is None else getattr(source, "left", None))
    return PresenceRisk(risk.results, basis, bandwidth, left, made_from=source)


def _bandwidth(density: Mixture) -> float:
    widest = float(density.bandwidth)
    return min(widest, max(density.likeliest, _NARROWEST * widest))


def influences_of(results: Results, row: int) -> FloatArray:
    """What a person changed on each database that they were in, draw by draw.

    Somebody who is listed in every database, as arrays list everyone, is taken to be away where they change nothing.
    """
    return influences_of_each(results, np.array([row]))[0]


def influences_of_each(results: Results, rows: IntArray) -> list[FloatArray]:
    """The same of several people."""
    entries, counts = _entries(results, rows)
    change = (results.q[results.entry_database[entries]] - results.entry_q[entries]).reshape(len(entries), -1)
    parts = np.split(change, np.cumsum(counts)[:-1])
    n = results.n_databases
    return [part[part != 0] if len(part) == n and part.any() else part.reshape(-1) for part in parts]


def without(results: Results, row: int) -> FloatArray:
    """Results without a person, by position, shaped like ``q``."""
    entries = slice(results.starts[row], results.starts[row + 1])
    out = results.q.copy()
    out[results.entry_database[entries]] = results.entry_q[entries]
    return out


def without_each(results: Results, rows: IntArray) -> FloatArray:
    """(rows, N) results without each of several people."""
    entries, counts = _entries(results, rows)
    out = np.repeat(results.q[None], len(rows), axis=0)
    out[np.repeat(np.arange(len(rows)), counts), results.entry_database[entries]] = results.entry_q[entries]
    return out.reshape(len(rows), -1)


def _entries(results: Results, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Entries of these people, one after the other, and how many each has."""
    counts = results.starts[rows + 1] - results.starts[rows]
    ends = np.cumsum(counts)
    return np.arange(int(counts.sum())) + np.repeat(results.starts[rows] - (ends - counts), counts), counts


def thin(
    influences: FloatArray,
    bandwidth: float,
    tolerance: float = THINNED,
    *,
    most: int = _GROUPS[-1],
    keep: bool = False,
) -> tuple[FloatArray, float]:
    """Means of groups of near influences, in as few groups as change delta by ``tolerance`` at most; and by what.

    There are never more than ``most``, whatever that changes. ``keep`` only has influences that were seen, since means
    of whole numbers are none.
    """
    rising = np.sort(influences)
    if keep:
        if len(rising) <= most:
            return rising, 0.0
        chosen = rising[((np.arange(most) + 0.5) * len(rising) / most).astype(np.int64)]
        places = np.minimum((np.arange(len(rising)) * most) // len(rising), most - 1)
        # moved by m, a Laplace density changes by 1 - exp(-|m|/2h) in total
        return chosen, float(-np.expm1(-np.abs(rising - chosen[places]) / (2 * bandwidth)).mean())
    size = len(rising)
    # sums up to any place, also between two influences, of which groups may share one
    sums, squares = (np.concatenate(([0.0], np.cumsum(power))) for power in (rising, rising * rising))
    for count in _GROUPS:
        if count >= size:
            break
        ends = np.arange(count + 1) * (size / count)
        first, second = (
            np.diff(np.interp(ends, np.arange(size + 1), total)) * count / size for total in (sums, squares)
        )
        change = float(np.maximum(second - first * first, 0.0).mean()) / (2 * bandwidth**2)
        if change <= tolerance or count >= most:
            return first, change
    return rising, 0.0
