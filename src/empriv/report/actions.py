"""What can be done, as the page shows it: rows of actions that were tried."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from empriv.auditing.audit import Audit
from empriv.base.text import visible
from empriv.comparing.advising import advise
from empriv.comparing.ways import Action, Advice
from empriv.errors import InputError
from empriv.judge.upper import LEAST_DATABASES
from empriv.noise.noise import Noise
from empriv.validate.verdict import FAIL, PASS, UNRESOLVED
from empriv.words.decision import KINDS, Decision
from empriv.words.sentences import amount, number, percent, tells_little
from empriv.words.what_to_do import error_said, outcome

if TYPE_CHECKING:
    from empriv.collecting import Databases, Engine
    from empriv.validate.verdict import Verdict

_MOST_ROWS = 5


def worst_first(verdicts: Sequence[tuple[str, Verdict]]) -> list[tuple[str, Verdict]]:
    """The verdicts with those that decide first."""
    return sorted(verdicts, key=lambda judged: (FAIL, UNRESOLVED, PASS).index(judged[1]))


def quick_advice(
    audit: Audit,
    verdicts: Sequence[Verdict],
    saved: str = "audit.empriv",
    *,
    noise: object = None,
    data: Databases | None = None,
    engine: Engine | None = None,
) -> Advice | None:
    """What can be done about the worst verdict, on the rows if they are given; None without a target or a way.

    The worst verdict comes first; ``saved`` is the file of the audit that commands name, ``noise`` what was designed
    before.
    """
    if not verdicts or verdicts[0].basis != "bound":
        return None
    worst = verdicts[0]
    limits = {target.name: target.limit for target in worst.targets}
    try:
        return advise(
            audit, data, epsilon=worst.epsilon, delta=limits.get("delta"), total_risk=limits.get("total_risk"),
            presence=worst.presence, level=worst.level, saved=saved,
            noise=noise if isinstance(noise, Noise) else None, engine=engine,
        )  # fmt: skip
    except InputError:
        return None  # several numbers, or people who were measured in chunks


def instead_of(decision: Decision, advice: Advice | None, audit: Audit) -> tuple[str, bool]:
    """What to do where the answer may not be published as it is, from what was tried; and whether it has a figure."""
    if KINDS.get(decision.word) != "stop":
        return "", False
    if audit.n_databases < LEAST_DATABASES:
        return f"Do not sign: collect more {audit.nouns.database or 'database'}s first.", False
    if advice is None:
        several = "publish fewer of these numbers, or merge cells that hide too little, and audit again"
        return f"Do not sign{'' if audit.results.components is None else f': {several}'}.", False
    best = advice.best
    if best is None:
        return "Nothing that was tried makes it publishable: do not sign.", False
    if tells_little(best.error, advice.typical):
        return (
            "Noise that hides them errs by more than half the answer: do not sign; try larger groups or longer times.",
            False,
        )
    # one figure: the action's own, or its error
    title = f"cap what {audit.nouns.each} adds, and add a little noise" if best.code == "cap" else best.title
    in_all = " in all" if best.code == "cap" else ""  # what the cap cuts off is counted
    has_figure = any(map(str.isdigit, title)) or not best.error > 0
    cost = "" if has_figure else f" ({error_said(best.error, advice.unit)}{in_all})"
    said = f"Instead: {title[0].lower()}{title[1:]}{cost}."
    return visible(said), True


def actions_of(advice: Advice, unit: str) -> list[dict[str, Any]]:
    """What each kind of action gives and costs, classical noise last; what hides less than the best and errs more is
    left out."""
    best = advice.best
    return [
        {
            "action": visible(action.title), "hides": _hides(action, unit), "error": _error(action, unit),
            "verdict": outcome(action.verdict, action.share),
            "command": "" if action.toml else visible(action.command),
            "best": action is best and not tells_little(action.share, 1.0),
        }
        for action in (*advice.of_each_kind()[: _MOST_ROWS - 1], *filter(None, [advice.classical]))
        if action is best or not _beaten(action, best)
    ]  # fmt: skip


def _beaten(action: Action, best: Action | None) -> bool:
    """Whether the best hides more and errs less; noise of size 0 is the answer as it is."""
    if action.code == "noise" and action.error <= 0:
        return True
    return best is not None and action.error > best.error and action.cover < best.cover


def _hides(action: Action, unit: str) -> str:
    """The largest move that is hidden after it; delta where that was not asked."""
    if action.code == "cap" and action.verdict == PASS:
        return f"{amount(action.cover, unit)}, all that the cap leaves"
    if not math.isnan(action.cover):
        return "nothing shown" if action.cover <= 0 else amount(action.cover, unit)
    return "not measured" if action.upper is None or action.upper >= 1 else f"delta at most {number(action.upper)}"


def _error(action: Action, unit: str) -> str:
    if math.isnan(action.error):
        return "not known"
    said = "none" if action.error == 0 else f"±{amount(action.error, unit)}"
    return (
        f"{said} ({percent(action.share)} of a typical answer)"
        if action.error and math.isfinite(action.share)
        else said
    )
