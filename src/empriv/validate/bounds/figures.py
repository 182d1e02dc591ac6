"""`bounds`: between which figures delta and total risk lie, at a level of confidence.

The upper bound is `analytic` (or `bootstrap`, its cross-check), the lower one `lower`; what they assume is said in
``notes``. Whether a target is met is for `verdict`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import confidence_level, one_of
from empriv.errors import InputError
from empriv.measuring.given.adversary_risk import AdversaryRisk
from empriv.measuring.joint.joint_risk import JointRisk
from empriv.measuring.line.risk import Risk
from empriv.results import FloatArray
from empriv.validate.bounds.analytic import floor, narrowing, upper_bounds
from empriv.validate.bounds.bootstrap import bootstrap_bounds
from empriv.validate.bounds.joint_bounds import joint_lower_bounds, joint_upper_bounds
from empriv.validate.bounds.lower import lower_bounds
from empriv.validate.ground import ground_of
from empriv.words import sentences as words

METHODS = ("analytic", "bootstrap")
LEAST_DATABASES = 30


@dataclass(frozen=True, eq=False)
class Bounds:
    """Lower bound, estimate and upper bound, at one epsilon (floats) or along a curve (arrays).

    Made by `empriv.bounds`, and by `bounds` of an audit or a risk.

    Attributes
    ----------
    epsilon, level, method : what was asked
    lower, estimate, upper : of delta, the most exposed individual's failure probability
    estimate_i, upper_i : (individuals,) or (individuals, epsilons) of each delta_i
    total_risk_lower, total_risk, total_risk_upper : of the total risk; the upper one is indicative only
    n_databases, n_individuals : what they come from
    floor : no delta below is supported by so many databases
    finest : structure of the distribution finer than this is assumed away; NaN if no density was fitted
    notes : what the bounds assume, in words

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> bounds = risk.bounds(0.1)
    >>> bounds.lower <= bounds.estimate <= bounds.upper
    True
    >>> bounds.upper_i.shape
    (3,)
    """

    epsilon: Any
    level: float
    method: str
    lower: Any
    estimate: Any
    upper: Any
    estimate_i: FloatArray = field(repr=False)
    upper_i: FloatArray = field(repr=False)
    total_risk_lower: Any
    total_risk: Any
    total_risk_upper: Any
    n_databases: int
    n_individuals: int
    floor: float
    finest: float
    notes: tuple[str, ...]

    def to_json(self) -> list[dict[str, Any]]:
        """One dict for each epsilon, without anything about single individuals."""
        columns = (
            "epsilon", "lower", "estimate", "upper", "total_risk_lower", "total_risk", "total_risk_upper"
        )  # fmt: skip
        rows = zip(*(np.atleast_1d(getattr(self, name)) for name in columns), strict=True)
        facts = {"level": self.level, "method": self.method, "floor": self.floor}
        return [{**{name: float(value) for name, value in zip(columns, row, strict=True)}, **facts} for row in rows]


def bounds(
    risk: Risk | JointRisk | AdversaryRisk,
    epsilon: npt.ArrayLike,
    level: float = 0.95,
    method: str = "analytic",
    *,
    rng: int = 0,
    progress: bool | None = None,
) -> Bounds:
    """Bounds on delta, on every delta_i and on total risk.

    Parameters
    ----------
    risk : what was measured
    epsilon : a number, or an array for a curve; each epsilon's bound holds by itself at the level
    level : probability, over the draw of the databases, with which a bound holds; the upper bound was validated at 0.95
    method : "analytic", or "bootstrap" (200 resamples, about a hundred times slower) as a cross-check; for several
        numbers together "analytic" only
    rng : seed of the resamples, and of the split into halves of the lower bound
    progress : show a progress bar for the bootstrap; None decides by the terminal

    Returns
    -------
    Bounds

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> interval = empriv.bounds(risk, 0.1)
    >>> print(f"{interval.lower:.3f} to {interval.upper:.3f}")
    0.000 to 0.201
    """
    one_of("method", method, METHODS)
    confidence_level(level)
    estimate_i = risk.delta_i(np.atleast_1d(np.asarray(epsilon, float)))  # also checks epsilon
    grid = np.atleast_1d(np.asarray(epsilon, float))
    if isinstance(risk, JointRisk):
        return _joint(risk, epsilon, level, method, rng)
    if isinstance(risk, AdversaryRisk):
        return _against(risk, epsilon, level, method, rng)
    ground = ground_of(risk)
    n = ground.n_databases
    lower = np.minimum(lower_bounds(ground, grid, level, rng), 1.0)
    notes = []
    if n < LEAST_DATABASES:
        upper_i, total_upper = np.ones_like(estimate_i), np.ones(len(grid))
        notes.append(words.no_upper_bound(n, LEAST_DATABASES))
    else:
        found = upper_bounds(ground, grid, level)
        total_upper = found.total
        upper_i = found.upper_i
        if method == "bootstrap":
            upper_i = bootstrap_bounds(ground, grid, level, rng, progress)
        # An estimate made with another density may lie above; a bound below an estimate would only confuse.
        upper_i = np.maximum(upper_i, estimate_i)
    if ground.refitted:
        notes.append(words.other_density())
    if ground.draws > 1:
        notes.append(words.draws(ground.draws))
    if level != 0.95:
        notes.append(words.other_level(level))
    finest = narrowing(n) * ground.bandwidth if ground.smooth_points else float("nan")
    return _made(risk, epsilon, level, method, lower, upper_i, total_upper, finest=finest, notes=notes)


def _against(risk: AdversaryRisk, epsilon: npt.ArrayLike, level: float, method: str, rng: int) -> Bounds:
    """Bounds against an adversary: none from above has been validated, and that from below needs no knowledge."""
    grid = np.atleast_1d(np.asarray(epsilon, float))
    # The hockey stick is jointly convex: averaged over what is known it is at least the one of who knows nothing.
    lower = np.minimum(lower_bounds(ground_of(risk.unconditional), grid, level, rng), 1.0)
    upper_i = np.ones((risk.results.n_individuals, len(grid)))
    notes = [words.no_adversary_bound()]
    return _made(risk, epsilon, level, method, lower, upper_i, np.ones(len(grid)), finest=float("nan"), notes=notes)


def _joint(risk: JointRisk, epsilon: npt.ArrayLike, level: float, method: str, rng: int) -> Bounds:
    """Bounds on the joint law of several numbers."""
    if method != "analytic":
        raise InputError(f"`method` must be analytic for several numbers together, got {method!r}.")
    grid = np.atleast_1d(np.asarray(epsilon, float))
    n = risk.results.n_databases
    lower = np.minimum(joint_lower_bounds(risk, grid, level, rng), 1.0)
    notes = []
    if n < LEAST_DATABASES:
        upper_i, total_upper = np.ones((risk.results.n_individuals, len(grid))), np.ones(len(grid))
        notes.append(words.no_upper_bound(n, LEAST_DATABASES))
    else:
        found = joint_upper_bounds(risk, grid, level)
        upper_i, total_upper = np.maximum(found.upper_i, risk.delta_i(grid)), found.total
        notes.append(words.joint_bound() if risk.complete else words.no_joint_bound(risk.dimension, risk.vouched))
    if risk.results.draws is not None and risk.results.draws > 1:
        notes.append(words.draws(risk.results.draws))
    if level != 0.95:
        notes.append(words.other_level(level))
    return _made(risk, epsilon, level, method, lower, upper_i, total_upper, finest=float("nan"), notes=notes)


def _made(
    risk: Risk | JointRisk | AdversaryRisk,
    epsilon: npt.ArrayLike,
    level: float,
    method: str,
    lower: FloatArray,
    upper_i: FloatArray,
    total_upper: FloatArray,
    *,
    finest: float,
    notes: list[str],
) -> Bounds:
    grid = np.atleast_1d(np.asarray(epsilon, float))
    n = risk.results.n_databases
    estimate_i = risk.delta_i(grid)
    estimate, total = estimate_i.max(axis=0, initial=0.0), np.atleast_1d(risk.total_risk(grid))
    # delta falls in epsilon: a bound for a larger epsilon that is higher was too low before, or too high now.
    order = np.argsort(grid)
    upper_i = _falling(upper_i, order)
    least = floor(n, level)
    upper = np.maximum(upper_i.max(axis=0, initial=least), lower)
    total_upper = np.maximum(_falling(np.maximum(total_upper, total)[None, :], order)[0], upper)
    one = np.ndim(epsilon) == 0

    def shaped(values: FloatArray) -> Any:
        return float(values[0]) if one else values

    return Bounds(
        epsilon=shaped(grid),
        level=level,
        method=method,
        lower=shaped(lower),
        estimate=shaped(estimate),
        upper=shaped(upper),
        estimate_i=estimate_i[:, 0] if one else estimate_i,
        upper_i=upper_i[:, 0] if one else upper_i,
        total_risk_lower=shaped(lower),  # somebody's privacy fails at least as often as one individual's
        total_risk=shaped(total),
        total_risk_upper=shaped(total_upper),
        n_databases=n,
        n_individuals=risk.results.n_individuals,
        floor=least,
        finest=finest,
        notes=tuple(notes),
    )


def _falling(values: FloatArray, order: npt.NDArray[np.intp]) -> FloatArray:
    """Columns raised to the largest of those at greater epsilons."""
    out = values.copy()
    out[:, order] = np.maximum.accumulate(values[:, order][:, ::-1], axis=1)[:, ::-1]
    return out
