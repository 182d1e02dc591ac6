"""One SQL query, rewritten into one statement that gives its result with everyone and without each individual.

States per database and individual are added up per database; the query's own expression is then taken of the total
(with everyone) and of what is left of the total (without each individual). Tree in, tree out: nothing is run here.

The statement reads ``data``, whose columns ``empriv_database`` and ``empriv_individual`` say where a row belongs, and
the tables of labels ``empriv_databases``, ``empriv_individuals`` and, for GROUP BY, ``empriv_groups``. It gives
positions of labels; individual -1 is nobody, and so the result with everyone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import exp

from empriv.collect.aggregates import AGGREGATES, Aggregate, Builder, Facts, Node, NotDecomposable, fill, text
from empriv.collect.queries import DATA, Query

DATABASE, INDIVIDUAL, GROUP = "empriv_database", "empriv_individual", "empriv_group"
_REFUSED = {
    "distinct": "SELECT DISTINCT",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "fetch": "FETCH",
    "having": "HAVING",
    "qualify": "QUALIFY",
    "sample": "a sample of the rows",
}


@dataclass(frozen=True)
class Call:
    """An aggregate in the query, with FILTER and DISTINCT dissolved."""

    name: str
    aggregate: Aggregate
    arguments: tuple[Node, ...]


@dataclass(frozen=True)
class Decomposition:
    """A query that can be rewritten: where its rows come from, and its aggregates."""

    query: Query
    select: exp.Select
    alias: str
    calls: tuple[Call, ...]

    def rows(self, *expressions: Node) -> exp.Select:
        """Select these from the rows that the query reads."""
        scan = exp.Select()
        for part in ("with_", "with", "from_", "from", "joins", "where"):
            value = self.select.args.get(part)
            if value is not None:
                scan.set(part, [item.copy() for item in value] if isinstance(value, list) else value.copy())
        return scan.select(*expressions, copy=False)

    def column(self, name: str) -> exp.Column:
        return exp.column(name, table=self.alias)

    @property
    def arguments(self) -> tuple[Node, ...]:
        """Distinct arguments of all aggregates."""
        return _distinct(argument for call in self.calls for argument in call.arguments)

    @property
    def summed(self) -> tuple[Node, ...]:
        """Distinct arguments whose range must be known if they are doubles."""
        return _distinct(argument for call in self.calls if call.aggregate.sums for argument in call.arguments)


def decompose(query: Query) -> Decomposition:
    """See whether a query can be rewritten; raise `NotDecomposable` with the reason if not."""
    select = query.select
    if not isinstance(select, exp.Select):
        raise NotDecomposable("it combines several SELECTs")
    for part, words in _REFUSED.items():
        if select.args.get(part):
            raise NotDecomposable(f"it has {words}")
    group = select.args.get("group")
    if group is not None and any(group.args.get(part) for part in ("rollup", "cube", "grouping_sets")):
        raise NotDecomposable("it has grouping sets")
    alias = _alias_of_data(select)
    calls: list[Call] = []
    for position in query.items:
        _replace_calls(select.expressions[position].unalias().copy(), calls, query)
    return Decomposition(query, select, alias, tuple(calls))


def leave_one_out(plan: Decomposition, facts: Facts) -> exp.Select:
    """The statement: database, individual, group if any, then q0, q1 ... and what must be looked at again."""
    builder = Builder(facts)
    results = []
    for position in plan.query.items:
        outer = plan.select.expressions[position].unalias().copy()
        calls: list[Call] = []
        tree = _replace_calls(outer, calls, plan.query)
        results.append(_put_results(tree, [call.aggregate.build(builder, *call.arguments) for call in calls]))
    keys = {f"k{k}": key for k, key in enumerate(plan.query.groups)}
    present = builder.add("COUNT(*)") if keys else None

    states = {**builder.additive, **{m: fill(f"{side}(x)", x=x) for m, (x, side) in builder.extremes.items()}}
    by = [plan.column(DATABASE), plan.column(INDIVIDUAL), *(exp.alias_(key.copy(), k) for k, key in keys.items())]
    partials = plan.rows(*by, *(exp.alias_(state, name) for name, state in states.items()))
    with_ = partials.args.pop("with_", None) or partials.args.pop("with", None)
    partials = partials.group_by(*(exp.Literal.number(n + 1) for n in range(len(by))), copy=False)

    totals = exp.select(DATABASE, *keys)
    for name in builder.additive:
        totals.select(exp.alias_(fill("SUM(s)", s=exp.column(name)), name), copy=False)
    for name, (_, side) in builder.extremes.items():
        totals.select(exp.alias_(fill(f"{side}(m)", m=exp.column(name)), name), copy=False)
    totals = totals.from_("empriv_partials").group_by(*(exp.Literal.number(n + 1) for n in range(len(keys) + 1)))

    statement = exp.select(DATABASE, INDIVIDUAL, *([GROUP] if keys else []))
    for number, result in enumerate(results):
        value = result if present is None else fill("CASE WHEN n > 0 THEN q END", n=present, q=result)
        statement.select(exp.alias_(value, f"q{number}"), copy=False)
    if builder.flags:
        flagged = exp.or_(*builder.flags.values())
        statement.select(exp.alias_(fill("COALESCE(f, TRUE)", f=flagged), "flagged"), copy=False)
    statement = statement.from_("empriv_without")

    ctes = [("empriv_partials", partials), ("empriv_totals", totals)]
    if builder.extremes:
        ctes.append(("empriv_runners", _runners(builder, list(keys))))
    ctes.append(("empriv_without", _without(builder, list(keys))))
    for name, body in ctes:
        materialized = name == "empriv_partials"
        statement = statement.with_(name, as_=body, materialized=materialized or None, copy=False)
    if with_ is not None:
        own = statement.args.get("with_") or statement.args["with"]
        own.set("expressions", [*with_.expressions, *own.expressions])
    return statement


def _without(builder: Builder, keys: list[str]) -> exp.Expression:
    """The states with everyone (individual -1) and without each individual."""
    everyone = [f"COALESCE(t.{s}, 0) AS {s}" for s in builder.additive]
    everyone += [f"t.{m} AS {m}" for m in builder.extremes]
    left = [f"t.{s} - COALESCE(p.{s}, 0) AS {s}" for s in builder.additive]
    left = [f"COALESCE(t.{s}, 0) - COALESCE(p.{s}, 0) AS {s}" for s in builder.additive]
    left += [
        f"CASE WHEN p.{m} = t.{m} AND r.{m}_holders = 1 THEN r.{m} ELSE t.{m} END AS {m}" for m in builder.extremes
    ]
    group = [f"g.code AS {GROUP}"] if keys else []

    def same(one: str, other: str) -> list[str]:
        return [f"{one}.{DATABASE} = {other}.{DATABASE}"] + [
            f"{one}.{k} IS NOT DISTINCT FROM {other}.{k}" for k in keys
        ]

    grouped = " AND ".join(f"g.{k} IS NOT DISTINCT FROM t.{k}" for k in keys)
    # Without groups, a database in which no row passes WHERE has a result too: SQL's answer on no rows.
    total = exp.select(f"d.code AS {DATABASE}", f"-1 AS {INDIVIDUAL}", *group, *everyone, dialect="duckdb")
    total = total.from_("empriv_databases AS d").join(
        "empriv_totals AS t", on=f"t.{DATABASE} = d.label", join_type="inner" if keys else "left"
    )
    each = exp.select(f"d.code AS {DATABASE}", f"i.code AS {INDIVIDUAL}", *group, *left, dialect="duckdb")
    each = each.from_("empriv_partials AS p").join("empriv_totals AS t", on=" AND ".join(same("p", "t")))
    if builder.extremes:
        each = each.join("empriv_runners AS r", on=" AND ".join(same("t", "r")))
    each = each.join("empriv_databases AS d", on=f"d.label = p.{DATABASE}")
    each = each.join("empriv_individuals AS i", on=f"i.label = p.{INDIVIDUAL}")
    if keys:
        total, each = (part.join("empriv_groups AS g", on=grouped, dialect="duckdb") for part in (total, each))
    return total.union(each, distinct=False)


def _runners(builder: Builder, keys: list[str]) -> exp.Select:
    """Next to the largest value: how many individuals hold it, and the largest of the others."""
    on = [f"p.{DATABASE} = t.{DATABASE}"] + [f"p.{k} IS NOT DISTINCT FROM t.{k}" for k in keys]
    select = exp.select(f"t.{DATABASE}", *(f"t.{k}" for k in keys))
    for m, (_, side) in builder.extremes.items():
        beyond = "<" if side == "MAX" else ">"
        select = select.select(
            f"{side}(CASE WHEN p.{m} {beyond} t.{m} THEN p.{m} END) AS {m}",
            f"COUNT(CASE WHEN p.{m} = t.{m} THEN 1 END) AS {m}_holders",
            dialect="duckdb",
        )
    select = select.from_("empriv_partials AS p").join("empriv_totals AS t", on=" AND ".join(on), dialect="duckdb")
    return select.group_by(*(exp.Literal.number(n + 1) for n in range(len(keys) + 1)))


def _replace_calls(tree: Node, calls: list[Call], query: Query) -> Node:
    """Put ``empriv_call_0`` ... in the place of aggregates, and check that nothing else depends on rows."""

    def put(node: Node) -> Node:
        if node in query.groups:
            return exp.column(f"k{query.groups.index(node)}", table="empriv_key")
        if isinstance(node, exp.Subquery | exp.Exists):
            return node
        if isinstance(node, exp.Window):
            raise NotDecomposable("it has a window function")
        call = _call(node)
        if call is None:
            return node
        calls.append(call)
        return exp.column(f"call{len(calls) - 1}", table="empriv_call")

    tree = tree.transform(put)
    for node in tree.walk(prune=lambda node: isinstance(node, exp.Subquery | exp.Exists)):
        if isinstance(node, exp.AggFunc):
            raise NotDecomposable(f"{node.sql_name().lower()} is not an aggregate that can be rewritten")
        if isinstance(node, exp.Star) or (
            isinstance(node, exp.Column) and node.table not in {"empriv_call", "empriv_key"}
        ):
            raise NotDecomposable("it uses columns outside the aggregates that can be rewritten")
        if isinstance(node, exp.Column) and node.table == "empriv_key":
            raise NotDecomposable("a result is computed from a group key")
    return tree


def _put_results(tree: Node, results: list[Node]) -> Node:
    def put(node: Node) -> Node:
        if isinstance(node, exp.Column) and node.table == "empriv_call":
            return exp.paren(results[int(node.name.removeprefix("call"))].copy(), copy=False)
        return node

    return tree.transform(put)


def _call(node: Node) -> Call | None:
    """Understand an aggregate that the table knows."""
    condition = None
    if isinstance(node, exp.Filter):
        condition, node = node.expression.this, node.this
    if not isinstance(node, exp.AggFunc | exp.Anonymous):
        return None
    name = text(node).partition("(")[0].lower()
    arguments = [value for key, value in node.args.items() if isinstance(value, exp.Expression)]
    if isinstance(node, exp.Anonymous):
        arguments = list(node.expressions)
    if name == "count" and (not arguments or isinstance(arguments[0], exp.Star)):
        arguments = [exp.Literal.number(1)]
    if name not in AGGREGATES or any(isinstance(argument, exp.Order | exp.Distinct) for argument in arguments):
        return None
    aggregate = AGGREGATES[name]
    if len(arguments) != aggregate.arity:
        return None
    if condition is not None:
        arguments = [fill("CASE WHEN c THEN x END", c=condition, x=argument) for argument in arguments]
    return Call(name, aggregate, tuple(arguments))


def _alias_of_data(select: exp.Select) -> str:
    """By which name the query knows ``data``; only joins that keep its rows apart can be rewritten."""
    tables = [table for table in select.find_all(exp.Table) if table.name.lower() == DATA and not table.db]
    if len(tables) != 1:
        raise NotDecomposable("it reads `data` more than once" if tables else "it does not read `data` itself")
    (table,) = tables
    holder = table.parent
    if not isinstance(holder, exp.From | exp.Join) or holder.parent is not select:
        raise NotDecomposable("it reads `data` inside a subquery")
    for join in select.args.get("joins") or ():
        if join.method or join.side not in ("", "LEFT") or join.kind not in ("", "INNER", "CROSS", "OUTER"):
            raise NotDecomposable(f"it has a {' '.join(filter(None, (join.method, join.side, join.kind)))} JOIN")
        if join.side == "LEFT" and join is holder:
            raise NotDecomposable("it has a LEFT JOIN of `data`")
    return str(table.alias_or_name)


def _distinct(nodes: Iterator[Node]) -> tuple[Node, ...]:
    return tuple({text(node): node for node in nodes}.values())
