"""The next day's figure: released from its rows, without a new audit, if the day is like those audited."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import empriv
from empriv.cli.main import main

pytestmark = pytest.mark.slow

PEOPLE = [f"p{k:02d}" for k in range(12)]


def day(number: int, **largest: float) -> pa.Table:
    rng = np.random.default_rng(number)
    amounts = rng.exponential(20.0, len(PEOPLE)).round(2)
    for name, amount in largest.items():
        amounts[PEOPLE.index(name)] = amount
    label = np.datetime64("2026-01-01") + number
    return pa.table({"day": np.repeat(label, len(PEOPLE)), "who": PEOPLE, "amount": amounts})


def _many_small() -> pa.Table:
    """A day on which each does little, and so many come that the answer is far from any before."""
    names = [f"new{k}" for k in range(300)]
    return pa.table({"day": np.repeat(np.datetime64("2026-04-11"), 300), "who": names, "amount": np.full(300, 9.0)})


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shop")
    pq.write_table(pa.concat_tables([day(number) for number in range(100)]), folder / "sales.parquet")
    data = empriv.databases(str(folder / "sales.parquet"), database="day", individual="who")
    audit = empriv.audit(data, "sum(amount)", epsilon=1.0, known="nothing")
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
    assert answers[0] == answers[2]
    assert len(empriv.Ledger(book).entries()) == 3  # its creation, and one release a day
    noise = empriv.load(audited / "noise.empriv")
    for number, answer in zip((100, 101), answers, strict=False):
        # beyond this lies one draw in 10^12, and there is no seed
        assert abs(answer - float(np.sum(day(number)["amount"].to_numpy()))) <= 0.25 + noise.law.quantile(1 - 1e-12)
        assert answer % 0.25 == 0
    assert empriv.Ledger(book).verify().intact


def test_a_window_holds_as_many_days_as_the_noise_was_designed_for(audited: Path, tmp_path: Path) -> None:
    """Day after day without an audit, until the window is full; none is refused that fits."""
    audit = empriv.load(audited / "audit.empriv")
    noise = empriv.design_noise(audit, epsilon=1.0, delta=0.05, times=10, granularity=0.25)
    ledger = empriv.Ledger(tmp_path / "a.ledger", policy=empriv.Policy(epsilon=1.0, delta=0.05, window="10d"))
    for number in range(100, 114):
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
        (day(100, p03=1000.0), "moves the answer by more than the released answer hides"),
        (_many_small(), "far beyond those"),
        (pa.concat_tables([day(100)] * 4), "Nothing is released"),
        (pa.concat_tables([day(100), day(101)]), "must be of one database, got 2"),
        (day(100).slice(0, 0), "at least one row"),
        (day(5), "label that is there already"),
        (day(100).rename_columns(["day", "who", "other"]), "does not exist"),
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


def test_a_day_beyond_the_cover_is_refused_and_a_capped_query_never_is(audited: Path, tmp_path: Path) -> None:
    book = tmp_path / "a.ledger"
    empriv.Ledger(book, policy=empriv.Policy(queries=200))
    pq.write_table(day(100, p03=1000.0), tmp_path / "today.parquet")
    code, out, said = release(audited, book, tmp_path / "today.parquet")
    assert (code, out) == (3, "")
    assert "cap what each person adds" in said
    # the same day, each person capped: nobody does more than is declared, whoever comes
    from empriv.protocols.changed_queries import capped_people_text

    text = capped_people_text("sum(amount)", ["who"], 60.0)
    data = empriv.databases(str(audited / "sales.parquet"), database="day", individual="who")
    audit = empriv.audit(data, text, epsilon=1.0, known="nothing")
    noise = empriv.design_noise(audit, epsilon=1.0, delta=0.05, bound=60.0, dither=True, granularity=0.25)
    assert noise.cover >= 60.0 * (1 - 1e-9)
    released = audit.release(rows=day(100, p03=1000.0), noise=noise, ledger=empriv.Ledger(book))
    assert float(released.answer) % 0.25 == 0


def test_an_audited_day_is_checked_too(audited: Path, tmp_path: Path) -> None:
    audit = empriv.load(audited / "audit.empriv")
    assert isinstance(audit, empriv.Audit)
    noise = empriv.design_noise(audit, epsilon=1.0, delta=0.05, granularity=0.25)
    ledger = empriv.Ledger(tmp_path / "a.ledger", policy=empriv.Policy(queries=200))
    label = audit.results.databases[3]
    answer = float(audit.results.q[3])
    assert audit.release(answer, noise=noise, ledger=ledger, database=label).entry.id
    from empriv.auditing.releasing import check_day

    entry_q = audit.results.entry_q.copy()
    here = np.flatnonzero(audit.results.entry_database == 3)[0]
    entry_q[here] -= 10 * noise.cover
    with pytest.raises(empriv.RefusalError, match="more than the released answer hides"):
        check_day(noise, replace(audit.results, entry_q=entry_q), label)


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
    at_any_time = audit.anytime_bounds(1.0)
    assert at_any_time.looks == (30, 60)
    done = CliRunner().invoke(main, [*command[:2], str(grown), command[3]])
    assert done.exit_code == 1
    assert "label that is there already" in done.stderr
    assert empriv.load(grown).n_databases == 101
    done = CliRunner().invoke(main, [*command, "--query", "sum(amount)"])
    assert done.exit_code == 2
    assert "--update must not be given with --query" in done.stderr
