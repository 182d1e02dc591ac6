"""`design_noise`: the noise that makes a query private enough, for every individual at once.

One bound judges an answer with noise and without (`noise.judging`, of tables `validate.table_cover`); the least noise
is found by bisecting its scale (`least_scale`): the bound falls as the noise grows, and noise that hides everybody
whatever the data are suffices. The search asks for a few people who move the answer most; what it ends on is judged for
everyone, and whoever misses joins the search. Beside it stand the paper's noise (`noise.paper`), classical noise and
none.

On the cells of a table one factor is bisected for all of them: each gets noise in proportion to the most that anybody
moved it, to its spread, or to the mean of both on a logarithmic scale; Gaussian or Laplace. Of these, that of the
smallest error is taken, added up over cells in units of their spreads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from empriv.base.arguments import finite_epsilon, one_of, positive_number, probability, whole_number
from empriv.base.targets import PRESENCES, check_as_strict
from empriv.errors import CertificateError, InputError
from empriv.judge.cover import dither as dither_noise
from empriv.judge.noise_kernels import NoiseKernel, classical
from empriv.measuring.densities.selection import spread
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.line.risk import Risk
from empriv.measuring.tables import GivenTableRisk, TableRisk
from empriv.noise import METHODS
from empriv.noise.judging import LEVEL, JudgedAnswer, one_number, subject_of
from empriv.noise.law import Law, check_granularity, decimal_at_most, own_rounding, suggested_granularity
from empriv.noise.noise import Noise
from empriv.noise.paper import paper_law
from empriv.noise.table_noise import TableNoise
from empriv.results import FloatArray, IntArray
from empriv.validate.table_bounds import table_upper
from empriv.validate.table_cover import TableCover, all_days_of, most_moved

__all__ = ["METHODS", "classical_noise", "design_noise", "offered_granularity"]

# The search is for speed alone: whatever it ends on is judged for everyone. So these bear on time, not on privacy.
_FIRST = 8  # people that the search asks first, by each of two figures
_JOINED = 16  # people who join it when they miss
_ROUNDS = 16
_FALL = 4.0  # of the scale, in one step, until it is too small
_TOLERANCE = 0.005  # of the scale
_NARROWEST = 2.0**-20  # of classical noise
_CELLS = 2.0**-6  # of the lattice: narrower noise never leaves 0


def least_noise(judged: JudgedAnswer, widest: list[NoiseKernel], epsilon: float, delta: float) -> NoiseKernel | None:
    """The least noise of the smaller error, no wider than these kernels, one of each kind; None if they do not do.

    Each kind is judged with itself as the kernel, at a level that shares the error out over the kinds that are tried:
    that of whichever is taken is 95%.
    """
    level = 1.0 - (1.0 - LEVEL) / len(widest)
    rows = most_influential(judged)
    low = {wide.kind: max(_NARROWEST * wide.scale, _CELLS * wide.step) for wide in widest}
    unsure: dict[str, IntArray] = {}  # by kind: whoever met the target with less noise of the kind meets it with more

    def least(wide: NoiseKernel, rival: NoiseKernel | None) -> NoiseKernel | None:
        """The least scale for the people asked; the rival if none has a smaller error."""
        high = wide.scale if rival is None else min(wide.scale, rival.error * wide.scale / wide.error)
        found = least_scale(
            lambda scale: judged.meets(wide.of_scale(scale), epsilon, delta, rows, level),
            low[wide.kind], high, _TOLERANCE,
        )  # fmt: skip
        return rival if found is None else wide.of_scale(found)

    for _ in range(_ROUNDS):
        best: NoiseKernel | None = None
        for wide in widest:
            best = least(wide, best)
        if best is None:
            return None
        if best.kind in unsure:
            asked = unsure[best.kind]
            upper = judged.of_rows(best, epsilon, asked, level)
        else:
            asked, upper = judged.of_everyone(best, epsilon, delta, level)
        worst = np.argsort(-upper, kind="stable")[: np.count_nonzero(upper > delta)]
        if not len(worst):
            return best
        unsure[best.kind] = asked[worst]
        rows, low[best.kind] = np.union1d(rows, asked[worst[:_JOINED]]), best.scale
    return None


def least_scale(enough: Callable[[float], bool], low: float, high: float, tolerance: float) -> float | None:
    """The least scale from ``low`` to ``high`` that is enough, from above; None if ``high`` is not: it falls by fours,
    then the interval is halved on a logarithmic scale."""
    if high <= low or not enough(high):
        return None
    while high / _FALL > low and enough(high / _FALL):
        high /= _FALL
    return _halved(enough, max(low, high / _FALL), high, tolerance)


def _halved(enough: Callable[[float], bool], low: float, high: float, tolerance: float) -> float:
    while high / low > 1.0 + tolerance:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def most_influential(judged: JudgedAnswer) -> IntArray:
    """People who move the answer most, once and over all databases."""
    pairs = judged.pairs
    with np.errstate(invalid="ignore"):
        change = np.abs(pairs.entries - pairs.points.reshape(-1, pairs.draws)[pairs.entry_database]).mean(axis=1)
    owner = np.repeat(np.arange(pairs.n_individuals), np.diff(pairs.starts))
    total = np.bincount(owner, np.where(np.isfinite(change), change, 0.0), pairs.n_individuals)
    first = [np.argsort(-figures, kind="stable")[:_FIRST] for figures in (judged.moved, total)]
    return np.unique(np.concatenate(first))


_LARGEST_EPSILON = 50.0
_STEPS = 64  # granularities in the scale of noise, where nobody declared one

_WIDEST = 2.0**30  # granularities
_NONE = [("point", 1.0, 0.0)]  # parts of a law without noise

_NEVER = (
    "Noise must be able to hide an individual, which it cannot here: results that are not numbers (NULL, NaN, an "
    "error) come and go with a person too often for this target. "
    "Hint: a query that always gives a number, or a larger `delta`."
)
_HOPELESS = (
    "Noise must be able to hide an individual, which it cannot here: a person decides on some database whether there "
    "is an answer at all (NULL, NaN, an error). Hint: a query that always gives a number, such as coalesce(sum(x), 0); "
    "or presence='random', where that may happen seldom enough for the target."
)


def design_noise(
    risk: Any,
    *,
    epsilon: float,
    delta: float,
    method: str = "least",
    granularity: float | Mapping[str, float] | None = None,
    bound: float | None = None,
    presence: str | None = None,
    dither: bool = False,
    times: int | None = None,
    consistent: bool = False,
) -> Noise | TableNoise:
    """Noise under which the upper bound of every individual's delta_i at ``epsilon`` is at most ``delta``.

    Parameters
    ----------
    risk : a `Risk`, or an `Audit` (of one measured together with earlier releases, the query alone)
    epsilon, delta : the target, which must not allow more than an audit's own
    method : "least" (default): Laplace or Gaussian noise, whichever has the smaller expected error, of the least scale
        that the judge accepts, and never more than "classical"; "classical": the same of the least scale that hides the
        largest move (or ``bound``) whatever the data are, the analytic Gaussian mechanism among them; "paper":
        Laplace(bottleneck distance/epsilon) with the kernel deconvolved, which keeps the paper's promise by the
        estimate and is released only if the judge accepts it too; "as-it-is": none, which assumes that the law of the
        answers is smooth
    granularity : a decimal such as 0.01, or a power of two, that does not depend on the data; None takes a suggestion
        that does, and such a design is for study, not for release
    bound : a declared bound on how much anybody can move an answer, seen or not: a capped query has one. What is
        promised then covers all such people; where the noise alone keeps it, it holds whatever the data are
    presence : "both" asks that the target be met in a random database and on the day that people are in, as the
        verdict does; "random" in a random one alone, as in the paper. Default: as the audit asks, else both
    dither : at least as much noise as lets the bound assume nothing of the answers' law
    times : publications, each from a database of its own, that together keep the target; by "least". Default: as the
        audit asks, else 1
    consistent : of several numbers, make cells add up again after the noise, by least squares: margins are the sums of
        their cells. It can only reduce the noise, and what is released is then no multiple of the granularity

    Several numbers get noise on each, of scales that one search finds; they take "least", ``granularity`` (one, or by
    name), ``presence`` and ``consistent`` alone.

    Returns
    -------
    Noise
        a `TableNoise` for several numbers

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> noise = empriv.design_noise(risk, epsilon=0.1, delta=0.05, granularity=0.25)
    >>> noise.achieved_delta() <= 0.05
    True
    """
    subject = subject_of(risk)
    if subject.targets:
        wanted = finite_epsilon(epsilon), probability("delta", delta)
        check_as_strict(subject.targets, *wanted, presence or ("both" if subject.presence else "random"))
    times = subject.times if times is None else whole_number("times", times, least=1)
    if times < subject.times:
        raise InputError(f"`times` must be at least the audit's own, {subject.times:,}, got {times:,}.")
    usual = "both" if subject.presence else "random"
    if isinstance(subject.risk, TableRisk):
        if method != "least" or bound is not None or dither or times != 1:
            raise InputError(
                "Several numbers must be given noise by the method 'least' of one publication, without bound or dither."
            )
        return design_table_noise(
            subject.risk, epsilon=epsilon, delta=delta, granularity=granularity, consistent=consistent,
            presence=usual if presence is None else one_of("presence", presence, PRESENCES),
        )  # fmt: skip
    if consistent:
        raise InputError("`consistent` must be for several numbers, got one.")
    if isinstance(granularity, Mapping):
        raise InputError("`granularity` must be one number for noise on one number, got several by name.")
    one = one_number(subject)
    finite_epsilon(epsilon)
    if not 0 < epsilon <= _LARGEST_EPSILON:
        raise InputError(f"`epsilon` must be positive and at most {_LARGEST_EPSILON:g}, got {epsilon}.")
    if not (isinstance(delta, int | float | np.number) and 0.0 <= delta < 1.0):
        raise InputError(f"`delta` must lie in [0, 1), got {delta}.")
    epsilon, delta = float(epsilon), float(delta)
    one_of("method", method, METHODS)
    presence = usual if presence is None else one_of("presence", presence, PRESENCES)
    declared = None if granularity is None else check_granularity(granularity)
    if dither and method != "least":
        raise InputError(f"`dither` must be for the method 'least', got {method!r}.")
    judged = JudgedAnswer.of(subject, presence, None if bound is None else _checked_bound(one, bound))
    facts: dict[str, Any] = {
        "epsilon": epsilon, "delta": delta, "method": method, "declared_granularity": declared is not None,
        "unit": subject.unit,
    }  # fmt: skip
    if times > 1 and (bound is not None or method != "least" or dither or not delta):
        raise InputError(
            "`times` must go with a delta above 0 and the method 'least' alone: what is composed are the influences "
            "seen."
        )
    if times > 1 or method in ("as-it-is", "paper") or not judged.hidden > 0:
        step = _step_for(judged) if declared is None else declared
        if times > 1:
            return _for_times(Noise(_law(NoiseKernel("gaussian", step, step), step), judged, times=times, **facts))
        paper = method == "paper"
        law = paper_law(one, judged.pairs, judged.moved, epsilon, step) if paper else Law.of(step, _NONE)
        return _checked(Noise(law, judged, declared_bound=bound, **facts))

    def designed(step: float) -> tuple[NoiseKernel, float | None]:
        return _classical_or_least(judged, epsilon, delta, step, least=method == "least", dither=dither)

    if declared is None:  # as if there were no lattice; then one that is fine for it
        declared = suggested_granularity(16 * designed(0.0)[0].scale / _STEPS)
    kernel, reach = designed(declared)
    if reach != judged.reach:
        judged = replace(judged, reach=reach)
    return _checked(Noise(_law(kernel, declared), judged, declared_bound=bound, **facts))


def _for_times(narrowest: Noise) -> Noise:
    """The least Gaussian noise for so many publications: the smallest scale that the judge accepts for one of them, and
    whose publications add up to the target. Squares of effect sizes add up, and those of Gaussian noise are least."""
    epsilon, delta, step = narrowest.epsilon, narrowest.delta, narrowest.step
    judged = narrowest.judged

    def of_scale(scale: float) -> Noise:
        return replace(narrowest, law=_law(NoiseKernel("gaussian", scale, step), step))

    hidden = max(judged.largest, step)
    once = least_noise(judged, [classical(epsilon, delta, hidden, "gaussian", step)], epsilon, delta)
    low = step if once is None else max(once.scale, step)
    high = low
    while not of_scale(high).composes(narrowest.times, epsilon, delta):
        low, high = high, 2 * high
        if high > _WIDEST * step:
            raise InputError(_NEVER)
    found = _halved(lambda scale: of_scale(scale).composes(narrowest.times, epsilon, delta), low, high, _TOLERANCE)
    return _checked(of_scale(found))


def _checked(noise: Noise) -> Noise:
    """The noise, if it keeps its promise; the paper's keeps its own, by the estimate, and is given all the same."""
    if noise.method == "paper" or noise.holds:
        return noise
    if noise.method == "as-it-is":
        raise CertificateError(
            f"The answer as it is must be private enough to be released so, and its upper bound on delta is "
            f"{noise.achieved_delta():.2g} at epsilon {noise.epsilon:g}. Hint: dither=True adds the least noise that "
            "is enough."
        )
    raise CertificateError(_HOPELESS)


