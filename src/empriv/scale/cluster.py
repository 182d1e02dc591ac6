"""A scan on a cluster: individuals are dealt out to the executors, measured there, and only tallies come back.

The engine's session gives DataFrames; what runs in an executor is in `executors`. Individuals are dealt by a hash of
their label after their rows have been added up, so that neither an individual nor a database with most of the rows
burdens one executor.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from empriv.base.progress import progress as progress_bar
from empriv.errors import InputError, QueryError
from empriv.results import Results
from empriv.scale.executors import VALUE, WHERE, WHO, measured_batches, schema_of
from empriv.scale.stretches import Yardstick, check_component, nobody_listed
from empriv.scale.tally import Tally, from_bytes, merge_all, with_absent

if TYPE_CHECKING:
    from empriv.collecting import Databases
    from empriv.collecting.engines.engine import ClusterEngine, ClusterSession
    from empriv.collecting.queries import Query
    from empriv.collecting.sql.decomposing import Decomposition

_INTEGERS = ("tinyint", "smallint", "int", "bigint")
# Per cent of the work, as shown, when results are there, and when they are saved.
_COLLECTED, _SAVED, _MEASURED = 60, 65, 100


def scan_on_cluster(
    engine: ClusterEngine,
    data: Databases,
    query: Query,
    fit: Callable[[Results], Yardstick],
    *,
    component: str | None,
    checkpoint: str | PathLike[str] | None,
    results_table: str | None,
    progress: bool | None,
) -> tuple[Yardstick, Tally]:
    """The yardstick and the tally of all individuals; `NotDecomposable` if the query cannot be rewritten."""
    from empriv.collecting.engines.engine import FailedOnRows
    from empriv.collecting.engines.spark.failures import querying
    from empriv.collecting.engines.spark.jobs import Percent
    from empriv.collecting.sql.aggregates import NotDecomposable
    from empriv.collecting.sql.decomposing import decompose

    decompose(query)  # before anything is opened
    try:
        with engine.session(data) as session, progress_bar(100, "Scanning on the cluster", show=progress) as advance:
            count = engine.partitions or int(session.spark.conf.get("spark.sql.shuffle.partitions"))
            shown = Percent(session.spark, advance, count)
            with shown.up_to(_COLLECTED):
                asked, item = _one_number(session, query, component)
                kept = (
                    None if checkpoint is None else f"{_absolute(checkpoint)}/{_mark(session, data, query, component)}"
                )
                found = None if kept is None else _read(session, kept)
                everyone, absent, pairs = _collected(session, decompose(asked), item) if found is None else found
            if kept is not None and found is None:
                with shown.up_to(_SAVED), querying():
                    _write(session, kept, everyone, absent, pairs)
                pairs = session.spark.read.parquet(f"{kept}/pairs")
            yardstick = fit(everyone)
            with shown.up_to(_MEASURED), querying():
                tallies = _measured(session, count, yardstick, pairs, results_table)
            if not tallies:
                raise InputError("There must be at least one individual with a row that the query reads, got none.")
            return yardstick, with_absent(merge_all(tallies, top=yardstick.top), absent)
    except FailedOnRows:
        raise NotDecomposable("it fails on some rows") from None


def _one_number(session: ClusterSession, query: Query, component: str | None) -> tuple[Query, int]:
    """The query that gives the component, and the component's position among its items.

    A group of GROUP BY is the same query over the rows of that group, which has no result where it has no rows.
    """
    from dataclasses import replace

    from sqlglot import exp

    from empriv.collecting.sql.advice import explained
    from empriv.collecting.sql.decomposing import decompose
    from empriv.collecting.sql.evaluate import admit, component_names, store_groups
    from empriv.collecting.sql.templates import fill

    admit(session, query)
    if not query.is_vector:
        check_component(component, None)
        return query, 0
    try:
        groups = store_groups(session, decompose(query)) if query.groups else [""]
    except QueryError as error:
        raise explained(session, query, error) from None
    names = component_names(query, groups) or []
    check_component(component, names)
    assert component is not None
    group, item = divmod(names.index(component), len(query.items))
    if not query.groups:
        return query, item
    assert isinstance(query.select, exp.Select)
    select = query.select.copy()
    select.set("group", None)
    select.set("order", None)
    result = select.expressions[query.items[item]].unalias()
    select.set("expressions", [fill("CASE WHEN COUNT(*) > 0 THEN q END", q=result)])
    for number, key in enumerate(query.groups):
        chosen = exp.select(f"k{number}").from_("empriv_groups").where(f"code = {group}").subquery()
        select = select.where(exp.NullSafeEQ(this=exp.paren(key.copy()), expression=chosen))
    return replace(query, select=select, items=(0,), keys=(), names=(component,), groups=()), 0


def _collected(session: ClusterSession, plan: Decomposition, item: int) -> tuple[Results, int, Any]:
    """Results with everyone, how many individuals have no entry, and the DataFrame of those without each."""
    from sqlglot import exp

    from empriv.collecting.assemble import answer
    from empriv.collecting.engines.engine import BY_LABEL
    from empriv.collecting.queries import DATA, DATABASE, INDIVIDUAL
    from empriv.collecting.sql.evaluate import as_numbers, beyond, explained, survey
    from empriv.collecting.sql.rewrite import leave_one_out, stages

    try:
        facts = survey(session, plan)
    except QueryError as error:
        raise explained(session, plan.query, error) from None
    steps = stages(plan, facts, integers=BY_LABEL)
    for name, statement in steps.tables:
        session.store(name, statement)
    found = session.fetch(as_numbers(session, steps.everyone, plan.query, None))
    beyond(found)
    q, outcomes = answer(found[f"q{item}"])
    order = np.argsort(found[DATABASE].values)
    everyone = nobody_listed(q[order], outcomes[order], session.databases)
    each = as_numbers(session, steps.each, plan.query, None)
    names = {column.alias_or_name for column in each.expressions}
    session.store("empriv_each", each)
    own = [f"{INDIVIDUAL} AS {WHO}", f"{DATABASE} AS {WHERE}", f"q{item} AS {VALUE}"]
    pairs = exp.select(*own).from_("empriv_each")
    if "beyond" in names:
        found = session.fetch(exp.select("COALESCE(BOOL_OR(beyond), FALSE) AS beyond").from_("empriv_each"))
        beyond(found)
    if "flagged" in names:
        flagged = exp.select(
            f"ROW_NUMBER() OVER (ORDER BY {DATABASE}, {INDIVIDUAL}) - 1 AS code", DATABASE, INDIVIDUAL
        ).from_("empriv_each").where("flagged")  # fmt: skip
        session.store("empriv_numbered", flagged)
        session.store("empriv_flagged", exp.select("*", "code AS label").from_("empriv_numbered"))
        if int(session.fetch(exp.select("COUNT(*) AS n").from_("empriv_flagged"))["n"].values[0]):
            again = as_numbers(session, leave_one_out(plan, facts, integers=BY_LABEL, again=True), plan.query, None)
            session.store("empriv_again", again)
            pairs = (
                exp.select(
                    f"e.{INDIVIDUAL} AS {WHO}", f"e.{DATABASE} AS {WHERE}",
                    f"CASE WHEN f.code IS NULL THEN e.q{item} ELSE a.q{item} END AS {VALUE}",
                ).from_("empriv_each AS e")
                .join("empriv_flagged AS f", on=f"e.{DATABASE} = f.{DATABASE} AND e.{INDIVIDUAL} = f.{INDIVIDUAL}",
                      join_type="left")
                .join("empriv_again AS a", on=f"a.{DATABASE} = f.code", join_type="left")
            )  # fmt: skip
    absent = 0
    if not plan.reads_all:
        counted = f"COUNT(DISTINCT {INDIVIDUAL}) AS n"
        all_, here = (
            int(session.fetch(exp.select(counted).from_(table))["n"].values[0]) for table in (DATA, "empriv_each")
        )
        absent = all_ - here
    return everyone, absent, session.frame(pairs)


def _measured(
    session: ClusterSession, count: int, yardstick: Yardstick, pairs: Any, results_table: str | None
) -> list[Tally]:
    kind = dict(pairs.dtypes)[WHO]
    integers, each = kind in _INTEGERS, results_table is not None
    if not integers and not kind.startswith("struct"):
        pairs = pairs.withColumn(WHO, pairs[WHO].cast("string"))  # as `collect` names them

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        return measured_batches(yardstick, batches, each=each, integers=integers)

    dealt = pairs.repartition(count, WHO).sortWithinPartitions(WHO, WHERE)
    found = dealt.mapInArrow(work, schema_of("bigint" if integers else "string"))
    if each:
        found = session.keep(found)
        table = found.where("tally IS NULL").drop("tally")
        table.write.mode("overwrite").saveAsTable(results_table)
    rows = found.where("tally IS NOT NULL").select("tally").collect()
    # In one order, whichever executor was first: sums of doubles come out alike.
    return [from_bytes(content, yardstick.everyone) for content in sorted(bytes(row[0]) for row in rows)]


def _absolute(path: str | PathLike[str]) -> str:
    """A path that executors understand as well: absolute, unless it names where it is."""
    text = fspath(path)
    return text if "://" in text or text.startswith(("dbfs:", "file:")) else str(Path(text).absolute())


def _mark(session: ClusterSession, data: Databases, query: Query, component: str | None) -> str:
    """By what saved results are known again: the question, how databases are cut, and the rows, by a hash of them."""
    asked = [query.text, component, data.database, data.individual, data.unidentified, repr(data.draws)]
    asked.append(session.fingerprint())
    return f"empriv-{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:24]}"


def _write(session: ClusterSession, path: str, everyone: Results, absent: int, pairs: Any) -> None:
    pairs.write.mode("overwrite").parquet(f"{path}/pairs")
    buffer = io.BytesIO()
    np.savez(buffer, q=everyone.q, outcomes=everyone.outcomes, databases=everyone.databases)
    said = json.dumps({"absent": absent, "everyone": base64.b64encode(buffer.getvalue()).decode()})
    # Written last: whoever finds it finds all.
    session.spark.createDataFrame([(said,)], "said string").write.mode("overwrite").parquet(f"{path}/done")


def _read(session: ClusterSession, path: str) -> tuple[Results, int, Any] | None:
    from empriv.collecting.engines.spark.failures import is_missing, querying

    with querying():
        try:
            said = json.loads(session.spark.read.parquet(f"{path}/done").collect()[0][0])
            pairs = session.spark.read.parquet(f"{path}/pairs")
        except Exception as error:
            if is_missing(error):
                return None
            raise
    with np.load(io.BytesIO(base64.b64decode(said["everyone"])), allow_pickle=False) as arrays:
        everyone = nobody_listed(arrays["q"], arrays["outcomes"], arrays["databases"])
    return everyone, int(said["absent"]), pairs
