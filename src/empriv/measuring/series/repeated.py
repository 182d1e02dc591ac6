"""Publishing again: how private so many publications are, and how often a query may be published within a target.

Databases are independent draws (given what is known), so that publications are independent views of the day's laws.
For people who are in the databases of all of them or of none, figures are those of the effect sizes (`effect_size`),
never below what one publication tells. That assumes laws without structure finer than the bandwidth: without
assumptions, n databases support nothing below ``1 - .05^(T/n)`` for T publications.

Whoever knows the previous answers sees innovations. For a person who is in all databases or in none, an innovation
moves by ``d_k - sum_l rho_l d_{k-l}``, rho being the weights of the previous answers: the answers before moved as
well.

`effects_of_risk` is what one publication tells, `Publications` and `HowOften` the figures that pages, the command
line, noise and the ledger ask for, `RepeatedRisk` the risk.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from empriv.base.arguments import probability, whole_number
from empriv.errors import InputError
from empriv.measuring.any_risk import AnyRisk, smallest_epsilons
from empriv.measuring.densities.density import Mixture, is_usual
from empriv.measuring.densities.selection import Score
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.given.regression import Residuals
from empriv.measuring.line.atoms import Pairs, tie_tolerance
from empriv.measuring.line.moves import Moves, others_laws, spread_of_law, with_exact_leaks
from empriv.measuring.line.risk import Risk, measure_line
from empriv.measuring.series.composition import delta_of_effects
from empriv.measuring.series.effect_size import Effects, EffectSizes, EstimatedEffects, SizeCurve, grid_of, size_curve
from empriv.measuring.tables.table_risk import TableRisk
from empriv.results import FloatArray, IntArray, Results
from empriv.words.sentences import how_often

_CERTAIN = 60.0  # epsilon: who is told apart beyond it is told apart for certain

PublicationEffects: TypeAlias = EffectSizes | EstimatedEffects


def composes(risk: AnyRisk) -> bool:
    """Whether a kind of risk has figures of several publications."""
    return isinstance(risk, Risk | TableRisk)


def effects_of_risk(risk: AnyRisk) -> PublicationEffects:
    """What one publication of the answer as it is tells of each person."""
    if isinstance(risk, Risk):
        return _of_line(risk)
    if isinstance(risk, TableRisk):
        return _of_table(risk)
    raise InputError(
        "`repeated` must be asked of results as they are, `Given` what is known or of several numbers, got another "
        "kind of risk. Hint: known='nothing', or what is regressed out, such as known='calendar'."
    )


def _of_line(risk: Risk) -> EffectSizes:
    if isinstance(risk, GivenRisk) and risk.residuals.logarithm:
        basis = risk.relative_to_level
    else:
        basis = risk if is_usual(risk.density) else measure_line(risk.results)
    pairs = basis.pairs
    moves = with_exact_leaks(risk.moves(), pairs)
    if isinstance(risk, GivenRisk):
        moves = with_exact_leaks(moves, risk.atoms)
    sizes, owner = publication_moves(risk, moves)
    model = basis.density
    curves: tuple[SizeCurve, ...] = ()
    if isinstance(model, Mixture):
        curves = curves_of(pairs, moves, grid_of(sizes), (model.bandwidth, model.likeliest))
    return EffectSizes(
        curves, sizes, owner, pairs.n_individuals, len(pairs.points) // pairs.draws,
        digits=_digits(risk, risk.atoms if isinstance(risk, GivenRisk) else pairs),
    )  # fmt: skip


def curves_of(
    pairs: Pairs,
    moves: Moves,
    grid: FloatArray,
    bandwidths: tuple[float, float],
    *,
    noise: tuple[str, float] | None = None,
) -> tuple[SizeCurve, ...]:
    """A curve beside each of the others' laws: that of the results, and those without the heaviest people."""
    laws = others_laws(pairs, moves)
    spreads = [spread_of_law(law) for law in laws]
    return tuple(
        size_curve(
            law, grid, *(width * (spread / spreads[0] if spreads[0] > 0 else 1.0) for width in bandwidths),
            noise=noise, draws=pairs.draws,
        )
        for law, spread in zip(laws, spreads, strict=True)
    )  # fmt: skip


def publication_moves(risk: Risk, moves: Moves) -> tuple[FloatArray, IntArray]:
    """(person-days,) moves in units of the law and whose they are, as many publications show them."""
    if isinstance(risk, GivenRisk) and any(term.lag for term in risk.residuals.fit.terms):
        return _innovations(risk, moves)
    return moves.relative, moves.owner


