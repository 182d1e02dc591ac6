"""What a hash chain shows, and what it does not."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from asking import asked, days

from empriv.errors import LedgerError
from empriv.ledger import Figures, Ledger, Policy
from empriv.ledger.chain import START, link
from empriv.ledger.store import _TRIGGERS
from empriv.results import Results


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger of five entries: made, three releases, one with results, and a change of policy."""
    ledger = Ledger(tmp_path_factory.mktemp("made") / "kept.ledger", policy=Policy(queries=3))
    results = Results.from_arrays(np.arange(30.0), np.zeros((2, 30)))
    for k in range(3):
        ledger.release(asked(f"q{k}", results=results if k == 1 else None), lambda k=k: float(k))  # type: ignore[misc]
    ledger.change_policy(Policy(queries=4))
    assert ledger.verify().intact
    return ledger.path


@pytest.fixture
def ledger(kept: Path, tmp_path: Path) -> Ledger:
    return Ledger(shutil.copy(kept, tmp_path), create=False)


def tamper(ledger: Ledger, *statements: str, restore: bool = True) -> None:
    """Change the file behind the ledger's back, its triggers gone meanwhile and, if ``restore``, put back."""
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        for trigger in _TRIGGERS:
            connection.execute(f"DROP TRIGGER {trigger.split()[2]}")
        for statement in statements:
            connection.execute(statement)
        if restore:
            for trigger in _TRIGGERS:
                connection.execute(trigger)


MOVE = (
    "UPDATE entries SET id = 100 WHERE id = 2",
    "UPDATE entries SET id = 2 WHERE id = 3",
    "UPDATE entries SET id = 3 WHERE id = 100",
)


@pytest.mark.parametrize(
    ("statements", "fault"),
    [
        (["UPDATE entries SET body = replace(body, '\"q1\"', '\"q9\"') WHERE id = 3"], "Entry 3 was changed"),
        (["UPDATE entries SET body = CAST(x'ff00' AS TEXT) WHERE id = 3"], "Entry 3 was changed"),
        (["UPDATE entries SET hash = printf('%064d', 7) WHERE id = 3"], "Entry 3 was changed"),
        (["UPDATE entries SET body = replace(body, '\"queries\":3', '\"queries\":9') WHERE id = 1"], "Entry 1 was"),
        (["DELETE FROM entries WHERE id = 3"], "Entry 3 is missing: entry 4 stands in its place"),
        (["DELETE FROM entries WHERE id = 1"], "Entry 1 is missing"),
        (["DELETE FROM entries WHERE id = 5"], "Entries are missing at the end: 5 were written, 4 are there"),
        (["DELETE FROM entries"], "There is no entry"),
        (MOVE, "Entry 2 does not follow the entry before it"),
        (["DELETE FROM head"], "The record of the last entry is missing"),
        (["UPDATE head SET count = 4"], "The last entry is not the one that the ledger ended with"),
        (["UPDATE secret SET content = zeroblob(32)"], "The key of the digests is not the one"),
        (["UPDATE identities SET labels = 'text'"], "What entry 2 says of its databases is missing or was"),
        (["DELETE FROM identities"], "What entry 2 says of its databases is missing or was"),
    ],
)
def test_is_shown_and_stops_the_ledger(ledger: Ledger, statements: list[str], fault: str) -> None:
    tamper(ledger, *statements)
    found = ledger.verify()
    assert not found.intact
    assert fault in found.faults[0]
    before = ledger.path.read_bytes()
    for act in (ledger.entries, lambda: ledger.release(asked("new"), lambda: 1.0), lambda: ledger.released(days())):
        with pytest.raises(LedgerError, match="is not as empriv wrote it"):
            act()
    assert ledger.path.read_bytes() == before


@pytest.mark.parametrize(
    "statement", ["UPDATE results SET content = x'00'", "DELETE FROM results", "INSERT INTO results VALUES (2, x'00')"]
)
def test_results_that_were_changed(ledger: Ledger, statement: str) -> None:
    entry = ledger.released(days())[1]
    tamper(ledger, statement)
    assert "The results of entry" in ledger.verify().faults[0]
    if "INSERT" not in statement:
        with pytest.raises(LedgerError, match="The results of entry 3 are missing or were changed"):
            ledger.results_of(entry)


