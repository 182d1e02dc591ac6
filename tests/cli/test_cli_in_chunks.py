"""`empriv audit --in-chunks`: what it prints and writes, its exit codes, and how it is interrupted and goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner, Result

import empriv
from empriv.auditing import chunked
from empriv.cli.main import main
from empriv.collecting.sql import execute

pytestmark = pytest.mark.slow

ASKED = ["--database", "day", "--individual", "who", "--query", "sum(x)"]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 databases, 120 individuals, each in about half of them."""
    path = tmp_path_factory.mktemp("rows") / "rows.parquet"
    with duckdb.connect() as connection:
        connection.execute(
            "COPY (SELECT hash(i) % 40 AS day, CAST(hash(i * 3 + 1) % 120 AS BIGINT) AS who, "
            "1 + (hash(i * 5 + 2) % 1000) / 300.0 AS x FROM range(3000) AS t(i)) "
            f"TO '{path}' (FORMAT PARQUET)"
        )
    return path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["audit", "--in-chunks", *arguments])


def test_it_says_and_writes_what_was_found(table: Path, tmp_path: Path) -> None:
    figures, saved = tmp_path / "audit.json", tmp_path / "audit.empriv"
    shown = run(str(table), *ASKED, "--epsilon", "0.1,0.3", "--json", str(figures), "--save", str(saved))
    assert shown.exit_code == 0, shown.output
    data = empriv.databases(str(table), database="day", individual="who")
    audit = empriv.audit(data, "sum(x)", epsilon=[0.1, 0.3])
    said = json.loads(figures.read_text())
    assert [one["delta"] for one in said["figures"]] == audit.delta([0.1, 0.3]).tolist()
    assert said["n_individuals"] == 120
    assert said["words"]["asked"] in " ".join(shown.output.split())
    assert "individual " in shown.output
    assert "pseudonyms" in shown.output
    loaded = empriv.load(saved)
    assert isinstance(loaded, empriv.Audit)
    assert loaded.in_chunks
    assert len(said.pop("most_exposed")) == 3
    assert loaded.to_json() == said
    assert str(loaded).splitlines()[0] == said["words"]["asked"]
    ours = {check["code"]: check for check in said["checks"]}
    assert ours.items() <= {check["code"]: check for check in audit.to_json()["checks"]}.items()
    assert "most exposed are kept, others totalled" in " ".join(shown.output.split())
    named = run(str(table), *ASKED, "--epsilon", "0.1", "--show-ids", "--top", "1", "-v")
    riskiest = str(audit.individuals(0.1, top=1)["individual"][0])
    assert f"\n{riskiest} " in named.output
    assert "all but the most exposed were totalled" in " ".join(named.output.split())


def test_targets_decide_the_exit_code(table: Path) -> None:
    quick = [str(table), *ASKED, "--quiet"]
    asked_about = run(*quick, "--epsilon", "0.1", "--target", "delta <= 0.999 at 0.7")
    assert asked_about.exit_code == 0, "0.7 is measured because it is asked about"
    assert run(*quick, "--target", "delta <= 0.9 at 0.1").exit_code == 0
    with_bounds = run(str(table), *ASKED, "--target", "delta <= 0.00001 at 0.02", "--json", "-")
    assert with_bounds.exit_code in (3, 4)
    assert json.loads(with_bounds.output)["verdicts"][0]["target"] == "delta <= 0.00001 at 0.02"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["FILE", *ASKED, "--known", "own"], 1, "which needs everybody at once"),
        (["FILE", *ASKED, "--query", "avg(x)"], 1, "Hint: without --in-chunks, all results are held in memory"),
        (["FILE", *ASKED, "--save", "FILE"], 1, "must not replace what is read"),
        (["FILE", *ASKED, "--memory-limit", "much"], 1, "memory_limit"),
        (
            ["FILE", *ASKED[:-1], "SELECT sum(x * i) FROM data, range(10000000000) AS c(i)", "--timeout", "0.3"],
            1,
            "must end within `timeout`, 0.3 seconds",
        ),
        (["FILE", *ASKED[:-1], "sum(nothing)"], 1, "does not exist"),
    ],
)
def test_what_cannot_be_is_said_in_one_sentence(table: Path, arguments: list[str], code: int, words: str) -> None:
    found = run(*(str(table) if one == "FILE" else one for one in arguments))
    assert found.exit_code == code, found.output
    assert words in found.output
    assert "Traceback" not in found.output


PROGRAM = """
import sys, time
from empriv.cli.main import main
from empriv.collecting.sql import execute
from empriv.auditing import chunked

pause, count = float(sys.argv.pop(1)), 0
execute.stream.__wrapped__.__kwdefaults__["entries"] = 100  # many chunks, which otherwise only large tables have
original = chunked.measure_chunk

def slowly(*arguments):
    global count
    count += 1
    time.sleep(pause)
    return original(*arguments)

chunked.measure_chunk = slowly
try:
    main(["audit", "--in-chunks", *sys.argv[1:]])
finally:
    print("chunks", count, file=sys.stderr)
"""


