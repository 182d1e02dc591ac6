"""`RepeatedRisk`: how private so many publications are for people who are in the databases of all of them or of none.

Databases are independent draws (given what is known), so that publications are independent looks at one pair of laws.
The estimate and the upper figure are Gaussian curves of the effect sizes (`sizes`), never below what one publication
tells. That assumes laws without structure finer than the bandwidth: without assumptions, n databases support nothing
below ``1 - .05^(T/n)`` for T publications.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from empriv.base.arguments import probability, whole_number
from empriv.measuring.contract import RiskContract
from empriv.measuring.densities.selection import Score
from empriv.measuring.given.given_risk import on_their_days
from empriv.measuring.line.risk import Risk
from empriv.measuring.series.of_kinds import LookedAt
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
    looked_at : the effect sizes behind the figures

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 365)
    >>> risk = empriv.measure(q, q - rng.exponential(0.5, (3, 365)))
    >>> year = risk.repeated(365)
    >>> print(f"{risk.delta(1.0):.3f} once, {year.delta(1.0):.3f} in a year")
    0.000 once, 0.117 in a year
    """

    results: Results = field(repr=False)
    single: RiskContract = field(repr=False)
    times: int
    looked_at: LookedAt = field(repr=False)
    made_from: RiskContract | None = field(default=None, repr=False, kw_only=True)

    def curves(self, epsilons: FloatArray) -> FloatArray:
        return np.maximum(self.single.curves(epsilons), self.composed(epsilons))

    def composed(self, epsilons: FloatArray) -> FloatArray:
        """(individuals, epsilons) the estimate by effect sizes alone."""
        return self.looked_at.sizes.estimate(self.looked_at.looks(self.times), epsilons)

    def upper(self, epsilons: FloatArray, level: float) -> FloatArray:
        """(individuals, epsilons) the upper figure by effect sizes alone; 1 where none is given."""
        return self.looked_at.sizes.upper(self.looked_at.looks(self.times, level), epsilons, level)

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
        return self.looked_at.sizes.each(self.looked_at.looks(self.times), epsilons)

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

    def given_presence(self) -> RiskContract:
        """The same, of databases that the person is in: their share of the publications is looked at."""
        return self._when_present

    def repeated(self, times: int) -> RiskContract:
        """So many publications instead."""
        times = whole_number("times", times, least=1)
        if times == 1:
            return self.single
        source = None if self.made_from is None else self.made_from.repeated(times)
        return RepeatedRisk(self.results, self.single, times, self.looked_at, made_from=source)

    @cached_property
    def _when_present(self) -> RiskContract:
        there = on_their_days(self.single) if isinstance(self.single, Risk) else self.single.given_presence()
        return repeated_of(there, self.times)


def repeated_of(risk: RiskContract, times: int) -> RiskContract:
    """The risk of so many publications; that of one is the risk itself."""
    times = whole_number("times", times, least=1)
    if times == 1:
        return risk
    source = None if risk.made_from is None else repeated_of(risk.made_from, times)
    return RepeatedRisk(risk.results, risk, times, risk.one_look, made_from=source)
