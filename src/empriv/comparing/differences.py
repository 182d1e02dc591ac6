"""Which differences between protocols are real: more than chance and smoothing (docs/compare.md, "Differences").

Databases are halved at random, again and again, with the same halves for all protocols; on each half everything is
done anew: the density, its bandwidth, the most exposed individual. The spread of a difference over halves is the
standard error of the difference on all databases (a delete-half jackknife). A bootstrap would not give it: a database
drawn twice is a tie, and ties pull bandwidths towards 0. Smoothing is varied too: half and double the bandwidth, and
answers on a normal scale, since delta is the same on any scale of the answers but its estimate is not. The interval of
a difference covers all of that, and all intervals hold together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import combinations

import numpy as np

from empriv.base.arguments import confidence_level
from empriv.base.progress import progress
from empriv.errors import InputError
from empriv.measuring.contract import RiskContract
from empriv.measuring.densities.density import Density, Mixture, is_literal
from empriv.measuring.line.atoms import Pairs, split
from empriv.measuring.line.risk import Risk, risk_of_pairs
from empriv.results import FloatArray, IntArray, Outcome, Results
from empriv.validate.checks.robustness import risk_of_rows, scaled, subset
from empriv.words.side_by_side import NONE, REAL, UNTOLD, difference_sentence

FIGURES = ("delta", "total_risk")
HALVES = 100
LEAST_DATABASES = 12  # with fewer, a half says nothing
_RISKIEST = 40  # measured anew on every half, at each epsilon
_OTHERS = 160  # of the others, this many drawn at random stand for all of them in total risk
_POINTS = 200  # of a randomised protocol on a half: fewer draws, which makes intervals wider
_MARGIN = 0.1  # of the larger figure: more than normalising was seen to leave of the old scale (docs/compare.md)
_ROUNDING = 1e-12  # smaller differences come from the order of sums
_SCALES = (0.5, 2.0)
_LEVELS = np.array([0.02, 0.1, 0.25, 0.5, 0.75, 0.9, 0.98])


@singledispatch
def comparable(risk: RiskContract) -> Risk | None:  # noqa: ARG001 — no other kind is
    """The risk, if its differences can be judged; None for several numbers, and for risks given knowledge."""
    return None


@comparable.register
def _(risk: Risk) -> Risk | None:
    return risk


@dataclass(frozen=True)
class Difference:
    """How much more one protocol risks than another, with an interval.

    Made by `empriv.compare`: one of `Comparison.differences`.

    Attributes
    ----------
    epsilon, figure : what is compared; figure is "delta" or "total_risk"
    first, second : names of the protocols
    difference : the figure of the first minus that of the second
    lower, upper : the interval that chance and smoothing leave, at the level of all intervals together
    verdict : "real" if the interval leaves 0 out; "none" if the two never differ; else "cannot be told"

    Examples
    --------
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 60)
    >>> raw = empriv.Results.from_arrays(q, [q - 1.0])
    >>> rounded = empriv.Results.from_arrays(q.round(-1), [(q - 1.0).round(-1)])
    >>> comparison = empriv.compare({"raw": raw, "rounded": rounded}, truth="raw", epsilon=0.1)
    >>> comparison.differences(0.1)[0].verdict
    'cannot be told'
    """

    epsilon: float
    figure: str
    first: str
    second: str
    difference: float
    lower: float
    upper: float
    verdict: str

    @property
    def sentence(self) -> str:
        """In plain words."""
        interval = self.difference, self.lower, self.upper
        return difference_sentence(self.verdict, self.figure, self.epsilon, (self.first, self.second), interval)


@dataclass(frozen=True, eq=False)
class _Part:
    """One protocol as it is measured anew: a sample of its individuals, with how many people each stands for."""

    results: Results
    weights: FloatArray
    order: IntArray  # positions of the databases, in an order common to all protocols
    density: Density
    seen: Pairs  # on all databases: a half is too small to look for last digits and changed spreads anew

    def pairs_of(self, results: Results) -> Pairs:
        """Pairs of these individuals, with last digits and changes of the spread as they were seen."""
        pairs = split(results, look=not is_literal(self.density))
        return replace(
            pairs, people=results.n_individuals, residues=self.seen.residues, sure_residues=self.seen.sure_residues,
            ratios=self.seen.ratios,
        )  # fmt: skip


def differences(
    risks: Mapping[str, Risk],
    orders: Mapping[str, IntArray],
    densities: Mapping[str, Density],
    epsilons: Sequence[float],
    *,
    level: float = 0.95,
    rng: int = 0,
    show: bool | None = None,
) -> tuple[Difference, ...]:
    """Differences of delta and total risk of every pair, at every epsilon.

    Parameters
    ----------
    risks : what was measured of each protocol
    orders : positions of each one's databases, in an order common to all
    densities : the density that each was measured with
    epsilons : rising
    level : confidence with which all intervals hold together
    rng : seed of the halves
    show : a progress bar; None shows it if the work takes long
    """
    confidence_level(level)
    grid = np.asarray(epsilons, float)
    names = list(risks)
    pairs = list(combinations(range(len(names)), 2))
    exact = np.stack([[risk.delta(grid), risk.total_risk(grid)] for risk in risks.values()])
    n = len(next(iter(orders.values())))
    difference = exact[[a for a, _ in pairs]] - exact[[b for _, b in pairs]]  # (pairs, figures, epsilons)
    if n < LEAST_DATABASES:
        lower, upper = np.full(difference.shape, -1.0), np.full(difference.shape, 1.0)
    else:
        generator = np.random.default_rng(rng)
        parts = [_part(risks[k], orders[k], densities[k], grid, rng) for k in names]
        views = np.stack([_views(part, part.order, grid, _SCALES) for part in parts])
        half = n // 2
        halved = np.empty((HALVES, len(names), 2, 2, len(grid)))
        with progress(HALVES * len(names), "Halving databases", show=show) as advance:
            for k in range(HALVES):
                drawn = generator.permutation(n)[:half]
                for place, part in enumerate(parts):
                    halved[k, place] = _views(part, part.order[drawn], grid)
                    advance()
        first, second = [a for a, _ in pairs], [b for _, b in pairs]
        apart, halves = views[first] - views[second], halved[:, first] - halved[:, second]
        # What normalising leaves of the old scale; nothing where the two never differ.
        margin = _MARGIN * np.maximum(views[first], views[second])[:, :2].max(axis=1)
        margin[(np.abs(halves) < _ROUNDING).all(axis=(0, 2)) & (np.abs(apart) < _ROUNDING).all(axis=1)] = 0.0
        lower, upper = _intervals(difference, apart, halves, margin, share=half / (n - half), n=n, level=level)
    difference, lower, upper = (np.where(np.abs(ends) < _ROUNDING, 0.0, ends) for ends in (difference, lower, upper))
    return tuple(
        Difference(
            epsilon=float(grid[e]),
            figure=figure,
            first=names[a],
            second=names[b],
            difference=float(difference[p, f, e]),
            lower=float(lower[p, f, e]),
            upper=float(upper[p, f, e]),
            verdict=_verdict(difference[p, f, e], lower[p, f, e], upper[p, f, e]),
        )
        for e in range(len(grid))
        for f, figure in enumerate(FIGURES)
        for p, (a, b) in enumerate(pairs)
    )


def _verdict(difference: float, lower: float, upper: float) -> str:
    if difference == lower == upper == 0.0:
        return NONE
    return REAL if lower > 0 or upper < 0 else UNTOLD


def _intervals(
    difference: FloatArray,
    views: FloatArray,
    halved: FloatArray,
    margin: FloatArray,
    *,
    share: float,
    n: int,
    level: float,
) -> tuple[FloatArray, FloatArray]:
    """(pairs, figures, epsilons) lower and upper ends.

    ``views`` is (pairs, 2 + scales, figures, epsilons): as the answers are, normalised, and both again at other
    bandwidths; ``halved`` is (halves, pairs, 2, figures, epsilons), ``margin`` (pairs, figures, epsilons). A half on
    which a protocol could not be measured is NaN, and the interval is then the widest possible.
    """
    from scipy import special  # scipy.stats has the same quantiles, but takes a second to import

    centres = np.concatenate((difference[:, None], views[:, 1:2]), axis=1)
    spread = halved.std(axis=0, ddof=1)
    with np.errstate(invalid="ignore", divide="ignore"):
        away = np.where(spread < _ROUNDING, 0.0, np.abs(halved - halved.mean(axis=0)) / spread)
    largest = np.nan_to_num(away, nan=0.0).reshape(len(halved), -1).max(axis=1)
    # The largest deviation of all, and never less than one interval alone would need; t quantiles, for n databases.
    alone, normal = float(special.stdtrit(n - 1, 0.5 + level / 2)), float(special.ndtri(0.5 + level / 2))
    factor = max(alone, float(np.quantile(largest, level)) * alone / normal)
    reach = np.hypot(factor * np.sqrt(share) * spread, margin[:, None])
    lower = np.minimum((centres - reach).min(axis=1), views[:, 2:].min(axis=1))
    upper = np.maximum((centres + reach).max(axis=1), views[:, 2:].max(axis=1))
    unknown = np.isnan(lower) | np.isnan(upper)
    return np.where(unknown, -1.0, np.maximum(lower, -1.0)), np.where(unknown, 1.0, np.minimum(upper, 1.0))


def _part(risk: Risk, order: IntArray, density: Density, grid: FloatArray, seed: int) -> _Part:
    """The riskiest at each epsilon, and a sample of the others that stands for all of them."""
    delta_i = risk.delta_i(grid)
    n = len(delta_i)
    riskiest = np.unique([np.lexsort((-risk.shifts, -column))[:_RISKIEST] for column in delta_i.T])
    rest = np.setdiff1d(np.arange(n), riskiest)
    drawn = np.sort(np.random.default_rng(seed).permutation(rest)[:_OTHERS])
    rows = np.concatenate((riskiest, drawn)).astype(np.int64)
    weights = np.concatenate((np.ones(len(riskiest)), np.full(len(drawn), len(rest) / max(1, len(drawn)))))
    results = subset(risk.results, rows)
    seen = risk_of_rows(risk, rows).pairs
    # The first draws of each: protocols that draw the same random numbers go on doing so.
    return _Part(_fewer_draws(results, max(1, 2 * _POINTS // results.n_databases)), weights, order, density, seen)


def _fewer_draws(results: Results, most: int) -> Results:
    if results.draws is None or results.draws <= most:
        return results
    return replace(
        results,
        q=results.q[:, :most],
        outcomes=results.outcomes[:, :most],
        entry_q=results.entry_q[:, :most],
        entry_outcomes=results.entry_outcomes[:, :most],
        draws=most,
    )


def _views(part: _Part, databases: IntArray, grid: FloatArray, scales: Sequence[float] = ()) -> FloatArray:
    """(2 + scales, figures, epsilons): figures of answers as they are and normalised, then at other bandwidths."""
    half = part.results.on_databases(np.sort(databases))
    literal = is_literal(part.density)  # a stated bandwidth was not chosen by us, and is in the unit of the answers
    # on a normal scale last digits are gone
    looks = [half, half if literal or part.seen.sure_residues else normalise(half)]
    out = np.full((2 + 2 * len(scales), 2, len(grid)), np.nan)
    for k, look in enumerate(looks):
        if k and look is half:  # not changed: the same figures again
            out[1::2] = out[::2]
            continue
        try:
            risk = risk_of_pairs(look, part.pairs_of(look), part.density)
        except InputError:  # these answers cannot be measured with this density
            continue
        out[k] = _figures(risk, part.weights, grid)
        for s, scale in enumerate(scales):
            other = scaled(risk, scale) if isinstance(risk.density, Mixture) and not literal else risk
            out[2 + 2 * s + k] = _figures(other, part.weights, grid)
    return out


def _figures(risk: Risk, weights: FloatArray, grid: FloatArray) -> FloatArray:
    # A bandwidth far too small for some gap makes ratios of densities that overflow, rightly, to infinity.
    with np.errstate(divide="ignore", over="ignore"):
        delta_i = risk.delta_i(grid)
        total = -np.expm1(weights @ np.log1p(-delta_i))
    delta = delta_i.max(axis=0, initial=0.0)
    return np.stack((delta, np.maximum(total, delta)))


def normalise(results: Results) -> Results:
    """The same results on a scale where answers with everyone are about normal; their order is kept.

    A rising curve maps quantiles to those of the normal law, with straight lines beyond them. That does not change
    delta, but it changes the estimate where answers are far from normal. Answers with ties at the quantiles are left
    as they are.
    """
    from scipy import interpolate, special

    answers = results.q[results.outcomes == Outcome.NUMBER]
    if len(answers) < len(_LEVELS):
        return results
    knots = np.quantile(answers, _LEVELS)
    if np.any(np.diff(knots) <= 1e-9 * (knots[-1] - knots[0])):
        return results
    heights = special.ndtri(_LEVELS)
    curve = interpolate.PchipInterpolator(knots, heights)
    chords = (np.diff(heights) / np.diff(knots))[[0, -1]]
    ends = np.maximum(curve.derivative()(knots[[0, -1]]), 0.25 * chords)  # the curve's own slope there may be 0

    def transform(values: FloatArray) -> FloatArray:
        inside = np.clip(values, knots[0], knots[-1])  # NaN stays NaN
        beyond = np.where(values > inside, ends[1], ends[0])
        return np.asarray(curve(inside) + beyond * (values - inside))

    return replace(results, q=transform(results.q), entry_q=transform(results.entry_q))
