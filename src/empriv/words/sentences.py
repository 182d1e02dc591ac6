"""Bounds, checks and verdicts in words: terminal, JSON and report take them from here."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

_OF_ONE = {"are": "is", "give": "gives", "show": "shows"}
_BEFORE, _CLOSE = ("$", "€", "£", "¥"), ("%", "‰", "°")  # units that stand before a number, or close after it


def number(value: float, digits: int = 2) -> str:
    """A few significant digits, without an exponent where that is readable."""
    if value == 0:
        return "0"  # never -0
    if 1e-6 <= abs(value) < 1e6:
        if 1 - 0.5 * 10.0**-digits <= value < 1:
            return f">0.{'9' * digits}"  # 1 is for certainty alone
        if abs(value) >= 100:
            return f"{value:,.0f}"
        short = f"{Decimal(f'{value:.{digits}g}'):f}"  # no digits but those, where a double would show its own
        return short.rstrip("0").rstrip(".") if "." in short else short
    return f"{value:.{digits - 1}e}"


def quantity(value: float) -> str:
    """A number of the user's own, such as an influence: five digits, and all before the point where there are more."""
    return f"{value:,.0f}" if 1e5 <= abs(value) < 1e15 else f"{value:,.5g}"


def amount(value: float, unit: str = "") -> str:
    """A number of the user's own for a sentence: three digits, or all before the point, with its unit."""
    if not math.isfinite(value):
        return "unknown"
    value, size = value + 0.0, abs(value)  # -0 is 0
    text = f"{value:,.0f}" if 1000 <= size < 1e15 else f"{value:.3g}"
    if unit in _BEFORE:
        return f"-{unit}{text[1:]}" if text.startswith("-") else f"{unit}{text}"
    return text if not unit else f"{text}{unit}" if unit in _CLOSE else f"{text} {unit}"


def tells_little(error: float, typical: float) -> bool:
    """Whether an error leaves little of an answer: it is more than half of a typical one."""
    return error > 0.5 * typical


def leaves_little() -> str:
    return "Its error is more than half of a typical answer: what is published tells little."


def percent(share: float) -> str:
    """A share as a percentage of two significant digits; 0% and 100% only for exactly 0 and 1."""
    if share in (0.0, 1.0):
        return f"{share:.0%}"
    if 0.99 < share < 1:
        return "more than 99%"
    return f"{number(100 * share)}%"


def signed_sum(weights: Sequence[float], names: Sequence[str], most: int = 6) -> str:
    """A weighted sum such as "total - a - b": what is added first, names beyond ``most`` only counted."""
    largest = max(map(abs, weights), default=0.0)
    parts = [(weight, name) for weight, name in zip(weights, names, strict=True) if abs(weight) > 1e-6 * largest]
    if not parts:
        return "always the same"
    parts.sort(key=lambda part: part[0] < 0)
    terms: list[str] = []
    for weight, name in parts[:most]:
        times = "" if abs(abs(weight) - 1) < 1e-6 else f"{abs(weight):.4g} "
        sign = "-" if weight < 0 else "+"
        terms.append(f"{sign} {times}{name}" if terms else f"{sign if weight < 0 else ''}{times}{name}")
    left = len(parts) - most
    return " ".join(terms) + (f" and {left:,} more such {'term' if left == 1 else 'terms'}" if left > 0 else "")


def people(count: int) -> str:
    return "1 individual" if count == 1 else f"{count:,} individuals"


def databases(n: int) -> str:
    return "1 database" if n == 1 else f"{n:,} databases"


def _so_many(n: int, verb: str) -> str:
    """Databases as the subject of "are", "give" or "show"."""
    return f"{databases(n)} {_OF_ONE[verb] if n == 1 else verb}"


def too_few_to_test(n: int) -> str:
    return f"{_so_many(n, 'are')} too few to test for independence."


def too_few_to_be_sure(n: int) -> str:
    return f"{_so_many(n, 'are')} too few to be sure"


def show_only(n: int) -> str:
    return f"{_so_many(n, 'show')} only"


def estimate(delta: float, epsilon: float, n: int) -> str:
    return f"Estimate: delta = {number(delta)} at epsilon = {epsilon:g}, from {databases(n)}. Not a guarantee."


def upper(value: float, level: float) -> str:
    if value >= 1:
        return f"Upper bound ({percent(level)}): none; delta may be as large as 1."
    most = number(value)
    most = "delta < 1" if most.startswith(">") else f"delta ≤ {most}"
    return f"Upper bound ({percent(level)}, conditional): {most}. Assumes i.i.d. databases."


def lower(value: float, level: float) -> str:
    text = f"Lower bound ({percent(level)}, approximate): {_at_least(value)}."
    return text if value > 0 else f"{text} No loss demonstrated; this is not evidence of privacy."


def smooth(bandwidth: float) -> str:
    return (
        f"As it is, assumes a smooth distribution: no structure finer than {quantity(bandwidth)}. With noise, nothing "
        "is assumed of it."
    )


