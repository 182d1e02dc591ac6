"""Contexts: how private the results are where what is known has one value, such as Sundays.

Somebody who is only there on Sundays has a larger influence on a Sunday than on average. In a context the person has
one of the influences that they had in it (none where they were away), and the others' results are what is left on all
databases, whose law does not depend on what is known. Numbers are cut into a few groups of equal size.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from empriv.measuring.given.presence import PresenceRisk
from empriv.measuring.given.residuals import Left
from empriv.measuring.given.terms import Term
from empriv.results import IntArray

LEAST = 5  # databases that a context must have
GROUPS = 5  # of a number, at most


@dataclass(frozen=True)
class Context:
    """One value of what is known.

    Attributes
    ----------
    name, value : the quantity, and what it is here: a category, or a range of numbers
    databases : how many have it
    present : in how many of these the person is
    delta : of the person in this context
    """

    name: str
    value: str
    databases: int
    present: int
    delta: float


def contexts_of(presence: PresenceRisk, left: Left, row: int, epsilon: float) -> list[Context]:
    """delta of one person, by position, in every context that enough databases have."""
    there = np.zeros(left.original.n_databases, bool)
    there[left.original.entry_database[left.original.starts[row] : left.original.starts[row + 1]]] = True
    out = []
    for term in left.fit.terms:
        for value, databases in groups_of(term):
            delta = float(presence.in_context(databases).curve_of(row, np.array([epsilon]))[0])
            out.append(Context(term.name, value, len(databases), int(np.count_nonzero(there[databases])), delta))
    return out


def groups_of(term: Term) -> list[tuple[str, IntArray]]:
    """The contexts of one quantity: the label of each, and the databases in it."""
    if term.values is None:
        return []
    if term.is_category:
        labels = np.unique(term.values)
        groups = [(str(label), np.flatnonzero(term.values == label)) for label in labels]
    else:
        values = term.values.astype(float)
        count = min(GROUPS, len(values) // (2 * LEAST))
        edges = np.quantile(values, np.linspace(0, 1, count + 1)[1:-1]) if count > 1 else np.zeros(0)
        place = np.searchsorted(edges, values, side="right")
        groups = [
            (
                f"{values[place == group].min():.6g} to {values[place == group].max():.6g}",
                np.flatnonzero(place == group),
            )
            for group in np.unique(place)
        ]
    return [(label, databases) for label, databases in groups if len(databases) >= LEAST]
