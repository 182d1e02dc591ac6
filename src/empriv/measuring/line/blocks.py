"""Blocks: individuals who are cut into cells together, and what is asked of their cells.

`jobs` sorts individuals into blocks by how their cells are made: in closed form (`laplace`), by one matrix product or
one by one (`mixtures`), or through a model's own functions (`generic`). A `Block` answers for all of its individuals at
once, atoms included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from empriv.errors import InputError
from empriv.measuring.contract import largest_of
from empriv.measuring.densities.density import Mixture, Model
from empriv.measuring.line import generic, laplace, mixtures, sides
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.hockeystick import LARGEST_EPSILON, Cells, at, constant_cells, curve, invert, join
from empriv.measuring.line.residues import pairs_at_steps
from empriv.results import FloatArray, IntArray

_KNOTS = 336_000  # knots of a block of individuals held at once
_VALUES = 400_000  # kernel values held at once


@dataclass(frozen=True, eq=False)
class Block:
    """Cells of a block of individuals, atoms included, and what rounding may do to their sums."""

    source: laplace.LaplaceBlock | mixtures.MixtureBlock | generic.GenericBlock | None
    mass: FloatArray
    mass_without: FloatArray
    slack: float

    @property
    def rows(self) -> int:
        return len(self.mass_without)

    def cells(self, direction: int, least: float) -> Cells:
        """Cells where p/p_i (direction 0) or p_i/p (direction 1) exceeds ``least`` somewhere, and all atoms."""
        atoms = self._atoms(direction)
        return atoms if self.source is None else join(self.source.cells(direction, least), atoms)

    def _atoms(self, direction: int) -> Cells:
        masses = np.broadcast_to(self.mass, self.mass_without.shape), self.mass_without
        return constant_cells(*(masses if direction == 0 else masses[::-1]))

    def log_suprema(self) -> tuple[FloatArray, FloatArray]:
        """sup log p/p_i and sup log p_i/p of each individual, atoms included."""
        low = high = np.zeros(self.rows)
        if self.source is not None:
            low, high = self.source.log_range()
        return self._with_atoms(low, high)

    def _with_atoms(self, low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Both suprema, from the range of log p/p_i where there are no atoms."""
        ups = []
        for direction, smooth in ((0, high), (1, -low)):
            atoms = self._atoms(direction)
            top = smooth.copy()
            with np.errstate(divide="ignore"):
                np.maximum.at(top, atoms.row, np.log(atoms.high))
            ups.append(np.maximum(top, 0.0))
        return ups[0], ups[1]

    def curves(self, epsilon: FloatArray) -> FloatArray:
        """(rows, epsilons): the larger hockey stick, rounded up; 0 where the supremum proves it."""
        epsilon = np.minimum(epsilon, LARGEST_EPSILON)
        e = np.exp(epsilon) * (1.0 - self.slack)
        if isinstance(self.source, laplace.LaplaceBlock) and not len(self.mass):
            stick, low, high = self.source.sticks(e)
            with np.errstate(divide="ignore"):
                largest = np.log(np.maximum(high, 1.0 / low))
        elif (both := self._beside_atoms(e)) is not None:
            smooth, low, high = both
            atoms = [self._atoms(direction) for direction in (0, 1)]
            stick = np.maximum(*(smooth[:, k] + curve(atoms[k], e, self.rows) for k in (0, 1)))
            with np.errstate(divide="ignore"):
                largest = np.maximum(*self._with_atoms(np.log(low), np.log(high)))
        else:
            stick = np.maximum(*(curve(self.cells(direction, e[0]), e, self.rows) for direction in (0, 1)))
            largest = np.maximum(*self.log_suprema())
        np.clip(stick, 0.0, 1.0 - self.slack, out=stick)
        stick += self.slack
        stick[largest[:, None] - np.log1p(-self.slack) <= epsilon] = 0.0
        return stick

    def _beside_atoms(self, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Sticks (rows, 2, epsilons) without atoms and the range of p/p_i, where they are compiled."""
        return self.source.sticks_apart(e) if isinstance(self.source, laplace.LaplaceBlock) else None

    def epsilons(self, delta: float) -> FloatArray:
        """(rows,): smallest epsilon at which `curves` is at most ``delta``."""
        out = np.zeros(self.rows)
        target = delta - self.slack
        for direction, largest in enumerate(self.log_suprema()):
            # the supremum, rounded so that `curves` is 0 from there on
            ends = np.where(largest > 0, np.nextafter(largest - np.log1p(-self.slack), np.inf), 0.0)
            if target <= 0:
                smallest = ends
            else:
                cells = self.cells(direction, 1.0 - self.slack)
                e = invert(cells, target, np.exp(np.minimum(largest, LARGEST_EPSILON)))
                smallest = np.minimum(np.maximum(np.nextafter(np.log(e) - np.log1p(-self.slack), np.inf), 0.0), ends)
                smallest = np.where(at(cells, np.ones(self.rows) * (1.0 - self.slack))[0] <= target, 0.0, smallest)
                smallest = np.where(at(cells, e)[0] > target, ends, smallest)
            out = np.maximum(out, smallest)
        return out


def jobs(
    pairs: Pairs, model: Model | None, shifts: FloatArray, rows: IntArray
) -> Iterator[tuple[IntArray, Callable[[], Block]]]:
    """Blocks of individuals that can be cut together, each with the function that does it.

    Individuals whose results differ in their residues come twice. Their figure is the larger: atoms know nothing of
    where on the line their results are.
    """
    ratios = np.ones(pairs.n_individuals) if pairs.ratios is None or not _one_width(model) else pairs.ratios
    residues = dict(pairs.sure_residues)
    for row in rows[np.isin(rows, np.fromiter(residues, np.int64, len(residues)))].tolist():
        yield np.array([row]), _residue_maker(pairs, narrowed(model, ratios[row]), row, residues[row])
    if isinstance(model, Mixture) and not closed_form(model):
        pairs = pairs.centred()
    own_pairs = dict(pairs.own)
    alone = np.isin(rows, np.fromiter(own_pairs, np.int64, len(own_pairs))) | (ratios[rows] < 1)
    for row in rows[alone].tolist():
        row_pairs, place = (own_pairs[row], 0) if row in own_pairs else (pairs, row)
        yield np.array([row]), _maker(row_pairs, narrowed(model, ratios[row]), np.array([place]), None)
    rows = rows[~alone]
    size = len(pairs.points)
    if not isinstance(model, Mixture):
        groups: list[tuple[IntArray, int, sides.Near | None]] = [(rows, 4096 if model is None else 1, None)]
    elif closed_form(model):
        # Similar individuals share a block, which needs no more of the curve than its most exposed individual.
        groups = [(rows[np.argsort(-shifts[rows], kind="stable")], max(1, _KNOTS // (2 * size)), None)]
    else:
        groups = list(_mixture_groups(pairs, model, shifts, rows))
    for group, step, near in groups:
        for start in range(0, len(group), step):
            block_rows = group[start : start + step]
            yield block_rows, _maker(pairs, model, block_rows, near)


def narrowed(model: Model | None, ratio: float) -> Model | None:
    """The model for somebody without whom the results spread less, by this ratio, if it has one bandwidth."""
    return replace(model, bandwidths=ratio * model.bandwidths) if ratio < 1 and _one_width(model) else model


def _one_width(model: Model | None) -> TypeGuard[Mixture]:
    return isinstance(model, Mixture) and model.refit is None and bool(np.isfinite(model.bandwidth))


def closed_form(model: Mixture) -> bool:
    """Whether `laplace` serves."""
    return model.kernel.name == "laplace" and _one_width(model)


def _mixture_groups(
    pairs: Pairs, model: Mixture, shifts: FloatArray, rows: IntArray
) -> Iterator[tuple[IntArray, int, sides.Near | None]]:
    """Individuals by the size of their shifts: those who move points little share nodes."""
    size = len(pairs.points)
    if not model.kernel.kinks and model.refit is None and np.isfinite(pairs.points).any():
        side = sides.Side.of(model.kernel, pairs.points[None, :], model.bandwidths[None, :])
        for reach in sides.NEAR:
            within_reach = rows[shifts[rows] <= reach]
            if len(within_reach) > sides.ShiftMatrices.degree_for(reach):
                rows = rows[shifts[rows] > reach]
                near = sides.Near(model, side, reach)
                moved = float(np.mean(pairs.starts[within_reach + 1] - pairs.starts[within_reach])) * pairs.draws
                # held for each individual
                values = max(2 * size, 5 * len(near.nodes), moved * sides.ShiftMatrices.degree_for(reach))
                yield within_reach, max(1, int(_VALUES / values)), near
    near_enough = shifts[rows] <= sides.NEAR[-1]
    for group in (rows[near_enough], rows[~near_enough]):
        yield group, max(1, _VALUES // (40 * size)), None


def _maker(pairs: Pairs, model: Model | None, rows: IntArray, near: sides.Near | None) -> Callable[[], Block]:
    """The function that cuts these individuals' results into cells."""

    def make() -> Block:
        points, without = pairs.points, pairs.dense(rows)
        masses = pairs.mass, pairs.mass_without[rows]
        nothing = not np.isfinite(points).any() and not np.isfinite(without).any()
        if model is None or nothing:
            return Block(None, *masses, slack=1e-15)
        if not isinstance(model, Mixture):
            return Block(generic.block(model, points, without[0]), *masses, slack=generic.SLACK)
        if closed_form(model):
            source = laplace.LaplaceBlock(points, without, model.bandwidth)
            return Block(source, *masses, slack=laplace.slack(points))
        return Block(_mixture(model, points, without, near), *masses, slack=mixtures.SLACK)

    return make


def _residue_maker(pairs: Pairs, model: Model | None, row: int, steps: FloatArray) -> Callable[[], Block]:
    """The function that cuts one individual's results into atoms of residues, and cells of the rest."""

    def make() -> Block:
        with_atoms = pairs_at_steps(pairs, row, steps).centred()
        # what is left may be too little for a density of the user's own: then the atoms alone are looked at
        return _maker(with_atoms, model if isinstance(model, Mixture) else None, np.array([0]), None)()

    return make


def _mixture(model: Mixture, points: FloatArray, without: FloatArray, near: sides.Near | None) -> mixtures.MixtureBlock:
    """The block of these individuals."""
    bandwidths = model.bandwidths[None, :]
    if model.refit is not None:
        bandwidths = np.stack([_refitted(model, row) for row in without])
    with_all = sides.Side.of(model.kernel, points[None, :], model.bandwidths[None, :])
    side = sides.Side.of(model.kernel, without, bandwidths)

    evaluated: sides.Side | sides.Moved = side
    changed = without != points
    if model.refit is None and 4 * changed.sum(axis=1).max() <= len(points):
        evaluated = sides.Moved.of(side, points, changed)
    if near is not None:
        return mixtures.near_block(with_all, evaluated, near.matrices)
    with np.errstate(invalid="ignore"):
        near_enough = np.all(np.abs(points - without) <= sides.NEAR[-1] * model.bandwidths)
    if near_enough and model.refit is None:
        shared = sides.common_nodes(model.kernel, points, model.bandwidths)
        nodes = sides.kink_nodes(shared, evaluated)
    else:
        nodes = sides.far_nodes(model.kernel, points, model.bandwidths, without, bandwidths)
    return mixtures.far_block(with_all, evaluated, nodes)


def _refitted(model: Mixture, points: FloatArray) -> FloatArray:
    """Bandwidths fitted anew to the results without an individual; the shared ones where that cannot be done."""
    try:
        fitted = model.refit.fit(points, np.arange(len(points)))
    except InputError:
        return model.bandwidths
    return np.asarray(fitted.bandwidths)


def largest_shifts(pairs: Pairs, model: Model | None) -> FloatArray:
    """Largest influence of each individual, in bandwidths of the pair; inf to or from an atom."""
    q = pairs.points.reshape(-1, pairs.draws)
    h = model.bandwidths.reshape(q.shape) if isinstance(model, Mixture) else np.ones_like(q)
    everywhere = pairs.everywhere()
    with np.errstate(invalid="ignore"):
        if everywhere is not None and not len(pairs.mass):
            change = everywhere - pairs.points
            if np.all(h == h[0, 0]):
                shifts = np.maximum(change.max(axis=1), -change.min(axis=1)) / h[0, 0]
            else:
                shifts = np.abs(change / h.reshape(-1)).max(axis=1)
        else:
            change = np.abs(pairs.entries - np.take(q, pairs.entry_database, axis=0))
            change /= h[0, 0] if np.all(h == h[0, 0]) else h[pairs.entry_database]
            shifts = largest_of(np.where(np.isnan(change), 0.0, change) if len(pairs.mass) else change, pairs.starts)
    # A pair at an atom on both sides counts as no change here; the masses show whether it is the same atom.
    if len(pairs.mass):
        shifts[np.any(pairs.mass_without != pairs.mass, axis=1)] = np.inf
    if pairs.ratios is not None and _one_width(model):
        shifts = shifts / pairs.ratios
    for row, _ in (*pairs.own, *pairs.sure_residues):
        shifts[row] = np.inf
    return np.asarray(shifts)
