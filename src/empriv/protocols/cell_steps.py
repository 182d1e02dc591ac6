"""Steps that hide cells of a table after the query: where few people make up a cell, named cells, and what hides those.

They come after the query and before all other steps on answers. What they look at is asked of the same rows, with
everyone and without each individual, so that a cell that is hidden only without somebody is an outcome of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from empriv.base.text import visible
from empriv.collecting.queries import Query
from empriv.errors import InputError, QueryError
from empriv.measuring.tables.relations import relations_of
from empriv.protocols.query_steps import contributions
from empriv.results import FloatArray, Outcome, Results
from empriv.words.sentences import signed_sum


@dataclass(frozen=True)
class HiddenCells:
    """Whether cells that are always hidden can be had back.

    Made by `empriv.protocols.check_hidden`.

    Attributes
    ----------
    hidden : the cells, by name
    recovered : those that follow from the published cells, each with how, in words
    further : cells to hide as well, so that none follows; empty if none does
    possible : whether hiding further cells helps

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b, c = rng.normal(100.0, 10.0, (3, 60))
    >>> parts = {"a": a, "b": b, "c": c, "total": a + b + c}
    >>> moves = {"a": 1.0, "b": 0.0, "c": 0.0, "total": 1.0}
    >>> table = {name: empriv.Results.from_arrays(x, [x - moves[name]]) for name, x in parts.items()}
    >>> checked = empriv.protocols.check_hidden(empriv.Results.stack(table), ["a"])
    >>> checked.recovered
    {'a': 'total - b - c'}
    """

    hidden: tuple[str, ...]
    recovered: Mapping[str, str] = field(default_factory=dict)
    further: tuple[str, ...] = ()
    possible: bool = True

    def __str__(self) -> str:
        if not self.recovered:
            return "No hidden cell follows from the published ones."
        lines = [f"{name} can be had back: it is {how}." for name, how in self.recovered.items()]
        hint = f"Hide {', '.join(self.further)} as well." if self.possible else "Nothing else can be hidden to help."
        return "\n".join(visible(line) for line in [*lines, hint])


def check_hidden(results: Results, cells: Collection[str], *, keep: Collection[str] = ()) -> HiddenCells:
    """Whether cells that you hide can be had back from the others, and which further ones to hide.

    Parameters
    ----------
    results : of the whole table, from `collect`, or those of an audit (``audit.results``)
    cells : names of the cells to hide
    keep : names of cells that must be published

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b, c = rng.normal(100.0, 10.0, (3, 60))
    >>> parts = {"a": a, "b": b, "c": c, "total": a + b + c}
    >>> moves = {"a": 1.0, "b": 0.0, "c": 0.0, "total": 1.0}
    >>> table = {name: empriv.Results.from_arrays(x, [x - moves[name]]) for name, x in parts.items()}
    >>> print(empriv.protocols.check_hidden(empriv.Results.stack(table), ["a"]))
    a can be had back: it is total - b - c.
    Hide c as well.
    """
    if not isinstance(results, Results):
        raise InputError(f"`results` must be Results of a table, got {type(results).__name__}. Hint: audit.results.")
    relations = relations_of(results)
    assert results.components is not None
    names = results.components
    hidden, kept = places_of("cells", cells, names), places_of("keep", keep, names)
    if np.any(hidden & kept):
        raise InputError("`keep` must name other cells than `cells`, got a cell in both.")
    follows = relations.recovered(hidden)
    formulas = {names[cell]: relations.formula(int(cell), hidden) for cell in np.flatnonzero(follows)}
    further = relations.complement(hidden, kept)
    both = hidden.copy()
    both[list(further)] = True
    return HiddenCells(
        hidden=tuple(name for name, is_hidden in zip(names, hidden, strict=True) if is_hidden),
        recovered={
            cell: "constant" if weights is None else signed_sum(weights.tolist(), names)
            for cell, weights in formulas.items()
        },
        further=tuple(names[cell] for cell in further),
        possible=not relations.recovered(both)[hidden].any(),
    )


def places_of(argument: str, cells: Collection[str], names: Sequence[str]) -> npt.NDArray[np.bool_]:
    """(cells,) which of the table's cells are named."""
    unknown = [cell for cell in cells if cell not in names]
    if unknown or isinstance(cells, str):
        raise InputError(
            f"`{argument}` must name cells of the table, which has {len(names):,}; got {len(unknown):,} that it does "
            "not have. Hint: names are in `results.components`."
        )
    return np.array([name in cells for name in names], bool)


