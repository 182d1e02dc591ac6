"""`TableRisk`: the privacy of a whole table, of any number of cells (docs/tables.md).

People touch few cells; what they do not touch is the same with and without them, and so is known. The residual of the
cells that they do touch is one number in their direction (`fit`), and is measured as one number is: people of one cell
or one direction as a `DirectionGroup`, the others as `MultiCellPeople` (`directions`). Forgetting cells is
post-processing, so nobody's delta_i is below that of a cell alone. Exact leaks (`leaks`) are found for any number of
cells.

A reader may know the calendar, the previous table or other quantities as well: these are further regressors of every
cell. Of the previous table its main axes are known: as many regressors as cells would leave nothing over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import probability
from empriv.base.progress import progress
from empriv.errors import InputError
from empriv.measuring.any_risk import AnyRisk, smallest_epsilons
from empriv.measuring.densities.density import Density, density_or_default, is_literal
from empriv.measuring.given.calendar import calendar_terms, order_of, required_times
from empriv.measuring.given.given_risk import FEWEST, SILENT, Step, quantities_of
from empriv.measuring.given.iid_tests import iid_tests
from empriv.measuring.given.reader_knowledge import Given
from empriv.measuring.given.regression import LEAST_RESIDUALS, Term, check_enough, explained_by, number_term
from empriv.measuring.line.risk import Risk
from empriv.measuring.tables.directions import (
    MOST_EXPOSED,
    DirectionGroup,
    Directions,
    EachCell,
    MultiCellPeople,
    groups_of,
    hockey_sticks,
    risk_of_group,
)
from empriv.measuring.tables.fit import BoolArray, TableFit, filled, fit_table
from empriv.measuring.tables.influences import Influences, influences_on
from empriv.measuring.tables.leaks import Leak, alone_in_cells, table_leaks
from empriv.results import FloatArray, IntArray, Results
from empriv.words.message import Message, counted_as_known

_AXES = 5  # of the previous table that are known, at most
_EACH_AXIS = 20  # databases for each of them
_SERIES = 8  # axes of residuals that are tested
_STEPS = ("nothing", "calendar", "previous")

Made = TypeVar("Made")


def measure_table(results: Results, *, density: Density | None = None, known: Sequence[Term] = ()) -> TableRisk:
    """Privacy of a whole table.

    Parameters
    ----------
    results : of a query that gives several numbers
    density : how densities are estimated; people who touch several cells are measured with the default one
    known : what is known of each database besides the table, in the order of the databases
    """
    if results.components is None:
        raise InputError("`results` must be those of a vector query. Hint: empriv.measure(results).")
    fit = fit_table(results, known)
    influences = influences_on(results, fit)
    return TableRisk(
        results=results,
        fit=fit,
        influences=influences,
        leaks=table_leaks(fit, influences),
        recipe=density_or_default(density),
        known=tuple(known),
    )


@dataclass(frozen=True, eq=False)
class TableRisk(AnyRisk):
    """How private a whole table is for every individual: an estimate from the databases at hand.

    Made by `empriv.measure` and `empriv.audit` of a query that gives several numbers.

    Attributes
    ----------
    results : what was measured
    fit : the residuals of each cell given the others
    influences : what each individual changes
    leaks : exact leaks, each with a combination of cells in words
    recipe : how densities are estimated
    known : what is known of each database besides the table

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> cells = 100 + 10 * rng.normal(size=(365, 1)) + rng.normal(size=(365, 5))
    >>> results = empriv.Results.stack({
    ...     f"ward {k}": empriv.Results.from_arrays(cells[:, k], [cells[:, k] - (k == 0)]) for k in range(5)
    ... })
    >>> risk = empriv.measure(results)
    >>> print(f"{risk.each_number['ward 0'].delta(0.1):.2f} alone, {risk.delta(0.1):.2f} beside the others")
    0.01 alone, 0.26 beside the others
    """

    results: Results
    fit: TableFit = field(repr=False)
    influences: Influences = field(repr=False)
    leaks: tuple[Leak, ...] = field(repr=False)
    recipe: Density = field(repr=False)
    known: tuple[Term, ...] = field(default=(), repr=False)
    postprocessed_from: AnyRisk | None = field(default=None, repr=False, kw_only=True)

    def curves(self, epsilons: FloatArray) -> FloatArray:
        out = np.repeat(self.leaked()[:, None], len(epsilons), axis=1)
        with progress(len(self.touching) + len(self.groups) + 1, "Measuring cells") as advance:
            for rows, risk, own in self._parts():
                out[rows] = np.maximum(out[rows], risk.delta_i(epsilons)[own])
                advance(1)
            several = self.several.rows
            if len(several):
                out[several] = np.maximum(out[several], self.several.curves(epsilons))
            advance(1)
        return out

    def own_epsilon_i(self, delta: float) -> FloatArray:
        """The largest of the parts that `curves` is the largest of; inf where an exact leak alone is more."""
        probability("delta", delta)
        out = np.where(self.leaked() > delta, np.inf, 0.0)
        for rows, risk, own in self._parts():
            out[rows] = np.maximum(out[rows], risk.epsilon_i(delta)[own])
        several = self.several.rows
        if len(several):

            def broken(epsilons: FloatArray) -> npt.NDArray[np.bool_]:
                rising, back = np.unique(epsilons, return_inverse=True)
                curves = self.several.curves(rising)
                return np.asarray(curves[np.arange(len(several)), back] > delta)

            out[several] = np.maximum(out[several], smallest_epsilons(broken, len(several)))
        return out

    def own_epsilon(self, delta: float) -> float:
        probability("delta", delta)
        if (self.leaked() > delta).any():
            return math.inf
        largest = 0.0
        for _, risk, _ in self._parts():
            largest = max(largest, risk.epsilon(delta))
            if largest == math.inf:  # nobody can need more
                return largest
        return max(largest, self.several.epsilon(delta))

    def _parts(self) -> Iterator[tuple[IntArray, Risk, Any]]:
        """People, a risk of one number that holds them, and their positions in it: each cell alone, then groups of one
        direction given all that they do not touch."""
        for name, rows in self.touching.items():
            yield rows, self.each_number[name], rows
        for group, risk in self.group_risks():
            yield group.rows, risk, slice(None)

    @property
    def each_number(self) -> Mapping[str, Risk]:
        """The `Risk` of each cell alone, by name; measured when first asked for."""
        before = None if self.postprocessed_from is None else self.postprocessed_from.each_number
        return self.remembered("cells", lambda: EachCell(self.influences, self.recipe, before or None))

    def leaked(self) -> FloatArray:
        """Share of the databases in which each individual is given away for certain."""
        out = alone_in_cells(self.influences)
        for leak in self.leaks:
            out[leak.rows] = np.maximum(out[leak.rows], leak.shares)
        return out

    def exposures(self, epsilon: float, *, top: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Which cells expose whom: the columns individual, cell and delta_i of a table, the largest first.

        delta_i is that of the cell given all cells that the individual does not touch; one row for each cell that they
        touch and that the others do not determine.
        """
        grid = np.array([float(epsilon)])
        owners, cells, deltas = [], [], []
        for group, risk in self.group_risks():
            if len(group.places) == 1:
                owners.append(group.rows)
                cells.append(np.full(len(group.rows), group.places[0]))
                deltas.append(risk.delta_i(grid)[:, 0])
        for rows, places, directions in self._each_cell_of_several():
            owners.append(rows)
            cells.append(places)
            deltas.append(hockey_sticks(directions, self.several.bandwidths(directions), grid)[:, 0])
        owner, place, delta = (np.concatenate(column) if column else np.zeros(0) for column in (owners, cells, deltas))
        order = np.lexsort((place, owner, -delta))[:top]
        names = np.array(self.fit.cells, object)[self.fit.kept]
        return {
            "individual": self.results.individuals[owner.astype(np.int64)[order]],
            "cell": names[place.astype(np.int64)[order]].astype(np.str_),
            "delta_i": np.asarray(delta[order], float),
        }

    @cached_property
    def from_below(self) -> BoolArray:
        """(individuals,) whose figures are from below, without an upper bound: those who touch a table of more cells
        than the databases carry."""
        out = np.zeros(self.results.n_individuals, bool)
        if self.fit.ridge:
            out[self.influences.touched[:, 0]] = True
        return out

    @cached_property
    def kept_values(self) -> FloatArray:
        """(N, r) the kept cells themselves, their mean where they are no number."""
        d = len(self.fit.cells)
        q, numbers = self.results.q.reshape(-1, d), (self.results.outcomes == 0).reshape(-1, d)
        return filled(q[:, self.fit.kept], numbers[:, self.fit.kept])

    def remembered(self, key: Any, make: Callable[[], Made]) -> Made:
        """What is made once, such as by bounds between two questions."""
        if key not in self._remembered:
            self._remembered[key] = make()
        made: Made = self._remembered[key]
        return made

    @cached_property
    def _remembered(self) -> dict[Any, Any]:
        return {}

    @property
    def groups(self) -> list[DirectionGroup]:
        """People who always change the same cells in the same proportion, together with those who do as they do."""
        return self._grouped[0]

    @cached_property
    def several(self) -> MultiCellPeople:
        """Everybody else who changes something."""
        largest = self._largest_sizes
        rows = self._grouped[1]
        return MultiCellPeople(self.fit, self.influences, rows[np.argsort(-largest[rows], kind="stable")])

    @cached_property
    def _grouped(self) -> tuple[list[DirectionGroup], IntArray]:
        exposed = np.argsort(-self._largest_sizes, kind="stable")[:MOST_EXPOSED]
        return groups_of(self.influences, self.fit, exposed)

    @cached_property
    def _largest_sizes(self) -> FloatArray:
        """(individuals,) the largest D'K D of each."""
        largest = np.zeros(self.results.n_individuals)
        np.maximum.at(largest, self.influences.owner, self.influences.sizes)
        return largest

    @cached_property
    def touching(self) -> dict[str, IntArray]:
        """People who touch each cell, by its name."""
        people, cells = self.influences.touched.T
        order = np.argsort(cells, kind="stable")
        ends = np.searchsorted(cells[order], np.arange(len(self.fit.cells) + 1))
        groups = (people[order[ends[cell] : ends[cell + 1]]] for cell in range(len(self.fit.cells)))
        return {name: np.sort(group) for name, group in zip(self.fit.cells, groups, strict=True) if len(group)}

    def group_risks(self) -> Iterator[tuple[DirectionGroup, Risk]]:
        """Each group with the risk of its people given all that they do not touch."""
        for number, group in enumerate(self.groups):
            risk = partial(risk_of_group, group, self.influences, self.fit, self.recipe)
            yield group, self.remembered(("group", number), risk)

    def _each_cell_of_several(self) -> list[tuple[IntArray, IntArray, Directions]]:
        """Each cell of people who touch several, given the cells that they do not touch: its residuals, at
        variance 1, with everyone and without them."""
        out = []
        grouped = [group.rows for group in self.groups if len(group.places) > 1]
        rows = np.concatenate((*grouped, self.several.rows))
        for start in range(0, len(rows), 32):
            owners, places, before, after = [], [], [], []
            for row in rows[start : start + 32].tolist():
                databases, touched, changes = self.influences.of(row)
                inside = self.fit.precision[np.ix_(touched, touched)]
                covariance = np.linalg.pinv(inside, rcond=1e-12)
                left = (self.fit.residuals @ self.fit.precision[:, touched]) @ covariance
                scale = np.sqrt(np.maximum(np.diag(covariance), 1e-300))
                without = left.reshape(self.fit.n, -1, len(touched)).copy()
                without[databases] -= changes
                owners += [row] * len(touched)
                places += touched.tolist()
                before += list((left / scale).T)
                after += list((without.reshape(left.shape) / scale).T)
            owner = np.array(owners, np.int64)
            directions = Directions(owner, np.stack(before), np.stack(after))
            out.append((owner, np.array(places), directions))
        return out

    def __getstate__(self) -> dict[str, Any]:
        # What can be computed again is not sent along.
        fields = set(self.__dataclass_fields__)
        return {name: value for name, value in super().__getstate__().items() if name in fields}


