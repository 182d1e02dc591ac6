"""Cover: what people did, on the day they did it.

On a published day everybody's influence is known. So ask, for each person and each day that they are in, how well the
others' law hides the same law moved by what this person did. That is one curve, U(d), for everybody: **cover** is the
largest move that is hidden, in the answer's own units, and stands beside the most that anybody moved it. The others'
law is that of the results; for the people whose absence changes it most, that without them too.

Where the spread depends on what is known, moves and laws are compared in units of residuals, and a cover is said in the
answer's units on a typical database, or on one that is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import confidence_level, finite_epsilon, probability, whole_number
from empriv.base.text import pseudonyms, table_html
from empriv.errors import InputError
from empriv.judge import cover as judge_cover
from empriv.judge import gate, lower
from empriv.judge.noise_kernels import NoiseGiven, NoiseKernel, is_noise, kernel_of
from empriv.measuring.any_risk import AnyRisk
from empriv.measuring.given.definition4 import WorstRisk
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.line.atoms import Pairs, take_atoms_out
from empriv.measuring.line.moves import Moves, MoveTotals, others_laws, with_exact_leaks
from empriv.measuring.line.risk import Risk
from empriv.measuring.tables import TableRisk
from empriv.results import FloatArray, IntArray, Results
from empriv.validate.bounds import level_of_each
from empriv.validate.line_bounds import added_to, bound_inputs, estimate_of_move, furthest_shown, patterned
from empriv.validate.table_cover import BoolArray, days_of, most_moved, table_cover_of, unjudged_of
from empriv.words.decision import Covered
from empriv.words.sentences import quantity

# One number


@dataclass(frozen=True, eq=False)
class LineCover:
    """One number: the others' laws, and what people did, which these hide or do not.

    Attributes
    ----------
    risk : of one number
    pairs : results with everyone and without each; outcomes apart at +inf
    moves : in units of the residuals of each database
    laws : (laws, N) that of the results first
    kernel : the noise; None as it is
    refuted : whether the answers keep to a pattern that their residuals do not show; never with noise
    unjudged : what people did on databases whose previous answers are not known, in units of the calmest; these have
        no part in the laws, and are held against them
    of_all : the totals of everybody's moves, where ``moves`` are those of the furthest alone
    """

    risk: Risk
    pairs: Pairs
    moves: Moves
    laws: FloatArray
    kernel: NoiseKernel | None
    refuted: bool = False
    unjudged: Moves | None = None
    of_all: MoveTotals | None = None

    @cached_property
    def all_moves(self) -> Moves:
        """On every database, those without residuals last."""
        return self.moves if self.unjudged is None else self.moves.with_those_of(self.unjudged)

    @cached_property
    def databases(self) -> npt.NDArray[Any]:
        """Labels of the databases of `all_moves`."""
        labels = results_of(self.risk).databases
        if self.unjudged is None or not isinstance(self.risk, GivenRisk):
            return labels
        return np.concatenate((labels, self.risk.unjudged.databases))

    @cached_property
    def totals(self) -> MoveTotals:
        """What is asked of everybody's moves together."""
        return totals_of_moves(self.moves, self.unjudged) if self.of_all is None else self.of_all

    @cached_property
    def most(self) -> float:
        """The largest move, in units of residuals."""
        return float(self.all_moves.relative.max(initial=0.0))

    @cached_property
    def most_shown(self) -> float:
        """The largest whose unit is known: what may be demonstrated."""
        known = self.moves if self.totals.varies else self.all_moves
        return math.inf if math.isinf(self.most) else float(known.relative.max(initial=0.0))

    def cover(self, epsilon: float, delta: float, level: float) -> float:
        """The largest move that every law hides, in units of residuals: found by steps, the largest move is asked
        itself."""
        hidden = 0.0
        if not self.refuted and np.isfinite(self.laws[0]).any():
            found = judge_cover.cover(self.laws, epsilon, delta, self.kernel, draws=self.pairs.draws, level=level)
            hidden = float(found.min())
        return self.most if self.most > hidden and self.upper(self.most, epsilon, level) <= delta else hidden

    def upper(self, move: float, epsilon: float, level: float) -> float:
        """U of a move."""
        if math.isinf(move) or (self.refuted and move > 0):
            return 1.0
        moves = np.full(len(self.laws), move)
        return float(
            judge_cover.of_moves(
                self.laws, moves, epsilon, self.kernel, draws=self.pairs.draws, level=level
            ).values.max()
        )

    def lower(self, move: float, epsilon: float, level: float) -> float:
        """What the databases demonstrate of a move, by the law of the results: nothing, where that is the law of the
        calmest days, since logarithms were taken and the spread depends on what is known besides."""
        if math.isinf(move):
            return 1.0
        residuals = self.risk.residuals if isinstance(self.risk, GivenRisk) else None
        if self.kernel is None and residuals is not None and residuals.logarithm and residuals.fit.spread is not None:
            return 0.0
        found = lower.of_moves(self.laws[0], [move], epsilon, self.kernel, draws=self.pairs.draws, level=level)
        return float(found[0, 0])

    def estimate(self, move: float, epsilon: float) -> float:
        """The hockey stick of the shift pair."""
        if math.isinf(move) or move <= 0:
            return float(move > 0)
        return estimate_of_move(self.laws[0], move, epsilon, self.kernel, self.pairs.draws)

    @cached_property
    def step(self) -> float:
        """What all moves are multiples of, in the answer's units: 1 of a count; 0 where there is no such step."""
        results = results_of(self.risk)
        step = gate.lattice_step(results.q) if results.draws is None else 0.0
        sizes = self.all_moves.sizes[np.isfinite(self.all_moves.sizes)]
        return step if step > 0 and np.all(np.abs(sizes / step - np.round(sizes / step)) < 1e-6) else 0.0

    def in_answers(self, move: float, database: Any = None) -> float:
        """A move in units of residuals, in the answer's units: on a typical database, or on one given by its label.

        On a lattice the largest that there is of this size: nobody moves a count by half."""
        size = move * (self.totals.typical_unit if database is None else self._unit_of(database))
        return float(np.floor(size / self.step + 1e-6) * self.step) if self.step > 0 and size < math.inf else size

    def _unit_of(self, database: Any) -> float:
        places = np.flatnonzero(results_of(self.risk).databases == database)
        if not len(places):
            raise InputError(
                "`database` must be the label of one that was audited, and whose previous answers are known."
            )
        return float(self.risk.residuals.day_units[places[0]]) if isinstance(self.risk, GivenRisk) else 1.0