Ask = Callable[[Callable[[Query], Query]], Results]
"""Asks the protocol's queries again, changed, of the same rows; no cell is hidden in what it returns."""

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Dominance:
    """Hide a cell of which a few individuals make up too much.

    Attributes
    ----------
    column : what they contribute is the sum of its sizes; None counts rows
    top : how many individuals
    share : the most that they may make up of the cell
    """

    column: str | None
    top: int
    share: float
    kind: ClassVar[str] = "dominance"
    randomised: ClassVar[bool] = False

    def hide(self, results: Results, ask: Ask) -> Results:
        parts = ask(lambda query: contributions(query, self.column))
        same = np.array_equal(parts.starts, results.starts) and parts.components == results.components
        if not same:
            raise QueryError("The query must have the same cells whatever is computed in them, got other ones.")
        columns = 1 if results.components is None else len(results.components)
        total, without = (
            np.where(outcomes == Outcome.NUMBER, values, 0.0).reshape(-1, parts.draws or 1, columns)
            for values, outcomes in ((parts.q, parts.outcomes), (parts.entry_q, parts.entry_outcomes))
        )
        hidden, entry_hidden = np.zeros(total.shape, bool), np.zeros(without.shape, bool)
        order = np.argsort(parts.entry_database, kind="stable")
        ends = np.searchsorted(parts.entry_database[order], np.arange(parts.n_databases + 1))
        for database in range(parts.n_databases):
            entries = order[ends[database] : ends[database + 1]]
            # a difference of sums that were rounded: rounding must not count as a contribution
            own = total[database] - without[entries]
            own = np.where(own > _ROUNDING * total[database], own, 0.0)
            largest = np.zeros((self.top + 1, *own.shape[1:]))
            many = min(self.top + 1, len(own))
            largest[:many] = -np.sort(-own, axis=0)[:many]
            sum_top, last = largest[: self.top].sum(axis=0), largest[self.top - 1]
            hidden[database] = self._dominated(sum_top, total[database])
            # whoever is among the first leaves their place to the next
            others = np.where(own >= last, sum_top + largest[self.top] - own, sum_top)
            entry_hidden[entries] = self._dominated(others, without[entries])
        return with_hidden(results, hidden.reshape(results.q.shape), entry_hidden.reshape(results.entry_q.shape))

    def _dominated(self, largest: FloatArray, total: FloatArray) -> npt.NDArray[np.bool_]:
        return np.asarray(largest > self.share * total * (1 + _ROUNDING))

    @property
    def words(self) -> str:
        who = "one individual makes" if self.top == 1 else f"{self.top} individuals make"
        of = "its rows" if self.column is None else f"its {self.column}"
        return f"no answer where {who} up more than {100 * self.share:g}% of {of}"


@dataclass(frozen=True)
class NamedCells:
    """Hide cells that are named, always."""

    cells: tuple[str, ...]
    kind: ClassVar[str] = "hidden"
    randomised: ClassVar[bool] = False

    def hide(self, results: Results, ask: Ask) -> Results:  # noqa: ARG002 — the names suffice
        if results.components is None:
            raise QueryError("Hidden cells must be those of a table, got a query of one number.")
        places = places_of("cells", self.cells, results.components)
        return with_hidden(
            results, np.broadcast_to(places, results.q.shape), np.broadcast_to(places, results.entry_q.shape)
        )

    @property
    def words(self) -> str:
        return f"{', '.join(self.cells)} hidden"


@dataclass(frozen=True)
class Complementary:
    """Hide further cells, so that no hidden one follows from those that are published."""

    keep: tuple[str, ...]
    kind: ClassVar[str] = "complementary"
    randomised: ClassVar[bool] = False

    def hide(self, results: Results, ask: Ask) -> Results:
        whole = ask(lambda query: query)
        relations = relations_of(whole)
        assert results.components is not None
        kept = places_of("keep", self.keep, results.components)

        def further(outcomes: npt.NDArray[np.int8], before: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
            # A cell without any rows hides nothing, and is not hidden: readers may know that it is empty.
            empty = (before == Outcome.NULL).reshape(-1, len(kept))
            missing = (outcomes == Outcome.NULL).reshape(-1, len(kept)) & ~empty
            patterns, which = np.unique(np.hstack((missing, empty)), axis=0, return_inverse=True)
            hidden = np.zeros((len(patterns), len(kept)), bool)
            for row, (now, known) in enumerate(patterns.reshape(-1, 2, len(kept))):
                hidden[row, list(relations.complement(now, (kept | known) & ~now))] = True
            return np.asarray(hidden[which.reshape(-1)].reshape(outcomes.shape))

        return with_hidden(
            results,
            further(results.outcomes, whole.outcomes),
            further(results.entry_outcomes, whole.entry_outcomes),
        )

    @property
    def words(self) -> str:
        never = f", never {', '.join(self.keep)}" if self.keep else ""
        return f"further cells hidden{never}, so that none follows from the others"


CellStep = Dominance | NamedCells | Complementary


def with_hidden(results: Results, hidden: npt.NDArray[np.bool_], entry_hidden: npt.NDArray[np.bool_]) -> Results:
    """The results with NULL where cells are hidden, with everyone and without each individual."""
    return replace(
        results,
        q=np.where(hidden, np.nan, results.q),
        outcomes=np.where(hidden, np.int8(Outcome.NULL), results.outcomes),
        entry_q=np.where(entry_hidden, np.nan, results.entry_q),
        entry_outcomes=np.where(entry_hidden, np.int8(Outcome.NULL), results.entry_outcomes),
        postprocessed_from=None,
    )
