"""`GivenRisk`: the risk given what is known, measured from the residuals of the results.

It is a `Risk` of residual results, with all that a `Risk` can be asked, and it knows what was taken out. Point
masses (a sum that stops being whole) are lost when a level is taken out. Knowing more never makes a
difference smaller, so they count as they did.

`choose` says how much must be counted as known until residuals look independent and identically distributed: nothing;
the logarithm; the calendar; the previous answer; those 2 and 7 before; a spread that changes. The first at which the
i.i.d. tests on the residuals are silent is chosen. A trend bends where residuals are curved in it. More structure
counted as known only lowers the randomness to hide in, so that choosing it by the data errs on the private side; that
the tests are silent is weak evidence all the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import probability
from empriv.errors import InputError
from empriv.measuring.any_risk import largest_influence
from empriv.measuring.densities.density import Density, density_or_default, is_literal
from empriv.measuring.given.calendar import LEAST_BENT, Times, calendar_terms, order_of, required_times
from empriv.measuring.given.reader_knowledge import Given, quantity_name
from empriv.measuring.given.regression import (
    LEAST_RESIDUALS,
    Residuals,
    Term,
    all_positive,
    curvature,
    explained_by,
    prefers_logarithm,
    quantity_terms,
    regress_out,
)
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.last_digits import pairs_at_step
from empriv.measuring.line.moves import Moves, moves_of
from empriv.measuring.line.risk import Block, Risk, measure_line, pairs_of
from empriv.results import FloatArray, IntArray, Results
from empriv.words.message import Message, counted_as_known

SILENT = 0.05
FEWEST = 8  # databases that can be tested
LEAST_CHOSEN = LEAST_RESIDUALS + 2  # databases: a level and a trend are fitted at least
_SAME = 1e-12  # masses that differ by less differ by rounding
_UNDATED = ("nothing", "logarithm")  # steps that need no order
_STEPS = (*_UNDATED, "calendar", "previous", "lags", "spread")


@dataclass(frozen=True)
class Step:
    """One step of the choice.

    Attributes
    ----------
    name : "nothing", "logarithm", "calendar", "previous", "lags" or "spread"
    p : of the i.i.d. tests on the residuals
    """

    name: str
    p: float


def choose(
    results: Results,
    terms: Sequence[Term],
    times: Times | None,
    *,
    positive: bool = True,
) -> tuple[Residuals, tuple[Step, ...]]:
    """The residuals that were chosen, and the steps that were taken.

    Parameters
    ----------
    results : of one number
    terms : what is known in any case
    times : when the databases were; None if they have no order: then only the logarithm is tried
    positive : whether results without people who are not listed are all positive
    """
    everything = [] if times is None else calendar_terms(times)
    order = None if times is None else times.order
    positive = positive and all_positive(results)
    y = results.q.reshape(results.n_databases, -1).mean(axis=1) if positive else np.zeros(0)
    steps: list[Step] = []
    chosen: Residuals | None = None
    for name in _STEPS:
        dated = name not in _UNDATED
        known = [*terms, *everything] if dated else list(terms)
        logarithm = name != "nothing" and positive and prefers_logarithm(y, known)
        if (name == "logarithm" and not logarithm) or (dated and times is None):
            continue
        lags = {"previous": (1,), "lags": (1, 2, 7), "spread": (1, 2, 7)}.get(name, ())
        regressed = partial(regress_out, results, order=order, lags=lags, logarithm=logarithm, spread=name == "spread")
        try:
            residuals = regressed(known)
            straight = dated and results.n_databases >= LEAST_BENT and not bends(everything)
            if straight and times is not None and trend_p(residuals) <= SILENT:
                everything = calendar_terms(times, bends=True)
                known = [*terms, *everything]
                residuals = regressed(known)
        except InputError:
            if chosen is None:
                raise
            break  # too few databases for more
        chosen = residuals
        p = objection(residuals, times)
        if not dated and everything:
            p = min(p, calendar_p(residuals, everything, times))
        steps.append(Step(name, p))
        if p > SILENT:
            break
    assert chosen is not None  # nothing is always tried
    return chosen, tuple(steps)


def objection(residuals: Residuals, times: Times | None) -> float:
    """p of the i.i.d. tests on the residuals; 1 where there is no order, or too little."""
    return 1.0 if times is None or len(residuals.numbers) < FEWEST else residuals.in_order.p


def bends(terms: Sequence[Term]) -> bool:
    """Whether a trend is counted as known with its square and cube."""
    return any(term.name == "trend" and term.size > 1 for term in terms)


def trend_p(residuals: Residuals) -> float:
    """p of the test whether residuals are curved in the trend."""
    here = np.isfinite(residuals.fit.scaled_residuals)
    terms = [term.on(here) for term in residuals.fit.terms]
    trend = next((term for term in terms if term.name == "trend" and term.values is not None), None)
    return (
        1.0
        if trend is None or residuals.fit.determined
        else curvature(residuals.fit.scaled_residuals[here], trend, terms)
    )


def calendar_p(residuals: Residuals, everything: Sequence[Term], times: Times | None) -> float:
    """p of the test whether a calendar tells anything about residuals: the i.i.d. tests do not see weekdays."""
    here = np.isfinite(residuals.fit.scaled_residuals)
    if times is None or residuals.fit.determined:
        return 1.0
    places = times.order[here]
    return explained_by(residuals.fit.scaled_residuals[here], [term.on(places) for term in everything])


@dataclass(frozen=True, eq=False)
class GivenRisk(Risk):
    """How private the results are for every individual, to a reader who knows part of what they are made of.

    ``results`` are residuals, with everyone and without each individual.

    Attributes
    ----------
    given : what is known
    residuals : of the results, and what was regressed out of which results
    steps : how much was chosen to count as known, if that was left open
    recipe : how densities are estimated
    atoms : the results themselves, with point masses apart
    quantities : those that were given, on the databases as they were given
    whole : the results as they were given, before databases were put in order or left out
    """

    given: Given = field(repr=False)
    residuals: Residuals = field(repr=False)
    steps: tuple[Step, ...] = field(repr=False)
    recipe: Density = field(repr=False)
    atoms: Pairs = field(repr=False)
    quantities: tuple[Term, ...] = field(repr=False)
    whole: Results = field(repr=False)

    def curves(self, epsilons: FloatArray) -> FloatArray:
        return np.maximum(super().curves(epsilons), atom_curves(self.atoms, epsilons))

    def own_epsilon_i(self, delta: float = 0.0) -> FloatArray:
        return np.maximum(super().own_epsilon_i(delta), atom_epsilons(self.atoms, delta))

    def own_epsilon(self, delta: float = 0.0) -> float:
        delta = probability("delta", delta)
        atoms = float(atom_epsilons(self.atoms, delta).max(initial=0.0))
        return atoms if np.isinf(atoms) else max(atoms, super().own_epsilon(delta))

    def influence(self) -> FloatArray:
        """Largest change that each individual makes to a result, in units of the results."""
        return largest_influence(self.residuals.original)

    @cached_property
    def unconditional(self) -> Risk:
        """The risk to a reader who knows nothing."""
        return measure_line(self.whole, self.recipe)

    def of_people(self, results: Results, *, people: int) -> GivenRisk:
        """The same knowledge for some of so many ``people``, with results with everyone that are the same."""
        residuals = self.residuals.of_people(results)
        risk = _given(residuals, self.given, self.steps, self.recipe, self.quantities, results, people=people)
        if results.postprocessed_from is None or not isinstance(self.postprocessed_from, GivenRisk):
            return risk
        return replace(
            risk, postprocessed_from=self.postprocessed_from.of_people(results.postprocessed_from, people=people)
        )

    def without_logarithm(self) -> GivenRisk:
        """The same knowledge taken out of the results themselves, for noise that is added to them: their spread is
        that of the calmest context, and influences are in units of the results."""
        return self if not self.residuals.logarithm and self.residuals.fit.spread is None else self._in_units_of_results

    @cached_property
    def _in_units_of_results(self) -> GivenRisk:
        residuals = regress_out(
            self.whole,
            self._terms,
            order=None if self._times is None else self._times.order,
            lags=_lags(self.residuals),
            spread=True,
            calmest=True,
        )
        return _given(residuals, self.given, self.steps, self.recipe, self.quantities, self.whole)

    def moves(self) -> Moves:
        """By how much everybody moved the answer, in units of the law that hides it on each database."""
        return moves_of(self.residuals.original, self.residuals.day_units)

    @cached_property
    def unjudged(self) -> Results:
        """The results on databases whose previous answers are not known: their residuals are not known either."""
        return self.whole.on_databases(np.setdiff1d(np.arange(self.whole.n_databases), self.residuals.places))

    def unjudged_moves(self) -> Moves | None:
        """What people did on these, in units of the calmest database; they follow those that have residuals."""
        if not self.residuals.dropped:
            return None
        calmest = float(self.residuals.day_units.min(initial=math.inf))
        moves = moves_of(self.unjudged, np.full(self.unjudged.n_databases, calmest))
        return replace(moves, database=moves.database + self.residuals.original.n_databases)

    @cached_property
    def relative_to_level(self) -> Risk:
        """The results over their level, where logarithms were taken: what a day's moves are held against."""
        results, relative = self.results, self.residuals.relative_to_level
        return measure_line(replace(results, q=relative(results.q), entry_q=relative(results.entry_q)))

    @property
    def in_time(self) -> IntArray:
        """Positions of the databases of ``whole`` in the order of time; as they are if they have none."""
        return np.arange(self.whole.n_databases) if self._times is None else self._times.order

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was counted as known, in words."""
        fit, last = self.residuals.fit, self.steps[-1] if self.steps else None
        return counted_as_known(
            [term.name for term in fit.terms], fit.parameters, self.residuals.original.n_databases,
            chosen=None if last is None else (last.name, last.p), dropped=self.residuals.dropped,
            logarithm=self.residuals.logarithm, spread=fit.spread is not None, determined=fit.determined,
        )  # fmt: skip

    @property
    def _times(self) -> Times | None:
        return order_of(self.whole)

    @property
    def _terms(self) -> list[Term]:
        """What is known of every database, previous answers apart."""
        names = {term.name for term in self.residuals.fit.terms}
        times = self._times
        everything = [] if times is None else calendar_terms(times, bends=bends(self.residuals.fit.terms))
        return [*self.quantities, *(term for term in everything if term.name in names)]


def measure_given(
    results: Results,
    given: Given,
    known: Any = None,
    *,
    density: Density | None = None,
    positive: bool = True,
) -> GivenRisk:
    """The risk given what is known.

    Parameters
    ----------
    results : of one number
    given : what is known
    known : the values of its quantities, where these are SQL or functions
    density : how densities are estimated
    positive : as for `choose`
    """
    if results.components is not None:
        raise InputError(
            f"`results` must be of one number, got a vector of {len(results.components)} components. "
            "Hint: results.component(name) is one of them."
        )
    columns = tuple(given.quantities) if known is None else tuple(known)
    if any(isinstance(column, str) or callable(column) for column in columns):
        raise InputError("`known` must hold what is known of each database: SQL and functions are collected first.")
    recipe = density_or_default(density)
    quantities = quantities_of(given, columns, results)
    terms = list(quantities)
    times = order_of(results)
    steps: tuple[Step, ...] = ()
    if given.calendar:
        terms += calendar_terms(required_times(results, "calendar"))
    if given.previous:
        times = required_times(results, "previous")
    order = None if times is None else times.order
    if given.auto:
        residuals, steps = choose(results, terms, times, positive=positive)
    else:
        residuals = regress_out(results, terms, order=order, previous=given.previous)
    risk = _given(residuals, given, steps, recipe, quantities, results)
    source = results.postprocessed_from
    if source is None or is_literal(recipe):
        return risk
    # Of the answers that these were made from, to a reader who knows the same.
    logarithm = residuals.logarithm and all_positive(source)
    known_too = regress_out(source, risk._terms, order=order, lags=_lags(residuals), logarithm=logarithm)
    return replace(risk, postprocessed_from=_given(known_too, given, steps, recipe, quantities, source))


def _given(
    residuals: Residuals,
    given: Given,
    steps: tuple[Step, ...],
    recipe: Density,
    quantities: Sequence[Term],
    whole: Results,
    *,
    people: int | None = None,
) -> GivenRisk:
    risk = measure_line(residuals.results, recipe, people=people, digits=False)
    return GivenRisk(
        results=risk.results,
        density=risk.density,
        pairs=risk.pairs,
        shifts=risk.shifts,
        given=given,
        residuals=residuals,
        steps=steps,
        recipe=recipe,
        atoms=pairs_of(residuals.original, look=not is_literal(recipe), people=people),
        quantities=tuple(quantities),
        whole=whole,
    )


def atoms_apart(risk: Risk) -> Pairs:
    """The pairs in which point masses (atoms) are told apart: of the results themselves, also where residuals are
    measured."""
    return risk.atoms if isinstance(risk, GivenRisk) else risk.pairs


def atom_curves(pairs: Pairs, epsilons: FloatArray) -> FloatArray:
    """(individuals, epsilons) the part of delta_i that point masses make."""
    rising, back = np.unique(epsilons, return_inverse=True)
    out = np.zeros((pairs.n_individuals, len(rising)))
    for rows, block in _atom_blocks(pairs):
        out[rows] = np.maximum(out[rows], block.curves(rising))
    return out[:, back]


def atom_epsilons(pairs: Pairs, delta: float) -> FloatArray:
    """(individuals,) smallest epsilon at which `atom_curves` is at most ``delta``; inf where none is."""
    out = np.zeros(pairs.n_individuals)
    for rows, block in _atom_blocks(pairs):
        out[rows] = np.maximum(out[rows], block.epsilons(delta))
    return out


def _atom_blocks(pairs: Pairs) -> Iterator[tuple[IntArray, Block]]:
    """Point masses, and all that is none of them as one outcome more: those of everybody, then
    those of individuals who have atoms of their own, last digits among them."""
    each = [(np.arange(pairs.n_individuals), pairs)] if len(pairs.mass) else []
    each += [(np.array([row]), own) for row, own in pairs.own]
    each += [(np.array([row]), pairs_at_step(pairs, row, step)) for row, step in pairs.digit_steps]
    for rows, own in each:
        without = own.mass_without
        both = np.concatenate((np.broadcast_to(own.mass, (1, without.shape[1])), without))
        both = np.concatenate((both, 1.0 - both.sum(axis=1, keepdims=True)), axis=1)
        yield rows, Block(None, both[0], np.where(np.abs(both[1:] - both[0]) > _SAME, both[1:], both[0]), slack=0.0)


def quantities_of(given: Given, known: Sequence[Any], results: Results) -> list[Term]:
    """What is known of each database by the quantities that were given."""
    names = [quantity_name(asked) for asked in given.quantities]
    names += [""] * (len(known) - len(names))
    return [
        term
        for place, column in enumerate(known)
        for term in quantity_terms(column, results.databases, names[place] or f"quantity {place + 1}")
    ]


def _lags(residuals: Residuals) -> tuple[int, ...]:
    return tuple(term.lag for term in residuals.fit.terms if term.lag)


# What files hold


def values_to_parts(columns: Sequence[npt.NDArray[Any]]) -> tuple[list[Any], dict[str, npt.NDArray[Any]]]:
    """Values of quantities by database: labels of each, or None where they are numbers, in arrays."""
    numbers = [column.dtype.kind in "biuf" for column in columns]
    labels = [
        None if plain else [None if label is None or label != label else str(label) for label in column.tolist()]
        for plain, column in zip(numbers, columns, strict=True)
    ]
    return labels, {f"known_{place}": column for place, column in enumerate(columns) if numbers[place]}


def values_from_parts(facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    """The inverse of `values_to_parts`."""
    return [
        arrays[f"known_{place}"] if labels is None else np.array(labels, object)
        for place, labels in enumerate(facts["labels"])
    ]


def given_to_parts(
    given: Given, terms: Sequence[Term], *, logarithm: bool
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """What is known as facts and arrays of a file. How much was chosen of it is not held: loading chooses again."""
    labels, arrays = values_to_parts([np.asarray(term.values) for term in terms])
    facts = {
        "kind": "given",
        "words": list(given.words),
        "knows": [term.name for term in terms],
        "labels": labels,
        "log_taken": logarithm,
    }
    return facts, arrays


def given_from_parts(facts: Mapping[str, Any]) -> Given:
    """What is known; invalid facts raise KeyError, TypeError or ValueError."""
    if facts["kind"] != "given":
        raise ValueError("kind of knowledge")
    return Given.of_words([str(word) for word in facts["words"]], [str(name) for name in facts["knows"]])


def risk_to_parts(risk: GivenRisk) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    """Those of the risk of one number."""
    return given_to_parts(risk.given, risk.quantities, logarithm=risk.residuals.logarithm)


def risk_from_parts(
    facts: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], results: Results, density: Density,
    *, positive: bool = True,
) -> GivenRisk:  # fmt: skip
    """The risk of one number given the same, measured anew; ``positive`` as for `choose`."""
    values = values_from_parts(facts, arrays)
    return measure_given(results, given_from_parts(facts), values, density=density, positive=positive)
