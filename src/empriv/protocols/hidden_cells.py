"""Whether cells that somebody hides can be had back from the published ones, in words."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from empriv.base.harmless import visible
from empriv.errors import InputError
from empriv.measuring.tables.relations import relations_of
from empriv.results import Results
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
