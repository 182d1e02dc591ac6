"""Checks of numbers that vary in a plane, released together: those of one number for each, and what only both have.

Where every component has the same check, only the gravest is shown, with the component's name.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from empriv.measuring.joint.joint_risk import JointRisk
from empriv.results import FloatArray
from empriv.validate.bounds.analytic import floor
from empriv.validate.checks import robustness
from empriv.validate.checks.check import (
    Check,
    checks_of,
    floor_check,
    gravest,
    leak_check,
    number_check,
    order_check,
    ties_check,
)
from empriv.validate.checks.one_number import (
    RISKIEST,
    dependent_check,
    influences,
    leak_checks,
    representative_checks,
    tails_check,
)
from empriv.validate.checks.patterns import digit_checks, spread_check, structure_checks
from empriv.validate.checks.shared_chance import chance_check
from empriv.validate.ground import ground_of
from empriv.words.checks import JOINTLY

_COARSE = 0.01  # an integration error beyond this is worth mentioning


@checks_of.register
def _(risk: JointRisk, epsilon: float, rng: int) -> list[Check]:
    alone = {name: (part, ground_of(part)) for name, part in risk.components.items()}
    n = risk.results.n_databases
    rows = robustness.riskiest(risk, epsilon, RISKIEST)
    series: dict[str, FloatArray] = {}
    for name, (_, ground) in alone.items():
        series[f"the results of {name}"] = ground.values.points.reshape(n, -1).mean(axis=1)
        series[f"the influence of the riskiest individuals on {name}"] = influences(ground, rows).sum(axis=0)
    patterns = [
        [*structure_checks(part, rows, epsilon), *digit_checks(part.pairs, rows), spread_check(part.pairs, rows)]
        for part, _ in alone.values()
    ]
    return [
        _dimension(risk, epsilon),
        order_check(risk.results, series, rng),
        number_check(n),
        floor_check(n),
        *(leak_check(leak.name, leak.n_individuals, leak.largest_share) for leak in risk.leaks),
        *(check for name, (part, _) in alone.items() for check in leak_checks(part, name)),
        gravest({name: ties_check(part.results) for name, (part, _) in alone.items()}),
        _bandwidth(risk, epsilon),
        *(gravest(dict(zip(alone, checks, strict=True))) for checks in zip(*patterns, strict=True)),
        *representative_checks(risk, epsilon, rng),
        gravest({name: tails_check(ground) for name, (_, ground) in alone.items()}),
        gravest({name: dependent_check(part, ground, epsilon) for name, (part, ground) in alone.items()}),
        *(
            replace(check, component=name)
            for name, (part, _) in alone.items()
            for check in chance_check(part, epsilon, rng)
        ),
    ]


def _dimension(risk: JointRisk, epsilon: float) -> Check:
    error = risk.error(float(epsilon))
    numbers = {
        "components": len(risk.components),
        "dimension": risk.dimension,
        "integration_error": error,
        "n": risk.results.n_databases,
    }
    return Check("dimension", "warning" if error > _COARSE else "info", numbers)


def _bandwidth(risk: JointRisk, epsilon: float) -> Check:
    measured = risk.delta(float(epsilon))
    deltas = {"as measured": measured}
    if risk.pairs.spaces:
        rows = robustness.riskiest(risk, epsilon)
        least = max((part.delta(float(epsilon)) for part in risk.components.values()), default=0.0)
        for name, factor in robustness.SCALES.items():
            deltas[name] = max(scaled_delta(risk, rows.tolist(), epsilon, factor), least)
    far = max(deltas.values()) > 2 * max(measured, floor(risk.results.n_databases, 0.95))
    return Check("bandwidth", "warning" if far else "info", deltas, JOINTLY)


def scaled_delta(risk: JointRisk, rows: list[int], epsilon: float, factor: float) -> float:
    """Largest delta_i of the joint law over these individuals at ``factor`` times the bandwidth."""
    scaled = replace(risk, pairs=risk.pairs.narrowed(factor), shifts=risk.shifts / factor)
    grid = np.array([epsilon])
    return max((float(max(part[0] for part in scaled.both_directions(row, grid))) for row in rows), default=0.0)
