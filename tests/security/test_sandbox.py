"""What a query takes is bounded by the system: time by a kill, memory by a limit, and handles by there being none.

DuckDB's own limits do not bound these: one call of a function ends when it ends, and takes what it takes.
"""

from __future__ import annotations

import datetime
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import empriv
from empriv.base.scratch import scratch_directory
from empriv.collecting import DuckDBEngine
from empriv.collecting.engines.duckdb import sandbox
from empriv.collecting.engines.engine import BeyondLimits
from empriv.collecting.queries import query_of
from empriv.collecting.sql.execute import answered
from empriv.errors import EmprivError, SourceError
from empriv.results import Results

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="DuckDB runs in this process there: run it on Linux")
LINUX = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux keeps to a limit of memory")
LIMIT = "500MB"
MOST_RESIDENT = 2.2e9  # bytes: twice the limit and 512 MB for the process itself, and more for threads
ARRAYS = ("q", "outcomes", "databases", "individuals", "starts", "entry_database", "entry_q", "entry_outcomes")


def rows(n: int = 2000) -> pd.DataFrame:
    rng = np.random.default_rng(7)
    return pd.DataFrame(
        {
            "day": rng.integers(0, 8, n),
            "who": rng.integers(0, 25, n),
            "x": np.where(rng.random(n) < 0.05, np.nan, rng.normal(size=n)),
            "k": rng.integers(-5, 6, n),
            "kind": pd.Categorical(rng.choice(["a", "b", "c d"], n)),
            "at": pd.date_range("2024-03-30", periods=n, freq="min", tz="Europe/Paris"),
        }
    )


def frame(**options: Any) -> Any:
    return empriv.databases(rows(), database="day", individual="who", **options)


HOSTILE = {
    "one long call": "sum(levenshtein(repeat('a', 60000), repeat('b', 60000 + who)))",
    "a list": "sum(list_sort(range(50000000 + who))[1])",
    "a text that doubles": (
        "SELECT (WITH RECURSIVE r(n, t) AS (SELECT 1, 'a' UNION ALL SELECT n + 1, t || t FROM r WHERE n < 60) "
        "SELECT max(length(t)) FROM r) + count(*) FROM data"
    ),
    "no end": (
        "SELECT (WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT max(n) FROM r) + count(*) "
        "FROM data"
    ),
    "everyone with everyone": "SELECT count(*) FROM data a, data b, data c, data d WHERE a.x < b.x + c.x + d.x",
    "lists of everyone": "SELECT len(list(a.x + b.x + c.x)) FROM data a, data b, data c",
}


@LINUX
def test_time_and_memory_are_bounded() -> None:
    # In a process of their own, since the system remembers the largest child of all that a process had. Queries that
    # only last are given a second, and those that take memory the time to take it.
    code = (
        "import resource, sys\nimport numpy as np, pandas as pd\nimport empriv\n"
        "from empriv.collecting.engines.engine import BeyondLimits\n"
        "day, who = np.arange(2000) % 8, np.arange(2000) % 25\n"
        "frame = pd.DataFrame({'day': day, 'who': who, 'x': np.sin(np.arange(2000.0))})\n"
        "data = empriv.databases(frame, database='day', individual='who')\n"
        "for query in sys.argv[2:]:\n"
        "    timeout = 3 if 'list' in query or '||' in query else 1\n"
        "    try:\n"
        "        empriv.collect(data, query, timeout=timeout, memory_limit=sys.argv[1], notice=lambda _: None)\n"
        "    except BeyondLimits as error:\n        print(error)\n"
        "print(1024 * resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ran = subprocess.run(
        [sys.executable, "-c", code, LIMIT, *HOSTILE.values()],
        env=environment, capture_output=True, text=True, check=True, timeout=300,
    )  # fmt: skip
    *said, resident = ran.stdout.splitlines()
    assert len(said) == len(HOSTILE)
    for one in said:
        assert re.match(r"There is not enough memory for this query|The query must end within `timeout`, [13] sec", one)
    assert float(resident) < MOST_RESIDENT


