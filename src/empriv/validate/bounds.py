"""`bounds`: a lower bound, the estimate and an upper bound of delta, at a level of confidence.

How they are made depends on the kind of risk (`bounds_of`): of one number in `line_bounds`, of tables in
`table_bounds`, of kinds that are made of these here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import confidence_level, epsilon_grid, finite_epsilon, probability
from empriv.base.text import table_html
from empriv.errors import InputError
from empriv.judge.noise_kernels import NoiseGiven, is_noise
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.any_risk import AnyRisk, Several, total_risk_of
from empriv.measuring.given.definition4 import WorstRisk
from empriv.measuring.series import HowOften, Publications, RepeatedRisk
from empriv.results import FloatArray
from empriv.words.message import Message
from empriv.words.sentences import number, percent, so_many, too_few_for_a_bound


@dataclass(frozen=True, eq=False)
class Bounds:
    """Lower bound, estimate and upper bound of delta, at one epsilon (floats) or along a curve (arrays).

    Made by `bounds` of an audit or a risk.

    Attributes
    ----------
    epsilon, level : what was asked
    lower, estimate, upper : of delta, the most exposed individual's failure probability
    upper_i : (individuals,) or (individuals, epsilons) the upper bound of each delta_i
    assumes : what the upper bound assumes; ``notes`` are their sentences

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
    assumes: tuple[Message, ...]

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

    def at_first(self) -> Bounds:
        """At the first epsilon alone, as floats."""
        names = ("epsilon", "lower", "estimate", "upper")
        first: dict[str, Any] = {name: float(getattr(self, name)[0]) for name in names}
        return replace(self, **first, upper_i=self.upper_i[:, 0])

    @property
    def notes(self) -> tuple[str, ...]:
        """What the bounds assume, in words."""
        return tuple(message.sentence for message in self.assumes)

    @property
    def said(self) -> tuple[str, str]:
        """The upper and the lower bound at the first epsilon, in words."""
        most, least = (float(np.ravel(figures)[0]) for figures in (self.upper, self.lower))
        level = percent(self.level)
        if most >= 1:
            upper = f"Upper bound ({level}): none; delta may be as large as 1."
        else:
            at_most = "delta < 1" if number(most).startswith(">") else f"delta ≤ {number(most)}"
            upper = f"Upper bound ({level}, conditional): {at_most}. Assumes i.i.d. databases."
        at_least = f"delta > {number(least)[1:]}" if number(least).startswith(">") else f"delta ≥ {number(least)}"
        lower = f"Lower bound ({level}, approximate): {at_least}."
        none = "" if least > 0 else " No loss demonstrated; this is not evidence of privacy."
        return upper, f"{lower}{none}"

    def to_json(self) -> list[dict[str, Any]]:
        """One dict for each epsilon, without anything about single individuals."""
        columns = ("epsilon", "lower", "estimate", "upper")
        rows = zip(*(np.atleast_1d(getattr(self, name)) for name in columns), strict=True)
        facts = {"level": self.level, "assumes": [message.code for message in self.assumes]}
        return [{**{name: float(value) for name, value in zip(columns, row, strict=True)}, **facts} for row in rows]


def bounds(risk: AnyRisk, epsilon: float | Several, level: float | None = None, *, noise: NoiseGiven = 0.0) -> Bounds:
    """Bounds on delta and on every delta_i.

    With noise nothing is assumed of the law of the answers: the noise is the kernel. Without, the law is assumed to be
    smooth, unless the answers refute that, and ``assumes`` says so.

    Parameters
    ----------
    risk : what was measured
    epsilon : a number, or an array for a curve; each epsilon's bound holds by itself at the level
    level : probability, over the draw of the databases, with which a bound holds; default 0.95, at which the upper
        bound was validated (of people measured in chunks, no other)
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
    >>> as_it_is, noisy = risk.bounds(0.1), risk.bounds(0.1, noise=20.0)
    >>> bool(noisy.upper < as_it_is.upper)
    True
    """
    level = confidence_level(risk.usual_level if level is None else level)
    grid = np.atleast_1d(epsilon_grid(epsilon))
    found = bounds_of(risk, grid, level, noise)
    if risk.postprocessed_from is not None and not is_noise(noise):
        found = _capped(risk, found, bounds(risk.postprocessed_from, grid, level))
    return found if np.ndim(epsilon) else found.at_first()


