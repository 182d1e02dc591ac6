"""Checks of what was counted as known: where the model may be wrong, each with what to do.

The i.i.d. tests look at the residuals, and so does `others`, in `one_number`.
"""

from __future__ import annotations

import numpy as np

from empriv.measuring.given.calendar import order_of
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.given.regression import changing, curvature
from empriv.validate.bounds.line_bounds import bound_inputs
from empriv.validate.checks.check import checks_of, iid_check, leak_check
from empriv.validate.checks.one_number import CERTAIN, RISKIEST, SUSPICIOUS, checks_without_order, leaks, riskiest
from empriv.words.message import Message
from empriv.words.outcomes import outcome_name


@checks_of.register(GivenRisk)
def checks_of_given(risk: GivenRisk, epsilon: float) -> list[Message]:
    made = checks_without_order(risk, epsilon, bound_inputs(risk), riskiest(risk, epsilon, RISKIEST))
    usual = [check for check in made if check.code != "exact-leak"]  # tested in the results, not in their residuals
    known_leaks = [leak_check(outcome_name(code), count, share) for code, (count, share) in leaks(risk.atoms).items()]
    return [
        _left_check(risk),
        *usual,
        *known_leaks,
        *(message for message in risk.messages if message.severity != "info"),
        *([] if risk.residuals.fit.determined else _model_checks(risk)),
    ]


def _left_check(risk: GivenRisk) -> Message:
    """The i.i.d. tests on the residuals: in the order of time, or by size where databases have no order."""
    values = risk.residuals.numbers
    if order_of(risk.whole) is not None:
        return iid_check(len(values), {"the residuals of the results": values}, tested=lambda: risk.residuals.in_order)
    level = risk.residuals.fit.level[np.isfinite(risk.residuals.fit.scaled_residuals)]
    by_size = values[np.argsort(level, kind="stable")]
    return iid_check(len(values), {"the residuals of the results, sorted by the fitted value": by_size})


def _model_checks(risk: GivenRisk) -> list[Message]:
    fit, residuals = risk.residuals.fit, risk.residuals.fit.scaled_residuals
    here = np.isfinite(residuals)
    n = int(np.count_nonzero(here))
    share = fit.parameters / n
    severity = _graver(share, 0.1, 0.2)
    said = f"What is known takes {fit.parameters:,} parameters of {n:,} databases"
    if severity != "info":
        said += (
            ": residuals are smaller than they should be, so that figures are too large rather than too small. "
            "Hint: fewer quantities, or more databases"
        )
    numbers = {"parameters": fit.parameters, "n": n, "share": share}
    checks = [Message("parameters", f"{said}.", severity, numbers, "Parameters for what is known")]
    terms = [term.on(here) for term in fit.terms]
    amounts = [term for term in terms if not term.is_category and term.values is not None]
    if amounts:
        name, p = _least({term.name: curvature(residuals[here], term, terms) for term in amounts})
        severity = _graver(-p, -SUSPICIOUS, -CERTAIN)
        past = any(term.lag for term in amounts if term.name == name)
        # nobody can give the square of a previous answer: read, and not held against the figures
        severity = "warning" if past and severity == "error" else severity
        said = (
            "Residuals show no curvature in what is known."
            if severity == "info"
            else f"Residuals are curved in {name} (p = {p:.3f}): more of the result is known than a straight line "
            "takes out, and figures are too small. Hint: give its square as well, or categories of it."
        )
        checks.append(Message("curvature", said, severity, {"p": p}, "Curvature in what is known"))
    if terms:
        name, p = _least({term.name: changing(residuals[here], [term]) for term in terms})
        severity = _graver(-p, -SUSPICIOUS, -CERTAIN)
        said = (
            "The spread of residuals does not depend on what is known."
            if severity == "info"
            else f"The spread of residuals depends on {name} (p = {p:.3f}): where it is least, people are more exposed "
            "than these figures say. Hint: audit databases like those alone."
        )
        checks.append(Message("shape", said, severity, {"p": p}, "Spread that depends on what is known"))
    return checks


def _least(p: dict[str, float]) -> tuple[str, float]:
    """The quantity with the smallest p, and that p multiplied by how many there are."""
    name = min(p, key=lambda key: p[key])
    return name, min(1.0, p[name] * len(p))


def _graver(value: float, warning: float, error: float) -> str:
    return "error" if value >= error else "warning" if value >= warning else "info"
