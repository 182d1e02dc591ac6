"""People measured a chunk at a time: `ChunkModel` is what everyone is measured with, `measure_chunk` does it.

The density depends only on the results with everyone, and so do all atoms except a person's own, and what is regressed
out as known. So every delta_i is the same as if all were measured at once. A chunk is measured wherever its results
are, so that part knows no engine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import pairwise
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from empriv.auditing.totals import LEVEL, TotalledRisk, Totals, histogram_of, merge, most_exposed_rows
from empriv.base.progress import progress as progress_bar
from empriv.base.storage import open_checkpoint
from empriv.errors import InputError, QueryError
from empriv.judge.upper import LEAST_DATABASES
from empriv.measuring.densities.density import Density, Model, is_literal
from empriv.measuring.given.given_risk import GivenRisk, atoms_apart
from empriv.measuring.given.regression import all_positive
from empriv.measuring.line.risk import Risk, measure_line
from empriv.results import FloatArray, IntArray, Outcome, Results
from empriv.validate.checks import leaks
from empriv.validate.covers import moves_without_noise, totals_of_moves, unjudged_moves
from empriv.validate.line_bounds import bound_inputs, upper_of_people
from empriv.words.message import Message

if TYPE_CHECKING:
    from empriv.collecting.sql.execute import Stream

ENTRIES_AT_ONCE = 4_000_000
"""Of results that are in memory already."""
FindKnown = Callable[[Results, bool], tuple[GivenRisk | None, Message | None]]
"""From results with everyone, and whether logarithms may be taken of them all: what is regressed out of them as known,
or why nothing is."""


@dataclass(frozen=True, eq=False)
class ChunkOptions:
    """How people are measured in chunks.

    Attributes
    ----------
    epsilons, deltas : at which they are measured, rising
    density : how densities are estimated
    component : of a vector query, the number that is measured
    ordered : whether databases have an order
    keep : how many of the most exposed are kept, at each epsilon
    """

    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    density: Density
    component: str | None
    ordered: bool
    keep: int

    def one_number(self, results: Results) -> Results:
        """The results that are measured."""
        check_component(self.component, results.components)
        results = results if self.ordered else replace(results, ordered=False)
        return results if self.component is None else results.component(self.component)


@dataclass(frozen=True, eq=False)
class ChunkModel:
    """What every person is measured with; a `Density` that has been fitted.

    Attributes
    ----------
    everyone : results with everyone, and nobody listed
    given : what is known, regressed out of these results; None if nothing is
    nothing_known : why nothing is, if nobody said what
    model : the fitted density, None if all results are atoms
    literal : whether numbers are never treated as atoms
    epsilons, deltas, keep : as of `ChunkOptions`
    people : how many there are in all
    n_components : how many numbers the query gives, if it is a vector
    """

    everyone: Results
    given: GivenRisk | None
    nothing_known: Message | None
    model: Model | None
    literal: bool
    epsilons: tuple[float, ...]
    deltas: tuple[float, ...]
    keep: int
    people: int
    n_components: int | None

    def fit(self, points: FloatArray, databases: IntArray) -> Model:  # noqa: ARG002 — the points are always the same
        assert self.model is not None
        return self.model

    def risk_of(self, chunk: Results) -> Risk:
        """The risk of the people of a chunk."""
        if self.given is not None:
            return self.given.of_people(chunk, people=self.people)
        return measure_line(chunk, self, people=self.people)

    def totalled(self, totals: Totals) -> TotalledRisk:
        """The risk of all, from their totals."""
        if totals.n_individuals == 0:
            raise InputError("There must be at least one individual, got 0: all rows are nobody's.")
        kept = self.risk_of(totals.kept)
        return TotalledRisk(kept.results, kept, totals, self.epsilons, self.deltas)


def model_of(
    everyone: Results,
    options: ChunkOptions,
    known: FindKnown,
    *,
    people: int,
    n_components: int | None,
    positive: Callable[[], bool],
) -> ChunkModel:
    """Fit the density to the results with everyone, or to their residuals given what is known.

    ``positive`` is called only where logarithms would be taken, and says whether all results are numbers above 0.
    """
    given, nothing_known = known(everyone, True)
    if given is not None and given.residuals.logarithm and given.given.auto and not positive():
        given, nothing_known = known(everyone, False)
    risk = measure_line(everyone, options.density) if given is None else given
    return ChunkModel(
        everyone, given, nothing_known, risk.density, is_literal(options.density), options.epsilons, options.deltas,
        options.keep, people, n_components,
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Measured:
    """A measured chunk: in totals, and person by person; epsilon_i (people, deltas) only if asked for."""

    totals: Totals
    individuals: npt.NDArray[Any]
    databases: IntArray
    influence: FloatArray
    delta_i: FloatArray
    upper_i: FloatArray
    epsilon_i: FloatArray


def measure_chunk(model: ChunkModel, chunk: Results, *, each: bool = False) -> Measured:
    """Measure the people of a chunk; with ``each``, also everybody's epsilon_i, not only the largest."""
    grid, risk = np.array(model.epsilons), model.risk_of(chunk)
    delta_i, influence = risk.delta_i(grid), risk.influence()
    upper_i = np.ones_like(delta_i)
    if risk.results.n_databases >= LEAST_DATABASES and chunk.n_individuals:
        upper_i = np.maximum(upper_of_people(risk, grid, LEVEL)[0], delta_i)
        # delta falls in epsilon: if a bound at a larger epsilon is higher, the one before it was too low.
        upper_i = np.maximum.accumulate(upper_i[:, ::-1], axis=1)[:, ::-1]
    epsilon_i = np.zeros((chunk.n_individuals, 0))
    if each:
        epsilon_i = np.stack([risk.epsilon_i(delta) for delta in model.deltas], axis=1)
        epsilon_at = epsilon_i.max(axis=0, initial=0.0)
    else:
        epsilon_at = np.array([risk.epsilon(delta) for delta in model.deltas])
    done, unjudged = moves_without_noise(risk, bound_inputs(risk).marked), unjudged_moves(risk)
    every = done if unjudged is None else done.with_those_of(unjudged)
    moves = np.stack((every.largest, every.largest_sizes, done.weight), axis=1)
    rows = most_exposed_rows(delta_i, influence, moves, labels=chunk.individuals, keep=model.keep)
    codes = chunk.entry_outcomes[chunk.entry_outcomes != Outcome.NUMBER]
    with np.errstate(divide="ignore"):
        log_safe = np.log1p(-delta_i).sum(axis=0)
    totals = Totals(
        n_individuals=chunk.n_individuals,
        members=np.bincount(chunk.entry_database, minlength=chunk.n_databases).astype(np.int64),
        delta=delta_i.max(axis=0, initial=0.0),
        log_safe=log_safe,
        exposed=np.count_nonzero(delta_i > 0, axis=0).astype(np.int64),
        histogram=histogram_of(delta_i),
        upper=upper_i.max(axis=0, initial=0.0),
        epsilon_at=epsilon_at,
        moves=totals_of_moves(done, unjudged).short(),
        not_numbers=np.bincount(codes, minlength=len(Outcome)).astype(np.int64),
        leaks=leaks(atoms_apart(risk)),
        kept=chunk.of_individuals(rows),
        kept_delta_i=delta_i[rows],
        kept_influence=influence[rows],
        kept_moves=moves[rows],
    )
    return Measured(totals, chunk.individuals, chunk.presence, influence, delta_i, upper_i, epsilon_i)


