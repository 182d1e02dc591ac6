"""`bounds`: a lower bound, the estimate and an upper bound of delta, at a level of confidence.

One number is judged by the one judge (`line_bounds`), with noise and without; how other kinds are bounded depends on
the kind of risk (`bounds_of`). `verdict` decides whether a target is met.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import confidence_level, epsilon_grid
from empriv.base.display import table_html
from empriv.errors import InputError
from empriv.judge.noise_kernels import NoiseKernel
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.contract import RiskContract, Several, total_risk_of
from empriv.measuring.given.definition4 import WorstRisk
from empriv.measuring.line.risk import Risk
from empriv.measuring.series import RepeatedRisk
from empriv.measuring.tables import TableRisk
from empriv.results import FloatArray
from empriv.validate.bounds.line_bounds import draws_averaged, floor, line_bounds
from empriv.validate.bounds.noise_as_kernel import NoiseGiven, is_noise, kernel_of
from empriv.validate.bounds.table_bounds import table_bounds
from empriv.words.findings import Finding
from empriv.words.sentences import number, percent


@dataclass(frozen=True, eq=False)
class Bounds:
    """Lower bound, estimate and upper bound of delta, at one epsilon (floats) or along a curve (arrays).

    Made by `empriv.bounds`, and by `bounds` of an audit or a risk.

    Attributes
    ----------
    epsilon, level : what was asked
    lower, estimate, upper : of delta, the most exposed individual's failure probability
    upper_i : (individuals,) or (individuals, epsilons) the upper bound of each delta_i
    assumes : what the upper bound assumes, as codes and numbers; ``notes`` are the same in words

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
    lower: Any
    estimate: Any
    upper: Any
    upper_i: FloatArray = field(repr=False)
    assumes: tuple[Finding, ...]

    def __repr__(self) -> str:
        first, *others = self.to_json()
        more = f", and at {len(others)} more" if others else ""
        return (
            f"Bounds(delta at epsilon {first['epsilon']:g} from {number(first['lower'])} to {number(first['upper'])}, "
            f"estimated {number(first['estimate'])}, {percent(self.level)}{more})"
        )

    def _repr_html_(self) -> str:
        columns = ("epsilon", "lower", "estimate", "upper")
        rows = [[number(row[name], 3) for name in columns] for row in self.to_json()]
        return table_html(f"Bounds on delta at {percent(self.level)} confidence", list(columns), rows)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the bounds assume, in words."""
        return tuple(finding.sentence for finding in self.assumes)

    def to_json(self) -> list[dict[str, Any]]:
        """One dict for each epsilon, without anything about single individuals."""
        columns = ("epsilon", "lower", "estimate", "upper")
        rows = zip(*(np.atleast_1d(getattr(self, name)) for name in columns), strict=True)
        facts = {"level": self.level, "assumes": [finding.code for finding in self.assumes]}
        return [{**{name: float(value) for name, value in zip(columns, row, strict=True)}, **facts} for row in rows]


@dataclass(frozen=True)
class BoundsAsked:
    """How bounds are wanted: the arguments of `bounds`, checked.

    Attributes
    ----------
    level : of confidence
    noise : that is added to the answer, or to each cell; 0 as it is
    """

    level: float
    noise: NoiseGiven = 0.0

    @property
    def kernel(self) -> NoiseKernel | None:
        """The noise of one number; None as it is."""
        return kernel_of(self.noise)[0]

    @property
    def reach(self) -> float | None:
        """The most that anybody may move the answer, where that is declared."""
        return kernel_of(self.noise)[1]

    @property
    def noisy(self) -> bool:
        """Whether there is noise."""
        return is_noise(self.noise)


def bounds(
    risk: RiskContract, epsilon: float | Several, level: float | None = None, *, noise: NoiseGiven = 0.0
) -> Bounds:
    """Bounds on delta and on every delta_i.

    With noise nothing is assumed of the law of the answers: the noise is the kernel. Without, the law is assumed to be
    smooth, unless the answers refute that, and ``assumes`` says so.

    Parameters
    ----------
    risk : what was measured
    epsilon : a number, or an array for a curve; each epsilon's bound holds by itself at the level
    level : probability, over the draw of the databases, with which a bound holds; default 0.95, at which the upper
        bound was validated (for a scan, the level that it was made with)
    noise : added to the answer: the scale of Laplace noise, or a `Noise`; 0 judges the answer as it is. Of a
        table, as for `cover_by_cell`

    Returns
    -------
    Bounds

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> as_it_is, noisy = empriv.bounds(risk, 0.1), empriv.bounds(risk, 0.1, noise=20.0)
    >>> bool(noisy.upper < as_it_is.upper)
    True
    """
    level = confidence_level(risk.usual_level if level is None else level)
    epsilon_grid(epsilon)
    own = bounds_of(risk, epsilon, BoundsAsked(level, noise))
    if risk.made_from is None or is_noise(noise):
        return own
    return _capped(risk, own, bounds(risk.made_from, epsilon, level))


def _capped(risk: RiskContract, own: Bounds, source: Bounds) -> Bounds:
    """Bounds of what was made from answers: not above those of the answers, which tell at least as much."""
    upper_i = np.minimum(own.upper_i, source.upper_i)
    least = floor(risk.results.n_databases, own.level)
    upper = np.maximum(upper_i.max(axis=0, initial=least), np.maximum(own.lower, own.estimate))
    findings = own.assumes
    if np.any(source.estimate == own.estimate) or np.any(upper < own.upper):
        numbers = {name: float(np.ravel(getattr(source, name))[0]) for name in ("epsilon", "estimate", "upper")}
        findings = (*findings, Finding("made-from", numbers))
    shaped = float if np.ndim(own.epsilon) == 0 else np.asarray
    return replace(own, upper_i=upper_i, upper=shaped(upper), assumes=findings)


def upper_total_risk(bounded: Bounds) -> FloatArray:
    """(epsilons,) ``1 - prod(1 - upper_i)``; 1 where nobody's own bound is known, as of a scan."""
    count = len(np.atleast_1d(bounded.upper))
    each = bounded.upper_i.reshape(-1, count)
    total = total_risk_of(np.minimum(each, 1.0)) if len(each) else np.ones(count)
    return np.asarray(np.maximum(total, np.atleast_1d(bounded.upper)))


