"""Checks of numbers that vary in a plane, released together: those of one number for each, and what only both have.

Where every component has the same check, only the gravest is shown, with the component's name.
"""

from __future__ import annotations

from dataclasses import replace

from empriv.measuring.joint.joint_risk import JointRisk
from empriv.results import FloatArray
from empriv.validate.checks import robustness
from empriv.validate.checks.check import (
    Check,
    checks_of,
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
    modes_check,
    tails_check,
)
from empriv.validate.checks.shared_chance import chance_check
from empriv.validate.ground import ground_of

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
    return [
        _dimension(risk, epsilon),
        order_check(risk.results, series, rng),
        number_check(n),
        *(leak_check(leak.name, leak.n_individuals, leak.largest_share) for leak in risk.leaks),
        *(check for name, (part, _) in alone.items() for check in leak_checks(part, name)),
        gravest({name: ties_check(part.results) for name, (part, _) in alone.items()}),
        modes_check(risk),
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
