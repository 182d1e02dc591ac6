"""The next day's figure: released from its rows, without a new audit, if the day is like those audited."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import empriv
from empriv.cli.main import main

PEOPLE = [f"p{k:02d}" for k in range(12)]


def day(number: int, **largest: float) -> pa.Table:
    rng = np.random.default_rng(number)
    amounts = rng.exponential(20.0, len(PEOPLE)).round(2)
    for name, amount in largest.items():
        amounts[PEOPLE.index(name)] = amount
    label = np.datetime64("2026-01-01") + number
    return pa.table({"day": np.repeat(label, len(PEOPLE)), "who": PEOPLE, "amount": amounts})


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    pq.write_table(pa.concat_tables([day(number) for number in range(100)]), folder / "sales.parquet")
    data = empriv.databases(str(folder / "sales.parquet"), database="day", individual="who")
    audit = empriv.audit(data, "sum(amount)", epsilon=1.0, adversary=None)
    audit.save(folder / "audit.empriv")
    noise = empriv.design_noise(audit, epsilon=1.0, delta=0.01, granularity=0.25)
    noise.save(folder / "noise.empriv")
    return folder


def release(folder: Path, book: Path, rows: Path, *more: str) -> tuple[int, str, str]:
    command = ["release", str(folder / "noise.empriv"), "--audit", str(folder / "audit.empriv"), "--ledger", str(book)]
    done = CliRunner().invoke(main, [*command, "--rows", str(rows), *more])
    return done.exit_code, done.stdout, done.stderr


def test_the_next_day_is_released_from_its_rows(audited: Path, tmp_path: Path) -> None:
    book = tmp_path / "a.ledger"
    empriv.Ledger(book, policy=empriv.Policy(queries=200))
    answers = []
    for number in (100, 101, 100):
        pq.write_table(day(number), tmp_path / "today.parquet")
        code, out, said = release(audited, book, tmp_path / "today.parquet")
        assert code == 0, said
        answers.append(float(out))
    assert answers[0] == answers[2] != answers[1]
    assert abs(answers[0] - float(np.sum(day(100)["amount"].to_numpy()))) < 500
    assert empriv.Ledger(book).verify().intact


@pytest.mark.slow
def test_a_window_holds_as_many_days_as_the_noise_was_designed_for(audited: Path, tmp_path: Path) -> None:
    """Day after day without an audit, until the window is full; none is refused that fits."""
    audit = empriv.load(audited / "audit.empriv")
    noise = empriv.design_noise(audit, epsilon=1.0, delta=0.05, times=10, granularity=0.25)
    ledger = empriv.Ledger(tmp_path / "a.ledger", policy=empriv.Policy(epsilon=1.0, delta=0.05, window="10d"))
    for number in range(100, 125):
        audit.release(rows=day(number), noise=noise, ledger=ledger)
    assert ledger.left().more is None
    assert 0.03 < ledger.left().spent.delta <= 0.05 * (1 + 1e-9)
    assert ledger.verify().intact
    narrow = empriv.Ledger(tmp_path / "b.ledger", policy=empriv.Policy(epsilon=1.0, delta=0.05, window="30d"))
    audit.release(rows=day(100), noise=noise, ledger=narrow)
    fits = 1 + narrow.left().more
    assert 8 <= fits <= 13
    for number in range(101, 100 + fits):
        audit.release(rows=day(number), noise=noise, ledger=narrow)
    with pytest.raises(empriv.RefusalError, match="from 30 days would make delta"):
        audit.release(rows=day(100 + fits), noise=noise, ledger=narrow)
    assert narrow.left().more == 0


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        (day(100, p03=215.0), "changes its answer by more than anybody"),
        (pa.concat_tables([day(100)] * 4), "far beyond those"),
        (pa.concat_tables([day(100), day(101)]), "must be of one database, got 2"),
        (day(100).slice(0, 0), "at least one row"),
        (day(5), "label that is there already"),
        (day(100).rename_columns(["day", "who", "other"]), "amount"),
    ],
)
def test_another_kind_of_day_is_refused(audited: Path, tmp_path: Path, rows: pa.Table, reason: str) -> None:
    book = tmp_path / "a.ledger"
    empriv.Ledger(book, policy=empriv.Policy(queries=200))
    pq.write_table(rows, tmp_path / "today.parquet")
    code, out, said = release(audited, book, tmp_path / "today.parquet")
    assert code != 0
    assert out == ""
    assert reason in said
    assert "p03" not in said
    assert len(empriv.Ledger(book).entries()) == 1


def test_rows_and_a_value_are_not_both_given(audited: Path, tmp_path: Path) -> None:
    book = tmp_path / "a.ledger"
    empriv.Ledger(book)
    code, _, said = release(audited, book, tmp_path / "today.parquet", "--value", "3")
    assert code == 2
    assert "--rows must be given with --ledger, and without --value" in said


def test_a_saved_audit_grows_by_a_day(audited: Path, tmp_path: Path) -> None:
    pq.write_table(day(100), tmp_path / "today.parquet")
    grown = tmp_path / "grown.empriv"
    command = ["audit", "--update", str(audited / "audit.empriv"), str(tmp_path / "today.parquet")]
    done = CliRunner().invoke(main, [*command, "--save", str(grown)])
    assert done.exit_code == 0, done.output
    audit = empriv.load(grown)
    assert audit.n_databases == 101
    assert "Whenever you look (95% for all looks together): delta at epsilon 1 is between 0 and" in " ".join(
        done.output.split()
    )
    at_any_time = audit.bounds_whenever(1.0)
    assert at_any_time.looks == (30, 60)
    done = CliRunner().invoke(main, [*command[:2], str(grown), command[3]])
    assert done.exit_code == 1
    assert "label that is there already" in done.stderr
    assert empriv.load(grown).n_databases == 101
    done = CliRunner().invoke(main, [*command, "--query", "sum(amount)"])
    assert done.exit_code == 2
    assert "--update must not be given with --query" in done.stderr
