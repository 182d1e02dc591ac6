"""Checks of publishing again: those of one publication, and whether the databases carry an upper figure for so many."""

from __future__ import annotations

from empriv.measuring.series import RepeatedRisk
from empriv.validate.checks.check import Check, checks_of


@checks_of.register
def _(risk: RepeatedRisk, epsilon: float, rng: int) -> list[Check]:
    effects = risk.effects
    numbers = {"times": risk.times, "n": effects.n_databases, "several": risk.results.components is not None}
    return [*checks_of(risk.single, epsilon, rng), Check("repeated", "info" if effects.held else "warning", numbers)]
