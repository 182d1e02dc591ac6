"""Bounds of one number by the one judge: the results with everyone against those without each person.

Outcomes that have a mass of their own (NULL, constants, results off a lattice) are compared by counts, and what they
tell joins the bound. With noise only outcomes that are no number are left of them: noise hides the others, or the bound
says by how much it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import singledispatch

import numpy as np

from empriv.judge import gate, lower, noisy_laws, upper
from empriv.judge.noise_kernels import NoiseKernel
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.given.given_risk import GivenRisk, atom_curves, atoms_apart
from empriv.measuring.line.atoms import Pairs, share_at_most, split
from empriv.measuring.line.risk import Risk
from empriv.results import FloatArray
from empriv.validate.ground import ground_of
from empriv.words.findings import Finding

_TOGETHER = 512  # people whose results are laid out at once
_LOOKED_AT = 64  # people among whom the largest estimate with noise is looked for, those with the largest bounds


@dataclass(frozen=True, eq=False)
class LineBounds:
    """Bounds of one number: (epsilons,), and (individuals, epsilons) for each."""

    lower: FloatArray
    estimate: FloatArray
    upper_i: FloatArray
    assumes: tuple[Finding, ...]


@dataclass(frozen=True, eq=False)
class UpperOfPeople:
    """(individuals, epsilons) upper bounds, and what they assume."""

    values: FloatArray
    assumes: tuple[Finding, ...]


def line_bounds(
    risk: Risk, epsilons: FloatArray, level: float, kernel: NoiseKernel | None = None, reach: float | None = None
) -> LineBounds:
    """Bounds of a risk as it is, or with noise."""
    if kernel is not None:
        return _with_noise(added_to(risk), epsilons, level, kernel, reach)
    bounded = upper_of_people(risk, epsilons, level, reach)
    estimate_i = risk.delta_i(epsilons)
    # an estimate made with another density may lie above; a bound below an estimate would only confuse
    values = np.maximum(bounded.values, estimate_i)
    estimate = estimate_i.max(axis=0, initial=0.0)
    return LineBounds(lower_of_people(risk, epsilons, level), estimate, values, bounded.assumes)


def upper_of_people(risk: Risk, epsilons: FloatArray, level: float, reach: float | None = None) -> UpperOfPeople:
    """Upper bounds of the answer as it is."""
    basis = ground_of(risk)  # a risk measured with another density is split into atoms as usual
    pairs, n = basis.marked, basis.n_databases
    judged = upper.of_people(pairs, epsilons, level=level, reach=reach)
    values, refuted = judged.values.copy(), int(np.count_nonzero(judged.refuted))
    for row, own in pairs.own:
        values[row] = upper.of_people(own, epsilons, level=level, reach=reach).values[0]
    if patterned(risk):
        moving = upper.moves(pairs)[0] > 0
        values[moving], refuted = 1.0, refuted + int(np.count_nonzero(moving))
    values = np.maximum(values, _shares(atoms_apart(risk), epsilons, n, level))
    values = np.maximum(values, _shares(pairs, epsilons, n, level))
    if n < LEAST_DATABASES:
        assumes = [Finding("no-upper-bound", {"n": n, "least": LEAST_DATABASES})]
    elif refuted:
        assumes = [Finding("not-smooth", {"people": refuted})]
    else:
        assumes = [Finding("smooth", {"bandwidth": upper.bandwidth(pairs.points, pairs.draws)})]
    assumes += [Finding("other-density")] if basis.refitted else []
    return UpperOfPeople(values, (*assumes, *draws_averaged(pairs.draws)))


@singledispatch
def patterned(risk: Risk) -> bool:  # noqa: ARG001 — the judge looks at what was measured
    """Whether the answers themselves refute that they are smooth, where what is measured is what is left of them: a
    regression smears whole fives, which readers see all the same."""
    return False


@patterned.register
def _(risk: GivenRisk) -> bool:
    points = risk.atoms.points[:: risk.atoms.draws]
    points = points[np.isfinite(points)]
    return len(points) > 1 and bool(gate.refuted(points[None, :], np.array([upper.bandwidth(points)]))[0])


def _with_noise(risk: Risk, epsilons: FloatArray, level: float, kernel: NoiseKernel, reach: float | None) -> LineBounds:
    pairs = split(risk.results, look=False)
    values = upper.of_people(pairs, epsilons, kernel, level=level, reach=reach).values
    values = np.maximum(values, _shares(pairs, epsilons, risk.results.n_databases, level))
    rows = np.argsort(-values.max(axis=1, initial=0.0), kind="stable")[:_LOOKED_AT]
    estimate = np.zeros(len(epsilons))
    if len(rows):
        # at level 1 the mean of W is the hockey stick of both mixtures
        w = noisy_laws.values(pairs.points, pairs.dense(rows), kernel, epsilons, draws=pairs.draws)
        sticks = np.maximum(w.mean(axis=-1).max(axis=2), 0.0) + atom_curves(pairs, epsilons)[rows]
        estimate = np.minimum(sticks, values[rows]).max(axis=0)
    least = lower.of_people(pairs, upper.moves(pairs)[0], epsilons, kernel, level=level)
    return LineBounds(least, estimate, values, (Finding("nothing-assumed"), *draws_averaged(pairs.draws)))


def _shares(pairs: Pairs, epsilons: FloatArray, n: int, level: float) -> FloatArray:
    """(individuals, epsilons) bounds on what outcomes with a mass of their own tell: counted, as results had them."""
    counts = np.rint(atom_curves(pairs, epsilons) * n)
    return np.where(counts > 0, share_at_most(counts, n, level), 0.0) if counts.any() else np.zeros_like(counts)


def lower_of_people(risk: Risk, epsilons: FloatArray, level: float) -> FloatArray:
    """(epsilons,) a delta that the databases demonstrate at the level."""
    ground = ground_of(risk)
    found = lower.of_people(ground.values, upper.moves(ground.values)[0], epsilons, level=level)
    apart = [pairs for pairs in (ground.marked, atoms_apart(risk)) if pairs.names or pairs.own]
    for pairs in apart:
        found = np.maximum(found, _lower_of_outcomes(pairs, epsilons, level))
    return np.asarray(np.minimum(found, 1.0))


def _lower_of_outcomes(pairs: Pairs, epsilons: FloatArray, level: float) -> FloatArray:
    """(epsilons,) what outcomes with a mass of their own demonstrate: 1 where a result is one of them, else 0."""
    told = atom_curves(pairs, epsilons[:1])[:, 0]
    rows = np.argsort(-told, kind="stable")[:_LOOKED_AT]
    rows = rows[told[rows] > 0]
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


def upper_of_cell(risk: Risk, epsilons: FloatArray, level: float, cells: int) -> FloatArray:
    """(individuals, epsilons) upper bounds of one of so many numbers, or of a direction in them.

    The gate is one for all of them: a false alarm in a hundred tables, not in a hundred cells.
    """
    pairs = ground_of(risk).marked
    n, draws = len(pairs.points) // pairs.draws, pairs.draws
    moved, changed = upper.moves(pairs)
    rows = np.flatnonzero((moved > 0) | (changed > 0))
    out = np.zeros((pairs.n_individuals, len(epsilons)))
    points = pairs.points[None, ::draws]
    h = np.array([upper.bandwidth(pairs.points, draws)])
    if np.isfinite(points).sum() > 1 and bool(gate.refuted(points, h, cells)[0]):
        out[rows] = 1.0
        return out
    for start in range(0, len(rows), _TOGETHER):
        some = rows[start : start + _TOGETHER]
        found = upper.of_pairs(pairs.points, pairs.dense(some), epsilons, draws=draws, level=level, known_smooth=True)
        out[some] = found.values
    for row, own in pairs.own:
        out[row] = upper.of_people(own, epsilons, level=level).values[0]
    return np.asarray(np.maximum(out, _shares(pairs, epsilons, n, level)))


def floor(n: int, level: float) -> float:
    """No delta below is supported by n databases: ``1 - (1 - level)^(1/n)``."""
    return float(-np.expm1(np.log1p(-level) / n))


def draws_averaged(draws: int) -> list[Finding]:
    """That the draws of each database are averaged, if there are several."""
    return [Finding("draws", {"m": draws})] if draws > 1 else []


@singledispatch
def added_to(risk: Risk) -> Risk:
    """The risk in units of the answers, to which noise is added."""
    return risk


@added_to.register
def _(risk: GivenRisk) -> Risk:
    return risk.without_logarithm()
