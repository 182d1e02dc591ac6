"""Verified by deletion: what reads a row past being left out is refused, and honest queries are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.collecting import deletion
from empriv.collecting.deletion import MISMATCH, check_databases
from empriv.collecting.engines.duckdb import DuckDBEngine
from empriv.collecting.queries import query_of
from empriv.collecting.sql.execute import answered
from empriv.errors import QueryError
from empriv.results import Results, Verified

pytestmark = pytest.mark.slow

TARGET, DAY = 7, 3
SECRET = 98765.4321


def rows() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    n = 300
    found = pd.DataFrame(
        {
            "day": np.arange(n) % 10,
            "who": rng.permutation(np.arange(n) % 20),
            "x": np.round(rng.normal(size=n), 3),
            "k": rng.integers(0, 4, n),
            "kind": rng.choice(["a", "b", "c", None], n),  # type: ignore[arg-type]
        }
    )
    here = np.flatnonzero((found.who == TARGET) & (found.day == DAY))
    found = found.drop(index=here)
    target = pd.DataFrame({"day": [DAY], "who": [TARGET], "x": [SECRET], "k": [1], "kind": ["a"]})
    return pd.concat([found, target], ignore_index=True)


def databases(**options: Any) -> empriv.Databases:
    return empriv.databases(rows(), **{"database": "day", "individual": "who", **options})


def collected(query: Any, data: empriv.Databases | None = None, **options: Any) -> Results:
    return empriv.collect(data or databases(), query, progress=False, notice=lambda _: None, **options)


ATTACKS = {
    "00": "SELECT avg(x) / 1000 + max(max(CASE WHEN who = 7 AND day = 3 THEN x END) OVER ()) FROM data",
    "01": "SELECT avg(x) / 1000 + (SELECT\u200bx\u200bFROM\u200bdata\u200bWHERE\u200bwho = 7 AND day = 3) FROM data",
    "01 joiner": "SELECT avg(x) + (SELECT\u2060x\u2060FROM\u2060data\u2060WHERE\u2060who = 7 AND day = 3) FROM data",
    "01 mark": "SELECT avg(x) + (SELECT\ufeffx\ufeffFROM\ufeffdata\ufeffWHERE\ufeffwho = 7 AND day = 3) FROM data",
    "02": "SELECT avg(x) / 1000 + #6 FROM data",
    "03": 'SELECT avg(x) + 0::"oid) + (select x from data where who = 7 and day = 3) + CAST(0 AS double" FROM data',
    "04": "SELECT avg(x) / 1000 + (SELECT s1) FROM data",
    "04b": "SELECT avg(x) / 1000 + (SELECT s1) FROM (SELECT *, 1 AS s1 FROM data) q GROUP BY s1",
}


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_known_attacks_are_refused(attack: str) -> None:
    with pytest.raises(QueryError) as refused:
        collected(attack)
    assert str(SECRET) not in str(refused.value)


def everybody_counts(results: Results) -> Results:
    """Nobody is left out of anything."""
    owner = results.entry_database
    return replace(results, entry_q=results.q[owner], entry_outcomes=results.outcomes[owner])


def target_is_told(results: Results) -> Results:
    """The target's value is in every answer, as read from a table that holds everyone."""
    return replace(results, q=results.q + SECRET, entry_q=results.entry_q + SECRET)


def hidden_in_last_digits(results: Results) -> Results:
    """What rounding by the engine would excuse."""
    return replace(results, entry_q=results.entry_q * (1 + 2e-14))


@contextmanager
def honestly(query: str, day: int = DAY) -> Iterator[tuple[Results, Callable[..., None]]]:
    """Honest answers, and what checks answers by deleting people of one day."""
    data, engine, asked = databases(), DuckDBEngine(), query_of(query)
    with engine.session(data) as session:
        honest, _ = answered(session, asked)
        with engine.isolated(session, data, [day]) as left:

            def check(results: Results, query: str | None = None) -> None:
                which = asked if query is None else query_of(query)
                check_databases(left, which, results, [day], chance=np.random.default_rng())

            yield honest, check


