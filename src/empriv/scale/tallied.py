"""`TalliedRisk`: a risk that keeps the riskiest individuals and sums up the others.

It is made for a few epsilons, and holds what a decision needs in the memory of a small audit, however many individuals
there are. It refuses questions that it was not made for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring import Risk, RiskContract
from empriv.measuring.contract import Several, table_of
from empriv.measuring.densities.selection import Score
from empriv.noise.measured import one_number
from empriv.results import FloatArray, IntArray, Outcome, Results
from empriv.scale.tally import EDGES, Tally
from empriv.validate.bounds.figures import Bounds, BoundsAsked, bounds_of, no_noise, other_level
from empriv.validate.bounds.line_bounds import floor, lower_of_people, upper_of_people
from empriv.validate.checks.check import Check, checks_of, leak_check
from empriv.validate.covering import hiding_of, judged_move
from empriv.validate.facts_by_kind import facts_of, figures, smallest_supported_delta
from empriv.validate.verdict import day_of
from empriv.words.decision import DAY, Judged
from empriv.words.facts import ExactLeak, NotNumbers, RiskFacts
from empriv.words.findings import Finding
from empriv.words.outcomes import outcome_name

# Checks that look at everyone: the riskiest alone would give a different answer.
_OF_EVERYONE = {"modes", "exact-leak"}


@dataclass(frozen=True, eq=False)
class TalliedRisk(RiskContract):
    """How private results are, with the riskiest individuals kept and the others summed up.

    Attributes
    ----------
    results : with everyone, and without each of the riskiest individuals
    riskiest : the risk of the riskiest individuals, for a closer look at any epsilon
    tally : largest values, sums and counts over all individuals
    epsilons, deltas : what the scan was made for; it can answer nothing else
    level : confidence of the bounds
    bounded : whether upper bounds were computed
    source : (3, epsilons) estimate, upper bound on delta and upper bound on total risk of the answers that these were
        made from, which tell at least as much; None if these are the first
    """

    results: Results = field(repr=False)
    riskiest: Risk = field(repr=False)
    tally: Tally = field(repr=False)
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    level: float = 0.95
    bounded: bool = True
    source: FloatArray | None = field(default=None, repr=False)

    @property
    def n_individuals(self) -> int:
        return self.tally.n_individuals

    @property
    def model(self) -> tuple[str, tuple[Score, ...]] | None:
        return self.riskiest.model

    @property
    def usual_level(self) -> float:
        return self.level

    @property
    def usual_epsilons(self) -> tuple[float, ...]:
        """Those that it was made for: it answers at no other."""
        return self.epsilons

    def tells_epsilon(self, delta: float) -> bool:
        return delta in self.deltas

    def curves(self, epsilons: FloatArray) -> FloatArray:
        self.places(epsilons)  # another epsilon is refused first
        raise InputError(
            f"`delta_i` must be asked of an audit: a scan keeps only the {self.results.n_individuals:,} riskiest of "
            f"{self.n_individuals:,} individuals. Hint: scan.individuals(epsilon) lists them."
        )

    @overload
    def delta(self, epsilon: float) -> float: ...

    @overload
    def delta(self, epsilon: Several) -> FloatArray: ...

    def delta(self, epsilon: float | Several) -> float | FloatArray:
        """Largest delta_i: a float, or an array for an array."""
        values = self.tally.worst[self.places(epsilon)]
        return float(values[0]) if np.ndim(epsilon) == 0 else values

    @overload
    def total_risk(self, epsilon: float) -> float: ...

    @overload
    def total_risk(self, epsilon: Several) -> FloatArray: ...

    def total_risk(self, epsilon: float | Several) -> float | FloatArray:
        """Chance that somebody's privacy fails, if failures are independent."""
        values = self.tally.total_risk[self.places(epsilon)]
        return float(values[0]) if np.ndim(epsilon) == 0 else values

    @overload
    def exposed(self, epsilon: float) -> int: ...

    @overload
    def exposed(self, epsilon: Several) -> IntArray: ...

    def exposed(self, epsilon: float | Several) -> int | IntArray:
        """How many individuals have a delta_i that is not 0."""
        counts = self.tally.exposed[self.places(epsilon)]
        return int(counts[0]) if np.ndim(epsilon) == 0 else counts

    def epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``, which must be among ``deltas``."""
        return float(self.tally.epsilon_at[_place("delta", delta, self.deltas)])

    def epsilon_i(self, delta: float = 0.0) -> FloatArray:
        """Not known for everybody."""
        _place("delta", delta, self.deltas)
        return self.curves(np.array(self.epsilons[:1]))

    def histogram(self, epsilon: float) -> dict[str, npt.NDArray[Any]]:
        """Individuals by delta_i: columns ``above``, ``up_to`` and ``individuals``; the first row are those at 0."""
        counts = self.tally.histogram[self.places(epsilon)[0]]
        return {"above": np.concatenate(([0.0], EDGES[:-1])), "up_to": EDGES.copy(), "individuals": counts.copy()}

    def individuals(self, epsilon: float, *, top: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Columns of a table of the riskiest individuals, as for any risk; ties are ordered by label."""
        delta_i, influence = self.tally.riskiest_delta_i[:, self.places(epsilon)[0]], self.influence()
        size = np.where(np.isnan(influence), np.inf, influence)
        by_label = np.argsort(np.argsort(self.results.individuals))
        return table_of(self.results, np.lexsort((by_label, -size, -delta_i))[:top], delta_i, influence)

    def influence(self) -> FloatArray:
        """Largest change that each of the riskiest individuals makes to a result."""
        return self.tally.riskiest_influence

    def places(self, epsilon: float | Several | FloatArray) -> list[int]:
        """Positions of these epsilons among those of the scan; others are refused."""
        values = np.atleast_1d(np.asarray(epsilon, float)).tolist()
        return [_place("epsilon", value, self.epsilons) for value in values]


