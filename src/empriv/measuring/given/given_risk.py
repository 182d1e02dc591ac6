"""`GivenRisk`: the risk given what is known, measured from the residuals of the results.

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

from empriv.base.arguments import probability
from empriv.errors import InputError
from empriv.measuring.contract import largest_influence
from empriv.measuring.densities.density import Density, density_or_default, is_literal
from empriv.measuring.given.calendar import Times, calendar_terms, order_of, required_times
from empriv.measuring.given.choose_known import Step, choose
from empriv.measuring.given.reader_knowledge import Given
from empriv.measuring.given.residuals import Residuals, all_positive, regress_out
from empriv.measuring.given.terms import Term, quantity_terms
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.hockeystick import LARGEST_EPSILON
from empriv.measuring.line.moves import Moves, moves_of
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
    given : what is known
    left : residuals, and what was regressed out of which results
    steps : how much was chosen to count as known, if that was left open
    recipe : how densities are estimated
    atoms : the results themselves, with outcomes that have a mass of their own apart
    quantities : those that were given, on the databases as they were given
    whole : the results as they were given, before databases were put in order or left out
    """

    given: Given = field(repr=False)
    left: Residuals = field(repr=False)
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
        return largest_influence(self.left.original)

    @cached_property
    def unconditional(self) -> Risk:
        """The risk to somebody who knows nothing."""
        return measure_line(self.whole, self.recipe)

    def of_people(self, results: Results, *, people: int) -> GivenRisk:
        """The same knowledge for some of so many ``people``, with results with everyone that are the same."""
        left = self.left.of_people(results)
        risk = _given(left, self.given, self.steps, self.recipe, self.quantities, results, people=people)
        if results.made_from is None or not isinstance(self.made_from, GivenRisk):
            return risk
        return replace(risk, made_from=self.made_from.of_people(results.made_from, people=people))

    def without_logarithm(self) -> GivenRisk:
        """The same knowledge taken out of the results themselves, for noise that is added to them: their spread is
        that of the calmest context, and influences are in units of the results."""
        return self if not self.left.logarithm and self.left.fit.spread is None else self._in_units_of_results

    @cached_property
    def _in_units_of_results(self) -> GivenRisk:
        left = regress_out(
            self.whole,
            self._terms,
            order=None if self._times is None else self._times.order,
            lags=_lags(self.left),
            spread=True,
            calmest=True,
        )
        return _given(left, self.given, self.steps, self.recipe, self.quantities, self.whole)

    def moves(self) -> Moves:
        """By how much everybody moved the answer, beside what is left of each database."""
        left = self.left
        if not left.logarithm:
            return moves_of(left.original, left.units)
        with np.errstate(invalid="ignore", divide="ignore"):
            scaled = np.log(left.original.q)[left.original.entry_database] - np.log(left.original.entry_q)
        shown = np.abs(scaled.reshape(len(scaled), -1).mean(axis=1)) / left.units[left.original.entry_database]
        return moves_of(left.original, left.units, shown=np.nan_to_num(shown))

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
            said.append(Finding("given-chosen", {"name": last.name, "p": last.p}))
        if self.left.dropped:
            said.append(Finding("given-dropped", {"count": self.left.dropped}))
        return tuple(said)

    @property
    def cautions(self) -> tuple[Finding, ...]:
        """What asks to be read."""
        return (Finding("determined"),) if self.left.fit.determined else ()

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
        left, steps = choose(results, terms, times, positive=positive)
    else:
        left = regress_out(results, terms, order=order, previous=given.previous)
    risk = _given(left, given, steps, recipe, quantities, results)
    source = results.made_from
    if source is None or is_literal(recipe):
        return risk
    # Of the answers that these were made from, to somebody who knows the same.
    logarithm = left.logarithm and all_positive(source)
    known_too = regress_out(source, risk._terms, order=order, lags=_lags(left), logarithm=logarithm)
    return replace(risk, made_from=_given(known_too, given, steps, recipe, quantities, source))


def _given(
    left: Residuals,
    given: Given,
    steps: tuple[Step, ...],
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
        given=given,
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


def quantities_of(given: Given, known: Sequence[Any], results: Results) -> list[Term]:
    """What is known of each database by the quantities that were given."""
    names = [asked if isinstance(asked, str) else getattr(asked, "__qualname__", "") for asked in given.quantities]
    names += [""] * (len(known) - len(names))
    return [
        term
        for place, column in enumerate(known)
        for term in quantity_terms(column, results.databases, names[place] or f"quantity {place + 1}")
    ]


def _lags(left: Residuals) -> tuple[int, ...]:
    return tuple(term.lag for term in left.fit.terms if term.lag)
