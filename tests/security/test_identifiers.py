"""Identifiers and results stay where they belong: no group, no repr and no error tells them."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.collecting.queries import query_of
from empriv.errors import InputError, QueryError

# Nobody else is called so, and no other figure ends so.
PERSON, FIGURE = "zebedee", 0.123456789
NAMES = [PERSON, *(f"person{i}" for i in range(7))]
RNG = np.random.default_rng(1)
ROWS = pd.DataFrame(
    {
        "day": np.repeat(np.arange(30), len(NAMES)),
        "patient": np.tile(NAMES, 30),
        "x": np.where(np.tile(NAMES, 30) == PERSON, FIGURE, RNG.normal(0, 1, 30 * len(NAMES)).round(3)),
        "ward": np.tile(["north", "south"], 15 * len(NAMES)),
        "mail": np.tile([f"{name}@example.org" for name in NAMES], 30),
    }
)
DATA = empriv.databases(ROWS, database="day", individual="patient")


def collected(query: str, data: empriv.Databases = DATA) -> empriv.Results:
    return empriv.collect(data, query, progress=False, notice=lambda _: None)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT patient, sum(x) FROM data GROUP BY patient",
        "SELECT patient, ward, sum(x) FROM data GROUP BY patient, ward",
        "SELECT mail, count(*) FROM data GROUP BY 1",
        "SELECT upper(patient) AS p, sum(x) FROM data GROUP BY p",
        "SELECT md5(mail) AS p, sum(x) FROM data WHERE ward = 'north' GROUP BY ALL",
        "SELECT patient, sum(x) FROM data GROUP BY patient HAVING count(*) > 0",
        "SELECT p, sum(x) FROM (SELECT mail AS p, x FROM data) GROUP BY p",
        f"SELECT patient, sum(x) FROM data WHERE patient = '{PERSON}' GROUP BY patient",
    ],
)
def test_groups_that_are_individuals_are_refused(query: str) -> None:
    for ask in (collected, lambda query: empriv.audit(DATA, query)):
        with pytest.raises(QueryError, match="must not group by what identifies individuals") as refused:
            ask(query)
        assert PERSON not in str(refused.value).replace(query, "")
    with pytest.raises(InputError, match="people cannot be measured in chunks"):
        empriv.audit(DATA, query, in_chunks=True)


@pytest.mark.parametrize(
    ("query", "groups"),
    [
        ("SELECT ward, sum(x) FROM data GROUP BY ward", 2),
        ("SELECT ward, sum(x) FROM data GROUP BY ward HAVING count(*) > 1", 2),
        ("SELECT length(patient) AS n, sum(x) FROM data GROUP BY n", 1),
        ("SELECT left(patient, 1) AS c, ward, sum(x) FROM data GROUP BY c, ward", 3),
        (f"SELECT ward, sum(x) FROM data WHERE patient = '{PERSON}' AND ward = 'north' GROUP BY ward", 1),
    ],
)
def test_groups_that_several_share_are_not(query: str, groups: int) -> None:
    results = collected(query)
    assert results.components is not None
    assert len(results.components) == groups


@pytest.mark.parametrize("having", ["", " HAVING sum(x) > 1e9"])
def test_a_query_of_which_no_group_is_left_says_so(having: str) -> None:
    query = f"SELECT ward, sum(x) FROM data WHERE x {'> 1e9' if not having else '< 1e9'} GROUP BY ward{having}"
    with pytest.raises(QueryError, match=r"at least one group, got none\. Hint"):
        collected(query)


def _built(tmp_path: Path) -> dict[str, Any]:
    """An object of every public class that holds data."""
    audit = empriv.audit(DATA, "avg(x)")
    several = empriv.audit(DATA, ["avg(x)", "sum(x)"])
    noise = empriv.design_noise(audit.risk, epsilon=1.0, delta=0.4, granularity=2**-10)
    ledger = empriv.Ledger(tmp_path / "ledger.sqlite")
    known = np.linspace(0, 1, 30)
    compared = empriv.compare({"plain": "avg(x)", "round": empriv.protocols.rounded("avg(x)", to=0.5)}, DATA)
    return {
        "Audit": audit, "joint Audit": several, "Results": audit.results, "Risk": audit.risk, "TableRisk": several.risk,
        "Noise": noise, "Ledger": ledger, "Databases": DATA, "in chunks": empriv.audit(DATA, "avg(x)", in_chunks=True),
        "Bounds": audit.bounds(0.5), "Message": audit.checks[0], "Verdict": audit.verdict(epsilon=1.0, delta=0.4),
        "Comparison": compared, "GivenRisk": empriv.audit(DATA, "avg(x)", known=known).against,
        "WorstRisk": empriv.audit(DATA, "avg(x)", known="own").against, "Buckets": empriv.Buckets(ROWS.x.to_numpy(), 3),
        "OwnContribution": empriv.OwnContribution(ROWS.x.to_numpy()), "Summary": audit.summary(),
        "Query": query_of("avg(x)"), "DuckDBEngine": empriv.DuckDBEngine(),
        "frames": empriv.databases([ROWS, ROWS], individual="patient", tables={"t": ROWS}),
    }  # fmt: skip


def test_no_repr_shows_a_result_or_an_identifier(tmp_path: Path) -> None:
    built = _built(tmp_path)
    audit = built["Audit"]
    q = audit.results.q
    shown = {f"{value:.{digits}g}" for value in (*q.tolist(), FIGURE) for digits in (6, 8, 12, 17)}
    for name, thing in built.items():
        text = repr(thing)
        assert PERSON not in text, name
        assert "person3" not in text, name
        assert not [figure for figure in shown if figure in text], name
        assert "array(" not in text, name


def test_every_public_class_that_holds_arrays_hides_them() -> None:
    for name in empriv.__all__:
        thing = getattr(empriv, name)
        # Written by hand, a repr is looked at above.
        if inspect.isclass(thing) and is_dataclass(thing) and thing is not empriv.Results:
            shown = [
                one.name
                for one in fields(thing)
                if one.repr and re.search("^(Float|Int)Array|NDArray|Model |Tally", str(one.type))
            ]
            assert not shown, name
