"""A scan in words and as JSON: the same words as an audit's, over what a scan holds."""

from __future__ import annotations

import math
from dataclasses import asdict
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.collecting.origins import origin_to_json
from empriv.results import IntArray, Outcome
from empriv.words import sentences as words
from empriv.words.summary import (
    Figure,
    Summary,
    asked_sentence,
    figure_sentence,
    model_sentence,
    outcomes_in_words,
    smallest_supported_delta,
    tail_sentence,
)

if TYPE_CHECKING:
    from empriv.scale.scans import Scan

JSON_VERSION = 1
_LEFT_OUT = (
    "A scan keeps the riskiest individuals and sums up the others: three checks that look at everybody at once "
    '("modes", "rare", "held-out") were not made.'
)


def figures_of(scan: Scan) -> tuple[Figure, ...]:
    """delta, total risk and the number of exposed individuals at each epsilon."""
    tally = scan.tally
    columns = zip(scan.epsilons, tally.worst, tally.total_risk, tally.exposed, strict=True)
    return tuple(Figure(e, float(delta), float(total), int(count)) for e, delta, total, count in columns)


def summary_of(scan: Scan) -> Summary:
    """The scan in words, its bounds at the first epsilon and its checks among them."""
    figures, n, results = figures_of(scan), scan.n_databases, scan.risk.results
    least = smallest_supported_delta(n)
    found = scan.bounds(np.array(scan.epsilons))
    with_all, without = _not_numbers(scan)
    warnings = outcomes_in_words(
        (with_all, results.outcomes.size, "with everyone"), (without, scan.tally.n_entries, "without an individual")
    )
    if scan.component is not None:
        warnings.insert(0, f"This covers one number only, {scan.component!r}: others released beside it reveal more.")
    warnings += [c.sentence for c in scan.checks if c.severity != "info" and c.code != "exact-leak"]
    calm = [c.sentence for c in scan.checks if c.code == "iid" and c.severity == "info"]
    notes = (
        words.estimate(figures[0].delta, figures[0].epsilon, n),
        words.upper(float(found.upper[0]), found.level, found.finest),
        words.lower(float(found.lower[0]), found.level),
        words.total_upper(float(found.total_risk_upper[0]), found.level),
        *found.notes,
        words.floor(n, least, below=any(figure.delta < least for figure in figures)),
        model_sentence(scan.risk.density),
        *calm,
        _LEFT_OUT,
    )
    return Summary(
        asked=asked_sentence(results, scan.query, scan.origin, n_individuals=scan.n_individuals),
        figures=figures,
        sentences=tuple(map(figure_sentence, figures)),
        alarms=tuple(words.exact_leak(name, count, share) for name, (count, share) in scan.tally.leaks.items()),
        warnings=tuple(warnings),
        notes=tuple(dict.fromkeys(notes)),
    )


def text_of(scan: Scan) -> str:
    """The summary as lines, for ``print``."""
    said = summary_of(scan)
    tails = [tail_sentence(scan.epsilon(0.0))] if 0.0 in scan.deltas else []
    return "\n".join((said.asked, *said.alarms, *said.sentences, *said.warnings, *said.notes, *tails))


def json_of(scan: Scan) -> dict[str, Any]:
    """A dict fit for JSON, without identifiers; its keys are in docs/scale.md."""
    said, model = summary_of(scan), scan.risk.density
    with_all, without = _not_numbers(scan)
    epsilons_at = [(delta, scan.epsilon(delta)) for delta in scan.deltas]
    return {
        "format": "empriv scan figures",
        "version": JSON_VERSION,
        "empriv": version("empriv"),
        "query": scan.query,
        "component": scan.component,
        "source": origin_to_json(scan.origin),
        "n_databases": scan.n_databases,
        "n_individuals": scan.n_individuals,
        "draws": scan.risk.results.draws,
        "figures": [asdict(figure) for figure in said.figures],
        "epsilon_at": [{"delta": delta, "epsilon": e if math.isfinite(e) else None} for delta, e in epsilons_at],
        "histograms": [
            {"epsilon": epsilon, **{name: column.tolist() for name, column in scan.histogram(epsilon).items()}}
            for epsilon in scan.epsilons
        ],
        "bounded": scan.bounded,
        "bounds": scan.bounds(np.array(scan.epsilons)).to_json(),
        "checks": [check.to_json() for check in scan.checks],
        "smallest_supported_delta": smallest_supported_delta(scan.n_databases),
        "density": {"recipe": scan.density, "model": None if model is None else model.name},
        "not_numbers": {"with_everyone": with_all, "without_an_individual": without},
        "words": {
            "asked": said.asked,
            "figures": list(said.sentences),
            "alarms": list(said.alarms),
            "warnings": list(said.warnings),
            "notes": list(said.notes),
        },
    }


def _not_numbers(scan: Scan) -> tuple[dict[str, int], dict[str, int]]:
    """How many results are not numbers, by kind: with everyone, and without an individual."""
    with_all = np.bincount(scan.risk.results.outcomes.reshape(-1), minlength=len(Outcome))

    def named(counts: IntArray) -> dict[str, int]:
        return {code.name.lower(): int(counts[code]) for code in Outcome if code and counts[code]}

    return named(with_all), named(scan.tally.not_numbers)
