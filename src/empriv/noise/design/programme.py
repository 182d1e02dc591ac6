"""The least noise that keeps given rows: one scale by bisection, or a mixture of scales by linear programming.

Noise is a list of (weight, scale) with scale 0 for the point mass, scales in units of the result. `search`
chooses the rows; the noise found here is checked on them exactly, and certified later by `certify`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from empriv.noise.design.constrained_rows import ConstrainedRows, Needs, Parts, Totals, component, tail_steps
from empriv.results import FloatArray, IntArray

_CUTS = 48  # rows cut in one round
_ROUNDS = 60
_TOLERANCE = 1e-7  # of a cut; what is left is fixed by mixing
_TOTAL_TOLERANCE = 1e-4  # the same for sums over individuals, whose cuts only touch a curved set
_CERTAIN = 1.0 - 1e-6  # delta_i above are treated alike: their logarithm would rule every cut
_LEAST_WEIGHT = 1e-7
_STEEPEST = -1e4  # coefficients below are clipped: a solver loses small violations beside large numbers


def expected_error(parts: Parts, cell: float) -> float:
    """E|noise| of discrete laws on the multiples of ``cell``: 2 a/(1 - a²) cells for a = exp(-cell/scale)."""
    return float(sum(weight * cell / np.sinh(cell / scale) for weight, scale in parts if scale > 0))


def noisy(rows: ConstrainedRows, parts: Parts, *, steps: IntArray, pointwise: bool) -> tuple[FloatArray, FloatArray]:
    """Both sides of every row after noise; columns are those of `constraints.component`."""
    sides = []
    first, which = rows.distinct
    for masses in (rows.p[first], rows.q):
        total = None
        for weight, scale in parts:
            convolved = component(masses, scale / rows.cell, numbers=rows.numbers, steps=steps, pointwise=pointwise)
            convolved *= weight
            total = convolved if total is None else total + convolved
        assert total is not None
        sides.append(total)
    return sides[0][which], sides[1]


def excess(p: FloatArray, q: FloatArray, e: FloatArray, delta: float) -> FloatArray:
    """(rows,) by how much each row exceeds its target, in the worse direction; at most 0 where it is kept.

    delta > 0: hockey stick less delta. delta = 0: largest log ratio less epsilon.
    """
    if delta > 0:
        return np.asarray(np.maximum(*_sticks(p, q, e)) - delta)
    return np.asarray(np.maximum(_log_ratio(p, q).max(axis=1), _log_ratio(q, p).max(axis=1)) - np.log(e))


def _sticks(p: FloatArray, q: FloatArray, e: FloatArray) -> tuple[FloatArray, FloatArray]:
    """(rows,) sum of what p has above e q, and of what q has above e p."""
    e = e[:, None]
    return np.maximum(p - e * q, 0.0).sum(1), np.maximum(q - e * p, 0.0).sum(1)


def _log_ratio(p: FloatArray, q: FloatArray) -> FloatArray:
    """log p/q; nothing where p is too small to be told from rounding."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(p > 1e-290, np.log(p / np.maximum(q, 1e-300)), -np.inf)


def sums(totals: Totals, p: FloatArray, q: FloatArray) -> FloatArray:
    """(groups,) by how much each sum over individuals of -log(1 - delta_i) exceeds its limit."""
    sums_now = np.bincount(totals.group, totals.share * _logs(_deltas(p, q, totals.rows.e)))
    return np.asarray(sums_now - totals.most, float)


def _deltas(p: FloatArray, q: FloatArray, e: FloatArray) -> FloatArray:
    return np.minimum(np.maximum(*_sticks(p, q, e)), _CERTAIN)


def _logs(delta_i: FloatArray) -> FloatArray:
    return -np.log1p(-delta_i)


