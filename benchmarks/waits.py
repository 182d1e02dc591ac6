"""What people wait for: every row beside a peer that is run in the same turns, with its goal.

    python benchmarks/waits.py                     all rows (about half an hour)
    python benchmarks/waits.py --row sql --quick   some rows, on smaller data
    python benchmarks/waits.py --against v1.0      the same rows with the code of another revision, before and after

A row is a function that yields cases; list it with ``@row``. A case has the work, the peer that it is measured in units
of, and a goal: so many times the peer, or so many seconds. Every row runs in a process of its own, within ``--most``
seconds. Times are the least of the turns, each with the peer next to the work. "Processor" counts all threads and
processes, and hardly sees what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).parents[1]
LONG, VERY_LONG = 3.0, 12.0  # seconds after which a case is run once more, and not at all: the first run imports
TURNS = 7
EPSILONS = np.linspace(0.004, 0.2, 50)
Work = Callable[[], object]


@dataclass(frozen=True)
class Case:
    """Some work, the peer that it is measured in units of, and the goal: times the peer, or ``"10 s"``.

    ``"within 3"`` asks for a third to three times the peer. A clock is the processor's, or where the work is done by
    processes that outlive it, the one on the wall.
    """

    label: str
    work: Work
    peer: Work
    goal: float | str
    clock: str = "processor"


Row = Callable[[bool], Iterator[Case]]
ROWS: dict[str, tuple[str, Row]] = {}


def row(words: str) -> Callable[[Row], Row]:
    """List a function as a row; ``words`` say what the peer is."""

    def listed(function: Row) -> Row:
        ROWS[function.__name__.replace("_", "-")] = words, function
        return function

    return listed


# Rows that several use


def shop(since: str = "1997-04-01") -> Any:
    """A shop's purchases by day: 456 databases and 9,988 individuals since April 1997."""
    import empriv

    return empriv.databases(
        f"SELECT * FROM purchases WHERE date >= DATE '{since}'", database="date", individual="customer_id",
        tables={"purchases": empriv.datasets.cdnow()},
    )  # fmt: skip


def revenue(quick: bool) -> Any:
    import empriv

    return empriv.collect(shop("1998-04-01" if quick else "1997-04-01"), "sum(amount)", progress=False)


def measured(results: Any, epsilon: Any = 0.1, density: Any = None) -> Work:
    """One measure, from results to delta."""
    import empriv

    return lambda: empriv.measure(results, density=density).delta(epsilon)


def drawn(sql: str) -> Any:
    """Rows that DuckDB draws, in a Parquet file that goes with the process."""
    import atexit
    import shutil

    import duckdb

    import empriv

    folder = tempfile.mkdtemp(prefix="waits.")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "rows.parquet"
    with duckdb.connect() as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute(f"COPY ({sql}) TO '{path}' (FORMAT PARQUET)")
    return path, empriv.databases(path, database="day", individual="who")


def days_of(rows: int, people: int, days: int) -> Any:
    """So many rows with an amount of heavy tails, uniform over people and days."""
    return drawn(
        f"SELECT CAST(hash(i * 3 + 1) % {days} AS INTEGER) AS day, CAST(hash(i * 7 + 2) % {people} AS BIGINT) AS who, "
        f"POWER((hash(i * 11 + 3) % 1000000 + 1) / 1000000.0, -0.4) * (1 + hash(hash(i * 7 + 2) % {people}) % 10) AS x "
        f"FROM range({rows}) AS t(i)"
    )


def bare(path: Path, statement: str, memory_limit: str | None = None) -> Work:
    """A statement on the same file; its result stays in DuckDB under a memory limit, and else is fetched."""
    import duckdb

    def run() -> None:
        with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
            connection.execute("SET enable_progress_bar = false")
            if memory_limit is not None:
                connection.execute(f"SET memory_limit = '{memory_limit}'; SET temp_directory = '{folder}'")
                connection.execute(f"CREATE TEMP TABLE answers AS {statement.format(path=path)}")
                return
            connection.execute(statement.format(path=path)).fetchnumpy()

    return run


GROUPED = "SELECT day, who, sum(x), count(*) FROM read_parquet('{path}') GROUP BY 1, 2"


