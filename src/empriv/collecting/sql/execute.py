"""SQL queries, run: by one rewritten statement where that is possible, else once per individual (`rerun`).

1. **Admit** the query: it must reach nothing but its rows.
2. **Survey** the rows: the types of the arguments, and the largest and smallest of those that are added up.
3. **Prepare** the tables that the statement reads: labels of individuals, and `groups`.
4. **Write** the statement, in one piece or in steps whose tables are kept (`rewrite` does that).
5. **Ask** for results as doubles, and refuse those that a double cannot hold.
6. **Recompute** what is flagged, from the remaining rows.

`answered` fetches everybody's results at once, `stream` those of some individuals at a time; on a cluster they stay
in tables of the engine (`Statement.entries`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from empriv.collecting.assemble import (
    Answers,
    Group,
    assemble,
    cells_of,
    chosen_groups,
    component_names,
    numbers_and_outcomes,
)
from empriv.collecting.engines.engine import (
    ENTRY,
    MASTER,
    BeyondLimits,
    Column,
    Engine,
    FailedOnRows,
    Refused,
    Session,
)
from empriv.collecting.queries import DATA, DATABASE, INDIVIDUAL, Query, as_written, check_keys
from empriv.collecting.sources import Databases
from empriv.collecting.sql.aggregates import Facts, NotDecomposable, Span
from empriv.collecting.sql.allowlist import check, check_tables, check_tables_of_people
from empriv.collecting.sql.decompose import PAIR, Decomposition, check_aliases, decompose
from empriv.collecting.sql.explain_errors import explaining
from empriv.collecting.sql.groups import each_once, store_groups
from empriv.collecting.sql.printing import fill, readable, text
from empriv.collecting.sql.rerun import BEYOND, LARGEST_EXACT, Notice, rerun
from empriv.collecting.sql.rewrite import GROUP, RESULT, LeaveOneOut, leave_one_out
from empriv.errors import QueryError
from empriv.results import IntArray, Results


def answered(
    session: Session, query: Query, *, show: bool | None = None, notice: Notice | None = None, refuse: bool = True
) -> tuple[Results, bool]:
    """Results of an SQL query, and whether they come from one rewritten statement.

    Without ``refuse``, groups may be of one individual each, and the query may fail on every database.
    """
    admit(session, query)
    plan = None
    try:
        plan = decompose(query, session.whose)
        check_aliases(plan, session.columns)
        return _run_once(session, plan, refuse), True
    except NotDecomposable as why:
        reason = str(why)
    except FailedOnRows:
        reason = "it fails on some rows"
    except (BeyondLimits, Refused):
        raise
    except QueryError:
        # A table derived person by person may be one that the engine takes only as it is written.
        if plan is None or plan.plain:
            raise
        reason = "its derived table cannot be kept apart by individual"
    _check_types(session, query)
    return rerun(session, query, reason=reason, show=show, notice=notice, refuse=refuse), False


def explain(session: Session | None, query: Query) -> str:
    """The rewritten statement, or why the query runs once per individual."""
    if query.select is None:
        return "The query is a Python function, which is called once per individual."
    if session is not None:
        admit(session, query)
    try:
        with nullcontext() if session is None else explaining(session, query):
            plan = decompose(query, () if session is None else session.whose)
            if session is not None:
                check_aliases(plan, session.columns)
            rewritten = leave_one_out(plan, Facts() if session is None else survey(session, plan))
    except NotDecomposable as why:
        if session is not None:
            _check_types(session, query)
        return f"The query runs once per individual, since {why}."
    except FailedOnRows:
        return "The query runs once per individual, since it fails on some rows."
    return str(readable(rewritten.whole()).sql(dialect="duckdb", pretty=True))


def _run_once(session: Session, plan: Decomposition, refuse: bool) -> Results:
    statement = prepare(session, plan, refuse=refuse)
    answers = statement.answers(statement.rewritten.whole(), len(session.individuals))
    results = statement.assembled(answers, individuals=session.individuals)
    return chosen_groups(results, plan.query, refuse=refuse) if plan.chooses_groups else results


def _check_types(session: Session, query: Query) -> None:
    assert query.select is not None
    with explaining(session, query):
        types = list(session.types(query.select).values())
    for position, name in zip(query.items, query.names, strict=True):
        if types[position].kind == "other":
            raise QueryError(not_a_number(name))


def admit(session: Session, query: Query) -> None:
    """Refuse a query that reaches beyond its rows, before anything is run for it."""
    assert query.select is not None
    check(query.select, query.text)
    check_tables(query.select, list(session.columns), query.text)
    check_tables_of_people(query.select, session.columns, session.whose)
    check_keys(query, session.columns)
    with explaining(session, query):
        session.admit(query.select, as_written(query.text))


def prepare(session: Session, plan: Decomposition, *, by_label: bool = False, refuse: bool = True) -> Statement:
    """Survey the rows, and make the tables of labels and groups that the statement reads.

    Without ``refuse``, groups may be of one individual each, and results may be beyond what a double holds exactly.
    """
    # On a cluster, a query whose failure has a known cause would only fail again if it ran once per individual.
    with explaining(session, plan.query, failures=by_label):
        facts = survey(session, plan)
    if not by_label:
        session.label_individuals()
    groups: list[Group] = store_groups(session, plan, refuse=refuse) if plan.query.groups else [("",)]
    rewritten = leave_one_out(plan, facts, by_label=by_label)
    return Statement(session, plan, facts, rewritten, groups, by_label, refuse)


def survey(session: Session, plan: Decomposition) -> Facts:
    """What must be known of the arguments before the statement can be written."""
    arguments = plan.arguments
    named = (exp.alias_(x.copy(), name) for name, x in arguments.items())
    described = session.types(each_once(session, plan, fill("1"), *named))
    types = {name: described[name] for name in arguments}
    if any(types[name].kind == "double" and text(x) in plan.compared for name, x in arguments.items()):
        raise NotDecomposable("its HAVING adds up doubles")
    summed = sorted(name for name in plan.summed if types[name].kind == "double")
    measures = [exp.alias_(fill("COUNT(*)"), "n")]
    for name in summed:
        x = exp.cast(arguments[name].copy(), "DOUBLE", dialect="duckdb")
        for measure, template in (
            ("largest", "MAX(ABS(x)) FILTER (WHERE ISFINITE(x))"),
            ("smallest", "MIN(ABS(x)) FILTER (WHERE x <> 0)"),
            ("infinite", "COUNT(*) FILTER (WHERE NOT ISFINITE(x))"),
        ):
            measures.append(exp.alias_(fill(template, x=x), f"{measure}_{name}"))
    columns = session.fetch(each_once(session, plan, *measures))

    def measured(name: str, default: float) -> float:
        column = columns[name]
        return default if column.null[0] else float(column.values[0])

    spans = {}
    for name in summed:
        largest = measured(f"largest_{name}", 1.0) or 1.0
        smallest = measured(f"smallest_{name}", largest)
        finite = measured(f"infinite_{name}", 0) == 0
        spans[name] = Span(largest, smallest if math.isfinite(smallest) else largest, finite)
    return Facts(types, spans, int(measured("n", 0)), session.integer_bits, drawn=session.drawn)


@dataclass(frozen=True, eq=False)
class Statement:
    """A rewritten query, prepared on a session.

    Attributes
    ----------
    session : where it is asked
    plan : what the query is made of
    facts : what the survey found
    rewritten : the query as one statement, or in steps
    groups : the groups of GROUP BY; one without a name if there are none
    by_label : whether individuals are named by their labels, and not by their positions
    refuse : whether results that a double cannot hold are refused
    """

    session: Session
    plan: Decomposition
    facts: Facts
    rewritten: LeaveOneOut
    groups: list[Group]
    by_label: bool = False
    refuse: bool = True

    def answers(self, statement: exp.Select, size: int) -> Answers:
        """What a statement answers with everyone, and about individuals at positions below ``size``."""
        n, query = len(self.session.databases), self.plan.query
        columns = self.session.fetch(_as_numbers(self.session, statement, query, (n, size)))
        if self.refuse:
            _refuse_beyond(columns)
        answers = Answers(
            columns[PAIR].values,
            n,
            columns[GROUP].values if query.groups else np.zeros(1, np.int64),
            tuple(numbers_and_outcomes(columns[f"{RESULT}{number}"]) for number in range(len(query.items))),
        )
        self._recompute(answers, columns)
        return answers

    def assembled(
        self,
        answers: Answers,
        *,
        individuals: npt.NDArray[Any],
        everyone: Results | None = None,
    ) -> Results:
        """Results from answers; ``everyone`` are those with everyone, where the answers do not hold them."""
        return assemble(
            answers,
            databases=self.session.databases,
            individuals=individuals,
            components=component_names(self.plan.query, self.groups),
            n_groups=len(self.groups),
            everyone=None if everyone is None else (everyone.q, everyone.outcomes),
            cells=cells_of(self.plan.query, self.groups),
        )

    def everyone(self) -> Results:
        """Results with everyone, and nobody listed; after the tables are stored."""
        return self.assembled(self.answers(self.rewritten.of_everyone(), 0), individuals=np.zeros(0, np.int64))

    def entries(self, item: int) -> exp.Select:
        """A statement of results without each individual, with the columns of `ENTRY`; they stay in the engine.

        ``item`` says which of the query's results. Individuals are named by their labels.
        """
        assert self.by_label
        session, (who, where, value) = self.session, ENTRY
        each = _as_numbers(session, self.rewritten.of_each(), self.plan.query, None)
        columns = {column.alias_or_name for column in each.expressions}
        session.store("empriv_each", each)
        if "beyond" in columns:
            _refuse_beyond(session.fetch(exp.select("COALESCE(BOOL_OR(beyond), FALSE) AS beyond").from_("empriv_each")))
        if "flagged" in columns:
            flagged = exp.select(
                f"ROW_NUMBER() OVER (ORDER BY {DATABASE}, {INDIVIDUAL}) - 1 AS code", DATABASE, INDIVIDUAL
            ).from_("empriv_each").where("flagged")  # fmt: skip
            session.store("empriv_numbered", flagged)
            session.store("empriv_flagged", exp.select("*", "code AS label").from_("empriv_numbered"))
            if _count(session, "COUNT(*)", "empriv_flagged"):
                session.store("empriv_again", self._again())
                return (
                    exp.select(
                        f"e.{INDIVIDUAL} AS {who}", f"e.{DATABASE} AS {where}",
                        f"CASE WHEN f.code IS NULL THEN e.{RESULT}{item} ELSE a.{RESULT}{item} END AS {value}",
                    ).from_("empriv_each AS e")
                    .join("empriv_flagged AS f", on=f"e.{DATABASE} = f.{DATABASE} AND e.{INDIVIDUAL} = f.{INDIVIDUAL}",
                          join_type="left")
                    .join("empriv_again AS a", on=f"a.{DATABASE} = f.code", join_type="left")
                )  # fmt: skip
        return exp.select(f"{INDIVIDUAL} AS {who}", f"{DATABASE} AS {where}", f"{RESULT}{item} AS {value}").from_(
            "empriv_each"
        )

    def absent(self) -> int:
        """How many individuals have rows, but none that the query reads; after `entries`."""
        if self.plan.reads_all:
            return 0
        return count_individuals(self.session) - _count(self.session, f"COUNT(DISTINCT {INDIVIDUAL})", "empriv_each")

    def _again(self) -> exp.Select:
        """The statement over the remaining rows of each pair in ``empriv_flagged``."""
        again = leave_one_out(self.plan, self.facts, by_label=self.by_label, again=True)
        return _as_numbers(self.session, again.whole(), self.plan.query, None)

    def _recompute(self, answers: Answers, columns: Mapping[str, Column]) -> None:
        """Recompute what is flagged from the remaining rows, in place; few are: only an outlier takes most away."""
        # By label only results with everyone are fetched: all rows remain then, and nothing changes.
        if "flagged" not in columns or self.by_label:
            return
        flagged = columns["flagged"].values & ~columns["flagged"].null
        if not flagged.any():
            return
        places = np.flatnonzero(flagged)
        n = answers.n_databases
        pairs, code = np.unique(answers.pair[places], return_inverse=True)
        number = np.arange(len(pairs))
        table = {"code": number, "label": number, DATABASE: pairs % n, INDIVIDUAL: pairs // n}
        self.session.store_numbers("empriv_flagged", table)
        columns = self.session.fetch(self._again())
        grouped = bool(self.plan.query.groups)
        n_groups = int(answers.group.max()) + 1
        group = answers.group[places] if grouped else 0
        again = columns[DATABASE].values * n_groups + (columns[GROUP].values if grouped else 0)
        row = np.full(len(pairs) * n_groups, -1)
        row[again] = np.arange(len(again))
        row = row[code * n_groups + group]
        for item, (values, codes) in enumerate(answers.items):
            new_values, new_codes = numbers_and_outcomes(columns[f"{RESULT}{item}"])
            values[places], codes[places] = new_values[row], new_codes[row]


def _refuse_beyond(columns: Mapping[str, Column]) -> None:
    """Refuse results that a double cannot hold."""
    if "beyond" in columns and bool(np.any(columns["beyond"].values & ~columns["beyond"].null)):
        raise QueryError(BEYOND)


def _as_numbers(session: Session, statement: exp.Select, query: Query, pairs: tuple[int, int] | None) -> exp.Select:
    """Cast the results to doubles, if they are numbers, and see where an integer does not fit.

    With ``pairs``, the numbers of databases and individuals, these two are joined to one, as `Answers` has it.
    """
    types = session.types(statement)
    outer: exp.Select = exp.select(*(name for name in types if not name.startswith(RESULT)))
    if pairs is not None:
        width = "INTEGER" if pairs[0] * pairs[1] < 2**31 else "BIGINT"
        outer = exp.select(f"CAST({INDIVIDUAL} AS {width}) * {pairs[0]} + {DATABASE} AS {PAIR}")
        outer = outer.select(*(name for name in types if name in (GROUP, "flagged")))
    beyond = []
    for number, name in enumerate(name for name in types if name.startswith(RESULT)):
        kind, value = types[name].kind, exp.column(name)
        # A decimal is an integer of its last digits.
        limit = LARGEST_EXACT // 10 ** types[name].scale
        if kind == "other":
            raise QueryError(not_a_number(query.names[number]))
        outer = outer.select(exp.alias_(fill("CAST(q AS DOUBLE)", q=value), name))
        if kind in ("integer", "decimal"):
            beyond.append(fill(f"q > {limit} OR q < -{limit}", q=value))
    if beyond:
        outer = outer.select(exp.alias_(exp.or_(*beyond), "beyond"))
    return outer.from_(statement.subquery("empriv_results"))


def not_a_number(name: str) -> str:
    return (
        f"The query must give numbers, but its result {name!r} is not one. "
        "Hint: count(DISTINCT ...) counts values, epoch() makes a number of a time."
    )


def count_individuals(session: Session) -> int:
    """How many individuals have rows, whether the query reads them or not."""
    return _count(session, f"COUNT(DISTINCT {INDIVIDUAL})", MASTER if session.drawn else DATA)


def most_entries(session: Session) -> int:
    """No more results without an individual than this: one for each row, and for each individual and database."""
    return min(_count(session, "COUNT(*)", DATA), count_individuals(session) * len(session.databases))


def members(session: Session, entries: exp.Expr, n_databases: int) -> IntArray:
    """(databases,) how many of the entries each database is in; of a statement made by `Statement.entries`."""
    _, where, _ = ENTRY
    counted = exp.subquery(entries, "e").select(f"{where} AS d", "COUNT(*) AS n").group_by(where)
    found = session.fetch(counted)
    return np.bincount(found["d"].values.astype(np.int64), found["n"].values, minlength=n_databases).astype(np.int64)


def all_positive(session: Session, entries: exp.Expr) -> bool:
    """Whether the value of every entry is a number above 0; of a statement made by `Statement.entries`."""
    value = exp.column(ENTRY[2])
    others = fill("COUNT(CASE WHEN x IS NULL OR NOT ISFINITE(x) OR x <= 0 THEN 1 END)", x=value)
    return int(session.fetch(exp.subquery(entries, "e").select(exp.alias_(others, "n")))["n"].values[0]) == 0


def _count(session: Session, counted: str, table: str) -> int:
    return int(session.fetch(exp.select(f"{counted} AS n").from_(table))["n"].values[0])


# Entries in a chunk (about 100 bytes each while they are put in order), and rows grouped at once.
ENTRIES = 4_000_000
ROWS = 25_000_000


class StreamingSession(Session, Protocol):
    """A session whose tables may grow, and whose labels can be had in part."""

    def append(self, name: str, statement: exp.Expr) -> None:
        """Run a statement and add its rows to a table that `store` made."""

    def count_individuals(self) -> int:
        """Number of labels."""

    def individuals_between(self, first: int, stop: int) -> npt.NDArray[Any]:
        """Labels at these positions."""


@dataclass(frozen=True, eq=False)
class Stream:
    """Results with everyone, and those without individuals as an iterator of chunks.

    Attributes
    ----------
    session : what is asked
    everyone : results with everyone, and nobody listed
    people : how many individuals there are
    n_chunks : how many chunks there are
    chunks : function of how many chunks to leave out at the beginning, which gives the others
    """

    session: Session
    everyone: Results
    people: int
    n_chunks: int
    chunks: Callable[[int], Generator[Results, None, None]]


@contextmanager
def stream(
    engine: Engine, data: Databases, query: Query, *, entries: int = ENTRIES, rows: int = ROWS
) -> Iterator[Stream]:
    """Open a stream of results of an SQL query.

    Raises `NotDecomposable` if the query cannot be rewritten, or fails on some rows: then only `collect` helps.
    """
    plan = decompose(query, data.individual)
    with engine.session(data) as session:
        admit(session, query)
        with _not_failing():
            opened = _opened(session, plan, entries, rows)  # type: ignore[arg-type]
        yield opened


@contextmanager
def _not_failing() -> Iterator[None]:
    try:
        yield
    except FailedOnRows:
        raise NotDecomposable("it fails on some rows") from None


def _opened(session: StreamingSession, plan: Decomposition, entries: int, rows: int) -> Stream:
    if plan.chooses_groups:
        raise NotDecomposable("its HAVING chooses groups")
    statement = prepare(session, plan)
    size = session.count_individuals()
    _store(session, statement.rewritten, size, max(1, min(size, -(-statement.facts.rows // rows))))
    everyone = statement.everyone()
    count = exp.select("COUNT(*) AS n").from_("empriv_partials")
    pairs = int(session.fetch(count)["n"].values[0])
    spans = _spans(size, max(1, min(size, -(-pairs // entries))))

    def chunks(skipped: int = 0) -> Generator[Results, None, None]:
        for first, stop in spans[skipped:]:
            with _not_failing():
                each = statement.rewritten.of_each(_between("p", first, stop, size))
                answers = statement.answers(each, stop)
                answers = replace(answers, pair=answers.pair - first * answers.n_databases)
                labels = session.individuals_between(first, stop)
                chunk = statement.assembled(answers, individuals=labels, everyone=everyone)
            yield chunk

    return Stream(session, everyone, size, len(spans), chunks)


def _spans(size: int, count: int) -> list[tuple[int, int]]:
    """Positions of individuals in so many chunks."""
    return [(size * k // count, size * (k + 1) // count) for k in range(count)]


def _store(session: StreamingSession, rewritten: LeaveOneOut, size: int, turns: int) -> None:
    """Keep the tables of a statement; what there is per individual is computed in turns, for chunks of individuals.

    A turn groups what fits in memory, and puts the individuals of a chunk next to each other, where they are found
    again quickly.
    """
    for name, statement in rewritten.tables():
        if name != "empriv_partials" or turns == 1:
            session.store(name, statement)
            continue
        for number, (first, stop) in enumerate(_spans(size, turns)):
            some = _between("r", first, stop, size)
            if number == 0:
                session.store(name, statement.where(f"({some}) OR r.{INDIVIDUAL} IS NULL"))
            else:
                session.append(name, statement.where(some))


def _between(table: str, first: int, stop: int, size: int) -> str:
    """The condition that an individual's position is in a span."""
    column = f"{table}.{INDIVIDUAL}"
    low, high = (f"(SELECT label FROM empriv_individuals WHERE code = {code})" for code in (first, stop))
    conditions = [f"{column} >= {low}"] if first > 0 else []
    conditions += [f"{column} < {high}"] if stop < size else []
    return " AND ".join(conditions) or f"NOT {column} IS NULL"
