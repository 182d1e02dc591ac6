"""Odd and invalid text: mutations of queries, of which each is either refused in a sentence or tells nothing.

The oracle is the target's row. Its value is changed, and no answer that leaves the target out may change, nor any
answer of a database that the target is not in. What gets past that must be stopped by really deleting people, as an
audit and a release do. A few hundred forms; ``EMPRIV_FUZZ=20000`` tries as many, from the same seed on.
"""

from __future__ import annotations

import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import pandas as pd
import pytest
from test_leave_one_out import Queries

import empriv
from empriv.collecting.deletion import _agree, _by_group, _sizes, check_databases
from empriv.collecting.engines.duckdb import DuckDBEngine
from empriv.collecting.engines.duckdb.session import DuckDBSession
from empriv.collecting.engines.engine import BeyondLimits
from empriv.collecting.queries import query_of
from empriv.collecting.sql.execute import answered
from empriv.errors import EmprivError
from empriv.results import Results

FORMS = int(os.environ.get("EMPRIV_FUZZ", "200"))
BATCH = 100
SECONDS = 20.0
TARGET, DAY = 3, 1
VALUES = (123.25, 611.5)

# Queries of the kinds that have fooled somebody once, and honest ones of the same kinds.
SEEDS = (
    "SELECT avg(x) / 1000 + max(max(CASE WHEN who = 3 AND day = 1 THEN x END) OVER ()) FROM data",
    "SELECT avg(x) + (SELECT x FROM data WHERE who = 3 AND day = 1) FROM data",
    "SELECT avg(x) + #6 FROM data",
    "SELECT sum(x) + #1 FROM data ORDER BY #1",
    'SELECT avg(x) + 0::"oid) + (select x from data where who = 3 and day = 1) + CAST(0 AS double" FROM data',
    "SELECT avg(x) + (SELECT s2) FROM data",
    "SELECT avg(x) + (SELECT s2) FROM (SELECT *, 1 AS s2 FROM data) q GROUP BY s2",
    "SELECT avg(t) FROM (SELECT sum(x) AS t FROM (SELECT k AS who, who, x FROM data) z GROUP BY who) y",
    "SELECT max(x) FILTER (WHERE kind COLLATE NOCASE = 'A') FROM data",
    "SELECT sum(x) OVER (PARTITION BY kind) FROM data LIMIT 1",
    "SELECT max(q) FROM (SELECT x - lag(x) OVER (ORDER BY k, x) AS q FROM data) d",
    "SELECT list_sum(list_transform(list(x), lambda v: v + 1)) FROM data",
    "SELECT list_sum([v * 2 for v in list(x) if v > 0]) FROM data",
    "SELECT sum(COLUMNS('x|k')) FROM data",
    "SELECT count(COLUMNS(*)) FROM data",
    "SELECT avg(s.x) FROM (SELECT {'x': x, 'w': who} AS s FROM data) d",
    "SELECT (list(x ORDER BY x))[1] FROM data",
    "SELECT arg_max(x, k) FROM data",
    "SELECT first(x ORDER BY x DESC) + any_value(k) FROM data",
    "SELECT kind, sum(x) AS total FROM data GROUP BY ALL ORDER BY 2 DESC",
    "SELECT kind, count(*) FROM data GROUP BY kind HAVING max(x) > 100",
    "SELECT quantile_cont(x, [0.25, 0.5])[1] FROM data",
    "SELECT sum(x) FROM data WHERE k > (SELECT avg(k) FROM data)",
    "WITH d AS (SELECT * FROM data), e AS (SELECT max(x) AS m FROM d) SELECT sum(d.x - e.m) FROM d, e",
    "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 3) SELECT sum(x * i) FROM data, s",
    "SELECT sum(x) FROM data UNION ALL SELECT max(x) FROM data ORDER BY 1 LIMIT 1",
    "SELECT avg(x) FROM data QUALIFY row_number() OVER () = 1",
    "SELECT sum(CASE WHEN EXISTS (SELECT 1 FROM data d WHERE d.who = data.who AND d.x > 0) THEN 1 END) FROM data",
    "FROM data SELECT sum(x)",
    "SELECT sum(TRY_CAST(CAST(x AS VARCHAR) AS DECIMAL(9, 2))) FROM data",
    "PIVOT data ON kind USING sum(x)",
    "SELECT max(x) FROM (SELECT DISTINCT ON (kind) * FROM data ORDER BY kind, k) d",
    "SELECT sum(x) FROM data JOIN kinds USING (kind) WHERE size > 0",
    "avg(x)", "sum(x) / count(*)", "max(x) - min(x)",
)  # fmt: skip
INVISIBLE = ("\u200b", "\u2060", "\ufeff", "\u00a0", "\u200d", "\u2003", "\u00ad", "\u2028", "\x0b", "\x0c", "\x85")
ODD = (
    "s0", "s1", "s2", "s9", "k0", "a0", "m0", "u0", "q0", "t", "p", "r", "d", "g", "c", "empriv_rows",
    "empriv_database", "empriv_individual", "empriv_totals", "empriv_partials", "empriv_call", "empriv_key",
    "empriv_without",
    "left_out",
    "$left_out", "$1", "?", "#1", "#2", "#6", "*", "data.*", "COLUMNS(*)", "COLUMNS('x')", '"data"', '"x"', '"da ta"',
    '"da""ta"', "`x`", "[x]", "'x'", "temp.data", "main.data", "memory.main.data", "pg_catalog.pg_class",
    "information_schema.tables", "duckdb_tables()", "rowid", "data.rowid", "who", "day", "DATA", "Data", "dát\u0430",
    "\uff44ata",
    "(SELECT x FROM data)", "(SELECT max(x) FROM data)", "(SELECT s1)", "(SELECT a0)", "(SELECT empriv_individual)",
    "(SELECT count(*) FROM empriv_partials)", "(SELECT sum(x) FROM data WHERE who = 3)", "OVER ()",
    "OVER (PARTITION BY day)", "FILTER (WHERE who = 3)", "::INTEGER", '::"oid"', '::"double) + (select 1"', "::JSON",
    "::STRUCT(a INT)", "::DECIMAL(38, 10)", "::UTINYINT", "::BIT", "::UUID", "::x", "COLLATE NOCASE",
    'COLLATE "de.x"', "COLLATE POSIX", "AT TIME ZONE 'UTC'", "ORDER BY 1", "ORDER BY x", "ORDER BY ALL", "GROUP BY 1",
    "GROUP BY ALL", "GROUP BY who", "GROUP BY x", "LIMIT 1", "OFFSET 1", "QUALIFY true", "HAVING true",
    "WINDOW w AS ()", "USING SAMPLE 1", "TABLESAMPLE 50%", "EXCEPT SELECT 1", "INTERSECT SELECT 1",
    "UNION SELECT x FROM data",
    "LATERAL (SELECT x)", "UNNEST([x])", "unnest(list(x))", "lambda v: v", "v -> v + x", "{'a': x}", "{'a': x}.a",
    "[x, k][1]", "[x][1:]", "MAP {1: x}", "x.y", "x[1]", "data[1]", "data.data", "data", "NULL", "TRUE", "1e309",
    "-0.0", "0x7", "1_000", "'a''b'", "E'\\n'", "$$x$$", "U&'d'", "X'00'", "INTERVAL 1 DAY", "DATE '2020-01-01'",
    "getvariable('x')", "current_query()", "txid_current()", "nextval('s')", "random()", "now()", "hash(data)",
    "row(x, k)", "struct_pack(x := x)", "to_json(data)", "list(data)", "max(data)", "count(data)", "grouping(x)",
    "approx_quantile(x, 0.5)", "string_agg(kind)", "mode(k)", "histogram(k)", "entropy(k)", "kurtosis(x)",
    "corr(x, k)", "reservoir_quantile(x, 0.5)", "max(x, 2)", "arg_max(x, k)", "bit_xor(k)", "NOT", "AND", "OR", "IN",
    "(", ")", "()", ",", ";", "+", "-", "/", "%", "**", "^", "||", "<>", "=", "==", "..", ":", "::", "@", "!", "~",
)  # fmt: skip
COMMENTS = ("/**/", "/* x */", "-- x\n", "/* /* x */ */", "--\n", "/*+ hint */", "--'\n", "/*'*/", '/*"*/', "#\n")
TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|\w+|\s+|::|<>|<=|>=|\S")


