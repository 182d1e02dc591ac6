"""The words of advice: what each way to publish is called, what was found, what noise of each kind promises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from empriv.words.sentences import amount, databases, listed, number, percent, quantity, tells_little

HEADERS = ("what to do", "delta", "at most", "error", "verdict")


def error_said(value: float, unit: str = "") -> str:
    """An error in the answer's own units."""
    return "—" if math.isnan(value) else "0" if value == 0 else f"±{amount(value, unit)}"


LITTLE = "little"
MARKS = {"pass": "● pass", "fail": "▲ fail", "unresolved": "◆ cannot tell", LITTLE: "○ pass, but tells little"}
"""How a verdict is shown, beside its colour."""


def outcome(verdict: str, of_typical: float) -> str:
    """A verdict as it is shown; "little" where it passes, but so little is left that nobody should publish it."""
    return LITTLE if verdict == "pass" and tells_little(of_typical, 1.0) else verdict


def title(code: str, parameters: Mapping[str, Any], each: str = "each person", unit: str = "") -> str:
    """What is done, in a few words; ``each`` individual by its noun."""
    given = {name: quantity(value) if isinstance(value, float) else value for name, value in parameters.items()}
    match code:
        case "as-is":
            return "Publish as it is"
        case "noise":
            return "Add noise"
        case "cap":
            return f"Cap {each} at {amount(parameters['at'], unit)}, add noise"
        case "minimum":
            return f"Divide by at least {given['rows']} rows, add noise"
        case "zero":
            return "Say 0 where there is no answer, add noise"
        case "coarser":
            return f"Publish by {given['by']}"
        case "waiting":
            return f"Wait for {databases(parameters['more']).replace(' ', ' more ', 1)}"
        case "classical":
            return "Classical noise"
    raise ValueError(code)


def target(epsilon: float, delta: float | None, total_risk: float | None) -> str:
    limits = [
        f"{name} <= {limit:g}" for name, limit in (("delta", delta), ("total risk", total_risk)) if limit is not None
    ]
    return f"{' and '.join(limits)} at epsilon {epsilon:g}"


def delta_said(delta: float) -> str:
    return "—" if math.isnan(delta) else number(delta)


def upper(value: float | None) -> str:
    return "—" if value is None else "none" if value >= 1 else number(value, 3)


def cell(error: float, of_typical: float, unit: str) -> str:
    """An error in a table, with its share of a typical answer."""
    said = error_said(error, unit)
    return f"{said} ({percent(of_typical)})" if error > 0 and math.isfinite(of_typical) else said


def cost(error: float, of_typical: float, typical: float, unit: str) -> str:
    """What a way costs, in the answer's units: "±302 on a typical 3,133 (9.6%)"."""
    if math.isnan(error) or error == 0:
        return "no error" if error == 0 else "an error that is not known"
    return f"{error_said(error, unit)} on a typical {amount(typical, unit)} ({percent(of_typical)})"


def best(name: str, cost_said: str, aim: str) -> str:
    return f"{name}: {cost_said}. It meets {aim}."


def none_meets(
    tried: int,
    aim: str,
    nearest: str | None,
    upper_bound: float | None,
    over: float,
    more: str | None,
    *,
    verbatim: bool = False,
) -> str:
    """``over`` is the bound of the nearest over its limit; ``verbatim`` keeps its name as it is written."""
    ways = "The one way that was tried does not meet" if tried == 1 else f"None of the {tried:,} ways tried meets"
    near = ""
    if nearest is not None:
        bound = "" if upper_bound is None or upper_bound >= 1 else f", with an upper bound of {number(upper_bound)}"
        if bound and over <= 1:  # a check is what stands in the way
            bound += ", within the target; but a check objects to it, which `empriv compare` or `show --verbose` says"
        near = f" Nearest: {nearest if verbatim else nearest[0].lower() + nearest[1:]}{bound}."
    wait = "" if more is None else f" {more}, if the bound goes on shrinking as it has."
    return f"{ways} {aim}.{near}{wait}"


def meet(names: list[str], aim: str) -> str:
    return f"{listed(names)} {'meet' if len(names) > 1 else 'meets'} {aim}; errors are not known."


def recommended(name: str, error: float, unanswered: float, aim: str, meeting: int) -> str:
    """The protocol with the least error among those that meet a target."""
    missing = f", no answer for {percent(unanswered)} of the databases" if unanswered > 0 else ""
    among = "the only one that meets" if meeting == 1 else f"the least error among the {meeting:,} that meet"
    said = "no error" if error == 0 else f"a mean error of {amount(error)}"
    return f"Recommended: {name}, {among} {aim}, with {said}{missing}."


def saves(classical_error: float, error: float, typical: float, unit: str) -> str:
    """What the designed noise saves against the classical one."""
    times = classical_error / error if error else math.inf
    less = f" The design needs {error_said(error, unit)}, {number(times)} times less." if error and times >= 1.1 else ""
    return (
        f"Classical noise at the same epsilon and delta for the largest move seen would be "
        f"{error_said(classical_error, unit)} on a typical {amount(typical, unit)}.{less}"
    )


def promises(largest: float, n: int, delta: float | None, present: bool, unit: str) -> tuple[str, str]:
    """What classical noise promises that the design does not, and the other way round."""
    limit = "" if delta is None else f", except with a probability of {number(delta)}"
    where = "on a random one and on one that people are in" if present else "on a random one"
    return (
        f"Classical noise keeps its promise on any data and against a reader who knows all other rows, as long as "
        f"nobody moves the answer by more than {amount(largest, unit)}. That is the most seen here: nothing says that "
        "it stays so.",
        f"The design keeps its promise on databases like these {n:,}, {where}{limit}, against a reader who does not "
        "know all other rows. It needs no bound on what one person may do.",
    )


def no_rows() -> str:
    return "A minimum of rows and coarser databases were not tried: they need the rows, which are not here."


def other_databases() -> str:
    return "Coarser databases were not tried: what is known was given for each of these databases."


def refused(title_said: str, reason: str) -> str:
    return f"{title_said} was not tried to the end. {reason}"
