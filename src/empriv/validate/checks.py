"""`checks`: what could make the figures wrong, each a `Message` with a code, a severity, its numbers and its sentence.

"error" rules out a verdict "pass"; "warning" asks to be read; "info" says what was checked. docs/judge.md lists all
codes. The checks depend on the kind of risk (`checks_of`): those of one number and given what is known are here, those
of tables in `table_checks`; any other kind gets those that need the results alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import singledispatch

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.any_risk import AnyRisk
from empriv.measuring.given.calendar import order_of
from empriv.measuring.given.definition4 import WorstRisk
from empriv.measuring.given.given_risk import GivenRisk, atoms_apart
from empriv.measuring.given.iid_tests import IidTests, iid_tests, power_at, same_within
from empriv.measuring.given.regression import changing, curvature, explained_by, number_term
from empriv.measuring.line.atoms import Pairs, lattice
from empriv.measuring.line.risk import Risk, measure_line
from empriv.measuring.series import RepeatedRisk
from empriv.results import FloatArray, IntArray, Results
from empriv.validate.line_bounds import BoundInputs, bound_inputs
from empriv.words.message import Message, gravest_first
from empriv.words.sentences import (
    databases,
    few_databases,
    number,
    outcome_name,
    people,
    percent,
    so_many,
    too_few_for_a_bound,
)

SIGNIFICANT = 0.05
SUSPICIOUS, CERTAIN = 0.05, 0.01  # p of a warning, and of an error, shared among all that are tested
RISKIEST = 3  # people whose influence and presence are tested
_MANY_DATABASES = 100
_FEWEST_TESTED = 8  # databases
_APART = 3.0  # times, between groups of influences
_FEW = 5  # individuals in a group of influences
_TOGETHER = 50  # riskiest individuals whose influences may move together
_HEAVY = 0.5  # tail index: an infinite variance
_PRESENT = 5  # databases that a person must be in, and away from, to be tested
_MEASURED_AGAIN = 20  # riskiest individuals for whom chance is compared on both sides
_SHARED = 0.5  # of the variance over draws; half of those tested share less if chance is not common
_LEAST = 8  # numbers to tell by
_NOBODIES = 8  # people who change nothing, by whom chance alone is measured

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


@checks_of.register(Risk)
def checks_of_number(risk: Risk, epsilon: float) -> list[Message]:
    inputs, rows = bound_inputs(risk), riskiest(risk, epsilon, RISKIEST)
    influence = influences(inputs, rows).sum(axis=0)
    series = {
        "the results": inputs.values.points.reshape(inputs.n_databases, -1).mean(axis=1),
        # a sum of differences: what rounding makes of a constant influence is no trend
        "the influence of the riskiest individuals": same_within(influence, 2 * RISKIEST * inputs.tolerance),
    }
    return [order_check(risk.results, series), *checks_without_order(risk, epsilon, inputs, rows)]


def checks_without_order(risk: Risk, epsilon: float, inputs: BoundInputs, rows: IntArray) -> list[Message]:
    """The checks of one number that do not ask whether databases are alike in their order; ``rows`` are riskiest."""
    return [
        number_check(inputs.n_databases),
        *leak_checks(atoms_apart(risk)),
        others_check(risk.results, rows),
        ties_check(risk.results),
        modes_check(risk),
        tails_check(inputs),
        dependent_check(risk, inputs, epsilon),
        *chance_check(risk, epsilon),
    ]


@checks_of.register(GivenRisk)
def checks_of_given(risk: GivenRisk, epsilon: float) -> list[Message]:
    return [
        _residuals_in_order(risk),
        *checks_without_order(risk, epsilon, bound_inputs(risk), riskiest(risk, epsilon, RISKIEST)),
        *(message for message in risk.messages if message.severity != "info"),
        *([] if risk.residuals.fit.determined else _model_checks(risk)),
    ]


@checks_of.register(WorstRisk)
def checks_of_worst(risk: WorstRisk, epsilon: float) -> list[Message]:
    """The gravest of each kind over all parts."""
    found: dict[tuple[str, str], Message] = {}
    for check in (check for part in risk.parts for check in checks_of(part, epsilon)):
        key = (check.code, check.numbers.get("what", ""))
        found[key] = min(found.get(key, check), check, key=gravest_first)
    return [*found.values(), *(message for message in risk.messages if message.severity != "info")]


@checks_of.register(RepeatedRisk)
def checks_of_repeated(risk: RepeatedRisk, epsilon: float) -> list[Message]:
    return checks_of(risk.single, epsilon)


def outlasts_noise(check: Message) -> bool:
    """Whether a check rules out a pass whatever noise is added."""
    return check.severity == "error" and check.code in _OUTLAST_NOISE


def outlasting_noise(risk: AnyRisk, epsilon: float) -> tuple[str, ...]:
    """What rules out a pass whatever noise is added, in sentences."""
    return tuple(check.sentence for check in checks(risk, epsilon) if outlasts_noise(check))


def gravest(by_component: Mapping[str, Message]) -> Message:
    """The gravest of the components' checks, with the component's name unless all is well."""
    name, check = min(by_component.items(), key=lambda item: gravest_first(item[1]))
    return check if check.severity == "info" or not name else check.of(name)


def riskiest(risk: Risk, epsilon: float, most: int) -> IntArray:
    """Individuals of the largest delta_i, then of the largest shift."""
    return np.lexsort((-risk.shifts, -risk.delta_i(float(epsilon))))[:most]


def influences(inputs: BoundInputs, rows: IntArray) -> FloatArray:
    """(rows, n) changes of the results, averaged over draws."""
    change = inputs.values.points - inputs.values.dense(rows)
    return np.asarray(change.reshape(len(rows), -1, inputs.draws).mean(axis=2))


# The databases


_IID = "Independent, identically distributed databases"


def order_check(results: Results, series: Mapping[str, FloatArray]) -> Message:
    """Whether series on the databases look i.i.d. in their order; databases without an order are not tested for it."""
    times = order_of(results)
    if times is None:
        said = "The databases have no order, so that no test of order was run: they are taken to be alike."
        return Message("iid", said, "info", {"n": results.n_databases}, _IID)
    return iid_check(results.n_databases, {name: values[times.order] for name, values in series.items()})


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


def _by_database(results: Results) -> FloatArray:
    """(n,) results averaged over draws; outcomes that are not numbers get one beyond all numbers, each kind its own."""
    numbers = results.q[results.outcomes == 0]
    far = 1.0 + 2.0 * float(np.abs(numbers).max(initial=0.0))
    q = np.where(results.outcomes == 0, results.q, far * results.outcomes)
    return np.asarray(q.reshape(results.n_databases, -1).mean(axis=1))


def number_check(n: int) -> Message:
    """Whether the databases are enough for a bound."""
    if n < LEAST_DATABASES:
        severity, said = "error", too_few_for_a_bound(n, LEAST_DATABASES)
    elif n < _MANY_DATABASES:
        severity, said = "warning", few_databases(n)
    else:
        severity, said = "info", f"{databases(n)}, enough for an upper bound."
    return Message("databases", said, severity, {"n": n, "least": LEAST_DATABASES}, "Number of databases")


# The results


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


def tail_index(points: FloatArray) -> float:
    """Hill's estimate of the tail index about the median: 0 is a light tail, 0.5 an infinite variance; NaN if few."""
    distance = np.sort(np.abs(points - np.median(points)))[::-1]
    k = max(5, len(points) // 10)
    if len(points) < 20 or distance[k] <= 0:
        return float("nan")
    return float(np.log(distance[:k] / distance[k]).mean())


def tails_check(inputs: BoundInputs) -> Message:
    """Heavy tails."""
    points = inputs.values.points[np.isfinite(inputs.marked.points)]
    index = tail_index(points) if len(points) else float("nan")
    heavy = index > _HEAVY
    said = (
        f"The results have heavy tails (index {index:.2g}): the most revealing databases may not have been seen."
        if heavy
        else "No heavy tails seen."
    )
    return Message("tails", said, "warning" if heavy else "info", {"index": index}, "Heavy tails")


def leaks(pairs: Pairs) -> dict[str, tuple[int, float]]:
    """Atoms that one of two worlds never shows, by code: how many individuals they give away, and in what share of
    results."""
    by_code: dict[str, tuple[int, float]] = {}
    for atom in pairs.outcomes:
        count, most = by_code.get(atom.code, (0, 0.0))
        share = atom.certain
        by_code[atom.code] = count + int(np.count_nonzero(share)), max(most, float(share.max(initial=0.0)))
    return {name: leak for name, leak in by_code.items() if leak[0]}


def leak_checks(pairs: Pairs, component: str | None = None) -> list[Message]:
    """Exact leaks, with the name of the component that has them; of answers, also where residuals are measured."""
    return [
        leak_check(outcome_name(code) if component is None else f"{component}: {outcome_name(code)}", count, share)
        for code, (count, share) in leaks(pairs).items()
    ]


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


# The people


def modes(sizes: FloatArray) -> list[int]:
    """How many individuals each mode of contribution has: groups of influences at least threefold apart."""
    logs = np.sort(np.log(sizes[(sizes > 0) & np.isfinite(sizes)]))
    if not len(logs):
        return []
    cuts = np.flatnonzero(np.diff(logs) > np.log(_APART))
    return [int(count) for count in np.diff(np.concatenate(([0], cuts + 1, [len(logs)])))]


def modes_check(risk: AnyRisk) -> Message:
    """Whether the individuals seen are representative of others."""
    groups = modes(np.nan_to_num(risk.influence(), nan=0.0))
    small = sum(count < _FEW for count in groups)
    numbers = {"modes": len(groups), "smallest_mode": min(groups, default=0), "small_modes": small}
    if not small:
        said = "No mode of contribution rests on fewer than 5 individuals."
    elif len(groups) == 1:
        said = f"Only {people(groups[0])} change the results: others may be riskier than any seen."
    else:
        said = (
            f"Influences fall into {len(groups)} groups at least threefold apart, and fewer than 5 individuals are in "
            f"{small} of them: others of that kind may be riskier than any seen."
        )
    return Message("modes", said, "warning" if small else "info", numbers, "Representative individuals")


def togetherness(influence: FloatArray) -> float:
    """Variance of the sum of standardised influences (individuals, n) over what independence would make it."""
    deviation = influence.std(axis=1)
    varied = influence[deviation > 1e-12 * np.maximum(np.abs(influence).max(axis=1), 1e-300)]
    if len(varied) < 2:
        return 1.0
    z = (varied - varied.mean(axis=1, keepdims=True)) / varied.std(axis=1, keepdims=True)
    return float(z.sum(axis=0).var() / len(z))


def dependent_check(risk: Risk, inputs: BoundInputs, epsilon: float) -> Message:
    """Contributions that rise and fall together."""
    n = inputs.n_databases
    ratio = togetherness(influences(inputs, riskiest(risk, epsilon, _TOGETHER)))
    together = n > 2 and ratio > 1 + 3 * math.sqrt(2 / (n - 1))
    said = (
        "The riskiest individuals' contributions rise and fall together: failures are not independent, total risk "
        "understates, and removing one individual leaves what the others tell about them."
        if together
        else "The riskiest individuals' contributions do not move together."
    )
    severity = "warning" if together else "info"
    return Message("dependent", said, severity, {"ratio": ratio}, "Individuals who move together")


def others_check(results: Results, rows: IntArray) -> Message:
    """Whether the others' results depend on whether the riskiest people are present, which the cover takes them not to.

    A rank correlation of q_i with presence, for each of the riskiest who is present in at least 5 databases and absent
    from as many; the least p counts as many times as people are tested.
    """
    least, n = 1.0, results.n_databases
    for row in rows.tolist():
        present = np.zeros(n, bool)
        present[results.entry_database[results.starts[row] : results.starts[row + 1]]] = True
        if min(int(present.sum()), int(n - present.sum())) < _PRESENT:
            continue
        rest = results.without_row(row).reshape(n, -1).mean(axis=1)
        if np.isfinite(rest).all():
            least = min(least, explained_by(ranked(rest), [number_term("presence", present.astype(float))]))
    p = min(1.0, least * max(1, len(rows)))
    severity = _severity(p)
    said = (
        "The others' results do not depend on whether the riskiest people are present."
        if severity == "info"
        else f"The others' results are different when the riskiest people are present (p = {p:.3f}), and hide less "
        "than the cover says, which takes them to be the same. Hint: count as known what brings them together, such as "
        "the weekday."
    )
    return Message("others", said, severity, {"p": p}, "Others when a person is present")


def ranked(values: FloatArray) -> FloatArray:
    """Places in order of size."""
    return np.argsort(np.argsort(values, kind="stable"), kind="stable").astype(float)


def _severity(p: float) -> str:
    """Of a test whose p-value this is."""
    return "error" if p <= CERTAIN else "warning" if p <= SUSPICIOUS else "info"


# Chance


def chance_check(risk: Risk, epsilon: float) -> list[Message]:
    """A warning if chance differs between the two sides of pairs; nothing otherwise, or if nothing is random."""
    results = risk.results
    if results.draws is None or not _differs(results, riskiest(risk, epsilon, _MEASURED_AGAIN)):
        return []
    try:
        alone = float(np.median(measure_line(_nobodies(results)).delta_i(float(epsilon))))
    except InputError:  # these answers cannot be measured by themselves
        return []
    m, n = results.draws, results.n_databases
    said = (
        f"Chance is not the same with and without an individual: with {m:,} draw{'' if m == 1 else 's'} on "
        f"{databases(n)} a person who changes nothing would be given a delta of about {number(alone)}, and figures are "
        "too large by up to as much. Hint: take all random numbers from `rng`, those of single rows from "
        "`rng.for_individual(name)`; or ask for more draws."
    )
    numbers = {"alone": alone, "m": m, "n": n}
    return [Message("chance", said, "warning", numbers, "Chance on both sides")] if alone else []


def _differs(results: Results, rows: IntArray) -> bool:
    """Whether what chance does with everyone says nothing of what it does without these individuals."""
    several = results.draws is not None and results.draws > 1
    shared = [_correlation(results, row, within=several) for row in rows.tolist()]
    known = np.array([correlation for correlation in shared if np.isfinite(correlation)])
    if not len(known):
        return False
    if several:
        return bool(np.median(known) < _SHARED)
    # One draw for each database: data and chance are not told apart. No correlation at all with anybody's absence
    # means that chance is nearly everything, and not common.
    return bool(known.max() < 3.0 / np.sqrt(results.n_databases))


def _correlation(results: Results, row: int, *, within: bool) -> float:
    """Of the results with everyone and without an individual; over the draws of a database, or over databases."""
    entries = slice(results.starts[row], results.starts[row + 1])
    a, b = results.q[results.entry_database[entries]], results.entry_q[entries]
    numbers = (np.isfinite(a) & np.isfinite(b)).all(axis=1)
    a, b = (_centred(side[numbers], within=within) for side in (a, b))
    size = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum()) / size if size > 0 and a.size >= _LEAST else float("nan")


