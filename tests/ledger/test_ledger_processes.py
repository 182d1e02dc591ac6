"""The ledger under several processes at once, under SIGKILL between and inside its steps, short of room or rights."""

from __future__ import annotations

import json
import random
import signal
import sqlite3
import stat
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from asking import asked, start

from empriv.errors import LedgerError
from empriv.ledger import Ledger, Policy, ReleaseEntry

pytestmark = pytest.mark.slow


def releases(ledger: Ledger) -> list[ReleaseEntry]:
    return [entry for entry in ledger.entries() if isinstance(entry, ReleaseEntry)]


def shown(process: subprocess.Popen[str]) -> list[tuple[str, float | None, bool]]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return [tuple(json.loads(line)) for line in out.splitlines() if line != "ready"]


def test_releases_at_once_are_neither_lost_nor_doubled(tmp_path: Path) -> None:
    """Four processes, 25 releases each, 5 of them asked by all; the ledger does not exist when they start."""
    path = tmp_path / "shared.ledger"
    processes = [start("releaser.py", path, f"p{k}", 20, 5) for k in range(4)]
    answers = [one for process in processes for one in shown(process)]
    ledger = Ledger(path, create=False)
    entries = releases(ledger)
    assert ledger.verify().intact
    assert len(answers) == 100
    assert len(entries) == 4 * 20 + 5
    stored = {entry.query: entry.answer for entry in entries}
    assert len(stored) == len(entries)
    # Everyone was shown what is stored, so that one query never had two answers; each was new for one process only.
    assert all(stored[query] == answer for query, answer, _ in answers)
    assert Counter(query for query, _, repeated in answers if not repeated) == Counter(list(stored))
    assert [file.name for file in tmp_path.iterdir()] == ["shared.ledger"]


def test_a_limit_holds_for_all_processes_together(tmp_path: Path) -> None:
    path = tmp_path / "limited.ledger"
    ledger = Ledger(path, policy=Policy(queries=7))
    processes = [start("releaser.py", path, f"p{k}", 6, 0) for k in range(2)]
    answers = [one for process in processes for one in shown(process)]
    assert len(answers) == 12
    assert sum(answer is not None for _, answer, _ in answers) == 7
    assert {query for query, answer, _ in answers if answer is not None} == {one.query for one in releases(ledger)}


Begin = Callable[[str, int, Path], tuple[int, str]]


@pytest.fixture(scope="module")
def begin() -> Iterator[Begin]:
    """A way to have a child carry out a task of children.py: its exit code, and what it was shown."""
    with start("children.py", stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        asks, tells = process.stdin, process.stdout

        def one(task: str, number: int, path: Path) -> tuple[int, str]:
            print(task, number, path, file=asks, flush=True)
            return tuple(json.loads(tells.readline()))

        yield one
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")


@pytest.mark.parametrize("task", ["release", "results"])
def test_killed_between_any_two_steps(tmp_path: Path, task: str, begin: Begin) -> None:
    path = tmp_path / "killed.ledger"
    journals = written = steps = 0
    while True:
        path.unlink(missing_ok=True)
        ledger = Ledger(path)
        ledger.release(asked("earlier"), lambda: 0.5)
        code, out = begin(task, steps, path)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        assert out == ""
        journals += path.with_name(path.name + "-journal").exists()
        assert ledger.verify().intact
        kept = releases(ledger)[1:]
        assert len(kept) <= 1
        written += len(kept)
        again = ledger.release(asked(), lambda: -1.0)
        assert again.repeated == bool(kept)
        assert again.answer == (kept[0].answer if kept else -1.0)
        assert len(releases(ledger)) == 2
        assert ledger.verify().intact
        steps += 1
    # All of it: open, begin, read, draw, write, commit; only after the commit does the entry stay.
    assert steps > 15
    assert written == 1
    assert journals >= 1 or task == "release"


def test_killed_while_it_is_made(tmp_path: Path, begin: Begin) -> None:
    made = steps = 0
    while True:
        path = tmp_path / str(steps) / "new.ledger"
        path.parent.mkdir()
        code, out = begin("create", steps, path)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        made += path.exists()
        # Whole if it is there at all, and made anew if it is not.
        assert Ledger(path, create=not path.exists()).verify().count == 1
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        steps += 1
    assert out == "made"
    assert steps > 20
    assert 1 <= made < steps


def test_killed_at_any_moment_nothing_shown_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "random.ledger"
    Ledger(path)
    moments = random.Random(7)
    seen: dict[str, float] = {}
    for turn in range(4):
        process = start("releaser.py", path, f"turn{turn}", 10_000, 0)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0.0, 0.2))
        process.kill()
        # Not communicate, which leaves out what was read ahead with the first line.
        out = process.stdout.read()
        process.communicate(timeout=60)
        for line in out.splitlines():
            if line.endswith("]"):
                query, answer, _ = json.loads(line)
                seen[query] = answer
        ledger = Ledger(path)
        assert ledger.verify().intact
        stored = {entry.query: entry.answer for entry in releases(ledger)}
        assert len(stored) == len(releases(ledger))
        assert seen.items() <= stored.items()
        # At most one release in each turn was written and not yet shown.
        assert len(stored) <= len(seen) + turn + 1
    assert seen


