"""`how_often`: the largest number of publications within a target, by the upper figure and by the estimate."""

from __future__ import annotations

import numpy as np

from empriv.base.arguments import confidence_level, finite_epsilon, probability
from empriv.measuring.contract import RiskContract
from empriv.measuring.series import HowOften, RepeatedRisk, composes, largest
from empriv.validate.bounds import Bounds, bounds


def how_often(
    risk: RiskContract, *, epsilon: float, delta: float, level: float | None = None, bounds_once: Bounds | None = None
) -> HowOften:
    """How often a query may be published, each time from a database of its own, within delta at epsilon.

    Parameters
    ----------
    risk : of one publication
    epsilon, delta : the target
    level : confidence of the upper figure; default 0.95
    bounds_once : bounds of one publication at this epsilon, if they are at hand already

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 365)
    >>> risk = empriv.measure(q, q - rng.exponential(0.5, (3, 365)))
    >>> print(risk.how_often(epsilon=1.0, delta=0.05).sentence)
    69 publications are within delta 0.05 at epsilon 1 at 95% confidence; by the estimate 217 publications are.
    """
    epsilon, delta = finite_epsilon(epsilon), probability("delta", delta)
    level = confidence_level(risk.usual_level if level is None else level)
    grid = np.array([epsilon])
    single = bounds(risk, epsilon, level) if bounds_once is None else bounds_once
    if single.estimate > delta and composes(risk):
        return HowOften(epsilon, delta, level, 0, 0)  # looking at everybody takes long, and could not change that
    looked = risk.one_look

    def after(times: int) -> RepeatedRisk:
        return RepeatedRisk(risk.results, risk, times, looked)

    by_bound = 0
    by_estimate = largest(lambda times: times == 1 or float(after(times).composed(grid).max(initial=0.0)) <= delta)
    if single.upper <= delta:
        by_bound = largest(lambda times: times == 1 or float(after(times).upper(grid, level).max(initial=0.0)) <= delta)
    return HowOften(epsilon, delta, level, min(by_bound, by_estimate), by_estimate)
