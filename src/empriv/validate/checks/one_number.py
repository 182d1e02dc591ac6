"""Checks of one number: what could make its figures wrong."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from empriv.measuring.contract import RiskContract
from empriv.measuring.given.definition4 import WorstRisk
from empriv.measuring.given.iid_tests import same_within
from empriv.measuring.line.risk import Risk
from empriv.results import FloatArray, IntArray
from empriv.validate.checks import robustness
from empriv.validate.checks.check import (
    SEVERITIES,
    Check,
    checks_of,
    leak_check,
    number_check,
    order_check,
    ties_check,
)
from empriv.validate.checks.shared_chance import chance_check
from empriv.validate.ground import Ground, ground_of
from empriv.words.outcomes import outcome_name

_HEAVY = 0.5
_FEW = 5  # individuals in a mode of contribution
RISKIEST = 3
_SEVERAL = ("exact-leak", "known")  # checks that may be made of several outcomes


@checks_of.register
def _(risk: Risk, epsilon: float, rng: int) -> list[Check]:
    ground = ground_of(risk)
    n = ground.n_databases
    rows = robustness.riskiest(risk, epsilon, RISKIEST)
    influence = influences(ground, rows).sum(axis=0)
    series = {
        "the results": ground.values.points.reshape(n, -1).mean(axis=1),
        # a sum of differences: what rounding makes of a constant influence is no trend
        "the influence of the riskiest individuals": same_within(influence, 2 * RISKIEST * ground.tolerance),
    }
    return [
        order_check(risk.results, series, rng),
        number_check(n),
        *leak_checks(risk),
        ties_check(risk.results),
        modes_check(risk),
        tails_check(ground),
        dependent_check(risk, ground, epsilon),
        *chance_check(risk, epsilon, rng),
    ]


@checks_of.register
def _(risk: WorstRisk, epsilon: float, rng: int) -> list[Check]:
    """The gravest of each kind over all parts."""
    gravest: dict[tuple[str, str], Check] = {}
    for part in risk.parts:
        for check in checks_of(part, epsilon, rng):
            key = (check.code, check.subject if check.code in _SEVERAL else "")
            known = gravest.get(key)
            if known is None or SEVERITIES.index(check.severity) < SEVERITIES.index(known.severity):
                gravest[key] = check
    cautions = [Check("known", "warning", caution.numbers, caution.code) for caution in risk.cautions]
    return [*gravest.values(), *cautions]


def influences(ground: Ground, rows: IntArray) -> FloatArray:
    """(rows, n) changes of the results, averaged over draws."""
    change = ground.values.points - ground.values.dense(rows)
    return np.asarray(change.reshape(len(rows), -1, ground.draws).mean(axis=2))


def leak_checks(risk: Risk, component: str | None = None) -> list[Check]:
    """Exact leaks, with the name of the component that has them."""
    return [
        leak_check(outcome_name(code) if component is None else f"{component}: {outcome_name(code)}", count, share)
        for code, (count, share) in robustness.leaks(risk.pairs).items()
    ]


def modes_check(risk: RiskContract) -> Check:
    """Whether the individuals seen are representative of others."""
    groups = robustness.modes(np.nan_to_num(risk.influence(), nan=0.0))
    small = sum(count < _FEW for count in groups)
    numbers: dict[str, Any] = {"modes": len(groups), "smallest_mode": min(groups, default=0), "small_modes": small}
    return Check("modes", "warning" if small else "info", numbers)


def tails_check(ground: Ground) -> Check:
    """Heavy tails."""
    points = ground.values.points[np.isfinite(ground.marked.points)]
    index = robustness.tail_index(points) if len(points) else float("nan")
    return Check("tails", "warning" if index > _HEAVY else "info", {"index": index})


def dependent_check(risk: Risk, ground: Ground, epsilon: float) -> Check:
    """Contributions that rise and fall together."""
    n = ground.n_databases
    ratio = robustness.togetherness(influences(ground, robustness.riskiest(risk, epsilon, 50)))
    together = n > 2 and ratio > 1 + 3 * math.sqrt(2 / (n - 1))
    return Check("dependent", "warning" if together else "info", {"ratio": ratio})