@bounds_of.register
def _(risk: TalliedRisk, epsilon: float | Several, asked: BoundsAsked) -> Bounds:
    """The upper bound is over all individuals. The lower one looks for its set among the riskiest only, which at worst
    is weaker. Nobody's own bound is kept."""
    no_noise(asked)
    places = risk.places(epsilon)
    if asked.level != risk.level:
        raise InputError(
            f"`level` must be the one that the scan was made with, {risk.level:g}, got {asked.level:g}. "
            "Hint: scan again with level=..."
        )
    tally, grid, single = risk.tally, np.array(risk.epsilons), np.ndim(epsilon) == 0
    n = risk.results.n_databases
    findings: list[Finding] = []
    upper = np.ones(len(grid))
    if n < LEAST_DATABASES:
        findings.append(Finding("no-upper-bound", {"n": n, "least": LEAST_DATABASES}))
    elif not risk.bounded:
        findings.append(Finding("not-asked"))
    else:
        findings += upper_of_people(risk.riskiest, grid, risk.level).assumes
        # delta falls in epsilon: if the bound at a larger epsilon is higher, the one before it was too low.
        upper = _falling(tally.upper)
    if risk.source is not None:
        own, upper = upper, _falling(tally.capped) if risk.bounded and n >= LEAST_DATABASES else upper
        findings += _made_from(risk, places, own, upper)
    lower = lower_of_people(risk.riskiest, grid, risk.level)
    upper = np.max((upper, np.full(len(grid), floor(n, risk.level)), lower, tally.worst), axis=0)
    findings += other_level(risk.level)

    def shaped(values: FloatArray) -> Any:
        return float(values[places[0]]) if single else values[places]

    return Bounds(
        epsilon=shaped(grid),
        level=risk.level,
        lower=shaped(np.minimum(lower, upper)),
        estimate=shaped(tally.worst),
        upper=shaped(upper),
        upper_i=np.full((0,) if single else (0, len(places)), np.nan),
        assumes=tuple(findings),
    )


