"""A scan on a cluster: individuals are dealt out to the executors, measured there, and only tallies come back.

The engine's session gives DataFrames; what runs in an executor is `measured_batches`, a function from Arrow batches to
Arrow batches that knows no engine. Individuals are dealt by a hash of their label after their rows have been added up,
so that neither an individual nor a database with most of the rows burdens one executor.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from empriv.errors import InputError, QueryError
from empriv.progress import progress as progress_bar
from empriv.results import Results, outcomes_of
from empriv.scale.stretches import Yardstick, measure_within_memory, nobody_listed
from empriv.scale.tally import Tally, from_bytes, merge, merge_all, to_bytes, with_absent, with_entries

if TYPE_CHECKING:
    from empriv.collecting import Databases
    from empriv.collecting.engine import ClusterEngine, ClusterSession
    from empriv.collecting.queries import Query
    from empriv.collecting.rewrite import Decomposition

# Entries measured at once in an executor: docs/scale.md has the memory that this takes.
ENTRIES = 500_000
_WHO, _WHERE, _VALUE = "individual", "database", "q"


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
    from empriv.collecting.rewrite import decompose
    from empriv.collecting.spark import querying

    plan = decompose(query)
    item = _item(query, component)
    with engine.session(data) as session, progress_bar(3, "Scanning on the cluster", show=progress) as advance:
        kept = None if checkpoint is None else f"{fspath(checkpoint)}/{_mark(data, query, item)}"
        found = None if kept is None else _read(session, kept)
        everyone, absent, pairs = _collected(session, plan, item) if found is None else found
        advance()
        if kept is not None and found is None:
            with querying():
                _write(session, kept, everyone, absent, pairs)
            pairs = session.spark.read.parquet(f"{kept}/pairs")
        advance()
        yardstick = fit(everyone)
        with querying():
            tallies = _measured(session, engine, yardstick, pairs, results_table)
        advance()
        if not tallies:
            raise InputError("There must be at least one individual with a row that the query reads, got none.")
        return yardstick, with_absent(merge_all(tallies, top=yardstick.top), absent)


def _item(query: Query, component: str | None) -> int:
    """Position of the component among the query's items."""
    from empriv.collecting.aggregates import NotDecomposable

    if query.groups:
        raise NotDecomposable("a scan of a query with GROUP BY is not made on the cluster")
    if not query.is_vector:
        if component is not None:
            raise InputError("`component` must be None: the query gives one number.")
        return 0
    if component is None or component not in query.names:
        raise InputError(f"`component` must name one of the query's {len(query.names)} components.")
    return query.names.index(component)


def _collected(session: ClusterSession, plan: Decomposition, item: int) -> tuple[Results, int, Any]:
    """Results with everyone, how many individuals have no entry, and the DataFrame of those without each."""
    from sqlglot import exp

    from empriv.collecting.assemble import answer
    from empriv.collecting.engine import BY_LABEL
    from empriv.collecting.evaluate import as_numbers, beyond, explained, survey
    from empriv.collecting.queries import DATA, DATABASE, INDIVIDUAL
    from empriv.collecting.rewrite import leave_one_out, stages

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
    own = [f"{INDIVIDUAL} AS {_WHO}", f"{DATABASE} AS {_WHERE}", f"q{item} AS {_VALUE}"]
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
                    f"e.{INDIVIDUAL} AS {_WHO}", f"e.{DATABASE} AS {_WHERE}",
                    f"CASE WHEN f.code IS NULL THEN e.q{item} ELSE a.q{item} END AS {_VALUE}",
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
    session: ClusterSession, engine: ClusterEngine, yardstick: Yardstick, pairs: Any, results_table: str | None
) -> list[Tally]:
    count = engine.partitions or int(session.spark.conf.get("spark.sql.shuffle.partitions"))
    kind = dict(pairs.dtypes)[_WHO]
    label = "bigint" if kind in ("tinyint", "smallint", "int", "bigint") else "string"
    each = results_table is not None
    schema = (
        f"individual {label}, databases bigint, largest_influence double, delta_i array<double>, "
        "upper_i array<double>, tally binary"
    )

    def work(batches: Iterator[Any]) -> Iterator[Any]:
        return measured_batches(yardstick, batches, each=each, integers=label == "bigint")

    dealt = pairs.repartition(count, _WHO).sortWithinPartitions(_WHO, _WHERE)
    found = dealt.mapInArrow(work, schema)
    if each:
        found = session.keep(found)
        table = found.where("tally IS NULL").drop("tally")
        table.write.mode("overwrite").saveAsTable(results_table)
    rows = found.where("tally IS NOT NULL").select("tally").collect()
    # In one order, whichever executor was first: sums of doubles come out alike.
    return [from_bytes(content, yardstick.everyone) for content in sorted(bytes(row[0]) for row in rows)]


