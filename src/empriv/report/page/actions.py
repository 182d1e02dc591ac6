"""What can be done, as the page shows it: rows of actions that were tried."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from empriv.auditing.audit import Audit
from empriv.base.harmless import visible
from empriv.comparing.advising import advise
from empriv.comparing.ways import Action, Advice
from empriv.errors import InputError
from empriv.noise.noise import Noise
from empriv.validate.verdict import FAIL, PASS, UNRESOLVED
from empriv.words.sentences import amount, number, percent, tells_little

if TYPE_CHECKING:
    from empriv.validate.verdict import Verdict

_MOST_ROWS = 5


@dataclass(frozen=True)
class ActionRow:
    """One row of the page's table."""

    action: str
    hides: str
    error: str
    verdict: str
    command: str
    best: bool = False


@dataclass(frozen=True)
class Actions:
    """Rows, best first, and what is said below them."""

    rows: tuple[ActionRow, ...]
    heads: tuple[str, ...] = ("Action", "Hides up to", "Error of an answer", "Verdict")


def worst_first(verdicts: Sequence[tuple[str, Verdict]]) -> list[tuple[str, Verdict]]:
    """The verdicts with those that decide first."""
    return sorted(verdicts, key=lambda judged: (FAIL, UNRESOLVED, PASS).index(judged[1]))


def quick_advice(
    audit: Audit, verdicts: Sequence[Verdict], saved: str = "audit.empriv", noise: object = None
) -> Advice | None:
    """What can be done about the worst verdict, from the results alone; None where there is no target or no way.

    The worst verdict comes first; ``saved`` is the file of the audit that commands name, ``noise`` what was designed
    before. Rounding is left out: every step of it takes as long as the audit.
    """
    if not verdicts or verdicts[0].basis != "bound":
        return None
    worst = verdicts[0]
    limits = {target.name: target.limit for target in worst.targets}
    presence = worst.presence
    try:
        return advise(
            audit, epsilon=worst.epsilon, delta=limits.get("delta"), total_risk=limits.get("total_risk"),
            presence=presence, level=worst.level, saved=saved, rounding=False,
            noise=noise if isinstance(noise, Noise) else None,
        )  # fmt: skip
    except InputError:
        return None  # several numbers, or a scan, which holds too little


def actions_of(advice: Advice, unit: str) -> Actions:
    """What each kind of action gives and costs, classical noise last."""
    rows = tuple(
        ActionRow(
            visible(action.title), _hides(action, unit), _error(action, unit), action.verdict,
            "" if action.toml else visible(action.command),
            action is advice.best and not tells_little(action.share, 1.0),
        )
        for action in (*advice.of_each_kind()[: _MOST_ROWS - 1], *filter(None, [advice.classical]))
        if action.code != "noise" or action.error > 0
    )  # fmt: skip
    return Actions(rows)


def _hides(action: Action, unit: str) -> str:
    """The largest move that is hidden after it; delta where that was not asked."""
    if not math.isnan(action.cover):
        return "nothing shown" if action.cover <= 0 else amount(action.cover, unit)
    return "not measured" if action.upper is None or action.upper >= 1 else f"delta at most {number(action.upper)}"


def _error(action: Action, unit: str) -> str:
    missing = f"no answer for {percent(action.unanswered)} of databases" if action.unanswered > 0 else ""
    if math.isnan(action.error):
        return missing or "not known"
    said = "none" if action.error == 0 else f"±{amount(action.error, unit)}"
    if action.error and math.isfinite(action.share):
        said += f" ({percent(action.share)}{', which tells little' if tells_little(action.share, 1.0) else ''})"
    return f"{said}, {missing}" if missing else said
