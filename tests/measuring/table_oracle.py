"""What a whole table reveals of one person: slow and plain, written from the mathematics and not from the library.

Only the engine for one number is the library's (`empriv.measure` and its bounds, which have oracles of their own).
Notation: y (n, d) is the table of the others, D_k (d,) what the person adds on database k where they are there.

* Fit once: Y is y less its mean, r its rank, p = 1 + r, K = (n - p)(Y'Y)^+, the precision of the cells.
* A direction a carries ``t = Y K a/(a'K a)``, on which an influence D weighs ``D'K a/(a'K a)``.
* D outside the span of Y tells for certain: some combination of cells is constant, and not with the person.
* Upper bound: of the touched cells, those combinations W that lie in the span; C = (W'K W)^-1 = LL', the residuals
  Y K W C given everything else, innovations Z = g L^-1 of them; D = W c shifts them by L^-1 c. Each innovation is one
  number with bounds; the bounds of several are composed as if independent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product

import numpy as np
import numpy.typing as npt
from scipy import stats

import empriv

Array = npt.NDArray[np.float64]
LEVEL = 0.95
SMALLEST = 1e-9  # singular values below, in units of the largest, are rounding
OUTSIDE = 1e-7  # what of an influence lies outside the span and is not rounding
EPSILONS = (0.0, 0.05, 0.1, 0.2, 0.35, 0.6, 1.0, 1.5, 2.2, 3.2, 4.5, 6.5)
DAYS = 12  # of the present days that are looked at, by quantiles of their distance


@dataclass(frozen=True, eq=False)
class Fit:
    """A table less its mean, in cells scaled to spread 1.

    Attributes
    ----------
    y : (n, d) scaled and centred
    scale : (d,) what cells were divided by
    span : (d, r) orthonormal, the combinations of cells that vary
    precision : (d, d), K
    parameters : p, with the mean
    """

    y: Array
    scale: Array
    span: Array
    precision: Array
    parameters: int

    @property
    def share(self) -> float:
        return self.parameters / len(self.y)

    @property
    def widening(self) -> float:
        """g: residuals of p parameters are too small or too normal, and the upper bound takes them smaller still."""
        return min(1.0, ((1 - self.share) * (1 + 3 * self.share)) ** -0.5)


def fit(table: Array) -> Fit:
    n = len(table)
    centred = table - table.mean(axis=0)
    spread = centred.std(axis=0)
    scale = np.where(spread > 1e-12 * np.abs(table).max(axis=0, initial=1e-300), spread, 1.0)
    y = centred / scale
    y[:, spread <= 1e-12 * np.abs(table).max(axis=0, initial=1e-300)] = 0.0
    _, s, v = np.linalg.svd(y, full_matrices=False)
    r = int(np.count_nonzero(s > SMALLEST * s.max(initial=0.0))) if s.max(initial=0.0) > 0 else 0
    p = 1 + r
    span = v[:r].T
    precision = (n - p) * (span / s[:r] ** 2) @ span.T
    return Fit(y, scale, span, precision, p)


def leaves_span(fitted: Fit, influence: Array) -> bool:
    """Whether the influence is outside of what the table of the others spans."""
    scaled = influence / fitted.scale
    outside = scaled - fitted.span @ (fitted.span.T @ scaled)
    return bool(np.linalg.norm(outside) > OUTSIDE * np.linalg.norm(scaled))


def direction(fitted: Fit, influence: Array) -> Array:
    """(n,) the number that tells most of this influence (all, if cells are normal), on which it weighs 1."""
    a = influence / fitted.scale
    loaded = fitted.precision @ a
    return np.asarray(fitted.y @ loaded / (a @ loaded))


def distance(fitted: Fit, influence: Array) -> float:
    """sqrt(D'K D): how many standard deviations apart the tables are."""
    a = influence / fitted.scale
    return math.sqrt(max(0.0, float(a @ fitted.precision @ a)))


def innovations(fitted: Fit, touched: npt.NDArray[np.int64], influence: Array) -> tuple[Array, Array]:
    """(n, m) residuals of what is touched, uncorrelated and of spread 1 times g, and (m,) how far they are shifted."""
    d = fitted.y.shape[1]
    cells = np.eye(d)[:, touched]
    outside = cells - fitted.span @ (fitted.span.T @ cells)
    _, s, v = np.linalg.svd(outside, full_matrices=True)
    inside = reduced(v[np.count_nonzero(s > OUTSIDE) :])
    w = cells @ inside.T
    c = np.linalg.inv(w.T @ fitted.precision @ w)
    root = np.linalg.cholesky(c)
    residuals = fitted.y @ fitted.precision @ w @ c
    amounts = np.linalg.lstsq(w, influence / fitted.scale, rcond=None)[0]
    return fitted.widening * np.linalg.solve(root, residuals.T).T, np.linalg.solve(root, amounts)


def reduced(rows: Array) -> Array:
    """The same span in echelon form: single cells where they can be had, which a rotation would mix.

    What is left of cells that are not normal is independent, if at all, cell by cell.
    """
    out, pivot = rows.copy(), 0
    for column in range(out.shape[1]):
        if pivot == len(out):
            break
        best = pivot + int(np.argmax(np.abs(out[pivot:, column])))
        if abs(out[best, column]) < OUTSIDE:
            continue
        out[[pivot, best]] = out[[best, pivot]]
        out[pivot] /= out[pivot, column]
        for row in range(len(out)):
            if row != pivot:
                out[row] -= out[row, column] * out[pivot]
        pivot += 1
    return out


# One number ----------------------------------------------------------------------------------------------------------


def upper_curve(residual: Array, shift: Array | float) -> Array:
    """Upper bounds of one number that the person moves by ``shift``, at `EPSILONS`."""
    if not np.any(shift):
        return np.zeros(len(EPSILONS))
    risk = empriv.measure(residual + shift, residual[None])
    return np.asarray(risk.bounds(np.array(EPSILONS), LEVEL).upper_i[0])


def estimated(residual: Array, shift: Array | float, epsilon: float) -> float:
    return float(empriv.measure(residual + shift, residual[None]).delta(epsilon))


# Composing bounds ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Two laws on a few outcomes, likelihood ratio by likelihood ratio: masses under q, and what q never gives."""

    ratios: Array
    masses: Array  # under q
    certain: float  # under p alone

    def curve(self, ratio: float) -> float:
        """sup over sets of p - ratio q."""
        return self.certain + float(np.maximum(self.ratios - ratio, 0.0) @ self.masses)


def dominating(upper: Array) -> Pair:
    """A pair whose hockey sticks are nowhere below bounds at `EPSILONS`, in both directions.

    At a ratio a = e^epsilon the stick is at most U, and at 1/a at most 1 - 1/a + U/a. A stick is convex in the
    ratio, so the greatest convex function below the bounds is nowhere below it; its kinks are the outcomes of the pair.
    """
    points = {0.0: 1.0}
    for epsilon, value in zip(EPSILONS, np.minimum(upper, 1.0).tolist(), strict=True):
        a = math.exp(epsilon)
        points[a] = value
        points[1 / a] = min(points.get(1 / a, 1.0), 1 - 1 / a + value / a)
    x = sorted(points)
    hull: list[float] = []
    for at in x:  # lower convex hull
        while len(hull) > 1:
            a, b = hull[-2], hull[-1]
            if (points[b] - points[a]) * (at - a) >= (points[at] - points[a]) * (b - a):
                hull.pop()
            else:
                break
        hull.append(at)
    low = min(range(len(hull)), key=lambda k: points[hull[k]])
    hull = hull[: low + 1]  # beyond the least bound the stick is at most that
    slopes = np.array([(points[b] - points[a]) / (b - a) for a, b in pairwise(hull)] + [0.0])
    masses = np.concatenate(([1 + slopes[0]], np.diff(slopes)))
    return Pair(np.array(hull), np.maximum(masses, 0.0), points[hull[-1]])


def composed(pairs: Sequence[Pair], epsilon: float) -> float:
    """The stick of several independent numbers: every combination of their outcomes."""
    if len(pairs) == 1:
        return min(1.0, pairs[0].curve(math.exp(epsilon)))
    seen = 1.0
    for pair in pairs:
        seen *= 1.0 - pair.certain
    total = 1.0 - seen
    for combination in product(*(range(len(pair.ratios)) for pair in pairs)):
        ratio = math.prod(float(pair.ratios[k]) for pair, k in zip(pairs, combination, strict=True))
        mass = math.prod(float(pair.masses[k]) for pair, k in zip(pairs, combination, strict=True))
        total += mass * max(ratio - math.exp(epsilon), 0.0)
    return min(1.0, total)


# One person ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figures:
    """delta of one person, there and on a random day, and the share of days that tell for certain."""

    there: float
    there_upper: float
    random_day: float
    random_day_upper: float
    leaks: float


def looked_at(fitted: Fit, influences: Array) -> tuple[Array, Array]:
    """The days that are looked at, by quantiles of their distance, and their weights."""
    _, place, counts = np.unique(influences, axis=0, return_index=True, return_counts=True)
    if len(place) <= DAYS:
        return influences[place], counts / counts.sum()
    far = np.argsort([distance(fitted, d) for d in influences], kind="stable")
    # the upper end of each part stands for it: rounds up
    ends = np.ceil(np.arange(1, DAYS + 1) * len(far) / DAYS).astype(int) - 1
    return influences[far[ends]], np.full(DAYS, 1 / DAYS)


def figures(others: Array, added: Array, there: npt.NDArray[np.bool_], epsilon: float) -> Figures:
    """All figures of somebody who adds ``added`` (n, d) to the table of the others where they are there."""
    fitted = fit(others)
    n, days = len(others), added[there]
    share = len(days) / n
    leaking = np.array([leaves_span(fitted, d) for d in days])
    leaks = float(leaking.mean()) if len(days) else 0.0
    if leaks == 1.0:
        return Figures(1.0, 1.0, share, limit_of_share(len(days), n), leaks)
    quiet, weights = looked_at(fitted, days[~leaking])
    pairs = [pairs_of(fitted, d) for d in quiet]
    estimates = np.array([estimated(direction(fitted, d), 1.0, epsilon) for d in quiet])

    def upper(at: float) -> float:
        return leaks + (1 - leaks) * float(weights @ np.array([composed(pair, at) for pair in pairs]))

    most = 1.0 if len(days) == n else limit_of_share(len(days), n)
    return Figures(
        there=leaks + (1 - leaks) * float(weights @ estimates),
        there_upper=upper(epsilon),
        random_day=random_day_estimate(fitted, added, epsilon),
        random_day_upper=unconditional(upper, most, epsilon),
        leaks=leaks,
    )


def pairs_of(fitted: Fit, influence: Array) -> list[Pair]:
    """The dominating pair of each innovation."""
    residuals, shifts = innovations(fitted, np.flatnonzero(influence), influence)
    return [dominating(upper_curve(z, float(w))) for z, w in zip(residuals.T, shifts, strict=True)]


def unconditional(upper: Callable[[float], float], share: float, epsilon: float) -> float:
    """The bound of somebody who is there with at most this probability, from the bound where they are there.

    ``∫((1-s)p + s p_D - a p)_+ = s ∫(p_D - (1 + (a-1)/s) p)_+`` and
    ``∫(p - a((1-s)p + s p_D))_+ = x ∫(p - (a s/x) p_D)_+`` with ``x = 1 - a(1-s)``, if that is positive.
    """
    a = math.exp(epsilon)
    out = share * upper(math.log1p((a - 1) / share))
    x = 1 - a * (1 - share)
    return max(out, x * upper(math.log(a * share / x))) if x > 0 else out


def random_day_estimate(fitted: Fit, added: Array, epsilon: float) -> float:
    """From below: the direction of the summed influence, audited as it is on every day."""
    whole = added.sum(axis=0)
    if not whole.any() or leaves_span(fitted, whole):
        return float(np.mean(added.any(axis=1)))
    a = whole / fitted.scale
    loaded = fitted.precision @ a / (a @ fitted.precision @ a)
    return estimated(direction(fitted, whole), (added / fitted.scale) @ loaded, epsilon)


def limit_of_share(count: int, n: int) -> float:
    """Clopper and Pearson's upper limit."""
    return 1.0 if count == n else float(stats.beta.ppf(LEVEL, count + 1, n - count))


# Cells that are not normal -------------------------------------------------------------------------------------------


def largest_of_menu(others: Array, cell: int, amount: float, epsilon: float) -> tuple[float, float]:
    """Estimate and upper bound of somebody who always adds the same to one cell: the largest over the cell alone, and
    all cells as they are, as square roots and as logarithms. A hockey stick is the same under any of them; the
    regression is not."""
    moved = others.copy()
    moved[:, cell] += amount
    menu: list[Callable[[Array], Array]] = [lambda y: y]
    if others.min() >= 0:
        menu.append(np.sqrt)
        menu.append(lambda y: np.log(y + 0.5) if others.min() == 0 else np.log(y))
    out = [(estimated(others[:, cell], amount, epsilon), alone(others[:, cell], amount, epsilon))]
    for transform in menu:
        fitted = fit(transform(others))
        unit = np.eye(others.shape[1])[cell] * fitted.scale
        residual = direction(fitted, unit)
        shift = (transform(moved) - transform(others))[:, cell] / fitted.scale[cell]
        upper = (
            empriv.measure(fitted.widening * residual + shift, fitted.widening * residual[None])
            .bounds(epsilon, LEVEL)
            .upper
        )
        out.append((estimated(residual, shift, epsilon), float(upper)))
    return max(e for e, _ in out), max(u for _, u in out)


def alone(cell: Array, amount: float, epsilon: float) -> float:
    return float(empriv.measure(cell + amount, cell[None]).bounds(epsilon, LEVEL).upper)