def measure_within_memory(model: ChunkModel, chunk: Results, *, each: bool = False) -> Iterator[Measured]:
    """Measure a chunk, halving it again and again if there is not enough memory."""
    try:
        yield measure_chunk(model, chunk, each=each)
        return
    except MemoryError:
        half = chunk.n_individuals // 2
    if half == 0:
        raise QueryError(
            "There is not enough memory to measure one individual alone. Hint: give executors more memory, or ask "
            "for fewer epsilons."
        ) from None
    for rows in (np.arange(half), np.arange(half, chunk.n_individuals)):
        yield from measure_within_memory(model, chunk.of_individuals(rows), each=each)


def measure_stream(
    streamed: Stream,
    options: ChunkOptions,
    known: FindKnown,
    *,
    query: str,
    checkpoint: str | PathLike[str] | None,
    progress: bool | None,
) -> tuple[ChunkModel, Totals]:
    """Measure one chunk after another as they are fetched, keeping the totals alone.

    With a ``checkpoint``, the file that holds them after each chunk, and from which an interrupted run goes on.
    """
    everyone = options.one_number(streamed.everyone)

    def positive() -> bool:
        with closing(streamed.chunks(0)) as chunks:
            return all(all_positive(options.one_number(chunk)) for chunk in chunks)

    count = None if streamed.everyone.components is None else len(streamed.everyone.components)
    model = model_of(everyone, options, known, people=streamed.people, n_components=count, positive=positive)
    n_done, totals = 0, None
    with ExitStack() as stack:
        saved = None
        if checkpoint is not None:
            mark = _mark(query, model, streamed.n_chunks)
            saved = stack.enter_context(open_checkpoint(checkpoint, mark, of="query, options or results with everyone"))
            for piece in saved.pieces.values():  # at most one: the totals so far, after the number of their chunks
                n_done, totals = int.from_bytes(piece[:8]), Totals.from_bytes(piece[8:], everyone)
        advance = stack.enter_context(progress_bar(streamed.n_chunks, "Measuring in chunks", show=progress))
        chunks = stack.enter_context(closing(streamed.chunks(n_done)))
        advance(n_done)
        for chunk in chunks:
            totals = _added(totals, measure_chunk(model, options.one_number(chunk)).totals, model.keep)
            n_done += 1
            if saved is not None:
                saved.put(n_done.to_bytes(8) + totals.to_bytes(), 0)
            advance()
    assert totals is not None
    return model, totals


