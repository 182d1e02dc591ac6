"""`Protocol`: a whole way from rows to a published answer, and how its results are collected.

    rows ──query, with its steps──▶ answer ──steps on cells──▶ answer ──steps on answers──▶ published answer

Steps on the query are in `query_steps`, on cells in `cell_steps`, on answers in `answer_steps`; `ready` has ready-made
protocols.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from sqlglot import exp

from empriv.collecting.engines.engine import Engine
from empriv.collecting.queries import Query, query_of
from empriv.collecting.run_query import Run, run_query
from empriv.collecting.sources import Databases
from empriv.collecting.sql.printing import fill
from empriv.errors import InputError
from empriv.protocols.answer_steps import Added, AnswerStep, Designed, Rounded
from empriv.protocols.cell_steps import CellStep
from empriv.protocols.query_steps import CappedPeople, Clipped, Guard, TooFew, capped_people
from empriv.results import Results

if TYPE_CHECKING:
    from empriv.collecting.functions.frames import FrameKind


def capped_people_text(query: str, individual: Sequence[str], at: float) -> str:
    """The query with what each person adds capped, as a query of its own; see `protocols.cap_people`."""
    select = capped_people(query_of(query), individual, at).select
    assert select is not None
    return str(select.sql(dialect="duckdb"))


def adds_people_up(query: Any) -> bool:
    """Whether the answer is one sum or one count, so that what a person adds is what they move it by."""
    select = query_of(query).select
    if not isinstance(select, exp.Select) or len(select.expressions) != 1 or select.args.get("group"):
        return False
    item = select.expressions[0].unalias()
    item = item.this if isinstance(item, exp.Filter) else item
    return type(item) in (exp.Sum, exp.Count) and not item.find(exp.Distinct)


def sum_and_rows(query: Any) -> str | None:
    """The sum and the number of rows behind an average, as a query of its own; None of any other query."""
    select = query_of(query).select
    parts = _sum_and_rows_of(select)
    if parts is None:
        return None
    assert select is not None
    select = select.copy()
    select.set("expressions", [exp.alias_(part, name) for part, name in zip(parts, ("total", "many"), strict=True)])
    return str(select.sql(dialect="duckdb"))


def _sum_and_rows_of(select: Any) -> list[exp.Expression] | None:
    """The sum, and the number of rows, of a query that is one average."""
    if not isinstance(select, exp.Select) or len(select.expressions) != 1 or select.args.get("group"):
        return None
    item = select.expressions[0].unalias()
    average = item.this if isinstance(item, exp.Filter) else item
    if type(average) is not exp.Avg or average.find(exp.Distinct):
        return None
    parts: list[exp.Expression] = []
    for of in (exp.Sum, exp.Count):
        part = item.copy()
        whole = of(this=average.this.copy())
        if isinstance(part, exp.Filter):
            part.set("this", whole)
        parts.append(part if isinstance(part, exp.Filter) else whole)
    return parts


def zero_text(query: str) -> str:
    """The query with 0 in place of NULL for its one answer, as a query of its own."""
    return _with_answer(query, lambda answer: fill("COALESCE(x, 0)", x=answer))


def least_rows_text(query: str, rows: int) -> str:
    """An average with its sum divided by at least so many rows, as a query of its own."""
    parts = _sum_and_rows_of(query_of(query).select)
    assert parts is not None
    total, many = parts
    divided = fill(
        "COALESCE(total, 0) / GREATEST(many, least)", total=total, many=many, least=exp.Literal.number(str(rows))
    )
    return _with_answer(query, lambda _: divided)


def _with_answer(query: str, made: Callable[[exp.Expression], exp.Expr]) -> str:
    """The query with something else in place of its answer, the last of what it selects."""
    select = query_of(query).select
    assert select is not None
    select = select.copy()
    answer = select.expressions[-1]
    inner = answer.this if isinstance(answer, exp.Alias) else answer
    inner.replace(made(inner.copy()))
    return str(select.sql(dialect="duckdb"))


DRAWS = 64
"""Draws of a randomised protocol for each database, by default."""

Step: TypeAlias = Guard | CellStep | AnswerStep


@dataclass(frozen=True, eq=False)
class Protocol:
    """A query, with what is done to the rows that it reads and to the answer after it.

    Attributes
    ----------
    query : SQL text, an SQL expression of aggregates, or a function of the rows; or a tuple of several, published
        together
    steps : in the order in which they were added; those on values come before the query, those on answers after it
    random_query : whether the query is a function of the rows and a generator

    Examples
    --------
    >>> protocol = empriv.protocols.top_coded("avg(delay)", "delay", at=60)
    >>> protocol.describe()
    'avg(delay); delay at most 60'
    >>> protocol.randomised
    False
    """

    query: str | Callable[..., Any] | Query | tuple[str | Callable[..., Any] | Query, ...]
    steps: tuple[Step, ...] = ()
    random_query: bool = False

    @property
    def randomised(self) -> bool:
        """Whether the same rows may give different answers."""
        return self.random_query or any(step.randomised for step in self.steps)

    @property
    def reach(self) -> float | None:
        """The most that anybody can move the answer, seen or not: of a capped sum or count; None if nothing says so."""
        caps = [step.at for step in self.steps if isinstance(step, CappedPeople)]
        others = [step for step in self.steps if not isinstance(step, CappedPeople)]
        return min(caps) if caps and not others and adds_people_up(self.query) else None

    def describe(self) -> str:
        """The protocol in one line."""
        texts = [" ".join(query.text.split()) for query in self._queries()]
        return "; ".join([*texts, *(step.words for step in self.steps)])

    def _queries(self) -> list[Query]:
        return [query_of(query) for query in (self.query if isinstance(self.query, tuple) else (self.query,))]

    def then(self, step: Step) -> Protocol:
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
        frame: FrameKind = "dict",
    ) -> Results:
        """Published answers on every database, with everyone and without each individual.

        Parameters
        ----------
        data : Databases
        draws : how often a randomised protocol is run on each database; default: 64. One that is not random is
            run once, whatever you ask for, and its results have no draws
        rng : seed; steps of one kind draw the same numbers from it in every protocol
        engine, memory_limit, jobs, progress, notice, frame : as for `empriv.collect`
        """
        run = Run(
            draws=draws, rng=rng, engine=engine, memory_limit=memory_limit, jobs=jobs, progress=progress,
            notice=notice, frame=frame,
        )  # fmt: skip
        return self.publish(data, run)

    def publish(self, data: Databases, run: Run) -> Results:
        """`collect`, with the options of the run together."""
        if not isinstance(data, Databases):
            raise InputError("`data` must come from `databases`, `subsamples`, `splits` or `repeats`.")
        many = (DRAWS if run.draws is None else run.draws) if self.randomised else 1
        asked = self._queries()
        once = replace(run, draws=many if self.random_query else None)
        # What is done to the rows comes last: the first step is then the innermost of the query.
        on_rows = [step for step in reversed(self.steps) if isinstance(step, Clipped)]
        guards = [step for step in self.steps if isinstance(step, TooFew | CappedPeople)]

        def ask(change: Callable[[Query], Query]) -> Results:
            changed = [with_steps(on_rows, change(query), data) for query in asked]
            return run_query(data, changed if isinstance(self.query, tuple) else changed[0], once)

        def guarded(query: Query) -> Query:
            return with_steps(guards, query, data)

        results = ask(guarded)
        for step in self.steps:
            if isinstance(step, CellStep):
                results = step.hide(results, ask)
        return self.on_answers(results, draws=many, rng=run.rng)

    def on_answers(self, results: Results, *, draws: int = 1, rng: int = 0) -> Results:
        """What is published of answers that the query gave: the steps on answers alone."""
        for step, number in self._numbered():
            if not isinstance(step, Guard | CellStep):
                stream = np.random.default_rng([rng, zlib.crc32(step.kind.encode()), number])
                results = _made(step, results, step.apply(results, draws=draws, rng=stream))
        return results

    def _numbered(self) -> Iterator[tuple[Step, int]]:
        """Each step with its number among those of its kind."""
        last_number: dict[str, int] = {}
        for step in self.steps:
            last_number[step.kind] = last_number.get(step.kind, -1) + 1
            yield step, last_number[step.kind]


def with_steps(steps: Sequence[Guard], query: Query, data: Databases) -> Query:
    """The query with these steps, one after the other."""
    for step in steps:
        query = step.guarded(query, data.individual)
    return query


def _made(step: AnswerStep, before: Results, after: Results) -> Results:
    """The answers after a step, with those that they were made from, if each number was made from the same number."""
    by_number = before.components is None or isinstance(step, Rounded | Added | Designed)
    same_entries = np.array_equal(before.starts, after.starts) and np.array_equal(
        before.entry_database, after.entry_database
    )
    kept = by_number and same_entries and before.components == after.components
    return replace(after, postprocessed_from=before if kept else None)