# Given what is known


@dataclass(frozen=True, eq=False)
class GivenTableRisk(TableRisk):
    """How private a whole table is for every individual, to a reader who knows part of what it is made of.

    Attributes
    ----------
    given : what is known
    quantities : those that were given, on the databases as they were given
    steps : how much was chosen to count as known, if that was left open
    whole : the results as they were given, before databases were put in order or left out
    """

    given: Given = field(repr=False, kw_only=True)
    quantities: tuple[Term, ...] = field(repr=False, kw_only=True)
    steps: tuple[Step, ...] = field(repr=False, kw_only=True)
    whole: Results = field(repr=False, kw_only=True)

    @cached_property
    def unconditional(self) -> TableRisk:
        """The risk to a reader who knows nothing but the table."""
        return measure_table(self.whole, density=self.recipe)

    @property
    def dropped(self) -> int:
        """Databases left out because the table before them is not known."""
        return self.whole.n_databases - self.results.n_databases

    @cached_property
    def unjudged(self) -> Results:
        """The results on these."""
        kept = dict.fromkeys(self.results.databases.tolist(), True)
        places = [place for place, label in enumerate(self.whole.databases.tolist()) if label not in kept]
        return self.whole.on_databases(np.array(places, np.int64))

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was counted as known, in words."""
        last = self.steps[-1] if self.steps else None
        return counted_as_known(
            [term.name for term in self.known], 1 + sum(term.size for term in self.known), self.results.n_databases,
            chosen=None if last is None else (last.name, last.p), dropped=self.dropped,
        )  # fmt: skip


def measure_given_table(
    results: Results,
    given: Given,
    known: Any = None,
    *,
    density: Density | None = None,
) -> GivenTableRisk:
    """The risk of a table given what is known; arguments as for `measure_given`."""
    columns = tuple(given.quantities) if known is None else tuple(known)
    if any(isinstance(column, str) or callable(column) for column in columns):
        raise InputError("`known` must hold what is known of each database: SQL and functions are collected first.")
    recipe = density_or_default(density)
    quantities = tuple(quantities_of(given, columns, results))
    times = order_of(results)
    if given.calendar or given.previous:
        times = required_times(results, "calendar" if given.calendar else "previous")
    order = np.arange(results.n_databases) if times is None else times.order
    dates = [] if times is None else calendar_terms(times)
    steps: tuple[Step, ...] = ()
    if given.auto:
        terms, lags, steps = _choose(results, quantities, dates, order, ordered=times is not None)
    else:
        terms = [*quantities, *(dates if given.calendar else [])]
        lags = tuple(range(1, given.previous + 1))
    kept, everything = _with_lags(results, terms, lags, order)
    check_enough(len(kept), 1 + sum(term.size for term in everything))
    table = measure_table(results.on_databases(kept), density=recipe, known=everything)
    risk = GivenTableRisk(
        **{name: getattr(table, name) for name in ("results", "fit", "influences", "leaks", "recipe", "known")},
        given=given,
        quantities=quantities,
        steps=steps,
        whole=results,
    )
    if results.postprocessed_from is None or is_literal(recipe):
        return risk
    source = measure_table(results.postprocessed_from.on_databases(kept), density=recipe, known=everything)
    return replace(risk, postprocessed_from=source)


def _with_lags(
    results: Results, terms: Sequence[Term], lags: Sequence[int], order: IntArray
) -> tuple[IntArray, list[Term]]:
    """Databases in time whose previous tables are known, and all that is known of them."""
    if not lags:
        return order, [term.on(order) for term in terms]
    axes = fit_table(results).main_axes(max(1, min(_AXES, results.n_databases // _EACH_AXIS)))[:, order]
    first = max(lags)
    kept = order[first:]
    known = [term.on(kept) for term in terms]
    for lag in lags:
        name = "previous table" if lag == 1 else f"table {lag} before"
        for number, axis in enumerate(axes, start=1):
            known.append(number_term(f"{name}, axis {number}", axis[first - lag : len(axis) - lag], lag=lag))
    return kept, known


def _choose(
    results: Results,
    quantities: Sequence[Term],
    dates: Sequence[Term],
    order: IntArray,
    *,
    ordered: bool,
) -> tuple[list[Term], tuple[int, ...], tuple[Step, ...]]:
    """As much as it takes until the axes of the residuals look independent and identically distributed."""
    steps: list[Step] = []
    terms: list[Term] = list(quantities)
    lags: tuple[int, ...] = ()
    for name in _STEPS if ordered else _STEPS[:1]:
        wanted = [*quantities, *(dates if name != "nothing" else [])]
        wanted_lags = (1,) if name == "previous" else ()
        kept, known = _with_lags(results, wanted, wanted_lags, order)
        if steps and len(kept) < sum(term.size for term in known) + LEAST_RESIDUALS:
            break  # too few databases for more
        terms, lags = wanted, wanted_lags
        axes = fit_table(results.on_databases(kept), known).main_axes(_SERIES)
        p = 1.0
        if ordered and len(kept) >= FEWEST and len(axes):
            p = iid_tests(np.round(axes, 12)).p
            if name == "nothing" and dates:  # the i.i.d. tests do not see weekdays
                on_dates = [term.on(kept) for term in dates]
                p = min([p, *(len(axes[:3]) * explained_by(axis, on_dates) for axis in axes[:3])])
        steps.append(Step(name, p))
        if p > SILENT:
            break
    return terms, lags, tuple(steps)
