"""Checks in words: the title of each code, and its sentence from severity and numbers. No sentence names an individual.

A check is made without words (`validate.checks`); here it gets them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from empriv.words import sentences as words
from empriv.words.findings import SENTENCES
from empriv.words.sentences import no_repeated_bound, number, people, percent

TITLES = {
    "known": "What readers know",
    "chance": "Chance on both sides",
    "curvature": "Curvature in what is known",
    "databases": "Number of databases",
    "dependent": "Individuals who move together",
    "carried": "Cells for each database",
    "bent": "Cells beside the rest of the table",
    "edge": "Edges of cells",
    "flat": "Flat cells",
    "exact-leak": "Exact leak",
    "iid": "Independent, identically distributed databases",
    "modes": "Representative individuals",
    "others": "Others when somebody is there",
    "parameters": "Parameters for what is known",
    "repeated": "Publishing again",
    "shape": "Spread that depends on what is known",
    "tails": "Heavy tails",
    "ties": "Ties and lattices",
}

Numbers = Mapping[str, Any]


def check_title(code: str) -> str:
    """What was checked."""
    return TITLES[code]


def check_sentence(code: str, severity: str, numbers: Numbers, subject: str = "") -> str:
    """What was found.

    Parameters
    ----------
    code, severity, numbers : the check's
    subject : an outcome, a series of numbers, or the code of a finding, where a check is about one
    """
    return _SENTENCES[code](severity, numbers, subject)


def _known(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001 — the finding knows
    return SENTENCES[subject](**numbers)


def _chance(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    draws = "1 draw" if numbers["m"] == 1 else f"{numbers['m']:,} draws"
    return (
        "Chance is not the same with and without an individual: with "
        f"{draws} on {words.databases(numbers['n'])} somebody who changes nothing would be given a delta of about "
        f"{number(numbers['alone'])}, and figures are too large by up to as much. Hint: take all random numbers from "
        "`rng`, those of single rows from `rng.for_individual(name)`; or ask for more draws."
    )


def _curvature(severity: str, numbers: Numbers, subject: str) -> str:
    if severity == "info":
        return "What is left shows no curvature in what is known."
    return (
        f"What is left is curved in {subject} (p = {numbers['p']:.3f}): more of the result is known than a straight "
        "line takes out, and figures are too small. Hint: give its square as well, or categories of it."
    )


def _others(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "The others' results do not depend on whether the riskiest people are there."
    return (
        "The others' results are different when the riskiest people are there "
        f"(p = {numbers['p']:.3f}): the cover takes them to be the same. Hint: count as known what brings "
        "them together, such as the weekday."
    )


def _parameters(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    said = f"What is known takes {numbers['parameters']:,} parameters of {numbers['n']:,} databases"
    if severity == "info":
        return f"{said}."
    return (
        f"{said}: what is left is smaller than it should be, so that figures are too large rather than too small. "
        "Hint: fewer quantities, or more databases."
    )


def _shape(severity: str, numbers: Numbers, subject: str) -> str:
    if severity == "info":
        return "The spread of what is left does not depend on what is known."
    return (
        f"The spread of what is left depends on {subject} (p = {numbers['p']:.3f}): where it is least, people are more "
        "exposed than these figures say. Hint: audit databases like those alone."
    )


def _databases(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    n = numbers["n"]
    if severity == "error":
        return words.no_upper_bound(n, numbers["least"])
    return words.few_databases(n) if severity == "warning" else f"{words.databases(n)}, enough for an upper bound."


def _dependent(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "The riskiest individuals' contributions do not move together."
    return (
        "The riskiest individuals' contributions rise and fall together: failures are not independent, total risk "
        "understates, and removing one individual leaves what the others tell about them."
    )


def _carried(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "error":
        return words.table_from_below(numbers["n"], numbers["parameters"], numbers["people"])
    if severity == "warning":
        return words.many_parameters(numbers["parameters"], numbers["n"])
    return f"What people do not touch counts as known, by {numbers['parameters']:,} parameters from {numbers['n']:,}."


def _bent(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "What is left of the cells of the riskiest people does not depend on the rest of the table."
    return words.bent(numbers["p"])


def _edge(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "What is left of the cells of the riskiest people has no hard edge that the other cells would smear."
    return words.edge(numbers["share"])


def _flat(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "What is left of the cells of the riskiest people has one peak, as far as its spread tells."
    return words.flat()


def _exact_leak(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    return words.exact_leak(subject, numbers["individuals"], numbers["share"])


def _iid(severity: str, numbers: Numbers, subject: str) -> str:
    if severity == "error":
        return words.departure(numbers["statistic"], numbers["p"], subject)
    if severity == "warning":
        return words.too_few_to_test(numbers["n"])
    if "p" not in numbers:
        return words.no_order()
    return words.no_departure(numbers["n"], numbers["power_trend"])


def _modes(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "No mode of contribution rests on fewer than 5 individuals."
    if numbers["modes"] == 1:
        return f"Only {people(numbers['smallest_mode'])} change the results: others may be riskier than any seen."
    return (
        f"Influences fall into {numbers['modes']} groups at least threefold apart, and fewer than 5 individuals are "
        f"in {numbers['small_modes']} of them: others of that kind may be riskier than any seen."
    )


def _tails(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "No heavy tails seen."
    return (
        f"The results have heavy tails (index {numbers['index']:.2g}): the most revealing databases may not have been "
        "seen."
    )


def _ties(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "Hardly any result occurs twice, and they lie on no lattice."
    if numbers["lattice_step"] is not None:
        return (
            "All results lie on a lattice; smoothing spreads them between its points. An individual who moves results "
            "off the lattice is an exact leak."
        )
    return f"{percent(numbers['tied_share'])} of the results are tied: repeated values are compared by counts as well."


def _repeated(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001 — all have these
    times = f"{numbers['times']:,} publications"
    if severity == "info":
        return f"{words.databases(numbers['n'])} carry an upper figure for {times}."
    return no_repeated_bound(numbers["n"], numbers["several"])


_SENTENCES: dict[str, Callable[[str, Numbers, str], str]] = {
    "known": _known,
    "chance": _chance,
    "curvature": _curvature,
    "databases": _databases,
    "dependent": _dependent,
    "carried": _carried,
    "bent": _bent,
    "edge": _edge,
    "flat": _flat,
    "exact-leak": _exact_leak,
    "iid": _iid,
    "modes": _modes,
    "others": _others,
    "parameters": _parameters,
    "repeated": _repeated,
    "shape": _shape,
    "tails": _tails,
    "ties": _ties,
}
