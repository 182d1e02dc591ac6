"""`Protocol`: a whole way from rows to a published answer, and how its results are collected.

    rows ──query, what each person adds capped or not──▶ answer ──steps on answers──▶ published answer

Steps on answers are in `answer_steps`; `ready` has ready-made protocols.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from empriv.collecting.engines.engine import Engine
from empriv.collecting.queries import Query, query_of
from empriv.collecting.run_query import Run, run_query
from empriv.collecting.sources import Databases
from empriv.errors import InputError
from empriv.protocols.answer_steps import AnswerStep, Passed
from empriv.protocols.changed_queries import adds_people_up, capped_people
from empriv.results import Results

DRAWS = 64
"""Draws of a randomised protocol for each database, by default."""


@dataclass(frozen=True, eq=False)
class Protocol:
    """A query, with what is done to the answer after it.

    Attributes
    ----------
    query : SQL text, an SQL expression of aggregates, or a function of the rows; or a tuple of several, published
        together
    steps : on the answer, in the order in which they were added
    random_query : whether the query is a function of the rows and a generator
    cap : what each person adds is kept between -cap and cap; None does not cap

    Examples
    --------
    >>> protocol = empriv.protocols.rounded("avg(delay)", to=5)
    >>> protocol.describe()
    'avg(delay); rounded to 5'
    >>> protocol.randomised
    False
    """

    query: str | Callable[..., Any] | Query | tuple[str | Callable[..., Any] | Query, ...]
    steps: tuple[AnswerStep, ...] = ()
    random_query: bool = False
    cap: float | None = None

    @property
    def randomised(self) -> bool:
        """Whether the same rows may give different answers."""
        return self.random_query or any(step.randomised for step in self.steps)

    @property
    def reach(self) -> float | None:
        """The most that anybody can move the answer, seen or not: of a capped sum or count; None if nothing says so."""
        return self.cap if not self.steps and adds_people_up(self.query) else None

    def describe(self) -> str:
        """The protocol in one line."""
        texts = [" ".join(query.text.split()) for query in self._queries()]
        capped = [] if self.cap is None else [f"each person adds at most {self.cap:g}"]
        return "; ".join([*texts, *capped, *(step.words for step in self.steps)])

    def _queries(self) -> list[Query]:
        return [query_of(query) for query in (self.query if isinstance(self.query, tuple) else (self.query,))]

    def then(self, step: AnswerStep) -> Protocol:
        """This protocol with one more step."""
        return replace(self, steps=(*self.steps, step))

    def collect(
        self,
        data: Databases,
        *,
        draws: int | None = None,
        rng: int = 0,
        engine: Engine | None = None,
        memory_limit: str | None = None,
        jobs: int | None = None,
        progress: bool | None = None,
        notice: Callable[[str], None] | None = None,
    ) -> Results:
        """Published answers on every database, with everyone and without each individual.

        Parameters
        ----------
        data : Databases
        draws : how often a randomised protocol is run on each database; default: 64. One that is not random is
            run once, whatever you ask for, and its results have no draws
        rng : seed; steps of one kind draw the same numbers from it in every protocol
        engine, memory_limit, jobs, progress, notice : as for `empriv.collect`
        """
        run = Run(
            draws=draws, rng=rng, engine=engine, memory_limit=memory_limit, jobs=jobs, progress=progress,
            notice=notice,
        )  # fmt: skip
        return self.publish(data, run)

    def publish(self, data: Databases, run: Run) -> Results:
        """`collect`, with the options of the run together."""
        if not isinstance(data, Databases):
            raise InputError("`data` must come from `databases`, `subsamples`, `splits` or `repeats`.")
        many = (DRAWS if run.draws is None else run.draws) if self.randomised else 1
        cap, asked = self.cap, self._queries()
        if cap is not None:
            asked = [capped_people(query, data.individual, cap) for query in asked]
        once = replace(run, draws=many if self.random_query else None)
        results = run_query(data, asked if isinstance(self.query, tuple) else asked[0], once)
        return self.on_answers(results, draws=many, rng=run.rng)

    def on_answers(self, results: Results, *, draws: int = 1, rng: int = 0) -> Results:
        """What is published of answers that the query gave: the steps alone."""
        for step, number in self._numbered():
            stream = np.random.default_rng([rng, zlib.crc32(step.kind.encode()), number])
            results = _made(step, results, step.apply(results, draws=draws, rng=stream))
        return results

    def _numbered(self) -> Iterator[tuple[AnswerStep, int]]:
        """Each step with its number among those of its kind."""
        last_number: dict[str, int] = {}
        for step in self.steps:
            last_number[step.kind] = last_number.get(step.kind, -1) + 1
            yield step, last_number[step.kind]


def _made(step: AnswerStep, before: Results, after: Results) -> Results:
    """The answers after a step, with those that they were made from, if each number was made from the same number."""
    by_number = before.components is None or not isinstance(step, Passed)
    same_entries = np.array_equal(before.starts, after.starts) and np.array_equal(
        before.entry_database, after.entry_database
    )
    kept = by_number and same_entries and before.components == after.components
    return replace(after, postprocessed_from=before if kept else None)
