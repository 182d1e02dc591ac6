"""`checks`: what could make the figures wrong, each with a code, a severity and its numbers.

"error" rules out a verdict "pass"; "warning" asks to be read; "info" says what was checked. The checks depend on the
kind of risk (`checks_of`); those here need the results alone, and so are made for any kind.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import singledispatch
from typing import Any

import numpy as np

from empriv.errors import InputError
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.contract import RiskContract
from empriv.measuring.given.calendar import order_of
from empriv.measuring.given.iid_tests import iid_tests, power_at
from empriv.measuring.line.atoms import lattice
from empriv.results import FloatArray, Results
from empriv.words.checks import check_sentence, check_title

SEVERITIES = ("error", "warning", "info")
SIGNIFICANT = 0.05
_MANY_DATABASES = 100
_FEWEST_TESTED = 8

_OUTLAST_NOISE = ("known", "databases", "iid")


@dataclass(frozen=True)
class Check:
    """One thing that was checked.

    Made by `empriv.checks`, and by `checks` of an audit.

    Attributes
    ----------
    code : a short name that does not change
    severity : "info", "warning" or "error"
    numbers : the figures behind it
    subject : what it is about, where that is not the whole: an outcome, a series of numbers
    component : the number that it is about, if it is one of several

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> check = empriv.checks(risk, 0.1)[0]
    >>> check.code, check.severity
    ('databases', 'warning')
    """

    code: str
    severity: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    subject: str = ""
    component: str | None = None

    @property
    def title(self) -> str:
        """What was checked."""
        return check_title(self.code)

    @property
    def sentence(self) -> str:
        """What was found, in plain words."""
        text = check_sentence(self.code, self.severity, self.numbers, self.subject)
        return text if self.component is None else f"{self.component}: {text}"

    def to_json(self) -> dict[str, Any]:
        numbers = {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in self.numbers.items()
        }
        return {
            "code": self.code,
            "title": self.title,
            "severity": self.severity,
            "sentence": self.sentence,
            "numbers": numbers,
        }


def checks(risk: RiskContract, epsilon: float, *, rng: int = 0) -> tuple[Check, ...]:
    """Check everything that could make the figures at ``epsilon`` wrong; gravest first.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> [check.code for check in empriv.checks(risk, 0.1) if check.severity != "info"]
    ['databases', 'modes']
    """
    if np.ndim(epsilon) != 0:
        raise InputError("`epsilon` must be one number.")
    return tuple(sorted(checks_of(risk, epsilon, rng), key=lambda check: SEVERITIES.index(check.severity)))


@singledispatch
def checks_of(risk: RiskContract, epsilon: float, rng: int) -> list[Check]:  # noqa: ARG001 — results have no epsilon
    """Checks by the kind of risk, in any order. For a kind not known here, those that need the results alone."""
    results, n = risk.results, risk.results.n_databases
    parts = {"": results}
    if results.components is not None:
        parts = {name: results.component(name) for name in results.components}
    series = {f"the results of {name}" if name else "the results": _by_database(part) for name, part in parts.items()}
    return [
        order_check(results, series, rng),
        number_check(n),
        gravest({name: ties_check(part) for name, part in parts.items()}),
    ]


def gravest(by_component: Mapping[str, Check]) -> Check:
    """The gravest of the components' checks, with the component's name unless all is well."""
    name, check = min(by_component.items(), key=lambda item: SEVERITIES.index(item[1].severity))
    if check.severity == "info" or not name:
        return check
    return Check(check.code, check.severity, check.numbers, check.subject, name)


def order_check(results: Results, series: Mapping[str, FloatArray], rng: int) -> Check:
    """Whether series on the databases look i.i.d. in their order; databases without an order are not tested for it."""
    times = order_of(results)
    if times is None:
        return Check("iid", "info", {"n": results.n_databases})
    return iid_check(results.n_databases, {name: values[times.order] for name, values in series.items()}, rng)


def iid_check(n: int, series: Mapping[str, FloatArray], rng: int) -> Check:
    """Whether series of numbers on the databases, in their order, look independent and identically distributed."""
    if n < _FEWEST_TESTED:
        return Check("iid", "warning", {"n": n})
    # The smallest p is compared with its own law: no correction is due for many series.
    tested = iid_tests(np.stack(list(series.values())), rng=rng)
    power = {f"power_{name}": power_at(n, name) for name in ("trend", "serial", "shift", "spread")}
    numbers = {"p": tested.p, "n": n, **power, "statistic": tested.statistic}
    departs = tested.p <= SIGNIFICANT
    return Check("iid", "error" if departs else "info", numbers, list(series)[tested.series])


def number_check(n: int) -> Check:
    """Whether the databases are enough for a bound."""
    severity = "error" if n < LEAST_DATABASES else "warning" if n < _MANY_DATABASES else "info"
    return Check("databases", severity, {"n": n, "least": LEAST_DATABASES})


def ties_check(results: Results) -> Check:
    """Repeated results, and lattices."""
    q = results.q.reshape(-1)
    q = q[np.isfinite(q)]
    counts = np.unique(q, return_counts=True)[1]
    share = float(counts[counts > 1].sum() / len(q)) if len(q) else 0.0
    grid = lattice(q)
    numbers = {"tied_share": share, "lattice_step": None if grid is None else grid[1]}
    return Check("ties", "info" if grid is None and share <= 0.1 else "warning", numbers)


def leak_check(name: str, individuals: int, share: float) -> Check:
    """An exact leak: what it is, how many it gives away, and in which share of databases at most."""
    return Check("exact-leak", "error", {"individuals": individuals, "share": share}, name)


def _by_database(results: Results) -> FloatArray:
    """(n,) results averaged over draws; outcomes that are not numbers get one beyond all numbers, each kind its own."""
    numbers = results.q[results.outcomes == 0]
    far = 1.0 + 2.0 * float(np.abs(numbers).max(initial=0.0))
    q = np.where(results.outcomes == 0, results.q, far * results.outcomes)
    return np.asarray(q.reshape(results.n_databases, -1).mean(axis=1))


def outlasts_noise(check: Check) -> bool:
    """Whether a check rules out a pass whatever noise is added."""
    return check.severity == "error" and check.code in _OUTLAST_NOISE


def outlasting_noise(risk: RiskContract, epsilon: float) -> tuple[str, ...]:
    """What rules out a pass whatever noise is added, in sentences."""
    return tuple(check.sentence for check in checks(risk, epsilon) if outlasts_noise(check))