def collected(data: Any, query: str, notice: Callable[[str], None] | None = None) -> Work:
    import empriv

    return lambda: empriv.collect(data, query, progress=False, notice=notice or (lambda _: None))


# The rows


@row("one of the numbers alone, audited")
def joint(quick: bool) -> Iterator[Case]:
    """A joint audit, with bounds and checks: several numbers of the same purchases, and tables by cell."""
    data = shop("1998-05-01" if quick else "1997-09-01")
    numbers = [f"{name}({column})" for column in ("amount", "quantity") for name in ("avg", "sum", "max")]
    for count in (3,) if quick else (3, 5):
        yield Case(
            f"{count} numbers, 300 databases, 8,000 people", audited(data, numbers[:count]),
            audited(data, numbers[:1]), "10 s",
        )  # fmt: skip
    for cells, days, people in ((8, 60, 500),) if quick else ((37, 100, 4_000), (88, 305, 12_000)):
        _, data = drawn(
            f"SELECT CAST(hash(i * 3 + 1) % {days} AS INTEGER) AS day, CAST(i % {people} AS BIGINT) AS who, "
            f"'cell ' || i % {people} * 7919 % {cells} AS cell, 1 AS x FROM range({people * 12}) AS t(i)"
        )
        yield Case(
            f"{cells} cells, {days} databases, {people:,} people",
            audited(data, "SELECT cell, count(*) FROM data GROUP BY cell"), audited(data, ["count(*)"]), "10 s",
        )  # fmt: skip


def audited(data: Any, query: Any, **options: Any) -> Work:
    """A whole audit as the command prints it: estimate, bounds, checks."""
    import empriv

    queries = query[0] if isinstance(query, list) and len(query) == 1 else query
    return lambda: str(empriv.audit(data, queries, progress=False, **options))


@row("the same audit without the ledger")
def ledger(quick: bool) -> Iterator[Case]:
    """An audit beside two answers that a ledger released."""
    import empriv

    days, people = (30, 60) if quick else (60, 800)
    _, data = days_of(days * people * 2, people, days)
    with tempfile.TemporaryDirectory() as folder:
        book = empriv.Ledger(Path(folder) / "a.ledger")
        for query in ("sum(x)", "count(*)"):
            first = empriv.audit(data, query, ledger=book, progress=False)
            noise = empriv.design_noise(first, epsilon=1.0, delta=0.0, method="classical", granularity=0.5)
            answer = empriv.collect(data, query, progress=False)
            first.release(float(answer.q[3]), noise=noise, ledger=book, database=answer.databases[3])
        yield Case(
            f"{days} databases, {people} people, 2 releases", audited(data, "avg(x)", ledger=book),
            audited(data, "avg(x)"), "5 s",
        )  # fmt: skip


@row("one measure")
def own_contribution(quick: bool) -> Iterator[Case]:
    """The largest contributors among aircraft, who know their own delays."""
    import empriv

    until = "2013-02-15" if quick else "2013-12-31"
    data = empriv.databases(
        f"SELECT * FROM flights WHERE date <= '{until}'", database="date", individual="aircraft",
        tables={"flights": empriv.datasets.flights()},
    )  # fmt: skip
    alone = empriv.collect(data, "sum(delay)", progress=False)

    def work() -> object:
        asked = empriv.OwnContribution()
        return empriv.audit(data, "sum(delay)", known=asked, progress=False, notice=lambda _: None).delta(0.1)

    yield Case(f"{alone.n_databases} databases, {alone.n_individuals} aircraft", work, measured(alone), "30 s")


