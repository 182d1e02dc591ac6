"""A ledger of version 1, as that version wrote it: read, verified, upgraded, and released from.

``files/version1.ledger.gz`` was written by version 1 from the rows below: a sum released of days 3 and 4, a function of
day "03", and a change of policy.
"""

from __future__ import annotations

import gzip
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

import empriv
from empriv.cli.main import main
from empriv.errors import LedgerError, RefusalError
from empriv.ledger import Policy, ReleaseEntry, UpgradeEntry, identity_of

OLD = Path(__file__).parent / "files" / "version1.ledger.gz"
HEAD = "5:2ecfcfbda06699ba6f257a33c992c92133ba1a1e7c66f1a41874cd6825452cb2"
SUM = "SELECT sum(amount) FROM data"
ANSWERS = {3: 6.4375, 4: -3.875}


def total(rows: dict[str, Any]) -> float:
    return float(np.sum(rows["amount"]))


@pytest.fixture(scope="module")
def data() -> Any:
    amounts = np.random.default_rng(5).lognormal(0, 0.5, (20, 6)).ravel().round(2)
    rows = pd.DataFrame({"day": np.repeat(np.arange(20), 6), "who": [f"p{k}" for k in range(6)] * 20})
    return empriv.databases(rows.assign(amount=amounts), database="day", individual="who")


@pytest.fixture
def old(tmp_path: Path) -> empriv.Ledger:
    path = tmp_path / "old.ledger"
    path.write_bytes(gzip.decompress(OLD.read_bytes()))
    return empriv.Ledger(path, create=False)


def release(ledger: empriv.Ledger, data: Any, day: Any, query: Any = SUM, **noise: Any) -> Any:
    audit = empriv.audit(data, query, jobs=1)
    options = {"epsilon": 1.0, "method": "classical", "granularity": 2.0**-6, **noise}
    value = float(audit.results.q[int(day)])
    return audit.release(value, noise=empriv.design_noise(audit, **options), ledger=ledger, database=day)


def test_an_old_ledger_is_read_and_verified_as_it_is(old: empriv.Ledger, tmp_path: Path) -> None:
    before = old.path.read_bytes()
    assert str(old.head) == HEAD
    assert old.verify(HEAD).intact
    assert old.policy == Policy(queries=5)
    assert [entry.kind for entry in old.entries()] == ["created", "release", "release", "release", "policy"]
    assert old.export(tmp_path / "out.jsonl") == 5
    assert old.path.read_bytes() == before


def test_it_takes_nothing_until_it_is_upgraded(old: empriv.Ledger, data: Any) -> None:
    before = old.path.read_bytes()
    for act in (
        lambda: release(old, data, 3),
        lambda: old.change_policy(Policy()),
        lambda: old.released(identity_of([3])),
        lambda: empriv.audit(data, SUM, ledger=old),
    ):
        with pytest.raises(LedgerError, match=r"has format version 1: .* Hint: empriv ledger upgrade old\.ledger"):
            act()
    assert old.path.read_bytes() == before


def test_upgraded_it_gives_the_answers_that_it_gave(old: empriv.Ledger, data: Any) -> None:
    before = old.entries()
    kept = old.upgrade()
    assert kept is not None
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert empriv.Ledger(kept).entries() == before
    assert old.upgrade() is None
    assert old.entries()[:-1] == before
    assert isinstance(old.entries()[-1], UpgradeEntry)
    assert old.verify(HEAD).intact
    for day, answer in ANSWERS.items():
        for label in (day, f"0{day}", f"{day} "):
            done = release(old, data, label)
            assert (done.repeated, done.answer) == (True, answer)
    # A day of which version 1 wrote another spelling is found by both.
    done = release(old, data, "03", total, granularity=2.0**-5)
    assert (done.repeated, done.answer) == (True, 6.71875)
    new = release(old, data, 5)
    assert not new.repeated
    assert not new.entry.further
    assert old.verify(HEAD).intact


def test_old_entries_count(old: empriv.Ledger, data: Any) -> None:
    old.upgrade()
    assert len(old.released(identity_of([3]))) == 3
    old.change_policy(Policy(queries=2))
    with pytest.raises(RefusalError, match="query number 3"):
        release(old, data, 3, "avg(amount)")
    audit = empriv.audit(data, "avg(amount)", ledger=old)
    assert audit.composition is not None
    assert len(audit.composition.laws) == 2  # the sum of two days is one query


def test_what_an_upgrade_added_is_covered_by_the_chain(old: empriv.Ledger) -> None:
    old.upgrade()
    with closing(sqlite3.connect(old.path, isolation_level=None)) as connection:
        trigger = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'releases_no_update'").fetchone()[0]
        connection.execute("DROP TRIGGER releases_no_update")
        connection.execute("UPDATE releases SET question = 'another' WHERE entry = 2")
        connection.execute(trigger)
    assert "What was added to the entries before entry 6" in old.verify().faults[0]


def test_a_damaged_ledger_is_not_upgraded(old: empriv.Ledger) -> None:
    with closing(sqlite3.connect(old.path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER entries_no_update")
        connection.execute("UPDATE entries SET body = replace(body, 'SUM', 'MAX') WHERE id = 2")
    before = old.path.read_bytes()
    with pytest.raises(LedgerError, match="is not as empriv wrote it"):
        old.upgrade()
    assert old.path.read_bytes() == before
    assert [file.name for file in old.path.parent.iterdir()] == ["old.ledger"]


def test_the_command(old: empriv.Ledger) -> None:
    told = CliRunner().invoke(main, ["ledger", "upgrade", str(old.path)])
    assert told.exit_code == 0, told.output
    assert "Upgraded old.ledger: its entries stay as they are, and one was added that says so." in told.output
    assert "kept in old.ledger.version1" in told.output
    assert "upgraded from an earlier version" in CliRunner().invoke(main, ["ledger", "list", str(old.path)]).output
    assert "of this version already" in CliRunner().invoke(main, ["ledger", "upgrade", str(old.path)]).output
    assert any(isinstance(entry, ReleaseEntry) for entry in old.entries())