@pytest.mark.parametrize(
    ("statements", "fault"),
    [
        ((), "triggers that refuse changes, are missing"),
        (("CREATE TRIGGER forget AFTER INSERT ON entries BEGIN SELECT 1; END",), "missing or were changed"),
        (("ALTER TABLE entries ADD COLUMN note",), "missing or were changed"),
        (("DROP TABLE identities",), "missing or were changed"),
    ],
)
def test_a_changed_schema(ledger: Ledger, statements: tuple[str, ...], fault: str) -> None:
    tamper(ledger, *statements, restore=False)
    assert fault in ledger.verify().faults[0]
    with pytest.raises(LedgerError, match="is not as empriv wrote it"):
        ledger.release(asked("new"), lambda: 1.0)


def test_sqlite_itself_refuses_changes(ledger: Ledger) -> None:
    columns = {"entries": "body", "identities": "labels", "head": "hash", "results": "content", "secret": "content"}
    with closing(sqlite3.connect(ledger.path, isolation_level=None)) as connection:
        for table, column in columns.items():
            for statement in (f"DELETE FROM {table}", f"UPDATE {table} SET {column} = x'00'"):
                with pytest.raises(sqlite3.IntegrityError, match="append only"):
                    connection.execute(statement)
        assert ledger.verify().intact
        connection.execute("CREATE TRIGGER forget AFTER INSERT ON entries BEGIN SELECT 1; END")
    assert ledger.verify().faults == ("There are tables or triggers that empriv did not make.",)


def rewrite(path: Path, change: Callable[[list[dict[str, object]]], list[dict[str, object]]]) -> None:
    """What someone does who knows how the chain is made: all hashes and the head anew."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for trigger in _TRIGGERS:
            connection.execute(f"DROP TRIGGER {trigger.split()[2]}")
        bodies = [json.loads(row[0]) for row in connection.execute("SELECT body FROM entries ORDER BY id")]
        connection.execute("DELETE FROM entries")
        previous = START
        for number, facts in enumerate(change(bodies), start=1):
            body = json.dumps(facts, sort_keys=True, separators=(",", ":"))
            new = link(previous, body)
            connection.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (number, body, previous, new))
            previous = new
        connection.execute("UPDATE head SET count = ?, hash = ?", (number, previous))
        connection.execute("DELETE FROM policies WHERE entry > ?", (number,))
        for trigger in _TRIGGERS:
            connection.execute(trigger)


def test_only_a_head_noted_elsewhere_shows_a_chain_made_anew(ledger: Ledger) -> None:
    """The limit that docs/again.md states: without the head it looks intact, with it it does not."""
    early, late = f"2:{ledger.entries()[1].hash}", str(ledger.head)
    rewrite(ledger.path, lambda bodies: bodies[:-1])
    assert ledger.verify().intact
    assert ledger.verify(early).intact
    assert ledger.verify(late).faults == ("Entry 5 is not the one whose hash was noted, or is missing.",)
    rewrite(ledger.path, lambda bodies: [*bodies[:1], {**bodies[1], "query": "other"}, *bodies[2:]])
    assert ledger.verify().intact
    assert not ledger.verify(early).intact


def test_an_older_copy_put_back(ledger: Ledger, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copy(ledger.path, copy)
    ledger.release(asked("later", achieved=Figures(0.1)), lambda: 1.0)
    head = ledger.head
    shutil.copy(copy, ledger.path)
    assert ledger.verify().intact
    assert not ledger.verify(head).intact


def test_hashes_that_are_right_on_text_that_is_not(ledger: Ledger) -> None:
    rewrite(ledger.path, lambda bodies: [*bodies[:2], {"id": 3, "kind": "release", "time": ""}])
    assert ledger.verify().faults == ("Entry 3 cannot be understood.",)
    rewrite(ledger.path, lambda bodies: [*bodies[:2], {**bodies[1], "id": 9}])
    assert ledger.verify().faults == ("Entry 3 cannot be understood.",)


@pytest.mark.parametrize("where", [0.3, 0.6, 0.9])
def test_a_damaged_file(ledger: Ledger, where: float) -> None:
    """Bytes overwritten anywhere: it is said, and nothing is released from it."""
    content = bytearray(ledger.path.read_bytes())
    at = int(len(content) * where) // 4096 * 4096
    content[at : at + 4096] = b"\xa5" * 4096
    ledger.path.write_bytes(content)
    assert not ledger.verify().intact
    with pytest.raises(LedgerError, match=r"is damaged|is not as empriv wrote it"):
        ledger.release(asked("new"), lambda: 1.0)


def test_a_file_cut_short(ledger: Ledger) -> None:
    content = ledger.path.read_bytes()
    ledger.path.write_bytes(content[: len(content) // 2])
    for act in (ledger.verify, lambda: ledger.release(asked("new"), lambda: 1.0)):
        with pytest.raises(LedgerError, match="is damaged"):
            act()