def process(directory: Path, pause: float, *arguments: str) -> subprocess.Popen[str]:
    temporary = directory / "temporary"
    temporary.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(pause), *arguments],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def until(condition: object, running: subprocess.Popen[str], seconds: float = 120.0) -> None:
    assert callable(condition)
    ends = time.monotonic() + seconds
    while not condition():
        assert running.poll() is None, running.stderr.read()  # type: ignore[union-attr]
        assert time.monotonic() < ends, "it took too long"
        time.sleep(0.05)


def test_interrupted_in_one_process_it_goes_on_in_another(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "audit.part"
    arguments = [str(table), *ASKED, "--checkpoint", str(kept), "--json", "-"]
    first = process(tmp_path, 0.4, *arguments)
    log = tmp_path / "audit.part-wal"  # what is put goes there first
    until(lambda: log.exists() and log.stat().st_size > 0, first)
    first.send_signal(signal.SIGINT)
    _, said = first.communicate(timeout=60)
    assert first.returncode == 130, said
    assert "Interrupted" in said
    assert "Traceback" not in said
    assert [path.name for path in tmp_path.iterdir() if path.is_file()] == ["audit.part"], "nothing half-written"
    assert not list((tmp_path / "temporary").iterdir()), "no temporary files"

    second = process(tmp_path, 0.0, *arguments)
    again, said = second.communicate(timeout=120)
    assert second.returncode == 0, said
    data = empriv.databases(str(table), database="day", individual="who")
    audit = empriv.audit(data, "sum(x)")
    assert [one["delta"] for one in json.loads(again)["figures"]] == audit.delta(audit.epsilons).tolist()
    assert 0 < _chunks(said) < chunks_of_all(table, monkeypatch), "what was done is not done again"
    assert not list((tmp_path / "temporary").iterdir())


def chunks_of_all(table: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many chunks are measured where nothing was done before."""
    measured = []

    def counted(*arguments: Any) -> Any:
        measured.append(1)
        return measure_chunk(*arguments)

    measure_chunk = chunked.measure_chunk
    monkeypatch.setitem(execute.stream.__wrapped__.__kwdefaults__, "entries", 100)
    monkeypatch.setattr(chunked, "measure_chunk", counted)
    assert run(str(table), *ASKED).exit_code == 0
    return len(measured)


def _chunks(said: str) -> int:
    return int(said.split("chunks ")[1])


def test_an_interrupt_ends_the_engines_statement_and_leaves_nothing(tmp_path: Path) -> None:
    endless = "SELECT i % 40 AS day, i % 1000003 AS who, random() AS x FROM range(20000000000) AS t(i)"
    running = process(tmp_path, 0.0, endless, *ASKED, "--memory-limit", "150MB")
    temporary = tmp_path / "temporary"
    until(lambda: any(path.is_file() for path in temporary.rglob("*")), running)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "Interrupted" in said
    assert not list(temporary.iterdir())


def test_a_saved_audit_is_shown_at_its_own_epsilons(table: Path, tmp_path: Path) -> None:
    saved, figures = tmp_path / "audit.empriv", tmp_path / "audit.json"
    assert run(str(table), *ASKED, "--epsilon", "0.1", "--save", str(saved), "--json", str(figures)).exit_code == 0

    def show(*arguments: str) -> Result:
        return CliRunner().invoke(main, ["show", str(saved), *arguments])

    again, first = json.loads(show("--json", "-").stdout), json.loads(figures.read_text())
    assert again.pop("most_exposed") != first.pop("most_exposed")  # under pseudonyms of each run
    assert again == first
    assert "120" in show("--epsilon", "0.1").output
    assert show("--target", "delta <= 0.000001 at 0.1").exit_code in (3, 4)
    other = show("--epsilon", "0.2")
    assert other.exit_code == 1
    assert "one that people were measured at (0.1)" in other.stderr
    shown = show("--report", str(tmp_path / "page.html"))
    assert shown.exit_code == 0
    assert "page.html; page.key.json tells who is who." in shown.output
    assert "epsilon 0.1" in (tmp_path / "page.html").read_text()
    noise = CliRunner().invoke(main, ["noise", str(saved), "--epsilon", "1", "--delta", "0.5"])
    assert noise.exit_code == 1
    assert "audit again with --in-memory" in noise.stderr


@pytest.mark.parametrize("way", ["--in-memory", "--in-chunks"])
def test_who_stops_reading_loses_no_file(table: Path, tmp_path: Path, way: str) -> None:
    saved = tmp_path / "saved.empriv"
    arguments = ["audit", way, str(table), *ASKED, "--epsilon", "0.1", "--save", str(saved)]
    reader, writer = os.pipe()
    os.close(reader)  # nobody reads from the first line on
    try:
        done = subprocess.run([sys.executable, "-m", "empriv", *arguments], stdout=writer, stderr=subprocess.PIPE)
    finally:
        os.close(writer)
    assert done.returncode == 0
    assert b"Error" not in done.stderr
    assert isinstance(empriv.load(saved), empriv.Audit)


def test_it_writes_its_report(table: Path, tmp_path: Path) -> None:
    page = tmp_path / "audit.html"
    made = run(str(table), *ASKED, "--epsilon", "0.1", "--report", str(page), "--target", "delta <= 0.9 at 0.2")
    assert made.exit_code in (0, 4), made.output
    assert "audit.html; audit.key.json tells who is who." in made.output
    assert "on delta &lt;= 0.9 at 0.2" in page.read_text()
    assert page.stat().st_mode & 0o777 == 0o600
