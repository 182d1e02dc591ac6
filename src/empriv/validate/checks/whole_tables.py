"""Checks of whole tables: what could make their figures wrong.

What only a table has: how many parameters its databases carry, and whether what is left of a cell depends on the rest
of the table other than in straight lines (`bent`). The checks of one number are made of the cells that expose the
riskiest people.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from empriv.measuring.tables import TablePresenceRisk, TableRisk
from empriv.measuring.tables.fit import TableFit
from empriv.results import FloatArray, IntArray
from empriv.validate.checks.check import (
    SIGNIFICANT,
    Check,
    checks_of,
    floor_check,
    gravest,
    leak_check,
    number_check,
    order_check,
    ties_check,
)
from empriv.validate.checks.one_number import RISKIEST, leak_checks, representative_checks, tails_check
from empriv.validate.ground import ground_of

_MANY = 0.5  # parameters in a database from which on figures are larger than the truth
_AXES = 4  # of the rest of a table along which a cell may be bent, at least
_EACH_AXIS = 12  # databases for each further one
_SERIES = 12  # principal axes of the table that are looked at in their order
_PERMUTATIONS = 399
_MATTERS = 0.06  # of the variance that the rest explains, from which on the bound cannot tell
_FAR = 2.5  # standard deviations: what lies beyond has no more say


@checks_of.register
def _(risk: TableRisk, epsilon: float, rng: int) -> list[Check]:
    n = risk.results.n_databases
    rows = np.argsort(-risk.delta_i(float(epsilon)), kind="stable")[:RISKIEST]
    places = riskiest_places(risk, rows)
    names = [risk.fit.cells[risk.fit.kept[place]] for place in places] or list(risk.fit.cells[:1])
    alone = {name: risk.components[name] for name in names}
    return [
        _carried(risk),
        *([bent_check(risk, places, rng)] if len(places) else []),
        order_check(risk.results, _series(risk, rows), rng),
        number_check(n),
        floor_check(n),
        *(leak_check(leak.name, leak.n_individuals, leak.largest_share) for leak in risk.leaks),
        *(check for name in risk.touching for check in leak_checks(risk.components[name], name)),
        gravest({name: ties_check(part.results) for name, part in alone.items()}),
        *representative_checks(risk, epsilon, rng),
        gravest({name: tails_check(ground_of(part)) for name, part in alone.items()}),
    ]


@checks_of.register
def _(risk: TablePresenceRisk, epsilon: float, rng: int) -> list[Check]:
    return checks_of(risk.on_random_day, epsilon, rng)


def riskiest_places(risk: TableRisk, rows: IntArray) -> IntArray:
    """Places of the kept cells that these people change most, one each."""
    out = []
    for row in rows.tolist():
        _, places, changes = risk.influences.of(row)
        if len(places) and len(changes):
            size = (changes**2).mean(axis=(0, 1)) * np.diag(risk.fit.precision)[places]
            out.append(int(places[np.argmax(size)]))
    return np.unique(np.array(out, np.int64))


def _carried(risk: TableRisk) -> Check:
    n, p, people = risk.results.n_databases, risk.fit.rank, int(risk.from_below.sum())
    severity = "error" if people else "warning" if p > _MANY * n else "info"
    return Check("carried", severity, {"parameters": p, "n": n, "people": people})


def _series(risk: TableRisk, rows: IntArray) -> dict[str, FloatArray]:
    """The table along its principal axes, and what is left in the direction of the riskiest people, by database."""
    n = risk.results.n_databases
    by_database = risk.kept_values.reshape(n, -1, len(risk.fit.kept)).mean(axis=1)
    standard = (by_database - by_database.mean(axis=0)) / np.maximum(risk.kept_spreads, 1e-300)
    series = {}
    if standard.shape[1]:
        axes = np.linalg.svd(standard, full_matrices=False)[0][:, :_SERIES].T
        series = {f"the table along axis {k + 1}": axis for k, axis in enumerate(axes)}
    influence = np.zeros(n)
    for row in rows.tolist():
        databases, places, changes = risk.influences.of(row)
        sizes = risk.fit.sizes(changes.mean(axis=1) @ np.eye(len(risk.fit.kept))[places])
        influence[databases] += np.sqrt(sizes)
    return series | {"the influence of the riskiest individuals": np.round(influence, 9)}


class Bent(NamedTuple):
    """How far what is left of a cell depends on the rest of its table: p of the test, and the share of its variance, or
    of that of its distance from the middle, that the rest explains."""

    p: float
    share: float


def bent_check(risk: TableRisk, places: IntArray, rng: int) -> Check:
    """Whether what is left of cells depends on the rest of the table; on the scale where it does least.

    A little of it is no matter: laws that are skewed always have it, and bounds held there.
    """
    generator = np.random.default_rng(rng)
    worst = Bent(1.0, 0.0)
    for place in places.tolist():
        scales = [fit for scale, fit in risk.rest.fits.items() if risk.rest.admitted[scale][place]]
        least = max((bent(fit, place, generator) for fit in scales), key=lambda found: (found.p, -found.share))
        worst = min(worst, Bent(min(1.0, least.p * len(places)), least.share), key=lambda found: found.p)
    seen = worst.p <= SIGNIFICANT
    severity = "info" if not seen else "error" if worst.share > _MATTERS else "warning"
    return Check("bent", severity, {"p": worst.p, "share": worst.share, "cells": len(places)})


def bent(fit: TableFit, place: int, generator: np.random.Generator) -> Bent:
    """The test whether what is left of a kept cell depends on the rest.

    Normal scores of what is left, on the squares of the rest; of its distance from the middle, on the rest and its
    squares. The rest is its principal axes and what it says of the cell, with far values cut. What is left is divided
    by the root of one less its leverage, which least squares leave smaller. Databases are permuted.
    """
    draws = len(fit.residuals) // fit.n
    if fit.ridge or len(fit.kept) < 2 or fit.n - fit.rank < 10:
        return Bent(1.0, 0.0)
    whole = fit.residuals.reshape(fit.n, draws, -1).mean(axis=1)
    left = fit.given_rest.reshape(fit.n, draws, -1).mean(axis=1)[:, place]
    others = np.delete(whole, place, axis=1)
    frame, lengths, _ = np.linalg.svd(others / np.maximum(others.std(axis=0), 1e-300), full_matrices=False)
    frame = frame[:, lengths > 1e-9 * lengths.max()]
    leverage = np.clip((frame**2).sum(axis=1) + fit.basis.reshape(fit.n, draws, -1)[:, 0].shape[1] / fit.n, 0.0, 0.95)
    axes = [whole[:, place] - left, *frame[:, : max(_AXES, fit.n // _EACH_AXIS)].T]
    rest = np.column_stack([_standard(axis) for axis in axes])
    scores = _normal_scores(left / np.sqrt(1.0 - leverage))
    distance = _normal_scores(np.abs(scores))
    squares = rest**2
    worst, share = np.zeros(1 + _PERMUTATIONS), 0.0
    shuffled = generator.permuted(np.tile(np.arange(fit.n), (_PERMUTATIONS, 1)), axis=1)
    order = np.concatenate((np.arange(fit.n)[None, :], shuffled))
    for values, design in ((scores, squares), (distance, np.concatenate((rest, squares), axis=1))):
        basis = np.linalg.qr(design - design.mean(axis=0))[0]
        explained = ((values[order] @ basis) ** 2).sum(axis=1)
        of_all = float(explained[0]) / float(values @ values)
        freedom = max(1, fit.n - 1 - basis.shape[1])
        share = max(share, 1.0 - (1.0 - of_all) * (fit.n - 1) / freedom)
        ranked = np.sort(explained)
        p = 1.0 - np.searchsorted(ranked, explained - 1e-12, side="left") / len(ranked)
        worst = np.maximum(worst, -np.log(np.maximum(p, 1e-9)))
    return Bent(float(np.mean(worst >= worst[0] - 1e-12)), share)


def _standard(values: FloatArray) -> FloatArray:
    spread = float(values.std())
    return np.clip((values - values.mean()) / spread, -_FAR, _FAR) if spread > 0 else np.zeros_like(values)


def _normal_scores(values: FloatArray) -> FloatArray:
    from scipy.special import ndtri  # heavy, and seldom needed

    ranks = np.argsort(np.argsort(values, kind="stable"), kind="stable")
    return np.asarray(ndtri((ranks + 0.5) / len(values)))
