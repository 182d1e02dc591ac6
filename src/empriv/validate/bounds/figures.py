"""`bounds`: lower and upper bounds on delta and total risk, at a level of confidence.

The upper bound is `analytic` (or `bootstrap`, its cross-check), the lower one `lower`; ``notes`` say what they assume.
How they are computed depends on the kind of risk (`bounds_of`). `verdict` decides whether a target is met.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import confidence_level, epsilon_grid, one_of
from empriv.base.display import table_html
from empriv.errors import InputError
from empriv.measuring.contract import RiskContract, Several, total_risk_of
from empriv.measuring.given.adversary_risk import AdversaryRisk
from empriv.measuring.given.given_risk import GivenRisk, atom_curves
from empriv.measuring.given.presence import PresenceRisk
from empriv.measuring.joint.joint_risk import JointRisk
from empriv.measuring.line.atoms import share_at_most
from empriv.measuring.line.risk import Risk
from empriv.measuring.series import RepeatedRisk
from empriv.measuring.tables import TablePresenceRisk, TableRisk
from empriv.results import FloatArray
from empriv.validate.bounds.analytic import HALF, Upper, floor, narrowing, upper_bounds
from empriv.validate.bounds.bootstrap import bootstrap_bounds
from empriv.validate.bounds.cross_fitted import Limits, limits_of
from empriv.validate.bounds.joint_bounds import joint_limits, joint_lower_bounds, joint_upper_bounds
from empriv.validate.bounds.lower import lower_bounds
from empriv.validate.bounds.moments import LEAST_DATABASES
from empriv.validate.bounds.present import presence_lower_bounds, presence_upper_bounds
from empriv.validate.bounds.table_bounds import table_lower_bounds, table_presence_bounds, table_upper_bounds
from empriv.validate.ground import ground_of
from empriv.words.findings import Finding
from empriv.words.sentences import number, percent

METHODS = ("analytic", "bootstrap")


@dataclass(frozen=True, eq=False)
class Bounds:
    """Lower bound, estimate and upper bound, at one epsilon (floats) or along a curve (arrays).

    Made by `empriv.bounds`, and by `bounds` of an audit or a risk.

    Attributes
    ----------
    epsilon, level, method : what was asked
    lower, estimate, upper : of delta, the most exposed individual's failure probability
    limit : the cross-fitted lower limit on delta (95%, approximate): often well above ``lower``, by normal theory
    estimate_i, upper_i : (individuals,) or (individuals, epsilons) of each delta_i
    total_risk_lower, total_risk, total_risk_upper : of the total risk: its cross-fitted limit (or one individual's
        bound, if that is larger), the paper's estimate, which adds up noise, and an indicative upper bound
    n_databases, n_individuals : what they come from
    floor : no delta below is supported by so many databases
    finest : structure of the distribution finer than this is assumed away; NaN if no density was fitted
    findings : what the bounds assume, as codes and numbers

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
    limit: Any
    estimate_i: FloatArray = field(repr=False)
    upper_i: FloatArray = field(repr=False)
    total_risk_lower: Any
    total_risk: Any
    total_risk_upper: Any
    n_databases: int
    n_individuals: int
    floor: float
    finest: float
    findings: tuple[Finding, ...]

    def __repr__(self) -> str:
        first, *others = self.to_json()
        more = f", and at {len(others)} more" if others else ""
        return (
            f"Bounds(delta at epsilon {first['epsilon']:g} from {number(first['lower'])} to {number(first['upper'])}, "
            f"estimated {number(first['estimate'])}, {percent(self.level)}{more})"
        )

    def _repr_html_(self) -> str:
        columns = ("epsilon", "lower", "estimate", "upper", "total_risk_lower", "total_risk", "total_risk_upper")
        rows = [[number(row[name], 3) for name in columns] for row in self.to_json()]
        names = [name.replace("_", " ") for name in columns]
        return table_html(f"Bounds on delta at {percent(self.level)} confidence", names, rows)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the bounds assume, in words."""
        return tuple(finding.sentence for finding in self.findings)

    def to_json(self) -> list[dict[str, Any]]:
        """One dict for each epsilon, without anything about single individuals."""
        columns = (
            "epsilon", "lower", "limit", "estimate", "upper", "total_risk_lower", "total_risk", "total_risk_upper"
        )  # fmt: skip
        rows = zip(*(np.atleast_1d(getattr(self, name)) for name in columns), strict=True)
        facts = {"level": self.level, "method": self.method, "floor": self.floor}
        return [{**{name: float(value) for name, value in zip(columns, row, strict=True)}, **facts} for row in rows]


@dataclass(frozen=True)
class BoundsAsked:
    """How bounds are wanted: the arguments of `bounds`, checked."""

    level: float
    method: str = "analytic"
    rng: int = 0
    progress: bool | None = None


def bounds(
    risk: RiskContract,
    epsilon: float | Several,
    level: float | None = None,
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
    level : probability, over the draw of the databases, with which a bound holds; default 0.95, at which the upper
        bound was validated (for a scan, the level that it was made with)
    method : "analytic", or "bootstrap" (200 resamples, about a hundred times slower) as a cross-check; for several
        numbers together "analytic" only
    rng : seed of the resamples, and of the split into halves of the lower bound
    progress : show a progress bar for the bootstrap; None shows it if the work takes long

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
    level = confidence_level(risk.usual_level if level is None else level)
    epsilon_grid(epsilon)
    own = bounds_of(risk, epsilon, BoundsAsked(level, method, rng, progress))
    if risk.made_from is None:
        return own
    return _capped(own, bounds(risk.made_from, epsilon, level, method, rng=rng, progress=progress))


def _capped(own: Bounds, source: Bounds) -> Bounds:
    """Bounds of what was made from answers: not above those of the answers, which tell at least as much."""
    upper_i = np.minimum(own.upper_i, source.upper_i)
    upper = np.maximum(upper_i.max(axis=0, initial=own.floor), np.maximum(own.lower, own.limit))
    total = np.minimum(own.total_risk_upper, source.total_risk_upper)
    total = np.max((total, upper, own.total_risk, own.total_risk_lower), axis=0)
    # Figures are the smaller of two: where they are the source's, the source decided.
    decided = (own.estimate_i == source.estimate_i) & (source.estimate_i > 0)
    findings = own.findings
    if decided.any() or np.any(upper < own.upper):
        numbers = {name: float(np.ravel(getattr(source, name))[0]) for name in ("epsilon", "estimate", "upper")}
        findings = (*findings, Finding("made-from", numbers))
    shaped = float if np.ndim(own.epsilon) == 0 else np.asarray
    return replace(own, upper_i=upper_i, upper=shaped(upper), total_risk_upper=shaped(total), findings=findings)


@singledispatch
def bounds_of(risk: RiskContract, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    """Bounds by the kind of risk. A kind not known here gets the lower bound that it demonstrates, and no upper one."""
    grid = np.atleast_1d(np.asarray(epsilon, float))
    lower = np.minimum(risk.lower_bounds(grid, asked.level, asked.rng), 1.0)
    findings = [Finding("no-bound-of-kind")]
    limits = Limits(lower, lower)
    return make_bounds(
        risk, epsilon, asked, lower, limits, _no_upper(risk, grid), np.ones(len(grid)), findings=findings
    )


@bounds_of.register(Risk)
def _bounds_of_one_number(risk: Risk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    grid = np.atleast_1d(np.asarray(epsilon, float))
    estimate_i = risk.delta_i(grid)
    ground = ground_of(risk)
    n, level = ground.n_databases, asked.level
    lower = np.minimum(lower_bounds(ground, grid, level, asked.rng), 1.0)
    limits = limits_of(ground, grid, level, asked.rng)
    findings = []
    if n < LEAST_DATABASES:
        upper_i, total_upper = np.ones_like(estimate_i), np.ones(len(grid))
        findings.append(Finding("no-upper-bound", {"n": n, "least": LEAST_DATABASES}))
    else:
        analytic = upper_bounds(ground, grid, level)
        total_upper = analytic.total
        upper_i = analytic.upper_i
        if asked.method == "bootstrap":
            upper_i = bootstrap_bounds(ground, grid, level, asked.rng, asked.progress)
        # An estimate made with another density may lie above; a bound below an estimate would only confuse.
        upper_i = np.maximum(upper_i, estimate_i)
    if ground.refitted:
        findings.append(Finding("other-density"))
    findings += draws_averaged(ground.draws, n)
    findings += other_level(level)
    finest = narrowing(n) * ground.bandwidth if ground.smooth_points else float("nan")
    return make_bounds(risk, epsilon, asked, lower, limits, upper_i, total_upper, finest=finest, findings=findings)


@bounds_of.register
def _(risk: GivenRisk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    grid = np.atleast_1d(np.asarray(epsilon, float))
    left = _bounds_of_one_number(risk, epsilon, asked)
    shares = share_bounds(risk, grid, asked.level)
    if not shares.any():
        return left
    upper_i = np.maximum(left.upper_i.reshape(shares.shape), shares)
    lower, total = np.atleast_1d(left.lower), np.atleast_1d(left.total_risk_upper)
    limits = Limits(np.atleast_1d(left.limit), np.atleast_1d(left.total_risk_lower))
    return make_bounds(
        risk, epsilon, asked, lower, limits, upper_i, total, findings=list(left.findings), finest=left.finest
    )


@bounds_of.register
def _(risk: PresenceRisk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    if asked.method != "analytic":
        raise InputError(f"`method` must be analytic given presence, got {asked.method!r}.")
    grid = np.atleast_1d(np.asarray(epsilon, float))
    n = risk.results.n_databases
    findings = [Finding("given-presence")]
    lower, limit = presence_lower_bounds(risk, grid, asked.level, asked.rng)
    limits = Limits(limit, limit)
    if n < LEAST_DATABASES:
        upper_i, total = _no_upper(risk, grid), np.ones(len(grid))
        findings.append(Finding("no-upper-bound", {"n": n, "least": LEAST_DATABASES}))
    else:
        upper = presence_upper_bounds(risk, grid, asked.level)
        upper_i, total = np.maximum(upper.upper_i, risk.delta_i(grid)), upper.total
    findings += other_level(asked.level)
    finest = narrowing(n, HALF) * risk.bandwidth
    return make_bounds(risk, epsilon, asked, lower, limits, upper_i, total, finest=finest, findings=findings)


@bounds_of.register
def _(risk: AdversaryRisk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    # No upper bound has been validated. The lower bound is that against somebody who knows nothing: the hockey stick is
    # jointly convex, so its average over what is known is at least as large.
    grid = np.atleast_1d(np.asarray(epsilon, float))
    ground = ground_of(risk.unconditional)
    lower = np.minimum(lower_bounds(ground, grid, asked.level, asked.rng), 1.0)
    limits = limits_of(ground, grid, asked.level, asked.rng)
    findings = [Finding("no-adversary-bound")]
    return make_bounds(
        risk, epsilon, asked, lower, limits, _no_upper(risk, grid), np.ones(len(grid)), findings=findings
    )


@bounds_of.register
def _(risk: JointRisk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    if asked.method != "analytic":
        raise InputError(f"`method` must be analytic for several numbers together, got {asked.method!r}.")
    grid = np.atleast_1d(np.asarray(epsilon, float))
    n, level = risk.results.n_databases, asked.level
    lower = np.minimum(joint_lower_bounds(risk, grid, level, asked.rng), 1.0)
    limits = joint_limits(risk, grid, level, asked.rng)
    findings = []
    if n < LEAST_DATABASES:
        upper_i, total_upper = _no_upper(risk, grid), np.ones(len(grid))
        findings.append(Finding("no-upper-bound", {"n": n, "least": LEAST_DATABASES}))
    else:
        joint = joint_upper_bounds(risk, grid, level)
        upper_i, total_upper = np.maximum(joint.upper_i, risk.delta_i(grid)), joint.total
        findings.append(Finding("joint-bound"))
    if risk.results.draws is not None and risk.results.draws > 1:
        findings.append(Finding("draws", {"m": risk.results.draws, "parts_left_out": False}))
    findings += other_level(level)
    return make_bounds(risk, epsilon, asked, lower, limits, upper_i, total_upper, findings=findings)


@bounds_of.register
def _(risk: TableRisk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    def bound(grid: FloatArray) -> Upper:
        return table_upper_bounds(risk, grid, asked.level)

    return _of_table(risk, risk, epsilon, asked, bound, [])


@bounds_of.register
def _(risk: TablePresenceRisk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    def bound(grid: FloatArray) -> Upper:
        return table_presence_bounds(risk, grid, asked.level)

    return _of_table(risk, risk.on_random_day, epsilon, asked, bound, [Finding("given-presence")], present=True)


def _of_table(
    risk: RiskContract,
    table: TableRisk,
    epsilon: float | Several,
    asked: BoundsAsked,
    bound: Callable[[FloatArray], Upper],
    findings: list[Finding],
    *,
    present: bool = False,
) -> Bounds:
    """Bounds of ``table``, on a random day or where people are there: ``risk`` says which."""
    if asked.method != "analytic":
        raise InputError(f"`method` must be analytic for several numbers together, got {asked.method!r}.")
    grid = np.atleast_1d(np.asarray(epsilon, float))
    n, fit = table.results.n_databases, table.fit
    lower, limits = table_lower_bounds(table, grid, asked.level, asked.rng, present=present)
    if n < LEAST_DATABASES:
        upper_i, total = _no_upper(risk, grid), np.ones(len(grid))
        findings.append(Finding("no-upper-bound", {"n": n, "least": LEAST_DATABASES}))
    else:
        upper = bound(grid)
        upper_i, total = np.maximum(upper.upper_i, risk.delta_i(grid)), upper.total
        numbers = {"n": n, "parameters": fit.rank, "people": int(table.from_below.sum())}
        findings.append(Finding("table-from-below" if fit.ridge else "table-bound", numbers))
    if (table.results.draws or 1) > 1:
        findings.append(Finding("draws", {"m": table.results.draws, "parts_left_out": False}))
    findings += other_level(asked.level)
    return make_bounds(risk, epsilon, asked, lower, limits, upper_i, total, findings=findings)


@singledispatch
def share_bounds(risk: Risk, epsilons: FloatArray, level: float) -> FloatArray:  # noqa: ARG001 — dispatched on
    """Bounds on what outcomes with a mass of their own reveal, where they are not among what is measured: then they
    are counted, as the results had them."""
    return np.zeros((risk.results.n_individuals, len(epsilons)))


@share_bounds.register
def _(risk: GivenRisk, epsilons: FloatArray, level: float) -> FloatArray:
    n = risk.results.n_databases
    counts = np.rint(atom_curves(risk.atoms, epsilons) * n)
    return np.where(counts > 0, share_at_most(counts, n, level), 0.0) if counts.any() else np.zeros_like(counts)


@bounds_of.register
def _(risk: RepeatedRisk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    """Never below those of one publication, which is part of all: what it shows, all show."""
    grid = np.atleast_1d(np.asarray(epsilon, float))
    single = bounds_of(risk.single, grid, asked)
    n, sizes = risk.results.n_databases, risk.looked_at.sizes
    findings = [Finding("repeated-bound", {"times": risk.times})]
    if n < LEAST_DATABASES:
        upper_i, total = _no_upper(risk, grid), np.ones(len(grid))
        findings.append(Finding("no-upper-bound", {"n": n, "least": LEAST_DATABASES}))
    else:
        composed = np.maximum(risk.upper(grid, asked.level), risk.delta_i(grid))
        upper_i = np.maximum(composed, single.upper_i)
        total = np.maximum(total_risk_of(composed), single.total_risk_upper)
        if not sizes.held:
            findings.append(Finding("no-repeated-bound", {"n": n, "several": bool(risk.results.components)}))
    findings += [finding for finding in single.findings if finding.code != "no-upper-bound"]
    limits = Limits(single.limit, single.total_risk_lower)
    return make_bounds(
        risk, epsilon, asked, single.lower, limits, upper_i, total, findings=findings, finest=single.finest
    )


def draws_averaged(draws: int, n: int) -> list[Finding]:
    """That the draws of each of n databases are averaged, if there are several: `structure` skips parts for them."""
    return [Finding("draws", {"m": draws, "parts_left_out": n >= LEAST_DATABASES})] if draws > 1 else []


def other_level(level: float) -> list[Finding]:
    """That the upper bound was validated at another level, if it was."""
    return [] if level == 0.95 else [Finding("other-level", {"level": level})]


def _no_upper(risk: RiskContract, grid: FloatArray) -> FloatArray:
    return np.ones((risk.results.n_individuals, len(grid)))


def make_bounds(
    risk: RiskContract,
    epsilon: float | Several,
    asked: BoundsAsked,
    lower: FloatArray,
    limits: Limits,
    upper_i: FloatArray,
    total_upper: FloatArray,
    *,
    findings: list[Finding],
    finest: float = float("nan"),
) -> Bounds:
    """Bounds in order: none rises in epsilon, and none lies on the wrong side of another."""
    grid = np.atleast_1d(np.asarray(epsilon, float))
    n = risk.results.n_databases
    estimate_i = risk.delta_i(grid)
    estimate, total = estimate_i.max(axis=0, initial=0.0), risk.total_risk(grid)
    # delta falls in epsilon: a bound for a larger epsilon that is higher was too low before, or too high now.
    order = np.argsort(grid)
    upper_i = _falling(upper_i, order)
    least = floor(n, asked.level)
    upper = np.maximum(upper_i.max(axis=0, initial=least), np.maximum(lower, limits.delta))
    total_lower = np.maximum(limits.total, lower)  # somebody's privacy fails at least as often as one individual's
    total_upper = np.maximum(
        _falling(np.maximum(total_upper, total)[None, :], order)[0], np.maximum(upper, total_lower)
    )
    single = np.ndim(epsilon) == 0

    def shaped(values: FloatArray) -> Any:
        return float(values[0]) if single else values

    return Bounds(
        epsilon=shaped(grid),
        level=asked.level,
        method=asked.method,
        lower=shaped(lower),
        estimate=shaped(estimate),
        upper=shaped(upper),
        limit=shaped(limits.delta),
        estimate_i=estimate_i[:, 0] if single else estimate_i,
        upper_i=upper_i[:, 0] if single else upper_i,
        total_risk_lower=shaped(total_lower),
        total_risk=shaped(total),
        total_risk_upper=shaped(total_upper),
        n_databases=n,
        n_individuals=risk.n_individuals,
        floor=least,
        finest=finest,
        findings=tuple(findings),
    )


def _falling(values: FloatArray, order: npt.NDArray[np.intp]) -> FloatArray:
    """Columns raised to the largest of those at greater epsilons."""
    out = values.copy()
    out[:, order] = np.maximum.accumulate(values[:, order][:, ::-1], axis=1)[:, ::-1]
    return out
