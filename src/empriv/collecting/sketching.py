"""Digests of the rows of each database, by which a ledger knows them again: of the source's values, not of the cut.

The columns of a row are digested in the order of their names, numbers as doubles and moments as such: neither the order
of columns or rows, nor labels, time zones and the expression that cuts change a digest.
"""

from __future__ import annotations

import hashlib

import numpy as np
from sqlglot import exp, parse_one

from empriv.base.row_sketches import MOST, RowSketches, sketches_of
from empriv.collecting.engines.data_view import quoted
from empriv.collecting.engines.engine import Session
from empriv.collecting.names import DATA, DATABASE
from empriv.collecting.origins import is_computed
from empriv.collecting.sources import Databases

_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
            "UHUGEINT", "FLOAT", "DOUBLE", "BOOLEAN", "DECIMAL")  # fmt: skip
_MARGIN = 4  # digests that are looked at for each that is kept
_KNOWN = "HASH(1.5::DOUBLE, 'a', 'a text of more than twelve letters', 7::BIGINT, NULL)"


def sketch_rows(session: Session, data: Databases) -> RowSketches | None:
    """Sketches of the rows of each database; None for an engine that does not digest rows, and for random databases."""
    if not session.digests_rows or data.draws is not None:
        return None
    own = sorted(session.columns[DATA], key=str.lower)
    types = session.fetch(_parsed(f"SELECT {', '.join(f'TYPEOF({quoted(c)}) AS c{k}' for k, c in enumerate(own))} "
                                  f"FROM {DATA} LIMIT 1"))  # fmt: skip
    row = ", ".join(_value(name, str(types[f"c{k}"].values[0])) for k, name in enumerate(own))
    count = int(session.fetch(_parsed(f"SELECT COUNT(*) AS n FROM {DATA}"))["n"].values[0])
    # A first look at the smallest digests spares sorting all of them, unless some database is much smaller than most.
    few = _MARGIN * MOST * len(session.databases) / max(1, count)
    for share in (few, 1.0) if few < 0.5 else (1.0,):
        found = session.fetch(_parsed(_statement(row, share)))
        databases, digests = found["d"].values.astype(np.int64), found["h"].values.astype(np.uint64)
        if share == 1.0 or np.all(np.bincount(databases, minlength=len(session.databases)) == MOST):
            break
    return sketches_of(_kind(session, data), databases, digests, len(session.databases))


def _statement(row: str, share: float) -> str:
    below = "" if share == 1.0 else f"WHERE h < {int(share * 2.0**64)}"
    return (
        f"SELECT d.code AS d, UNNEST(s.least) AS h FROM (SELECT {DATABASE}, MIN(h, {MOST}) AS least FROM "
        f"(SELECT {DATABASE}, HASH({row}) AS h FROM {DATA}) AS r {below} GROUP BY {DATABASE}) AS s "
        f"JOIN empriv_databases AS d ON d.label = s.{DATABASE}"
    )


def _value(name: str, type_: str) -> str:
    """A value in the form in which it is digested, whatever the source's type for it."""
    column = quoted(name)
    if type_.startswith(_NUMBERS):
        return f"CAST({column} AS DOUBLE)"
    if type_ == "TIMESTAMP WITH TIME ZONE":
        return f"EPOCH_US({column})"
    if type_ == "DATE" or type_.startswith("TIMESTAMP"):
        return f"EPOCH_US(CAST({column} AS TIMESTAMP))"
    return column if type_.startswith("VARCHAR") else f"CAST({column} AS VARCHAR)"


def _kind(session: Session, data: Databases) -> str:
    """How rows are digested here. A source that computes can show rows in other values: it has its own kind."""
    known = session.fetch(_parsed(f"SELECT {_KNOWN} AS h"))["h"].values[0]
    texts = [repr(part) for part in data.parts if is_computed(part)]
    own = hashlib.sha256("\n".join(texts).encode()).hexdigest() if texts else ""
    return f"duckdb {int(known):x} {own}".strip()


def _parsed(text: str) -> exp.Expr:
    return parse_one(text, dialect="duckdb")
