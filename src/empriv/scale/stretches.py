"""Measuring a stretch of individuals: `Yardstick` is what everyone is measured with, `measure_stretch` does it.

The density depends only on the results with everyone, and so do all atoms except an individual's own. So every delta_i
is the same as if all were measured at once. It runs wherever the stretch is, so it knows no engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError, QueryError
from empriv.measuring.densities.density import Density, Model, is_literal
from empriv.measuring.given.given_risk import GivenRisk, atoms_apart
from empriv.measuring.line.risk import Risk, measure_line
from empriv.results import FloatArray, IntArray, Results
from empriv.scale.tally import Tally, histogram_of, outcome_histogram, riskiest_rows
from empriv.validate.bounds import LEAST_DATABASES
from empriv.validate.bounds.line_bounds import upper_of_people
from empriv.validate.checks import robustness
from empriv.validate.covering import moves_as_it_is
from empriv.validate.ground import ground_of


@dataclass(frozen=True, eq=False)
class Yardstick:
    """What every individual is measured with; a `Density` that has been fitted.

    Attributes
    ----------
    everyone : results with everyone, and nobody listed
    given : what is known, taken out of these results; None if nothing is
    model : the fitted density, None if all results are atoms
    literal : whether numbers are never treated as atoms
    epsilons : rising
    deltas : those for which epsilon_i is wanted
    level : of the upper bounds
    top : how many of the riskiest are kept, at each epsilon
    bounds : whether upper bounds are wanted
    people : how many individuals there are in all
    source : with what the answers are measured that these were made from; None if these are the first
    """

    everyone: Results
    given: GivenRisk | None
    model: Model | None
    literal: bool
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    level: float
    top: int
    bounds: bool
    people: int
    source: Yardstick | None = None

    def fit(self, points: FloatArray, databases: IntArray) -> Model:  # noqa: ARG002 — the points are always the same
        assert self.model is not None
        return self.model

    def risk_of(self, stretch: Results) -> Risk:
        """The risk of the individuals of a stretch."""
        if self.given is not None:
            return self.given.of_people(stretch, people=self.people)
        risk = measure_line(stretch, self, people=self.people)
        if self.source is None or stretch.made_from is None:
            return risk
        return replace(risk, made_from=self.source.risk_of(stretch.made_from))


@dataclass(frozen=True, eq=False)
class Measured:
    """A measured stretch: summed up, and one by one; epsilon_i (individuals, deltas) only if asked for."""

    tally: Tally
    individuals: npt.NDArray[Any]
    databases: IntArray
    influence: FloatArray
    delta_i: FloatArray
    upper_i: FloatArray
    epsilon_i: FloatArray


def yardstick_of(
    everyone: Results,
    density: Density,
    *,
    epsilons: tuple[float, ...],
    deltas: tuple[float, ...],
    level: float,
    top: int,
    bounds: bool,
    people: int,
    given: GivenRisk | None = None,
) -> Yardstick:
    """Fit the density to the results with everyone, or to what is left of them, and to what they were made from."""
    risk = measure_line(everyone, density) if given is None else given
    before = everyone.made_from if given is None or given.made_from is not None else None
    source = None
    if before is not None and not is_literal(density):
        known_too = None if given is None else given.made_from
        assert known_too is None or isinstance(known_too, GivenRisk)
        source = yardstick_of(
            before, density, epsilons=epsilons, deltas=deltas, level=level, top=top, bounds=bounds, people=people,
            given=known_too,
        )  # fmt: skip
    return Yardstick(
        everyone, given, risk.density, is_literal(density), epsilons, deltas, level, top, bounds, people, source
    )


def measure_stretch(yardstick: Yardstick, stretch: Results, *, each: bool = False) -> Measured:
    """Measure the individuals of a stretch; with ``each``, also everybody's epsilon_i, not only the largest."""
    return _measured(yardstick, yardstick.risk_of(stretch), stretch, each=each)


