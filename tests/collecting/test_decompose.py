"""Tables derived person by person are rewritten, and give what running the query without each person gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest

from brute import check_same_without_each
from empriv.collecting import Databases, DuckDBEngine, collect, databases, explain, subsamples
from empriv.collecting.engines.engine import Session
from empriv.collecting.queries import query_of
from empriv.collecting.sql import execute
from empriv.collecting.sql.execute import answered
from empriv.collecting.sql.rerun import rerun
from empriv.errors import QueryError

RNG = np.random.default_rng(8)
ROWS = pd.DataFrame(
    {
        "day": RNG.integers(0, 3, 150),
        "who": RNG.choice(list("abcdefg"), 150),
        "house": RNG.integers(0, 3, 150),
        "t": np.arange(150),
        "x": np.where(RNG.random(150) < 0.1, np.nan, RNG.normal(10, 4, 150).round(2)),
    }
)
PRICES = pd.DataFrame({"house": [0, 1], "price": [2.0, 3.0]})
DATA = databases(ROWS, database="day", individual="who", tables={"prices": PRICES})

QUERIES = [
    "SELECT avg(s) FROM (SELECT who, sum(x) AS s FROM data GROUP BY who) AS p",
    "SELECT sum(x) FROM (SELECT DISTINCT who, house, x FROM data) AS p",
    "SELECT avg(x) FROM (SELECT *, row_number() OVER (PARTITION BY who ORDER BY t) AS n FROM data) AS p WHERE n = 1",
    "SELECT max(s) - min(s) FROM (SELECT who, median(x) AS s FROM data WHERE t > 20 GROUP BY 1) AS p",
    "SELECT sum(s) FROM (SELECT d.who, sum(d.x * r.price) AS s FROM data AS d JOIN prices AS r ON d.house = r.house "
    "GROUP BY d.who) AS p",
    "WITH p AS (SELECT who, stddev(x) AS s FROM data GROUP BY who) SELECT avg(s) FROM p",
    "SELECT sum(x) FROM (SELECT DISTINCT ON (who) who, x FROM data ORDER BY who, t) AS p",
    "SELECT sum(y) FROM (SELECT x * 2 AS y FROM data WHERE house = 1) AS p",
    "SELECT avg(s) FROM (SELECT p.who, sum(p.x) AS s FROM data AS p, (SELECT 1 AS who) AS q GROUP BY p.who) AS p",
    # Such tables as people write them: without names, by WITH, nested, with columns named elsewhere.
    "FROM (SELECT who, sum(x) AS s FROM data GROUP BY ALL HAVING count(*) > 4) SELECT avg(s), count(*)",
    "SELECT count(*) FROM (SELECT DISTINCT who FROM data)",
    "SELECT avg(x) FROM (SELECT * FROM data QUALIFY row_number() OVER (PARTITION BY who ORDER BY t DESC) = 1)",
    "SELECT sum(x) FROM (SELECT DISTINCT ON (who, house) * FROM data ORDER BY who, house, t)",
    "SELECT median(m) FROM (SELECT w, max(s) AS m FROM (SELECT who AS w, house, sum(x) AS s FROM data GROUP BY w, 2) "
    "GROUP BY w)",
    "SELECT avg(x) FROM ((SELECT * FROM (SELECT * FROM data WHERE x > 2) WHERE x < 15))",
    "SELECT sum(s * price) FROM (SELECT who, house, sum(x) AS s FROM data GROUP BY who, house) JOIN prices USING "
    "(house)",
    "SELECT sum(s) FROM (SELECT who, sum(x * price) AS s FROM data JOIN prices USING (house) GROUP BY who)",
    'SELECT avg("s p") FROM (SELECT "who", sum("x") AS "s p" FROM "data" GROUP BY "WHO")',
    "SELECT avg(s) FROM (WITH p AS (SELECT who, sum(x) AS s FROM data GROUP BY who) SELECT s FROM p)",
    "WITH a AS (SELECT who, house, sum(x) AS s FROM data GROUP BY ALL), b AS (SELECT who, max(s) AS m FROM a GROUP BY "
    "who) SELECT avg(m) FROM b",
    "SELECT house, avg(s) FROM (SELECT who, house, sum(x) AS s FROM data GROUP BY ALL) GROUP BY ALL",
    # HAVING of counts and extremes: nothing, or no group, where it does not hold.
    "SELECT sum(x) AS s FROM data WHERE house = 1 HAVING count(*) > 15",
    "SELECT avg(x), max(x) FROM data HAVING min(x) < 1.5 OR count(DISTINCT who) > 7",
    "SELECT house, sum(x) AS s FROM data GROUP BY house HAVING count(*) > 17",
    "SELECT house, count(*), max(x) FROM data GROUP BY house HAVING max(x) > 14",
    "SELECT house, avg(x) FROM data GROUP BY house HAVING sum(t) > 1300",
    # Rows of those people who are on a list.
    "SELECT sum(x) FROM data WHERE who IN (SELECT who FROM data WHERE x > 17)",
    "SELECT avg(x) FROM data AS d WHERE house < 2 AND d.who IN (SELECT o.who FROM data AS o GROUP BY 1 "
    "HAVING count(*) > 6)",
    "SELECT house, sum(x) FROM data WHERE who IN (SELECT DISTINCT who AS w FROM data WHERE house = 2) GROUP BY house",
    "WITH big AS (SELECT who FROM data GROUP BY who HAVING avg(x) > 10) SELECT count(*) FROM data WHERE who IN "
    "(SELECT who FROM big)",
    "SELECT avg(s) FROM (SELECT who, sum(x) AS s FROM data GROUP BY who) WHERE who IN (SELECT who FROM data WHERE "
    "house = 0) AND who IN (SELECT who FROM data WHERE x > 15)",
    # What is joined by the person.
    "SELECT sum(a.x * b.x) FROM data AS a JOIN data AS b ON a.who = b.who AND b.t > a.t",
    "SELECT count(*) FROM data AS a JOIN data AS b USING (who) WHERE a.house <> b.house",
    "SELECT avg(abs(d.x - p.m)) FROM data AS d JOIN (SELECT who, avg(x) AS m FROM data GROUP BY who) AS p USING (who)",
    "SELECT sum(p.m), count(d.x) FROM (SELECT who, max(x) AS m FROM data GROUP BY who) AS p LEFT JOIN data AS d "
    "ON p.who = d.who AND d.x = p.m",
]
# What people write around a query, which gives the same without it.
PLAIN = [
    "SELECT sum(x) FROM data LIMIT 1",
    "SELECT DISTINCT sum(x) AS s FROM data ORDER BY s",
    "SELECT sum(t) AS s, count(*) AS n, s / n AS m FROM data",
    "SELECT sum(t) AS s FROM data HAVING s > 3000",
    "SELECT house, count(*) AS n FROM data GROUP BY house HAVING n > 17",
    "SELECT round(m, 1) FROM (SELECT avg(x) AS m FROM data)",
    "WITH p AS (SELECT who, sum(x) AS s FROM data GROUP BY who), q AS (SELECT avg(s) AS m, count(*) AS n FROM p WHERE "
    "s > 9) SELECT q.m / q.n FROM q",
    "SELECT (SELECT count(*) FROM data WHERE house = 1) * 1.0 / (SELECT count(*) FROM data)",
    "SELECT sum(x) / (SELECT count(DISTINCT d.who) FROM data AS d WHERE d.house = 1) FROM data WHERE house = 2",
    "WITH r AS (SELECT count(*) AS n FROM data WHERE house = 1), a AS (SELECT count(*) AS n, max(x) AS m FROM data AS "
    "d) SELECT 100.0 * r.n / a.n + m AS share FROM r, a",
    "SELECT (SELECT percentile_cont(0.9) WITHIN GROUP (ORDER BY x) FROM data WHERE t > 50) - max(x) FILTER (WHERE t < "
    "80) FROM data WHERE house < 2",
]
# What mixes people, and what is seldom written, such as UNION of `data` with itself: run once for each.
ONE_BY_ONE = [
    "SELECT count(*) FROM range((SELECT count(*) FROM data)) AS r",
    "SELECT sum(a.x) FROM data AS a JOIN (SELECT who, house FROM data, range((SELECT count(*) FROM data))) AS b "
    "USING (who)",
    "SELECT n FROM (SELECT count(*) AS n, 3 AS c FROM data)",
    "SELECT sum(x) FROM (SELECT x FROM data WHERE house = 1 UNION ALL SELECT -x FROM data WHERE house = 2)",
    "WITH u AS (SELECT who, x FROM data WHERE house = 1 UNION ALL SELECT who, -x FROM data WHERE house = 2) SELECT "
    "avg(s) FROM (SELECT who, sum(x) AS s FROM u GROUP BY who)",
    "SELECT count(*) FROM (SELECT who FROM data WHERE x > 12 INTERSECT SELECT who FROM data WHERE house = 2)",
    "SELECT avg(x) FROM (SELECT x, row_number() OVER w AS n FROM data WINDOW w AS (PARTITION BY who ORDER BY t)) "
    "WHERE n = 1",
    "WITH p(w, s) AS (SELECT who, stddev(x) FROM data GROUP BY who) SELECT avg(s) FROM p WHERE w <> 'a'",
    "SELECT avg(s) FROM (SELECT who, sum(x) FROM data GROUP BY who) AS p(w, s) WHERE w <> 'a'",
    "SELECT count(*) FROM data AS a, data AS b WHERE a.who = b.who AND a.house <> b.house",
    "SELECT sum(x) FROM data AS d WHERE d.house = 1 AND EXISTS (SELECT 1 FROM data AS e WHERE e.who = d.who AND e.x > "
    "15)",
    "SELECT n + m FROM (SELECT count(*) AS n FROM data) AS a, (SELECT max(house) AS m FROM prices) AS b",
    "SELECT count(*) FROM (SELECT who FROM data EXCEPT (SELECT who FROM data WHERE x > 15 EXCEPT SELECT who FROM data "
    "WHERE x > 18))",
    "SELECT count(*) FROM (SELECT house, t FROM data INTERSECT SELECT t, house FROM data)",
    "SELECT count(*) FROM (SELECT house FROM data WHERE x > 12 UNION SELECT house FROM data WHERE t > 50)",
    "SELECT sum(house) FROM (SELECT house FROM data UNION ALL SELECT house FROM prices)",
    "SELECT avg(n) FROM (SELECT w, count(*) AS n FROM (SELECT who AS w, x FROM data UNION ALL SELECT CAST(house AS "
    "VARCHAR), x FROM data) GROUP BY w)",
    "SELECT count(*) FROM (SELECT 1 AS one FROM (SELECT who, who AS v, house FROM data INTERSECT SELECT who, 'a', "
    "house FROM data WHERE t > 20) GROUP BY house)",
    "SELECT sum(x) FROM data AS d WHERE EXISTS (SELECT 1 FROM data AS e WHERE e.house = d.house AND e.x > 19)",
    "SELECT sum(x) FROM data AS d WHERE EXISTS (SELECT 1 FROM data AS e WHERE e.who = d.who AND e.t > d.t)",
    "SELECT sum(x) - (SELECT max(x) FROM data AS e WHERE e.who IN (SELECT who FROM data)) FROM data",
    "SELECT m FROM (SELECT avg(x) AS m FROM data) WHERE m > 5",
    "SELECT sum(x) FROM data LIMIT 0 + 1",
    "SELECT house, sum(x) AS s FROM data GROUP BY house HAVING sum(x) > 150",
    "SELECT sum(x) FROM data WHERE who NOT IN (SELECT who FROM data WHERE x > 17)",
    "SELECT sum(x) FROM data WHERE house = 1 OR who IN (SELECT who FROM data WHERE x > 17)",
    "SELECT sum(x) FROM data WHERE who IN (SELECT who FROM data ORDER BY x LIMIT 5)",
    "SELECT sum(x) FROM data WHERE house IN (SELECT house FROM data WHERE x > 19)",
    "SELECT sum(x) FROM data WHERE who IN (SELECT max(who) FROM data GROUP BY house)",
    "SELECT sum(x) FROM data WHERE who IN (SELECT who FROM data WHERE x > (SELECT avg(x) FROM data))",
    "SELECT sum(a.x * b.x) FROM data AS a JOIN data AS b ON a.house = b.house AND b.t = a.t + 1",
    "SELECT sum(a.x * b.x) FROM data AS a JOIN data AS b ON a.who = b.who OR b.t = a.t + 1",
    "SELECT sum(d.x - p.m) FROM data AS d JOIN (SELECT house, avg(x) AS m FROM data GROUP BY house) AS p USING (house)",
    "SELECT sum(d.x - p.m) FROM data AS d JOIN (SELECT house AS who, avg(x) AS m FROM data GROUP BY house) AS p "
    "ON CAST(d.house AS VARCHAR) = CAST(p.who AS VARCHAR)",
    "SELECT avg(s) FROM (SELECT house, sum(x) AS s FROM data GROUP BY house) AS p",
    "SELECT sum(x) FROM (SELECT DISTINCT house, x FROM data) AS p",
    "SELECT avg(x) FROM (SELECT *, row_number() OVER (ORDER BY t) AS n FROM data) AS p WHERE n < 9",
    "SELECT avg(s) FROM (SELECT who, sum(x) AS s FROM data GROUP BY who ORDER BY s LIMIT 3) AS p",
    "SELECT avg(s) FROM (SELECT sum(x) AS s FROM data) AS p",
    "SELECT avg(s) FROM (SELECT kurtosis(x) AS s FROM data) AS p",
    "SELECT max(m) FROM (SELECT s, max(h) AS m FROM (SELECT who, sum(x) AS s, max(house) AS h FROM data GROUP BY who) "
    "AS i GROUP BY s) AS p",
    "SELECT avg(s) FROM (SELECT who, sum(x) AS s FROM data GROUP BY ROLLUP (who)) AS p",
    "SELECT avg(s) FROM (SELECT who, house, sum(x) AS s FROM data GROUP BY house, CUBE (who))",
    "SELECT avg(s) FROM (SELECT who, sum(x) AS s FROM data GROUP BY GROUPING SETS ((who), ()))",
    "SELECT avg(s) FROM (SELECT house AS w, sum(x) AS s FROM data GROUP BY w)",
    "SELECT avg(unnamed_subquery.s) FROM (SELECT who, sum(x) AS s FROM data GROUP BY who)",
    "SELECT avg(s) FROM (SELECT w, sum(x) AS s FROM (SELECT house, who, x FROM data) AS p(w, house, x) GROUP BY w)",
    "SELECT avg(n) FROM (SELECT count(*) OVER w AS n FROM data WINDOW w AS (PARTITION BY house))",
]


def check(session: Session, query: str) -> None:
    """That a query is rewritten, and gives what running it once for each person gives."""
    asked = query_of(query)
    found, rewritten = answered(session, asked, show=False, notice=lambda _: None)
    assert rewritten
    check_same_without_each(found, rerun(session, asked, reason="the test wants it so", show=False))


def check_refused(session: Session, query: str) -> None:
    """That a query is not rewritten; what it gives one by one is compared with deleting in other tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(execute, "rerun", lambda *_, **__: "one by one")
        assert answered(session, query_of(query), show=False) == ("one by one", False)