@singledispatch
def line_cover_of(risk: AnyRisk, kernel: NoiseKernel | None) -> LineCover:  # noqa: ARG001 — dispatched on
    """The others' laws and what people did, of the kinds of risk of one number."""
    raise InputError(
        "`cover` must be asked of one number, plain or `Given` what is known, got another kind of risk. "
        "Hint: cover_by_cell, of a table."
    )


@line_cover_of.register(Risk)
def line_cover_of_number(risk: Risk, kernel: NoiseKernel | None) -> LineCover:
    if kernel is not None:
        noisy = added_to(risk)
        pairs, moves = take_atoms_out(noisy.results, look=False), noisy.moves()
        return LineCover(noisy, pairs, moves, others_laws(pairs, moves), kernel, unjudged=unjudged_moves(noisy))
    pairs = bound_inputs(risk).marked
    moves = moves_without_noise(risk, pairs)
    if isinstance(risk, GivenRisk):
        relative = risk.residuals.relative_to_level
        pairs = replace(pairs, points=relative(pairs.points), entries=relative(pairs.entries))
    return LineCover(risk, pairs, moves, others_laws(pairs, moves), None, patterned(risk), unjudged_moves(risk))


def unjudged_moves(risk: AnyRisk) -> Moves | None:
    """What people did on databases that have no residuals; None where all have."""
    return risk.unjudged_moves() if isinstance(risk, GivenRisk) else None


def totals_of_moves(moves: Moves, unjudged: Moves | None) -> MoveTotals:
    """Of both together; a typical unit is that of databases that have residuals."""
    if unjudged is None:
        return moves.totals()
    judged = moves.totals()
    return replace(moves.with_those_of(unjudged).totals(), units=judged.units, moved_units=judged.moved_units)


