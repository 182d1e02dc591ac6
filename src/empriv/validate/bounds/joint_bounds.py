"""Bounds on the joint law of numbers that vary in a plane (docs/composition.md, "Bounds").

Upper: the smooth part of `analytic` in several dimensions, at the narrowed bandwidth, with the whole analytic bound
of every component and of every white axis, exact leaks, and the floor; the largest counts. Lower: an individual and
a set in several dimensions, chosen on half of the databases, and a bet on the other half; or cross-fitted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.joint import cubature
from empriv.measuring.joint.cubature import Grid
from empriv.measuring.joint.directions import off_own_plane
from empriv.measuring.joint.joint_risk import JointRisk, measure_joint
from empriv.measuring.joint.spaces import JointPairs
from empriv.measuring.line.risk import Risk, measure_line
from empriv.results import FloatArray, IntArray, Results
from empriv.validate.bounds.line_bounds import floor, lower_of_people, upper_of_cell
from empriv.validate.bounds.moments import bound_of, folds_of, mean_limits, narrowing, never_rising

_FOLDS = 3  # each measures the joint law anew, which takes time
_CELLS_PER_BANDWIDTH = 4.0  # the bandwidth is half of the estimate's, so the cells are finer than there

Membership = Callable[[FloatArray], npt.NDArray[np.bool_]]


class JointChoice(NamedTuple):
    """An individual, a direction and a set in several dimensions."""

    row: int
    direction: int
    member: Membership


def joint_upper_bounds(risk: JointRisk, epsilons: FloatArray, level: float) -> FloatArray:
    """(individuals, epsilons) upper bounds of each individual's joint delta_i."""
    n = risk.results.n_databases
    out = np.full((len(risk.shifts), len(epsilons)), floor(n, level))
    parts = (*risk.components.values(), *_axes(risk))
    for part in parts:
        np.maximum(out, upper_of_cell(part, epsilons, level, len(parts)), out=out)
    for leak in risk.leaks:
        given_away = np.arange(n)[None, :] < np.round(leak.shares * n)[:, None]
        out[leak.rows] = np.maximum(out[leak.rows], bound_of(given_away.astype(float), level)[:, None])
    pairs = risk.pairs.narrowed(narrowing(n))
    shifts = risk.shifts / narrowing(n)
    rows = np.flatnonzero((shifts > epsilons.min()) & (shifts > 0))
    engines = tuple(Grid.of(pairs, number, fine=_CELLS_PER_BANDWIDTH) for number in range(len(pairs.spaces)))

    def task(row: int) -> FloatArray:
        return paired_values(pairs, engines, row, epsilons)

    for block_rows, values in risk.in_threads(rows, task):  # values: (rows, epsilons, directions, n)
        out[block_rows] = np.maximum(out[block_rows], bound_of(values, level).max(axis=2))
    return np.asarray(np.minimum(out, 1.0))


def paired_values(pairs: JointPairs, engines: tuple[Grid, ...], row: int, epsilons: FloatArray) -> FloatArray:
    """(epsilons, 2, n): W_j = psi(A_j) - e psi(B_j) for both directions, averaged over draws.

    psi is the share of a point's kernel in the set where the one density exceeds e times the other; for a category,
    whether the one mass does. The mean of W is the plug-in hockey stick.
    """
    e = np.exp(epsilons)
    with_all, without = np.zeros((2, len(e), 2, pairs.size))
    for engine in engines:
        share, share_without = _grid_shares(engine, pairs, row, e)
        with_all += share
        without += share_without
    if len(pairs.names):
        _add_categories(pairs, row, e, with_all, without)
    first = with_all[:, 0] - e[:, None] * without[:, 0]
    second = without[:, 1] - e[:, None] * with_all[:, 1]
    values = np.stack((first, second), axis=1)
    return np.asarray(values.reshape(len(e), 2, -1, pairs.draws).mean(axis=3))


def _grid_shares(grid: Grid, pairs: JointPairs, row: int, e: FloatArray) -> tuple[FloatArray, FloatArray]:
    a, b = grid.total, grid.without(pairs, row)
    leave, _, come, new = pairs.changes(row, grid.number)
    added = [cubature.kernel_shares(new[:, axis], edge) for axis, edge in enumerate(grid.edges)]
    with_all, without = np.zeros((2, len(e), 2, pairs.size))
    for k, factor in enumerate(e.tolist()):
        for direction, inside in enumerate((a > factor * b, b > factor * a)):
            with_all[k, direction] = cubature.share_within(grid.shares, inside)
            without[k, direction] = with_all[k, direction]
            without[k, direction, leave] = 0.0
            without[k, direction, come] = cubature.share_within(added, inside)
    return with_all, without


def _add_categories(pairs: JointPairs, row: int, e: FloatArray, with_all: FloatArray, without: FloatArray) -> None:
    mass, mass_without = pairs.mass, pairs.mass_without[row]
    places = pairs.places.copy()
    entries = slice(pairs.starts[row], pairs.starts[row + 1])
    where = pairs.entry_database[entries, None].astype(np.int64) * pairs.draws + np.arange(pairs.draws)
    places[where.ravel()] = pairs.entry_places[entries].ravel()
    for k, factor in enumerate(e.tolist()):
        for direction, inside in enumerate((mass > factor * mass_without, mass_without > factor * mass)):
            in_category, in_category_without = pairs.places < 0, places < 0
            with_all[k, direction, in_category] = inside[-1 - pairs.places[in_category]]
            without[k, direction, in_category_without] = inside[-1 - places[in_category_without]]


