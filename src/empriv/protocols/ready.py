"""Ready-made protocols. Each wraps a query, or another protocol, and adds one step to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, get_args

from empriv.base.arguments import finite_number, fraction, positive_number, whole_number
from empriv.collecting.queries import Query, query_of
from empriv.errors import InputError, QueryError
from empriv.judge.noise_kernels import classical
from empriv.noise.noise import Noise
from empriv.noise.table_noise import TableNoise
from empriv.protocols.answer_steps import Added, Designed, NoiseLaw, Passed, Rounded
from empriv.protocols.cell_steps import Complementary, Dominance, NamedCells
from empriv.protocols.protocol import Protocol
from empriv.protocols.query_steps import CappedPeople, Clipped, TooFew

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


def rounded(query: QueryOrProtocol, *, to: float, at_random: bool = False) -> Protocol:
    """Round answers to the nearest multiple of ``to``; halves go to the even multiple.

    Parameters
    ----------
    query : a query or a protocol
    to : the base
    at_random : go to the multiple above with the probability that keeps the mean, and else to the one below

    Examples
    --------
    >>> empriv.protocols.rounded("avg(delay)", to=5).describe()
    'avg(delay); rounded to 5'
    """
    if not isinstance(at_random, bool):
        raise InputError(f"`at_random` must be True or False, got {at_random!r}.")
    return plain(query).then(Rounded(positive_number("to", to), at_random))


def winsorised(query: QueryOrProtocol, column: str, *, lower: float, upper: float) -> Protocol:
    """Values of a column below ``lower`` become ``lower``, those above ``upper`` become ``upper``.

    The limits must be fixed numbers. Quantiles of the data will not do: they depend on every individual themselves.

    Examples
    --------
    >>> empriv.protocols.winsorised("avg(delay)", "delay", lower=0, upper=60).describe()
    'avg(delay); delay kept between 0 and 60'
    """
    low, high = finite_number("lower", lower), finite_number("upper", upper)
    if low >= high:
        raise InputError(f"`lower` must be less than `upper`, got {low:g} and {high:g}.")
    return plain(query).then(Clipped(_column(column), low, high))


def top_coded(query: QueryOrProtocol, column: str, *, at: float) -> Protocol:
    """Values of a column above ``at`` become ``at``.

    Examples
    --------
    >>> empriv.protocols.top_coded("avg(delay)", "delay", at=60).describe()
    'avg(delay); delay at most 60'
    """
    return plain(query).then(Clipped(_column(column), None, finite_number("at", at)))


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
    return plain(query).then(CappedPeople(positive_number("at", at)))


def suppressed(query: QueryOrProtocol, *, fewer_than: int) -> Protocol:
    """No answer (NULL) if the query reads fewer rows than this; with GROUP BY, for each group.

    Examples
    --------
    >>> empriv.protocols.suppressed("avg(delay)", fewer_than=10).describe()
    'avg(delay); no answer from fewer than 10 rows'
    """
    return plain(query).then(TooFew(whole_number("fewer_than", fewer_than, least=1), "rows"))


def k_threshold(query: QueryOrProtocol, *, k: int) -> Protocol:
    """No answer (NULL) if the query reads rows of fewer than ``k`` individuals; with GROUP BY, for each group.

    Examples
    --------
    >>> empriv.protocols.k_threshold("avg(delay)", k=5).describe()
    'avg(delay); no answer from fewer than 5 individuals'
    """
    return plain(query).then(TooFew(whole_number("k", k, least=1), "individuals"))


def dominance(query: QueryOrProtocol, *, share: float, top: int = 1, column: str | None = None) -> Protocol:
    """No answer (NULL) in a cell of which ``top`` individuals make up more than ``share``; with GROUP BY, by group.

    Parameters
    ----------
    query : a query or a protocol
    share : the most that they may make up of a cell, between 0 and 1
    top : how many individuals: the ones with the largest contributions, in each cell
    column : contributions are the sums of this column's sizes; without one they are numbers of rows

    Examples
    --------
    >>> empriv.protocols.dominance("sum(delay)", share=0.8, top=2).describe()
    'sum(delay); no answer where 2 individuals make up more than 80% of its rows'
    """
    step = Dominance(
        None if column is None else _column(column), whole_number("top", top, least=1), fraction("share", share)
    )
    return plain(query).then(step)


def hidden(query: QueryOrProtocol, cells: Collection[str]) -> Protocol:
    """Cells of a table that are always hidden (NULL), by name. `complementary` hides what would give them away.

    Examples
    --------
    >>> empriv.protocols.hidden("SELECT origin, sum(delay) FROM data GROUP BY origin", ["SFO"]).describe()
    'SELECT origin, sum(delay) FROM data GROUP BY origin; SFO hidden'
    """
    return plain(query).then(NamedCells(_cells("cells", cells)))


def complementary(query: QueryOrProtocol, *, keep: Collection[str] = ()) -> Protocol:
    """Hide further cells of a table, so that no cell that is hidden before follows from the published ones.

    How cells add up is found from the table itself: see `check_hidden`. Of two choices the one with fewer cells is
    taken, then the one with smaller cells over all databases.

    Parameters
    ----------
    query : a query or a protocol that hides cells: `suppressed`, `k_threshold`, `dominance` or `hidden`
    keep : names of cells that are not hidden for that

    Examples
    --------
    >>> table = ("sum(delay)", "SELECT origin, sum(delay) FROM data GROUP BY origin")
    >>> few = empriv.protocols.k_threshold(table, k=3)
    >>> empriv.protocols.complementary(few, keep=["sum(delay)"]).steps[-1].keep
    ('sum(delay)',)
    """
    return plain(query).then(Complementary(_cells("keep", keep)))


def cell_noise(query: QueryOrProtocol, *, scale: float | Mapping[str, float], law: NoiseLaw = "laplace") -> Protocol:
    """Noise on each cell, of a scale that you state; it promises nothing by itself.

    Parameters
    ----------
    query : a query or a protocol
    scale : of Laplace noise, or the standard deviation of Gaussian noise; one for all cells, or of each by name
    law : ``"laplace"`` or ``"gaussian"``

    Examples
    --------
    >>> table = "SELECT origin, sum(delay) FROM data GROUP BY origin"
    >>> empriv.protocols.cell_noise(table, scale={"SFO": 5, "OAK": 20}).describe()
    'SELECT origin, sum(delay) FROM data GROUP BY origin; Laplace noise of scale 5 to 20 by cell'
    """
    if law not in get_args(NoiseLaw):
        raise InputError(f"`law` must be 'laplace' or 'gaussian', got {law!r}.")
    if not isinstance(scale, Mapping):
        return plain(query).then(Added(law, positive_number("scale", scale)))
    if not scale:
        raise InputError("`scale` must hold a scale for each cell, got none.")
    scales = {str(name): positive_number("scale", each) for name, each in scale.items()}
    return plain(query).then(Added(law, scales))


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


def _cells(name: str, cells: Any) -> tuple[str, ...]:
    if isinstance(cells, str) or not isinstance(cells, Collection) or not all(isinstance(c, str) for c in cells):
        raise InputError(f"`{name}` must be a list of names of cells.")
    return tuple(cells)


def _column(column: Any) -> str:
    if not isinstance(column, str) or not column:
        raise InputError("`column` must be the name of a column.")
    return column
