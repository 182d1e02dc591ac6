"""What readers know: collected from the rows, inferred where nobody says it, and named in words.

SQL expressions and functions are run on every database like queries. `measuring.given` gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.text import shortened
from empriv.errors import InputError
from empriv.measuring.densities.density import Density, density_or_default, density_to_json
from empriv.measuring.given.calendar import CALENDAR_TERMS, order_of
from empriv.measuring.given.definition4 import WorstRisk
from empriv.measuring.given.given_risk import LEAST_CHOSEN, GivenRisk, measure_given
from empriv.measuring.given.reader_knowledge import (
    AUTO,
    VALUES_GIVEN,
    Buckets,
    Given,
    Known,
    OwnContribution,
    quantity_name,
)
from empriv.measuring.given.regression import Term
from empriv.measuring.tables import GivenTableRisk, measure_given_table
from empriv.results import Results
from empriv.words.message import Message, nothing_known

KnownRisk = GivenRisk | GivenTableRisk | WorstRisk


def known_values(known: Known, collect: Callable[[Any], Results] | None, *, databases: npt.NDArray[Any]) -> list[Any]:
    """What is known about each database, one for each quantity: ``values`` of `measure_known`.

    Parameters
    ----------
    known : as `parse_known` gives it
    collect : asks SQL and functions of every database; None if there are only results: what is known is arrays then
    databases : labels of the results' databases; the values are returned in their order
    """
    quantities = known.quantities if isinstance(known, Given) else (known.g,) if isinstance(known, Buckets) else ()
    return [
        _collected(quantity, collect, databases) if isinstance(quantity, str) or callable(quantity) else quantity
        for quantity in quantities
    ]


def infer_public_knowledge(
    results: Results, density: Density, *, ledger: bool = False, positive: bool = True
) -> tuple[GivenRisk | GivenTableRisk | None, Message | None]:
    """The risk given what everybody knows, as far as it takes; or None, and why nothing was counted as known.

    Never an error: an audit for which nobody said what is known gives the plain figures where this cannot be measured.
    ``positive`` is as for `choose`.
    """
    n = results.n_databases
    reasons = {
        "ledger": ledger,
        "draws": results.draws is not None,
        "density": density_to_json(density) != density_to_json(density_or_default(None)),
        "no-order": order_of(results) is None,
        "few": _databases_with_numbers(results) < LEAST_CHOSEN,
    }
    why, p = next((reason for reason, holds in reasons.items() if holds), ""), float("nan")
    if not why and results.components is not None:
        table = measure_given_table(results, Given(AUTO), density=density)
        if table.steps[-1].name != "nothing":
            return table, None
        why, p = "silent", table.steps[-1].p
    elif not why:
        chosen = measure_given(results, Given(AUTO), density=density, positive=positive)
        if chosen.steps[-1].name != "nothing":
            return chosen, None
        why, p = ("constant" if chosen.residuals.fit.determined else "silent"), chosen.steps[-1].p
    return None, nothing_known(why, n, LEAST_CHOSEN, p)


def _databases_with_numbers(results: Results) -> int:
    return int(np.count_nonzero((results.outcomes == 0).reshape(results.n_databases, -1).any(axis=1)))


def _collected(asked: Any, collect: Callable[[Any], Results] | None, databases: npt.NDArray[Any]) -> Any:
    """SQL or a function asked of every database, in the order of the results."""
    if collect is None:
        raise InputError(
            "`known` must hold arrays in place of SQL if only results are given: there are no rows to ask."
        )
    collected = collect(asked)
    place = {label: row for row, label in enumerate(collected.databases.tolist())}
    if set(place) != set(databases.tolist()):
        raise InputError("`known` must be asked of the same databases as the results, got different ones.")
    return collected.q[[place[label] for label in databases.tolist()]]


def knows(known: Known) -> list[str]:
    """What is known, in words: SQL text, the name of a function, or that values were given."""
    if isinstance(known, OwnContribution):
        return ["their own contribution"]
    if isinstance(known, Buckets):
        return [f"the bucket of {quantity_name(known.g) or VALUES_GIVEN}"]
    public = [
        *(["the calendar"] if known.calendar else []),
        *([f"the last {known.previous} answers"] if known.previous > 1 else []),
        *(["the previous answer"] if known.previous == 1 else []),
        *(["what everybody knows, as far as it takes"] if known.auto else []),
    ]
    return [*(quantity_name(quantity) or VALUES_GIVEN for quantity in known.quantities), *public]


def known_to_readers(against: object) -> tuple[str, ...]:
    """What whoever reads an answer is taken to know of its database, in a few words each."""
    if isinstance(against, WorstRisk):
        words = (name.replace(VALUES_GIVEN, "a quantity").split() for name in knows(against.given))
        return tuple(shortened(" ".join(name), 40) for name in words)
    if isinstance(against, GivenTableRisk):
        return _known_terms(against.known)
    return _known_terms(against.residuals.fit.terms) if isinstance(against, GivenRisk) else ()


def _known_terms(terms: Sequence[Term]) -> tuple[str, ...]:
    lags = [term.lag for term in terms if term.lag]
    names = [term.name for term in terms if not term.lag]
    dated = [name for name in names if name in CALENDAR_TERMS]
    calendar = ["the trend"] if dated == ["trend"] else ["the calendar"] if dated else []  # shops 1 to 80 have no dates
    previous = [] if not lags else ["the previous answer" if set(lags) == {1} else "previous answers"]
    quantities = [shortened(" ".join(name.split()), 40) for name in names if name not in CALENDAR_TERMS]
    return (*quantities, *calendar, *previous)
