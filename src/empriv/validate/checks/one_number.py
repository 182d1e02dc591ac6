"""Checks of one number: what could make its figures wrong."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.measuring.any_risk import AnyRisk
from empriv.measuring.given.definition4 import WorstRisk
from empriv.measuring.given.iid_tests import same_within
from empriv.measuring.given.regression import explained_by, number_term
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.risk import Risk, measure_line
from empriv.measuring.series import RepeatedRisk
from empriv.results import FloatArray, IntArray, Results
from empriv.validate.bounds.line_bounds import BoundInputs, bound_inputs
from empriv.validate.checks.check import (
    checks_of,
    leak_check,
    number_check,
    order_check,
    ties_check,
)
from empriv.words.message import Message, gravest_first
from empriv.words.sentences import databases, number, outcome_name, people

_APART = 3.0  # times, between groups of influences
_MOST = 20  # riskiest individuals measured again


def riskiest(risk: Risk, epsilon: float, most: int = _MOST) -> IntArray:
    """Individuals of the largest delta_i, then of the largest shift."""
    return np.lexsort((-risk.shifts, -risk.delta_i(float(epsilon))))[:most]


def modes(sizes: FloatArray) -> list[int]:
    """How many individuals each mode of contribution has: groups of influences at least threefold apart."""
    logs = np.sort(np.log(sizes[(sizes > 0) & np.isfinite(sizes)]))
    if not len(logs):
        return []
    cuts = np.flatnonzero(np.diff(logs) > np.log(_APART))
    return [int(count) for count in np.diff(np.concatenate(([0], cuts + 1, [len(logs)])))]


def tail_index(points: FloatArray) -> float:
    """Hill's estimate of the tail index about the median: 0 is a light tail, 0.5 an infinite variance; NaN if few."""
    distance = np.sort(np.abs(points - np.median(points)))[::-1]
    k = max(5, len(points) // 10)
    if len(points) < 20 or distance[k] <= 0:
        return float("nan")
    return float(np.log(distance[:k] / distance[k]).mean())


def togetherness(influence: FloatArray) -> float:
    """Variance of the sum of standardised influences (individuals, n) over what independence would make it."""
    deviation = influence.std(axis=1)
    varied = influence[deviation > 1e-12 * np.maximum(np.abs(influence).max(axis=1), 1e-300)]
    if len(varied) < 2:
        return 1.0
    z = (varied - varied.mean(axis=1, keepdims=True)) / varied.std(axis=1, keepdims=True)
    return float(z.sum(axis=0).var() / len(z))


def leaks(pairs: Pairs) -> dict[str, tuple[int, float]]:
    """Atoms that one of two worlds never shows, by code: how many individuals they give away, and in what share of
    results."""
    by_code: dict[str, tuple[int, float]] = {}
    for atom in pairs.outcomes:
        count, most = by_code.get(atom.code, (0, 0.0))
        share = atom.certain
        by_code[atom.code] = count + int(np.count_nonzero(share)), max(most, float(share.max(initial=0.0)))
    return {name: leak for name, leak in by_code.items() if leak[0]}


_SHARED = 0.5  # of the variance over draws; half of those tested share less if chance is not common
_LEAST = 8  # numbers to tell by
_NOBODIES = 8


def chance_check(risk: Risk, epsilon: float) -> list[Message]:
    """A warning if chance differs between the two sides of pairs; nothing otherwise, or if nothing is random."""
    results = risk.results
    if results.draws is None or not _differs(results, riskiest(risk, epsilon)):
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


_HEAVY = 0.5
_FEW = 5  # individuals in a mode of contribution
RISKIEST = 3
_PRESENT = 5  # databases that a person must be in, and away from, to be tested
SUSPICIOUS, CERTAIN = 0.05, 0.01  # p of a warning, and of an error, shared among all that are tested


@checks_of.register(Risk)
def checks_of_number(risk: Risk, epsilon: float) -> list[Message]:
    ground = bound_inputs(risk)
    n = ground.n_databases
    rows = riskiest(risk, epsilon, RISKIEST)
    influence = influences(ground, rows).sum(axis=0)
    series = {
        "the results": ground.values.points.reshape(n, -1).mean(axis=1),
        # a sum of differences: what rounding makes of a constant influence is no trend
        "the influence of the riskiest individuals": same_within(influence, 2 * RISKIEST * ground.tolerance),
    }
    return [order_check(risk.results, series), *checks_without_order(risk, epsilon, ground, rows)]


def checks_without_order(risk: Risk, epsilon: float, ground: BoundInputs, rows: IntArray) -> list[Message]:
    """The checks of one number that do not ask whether databases are alike in their order; ``rows`` are riskiest."""
    return [
        number_check(ground.n_databases),
        *leak_checks(risk),
        others_check(risk.results, rows),
        ties_check(risk.results),
        modes_check(risk),
        tails_check(ground),
        dependent_check(risk, ground, epsilon),
        *chance_check(risk, epsilon),
    ]


@checks_of.register(WorstRisk)
def checks_of_worst(risk: WorstRisk, epsilon: float) -> list[Message]:
    """The gravest of each kind over all parts."""
    gravest: dict[tuple[str, str], Message] = {}
    for part in risk.parts:
        for check in checks_of(part, epsilon):
            key = (check.code, check.numbers.get("what", ""))
            known = gravest.get(key)
            if known is None or gravest_first(check) < gravest_first(known):
                gravest[key] = check
    return [*gravest.values(), *(message for message in risk.messages if message.severity != "info")]


def influences(ground: BoundInputs, rows: IntArray) -> FloatArray:
    """(rows, n) changes of the results, averaged over draws."""
    change = ground.values.points - ground.values.dense(rows)
    return np.asarray(change.reshape(len(rows), -1, ground.draws).mean(axis=2))


def leak_checks(risk: Risk, component: str | None = None) -> list[Message]:
    """Exact leaks, with the name of the component that has them."""
    return [
        leak_check(outcome_name(code) if component is None else f"{component}: {outcome_name(code)}", count, share)
        for code, (count, share) in leaks(risk.pairs).items()
    ]


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


def tails_check(ground: BoundInputs) -> Message:
    """Heavy tails."""
    points = ground.values.points[np.isfinite(ground.marked.points)]
    index = tail_index(points) if len(points) else float("nan")
    heavy = index > _HEAVY
    said = (
        f"The results have heavy tails (index {index:.2g}): the most revealing databases may not have been seen."
        if heavy
        else "No heavy tails seen."
    )
    return Message("tails", said, "warning" if heavy else "info", {"index": index}, "Heavy tails")


def dependent_check(risk: Risk, ground: BoundInputs, epsilon: float) -> Message:
    """Contributions that rise and fall together."""
    n = ground.n_databases
    ratio = togetherness(influences(ground, riskiest(risk, epsilon, 50)))
    together = n > 2 and ratio > 1 + 3 * math.sqrt(2 / (n - 1))
    said = (
        "The riskiest individuals' contributions rise and fall together: failures are not independent, total risk "
        "understates, and removing one individual leaves what the others tell about them."
        if together
        else "The riskiest individuals' contributions do not move together."
    )
    severity = "warning" if together else "info"
    return Message("dependent", said, severity, {"ratio": ratio}, "Individuals who move together")


@checks_of.register(RepeatedRisk)
def checks_of_repeated(risk: RepeatedRisk, epsilon: float) -> list[Message]:
    return checks_of(risk.single, epsilon)


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
    severity = "error" if p <= CERTAIN else "warning" if p <= SUSPICIOUS else "info"
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