def mutated(text: str, rng: np.random.Generator) -> str:
    """A text with some of its tokens changed in some way; mostly one, so that it may still be a query."""
    tokens = TOKEN.findall(text)
    for _ in range(int(rng.choice([0, 1, 1, 1, 1, 1, 2, 2, 3]))):
        at = int(rng.integers(len(tokens)))
        kind = int(rng.choice([0, 1, 2, 3, 3, 4, 4, 5, 5, 6, 7, 9, 10, 10, 11, 11, 12, 12]))
        if kind == 0:
            del tokens[at]
        elif kind == 1:
            tokens.insert(at, tokens[at])
        elif kind == 2:
            other = int(rng.integers(len(tokens)))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        elif kind == 3:
            tokens.insert(at, str(rng.choice(COMMENTS)))
        elif kind == 4:
            hidden, first = str(rng.choice(INVISIBLE)), int(rng.integers(len(tokens)))
            last = int(rng.integers(first, len(tokens) + 1))
            tokens[first:last] = [hidden if token.isspace() else token for token in tokens[first:last]]
        elif kind == 5 and tokens[at].isidentifier():
            tokens[at] = str(rng.choice([f'"{tokens[at]}"', f'" {tokens[at]}"', tokens[at].upper(), f"`{tokens[at]}`"]))
        elif kind == 6:
            tokens[at] += str(rng.choice(INVISIBLE))
        elif kind == 7:
            tokens[at] = str(rng.choice(ODD))
        elif kind == 9:
            tokens[at] = f"{tokens[at]} {rng.choice(ODD)}"
        elif kind == 10:
            ends = [k for k, token in enumerate(tokens) if token == ")"] or [at]
            tokens[int(rng.choice(ends))] += f" + {rng.choice(ODD)}"
        elif kind == 12:
            names = [k for k, token in enumerate(tokens) if token.isidentifier()] or [at]
            cast = [odd for odd in ODD if odd.startswith(("::", "COLLATE", "OVER", "FILTER", "AT TIME"))]
            tokens[int(rng.choice(names))] += f" {rng.choice(cast)}"
        else:
            names = [k for k, token in enumerate(tokens) if token in ("x", "k", "rate", "who", "kind", "data")]
            if names:
                tokens[int(rng.choice(names))] = str(rng.choice(ODD))
        if not tokens:
            return ""
    return "".join(tokens)


