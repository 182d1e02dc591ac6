"""Attacks on the ledger: the same asked again in disguise, to average the noise away, and damage that goes unseen."""

from __future__ import annotations

import itertools
import json
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.errors import EmprivError, InputError, LedgerError, RefusalError
from empriv.ledger import Figures, Policy, Release, ReleaseEntry, identity_of

DAYS, PEOPLE, DAY = 30, 6, 3
SUM = "SELECT sum(amount) FROM data"


def table(days: int = DAYS) -> pd.DataFrame:
    """Sales; the largest, on the first day, sets the noise, so that later days do not change it."""
    generator = np.random.default_rng(5)
    amounts = generator.lognormal(0.0, 0.3, (60, PEOPLE)).round(2)
    amounts[0, 0] = 9.0
    return pd.DataFrame(
        {
            "day": np.repeat(np.arange(days), PEOPLE),
            "who": [f"p{k}" for k in range(PEOPLE)] * days,
            "household": [f"h{k // 2}" for k in range(PEOPLE)] * days,
            "amount": amounts[:days].ravel(),
        }
    )


@cache
def audited_table(query: str = SUM, database: str = "day", individual: str = "who", scope: str = "") -> empriv.Audit:
    """The audit of the table as it is, made once."""
    return empriv.audit(empriv.databases(table(), database=database, individual=individual), query, scope=scope)


@cache
def noise_of(audit: empriv.Audit, epsilon: float) -> Any:
    return empriv.design_noise(audit, epsilon=epsilon, delta=0.0, method="classical", granularity=2.0**-6)


class Asker:
    """Asks for the answer of one day again and again, under a policy of one query."""

    def __init__(self, path: Path, **limits: Any) -> None:
        self.ledger = empriv.Ledger(path, policy=Policy(**(limits or {"queries": 1})))

    def ask(
        self, data: Any = None, query: str = SUM, label: Any = None, place: int = DAY, *, individual: str = "who",
        database: str | None = "day", value: float | None = None, epsilon: float = 1.0, scope: str = "",
    ) -> Any:  # fmt: skip
        if data is None:
            audit = audited_table(query, database or "day", individual, scope)
        else:
            audit = empriv.audit(empriv.databases(data, database=database, individual=individual), query, scope=scope)
        noise = noise_of(audit, epsilon)
        results = audit.results
        chosen = results.databases[place].item() if label is None else label
        answer = float(results.q[place]) if value is None else value
        return audit.release(answer, noise=noise, ledger=self.ledger, database=chosen)

    @property
    def drawn(self) -> list[ReleaseEntry]:
        return [entry for entry in self.ledger.entries() if isinstance(entry, ReleaseEntry)]


@pytest.fixture
def asker(tmp_path: Path) -> Asker:
    return Asker(tmp_path / "a.ledger")


def test_one_more_day_behind_the_same_day(asker: Asker) -> None:
    answers = {asker.ask(table(DAYS + more)).answer for more in (0, 1, 7)}
    assert len(answers) == len(asker.drawn) == 1


