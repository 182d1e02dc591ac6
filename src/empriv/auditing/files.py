"""What files hold of an audit: the facts and arrays of a saved one, from which it is measured again, and its JSON.

docs/formats.md lists every key. Invalid facts of a file raise KeyError, TypeError or ValueError.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from empriv.auditing.knowledge import KnownRisk, knows
from empriv.auditing.summary import figures, with_validity
from empriv.auditing.totals import TotalledRisk, Totals
from empriv.base.arguments import noun_name, rising_deltas, rising_epsilons, unit_name, whole_number
from empriv.base.targets import targets_from_json
from empriv.collecting.origins import origin_from_json, origin_to_json, text, text_or_none
from empriv.measuring import GivenRisk, TableRisk, WorstRisk
from empriv.measuring.densities.density import Density, density_to_json
from empriv.measuring.given.given_risk import (
    given_from_parts,
    given_to_parts,
    risk_from_parts,
    risk_to_parts,
    values_from_parts,
    values_to_parts,
)
from empriv.measuring.given.reader_knowledge import VALUES_GIVEN, Buckets, OwnContribution, kind_of, quantity_name
from empriv.measuring.line.risk import measure_line
from empriv.measuring.measures import measure_known
from empriv.measuring.tables import GivenTableRisk, measure_given_table
from empriv.results import Results
from empriv.validate.bounds import floor
from empriv.words.message import Message, nothing_known

if TYPE_CHECKING:
    from empriv.auditing.audit import Audit

JSON_VERSION = 1
Parts = tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]
"""Facts fit for JSON, and arrays."""


def audit_to_parts(audit: Audit) -> Parts:
    """All that a saved audit holds, from which the same is measured again."""
    # With earlier releases, save the vector without noise: the noise for measuring is drawn again on loading.
    without_noise = audit.results if audit.composition is None else audit.composition.results
    meta, arrays = without_noise.to_parts()
    known, arrays_of_known = known_to_parts(audit.measured_against)
    totals, arrays_of_totals = totals_to_parts(audit.risk) if isinstance(audit.risk, TotalledRisk) else (None, {})
    facts = {
        **_facts(audit),
        "known": known,
        "totals": totals,
        "composition": None if audit.composition is None else audit.composition.to_json(),
        "text": audit.text,
        "scope": audit.scope,
        "epsilons": list(audit.epsilons),
        "density": density_to_json(audit.density),
        "targets": [target.to_json() for target in audit.targets],
    }
    return {**meta, **facts}, {**arrays, **arrays_of_known, **arrays_of_totals}


def facts_from_parts(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Facts of a saved audit, each of them checked."""
    source = origin_from_json(meta["source"])
    component, n_components, paper = text_or_none(meta["component"]), meta["n_components"], meta.get("paper", False)
    if not isinstance(n_components, int | None) or (component is None) != (n_components is None):
        raise TypeError("n_components")
    if not isinstance(paper, bool):
        raise TypeError("paper")
    return {
        "epsilons": rising_epsilons(meta["epsilons"]),
        "query": text(meta["query"]),
        "origin": source,
        "component": component,
        "n_components": n_components,
        "text": text_or_none(meta.get("text")),
        "scope": text(meta.get("scope", "")),
        "times": whole_number("times", meta.get("times", 1), least=1),
        "unit": unit_name(meta.get("unit", "")),
        "noun": noun_name(meta.get("noun", "")),
        "paper": paper,
        "targets": targets_from_json(meta.get("targets", ())),
        "nothing_known": _nothing_known_from_json(meta.get("nothing_known")),
    }


def _facts(audit: Audit) -> dict[str, Any]:
    """What a saved audit and its JSON both say of it."""
    return {
        "empriv": version("empriv"),
        "query": audit.query,
        "component": audit.component,
        "n_components": audit.n_components,
        "times": audit.times,
        "unit": audit.unit,
        "noun": audit.noun,
        "paper": audit.paper,
        "source": origin_to_json(audit.origin),
        "nothing_known": _nothing_known_to_json(audit.nothing_known),
    }


def _nothing_known_to_json(why: Message | None) -> dict[str, Any] | None:
    """Why nothing was counted as known, with its sentence."""
    if why is None:
        return None
    p = why.numbers["p"]
    return {**why.numbers, "p": p if p == p else None, "sentence": why.sentence}


