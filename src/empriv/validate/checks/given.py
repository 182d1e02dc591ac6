"""Checks of what was counted as known: where the model may be wrong, each with what to do.

The i.i.d. tests look at the residuals; `others` asks whether the others are as they are on other days where
the riskiest people are there.
"""

from __future__ import annotations

import numpy as np

from empriv.measuring.given.calendar import order_of
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.given.iid_tests import same_within
from empriv.measuring.given.regression import changing, explained_by
from empriv.measuring.given.residuals import Residuals
from empriv.measuring.given.terms import Term, number_term
from empriv.measuring.line.atoms import tie_tolerance
from empriv.measuring.line.risk import Risk
from empriv.results import FloatArray, IntArray, Results
from empriv.validate.checks import robustness
from empriv.validate.checks.check import Check, checks_of, iid_check, leak_check

SUSPICIOUS, CERTAIN = 0.05, 0.01  # p of a warning, and of an error, shared among all quantities looked at
_OF_RESULTS = ("iid", "exact-leak")  # looked at in the results, not in what is left of them
_RISKIEST = 3
_LEAST = 12  # databases that somebody must be in, and away from, to be looked at


@checks_of.register
def _(risk: GivenRisk, epsilon: float, rng: int) -> list[Check]:
    rows = robustness.riskiest(risk, epsilon, _RISKIEST)
    usual = [check for check in checks_of.dispatch(Risk)(risk, epsilon, rng) if check.code not in _OF_RESULTS]
    leaks = [leak_check(name, count, share) for name, (count, share) in robustness.leaks(risk.atoms).items()]
    determined = [Check("known", "error", {}, "determined")]
    return [
        _left_check(risk, rng),
        *usual,
        *leaks,
        *(determined if risk.left.fit.determined else _model_checks(risk)),
        others_check(risk.left.original, risk.left, rows),
    ]


def _left_check(risk: GivenRisk, rng: int) -> Check:
    """The i.i.d. tests on the residuals: in the order of time, or by size where databases have no order."""
    left = risk.left.fit.left
    here = np.isfinite(left)
    values = same_within(left[here], tie_tolerance(risk.left.original.q))
    ordered = order_of(risk.whole) is not None
    if not ordered:
        values = values[np.argsort(risk.left.fit.level[here], kind="stable")]
    name = "what is left of the results" if ordered else "what is left of the results, sorted by the fitted value"
    return iid_check(len(values), {name: values}, rng)


def _model_checks(risk: GivenRisk) -> list[Check]:
    fit, left = risk.left.fit, risk.left.fit.left
    here = np.isfinite(left)
    n = int(np.count_nonzero(here))
    share = fit.parameters / n
    checks = [
        Check("parameters", _graver(share, 0.1, 0.2), {"parameters": fit.parameters, "n": n, "share": share}),
    ]
    terms = [term.on(here) for term in fit.terms]
    numbers = [term for term in terms if not term.is_category and term.values is not None]
    if numbers:
        p = {term.name: explained_by(left[here], [_curve(term, terms)]) for term in numbers}
        curved = _least("curvature", p)
        past = any(term.lag for term in numbers if term.name == curved.subject)
        # nobody can give the square of a previous answer: read, and not held against the figures
        softer = "warning" if past and curved.severity == "error" else curved.severity
        checks.append(Check("curvature", softer, curved.numbers, curved.subject))
    if terms:
        sizes = {term.name: changing(left[here], [term]) for term in terms}
        checks.append(_least("shape", sizes))
    return checks


def others_check(results: Results, left: Residuals | None, rows: IntArray) -> Check:
    """Whether the others' results depend on whether the riskiest people are there, which the day's pair takes them not
    to; to be read, and no figure of a random database is wrong for it."""
    least, n = 1.0, results.n_databases
    for row in rows.tolist():
        there = np.zeros(n, bool)
        there[results.entry_database[results.starts[row] : results.starts[row + 1]]] = True
        if min(int(there.sum()), int(n - there.sum())) < _LEAST:
            continue
        base = results.without_row(row).reshape(n, -1)
        rest = (base if left is None else left.left_of(base)).mean(axis=1)
        if np.isfinite(rest).all():
            least = min(least, explained_by(_ranked(rest), [number_term("presence", there.astype(float))]))
    p = min(1.0, least * max(1, len(rows)))
    return Check("others", "warning" if p <= SUSPICIOUS else "info", {"p": p})


def _least(code: str, p: dict[str, float]) -> Check:
    """The smallest p of several quantities, multiplied by how many there are."""
    name = min(p, key=lambda key: p[key])
    shared = min(1.0, p[name] * len(p))
    return Check(code, _graver(-shared, -SUSPICIOUS, -CERTAIN), {"p": shared}, name)


def _graver(value: float, warning: float, error: float) -> str:
    return "error" if value >= error else "warning" if value >= warning else "info"


def _curve(term: Term, terms: list[Term]) -> Term:
    """The square of a quantity, as far as what is known does not explain it."""
    assert term.values is not None
    values = np.asarray(term.values, float)
    square = ((values - values.mean()) / (values.std() or 1.0)) ** 2
    design = np.column_stack([np.ones(len(square)), *(known.columns for known in terms)])
    rest = square - design @ np.linalg.lstsq(design, square, rcond=1e-10)[0]
    return number_term(term.name, rest)


def _ranked(values: FloatArray) -> FloatArray:
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float)