def _axes(risk: JointRisk) -> list[Risk]:
    """The risk along each white axis, which shows half-lines and clusters that the components do not show."""
    if not risk.pairs.spaces:
        return []
    space = max(risk.pairs.spaces, key=lambda candidate: candidate.rank)
    if len(space.columns) < 2:
        return []
    names = [list(risk.components)[c] for c in space.columns]
    return [
        measure_line(risk.results.combined(dict(zip(names, (axis / space.scale).tolist(), strict=True))))
        for axis in space.axes.T
    ]


# The lower bound


def joint_lower_bounds(risk: JointRisk, epsilons: FloatArray, level: float, seed: int = 0) -> FloatArray:
    """(epsilons,) lower bounds on the joint delta.

    The chance of error is shared: half for the joint set, half for the components, each of which is a release of its
    own.
    """
    share = 0.5 * (1.0 - level)
    alone = 1.0 - share / len(risk.components)
    lower = [lower_of_people(part, epsilons, alone) for part in risk.components.values()]
    lower.append(_set_limits(risk, epsilons, 1.0 - share, seed))
    return np.asarray(np.max(lower, axis=0))


def _set_limits(risk: JointRisk, epsilons: FloatArray, level: float, seed: int) -> FloatArray:
    n = risk.results.n_databases
    values = np.zeros((len(epsilons), n))
    if n < LEAST_DATABASES:
        return np.zeros(len(epsilons))
    fold = folds_of(n, seed, _FOLDS)
    for left_out in range(_FOLDS):
        train, test = np.flatnonzero(fold != left_out), np.flatnonzero(fold == left_out)
        for k, choice in enumerate(_choose_sets(risk, epsilons, train)):
            if choice is not None:
                values[k, test] = _evaluate_set(risk.results, test, choice, float(np.exp(epsilons[k])))
    return never_rising(mean_limits(values, level), epsilons)


def _choose_sets(risk: JointRisk, epsilons: FloatArray, train: IntArray) -> list[JointChoice | None]:
    """The most exposed individual at each epsilon and their set, as these databases have it."""
    trained = measure_joint(risk.results.on_databases(train))
    if not trained.pairs.spaces:
        return [None] * len(epsilons)
    leaked, delta_i = trained.leaked(), trained.delta_i(epsilons)
    choices: list[JointChoice | None] = []
    for k, epsilon in enumerate(epsilons.tolist()):
        row = int(np.argmax(delta_i[:, k]))
        known = delta_i[row, k] > 0
        choices.append(
            _choose_set(trained, row, float(np.exp(epsilon)), plane=bool(leaked[row] > 0)) if known else None
        )
    return choices


def _choose_set(trained: JointRisk, row: int, e: float, *, plane: bool) -> JointChoice:
    """The direction and the set: off the plane of the results without, or where one density exceeds e times another."""
    number = int(np.argmax([space.rank for space in trained.pairs.spaces]))
    space, pairs = trained.pairs.spaces[number], trained.pairs
    leave, _, _, new = pairs.changes(row, number)
    in_space = pairs.places == number
    kept = in_space.copy()
    kept[leave] = False
    points = pairs.coordinates[number]
    without = np.concatenate((points[kept], new))
    if plane and off_own_plane(pairs, number, row).any():
        centre = without.mean(axis=0)
        turned = np.linalg.svd((without - centre).T, full_matrices=False)[0]
        spread = float(points[in_space].std(axis=0).max())
        flat = turned[:, np.abs((without - centre) @ turned).max(axis=0) <= 1e-6 * spread]
        off = 1e-5 * spread
        return JointChoice(
            row, 0, lambda x: np.asarray(np.abs((space.coordinates(x) - centre) @ flat).max(axis=1) > off)
        )
    parts = trained.both_directions(row, np.array([np.log(e)]))
    direction = int(parts[1][0] > parts[0][0])

    def member(x: FloatArray) -> npt.NDArray[np.bool_]:
        y = space.coordinates(x)
        density, density_without = cubature.kernel_sums(y, points[in_space]), cubature.kernel_sums(y, without)
        inside = density > e * density_without if direction == 0 else density_without > e * density
        # Results with everyone are never off their plane: a result that is must be without the individual.
        return np.where(space.off_plane(x), direction == 1, inside)

    return JointChoice(row, direction, member)


def _evaluate_set(results: Results, databases: IntArray, choice: JointChoice, e: float) -> FloatArray:
    """W of the individual and set on these databases, averaged over draws; what is not a number is not in the set."""
    row, direction, member = choice
    d, draws = results.q.shape[-1], results.draws or 1
    dense, codes = results.q.copy(), results.outcomes.copy()
    entries = slice(results.starts[row], results.starts[row + 1])
    dense[results.entry_database[entries]] = results.entry_q[entries]
    codes[results.entry_database[entries]] = results.entry_outcomes[entries]
    inside = []
    for values, outcomes in ((results.q, results.outcomes), (dense, codes)):
        x = np.nan_to_num(values[databases].reshape(-1, d), nan=0.0, posinf=0.0, neginf=0.0)
        numbers = np.all(outcomes[databases].reshape(-1, d) == 0, axis=1)
        inside.append((numbers & member(x)).reshape(-1, draws).mean(axis=1))
    a, b = inside if direction == 0 else inside[::-1]
    return np.asarray(a - e * b)