def session_of(data: Databases) -> Any:
    return DuckDBEngine(threads=1).session(data)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """The rows, opened once: queries are put to it one after the other."""
    with session_of(DATA) as opened:
        yield opened


@pytest.mark.slow
@pytest.mark.parametrize("query", [*QUERIES, *PLAIN])
def test_one_statement_gives_what_one_by_one_gives(query: str, session: Session) -> None:
    check(session, query)


@pytest.mark.parametrize("query", ONE_BY_ONE)
def test_other_tables_are_run_one_by_one(query: str, session: Session) -> None:
    check_refused(session, query)


@pytest.mark.slow
def test_what_is_rewritten_is_collected_without_a_word() -> None:
    said: list[str] = []
    collect(DATA, QUERIES[0], notice=said.append)
    assert not said
    assert "once per individual" not in explain(DATA, QUERIES[0])
    assert "once per individual" in explain(DATA, ONE_BY_ONE[0])


@pytest.mark.slow
def test_rows_of_nobody_stay_whoever_is_on_the_list() -> None:
    rows = ROWS.assign(who=ROWS.who.where(ROWS.t % 9 != 0, None))
    with session_of(databases(rows, database="day", individual="who", unidentified="keep")) as session:
        for query in [*QUERIES[-11::3], *PLAIN[::3]]:
            check(session, query)


