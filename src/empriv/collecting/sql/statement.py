"""The plan of a statement: all that is asked of a session to answer a rewritten query, in one place.

1. **Admit** the query: it must reach nothing but its rows.
2. **Survey** the rows: the types of the arguments, and the largest and smallest of those that are added up.
3. **Prepare** the tables that the statement reads: labels of individuals, and groups.
4. **Write** the statement, in one piece or in steps whose tables are kept (`rewrite` does that).
5. **Ask** for results as doubles, and refuse those that a double cannot hold.
6. **Look again** at what is flagged: computed once more, from the rows that are left.

`answered` fetches everybody's results at once, `stream` those of some individuals at a time; on a cluster they stay
in tables of the engine (`Statement.entries`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlglot import exp

from empriv.collecting.assemble import (
    IDENTIFYING,
    PASSING,
    Answers,
    Group,
    answer,
    assemble,
    cells_of,
    check_groups,
    check_selected,
    component_names,
    group_value,
    says_which_database,
)
from empriv.collecting.engines.engine import ENTRY, MASTER, Column, FailedOnRows, Session
from empriv.collecting.queries import DATA, DATABASE, INDIVIDUAL, MOST_CELLS, Query, as_written, check_keys
from empriv.collecting.sql.advice import explained
from empriv.collecting.sql.aggregates import Facts, NotDecomposable, Span
from empriv.collecting.sql.allowlist import check, check_tables, check_tables_of_people
from empriv.collecting.sql.decomposing import Decomposition, decompose
from empriv.collecting.sql.per_person import PAIR
from empriv.collecting.sql.printing import fill, text
from empriv.collecting.sql.rerun import BEYOND, LARGEST_EXACT
from empriv.collecting.sql.rewrite import GROUP, KEY, RESULT, Stages, instead_of_data, leave_one_out, stages
from empriv.errors import QueryError
from empriv.results import IntArray, Results


@dataclass(frozen=True, eq=False)
class Statement:
    """A rewritten query, prepared on a session.

    Attributes
    ----------
    session : where it is asked
    plan : what the query is made of
    facts : what the survey found
    groups : the groups of GROUP BY; one without a name if there are none
    by_label : whether individuals are named by their labels, and not by their positions
    refuse : whether results that a double cannot hold are refused
    """

    session: Session
    plan: Decomposition
    facts: Facts
    groups: list[Group]
    by_label: bool = False
    refuse: bool = True

    def whole(self) -> exp.Select:
        """With everyone and without each individual, in one piece."""
        return leave_one_out(self.plan, self.facts, by_label=self.by_label)

    def steps(self, only: str | None = None) -> Stages:
        """The same in steps; ``only`` is a condition on ``p.empriv_individual``."""
        return stages(self.plan, self.facts, by_label=self.by_label, only=only)

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
            tuple(answer(columns[f"{RESULT}{number}"]) for number in range(len(query.items))),
        )
        self._look_again(answers, columns)
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

    def everyone(self, steps: Stages) -> Results:
        """Results with everyone, and nobody listed."""
        return self.assembled(self.answers(steps.everyone, 0), individuals=np.zeros(0, np.int64))

    def entries(self, steps: Stages, item: int) -> exp.Select:
        """A statement of results without each individual, with the columns of `ENTRY`; they stay in the engine.

        ``item`` says which of the query's results. Individuals are named by their labels.
        """
        assert self.by_label
        session, (who, where, value) = self.session, ENTRY
        each = _as_numbers(session, steps.each, self.plan.query, None)
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
        """The statement over the rows that are left for each pair in ``empriv_flagged``."""
        statement = leave_one_out(self.plan, self.facts, by_label=self.by_label, again=True)
        return _as_numbers(self.session, statement, self.plan.query, None)

    def _look_again(self, answers: Answers, columns: Mapping[str, Column]) -> None:
        """Compute what is flagged from the rows that are left, in place; few are: only an outlier takes most away."""
        # By label only results with everyone are fetched: there all rows are left, and nothing changes.
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
            new_values, new_codes = answer(columns[f"{RESULT}{item}"])
            values[places], codes[places] = new_values[row], new_codes[row]


def admit(session: Session, query: Query) -> None:
    """Refuse a query that reaches beyond its rows, before anything is run for it."""
    assert query.select is not None
    check(query.select, query.text)
    check_tables(query.select, list(session.columns), query.text)
    check_tables_of_people(query.select, session.columns, session.whose)
    check_keys(query, session.columns)
    try:
        session.admit(query.select, as_written(query.text))
    except QueryError as error:
        raise explained(session, query, error) from None


def prepare(session: Session, plan: Decomposition, *, by_label: bool = False, refuse: bool = True) -> Statement:
    """Survey the rows, and make the tables of labels and groups that the statement reads.

    Without ``refuse``, groups may be of one individual each, and results may be beyond what a double holds exactly.
    """
    try:
        facts = survey(session, plan)
    except FailedOnRows:
        raise
    except QueryError as error:
        raise explained(session, plan.query, error) from None
    if not by_label:
        session.label_individuals()
    groups: list[Group] = _store_groups(session, plan, refuse=refuse) if plan.query.groups else [("",)]
    return Statement(session, plan, facts, groups, by_label, refuse)


def survey(session: Session, plan: Decomposition) -> Facts:
    """What must be known of the arguments before the statement can be written."""
    arguments = plan.arguments
    named = (exp.alias_(x.copy(), name) for name, x in arguments.items())
    described = session.types(_each_once(session, plan, fill("1"), *named))
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
    columns = session.fetch(_each_once(session, plan, *measures))

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


def _each_once(session: Session, plan: Decomposition, *expressions: exp.Expr) -> exp.Select:
    """Select these from the rows that a query reads, each of them once, in however many random databases it is."""
    if not session.drawn:
        return plan.rows(*expressions)
    return instead_of_data(plan.rows(*expressions, carried=[INDIVIDUAL]), exp.select("*").from_(MASTER))


def components_of(session: Session, query: Query) -> list[str] | None:
    """Names of a vector's components, None if the query gives one number; groups are looked up in the rows."""
    if not query.groups:
        return component_names(query, [("",)])
    try:
        plan = decompose(query, session.whose)
        if plan.chooses_groups:
            raise NotDecomposable("its HAVING chooses groups")
        groups = _store_groups(session, plan)
    except QueryError as error:
        raise explained(session, query, error) from None
    return component_names(query, groups)