@row("8 single measures")
def compare(quick: bool) -> Iterator[Case]:
    """Eight protocols, three of them randomised, with bounds."""
    import empriv
    from empriv import protocols

    data = shop("1998-06-01" if quick else "1998-01-01")
    query = "SELECT avg(amount) FROM data"
    ways = {
        "raw": query,
        "clipped at 60": "SELECT avg(least(amount, 60)) FROM data",
        "rounded": protocols.rounded(query, to=5),
        "median": "SELECT median(amount) FROM data",
        "few": "SELECT CASE WHEN count(*) >= 5 THEN avg(amount) END FROM data",
        "gaussian": protocols.gaussian(query, sensitivity=5, epsilon=1, delta=0.01),
        "laplace": protocols.laplace(query, sensitivity=5, epsilon=1),
        "noise of one's own": protocols.passed(query, lambda answer, rng: answer + rng.normal()),
    }

    def work() -> object:
        return str(empriv.compare(ways, data, truth="raw", epsilon=(0.1, 0.5), progress=False))

    results = empriv.collect(data, query, progress=False)

    def peer() -> None:
        for _ in range(8):
            measured(results, [0.1, 0.5])()

    yield Case(f"{results.n_databases} databases, {results.n_individuals:,} people", work, peer, "15 s")


@row("one measure")
def noise(quick: bool) -> Iterator[Case]:
    """Designs that took long."""
    import empriv

    flights = empriv.databases(empriv.datasets.flights(), database="date", individual="aircraft")
    delays = empriv.collect(flights, "avg(delay)", progress=False)
    takings = revenue(quick)
    count = 10_000 if quick else 100_000
    sparse = few_databases_each(count)

    def designed(results: Any, density: Any = None, **asked: Any) -> Work:
        risk = empriv.measure(results, density=density)
        return lambda: empriv.design_noise(risk, epsilon=0.1, **asked)

    yield Case("least at delta 0.05, the demo", designed(delays, delta=0.05), measured(delays), "3 s")
    for kernel in ("laplace", "gaussian"):
        work = designed(takings, empriv.Kde(kernel), delta=0.0, method="paper")  # type: ignore[arg-type]
        yield Case(f"paper at delta 0, a shop's sum, {kernel} kernel", work, measured(takings), "5 s")
    yield Case(
        f"least at delta 0.05, {count:,} people in 1 to 5 databases", designed(sparse, delta=0.05), measured(sparse),
        "10 s",
    )  # fmt: skip


@row("one audit")
def advise(quick: bool) -> Iterator[Case]:
    """What to do about a shop's takings, and about its average purchase."""
    import empriv

    data = shop("1998-06-01") if quick else shop()
    for query in ("sum(amount)", "avg(amount)"):

        def work(query: str = query) -> object:
            audit = empriv.audit(data, query, progress=False)
            return empriv.advise(audit, data, epsilon=0.1, delta=0.05, progress=False)

        yield Case(query, work, audited(data, query), "60 s")


def few_databases_each(people: int, databases: int = 365) -> Any:
    """Results of people who are in one to five databases each."""
    from empriv.results import Results

    rng = np.random.default_rng(3)
    q = 5.0 * rng.normal(size=databases)
    presence = rng.integers(1, 6, people)
    where = np.concatenate([np.sort(rng.choice(databases, k, replace=False)) for k in presence]).astype(np.int32)
    return Results(
        q=q, outcomes=np.zeros(databases, np.int8), databases=np.arange(databases), individuals=np.arange(people),
        starts=np.concatenate(([0], np.cumsum(presence))), entry_database=where,
        entry_q=q[where] - rng.lognormal(-1.0, 1.0, len(where)), entry_outcomes=np.zeros(len(where), np.int8),
    )  # fmt: skip


@row("the Laplace kernel")
def point_mass(quick: bool) -> Iterator[Case]:
    """A Gaussian kernel beside a point mass, at delta 0."""
    import empriv

    rng = np.random.default_rng(5)
    people, n = (200, 100) if quick else (2_000, 365)
    q = np.where(rng.random(n) < 0.3, 0.0, rng.normal(size=n))
    without = q - np.where(q == 0, 0.0, rng.lognormal(-3.0, 1.0, (people, n)))

    def designed(kernel: str) -> Work:
        risk = empriv.measure(q, without, density=empriv.Kde(kernel))  # type: ignore[arg-type]
        return lambda: empriv.design_noise(risk, epsilon=0.5, delta=0.0, method="paper")

    def work(kernel: str) -> Work:
        return lambda: empriv.measure(q, without, density=empriv.Kde(kernel)).epsilon(0.0)  # type: ignore[arg-type]

    for label, kind in (("epsilon at delta 0", work), ("noise at delta 0", designed)):
        yield Case(f"{label}, {n} x {people:,}, 30% of answers are 0", kind("gaussian"), kind("laplace"), "10 s")