def _nothing_known_from_json(facts: Any) -> Message | None:
    if facts is None:
        return None
    p = facts["p"]
    return nothing_known(
        str(facts["why"]), int(facts["n"]), int(facts["least"]), float("nan") if p is None else float(p)
    )


# What is known


def known_to_parts(against: object) -> tuple[dict[str, Any] | None, dict[str, npt.NDArray[Any]]]:
    """What is known; nothing if nothing is."""
    if isinstance(against, WorstRisk):
        given = against.given
        labels, arrays = values_to_parts(against.known)
        count = given.top if isinstance(given, OwnContribution) else given.count
        names = [] if isinstance(given, OwnContribution) else [quantity_name(given.g) or VALUES_GIVEN]
        return {"kind": kind_of(given), "knows": names, "labels": labels, "count": count}, arrays
    if isinstance(against, GivenTableRisk):
        return given_to_parts(against.given, against.quantities, logarithm=False)
    return risk_to_parts(against) if isinstance(against, GivenRisk) else (None, {})


def known_from_parts(
    facts: Mapping[str, Any] | None,
    arrays: Mapping[str, npt.NDArray[Any]],
    results: Results,
    density: Density,
    *,
    positive: bool = True,
) -> KnownRisk | None:
    """The risk given the same; ``positive`` as for `choose`."""
    if facts is None:
        return None
    values = values_from_parts(facts, arrays)
    names = [str(name) for name in facts["knows"]]
    match facts["kind"]:
        case "given":
            if results.components is not None:
                return measure_given_table(results, given_from_parts(facts), values, density=density)
            return risk_from_parts(facts, arrays, results, density, positive=positive)
        case "own contribution":
            own = OwnContribution(values[0] if values else None, facts["count"])
            return measure_known(results, own, density=density)
        case "buckets":
            return measure_known(results, Buckets(names[0], facts["count"]), values, density=density)
        case _:
            raise ValueError("kind of knowledge")


# People in chunks


def totals_to_parts(risk: TotalledRisk) -> Parts:
    """The totals; the results are of who is kept."""
    facts, arrays = risk.totals.to_parts()
    return {**facts, "epsilons": list(risk.epsilons), "deltas": list(risk.deltas)}, arrays


def totals_from_parts(
    facts: Mapping[str, Any],
    arrays: Mapping[str, npt.NDArray[Any]],
    results: Results,
    density: Density,
    known: Mapping[str, Any] | None,
) -> TotalledRisk:
    """The inverse of `totals_to_parts`."""
    totals = Totals.from_parts(facts, arrays, results)
    epsilons, deltas = tuple(map(float, facts["epsilons"])), tuple(map(float, facts["deltas"]))
    if (epsilons, deltas) != (rising_epsilons(epsilons), rising_deltas(deltas)):
        raise ValueError("epsilons or deltas")
    if (len(epsilons), len(deltas)) != (len(totals.delta), len(totals.epsilon_at)):
        raise ValueError("epsilons or deltas")
    if totals.n_individuals < max(1, results.n_individuals):
        raise ValueError("n_individuals")
    # whether logarithms were taken may have hung on people who are not kept
    positive, people = known is None or known.get("log_taken", True), totals.n_individuals
    given = known_from_parts(known, arrays, results, density, positive=positive)
    if given is not None and not isinstance(given, GivenRisk):
        raise ValueError("kind of knowledge")
    if given is None:
        return TotalledRisk(results, measure_line(results, density, people=people), totals, epsilons, deltas)
    kept = given.of_people(results, people=people)
    return TotalledRisk(kept.results, kept, totals, epsilons, deltas)


# JSON