def not_smooth(people: int) -> str:  # noqa: ARG001 — nobody is pointed at
    return (
        "The answers keep to a pattern that is finer than a smooth distribution, such as whole fives: as it is there "
        "is no upper bound. Hint: dither, a little noise with which nothing is assumed (empriv noise --dither)."
    )


def nothing_assumed() -> str:
    return "With the noise, nothing is assumed about the distribution of the answers."


def day(
    epsilon: float, delta: float, cover: float, most: float, days: int, beyond: int, exposed: int, people: int,
    varies: bool, cell: str = "",
) -> str:  # fmt: skip
    """What the answer hides of what people did, without units; of a table, in its worst cell."""
    where = " on a typical database" if varies else f" in {cell}" if cell else ""
    largest = "no measure: somebody changes whether there is one" if math.isinf(most) else quantity(most)
    said = (
        f"On the day: at epsilon {epsilon:g} and delta {number(delta)} the answer hides moves of up to "
        f"{quantity(cover)}{where}; the largest was {largest}."
    )
    if not beyond:
        return f"{said} Nobody moved it by more than is hidden, on any of {days:,} person-days."
    who = "one individual" if people == 1 else f"{people:,} individuals"
    shown = (
        f"; for {exposed:,} it is shown that they are not hidden"
        if exposed
        else "; it cannot be told whether these are hidden"
    )
    return f"{said} {beyond:,} of {days:,} person-days ({percent(beyond / days)}), of {who}, are beyond it{shown}."


def _at_least(delta: float) -> str:
    text = number(delta)
    return f"delta > {text[1:]}" if text.startswith(">") else f"delta ≥ {text}"


def floor(n: int, least: float, *, below: bool = False) -> str:
    """``below`` says whether some of the estimates shown are smaller."""
    return (
        f"{databases(n)} cannot support any delta below {number(least)}: "
        "behaviour rarer than that may never have been seen."
        + (" Smaller estimates, as here, rest on the density that was fitted." if below else "")
    )


def no_departure(n: int, power: float) -> str:
    return (
        f"No departure from i.i.d. detected. With {databases(n)} a trend of one standard deviation would be detected "
        f"{'' if power > 0.95 else 'only '}about {percent(power)} of the time."
    )


def no_order() -> str:
    return "The databases have no order, so that no test of order was run: they are taken to be alike."


def departure(name: str, p: float, where: str) -> str:
    return (
        f"The databases do not look independent and identically distributed: {name} in {where} (p = {number(p)}). "
        "Every figure here assumes that they are."
    )


def exact_leak(leak: str, n_individuals: int, share: float) -> str:
    individuals = "one individual" if n_individuals == 1 else f"each of {n_individuals:,} individuals"
    most = "" if n_individuals == 1 else "up to "
    return (
        f"EXACT LEAK: {leak}. For {individuals} this gives away whether they are in the data, "
        f"in {most}{percent(share)} of databases; smoothing cannot hide this."
    )


def no_upper_bound(n: int, least: int) -> str:
    return f"{_so_many(n, 'give')} no upper bound: at least {least} are needed."


def few_databases(n: int) -> str:
    return f"{_so_many(n, 'are')} few: from 30 to 99 the upper bound is weak, and rare behaviour goes unseen."


def publications(times: int) -> str:
    return (
        f"The figures are of {times:,} publications, each from a database of its own, for people who are in all of "
        "these databases or in none."
    )


def how_often(epsilon: float, delta: float, level: float, by_bound: int, by_estimate: int) -> str:
    target = f"delta {number(delta)} at epsilon {epsilon:g}"
    if by_bound == 0:
        sure = f"not even one publication is within {target} at {percent(level)} confidence"
    else:
        sure = f"{_count(by_bound)} within {target} at {percent(level)} confidence"
    if by_estimate == by_bound:
        return f"{sure[0].upper()}{sure[1:]}."
    guess = "none is" if by_estimate == 0 else _count(by_estimate)
    return f"{sure[0].upper()}{sure[1:]}; by the estimate {guess}."


def _count(publications: int) -> str:
    if publications == 1:
        return "one publication is"
    more = " or more" if publications >= 1_000_000 else ""
    return f"{publications:,} publications{more} are"


def repeated_bound(times: int) -> str:
    return f"The upper figure of {times:,} publications assumes a law without structure finer than the bandwidth."


def no_repeated_bound(n: int, several: bool) -> str:
    if several:
        return "Several numbers published again and again have no upper figure: none was validated."
    return (
        f"{_so_many(n, 'give')} no upper figure for several publications, since the results are skewed, end abruptly "
        "or have two peaks: with fewer than 100 none was seen to hold there. Hint: more databases, or results that are "
        "more even, such as logarithms."
    )


def other_density() -> str:
    return "The bounds do not use the density of the estimate: they are the same for any."


def other_level(level: float) -> str:
    return f"The upper bound was validated at the level 95%, not at {percent(level)}."


def draws(m: int) -> str:
    return f"The {m:,} draws of a database are averaged: bounds count databases, not draws."


