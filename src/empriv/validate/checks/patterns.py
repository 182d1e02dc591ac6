"""Checks for structure finer than a bandwidth: gaps, spikes, last digits, and people who change the spread.

Upper bounds count gaps, spikes and last digits; estimates count last digits, and blur the others.
"""

from __future__ import annotations

import numpy as np

from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.residues import pairs_at_steps, unlisted_step, visible_share
from empriv.measuring.line.risk import Risk
from empriv.results import IntArray
from empriv.validate.bounds.analytic import HALF, floor, narrowing
from empriv.validate.bounds.moments import LEAST_DATABASES
from empriv.validate.bounds.structure import BoundPart, raise_bounds
from empriv.validate.checks import robustness
from empriv.validate.checks.check import Check
from empriv.validate.ground import ground_of

_HIDDEN = 0.45  # share of the results that a pattern must have to be seen, from which on that is worth a warning
_HALF = 0.5  # of the spread
_GAP = 1.02  # times the bound that sees no gap: a gap is looked for by a test of its own, and is nothing or something
_SPIKE = 1.4  # times the bound at half the bandwidth
_MORE = 0.7  # over sqrt(n): by how much it exceeds that bound; chance seldom makes both


def structure_checks(risk: Risk, rows: IntArray, epsilon: float) -> list[Check]:
    """By how much influence that jumps, and structure finer than the bandwidth, raise the bounds of the riskiest."""
    ground = ground_of(robustness.risk_of_rows(risk, rows))
    n, grid = ground.n_databases, np.array([float(epsilon)])
    ratios, more = {"gap": 1.0, "spike": 1.0}, 0.0
    if n >= LEAST_DATABASES and len(rows):
        smooth, *parts = (np.full((len(rows), 1), floor(n, 0.95)) for _ in range(3))
        for upper, part in zip((smooth, *parts), (BoundPart(0), BoundPart.GAPS, BoundPart.FINE), strict=True):
            raise_bounds(ground, grid, 0.95, narrowing(n, HALF), upper, part)
        ratios = {code: float((upper / smooth).max()) for code, upper in zip(ratios, parts, strict=True)}
        more = float((parts[1] - smooth).max())
    return [
        Check("gap", "warning" if ratios["gap"] > _GAP else "info", {"ratio": ratios["gap"]}),
        Check(
            "spike",
            "warning" if ratios["spike"] > _SPIKE and more > _MORE / n**0.5 else "info",
            {"ratio": ratios["spike"]},
        ),
    ]


def digit_checks(pairs: Pairs, rows: IntArray) -> list[Check]:
    """Patterns in the last digits that the riskiest individuals, ``rows``, make or break; and others."""
    return [_residues(pairs, rows), _steps(pairs, rows)]


def _residues(pairs: Pairs, rows: IntArray) -> Check:
    seen = dict(pairs.sure_residues)
    largest, step, visible = 0.0, None, visible_share(pairs)
    for row in rows.tolist():
        if row in seen:
            atoms = pairs_at_steps(pairs, row, seen[row])
            share = float(np.abs(atoms.mass - atoms.mass_without[0]).max())
            if share > largest:
                largest, step = share, float(seen[row].max())
    numbers = {"n": len(pairs.points) // pairs.draws, "visible": visible, "step": step, "share": largest}
    return Check("residues", "info" if step is None and visible <= _HIDDEN else "warning", numbers)


def _steps(pairs: Pairs, rows: IntArray) -> Check:
    """The largest step off the list that results keep to, with everyone or without one of the riskiest."""
    sides = np.concatenate((pairs.points[None, :], pairs.dense(rows)))
    steps = [step for side in sides if (step := unlisted_step(side, pairs.draws)) is not None]
    # bounds do not look for it: a pass would be wrong
    return Check("steps", "error" if steps else "info", {"step": max(steps, default=None)})


def spread_check(pairs: Pairs, rows: IntArray) -> Check:
    """Whether the results spread less without one of the riskiest individuals."""
    ratio = 1.0 if pairs.ratios is None else float(pairs.ratios[rows].min(initial=1.0))
    return Check("spread", "warning" if ratio < _HALF else "info", {"ratio": ratio})
