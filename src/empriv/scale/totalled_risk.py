"""`TotalledRisk`: the risk of people who were measured in chunks: the most exposed are kept, the others totalled.

It is made for a few epsilons, and holds what a decision needs in the memory of a small audit, however many people there
are. It refuses questions that it was not made for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.judge.noise_kernels import NoiseGiven, NoiseKernel
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring import AnyRisk, Risk
from empriv.measuring.any_risk import Several, Sums, table_of
from empriv.measuring.densities.selection import Score
from empriv.results import FloatArray, Results
from empriv.scale.totals import EDGES, Totals
from empriv.validate.bounds.figures import Bounds, bounds_of, no_noise
from empriv.validate.bounds.line_bounds import floor, lower_of_people, no_upper_bound, upper_of_people
from empriv.validate.checks.check import checks_of, leak_check
from empriv.validate.covering import Hiding, hiding_of
from empriv.words.message import Message
from empriv.words.sentences import outcome_name

LEVEL = 0.95
"""Confidence of the bounds, which are totalled when people are measured."""
# Checks that look at everyone: those who are kept would give a different answer.
_OF_EVERYONE = {"modes", "exact-leak"}


def refuse_totals(risk: AnyRisk, name: str) -> None:
    """Refuse what needs everybody's results, if only those of the most exposed are kept."""
    if isinstance(risk, TotalledRisk):
        raise InputError(
            f"`{name}` must be asked of an audit that holds everybody's results: people were measured in chunks, and "
            "only the most exposed are kept. Hint: audit again with in_chunks=False, where the memory suffices."
        )


@dataclass(frozen=True, eq=False)
class TotalledRisk(AnyRisk):
    """How private results are, with the most exposed people kept and the others totalled.

    Attributes
    ----------
    results : with everyone, and without each of the people who are kept
    kept : the risk of these people, for a closer look at any epsilon
    totals : largest values, sums and counts over all people
    epsilons, deltas : what people were measured at; nothing else can be answered
    """

    results: Results = field(repr=False)
    kept: Risk = field(repr=False)
    totals: Totals = field(repr=False)
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]

    @property
    def n_individuals(self) -> int:
        return self.totals.n_individuals

    @property
    def model(self) -> tuple[str, tuple[Score, ...]] | None:
        return self.kept.model

    @property
    def usual_epsilons(self) -> tuple[float, ...]:
        """Those that it was made for: it answers at no other."""
        return self.epsilons

    @property
    def is_as_totalled(self) -> bool:
        """Whether the people who are kept have the figures that they were totalled with."""
        here = self.kept.delta_i(np.array(self.epsilons))
        return bool(np.allclose(here, self.totals.kept_delta_i, rtol=1e-6, atol=1e-9))

    def tells_epsilon(self, delta: float) -> bool:
        return delta in self.deltas

    def curves(self, epsilons: FloatArray) -> FloatArray:
        self.places(epsilons)  # another epsilon is refused first
        refuse_totals(self, "delta_i")
        raise AssertionError

    def sums(self, epsilons: FloatArray) -> Sums:
        places, totals = self.places(epsilons), self.totals
        return Sums(totals.delta[places], totals.total_risk[places], totals.exposed[places])

    def epsilon(self, delta: float = 0.0) -> float:
        """Smallest epsilon at which every delta_i is at most ``delta``, which must be among ``deltas``."""
        return float(self.totals.epsilon_at[_place("delta", delta, self.deltas)])

    def histogram(self, epsilon: float) -> dict[str, npt.NDArray[Any]]:
        """People by delta_i: columns ``above``, ``up_to`` and ``individuals``; the first row are those at 0."""
        counts = self.totals.histogram[self.places(epsilon)[0]]
        return {"above": np.concatenate(([0.0], EDGES[:-1])), "up_to": EDGES.copy(), "individuals": counts.copy()}

    def individuals(self, epsilon: float, *, top: int | None = None) -> dict[str, npt.NDArray[Any]]:
        """Columns of a table of the people who are kept, as for any risk; ties are ordered by label."""
        delta_i, influence = self.totals.kept_delta_i[:, self.places(epsilon)[0]], self.influence()
        size = np.where(np.isnan(influence), np.inf, influence)
        by_label = np.argsort(np.argsort(self.results.individuals))
        return table_of(self.results, np.lexsort((by_label, -size, -delta_i))[:top], delta_i, influence)

    def influence(self) -> FloatArray:
        """Largest change that each of the people who are kept makes to a result."""
        return self.totals.kept_influence

    def repeated(self, times: int) -> AnyRisk:
        """Of one publication: what people do day by day is not totalled."""
        if times > 1:
            refuse_totals(self, "times")
        return self

    def noise_subject(self) -> NoReturn:
        refuse_totals(self, "noise")
        raise AssertionError

    def places(self, epsilon: float | Several | FloatArray) -> list[int]:
        """Positions of these epsilons among those that people were measured at; others are refused."""
        values = np.atleast_1d(np.asarray(epsilon, float)).tolist()
        return [_place("epsilon", value, self.epsilons) for value in values]


