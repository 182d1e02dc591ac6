"""What readers know: collected from the rows, inferred where nobody says it, and saved with an audit.

SQL expressions and functions are run on every database like queries. `measuring.given` gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from empriv.base.text import shortened
from empriv.errors import InputError
from empriv.measuring.densities.density import Density, density_or_default
from empriv.measuring.densities.specs import density_to_json
from empriv.measuring.given.calendar import CALENDAR_TERMS, order_of
from empriv.measuring.given.definition4 import WorstRisk
from empriv.measuring.given.given_risk import LEAST_CHOSEN, GivenRisk, measure_given
from empriv.measuring.given.reader_knowledge import AUTO, Buckets, Given, Known, OwnContribution, kind_of
from empriv.measuring.given.regression import Term
from empriv.measuring.given.saved import (
    given_from_parts,
    given_to_parts,
    risk_from_parts,
    risk_to_parts,
    values_from_parts,
)
from empriv.measuring.measures import measure_known
from empriv.measuring.tables import GivenTableRisk, measure_given_table
from empriv.results import Results
from empriv.words.message import Message, nothing_known

if TYPE_CHECKING:
    from empriv.collecting import Databases
    from empriv.collecting.run_query import Run

KnownRisk = GivenRisk | GivenTableRisk | WorstRisk
_GIVEN = "values given"


def known_values(
    known: Known,
    data: Databases | None,
    *,
    databases: npt.NDArray[Any],
    run: Run | None = None,
    collect: Callable[[Any], Results] | None = None,
) -> Any:
    """What is known about each database: ``values`` of `measure_known`.

    Parameters
    ----------
    known : as `as_said` gives it
    data : the rows, or None if there are only results: then what is known must be arrays
    databases : labels of the results' databases; the values are returned in their order
    run : how the query was run; its engine and limits are used here too
    collect : how SQL and functions are asked of every database; by default, as a query is
    """
    if isinstance(known, OwnContribution):
        return known.contributions
    quantities = known.quantities if isinstance(known, Given) else _listed(known.g)
    asked = [
        _collected(quantity, data, databases, run, collect)
        if isinstance(quantity, str) or callable(quantity)
        else quantity
        for quantity in quantities
    ]
    if isinstance(known, Given):
        return asked
    columns = [column for one in asked for column in (one.T if np.ndim(one) == 2 else [one])]
    return columns[0] if len(columns) == 1 else columns


def _listed(g: Any) -> list[Any]:
    """Quantities that were given one by one, or one of them."""
    several = isinstance(g, list | tuple) and any(isinstance(one, str) or callable(one) for one in g)
    return list(g) if several else [g]


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


def _collected(
    asked: Any,
    data: Databases | None,
    databases: npt.NDArray[Any],
    run: Run | None,
    collect: Callable[[Any], Results] | None,
) -> Any:
    """SQL or a function asked of every database, in the order of the results."""
    if data is None:
        raise InputError(
            "`known` must hold arrays in place of SQL if only results are given: there are no rows to ask."
        )
    if collect is not None:
        collected = collect(asked)
    else:
        from empriv.collecting.run_query import Run, run_query

        collected = run_query(data, asked, Run() if run is None else run.of_another_query())
    place = {label: row for row, label in enumerate(collected.databases.tolist())}
    if set(place) != set(databases.tolist()):
        raise InputError("`known` must be asked of the same databases as the results, got different ones.")
    return collected.q[[place[label] for label in databases.tolist()]]


def nothing_known_from_json(facts: Any) -> Message | None:
    """Why nothing was counted as known, from a saved audit; invalid facts raise KeyError, TypeError or ValueError."""
    if facts is None:
        return None
    p = facts["p"]
    return nothing_known(
        str(facts["why"]), int(facts["n"]), int(facts["least"]), float("nan") if p is None else float(p)
    )


def nothing_known_to_json(why: Message | None) -> dict[str, Any] | None:
    """The inverse of `nothing_known_from_json`, with its sentence."""
    if why is None:
        return None
    p = why.numbers["p"]
    return {**why.numbers, "p": p if p == p else None, "sentence": why.sentence}


def known_facts(against: object, epsilons: Sequence[float]) -> dict[str, Any] | None:
    """What is known as JSON, without what is known about any single database; None if nothing is."""
    if isinstance(against, WorstRisk):
        parts = [
            {
                "databases": part.results.n_databases,
                "delta": [float(part.delta(float(epsilon))) for epsilon in epsilons],
            }
            for part in against.parts
        ]
        return {**_facts_of_any(against, against.left_out, epsilons), "parts": parts}
    if not isinstance(against, GivenRisk | GivenTableRisk):
        return None
    if isinstance(against, GivenTableRisk):
        dropped, terms = against.dropped, against.known
        parameters, own = 1 + sum(term.size for term in terms), {}
    else:
        fit = against.residuals.fit
        dropped, terms, parameters = against.residuals.dropped, fit.terms, fit.parameters
        own = {"logarithm": against.residuals.logarithm, "spread": fit.spread is not None}
    return {
        **_facts_of_any(against, dropped, epsilons),
        "terms": [term.name for term in terms],
        "parameters": parameters,
        **own,
        "steps": [{"name": step.name, "p": step.p} for step in against.steps],
    }


def _facts_of_any(against: KnownRisk, left_out: int, epsilons: Sequence[float]) -> dict[str, Any]:
    nothing = against.unconditional
    return {
        "kind": kind_of(against.given),
        "knows": knows(against.given),
        "left_out": left_out,
        "delta_knowing_nothing": [float(nothing.delta(float(epsilon))) for epsilon in epsilons],
        "sentences": [message.sentence for message in against.messages if message.severity == "info"],
        "warnings": [message.sentence for message in against.messages if message.severity != "info"],
    }


def knows(known: Known) -> list[str]:
    """What is known, in words: SQL text, the name of a function, or that values were given."""
    if isinstance(known, OwnContribution):
        return ["their own contribution"]
    if isinstance(known, Buckets):
        return [f"the bucket of {_named(one)}" for one in _listed(known.g)]
    public = [
        *(["the calendar"] if known.calendar else []),
        *([f"the last {known.previous} answers"] if known.previous > 1 else []),
        *(["the previous answer"] if known.previous == 1 else []),
        *(["what everybody knows, as far as it takes"] if known.auto else []),
    ]
    return [*(_named(quantity) for quantity in known.quantities), *public]


def known_to_readers(against: object) -> tuple[str, ...]:
    """What whoever reads an answer is taken to know of its database, in a few words each."""
    if isinstance(against, WorstRisk):
        words = (name.replace(_GIVEN, "a quantity").split() for name in knows(against.given))
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


def known_to_parts(against: object) -> tuple[dict[str, Any] | None, dict[str, npt.NDArray[Any]]]:
    """Facts and arrays of a saved audit, from which the same is measured again; nothing if nothing is known."""
    if isinstance(against, WorstRisk):
        return _definition4_parts(against)
    if isinstance(against, GivenTableRisk):
        return given_to_parts(against.given, against.quantities, against.steps, logarithm=False)
    if isinstance(against, GivenRisk):
        return risk_to_parts(against)
    return None, {}


def _definition4_parts(against: WorstRisk) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    given = against.given
    labels, arrays = [], {}
    for place, column in enumerate(against.known):
        plain = column.dtype.kind in "biuf"
        labels.append(None if plain else [_label(label) for label in column.tolist()])
        if plain:
            arrays[f"known_{place}"] = column
    facts = {
        "kind": kind_of(given),
        "knows": [] if isinstance(given, OwnContribution) else [_named(one) for one in _listed(given.g)],
        "labels": labels,
        "count": given.top if isinstance(given, OwnContribution) else given.count,
    }
    return facts, arrays


def known_from_parts(
    facts: Mapping[str, Any] | None, arrays: Mapping[str, npt.NDArray[Any]], results: Results, density: Density
) -> KnownRisk | None:
    """The inverse of `known_to_parts`; invalid facts raise KeyError, TypeError or ValueError."""
    if facts is None:
        return None
    values = values_from_parts(facts, arrays)
    names = [str(name) for name in facts["knows"]]
    match facts["kind"]:
        case "given":
            if results.components is not None:
                given, taken = given_from_parts(facts)
                return measure_given_table(results, given, values, density=density, taken=taken)
            # whether logarithms were taken may have hung on people who were measured in chunks and not kept
            return risk_from_parts(facts, arrays, results, density, positive=facts.get("log_taken", True))
        case "own contribution":
            own = OwnContribution(values[0] if values else None, facts["count"])
            return measure_known(results, own, density=density)
        case "buckets":
            named = names[0] if len(names) == 1 else names
            return measure_known(results, Buckets(named, facts["count"]), values, density=density)
        case _:
            raise ValueError("kind of knowledge")


def _named(g: Any) -> str:
    if isinstance(g, str):
        return g
    return str(getattr(g, "__qualname__", _GIVEN)) if callable(g) else _GIVEN


def _label(value: Any) -> str | None:
    return None if value is None or value != value else str(value)
