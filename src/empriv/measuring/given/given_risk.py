"""`GivenRisk`: the risk given what is known, measured from what is left of the results once that is taken out.

It is a `Risk` of residual results, with all that a `Risk` can be asked, and it knows what was taken out. Outcomes with
a mass of their own (a sum that stops being whole) are lost when a level is taken out. Knowing more never makes a
difference smaller, so they count as they did.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, singledispatch
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import probability
from empriv.errors import InputError
from empriv.measuring.contract import largest_influence
from empriv.measuring.densities.density import Density, density_or_default, is_literal
from empriv.measuring.given.adversaries import Given
from empriv.measuring.given.calendar import Times, calendar_terms, order_of, required_times
from empriv.measuring.given.contexts import (
    Context,
    average_of,
    context_curves,
    contexts_of,
    groups_of,
    largest_in_context,
)
from empriv.measuring.given.ladder import Rung, climb
from empriv.measuring.given.presence import PresenceRisk, presence_of
from empriv.measuring.given.residuals import NOT_POSITIVE, Left, all_positive, taken_out
from empriv.measuring.given.terms import Term, quantity_terms
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.hockeystick import LARGEST_EPSILON
from empriv.measuring.line.residues import pairs_at_steps
from empriv.measuring.line.risk import Risk, measure_line, pairs_of
from empriv.results import FloatArray, IntArray, Results
from empriv.words.findings import Finding

_LOOKED_AT = 5  # people whose contexts are looked at: the most exposed, and those who do most in a context


@dataclass(frozen=True, eq=False)
class GivenRisk(Risk):
    """How private the results are for every individual, to somebody who knows part of what they are made of.

    ``results`` are residuals: what is left with everyone, and without each individual.

    Attributes
    ----------
    adversary : what is known
    left : what was taken out, and from what
    steps : the ladder that was climbed, if it was
    recipe : how densities are estimated
    atoms : the results themselves, with outcomes that have a mass of their own apart
    quantities : those that were given, on the databases as they were given
    whole : the results as they were given, before databases were put in order or left out
    """

    adversary: Given = field(repr=False)
    left: Left = field(repr=False)
    steps: tuple[Rung, ...] = field(repr=False)
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
        return largest_influence(self.left.original)

    @cached_property
    def unconditional(self) -> Risk:
        """The risk to somebody who knows nothing."""
        return measure_line(self.whole, self.recipe)

    def of_people(self, results: Results, *, people: int) -> GivenRisk:
        """The same knowledge for some of so many ``people``, with results with everyone that are the same."""
        left = self.left.of_people(results)
        risk = _given(left, self.adversary, self.steps, self.recipe, self.quantities, results, people=people)
        if results.made_from is None or not isinstance(self.made_from, GivenRisk):
            return risk
        return replace(risk, made_from=self.made_from.of_people(results.made_from, people=people))

    def averaged(self) -> Risk:
        """The risk on average over what is known: the privacy of publishing result and knowledge together."""
        return self if self.left.fit.spread is None else measure_line(self.left.averaged(), self.recipe)

    def given_presence(self) -> PresenceRisk:
        """The same on a database that the person is in."""
        return presence_of(self, self.left)

    def without_logarithm(self) -> GivenRisk:
        """The same knowledge taken out of the results themselves, for noise that is added to them."""
        if not self.left.logarithm:
            return self
        left = taken_out(
            self.whole,
            self._terms,
            order=None if self._times is None else self._times.order,
            lags=_lags(self.left),
            spread=True,
        )
        return _given(left, self.adversary, self.steps, self.recipe, self.quantities, self.whole)

    def contexts(self, epsilon: float, individual: Any = None) -> list[Context]:
        """delta of one individual (the most exposed, unless given by label) in every context of what is known."""
        if individual is None:
            row = int(np.argmax(self.delta_i(float(epsilon)))) if self.n_individuals else 0
        else:
            row = self.results.position(individual)
        return contexts_of(self.given_presence(), self.left, row, float(epsilon))

    def in_context(self, name: str, value: str) -> PresenceRisk:
        """The risk of everyone in one context, by the names that `contexts` gives them."""
        for term in self.left.fit.terms:
            for label, databases in groups_of(term, self.left.original.databases):
                if (term.name, label) == (name, value):
                    return self.given_presence().in_context(databases)
        raise InputError(f"`name` and `value` must name one of the contexts, got {name!r} and {value!r}.")

    def by_condition(self, epsilon: float, individual: Any = None) -> dict[str, npt.NDArray[Any]]:
        """`contexts` as the columns ``z``, ``effective`` (databases) and ``delta_i``."""
        contexts = self.contexts(epsilon, individual)
        return {
            "z": np.array([f"{context.name}: {context.value}" for context in contexts], dtype=np.str_),
            "effective": np.array([float(context.databases) for context in contexts]),
            "delta_i": np.array([context.delta for context in contexts]),
        }

    def along_conditions(self, epsilons: FloatArray, individual: Any) -> FloatArray:
        """(conditions, epsilons) ``delta_i`` of `by_condition` at rising epsilons."""
        return context_curves(self.given_presence(), self.left, self.results.position(individual), epsilons)

    def worst_context(self, epsilon: float) -> Context | None:
        """Where delta is largest, among the contexts of the most exposed people; None where there are none."""
        every = [context for contexts in self._contexts_of_exposed(float(epsilon)) for context in contexts]
        return max(every, key=lambda context: context.delta, default=None)

    def average(self, epsilon: float) -> float:
        """delta on average over what is known, of the most exposed people: the privacy of publishing result and
        knowledge together. It is more than `averaged` has where somebody comes on Sundays alone."""
        n, contexts = self.left.original.n_databases, self._contexts_of_exposed(float(epsilon))
        return max([self.averaged().delta(float(epsilon)), *(average_of(own, n) for own in contexts)])

    def _contexts_of_exposed(self, epsilon: float) -> list[list[Context]]:
        if epsilon not in self._looked:
            presence = self.given_presence()
            sizes = self.delta_i(epsilon), largest_in_context(self.left)
            orders = [np.argsort(-size, kind="stable") for size in sizes]
            rows = dict.fromkeys(int(row) for order in orders for row in order[:_LOOKED_AT])
            self._looked[epsilon] = [contexts_of(presence, self.left, row, epsilon) for row in rows]
        return self._looked[epsilon]

    @cached_property
    def _looked(self) -> dict[float, list[list[Context]]]:
        return {}

    @property
    def in_time(self) -> IntArray:
        """Positions of the databases of ``whole`` in the order of time; as they are if they have none."""
        return np.arange(self.whole.n_databases) if self._times is None else self._times.order

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was counted as known, as codes and numbers."""
        fit = self.left.fit
        known = {
            "names": [term.name for term in fit.terms],
            "parameters": fit.parameters,
            "n": self.left.original.n_databases,
            "logarithm": self.left.logarithm,
            "spread": fit.spread is not None,
        }
        said = [Finding("given", known)]
        if self.steps:
            last = self.steps[-1]
            said.append(Finding("given-ladder", {"name": last.name, "p": last.p}))
        if self.left.dropped:
            said.append(Finding("given-dropped", {"count": self.left.dropped}))
        return tuple(said)

    @property
    def cautions(self) -> tuple[Finding, ...]:
        """What asks to be read."""
        return (Finding("determined", {"views": 1, "kind": "given"}),) if self.left.fit.determined else ()

    @property
    def _times(self) -> Times | None:
        return order_of(self.whole)

    @property
    def _terms(self) -> list[Term]:
        """What is known of every database, previous answers apart."""
        names = {term.name for term in self.left.fit.terms}
        times = self._times
        everything = [] if times is None else calendar_terms(times)
        return [*self.quantities, *(term for term in everything if term.name in names)]