def only_component(query: Query, position: int, name: str) -> tuple[Query, int]:
    """The query that gives one component of those in `components_of`, and which of its items that is.

    A group of GROUP BY is the same query over the rows of that group, which has no result where it has no rows.
    """
    group, item = divmod(position, len(query.items))
    if not query.groups:
        return query, item
    assert isinstance(query.select, exp.Select)
    select = query.select.copy()
    select.set("group", None)
    select.set("order", None)
    result = select.expressions[query.items[item]].unalias()
    select.set("expressions", [fill("CASE WHEN COUNT(*) > 0 THEN q END", q=result)])
    for number, key in enumerate(query.groups):
        chosen = exp.select(f"{KEY}{number}").from_("empriv_groups").where(f"code = {group}").subquery()
        select = select.where(exp.NullSafeEQ(this=exp.paren(key.copy()), expression=chosen))
    return replace(query, select=select, items=(0,), keys=(), names=(name,), groups=()), 0


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


def _names_individuals(session: Session, plan: Decomposition, keys: Sequence[exp.Expr]) -> bool:
    """Whether groups by these keys identify: each is one individual's, or several are called as their only one is."""
    whose = plan.column(INDIVIDUAL)
    known = [fill("NOT k IS NULL", k=key) for key in keys]
    # 17850.0 is called 17850
    called = "REGEXP_REPLACE(CAST(MIN({0}) AS TEXT), '[.]0$', '')"
    named = [fill(f"{called.format('k')} = {called.format('i')}", k=key, i=whose) for key in keys]
    owners = (
        _each_once(
            session,
            plan,
            exp.alias_(fill("MIN(i) = MAX(i)", i=whose), "alone"),
            exp.alias_(exp.and_(fill("MIN(i) = MAX(i)", i=whose), exp.or_(*named)), "same"),
        )
        .where(*known, fill("NOT i IS NULL", i=whose))
        .group_by(*(exp.paren(key.copy()) for key in keys))
    )
    counted = exp.select(
        "COUNT(*) AS n",
        "COUNT(CASE WHEN alone THEN 1 END) AS alone",
        "COUNT(CASE WHEN same THEN 1 END) AS same",
    ).from_(owners.subquery("empriv_owners"))
    found = session.fetch(counted)
    n, alone, same = (int(found[name].values[0]) for name in ("n", "alone", "same"))
    # One group of one individual may be anything, unless it is called as they are; one of many may be so by chance.
    return (n == alone and n > 1) or same == n == 1 or same > 1