def _classical_or_least(
    judged: JudgedAnswer, epsilon: float, delta: float, step: float, *, least: bool, dither: bool
) -> tuple[NoiseKernel, float | None]:
    """The noise, and the most that is promised to be hidden: None for twice as much as was seen of each person.

    The least noise has the smaller error of both kinds, each judged with itself as the kernel. Where nothing less than
    classical noise does, so few databases support nothing better at this delta: the noise alone keeps the promise, for
    moves as large as were seen.
    """
    widest = _classical_of_each_kind(judged, epsilon, delta, step)
    usual = _smallest_error(widest)
    found = least_noise(judged, widest, epsilon, delta) if least else None
    if found is None or found.error > usual.error:
        return usual, judged.hidden
    dithered = dither_noise(judged.pairs.points, draws=judged.pairs.draws, step=step) if dither else None
    if dithered is None or dithered.error <= found.error:
        return found, judged.reach
    if dithered.error >= usual.error:
        return usual, judged.hidden
    return (dithered if judged.meets(dithered, epsilon, delta) else found), judged.reach


def _classical_of_each_kind(judged: JudgedAnswer, epsilon: float, delta: float, step: float) -> list[NoiseKernel]:
    """Noise that hides the largest move whatever the data are; at delta = 0 only Laplace noise serves."""
    kinds = ("laplace", "gaussian") if delta > 0 else ("laplace",)
    return [classical(epsilon, delta, judged.hidden, kind, step) for kind in kinds]