def moves_without_noise(risk: Risk, pairs: Pairs) -> Moves:
    """What people did without noise, where some outcomes give them away whatever the law is."""
    moves = with_exact_leaks(risk.moves(), pairs)
    return with_exact_leaks(moves, risk.atoms) if isinstance(risk, GivenRisk) else moves


def has_line_cover(risk: AnyRisk) -> bool:
    """Whether everybody's moves stand beside one law: not where databases are told apart by what is known of them."""
    return line_cover_of.dispatch(type(risk)) is not line_cover_of.dispatch(object)


def has_cover(risk: AnyRisk) -> bool:
    """Whether a kind of risk has a cover."""
    return isinstance(risk, TableRisk) or has_line_cover(parts_of(risk)[0])


def parts_of(risk: AnyRisk) -> tuple[AnyRisk, ...]:
    """The risks of one number of which the worst counts: several for the paper's Definition 4, else the risk itself."""
    return risk.parts if isinstance(risk, WorstRisk) else (risk,)


def results_of(risk: AnyRisk) -> Results:
    """The answers themselves, also where residuals are judged."""
    return risk.residuals.original if isinstance(risk, GivenRisk) else risk.results


def cover(
    risk: AnyRisk,
    epsilon: float,
    delta: float,
    *,
    noise: NoiseGiven = 0.0,
    level: float | None = None,
    database: Any = None,
) -> float:
    """The largest move of the answer that is hidden: D* with U(D*) <= delta at epsilon, in the answer's units.

    Parameters
    ----------
    risk : of one number
    epsilon, delta : where it is hidden
    noise : as for `bounds`; with a declared bound, no larger move is promised to be hidden
    level : of confidence; default 0.95
    database : label of one database; where the spread depends on what is known its cover is its own. Default: a typical
        database

    Returns
    -------
    float
        A multiple of the answer's step, on a lattice.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 365)
    >>> risk = empriv.measure(q, q - rng.exponential(0.1, (3, 365)))
    >>> bool(0.2 < risk.cover(0.1, 0.05) < 2)
    True
    """
    epsilon, delta = finite_epsilon(epsilon), probability("delta", delta)
    level = confidence_level(risk.usual_level if level is None else level)
    parts = parts_of(risk)
    if len(parts) > 1 and database is not None:
        parts = tuple(part for part in parts if np.any(part.results.databases == database)) or parts[:1]
    each = [line_cover_of(part, kernel_of(noise)[0]) for part in parts]
    return min(one.in_answers(_at_most_declared(one.cover(epsilon, delta, level), noise), database) for one in each)


def _at_most_declared(hidden: float, noise: NoiseGiven) -> float:
    """Noise with a declared bound promises nothing of larger moves."""
    bound = getattr(noise, "declared_bound", None)
    return hidden if bound is None or hidden < bound * (1 - 1e-12) else float(bound)


# What is hidden, and what is not, of any kind


def covered(risk: AnyRisk, epsilon: float, delta: float, *, noise: NoiseGiven = 0.0, level: float = 0.95) -> Covered:
    """What the answer hides of what people did, and what it does not; of several parts, the worst."""
    parts = parts_of(risk)
    days = [_covered_part(part, epsilon, delta, noise, level) for part in parts]
    if len(parts) == 1:
        return days[0]
    each = level_of_each(level, len(parts))
    # one of so many lower bounds is above the truth by chance more often: those that decide are asked at their share
    days = [
        replace(day, lower=_covered_line(part, epsilon, delta, noise, each).lower) if day.lower > delta else day
        for part, day in zip(parts, days, strict=True)
    ]
    worst = max(days, key=lambda day: (day.lower > delta, day.upper))
    least = min(day.cover for day in days)
    return replace(worst, cover=least, varies=any(day.varies or day.cover > least for day in days))