def _capped(risk: AnyRisk, own: Bounds, source: Bounds) -> Bounds:
    """Bounds of what was made from answers: not above those of the answers, which tell at least as much."""
    lower, least = np.minimum(own.lower, source.lower), floor(risk.results.n_databases, own.level)
    upper_i = _none_above(np.minimum(own.upper_i, source.upper_i), lower)
    upper = np.maximum(upper_i.max(axis=0, initial=least), np.maximum(lower, own.estimate))
    assumes = own.assumes
    if np.any(source.estimate == own.estimate) or np.any(upper < own.upper):
        assumes = (*assumes, said_by_answers(*(float(x[0]) for x in (source.epsilon, source.estimate, source.upper))))
    return replace(own, lower=lower, upper_i=upper_i, upper=upper, assumes=assumes)


def said_by_answers(epsilon: float, estimate: float, upper: float) -> Message:
    """That answers which these were made from decided."""
    return Message(
        "made-from",
        f"Made from answers which tell at most delta = {number(estimate)} at epsilon {epsilon:g} (upper bound "
        f"{number(upper)}): what is made from them tells no more, and figures above that are cut off.",
    )


def upper_total_risk(bounded: Bounds) -> FloatArray:
    """(epsilons,) ``1 - prod(1 - upper_i)``; 1 where nobody's own bound is known, as of people measured in chunks."""
    count = len(np.atleast_1d(bounded.upper))
    each = bounded.upper_i.reshape(-1, count)
    total = total_risk_of(np.minimum(each, 1.0)) if len(each) else np.ones(count)
    return np.asarray(np.maximum(total, np.atleast_1d(bounded.upper)))


# How they are made


def make_bounds(
    risk: AnyRisk,
    epsilons: FloatArray,
    level: float,
    lower: FloatArray,
    upper_i: FloatArray,
    assumes: Sequence[Message],
    *,
    estimate: FloatArray | None = None,
    noisy: bool = False,
) -> Bounds:
    """Bounds in order: none rises in epsilon, and none lies on the wrong side of another.

    ``estimate`` is the risk's own, unless another is given; ``upper_i`` is that of everybody.
    """
    # delta falls in epsilon: a bound for a larger epsilon that is higher was too low before, or too high now
    upper_i = _falling(np.minimum(upper_i, 1.0), np.argsort(epsilons))
    estimate = risk.delta(epsilons) if estimate is None else estimate
    lower = np.clip(lower, 0.0, 1.0)
    least = 0.0 if noisy else floor(risk.results.n_databases, level)
    upper_i = _none_above(upper_i, lower)
    upper = np.maximum(upper_i.max(axis=0, initial=least), np.maximum(lower, estimate))
    return Bounds(epsilons, level, np.minimum(lower, upper), estimate, upper, upper_i, tuple(assumes))


def _none_above(upper_i: FloatArray, lower: FloatArray) -> FloatArray:
    """(individuals, epsilons) upper bounds, of which the largest is no lower than what was demonstrated of somebody."""
    if not len(upper_i):
        return upper_i
    out, columns = upper_i.copy(), np.arange(upper_i.shape[1])
    most = np.argmax(out, axis=0)
    out[most, columns] = np.maximum(out[most, columns], lower)
    return out


def _falling(values: FloatArray, order: npt.NDArray[np.intp]) -> FloatArray:
    """Columns raised to the largest of those at greater epsilons."""
    out = values.copy()
    out[:, order] = np.maximum.accumulate(values[:, order][:, ::-1], axis=1)[:, ::-1]
    return out


def floor(n: int, level: float) -> float:
    """No delta below is supported by n databases: ``1 - (1 - level)^(1/n)``."""
    return float(-np.expm1(np.log1p(-level) / n))


def no_upper_bound(n: int) -> Message:
    """That so many databases are too few."""
    return Message("no-upper-bound", too_few_for_a_bound(n, LEAST_DATABASES), "error")


def other_level(level: float) -> list[Message]:
    """That the upper bound was validated at another level, if it was."""
    said = f"The upper bound was validated at the level 95%, not at {percent(level)}."
    return [] if level == 0.95 else [Message("other-level", said)]


