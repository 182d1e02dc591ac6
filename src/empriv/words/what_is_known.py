"""What readers know, and how well that was measured, as messages."""

from __future__ import annotations

from collections.abc import Sequence

from empriv.words.message import Message
from empriv.words.sentences import listed

_CALENDAR = {name: f"the {name}" for name in ("trend", "weekday", "month", "season", "previous answer")}
_STEPS = {
    "nothing": "with nothing counted as known",
    "logarithm": "at the logarithm",
    "calendar": "at the calendar",
    "previous": "at the previous answer",
    "lags": "at the answers 1, 2 and 7 before",
    "spread": "at a spread that changes",
}
_WHY_NOTHING = {
    "several": "that is measured of one number, and these are several",
    "ledger": "that is not measured together with earlier releases",
    "draws": "the query is randomised",
    "density": "that is measured with the usual density, and another was chosen",
    "constant": "the results hardly vary",
    "no-order": "the databases have no order",
}
TITLE = "What readers know"


def given(
    names: Sequence[str],
    parameters: int,
    n: int,
    *,
    chosen: tuple[str, float] | None,
    dropped: int,
    logarithm: bool = False,
    spread: bool = False,
    determined: bool = False,
) -> tuple[Message, ...]:
    """What was counted as known by regression: by so many parameters fitted to n databases.

    ``chosen`` : the step at which it was enough, and the p of the i.i.d. tests there
    ``dropped`` : databases left out, whose previous answers are not known
    ``determined`` : whether what is known determines the result
    """
    if not names:
        said = f"Nothing was counted as known of {n:,} databases"
    else:
        named = [_CALENDAR.get(name, f"the {name}" if name.startswith("answer ") else name) for name in names]
        said = f"Counted as known: {listed(named)} ({parameters} parameters, fitted to {n:,} databases)"
    said += ", after taking logarithms" if logarithm else ""
    if spread:
        said += "; the spread depends on it, and what people did is measured beside that of its database"
    messages = [Message("given", f"{said}. Only residuals count as protection.")]
    if chosen is not None:
        where, p = _STEPS[chosen[0]], f"(p = {chosen[1]:.3f})"
        enough = (
            f"That is enough {where}: residuals look independent and identically distributed {p}."
            if chosen[1] > 0.05
            else f"That ended {where}, and residuals still depart from chance {p}."
        )
        messages.append(Message("given-chosen", enough))
    if dropped:
        which = "database was" if dropped == 1 else f"{dropped:,} databases were"
        messages.append(Message("given-dropped", f"The first {which} left out, whose previous answers are not known."))
    if determined:
        leak = "EXACT LEAK: what is known determines the result, so that any change shows."
        messages.append(Message("known", leak, "error", {"what": "determined"}, TITLE))
    return tuple(messages)


def nothing_known(why: str, n: int, least: int, p: float) -> Message:
    """Why nothing was counted as known, where nobody said what is; of another ``why``, KeyError."""
    numbers = {"why": why, "n": n, "least": least, "p": p}
    if why == "silent":
        said = (
            "Nothing had to be counted as known: nothing suggests that the calendar or previous answers tell about "
            f"the results (p = {p:.2f})."
        )
        return Message("nothing-known", said, numbers=numbers)
    reason = f"that takes at least {least} databases, got {n}" if why == "few" else _WHY_NOTHING[why]
    hint = ' Hint: say what is known of each, such as its size, known="count(*)".' if why == "no-order" else ""
    return Message("nothing-known", f"Nothing was counted as known: {reason}.{hint}", numbers=numbers)


def what_samples_hide() -> str:
    return (
        "The only chance is who was sampled. That stays hidden if the answer of one sample is published and nobody "
        "learns who was in it. The answer of the whole table has no chance in it and is not covered; what holds for "
        "the whole table is not hidden; and the answer of another sample is a further publication."
    )