def _covered_part(risk: AnyRisk, epsilon: float, delta: float, noise: NoiseGiven, level: float) -> Covered:
    """No more than what is told by the answers that it was made from: whom these hide on every day, it hides."""
    if isinstance(risk, TableRisk):
        own = _covered_table(risk, epsilon, delta, noise, level)
    else:
        own = _covered_line(risk, epsilon, delta, noise, level)
    source = risk.postprocessed_from
    if source is None or is_noise(noise) or not has_cover(source):
        return own
    before = covered(source, epsilon, delta, level=level)
    figures = ("lower", "estimate", "upper")
    own = replace(own, **{name: min(getattr(own, name), getattr(before, name)) for name in figures})
    if before.upper > delta or before.beyond:
        return own
    own = replace(own, beyond=0, exposed=0, people_beyond=0)
    if isinstance(risk, TableRisk):
        return own
    most = line_cover_of(risk, None).most
    return replace(own, cover=max(own.cover, own.largest), in_residuals=max(own.in_residuals, most))


def _covered_line(risk: AnyRisk, epsilon: float, delta: float, noise: NoiseGiven, level: float) -> Covered:
    line = line_cover_of(risk, kernel_of(noise)[0])
    most, totals = line.most, line.totals
    hidden = _at_most_declared(line.cover(epsilon, delta, level), noise)
    upper = line.upper(most, epsilon, level)
    low = line.lower(line.most_shown, epsilon, level) if line.most_shown > hidden else 0.0
    limit = hidden * (1 + 1e-9)
    limit = math.inf if limit >= most else limit  # nobody is beyond the most, however moves are rounded
    shown = math.inf  # a move from which on the databases demonstrate that it is not hidden
    if low > delta:
        each = totals.relative.values
        far = np.unique(each[(each > limit) & np.isfinite(each)])[::-1]
        if len(far) and line.lower(float(far[0]), epsilon, level) > delta:
            count = furthest_shown(lambda k: line.lower(float(far[k]), epsilon, level) > delta, len(far))
            shown = float(far[count - 1])
    return Covered(
        cover=line.in_answers(hidden),
        in_residuals=hidden,
        largest=float(totals.most),
        upper=max(upper, low),
        lower=low,
        estimate=min(upper, max(low, line.estimate(most, epsilon))),
        days=totals.relative.n,
        beyond=totals.relative.above(limit),
        exposed=totals.relative.above(math.nextafter(shown, 0.0)),
        people_beyond=totals.largest.above(limit),
        people=totals.largest.n,
        varies=totals.varies,
    )


def _covered_table(risk: TableRisk, epsilon: float, delta: float, noise: NoiseGiven, level: float) -> Covered:
    """The figures are those of the worst day and its worst cell."""
    table = table_cover_of(risk, noise)
    days, found = table.days, table.judge(epsilon, delta, level)
    beyond, exposed = np.count_nonzero(found.beyond), np.count_nonzero(found.exposed)
    n_days, people_beyond = days.count, [days.owner[found.beyond]]
    unjudged = unjudged_of(risk)
    if unjudged is not None:
        further = table.on_further(unjudged)
        there = further.judge(epsilon, delta, level)
        beyond, exposed = beyond + np.count_nonzero(there.beyond), exposed + np.count_nonzero(there.exposed)
        n_days, people_beyond = n_days + further.days.count, [*people_beyond, further.days.owner[there.beyond]]
        days, found = (further.days, there) if there.upper > found.upper else (days, found)
    covers, cell, move = found.covers, -1, 0.0
    if found.day >= 0:
        at = slice(int(days.starts[found.day]), int(days.starts[found.day + 1]))
        cells, sizes = days.cells[at], np.abs(days.moves[at])
        if cells.size:
            with np.errstate(divide="ignore"):
                worst = int(np.argmax(sizes / covers[cells]))
            cell, move = int(cells[worst]), float(sizes[worst])
        move = math.inf if days.certain[found.day] else move
    hidden = float(covers[cell]) if cell >= 0 else 0.0
    return Covered(
        cover=hidden,
        in_residuals=hidden,
        largest=move,
        upper=max(found.upper, found.lower),
        lower=found.lower,
        estimate=min(found.upper, max(found.lower, found.estimate)),
        days=n_days,
        beyond=int(beyond),
        exposed=int(exposed),
        people_beyond=len(np.unique(np.concatenate(people_beyond))),
        people=risk.results.n_individuals,
        cell=risk.fit.cells[cell] if cell >= 0 else "",
        cells=CoverByCell(risk.fit.cells, covers, most_moved(risk), epsilon, delta).columns(),
    )


