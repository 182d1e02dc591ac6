"""What readers know, and how well that was measured, as messages."""

from __future__ import annotations

from collections.abc import Sequence

from empriv.words.message import Message
from empriv.words.sentences import listed, number

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


def in_buckets(parts: int, least: int, most: int) -> Message:
    """Over what delta is the largest."""
    size = f"{least:,} databases" if least == most else f"{least:,} to {most:,} databases"
    which = "one bucket" if parts == 1 else f"{parts:,} buckets, the worst of which counts"
    said = f"Readers know in which bucket a quantity lies: {which}, of {size}{'' if parts == 1 else ' each'}."
    return Message("worst-of", said)


def of_contributors(parts: int, *, contributions_given: bool) -> tuple[Message, ...]:
    """Over what delta is the largest, and what each is taken to know."""
    who = "The largest contributor is" if parts == 1 else f"Each of the {parts:,} largest contributors is"
    said = Message("worst-of", f"{who} taken to know their own contribution; the worst for anybody else counts.")
    not_given = Message(
        "contributions-not-given",
        "Contributions were not given: each individual is taken to know the change that their rows make to the "
        "result, which is their contribution if the query adds up over individuals (a sum, a count) but not for "
        "averages, ratios and quantiles.",
    )
    return (said,) if contributions_given else (said, not_given)


def left_out(count: int, least: int) -> Message:
    """Databases in buckets that are too small."""
    said = (
        f"{count:,} databases are in buckets with fewer than {least} databases, which were not measured: nothing is "
        "said of readers who see one of these buckets."
    )
    return Message("known", said, "warning", {"what": "left-out", "count": count, "least": least}, TITLE)


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


def what_it_changed(ignoring: float, knowing: float, epsilon: float) -> str:
    """The figure beside the one to a reader who knows nothing, the paper's."""
    return (
        f"Ignoring what is known, delta would be {number(ignoring)} at epsilon {epsilon:g}; knowing it, it is "
        f"{number(knowing)}."
    )