def measured_batches(
    yardstick: Yardstick, batches: Iterator[Any], *, each: bool, integers: bool, entries: int = ENTRIES
) -> Iterator[Any]:
    """Arrow batches of entries in order of individual and database → of measured individuals, and of their tally."""
    import pyarrow

    kept: list[Any] = []
    size = 0
    tally: Tally | None = None

    def flush(table: Any) -> Iterator[Any]:
        nonlocal tally
        for found in measure_within_memory(yardstick, entries_of(yardstick.everyone, table)):
            tally = found.tally if tally is None else merge(tally, found.tally, top=yardstick.top)
            if each:
                yield _batch(
                    found.individuals, found.databases, found.influence, found.delta_i, found.upper_i, integers=integers
                )

    for batch in batches:
        kept.append(batch)
        size += batch.num_rows
        if size >= entries:
            table = pyarrow.Table.from_batches(kept)
            # Up to where the last individual begins, whose other entries may be yet to come.
            who = table[_WHO].combine_chunks()
            last = who[len(who) - 1].as_py()
            cut = len(who)
            while cut > 0 and who[cut - 1].as_py() == last:
                cut -= 1
            if cut:
                yield from flush(table.slice(0, cut))
                kept = table.slice(cut).combine_chunks().to_batches()
                size = len(who) - cut
    if size:
        yield from flush(pyarrow.Table.from_batches(kept))
    if tally is not None:
        empty = np.zeros((0, len(yardstick.epsilons)))
        nobody = np.zeros(0, np.int64 if integers else np.str_)
        none = _batch(nobody, np.zeros(0, np.int64), np.zeros(0), empty, empty, integers=integers)
        columns = [pyarrow.array([None], field.type) for field in none.schema][:-1]
        columns.append(pyarrow.array([to_bytes(tally)], pyarrow.binary()))
        yield pyarrow.RecordBatch.from_arrays(columns, schema=none.schema)


def entries_of(everyone: Results, table: Any) -> Results:
    """Results from an Arrow table of entries in order of individual and database."""
    from empriv.collecting.arrow import labels_of

    column = table[_VALUE].combine_chunks()
    null = np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)
    values = np.asarray(column.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
    codes = outcomes_of(values)
    codes[null] = 1
    labels = labels_of(table[_WHO].combine_chunks())
    first = np.concatenate(([True], labels[1:] != labels[:-1]))
    return with_entries(
        everyone,
        {
            "individuals": labels[first],
            "starts": np.append(np.flatnonzero(first), len(labels)).astype(np.int64),
            "entry_database": table[_WHERE].to_numpy().astype(np.int32),
            "entry_q": np.where(codes == 0, values, np.nan),
            "entry_outcomes": codes,
        },
    )


def _batch(
    individuals: npt.NDArray[Any],
    databases: npt.NDArray[np.int64],
    influence: npt.NDArray[np.float64],
    delta_i: npt.NDArray[np.float64],
    upper_i: npt.NDArray[np.float64],
    *,
    integers: bool,
) -> Any:
    import pyarrow

    lists = pyarrow.list_(pyarrow.float64())
    columns = {
        "individual": pyarrow.array(individuals.tolist(), pyarrow.int64() if integers else pyarrow.string()),
        "databases": pyarrow.array(databases, pyarrow.int64()),
        "largest_influence": pyarrow.array(influence, pyarrow.float64()),
        "delta_i": pyarrow.array(delta_i.tolist(), lists),
        "upper_i": pyarrow.array(upper_i.tolist(), lists),
        "tally": pyarrow.nulls(len(individuals), pyarrow.binary()),
    }
    return pyarrow.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _mark(data: Databases, query: Query, item: int) -> str:
    """By what saved results are known again: the question and where the rows are, but not the rows' values."""
    asked = [query.text, item, data.database, data.individual, data.unidentified, repr(data.parts), repr(data.draws)]
    return f"empriv-{hashlib.sha256(json.dumps(asked).encode()).hexdigest()[:24]}"


def _write(session: ClusterSession, path: str, everyone: Results, absent: int, pairs: Any) -> None:
    pairs.write.mode("overwrite").parquet(f"{path}/pairs")
    buffer = io.BytesIO()
    np.savez(buffer, q=everyone.q, outcomes=everyone.outcomes, databases=everyone.databases)
    said = json.dumps({"absent": absent, "everyone": base64.b64encode(buffer.getvalue()).decode()})
    # Written last: whoever finds it finds all.
    session.spark.createDataFrame([(said,)], "said string").write.mode("overwrite").parquet(f"{path}/done")


def _read(session: ClusterSession, path: str) -> tuple[Results, int, Any] | None:
    from empriv.collecting.spark import is_missing

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
