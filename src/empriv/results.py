"""`Results`: query results with everyone, and without each individual.

This is the one hand-over from collecting to measuring. It is sparse: an individual has an entry only for the
databases they are in, since elsewhere the result without them is the result with everyone. Results that
were computed by other means start here, with `Results.from_arrays` or the constructor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from functools import cached_property, reduce
from os import PathLike
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.base.row_sketches import RowSketches
from empriv.base.storage import MOST_SOURCES, WRONG_FACTS, read_archive, write_archive
from empriv.base.text import table_html
from empriv.errors import FileFormatError, InputError

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


class Outcome(IntEnum):
    """What a query gave. All but NUMBER are atoms: outcomes of their own that no smoothing may blur.

    Examples
    --------
    >>> [outcome.name for outcome in empriv.Outcome]
    ['NUMBER', 'NULL', 'NAN', 'PLUS_INFINITY', 'MINUS_INFINITY', 'ERROR']
    """

    NUMBER = 0
    NULL = 1
    NAN = 2
    PLUS_INFINITY = 3
    MINUS_INFINITY = 4
    ERROR = 5


@dataclass(frozen=True)
class Cell:
    """Where a number stands in a published table.

    Attributes
    ----------
    number : what is published there, such as ``count(*)``; cells that differ in it alone are of different tables
    keys : the columns that the table is grouped by, each with the value that the cell is of; none for a margin
    """

    number: str
    keys: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Verified:
    """On how much it was verified that who is left out of results is really out of them.

    Attributes
    ----------
    databases : on how many databases people were really deleted
    deletions : how many times half of the people of each
    """

    databases: int
    deletions: int

    def __str__(self) -> str:
        several = "database" if self.databases == 1 else "databases"
        times = "once" if self.deletions == 1 else f"{self.deletions} times"
        return f"verified on {self.databases} {several} by really deleting half of the people, {times}"

    def to_json(self) -> dict[str, int]:
        """Fit for JSON."""
        return {"databases": self.databases, "deletions": self.deletions}


@dataclass(frozen=True, eq=False)
class Results:
    """Query results with everyone, and without each individual.

    Made by `empriv.collect`, by `Results.from_arrays` from arrays of your own, and by `empriv.load` from a file.

    The entries of individual ``i`` are ``slice(starts[i], starts[i + 1])`` of the three ``entry_`` arrays,
    in increasing order of database. A result has trailing axes for draws, if the query is randomised, and for
    components, if it is a vector: ``()``, ``(draws,)``, ``(components,)`` or ``(draws, components)``.

    Attributes
    ----------
    q : array (n_databases, ...)
        Result on each database; NaN where the outcome is not a number.
    outcomes : int8 array, shaped like ``q``
        An `Outcome` for each result.
    databases, individuals : arrays of labels
    starts : int64 array (n_individuals + 1,)
    entry_database : int32 array (n_entries,)
        Which database the entry is about, as an index.
    entry_q : array (n_entries, ...)
        Result on that database without the individual; NaN where the outcome is not a number.
    entry_outcomes : int8 array, shaped like ``entry_q``
    components : names of a vector query's components, or None for a scalar query
    draws : number of draws per database of a randomised query, or None for a deterministic one
    postprocessed_from : the answers that these were computed from, number by number, on the same databases and with
        the same entries: they tell at least as much. None if these are the first.
    ordered : False says that the databases have no order, whatever their labels look like
    cells : where each component stands in a table, for a query with GROUP BY; None if nothing was grouped
    rows : sketches of the rows of each database, by which a ledger knows them again; None if nobody made them
    verified : on how much it was verified that who is left out is really out; None if it was not

    Examples
    --------
    >>> results = empriv.Results.from_arrays([10.0, 12.0, 11.0], [[9.0, 12.0, 10.5]], individuals=["Ada"])
    >>> results.without("Ada")
    array([ 9. , 12. , 10.5])
    """

    q: FloatArray
    outcomes: npt.NDArray[np.int8]
    databases: npt.NDArray[Any]
    individuals: npt.NDArray[Any]
    starts: IntArray
    entry_database: npt.NDArray[np.int32]
    entry_q: FloatArray
    entry_outcomes: npt.NDArray[np.int8]
    components: tuple[str, ...] | None = None
    draws: int | None = None
    postprocessed_from: Results | None = None
    ordered: bool = True
    cells: tuple[Cell, ...] | None = None
    rows: RowSketches | None = field(default=None, repr=False)
    verified: Verified | None = None

    def __post_init__(self) -> None:
        draws = () if self.draws is None else (self.draws,)
        trailing = draws if self.components is None else (*draws, len(self.components))
        n, entries = len(self.databases), len(self.entry_database)
        if n == 0:
            raise InputError("There must be at least one database, got 0.")
        for name, shape in (
            ("q", (n, *trailing)), ("outcomes", (n, *trailing)), ("entry_q", (entries, *trailing)),
            ("entry_outcomes", (entries, *trailing)), ("starts", (len(self.individuals) + 1,)),
            ("entry_database", (entries,)),
        ):  # fmt: skip
            array = getattr(self, name)
            if array.shape != shape:
                raise InputError(f"`{name}` must have shape {shape}, got {array.shape}.")
            kind, numbers = ("f", "floats") if name in ("q", "entry_q") else ("i", "integers")
            if array.dtype.kind != kind:
                raise InputError(f"`{name}` must hold {numbers}, got values of type {array.dtype}.")
        for name, values, codes in (("q", self.q, self.outcomes), ("entry_q", self.entry_q, self.entry_outcomes)):
            if codes.size and not (codes.min() >= 0 and codes.max() < len(Outcome)):
                raise InputError(f"`{name.replace('q', 'outcomes')}` must hold outcomes, 0 to {len(Outcome) - 1}.")
            if not (np.isfinite(values) | (codes != Outcome.NUMBER)).all():
                raise InputError(f"`{name}` must be finite wherever its outcome is a number.")
        if self.starts[0] != 0 or self.starts[-1] != entries or np.any(np.diff(self.starts) < 0):
            raise InputError("`starts` must rise from 0 to the number of entries.")
        if entries and not (0 <= self.entry_database.min() and self.entry_database.max() < n):
            raise InputError(f"`entry_database` must hold indices from 0 to {n - 1}.")
        if self.cells is not None and len(self.cells) != len(self.components or ()):
            raise InputError(f"`cells` must be one for each component, got {len(self.cells)}.")
        if self.rows is not None and len(self.rows) != n:
            raise InputError(f"`rows` must be sketches of {n} databases, got {len(self.rows)}.")
        before = self.postprocessed_from
        if before is not None and not (
            len(before.components or ()) == len(self.components or ())
            and before.n_databases == n
            and np.array_equal(before.starts, self.starts)
            and np.array_equal(before.entry_database, self.entry_database)
        ):
            raise InputError(
                "`postprocessed_from` must have the same databases, entries and numbers as what is made from it."
            )

    def __repr__(self) -> str:
        several = "" if self.components is None else f", {len(self.components)} components"
        drawn = "" if self.draws is None else f", {self.draws} draws"
        return f"Results({self.n_databases} databases, {self.n_individuals} individuals{several}{drawn})"

    def _repr_html_(self) -> str:
        facts = [("databases", self.n_databases), ("individuals", self.n_individuals), ("entries", len(self.entry_q))]
        if self.components is not None:
            facts.append(("numbers", len(self.components)))
        if self.draws is not None:
            facts.append(("draws of each", self.draws))
        return table_html("Results of a query", [name for name, _ in facts], [[f"{count:,}" for _, count in facts]])

    @property
    def n_databases(self) -> int:
        return len(self.databases)

    @property
    def n_individuals(self) -> int:
        return len(self.individuals)

    @property
    def presence(self) -> IntArray:
        """In how many databases each individual has an entry."""
        return np.diff(self.starts)

    def check_values(self) -> None:
        """Refuse what no query gave: numbers that are none, labels twice, people twice in one database."""
        for q, outcomes in ((self.q, self.outcomes), (self.entry_q, self.entry_outcomes)):
            if not np.array_equal(np.isfinite(q), outcomes == Outcome.NUMBER):
                raise InputError("`q` must be finite where the outcome is a number, and NaN elsewhere.")
        for name, labels in (("databases", self.databases), ("individuals", self.individuals)):
            if labels.ndim != 1 or len(np.unique(labels)) != len(labels):
                raise InputError(f"`{name}` must hold distinct labels.")
        if self.components is not None and len(set(self.components)) != len(self.components):
            raise InputError("`components` must have distinct names.")
        if np.any(np.diff(entry_keys(self)) <= 0):
            raise InputError("`entry_database` must rise for each individual.")

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all of it: labels as texts, numbers to the last bit."""
        digest = hashlib.sha256(json.dumps([self.components, self.draws]).encode())
        for name in _ARRAYS:
            array = getattr(self, name)
            if name in _LABELS:
                content = json.dumps([str(label) for label in array.tolist()]).encode()
            else:
                content = np.ascontiguousarray(array).tobytes()
            digest.update(f"{name} {len(content)}\n".encode() + content)
        return digest.hexdigest()

    @classmethod
    def from_arrays(
        cls,
        q: npt.ArrayLike,
        q_without: npt.ArrayLike,
        *,
        individuals: Sequence[Any] | npt.NDArray[Any] | None = None,
        databases: Sequence[Any] | npt.NDArray[Any] | None = None,
    ) -> Results:
        """Results from dense arrays of finite numbers.

        ``q`` is (n,) or, with m draws per database, (n, m); ``q_without`` is (individuals, n) or
        (individuals, n, m).
        """
        with_all = _finite("q", q)
        without = _finite("q_without", q_without)
        if with_all.ndim not in (1, 2) or with_all.size == 0:
            raise InputError(f"`q` must be a non-empty array of shape (n,) or (n, draws), got shape {with_all.shape}.")
        if without.ndim != with_all.ndim + 1 or without.shape[1:] != with_all.shape or len(without) == 0:
            shape = ", ".join(map(str, with_all.shape))
            raise InputError(
                f"`q_without` must have shape (individuals, {shape}) to go with `q`, got shape {without.shape}."
            )
        n_individuals, n = without.shape[:2]
        entry_q = without.reshape(n_individuals * n, *with_all.shape[1:])
        return cls(
            q=with_all,
            outcomes=np.zeros(with_all.shape, np.int8),
            databases=_labels("databases", databases, n),
            individuals=_labels("individuals", individuals, n_individuals),
            starts=np.arange(0, n_individuals * n + 1, n, dtype=np.int64),
            entry_database=np.tile(np.arange(n, dtype=np.int32), n_individuals),
            entry_q=entry_q,
            entry_outcomes=np.zeros(entry_q.shape, np.int8),
            draws=None if with_all.ndim == 1 else with_all.shape[1],
        )

    def position(self, individual: Any) -> int:
        """Index of an individual, by label."""
        matches = np.flatnonzero(self.individuals == individual)
        if len(matches) != 1:
            raise InputError(f"`individual` must name one of the individuals, got a label that matches {len(matches)}.")
        return int(matches[0])

    def without(self, individual: Any) -> FloatArray:
        """Result on every database without this individual (given by label), shaped like ``q``."""
        return self.without_row(self.position(individual))

    def without_row(self, i: int) -> FloatArray:
        """The same of the individual at a position."""
        entries = slice(self.starts[i], self.starts[i + 1])
        dense = self.q.copy()
        dense[self.entry_database[entries]] = self.entry_q[entries]
        return dense

    def component(self, name: str) -> Results:
        """One component of a vector query, as results of a scalar query."""
        if self.components is None or name not in self.components:
            names = ", ".join(self.components or ())
            raise InputError(f"`name` must be one of the components ({names}), got {name!r}.")
        c = self.components.index(name)
        return self._with_answers(
            lambda values: np.ascontiguousarray(values[..., c]),
            components=None,
            cells=None,
            postprocessed_from=self._before(lambda one: one.component((one.components or ())[c])),
        )

    def select(self, names: Sequence[str]) -> Results:
        """Some components of a vector query, as results of a vector query."""
        mine = self.components or ()
        if not names or not set(names) <= set(mine):
            raise InputError(f"`names` must be some of the {len(mine):,} components.")
        chosen = [mine.index(name) for name in names]
        return self._with_answers(
            lambda values: values[..., chosen],
            components=tuple(names),
            postprocessed_from=self._before(
                lambda before: before.select([(before.components or ())[c] for c in chosen])
            ),
            cells=None if self.cells is None else tuple(self.cells[c] for c in chosen),
        )

    def _with_answers(self, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], **facts: Any) -> Results:
        """The results with each of the four arrays of answers changed in the same way."""
        return replace(self, **facts, **{name: change(getattr(self, name)) for name in _ANSWERS})  # type: ignore[arg-type]

    def _before(self, change: Callable[[Results], Results]) -> Results | None:
        """What these were computed from, changed in the same way."""
        return None if self.postprocessed_from is None else change(self.postprocessed_from)

    def with_components(self, names: Sequence[str], cells: tuple[Cell, ...] | None) -> Results:
        """The results as those of a table with these cells, in their order: a cell that is not here is NULL.

        That a cell is absent is an outcome of its own, the same with everyone and without each individual.
        """
        mine = {name: c for c, name in enumerate(self.components or ())}
        if not set(mine) <= set(names):
            raise InputError("`names` must hold every component, got fewer.")
        chosen = [mine.get(name, len(mine)) for name in names]

        def widened(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
            absent = np.nan if values.dtype.kind == "f" else Outcome.NULL
            column = np.full((*values.shape[:-1], 1), absent, values.dtype)
            return np.concatenate((values, column), axis=-1)[..., chosen]

        return self._with_answers(
            widened,
            components=tuple(names),
            postprocessed_from=self._before(lambda one: one.with_components(names, cells)),
            cells=cells,
        )

    def on_databases(self, databases: IntArray) -> Results:
        """The results on some of the databases, given by position, in that order."""
        place = np.full(self.n_databases, -1, np.int32)
        place[databases] = np.arange(len(databases), dtype=np.int32)
        kept = np.flatnonzero(place[self.entry_database] >= 0)
        starts = np.searchsorted(kept, self.starts).astype(np.int64)
        if np.any(np.diff(databases) < 0):  # entries stay in the order of databases
            owner = np.repeat(np.arange(self.n_individuals), np.diff(starts))
            kept = kept[np.lexsort((place[self.entry_database[kept]], owner))]
        return replace(
            self,
            q=self.q[databases],
            outcomes=self.outcomes[databases],
            databases=self.databases[databases],
            starts=starts,
            entry_database=place[self.entry_database[kept]],
            entry_q=self.entry_q[kept],
            entry_outcomes=self.entry_outcomes[kept],
            postprocessed_from=self._before(lambda one: one.on_databases(databases)),
            rows=None if self.rows is None else self.rows.on_databases(databases),
        )

    def of_individuals(self, rows: IntArray) -> Results:
        """The results of some of the individuals, given by position."""
        counts = self.presence[rows]
        starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        entry = np.arange(starts[-1]) + np.repeat(self.starts[rows] - starts[:-1], counts)
        return replace(
            self,
            individuals=self.individuals[rows],
            starts=starts,
            entry_database=self.entry_database[entry],
            entry_q=self.entry_q[entry],
            entry_outcomes=self.entry_outcomes[entry],
            postprocessed_from=self._before(lambda one: one.of_individuals(rows)),
        )

    def with_databases(self, more: Results) -> Results:
        """These results and those of the same query on further databases, in the order of their labels.

        Cells of a table may come and go: one that is in some of the databases only is NULL in the others.
        """
        from empriv.joined_results import with_databases

        return with_databases(self, more)

    @staticmethod
    def stack(parts: Mapping[str, Results]) -> Results:
        """Results of several queries on the same databases and individuals, as those of one vector query.

        An individual has an entry wherever one of the queries has one; a query without it keeps its result with
        everyone there. The name of a vector query is put before the names of its components. A deterministic query
        beside a randomised one is repeated for each draw.
        """
        from empriv.joined_results import stacked

        return stacked(parts)

    def combined(self, weights: Mapping[str, float]) -> Results:
        """A weighted sum of components, as results of a scalar query; not a number where one of them is not."""
        if not weights:
            raise InputError("`weights` must name at least one component, got none.")
        part = self.select(list(weights))

        def summed(q: FloatArray, outcomes: npt.NDArray[np.int8]) -> tuple[FloatArray, npt.NDArray[np.int8]]:
            codes = reduce(lambda one, more: np.where(one == 0, more, one), np.moveaxis(outcomes, -1, 0))
            total = sum(weight * column for weight, column in zip(weights.values(), np.moveaxis(q, -1, 0), strict=True))
            return np.where(codes == 0, total, np.nan), codes

        q, outcomes = summed(part.q, part.outcomes)
        entry_q, entry_outcomes = summed(part.entry_q, part.entry_outcomes)
        return replace(
            part, q=q, outcomes=outcomes, entry_q=entry_q, entry_outcomes=entry_outcomes, components=None, cells=None,
            postprocessed_from=None,
        )  # fmt: skip

    def save(self, path: str | PathLike[str]) -> None:
        """Write to one file of mode 0600; the format is in docs/formats.md."""
        meta, arrays = self.to_parts()
        write_archive(path, kind="results", meta=meta, arrays=arrays)

    @staticmethod
    def load(path: str | PathLike[str]) -> Results:
        """Read what `save` wrote, or the results inside a saved audit."""
        return Results.from_parts(*read_archive(path, kinds=("results", "audit")))

    def to_parts(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Facts fit for JSON, and arrays fit for ``.npy``: what a saved file holds."""
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        for name in _LABELS:
            if arrays[name].dtype == object:
                arrays[name] = arrays[name].astype(np.str_)
        facts: dict[str, Any] = {"components": self.components, "draws": self.draws, "ordered": self.ordered}
        if self.verified is not None:
            facts["verified"] = self.verified.to_json()
        if self.cells is not None:
            facts["cells"] = [[cell.number, list(map(list, cell.keys))] for cell in self.cells]
        if self.rows is not None:
            facts["rows"], sketches = self.rows.to_parts()
            arrays |= sketches
        source = self.postprocessed_from  # what these were made from, what that was made from, and so on
        while source is not None:
            known = facts.setdefault("postprocessed_from", [])
            arrays |= {f"postprocessed_from_{len(known)}_{name}": getattr(source, name) for name in _ANSWERS}
            known.append({"components": source.components, "draws": source.draws})
            source = source.postprocessed_from
        return facts, arrays

    @staticmethod
    def from_parts(meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]]) -> Results:
        """The inverse of `to_parts`."""
        try:
            results: Results | None = None
            # Files of earlier versions do not say what answers were made from.
            listed = list(enumerate(meta.get("postprocessed_from", [])))[:MOST_SOURCES]
            for k, facts in reversed(listed):
                answers = {name: arrays[f"postprocessed_from_{k}_{name}"] for name in _ANSWERS}
                results = _results_of(facts, {**arrays, **answers}, results)
            return _results_of(meta, arrays, results)
        except WRONG_FACTS as error:  # InputError is a ValueError
            raise FileFormatError("The file is damaged: its arrays do not fit together.") from error


def _results_of(meta: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any]], before: Results | None) -> Results:
    components, draws = meta["components"], meta["draws"]
    if components is not None and not (isinstance(components, list) and _are_texts(components)):
        raise TypeError("components")
    if draws is not None and (isinstance(draws, bool) or not isinstance(draws, int) or draws < 1):
        raise TypeError("draws")
    ordered = meta.get("ordered", True)  # files of earlier versions do not say
    if not isinstance(ordered, bool):
        raise TypeError("ordered")
    cells = meta.get("cells")  # files of earlier versions, and queries that do not group, have none
    results = Results(
        **{name: arrays[name] for name in _ARRAYS},
        components=None if components is None else tuple(components),
        draws=draws,
        postprocessed_from=before,
        ordered=ordered,
        cells=None if cells is None else tuple(map(_cell_of, cells)),
        rows=RowSketches.from_parts(meta.get("rows"), arrays),
        verified=_verified_of(meta.get("verified")),
    )
    results.check_values()
    return results


def _cell_of(facts: Any) -> Cell:
    number, keys = facts
    pairs = tuple((column, value) for column, value in keys)
    if not _are_texts((number, *(text for pair in pairs for text in pair))):
        raise TypeError("cells")
    return Cell(number, pairs)


def _are_texts(values: Iterable[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _verified_of(facts: Any) -> Verified | None:
    """The inverse of `Verified.to_json`; files of earlier versions have none."""
    if facts is None:
        return None
    counts = facts["databases"], facts["deletions"]
    if not all(isinstance(count, int) and not isinstance(count, bool) and count > 0 for count in counts):
        raise TypeError("verified")
    return Verified(*counts)


_ANSWERS = ("q", "outcomes", "entry_q", "entry_outcomes")
_LABELS = ("databases", "individuals")
_ARRAYS = ("q", "outcomes", "databases", "individuals", "starts", "entry_database", "entry_q", "entry_outcomes")


def outcome_codes(values: npt.ArrayLike) -> npt.NDArray[np.int8]:
    """Outcome of each float: NaN, the infinities, or a number."""
    values = np.asarray(values, np.float64)
    codes = np.zeros(values.shape, np.int8)
    codes[np.isnan(values)] = Outcome.NAN
    codes[values == np.inf] = Outcome.PLUS_INFINITY
    codes[values == -np.inf] = Outcome.MINUS_INFINITY
    return codes


def entry_keys(part: Results) -> IntArray:
    """One number for each entry: individual, then database."""
    owner = np.repeat(np.arange(part.n_individuals, dtype=np.int64), part.presence)
    return owner * part.n_databases + part.entry_database


def _finite(name: str, values: npt.ArrayLike) -> FloatArray:
    try:
        raw = np.asarray(values)
        # NumPy would turn text and times into numbers, and drop the imaginary part of complex ones.
        text = raw.dtype == object and any(isinstance(value, str | bytes) for value in raw.flat)
        if text or raw.dtype.kind not in "biufO":
            raise TypeError
        with np.errstate(over="ignore"):  # a longer float beyond a double is infinite, which is refused below
            array = np.ascontiguousarray(raw, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"`{name}` must be a rectangular array of numbers.") from None
    if not np.isfinite(array).all():
        bad = int(np.count_nonzero(~np.isfinite(array)))
        raise InputError(
            f"`{name}` must hold finite numbers only, got {bad} that are NaN or infinite. "
            "Hint: `Results` can hold such outcomes, each a point mass."
        )
    return array


def _labels(name: str, labels: Sequence[Any] | npt.NDArray[Any] | None, count: int) -> npt.NDArray[Any]:
    if labels is None:
        return np.arange(count)
    array = np.asarray(labels)
    if array.shape != (count,):
        raise InputError(f"`{name}` must hold {count} labels, got an array of shape {array.shape}.")
    if len(np.unique(array)) != count:
        raise InputError(f"`{name}` must hold distinct labels.")
    return array
