"""Checks of several numbers released together: those of one number for each, and what only a vector has.

Of a check that each component has, the gravest is shown, with the component's name.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from empriv.measuring.joint.joint_risk import JointRisk
from empriv.results import FloatArray
from empriv.validate.bounds.analytic import floor
from empriv.validate.checks import robustness
from empriv.validate.checks.iid import battery, power_at
from empriv.validate.checks.one_number import (
    RISKIEST,
    SIGNIFICANT,
    Check,
    cusp_check,
    dependent_check,
    floor_check,
    influences,
    leak_checks,
    number_check,
    representative_checks,
    tails_check,
    ties_check,
)
from empriv.validate.ground import ground_of
from empriv.words import sentences as words

_GRAVE = ("error", "warning", "info")
_COARSE = 0.01  # an integration error beyond this is worth a word


def joint_checks(risk: JointRisk, epsilon: float, rng: int) -> list[Check]:
    """Everything that could make the joint figures at ``epsilon`` wrong."""
    alone = {name: (one, ground_of(one)) for name, one in risk.components.items()}
    n = risk.results.n_databases
    return [
        _dimension(risk, epsilon),
        _iid(risk, epsilon, rng),
        number_check(n),
        floor_check(n),
        *_leaks(risk),
        _gravest({name: ties_check(one) for name, (one, _) in alone.items()}),
        _bandwidth(risk, epsilon),
        _gravest({name: cusp_check(one, ground, epsilon) for name, (one, ground) in alone.items()}),
        *representative_checks(risk, epsilon, rng),
        _gravest({name: tails_check(ground) for name, (_, ground) in alone.items()}),
        _gravest({name: dependent_check(one, ground, epsilon) for name, (one, ground) in alone.items()}),
    ]


def _gravest(found: dict[str, Check]) -> Check:
    """The gravest of the components' checks, with the component's name unless all is well."""
    name, check = min(found.items(), key=lambda item: _GRAVE.index(item[1].severity))
    if check.severity == "info":
        return check
    return Check(check.code, check.title, check.severity, f"{name}: {check.sentence}", check.numbers)


def _dimension(risk: JointRisk, epsilon: float) -> Check:
    code, title = "dimension", "Numbers released together"
    error = float(risk.error(float(epsilon)))
    numbers = {
        "components": len(risk.components),
        "dimension": risk.dimension,
        "vouched": risk.vouched,
        "integration_error": error,
    }
    if not risk.complete:
        sentence = words.beyond_dimension(risk.dimension, risk.vouched, risk.results.n_databases)
        return Check(code, title, "error", sentence, numbers)
    if risk.dimension > risk.vouched:
        sentence = words.beyond_dimension(risk.dimension, risk.vouched, risk.results.n_databases)
        return Check(code, title, "warning", sentence, numbers)
    said = f"The results vary in {risk.dimension} of the {risk.vouched} dimensions that so many databases can carry"
    if error > _COARSE:
        return Check(code, title, "warning", f"{said}; the integration is coarse (±{words.number(error)}).", numbers)
    return Check(code, title, "info", f"{said}.", numbers)


def _iid(risk: JointRisk, epsilon: float, rng: int) -> Check:
    code, title = "iid", "Independent, identically distributed databases"
    n = risk.results.n_databases
    if n < 8:
        return Check(code, title, "warning", f"{words.databases(n)} are too few to test for independence.", {"n": n})
    rows = robustness.riskiest(risk, epsilon, RISKIEST)
    series: list[FloatArray] = []
    where: list[str] = []
    for name, one in risk.components.items():
        ground = ground_of(one)
        series += [ground.values.points.reshape(n, -1).mean(axis=1), influences(ground, rows).sum(axis=0)]
        where += [f"the results of {name}", f"the influence of the riskiest individuals on {name}"]
    found = battery(np.stack(series), rng=rng)  # the smallest p is compared with its own law: no correction is due
    power = {name: power_at(n, name) for name in ("trend", "serial", "shift", "spread")}
    numbers = {"p": found.p, "n": n, **{f"power_{name}": value for name, value in power.items()}}
    if found.p <= SIGNIFICANT:
        sentence = words.departure(found.statistic, found.p, where[found.series])
        return Check(code, title, "error", sentence, numbers)
    return Check(code, title, "info", words.no_departure(n, power["trend"]), numbers)


def _leaks(risk: JointRisk) -> list[Check]:
    found = [
        Check(
            "exact-leak",
            "Exact leak",
            "error",
            words.exact_leak(leak.name, leak.n_individuals, leak.largest_share),
            {"individuals": leak.n_individuals, "share": leak.largest_share},
        )
        for leak in risk.leaks
    ]
    for name, one in risk.components.items():
        found += leak_checks(one, name)
    return found


def _bandwidth(risk: JointRisk, epsilon: float) -> Check:
    code, title = "bandwidth", "Sensitivity to bandwidth"
    own = float(risk.delta(epsilon))
    found = {"as measured": own}
    if risk.complete and risk.pairs.spaces:
        rows = robustness.riskiest(risk, epsilon)
        least = float(max((one.delta(epsilon) for one in risk.components.values()), default=0.0))
        for name, factor in (("half the bandwidth", 0.5), ("double the bandwidth", 2.0)):
            found[name] = max(scaled_delta(risk, rows.tolist(), epsilon, factor), least)
    low, high = min(found.values()), max(found.values())
    said = f"The joint delta is between {words.number(low)} and {words.number(high)} at half and double the bandwidth"
    if high > 2 * max(own, floor(risk.results.n_databases, 0.95)):
        return Check(code, title, "warning", f"{said}: the estimate hangs on the smoothing.", found)
    return Check(code, title, "info", f"{said}, against {words.number(own)} as measured.", found)


def scaled_delta(risk: JointRisk, rows: list[int], epsilon: float, factor: float) -> float:
    """Largest delta_i of the joint law over these individuals at ``factor`` times the bandwidth."""
    scaled = replace(risk, pairs=risk.pairs.narrowed(factor), shifts=risk.shifts / factor, _known={})
    grid = np.array([epsilon])
    return max((float(max(part[0] for part in scaled.both_directions(row, grid))) for row in rows), default=0.0)
