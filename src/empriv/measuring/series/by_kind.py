"""`effects_of_risk`: what one publication tells of each person, by the kind of risk.

Whoever knows the previous answers sees innovations. For somebody who is in all databases or in none, an innovation
moves by ``d_k - sum_l rho_l d_{k-l}``, rho being the weights of the previous answers: the answers before moved as well.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np

from empriv.errors import InputError
from empriv.measuring.contract import RiskContract
from empriv.measuring.densities.density import Mixture, is_usual
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.given.residuals import Residuals
from empriv.measuring.line.atoms import Pairs, tie_tolerance
from empriv.measuring.line.moves import Moves, as_it_is, others_laws, spread_of_law
from empriv.measuring.line.risk import Risk, measure_line
from empriv.measuring.series.effect_size import Effects, EffectSizes, EstimatedEffects, SizeCurve, grid_of, size_curve
from empriv.measuring.tables.table_risk import TableRisk
from empriv.results import FloatArray, IntArray

_CERTAIN = 60.0  # epsilon: who is told apart beyond it is told apart for certain

PublicationEffects: TypeAlias = EffectSizes | EstimatedEffects


def composes(risk: RiskContract) -> bool:
    """Whether a kind of risk has figures of several publications."""
    return isinstance(risk, Risk | TableRisk)


def effects_of_risk(risk: RiskContract) -> PublicationEffects:
    """What one publication of the answer as it is tells of each person."""
    if isinstance(risk, Risk):
        return _of_line(risk)
    if isinstance(risk, TableRisk):
        return _of_table(risk)
    raise InputError(
        "`repeated` must be asked of results as they are, `Given` what is known or of several numbers, got another "
        "kind of risk. Hint: known='nothing', or what is regressed out, such as known='calendar'."
    )


def _of_line(risk: Risk) -> EffectSizes:
    basis = risk if is_usual(risk.density) else measure_line(risk.results)
    pairs = basis.pairs
    moves = as_it_is(risk.moves(), pairs)
    if isinstance(risk, GivenRisk):
        moves = as_it_is(moves, risk.atoms)
    sizes, owner = publication_moves(risk, moves)
    model = basis.density
    curves: tuple[SizeCurve, ...] = ()
    if isinstance(model, Mixture):
        curves = curves_of(pairs, moves, grid_of(sizes), (model.bandwidth, model.likeliest))
    return EffectSizes(
        curves, sizes, owner, pairs.n_individuals, len(pairs.points) // pairs.draws,
        digits=_digits(risk, risk.atoms if isinstance(risk, GivenRisk) else pairs),
    )  # fmt: skip


def curves_of(
    pairs: Pairs,
    moves: Moves,
    grid: FloatArray,
    bandwidths: tuple[float, float],
    *,
    noise: tuple[str, float] | None = None,
) -> tuple[SizeCurve, ...]:
    """A curve beside each of the others' laws: that of the results, and those that are narrower."""
    laws = others_laws(pairs, moves)
    spreads = [spread_of_law(law) for law in laws]
    return tuple(
        size_curve(
            law, grid, *(width * (spread / spreads[0] if spreads[0] > 0 else 1.0) for width in bandwidths),
            noise=noise, draws=pairs.draws,
        )
        for law, spread in zip(laws, spreads, strict=True)
    )  # fmt: skip


def publication_moves(risk: Risk, moves: Moves) -> tuple[FloatArray, IntArray]:
    """(person-days,) moves in units of the law and whose they are, as many publications show them."""
    if isinstance(risk, GivenRisk) and any(term.lag for term in risk.left.fit.terms):
        return _innovations(risk, moves)
    return moves.relative, moves.owner


def _innovations(risk: GivenRisk, moves: Moves) -> tuple[FloatArray, IntArray]:
    """What somebody moves of an answer beside the answers before it, from which they were away as well."""
    left, whole = risk.left, risk.whole
    order = risk.in_time
    time_of = np.empty(len(order), np.int64)  # of a database by position
    time_of[order] = np.arange(len(order))
    row_at = np.full(len(order), -1)
    row_at[time_of[left.places]] = np.arange(len(left.places))
    owner = np.repeat(np.arange(whole.n_individuals), np.diff(whole.starts))
    scaled = np.log if left.logarithm else np.asarray
    with np.errstate(invalid="ignore", divide="ignore"):
        change = scaled(whole.q)[whole.entry_database] - scaled(whole.entry_q)
    change = np.where(np.isfinite(change), change, 0.0).reshape(len(owner), -1).mean(axis=1)
    change[np.abs(change) <= tie_tolerance(scaled(whole.q[whole.outcomes == 0]))] = 0.0
    then = time_of[whole.entry_database]
    parts = [(owner, then, change)]
    for lag, weight in previous_weights(left).items():
        inside = then + lag < len(order)
        parts.append((owner[inside], then[inside] + lag, -weight * change[inside]))
    owners, times, changes = (np.concatenate(column) for column in zip(*parts, strict=True))
    known = row_at[times] >= 0
    n = len(left.places)
    keys, place = np.unique(owners[known] * n + row_at[times[known]], return_inverse=True)
    sizes = np.abs(np.bincount(place.reshape(-1), changes[known], minlength=len(keys))) / left.units[keys % n]
    told = np.isinf(moves.sizes)
    sizes = np.concatenate((sizes, np.full(int(told.sum()), np.inf)))
    return sizes, np.concatenate((keys // n, moves.owner[told]))


def previous_weights(left: Residuals) -> dict[int, float]:
    """The weight of each previous answer in the fitted level, by how many answers before it was."""
    terms = left.fit.terms
    design = np.column_stack([np.ones(len(left.fit.level)), *(term.columns for term in terms)])
    here = np.isfinite(left.fit.level)
    weights = np.linalg.lstsq(design[here], left.fit.level[here], rcond=1e-10)[0]
    out, place = {}, 1
    for term in terms:
        if term.lag and term.size and term.values is not None:
            out[term.lag] = float(weights[place] / np.asarray(term.values, float).std())
        place += term.size
    return out


def _digits(risk: Risk, pairs: Pairs) -> FloatArray | None:
    """What the last digits tell, which kernels blur: no pair of laws with total variation TV has a smaller H than
    ``-4 log(1 - TV²)``."""
    rows = np.array([row for row, _ in pairs.residues], np.int64)
    if not len(rows):
        return None
    apart, certain = risk.delta_i(np.array([0.0, _CERTAIN]))[rows].T
    out = np.zeros((2, pairs.n_individuals))
    out[:, rows] = -4.0 * np.log1p(-(np.minimum(apart, 1 - 1e-12) ** 2)), certain
    return out


def _of_table(risk: TableRisk) -> EstimatedEffects:
    """A whole table: what somebody does on a day, as a normal table would show it; no upper figure."""
    influences, n = risk.influences, risk.fit.n
    squares = np.bincount(influences.owner, influences.sizes, minlength=risk.n_individuals) / n
    with np.errstate(divide="ignore"):
        return EstimatedEffects(Effects(squares, -np.log1p(-np.minimum(risk.leaked(), 1.0))), n)