def _smallest_error(kernels: Sequence[NoiseKernel]) -> NoiseKernel:
    return min(kernels, key=lambda kernel: kernel.error)


def classical_noise(noise: Noise) -> NoiseKernel | None:
    """Classical noise at the same epsilon, delta, largest move and lattice, to compare with; None for several
    publications and where nobody moves the answer."""
    if noise.times > 1 or not noise.judged.hidden > 0:
        return None
    return _smallest_error(_classical_of_each_kind(noise.judged, noise.epsilon, noise.delta, noise.step))


def _law(kernel: NoiseKernel, granularity: float) -> Law:
    return Law.of(granularity, [(kernel.kind, 1.0, kernel.scale)])


def _checked_bound(risk: Risk, bound: float) -> float:
    positive_number("bound", bound)
    influence = risk.influence()
    if np.any(influence[np.isfinite(influence)] > bound * (1 + 1e-9)):
        raise InputError(
            "`bound` must be at least every influence that was observed, got one that is smaller than a person's. "
            "Hint: a bound comes from the query and the rows it may meet, such as a cap on what each person adds."
        )
    return float(bound)


def _step_for(judged: JudgedAnswer) -> float:
    """A power of two far below the noise that would dither the answer."""
    dithered = dither_noise(judged.pairs.points, draws=judged.pairs.draws)
    influence = judged.risk.influence()
    influence = influence[np.isfinite(influence) & (influence > 0)]
    width = dithered.scale if dithered is not None else float(influence.min()) if len(influence) else 1.0
    return suggested_granularity(16 * width / _STEPS)


