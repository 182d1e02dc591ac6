"""One SQL query, rewritten into one statement that gives its result with everyone and without each individual.

States per database and individual are added up per database; the query's own expression is then taken of the total
(with everyone) and of the rest of the total (without each individual). Tree in, tree out: nothing is run here.

    empriv_rows      the rows that pass WHERE, with the arguments of the aggregates (empriv_a0 ...) and group keys
    empriv_scales    what states need of a whole database: centres of squares, windows of quantiles
    empriv_own       states per individual and group, where databases are random samples of individuals
    empriv_partials  states per database, individual and group
    empriv_totals    states per database and group
    empriv_without   states with everyone (individual -1) and without each individual

The statement reads ``data``, whose columns ``empriv_database`` and ``empriv_individual`` say where a row belongs, and
the tables of labels ``empriv_databases``, ``empriv_individuals`` and, for GROUP BY, ``empriv_groups``. It gives
positions of labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sqlglot import exp

from empriv.collecting.engines.engine import DATA, DATABASE, INDIVIDUAL, MASTER, SAMPLES, in_sample
from empriv.collecting.sql.aggregates import Builder, Facts, Quantile
from empriv.collecting.sql.decompose import PAIR, Decomposition
from empriv.collecting.sql.printing import Node, fill, in_place_of, query, reads_of_data, text

GROUP, KEY, RESULT = "empriv_group", "empriv_k", "empriv_q"
_HASHES = ("empriv_x", "empriv_y")


Part = tuple[str, exp.Expr, bool | None]


@dataclass(frozen=True)
class LeaveOneOut:
    """A rewritten query, as one statement or in steps.

    Attributes
    ----------
    columns : of results
    parts : named parts, in order, and whether they are kept rather than computed at each use
    everyone, each : states with everyone, and without each individual
    own : the query's own WITH
    """

    columns: tuple[Node, ...]
    parts: tuple[Part, ...]
    everyone: exp.Select
    each: exp.Select
    own: exp.Expr | None

    def whole(self) -> exp.Select:
        """One statement: database, individual, group if any, then empriv_q0, empriv_q1 ...

        ``flagged`` follows if some may be inexact.
        """
        without = self.everyone.union(self.each, distinct=False)
        return self._results([*self.parts, ("empriv_without", without, None)], own=self.own)

    def tables(self) -> Iterator[tuple[str, exp.Select]]:
        """Statements whose rows are to be kept as tables of these names, in this order, for those that follow."""
        (_, rows, _), *parts = self.parts
        for name, part, _ in parts:
            assert isinstance(part, exp.Select)
            step = part.copy()
            if any(table.name == "empriv_rows" for table in step.find_all(exp.Table)):
                step = step.with_("empriv_rows", as_=rows.copy())
                _put_first(step, self.own)
            yield name, step

    def of_everyone(self) -> exp.Select:
        """Results with everyone, from the tables."""
        return self._results([("empriv_without", self.everyone, None)], own=None)

    def of_each(self, only: str | None = None) -> exp.Select:
        """Results without each individual, from the tables; ``only`` is a condition on ``p.empriv_individual``."""
        each = self.each if only is None else self.each.where(only)
        return self._results([("empriv_without", each, None)], own=None)

    def _results(self, parts: Sequence[Part], own: exp.Expr | None) -> exp.Select:
        found = exp.select(*(column.copy() for column in self.columns)).from_("empriv_without", copy=False)
        for name, part, materialized in parts:
            found = found.with_(name, as_=part.copy(), materialized=materialized, copy=False)
        _put_first(found, own)
        return found


def _put_first(statement: exp.Select, own: exp.Expr | None) -> None:
    if own is not None:
        with_ = statement.args.get("with_") or statement.args["with"]
        with_.set("recursive", own.args.get("recursive"))
        with_.set("expressions", [*(cte.copy() for cte in own.expressions), *with_.expressions])


def leave_one_out(plan: Decomposition, facts: Facts, *, by_label: bool = False, again: bool = False) -> LeaveOneOut:
    """Rewrite a query. An individual is given as a code, or ``by_label``.

    With ``again``, the remaining rows of each pair in the table ``empriv_flagged`` are taken for a database of their
    own, from which nobody is left out.
    """
    builder = Builder(facts)
    names = {text(x): name for name, x in plan.arguments.items()}
    values = [
        call.aggregate.build(
            builder, *(exp.column(names[text(x)]) if text(x) in names else x.copy() for x in call.arguments)
        )
        for call in plan.calls
    ]
    results = [_put_results(tree.copy(), values) for tree in plan.results]
    keys = [f"{KEY}{k}" for k in range(len(plan.query.groups))]
    present = builder.add("COUNT(*)") if keys else None

    whose: tuple[Node, ...] = (plan.column(DATABASE), plan.column(INDIVIDUAL))
    carried: tuple[str, ...] = (DATABASE, INDIVIDUAL)
    if again:
        carried = (PAIR, INDIVIDUAL)
        whose = (
            exp.alias_(plan.column(PAIR), DATABASE),
            exp.alias_(fill("CASE WHEN FALSE THEN i END", i=plan.column(INDIVIDUAL)), INDIVIDUAL),
        )
    by_value = builder.distincts or builder.quantiles
    once = facts.drawn and not again and not (builder.scales or by_value)
    if once:
        carried = (INDIVIDUAL, *_HASHES)
        whose = tuple(map(plan.column, carried))
    rows = plan.rows(
        *whose,
        *(exp.alias_(key.copy(), k) for k, key in zip(keys, plan.query.groups, strict=True)),
        *(exp.alias_(x.copy(), name) for name, x in plan.arguments.items()),
        carried=carried,
    )
    if again:
        rows = instead_of_data(rows, _remaining_rows(by_label))
    if once:
        rows = instead_of_data(rows, exp.select("*").from_(MASTER))
    own = rows.args.pop("with_", None) or rows.args.pop("with", None)
    columns: list[Node] = [exp.column(name) for name in (DATABASE, INDIVIDUAL, *([GROUP] if keys else []))]
    for number, result in enumerate(results):
        value = result if present is None else fill("CASE WHEN n > 0 THEN q END", n=present, q=result)
        columns.append(exp.alias_(value, f"{RESULT}{number}"))
    if builder.flags:
        columns.append(exp.alias_(exp.or_(*builder.flags), "flagged"))
    labels = "empriv_flagged" if again else "empriv_databases"
    parts = tuple(_parts(builder, keys, rows, once=once))
    return LeaveOneOut(tuple(columns), parts, *_without(builder, keys, labels, by_label), own)


def instead_of_data(rows: exp.Select, select: exp.Select) -> exp.Select:
    """The rows that a query reads, with other rows in the place of ``data``."""
    for table in reads_of_data(rows):
        table.replace(in_place_of(table, select.copy()))
    return rows


def _remaining_rows(by_label: bool) -> exp.Select:
    code, join = _code("r", by_label)
    return query(
        f"SELECT r.*, f.code AS {PAIR} FROM {DATA} AS r JOIN empriv_databases AS d ON d.label = r.{DATABASE} "
        f"JOIN empriv_flagged AS f ON f.{DATABASE} = d.code {'LEFT ' if join else ''}{join} "
        f"WHERE {code} IS DISTINCT FROM f.{INDIVIDUAL}"
    )


def _code(table: str, by_label: bool) -> tuple[str, str]:
    """The label or the position of an individual, and the join that it needs."""
    if by_label:
        return f"{table}.{INDIVIDUAL}", ""
    return "i.code", f"JOIN empriv_individuals AS i ON i.label = {table}.{INDIVIDUAL}"


def _parts(builder: Builder, keys: list[str], rows: exp.Select, *, once: bool) -> Iterator[Part]:
    """The named parts of the statement, in order, and whether they are kept rather than computed at each use."""
    by, group = [DATABASE, *keys], ", ".join([DATABASE, *keys])
    yield "empriv_rows", rows, False
    if builder.scales:
        scales = exp.select(*by, *(exp.alias_(node.copy(), name) for name, node in builder.scales.items()))
        yield "empriv_scales", scales.from_("empriv_rows").group_by(*by), True
    if once:
        yield "empriv_own", _states(builder, keys, [INDIVIDUAL, *_HASHES, *keys]), True
        own = ", ".join(f"r.{name}" for name in (INDIVIDUAL, *keys, *builder.additive, *builder.extremes))
        sampled = (
            f"SELECT d.draw AS {DATABASE}, {own} FROM empriv_own AS r JOIN {SAMPLES} AS d ON {in_sample('r', 'd')}"
        )
        yield "empriv_partials", query(sampled), True
    else:
        yield "empriv_partials", _states(builder, keys, [DATABASE, INDIVIDUAL, *keys]), True

    totals = [
        # A sum of counts would be of 128 bits, which is slow.
        f"CAST(SUM({s}) AS BIGINT) AS {s}" if isinstance(state, exp.Count) else f"SUM({s}) AS {s}"
        for s, state in builder.additive.items()
    ]
    totals += [f"{side}({m}) AS {m}" for m, (_, side) in builder.extremes.items()]
    totals += [_most_rows(name, quantile) for name, quantile in builder.quantiles.items()]
    summed = f"SELECT {', '.join(by + totals)} FROM empriv_partials GROUP BY {group}"
    yield "empriv_totals", _with_kept(builder, keys, summed), True

    if builder.extremes:
        yield "empriv_runners", _runners(builder, keys), True
    for name, x in builder.distincts.items():
        yield (
            f"empriv_values_{name}",
            query(
                f"SELECT {group}, CASE WHEN COUNT({INDIVIDUAL}) = COUNT(*) AND MIN({INDIVIDUAL}) = MAX({INDIVIDUAL}) "
                f"THEN MIN({INDIVIDUAL}) END AS {INDIVIDUAL} FROM empriv_rows WHERE NOT {x.name} IS NULL "
                f"GROUP BY {group}, {x.name}"
            ),
            True,
        )
        count = f"COUNT(*) AS n FROM empriv_values_{name}"
        yield f"empriv_all_{name}", query(f"SELECT {group}, {count} GROUP BY {group}"), True
        sole = f"SELECT {group}, {INDIVIDUAL}, {count} WHERE NOT {INDIVIDUAL} IS NULL GROUP BY {group}, {INDIVIDUAL}"
        yield f"empriv_sole_{name}", query(sole), True
    for name, quantile in builder.quantiles.items():
        for part, select in _ranked_rows(name, quantile, keys):
            yield part, select, True


def _states(builder: Builder, keys: list[str], names: list[str]) -> exp.Select:
    """The states of the rows by these columns."""
    source = "empriv_rows AS r"
    if builder.scales:
        source += f" JOIN empriv_scales AS c ON {_on('r', 'c', keys)}"
    states = {**builder.additive, **{m: fill(f"{side}(x)", x=x) for m, (x, side) in builder.extremes.items()}}
    columns = [f"r.{name}" for name in names]
    found = query(f"SELECT {', '.join(columns)} FROM {source}")
    found = found.select(*(exp.alias_(state.copy(), name) for name, state in states.items()), copy=False)
    return found.group_by(*columns, copy=False)


def _with_kept(builder: Builder, keys: list[str], totals: str) -> exp.Select:
    """Totals with the scales that results need: joined here, to a few rows, rather than to one for each individual."""
    if not builder.kept:
        return query(totals)
    kept = "".join(f", c.{name}" for name in sorted(builder.kept))
    return query(f"SELECT t.*{kept} FROM ({totals}) AS t LEFT JOIN empriv_scales AS c ON {_on('t', 'c', keys)}")


def _runners(builder: Builder, keys: list[str]) -> exp.Select:
    """Next to the largest value: how many individuals hold it, and the largest of the others."""
    by = ", ".join(f"t.{name}" for name in (DATABASE, *keys))
    columns = []
    for m, (_, side) in builder.extremes.items():
        beyond = "<" if side == "MAX" else ">"
        columns.append(f"{side}(CASE WHEN p.{m} {beyond} t.{m} THEN p.{m} END) AS {m}")
        columns.append(f"COUNT(CASE WHEN p.{m} = t.{m} THEN 1 END) AS {m}_holders")
    return query(
        f"SELECT {by}, {', '.join(columns)} FROM empriv_partials AS p JOIN empriv_totals AS t "
        f"ON {_on('p', 't', keys)} GROUP BY {by}"
    )


def _without(builder: Builder, keys: list[str], labels: str, by_label: bool) -> tuple[exp.Select, exp.Select]:
    """The states with everyone (individual -1), and those without each individual."""
    group = [f"g.code AS {GROUP}"] if keys else []
    everyone = [f"d.code AS {DATABASE}", f"-1 AS {INDIVIDUAL}", *group]
    everyone += [f"COALESCE(t.{s}, 0) AS {s}" for s in builder.additive]
    everyone += [f"t.{m} AS {m}" for m in builder.extremes]
    code, join = _code("p", by_label)
    each = [f"d.code AS {DATABASE}", f"{code} AS {INDIVIDUAL}", *group]
    for s, state in builder.additive.items():
        # Counts are never NULL where there is a row.
        counts = isinstance(state, exp.Count)
        each.append(f"t.{s} - p.{s} AS {s}" if counts else f"COALESCE(t.{s}, 0) - COALESCE(p.{s}, 0) AS {s}")
    each += [
        f"CASE WHEN p.{m} = t.{m} AND r.{m}_holders = 1 THEN r.{m} ELSE t.{m} END AS {m}" for m in builder.extremes
    ]
    # Without groups, a database in which no row passes WHERE has a result too: SQL's answer on no rows.
    outer = "JOIN" if keys else "LEFT JOIN"
    of_everyone = [f"{labels} AS d {outer} empriv_totals AS t ON t.{DATABASE} = d.label"]
    of_each = [f"empriv_partials AS p JOIN empriv_totals AS t ON {_on('p', 't', keys)}"]
    of_each += [f"JOIN {labels} AS d ON d.label = t.{DATABASE}"]
    of_each += [join]
    if keys:
        matched = " AND ".join(f"g.{k} IS NOT DISTINCT FROM t.{k}" for k in keys)
        of_everyone.append(f"JOIN empriv_groups AS g ON {matched}")
        of_each.append(f"JOIN empriv_groups AS g ON {matched}")
    if builder.extremes:
        of_each.append(f"JOIN empriv_runners AS r ON {_on('t', 'r', keys)}")
    for columns in (everyone, each):
        columns += [f"t.{name}" for name in sorted(builder.kept)]
    if builder.quantiles:
        for tables in (of_everyone, of_each):
            tables.append(f"LEFT JOIN empriv_scales AS c ON {_on('t', 'c', keys)}")
    for name in builder.distincts:
        every, sole = f"{name}_all", f"{name}_sole"
        for tables in (of_everyone, of_each):
            tables.append(f"LEFT JOIN empriv_all_{name} AS {every} ON {_on('t', every, keys)}")
        of_each.append(
            f"LEFT JOIN empriv_sole_{name} AS {sole} ON {_on('p', sole, keys)} AND p.{INDIVIDUAL} = {sole}.{INDIVIDUAL}"
        )
        everyone.append(f"COALESCE({every}.n, 0) AS {name}")
        each.append(f"COALESCE({every}.n, 0) - COALESCE({sole}.n, 0) AS {name}")
    for columns, tables, is_each in ((everyone, of_everyone, False), (each, of_each, True)):
        for name, quantile in builder.quantiles.items():
            own, joins = _joined_quantile(name, quantile, keys, each=is_each)
            columns += own
            tables += [f"LEFT JOIN {table} ON {condition}" for table, condition in joins]
    total = query(f"SELECT {', '.join(everyone)} FROM {' '.join(of_everyone)}")
    without = query(f"SELECT {', '.join(each)} FROM {' '.join(of_each)}")
    if by_label:
        without = without.where(f"NOT p.{INDIVIDUAL} IS NULL", copy=False)
    return total, without


def _put_results(tree: Node, results: list[Node]) -> Node:
    def put(node: Node) -> Node:
        if isinstance(node, exp.Column) and node.table == "empriv_call":
            return exp.paren(results[int(node.name.removeprefix("call"))].copy(), copy=False)
        return node

    return tree.transform(put)


def _most_rows(name: str, quantile: Quantile) -> str:
    """What the totals must hold: the most rows that an individual has."""
    return f"MAX(CASE WHEN NOT {INDIVIDUAL} IS NULL THEN {quantile.n} END) AS {name}_most"


def _ranked_rows(name: str, quantile: Quantile, keys: list[str]) -> list[tuple[str, exp.Select]]:
    """Rows near a quantile with their ranks, and how many of them each individual takes away.

    They are ranked once: without an individual, a rank moves by as many of their rows as stand before it.
    """
    x, low, high = f"r.{quantile.x.name}", f"c.{quantile.low}", f"c.{quantile.high}"
    k = "".join(f", r.{key}" for key in keys)
    own = "".join(f", {key}" for key in keys)
    near = query(
        f"SELECT r.{DATABASE}{k}, r.{INDIVIDUAL}, {x} AS v, {_below('t', name, quantile)} "
        f"+ ROW_NUMBER() OVER (PARTITION BY r.{DATABASE}{k} ORDER BY {x}) - 1 AS place FROM empriv_rows AS r "
        f"JOIN empriv_scales AS c ON {_on('r', 'c', keys)} JOIN empriv_totals AS t ON {_on('r', 't', keys)} "
        f"WHERE NOT {x} IS NULL AND ({_wide(name, quantile)} OR ({low} < {high} AND {x} >= {low} AND {x} <= {high}))"
    )
    # The place that a row would have among the rows of others, but for rows below the window.
    mine = query(
        f"SELECT {DATABASE}{own}, {INDIVIDUAL}, place + 1 - ROW_NUMBER() OVER ("
        f"PARTITION BY {DATABASE}{own}, {INDIVIDUAL} ORDER BY place) AS place "
        f"FROM empriv_near_{name} WHERE NOT {INDIVIDUAL} IS NULL"
    )
    below, (first, last) = _below("p", name, quantile), _positions(quantile, f"t.{quantile.n} - p.{quantile.n}")
    taken = query(
        f"SELECT r.{DATABASE}{k}, r.{INDIVIDUAL}, COUNT(CASE WHEN r.place - {below} <= {first} THEN 1 END) AS low, "
        f"COUNT(CASE WHEN r.place - {below} <= {last} THEN 1 END) AS high FROM empriv_mine_{name} AS r "
        f"JOIN empriv_partials AS p ON {_on('r', 'p', keys)} AND r.{INDIVIDUAL} = p.{INDIVIDUAL} "
        f"JOIN empriv_totals AS t ON {_on('r', 't', keys)} JOIN empriv_scales AS c ON {_on('r', 'c', keys)} "
        f"GROUP BY r.{DATABASE}{k}, r.{INDIVIDUAL}"
    )
    return [(f"empriv_near_{name}", near), (f"empriv_mine_{name}", mine), (f"empriv_taken_{name}", taken)]


def _joined_quantile(
    name: str, quantile: Quantile, keys: list[str], *, each: bool
) -> tuple[list[str], list[tuple[str, str]]]:
    """Columns of the order statistics, and the LEFT JOINs that find them, with everyone or without each."""
    columns, joins = [], []
    count = f"t.{quantile.n}"
    if each:
        count = f"{count} - p.{quantile.n}"
        joins.append(
            (f"empriv_taken_{name} AS {name}_taken", f"{_on('p', f'{name}_taken', keys)} "
             f"AND p.{INDIVIDUAL} = {name}_taken.{INDIVIDUAL}")
        )  # fmt: skip
    for side, position in zip(("low", "high"), _positions(quantile, count), strict=True):
        if side == "high" and not quantile.continuous:
            columns.append(f"NULL AS {name}_high")
            continue
        place = position
        if each:
            place = f"{position} + {_below('p', name, quantile)} + COALESCE({name}_taken.{side}, 0)"
        near = f"{name}_near_{side}"
        joins.append((f"empriv_near_{name} AS {near}", f"{_on('t', near, keys)} AND {near}.place = {place}"))
        columns.append(f"COALESCE({near}.v, c.{quantile.low}) AS {name}_{side}")
    return columns, joins


def _on(one: str, other: str, keys: list[str]) -> str:
    """Same database and same group."""
    return " AND ".join(
        [f"{one}.{DATABASE} = {other}.{DATABASE}", *(f"{one}.{k} IS NOT DISTINCT FROM {other}.{k}" for k in keys)]
    )


def _positions(quantile: Quantile, n: str) -> tuple[str, str]:
    if quantile.continuous:
        place = f"(({n}) - 1) * ({quantile.num} / {quantile.den})"
        return f"CAST(FLOOR({place}) AS BIGINT)", f"CAST(CEIL({place}) AS BIGINT)"
    place = f"CAST(GREATEST(1, (({n}) * {quantile.num} + {quantile.den - 1}) // {quantile.den}) - 1 AS BIGINT)"
    return place, place


def _wide(name: str, quantile: Quantile) -> str:
    return f"COALESCE(t.{name}_most > c.{quantile.room}, FALSE)"


def _below(table: str, name: str, quantile: Quantile) -> str:
    return f"CASE WHEN {_wide(name, quantile)} THEN 0 ELSE {table}.{quantile.below} END"