def test_a_renamed_file(asker: Asker, tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv", "c.csv"):
        table().to_csv(tmp_path / name, index=False)
        asker.ask(str(tmp_path / name))
    assert len(asker.drawn) == 1


def test_renamed_files_that_are_databases_themselves(asker: Asker, tmp_path: Path) -> None:
    """Each file is a database, and its label is its name."""
    for day, rows in table(30).groupby("day"):
        rows.to_csv(tmp_path / f"d{day}.csv", index=False)
    first = asker.ask(sorted(map(str, tmp_path.glob("d*.csv"))), database=None)
    (tmp_path / "d3.csv").rename(tmp_path / "d3b.csv")
    again = asker.ask(sorted(map(str, tmp_path.glob("d*.csv"))), database=None)
    assert again.repeated
    assert again.answer == first.answer


@pytest.mark.parametrize("cut", ["day * 1.0", "'0' || day || ' '"])
def test_the_same_cut_in_other_words(asker: Asker, cut: str) -> None:
    first = asker.ask()
    renamed = audited_table(database=cut).results.q
    place = int(np.abs(renamed - table().query("day == 3")["amount"].sum()).argmin())
    again = asker.ask(database=cut, place=place)
    assert again.repeated
    assert again.answer == first.answer
    assert len(asker.drawn) == 1


def test_labels_that_are_the_same(asker: Asker) -> None:
    first = asker.ask()
    for label in ("3", "3 ", "03", "3.0", 3.0, " +3", "3.00e0"):
        again = asker.ask(label=label)
        assert (again.repeated, again.answer) == (True, first.answer), label


def test_another_scope(asker: Asker) -> None:
    assert asker.ask(scope="shop").answer == asker.ask(scope="another").answer == asker.ask().answer
    assert len(asker.drawn) == 1


def test_another_time_zone(asker: Asker) -> None:
    rows = table()
    rows["day"] = pd.Timestamp("2026-01-01") + pd.to_timedelta(rows["day"], "D")
    first = asker.ask(rows)
    for label in ("2026-01-04", "2026-01-04T00:00:00Z", "2026-01-04 02:00:00+02:00", "2026-01-03 19:00:00.000-05"):
        again = asker.ask(rows, label=label)
        assert again.repeated
        assert again.answer == first.answer
    with_zone = rows.assign(day=rows["day"].dt.tz_localize("UTC"))
    assert asker.ask(with_zone).answer == first.answer
    assert len(asker.drawn) == 1


@pytest.mark.parametrize(
    "query",
    [
        "select  SUM( Amount )\nfrom DATA", "(sum((amount)))", "SELECT sum(d.amount) AS total FROM data AS d",
        '/* 7 */ sum("amount") -- again',
    ],
)  # fmt: skip
def test_the_same_query_in_other_words(asker: Asker, query: str) -> None:
    first = asker.ask()
    again = asker.ask(query=query)
    assert again.repeated
    assert again.answer == first.answer


@pytest.mark.parametrize("query", ["sum(amount) + 0", "sum(amount) * 1", "SELECT sum(amount) FROM data WHERE 1 = 1"])
def test_the_same_answers_by_another_query_are_the_same_release(asker: Asker, query: str) -> None:
    first = asker.ask()
    again = asker.ask(query=query)
    assert (again.repeated, again.answer) == (True, first.answer)


@pytest.mark.parametrize(
    "disguise",
    [
        {"label": "three"},  # a database that was not audited
        {"label": 4},  # the answer of one day under the name of another
        {"database": "'x' || day", "individual": "household"},  # renamed, and other people
        {"epsilon": 0.9},  # other noise
    ],
)
def test_what_cannot_be_told_apart_counts_as_a_further_query(asker: Asker, disguise: dict[str, Any]) -> None:
    value = float(table().query("day == 3")["amount"].sum())
    asker.ask()
    with pytest.raises(RefusalError, match="query number 2"):
        asker.ask(**{"value": value, **disguise})
    assert len(asker.drawn) == 1


def test_another_day_by_another_cut_is_another_day(asker: Asker) -> None:
    """Its rows say so, whatever it is called."""
    asker.ask()
    assert not asker.ask(database="day + 100", place=4).repeated
    assert len(asker.drawn) == 2


def test_another_target_with_the_same_noise_is_no_other_release(tmp_path: Path) -> None:
    ledger = empriv.Ledger(tmp_path / "a.ledger", policy=Policy(queries=1))
    numbers = itertools.count()

    def release(delta: float, method: str, days: int) -> Any:
        return ledger.release(
            Release(
                identity=identity_of(range(days)), database=DAY, query="sum(x)", method=method, law={"scale": 1.0},
                asked=Figures(0.1, delta), achieved=Figures(0.1, 0.0), n_individuals=5,
            ),
            lambda: float(next(numbers)),
        ).answer  # fmt: skip

    asked = itertools.product((0.01, 0.02), ("robust", "optimal"), (9, 10))
    assert {release(*one) for one in asked} == {0.0}


def test_days_that_look_the_same_are_not_linked(asker: Asker) -> None:
    """Everybody is there every day: a count is the same on all days, and so are the counts without each. Were the first
    answer given again, a reader would see the day on which somebody is missing."""
    done = [asker.ask(query="count(*)", place=day) for day in range(12)]
    assert not any(one.repeated for one in done)
    assert len({one.answer for one in done}) > 1


def test_an_export_does_not_tell_equal_answers(asker: Asker, tmp_path: Path) -> None:
    for day in range(4):
        asker.ask(query="count(*)", place=day)
    asker.ledger.export(tmp_path / "out.jsonl")
    bodies = [json.loads(line)["entry"] for line in (tmp_path / "out.jsonl").read_text().splitlines()[1:]]
    for name in ("content", "database"):
        assert len({body[name] for body in bodies}) == 4, name
    assert not any("further" in body for body in bodies)
    assert len({body["audited"] for body in bodies}) == 1


def test_changed_rows_compose_with_what_is_there(tmp_path: Path) -> None:
    asker = Asker(tmp_path / "a.ledger", queries=2)
    first = asker.ask()
    corrected = table()
    corrected.loc[DAY * PEOPLE, "amount"] += 1.0
    second = asker.ask(corrected)
    assert not second.repeated
    assert second.entry.further
    # Either state of the rows now gives the answer that it was given.
    assert asker.ask().answer == first.answer
    assert asker.ask(corrected).answer == second.answer
    corrected.loc[DAY * PEOPLE, "amount"] += 1.0
    with pytest.raises(RefusalError, match="query number 3"):
        asker.ask(corrected)
    # The next audit measures both looks, each with noise of its own.
    data = empriv.databases(table(), database="day", individual="who")
    audit = empriv.audit(data, "count(*)", ledger=asker.ledger)
    assert audit.composition is not None
    assert len(audit.composition.laws) == 2
    assert asker.ledger.verify().intact


def test_other_noise_is_measured_together_with_the_first(tmp_path: Path) -> None:
    """Without joint figures a second answer of the same query is refused; with them it counts."""
    asker = Asker(tmp_path / "a.ledger", epsilon=1.0, delta=0.5)
    asker.ask(epsilon=0.5)
    with pytest.raises(RefusalError, match="has no joint figures"):
        asker.ask(epsilon=0.4)
    data = empriv.databases(table(), database="day", individual="who")
    audit = empriv.audit(data, SUM, ledger=asker.ledger)
    noise = empriv.design_noise(audit.alone, epsilon=0.4, delta=0.0, method="classical", granularity=2.0**-6)
    done = audit.release(float(audit.alone.results.q[DAY]), noise=noise, ledger=asker.ledger, database=DAY)
    assert done.entry.joint is not None
    assert done.entry.joint.entries == (2,)


def test_answers_too_large_for_a_float(asker: Asker) -> None:
    with pytest.raises(InputError, match="within 2\\^53 granularities"):
        asker.ask(value=10**400)
    with pytest.raises(InputError, match="must be a finite number"):
        Policy(epsilon=10**400, delta=0.1)


def tamper(path: Path, *statements: str) -> None:
    """Change a ledger behind its back, its triggers and schema as before."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        triggers = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'").fetchall()
        for name, _ in triggers:
            connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
        for _, sql in triggers:
            connection.execute(sql)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    ledger = empriv.Ledger(tmp_path_factory.mktemp("made") / "long.ledger")
    for number in range(150):
        ledger.release(plain(number), lambda: 1.0)
    return ledger.path


@pytest.fixture
def long(made: Path, tmp_path: Path) -> empriv.Ledger:
    """A ledger of more entries than a release looks at."""
    return empriv.Ledger(shutil.copy(made, tmp_path / "long.ledger"), create=False)


def plain(number: int) -> Release:
    return Release(
        identity=identity_of(range(3)), database=1, query=f"sum(x{number})", method="least", law={"scale": 1.0},
        asked=Figures(0.1), achieved=Figures(0.1), n_individuals=5,
    )  # fmt: skip


def test_damage_that_verify_reports_stops_releases_until_it_is_repaired(long: empriv.Ledger, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copy(long.path, copy)
    tamper(long.path, "UPDATE entries SET body = replace(body, 'x40', 'x41') WHERE id = 42")
    assert not long.verify().intact
    acts: list[Callable[[], Any]] = [
        lambda: long.release(plain(999), lambda: 1.0), lambda: long.policy, lambda: long.head, long.entries,
        lambda: long.released(identity_of([1])), lambda: long.change_policy(Policy()),
    ]  # fmt: skip
    for act in acts * 3:
        with pytest.raises(LedgerError, match="is not as empriv wrote it"):
            act()
    tamper(long.path, "UPDATE entries SET body = replace(body, 'x41', 'x40') WHERE id = 42")
    with pytest.raises(LedgerError, match="`verify` found damage"):
        long.release(plain(999), lambda: 1.0)
    assert long.verify().intact
    assert not long.release(plain(999), lambda: 1.0).repeated
    shutil.copy(copy, long.path)
    assert not long.release(plain(999), lambda: 1.0).repeated


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET body = replace(body, 'x149', 'x9') WHERE id = 151",
        "DELETE FROM entries WHERE id = 140",
        "DELETE FROM entries WHERE id > 100",
        "UPDATE entries SET body = replace(body, 'created', 'policy') WHERE id = 1",
        "UPDATE head SET count = 'many'",
        "UPDATE head SET hash = x'00'",
        "DELETE FROM releases WHERE entry = 150",
        "UPDATE releases SET question = 'q' WHERE entry = 150",
        "UPDATE releases SET further = 1 WHERE entry = 150",
        "UPDATE policies SET entry = 7",
        "DELETE FROM policies",
    ],
)
def test_damage_at_the_ends_is_met_by_the_next_release(long: empriv.Ledger, statement: str) -> None:
    tamper(long.path, statement)
    with pytest.raises(LedgerError, match="is not as empriv wrote it"):
        long.release(plain(999), lambda: 1.0)
    assert not long.verify().intact


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM labels", "UPDATE labels SET digest = zeroblob(32) WHERE digest = (SELECT max(digest) FROM labels)",
        "DELETE FROM sources", "DELETE FROM numbers", "DELETE FROM releases WHERE entry = 50",
        "UPDATE releases SET answer = 'a' WHERE entry = 50", "INSERT INTO policies VALUES (50)",
    ],
)  # fmt: skip
def test_verify_looks_at_everything_that_releases_are_found_by(long: empriv.Ledger, statement: str) -> None:
    tamper(long.path, statement)
    assert not long.verify().intact


def flipped(content: bytes, seed: int, count: int) -> Iterator[bytes]:
    generator = np.random.default_rng(seed)
    for place, bit in zip(generator.integers(0, len(content), count), generator.integers(0, 8, count), strict=True):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(bit)
        yield bytes(damaged)


def test_bit_flips_end_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "flipped.ledger"
    ledger = empriv.Ledger(path, policy=Policy(queries=3))
    for number in range(3):
        ledger.release(plain(number), lambda: 1.5)
    whole, entries = path.read_bytes(), ledger.entries()
    told = set()
    for damaged in flipped(whole, seed=11, count=120):
        path.write_bytes(damaged)
        try:
            done = ledger.release(plain(1), lambda: -1.0)
            assert (done.repeated, done.answer) == (True, 1.5)
            assert ledger.entries() == entries
        except EmprivError as error:
            told.add(str(error))
        path.write_bytes(damaged)
        try:
            if ledger.verify().intact:
                assert ledger.entries() == entries
        except EmprivError as error:
            told.add(str(error))
    assert told
    assert all("\n" not in sentence and "flipped.ledger" in sentence for sentence in told)
