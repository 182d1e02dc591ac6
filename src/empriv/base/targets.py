"""Targets: what an audit is judged by, as ``--target`` says it. A saved audit keeps its own."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from empriv.errors import InputError

BASES, PRESENCES = ("bound", "estimate"), ("both", "random")
TARGET_GRAMMAR = '"delta <= 0.01 at 0.1" or "total_risk <= 0.05 at 0.1"'
_NUMBER = r"(?P<{}>[0-9.]+(?:e[+-]?[0-9]+)?)"
_TARGET = re.compile(
    rf"(?P<figure>delta|total_risk)\s*<=\s*{_NUMBER.format('limit')}\s+at\s+(?:epsilon\s+)?{_NUMBER.format('epsilon')}",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Target:
    """``figure`` must be at most ``limit`` at this epsilon; ``basis`` and ``presence`` are as for `Audit.verdict`."""

    text: str
    figure: str
    limit: float
    epsilon: float
    basis: str | None = None
    presence: str | None = None

    def to_json(self) -> dict[str, str | None]:
        return {"target": self.text, "basis": self.basis, "presence": self.presence}

    def allows(self, epsilon: float, delta: float, presence: str) -> bool:
        """Whether whatever keeps (epsilon, delta) keeps this too."""
        where = presence == "both" or self.presence == "random"
        return self.figure == "delta" and epsilon <= self.epsilon and delta <= self.limit and where


def check_as_strict(targets: Sequence[Target], epsilon: float, delta: float, presence: str) -> None:
    """Refuse noise, or another promise, that allows more than these targets, which say all that they ask."""
    for target in targets:
        if target.figure != "delta":
            raise InputError(
                f"The target must be on delta, which noise promises, and the audit's own is {target.text!r}. "
                'Hint: audit again with a target such as "delta <= 0.05 at 1".'
            )
        if not target.allows(epsilon, delta, presence):
            raise InputError(
                f"The target must not allow more than the audit's own, {target.text!r}, got delta {delta:g} at epsilon "
                f"{epsilon:g}{'' if presence == 'both' else ' on a random database alone'}. "
                "Hint: audit again with another --target."
            )


def parse_targets(
    texts: str | Sequence[str], *, basis: str | None = None, presence: str | None = None
) -> tuple[Target, ...]:
    """Targets of their texts, all judged on this basis."""
    given = [texts] if isinstance(texts, str) else texts
    return tuple(replace(parse_target(text), basis=basis, presence=presence) for text in given)


def targets_from_json(facts: Any) -> tuple[Target, ...]:
    """The targets that a saved audit keeps."""
    kept = []
    for fact in facts:
        how = {"basis": fact["basis"], "presence": fact["presence"]}
        if how["basis"] not in (None, *BASES) or how["presence"] not in (None, *PRESENCES):
            raise ValueError("basis")
        kept.append(replace(parse_target(fact["target"]), **how))
    return tuple(kept)


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