@pytest.mark.slow
def test_a_group_that_having_never_leaves_is_not_named_and_one_of_a_single_person_is_refused() -> None:
    groups = collect(DATA, "SELECT house, count(*) FROM data GROUP BY house HAVING count(*) > 17")
    assert groups.components is not None
    assert len(groups.components) < 3
    # NULL names nobody, and is no group that hides the others.
    for shared, having in (("all", "count(*) < 9"), (None, "count(*) < 9 OR count(*) > 20")):
        alone = ROWS.assign(shop=np.where(ROWS.t < 40, "s" + ROWS.who, shared))
        data = databases(alone, database="day", individual="who")
        with pytest.raises(QueryError, match="identifies individuals"):
            collect(data, f"SELECT shop, count(*) FROM data GROUP BY shop HAVING {having}")


def test_several_columns_may_say_who_it_is() -> None:
    with session_of(databases(ROWS, database="day", individual=["who", "house"])) as session:
        check(session, "SELECT avg(s) FROM (SELECT who, house, sum(x) AS s FROM data GROUP BY who, house) AS p")
        check_refused(session, QUERIES[0])


@pytest.mark.slow
def test_in_random_samples_too() -> None:
    with session_of(subsamples(ROWS, individual="who", count=6, fraction=0.6)) as session:
        for query in [QUERIES[0], QUERIES[2], *QUERIES[-13::3], *PLAIN[::3]]:
            check(session, query)


@pytest.mark.slow
@pytest.mark.parametrize(
    "query",
    [
        "SELECT var_samp(s) FROM (SELECT who, sum(x) AS s FROM data GROUP BY who) AS p",
        "SELECT var_samp(x) FROM data WHERE who IN (SELECT who FROM data WHERE x > 1)",
        "SELECT var_samp(a.x) FROM data AS a JOIN data AS b ON a.who = b.who AND a.x <= b.x",
        "SELECT var_samp(d.x) FROM data AS d JOIN (SELECT who, max(x) AS m FROM data GROUP BY who) AS p USING (who) "
        "HAVING count(*) > 2",
    ],
)
def test_what_needs_another_look_is_looked_at_again(query: str) -> None:
    rows = pd.DataFrame({"day": [0] * 6, "who": list("aabbcc"), "x": [1e12, 1e12, 1.0, 2.0, 3.0, 5.0]})
    with session_of(databases(rows, database="day", individual="who")) as session:
        check(session, query)