def offered_granularity(risk: Any) -> float:
    """A granularity in people's own terms: far below the noise, and no finer than the answers are themselves.

    It is taken from the data, so it is an offer: whoever releases declares it.
    """
    one = one_number(subject_of(risk))
    numbers = one.results.q[one.results.outcomes == 0]
    own = None if isinstance(one, GivenRisk) else own_rounding(np.ravel(numbers))
    return max(decimal_at_most(4 * _step_for(JudgedAnswer(one))), own or 0.0)


# Tables

_DAYS = 8  # days of several cells that the search asks, the furthest
_TOLERANCE_OF_TABLES = 0.01  # of the scale
_NARROWEST_OF_TABLES = 2.0**-16  # of noise that hides everybody whatever the data are
_WIDER, _TRIES = 1.03, 24  # where a day was overlooked
Kernels = tuple[NoiseKernel | None, ...]


def design_table_noise(
    risk: TableRisk,
    *,
    epsilon: float,
    delta: float,
    granularity: float | Mapping[str, float] | None = None,
    consistent: bool = False,
    presence: str = "both",
) -> TableNoise:
    """The least noise found on each of several numbers that the judge accepts; see `empriv.design_noise`."""
    if not (finite_epsilon(epsilon) > 0):
        raise InputError(f"`epsilon` must be positive and finite, got {epsilon:g}.")
    probability("delta", delta)
    if not isinstance(consistent, bool):
        raise InputError(f"`consistent` must be True or False, got {consistent!r}.")
    names = tuple(risk.each_number)
    steps = _granularities(risk, names, granularity)
    found = least_scales(risk, np.array(steps), float(epsilon), float(delta), presence)
    if found is None:
        raise CertificateError(
            f"No noise keeps delta at {delta:g}: a person decides on some database whether a number is there at all "
            "(NULL, NaN, an error). Hint: a query that always gives numbers, such as coalesce(sum(x), 0), and in place "
            "of GROUP BY, whose cells come and go, count(*) FILTER (WHERE ...) for each; or presence='random', where "
            "that may happen seldom enough for the target."
        )
    kind, scales = found
    laws = {
        name: Law.of(step, [(kind, 1.0, scale)] if scale > 0 else _NONE)
        for name, step, scale in zip(names, steps, scales.tolist(), strict=True)
    }
    noise = TableNoise(
        laws=laws,
        risk=risk,
        epsilon=float(epsilon),
        delta=float(delta),
        declared_granularity=granularity is not None,
        consistent=consistent,
        presence=presence,
        given=isinstance(risk, GivenTableRisk),
    )
    if consistent:
        _ = noise.relations  # where it cannot be seen how cells add up, that is said now
    return noise