def made_from(epsilon: float, estimate: float, upper: float) -> str:
    return (
        f"Made from answers which tell at most delta = {number(estimate)} at epsilon {epsilon:g} (upper bound "
        f"{number(upper)}): what is made from them tells no more, and figures above that are cut off."
    )


def table_bound(n: int, parameters: int, people: int) -> str:  # noqa: ARG001 — nobody is without a bound
    return (
        f"The upper bound is of the whole table. What people do not touch counts as known ({parameters:,} parameters "
        f"from {databases(n)}), as far as it determines the rest in straight lines; structure finer than the error of "
        "that fit is assumed away."
    )


def table_noise() -> str:
    return (
        "With noise on each cell nothing is assumed of the laws of the cells but that what people did not touch tells "
        "of the rest in straight lines, and what is left is one law; where a check objects to that, only noise counts."
    )


def table_from_below(n: int, parameters: int, people: int) -> str:
    who = f"{people:,} people" if people != 1 else "one person"
    return (
        f"There is no upper bound for {who}: {parameters:,} parameters are too many for {databases(n)}. Their figures "
        "are from below, and the table may reveal more."
    )


def no_bound_of_kind() -> str:
    return (
        "No upper bound is known for this kind of risk: the estimate stands alone, and a target can be failed or left "
        "unresolved by the bound, not passed."
    )


def not_asked() -> str:
    return "Upper bounds were not asked for, so that none below 1 is known. Hint: scan(bounds=True)."


def left_out_checks() -> str:
    return (
        "A scan keeps the riskiest individuals and sums up the others: the check that looks at everybody at once "
        '("modes") was not made.'
    )


def nothing_known_in_scan() -> str:
    return "A scan counts nothing as known unless known= says so: what everybody knows may make the risk larger."


def many_parameters(parameters: int, n: int) -> str:
    return (
        f"What people do not touch takes {parameters:,} parameters from {databases(n)} to be counted as known: so many "
        "make what is left look smaller than it is, and figures larger."
    )


def bent(p: float) -> str:
    return (
        "What is left of the cells of the riskiest people depends on the rest of the table, other than in straight "
        f"lines (p = {p:.3f}): the table may reveal more than the bound says. It cannot tell."
    )


def edge(share: float) -> str:
    return (
        "What is left of a cell of the riskiest people has a hard edge. So many cells smear what is finer than "
        f"{share:.2f} standard deviations: the table may reveal more than the bound says. It cannot tell."
    )


def flat() -> str:
    return (
        "What is left of a cell of the riskiest people is flat, or has two peaks whose valley the other cells smear: "
        "the table may reveal more than the bound says. It cannot tell."
    )


def target(name: str, limit: float, epsilon: float) -> str:
    return f"{name.replace('_', ' ')} at most {number(limit)} at epsilon {epsilon:g}"


def _of(name: str, where: str) -> str:
    return name.replace("_", " ") + (" on the day that somebody was in" if where else "")


def estimate_meets(name: str, value: float, limit: float, where: str = "") -> str:
    relation = "meets" if value <= limit else "exceeds"
    return f"The estimated {_of(name, where)}, {number(value)}, {relation} the target of {number(limit)}."


def bound_meets(name: str, value: float, limit: float, level: float, where: str = "") -> str:
    if value >= 1:
        return f"There is no upper bound on {_of(name, where)}, so nothing says that it is at most {number(limit)}."
    relation = "meets" if value <= limit else "exceeds"
    return (
        f"The upper bound on {_of(name, where)} ({percent(level)}), {number(value)}, {relation} the target of "
        f"{number(limit)}."
    )


def lower_breaks(name: str, value: float, limit: float, level: float, where: str = "") -> str:
    return (
        f"The lower bound on {_of(name, where)} ({percent(level)}), {number(value)}, is above the target of "
        f"{number(limit)}: the loss is demonstrated."
    )


def estimate_alone(name: str, value: float, limit: float, where: str = "") -> str:
    return (
        f"The estimated {_of(name, where)}, {number(value)}, exceeds the target of {number(limit)}, but the bounds "
        "cannot tell."
    )


def needed(n: int | None) -> str:
    if n is None:
        return "no number of databases would resolve it"
    return f"would need {databases(n)}"


def side_by_side(by_estimate: str, by_bound: str, level: float, n_needed: str) -> str:
    """``by_estimate`` is of a random database, as in the paper."""
    more = f", {n_needed}" if n_needed else ""
    return f"By the paper's definition: {by_estimate}; at {percent(level)} confidence: {by_bound}{more}."


def whenever(epsilon: float, level: float, lower: float, upper: float, looked_at: int, next_look: int) -> str:
    """What holds for somebody who looks again and again while databases are added; before the first look, of 0."""
    if not looked_at:
        return f"Whenever you look: no bound yet. The first look is at {next_look:,} databases."
    return (
        f"Whenever you look ({level:.0%} for all looks together): delta at epsilon {epsilon:g} is between "
        f"{number(lower)} and {number(upper)}, from the first {looked_at:,} databases. The next look is at "
        f"{next_look:,}. The bounds below are for today's look alone."
    )