def worst(needs: Needs, parts: Parts) -> float:
    """By how much any need is exceeded under this noise; at most 0 where all are kept."""
    steps = tail_steps(max(scale for _, scale in parts) / needs.rows.cell)
    largest = excess(*_noisy_sides(needs.rows, parts, steps, needs.delta), needs.rows.e, needs.delta).max(
        initial=-np.inf
    )
    if needs.totals is not None and largest <= 0.0:
        largest = sums(needs.totals, *_noisy_sides(needs.totals.rows, parts, steps, 1.0)).max()
    return float(largest)


def _noisy_sides(rows: ConstrainedRows, parts: Parts, steps: IntArray, delta: float) -> tuple[FloatArray, FloatArray]:
    return noisy(rows, parts, steps=steps, pointwise=delta == 0)


def limit(needs: Needs) -> float:
    """The same under boundless noise: only categories and the mass of all numbers are left."""

    def left(rows: ConstrainedRows) -> tuple[FloatArray, FloatArray]:
        p, q = (np.column_stack((m[:, : rows.numbers].sum(1), m[:, rows.numbers :])) for m in (rows.p, rows.q))
        return p, q

    largest = float(excess(*left(needs.rows), needs.rows.e, needs.delta).max(initial=-np.inf))
    if needs.totals is not None:
        largest = max(largest, float(sums(needs.totals, *left(needs.totals.rows)).max()))
    return largest


def smallest_scale(holds: Callable[[float], bool], start: float, *, tolerance: float = 1e-5) -> float | None:
    """The least scale that holds, by doubling and bisection; ends on one that does. None if none is found.

    Whether wider noise always serves better is not guaranteed on a lattice: what is returned was tried.
    """
    high = start
    for _ in range(60):
        if holds(high):
            break
        high *= 2.0
    else:
        return None
    low = high / 2.0
    for _ in range(60):
        if not holds(low):
            break
        high, low = low, low / 2.0
    else:
        return high
    while high / low > 1.0 + tolerance:
        middle = float(np.sqrt(low * high))
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def calibrate(needs: Needs, start: float, *, tolerance: float = 1e-5) -> float | None:
    """The least scale of a single Laplace law that keeps every need."""
    least = needs.rows.cell * 2.0**-6

    def holds(scale: float) -> bool:
        return scale > least and worst(needs, [(1.0, scale)]) <= 0.0

    return smallest_scale(holds, start, tolerance=tolerance)


def ladder(calibrated: float, narrowest: float, widest: float) -> FloatArray:
    """Scales around the calibrated one, a third of an octave apart near it and half an octave far below."""
    near = calibrated * 2.0 ** (np.arange(-9, 10) / 3.0)
    far = calibrated * 2.0 ** (np.arange(-30, -6) / 2.0)
    scales = np.unique(np.concatenate((near, far)))
    keep = (scales >= min(narrowest, calibrated)) & (scales <= max(widest, calibrated) * 1.001)
    return np.asarray(scales[keep])