@row("one measure at the same epsilon")
def bounds_and_checks(quick: bool) -> Iterator[Case]:
    """What surrounds an estimate."""
    import empriv

    results = revenue(quick)
    for epsilon in (0.0, 0.02, 0.1, 0.5, 2.0):

        def peer(epsilon: float = epsilon) -> object:
            return measured(results, epsilon)()

        def bounds(epsilon: float = epsilon) -> object:
            return empriv.measure(results).bounds(epsilon)

        def checks(epsilon: float = epsilon) -> object:
            from empriv.validate.checks import checks as checks_made

            return checks_made(empriv.measure(results), epsilon)

        yield Case(f"bounds at {epsilon:g}, {results.n_databases} x {results.n_individuals:,}", bounds, peer, 8.0)
        yield Case(f"checks at {epsilon:g}", checks, peer, 8.0)


@row("the Laplace kernel at the same epsilons")
def kernels(quick: bool) -> Iterator[Case]:
    """Other densities at fifty epsilons."""
    import empriv

    data = empriv.datasets.precipitation()
    q, without = data.q, data.q_without[::10] if quick else data.q_without

    def work(density: Any = None) -> Work:
        return lambda: empriv.measure(q, without, density=density).delta_i(EPSILONS)

    for kernel in ("gaussian", "logistic", "student", "epanechnikov"):
        yield Case(kernel, work(empriv.Kde(kernel)), work(), 20.0)  # type: ignore[arg-type]
    yield Case("variable gaussian", work(empriv.VariableKde("gaussian")), work(), 20.0)


@row("a bare GROUP BY under the same memory limit")
def chunks(quick: bool) -> Iterator[Case]:
    """People measured in chunks: avg(x) at three epsilons, 365 databases."""
    import empriv

    sizes = [(1_000_000, 10_000), (10_000_000, 100_000), (30_000_000, 300_000), (5_000_000, 800_000)]
    for rows, people in [(300_000, 3_000), (200_000, 32_000)] if quick else sizes:
        path, data = days_of(rows, people, 365)

        def work(data: Any = data) -> object:
            return empriv.audit(
                data, "avg(x)", epsilon=[0.05, 0.1, 0.2], known="nothing", in_chunks=True, memory_limit="2GB",
                progress=False,
            )  # fmt: skip

        yield Case(f"{rows:,} rows, {people:,} people", work, bare(path, GROUPED, "2GB"), 2.5)