def forms(seed: int, count: int) -> Iterator[str]:
    """Forms of queries, each of them once."""
    rng = np.random.default_rng([20261, seed])
    queries, seen = Queries(rng), set[str]()
    while len(seen) < count:
        base = str(rng.choice(SEEDS)) if rng.random() < 0.6 else queries.query()
        form = mutated(base, rng)
        if form not in seen:
            seen.add(form)
            yield form


def table(value: float) -> empriv.Databases:
    """A few people on three days; the target has one row on their day, with this value."""
    rng = np.random.default_rng(7)
    n = 36
    rows = pd.DataFrame(
        {
            "day": np.arange(n) % 3,
            "who": rng.permutation(np.arange(n) % 6),
            "x": np.round(rng.normal(0, 300, n), 2),
            "k": rng.integers(-4, 5, n),
            "rate": rng.choice([0.0, 0.5, 1.0, 2.0, -1.0], n),
            "flag": rng.choice([True, False], n),
            "kind": rng.choice(["a", "b", "c"], n),
        }
    )
    rows["dec"] = (rows.k * 1.25).round(2)
    here = np.flatnonzero((rows.who == TARGET) & (rows.day == DAY))
    rows = rows.drop(index=here[1:])
    rows.loc[here[0], ["x", "k", "kind"]] = [value, 4, "a"]
    kinds = pd.DataFrame({"kind": ["a", "b"], "size": [1, 2]})
    return empriv.databases(rows, database="day", individual="who", tables={"kinds": kinds})