def measure_given(
    results: Results,
    adversary: Given,
    known: Any = None,
    *,
    density: Density | None = None,
    positive: bool = True,
) -> GivenRisk:
    """The risk given what is known.

    Parameters
    ----------
    results : of one number
    adversary : what is known
    known : the values of its quantities, where these are SQL or functions
    density : how densities are estimated
    positive : as for `climb`
    """
    if results.components is not None:
        raise InputError(
            f"`results` must be of one number, got a vector of {len(results.components)} components. "
            "Hint: results.component(name) is one of them."
        )
    columns = tuple(adversary.quantities) if known is None else tuple(known)
    if any(isinstance(column, str) or callable(column) for column in columns):
        raise InputError("`known` must hold what is known of each database: SQL and functions are collected first.")
    recipe = density_or_default(density)
    quantities = quantities_of(adversary, columns, results)
    terms = list(quantities)
    spread = None if adversary.spread == "auto" else bool(adversary.spread)
    times = order_of(results)
    if adversary.logarithm and not all_positive(results):
        raise InputError(NOT_POSITIVE)
    steps: tuple[Rung, ...] = ()
    if adversary.calendar:
        terms += calendar_terms(required_times(results, "`calendar`"))
    if adversary.previous:
        times = required_times(results, "`previous`")
    order = None if times is None else times.order
    if adversary.climb:
        left, steps = climb(results, terms, times, spread=spread, positive=positive)
    else:
        left = taken_out(
            results, terms, order=order, previous=adversary.previous, logarithm=adversary.logarithm, spread=spread
        )
    risk = _given(left, adversary, steps, recipe, quantities, results)
    source = results.made_from
    if source is None or is_literal(recipe):
        return risk
    # Of the answers that these were made from, to somebody who knows the same.
    logarithm = left.logarithm and all_positive(source)
    known_too = taken_out(source, risk._terms, order=order, lags=_lags(left), logarithm=logarithm, spread=spread)
    return replace(risk, made_from=_given(known_too, adversary, steps, recipe, quantities, source))


