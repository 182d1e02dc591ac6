"""`looked_at`: the effect sizes of a risk for one publication, by its kind, and how often a publication is a look.

Whoever knows the previous answers sees innovations. For somebody who is in all databases or in none, an innovation
moves by ``d_k - sum_l rho_l d_{k-l}``, rho being the weights of the previous answers: the answers before moved as well.
Given presence, only publications of databases that the person is in are looks at them, and their days are known.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import singledispatch

import numpy as np

from empriv.errors import InputError
from empriv.measuring.contract import RiskContract
from empriv.measuring.densities.density import Mixture, is_usual
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.given.presence import GroupedPeople, PresenceRisk, WhenPresent
from empriv.measuring.given.residuals import Residuals
from empriv.measuring.joint.joint_risk import JointRisk
from empriv.measuring.line.atoms import Pairs, share_at_most
from empriv.measuring.line.risk import Risk, measure_line
from empriv.measuring.series.effects import Looks, Moments, looks_of, moments
from empriv.measuring.series.sizes import (
    NARROW,
    WIDE,
    Sizes,
    judged,
    mean_influence,
    sizes_of,
)
from empriv.measuring.tables.table_presence import TablePresenceRisk
from empriv.measuring.tables.table_risk import TableRisk
from empriv.results import FloatArray, IntArray, Results

_CERTAIN = 60.0  # epsilon: who is told apart beyond it is told apart for certain


@dataclass(frozen=True, eq=False)
class LookedAt:
    """One publication, looked at.

    Attributes
    ----------
    sizes : effect sizes of one look
    share : (individuals,) share of publications that are a look
    """

    sizes: Sizes
    share: FloatArray

    def looks(self, times: int, level: float | None = None) -> FloatArray:
        """(individuals,) looks that so many publications are, at least one; at most so many at a level."""
        share, n = self.share, self.sizes.n_databases
        if level is not None:
            share = np.where(share < 1, share_at_most(np.rint(share * n), n, level), 1.0)
        return np.asarray(np.maximum(1.0, times * share))


@singledispatch
def looked_at(risk: RiskContract) -> LookedAt:  # noqa: ARG001 — dispatched on
    """Effect sizes by the kind of risk."""
    raise InputError(
        "`repeated` must be asked of results as they are, `Given` what is known, given presence or of several numbers, "
        "got another kind of risk. Hint: known='nothing', or what is regressed out, such as known='calendar'."
    )


def composes(risk: RiskContract) -> bool:
    """Whether a kind of risk has figures of several publications."""
    return looked_at.dispatch(type(risk)) is not looked_at.dispatch(object)


@looked_at.register
def _(risk: Risk) -> LookedAt:
    basis = risk if is_usual(risk.density) else measure_line(risk.results)
    sizes = _with_digits(sizes_of(basis.pairs, basis.density), risk, basis.pairs)
    return LookedAt(sizes, np.ones(risk.n_individuals))


@looked_at.register
def _(risk: GivenRisk) -> LookedAt:
    basis = measure_line(innovations(risk) if any(term.lag for term in risk.left.fit.terms) else risk.results)
    sizes, atoms = sizes_of(basis.pairs, basis.density), sizes_of(risk.atoms, None)
    # what outcomes with a mass of their own tell is lost when a level is taken out: it counts as it did
    names = ("squared", "narrow", "error", "certain")
    either = {name: np.maximum(getattr(sizes, name), getattr(atoms, name)) for name in names}
    return LookedAt(_with_digits(replace(sizes, **either), risk, risk.atoms), np.ones(risk.n_individuals))


@looked_at.register
def _(risk: JointRisk) -> LookedAt:
    """Several numbers: the most that one of them tells, or that their means tell together; no upper figure."""
    results = risk.results
    parts = [looked_at(part).sizes for part in risk.components.values()]
    together = _of_means(results)
    names = ("squared", "narrow", "error", "least", "certain", "slips")
    most = {name: np.max([getattr(part, name) for part in parts], axis=0) for name in names}
    certain = np.maximum(most["certain"], risk.delta_i(_CERTAIN))
    sizes = replace(
        parts[0], **{**most, "squared": np.maximum(most["squared"], together), "certain": certain}, held=False
    )
    return LookedAt(sizes, np.ones(risk.n_individuals))


@looked_at.register
def _(risk: TableRisk) -> LookedAt:
    """A whole table: the most that one of its cells tells, alone or given the rest, or that their means tell together;
    no upper figure."""
    count, influences, fit = risk.n_individuals, risk.influences, risk.fit
    most = {name: np.zeros(count) for name in ("squared", "narrow", "error", "least", "certain", "slips")}

    def told(sizes: Sizes, own: IntArray, rows: IntArray) -> None:
        for name, column in most.items():
            column[rows] = np.maximum(column[rows], getattr(sizes, name)[own])

    for name, rows in risk.touching.items():
        told(looked_at(risk.components[name]).sizes, rows, rows)
    for line, risks in risk.along_lines():
        for part in risks.values():
            told(looked_at(part).sizes, np.arange(len(line.rows)), line.rows)
    mean = np.zeros((count, len(fit.kept)))
    np.add.at(mean, (influences.owner[influences.rows // influences.draws], influences.places), influences.values)
    most["squared"] = np.maximum(most["squared"], fit.sizes(mean / (fit.n * influences.draws)))
    most["certain"] = np.maximum(most["certain"], risk.leaked())
    return LookedAt(Sizes(**most, near_ends=(), n_databases=fit.n, held=False), np.ones(count))


@looked_at.register
def _(risk: TablePresenceRisk) -> LookedAt:
    """What somebody does on a day when they are there, as a normal table would show it; no upper figure."""
    table = risk.on_random_day
    count, influences = risk.n_individuals, table.influences
    squared = np.bincount(influences.owner, influences.sizes, minlength=count) / np.maximum(table.days_there, 1.0)
    nothing = np.zeros(count)
    sizes = Sizes(squared, squared, nothing, squared, risk.leaked(), nothing, (), table.fit.n, held=False)
    return LookedAt(sizes, np.minimum(table.days_there / table.fit.n, 1.0))


@looked_at.register
def _(risk: PresenceRisk) -> LookedAt:
    count, n = risk.results.n_individuals, risk.results.n_databases
    rows = np.flatnonzero(risk.largest_shifts > 0)
    wide, fine = Moments(*np.zeros((4, count))), Moments(*np.zeros((4, count)))
    shift, size, certain = np.zeros((3, count))
    model = risk.on_random_day.density
    narrow = NARROW * (min(1.0, model.likeliest / model.bandwidth) if isinstance(model, Mixture) else 1.0)

    def task(block_rows: IntArray) -> None:
        people = risk.by_database(block_rows)
        if people is None:
            for row in block_rows.tolist():
                person(row)
            return
        looks = _looks_when_present(people)
        for target, width, errors in ((wide, WIDE, False), (fine, narrow, True)):
            for column, values in zip(target, moments(looks, width, errors=errors), strict=True):
                column[block_rows] = values
        mean = people.change.mean(axis=2)
        shift[block_rows] = (people.weights * mean).sum(axis=1)
        size[block_rows] = (people.weights * np.abs(mean)).sum(axis=1)

    def person(row: int) -> None:
        alone = risk.person(row)
        if not isinstance(alone, WhenPresent):
            own = looked_at(alone).sizes
            wide.hellinger[row] = wide.chi[row] = wide.unbiased[row] = own.squared[0]
            fine.hellinger[row] = fine.chi[row] = fine.unbiased[row] = own.narrow[0]
            fine.error[row], certain[row] = own.error[0], own.certain[0]
            return
        looks = looks_of(alone.pairs, np.array([0]))
        for target, width, errors in ((wide, WIDE, False), (fine, narrow, True)):
            for column, values in zip(target, moments(looks, width * alone.bandwidth, errors=errors), strict=True):
                column[row] = values[0]
        shift[row], size[row] = (float(values[0]) for values in mean_influence(alone.pairs))

    for _ in risk.in_blocks(rows, task):
        pass
    points = risk.results.q[risk.results.outcomes == 0].reshape(-1)
    sizes = judged(wide, fine, shift, size, points, n, risk.bandwidth, narrow * risk.bandwidth)
    share, seldom = np.zeros((2, count))
    for row in rows.tolist():
        influences = risk.influences(row)
        share[row] = len(influences) / (risk.results.draws or 1) / n
        if len(influences) > 1 and influences.mean() != 0:
            seldom[row] = float(influences.std(ddof=1) / abs(influences.mean()) / np.sqrt(len(influences)))
    return LookedAt(replace(sizes, certain=certain, seldom=seldom), np.minimum(share, 1.0))


def _with_digits(sizes: Sizes, risk: Risk, pairs: Pairs) -> Sizes:
    """With what the last digits tell, which kernels blur: no pair of laws with total variation TV has a smaller H than
    ``-4 log(1 - TV²)``."""
    rows = np.array([row for row, _ in pairs.residues], np.int64)
    if not len(rows):
        return sizes
    told = risk.delta_i(np.array([0.0, _CERTAIN]))[rows]
    variation = np.minimum(told[:, 0], 1 - 1e-12)
    least = -4.0 * np.log1p(-(variation**2))
    error = 8.0 * variation / (1.0 - variation**2) / np.sqrt(2.0 * sizes.n_databases)
    new = {"squared": least, "narrow": least, "error": error, "certain": told[:, 1]}
    for name, values in new.items():
        column = getattr(sizes, name).copy()
        column[rows] = np.maximum(column[rows], values)
        new[name] = column
    return replace(sizes, **new)


def _looks_when_present(people: GroupedPeople) -> Looks:
    """Every database as others, against the same with each group of influences; in units of each person's bandwidth."""
    scale = people.bandwidths[:, None, None]
    before = people.others[:, :, None]
    after = before + people.change.swapaxes(1, 2)
    n = before.shape[1]
    database = np.broadcast_to(np.arange(n), before.shape[:2])
    return Looks(None, database, before / scale, after / scale, people.weights, n)