@bounds_of.register(TotalledRisk)
def bounds_of_totals(risk: TotalledRisk, epsilons: FloatArray, level: float, noise: NoiseGiven = 0.0) -> Bounds:
    """The upper bound is over all people. The lower one looks for its set among those who are kept only, which at worst
    is weaker. Nobody's own bound is kept."""
    no_noise(noise)
    places = risk.places(epsilons)
    if level != LEVEL:
        raise InputError(
            f"`level` must be {LEVEL:g} where people were measured in chunks, got {level:g}. "
            "Hint: audit again with in_chunks=False, where the memory suffices."
        )
    totals, grid = risk.totals, np.array(risk.epsilons)
    n = risk.results.n_databases
    assumes: list[Message] = []
    upper = np.ones(len(grid))
    if n < LEAST_DATABASES:
        assumes.append(no_upper_bound(n))
    else:
        assumes += upper_of_people(risk.kept, grid, LEVEL)[1]
        # delta falls in epsilon: if the bound at a larger epsilon is higher, the one before it was too low.
        upper = np.maximum.accumulate(totals.upper[::-1])[::-1]
    lower = lower_of_people(risk.kept, grid, LEVEL)
    upper = np.max((upper, np.full(len(grid), floor(n, LEVEL)), lower, totals.delta), axis=0)

    return Bounds(
        epsilon=grid[places],
        level=LEVEL,
        lower=np.minimum(lower, upper)[places],
        estimate=totals.delta[places],
        upper=upper[places],
        upper_i=np.full((0, len(places)), np.nan),
        assumes=tuple(assumes),
    )


@checks_of.register(TotalledRisk)
def checks_of_totals(risk: TotalledRisk, epsilon: float) -> list[Message]:
    """The check for exact leaks looks at everyone. The others look at the results and the people who are kept; the one
    that would need everybody's influence at once is left out ("modes")."""
    leaks = [leak_check(outcome_name(code), count, share) for code, (count, share) in risk.totals.leaks.items()]
    return leaks + [check for check in checks_of(risk.kept, epsilon) if check.code not in _OF_EVERYONE]


@hiding_of.register(TotalledRisk)
def hiding_of_totals(risk: TotalledRisk, kernel: NoiseKernel | None) -> Hiding:
    """Kept are those who moved the answer furthest, and the heaviest, whose absence makes a law of its own; the moves
    of all were counted."""
    if kernel is not None:
        refuse_totals(risk, "noise")
    return replace(hiding_of(risk.kept, None), of_all=risk.totals.moves)


def _place(name: str, value: float, listed_values: tuple[float, ...]) -> int:
    if float(value) not in listed_values:
        listed = ", ".join(f"{each:g}" for each in listed_values)
        raise InputError(
            f"`{name}` must be one that people were measured at ({listed}), got {float(value):g}: they were measured "
            f"in chunks, and totalled. Hint: audit again with that {name}."
        )
    return listed_values.index(float(value))
