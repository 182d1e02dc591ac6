"""`publications` and `how_often`: what any number of publications tell, and how many are within a target."""

from __future__ import annotations

from empriv.base.arguments import confidence_level, finite_epsilon, probability
from empriv.measuring.contract import RiskContract
from empriv.measuring.series import HowOften, Publications
from empriv.validate.bounds import bounds


def publications(
    risk: RiskContract, epsilon: float, *, level: float | None = None, once: tuple[float, float] | None = None
) -> Publications:
    """delta of any number of publications, each from a database of its own.

    Parameters
    ----------
    risk : of one publication
    epsilon : where
    level : confidence of the upper figures; default 0.95
    once : estimate and upper figure of one publication, if they are at hand already; by default its bounds
    """
    epsilon, level = finite_epsilon(epsilon), confidence_level(risk.usual_level if level is None else level)
    if once is None:
        single = bounds(risk, epsilon, level)
        once = single.estimate, single.upper
    effects = risk.per_publication
    return Publications(epsilon, level, *once, effects.estimate, effects.upper(level))


def how_often(risk: RiskContract, *, epsilon: float, delta: float, level: float | None = None) -> HowOften:
    """How often a query may be published, each time from a database of its own, within delta at epsilon.

    Parameters
    ----------
    risk : of one publication
    epsilon, delta : the target
    level : confidence of the upper figure; default 0.95

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 365)
    >>> risk = empriv.measure(q, q - rng.exponential(0.5, (3, 365)))
    >>> print(risk.how_often(epsilon=1.0, delta=0.05).sentence)
    49 publications are within delta 0.05 at epsilon 1 at 95% confidence; by the estimate 100 publications are.
    """
    delta = probability("delta", delta)
    return publications(risk, epsilon, level=level).how_often(delta)
