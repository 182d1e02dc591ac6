"""Contexts: how private the results are where what is known has one value, such as Sundays.

Somebody who is only there on Sundays has a larger influence on a Sunday than on average. In a context the person has
one of the influences that they had in it (none where they were away), and the others' results are what is left on all
databases, whose law does not depend on what is known. Numbers are cut into a few groups of equal size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.measuring.given.presence import PresenceRisk
from empriv.measuring.given.residuals import Left
from empriv.measuring.given.terms import Term
from empriv.results import FloatArray, IntArray

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
    deltas = context_curves(presence, left, row, np.array([epsilon]))[:, 0].tolist()
    return [
        Context(name, value, len(databases), int(np.count_nonzero(there[databases])), delta)
        for (name, value, databases), delta in zip(_every(left), deltas, strict=True)
    ]


def context_curves(presence: PresenceRisk, left: Left, row: int, epsilons: FloatArray) -> FloatArray:
    """(contexts, epsilons) the same at several epsilons, which rise."""
    curves = [presence.in_context(databases).curve_of(row, epsilons) for _, _, databases in _every(left)]
    return np.reshape(curves, (len(curves), len(epsilons)))


def _every(left: Left) -> list[tuple[str, str, IntArray]]:
    """Quantity, value and databases of every context."""
    labels = left.original.databases
    return [(term.name, *group) for term in left.fit.terms for group in groups_of(term, labels)]


def largest_in_context(left: Left) -> FloatArray:
    """(individuals,) mean influence of each, weighed beside the spread, in the context where it is largest."""
    original = left.original
    n, entries = original.n_databases, len(original.entry_database)
    with np.errstate(invalid="ignore"):
        change = original.q[original.entry_database] - original.entry_q
    size = np.abs(np.nan_to_num(change.reshape(entries, original.draws or 1))).mean(axis=1)
    size *= left.fit.calm[original.entry_database]
    before = np.zeros(entries + 1)
    out = np.zeros(original.n_individuals)
    for term in left.fit.terms:
        for _, databases in groups_of(term, original.databases):
            inside = np.zeros(n, bool)
            inside[databases] = True
            np.cumsum(size * inside[original.entry_database], out=before[1:])
            np.maximum(out, np.diff(before[original.starts]) / len(databases), out=out)
    return out


def average_of(contexts: Sequence[Context], databases: int) -> float:
    """delta on average over one known quantity, the one for which it is largest; a context left out counts as 0."""
    sums: dict[str, float] = {}
    for context in contexts:
        sums[context.name] = sums.get(context.name, 0.0) + context.delta * context.databases / databases
    return max(sums.values(), default=0.0)


def groups_of(term: Term, labels: npt.NDArray[Any]) -> list[tuple[str, IntArray]]:
    """The contexts of one quantity: the name of each, and the databases in it.

    ``labels`` are those of the databases: a part of the time is named after its first and last.
    """
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
        groups = []
        for group in np.unique(place):
            databases = np.flatnonzero(place == group)
            ends = databases[[np.argmin(values[databases]), np.argmax(values[databases])]]
            first, last = labels[ends].tolist() if term.name == "trend" else [f"{value:.6g}" for value in values[ends]]
            groups.append((f"{first} to {last}", databases))
    return [(label, databases) for label, databases in groups if len(databases) >= LEAST]
