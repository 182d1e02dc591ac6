"""Checks of what was counted as known, and of presence: where the model may be wrong, each with what to do.

The battery looks at what is left; the influence of the riskiest people is looked at on the databases that they are in,
and when they come apart from it, since one is not the other.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from empriv.measuring.given.battery import battery, same_within
from empriv.measuring.given.calendar import order_of
from empriv.measuring.given.given_risk import GivenRisk
from empriv.measuring.given.presence import PresenceRisk, influences_of, without
from empriv.measuring.given.regression import changing, explained_by
from empriv.measuring.given.residuals import Left
from empriv.measuring.given.terms import Term, number_term
from empriv.measuring.line.atoms import tie_tolerance
from empriv.measuring.line.risk import Risk
from empriv.results import FloatArray, IntArray, Results
from empriv.validate.checks import robustness
from empriv.validate.checks.check import Check, checks_of, iid_check, leak_check
from empriv.validate.checks.patterns import digit_checks

SUSPICIOUS, CERTAIN = 0.05, 0.01  # p of a warning, and of an error, shared among all quantities looked at
TWO_PEAKS = 0.62  # of Sarle's coefficient
_FEW = 200  # databases: with fewer, bounds were seen to fall short where there are two peaks
_OF_RESULTS = ("iid", "exact-leak", "residues", "steps")  # looked at in the results, not in what is left of them
_RISKIEST = 3
_LEAST = 12  # databases that somebody must be in, and away from, to be looked at
_ROUNDINGS = 16.0


@checks_of.register
def _(risk: GivenRisk, epsilon: float, rng: int) -> list[Check]:
    rows = robustness.riskiest(risk, epsilon, _RISKIEST)
    usual = [check for check in checks_of.dispatch(Risk)(risk, epsilon, rng) if check.code not in _OF_RESULTS]
    leaks = [leak_check(name, count, share) for name, (count, share) in robustness.leaks(risk.atoms).items()]
    determined = [Check("adversary", "error", {"views": 1, "kind": "given"}, "determined")]
    return [
        _left_check(risk, rng),
        _peaks_check(risk),
        *usual,
        *leaks,
        *digit_checks(risk.atoms, rows),  # what a regression leaves over has no last digits
        *(determined if risk.left.fit.determined else _model_checks(risk, rows)),
        *map(_to_read, presence_checks(risk.left.original, risk.left, rows)),
    ]


def _to_read(check: Check) -> Check:
    """On a random day, what the others do when somebody is there is to be read, and makes no figure wrong."""
    grave = check.code == "others" and check.severity == "error"
    return Check(check.code, "warning", check.numbers, check.subject) if grave else check


@checks_of.register
def _(risk: PresenceRisk, epsilon: float, rng: int) -> list[Check]:
    rows = np.argsort(-risk.delta_i(float(epsilon)), kind="stable")[:_RISKIEST]
    looked = checks_of(risk.on_random_day, epsilon, rng)
    own = [] if risk.left is not None else presence_checks(risk.results, None, rows)
    return [*looked, *own]


def _left_check(risk: GivenRisk, rng: int) -> Check:
    """The battery on what is left: in the order of time, or by size where databases have no order."""
    left = risk.left.fit.left
    here = np.isfinite(left)
    values = same_within(left[here], tie_tolerance(risk.left.original.q))
    ordered = order_of(risk.whole) is not None
    if not ordered:
        values = values[np.argsort(risk.left.fit.level[here], kind="stable")]
    name = "what is left of the results" if ordered else "what is left of the results, sorted by the fitted value"
    return iid_check(len(values), {name: values}, rng)


def _peaks_check(risk: GivenRisk) -> Check:
    """Whether what is left has two peaks, between which one bandwidth smooths: with few databases, bounds in a context
    were seen to fall short there (benchmarks/given.py).

    Sarle's coefficient, (skewness² + 1) / kurtosis, is 1/3 for a normal law, 5/9 for a uniform and for an exponential
    one, and near 1 for two narrow peaks.
    """
    left = risk.left.fit.left
    centred = left[np.isfinite(left)] - np.mean(left[np.isfinite(left)])
    variance = float(np.mean(centred**2))
    if not variance > 0:
        return Check("peaks", "info", {"coefficient": 0.0})
    skewness, kurtosis = float(np.mean(centred**3)) / variance**1.5, float(np.mean(centred**4)) / variance**2
    coefficient = (skewness**2 + 1) / kurtosis
    graver = "error" if len(centred) < _FEW else "warning"
    return Check("peaks", graver if coefficient > TWO_PEAKS else "info", {"coefficient": coefficient})


def _model_checks(risk: GivenRisk, rows: IntArray) -> list[Check]:
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
        checks.append(_influence_check(risk.left, rows, terms, here))
    return checks


def _influence_check(left: Left, rows: IntArray, terms: list[Term], here: npt.NDArray[np.bool_]) -> Check:
    """Whether the riskiest people's influence depends on what is known."""
    total = sum(_dense_influence(left.original, int(row)) for row in rows)
    series = same_within(np.asarray(total, float)[here], _ROUNDINGS * tie_tolerance(left.original.q))
    if np.ptp(series) == 0:
        return Check("context", "info", {"p": 1.0}, "")
    p = {term.name: explained_by(_ranked(series), [term]) for term in terms}
    check = _least("context", p)
    # a matter of what to read, not of a wrong figure: contexts are shown apart
    return Check("context", "warning" if check.severity == "error" else check.severity, check.numbers, check.subject)


def presence_checks(results: Results, left: Left | None, rows: IntArray) -> list[Check]:
    """Of the riskiest people: influence on the databases they are in, when they come, and the others meanwhile."""
    tolerance = _ROUNDINGS * tie_tolerance(results.q)
    drift, coming, others = 1.0, 1.0, 1.0
    statistic = ""
    n = results.n_databases
    ordered = order_of(results) is not None
    looked_at = 0
    for row in rows.tolist():
        there = np.zeros(n, bool)
        there[results.entry_database[results.starts[row] : results.starts[row + 1]]] = True
        here, away = int(there.sum()), int(n - there.sum())
        looked_at += 1
        if ordered and here >= _LEAST and not results.outcomes.any():
            influence = influences_of(results, row)
            if results.draws is None and len(influence) >= _LEAST:
                tested = battery(same_within(influence, tolerance))
                if tested.p < drift:
                    drift, statistic = tested.p, tested.statistic
        if here < _LEAST or away < _LEAST:
            continue
        if ordered:
            coming = min(coming, battery(there.astype(float)).p)
        base = without(results, row).reshape(n, -1)
        rest = (base if left is None else left.left_of(base)).mean(axis=1)
        if np.isfinite(rest).all():
            others = min(others, explained_by(_ranked(rest), [number_term("presence", there.astype(float))]))
    count = max(1, looked_at)
    return [
        Check(
            "drift", _graver(-min(1.0, drift * count), -SUSPICIOUS, -CERTAIN), {"p": min(1.0, drift * count)}, statistic
        ),
        Check("coming", "warning" if coming * count <= 0.01 else "info", {"p": min(1.0, coming * count)}),
        Check("others", _graver(-min(1.0, others * count), -SUSPICIOUS, -CERTAIN), {"p": min(1.0, others * count)}),
    ]


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


def _dense_influence(results: Results, row: int) -> FloatArray:
    n = results.n_databases
    change = (results.q - without(results, row)).reshape(n, -1).mean(axis=1)
    return np.asarray(np.nan_to_num(change))
