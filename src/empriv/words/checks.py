"""Checks in words: the title of each code, and its sentence from severity and numbers. No sentence names an individual.

A check is made without words (`validate.checks`); here it gets them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from empriv.words import sentences as words
from empriv.words.findings import SENTENCES
from empriv.words.sentences import no_repeated_bound, number, people, percent

JOINTLY = "jointly"
"""Subject of a check of several numbers together."""

TITLES = {
    "adversary": "What the adversary knows",
    "bandwidth": "Sensitivity to bandwidth and kernel",
    "chance": "Chance on both sides",
    "coming": "When people come",
    "context": "Influence that depends on what is known",
    "curvature": "Curvature in what is known",
    "databases": "Number of databases",
    "dependent": "Individuals who move together",
    "dimension": "Numbers released together",
    "carried": "Cells for each database",
    "bent": "Cells beside the rest of the table",
    "digits-together": "Last digits of cells together",
    "edge": "Edges of cells",
    "flat": "Flat cells",
    "drift": "Influence on the databases that people are in",
    "exact-leak": "Exact leak",
    "floor": "Smallest delta that can be supported",
    "gap": "Influence that jumps",
    "held-out": "Representative individuals",
    "iid": "Independent, identically distributed databases",
    "modes": "Representative individuals",
    "others": "Others when somebody is there",
    "parameters": "Parameters for what is known",
    "peaks": "Two peaks in what is left",
    "rare": "Representative individuals",
    "repeated": "Publishing again",
    "residues": "Patterns in the last digits",
    "shape": "Spread that depends on what is known",
    "spike": "Structure finer than the bandwidth",
    "spread": "Individuals who widen the results",
    "steps": "Steps that are not looked for",
    "tails": "Heavy tails",
    "ties": "Ties and lattices",
}

Numbers = Mapping[str, Any]


def check_title(code: str, subject: str = "") -> str:
    """What was checked."""
    return "Sensitivity to bandwidth" if code == "bandwidth" and subject == JOINTLY else TITLES[code]


def check_sentence(code: str, severity: str, numbers: Numbers, subject: str = "") -> str:
    """What was found.

    Parameters
    ----------
    code, severity, numbers : the check's
    subject : an outcome, a series of numbers, or the code of a finding, where a check is about one
    """
    return _SENTENCES[code](severity, numbers, subject)


def _adversary(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001 — the finding knows
    return SENTENCES[subject](**numbers)


def _bandwidth(severity: str, numbers: Numbers, subject: str) -> str:
    low, high = number(min(numbers.values())), number(max(numbers.values()))
    if subject == JOINTLY:
        text = f"The joint delta is between {low} and {high} at half and double the bandwidth"
    else:
        text = f"delta is between {low} and {high} at half and double the bandwidth and with other kernels"
    if severity == "info":
        return f"{text}, against {number(numbers['as measured'])} as measured."
    return f"{text}: the estimate depends on the smoothing."


def _chance(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    draws = "1 draw" if numbers["m"] == 1 else f"{numbers['m']:,} draws"
    return (
        "Chance is not the same with and without an individual: with "
        f"{draws} on {words.databases(numbers['n'])} somebody who changes nothing would be given a delta of about "
        f"{number(numbers['alone'])}, and figures are too large by up to as much. Hint: take all random numbers from "
        "`rng`, those of single rows from `rng.for_individual(name)`; or ask for more draws."
    )


def _coming(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "The riskiest people come no more often at one time than at another."
    return (
        f"The riskiest people come more often at some times than at others (p = {numbers['p']:.3f}): figures for a "
        "random day are an average over both. Hint: the figures for a day when they are there do not mix them."
    )


def _context(severity: str, numbers: Numbers, subject: str) -> str:
    if severity == "info":
        return "The riskiest people's influence does not depend on what is known."
    return (
        f"The riskiest people's influence depends on {subject} (p = {numbers['p']:.3f}): in some contexts they are "
        "more exposed than on average. Hint: audit.against.contexts(epsilon) has the figure of each."
    )


def _curvature(severity: str, numbers: Numbers, subject: str) -> str:
    if severity == "info":
        return "What is left shows no curvature in what is known."
    return (
        f"What is left is curved in {subject} (p = {numbers['p']:.3f}): more of the result is known than a straight "
        "line takes out, and figures are too small. Hint: give its square as well, or categories of it."
    )


def _peaks(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001 — as all sentences are asked
    if severity == "info":
        return "What is left shows no two peaks."
    few = "with so few databases upper bounds may fall short there"
    short = few if severity == "error" else "there may be two kinds of databases"
    return (
        f"What is left has two peaks (coefficient {numbers['coefficient']:.2f}, 0.56 at most for one): {short}. "
        "Hint: name the quantity that tells the two apart, such as days closed."
    )


def _drift(severity: str, numbers: Numbers, subject: str) -> str:
    if severity == "info":
        return "The riskiest people's influence, where they are there, looks the same over time."
    return (
        f"The riskiest people's influence changes over time where they are there: {subject} (p = {numbers['p']:.3f}). "
        "Hint: audit the later part alone, which stands for what comes."
    )


def _others(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "The others' results do not depend on whether the riskiest people are there."
    return (
        "The others' results are different when the riskiest people are there "
        f"(p = {numbers['p']:.3f}): figures given presence take them to be the same. Hint: count as known what brings "
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
        "exposed than these figures say. Hint: spread=True."
    )


def _gap(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "The riskiest individuals' influence does not jump from one result to the next."
    return (
        "Somebody's influence jumps at some result, which leaves a gap there on one side; the upper bound counts it, "
        f"and is {percent(numbers['ratio'] - 1)} larger for it, but the estimate blurs it. Hint: go by the upper "
        "bound; such jumps come from thresholds in the query."
    )


def _spike(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "No structure finer than the bandwidth is seen."
    return (
        "Results crowd more closely than the bandwidth shows; the upper bound counts it, and is "
        f"{percent(numbers['ratio'] - 1)} larger for it, but the estimate blurs it. Hint: go by the upper bound, or "
        "round the answer coarser."
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


def _dimension(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    text = f"The results vary in {numbers['dimension']} dimensions"
    if severity == "info":
        return f"{text}, and their joint density was measured."
    return f"{text}; the integration is coarse (±{number(numbers['integration_error'])})."


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


def _digits_together(severity: str, numbers: Numbers, subject: str) -> str:
    if severity == "info":
        return "No two cells have last digits together that somebody breaks and that neither has alone."
    return words.digits_together(subject, numbers["step"])


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


def _floor(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    return words.floor(numbers["n"], numbers["floor"])


def _held_out(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    ratio = numbers["ratio"]
    if severity == "info":
        return (
            f"The risk of a random half predicts the other half's within a factor of {ratio:.2g} in half of the splits."
        )
    times = f" by a factor of {ratio:.2g}" if math.isfinite(ratio) else ""
    return f"The risk of a random half of the individuals misses the other half's{times}: it depends on a few."


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


def _rare(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    return f"{percent(numbers['share'])} of the summed risk belongs to individuals seen in one or two databases only."


def _residues(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if numbers["step"] is not None:
        return (
            f"The last digits follow steps of {number(numbers['step'])}, and somebody changes them in "
            f"{percent(numbers['share'])} of the results: that is counted. Hint: round the answer much coarser than "
            "that step, or add noise."
        )
    text = (
        f"Patterns in the last digits that fewer than {percent(numbers['visible'])} of the results follow cannot be "
        f"seen with {words.databases(numbers['n'])}"
    )
    if severity == "info":
        return f"No pattern in the last digits tells somebody apart. {text}."
    return f"{text}: figures leave them out. Hint: more databases; or round the answer, or add noise, which hides them."


def _spread(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "The results spread about as much without each of the riskiest individuals."
    return (
        f"Without one of the riskiest individuals the results spread {percent(numbers['ratio'])} as much: this person "
        "is measured with a bandwidth of their own. Hint: limit what one person can add, such as "
        "sum(least(amount, 60)) for amounts up to 60."
    )


def _steps(severity: str, numbers: Numbers, subject: str) -> str:  # noqa: ARG001
    if severity == "info":
        return "The results keep to no steps but those that are looked for."
    return (
        f"The results keep to steps of about {number(numbers['step'])}, which are not among those looked for: somebody "
        "who breaks them is more exposed than the figures say. Hint: round the answer much coarser than that, or add "
        "noise."
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
    "adversary": _adversary,
    "bandwidth": _bandwidth,
    "chance": _chance,
    "coming": _coming,
    "context": _context,
    "curvature": _curvature,
    "databases": _databases,
    "dependent": _dependent,
    "dimension": _dimension,
    "carried": _carried,
    "bent": _bent,
    "digits-together": _digits_together,
    "edge": _edge,
    "flat": _flat,
    "drift": _drift,
    "exact-leak": _exact_leak,
    "floor": _floor,
    "gap": _gap,
    "held-out": _held_out,
    "iid": _iid,
    "modes": _modes,
    "others": _others,
    "peaks": _peaks,
    "parameters": _parameters,
    "rare": _rare,
    "repeated": _repeated,
    "residues": _residues,
    "shape": _shape,
    "spike": _spike,
    "spread": _spread,
    "steps": _steps,
    "tails": _tails,
    "ties": _ties,
}