@pytest.mark.parametrize("how", ["error", "die"])
def test_out_of_room(tmp_path: Path, how: str, begin: Begin) -> None:
    """At any size, the release is there or it is not, and what was there before is."""
    path = tmp_path / "full.ledger"
    outcomes = set()
    empty = 0
    for extra in (0, 512, 4096, 8192, 30_000, 61_440, 200_000):
        path.unlink(missing_ok=True)
        ledger = Ledger(path)
        ledger.release(asked("earlier"), lambda: 0.5)
        empty = path.stat().st_size
        code, out = begin(how, empty + extra, path)
        assert code in ((0, -signal.SIGXFSZ) if how == "die" else (0,))
        assert ledger.verify().intact
        count = len(releases(ledger))
        outcomes.add(count)
        assert count == (2 if out == "1.5" else 1)
        if count == 1 and how == "error":
            assert "full.ledger" in out
            assert "disk" in out
        assert ledger.release(asked("after"), lambda: 2.5).answer == 2.5
    assert outcomes == {1, 2}
    assert empty > 0


def test_locked_for_too_long(tmp_path: Path) -> None:
    path = tmp_path / "locked.ledger"
    ledger = Ledger(path, timeout=0.2)
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN EXCLUSIVE")
        for act in (ledger.entries, lambda: ledger.release(asked(), lambda: 1.0)):
            with pytest.raises(LedgerError, match="locked by another process for too long"):
                act()
    assert ledger.release(asked(), lambda: 1.0).answer == 1.0


@pytest.mark.parametrize("what", ["file", "directory"])
def test_where_nothing_may_be_written(what: str, begin: Begin) -> None:
    """It can be read and verified, and says plainly that it cannot be written."""
    # Others must be able to reach it, which pytest's own directories do not allow.
    with tempfile.TemporaryDirectory(prefix="empriv-test-") as name:
        directory = Path(name)
        path = directory / "fixed.ledger"
        ledger = Ledger(path)
        ledger.release(asked(), lambda: 1.0)
        path.chmod(0o444 if what == "file" else 0o666)
        directory.chmod(0o777 if what == "file" else 0o555)
        try:
            told = {task: begin(task, 0, path)[1] for task in ("read", "add")}
            new = begin("make", 0, directory / "new.ledger")[1]
        finally:
            directory.chmod(0o700)
        assert told["read"] == "intact 2"
        assert "fixed.ledger" in told["add"]
        assert "Nothing was written or released." in told["add"]
        assert new.startswith("intact 1" if what == "file" else "The ledger 'new.ledger' cannot be created: Permission")
        assert len(ledger.entries()) == 2
        assert ledger.verify().intact