QUERIES = [
    "avg(x)", "median(x)", "mode(k)", "sum(CAST(x AS DECIMAL(12, 4)))", "bool_or(x > 3)::INTEGER",
    "SELECT kind, avg(x), count(*) FROM data GROUP BY kind", "max(epoch(\"at\")) - min(epoch(\"at\"))",
    "SELECT max(s) FROM (SELECT who, sum(x) AS s FROM data GROUP BY who)",
    "SELECT kind, max(x) FROM data WHERE x < (SELECT max(x) FROM data) GROUP BY kind",
]  # fmt: skip


def same(first: Results, second: Results) -> None:
    for name in ARRAYS:
        one, other = getattr(first, name), getattr(second, name)
        assert one.dtype == other.dtype, name
        assert one.tobytes() == other.tobytes(), name
    assert first.components == second.components


def test_answers_are_the_same_bytes() -> None:
    with ExitStack() as stack:
        both = [stack.enter_context(DuckDBEngine(sandbox=alone).session(frame())) for alone in (False, True)]
        for query in QUERIES:
            plain, caged = (
                answered(session, query_of(query), show=False, notice=lambda _: None)[0] for session in both
            )
            same(plain, caged)


def text_of_people() -> Any:
    table = rows().assign(who=lambda given: "p " + given["who"].astype(str), day=lambda given: given["day"].astype(str))
    return empriv.databases(table, database="day", individual=("who", "kind"))


def a_stream() -> Any:
    pyarrow = pytest.importorskip("pyarrow", reason="install the extra: pip install 'empriv[parquet]'")
    table = pyarrow.Table.from_pandas(rows())
    return empriv.databases(table.to_reader(), database="day", individual="who")


def polars_frame() -> Any:
    polars = pytest.importorskip("polars", reason="install polars")
    return empriv.databases(polars.from_pandas(rows()), database="day", individual="who")


def with_a_table() -> Any:
    prices = pd.DataFrame({"k": np.arange(-5, 6), "price": np.linspace(1.0, 2.0, 11)})
    return empriv.databases(rows(), database="day", individual="who", tables={"prices": prices})


def total(given: dict[str, Any]) -> float:
    return float(np.nansum(given["x"]))


SOURCES = {
    "a file": (
        lambda: empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft"),
        "avg(delay)",
    ),
    "text": (text_of_people, "avg(x)"),
    "a stream": (a_stream, "avg(x)"),
    "polars": (polars_frame, "avg(x)"),
    "random": (lambda: empriv.subsamples(rows(), individual="who", count=12, fraction=0.5, rng=3), "avg(x)"),
    "splits": (lambda: empriv.splits(rows(), individual="who", count=4, rng=3), "avg(x)"),
    "a table": (with_a_table, "SELECT sum(x * price) FROM data JOIN prices USING (k)"),
    "a function": (frame, total),
}


@pytest.mark.parametrize(("source", "query"), SOURCES.values(), ids=SOURCES.keys())
def test_sources_of_every_kind_reach_it(source: Any, query: Any) -> None:
    jobs = 1 if callable(query) else None
    plain, caged = (
        empriv.collect(source(), query, engine=DuckDBEngine(sandbox=alone), jobs=jobs) for alone in (False, True)
    )
    same(plain, caged)


def test_scans_are_the_same() -> None:
    first, second = (
        empriv.audit(frame(), "avg(x)", epsilon=0.5, in_chunks=True, engine=DuckDBEngine(sandbox=alone))
        for alone in (False, True)
    )
    assert first.to_json() == second.to_json()