def no_noise(noise: NoiseGiven) -> None:
    """Refuse noise where it is not the kernel of one number."""
    if is_noise(noise):
        raise InputError("`noise` must be 0 for anything but one number published once, got noise.")


# By the kind of risk


@singledispatch
def bounds_of(risk: AnyRisk, epsilons: FloatArray, level: float, noise: NoiseGiven = 0.0) -> Bounds:
    """Bounds along a curve, by the kind of risk. A kind not known here gets none: from 0 to 1."""
    no_noise(noise)
    lower = np.zeros(len(epsilons))
    none = Message(
        "no-bound-of-kind",
        "No upper bound is known for this kind of risk: the estimate stands alone, and a target can be failed or left "
        "unresolved by the bound, not passed.",
    )
    return make_bounds(risk, epsilons, level, lower, _no_upper(risk, epsilons), [none])


@bounds_of.register(WorstRisk)
def bounds_of_worst(risk: WorstRisk, epsilons: FloatArray, level: float, noise: NoiseGiven = 0.0) -> Bounds:
    # The largest delta is that of one part, whose own upper bound covers it; lower bounds share the error among parts.
    parts = [bounds_of(part, epsilons, level, noise) for part in risk.parts]
    each = level_of_each(level, len(parts))
    lowers = [
        bounds_of(part, epsilons, each, noise).lower if np.any(one.lower > 0) else one.lower
        for part, one in zip(risk.parts, parts, strict=True)
    ]
    found = make_bounds(
        risk, epsilons, level, np.maximum.reduce(lowers), np.maximum.reduce([one.upper_i for one in parts]),
        tuple({message.code: message for one in parts for message in one.assumes}.values()),
        estimate=np.maximum.reduce([one.estimate for one in parts]), noisy=is_noise(noise),
    )  # fmt: skip
    return replace(found, upper=np.maximum.reduce([found.upper, *(one.upper for one in parts)]))


def level_of_each(level: float, parts: int) -> float:
    """The level of each of so many statements that are to hold together."""
    return 1.0 - (1.0 - level) / parts


@bounds_of.register(RepeatedRisk)
def bounds_of_repeated(risk: RepeatedRisk, epsilons: FloatArray, level: float, noise: NoiseGiven = 0.0) -> Bounds:
    """Never below those of one publication, which is part of all: what it shows, all show."""
    no_noise(noise)
    single = bounds_of(risk.single, epsilons, level)
    n = risk.results.n_databases
    said = f"The upper figure of {risk.times:,} publications assumes a law without structure finer than the bandwidth."
    assumes = [Message("repeated-bound", said)]
    if n < LEAST_DATABASES:
        upper_i = _no_upper(risk, epsilons)
        assumes.append(no_upper_bound(n))
    else:
        composed = np.maximum(risk.upper(epsilons, level), risk.delta_i(epsilons))
        upper_i = np.maximum(composed, single.upper_i)
        if not risk.effects.held:
            assumes.append(_no_repeated_bound(n, bool(risk.results.components)))
    assumes += [message for message in single.assumes if message.code != "no-upper-bound"]
    return make_bounds(risk, epsilons, level, single.lower, upper_i, assumes)


def _no_repeated_bound(n: int, several: bool) -> Message:
    if several:
        said = "Several numbers published again and again have no upper figure: none was validated."
    else:
        said = (
            f"{so_many(n, 'give')} no upper figure for several publications, since the results are skewed, end "
            "abruptly or have two peaks: with fewer than 100 none was seen to hold there. Hint: more databases, or "
            "results that are more even, such as logarithms."
        )
    return Message("no-repeated-bound", said, "warning")


def _no_upper(risk: AnyRisk, grid: FloatArray) -> FloatArray:
    return np.ones((risk.results.n_individuals, len(grid)))


# Several publications


def publications(
    risk: AnyRisk, epsilon: float, *, level: float | None = None, once: tuple[float, float] | None = None
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


def how_often(risk: AnyRisk, *, epsilon: float, delta: float, level: float | None = None) -> HowOften:
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
    46 publications are within delta 0.05 at epsilon 1 at 95% confidence; by the estimate 100 publications are.
    """
    delta = probability("delta", delta)
    return publications(risk, epsilon, level=level).how_often(delta)