def audit_to_json(audit: Audit, epsilons: Iterable[float] | float | None) -> dict[str, Any]:
    """See `Audit.to_json`."""
    summary = audit.summary(epsilons)
    grid = [figure.epsilon for figure in summary.figures]
    bounded = audit.bounds(np.array(grid))
    full_summary, outcomes = with_validity(audit, summary), audit.outcomes
    model = audit.risk.model
    return {
        **_facts(audit),
        "format": "empriv audit figures",
        "version": JSON_VERSION,
        "n_databases": audit.n_databases,
        "n_individuals": audit.n_individuals,
        "draws": audit.results.draws,
        "verified": None if audit.results.verified is None else audit.results.verified.to_json(),
        "known": _known_json(audit.measured_against, () if audit.in_chunks else grid),
        "earlier_releases": [] if audit.composition is None else list(audit.composition.entries),
        "chunks": _chunks_json(audit.risk) if isinstance(audit.risk, TotalledRisk) else None,
        "joint": _joint_json(audit.once, grid) if isinstance(audit.once, TableRisk) else None,
        "figures": [asdict(figure) for figure in summary.figures],
        "epsilon_at_delta_0": _finite_or_none(audit.epsilon(0.0)) if audit.measured.tells_epsilon(0.0) else None,
        "bounds": bounded.to_json(),
        "checks": [check.to_json() for check in audit.checks],
        "smallest_supported_delta": floor(audit.measured.results.n_databases, 0.95),
        "density": {
            "recipe": density_to_json(audit.density),
            "model": None if model is None else model[0],
            "scores": [
                {
                    "candidate": score.candidate,
                    "log_likelihood": _finite_or_none(score.log_likelihood),
                    "standard_error": _finite_or_none(score.standard_error),
                    "chosen": score.chosen,
                }
                for score in (() if model is None else model[1])
            ],
        },
        "not_numbers": {
            "with_everyone": dict(outcomes.with_everyone),
            "without_an_individual": dict(outcomes.without_an_individual),
        },
        "atoms": [asdict(atom) for atom in outcomes.atoms],
        "words": {
            "asked": full_summary.asked,
            "figures": list(full_summary.sentences),
            "alarms": list(full_summary.alarms),
            "warnings": list(full_summary.warnings),
            "notes": list(full_summary.notes),
        },
    }


def _known_json(against: object, epsilons: Sequence[float]) -> dict[str, Any] | None:
    """What is known, without what is known about any single database; None if nothing is."""
    if not isinstance(against, GivenRisk | GivenTableRisk | WorstRisk):
        return None
    own: dict[str, Any]
    if isinstance(against, WorstRisk):
        dropped, parts = against.left_out, against.parts
        own = {"parts": [{"databases": part.results.n_databases, "delta": _deltas(part, epsilons)} for part in parts]}
    else:
        if isinstance(against, GivenTableRisk):
            dropped, terms = against.dropped, against.known
            own = {"parameters": 1 + sum(term.size for term in terms)}
        else:
            fit = against.residuals.fit
            dropped, terms = against.residuals.dropped, fit.terms
            own = {"parameters": fit.parameters}
            own |= {"logarithm": against.residuals.logarithm, "spread": fit.spread is not None}
        own["terms"] = [term.name for term in terms]
        own["steps"] = [{"name": step.name, "p": step.p} for step in against.steps]
    return {
        "kind": kind_of(against.given),
        "knows": knows(against.given),
        "left_out": dropped,
        "delta_knowing_nothing": _deltas(against.unconditional, epsilons),
        "sentences": [message.sentence for message in against.messages if message.severity == "info"],
        "warnings": [message.sentence for message in against.messages if message.severity != "info"],
        **own,
    }


def _deltas(risk: Any, epsilons: Sequence[float]) -> list[float]:
    return [float(risk.delta(float(epsilon))) for epsilon in epsilons]


def _chunks_json(risk: TotalledRisk) -> dict[str, Any]:
    """Of people who were measured in chunks."""
    at = [{"delta": delta, "epsilon": _finite_or_none(risk.epsilon(delta))} for delta in risk.deltas]
    histograms = [{name: column.tolist() for name, column in risk.histogram(e).items()} for e in risk.epsilons]
    return {
        "kept": risk.results.n_individuals,
        "epsilons": list(risk.epsilons),
        "epsilon_at": at,
        "histograms": histograms,
    }


def _joint_json(risk: TableRisk, epsilons: Sequence[float]) -> dict[str, Any]:
    """Of several numbers together."""
    return {
        "dimension": len(risk.fit.kept),
        "parameters": risk.fit.rank,
        "from_below": int(risk.from_below.sum()),
        "components": {
            name: [
                {"epsilon": figure.epsilon, "delta": figure.delta, "total_risk": figure.total_risk}
                for figure in figures(part, epsilons)
            ]
            for name, part in risk.each_number.items()
        },
        "leaks": [
            {
                "direction": leak.direction,
                "what": leak.what,
                "n_individuals": leak.n_individuals,
                "largest_share": leak.largest_share,
            }
            for leak in risk.leaks
        ],
    }


def _finite_or_none(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
