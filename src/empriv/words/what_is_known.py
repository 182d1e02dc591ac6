"""What readers know, and how well that was measured, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from empriv.words.sentences import number

_CALENDAR = {name: f"the {name}" for name in ("trend", "weekday", "month", "season", "previous answer")}


def worst_of(kind: str, parts: int, least: int, most: int) -> str:
    """Over what delta is the largest."""
    if kind == "buckets":
        size = f"{least:,} databases" if least == most else f"{least:,} to {most:,} databases"
        which = "one bucket" if parts == 1 else f"{parts:,} buckets, the worst of which counts"
        return f"Readers know in which bucket a quantity lies: {which}, of {size}{'' if parts == 1 else ' each'}."
    who = "The largest contributor is" if parts == 1 else f"Each of the {parts:,} largest contributors is"
    return f"{who} taken to know their own contribution; the worst for anybody else counts."


def contributions_not_given() -> str:
    return (
        "Contributions were not given: each individual is taken to know the change that their rows make to the result, "
        "which is their contribution if the query adds up over individuals (a sum, a count) but not for averages, "
        "ratios and quantiles."
    )


def left_out(count: int, least: int) -> str:
    return (
        f"{count:,} databases are in buckets with fewer than {least} databases, which were not measured: nothing is "
        "said of readers who see one of these buckets."
    )


def determined() -> str:
    return "EXACT LEAK: what is known determines the result, so that any change shows."


def given(names: Sequence[str], parameters: int, n: int, logarithm: bool, spread: bool) -> str:
    """What was counted as known, and how it was taken out."""
    if not names:
        said = f"Nothing was counted as known of {n:,} databases"
    else:
        named = [_CALENDAR.get(name, f"the {name}" if name.startswith("answer ") else name) for name in names]
        listed = named[0] if len(named) == 1 else f"{', '.join(named[:-1])} and {named[-1]}"
        said = f"Counted as known: {listed} ({parameters} parameters, fitted to {n:,} databases)"
    if logarithm:
        said += ", after taking logarithms"
    if spread:
        said += "; the spread depends on it, and what people did is measured beside that of its database"
    return f"{said}. Only what is left counts as protection."


def given_chosen(name: str, p: float) -> str:
    where = {
        "nothing": "with nothing counted as known",
        "logarithm": "at the logarithm",
        "calendar": "at the calendar",
        "previous": "at the previous answer",
        "lags": "at the answers 1, 2 and 7 before",
        "spread": "at a spread that changes",
    }[name]
    if p > 0.05:
        return f"That is enough {where}: residuals look independent and identically distributed (p = {p:.3f})."
    return f"That ended {where}, and residuals still depart from chance (p = {p:.3f})."


def given_dropped(count: int) -> str:
    which = "database was" if count == 1 else f"{count:,} databases were"
    return f"The first {which} left out, whose previous answers are not known."


def nothing_known(why: str, n: int, least: int, p: float) -> str:
    """Why nothing was counted as known, where nobody said what is."""
    if why == "silent":
        return (
            "Nothing had to be counted as known: nothing suggests that the calendar or previous answers tell about "
            f"the results (p = {p:.2f})."
        )
    reason = {
        "several": "that is measured of one number, and these are several",
        "ledger": "that is not measured together with earlier releases",
        "draws": "the query is randomised",
        "density": "that is measured with the usual density, and another was chosen",
        "constant": "the results hardly vary",
        "no-order": "the databases have no order",
        "few": f"that takes at least {least} databases, got {n}",
    }[why]
    hint = ' Hint: say what is known of each, such as its size, known="count(*)".'
    return f"Nothing was counted as known: {reason}.{hint if why == 'no-order' else ''}"


def sampled() -> str:
    return "Judged for the answer of one secret sample: who was sampled is protected, not what the whole table says."


def what_samples_hide() -> str:
    return (
        "The only chance is who was sampled. That stays hidden if the answer of one sample is published and nobody "
        "learns who was in it. The answer of the whole table has no chance in it and is not covered; what holds for "
        "the whole table is not hidden; and the answer of another sample is a further publication."
    )


def presence_not_measured() -> str:
    return "Judged on a random database alone: an audit of this kind does not say what is hidden on the day."


def what_it_changed(ignoring: float, knowing: float, epsilon: float) -> str:
    """The figure beside the one to somebody who knows nothing, the paper's."""
    return (
        f"Ignoring what is known, delta would be {number(ignoring)} at epsilon {epsilon:g}; knowing it, it is "
        f"{number(knowing)}."
    )
