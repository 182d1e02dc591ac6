"""How numbers and counts are written, and what several rooms say of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal

_OF_ONE = {"are": "is", "give": "gives"}
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


def listed(parts: Sequence[str]) -> str:
    """Parts of a sentence: "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def people(count: int) -> str:
    return "1 individual" if count == 1 else f"{count:,} individuals"


def databases(n: int) -> str:
    return "1 database" if n == 1 else f"{n:,} databases"


def so_many(n: int, verb: str) -> str:
    """Databases as the subject of "are" or "give"."""
    return f"{databases(n)} {_OF_ONE[verb] if n == 1 else verb}"


def floor(n: int, least: float, *, below: bool = False) -> str:
    """``below`` says whether some of the estimates shown are smaller."""
    return (
        f"{databases(n)} cannot support any delta below {number(least)}: "
        "behaviour rarer than that may never have been seen."
        + (" Smaller estimates, as here, rest on the density that was fitted." if below else "")
    )


def too_few_for_a_bound(n: int, least: int) -> str:
    return f"{so_many(n, 'give')} no upper bound: at least {least} are needed."


def few_databases(n: int) -> str:
    return f"{so_many(n, 'are')} few: from 30 to 99 the upper bound is weak, and rare behaviour goes unseen."


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