def _centred(values: FloatArray, *, within: bool) -> FloatArray:
    return np.asarray(values - (values.mean(axis=1, keepdims=True) if within else values.mean()))


def _nobodies(results: Results) -> Results:
    """People who change nothing: both sides are drawn anew from the draws of each database, each side for itself."""
    assert results.draws is not None
    n, m = results.n_databases, results.draws
    generator = np.random.default_rng(0)
    q = results.q
    if m > 1:
        # m draws spread less about their own mean than about the law's.
        mean = q.mean(axis=1, keepdims=True)
        q = np.where(np.isfinite(mean), mean + np.sqrt(m / (m - 1)) * (q - mean), q)

    def drawn() -> tuple[FloatArray, npt.NDArray[np.int8]]:
        rows = np.arange(n)[:, None] if m > 1 else generator.integers(n, size=(n, 1))
        places = rows, generator.integers(m, size=(n, m))
        return q[places], results.outcomes[places]

    sides = [drawn() for _ in range(1 + _NOBODIES)]
    return replace(
        results,
        q=sides[0][0],
        outcomes=sides[0][1],
        individuals=np.arange(_NOBODIES),
        starts=np.arange(0, n * _NOBODIES + 1, n, dtype=np.int64),
        entry_database=np.tile(np.arange(n, dtype=np.int32), _NOBODIES),
        entry_q=np.concatenate([values for values, _ in sides[1:]]),
        entry_outcomes=np.concatenate([outcomes for _, outcomes in sides[1:]]),
    )


# What is known


def _residuals_in_order(risk: GivenRisk) -> Message:
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
    severity = "error" if share >= 0.2 else "warning" if share >= 0.1 else "info"
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
        severity = _severity(p)
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
        severity = _severity(p)
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