def test_it_is_there_when_a_limit_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []
    start = subprocess.Popen

    def counted(*given: Any, **named: Any) -> Any:
        started.append(given)
        return start(*given, **named)

    monkeypatch.setattr(sandbox.subprocess, "Popen", counted)
    for options, wanted in (
        ({}, 0), ({"timeout": 60}, 1), ({"memory_limit": "1GB"}, 1),
        ({"engine": DuckDBEngine(timeout=60, sandbox=False)}, 0), ({"engine": DuckDBEngine(sandbox=True)}, 1),
    ):  # fmt: skip
        started.clear()
        empriv.collect(frame(), "avg(x)", **options)
        assert len(started) == wanted, options


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("avg(nothing)", "a column 'nothing'"), ("sum(CAST(kind AS INTEGER))", "fails on every database"),
        ("sum(x", "cannot be parsed|parenthes|must be"), ("avg(x)", "`database` must not be NULL"),
    ],
)  # fmt: skip
def test_errors_are_the_same_sentences(query: str, said: str) -> None:
    sentences = []
    part = rows().assign(day=lambda given: given["day"].where(given["k"] > 0))
    data = empriv.databases(part, database="day", individual="who") if "NULL" in said else frame()
    for alone in (False, True):
        with pytest.raises(EmprivError, match=said) as caught:
            empriv.collect(data, query, engine=DuckDBEngine(sandbox=alone), notice=lambda _: None)
        sentences.append(str(caught.value))
    assert sentences[0] == sentences[1]


def test_a_list_of_decimals_is_no_decimal() -> None:
    asked = "quantile_cont(x, [0.25, 0.5])[1]"
    assert np.allclose(empriv.collect(frame(), asked).q, empriv.collect(frame(), "quantile_cont(x, 0.25)").q)


@pytest.mark.parametrize("who", ["who", ("who", "k")])
def test_labels_without_end_are_refused(who: Any) -> None:
    # In an array of texts all take as much as the longest.
    long = rows().assign(who=lambda given: given["who"].astype(str).where(given["k"] < 5, "a" * 2_000_000))
    for data in (
        empriv.databases(long, database="day", individual=who),
        empriv.databases(rows(), database="CASE WHEN day > 3 THEN repeat('a', 2000000) ELSE 'b' END", individual=who),
    ):
        with pytest.raises(SourceError, match="named by at most 1,000 characters, got 2,0"):
            empriv.collect(data, lambda given: len(given["x"]), jobs=1)


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[sandbox.Sandbox]:
    with (
        scratch_directory(str(tmp_path)) as directory,
        sandbox.sandboxed({"memory_limit": LIMIT, "temp_directory": directory}, directory) as made,
    ):
        yield made


@LINUX
def test_it_inherits_no_handles_and_no_session(opened: sandbox.Sandbox, tmp_path: Path) -> None:
    pid = opened.process.pid
    with (tmp_path / "secret").open("w") as held, socket.socket() as spoken:
        for handle in (held.fileno(), spoken.fileno()):
            os.set_inheritable(handle, True)
        with sandbox.sandboxed({}, str(tmp_path)) as other:
            for child in (pid, other.process.pid):
                places = [str(link.readlink()) for link in Path(f"/proc/{child}/fd").iterdir()]
                allowed = re.compile(r"pipe:|/dev/null$|/dev/u?random$|/sys/|/proc/|anon_inode:|.*_duckdb\.")
                assert all(allowed.match(place) for place in places), places
                assert sum(place.startswith("pipe:") for place in places) == 2
                assert os.getsid(child) == child
    limits = Path(f"/proc/{pid}/limits").read_text()
    assert re.search(r"Max core file size +0 ", limits)
    assert re.search(r"Max address space +\d+ ", limits)


def test_values_come_back_as_they_are(opened: sandbox.Sandbox) -> None:
    ((values,),) = [
        opened.execute(
            "SELECT [1, NULL, 3], {'a': 1, 'b': 'x'}, 1.50::DECIMAL(9, 2), DATE '2024-02-29', "
            "TIMESTAMP '2024-01-01 01:02:03', "
            "TIME '01:02:03', INTERVAL 3 DAY, '\\x00ab'::BLOB, 'e0b2c2a4-0000-4000-8000-000000000001'::UUID, "
            "'nan'::DOUBLE, 170141183460469231731687303715884105727::HUGEINT, TRUE, NULL, 'ü\nß'"
        ).fetchall()
    ]
    listed, struct, decimal, day, moment, at, span, blob, name, nan, huge, yes, nothing, text = values
    assert (listed, struct, yes, nothing, text) == ([1, None, 3], {"a": 1, "b": "x"}, True, None, "ü\nß")
    assert (decimal, day, at) == (Decimal("1.50"), datetime.date(2024, 2, 29), datetime.time(1, 2, 3))
    assert (moment, span) == (datetime.datetime(2024, 1, 1, 1, 2, 3), datetime.timedelta(days=3))
    assert (blob, name) == (b"\x00ab", uuid.UUID("e0b2c2a4-0000-4000-8000-000000000001"))
    assert nan != nan
    assert huge == 2**127 - 1


