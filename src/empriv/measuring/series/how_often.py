"""How often may I publish: the largest number of publications that stay within a target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from empriv.words.sentences import how_often

MOST = 1_000_000  # publications that are asked about


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