def measure_results(results: Results, options: ChunkOptions, known: FindKnown) -> tuple[ChunkModel, Totals]:
    """Measure results that are in memory already."""
    count = None if results.components is None else len(results.components)
    results = options.one_number(results)
    everyone = results.of_individuals(np.arange(0))
    model = model_of(
        everyone, options, known, people=results.n_individuals, n_components=count,
        positive=lambda: all_positive(results),
    )  # fmt: skip
    totals: Totals | None = None
    for chunk in chunks_of(results, ENTRIES_AT_ONCE):
        totals = _added(totals, measure_chunk(model, chunk).totals, model.keep)
    assert totals is not None
    return model, totals


def _added(totals: Totals | None, more: Totals, keep: int) -> Totals:
    return more if totals is None else merge(totals, more, keep=keep)


def chunks_of(results: Results, entries: int) -> Iterable[Results]:
    """Results in chunks of people, each with about this many entries."""
    n = max(1, min(results.n_individuals, -(-len(results.entry_database) // entries)))
    edges = [results.n_individuals * k // n for k in range(n + 1)]
    return (results.of_individuals(np.arange(a, b)) for a, b in pairwise(edges))


def check_component(component: str | None, names: Sequence[str] | None) -> None:
    """Refuse a component that the query does not have; without names it gives a single number."""
    if names is None:
        if component is not None:
            raise InputError("`component` must be None: the query gives one number.")
    elif component is None or component not in names:
        raise InputError(
            f"`component` must name one of the query's {len(names):,} components where people are measured in chunks: "
            "what a table tells depends on all of its cells at once. Hint: in_chunks=False measures whole tables."
        )


def nobody_listed(q: FloatArray, outcomes: npt.NDArray[np.int8], databases: npt.NDArray[Any]) -> Results:
    """Results with everyone, and nobody listed."""
    shape = (0, *q.shape[1:])
    return Results(
        q=q, outcomes=outcomes, databases=databases, individuals=np.zeros(0, np.int64),
        starts=np.zeros(1, np.int64), entry_database=np.zeros(0, np.int32), entry_q=np.zeros(shape),
        entry_outcomes=np.zeros(shape, np.int8),
    )  # fmt: skip


def _mark(query: str, model: ChunkModel, n_chunks: int) -> bytes:
    """What identifies a run in chunks: the question, and the results with everyone."""
    question = [query, model.epsilons, model.deltas, model.keep, n_chunks]
    digest = hashlib.sha256(json.dumps(question).encode())
    digest.update(("" if model.model is None else model.model.name).encode())
    digest.update(model.everyone.q.tobytes() + model.everyone.outcomes.tobytes())
    if model.given is not None:
        digest.update(model.given.results.q.tobytes())
    return digest.digest()