@row("a bare GROUP BY")
def sql(quick: bool) -> Iterator[Case]:
    """Collecting: 100,000 people, 100 databases."""
    rows = 1_000_000 if quick else 20_000_000
    path, data = days_of(rows, rows // 200, 100)
    for query, goal in (("sum(x)", 1.3), ("avg(x)", 1.3), ("stddev_samp(x)", 1.6)):
        yield Case(f"{query}, {rows:,} rows", collected(data, query), bare(path, GROUPED), goal)


@row("the plain query sum(x)")
def by_person(quick: bool) -> Iterator[Case]:
    """SQL that goes by person first: 60 people in 200 databases."""
    people, days = (20, 40) if quick else (60, 200)
    _, data = days_of(people * days * 3, people, days)
    plain = collected(data, "sum(x)")
    for label, derived in (
        ("average of sums", "SELECT who, sum(x) AS t FROM data GROUP BY who"),
        ("the same with HAVING", "SELECT who, sum(x) AS t FROM data GROUP BY who HAVING count(*) > 2"),
        ("DISTINCT", "SELECT DISTINCT who, round(x) AS t FROM data"),
        (
            "first row of each",
            "SELECT who, x AS t FROM data QUALIFY row_number() OVER (PARTITION BY who ORDER BY x) = 1",
        ),
    ):
        query = f"SELECT avg(t) FROM ({derived}) AS of_each"
        yield Case(f"{label}, {people} people, {days} databases", collected(data, query), plain, 3.0)


@row("the seconds that were announced")
def estimates(quick: bool) -> Iterator[Case]:
    """What a query that is run once per individual takes, over what it said: between a third and three times."""
    people, days = (20, 40) if quick else (60, 200)
    _, data = days_of(people * days * 3, people, days)
    for aggregate in ("mode", "approx_count_distinct"):
        said: list[str] = []
        work = collected(data, f"{aggregate}(x)", said.append)

        def announced(said: list[str] = said) -> Seconds:
            return seconds_in(said[0])

        yield Case(f"{aggregate}(x)", work, announced, "within 3", "wall")


class Seconds(float):
    """What a peer answers that tells a time instead of taking it."""


def seconds_in(sentence: str) -> Seconds:
    """The seconds of "about 31 minutes" in a sentence."""
    words = sentence.replace(".", " ").split()
    scale = {"second": 1.0, "seconds": 1.0, "minute": 60.0, "minutes": 60.0, "hours": 3600.0, "s": 1.0, "min": 60.0}
    for number, unit in pairwise(words):
        if unit in scale and number.isdigit():
            return Seconds(float(number) * scale[unit])
    raise ValueError("no time is announced")


@row("the same on DuckDB")
def spark(quick: bool) -> Iterator[Case]:
    """A small table on Spark, in a session that has run before."""
    del quick
    import empriv

    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "4")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    for rows in (1_000, 30_000):
        path, data = days_of(rows, 60, 40)
        frame = empriv.databases(session.read.parquet(str(path)), database="day", individual="who")
        collected(frame, "avg(x)")()
        yield Case(f"avg(x), {rows:,} rows", collected(frame, "avg(x)"), collected(data, "avg(x)"), "3 s", "wall")
    session.stop()


@row("one sort and one exp of the same arrays")
def one_epsilon(quick: bool) -> Iterator[Case]:
    """One measure at one epsilon, 10,368 individuals, 41 databases."""
    import empriv

    data = empriv.datasets.precipitation()
    q, without = data.q, data.q_without[::10] if quick else data.q_without
    scaled = (without - q.mean()) / q.std()  # as they are, exp would overflow, which is quick

    def unit() -> object:
        return np.sort(scaled, axis=1), np.exp(scaled)

    risk = empriv.measure(q, without)
    for epsilon in (0.05, 0.0):
        # `curves` are not kept, as `delta_i` would be
        yield Case(f"delta_i at epsilon {epsilon:g}", lambda e=epsilon: risk.curves(np.array([e])), unit, 3.0)  # type: ignore[misc]
    yield Case("the same with its density", lambda: empriv.measure(q, without).delta_i(0.05), unit, 3.0)


# Running them