@singledispatch
def bounds_of(risk: RiskContract, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    """Bounds by the kind of risk. A kind not known here gets the lower bound that it demonstrates, and no upper one."""
    no_noise(asked)
    grid = np.atleast_1d(np.asarray(epsilon, float))
    lower = np.minimum(risk.lower_bounds(grid, asked.level, 0), 1.0)
    return make_bounds(risk, epsilon, asked, lower, _no_upper(risk, grid), [Finding("no-bound-of-kind")])


def no_noise(asked: BoundsAsked) -> None:
    """Refuse noise where it is not the kernel of one number."""
    if asked.noisy:
        raise InputError("`noise` must be 0 for anything but one number published once, got noise.")


@bounds_of.register
def _(risk: Risk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    grid = np.atleast_1d(np.asarray(epsilon, float))
    judged = line_bounds(risk, grid, asked.level, asked.kernel, asked.reach)
    findings = [*judged.assumes, *other_level(asked.level)]
    return make_bounds(risk, epsilon, asked, judged.lower, judged.upper_i, findings, estimate=judged.estimate)


@bounds_of.register
def _(risk: WorstRisk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    # The largest delta is that of one part, whose own upper bound covers it; lower bounds share the error among parts.
    grid = np.atleast_1d(np.asarray(epsilon, float))
    parts = [bounds_of(part, grid, asked) for part in risk.parts]
    shared = replace(asked, level=level_of_each(asked.level, len(parts)))
    lowers = [
        np.asarray(bounds_of(part, grid, shared).lower if np.any(one.lower > 0) else one.lower)
        for part, one in zip(risk.parts, parts, strict=True)
    ]
    found = make_bounds(
        risk, grid, asked, np.maximum.reduce(lowers), np.maximum.reduce([np.asarray(one.upper_i) for one in parts]),
        tuple({finding.code: finding for one in parts for finding in one.assumes}.values()),
        estimate=np.maximum.reduce([np.asarray(one.estimate) for one in parts]),
    )  # fmt: skip
    upper = np.maximum.reduce([np.asarray(found.upper), *(np.asarray(one.upper) for one in parts)])
    if np.ndim(epsilon):
        return replace(found, upper=upper)
    return replace(
        found, epsilon=float(grid[0]), lower=float(np.ravel(found.lower)[0]), upper=float(upper[0]),
        estimate=float(np.ravel(found.estimate)[0]), upper_i=found.upper_i[:, 0],
    )  # fmt: skip


def level_of_each(level: float, parts: int) -> float:
    """The level of each of so many statements that are to hold together."""
    return 1.0 - (1.0 - level) / parts


@bounds_of.register(TableRisk)
def bounds_of_table(risk: TableRisk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    """Of the paper's pair, from the bounds of each day: see `table_bounds`."""
    grid = np.atleast_1d(np.asarray(epsilon, float))
    found = table_bounds(risk, grid, asked.level, asked.noise)
    findings = [*found.assumes, *draws_averaged(risk.results.draws or 1), *other_level(asked.level)]
    return make_bounds(risk, epsilon, asked, found.lower, found.upper_i, findings, estimate=found.estimate)


@bounds_of.register
def _(risk: RepeatedRisk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    """Never below those of one publication, which is part of all: what it shows, all show."""
    no_noise(asked)
    grid = np.atleast_1d(np.asarray(epsilon, float))
    single = bounds_of(risk.single, grid, asked)
    n = risk.results.n_databases
    findings = [Finding("repeated-bound", {"times": risk.times})]
    if n < LEAST_DATABASES:
        upper_i = _no_upper(risk, grid)
        findings.append(Finding("no-upper-bound", {"n": n, "least": LEAST_DATABASES}))
    else:
        composed = np.maximum(risk.upper(grid, asked.level), risk.delta_i(grid))
        upper_i = np.maximum(composed, single.upper_i)
        if not risk.effects.held:
            findings.append(Finding("no-repeated-bound", {"n": n, "several": bool(risk.results.components)}))
    findings += [finding for finding in single.assumes if finding.code != "no-upper-bound"]
    return make_bounds(risk, epsilon, asked, single.lower, upper_i, findings)


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
    upper_i: FloatArray,
    assumes: Sequence[Finding],
    *,
    estimate: FloatArray | None = None,
) -> Bounds:
    """Bounds in order: none rises in epsilon, and none lies on the wrong side of another.

    ``estimate`` is the risk's own, unless another is given; ``upper_i`` is that of everybody.
    """
    grid = np.atleast_1d(np.asarray(epsilon, float))
    order = np.argsort(grid)
    # delta falls in epsilon: a bound for a larger epsilon that is higher was too low before, or too high now
    upper_i = _falling(np.minimum(upper_i, 1.0), order)
    estimate = risk.delta(grid) if estimate is None else estimate
    lower = np.clip(lower, 0.0, 1.0)
    least = 0.0 if asked.noisy else floor(risk.results.n_databases, asked.level)
    upper = np.maximum(upper_i.max(axis=0, initial=least), np.maximum(lower, estimate))
    single = np.ndim(epsilon) == 0

    def shaped(values: FloatArray) -> Any:
        return float(values[0]) if single else values

    return Bounds(
        epsilon=shaped(grid),
        level=asked.level,
        lower=shaped(np.minimum(lower, upper)),
        estimate=shaped(estimate),
        upper=shaped(upper),
        upper_i=upper_i[:, 0] if single else upper_i,
        assumes=tuple(assumes),
    )


def _falling(values: FloatArray, order: npt.NDArray[np.intp]) -> FloatArray:
    """Columns raised to the largest of those at greater epsilons."""
    out = values.copy()
    out[:, order] = np.maximum.accumulate(values[:, order][:, ::-1], axis=1)[:, ::-1]
    return out
