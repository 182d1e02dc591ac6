"""`GivenTableRisk`: a whole table, to a reader who knows the calendar, the previous table or other quantities.

These are further regressors of every cell, beside the cells that a person does not touch. Of the previous table its
main axes are known: as many regressors as cells would leave nothing over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from empriv.errors import InputError
from empriv.measuring.densities.density import Density, density_or_default, is_literal
from empriv.measuring.given.calendar import calendar_terms, order_of, required_times
from empriv.measuring.given.given_risk import FEWEST, SILENT, Step, quantities_of, remaining
from empriv.measuring.given.iid_tests import iid_tests
from empriv.measuring.given.reader_knowledge import Given
from empriv.measuring.given.regression import LEAST_RESIDUALS, Term, check_enough, explained_by, number_term
from empriv.measuring.tables.fit import TableFit, fit_table
from empriv.measuring.tables.table_risk import TableRisk, measure_table
from empriv.results import FloatArray, IntArray, Results
from empriv.words import what_is_known
from empriv.words.message import Message

_AXES = 5  # of the previous table that are known, at most
_EACH_AXIS = 20  # databases for each of them
_SERIES = 8  # axes of residuals that are tested
_STEPS = ("nothing", "calendar", "previous")


@dataclass(frozen=True, eq=False)
class GivenTableRisk(TableRisk):
    """How private a whole table is for every individual, to a reader who knows part of what it is made of.

    Attributes
    ----------
    given : what is known
    quantities : those that were given, on the databases as they were given
    steps : how much was chosen to count as known, if that was left open
    whole : the results as they were given, before databases were put in order or left out
    """

    given: Given = field(repr=False, kw_only=True)
    quantities: tuple[Term, ...] = field(repr=False, kw_only=True)
    steps: tuple[Step, ...] = field(repr=False, kw_only=True)
    whole: Results = field(repr=False, kw_only=True)

    @cached_property
    def unconditional(self) -> TableRisk:
        """The risk to a reader who knows nothing but the table."""
        return measure_table(self.whole, density=self.recipe)

    @property
    def dropped(self) -> int:
        """Databases left out because the table before them is not known."""
        return self.whole.n_databases - self.results.n_databases

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was counted as known, in words."""
        last = self.steps[-1] if self.steps else None
        return what_is_known.given(
            [term.name for term in self.known], 1 + sum(term.size for term in self.known), self.results.n_databases,
            chosen=None if last is None else (last.name, last.p), dropped=self.dropped,
        )  # fmt: skip


def measure_given_table(
    results: Results,
    given: Given,
    known: Any = None,
    *,
    density: Density | None = None,
    taken: Sequence[Step] = (),
) -> GivenTableRisk:
    """The risk of a table given what is known; arguments as for `measure_given`."""
    columns = tuple(given.quantities) if known is None else tuple(known)
    if any(isinstance(column, str) or callable(column) for column in columns):
        raise InputError("`known` must hold what is known of each database: SQL and functions are collected first.")
    recipe = density_or_default(density)
    quantities = tuple(quantities_of(given, columns, results))
    times = order_of(results)
    if given.calendar or given.previous:
        times = required_times(results, "calendar" if given.calendar else "previous")
    order = np.arange(results.n_databases) if times is None else times.order
    dates = [] if times is None else calendar_terms(times)
    steps: tuple[Step, ...] = ()
    if given.auto:
        terms, lags, steps = _choose(results, quantities, dates, order, ordered=times is not None, taken=taken)
    else:
        terms = [*quantities, *(dates if given.calendar else [])]
        lags = tuple(range(1, given.previous + 1))
    kept, everything = _with_lags(results, terms, lags, order)
    check_enough(len(kept), 1 + sum(term.size for term in everything))
    table = measure_table(results.on_databases(kept), density=recipe, known=everything)
    risk = GivenTableRisk(
        **{name: getattr(table, name) for name in ("results", "fit", "influences", "leaks", "recipe", "known")},
        given=given,
        quantities=quantities,
        steps=steps,
        whole=results,
    )
    if results.postprocessed_from is None or is_literal(recipe):
        return risk
    source = measure_table(results.postprocessed_from.on_databases(kept), density=recipe, known=everything)
    return replace(risk, postprocessed_from=source)


def _with_lags(
    results: Results, terms: Sequence[Term], lags: Sequence[int], order: IntArray
) -> tuple[IntArray, list[Term]]:
    """Databases in time whose previous tables are known, and all that is known of them."""
    if not lags:
        return order, [term.on(order) for term in terms]
    axes = _axes_of(fit_table(results), max(1, min(_AXES, results.n_databases // _EACH_AXIS)))[:, order]
    first = max(lags)
    kept = order[first:]
    known = [term.on(kept) for term in terms]
    for lag in lags:
        name = "previous table" if lag == 1 else f"table {lag} before"
        for number, axis in enumerate(axes, start=1):
            known.append(number_term(f"{name}, axis {number}", axis[first - lag : len(axis) - lag], lag=lag))
    return kept, known


def _axes_of(fit: TableFit, count: int) -> FloatArray:
    """(count, n) the main axes of the residuals of a table given what is known alone, averaged over draws; none of a
    table of which nothing varies."""
    if not len(fit.kept):
        return np.zeros((0, fit.n))
    by_database = fit.residuals.reshape(fit.n, -1, len(fit.kept)).mean(axis=1)
    scaled = by_database / np.maximum(fit.spreads[fit.kept], 1e-300)
    return np.asarray(np.linalg.svd(scaled, full_matrices=False)[0][:, :count].T)


def _choose(
    results: Results,
    quantities: Sequence[Term],
    dates: Sequence[Term],
    order: IntArray,
    *,
    ordered: bool,
    taken: Sequence[Step] = (),
) -> tuple[list[Term], tuple[int, ...], tuple[Step, ...]]:
    """As much as it takes until the axes of the residuals look independent and identically distributed."""
    taken = taken if ordered else ()
    steps = list(taken[:-1])
    terms: list[Term] = list(quantities)
    lags: tuple[int, ...] = ()
    for name in remaining(_STEPS, taken) if ordered else _STEPS[:1]:
        wanted = [*quantities, *(dates if name != "nothing" else [])]
        wanted_lags = (1,) if name == "previous" else ()
        kept, known = _with_lags(results, wanted, wanted_lags, order)
        if steps and len(kept) < sum(term.size for term in known) + LEAST_RESIDUALS:
            break  # too few databases for more
        terms, lags = wanted, wanted_lags
        axes = _axes_of(fit_table(results.on_databases(kept), known), _SERIES)
        p, statistic = 1.0, ""
        if ordered and len(kept) >= FEWEST and len(axes):
            tested = iid_tests(np.round(axes, 12))
            p, statistic = tested.p, tested.statistic
            if name == "nothing" and dates:  # the i.i.d. tests do not see weekdays
                on_dates = [term.on(kept) for term in dates]
                p = min([p, *(len(axes[:3]) * explained_by(axis, on_dates) for axis in axes[:3])])
        steps.append(Step(name, p, statistic))
        if p > SILENT:
            break
    return terms, lags, tuple(steps)
