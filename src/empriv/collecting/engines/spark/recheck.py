"""What Spark must not run for a query, though the query itself was let in: checked again, in Spark's own text.

`sql.allowlist` looks at queries as they are written, in DuckDB's language. Here every statement is looked at as Spark
is given it. It may read the session's own views, and call functions that are Spark's own and answer alike each time.
Tables of the cluster's catalogue, files (``parquet.`path```), functions that somebody registered, and functions of the
clock, of chance, of files, of the user or of Java are refused before Spark is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import pairwise

from sqlglot import Token, TokenType, exp, tokenize

from empriv.collecting.engines.engine import Refused
from empriv.collecting.sql.allowlist import ALIKE, ONLY, RANDOMISED
from empriv.collecting.sql.printing import Node

# Answers that differ each time, or with where a row happens to lie.
_CHANGING = frozenset({
    "aes_encrypt", "curdate", "current_date", "current_time", "current_timestamp", "current_timezone", "localtime",
    "localtimestamp", "monotonically_increasing_id", "now", "rand", "randn", "random", "randstr", "shuffle",
    "spark_partition_id", "uniform", "uuid",
})  # fmt: skip
# Of the clock when they are called without an argument.
_CHANGING_WITHOUT_ARGUMENT = frozenset({"unix_timestamp", "to_unix_timestamp"})
# What looks at files, the user, the catalogue or Java, or says a row's value in an error.
_OUTSIDE = frozenset({
    "assert_true", "collations", "current_catalog", "current_database", "current_path", "current_schema",
    "current_user", "from_avro", "from_protobuf", "identifier", "input_file_block_length", "input_file_block_start",
    "input_file_name", "java_method", "python_worker_logs", "raise_error", "read_files", "reflect", "schema_of_avro",
    "session_user", "sql_keywords", "to_avro", "to_protobuf", "try_reflect", "user", "version",
})  # fmt: skip
# Read as a call, without parentheses, where no column is called so.
_BARE = frozenset({
    "current_date", "current_time", "current_timestamp", "current_user", "localtime", "localtimestamp",
    "session_user", "user",
})  # fmt: skip
# The packages of Spark's own functions; of those that were registered, it tells others.
_OWN = "org.apache.spark.sql.catalyst."


def check_tables(tree: Node, views: Collection[str]) -> None:
    """Refuse a statement, put in Spark's words, that reads anything but these views and its own recursive WITH."""
    if tree.find(exp.TableSample) is not None:
        raise Refused(f"{ALIKE}, but takes a sample of the rows. {RANDOMISED}")
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Func):
            continue  # looked at as a call
        plain = isinstance(table.this, exp.Identifier) and not table.db and not table.catalog
        if not plain or (table.name not in views and not _within_its_with(table)):
            raise Refused(f"{ONLY}, but reads {'.'.join(part.name for part in table.parts)}.")


def check_calls(text: str, columns: Collection[str], class_of: Callable[[str], str | None]) -> None:
    """Refuse a statement, as Spark is given it, that calls what is not Spark's own or does not answer alike.

    Parameters
    ----------
    text : the statement
    columns : names of columns, which may be those of functions that are called without parentheses
    class_of : function that gives the class behind a function's name in the Spark session, None if there is none
    """
    if "${" in text:
        # Spark puts settings and the environment there, also within quotes.
        raise Refused("The query must not hold ${, which Spark replaces by settings.")
    tokens = tokenize(text, read="spark")
    named = {column.lower() for column in columns} | {
        token.text.lower() for before, token in pairwise(tokens) if _is(before, "as")
    }
    for place, token in enumerate(tokens):
        name = token.text.lower()
        if token.token_type in (TokenType.STRING, TokenType.NUMBER):
            continue
        before = tokens[place - 1] if place else None
        after = tokens[place + 1 : place + 3]
        if before is not None and _is(before, "as"):
            continue  # the name of a column, of a table with its columns, or a type
        if not after or after[0].token_type is not TokenType.L_PAREN:
            of_table = before is not None and before.token_type is TokenType.DOT
            if name in _BARE and name not in named and not of_table:
                raise refused(name)
            continue
        if before is not None and before.token_type is TokenType.DOT:
            raise Refused(f"The query must call functions of Spark's own, but calls {name}() of a schema.")
        without = len(after) > 1 and after[1].token_type is TokenType.R_PAREN
        if name in _CHANGING | _OUTSIDE or (without and name in _CHANGING_WITHOUT_ARGUMENT):
            raise refused(name)
        home = class_of(name) if name.replace("_", "").isalnum() else None
        if home is not None and not home.startswith(_OWN):
            raise Refused(
                f"The query must call functions of Spark's own, but {name}() was registered in the session, and what "
                "it does is not known. Hint: a Python function of the rows can be a query itself."
            )


def refused(name: str) -> Refused:
    """Why a function of Spark's must not be called."""
    if name in _OUTSIDE:
        return Refused(f"{ONLY}, but calls {name}().")
    return Refused(f"{ALIKE}, but calls {name}(). {RANDOMISED}")


def _is(token: Token, word: str) -> bool:
    return token.token_type is not TokenType.STRING and token.text.lower() == word


def _within_its_with(table: exp.Table) -> bool:
    """Whether a table is one of WITH RECURSIVE, where that is known; other parts were written out before."""
    scope = table.parent
    while scope is not None:
        with_ = scope.args.get("with_") or scope.args.get("with")
        if isinstance(with_, exp.With) and any(cte.alias.lower() == table.name.lower() for cte in with_.expressions):
            return True
        scope = scope.parent
    return False