def least_scales(
    risk: TableRisk, steps: FloatArray, epsilon: float, delta: float, presence: str = "both"
) -> tuple[str, FloatArray] | None:
    """The kind of noise and (cells,) its scales on lattices of these steps; None if no noise keeps the target."""
    most = most_moved(risk)
    moved = np.where(most > 0, np.maximum(most, steps), 0.0)
    if not moved.any():
        return "laplace", moved

    def kept(kernels: Kernels) -> bool:
        return table_upper(risk, kernels, epsilon, delta, presence) <= delta

    def seems_kept(kernels: Kernels) -> bool:
        """The same, as far as those whom a search asks tell."""
        if presence == "random":
            return kept(kernels)
        return TableCover(risk, kernels).meets(epsilon, delta, asked=_DAYS)

    def least_factor(kind: str, shape: FloatArray, most: float) -> float | None:
        """The least factor of a shape that keeps the target, below ``most``; None if there is none."""

        def kernels(factor: float) -> Kernels:
            scales = zip((factor * shape).tolist(), steps.tolist(), strict=True)
            return tuple(NoiseKernel(kind, scale, step) if scale > 0 else None for scale, step in scales)

        high = min(_hiding_factor(risk, steps, epsilon, delta, kind, shape), most)
        found = None
        if high > 0:
            low = _NARROWEST_OF_TABLES * high
            found = least_scale(lambda factor: seems_kept(kernels(factor)), low, high, _TOLERANCE_OF_TABLES)
        for _ in range(_TRIES):
            if found is None or found >= most:
                return None
            if kept(kernels(found)):
                return found
            found *= _WIDER
        return None

    spreads = np.array([spread(q) for q in _columns(risk)])
    spreads = np.where(spreads > 0, spreads, np.where(moved > 0, moved, 1.0))
    shapes = [moved, np.where(moved > 0, spreads, 0.0), np.sqrt(moved * spreads)]
    best: tuple[float, str, FloatArray] | None = None
    for kind in ("gaussian", "laplace") if delta > 0 else ("laplace",):
        for shape in shapes:
            cost = float((shape / spreads).sum()) * NoiseKernel(kind, 1.0).error
            found = least_factor(kind, shape, np.inf if best is None else best[0] / cost)
            if found is not None:
                best = found * cost, kind, found * shape
    return None if best is None else (best[1], best[2])


