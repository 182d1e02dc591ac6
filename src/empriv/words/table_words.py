"""Sentences about tables: what the figures are of, which cells follow from others, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from empriv.base.text import shortened
from empriv.words.sentences import listed, number, people, percent

if TYPE_CHECKING:  # numerics are loaded after the help is shown
    from empriv.results import Cell

ALL = "all"  # of the values of a column, in a margin
_MOST_LISTED = 3


def cells_in_words(cells: Sequence[Cell]) -> list[str]:
    """Cells as people say them: ``ward A, age 60+``, with the number that stands there if there are several."""
    several = len({cell.number for cell in cells}) > 1
    keys = [", ".join(f"{column} {value}".strip() for column, value in cell.keys) or ALL for cell in cells]
    return [shortened(f"{c.number}: {k}" if several else k, 80) for c, k in zip(cells, keys, strict=True)]


def riskiest_cells(cells: Sequence[tuple[str, float, int]]) -> str:
    """The cells that expose a person most: name, delta, and how many individuals they expose."""
    listed = "; ".join(f"{name}: {number(delta)}, {people(count)}" for name, delta, count in cells)
    return f"The riskiest cells, given all others (the largest delta_i, and how many they expose): {listed}."


def cells_that_follow(follow: int, count: int) -> str:
    """That margins tell nothing more, and what hiding a cell beside them does."""
    number_of = "One" if follow == 1 else f"{follow:,}"
    follows, adds = ("follows", "it adds") if follow == 1 else ("follow", "they add")
    return (
        f"{number_of} of the {count:,} numbers {follows} from the others, as a total does from its cells: {adds} "
        "nothing to anybody's delta. But hiding one cell beside its total changes nothing either: it is the total "
        "minus the other cells."
    )


def many_outcomes(outcomes: Sequence[tuple[str, float, int]]) -> str:
    """Point masses, too many to list: name, share, and how many individuals can move it."""
    name, mass, _ = outcomes[0]
    most = max(count for _, _, count in outcomes)
    return (
        f"{len(outcomes):,} outcomes are point masses, compared by counts; the most frequent is {name} "
        f"({percent(mass)}). Up to {people(most)} can move such a share."
    )


def more_leaks(leaks: Sequence[tuple[int, float]]) -> str:
    """Exact leaks beyond those that are listed: how many individuals each gives away, and in which share at most."""
    which = "1 more" if len(leaks) == 1 else f"{len(leaks):,} more, each"
    most, share = max(count for count, _ in leaks), max(share for _, share in leaks)
    return f"EXACT LEAK: {which} of up to {people(most)}, in up to {percent(share)} of databases."


def remedy_sentence(had_back: bool, hide: Sequence[str], neighbour: str | None, delta: float) -> str:
    """What would protect the people of a cell."""
    if had_back and hide:
        hiding = f"Hidden alone it can be had back from the others: hide {_listed(hide)} as well"
    elif had_back:
        hiding = "Hiding it does not help: it can be had back from the others"
    else:
        hiding = "Hide it"
    if neighbour is None:
        return f"{hiding}."
    return f"{hiding}, or add it to {neighbour}: delta is then {number(delta, 2)}."


def _listed(names: Sequence[str]) -> str:
    if len(names) > _MOST_LISTED:
        return f"{', '.join(names[:_MOST_LISTED])} and {len(names) - _MOST_LISTED:,} more"
    return listed(names)
