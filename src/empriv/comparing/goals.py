"""`Goal`: a target that ways to publish are held against, and the figures that decide whether one meets it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from empriv.auditing.audit import Audit
from empriv.base.arguments import finite_epsilon, one_of, probability
from empriv.errors import InputError
from empriv.validate.verdict import PRESENCES, UNRESOLVED, verdict


@dataclass(frozen=True)
class Goal:
    """What is to be met, as `Audit.verdict` takes it."""

    epsilon: float
    delta: float | None
    total_risk: float | None
    presence: str
    level: float | None

    @staticmethod
    def of(
        *,
        epsilon: float,
        delta: float | None = None,
        total_risk: float | None = None,
        presence: str = "both",
        level: float | None = None,
    ) -> Goal:
        """A goal, checked."""
        if delta is None and total_risk is None:
            raise InputError("`delta` or `total_risk` must be given: advice needs a target.")
        for name, limit in (("delta", delta), ("total_risk", total_risk)):
            if limit is not None:
                probability(name, limit)
        one_of("presence", presence, PRESENCES)
        return Goal(finite_epsilon(epsilon), delta, total_risk, presence, level)

    @staticmethod
    def from_target(target: Mapping[str, Any]) -> Goal:
        """A goal from a dict such as ``{"epsilon": 0.1, "delta": 0.01}``."""
        known = ("epsilon", "delta", "total_risk", "presence", "level")
        if not isinstance(target, Mapping) or "epsilon" not in target or set(target) - set(known):
            raise InputError(f"`target` must be a dict with an epsilon and limits ({', '.join(known[1:])}).")
        return Goal.of(**target)

    @property
    def asked(self) -> dict[str, Any]:
        return {"epsilon": self.epsilon, "delta": self.delta, "total_risk": self.total_risk}

    @property
    def texts(self) -> list[str]:
        """As --target takes it."""
        limits = (("delta", self.delta), ("total_risk", self.total_risk))
        return [f"{name} <= {limit:g} at {self.epsilon:g}" for name, limit in limits if limit is not None]


@dataclass(frozen=True)
class WayFigures:
    """Figures of one way: the larger of both places."""

    delta: float
    total_risk: float
    upper: float
    over: float
    verdict: str


def figures_of(audited: Audit, goal: Goal, word: str = UNRESOLVED) -> WayFigures:
    """The larger figures of a random database and, if the goal asks for it, of the day; ``word`` is the verdict."""
    judged = verdict(
        audited.measured, **goal.asked, presence=goal.presence, level=goal.level,
        bounds_there=audited.bounds(goal.epsilon, goal.level), checks_made=(),
    )  # fmt: skip
    bounded = audited.bounds(goal.epsilon, goal.level)
    deltas = [target for target in judged.judged if target.name == "delta"]
    upper = max([float(bounded.upper), *(target.upper for target in deltas)])
    estimate = max([float(bounded.estimate), *(target.estimate for target in deltas)])
    over = [
        target.upper / target.limit if target.limit > 0 else math.inf if target.upper > 0 else 0.0
        for target in judged.judged
    ]
    return WayFigures(estimate, audited.total_risk(goal.epsilon), upper, max(over), word)
