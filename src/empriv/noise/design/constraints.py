"""What a design must keep: the law of the rounded answer with everyone and without each individual, as rows.

A row is one individual on one weighting of the databases (as they are, or resampled), two vectors of masses on the
cells of a lattice. `Cases` makes rows. `quick_look` and `search` find whose rows are needed;
`constrained_rows` applies noise to rows, `programme` chooses it; `certify` computes the certificate, which trusts none
of this.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from empriv.errors import InputError
from empriv.measuring.densities.density import Kde, Mixture, Model
from empriv.measuring.densities.kernels import Kernel, kernel_named
from empriv.measuring.line.risk import Risk
from empriv.noise.measured import sharpened
from empriv.results import FloatArray, IntArray

MOST_CELLS = 4096
_REACH = {"exponential": 10.0, "gaussian": 7.9, "bounded": 1.0, "power": 30.0}  # bandwidths covered beyond the data


@dataclass(frozen=True, eq=False)
class Cases:
    """Both sides of every pair as numbers, each with the bandwidth of its kernel, on a lattice.

    Attributes
    ----------
    risk : what was measured
    kernel : of the smoothing; that of a one-SE Laplace estimate where the density is not a mixture
    cell : width of a cell
    points, widths, codes : (N,) results with everyone, bandwidths (0 at an atom), outcomes
    entries, entry_widths, entry_codes : (n_entries, draws), without the individual
    own : rows of individuals with atoms of their own, each with (N,) and (n_entries_i, draws) bandwidths
    lowest : index of the first cell
    cells : number of cells
    weights : (S, n) shares of the databases; the first row is the databases as they are
    factor : of all bandwidths
    categories : outcomes that are not numbers; they are cells that noise does not touch
    """

    risk: Risk
    kernel: Kernel
    cell: float
    points: FloatArray
    widths: FloatArray
    codes: IntArray
    entries: FloatArray
    entry_widths: FloatArray
    entry_codes: IntArray
    own: dict[int, tuple[FloatArray, FloatArray]]
    lowest: int
    cells: int
    weights: FloatArray
    factor: float
    categories: tuple[int, ...]
    model: Model | None = None
    _kept: dict[str, Any] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(
        risk: Risk,
        *,
        granularity: float | None,
        weights: FloatArray | None = None,
        factor: float = 1.0,
        literal: bool = True,
        pure: bool = False,
    ) -> Cases:
        """Cases of a risk.

        ``literal`` keeps a density that is not a mixture, instead of a mixture near it. ``pure`` goes three times as
        far beyond the results: at delta = 0 a ratio far out in the tails counts like any other.
        """
        risk = sharpened(risk)
        results, pairs = risk.results, risk.pairs
        draws = pairs.draws
        model = risk.density
        mixture = model if isinstance(model, Mixture) else _stand_in(risk)
        bandwidths = np.zeros(len(pairs.points)) if mixture is None else mixture.bandwidths
        kernel = kernel_named("laplace") if mixture is None else mixture.kernel
        by_database = bandwidths.reshape(-1, draws)
        n_entries = len(results.entry_database)
        points = np.where(results.outcomes.reshape(-1) == 0, results.q.reshape(-1), np.nan)
        entries = np.where(results.entry_outcomes == 0, results.entry_q, np.nan).reshape(n_entries, draws)
        widths = np.where(np.isfinite(pairs.points), bandwidths, 0.0)
        entry_widths = np.where(np.isfinite(pairs.entries), by_database[results.entry_database], 0.0)
        own = {}
        for row, alone in pairs.own:
            databases = results.entry_database[results.starts[row] : results.starts[row + 1]]
            smooth = np.isfinite(alone.entries.reshape(-1, draws)[databases])
            own[row] = (
                np.where(np.isfinite(alone.points), bandwidths, 0.0),
                np.where(smooth, by_database[databases], 0.0),
            )
        cell = design_cell(risk, granularity)
        # Cells are counted from one near the middle, so that far-off results keep their low digits.
        values = np.concatenate((points, entries.ravel()))
        values = values[np.isfinite(values)]
        low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 0.0)
        reach = _REACH[kernel.tail] * float(widths.max(initial=0.0)) * (3.0 if pure else 1.0)
        reach = min(reach, MOST_CELLS // 2 * cell)
        lowest, last = int(np.floor((low - reach) / cell)), int(np.ceil((high + reach) / cell))
        n = results.n_databases
        codes, entry_codes = results.outcomes.reshape(-1), results.entry_outcomes.reshape(n_entries, draws)
        return Cases(
            risk=risk,
            kernel=kernel,
            cell=cell,
            points=points,
            widths=factor * widths,
            codes=codes.astype(np.int64),
            entries=entries,
            entry_widths=factor * entry_widths,
            entry_codes=entry_codes.astype(np.int64),
            own={row: (factor * a, factor * b) for row, (a, b) in own.items()},
            lowest=lowest,
            cells=last - lowest + 1,
            weights=np.full((1, n), 1.0 / n) if weights is None else weights,
            factor=factor,
            categories=tuple(int(c) for c in np.union1d(codes, entry_codes) if c),
            model=model if literal and _not_a_mixture(model) else None,
        )

    @property
    def draws(self) -> int:
        return self.risk.pairs.draws

    @property
    def influences(self) -> FloatArray:
        """Largest change of each individual between two numbers, in units of the result."""
        largest = self._kept.get("influences")
        if largest is None:
            before = self.points.reshape(-1, self.draws)[self.risk.results.entry_database]
            change = np.abs(self.entries - before).max(axis=1, initial=0.0, where=np.isfinite(self.entries - before))
            starts = self.risk.results.starts
            largest = np.zeros(len(starts) - 1)
            listed = np.diff(starts) > 0
            if listed.any():
                largest[listed] = np.maximum.reduceat(change, starts[:-1][listed])
            self._kept["influences"] = largest
        return np.asarray(largest)

    def all_widths(self) -> list[FloatArray]:
        """Bandwidths of numbers, 0 at atoms: with everyone, without, and of individuals with atoms of their own."""
        own = [width for pair in self.own.values() for width in pair]
        return [self.widths[self.codes == 0], self.entry_widths[self.entry_codes == 0], *own]

    def on_wider_cells(self, times: int) -> Cases:
        """The same on cells that are so many times as wide."""
        lowest, last = self.lowest // times, -(-(self.lowest + self.cells - 1) // times)
        return replace(self, cell=times * self.cell, lowest=lowest, cells=last - lowest + 1, _kept={})

    def subject(self, epsilon: float) -> IntArray:
        """Individuals not cleared by screening: by the mediant inequality shifts of at most epsilon/L do no harm."""
        shifts = self.risk.shifts / self.factor
        if self.model is not None or not isinstance(self.risk.density, Mixture):
            return np.flatnonzero(self.risk.shifts > 0)
        limit = epsilon / self.kernel.log_lipschitz if np.isfinite(self.kernel.log_lipschitz) else 0.0
        return np.flatnonzero(shifts > limit)

    # Rows

    def rows(self, individual: int, weightings: IntArray) -> tuple[FloatArray, FloatArray]:
        """Masses (weightings, cells + categories) with everyone and without one individual."""
        if self.model is not None:
            return self._modelled(individual)
        results, n = self.risk.results, self.risk.results.n_databases
        span = slice(results.starts[individual], results.starts[individual + 1])
        where = results.entry_database[span]
        widths, entry_widths = self.widths, self.entry_widths[span]
        with_all = self._with_all()
        if individual in self.own:
            widths, entry_widths = self.own[individual]
            with_all = self._spread(self.points, widths, self.codes).reshape(n, self.draws, -1).mean(axis=1)
        moved = self._spread(self.entries[span].ravel(), entry_widths.ravel(), self.entry_codes[span].ravel())
        change = moved.reshape(len(where), self.draws, -1).mean(axis=1) - with_all[where]
        p = self.weights[weightings] @ with_all
        q = np.maximum(p + self.weights[weightings][:, where] @ change, 0.0)
        if len(where) == n:  # no cancellation where everything changes
            dense = change + with_all[where]
            q = self.weights[weightings] @ dense
        return p, q

    def _with_all(self) -> FloatArray:
        if "with" not in self._kept:
            n = self.risk.results.n_databases
            spread = self._spread(self.points, self.widths, self.codes)
            self._kept["with"] = spread.reshape(n, self.draws, -1).mean(axis=1)
        return np.asarray(self._kept["with"])

    def _edges(self) -> FloatArray:
        return np.asarray(self.cell * (self.lowest - 0.5 + np.arange(self.cells + 1)))

    def _spread(self, values: FloatArray, widths: FloatArray, codes: IntArray) -> FloatArray:
        """(points, cells + categories): the mass of each point's kernel on each cell; what is outside, at the ends."""
        out = np.zeros((len(values), self.cells + len(self.categories)))
        smooth = np.flatnonzero((widths > 0) & (codes == 0))
        edges = self._edges()
        step = max(1, 2_000_000 // len(edges))
        for start in range(0, len(smooth), step):
            block = smooth[start : start + step]
            z = (edges[None, :] - values[block, None]) / widths[block, None]
            tail = self.kernel.cdf(-np.abs(z))  # on each edge, the mass beyond it: accurate far out
            tail[:, 0] = np.where(z[:, 0] < 0, 0.0, 1.0)
            tail[:, -1] = np.where(z[:, -1] > 0, 0.0, 1.0)
            left = z < 0
            masses = np.where(left[:, :-1] == left[:, 1:], np.abs(np.diff(tail, axis=1)), 0.0)
            crossing = left[:, :-1] & ~left[:, 1:]
            masses[crossing] = (1.0 - tail[:, :-1] - tail[:, 1:])[crossing]
            out[block, : self.cells] = masses
        atoms = np.flatnonzero((widths <= 0) & (codes == 0))
        if len(atoms):
            place = np.rint(values[atoms] / self.cell).astype(np.int64) - self.lowest
            out[atoms, np.clip(place, 0, self.cells - 1)] = 1.0
        for column, code in enumerate(self.categories):
            out[codes == code, self.cells + column] = 1.0
        return out

    def _modelled(self, individual: int) -> tuple[FloatArray, FloatArray]:
        """The same from a model's own distribution function; atoms as they are."""
        pairs, results = self.risk.pairs, self.risk.results
        own_pairs = dict(pairs.own).get(individual)
        if own_pairs is None:
            own_points, own_without = pairs.points, pairs.dense(np.array([individual]))[0]
        else:
            own_points, own_without = own_pairs.points, own_pairs.dense(np.array([0]))[0]
        n, m = results.n_databases, self.draws
        span = slice(results.starts[individual], results.starts[individual + 1])
        values, codes = self.points.reshape(n, m).copy(), self.codes.reshape(n, m).copy()
        values[results.entry_database[span]] = self.entries[span]
        codes[results.entry_database[span]] = self.entry_codes[span]
        sides = []
        for points, numbers, outcomes in (
            (own_points, self.points, self.codes),
            (own_without, values.ravel(), codes.ravel()),
        ):
            masses = np.zeros(self.cells + len(self.categories))
            if np.isfinite(points).any():
                cumulative = np.asarray(self._model_cdf(points), float)
                cumulative[0], cumulative[-1] = 0.0, np.isfinite(points).mean()
                masses[: self.cells] = np.maximum(np.diff(cumulative), 0.0)
            alone = ~np.isfinite(points)
            if alone.any():
                masses += self._spread(numbers[alone], np.zeros(alone.sum()), outcomes[alone]).sum(axis=0) / len(points)
            sides.append(masses[None, :])
        return sides[0], sides[1]

    def _model_cdf(self, points: FloatArray) -> FloatArray:
        model = self.model
        assert model is not None
        if isinstance(model, Mixture) and model.refit is not None and points is not self.risk.pairs.points:
            with suppress(InputError):  # where no bandwidth can be fitted, the shared ones serve, as in measuring
                model = model.refit.fit(points, np.arange(len(points)))
        return np.asarray(model.cdf(self._edges(), points))


def _not_a_mixture(model: Model | None) -> bool:
    return model is not None and not (isinstance(model, Mixture) and model.refit is None)


def _stand_in(risk: Risk) -> Mixture | None:
    """A mixture near a density that is not one: the one-SE Laplace estimate of the same points."""
    points = risk.pairs.points
    if not np.isfinite(points).any():
        return None
    try:
        return Kde("laplace").fit(points, np.repeat(np.arange(risk.results.n_databases), risk.pairs.draws))
    except InputError:
        return None


def design_cell(risk: Risk, granularity: float | None) -> float:
    """Width of the cells that a design is computed on: the granularity, or coarser where that would be needlessly fine.

    The largest power of two below a sixteenth of the bandwidth (of the narrow ones where they vary), coarser where the
    range of the results would need more than 4,096 cells.
    """
    results = risk.results
    mixture = risk.density if isinstance(risk.density, Mixture) else _stand_in(risk)
    smooth = np.isfinite(risk.pairs.points)
    values = np.concatenate((results.q[results.outcomes == 0], results.entry_q[results.entry_outcomes == 0]))
    width = 0.0
    if mixture is not None and smooth.any():
        width = float(np.quantile(mixture.bandwidths[smooth], 0.1))
    if width == 0.0:
        influence = risk.influence()
        influence = influence[np.isfinite(influence) & (influence > 0)]
        width = float(influence.min()) if len(influence) else 1.0
    cell = 2.0 ** (np.frexp(width / 16.0)[1] - 1)
    if len(values):
        span = float(values.max() - values.min())
        while span / cell > MOST_CELLS:
            cell *= 2.0
    return float(cell if granularity is None else max(cell, granularity))
