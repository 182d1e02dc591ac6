"""What an executor does: Arrow batches of entries → the tally of their individuals, and each of them if asked.

Knows no engine: it runs wherever the batches are. `cluster` deals them out and merges what comes back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from empriv.collecting.names import VALUE, WHERE, WHO
from empriv.results import Results, outcomes_of
from empriv.scale.stretches import Measured, Yardstick, measure_within_memory
from empriv.scale.tally import Tally, merge, to_bytes, with_entries

# Entries measured at once: docs/scale.md has the memory that this takes.
ENTRIES = 500_000


def schema_of(*, integers: bool) -> Any:
    """Columns that `measured_batches` gives, in Arrow's types; ``integers``: individuals are."""
    import pyarrow

    lists = pyarrow.list_(pyarrow.float64())
    return pyarrow.schema(
        [
            ("individual", pyarrow.int64() if integers else pyarrow.string()),
            ("databases", pyarrow.int64()),
            ("largest_influence", pyarrow.float64()),
            ("delta_i", lists),
            ("upper_i", lists),
            ("epsilon_i", lists),
            ("tally", pyarrow.binary()),
        ]
    )


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
        for measured in measure_within_memory(yardstick, entries_of(yardstick.everyone, table), each=each):
            tally = measured.tally if tally is None else merge(tally, measured.tally, top=yardstick.top)
            if each:
                yield _batch(measured, integers=integers)

    for batch in batches:
        kept.append(batch)
        size += batch.num_rows
        if size >= entries:
            table = pyarrow.Table.from_batches(kept).combine_chunks()
            # Up to where the last individual begins, whose other entries may be yet to come.
            cut = int(_firsts(table[WHO].chunk(0))[-1])
            if cut:
                yield from flush(table.slice(0, cut))
                kept = table.take(np.arange(cut, size)).to_batches()  # a slice would hold all the others as well
                size -= cut
    if size:
        yield from flush(pyarrow.Table.from_batches(kept).combine_chunks())
    if tally is not None:
        yield _tally_batch(tally, integers=integers)


def entries_of(everyone: Results, table: Any) -> Results:
    """Results from an Arrow table of entries in order of individual and database."""
    from empriv.collecting.engines.arrow import labels_of

    column = table[VALUE].combine_chunks()
    null = np.asarray(column.is_null().to_numpy(zero_copy_only=False), bool)
    values = np.asarray(column.fill_null(0.0).to_numpy(zero_copy_only=False), np.float64)
    codes = outcomes_of(values)
    codes[null] = 1
    who = table[WHO].combine_chunks()
    firsts = _firsts(who)
    return with_entries(
        everyone,
        {
            "individuals": labels_of(who.take(firsts)),
            "starts": np.append(firsts, len(who)).astype(np.int64),
            "entry_database": table[WHERE].to_numpy().astype(np.int32),
            "entry_q": np.where(codes == 0, values, np.nan),
            "entry_outcomes": codes,
        },
    )


def _firsts(who: Any) -> npt.NDArray[np.int64]:
    """Where each individual's entries begin; labels of several columns are compared column by column."""
    import pyarrow
    import pyarrow.compute as compute

    columns = who.flatten() if pyarrow.types.is_struct(who.type) else [who]
    changes = np.zeros(max(len(who) - 1, 0), bool)
    for column in columns:
        here, before = column.slice(1), column.slice(0, len(column) - 1)
        unlike = compute.fill_null(compute.not_equal(here, before), False)
        changes |= unlike.to_numpy(zero_copy_only=False)
        changes |= here.is_null().to_numpy(zero_copy_only=False) != before.is_null().to_numpy(zero_copy_only=False)
    return np.concatenate(([0], np.flatnonzero(changes) + 1)).astype(np.int64)


def _batch(measured: Measured, *, integers: bool) -> Any:
    import pyarrow

    schema = schema_of(integers=integers)
    columns = [
        measured.individuals, measured.databases, measured.influence, measured.delta_i, measured.upper_i,
        measured.epsilon_i, np.full(len(measured.individuals), None),
    ]  # fmt: skip
    arrays = [pyarrow.array(column.tolist(), field.type) for column, field in zip(columns, schema, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)


def _tally_batch(tally: Tally, *, integers: bool) -> Any:
    """The last row, which has the tally and nothing else."""
    import pyarrow

    schema = schema_of(integers=integers)
    columns = [None] * (len(schema) - 1) + [to_bytes(tally)]
    arrays = [pyarrow.array([value], field.type) for value, field in zip(columns, schema, strict=True)]
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
