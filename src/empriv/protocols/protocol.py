"""`Protocol`: a whole way from rows to a published answer, how its results are collected, and ready-made ones.

    rows ──query, what each person adds capped or not──▶ answer ──steps on answers──▶ published answer

What is done to rows is SQL: ``avg(least(amount, 60))`` caps values, ``CASE WHEN count(*) >= 10 THEN avg(amount) END``
gives no answer from few rows. Steps on answers are in `answer_steps`.
"""

from __future__ import annotations

import inspect
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from empriv.base.arguments import fraction, positive_number
from empriv.collecting.engines.engine import Engine
from empriv.collecting.queries import Query, query_of
from empriv.collecting.run_query import Run, run_query
from empriv.collecting.sources import Databases
from empriv.errors import InputError, QueryError
from empriv.judge.noise_kernels import classical
from empriv.measuring.tables.relations import relations_of
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.protocols.answer_steps import Added, AnswerStep, Designed, Passed, Rounded
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
        numbers: Counter[str] = Counter()  # of steps of each kind so far
        for step in self.steps:
            stream = np.random.default_rng([rng, zlib.crc32(step.kind.encode()), numbers[step.kind]])
            numbers[step.kind] += 1
            results = _made(step, results, step.apply(results, draws=draws, rng=stream))
        return results


def _made(step: AnswerStep, before: Results, after: Results) -> Results:
    """The answers after a step, with those that they were made from, if each number was made from the same number."""
    by_number = before.components is None or not isinstance(step, Passed)
    same_entries = np.array_equal(before.starts, after.starts) and np.array_equal(
        before.entry_database, after.entry_database
    )
    kept = by_number and same_entries and before.components == after.components
    return replace(after, postprocessed_from=before if kept else None)


# Ready-made protocols: each wraps a query, or another protocol, and adds one step to it

QueryOrProtocol = str | Callable[..., Any] | Query | Protocol | Sequence[str | Callable[..., Any] | Query]


def plain(query: QueryOrProtocol, *, randomised: bool | None = None) -> Protocol:
    """The query and nothing else.

    Parameters
    ----------
    query : SQL text, an SQL expression of aggregates, or a function of the rows; or a list of several, which make
        one table
    randomised : whether the query is a function of the rows and a generator, which draws noise of its own; with None,
        a function is random if it requires a second argument

    Examples
    --------
    >>> empriv.protocols.plain("avg(delay)").describe()
    'avg(delay)'
    """
    if isinstance(query, Protocol):
        return query
    if isinstance(query, Sequence) and not isinstance(query, str):
        queries = tuple(query)
        if not queries:
            raise QueryError("`query` must hold at least one query, got none.")
        functions = [query_of(each).function for each in queries]
        if randomised or any(function is not None and _draws(function, randomised) for function in functions):
            raise QueryError("A randomised query must be alone, got one among several.")
        return Protocol(queries)
    function = query_of(query).function
    if function is None and randomised:
        raise QueryError("A randomised query must be a Python function of the rows and a generator, got SQL.")
    return Protocol(query, random_query=function is not None and _draws(function, randomised))


def rounded(query: QueryOrProtocol, *, to: float) -> Protocol:
    """Round answers to the nearest multiple of ``to``; halves go to the even multiple.

    Examples
    --------
    >>> empriv.protocols.rounded("avg(delay)", to=5).describe()
    'avg(delay); rounded to 5'
    """
    return plain(query).then(Rounded(positive_number("to", to)))


def cap_people(query: QueryOrProtocol, *, at: float) -> Protocol:
    """What each person adds to a sum or a count is kept between ``-at`` and ``at``, per person and database.

    So nobody moves a sum or a count by more than ``at``, seen or not: `Protocol.reach` says so, and
    ``design_noise(..., bound=at)`` takes it. Of an average the sum over the rows is capped, and its number of rows is
    not, so that it declares no reach.

    Parameters
    ----------
    query : SQL of sums, counts and averages, without GROUP BY
    at : the most that a person adds; `empriv.advise` finds the largest that the answer hides

    Examples
    --------
    >>> protocol = empriv.protocols.cap_people("sum(amount)", at=280)
    >>> protocol.describe(), protocol.reach
    ('sum(amount); each person adds at most 280', 280.0)
    """
    protocol, cap = plain(query), positive_number("at", at)
    if protocol.steps:
        raise InputError("`query` must be capped before anything is done to its answer, got a protocol with steps.")
    return replace(protocol, cap=cap if protocol.cap is None else min(cap, protocol.cap))


