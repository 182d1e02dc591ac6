"""The lower bound on delta: a set and an individual chosen on half of the databases, a bet on the other half.

Whatever the set E, ``P(A in E) - e P(B in E)`` is at most delta. So any way of choosing E is honest, as long as the
databases that judge it had no part in the choice. The judgement is a bet: if the mean of W were m, the capital of
whoever bets a fair share on W > m would not grow twentyfold but in one case of twenty. Needs i.i.d. databases only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from empriv.errors import InputError
from empriv.measuring.densities.density import Kde
from empriv.measuring.line.atoms import lattice, on_lattice
from empriv.results import FloatArray, IntArray
from empriv.validate.bounds import structure
from empriv.validate.bounds.moments import Merged, Smooth, quantile
from empriv.validate.bounds.structure import Promising
from empriv.validate.ground import BoolArray, Ground

Membership = Callable[[FloatArray, BoolArray], BoolArray]  # points, and which are not atoms -> which are in E

_FIRST = 64  # individuals whose scores show who can be skipped
_FRACTIONS = np.linspace(0.02, 0.98, 25)


class Choice(NamedTuple):
    """What was chosen on the first half: score, individual, direction, and the set."""

    score: float
    row: int
    direction: int
    member: Membership


def betting_bound(w: FloatArray, e: float, level: float, hint: float | None = None) -> float:
    """Largest m >= 0 that the bets refute, for values w in [-e, 1] with any mean; 0 if none.

    The capital ``mean over f of prod_j (1 + f ((w_j + e)/(m + e) - 1))`` has mean at most 1 if E[w] <= m, and falls
    in m. ``hint`` is a fraction f found elsewhere, which gets half of the stake.
    """
    fractions = _FRACTIONS if hint is None else np.append(_FRACTIONS, hint)
    stakes = np.full(len(fractions), 1.0 / len(fractions))
    if hint is not None:
        stakes[:-1], stakes[-1] = 0.5 / len(_FRACTIONS), 0.5

    def log_capital(m: float) -> float:
        gain = (w + e) / (m + e) - 1.0
        logs = np.log1p(fractions[:, None] * gain[None, :]).sum(axis=1) + np.log(stakes)
        return float(np.logaddexp.reduce(logs))

    goal = -np.log1p(-level)
    if not len(w) or log_capital(0.0) < goal:
        return 0.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if log_capital(middle) >= goal else (low, middle)
    return low


def lower_bounds(ground: Ground, epsilons: Sequence[float] | FloatArray, level: float, seed: int = 0) -> FloatArray:
    """(epsilons,) lower bounds on delta, falling; each holds by itself at the level."""
    grid = np.asarray(epsilons, float)
    n = ground.n_databases
    out = np.zeros(len(grid))
    if n < 4:
        return out
    shuffled = np.random.default_rng(seed).permutation(n)
    train, test = np.sort(shuffled[: n // 2]), np.sort(shuffled[n // 2 :])
    choices = _choose(ground, grid, _points_of(train, ground.draws), len(test), level)
    seen = _points_of(test, ground.draws)
    for k, (epsilon, choice) in enumerate(zip(grid, choices, strict=True)):
        if choice is None:
            continue
        e = float(np.exp(epsilon))
        here = np.array([choice.row])
        out[k] = betting_bound(_judge(ground, here, seen, choice, e), e, level, _stake(ground, here, train, choice, e))
    return never_rising(out, grid)


def never_rising(lower: FloatArray, epsilons: FloatArray) -> FloatArray:
    """Lower bounds held down by those at smaller epsilons, since delta falls in epsilon."""
    order = np.argsort(epsilons)
    return np.asarray(np.minimum.accumulate(lower[order])[np.argsort(order)])


def _points_of(databases: IntArray, draws: int) -> IntArray:
    return np.asarray((databases[:, None] * draws + np.arange(draws)).ravel())


def _judge(ground: Ground, row: IntArray, seen: IntArray, choice: Choice, e: float) -> FloatArray:
    """W of the chosen individual and set on these points, averaged over draws."""
    a, b = ground.values.points[seen], ground.values.dense(row)[0][seen]
    smooth = ground.smooth(row)
    size = len(ground.values.points)
    smooth_a = np.ones(len(seen), bool) if smooth is None else smooth[0, :size][seen]
    smooth_b = np.ones(len(seen), bool) if smooth is None else smooth[0, size:][seen]
    in_a, in_b = choice.member(a, smooth_a).astype(float), choice.member(b, smooth_b).astype(float)
    w = in_a - e * in_b if choice.direction == 0 else in_b - e * in_a
    return np.asarray(w.reshape(-1, ground.draws).mean(axis=1))


def _stake(ground: Ground, row: IntArray, train: IntArray, choice: Choice, e: float) -> float:
    """The fraction that would have grown most on the first half, against half of the mean seen there."""
    return best_stake(_judge(ground, row, _points_of(train, ground.draws), choice, e), e)


def best_stake(w: FloatArray, e: float) -> float:
    """The fraction that would have grown most on these values, against half of their mean."""
    m = max(0.0, 0.5 * float(w.mean()))
    growth = np.log1p(_FRACTIONS[:, None] * ((w + e) / (m + e) - 1.0)[None, :]).sum(axis=1)
    return float(_FRACTIONS[int(np.argmax(growth))])


def _choose(ground: Ground, epsilons: FloatArray, train: IntArray, n_test: int, level: float) -> list[Choice | None]:
    """The most promising individual and set at each epsilon, judged by the first half alone."""
    z, e = quantile(level), np.exp(epsilons)
    points = np.ascontiguousarray(ground.values.points[train])
    smooth_all = np.isfinite(ground.marked.points[train])
    try:
        width = Kde().fit(np.where(smooth_all, points, np.inf), train // ground.draws).bandwidth
    except InputError:
        width = 1.0  # any set is honest, a poorly chosen one is only weak
    size = len(ground.values.points)
    columns = np.concatenate((train, size + train))
    grids = [grid for grid in (lattice(points[smooth_all]) if smooth_all.any() else None, (0.0, 1e-6)) if grid]
    on = [on_lattice(points, *grid) for grid in grids]

    def task(rows: IntArray) -> list[Choice | None]:
        smooth = ground.smooth(rows)
        without = np.ascontiguousarray(ground.values.dense(rows)[:, train])
        if structure.compiled_promising is None or smooth is not None:
            merged = Merged.of(points, without, None if smooth is None else smooth[:, columns], ground.tolerance)
            promising = _promising(merged, width, e, z, n_test)
        else:
            promising = structure.compiled_promising(points, without, width, e, z, n_test)
        # people who move nothing on or off a lattice have the same values: the first of them stands for all
        off = [
            (grid, here, *_first_and_different(~on_lattice(without, *grid), here))
            for grid, here in zip(grids, on, strict=True)
        ]
        return [choice(rows, without, smooth, promising, off, k) for k in range(len(e))]

    def choice(
        rows: IntArray,
        without: FloatArray,
        smooth: BoolArray | None,
        promising: Promising,
        off: list[tuple[tuple[float, float], BoolArray, IntArray, BoolArray]],
        k: int,
    ) -> Choice | None:
        def merged_of(row: int) -> Merged:
            own = None if smooth is None else smooth[row : row + 1, columns]
            return Merged.of(points, without[row : row + 1], own, ground.tolerance)

        best: Choice | None = None
        scores, who = promising.scores[k].tolist(), promising.who[k].tolist()
        for kind in range(4):
            if np.isfinite(scores[kind]) and (best is None or scores[kind] > best.score):
                low, high = merged_of(who[kind]).x[0, promising.place[k, kind] : promising.place[k, kind] + 2]
                member = _half_line(float(low + 0.5 * (high - low)), kind < 2)
                best = Choice(scores[kind], int(rows[who[kind]]), kind % 2, member)
        for direction in (0, 1):
            score, row = scores[4 + direction], who[4 + direction]
            if best is None or score > best.score:
                member = _kernel_set(merged_of(row), width, direction, float(e[k]))
                best = Choice(score, int(rows[row]), direction, member)
            for grid, here, different, off_b in off:
                a, b = (~here[None, :], off_b) if direction == 0 else (off_b, ~here[None, :])
                w = a - e[k] * b
                own = w.mean(axis=1) - z * w.std(axis=1) / np.sqrt(n_test)
                at = int(np.argmax(own))
                if own[at] > best.score:
                    best = Choice(float(own[at]), int(rows[different[at]]), direction, _off_grid(*grid))
        return best

    def best_of(rows: IntArray) -> list[Choice | None]:
        choices: list[Choice | None] = [None] * len(epsilons)
        for _, found in ground.in_threads(task, rows):
            for k, choice in enumerate(found):
                best = choices[k]
                if choice is not None and (best is None or choice.score > best.score):
                    choices[k] = choice
        return choices

    rows = np.flatnonzero(ground.shifts > 0)
    highest = _highest_scores(ground, train, z, n_test)[rows]
    few = np.argsort(-highest, kind="stable")[:_FIRST]  # what they have shows who can be skipped
    least = min((choice.score for choice in best_of(rows[few]) if choice is not None), default=0.0)
    kept = highest >= least
    if least >= 0:  # a score of 0 is that of an empty set, whoever it is of
        kept &= highest > 0
        kept[few] = True
    return best_of(rows[kept])


def _highest_scores(ground: Ground, train: IntArray, z: float, n_test: int) -> FloatArray:
    """(individuals,) what no score exceeds, of any set, of somebody who moves m of these N points.

    W is above 0 at those m alone, so that its mean is at most m/N, and its mean square at least mean² N/m.
    """
    pairs, size = ground.values, len(train)
    trained = np.zeros(len(pairs.points), bool)
    trained[train] = True
    moved = (pairs.entries != pairs.points.reshape(-1, pairs.draws)[pairs.entry_database]).sum(axis=1)
    moved *= trained.reshape(-1, pairs.draws)[pairs.entry_database, 0]  # a database is trained on whole
    counts = np.concatenate(([0], np.cumsum(moved)))[pairs.starts]
    share = np.diff(counts) / size
    with np.errstate(divide="ignore"):
        part = 1.0 - z * np.sqrt((1.0 / share - 1.0) / n_test)
    return np.asarray(np.where(part > 0, share * np.maximum(part, 0.0) * (1 + 1e-9) + 1e-12, 0.0))  # roundings


def _first_and_different(off: BoolArray, on: BoolArray) -> tuple[IntArray, BoolArray]:
    """Individuals whose points (rows, N) are on a lattice where those with everyone are not, or the other way; and the
    first one who has no such point: where they are, and their points off the lattice."""
    differs = np.any(off == on, axis=1)
    differs[: np.argmin(differs) + 1] = True
    rows = np.flatnonzero(differs)
    return rows, off[rows]


def _promising(merged: Merged, width: float, e: FloatArray, z: float, n_test: int) -> Promising:
    """What compiled code finds, with atoms too."""
    out = Promising(np.empty((len(e), 6)), np.empty((len(e), 6), np.int64), np.empty((len(e), 4), np.int64))
    cut = Smooth.of(merged, width)
    halves = _half_lines(merged)
    for k, factor in enumerate(map(float, e)):
        for kind, score in enumerate(_half_line_scores(merged, halves, factor, z, n_test)):
            out.who[k, kind], out.place[k, kind] = divmod(int(np.argmax(score)), score.shape[1])
            out.scores[k, kind] = score.max()
        for direction in (0, 1):
            w = cut.values(direction, factor, 1)
            score = w.mean(axis=1) - z * w.std(axis=1) / np.sqrt(n_test)
            out.who[k, 4 + direction], out.scores[k, 4 + direction] = np.argmax(score), score.max()
    return out


def _half_lines(merged: Merged) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """(rows, 2N) shares, up to and including each knot, of: A, B, pairs wholly there, pairs partly there."""
    rows, knots = merged.x.shape
    size = merged.size
    sides = merged.sides()
    b = np.cumsum(sides, axis=1) / size
    a = np.arange(1, knots + 1) / size - b
    rank = np.empty_like(merged.order)
    np.put_along_axis(rank, merged.order, np.broadcast_to(np.arange(knots), (rows, knots)), axis=1)
    first, second = rank[:, :size], rank[:, size:]
    base = np.arange(rows)[:, None] * knots
    whole, partly = (
        np.cumsum(np.bincount((base + at).ravel(), minlength=rows * knots).reshape(rows, knots), axis=1) / size
        for at in (np.maximum(first, second), np.minimum(first, second))
    )
    return a, b, whole, partly


def _half_line_scores(
    merged: Merged, halves: tuple[FloatArray, FloatArray, FloatArray, FloatArray], e: float, z: float, n_test: int
) -> Iterator[FloatArray]:
    """(rows, 2N - 1) of half-lines that end after each knot: from the left, from the right, in both directions each."""
    a, b, whole, partly = halves
    apart = np.diff(merged.x, axis=1) > 0  # a line cannot be drawn through ties
    for p, q, both in ((a, b, whole), (1 - a, 1 - b, 1 - partly)):
        for x, y in ((p, q), (q, p)):
            mean = x - e * y
            variance = np.maximum(x - 2 * e * both + e * e * y - mean * mean, 0.0)
            yield np.where(apart, (mean - z * np.sqrt(variance / n_test))[:, :-1], -np.inf)


def _half_line(threshold: float, left: bool) -> Membership:
    return lambda x, _smooth: np.asarray(x < threshold if left else x > threshold)


def _off_grid(offset: float, step: float) -> Membership:
    return lambda x, _smooth: ~on_lattice(x, offset, step)


def _kernel_set(merged: Merged, width: float, direction: int, e: float) -> Membership:
    """Where one density exceeds e times the other; of atoms, those seen often enough."""
    x, sides = merged.x[0], merged.sides()[0]
    smooth = np.ones(len(x), bool) if merged.smooth is None else merged.smooth[0]
    own = sides if direction == 1 else ~sides
    weights = np.where(own, 1.0, -e)
    atoms, index = np.unique(x[~smooth], return_inverse=True)
    frequent = atoms[np.bincount(index, weights[~smooth], len(atoms)) > 0] if len(atoms) else atoms

    def member(points: FloatArray, are_smooth: BoolArray) -> BoolArray:
        seen = np.any(np.abs(points[:, None] - frequent[None, :]) <= merged.tolerance, axis=1)
        kernel = np.exp(-np.abs(points[:, None] - x[smooth][None, :]) / width)
        return np.asarray(np.where(are_smooth, kernel @ weights[smooth] > 0, seen))

    return member
