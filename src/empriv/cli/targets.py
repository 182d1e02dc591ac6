"""Targets: the conditions of ``--target``, on which a verdict is given that decides whether a pipeline stops."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from empriv.errors import InputError

TARGET_GRAMMAR = '"delta <= 0.01 at 0.1" or "total_risk <= 0.05 at 0.1"'
_NUMBER = r"(?P<{}>[0-9.]+(?:e[+-]?[0-9]+)?)"
_TARGET = re.compile(
    rf"(?P<figure>delta|total_risk)\s*<=\s*{_NUMBER.format('limit')}\s+at\s+(?:epsilon\s+)?{_NUMBER.format('epsilon')}",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Target:
    """``figure`` must be at most ``limit`` at this epsilon."""

    text: str
    figure: str
    limit: float
    epsilon: float


def parse_target(text: str) -> Target:
    """Parse the text of a target."""
    match = _TARGET.fullmatch(text.strip())
    try:
        if match is None:
            raise ValueError
        limit, epsilon = float(match["limit"]), float(match["epsilon"])
    except ValueError:
        raise InputError(f"`target` must read like {TARGET_GRAMMAR}, got {text!r}.") from None
    if not limit <= 1 or not math.isfinite(epsilon):
        raise InputError(f"`target` must have a limit from 0 to 1 and a finite epsilon, got {text!r}.")
    return Target(" ".join(text.split()), match["figure"].lower(), limit, epsilon)


def goal_of(texts: Sequence[str]) -> dict[str, float | None]:
    """Epsilon, delta and total risk of targets that are to be met together, each once and at one epsilon."""
    parsed = [parse_target(text) for text in texts]
    limits = {target.figure: target.limit for target in parsed}
    if len({target.epsilon for target in parsed}) > 1 or len(limits) < len(parsed):
        raise InputError("`target` must name delta and total_risk once each, at one epsilon.")
    return {"epsilon": parsed[0].epsilon, "delta": limits.get("delta"), "total_risk": limits.get("total_risk")}