# A table, cell by cell


@dataclass(frozen=True, eq=False)
class CoverByCell:
    """How large a move each cell hides, beside the most that anybody moved it.

    Attributes
    ----------
    cells : their names
    cover : (cells,) the largest move that is hidden, in the cell's units; of a sum of other cells, what the least of
        these hides
    moved : (cells,) the most that anybody moved it
    epsilon, delta : where it is hidden
    """

    cells: tuple[str, ...]
    cover: FloatArray
    moved: FloatArray
    epsilon: float
    delta: float

    @property
    def beyond(self) -> BoolArray:
        """(cells,) where a person moved a cell by more than it hides."""
        return np.asarray(self.moved > self.cover * (1 + 1e-9))

    def columns(self) -> dict[str, list[Any]]:
        """Columns of a table; ``pandas.DataFrame`` takes it as it is."""
        return {"cell": list(self.cells), "cover": self.cover.tolist(), "moved": self.moved.tolist()}

    def __repr__(self) -> str:
        return f"CoverByCell({len(self.cells):,} cells, {np.count_nonzero(self.beyond):,} of them moved by more)"

    def _repr_html_(self) -> str:
        rows = [
            [name, quantity(hidden), quantity(most)]
            for name, hidden, most in zip(self.cells, self.cover.tolist(), self.moved.tolist(), strict=True)
        ]
        title = f"Moves that cells hide at epsilon {self.epsilon:g}, delta {self.delta:g}"
        return table_html(title, ["cell", "hides up to", "most that anybody moved it"], rows)


def cover_by_cell(
    risk: AnyRisk, epsilon: float, delta: float, *, noise: NoiseGiven = 0.0, level: float | None = None
) -> CoverByCell:
    """How large a move each cell of a table hides, beside the most that anybody moved it.

    Parameters
    ----------
    risk : of a table
    epsilon, delta : where it is hidden
    noise : added to the cells: a scale for all, scales by name, or noise from `design_noise`; 0 for none
    level : of confidence; default 0.95

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cells = 100 + 10 * rng.normal(size=(365, 3))
    >>> results = empriv.Results.stack({
    ...     name: empriv.Results.from_arrays(cells[:, k], [cells[:, k] - (k == 0)]) for k, name in enumerate("abc")
    ... })
    >>> found = empriv.audit(results).cover_by_cell(0.1, 0.05)
    >>> found.moved.tolist(), bool(found.cover.min() > 0.2)
    ([1.0, 0.0, 0.0], True)
    """
    if not isinstance(risk, TableRisk):
        raise InputError("`cover_by_cell` must be asked of several numbers, got one. Hint: cover.")
    epsilon, delta = finite_epsilon(epsilon), probability("delta", delta)
    level = confidence_level(risk.usual_level if level is None else level)
    hidden = table_cover_of(risk, noise).cover(epsilon, delta, level)
    return CoverByCell(risk.fit.cells, hidden, most_moved(risk), epsilon, delta)


# Who did it


@dataclass(frozen=True, eq=False)
class WhoMoved:
    """Who moved the answer by how much on which database: each person's largest move, furthest first.

    Attributes
    ----------
    individual : pseudonyms, or labels if these were asked for
    moved : by how much, in the units of the answer or of the cell; inf where they change whether there is one at all
    database : on which database
    cell : of a table, the name of the cell
    of_all : of one number, the totals of everybody's moves, on every database
    """

    individual: Sequence[Any]
    moved: FloatArray
    database: npt.NDArray[Any]
    cell: Sequence[str] | None = None
    of_all: MoveTotals | None = None

    @property
    def most(self) -> float:
        """The most that anybody moved the answer; of a table, the largest of those that are listed."""
        return float(self.moved.max(initial=0.0)) if self.of_all is None else self.of_all.most

    def share_beyond(self, cover: float) -> float:
        """Share of person-days on which a person moved the answer by more than ``cover``, as `cover` gives it: where it
        is that of a typical database, each day is compared with its own."""
        if self.of_all is None:
            raise InputError("`share_beyond` must be asked of one number, got a table.")
        days = self.of_all.relative
        return days.above(cover / self.of_all.typical_unit * (1 + 1e-9)) / days.n if days.n else 0.0

    def columns(self) -> dict[str, list[Any]]:
        """Columns of a table; ``pandas.DataFrame`` takes it as it is."""
        return {
            "individual": list(self.individual),
            **({} if self.cell is None else {"cell": list(self.cell)}),
            "moved": self.moved.tolist(),
            "database": self.database.tolist(),
        }

    def __repr__(self) -> str:
        return f"WhoMoved({len(self.moved):,} individuals, the most by {quantity(self.most)})"

    def _repr_html_(self) -> str:
        columns = self.columns()
        columns["moved"] = ["an answer or none" if math.isinf(by) else quantity(by) for by in columns["moved"]]
        rows = [[str(value) for value in row] for row in zip(*columns.values(), strict=True)]
        return table_html(f"Who moved the {'answer' if self.cell is None else 'table'} most", list(columns), rows)


