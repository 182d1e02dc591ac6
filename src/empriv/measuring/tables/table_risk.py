"""`TableRisk`: the privacy of a whole table, of any number of cells (docs/tables.md).

People touch few cells; what they do not touch is the same with and without them, and so is known. The residual of the
cells that they do touch is one number in their direction (`fit`), and is measured as one number is: people of one cell
by `cell_risks`, the others by `multi_cell`. Forgetting cells is post-processing, so nobody's delta_i is below that of
a cell alone. Exact leaks (`leaks`) are found for any number of cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import probability
from empriv.base.progress import progress
from empriv.errors import InputError
from empriv.measuring.any_risk import AnyRisk, smallest_epsilons
from empriv.measuring.densities.density import Density, density_or_default
from empriv.measuring.given.regression import Term
from empriv.measuring.line.risk import Risk
from empriv.measuring.tables.cell_risks import EachCell, GivenRest, Line, lines_of
from empriv.measuring.tables.fit import BoolArray, TableFit, filled, fit_table
from empriv.measuring.tables.influences import Influences, influences_on
from empriv.measuring.tables.leaks import Leak, alone_in_cells, table_leaks
from empriv.measuring.tables.multi_cell import MOST_EXPOSED, Directions, MultiCellPeople, hockey_sticks
from empriv.results import FloatArray, IntArray, Results

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
        out = self.alone_curves(epsilons)
        with progress(len(self.lines) + 1, "Measuring cells") as advance:
            for line, risk in self.along_lines():
                out[line.rows] = np.maximum(out[line.rows], risk.delta_i(epsilons))
                advance(1)
            several = self.several.rows
            if len(several):
                out[several] = np.maximum(out[several], self.several.curves(epsilons))
            advance(1)
        return np.maximum(out, self.leaked()[:, None])

    def own_epsilon_i(self, delta: float) -> FloatArray:
        """The largest of the parts that `curves` is the largest of; inf where an exact leak alone is more."""
        probability("delta", delta)
        out = np.where(self.leaked() > delta, np.inf, 0.0)
        for name, rows in self.touching.items():
            out[rows] = np.maximum(out[rows], self.components[name].epsilon_i(delta)[rows])
        for line, risk in self.along_lines():
            out[line.rows] = np.maximum(out[line.rows], risk.epsilon_i(delta))
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
        alone = (self.components[name].epsilon(delta) for name in self.touching)
        lines = (risk.epsilon(delta) for _, risk in self.along_lines())
        largest = 0.0
        for own in chain(alone, lines):
            largest = max(largest, own)
            if largest == math.inf:  # nobody can need more
                return largest
        return max(largest, self.several.epsilon(delta))

    @property
    def each_number(self) -> Mapping[str, Risk]:
        return self.components

    @cached_property
    def components(self) -> EachCell:
        """The `Risk` of each cell alone, by name; measured when first asked for."""
        before = None if self.postprocessed_from is None else self.postprocessed_from.each_number
        return EachCell(self.influences, self.recipe, before or None)  # type: ignore[arg-type]

    def alone_curves(self, epsilons: FloatArray) -> FloatArray:
        """(individuals, epsilons) the most that a cell alone tells."""
        out = np.zeros((self.results.n_individuals, len(epsilons)))
        for name, rows in self.touching.items():
            out[rows] = np.maximum(out[rows], self.components[name].delta_i(epsilons)[rows])
        return out

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
        for line, risk in self.along_lines():
            if len(line.places) == 1:
                owners.append(line.rows)
                cells.append(np.full(len(line.rows), line.places[0]))
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

    @property
    def kept_spreads(self) -> FloatArray:
        """(r,) standard deviation of each kept cell."""
        return np.asarray(self.fit.spreads[self.fit.kept])

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
    def lines(self) -> list[Line]:
        """People who always change the same cells in the same proportion, together with those who do as they do."""
        return self._grouped[0]

    @cached_property
    def several(self) -> MultiCellPeople:
        """Everybody else who changes something."""
        largest = self._largest_sizes
        rows = self._grouped[1]
        return MultiCellPeople(self.fit, self.influences, rows[np.argsort(-largest[rows], kind="stable")])

    @cached_property
    def _grouped(self) -> tuple[list[Line], IntArray]:
        exposed = np.argsort(-self._largest_sizes, kind="stable")[:MOST_EXPOSED]
        return lines_of(self.influences, self.fit, exposed)

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

    def along_lines(self) -> Iterator[tuple[Line, Risk]]:
        """Each line with the risk of its people given all that they do not touch."""
        for number, line in enumerate(self.lines):
            yield line, self.remembered(("line", number), partial(self._rest.risk, line))

    @cached_property
    def _rest(self) -> GivenRest:
        return GivenRest(self.results, self.influences, self.fit, self.recipe)

    def _each_cell_of_several(self) -> list[tuple[IntArray, IntArray, Directions]]:
        """Each cell of people who touch several, given the cells that they do not touch: its residuals, at
        variance 1, with everyone and without them."""
        out = []
        on_lines = [line.rows for line in self.lines if len(line.places) > 1]
        rows = np.concatenate((*on_lines, self.several.rows))
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
