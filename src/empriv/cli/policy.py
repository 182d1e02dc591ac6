"""Policies and targets: the conditions of ``--fail-if`` and ``--target``, which decide whether a pipeline stops.

A policy reads the measured figures, or with ``upper(...)`` their upper bound, and nothing else; a target asks for a
verdict.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from empriv.errors import InputError

GRAMMAR = (
    '"delta > 0.001 at 0.05", "total_risk >= 0.01 at 0.1", "upper(delta) > 0.01 at 0.1" or "epsilon > 0.2 at delta 0"'
)
TARGET_GRAMMAR = '"delta <= 0.01 at 0.1" or "total_risk <= 0.05 at 0.1"'
_NUMBER = r"(?P<{}>[0-9.]+(?:e[+-]?[0-9]+)?)"
_FORM = re.compile(
    rf"(?:(?P<figure>delta|total_risk|upper\((?:delta|total_risk)\))\s*(?P<operator>>=|>)\s*{_NUMBER.format('limit')}\s+at\s+(?:epsilon\s+)?"
    rf"{_NUMBER.format('epsilon')}"
    rf"|epsilon\s*(?P<epsilon_operator>>=|>)\s*{_NUMBER.format('epsilon_limit')}\s+at\s+delta\s+"
    rf"{_NUMBER.format('delta')})",
    re.IGNORECASE,
)
_TARGET = re.compile(
    rf"(?P<figure>delta|total_risk)\s*<=\s*{_NUMBER.format('limit')}\s+at\s+(?:epsilon\s+)?{_NUMBER.format('epsilon')}",
    re.IGNORECASE,
)


class HasFigures(Protocol):
    """What a policy needs from an audit."""

    def delta(self, epsilon: Any) -> Any: ...

    def total_risk(self, epsilon: Any) -> Any: ...

    def epsilon(self, delta: float = 0.0) -> float: ...

    def bounds(self, epsilon: Any) -> Any: ...


@dataclass(frozen=True)
class Condition:
    """Fails if ``figure`` is greater than (or equal to, if ``or_equal``) ``limit``, at this epsilon or delta."""

    text: str
    figure: str
    or_equal: bool
    limit: float
    at: float


@dataclass(frozen=True)
class Judgement:
    """The outcome of a policy."""

    policy: Condition
    value: float
    failed: bool

    @property
    def sentence(self) -> str:
        value = "infinite" if math.isinf(self.value) else f"{self.value:.4g}"
        verdict = "FAILED" if self.failed else "passed"
        return f"Policy {verdict}: fail if {self.policy.text}; {self.policy.figure} is {value}."

    def to_json(self) -> dict[str, Any]:
        value = None if math.isinf(self.value) else self.value
        return {"policy": self.policy.text, "value": value, "failed": self.failed}


def parse_policy(text: str) -> Condition:
    """Parse the text of a policy."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise InputError(f"`fail_if` must read like {GRAMMAR}, got {text!r}.")
    part = match.groupdict()
    of_epsilon = part["figure"] is None
    names = ("epsilon_limit", "delta") if of_epsilon else ("limit", "epsilon")
    try:
        limit, at = (float(part[name]) for name in names)
    except ValueError:
        raise InputError(f"`fail_if` must read like {GRAMMAR}, got {text!r}.") from None
    if of_epsilon and not at <= 1:
        raise InputError(f"`fail_if` must have a delta from 0 to 1, got {at:g}.")
    if not (math.isfinite(limit) and math.isfinite(at)):
        raise InputError(f"`fail_if` must have finite numbers, got {text!r}.")
    return Condition(
        text=" ".join(text.split()),
        figure="epsilon" if of_epsilon else part["figure"].lower(),
        or_equal=(part["epsilon_operator"] or part["operator"]) == ">=",
        limit=limit,
        at=at,
    )


def judge(policy: Condition, audit: HasFigures) -> Judgement:
    """Judge an audit by a policy."""
    if policy.figure.startswith("upper("):
        figures = audit.bounds(policy.at)
        value = float(figures.upper if policy.figure == "upper(delta)" else figures.total_risk_upper)
    else:
        value = float(getattr(audit, policy.figure)(policy.at))
    failed = value >= policy.limit if policy.or_equal else value > policy.limit
    # A value that cannot be compared must not pass.
    return Judgement(policy, value, failed or math.isnan(value))


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