def test_arrays_are_never_of_objects_that_run() -> None:
    with pytest.raises(Exception, match="an array of objects"):
        sandbox._columns([["a", "|O", 1, None]], [bytes(8), bytes(1)])
    with pytest.raises(Exception, match="of another size"):
        sandbox._columns([["a", "<f8", 2, None]], [bytes(8), bytes(2)])


@LINUX
def test_after_too_much_memory_a_sentence_and_no_process(tmp_path: Path) -> None:
    engine = DuckDBEngine(memory_limit=LIMIT, temp_directory=str(tmp_path))
    with pytest.raises(BeyondLimits, match="not enough memory"):
        empriv.collect(frame(), HOSTILE["a list"], engine=engine)
    assert list(tmp_path.iterdir()) == []
    assert children() == []


def test_a_process_that_dies_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = sandbox.Sandbox.ask

    def dies(self: sandbox.Sandbox, how: str, *arguments: Any) -> Any:
        if how == "columns":
            os.kill(self.process.pid, signal.SIGKILL)  # as the system does where memory runs out
        return ask(self, how, *arguments)

    monkeypatch.setattr(sandbox.Sandbox, "ask", dies)
    with pytest.raises(EmprivError, match="not enough memory"):
        empriv.collect(frame(), "avg(x)", engine=DuckDBEngine(sandbox=True, temp_directory=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def children() -> list[int]:
    """Processes that this one has started in a sandbox, and that are there."""
    task = Path(f"/proc/{os.getpid()}/task")
    if not task.exists():
        return []
    pids = [int(pid) for thread in task.iterdir() for pid in (thread / "children").read_text().split()]
    return [pid for pid in pids if b"sandbox_child" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def test_who_writes_into_a_folder_ends_before_it_goes(tmp_path: Path) -> None:
    with scratch_directory(str(tmp_path)) as outer:
        begun, failed = threading.Event(), []

        def ask() -> None:
            try:
                with scratch_directory(outer) as inner, sandbox.sandboxed({"temp_directory": inner}, inner) as made:
                    seen.append(made.process)
                    begun.set()
                    made.execute(HOSTILE["everyone with everyone"].replace("data", "range(100000)")).fetchall()
            except Exception as error:
                failed.append(type(error).__name__)

        seen: list[subprocess.Popen[bytes]] = []
        thread = threading.Thread(target=ask)
        thread.start()
        assert begun.wait(60)
    assert seen[0].returncode is not None, "it is ended when the outer folder goes, though a thread still waits for it"
    thread.join(60)
    assert not thread.is_alive()
    assert failed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("blow", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_it_ends_with_whoever_started_it(tmp_path: Path, blow: signal.Signals) -> None:
    file, temporary = tmp_path / "rows.csv", tmp_path / "temporary"
    rows(8000).drop(columns="at").to_csv(file, index=False)
    temporary.mkdir()
    command = [sys.executable, "-m", "empriv", "audit", str(file), "--database", "day", "--individual", "who"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(temporary)}
    process = subprocess.Popen(
        [*command, "--query", HOSTILE["one long call"].replace("60000", "6000000")], env=environment,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        inside = wait_for(lambda: descendants(process.pid))
        assert inside, "its sandbox is there"
        time.sleep(1.0)  # in the midst of the query, most likely
        process.send_signal(blow)
        process.wait(60)
    finally:
        process.kill()
    assert wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in inside)), "it is gone"
    if blow != signal.SIGKILL:
        assert list(temporary.iterdir()) == []


def descendants(pid: int) -> list[int]:
    task = Path(f"/proc/{pid}/task")
    if not task.exists():
        return []
    return [int(child) for thread in task.iterdir() for child in (thread / "children").read_text().split()]


def wait_for(true: Any, seconds: float = 60.0) -> Any:
    until = time.monotonic() + seconds
    while not (given := true()) and time.monotonic() < until:
        time.sleep(0.05)
    return given
