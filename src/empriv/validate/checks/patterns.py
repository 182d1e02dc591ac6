"""Checks for structure finer than a bandwidth: last digits, steps not looked for, and people who change the spread."""

from __future__ import annotations

import numpy as np

from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.residues import pairs_at_steps, unlisted_step, visible_share
from empriv.results import IntArray
from empriv.validate.checks.check import Check

_HIDDEN = 0.45  # share of the results that a pattern must have to be seen, from which on that is worth a warning
_HALF = 0.5  # of the spread


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
    return Check("steps", "warning" if steps else "info", {"step": max(steps, default=None)})


def spread_check(pairs: Pairs, rows: IntArray) -> Check:
    """Whether the results spread less without one of the riskiest individuals."""
    ratio = 1.0 if pairs.ratios is None else float(pairs.ratios[rows].min(initial=1.0))
    return Check("spread", "warning" if ratio < _HALF else "info", {"ratio": ratio})