def cost(work: Work) -> tuple[float, float, object]:
    """Seconds and processor seconds of some work, those of processes that it started and waited for among them."""

    def used() -> float:
        return sum(
            spent.ru_utime + spent.ru_stime
            for spent in (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
        )

    began, before = time.perf_counter(), used()
    answer = work()
    return time.perf_counter() - began, used() - before, answer


def run_row(name: str, quick: bool) -> None:
    """Run a row in this process, and print each case as a line of JSON."""
    cases = ROWS[name][1](quick)
    while True:
        try:
            case = next(cases, None)
            if case is None:
                return
            line = {"case": case.label, "goal": case.goal, "clock": case.clock, **side_by_side(case)}
        except Exception as error:  # of an older revision: it cannot do this
            line = {"case": "stopped", "goal": "", "failed": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps(line), flush=True)
        if "failed" in line:
            return


def side_by_side(case: Case) -> dict[str, float]:
    """The least of several turns of the work and of its peer, which may answer with `Seconds` instead."""
    least = {"seconds": np.inf, "processor": np.inf, "peer": np.inf, "peer_processor": np.inf}
    for turn in range(TURNS):
        seconds, processor, _ = cost(case.work)
        peer, peer_processor, told = cost(case.peer)
        if isinstance(told, Seconds):
            peer = peer_processor = told
        for key, value in zip(least, (seconds, processor, peer, peer_processor), strict=True):
            least[key] = min(least[key], value)
        if seconds > (LONG if turn else VERY_LONG):
            break
    return {key: float(value) for key, value in least.items()}


def of_process(name: str, source: Path, quick: bool, most: float) -> list[dict[str, Any]]:
    """The cases of a row, run with the code in ``source`` in a process of its own."""
    command = [sys.executable, __file__, "--run", name, *(["--quick"] if quick else [])]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    with tempfile.TemporaryFile("w+") as said, tempfile.TemporaryFile("w+") as complaints:
        process = subprocess.Popen(command, env=environment, stdout=said, stderr=complaints)
        stopped = ""
        try:
            if process.wait(most) != 0:
                complaints.seek(0)
                stopped = (complaints.read().strip().splitlines() or ["it failed"])[-1]
        except subprocess.TimeoutExpired:
            stopped = f"over {most:.0f} s"
        finally:
            process.kill()
            process.wait()
        said.seek(0)
        lines = [json.loads(line) for line in said if line.startswith("{")]
    return [*lines, *([{"case": "the next case", "goal": "", "failed": stopped}] if stopped else [])]


@contextmanager
def code_of(revision: str) -> Iterator[Path]:
    """The source of another revision, checked out and built in a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="waits.") as folder:
        place = Path(folder) / "code"
        git = ["git", "-C", str(ROOT), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(place), revision], check=True)
        try:
            build = [sys.executable, "setup.py", "-q", "build_ext", "--inplace"]
            subprocess.run(build, cwd=place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            yield place / "src"
        finally:
            subprocess.run([*git, "remove", "--force", str(place)], check=True)


def on_clock(case: dict[str, Any]) -> tuple[float, float]:
    """The cost of the work by its clock, and that of its peer."""
    keys = ("processor", "peer_processor") if case["clock"] == "processor" else ("seconds", "peer")
    return case[keys[0]], max(case[keys[1]], 1e-6)


def said_of(case: dict[str, Any]) -> str:
    """A case in a cell of the table: seconds, processor seconds, and times the peer."""
    if "failed" in case:
        return str(case["failed"])
    own, peer = on_clock(case)
    return f"{case['seconds']:.3g} s, processor {case['processor']:.3g} s, {own / peer:.3g} times"


def met(case: dict[str, Any]) -> str:
    if "failed" in case:
        return ""
    own, peer = on_clock(case)
    if not isinstance(case["goal"], str):
        kept = own <= case["goal"] * peer
    elif case["goal"].startswith("within"):
        factor = float(case["goal"].split()[1])
        kept = peer / factor <= own <= peer * factor
    else:
        kept = own <= float(case["goal"].split()[0])
    return "yes" if kept else "no"


def goal_of(case: dict[str, Any]) -> str:
    return case["goal"] if isinstance(case["goal"], str) else f"{case['goal']:g} times"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--row", action="append", choices=list(ROWS), metavar="NAME", help=", ".join(ROWS))
    parser.add_argument("--quick", action="store_true", help="smaller data")
    parser.add_argument("--against", metavar="REV", help="the same rows with the code of this revision too")
    parser.add_argument("--most", type=float, default=900.0, help="seconds after which a row is ended (900)")
    parser.add_argument("--run", choices=list(ROWS), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.run:
        run_row(asked.run, asked.quick)
        return
    with code_of(asked.against) if asked.against else nothing() as older:
        sources = [*([older] if older else []), ROOT / "src"]
        head = ["before", "after"] if older else ["now"]
        print(
            f"| row | what | {' | '.join(head)} | in units of | goal | met |\n|{'---|' * (len(head) + 5)}", flush=True
        )
        for name in asked.row or ROWS:
            by_code = [
                {case["case"]: case for case in of_process(name, source, asked.quick, asked.most)} for source in sources
            ]
            for label, case in by_code[-1].items():
                cells = [said_of(cases[label]) if label in cases else "" for cases in by_code]
                words = ROWS[name][0]
                print(
                    f"| {name} | {label} | {' | '.join(cells)} | {words} | {goal_of(case)} | {met(case)} |", flush=True
                )


@contextmanager
def nothing() -> Iterator[None]:
    yield None


if __name__ == "__main__":
    main()