def _across_databases(session: Session, plan: Decomposition) -> tuple[set[int], bool]:
    """Keys of which each database has one value and the databases have several; whether no group is in two databases.

    To be asked after ``empriv_groups`` is stored.
    """
    if session.drawn or len(session.databases) < 2:
        return set(), False
    keys = [f"{KEY}{k}" for k in range(len(plan.query.groups))]
    named = (exp.alias_(key.copy(), k) for k, key in zip(keys, plan.query.groups, strict=True))
    pairs = plan.rows(exp.alias_(plan.column(DATABASE), DATABASE), *named).distinct().subquery("empriv_pairs")
    values = "COUNT(DISTINCT {0}) + COALESCE(MAX(CASE WHEN {0} IS NULL THEN 1 ELSE 0 END), 0) AS {0}"
    of_each = exp.select(*map(values.format, keys), "COUNT(*) AS n").from_(pairs).group_by(DATABASE)
    most = exp.select(*(f"MAX({k}) AS {k}" for k in keys), "SUM(n) AS n").from_(of_each.subquery("empriv_of_each"))
    of_all = exp.select(*map(values.format, keys), "COUNT(*) AS n").from_("empriv_groups")
    in_one, in_all = session.fetch(most), session.fetch(of_all)
    told = {number for number, k in enumerate(keys) if in_one[k].values[0] == 1 < in_all[k].values[0]}
    return told, in_one["n"].values[0] == in_all["n"].values[0] > 1


def _store_groups(session: Session, plan: Decomposition, *, refuse: bool = True) -> list[Group]:
    """Make the table of groups, and name them."""
    keys = [f"{KEY}{k}" for k in range(len(plan.query.groups))]
    named = (exp.alias_(key.copy(), k) for k, key in zip(keys, plan.query.groups, strict=True))
    distinct = _each_once(session, plan, *named).distinct()
    codes = exp.select(f"ROW_NUMBER() OVER (ORDER BY {', '.join(keys)}) - 1 AS code", *keys)
    session.store("empriv_groups", codes.from_(distinct.subquery("empriv_distinct")))
    told, passing = _across_databases(session, plan) if refuse else (set(), False)
    # Each key alone, and all of them: two that are shared may name one individual together.
    others = [key for number, key in enumerate(plan.query.groups) if number not in told]
    for chosen in [[key] for key in others] + ([others] if len(others) > 1 else []):
        if refuse and _names_individuals(session, plan, chosen):
            raise QueryError(IDENTIFYING)
    if told:
        raise says_which_database(plan.query, told)
    if passing:
        raise QueryError(PASSING)
    check_selected(plan.query)
    count = _count(session, "COUNT(*)", "empriv_groups")
    if plan.chooses_groups and count * len(plan.query.items) > MOST_CELLS:
        raise NotDecomposable("its HAVING chooses among many groups")
    check_groups(plan.query, count)
    texts = exp.select(*(f"CAST({k} AS TEXT) AS {k}" for k in keys))
    columns = session.fetch(texts.from_("empriv_groups").order_by("code"))
    values = [
        [None if null else str(value) for value, null in zip(columns[k].values, columns[k].null, strict=True)]
        for k in keys
    ]
    return [tuple(map(group_value, row)) for row in zip(*values, strict=True)]
