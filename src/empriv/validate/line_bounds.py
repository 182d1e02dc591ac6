"""Bounds of one number by the one judge: the results with everyone against those without each person.

Point masses (NULL, constants, results off a lattice) are compared by counts, and what they
tell joins the bound. With noise only outcomes that are no number are left of them: noise hides the others, or the bound
says by how much it does not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from empriv.judge import gate, lower, noisy_laws, upper
from empriv.judge.noise_kernels import NoiseGiven, NoiseKernel, kernel_of
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.densities.density import is_usual
from empriv.measuring.given.given_risk import GivenRisk, atom_curves, atoms_apart
from empriv.measuring.line.atoms import Pairs, share_at_most, take_atoms_out, tie_tolerance
from empriv.measuring.line.risk import Risk, measure_line
from empriv.results import FloatArray
from empriv.validate.bounds import Bounds, bounds_of, make_bounds, no_upper_bound, other_level
from empriv.words.message import Message
from empriv.words.sentences import quantity

_LARGEST = 64  # people among whom the largest estimate with noise is sought, those with the largest bounds
_HALVINGS = 10


@dataclass(frozen=True, eq=False)
class BoundInputs:
    """The points under a bound.

    Attributes
    ----------
    values : the points with every outcome a number
    marked : the same where atoms stand at +inf, from `measuring.line.atoms`
    tolerance : numbers this close are the same number
    refitted : whether the risk was measured with another density
    """

    values: Pairs
    marked: Pairs
    tolerance: float
    refitted: bool

    @property
    def draws(self) -> int:
        return self.values.draws

    @property
    def n_databases(self) -> int:
        return len(self.values.points) // self.values.draws


def bound_inputs(risk: Risk) -> BoundInputs:
    """The points under the bounds of a risk: of one measured with another density, as by default."""
    same = is_usual(risk.density)
    basis = risk if same else measure_line(risk.results, people=risk.pairs.people)
    results, pairs = basis.results, basis.pairs
    q, entries = results.q.reshape(-1), results.entry_q.reshape(pairs.entries.shape)
    codes, entry_codes = results.outcomes.reshape(-1), results.entry_outcomes.reshape(pairs.entries.shape)
    numbers = q[codes == 0]
    if codes.any() or entry_codes.any():
        far = 1.0 + 2.0 * float(np.abs(np.concatenate((numbers, entries[entry_codes == 0]))).max(initial=0.0))
        q, entries = np.where(codes == 0, q, far * codes), np.where(entry_codes == 0, entries, far * entry_codes)
    return BoundInputs(
        values=replace(pairs, points=q, entries=entries, own=()),
        marked=pairs,
        tolerance=tie_tolerance(numbers),
        refitted=not same,
    )


@bounds_of.register(Risk)
def bounds_of_number(risk: Risk, epsilons: FloatArray, level: float, noise: NoiseGiven = 0.0) -> Bounds:
    """Bounds of a risk as it is, or with noise."""
    kernel, reach = kernel_of(noise)
    if kernel is not None:
        return _with_noise(added_to(risk), epsilons, level, kernel, reach)
    values, assumes = upper_of_people(risk, epsilons, level, reach)
    # an estimate made with another density may lie above; a bound below an estimate would only confuse
    values = np.maximum(values, risk.delta_i(epsilons))
    shown = lower_of_people(risk, epsilons, level)
    return make_bounds(risk, epsilons, level, shown, values, [*assumes, *other_level(level)])


_NOT_SMOOTH = Message(
    "not-smooth",
    "The answers keep to a pattern that is finer than a smooth distribution, such as whole fives: as it is there is no "
    "upper bound. Hint: dither, a little noise with which nothing is assumed (empriv noise --dither).",
    "warning",
)


_OTHER_DENSITY = Message(
    "other-density", "The bounds do not use the density of the estimate: they are the same for any."
)


_NOTHING_ASSUMED = Message(
    "nothing-assumed", "With the noise, nothing is assumed about the distribution of the answers."
)


def upper_of_people(
    risk: Risk, epsilons: FloatArray, level: float, reach: float | None = None
) -> tuple[FloatArray, tuple[Message, ...]]:
    """(individuals, epsilons) upper bounds of the answer as it is, and what they assume."""
    basis = bound_inputs(risk)  # a risk measured with another density is split into atoms as usual
    pairs, n = basis.marked, basis.n_databases
    judged = upper.of_people(pairs, epsilons, level=level, reach=reach)
    values, refuted = judged.values.copy(), bool(np.any(judged.refuted))
    for row, own in pairs.own:
        values[row] = upper.of_people(own, epsilons, level=level, reach=reach).values[0]
    if patterned(risk):
        moving = upper.moves(pairs)[0] > 0
        values[moving], refuted = 1.0, refuted or bool(np.any(moving))
    values = np.maximum(values, _shares(atoms_apart(risk), epsilons, n, level))
    values = np.maximum(values, _shares(pairs, epsilons, n, level))
    if n < LEAST_DATABASES:
        assumes = [no_upper_bound(n)]
    elif refuted:
        assumes = [_NOT_SMOOTH]
    else:
        finest = quantity(upper.bandwidth(pairs.points, pairs.draws))
        said = f"As it is, assumes a smooth distribution: no structure finer than {finest}. With noise, nothing is "
        assumes = [Message("smooth", f"{said}assumed of it.")]
    assumes += [_OTHER_DENSITY] if basis.refitted else []
    return values, (*assumes, *draws_averaged(pairs.draws))


def patterned(risk: Risk) -> bool:
    """Whether the answers themselves refute that they are smooth, where residuals are measured: a regression smears
    whole fives, which readers see all the same."""
    if not isinstance(risk, GivenRisk):
        return False  # the judge looks at what was measured
    points = risk.atoms.points[:: risk.atoms.draws]
    points = points[np.isfinite(points)]
    return len(points) > 1 and bool(gate.refuted(points[None, :], np.array([upper.bandwidth(points)]))[0])


def added_to(risk: Risk) -> Risk:
    """The risk in units of the answers, to which noise is added."""
    return risk.without_logarithm() if isinstance(risk, GivenRisk) else risk


def _with_noise(risk: Risk, epsilons: FloatArray, level: float, kernel: NoiseKernel, reach: float | None) -> Bounds:
    pairs = take_atoms_out(risk.results, look=False)
    values = upper.of_people(pairs, epsilons, kernel, level=level, reach=reach).values
    values = np.maximum(values, _shares(pairs, epsilons, risk.results.n_databases, level))
    rows = np.argsort(-values.max(axis=1, initial=0.0), kind="stable")[:_LARGEST]
    estimate = np.zeros(len(epsilons))
    if len(rows):
        # at level 1 the mean of W is the hockey stick of both mixtures
        w = noisy_laws.values(pairs.points, pairs.dense(rows), kernel, epsilons, draws=pairs.draws)
        sticks = np.maximum(w.mean(axis=-1).max(axis=2), 0.0) + atom_curves(pairs, epsilons)[rows]
        estimate = np.minimum(sticks, values[rows]).max(axis=0)
    least = lower.of_people(pairs, upper.moves(pairs)[0], epsilons, kernel, level=level)
    assumes = [_NOTHING_ASSUMED, *draws_averaged(pairs.draws), *other_level(level)]
    return make_bounds(risk, epsilons, level, least, values, assumes, estimate=estimate, noisy=True)


def _shares(pairs: Pairs, epsilons: FloatArray, n: int, level: float) -> FloatArray:
    """(individuals, epsilons) bounds on what point masses tell: counted, as results had them."""
    counts = np.rint(atom_curves(pairs, epsilons) * n)
    return np.where(counts > 0, share_at_most(counts, n, level), 0.0) if counts.any() else np.zeros_like(counts)


def lower_of_people(risk: Risk, epsilons: FloatArray, level: float) -> FloatArray:
    """(epsilons,) a delta that the databases demonstrate at the level."""
    inputs = bound_inputs(risk)
    found = lower.of_people(inputs.values, upper.moves(inputs.values)[0], epsilons, level=level)
    apart = [pairs for pairs in (inputs.marked, atoms_apart(risk)) if pairs.names or pairs.own]
    for pairs in apart:
        found = np.maximum(found, _lower_of_outcomes(pairs, epsilons, level))
    return np.asarray(np.minimum(found, 1.0))


def _lower_of_outcomes(pairs: Pairs, epsilons: FloatArray, level: float) -> FloatArray:
    """(epsilons,) what point masses demonstrate: 1 where a result is one of them, else 0."""
    certain = atom_curves(pairs, epsilons[:1])[:, 0]
    rows = np.argsort(-certain, kind="stable")[:_LARGEST]
    rows = rows[certain[rows] > 0]
    if not len(rows):
        return np.zeros(len(epsilons))
    own = dict(pairs.own)
    first = np.array([own.get(row, pairs).points for row in rows.tolist()])
    without = np.array(
        [own[row].dense(np.array([0]))[0] if row in own else pairs.dense(np.array([row]))[0] for row in rows.tolist()]
    )
    return lower.of_anyone(
        1.0 - np.isfinite(first), 1.0 - np.isfinite(without), epsilons, NoiseKernel("laplace", 1e-3), draws=pairs.draws,
        level=level,
    )  # fmt: skip


def draws_averaged(draws: int) -> list[Message]:
    """That the draws of each database are averaged, if there are several."""
    said = f"The {draws:,} draws of a database are averaged: bounds count databases, not draws."
    return [Message("draws", said)] if draws > 1 else []


def estimate_of_move(law: FloatArray, move: float, epsilon: float, kernel: NoiseKernel | None, draws: int) -> float:
    """The hockey stick of a law (N,) and the same moved, by kernel estimates at one bandwidth or with the noise."""
    if kernel is None:
        h = upper.bandwidth(law, draws)
        if h <= 0:
            return 1.0
        kernel = NoiseKernel("laplace", h)
    w = noisy_laws.values(law + move, law[None, :], kernel, np.array([epsilon]), draws=draws)
    return float(np.clip(w.mean(axis=-1).max(), 0.0, 1.0))


def furthest_shown(shows: Callable[[int], bool], count: int) -> int:
    """How many of the furthest moves, in order, the databases demonstrate not to be hidden, where they do so of the
    first."""
    known, not_known = 1, count + 1
    for _ in range(_HALVINGS):
        if not_known - known <= 1:
            break
        middle = (known + not_known + 1) // 2
        known, not_known = (middle, not_known) if shows(middle - 1) else (known, middle)
    return known