def laplace(query: QueryOrProtocol, *, sensitivity: float, epsilon: float) -> Protocol:
    """The classical Laplace mechanism on the answer.

    Parameters
    ----------
    query : a query or a protocol
    sensitivity : the most by which all rows of one individual together can change the answer (for several numbers,
        the sum of changes); you state it, and nothing checks it
    epsilon : of classical differential privacy, at delta = 0, if the sensitivity is right

    Examples
    --------
    >>> empriv.protocols.laplace("avg(delay)", sensitivity=10, epsilon=0.5).describe()
    'avg(delay); Laplace noise of scale 20 (epsilon 0.5 for sensitivity 10)'
    """
    size, epsilon = positive_number("sensitivity", sensitivity), positive_number("epsilon", epsilon)
    reason = f"epsilon {epsilon:g} for sensitivity {size:g}"
    return plain(query).then(Added("laplace", classical(epsilon, 0.0, size).scale, reason))


def gaussian(query: QueryOrProtocol, *, sensitivity: float, epsilon: float, delta: float) -> Protocol:
    """The classical Gaussian mechanism on the answer, with the smallest scale that suffices (Balle and Wang, 2018).

    Parameters
    ----------
    query, epsilon : as for `laplace`
    sensitivity : as for `laplace`; for several numbers, the root of the sum of squared changes
    delta : of classical differential privacy, between 0 and 1

    Examples
    --------
    >>> empriv.protocols.gaussian("avg(delay)", sensitivity=10, epsilon=0.5, delta=1e-5).describe()
    'avg(delay); Gaussian noise of standard deviation 70.3183 (epsilon 0.5 and delta 1e-05 for sensitivity 10)'
    """
    size, epsilon = positive_number("sensitivity", sensitivity), positive_number("epsilon", epsilon)
    delta = fraction("delta", delta)
    reason = f"epsilon {epsilon:g} and delta {delta:g} for sensitivity {size:g}"
    return plain(query).then(Added("gaussian", classical(epsilon, delta, size, "gaussian").scale, reason))


def noised(query: QueryOrProtocol, noise: Noise | TableNoise) -> Protocol:
    """Answers rounded and given noise as by `Noise.release`, but with pseudo-random draws.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q = rng.normal(100.0, 10.0, 60)
    >>> risk = empriv.measure(q, q - rng.exponential(2.0, (3, 60)))
    >>> noise = empriv.design_noise(risk, epsilon=0.1, delta=0.05, granularity=0.25)
    >>> empriv.protocols.noised("avg(delay)", noise).randomised
    True
    """
    if not isinstance(noise, Noise | TableNoise):
        raise InputError(f"`noise` must come from `design_noise`, got {type(noise).__name__}.")
    return plain(query).then(Designed(noise))


def passed(query: QueryOrProtocol, function: Callable[..., Any], *, randomised: bool | None = None) -> Protocol:
    """Answers passed through any function: post-processing, or a black box.

    Parameters
    ----------
    query : a query or a protocol
    function : ``function(answer)``, or ``function(answer, rng)`` if it is randomised, returns a number, or None for no
        answer; for several numbers it gets and returns an array, with NaN for those that are not a number. It is not
        called if none is a number.
    randomised : whether it draws from a generator; with None, it is if it requires a second argument

    Examples
    --------
    >>> empriv.protocols.passed("avg(delay)", lambda answer: max(answer, 0.0)).randomised
    False
    """
    if not callable(function):
        raise InputError(f"`function` must be a function of the answer, got {type(function).__name__}.")
    return plain(query).then(Passed(function, _draws(function, randomised)))


def _draws(function: Callable[..., Any], randomised: bool | None) -> bool:
    """Whether to give a function a generator."""
    if randomised is not None:
        return bool(randomised)
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # functions that are not written in Python may not have a signature
        return False
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in by_place and parameter.default is parameter.empty for parameter in parameters) > 1


def cells_to_hide(results: Results, cells: Collection[str]) -> tuple[str, ...]:
    """Further cells that must be hidden with these, so that none of them follows from those that are published.

    How cells add up is found from the answers themselves. Of two choices the one with fewer cells is taken, then the
    one with smaller cells.

    Parameters
    ----------
    results : of the whole table, from `collect`, or those of an audit (``audit.results``)
    cells : names of the cells to hide

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> a, b, c = rng.normal(100.0, 10.0, (3, 60))
    >>> parts = {"a": a, "b": b, "c": c, "total": a + b + c}
    >>> moves = {"a": 1.0, "b": 0.0, "c": 0.0, "total": 1.0}
    >>> table = {name: empriv.Results.from_arrays(x, [x - moves[name]]) for name, x in parts.items()}
    >>> empriv.protocols.cells_to_hide(empriv.Results.stack(table), ["a"])
    ('c',)
    """
    if not isinstance(results, Results):
        raise InputError(f"`results` must be Results of a table, got {type(results).__name__}. Hint: audit.results.")
    relations, names = relations_of(results), results.components or ()
    unknown = [cell for cell in cells if cell not in names]
    if unknown or isinstance(cells, str):
        raise InputError(
            f"`cells` must name cells of the table, which has {len(names):,}; got {len(unknown):,} that it does not "
            "have. Hint: names are in `results.components`."
        )
    return tuple(names[cell] for cell in relations.complement(np.array([name in cells for name in names], bool)))