def _of_means(results: Results) -> FloatArray:
    """(individuals,) mean(d)ᵀ cov(q)⁻¹ mean(d): what the means of several numbers tell, which holds for any law."""
    n = results.n_databases
    columns = [results.component(name) for name in results.components or ()]
    everyone = np.column_stack([part.q.reshape(n, -1).mean(axis=1) for part in columns])
    owner = np.repeat(np.arange(results.n_individuals), np.diff(results.starts))
    mean = np.empty((results.n_individuals, len(columns)))
    for place, part in enumerate(columns):
        change = (part.q[part.entry_database] - part.entry_q).reshape(len(owner), -1).mean(axis=1)
        mean[:, place] = np.bincount(owner, np.nan_to_num(change), minlength=results.n_individuals) / n
    whole = everyone[np.isfinite(everyone).all(axis=1)]
    if len(whole) < len(columns) + 2:
        return np.zeros(results.n_individuals)
    inverse = np.linalg.pinv(np.atleast_2d(np.cov(whole, rowvar=False)), rcond=1e-10)
    return np.asarray(np.maximum(np.einsum("ij,jk,ik->i", mean, inverse, mean), 0.0))


def innovations(risk: GivenRisk) -> Results:
    """Residual results where somebody who is away was away before as well: what their absence moves of an answer beside
    the answers before it."""
    left, whole = risk.left, risk.whole
    weights = previous_weights(left)
    order = risk.in_time
    time_of = np.empty(len(order), np.int64)  # of a database by position
    time_of[order] = np.arange(len(order))
    kept = time_of[left.places]
    row_at = np.full(len(order), -1)
    row_at[kept] = np.arange(len(kept))
    owner = np.repeat(np.arange(whole.n_individuals), np.diff(whole.starts))
    scaled = np.log if left.logarithm else np.asarray
    with np.errstate(invalid="ignore", divide="ignore"):
        change = scaled(whole.q)[whole.entry_database] - scaled(whole.entry_q)
    change = np.nan_to_num(np.where(np.isfinite(change), change, 0.0)).reshape(len(owner), -1)
    then = time_of[whole.entry_database]
    parts = [(owner, then, change)]
    for lag, weight in weights.items():
        later = then + lag
        inside = later < len(order)
        parts.append((owner[inside], later[inside], -weight * change[inside]))
    owners, times, changes = (np.concatenate(column) for column in zip(*parts, strict=True))
    known = row_at[times] >= 0
    owners, rows, changes = owners[known], row_at[times[known]], changes[known]
    n = left.results.n_databases
    keys, place = np.unique(owners * n + rows, return_inverse=True)
    total = np.zeros((len(keys), changes.shape[1]))
    np.add.at(total, place.reshape(-1), changes)
    database = (keys % n).astype(np.int32)
    entry = left.results.q.reshape(n, -1)[database] - total
    starts = np.searchsorted(keys // n, np.arange(whole.n_individuals + 1))
    shape = (len(keys), *left.results.entry_q.shape[1:])
    outcomes = left.results.outcomes.reshape(n, -1)[database].reshape(shape)
    return replace(
        left.results,
        starts=starts,
        entry_database=database,
        entry_q=np.where(outcomes == 0, entry.reshape(shape), np.nan),
        entry_outcomes=outcomes,
    )


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