def _given(
    left: Left,
    adversary: Given,
    steps: tuple[Rung, ...],
    recipe: Density,
    quantities: Sequence[Term],
    whole: Results,
    *,
    people: int | None = None,
) -> GivenRisk:
    risk = measure_line(left.results, recipe, people=people, digits=False)
    return GivenRisk(
        results=risk.results,
        density=risk.density,
        pairs=risk.pairs,
        shifts=risk.shifts,
        adversary=adversary,
        left=left,
        steps=steps,
        recipe=recipe,
        atoms=pairs_of(left.original, look=not is_literal(recipe), people=people),
        quantities=tuple(quantities),
        whole=whole,
    )


@singledispatch
def atoms_apart(risk: Risk) -> Pairs:
    """The pairs in which outcomes with a mass of their own are told apart: of what was measured, or of the results."""
    return risk.pairs


@atoms_apart.register
def _(risk: GivenRisk) -> Pairs:
    return risk.atoms


def atom_curves(pairs: Pairs, epsilons: FloatArray) -> FloatArray:
    """(individuals, epsilons) the part of delta_i that outcomes with a mass of their own make."""
    e = np.exp(np.minimum(epsilons, LARGEST_EPSILON))
    out = np.zeros((pairs.n_individuals, len(e)))
    if len(pairs.mass):
        out = _sticks(np.broadcast_to(pairs.mass, pairs.mass_without.shape), pairs.mass_without, e)
    for row, own in _each_own(pairs):
        out[row] = np.maximum(out[row], _sticks(own.mass[None, :], own.mass_without, e)[0])
    return out


def atom_epsilons(pairs: Pairs, delta: float) -> FloatArray:
    """(individuals,) smallest epsilon at which `atom_curves` is at most ``delta``; inf where none is."""
    out = np.zeros(pairs.n_individuals)
    if len(pairs.mass):
        out = _smallest(np.broadcast_to(pairs.mass, pairs.mass_without.shape), pairs.mass_without, delta)
    for row, own in _each_own(pairs):
        out[row] = max(out[row], _smallest(own.mass[None, :], own.mass_without, delta)[0])
    return out


def _each_own(pairs: Pairs) -> Iterator[tuple[int, Pairs]]:
    """Individuals with atoms of their own, those of their last digits among them."""
    yield from pairs.own
    for row, steps in pairs.sure_residues:
        yield row, pairs_at_steps(pairs, row, steps)


def _smallest(mass: FloatArray, without: FloatArray, delta: float) -> FloatArray:
    """Smallest epsilons of masses (rows, atoms) and of their complement, which is one outcome more."""
    e = np.exp([0.0, LARGEST_EPSILON])
    if not np.any(_sticks(mass, without, e[:1]) > delta):
        return np.zeros(len(without))
    # A hockey stick of masses is a chain of straight lines in e^epsilon, bent where two masses are in that ratio.
    both = [np.concatenate((m, 1.0 - m.sum(axis=1, keepdims=True)), axis=1) for m in (mass, without)]
    with np.errstate(divide="ignore", invalid="ignore"):
        bends = np.concatenate((both[0] / both[1], both[1] / both[0]), axis=1)
    out = np.zeros(len(without))
    for row in range(len(without)):
        knots = np.unique(np.append(bends[row][np.isfinite(bends[row]) & (bends[row] > 1)], e))
        sticks = _sticks(mass[row : row + 1], without[row : row + 1], knots)[0]
        above = np.flatnonzero(sticks > delta)
        if len(above) == len(knots):
            out[row] = np.inf
        elif len(above):
            k = int(above[-1])
            share = (sticks[k] - delta) / (sticks[k] - sticks[k + 1])
            out[row] = np.log(knots[k] + share * (knots[k + 1] - knots[k]))
    return out


def _sticks(mass: FloatArray, without: FloatArray, e: FloatArray) -> FloatArray:
    """Larger hockey stick of masses (rows, atoms) and of their complement, which is one outcome more."""
    both = [np.concatenate((m, 1.0 - m.sum(axis=1, keepdims=True)), axis=1)[:, :, None] for m in (mass, without)]
    sticks = [np.maximum(a - e * b, 0.0).sum(axis=1) for a, b in (both, both[::-1])]
    return np.asarray(np.maximum(*sticks) * (np.abs(both[0] - both[1]).sum(axis=1) > 1e-12))


def quantities_of(adversary: Given, known: Sequence[Any], results: Results) -> list[Term]:
    """What is known of each database by the quantities that were given."""
    names = [given if isinstance(given, str) else getattr(given, "__qualname__", "") for given in adversary.quantities]
    names += [""] * (len(known) - len(names))
    return [
        term
        for place, column in enumerate(known)
        for term in quantity_terms(column, results.databases, names[place] or f"quantity {place + 1}")
    ]


def _lags(left: Left) -> tuple[int, ...]:
    return tuple(term.lag for term in left.fit.terms if term.lag)
