"""Which of several protocols to take: the least error among those that meet a target, or that none does."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from empriv.base.harmless import visible
from empriv.comparing.goals import Goal, figures_of
from empriv.validate.verdict import PASS
from empriv.words import what_to_do as words

if TYPE_CHECKING:
    from empriv.comparing.comparison import Comparison


@dataclass(frozen=True)
class Recommendation:
    """Which protocol to take.

    Attributes
    ----------
    goal : the target
    verdicts : of each protocol, "pass", "fail" or "unresolved"
    best : the name of the protocol with the least error among those that pass; None if none does, or if several pass
        and errors are not known
    nearest : the name of the one that comes nearest, where none passes
    sentence : the same in words
    """

    goal: Goal
    verdicts: Mapping[str, str]
    best: str | None
    nearest: str | None
    sentence: str

    def to_json(self) -> dict[str, Any]:
        goal = self.goal
        target = {
            "epsilon": goal.epsilon,
            "delta": goal.delta,
            "total_risk": goal.total_risk,
            "presence": goal.presence,
        }
        return {
            "target": target,
            "verdicts": dict(self.verdicts),
            "best": self.best,
            "nearest": self.nearest,
            "sentence": self.sentence,
        }


def recommend(comparison: Comparison, goal: Goal) -> Recommendation:
    """The least error among those that meet the target."""
    figures, verdicts = {}, {}
    for name, audit in comparison.audits.items():
        verdict = audit.verdict(**goal.asked, presence=goal.presence, level=goal.level)
        figures[name] = figures_of(audit, goal, str(verdict))
        verdicts[name] = str(verdict)
    aim = words.target(goal.epsilon, goal.delta, goal.total_risk)
    meets = [name for name in comparison.names if verdicts[name] == PASS]
    if not meets:
        nearest = min(comparison.names, key=lambda name: figures[name].over)
        sentence = words.none_meets(len(verdicts), aim, visible(nearest), figures[nearest].upper, None, verbatim=True)
        return Recommendation(goal, verdicts, None, nearest, sentence)
    if comparison.truth is None:
        best = meets[0] if len(meets) == 1 else None
        return Recommendation(goal, verdicts, best, None, words.meet(list(map(visible, meets)), aim))
    rows = {row.protocol: row for row in comparison.overall}

    def cost(name: str) -> tuple[float, float]:
        error = rows[name].mean_absolute
        return math.inf if math.isnan(error) else error, rows[name].unanswered

    best = min(meets, key=cost)
    error, unanswered = rows[best].mean_absolute, rows[best].unanswered
    sentence = words.recommended(visible(best), error, unanswered, aim, len(meets))
    return Recommendation(goal, verdicts, best, None, sentence)
