"""`Protocol`: a whole way from rows to a published answer, and how its results are collected.

    rows ──steps on rows──▶ rows ──query──▶ answer ──steps on answers──▶ published answer

Steps on rows and on the query are in `query_steps`, on cells in `cell_steps`, on answers in `answer_steps`; `ready` has
ready-made protocols.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from sqlglot import exp

from empriv.base.progress import progress as progress_bar
from empriv.collecting.engines.engine import ClusterEngine, Engine
from empriv.collecting.queries import DATA, Query, query_of
from empriv.collecting.run_query import Run, run_query
from empriv.collecting.sources import Databases
from empriv.collecting.sql.printing import fill
from empriv.collecting.sql.printing import query as tree
from empriv.errors import InputError
from empriv.protocols.answer_steps import Added, AnswerStep, Designed, Rounded
from empriv.protocols.cell_steps import CellStep
from empriv.protocols.query_steps import CappedPeople, Guard, RowStep, capped_people
from empriv.protocols.stepped import Open, SteppedSession, layers, name_rows, with_draws
from empriv.results import Results

if TYPE_CHECKING:
    from empriv.collecting.functions.frames import FrameKind


def summed_columns(query: Any) -> tuple[str, ...]:
    """Columns that the query adds up or averages; none of a function of the rows."""
    select = query_of(query).select
    if select is None:
        return ()
    sums = [node for node in select.walk() if isinstance(node, exp.Sum | exp.Avg)]
    return tuple(dict.fromkeys(column.name for node in sums for column in node.find_all(exp.Column)))


def capped_text(query: str, column: str, at: float) -> str:
    """The query with a column capped inside what it adds up: the same as top-coding, as a query of its own."""
    select = query_of(query).select
    assert select is not None
    select = select.copy()
    for node in [node for node in select.walk() if isinstance(node, exp.Column) and node.name == column]:
        capped = fill("CASE WHEN x > cap THEN cap ELSE x END", x=node.copy(), cap=exp.Literal.number(f"{at:.17g}"))
        node.replace(capped)
    return str(select.sql(dialect="duckdb"))


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
    if not isinstance(select, exp.Select) or len(select.expressions) != 1 or select.args.get("group"):
        return None
    item = select.expressions[0].unalias()
    average = item.this if isinstance(item, exp.Filter) else item
    if type(average) is not exp.Avg or average.find(exp.Distinct):
        return None
    parts = []
    for of in (exp.Sum, exp.Count):
        part = item.copy()
        whole = of(this=average.this.copy())
        if isinstance(part, exp.Filter):
            part.set("this", whole)
        parts.append(part if isinstance(part, exp.Filter) else whole)
    select = select.copy()
    select.set("expressions", [exp.alias_(part, name) for part, name in zip(parts, ("total", "many"), strict=True)])
    return str(select.sql(dialect="duckdb"))


def rounded_text(query: str, to: float) -> str:
    """The query with its one answer rounded to multiples of ``to``, as a query of its own."""
    select = query_of(query).select
    assert select is not None
    select = select.copy()
    answer = select.expressions[-1]
    inner = answer.this if isinstance(answer, exp.Alias) else answer
    # by a whole number where that is the same, so that a tenth comes out as the decimal that people write
    parts = round(1 / to)
    whole = parts > 1 and math.isclose(parts * to, 1.0, rel_tol=1e-12)
    form, step = ("ROUND((x) * step) / step", float(parts)) if whole else ("ROUND((x) / step) * step", to)
    inner.replace(fill(form, x=inner.copy(), step=exp.Literal.number(f"{step:.17g}")))
    return str(select.sql(dialect="duckdb"))


DRAWS = 64
"""Draws of a randomised protocol for each database, by default."""

_ROWS_AT_ONCE = 2_000_000

Step: TypeAlias = RowStep | Guard | CellStep | AnswerStep


@dataclass(frozen=True, eq=False)
class Protocol:
    """A query, with what is done to the rows before it and to the answer after it.

    Attributes
    ----------
    query : SQL text, an SQL expression of aggregates, or a function of the rows; or a tuple of several, published
        together
    steps : in the order in which they were added; those on rows come before the query, those on answers after it
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
        on_rows = [(step, number) for step, number in self._numbered() if isinstance(step, RowStep)]
        once = replace(run, draws=many if self.random_query else None)

        def ask(change: Callable[[Query], Query]) -> Results:
            changed = [change(query) for query in asked]
            query = changed if isinstance(self.query, tuple) else changed[0]
            return self._publish_stepped(data, query, on_rows, many, once) if on_rows else run_query(data, query, once)

        def guarded(query: Query) -> Query:
            for step in self.steps:
                if isinstance(step, Guard):
                    query = step.guarded(query, data.individual)
            return query

        results = ask(guarded)
        for step in self.steps:
            if isinstance(step, CellStep):
                results = step.hide(results, ask)
        return self.on_answers(results, draws=many, rng=run.rng)

    def on_answers(self, results: Results, *, draws: int = 1, rng: int = 0) -> Results:
        """What is published of answers that the query gave: the steps on answers alone."""
        for step, number in self._numbered():
            if not isinstance(step, RowStep | Guard | CellStep):
                stream = np.random.default_rng([rng, zlib.crc32(step.kind.encode()), number])
                results = _made(step, results, step.apply(results, draws=draws, rng=stream))
        return results

    def _numbered(self) -> Iterator[tuple[Step, int]]:
        """Each step with its number among those of its kind."""
        last_number: dict[str, int] = {}
        for step in self.steps:
            last_number[step.kind] = last_number.get(step.kind, -1) + 1
            yield step, last_number[step.kind]

    def _publish_stepped(
        self, data: Databases, query: Query | list[Query], steps: list[tuple[RowStep, int]], many: int, run: Run
    ) -> Results:
        """Results on the rows after the steps."""
        engine, run = run.on(data)
        drawn = any(step.randomised for step, _ in steps)
        functions = any(each.function is not None for each in (query if isinstance(query, list) else [query]))
        if isinstance(engine, ClusterEngine) and (drawn or functions):
            raise InputError(
                "`engine` must be DuckDB for random steps on rows, and for steps on the rows of a Python function."
            )
        with ExitStack() as stack:
            session = stack.enter_context(engine.session(data))
            rows = layers(session, [(step, f"{run.rng}:{step.kind}:{number}") for step, number in steps], data)
            if not drawn:
                alone = Open(SteppedSession(session, rows, 0, 1), engine)
                return replace(run_query(data, query, replace(run, engine=alone)), databases=session.databases)
            name_rows(session, rows)
            size = int(session.fetch(tree(f"SELECT COUNT(*) AS n FROM {DATA}"))["n"].values[0])
            at_once = min(many, max(1, _ROWS_AT_ONCE // size))
            advance = stack.enter_context(progress_bar(many, "Draws of the protocol", show=run.progress))
            parts = []
            for first in range(0, many, at_once):
                count = min(at_once, many - first)
                stretch = replace(
                    run, draws=1 if self.random_query else None, progress=False,
                    rng=int(np.random.SeedSequence([run.rng, first]).generate_state(1)[0]),
                    engine=Open(SteppedSession(session, rows, first, count), engine),
                )  # fmt: skip
                parts.append((run_query(data, query, stretch), count))
                advance(count)
            return with_draws(parts, session.databases)


def _made(step: AnswerStep, before: Results, after: Results) -> Results:
    """The answers after a step, with those that they were made from, if each number was made from the same number."""
    by_number = before.components is None or isinstance(step, Rounded | Added | Designed)
    same_entries = np.array_equal(before.starts, after.starts) and np.array_equal(
        before.entry_database, after.entry_database
    )
    kept = by_number and same_entries and before.components == after.components
    return replace(after, made_from=before if kept else None)