def _measured(yardstick: Yardstick, risk: Risk, stretch: Results, *, each: bool) -> Measured:
    grid = np.array(yardstick.epsilons)
    delta_i = risk.delta_i(grid)
    source: Measured | None = None
    if yardstick.source is not None and stretch.made_from is not None:
        assert isinstance(risk.made_from, Risk)
        source = _measured(yardstick.source, risk.made_from, stretch.made_from, each=False)
    influence = risk.influence()
    upper_i = np.ones_like(delta_i)
    if yardstick.bounds and risk.results.n_databases >= LEAST_DATABASES and stretch.n_individuals:
        upper_i = np.maximum(upper_of_people(risk, grid, yardstick.level).values, delta_i)
        # delta falls in epsilon: if a bound at a larger epsilon is higher, the one before it was too low.
        upper_i = np.maximum.accumulate(upper_i[:, ::-1], axis=1)[:, ::-1]
    capped_i = upper_i if source is None else np.minimum(upper_i, source.upper_i)
    epsilon_i = np.zeros((stretch.n_individuals, 0))
    if each:
        epsilon_i = np.stack([risk.epsilon_i(delta) for delta in yardstick.deltas], axis=1)
        epsilon_at = epsilon_i.max(axis=0, initial=0.0)
    else:
        epsilon_at = np.array([risk.epsilon(delta) for delta in yardstick.deltas])
    rows = riskiest_rows(delta_i, influence, stretch.individuals, yardstick.top)
    with np.errstate(divide="ignore"):
        log_safe = np.log1p(-delta_i).sum(axis=0)
    tally = Tally(
        n_individuals=stretch.n_individuals,
        n_entries=len(stretch.entry_database),
        worst=delta_i.max(axis=0, initial=0.0),
        kept=log_safe,
        exposed=np.count_nonzero(delta_i > 0, axis=0).astype(np.int64),
        histogram=histogram_of(delta_i),
        upper=upper_i.max(axis=0, initial=0.0),
        capped=capped_i.max(axis=0, initial=0.0),
        epsilon_at=epsilon_at,
        moved=np.array([moves_as_it_is(risk, ground_of(risk).marked).relative.max(initial=0.0)]),
        not_numbers=outcome_histogram(stretch),
        leaks=robustness.leaks(atoms_apart(risk)),
        riskiest=robustness.subset(stretch, rows),
        riskiest_delta_i=delta_i[rows],
        riskiest_influence=influence[rows],
        source=None if source is None else source.tally,
    )
    return Measured(tally, stretch.individuals, stretch.presence, influence, delta_i, capped_i, epsilon_i)


def measure_within_memory(yardstick: Yardstick, stretch: Results, *, each: bool = False) -> Iterator[Measured]:
    """Measure a stretch, halving it again and again if there is not enough memory."""
    try:
        yield measure_stretch(yardstick, stretch, each=each)
        return
    except MemoryError:
        half = stretch.n_individuals // 2
    if half == 0:
        raise QueryError(
            "There is not enough memory to measure one individual alone. Hint: give executors more memory, or ask "
            "for fewer epsilons."
        ) from None
    for rows in (np.arange(half), np.arange(half, stretch.n_individuals)):
        yield from measure_within_memory(yardstick, robustness.subset(stretch, rows), each=each)


def parts_of(results: Results, entries: int) -> list[Results]:
    """Results in stretches of individuals, each with about this many entries."""
    n = max(1, min(results.n_individuals, -(-len(results.entry_database) // entries)))
    edges = [results.n_individuals * k // n for k in range(n + 1)]
    return [robustness.subset(results, np.arange(a, b)) for a, b in pairwise(edges)]


def check_component(component: str | None, names: Sequence[str] | None) -> None:
    """Refuse a component that the query does not have; without names it gives a single number."""
    if names is None:
        if component is not None:
            raise InputError("`component` must be None: the query gives one number.")
    elif component is None or component not in names:
        raise InputError(
            f"`component` must name one of the query's {len(names):,} components: a scan is of one number, while what "
            "a table tells hangs on all of its cells at once. Hint: empriv.audit measures whole tables."
        )


def nobody_listed(
    q: FloatArray, outcomes: npt.NDArray[np.int8], databases: npt.NDArray[Any], draws: int | None = None
) -> Results:
    """Results with everyone, and nobody listed."""
    shape = (0, *q.shape[1:])
    return Results(
        q=q, outcomes=outcomes, databases=databases, individuals=np.zeros(0, np.int64),
        starts=np.zeros(1, np.int64), entry_database=np.zeros(0, np.int32), entry_q=np.zeros(shape),
        entry_outcomes=np.zeros(shape, np.int8), draws=draws,
    )  # fmt: skip