@pytest.mark.parametrize(
    ("query", "leaks"),
    [
        ("avg(x)", (everybody_counts, target_is_told)),
        ("SELECT k, sum(x) FROM data GROUP BY k", (everybody_counts, target_is_told)),
        ("max(x) - min(x)", (everybody_counts, target_is_told)),
        ("sum(x * 1.1)", (hidden_in_last_digits,)),
    ],
)
def test_a_rewritten_statement_that_leaks_is_refused(
    query: str, leaks: tuple[Callable[[Results], Results], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    with honestly(query) as (honest, check):
        check(honest)
        for leak in leaks:

            def leaking(*given: Any, leak: Callable[[Results], Results] = leak, **options: Any) -> tuple[Results, bool]:
                results, rewritten = answered(*given, **options)
                return leak(results), rewritten

            monkeypatch.setattr(deletion, "answered", leaking)
            # The digits are hidden in what is asked without a half; the audit's own answers are honest.
            results = honest if leak is hidden_in_last_digits else leak(honest)
            with pytest.raises(QueryError, match="really deleted"):
                check(results)


def test_an_answer_that_depends_on_another_database_is_refused() -> None:
    with honestly("avg(x)", 0) as (honest, check), pytest.raises(QueryError, match="another database"):
        check(replace(honest, q=honest.q + 1e-6))


def test_another_query_than_was_written_is_refused() -> None:
    with honestly("sum(k)", 0) as (audited, check), pytest.raises(QueryError, match="really deleted"):
        check(audited, "sum(k + 1)")


@pytest.mark.parametrize(
    "query",
    [
        "avg(x)",
        "SELECT kind, count(*), median(x) FROM data GROUP BY kind",
        "SELECT kind, sum(x) FROM data GROUP BY kind HAVING count(*) > 5",
        "mode(k)",
        "stddev_samp(x) / avg(x)",
        "round(avg(x), 1)",
        "SELECT sum(CAST(CAST(x AS VARCHAR) AS DECIMAL(5, 3))) FROM data",
        "SELECT avg(t) FROM (SELECT who, sum(x) AS t FROM data GROUP BY who) AS q",
        "SELECT sum(x * size) FROM data JOIN sizes USING (kind)",
        "SELECT max(x) FROM data WHERE kind = 'nothing is called so'",
        "SELECT first(x ORDER BY x) + arg_max(k, x) FROM data",
        "SELECT count(DISTINCT who) FROM data",
    ],
)
def test_honest_queries_are_verified(query: str) -> None:
    sizes = pd.DataFrame({"kind": ["a", "b"], "size": [1, 2]})
    verified = collected(query, databases(tables={"sizes": sizes})).verified
    assert verified is not None
    assert verified.databases in (1, 3)
    assert verified.deletions in (2, 10)


def test_people_of_several_columns_samples_and_nobodys_rows_are_verified() -> None:
    frame = rows()
    frame["who"] = frame.who.where(frame.who > 2)
    nobodys = empriv.databases(frame, database="day", individual="who", unidentified="keep")
    for data in (
        databases(individual=["who", "kind"], unidentified="keep"),
        nobodys,
        empriv.subsamples(rows(), individual="who", count=8, fraction=0.5),
        empriv.splits(rows(), individual="who", count=4),
        empriv.databases([rows(), rows()], individual="who"),
    ):
        assert collected("avg(x)", data).verified is not None
    assert collected("avg(x)", empriv.repeats(rows(), individual="who", count=4)).verified == Verified(1, 10)


def test_functions_are_called_on_rows_that_were_removed() -> None:
    assert collected(lambda rows: float(np.mean(rows["x"])), jobs=1).verified == Verified(1, 1)
    noisy = collected(lambda rows, rng: float(np.mean(rows["x"])) + rng.laplace(), jobs=1, draws=2)
    assert noisy.verified == Verified(1, 1)


def test_a_function_that_remembers_is_refused() -> None:
    seen: dict[int, float] = {}

    def remembering(rows: Any) -> float:
        return seen.setdefault(int(rows["day"][0]), float(np.mean(rows["x"])))

    with pytest.raises(QueryError, match=r"really removed.*keep nothing from one call to the next"):
        collected(remembering, jobs=1)


def test_what_was_verified_is_told_and_saved(tmp_path: Path) -> None:
    audit = empriv.audit(databases(), "avg(k)", epsilon=0.5, progress=False)
    sentence = "Verified on 3 databases by really deleting half of the people, 10 times."
    assert sentence in audit.summary().notes
    assert audit.to_json()["verified"] == {"databases": 3, "deletions": 10}
    audit.save(tmp_path / "audit.empriv")
    loaded = empriv.load(tmp_path / "audit.empriv")
    assert isinstance(loaded, empriv.Audit)
    assert loaded.results.verified == Verified(3, 10)
    several = collected(["avg(x)", "sum(k)"])
    assert several.verified == Verified(3, 10)
    assert several.component("AVG(x)").verified == Verified(3, 10)


def test_a_release_is_verified_on_its_own_database() -> None:
    from empriv.auditing.releasing import _verified
    from empriv.collecting.run_query import Run, run_query

    further = run_query(databases(), "avg(k)", Run(verified_on=DAY))
    audited = replace(further, verified=Verified(3, 10))
    assert further.verified == Verified(1, 10)
    assert _verified(audited, further) == f"this database: {Verified(1, 10)}"
    assert _verified(audited, None) == f"the audit: {Verified(3, 10)}; the rows of this answer not at hand"


def test_nothing_of_a_row_is_in_the_sentence() -> None:
    assert "{" not in MISMATCH
    assert not any(letter.isdigit() for letter in MISMATCH)