def moved(risk: AnyRisk, *, top: int | None = 10, key: bytes | None = None) -> WhoMoved:
    """Each person's largest move of the answer, and on which database; of a table, in which cell.

    Parameters
    ----------
    risk : of one number, or of a table: there, the largest in units of each cell's residuals
    top : so many individuals; None for all
    key : makes pseudonyms of labels; None names people by their labels
    """
    if top is not None:
        whole_number("top", top, least=1)
    if isinstance(risk, TableRisk):
        return _moved_in_table(risk, top, key)
    risk = risk.unconditional if isinstance(risk, WorstRisk) else risk
    line, results = line_cover_of(risk, None), results_of(risk)
    moves, kept, people = line.all_moves, len(line.moves.starts) - 1, line.totals.largest.n
    if (people if top is None else min(top, people)) > kept:
        raise InputError(
            f"`top` must be at most {kept:,}, got {'None, which is everybody' if top is None else f'{top:,}'}: people "
            "were measured some at a time, and only the most exposed are kept."
        )
    worst: IntArray = moves.worst
    rows = np.flatnonzero(worst >= 0)
    order = rows[np.lexsort((-moves.sizes[worst[rows]], -moves.relative[worst[rows]]))][:top]
    places = worst[order]
    return WhoMoved(
        _named(results, order, key),
        moves.sizes[places],
        line.databases[moves.database[places]],
        of_all=line.totals,
    )


def _moved_in_table(risk: TableRisk, top: int | None, key: bytes | None) -> WhoMoved:
    days, results, fit = days_of(risk), risk.results, risk.fit
    units = np.where(fit.spreads > 0, fit.spreads, 1.0)
    units[fit.kept] = 1.0 / np.sqrt(np.maximum(np.diag(fit.precision), 1e-300))
    turned = np.flatnonzero(days.certain)  # days on which a person decides whether there is an answer
    cells = np.concatenate((days.cells, np.full(len(turned), -1)))
    day = np.concatenate((days.day, turned))
    sizes = np.append(np.abs(days.moves), np.full(len(turned), np.inf))
    relative = np.append(np.abs(days.moves) / units[days.cells], np.full(len(turned), np.inf))
    owner = days.owner[day]
    order = np.lexsort((-relative, owner))
    _, first = np.unique(owner[order], return_index=True)
    best = order[first]
    best = best[np.argsort(-relative[best], kind="stable")][:top]
    return WhoMoved(
        _named(results, owner[best], key),
        sizes[best],
        results.databases[days.database[day[best]]],
        [
            fit.cells[cell if cell >= 0 else _turned_cell(results, place)]
            for cell, place in zip(cells[best].tolist(), day[best].tolist(), strict=True)
        ],
    )


def _turned_cell(results: Results, day: int) -> int:
    """A cell of which a person decides whether there is an answer."""
    before = results.outcomes[results.entry_database[day]].reshape(-1, results.q.shape[-1])
    after = results.entry_outcomes[day].reshape(before.shape)
    return int(np.argmax((before != after).any(axis=0)))


def _named(results: Results, rows: IntArray, key: bytes | None) -> list[Any]:
    labels: list[Any] = results.individuals[rows].tolist()
    return labels if key is None else [f"individual {name}" for name in pseudonyms(labels, key, shortest=4)]
