"""Sentences about tables: what the figures are of, which cells follow from others, and what would help."""

from __future__ import annotations

from collections.abc import Sequence

from empriv.words.sentences import number

_MOST_LISTED = 3


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
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]