def _innovations(risk: GivenRisk, moves: Moves) -> tuple[FloatArray, IntArray]:
    """What a person moves of an answer beside the answers before it, from which they were away as well."""
    residuals, whole = risk.residuals, risk.whole
    order = risk.in_time
    time_of = np.empty(len(order), np.int64)  # of a database by position
    time_of[order] = np.arange(len(order))
    row_at = np.full(len(order), -1)
    row_at[time_of[residuals.places]] = np.arange(len(residuals.places))
    owner = np.repeat(np.arange(whole.n_individuals), np.diff(whole.starts))
    then = time_of[whole.entry_database]

    def changes_of(scaled: Callable[[FloatArray], FloatArray]) -> FloatArray:
        with np.errstate(invalid="ignore", divide="ignore"):
            change = scaled(whole.q)[whole.entry_database] - scaled(whole.entry_q)
        change = np.where(np.isfinite(change), change, 0.0).reshape(len(owner), -1).mean(axis=1)
        change[np.abs(change) <= tie_tolerance(scaled(whole.q[whole.outcomes == 0]))] = 0.0
        return np.asarray(change)

    own, change = changes_of(np.asarray), changes_of(np.log if residuals.logarithm else np.asarray)
    if residuals.logarithm:  # of the level, which is what the previous answers' logarithms move
        here = row_at[then]
        own = own / np.where(here >= 0, residuals.day_units[here], 1.0)
    units = np.ones(len(residuals.places)) if residuals.logarithm else residuals.units
    parts = [(owner, then, own)]
    for lag, weight in previous_weights(residuals).items():
        inside = then + lag < len(order)
        parts.append((owner[inside], then[inside] + lag, -weight * change[inside]))
    owners, times, changes = (np.concatenate(column) for column in zip(*parts, strict=True))
    known = row_at[times] >= 0
    n = len(residuals.places)
    keys, place = np.unique(owners[known] * n + row_at[times[known]], return_inverse=True)
    sizes = np.abs(np.bincount(place.reshape(-1), changes[known], minlength=len(keys))) / units[keys % n]
    certain = np.isinf(moves.sizes)
    sizes = np.concatenate((sizes, np.full(int(certain.sum()), np.inf)))
    return sizes, np.concatenate((keys // n, moves.owner[certain]))


def previous_weights(residuals: Residuals) -> dict[int, float]:
    """The weight of each previous answer in the fitted level, by how many answers before it was."""
    terms = residuals.fit.terms
    design = np.column_stack([np.ones(len(residuals.fit.level)), *(term.columns for term in terms)])
    here = np.isfinite(residuals.fit.level)
    weights = np.linalg.lstsq(design[here], residuals.fit.level[here], rcond=1e-10)[0]
    out, place = {}, 1
    for term in terms:
        if term.lag and term.size and term.values is not None:
            out[term.lag] = float(weights[place] / np.asarray(term.values, float).std())
        place += term.size
    return out


def _digits(risk: Risk, pairs: Pairs) -> FloatArray | None:
    """What the last digits tell, which kernels blur: no pair of laws with total variation TV has a smaller H than
    ``-4 log(1 - TV²)``."""
    rows = np.array([row for row, _ in pairs.digit_steps], np.int64)
    if not len(rows):
        return None
    apart, certain = risk.delta_i(np.array([0.0, _CERTAIN]))[rows].T
    out = np.zeros((2, pairs.n_individuals))
    out[:, rows] = -4.0 * np.log1p(-(np.minimum(apart, 1 - 1e-12) ** 2)), certain
    return out


def _of_table(risk: TableRisk) -> EstimatedEffects:
    """A whole table: what a person does on a day, as a normal table would show it; no upper figure."""
    influences, n = risk.influences, risk.fit.n
    squares = np.bincount(influences.owner, influences.sizes, minlength=risk.n_individuals) / n
    with np.errstate(divide="ignore"):
        return EstimatedEffects(Effects(squares, -np.log1p(-np.minimum(risk.leaked(), 1.0))), n)


MOST = 1_000_000  # publications that are asked about
_ROUNDING = 1e-9  # of a limit: figures are sums


@dataclass(frozen=True)
class HowOften:
    """How many publications, each from a database of its own, keep delta at epsilon.

    Made by `how_often` of a risk, an audit or noise.

    Attributes
    ----------
    epsilon, delta : the target
    level : confidence of the upper figure
    by_bound, by_estimate : the largest number within the target, by the upper figure and by the estimate; 0 if not even
        one is, and 1,000,000 for that many or more

    Examples
    --------
    >>> q = np.random.default_rng(0).normal(100.0, 10.0, 365)
    >>> empriv.measure(q, [q - 0.5]).how_often(epsilon=1.0, delta=0.05).by_estimate
    231
    """

    epsilon: float
    delta: float
    level: float
    by_bound: int
    by_estimate: int

    @property
    def sentence(self) -> str:
        """In plain words."""
        return how_often(self.epsilon, self.delta, self.level, self.by_bound, self.by_estimate)

    def to_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon,
            "delta": self.delta,
            "level": self.level,
            "by_bound": self.by_bound,
            "by_estimate": self.by_estimate,
            "sentence": self.sentence,
        }


@dataclass(frozen=True, eq=False)
class Publications:
    """delta of any number of publications at one epsilon: never below what one tells, of which the judge knows best.

    Attributes
    ----------
    epsilon : where
    level : confidence of the upper figures
    once_estimate, once_upper : of one publication
    estimate, upper : what one publication adds
    """

    epsilon: float
    level: float
    once_estimate: float
    once_upper: float
    estimate: Effects
    upper: Effects

    def estimated_delta(self, times: int) -> float:
        """The estimate after so many publications."""
        return max(self.once_estimate, 0.0 if times == 1 else self.estimate.delta(times, self.epsilon))

    def upper_delta(self, times: int) -> float:
        """The upper figure after so many publications."""
        composed = 0.0 if times == 1 else self.upper.delta(times, self.epsilon)
        return max(self.once_upper, composed, self.estimated_delta(times))

    def how_often(self, delta: float) -> HowOften:
        """The largest numbers within a target."""
        by_estimate = largest(lambda times: within(self.estimated_delta(times), delta))
        by_bound = largest(lambda times: within(self.upper_delta(times), delta))
        return HowOften(self.epsilon, delta, self.level, by_bound, by_estimate)


def within(figure: float, limit: float) -> bool:
    """Whether a figure is within a limit, as everything that compares figures of many publications asks."""
    return figure <= limit * (1.0 + _ROUNDING)


def largest(within: Callable[[int], bool]) -> int:
    """The largest number, up to `MOST`, that is within a limit which greater numbers only break; 0 if not even 1 is."""
    if not within(1):
        return 0
    low, high = 1, 2
    while high <= MOST and within(high):
        low, high = high, 2 * high
    high = min(high, MOST + 1)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if within(middle) else (low, middle)
    return low


@dataclass(frozen=True, eq=False)
class RepeatedRisk(AnyRisk):
    """How private a query is for every individual, published from so many databases; asked like any risk.

    Made by `repeated` of a risk or an audit.

    Attributes
    ----------
    results : what was measured
    single : the risk of one publication
    times : publications
    effects : what one publication tells of each person

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 365)
    >>> risk = empriv.measure(q, q - rng.exponential(0.5, (3, 365)))
    >>> year = risk.repeated(365)
    >>> print(f"{risk.delta(1.0):.3f} once, {year.delta(1.0):.3f} in a year")
    0.000 once, 0.293 in a year
    """

    results: Results = field(repr=False)
    single: AnyRisk = field(repr=False)
    times: int
    effects: PublicationEffects = field(repr=False)
    postprocessed_from: AnyRisk | None = field(default=None, repr=False, kw_only=True)

    def curves(self, epsilons: FloatArray) -> FloatArray:
        return np.maximum(self.single.curves(epsilons), self.composed(epsilons))

    def composed(self, epsilons: FloatArray) -> FloatArray:
        """(individuals, epsilons) the estimate by effect sizes alone."""
        return self.effects.estimate.delta_i(self.times, epsilons)

    def upper(self, epsilons: FloatArray, level: float) -> FloatArray:
        """(individuals, epsilons) the upper figure by effect sizes alone; 1 where none is given."""
        return self.effects.upper(level).delta_i(self.times, epsilons)

    def own_epsilon_i(self, delta: float = 0.0) -> FloatArray:
        """Smallest epsilon at which each individual's delta_i is at most ``delta``; inf where none is.

        A Gaussian curve is above 0 at every epsilon: at delta = 0 that is everyone who changes anything.
        """
        delta = probability("delta", delta)
        composed = smallest_epsilons(lambda epsilons: self._each(epsilons) > delta, self.n_individuals)
        if delta == 0:
            composed = np.where(composed > 0, np.inf, 0.0)
        return np.maximum(composed, self.single.own_epsilon_i(delta))

    def own_epsilon(self, delta: float = 0.0) -> float:
        return float(self.own_epsilon_i(delta).max(initial=0.0))

    def _each(self, epsilons: FloatArray) -> FloatArray:
        """(individuals,) the estimate of each at their own epsilon."""
        once = self.effects.estimate
        return delta_of_effects(self.times * once.squares, self.times * once.escapes, epsilons)

    def influence(self) -> FloatArray:
        return self.single.influence()

    @property
    def model(self) -> tuple[str, tuple[Score, ...]] | None:
        return self.single.model

    @property
    def usual_level(self) -> float:
        return self.single.usual_level

    def tells_epsilon(self, delta: float) -> bool:
        return delta > 0 and self.single.tells_epsilon(delta)

    def repeated(self, times: int) -> AnyRisk:
        """So many publications instead."""
        return repeated_of(self.single, times)


def repeated_of(risk: AnyRisk, times: int) -> AnyRisk:
    """The risk of so many publications; that of one is the risk itself."""
    times = whole_number("times", times, least=1)
    if times == 1:
        return risk
    source = None if risk.postprocessed_from is None else repeated_of(risk.postprocessed_from, times)
    return RepeatedRisk(risk.results, risk, times, risk.per_publication, postprocessed_from=source)
