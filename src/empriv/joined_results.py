"""Several results as one: of further databases, or of several queries on the same databases.

`Results.with_databases` and `Results.stack` are what is called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError
from empriv.results import Cell, IntArray, Results, Verified, entry_keys


def with_databases(results: Results, more: Results) -> Results:
    """The work of `Results.with_databases`."""
    if results.cells is not None and more.cells is not None and results.components != more.components:
        further = [(n, c) for n, c in zip(more.components or (), more.cells, strict=True) if c not in results.cells]
        names = (*(results.components or ()), *(name for name, _ in further))
        cells = (*results.cells, *(cell for _, cell in further))
        return with_databases(results.with_components(names, cells), more.with_components(names, cells))
    if (results.components, results.draws) != (more.components, more.draws):
        raise InputError("`more` must hold results of the same query, got other components or draws.")
    databases = _joined_labels("databases", results.databases, more.databases)
    if len(np.unique(databases)) != len(databases):
        raise InputError("The rows must be of further databases, got one with a label that is there already.")
    people = np.unique(_joined_labels("individuals", results.individuals, more.individuals))
    # numbers with a fraction are labels as text, in the order of the numbers: those stay as they are
    rising = bool(np.all(results.databases[1:] > results.databases[:-1]))
    order = np.argsort(databases, kind="stable") if rising else np.arange(len(databases))
    place = np.argsort(order)
    offsets = (0, results.n_databases)
    parts = (results, more)
    owner = np.concatenate(
        [np.repeat(np.searchsorted(people, part.individuals.astype(people.dtype)), part.presence) for part in parts]
    )
    database = place[np.concatenate([p.entry_database + offset for p, offset in zip(parts, offsets, strict=True)])]
    entries = np.lexsort((database, owner))

    def joined(name: str, kept: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        return np.concatenate([getattr(part, name) for part in parts])[kept]

    return replace(
        results,
        q=joined("q", order),
        outcomes=joined("outcomes", order),
        databases=databases[order],
        individuals=people,
        starts=np.searchsorted(owner[entries], np.arange(len(people) + 1)).astype(np.int64),
        entry_database=database[entries].astype(np.int32),
        entry_q=joined("entry_q", entries),
        entry_outcomes=joined("entry_outcomes", entries),
        postprocessed_from=None
        if results.postprocessed_from is None or more.postprocessed_from is None
        else with_databases(results.postprocessed_from, more.postprocessed_from),
        rows=None if results.rows is None else results.rows.with_databases(more.rows, order),
        verified=_verified_together((results, more), sum_of_databases=True),
    )


def stacked(parts: Mapping[str, Results]) -> Results:
    """The work of `Results.stack`."""
    if not parts:
        raise InputError("`parts` must hold the results of at least one query, got none.")
    each = list(parts.values())
    first = each[0]
    counts = {part.draws for part in each} - {None}
    if len(counts) > 1:
        raise InputError(f"Queries audited together must have as many draws each, got {len(counts)} numbers.")
    draws = counts.pop() if counts else None
    aligned = [_aligned(part, first) for part in each]
    keys = [entry_keys(part) for part in aligned]
    union = np.unique(np.concatenate(keys))
    owner, database = np.divmod(union, first.n_databases)
    columns = [_columns(part, key, union, database, draws) for part, key in zip(aligned, keys, strict=True)]
    joined = [np.concatenate(arrays, axis=-1) for arrays in zip(*columns, strict=True)]
    q, outcomes, entry_q, entry_outcomes = joined
    return Results(
        q=q,
        outcomes=outcomes,
        databases=first.databases,
        individuals=first.individuals,
        starts=np.searchsorted(owner, np.arange(first.n_individuals + 1)).astype(np.int64),
        entry_database=database.astype(np.int32),
        entry_q=entry_q,
        entry_outcomes=entry_outcomes,
        components=_distinct(
            [
                name if inner is None else f"{name}: {inner}" if len(parts) > 1 else inner
                for name, part in parts.items()
                for inner in (part.components or (None,))
            ]
        ),
        draws=draws,
        postprocessed_from=_stacked_sources(parts),
        ordered=first.ordered,
        cells=_stacked_cells(parts),
        rows=first.rows,
        verified=_verified_together(each, sum_of_databases=False),
    )


def _verified_together(parts: Sequence[Results], *, sum_of_databases: bool) -> Verified | None:
    """What was verified of each of several queries on the same databases, or of one query on databases of each."""
    known = [part.verified for part in parts if part.verified is not None]
    if len(known) < len(parts):
        return None
    databases = [one.databases for one in known]
    return Verified(sum(databases) if sum_of_databases else min(databases), min(one.deletions for one in known))


def _stacked_cells(parts: Mapping[str, Results]) -> tuple[Cell, ...] | None:
    """Where the numbers of several queries stand; None if none of them groups.

    Where two would stand in the same place, each query's are a table of its own.
    """
    if all(part.cells is None for part in parts.values()):
        return None
    cells: list[tuple[str, Cell]] = []
    for name, part in parts.items():
        cells += [(name, cell) for cell in part.cells or map(Cell, part.components or (name,))]
    if len({cell for _, cell in cells}) == len(cells):
        return tuple(cell for _, cell in cells)
    return tuple(Cell(f"{name}: {cell.number}", cell.keys) for name, cell in cells)


def _stacked_sources(parts: Mapping[str, Results]) -> Results | None:
    """What several results were made from, together: a part that was made from nothing else stands for itself."""
    if all(part.postprocessed_from is None for part in parts.values()):
        return None
    return stacked({name: part.postprocessed_from or part for name, part in parts.items()})


def _aligned(part: Results, first: Results) -> Results:
    """The same results with databases and individuals in the order of ``first``."""
    if np.array_equal(part.databases, first.databases) and np.array_equal(part.individuals, first.individuals):
        return part
    order = []
    for mine, target in ((part.databases, first.databases), (part.individuals, first.individuals)):
        place = np.argsort(mine, kind="stable")
        if len(mine) != len(target) or not np.array_equal(mine[place], np.sort(target)):
            raise InputError("Queries audited together must be on the same databases and individuals.")
        order.append(place[np.argsort(np.argsort(target, kind="stable"), kind="stable")])
    databases, individuals = order
    moved = part.on_databases(databases).of_individuals(individuals)
    return replace(moved, databases=first.databases, individuals=first.individuals)


def _joined_labels(name: str, mine: npt.NDArray[Any], more: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Labels of both, which must be of one kind: 7 is not "7"."""
    if mine.dtype.kind != more.dtype.kind and not (mine.dtype.kind in "iu" and more.dtype.kind in "iu"):
        raise InputError(f"`more` must name its {name} in the same way, got labels of another type.")
    return np.concatenate((mine, more))


def _columns(
    part: Results, keys: IntArray, union: IntArray, database: IntArray, draws: int | None
) -> list[npt.NDArray[Any]]:
    """The arrays of `_ANSWERS` of one part at all entries, with axes for draws and components."""
    place = np.searchsorted(union, keys)

    def full(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if draws is not None and part.draws is None:
            array = np.repeat(array[:, None], draws, axis=1)
        return array[..., None] if part.components is None else array

    def at_all(with_all: npt.NDArray[Any], without: npt.NDArray[Any]) -> npt.NDArray[Any]:
        entries = with_all[database]
        entries[place] = without
        return full(entries)

    return [
        full(part.q), full(part.outcomes), at_all(part.q, part.entry_q), at_all(part.outcomes, part.entry_outcomes),
    ]  # fmt: skip


def _distinct(names: Sequence[str]) -> tuple[str, ...]:
    """The same names, the second of a kind as "name (2)"."""
    out: list[str] = []
    for name in names:
        free, k = name, 2
        while free in out:
            free, k = f"{name} ({k})", k + 1
        out.append(free)
    return tuple(out)
