"""What an adversary knows: collected from the rows for `measure_against`, and saved with an audit.

SQL expressions and functions are run on every database like queries. `measuring.given` gives them their meaning.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from empriv.base.harmless import shortened
from empriv.errors import InputError
from empriv.measuring.densities.density import Density, density_or_default
from empriv.measuring.densities.specs import density_to_json
from empriv.measuring.given.adversaries import Adversary, Buckets, Given, OwnContribution, Weighted, kind_of
from empriv.measuring.given.adversary_risk import AdversaryRisk, measure_against
from empriv.measuring.given.calendar import CALENDAR_TERMS, order_of
from empriv.measuring.given.given_risk import GivenRisk, measure_given
from empriv.measuring.given.ladder import LEAST_CLIMBED
from empriv.measuring.given.terms import Term
from empriv.measuring.tables import GivenTableRisk, measure_given_table
from empriv.results import Results
from empriv.words.findings import Finding

if TYPE_CHECKING:
    from empriv.collecting import Databases
    from empriv.collecting.run_options import Run

_GIVEN = "values given"


def known_values(
    adversary: Adversary,
    data: Databases | None,
    *,
    databases: npt.NDArray[Any],
    run: Run | None = None,
    collect: Callable[[Any], Results] | None = None,
) -> Any:
    """What the adversary knows about each database: ``known`` of `measure_against`.

    Parameters
    ----------
    adversary : as returned by `as_adversary`
    data : the rows, or None if there are only results: then what is known must be arrays
    databases : labels of the results' databases; the values are returned in their order
    run : how the query was run; its engine and limits are used here too
    collect : how SQL and functions are asked of every database; by default, as a query is
    """
    if isinstance(adversary, OwnContribution):
        return adversary.contributions
    if isinstance(adversary, Given):
        return [
            _collected(given, data, databases, run, collect) if isinstance(given, str) or callable(given) else given
            for given in adversary.quantities
        ]
    several = isinstance(adversary.g, list | tuple) and any(isinstance(g, str) or callable(g) for g in adversary.g)
    columns: list[Any] = []
    for g in adversary.g if several else [adversary.g]:
        if not (isinstance(g, str) or callable(g)):
            columns.append(g)
            continue
        q = _collected(g, data, databases, run, collect)
        columns.extend(q.T if q.ndim == 2 else [q])
    return columns[0] if len(columns) == 1 else columns


def known_to_everybody(
    results: Results, density: Density, *, ledger: bool = False, positive: bool = True
) -> tuple[GivenRisk | GivenTableRisk | None, Finding | None]:
    """The risk given what everybody knows, as far as it takes; or None, and why nothing was counted as known.

    Never an error: an audit for which nobody said what is known gives the plain figures where this cannot be measured.
    ``positive`` is as for `climb`.
    """
    n = results.n_databases
    reasons = {
        "ledger": ledger,
        "draws": results.draws is not None,
        "density": density_to_json(density) != density_to_json(density_or_default(None)),
        "no-order": order_of(results) is None,
        "few": _databases_with_numbers(results) < LEAST_CLIMBED,
    }
    why, p = next((reason for reason, holds in reasons.items() if holds), ""), float("nan")
    if not why and results.components is not None:
        table = measure_given_table(results, Given(climb=True), density=density)
        if table.steps[-1].name != "nothing":
            return table, None
        why, p = "silent", table.steps[-1].p
    elif not why:
        climbed = measure_given(results, Given(climb=True), density=density, positive=positive)
        if climbed.steps[-1].name != "nothing":
            return climbed, None
        why, p = ("constant" if climbed.left.fit.determined else "silent"), climbed.steps[-1].p
    return None, Finding("nothing-known", {"why": why, "n": n, "least": LEAST_CLIMBED, "p": p})


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
            "`adversary` must be an array if only results are given: there are no rows to collect it from."
        )
    if collect is not None:
        collected = collect(asked)
    else:
        from empriv.collecting.pipeline import run_query
        from empriv.collecting.run_options import Run

        collected = run_query(data, asked, Run() if run is None else run.of_another_query())
    place = {label: row for row, label in enumerate(collected.databases.tolist())}
    if set(place) != set(databases.tolist()):
        raise InputError("`adversary` must be known for the same databases as the results, got different ones.")
    return collected.q[[place[label] for label in databases.tolist()]]


def nothing_known_from_json(facts: Any) -> Finding | None:
    """Why nothing was counted as known, from a saved audit; invalid facts raise KeyError, TypeError or ValueError."""
    if facts is None:
        return None
    p = facts["p"]
    numbers = {
        "why": str(facts["why"]), "n": int(facts["n"]), "least": int(facts["least"]),
        "p": float("nan") if p is None else float(p),
    }  # fmt: skip
    finding = Finding("nothing-known", numbers)
    if not finding.sentence:
        raise ValueError("why")
    return finding


def nothing_known_to_json(finding: Finding | None) -> dict[str, Any] | None:
    """The inverse of `nothing_known_from_json`, with its sentence."""
    if finding is None:
        return None
    p = finding.numbers["p"]
    return {**finding.numbers, "p": p if p == p else None, "sentence": finding.sentence}


@singledispatch
def adversary_facts(against: object, epsilons: Sequence[float]) -> dict[str, Any] | None:  # noqa: ARG001 — dispatched on
    """An adversary as JSON, without what is known about any single database; None if there is none."""
    return None


@adversary_facts.register
def _(against: AdversaryRisk, epsilons: Sequence[float]) -> dict[str, Any]:
    return {
        "kind": kind_of(against.adversary),
        "knows": knows(against.adversary),
        "n_conditions": len(against.effective),
        "smallest_effective": float(against.effective.min()),
        "left_out": against.left_out,
        "delta_knowing_nothing": [float(delta) for delta in against.unconditional.delta(np.asarray(epsilons, float))],
        "sentences": list(against.sentences),
        "warnings": list(against.warnings),
    }


@adversary_facts.register
def _(against: GivenTableRisk, epsilons: Sequence[float]) -> dict[str, Any]:
    return {
        "kind": "given",
        "knows": knows(against.adversary),
        "n_conditions": 1,
        "smallest_effective": float(against.results.n_databases),
        "left_out": against.dropped,
        "delta_knowing_nothing": [float(against.unconditional.delta(float(epsilon))) for epsilon in epsilons],
        "sentences": [finding.sentence for finding in against.findings],
        "warnings": [],
        "terms": [term.name for term in against.known],
        "parameters": 1 + sum(term.size for term in against.known),
        "steps": [{"name": step.name, "p": step.p} for step in against.steps],
    }


@adversary_facts.register
def _(against: GivenRisk, epsilons: Sequence[float]) -> dict[str, Any]:
    fit = against.left.fit
    return {
        "kind": "given",
        "knows": knows(against.adversary),
        "n_conditions": 1,
        "smallest_effective": float(against.results.n_databases),
        "left_out": against.left.dropped,
        "delta_knowing_nothing": [float(against.unconditional.delta(float(epsilon))) for epsilon in epsilons],
        "sentences": [finding.sentence for finding in against.findings],
        "warnings": [caution.sentence for caution in against.cautions],
        "terms": [term.name for term in fit.terms],
        "parameters": fit.parameters,
        "logarithm": against.left.logarithm,
        "spread": fit.spread is not None,
        "steps": [{"name": step.name, "p": step.p} for step in against.steps],
    }


def knows(adversary: Adversary) -> list[str]:
    """What is known, in words: SQL text, the name of a function, or that values were given."""
    if isinstance(adversary, Given):
        public = [
            *(["the calendar"] if adversary.calendar else []),
            *([f"the last {adversary.previous} answers"] if adversary.previous > 1 else []),
            *(["the previous answer"] if adversary.previous == 1 else []),
            *(["what everybody knows, as far as it takes"] if adversary.climb else []),
        ]
        return [*(_named(given) for given in adversary.quantities), *public]
    if isinstance(adversary, OwnContribution):
        return ["their own contribution"]
    several = isinstance(adversary.g, list | tuple) and any(isinstance(g, str) or callable(g) for g in adversary.g)
    return [_named(g) for g in (adversary.g if several else [adversary.g])]


@singledispatch
def known_to_readers(against: object) -> tuple[str, ...]:  # noqa: ARG001 — nothing is counted as known
    """What whoever reads an answer is taken to know of its database, in a few words each."""
    return ()


@known_to_readers.register
def _(against: AdversaryRisk) -> tuple[str, ...]:
    named = (name for name in knows(against.adversary))
    return tuple("a quantity of it" if name == _GIVEN else shortened(" ".join(name.split()), 40) for name in named)


@known_to_readers.register
def _(against: GivenRisk) -> tuple[str, ...]:
    return _known_terms(against.left.fit.terms)


@known_to_readers.register
def _(against: GivenTableRisk) -> tuple[str, ...]:
    return _known_terms(against.known)


def _known_terms(terms: Sequence[Term]) -> tuple[str, ...]:
    lags = [term.lag for term in terms if term.lag]
    names = [term.name for term in terms if not term.lag]
    calendar = ["the calendar"] if any(name in CALENDAR_TERMS for name in names) else []
    previous = [] if not lags else ["the previous answer" if set(lags) == {1} else "previous answers"]
    quantities = [shortened(" ".join(name.split()), 40) for name in names if name not in CALENDAR_TERMS]
    return (*quantities, *calendar, *previous)


@singledispatch
def adversary_to_parts(against: object) -> tuple[dict[str, Any] | None, dict[str, npt.NDArray[Any]]]:  # noqa: ARG001
    """Facts and arrays of a saved audit, from which the same adversary is measured again; nothing if there is none."""
    return None, {}


@adversary_to_parts.register
def _(against: AdversaryRisk) -> tuple[dict[str, Any] | None, dict[str, npt.NDArray[Any]]]:
    adversary = against.adversary
    labels: list[list[str | None] | None] = []
    arrays = {}
    for place, column in enumerate(against.known):
        plain = column.dtype.kind in "biuf"
        labels.append(None if plain else [_label(label) for label in column.tolist()])
        if plain:
            arrays[f"known_{place}"] = column
    facts = {
        "kind": kind_of(adversary),
        "knows": knows(adversary),
        "labels": labels,
        "count": adversary.count if isinstance(adversary, Buckets) else None,
        "drawn": adversary.sample if isinstance(adversary, OwnContribution) else None,
        "rng": adversary.rng if isinstance(adversary, OwnContribution) else None,
    }
    return facts, arrays


def adversary_from_parts(
    facts: Mapping[str, Any] | None, arrays: Mapping[str, npt.NDArray[Any]], results: Results, density: Density
) -> AdversaryRisk | GivenRisk | GivenTableRisk | None:
    """The inverse of `adversary_to_parts`; invalid facts raise KeyError, TypeError or ValueError."""
    if facts is None:
        return None
    known: list[npt.NDArray[Any]] = [
        arrays[f"known_{place}"] if labels is None else np.array(labels, object)
        for place, labels in enumerate(facts["labels"])
    ]
    named = [str(name) for name in facts["knows"]]
    match facts["kind"]:
        case "given":
            adversary = Given(
                *named, calendar=facts["calendar"], previous=facts["previous"], spread=facts["spread"],
                logarithm=facts["logarithm"], climb=facts["climb"],
            )  # fmt: skip
            if results.components is not None:
                return measure_given_table(results, adversary, known, density=density)
            # whether logarithms were taken may have hung on people whom a scan did not keep
            return measure_given(results, adversary, known, density=density, positive=facts.get("log_taken", True))
        case "own contribution":
            given = known[0] if known else None
            return measure_against(results, OwnContribution(given, facts["drawn"], facts["rng"]), density=density)
        case "buckets":
            return measure_against(results, Buckets(named, facts["count"]), known, density=density)
        case "weighted":
            return measure_against(results, Weighted(named), known, density=density)
        case _:
            raise ValueError("kind of adversary")


@adversary_to_parts.register
def _(against: GivenRisk) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    return _given_parts(against.adversary, against.quantities, logarithm=against.left.logarithm)


@adversary_to_parts.register
def _(against: GivenTableRisk) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    return _given_parts(against.adversary, against.quantities, logarithm=False)


def _given_parts(
    who: Given, terms: Sequence[Term], *, logarithm: bool
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
    values = [np.asarray(term.values) for term in terms]
    facts = {
        "kind": "given",
        "knows": [term.name for term in terms],
        "labels": [value.tolist() if term.is_category else None for term, value in zip(terms, values, strict=True)],
        "calendar": who.calendar,
        "previous": who.previous,
        "spread": who.spread,
        "logarithm": who.logarithm,
        "climb": who.climb,
        "log_taken": logarithm,
    }
    numbers = ((place, value) for place, value in enumerate(values) if not terms[place].is_category)
    return facts, {f"known_{place}": value for place, value in numbers}


def _named(g: Any) -> str:
    if isinstance(g, str):
        return g
    return str(getattr(g, "__qualname__", _GIVEN)) if callable(g) else _GIVEN


def _label(value: Any) -> str | None:
    return None if value is None or value != value else str(value)
