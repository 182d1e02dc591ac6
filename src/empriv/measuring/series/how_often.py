"""`Publications`: figures of any number of publications, and how often a query may be published within a target.

Page, command line, noise and the ledger all ask here: what they say of one answer is the same, to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from empriv.measuring.series.effect_size import Effects
from empriv.words.sentences import how_often

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