def _made_from(risk: TalliedRisk, places: list[int], own: FloatArray, upper: FloatArray) -> list[Finding]:
    """That the answers which these were made from decided, if they did."""
    before = risk.riskiest.made_from
    assert risk.source is not None
    if before is None:
        return []
    theirs = before.delta_i(np.array(risk.epsilons))[:, places]
    decided = (risk.tally.riskiest_delta_i[:, places] == theirs) & (theirs > 0)
    if not (decided.any() or np.any(upper[places] < own[places])):
        return []
    estimate, bound = risk.source[:, places[0]].tolist()
    return [Finding("made-from", {"epsilon": risk.epsilons[places[0]], "estimate": estimate, "upper": bound})]


@one_number.register
def _(risk: TalliedRisk) -> Risk:  # noqa: ARG001
    raise InputError(
        "`risk` must be that of an audit, got a scan's: noise has to suffice for everybody, and a scan keeps "
        "only the riskiest. Hint: scan.riskiest is their risk."
    )


@checks_of.register
def _(risk: TalliedRisk, epsilon: float, rng: int) -> list[Check]:
    """The check for exact leaks looks at everyone. The others look at the results and the riskiest individuals; the one
    that would need everybody's influence at once is left out ("modes")."""
    leaks = [leak_check(outcome_name(code), count, share) for code, (count, share) in risk.tally.leaks.items()]
    return leaks + [check for check in checks_of(risk.riskiest, epsilon, rng) if check.code not in _OF_EVERYONE]


@day_of.register(TalliedRisk)
def _largest_move_of_all(
    risk: TalliedRisk, epsilon: float, delta: float, level: float
) -> tuple[list[Judged], list[Check]]:
    """The most that anybody moved the answer, beside the others' law: that of the results, and of those without the
    heaviest of the riskiest."""
    judged = judged_move(hiding_of(risk.riskiest, None), float(risk.tally.moved[0]), epsilon, delta, level)
    return [Judged("delta", delta, *judged, where=DAY)], []


@facts_of.register
def _(risk: TalliedRisk, epsilons: Sequence[float]) -> RiskFacts:
    outcomes = risk.results.outcomes
    known = facts_of(risk.riskiest, epsilons).known
    with_everyone = np.bincount(outcomes.reshape(-1), minlength=len(Outcome))
    return RiskFacts(
        n_databases=risk.results.n_databases,
        n_individuals=risk.n_individuals,
        draws=risk.results.draws,
        figures=figures(risk, epsilons),
        floor=smallest_supported_delta(risk.results.n_databases),
        not_numbers=NotNumbers(
            _named(with_everyone), outcomes.size, _named(risk.tally.not_numbers), risk.tally.n_entries
        ),
        leaks=tuple(ExactLeak(outcome_name(code), count, share) for code, (count, share) in risk.tally.leaks.items()),
        model=None if risk.model is None else risk.model[0],
        known=None if known is None else replace(known, knowing_nothing=()),
    )


def _named(counts: IntArray) -> dict[str, int]:
    return {code.name.lower(): int(counts[code]) for code in Outcome if code and counts[code]}


def _place(name: str, value: float, listed_values: tuple[float, ...]) -> int:
    if float(value) not in listed_values:
        listed = ", ".join(f"{each:g}" for each in listed_values)
        raise InputError(
            f"`{name}` must be one that the scan was made for ({listed}), got {float(value):g}. "
            f"Hint: scan again with {name}=..., or use empriv.audit, which answers at any value."
        )
    return listed_values.index(float(value))


def _falling(values: FloatArray) -> FloatArray:
    """Each value raised to the largest at greater epsilons; epsilons rise."""
    return np.asarray(np.maximum.accumulate(values[::-1])[::-1])