def _hiding_factor(
    risk: TableRisk, steps: FloatArray, epsilon: float, delta: float, kind: str, shape: FloatArray
) -> float:
    """A factor with which the noise alone hides every day of everybody."""
    steps, power, size = np.maximum(steps, 1e-300), 1 if kind == "laplace" else 2, 0.0
    for days in all_days_of(risk):
        moved = np.ceil(np.abs(days.moves) / steps[days.cells] - 1e-9) * steps[days.cells] / shape[days.cells]
        size = max(size, float(np.bincount(days.day, moved**power).max(initial=0.0)))
    if kind == "laplace":  # |d|/s adds up to epsilon at most
        return size / epsilon * (1 + 1e-9)
    return classical(epsilon, delta, math.sqrt(size), "gaussian").scale if size > 0 else 0.0


def _columns(risk: TableRisk) -> list[FloatArray]:
    """The answers of each cell that are numbers."""
    d = len(risk.fit.cells)
    q, codes = risk.results.q.reshape(-1, d), risk.results.outcomes.reshape(-1, d)
    return [q[codes[:, cell] == 0, cell] for cell in range(d)]


def _granularities(
    risk: TableRisk, names: tuple[str, ...], granularity: float | Mapping[str, float] | None
) -> list[float]:
    if isinstance(granularity, Mapping):
        if set(granularity) != set(names):
            raise InputError(f"`granularity` must hold each of the {len(names)} numbers by name, and no other.")
        return [check_granularity(granularity[name]) for name in names]
    if granularity is not None:
        return [check_granularity(granularity)] * len(names)
    return [suggested_granularity(_width(risk, name)) for name in names]


def _width(risk: TableRisk, name: str) -> float:
    results = risk.each_number[name].results
    influence = np.nan_to_num(risk.each_number[name].influence(), nan=0.0)
    return float(influence.max(initial=0.0)) or spread(results.q[results.outcomes == 0].ravel()) or 1.0
