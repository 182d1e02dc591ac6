"""`checks`: what could make the figures wrong, each a `Message` with a severity, its numbers and its sentence.

"error" rules out a verdict "pass"; "warning" asks to be read; "info" says what was checked. The checks depend on the
kind of risk (`checks_of`); those here need the results alone, and so are made for any kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import singledispatch

import numpy as np

from empriv.errors import InputError
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.any_risk import AnyRisk
from empriv.measuring.given.calendar import order_of
from empriv.measuring.given.iid_tests import IidTests, iid_tests, power_at
from empriv.measuring.line.atoms import lattice
from empriv.results import FloatArray, Results
from empriv.words.message import Message, gravest_first
from empriv.words.sentences import databases, few_databases, number, percent, so_many, too_few_for_a_bound

SIGNIFICANT = 0.05
_MANY_DATABASES = 100
_FEWEST_TESTED = 8

_OUTLAST_NOISE = ("known", "databases", "iid")


def checks(risk: AnyRisk, epsilon: float) -> tuple[Message, ...]:
    """Check everything that could make the figures at ``epsilon`` wrong; gravest first.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> [check.code for check in checks(risk, 0.1) if check.severity != "info"]
    ['databases', 'modes']
    """
    if np.ndim(epsilon) != 0:
        raise InputError("`epsilon` must be one number.")
    return tuple(sorted(checks_of(risk, epsilon), key=gravest_first))


@singledispatch
def checks_of(risk: AnyRisk, epsilon: float) -> list[Message]:  # noqa: ARG001 — results have no epsilon
    """Checks by the kind of risk, in any order. For a kind not known here, those that need the results alone."""
    results, n = risk.results, risk.results.n_databases
    parts = {"": results}
    if results.components is not None:
        parts = {name: results.component(name) for name in results.components}
    series = {f"the results of {name}" if name else "the results": _by_database(part) for name, part in parts.items()}
    return [
        order_check(results, series),
        number_check(n),
        gravest({name: ties_check(part) for name, part in parts.items()}),
    ]


def gravest(by_component: Mapping[str, Message]) -> Message:
    """The gravest of the components' checks, with the component's name unless all is well."""
    name, check = min(by_component.items(), key=lambda item: gravest_first(item[1]))
    return check if check.severity == "info" or not name else check.of(name)


def order_check(results: Results, series: Mapping[str, FloatArray]) -> Message:
    """Whether series on the databases look i.i.d. in their order; databases without an order are not tested for it."""
    times = order_of(results)
    if times is None:
        said = "The databases have no order, so that no test of order was run: they are taken to be alike."
        return Message("iid", said, "info", {"n": results.n_databases}, _IID)
    return iid_check(results.n_databases, {name: values[times.order] for name, values in series.items()})


_IID = "Independent, identically distributed databases"


def iid_check(n: int, series: Mapping[str, FloatArray], *, tested: Callable[[], IidTests] | None = None) -> Message:
    """Whether series of numbers on the databases, in their order, look independent and identically distributed.

    ``tested`` gives what the tests found where they were run before.
    """
    if n < _FEWEST_TESTED:
        said = f"{so_many(n, 'are')} too few to test for independence."
        return Message("iid", said, "warning", {"n": n}, _IID)
    # The smallest p is compared with its own law: no correction is due for many series.
    found = iid_tests(np.stack(list(series.values()))) if tested is None else tested()
    power = {f"power_{name}": power_at(n, name) for name in ("trend", "serial", "shift", "spread")}
    numbers = {"p": found.p, "n": n, **power, "statistic": found.statistic}
    if found.p <= SIGNIFICANT:
        said = (
            f"The databases do not look independent and identically distributed: {found.statistic} in "
            f"{list(series)[found.series]} (p = {number(found.p)}). Every figure here assumes that they are."
        )
        return Message("iid", said, "error", numbers, _IID)
    only = "" if power["power_trend"] > 0.95 else "only "
    said = (
        f"No departure from i.i.d. detected. With {databases(n)} a trend of one standard deviation would be detected "
        f"{only}about {percent(power['power_trend'])} of the time."
    )
    return Message("iid", said, "info", numbers, _IID)


def number_check(n: int) -> Message:
    """Whether the databases are enough for a bound."""
    if n < LEAST_DATABASES:
        severity, said = "error", too_few_for_a_bound(n, LEAST_DATABASES)
    elif n < _MANY_DATABASES:
        severity, said = "warning", few_databases(n)
    else:
        severity, said = "info", f"{databases(n)}, enough for an upper bound."
    return Message("databases", said, severity, {"n": n, "least": LEAST_DATABASES}, "Number of databases")


def ties_check(results: Results) -> Message:
    """Repeated results, and lattices."""
    q = results.q.reshape(-1)
    q = q[np.isfinite(q)]
    counts = np.unique(q, return_counts=True)[1]
    share = float(counts[counts > 1].sum() / len(q)) if len(q) else 0.0
    grid = lattice(q)
    numbers = {"tied_share": share, "lattice_step": None if grid is None else grid[1]}
    if grid is not None:
        said = (
            "All results lie on a lattice; smoothing spreads them between its points. An individual who moves results "
            "off the lattice is an exact leak."
        )
    elif share > 0.1:
        said = f"{percent(share)} of the results are tied: repeated values are compared by counts as well."
    else:
        said = "Hardly any result occurs twice, and they lie on no lattice."
    severity = "info" if grid is None and share <= 0.1 else "warning"
    return Message("ties", said, severity, numbers, "Ties and lattices")


def leak_check(name: str, individuals: int, share: float) -> Message:
    """An exact leak: what it is, how many it gives away, and in which share of databases at most."""
    numbers = {"what": name, "individuals": individuals, "share": share}
    return Message("exact-leak", leak_sentence(name, individuals, share), "error", numbers, "Exact leak")


def leak_sentence(name: str, individuals: int, share: float) -> str:
    """The same in words."""
    whom = "one individual" if individuals == 1 else f"each of {individuals:,} individuals"
    most = "" if individuals == 1 else "up to "
    return (
        f"EXACT LEAK: {name}. For {whom} this gives away whether they are in the data, in {most}{percent(share)} of "
        "databases; smoothing cannot hide this."
    )


def _by_database(results: Results) -> FloatArray:
    """(n,) results averaged over draws; outcomes that are not numbers get one beyond all numbers, each kind its own."""
    numbers = results.q[results.outcomes == 0]
    far = 1.0 + 2.0 * float(np.abs(numbers).max(initial=0.0))
    q = np.where(results.outcomes == 0, results.q, far * results.outcomes)
    return np.asarray(q.reshape(results.n_databases, -1).mean(axis=1))


def outlasts_noise(check: Message) -> bool:
    """Whether a check rules out a pass whatever noise is added."""
    return check.severity == "error" and check.code in _OUTLAST_NOISE


def outlasting_noise(risk: AnyRisk, epsilon: float) -> tuple[str, ...]:
    """What rules out a pass whatever noise is added, in sentences."""
    return tuple(check.sentence for check in checks(risk, epsilon) if outlasts_noise(check))
