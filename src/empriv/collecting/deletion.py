"""Results, verified by deletion: who is left out of an answer is really out of it, whatever the query's text is.

On a few databases, drawn at random, people are really deleted. A connection of its own holds their rows and nothing
else (`IsolatedRows`), and while a query is asked of one database, the rows of the others are deleted too. There

1. the query as it was written, run on the rows that are left, must give what the rewritten statement gives without
   those who were deleted: half of the people, many times, and single individuals;
2. the rewritten statement must give the same without a half as when the rows of that half are nowhere, to the last
   digits: where doubles are added up, the query as written rounds, and something could hide in what is rounded off;
3. the answers of the audit itself, with everyone and without single individuals, must be those found here: an answer
   that depends on other databases is not.

A query that reads anybody's row past being left out differs wherever they are in the half that was deleted. Who is in
which half, and which databases are looked at, is drawn from the system's entropy when it happens.

`function_runs.verify_calls` does the same for Python functions.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from empriv.collecting.assemble import NO_GROUP, Group, group_value
from empriv.collecting.engines.engine import Deletion, Engine, IsolatedRows, Rows, Session
from empriv.collecting.function_runs import ALONE, HALVES, MOST_DATABASES
from empriv.collecting.queries import Query
from empriv.collecting.sources import Databases
from empriv.collecting.sql.aggregates import NotDecomposable
from empriv.collecting.sql.decompose import decompose
from empriv.collecting.sql.execute import answered
from empriv.collecting.sql.rerun import label
from empriv.errors import QueryError
from empriv.results import IntArray, Outcome, Results, Verified, outcome_codes

SHARE = 0.01
"""Of all pairs of database and individual, so many may be looked at, beyond those of the first database."""
SHUFFLES = 8
# Relative differences: of doubles that follow from exact sums, of moments, and of sums that the engine rounds.
_LAST_DIGITS, _MOMENTS, _ROUNDED = 8 * float(np.finfo(float).eps), 1e-10, 1e-9
# Beyond this, a difference between two orders of the rows is not one of rounding.
_ROUGH = 1e-6
_SHORT = 64  # bits of integers in which doubles are added up in more than one piece
_FEW = 2_000  # individuals whose rows cost next to nothing
_EXACT = {
    "sum", "avg", "count", "min", "max", "median", "quantile_cont", "quantile_disc", "count distinct", "bool_and",
    "bool_or",
}  # fmt: skip
MISMATCH = (
    "The query does not give the same answer when people are really deleted as when they are left out of it, and so "
    "nobody can say what it tells about them. Hint: it may depend on the order of the rows, which ORDER BY inside an "
    "aggregate settles; on another database; or on rows that it reads by a way that is not known."
)

Numbers = list[tuple[float, int]]
ByGroup = Mapping[Group, Numbers] | None
"""Numbers and outcomes of the items for each group that exists; None where the query failed."""


def verify(
    engine: Engine,
    session: Session,
    data: Databases,
    query: Query,
    results: Results,
    *,
    rewritten: bool,
    on: Any = None,
    members: IntArray | None = None,
) -> Verified | None:
    """Really delete people on a few databases, and refuse a query whose answers are others then.

    Parameters
    ----------
    engine, session, data, query : what gave the results
    results : answers of the query, before anything is done with them
    rewritten : whether they come from one rewritten statement
    on : label of the database to be looked at; otherwise they are drawn
    members : how many people each database has, where ``results`` do not list them all

    Returns
    -------
    what was verified, None if there is no such database
    """
    chance = np.random.default_rng(secrets.randbits(128))
    if members is None:
        members = np.bincount(results.entry_database, minlength=results.n_databases)
    chosen, halves = _chosen(members, data, chance), HALVES
    if on is not None:
        chosen = [j for j, label in enumerate(results.databases.tolist()) if str(label) == str(on)]
    elif not rewritten:
        # It runs once for each: what is verified takes so many runs more.
        runs = results.n_databases + int(members.sum())
        halves = min(HALVES, max(2, runs // 100))
    if not chosen:
        return None
    rounding = _rounding(query, session) if rewritten else _ROUNDED
    with engine.isolated(session, data, chosen) as rows:
        # One that fails must not make the others fall back with it.
        for some in [chosen] if rewritten else [[j] for j in chosen]:
            check_databases(
                rows, query, results, some, halves=halves, rounding=rounding, rewritten=rewritten, chance=chance
            )
    return Verified(len(chosen), halves)


def check_databases(
    rows: IsolatedRows,
    query: Query,
    results: Results,
    chosen: Sequence[int],
    *,
    halves: int = HALVES,
    rounding: float = _ROUNDED,
    rewritten: bool = True,
    chance: np.random.Generator,
) -> None:
    """Compare answers on some databases with those of the rows that are left; raise if they differ.

    Parameters
    ----------
    rows : of these databases
    query : as it was written
    results : the audit's answers
    chosen : positions of the databases
    halves : how often people are dealt into halves
    rounding : by how much, relatively, the audit's answers may differ from those of a rewritten statement here
    rewritten : whether the audit's answers come from a rewritten statement
    chance : draws individuals
    """
    entries = {one: entry for j in chosen for one, entry in _individuals(results, j, rows.individuals, chance)}
    draws = [Deletion(j, draw=draw) for j in chosen for draw in range(halves)]
    both = [replace(one, half=half) for one in draws for half in (0, 1)]
    deletions = [*map(Deletion, chosen), *entries, *both]
    as_written = _AsWritten(rows, query)
    written = dict(zip(deletions, as_written.ask(deletions), strict=True))
    with rows.repeated([*draws, *entries]) as repeated:
        by_halves = _answers_by_halves(repeated, query, as_written.labels)
    place = {one: k for k, one in enumerate([*draws, *entries])}
    found = {Deletion(j): by_halves.everyone(place[Deletion(j, draw=0)]) for j in chosen}
    found |= {one: by_halves.without(place[replace(one, half=0)], one.half) for one in (*entries, *both)}
    audited = {Deletion(j): _by_group(results, results.q[j], results.outcomes[j], as_written.labels) for j in chosen}
    for one, entry in entries.items():
        audited[one] = _by_group(results, results.entry_q[entry], results.entry_outcomes[entry], as_written.labels)
    sizes = _sizes([*written.values(), *found.values()])
    # Where rows of other databases made the audit leave its exact sums, what is lost by rounding tells of those rows:
    # answers must agree for their own size, and not for that of what cancels in them.
    fell_back = by_halves.rewritten and not rewritten
    exact = fell_back or (by_halves.rewritten and rounding < _ROUNDED)
    for one, answer in audited.items():
        if not _agree(answer, found[one], rounding, None if fell_back else sizes) and (
            exact or not as_written.is_close(answer, one, by_halves.rewritten)
        ):
            raise QueryError(MISMATCH)
    rounded = False
    for one, answer in written.items():
        same = _agree(answer, found[one], 0.0)
        rounded |= not same
        if not (
            same
            or _agree(answer, found[one], _ROUNDED, sizes)
            or as_written.is_close(found[one], one, by_halves.rewritten)
        ):
            raise QueryError(MISMATCH)
    if rounded and by_halves.rewritten:
        some = draws[int(chance.integers(len(draws)))]
        for one in (replace(some, half=0), replace(some, half=1)):
            with rows.repeated([some]) as repeated, rows.without(one):
                left = _answers_by_halves(repeated, query, as_written.labels).everyone(0)
            if not _agree(left, found[one], _rounding(query, repeated), sizes):
                raise QueryError(MISMATCH)


def _chosen(members: IntArray, data: Databases, chance: np.random.Generator) -> list[int]:
    """Databases at random, as many as cost little; where they are of very different size, none of the largest."""
    # Those in which nobody has an entry too: a query that claims to read no row is not to be believed either.
    few = np.flatnonzero(members <= max(_FEW, 2 * float(np.median(members))))
    drawn = chance.permutation(few)[: 1 if data.draws is not None and data.draws.repeats else MOST_DATABASES]
    most = max(_FEW, SHARE * members.sum())
    return [int(j) for k, j in enumerate(drawn) if k == 0 or members[drawn[: k + 1]].sum() <= most]


def _individuals(
    results: Results, database: int, labels: npt.NDArray[Any], chance: np.random.Generator
) -> list[tuple[Deletion, int]]:
    """Some who are in a database, and their entries in the results; ``labels`` are of those who have rows."""
    entries = np.flatnonzero(results.entry_database == database)
    chosen = chance.permutation(entries)[:ALONE]
    owners = np.searchsorted(results.starts, chosen, side="right") - 1
    place = {text: position for position, text in enumerate(labels.astype(np.str_).tolist())}
    texts = results.individuals[owners].astype(np.str_).tolist()
    return [
        (Deletion(database, individual=place[text]), int(entry))
        for text, entry in zip(texts, chosen, strict=True)
        if text in place
    ]


def _rounding(query: Query, session: Session) -> float:
    """By how much, relatively, two rewritten statements may differ on the same rows."""
    try:
        calls = decompose(query, session.whose).calls
    except NotDecomposable:
        return _ROUNDED
    exact = session.integer_bits > _SHORT and all(call.name in _EXACT for call in calls)
    return float(_LAST_DIGITS if exact else _MOMENTS)


@dataclass(frozen=True, eq=False)
class _HalvesAnswers:
    """What a session of halves answers: None if there is no group in any of them."""

    results: Results | None
    rewritten: bool
    labels: Mapping[Group, Group]

    def everyone(self, database: int) -> ByGroup:
        found = self.results
        return {} if found is None else _by_group(found, found.q[database], found.outcomes[database], self.labels)

    def without(self, database: int, half: int) -> ByGroup:
        found = self.results
        if found is None:
            return {}
        for i in np.flatnonzero(found.individuals == half):
            entries = np.arange(found.starts[i], found.starts[i + 1])
            for entry in entries[found.entry_database[entries] == database]:
                return _by_group(found, found.entry_q[entry], found.entry_outcomes[entry], self.labels)
        return self.everyone(database)  # who has no row that is read changes nothing


def _answers_by_halves(session: Session, query: Query, labels: Mapping[Group, Group]) -> _HalvesAnswers:
    try:
        results, rewritten = answered(session, query, show=False, notice=lambda _: None, refuse=False)
    except QueryError as error:
        if str(error) != NO_GROUP:
            raise
        return _HalvesAnswers(None, False, labels)
    return _HalvesAnswers(results, rewritten, labels)


def _by_group(
    results: Results, values: npt.NDArray[Any], codes: npt.NDArray[Any], labels: Mapping[Group, Group]
) -> ByGroup:
    """One of the results, by group; a group of which all is NULL does not exist."""
    numbers = [(float(value), int(code)) for value, code in zip(np.ravel(values), np.ravel(codes), strict=True)]
    if all(code == Outcome.ERROR for _, code in numbers):
        return None
    if results.cells is None:
        return {(): numbers}
    groups: dict[Group, Numbers] = {}
    for cell, number in zip(results.cells, numbers, strict=True):
        group = tuple(value for _, value in cell.keys)
        groups.setdefault(labels.get(group, group), []).append(number)
    return {group: of for group, of in groups.items() if any(code != Outcome.NULL for _, code in of)}


def _sizes(answers: Iterable[ByGroup]) -> dict[Group, list[float]]:
    """How large the numbers of each group are at most: where they are added up, one may be 0 but for rounding."""
    sizes: dict[Group, list[float]] = {}
    for answer in answers:
        for group, numbers in (answer or {}).items():
            mine = [abs(value) if code == Outcome.NUMBER else 0.0 for value, code in numbers]
            sizes[group] = list(map(max, mine, sizes.get(group, mine)))
    return sizes


def _agree(one: ByGroup, other: ByGroup, tolerance: float, sizes: Mapping[Group, list[float]] | None = None) -> bool:
    """Whether two answers are the same, apart from a difference of numbers relative to their size."""
    if one is None or other is None:
        return one is other
    for group in one.keys() | other.keys():
        mine, its = one.get(group), other.get(group)
        if mine is None or its is None:
            if any(code != Outcome.NULL for _, code in mine or its or []):
                return False
            continue
        size = (sizes or {}).get(group) or [0.0] * len(mine)
        for (value, code), (other_value, other_code), largest in zip(mine, its, size, strict=True):
            if code != other_code:
                return False
            away = abs(value - other_value)
            if code == Outcome.NUMBER and away > tolerance * max(abs(value), abs(other_value), largest):
                return False
    return True


class _AsWritten:
    """The query as it was written, asked of the rows that are left.

    ``labels`` are other names of the groups, as somebody else may write them, with those that they have here.
    """

    def __init__(self, rows: IsolatedRows, query: Query) -> None:
        assert query.select is not None
        self.rows, self.query = rows, query
        self.labels: dict[Group, Group] = {}
        self.statement = _as_numbers(query.select, query)
        self.compensated = _as_numbers(query.select.transform(_compensated), query)

    def ask(self, deletions: Sequence[Deletion], *, shuffled: bool = False, compensated: bool = False) -> list[ByGroup]:
        statement = self.compensated if compensated else self.statement
        return [self._read(rows) for rows in self.rows.ask(statement, deletions, shuffled=shuffled)]

    def is_close(self, answer: ByGroup, deletion: Deletion, rewritten: bool) -> bool:
        """Whether an answer differs by no more than what the order of the rows makes in sums of doubles.

        What a rewritten statement adds up exactly may be any of these; what the engine added up itself may differ by
        rounding only, since it could hide behind an order.
        """
        orders = self.ask([deletion] * SHUFFLES, shuffled=True)
        if rewritten and any(_agree(answer, order, _ROUNDED) for order in (*orders, *self._compensated(deletion))):
            return True
        if answer is None or any(order is None or order.keys() != answer.keys() for order in orders):
            return False
        for group, numbers in answer.items():
            for k, (value, code) in enumerate(numbers):
                others = [order[group][k] for order in orders if order is not None]
                if any(other != code for _, other in others):
                    return False
                if code == Outcome.NUMBER:
                    values = np.array([number for number, _ in others])
                    spread = float(np.ptp(values))
                    if not rewritten and spread > _ROUGH * float(np.max(np.abs(values))):
                        return False
                    if abs(value - float(np.median(values))) > 4 * spread:
                        return False
        return True

    def _compensated(self, deletion: Deletion) -> list[ByGroup]:
        try:
            return self.ask([deletion], compensated=True)
        except QueryError:  # a sum of what only sum() adds up
            return []

    def _read(self, rows: Rows | None) -> ByGroup:
        if rows is None:
            return None
        n_keys = len(self.query.keys)
        groups: dict[Group, Numbers] = {}
        for row in rows:
            keys, texts, items = row[:n_keys], row[n_keys : 2 * n_keys], row[2 * n_keys :]
            group = tuple(map(group_value, texts))
            self.labels[tuple(map(label, keys))] = group
            groups[group] = [_number(item) for item in items]
        return groups


def _number(value: float | None) -> tuple[float, int]:
    if value is None:
        return math.nan, Outcome.NULL
    if math.isfinite(value):
        return value, Outcome.NUMBER
    return math.nan, int(outcome_codes(value))


def _as_numbers(select: exp.Expr, query: Query) -> exp.Select:
    """The query with its keys as they are and as text, and its results as doubles."""
    count = len(query.keys) + len(query.items)
    names = [f"c{k}" for k in range(count)]
    table = exp.TableAlias(this=exp.to_identifier("answer"), columns=[exp.to_identifier(name) for name in names])
    keys = [names[k] for k in query.keys]
    return exp.select(
        *keys, *(f"CAST({key} AS VARCHAR)" for key in keys), *(f"CAST({names[k]} AS DOUBLE)" for k in query.items)
    ).from_(exp.Subquery(this=select.copy(), alias=table))


def _compensated(node: exp.Expr) -> exp.Expr:
    """Sums and averages by compensated summation, which loses hardly a digit."""
    if not isinstance(node, exp.Sum | exp.Avg) or isinstance(node.this, exp.Distinct):
        return node
    return exp.Anonymous(this="fsum" if isinstance(node, exp.Sum) else "favg", expressions=[node.this])