def optimise(needs: Needs, calibrated: float, scales: FloatArray) -> list[tuple[float, float]]:
    """The mixture of a point mass and Laplace laws of these scales with the least expected error that keeps every need.

    Cutting planes: the hockey stick is convex in the weights nu, so with S the set where a row exceeds now,
    ``sum_k nu_k sum_{x in S} (p_k - e^eps q_k)(x) <= delta`` holds for every admissible nu; at delta = 0 the sets are
    single cells. The sum of -log(1 - delta_i) is convex too, and is cut by its tangent. The result is mixed with
    the least share of the calibrated law that keeps every need exactly, so it never has the larger error.
    """
    from scipy.optimize import linprog

    rows, delta, totals = needs.rows, needs.delta, needs.totals
    every = np.concatenate(([0.0], scales))
    steps = tail_steps(float(scales[-1]) / rows.cell)
    cost = np.array([0.0 if s == 0 else rows.cell / np.sinh(rows.cell / s) for s in every])
    cost = cost / cost.max()
    base = [(1.0, calibrated)]
    parts: list[tuple[float, float]] = [(0.99, 0.0), (0.01, calibrated)]
    cuts: list[FloatArray] = []
    limits: list[FloatArray] = []
    best = base
    for _ in range(_ROUNDS):
        new = [_cuts(rows, *_noisy_sides(rows, parts, steps, delta), every, delta, steps)]
        if totals is not None:
            new.append(_tangents(totals, *_noisy_sides(totals.rows, parts, steps, 1.0), every, steps))
        if not any(len(bounds) for _, bounds in new):
            best = parts
            break
        cuts += [coefficients for coefficients, _ in new]
        limits += [bounds for _, bounds in new]
        answer = linprog(
            cost,
            A_ub=np.concatenate(cuts),
            b_ub=np.concatenate(limits),
            A_eq=np.ones((1, len(every))),
            b_eq=[1.0],
            bounds=(0.0, 1.0),
            method="highs-ds",
            options={"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10},
        )
        if answer.status != 0 or answer.x is None:
            break
        weights = np.where(answer.x < _LEAST_WEIGHT, 0.0, answer.x)
        weights /= weights.sum()
        parts = [(float(w), float(s)) for w, s in zip(weights, every, strict=True) if w > 0]
        best = parts
    return _mix_in_base(needs, best, base, steps)


def _cuts(
    rows: ConstrainedRows, p: FloatArray, q: FloatArray, every: FloatArray, delta: float, steps: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Coefficients and right-hand sides of cuts for the rows that exceed most now."""
    e = rows.e
    chosen: list[tuple[FloatArray, FloatArray]] = []
    for direction in (0, 1):
        a, b = (p, q) if direction == 0 else (q, p)
        raw_a, raw_b = (rows.p, rows.q) if direction == 0 else (rows.q, rows.p)
        if delta > 0:
            over = np.maximum(a - e[:, None] * b, 0.0).sum(1) - delta
            picked = np.flatnonzero(over > _TOLERANCE * delta)
        else:
            ratio = _log_ratio(a, b) - np.log(e)[:, None]
            over = ratio.max(axis=1)
            picked = np.flatnonzero(over > _TOLERANCE)
        picked = picked[np.argsort(-over[picked], kind="stable")[:_CUTS]]
        if not len(picked):
            continue
        signed = raw_a[picked] - e[picked, None] * raw_b[picked]
        if delta > 0:
            sets = (a[picked] > e[picked, None] * b[picked]).astype(float)[None]
        else:
            sets = _single_cells(ratio[picked], a[picked])
        coefficients = np.empty((sets.shape[0] * len(picked), len(every)))
        for k, scale in enumerate(every):
            convolved = component(signed, scale / rows.cell, numbers=rows.numbers, steps=steps, pointwise=delta == 0)
            coefficients[:, k] = np.einsum("srx,rx->sr", sets, convolved).ravel()
        used = sets.any(axis=2).ravel()
        chosen.append((np.maximum(coefficients[used], _STEEPEST), np.full(used.sum(), delta)))
    if not chosen:
        return np.empty((0, len(every))), np.empty(0)
    return np.concatenate([left for left, _ in chosen]), np.concatenate([right for _, right in chosen])


def _single_cells(ratio: FloatArray, density: FloatArray) -> FloatArray:
    """(4, rows, cells): for each row the highest peaks above the limit, each divided by the density there.

    Dividing by the present density keeps violations far out in the tails from hiding under the solver's tolerance.
    """
    padded = np.pad(ratio, ((0, 0), (1, 1)), constant_values=-np.inf)
    peaks = (ratio >= padded[:, :-2]) & (ratio >= padded[:, 2:]) & (ratio > _TOLERANCE)
    height = np.where(peaks, ratio, -np.inf)
    out = np.zeros((4, *ratio.shape))
    lines = np.arange(len(ratio))
    for k in range(4):
        at = height.argmax(axis=1)
        finite = np.isfinite(height[lines, at])
        out[k, lines[finite], at[finite]] = 1.0 / density[lines[finite], at[finite]]
        height[lines, at] = -np.inf
    return out


def _tangents(
    totals: Totals, p: FloatArray, q: FloatArray, every: FloatArray, steps: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Tangents of the sums that exceed their limit, sum_i s_i [f(d_i) + f'(d_i) (c_i nu - d_i)] <= limit.

    f is -log(1 - d), and c_i nu, linear in the weights, is a lower bound of delta_i that is exact here.
    """
    rows, groups = totals.rows, totals.group.max() + 1
    e = rows.e[:, None]
    backwards = np.less(*_sticks(p, q, rows.e))
    delta_i = _deltas(p, q, rows.e)
    slope = totals.share / (1.0 - delta_i)
    over = sums(totals, p, q) > _TOTAL_TOLERANCE * totals.most
    exceeding = np.flatnonzero(over[totals.group] & (delta_i > 0.0))  # the others' tangents are 0
    if not len(exceeding):
        return np.empty((0, len(every))), np.empty(0)
    turned = backwards[exceeding, None]
    a, b = np.where(turned, q[exceeding], p[exceeding]), np.where(turned, p[exceeding], q[exceeding])
    signed = np.where(turned, rows.q[exceeding], rows.p[exceeding]) - e[exceeding] * np.where(
        turned, rows.p[exceeding], rows.q[exceeding]
    )
    inside = a > e[exceeding] * b
    coefficients = np.empty((groups, len(every)))
    for k, scale in enumerate(every):
        convolved = component(signed, scale / rows.cell, numbers=rows.numbers, steps=steps, pointwise=False)
        linear = np.einsum("rx,rx->r", inside, convolved)
        coefficients[:, k] = np.bincount(totals.group[exceeding], slope[exceeding] * linear, groups)
    constant = totals.share * _logs(delta_i) - slope * delta_i
    right = totals.most - np.bincount(totals.group, constant, groups)
    largest = np.zeros(groups)
    np.maximum.at(largest, totals.group[exceeding], slope[exceeding])  # near-certain individuals have enormous slopes
    return coefficients[over] / largest[over, None], right[over] / largest[over]


def _mix_in_base(
    needs: Needs, parts: list[tuple[float, float]], base: list[tuple[float, float]], steps: IntArray
) -> list[tuple[float, float]]:
    """Mix in the least share of ``base``, which keeps every need, so that the mixture does too: needs are convex."""
    rows, delta, totals = needs.rows, needs.delta, needs.totals
    p, q = _noisy_sides(rows, parts, steps, delta)
    bad: npt.NDArray[np.bool_] = excess(p, q, rows.e, delta) > 0.0
    few = ConstrainedRows(rows.p[bad], rows.q[bad], rows.e[bad], (), rows.numbers, rows.cell)
    pairs = [(few, (p[bad], q[bad]), _noisy_sides(few, base, steps, delta))]
    if totals is not None:
        pairs.append(
            (totals.rows, _noisy_sides(totals.rows, parts, steps, 1.0), _noisy_sides(totals.rows, base, steps, 1.0))
        )

    def kept(share: float) -> bool:
        for k, (constrained, ours, bases) in enumerate(pairs):
            p, q = ((1 - share) * side + share * base_side for side, base_side in zip(ours, bases, strict=True))
            over = excess(p, q, constrained.e, delta) if k == 0 or totals is None else sums(totals, p, q)
            if over.max(initial=-np.inf) > 0.0:
                return False
        return True

    if kept(0.0):
        return parts
    low, high = 0.0, 1.0
    while high - low > 1e-6:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if kept(middle) else (middle, high)
    return mixture([(1.0 - high, parts), (high, base)])


def mixture(laws: list[tuple[float, list[tuple[float, float]]]]) -> list[tuple[float, float]]:
    """One list of parts from several, each with its share."""
    total: dict[float, float] = {}
    for share, parts in laws:
        for weight, scale in parts:
            total[scale] = total.get(scale, 0.0) + share * weight
    return [(weight, scale) for scale, weight in sorted(total.items()) if weight > 0.0]
