"""`RepeatedRisk`: how private so many publications are for people who are in the databases of all of them or of none.

Databases are independent draws (given what is known), so that publications are independent looks at the day's laws.
The estimate and the upper figure are those of the effect sizes (`effect_size`), never below what one publication tells.
That assumes laws without structure finer than the bandwidth: without assumptions, n databases support nothing below
``1 - .05^(T/n)`` for T publications.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from empriv.base.arguments import probability, whole_number
from empriv.measuring.contract import RiskContract
from empriv.measuring.densities.selection import Score
from empriv.measuring.series.by_kind import PublicationEffects
from empriv.measuring.series.composition import told
from empriv.results import FloatArray, Results

_LARGEST_EPSILON = 64.0
_HALVINGS = 60


@dataclass(frozen=True, eq=False)
class RepeatedRisk(RiskContract):
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
    single: RiskContract = field(repr=False)
    times: int
    effects: PublicationEffects = field(repr=False)
    made_from: RiskContract | None = field(default=None, repr=False, kw_only=True)

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
        low, high = np.zeros(self.n_individuals), np.full(self.n_individuals, _LARGEST_EPSILON)
        never, at_zero = self._each(high) > delta, self._each(low) <= delta
        never |= (delta == 0) & ~at_zero
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            over = self._each(middle) > delta
            low, high = np.where(over, middle, low), np.where(over, high, middle)
        composed = np.where(never, np.inf, np.where(at_zero, 0.0, high))
        return np.maximum(composed, self.single.own_epsilon_i(delta))

    def own_epsilon(self, delta: float = 0.0) -> float:
        return float(self.own_epsilon_i(delta).max(initial=0.0))

    def _each(self, epsilons: FloatArray) -> FloatArray:
        """(individuals,) the estimate of each at their own epsilon."""
        once = self.effects.estimate
        return told(self.times * once.squares, self.times * once.escapes, epsilons)

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

    def repeated(self, times: int) -> RiskContract:
        """So many publications instead."""
        times = whole_number("times", times, least=1)
        if times == 1:
            return self.single
        source = None if self.made_from is None else self.made_from.repeated(times)
        return RepeatedRisk(self.results, self.single, times, self.effects, made_from=source)


def repeated_of(risk: RiskContract, times: int) -> RiskContract:
    """The risk of so many publications; that of one is the risk itself."""
    times = whole_number("times", times, least=1)
    if times == 1:
        return risk
    source = None if risk.made_from is None else repeated_of(risk.made_from, times)
    return RepeatedRisk(risk.results, risk, times, risk.per_publication, made_from=source)
