"""The words of advice: what each way to publish is called, what was found, what noise of each kind promises."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from empriv.words.sentences import databases, number, percent, quantity
from empriv.words.side_by_side import share, upper_said

HEADERS = ("what to do", "delta", "upper bound", "error", "of a typical answer", "verdict")


def amount(value: float) -> str:
    """An error in the answer's own units."""
    return "—" if math.isnan(value) else "0" if value == 0 else f"±{short(value)}"


def short(value: float) -> str:
    """Three digits, and all before the point where there are more."""
    return f"{value:,.0f}" if 100 <= abs(value) < 1e15 else f"{value:,.3g}"


def title(code: str, parameters: Mapping[str, Any]) -> str:
    """What is done, in a few words."""
    given = {name: quantity(value) if isinstance(value, float) else value for name, value in parameters.items()}
    match code:
        case "as-is":
            return "Publish as it is"
        case "noise":
            return "Add noise"
        case "rounding":
            return f"Round to {given['to']}"
        case "top-coding":
            return f"Count no {given['column']} above {given['at']}"
        case "clipping":
            return f"Keep {given['column']} between {given['lower']} and {given['upper']}"
        case "minimum":
            return f"No answer from fewer than {given['k']} individuals"
        case "coarser":
            return f"Publish by {given['by']}"
        case "waiting":
            return f"Wait for {databases(parameters['more']).replace(' ', ' more ', 1)}"
        case "classical":
            return "Classical Laplace noise"
    raise ValueError(code)


def target(epsilon: float, delta: float | None, total_risk: float | None) -> str:
    limits = [
        f"{name} <= {limit:g}" for name, limit in (("delta", delta), ("total risk", total_risk)) if limit is not None
    ]
    return f"{' and '.join(limits)} at epsilon {epsilon:g}"


def delta_said(delta: float) -> str:
    return "—" if math.isnan(delta) else number(delta)


def upper(value: float | None) -> str:
    return "—" if value is None else upper_said(value)


def relative(error_over_typical: float) -> str:
    """An error over a typical answer."""
    return share(error_over_typical)


def cost(error: float, of_typical: float, typical: float, unanswered: float) -> str:
    """What a way costs, in the answer's units: "±302 on a typical 3,133 (9.6%)"."""
    missing = f"no answer for {percent(unanswered)} of the databases" if unanswered > 0 else ""
    if math.isnan(error) or error == 0:
        return missing or ("no error" if error == 0 else "an error that is not known")
    said = f"{amount(error)} on a typical {short(typical)} ({relative(of_typical)})"
    return f"{said}, {missing}" if missing else said


def best(name: str, cost_said: str, aim: str) -> str:
    return f"{name}: {cost_said}. It meets {aim}."


def none_meets(tried: int, aim: str, nearest: str | None, upper_bound: float | None, more: str | None) -> str:
    ways = "The one way that was tried does not meet" if tried == 1 else f"None of the {tried:,} ways tried meets"
    near = ""
    if nearest is not None:
        bound = "" if upper_bound is None or upper_bound >= 1 else f", with an upper bound of {number(upper_bound)}"
        near = f" Nearest: {nearest[0].lower()}{nearest[1:]}{bound}."
    wait = "" if more is None else f" {more}, if the bound goes on shrinking as it has."
    return f"{ways} {aim}.{near}{wait}"


def saves(classical_error: float, error: float, typical: float) -> str:
    """What the designed noise saves against the classical one."""
    times = classical_error / error if error else math.inf
    less = f" The design needs {amount(error)}, {number(times)} times less." if error and times > 1 else ""
    return (
        f"Classical Laplace noise for the same epsilon and the largest influence seen would be "
        f"{amount(classical_error)} on a typical {short(typical)}.{less}"
    )


def promises(largest: float, n: int, delta: float | None, present: bool) -> tuple[str, str]:
    """What classical noise promises that the design does not, and the other way round."""
    limit = "" if delta is None else f", except with a probability of {number(delta)}"
    where = "on a random one and on one that people are in" if present else "on a random one"
    return (
        f"Classical noise keeps its promise on any data and against somebody who knows all other rows, as long as "
        f"nobody moves the answer by more than {quantity(largest)}. That is the most seen here: nothing says that it "
        "stays so.",
        f"The design keeps its promise on databases like these {n:,}, {where}{limit}, against somebody who does not "
        "know all other rows. It needs no bound on what one person may do.",
    )


def nothing_needed() -> str:
    return "Nothing need be done to the answer, so that nothing else was tried."


def no_noise(reason: str) -> str:
    return f"Noise was not tried to the end. {reason}"