def tells(one: Results, other: Results) -> bool:
    """Whether an answer that the target is not in differs between two values of the target's row."""
    pairs = []
    for j in range(3):
        answers = []
        for results in (one, other):
            told = {} if j == DAY else {-1: _by_group(results, results.q[j], results.outcomes[j], {})}
            for i, who in enumerate(results.individuals.tolist()):
                entries = np.arange(results.starts[i], results.starts[i + 1])
                for entry in entries[results.entry_database[entries] == j]:
                    if j != DAY or who == TARGET:
                        told[who] = _by_group(results, results.entry_q[entry], results.entry_outcomes[entry], {})
            # Who has no row that is read changes nothing: the answer without them is that with everyone.
            for who in (TARGET,):
                told.setdefault(who, _by_group(results, results.q[j], results.outcomes[j], {}))
            answers.append(told)
        pairs += [(answers[0][who], answers[1][who]) for who in answers[0].keys() & answers[1].keys()]
    sizes = _sizes([told for pair in pairs for told in pair])
    return not all(_agree(mine, its, 1e-9, sizes) for mine, its in pairs)


class Pair:
    """Two sessions whose rows differ in the target's value."""

    def __init__(self, stack: ExitStack) -> None:
        self.engine = DuckDBEngine(timeout=SECONDS, threads=1)
        self.data = [table(value) for value in VALUES]
        self.sessions: list[DuckDBSession] = [stack.enter_context(self.engine.session(data)) for data in self.data]

    def outcome(self, form: str) -> str:
        """What becomes of a form: refused, answered, or stopped by deletion; "told" is a leak."""
        try:
            query, found = query_of(form), []
            for session in self.sessions:
                session.started = time.monotonic()
                found.append(answered(session, query, show=False, notice=lambda _: None)[0])
        except BeyondLimits:
            raise
        except EmprivError:
            return "refused"
        if not tells(*found):
            return "answered"
        chance = np.random.default_rng()
        try:
            for session, data, results in zip(self.sessions, self.data, found, strict=True):
                with self.engine.isolated(session, data, range(3)) as apart:
                    check_databases(apart, query, results, range(3), chance=chance)
        except EmprivError:
            return "stopped by deletion"
        return "told"


@pytest.mark.parametrize("seed", range(-(-FORMS // BATCH)))
def test_odd_forms_are_refused_or_tell_nothing(seed: int) -> None:
    counts: Counter[str] = Counter()
    with ExitStack() as stack:
        pair = Pair(stack)
        for form in forms(seed, BATCH):
            try:
                found = pair.outcome(form)
            except BeyondLimits:
                found, pair = "beyond limits", Pair(stack)
            except Exception as error:  # whatever is raised, the form that raises it is to be seen
                pytest.fail(f"{type(error).__name__} from {form!r}: {error}")
            assert found != "told", form
            counts[found] += 1
    assert counts["refused"] + counts["answered"] > BATCH // 2, counts
    if counts["stopped by deletion"] or counts["beyond limits"]:
        print(seed, dict(counts))


def test_the_oracle_sees_a_leak() -> None:
    def results(leak: float) -> Results:
        one = empriv.collect(table(VALUES[0]), "avg(k)", progress=False)
        return empriv.Results(
            one.q + leak, one.outcomes, one.databases, one.individuals, one.starts, one.entry_database,
            one.entry_q + leak, one.entry_outcomes,
        )  # fmt: skip

    assert tells(results(VALUES[0]), results(VALUES[1]))
    assert not tells(results(0.0), results(0.0))
