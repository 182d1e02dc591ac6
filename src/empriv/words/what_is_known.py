"""What an adversary knows, and how well that was measured, in sentences."""

from __future__ import annotations

from collections.abc import Sequence

from empriv.words.sentences import number

_CALENDAR = {name: f"the {name}" for name in ("trend", "weekday", "month", "season", "previous answer")}


def conditions(kind: str, adversaries: int, count: int, least: float, most: float, n: int) -> str:
    """Who the adversary is, and over how many values of what they know delta is the largest."""
    adversary = {
        "own contribution": (
            f"Each of {adversaries:,} individuals is taken for an adversary who knows their own contribution"
        ),
        "buckets": "The adversary knows in which bucket a known quantity lies",
        "weighted": "The adversary knows a quantity of each database",
    }[kind]
    if count == 1:
        only = "one bucket" if kind == "buckets" else "one value of it"
        return f"{adversary}; there is {only} only, seen through {most:.0f} effective databases of {n:,}."
    values = "buckets" if kind == "buckets" else "values of it"
    return (
        f"{adversary}; delta is the largest over {count:,} {values}, each seen through {least:.0f} to {most:.0f} "
        f"effective databases of {n:,}."
    )


def some_adversaries(looked_at: int, of: int) -> str:
    return f"Only {looked_at:,} of {of:,} adversaries were measured, drawn at random: another may know more."


def contributions_not_given() -> str:
    return (
        "Contributions were not given: each individual is taken to know the change that their rows make to the result, "
        "which is their contribution if the query adds up over individuals (a sum, a count) but not for averages, "
        "ratios and quantiles."
    )


def few_effective(count: int, of: int, least: float) -> str:
    return (
        f"{count:,} of {of:,} conditions have fewer than {least:.0f} effective databases: their delta is mostly noise, "
        "and too large rather than too small."
    )


def left_out(count: int, least: float) -> str:
    return (
        f"{count:,} values of what is known were left out, because fewer than {least:.0f} effective databases have "
        "them: nothing is said about an adversary who sees one of these."
    )


def adversaries_left_out(count: int) -> str:
    return f"{count:,} adversaries were left out altogether: too few databases for any value."


def not_a_sum(opposed: int, judged: int) -> str:
    return (
        f"NOT A SUM: for {opposed:,} of {judged:,} individuals, the change that they make falls as the result without "
        "them rises, as in an average and not in a sum. Knowing it is knowing more than one's own contribution: do not "
        "rely on these figures. Hint: OwnContribution(contributions=...)."
    )


def determined(views: int, kind: str) -> str:
    if kind != "own contribution":
        return "EXACT LEAK: what is known determines the result, so that any change shows."
    return (
        f"EXACT LEAK: what is known determines the result in {views:,} views of the databases, so that any change "
        "shows. Hint: for an average, give OwnContribution(contributions=...)."
    )


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


def given_ladder(name: str, p: float) -> str:
    where = {
        "nothing": "with nothing counted as known",
        "logarithm": "at the logarithm",
        "calendar": "at the calendar",
        "previous": "at the previous answer",
        "lags": "at the answers 1, 2 and 7 before",
        "spread": "at a spread that changes",
    }[name]
    if p > 0.05:
        return f"The ladder stopped {where}, where nothing suspicious is left (p = {p:.3f})."
    return f"The ladder ended {where}, and what is left still departs from chance (p = {p:.3f})."


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
    hint = ' Hint: name what is known of each as the adversary, such as its size, "count(*)".'
    return f"Nothing was counted as known: {reason}.{hint if why == 'no-order' else ''}"


def given_presence() -> str:
    return (
        "Given presence: the law of the others on all databases, against it plus one of the influences that the person "
        "had when they were there. Bounds hold for influences as they were seen, if the others do not depend on "
        "whether the person is there."
    )


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
