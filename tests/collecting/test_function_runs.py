"""Python queries re-run without each individual: right, whatever the workers, the order and the interruptions."""

import functools
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import closing, suppress
from dataclasses import dataclass

import numpy as np
import pytest
from calling import called
from hypothesis import given, settings
from hypothesis import strategies as st

import empriv.collecting.function_runs as calls
from empriv.base.storage import open_checkpoint
from empriv.collecting.function_calls import Chunk
from empriv.collecting.function_runs import fingerprint
from empriv.errors import InputError, QueryError, SourceError
from empriv.results import Outcome


@dataclass(frozen=True)
class Tables:
    """Databases in memory: columns and individuals of each row."""

    tables: tuple
    n_individuals: int

    def fetch(self, database):
        return self.tables[database]

    def presence(self):
        present = [[j for j, (_, codes) in enumerate(self.tables) if i in codes] for i in range(self.n_individuals)]
        return {
            "fetch": self.fetch,
            "databases": np.arange(len(self.tables)),
            "individuals": np.array([f"person {i}" for i in range(self.n_individuals)]),
            "starts": np.cumsum([0, *map(len, present)]),
            "entry_database": np.array([j for databases in present for j in databases], np.int32),
        }

    def collect(self, function, **options):
        return called(function, **self.presence(), **options)

    def brute_force(self, function):
        """Entries in the order of `Results`, by really deleting each individual's rows."""
        presence = self.presence()
        whom = np.repeat(np.arange(self.n_individuals), np.diff(presence["starts"]))
        entries = []
        for i, j in zip(whom, presence["entry_database"], strict=True):
            columns, codes = self.tables[j]
            rows = [r for r in range(len(codes)) if codes[r] != i]
            entries.append(function({name: column[rows] for name, column in columns.items()}))
        return np.array(entries)


def random_tables(seed=0, n_databases=4, n_individuals=12, rows=60):
    rng = np.random.default_rng(seed)
    tables = []
    for _ in range(n_databases):
        codes = rng.integers(-1, n_individuals, rows)
        tables.append(({"amount": rng.normal(size=rows), "who": codes.copy()}, codes))
    return Tables(tuple(tables), n_individuals)


def mean_amount(rows):
    return rows["amount"].mean()


def total_amount(rows):
    return float(rows["amount"].sum())


def noisy_total(rows, rng):
    return rows["amount"].sum() + rng.normal() + rng.for_individual(3).normal()


@pytest.mark.slow
@given(
    st.lists(
        st.lists(st.tuples(st.integers(-1, 4), st.integers(-100, 100)), max_size=12),
        min_size=1,
        max_size=4,
    )
)
@settings(max_examples=20)
def test_agrees_with_really_deleting_each_individual(databases):
    tables = Tables(
        tuple(
            ({"amount": np.array([x for _, x in rows], np.float64)}, np.array([i for i, _ in rows], np.int64))
            for rows in databases
        ),
        5,
    )
    results = tables.collect(total_amount, jobs=1)
    np.testing.assert_array_equal(results.q, [columns["amount"].sum() for columns, _ in tables.tables])
    np.testing.assert_array_equal(results.entry_q, tables.brute_force(total_amount))
    assert results.components is None
    assert results.draws is None


@pytest.mark.slow
def test_results_do_not_depend_on_the_number_of_jobs_nor_on_how_the_work_is_split(monkeypatch):
    tables = random_tables(1, n_databases=5)
    one, two = (tables.collect(noisy_total, draws=3, seed=7, jobs=jobs) for jobs in (1, 2))
    monkeypatch.setattr(calls, "_CHUNK_BYTES", 1)
    one_at_a_time = tables.collect(noisy_total, draws=3, seed=7, jobs=1)
    for other in (two, one_at_a_time):
        np.testing.assert_array_equal(one.q, other.q)
        np.testing.assert_array_equal(one.entry_q, other.entry_q)


def test_a_chunk_that_lasts_too_long_ends_early_and_the_rest_is_done_by_others():
    def slow_without_somebody(rows):
        if len(rows["amount"]) < 60:
            time.sleep(0.03)
        return rows["amount"].sum()

    tables = random_tables(2, n_databases=1)
    seen = []
    original = calls.run_task

    def spy(query, fetch, task):
        chunk = original(query, fetch, task)
        seen.append((len(task.individuals), len(chunk.values)))
        return chunk

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(calls, "run_task", spy)
        results = tables.collect(slow_without_somebody, jobs=1)
    assert any(done < asked for asked, done in seen)
    assert sum(done for _, done in seen) == 1 + len(results.entry_q)
    np.testing.assert_allclose(results.entry_q, tables.brute_force(total_amount), rtol=1e-12)


def test_each_draw_on_each_database_has_a_generator_of_its_own_whoever_is_left_out():
    tables = random_tables(3)
    results = tables.collect(lambda _rows, rng: rng.random(), draws=4, jobs=1)
    assert results.q.shape == (4, 4)
    assert len(np.unique(results.q)) == results.q.size
    np.testing.assert_array_equal(results.entry_q, results.q[results.entry_database])
    other_seed = tables.collect(lambda _rows, rng: rng.random(), draws=4, jobs=1, seed=1)
    assert not np.isin(other_seed.q, results.q).any()
    more_draws = tables.collect(lambda _rows, rng: rng.random(), draws=5, jobs=1)
    np.testing.assert_array_equal(more_draws.entry_q[:, :4], results.entry_q)


def test_a_sequence_has_numbered_components_and_draws_come_before_them():
    results = random_tables(4).collect(lambda rows, rng: [rng.random(), len(rows["who"])], draws=3, jobs=1)
    assert results.components == ("0", "1")
    assert results.q.shape == (4, 3, 2)
    assert results.entry_q.shape == (len(results.entry_database), 3, 2)


@pytest.mark.slow
def test_components_in_another_order_are_put_in_that_of_everyone_on_the_first_database():
    def contrary(rows):
        both = {"n": len(rows["who"]), "m": 10 * len(rows["who"])}
        return both if len(rows["who"]) == 60 else dict(reversed(both.items()))

    tables = random_tables(5)
    for jobs in (1, 2):
        results = tables.collect(contrary, jobs=jobs)
        assert results.components == ("n", "m")
        np.testing.assert_array_equal(results.entry_q[:, 1], 10 * results.entry_q[:, 0])
        assert (results.entry_q[:, 0] < 60).all()


@pytest.mark.slow
def test_components_that_change_are_an_error_that_names_the_database():
    def changing(rows):
        return [1.0, 2.0] if rows["who"][0] == 77 else [1.0, 2.0, 3.0]

    tables = random_tables(5)
    tables.tables[2][0]["who"][:] = 77
    expected = (
        r"(a row of 3 elsewhere, got a row of 2 on database 2|a row of 2 elsewhere, got a row of 3 on database [013])"
    )
    with pytest.raises(QueryError, match=expected):
        tables.collect(changing, jobs=2)
    with pytest.raises(QueryError, match=r"2 named components elsewhere, got 1 named component on database 0"):
        random_tables(6).collect(lambda rows: {"a": 1.0, "b": 2.0} if len(rows["who"]) == 60 else {"a": 1.0}, jobs=1)


def test_the_awkward_outcomes_are_kept_apart():
    said = {0: None, 1: float("nan"), 2: float("inf"), 3: -float("inf"), 4: 5}

    def awkward(rows):
        missing = set(range(6)) - set(rows["who"].tolist())
        if not missing:
            return 1.0
        if missing == {5}:
            raise ZeroDivisionError
        return said[missing.pop()]

    codes = np.arange(6)
    results = Tables((({"who": codes}, codes),), 6).collect(awkward, jobs=1)
    assert results.outcomes.tolist() == [Outcome.NUMBER]
    expected = ["NULL", "NAN", "PLUS_INFINITY", "MINUS_INFINITY", "NUMBER", "ERROR"]
    assert results.entry_outcomes.tolist() == [Outcome[name] for name in expected]
    assert results.entry_q[4] == 5.0
    assert np.isnan(results.entry_q[[0, 1, 2, 3, 5]]).all()


def test_null_and_error_stand_for_every_component():
    def awkward(rows):
        if len(rows["who"]) == 3:
            return [1.0, None]
        if 0 in rows["who"] and 1 in rows["who"]:
            raise ValueError("person 2 is missing")
        return None

    codes = np.arange(3)
    results = Tables((({"who": codes}, codes),), 3).collect(awkward, jobs=1)
    assert results.outcomes.tolist() == [[Outcome.NUMBER, Outcome.NULL]]
    assert results.entry_outcomes.tolist() == [[Outcome.NULL] * 2, [Outcome.NULL] * 2, [Outcome.ERROR] * 2]


def test_a_database_on_which_the_query_fails_is_an_outcome():
    tables = random_tables(7)
    tables.tables[1][0]["amount"][:] = -1.0

    def picky(rows):
        if (rows["amount"] == -1).all():
            raise KeyError("amount -1")
        return rows["amount"].sum()

    results = tables.collect(picky, jobs=1)
    assert results.outcomes.tolist() == [0, Outcome.ERROR, 0, 0]
    assert (results.entry_outcomes[results.entry_database == 1] == Outcome.ERROR).all()
    assert (results.entry_outcomes[results.entry_database != 1] == Outcome.NUMBER).all()


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_a_query_that_fails_everywhere_is_an_error_without_its_message(jobs, tmp_path):
    def broken(rows):
        with (tmp_path / "log").open("a") as file:
            file.write("x")
        raise ValueError(f"SECRET {rows['amount'][0]}")

    line = broken.__code__.co_firstlineno + 3
    with pytest.raises(QueryError) as caught:
        random_tables(8).collect(broken, jobs=jobs)
    assert f"ValueError in line {line} of test_function_runs.py, on database 0" in str(caught.value)
    errors = [caught.value]
    while errors:
        error = errors.pop()
        assert "SECRET" not in str(error)
        errors.extend(other for other in (error.__cause__, error.__context__) if other is not None)
    assert (tmp_path / "log").stat().st_size == 5, "everyone on 4 databases, and once more on one; nobody is left out"


def test_the_line_is_that_of_the_users_file_even_if_a_library_raised():
    def misuse(rows):
        return np.linalg.inv(rows["amount"])

    with pytest.raises(
        QueryError, match=f"LinAlgError in line {misuse.__code__.co_firstlineno + 1} of test_function_runs.py"
    ):
        random_tables(8).collect(misuse, jobs=1)


def test_a_wrong_type_is_an_error_without_the_value():
    for function in (lambda _: "SECRET", lambda rows: 1.0 if len(rows["who"]) == 60 else "SECRET"):
        with pytest.raises(QueryError, match="got a value of type str on database") as caught:
            random_tables(9).collect(function, jobs=1)
        assert "SECRET" not in str(caught.value)


def test_running_out_of_memory_is_not_an_outcome():
    def greedy(rows):
        if len(rows["who"]) < 60:
            raise MemoryError
        return 1.0

    with pytest.raises(QueryError, match="out of memory on database 0"):
        random_tables(9).collect(greedy, jobs=1)


@pytest.mark.parametrize("draws", [None, 2])
def test_a_function_that_spoils_its_rows_spoils_only_its_own(draws):
    def spoil(rows, *_):
        total = float(np.sum(rows["amount"])) + sum(map(len, rows["tags"]))
        for tags in rows["tags"]:
            tags.append("spoilt")
        rows["amount"][:] = 1e9
        rows["who"] = 0
        return total

    tables = random_tables(11)
    for columns, codes in tables.tables:
        columns["tags"] = np.empty(len(codes), object)
        columns["tags"][:] = [["a"] for _ in codes]
    expected = tables.brute_force(lambda rows: rows["amount"].sum() + len(rows["tags"]))
    results = tables.collect(spoil, draws=draws, jobs=1)
    np.testing.assert_allclose(results.entry_q.reshape(len(expected), -1).T, [expected] * (draws or 1), rtol=1e-12)


@pytest.mark.slow
def test_closures_partials_methods_and_objects_are_functions_too():
    class Shifted:
        def __init__(self, by):
            self.by = by

        def __call__(self, rows):
            return rows["amount"].sum() + self.by

    def shifted(rows, by):
        return rows["amount"].sum() + by

    tables, by = random_tables(12), 3
    expected = tables.brute_force(total_amount) + by
    closure = lambda rows: rows["amount"].sum() + by  # noqa: E731
    for function, jobs in (
        (closure, None), (closure, 2), (Shifted(3), 2), (functools.partial(shifted, by=3), 2), (Shifted(3).__call__, 2),
    ):  # fmt: skip
        np.testing.assert_allclose(tables.collect(function, jobs=jobs).entry_q, expected)


def test_somebody_listed_but_without_rows_changes_nothing():
    codes = np.array([0, 0, 2])
    results = called(
        total_amount,
        fetch=lambda _j: ({"amount": np.array([1.0, 2.0, 4.0])}, codes),
        databases=np.array(["only"]),
        individuals=np.arange(3),
        starts=np.array([0, 1, 2, 3]),
        entry_database=np.zeros(3, np.int32),
        jobs=1,
    )
    assert results.entry_q.tolist() == [4.0, 7.0, 3.0]


def test_rows_that_cannot_be_read_are_an_error_without_its_message():
    def fetch(database):
        if database == 2:
            raise OSError("SECRET")
        return random_tables(14).fetch(database)

    presence = random_tables(14).presence() | {"fetch": fetch}
    with pytest.raises(SourceError, match="rows of database 2 cannot be read: OSError in line") as caught:
        called(total_amount, **presence, jobs=1)
    assert "SECRET" not in str(caught.value)
    assert "SECRET" not in str(caught.value.__context__)


@pytest.mark.slow
def test_a_worker_that_dies_is_an_error():
    with pytest.raises(QueryError, match="A worker process ended abruptly"):
        random_tables(18).collect(lambda _rows: os.kill(os.getpid(), signal.SIGKILL), jobs=2)


@pytest.mark.slow
def test_a_function_that_cannot_be_sent_is_an_error():
    lock = threading.Lock()
    with pytest.raises(QueryError, match="can be sent to other processes"):
        random_tables(18).collect(lambda _rows: float(lock.locked()), jobs=2)


def finished_items(path):
    """(database, item) of every whole record of a checkpoint."""
    with closing(sqlite3.connect(path)) as connection:
        ((mark,),) = connection.execute("SELECT mark FROM run")
    with open_checkpoint(path, mark, of="function") as checkpoint:
        chunks = map(Chunk.from_bytes, checkpoint.pieces.values())
        return [(chunk.database, item) for chunk in chunks for item in range(chunk.first, chunk.stop)]


def pieces_seen(path):
    """How many pieces a checkpoint holds that a run has open."""
    content = b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
    return len(set(re.findall(rb'"database": \d+, "first": \d+', content)))


def logging(folder):
    """A file that gets a letter for each call, and a function."""

    def logged(rows):
        with (folder / "log").open("a") as file:
            file.write("x")
        return [rows["amount"].sum(), None]

    return folder / "log", logged


def test_a_finished_run_is_read_back_without_a_call(tmp_path):
    tables, (log, logged) = random_tables(20), logging(tmp_path)
    first = tables.collect(logged, checkpoint=tmp_path / "checkpoint", jobs=1)
    n_calls = log.stat().st_size
    second = tables.collect(logged, checkpoint=tmp_path / "checkpoint", jobs=2)
    assert n_calls == 1 + 4 + len(first.entry_q), "one call more, to see that the answer is the same"
    assert log.stat().st_size == n_calls
    np.testing.assert_array_equal(first.entry_q, second.entry_q)
    np.testing.assert_array_equal(first.entry_outcomes, second.entry_outcomes)
    assert (tmp_path / "checkpoint").stat().st_mode & 0o777 == 0o600


def test_a_damaged_piece_is_dropped_and_only_it_is_repeated(tmp_path):
    tables, (log, logged) = random_tables(21), logging(tmp_path)
    path = tmp_path / "checkpoint"
    whole = tables.collect(logged, checkpoint=path, jobs=1)
    n_calls = log.stat().st_size
    damaged = bytearray(path.read_bytes())
    damaged[damaged.rindex(b'"database": 3, "first": 1') + 13] ^= 1
    path.write_bytes(damaged)
    left = finished_items(path)
    again = tables.collect(logged, checkpoint=path, jobs=1)
    assert 0 < len(left) < n_calls
    n_items = n_calls - 1
    assert log.stat().st_size == n_calls + n_items - len(left)
    np.testing.assert_array_equal(whole.entry_q, again.entry_q)
    assert sorted(finished_items(path)) == sorted(set(finished_items(path)))


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 1},
        {"draws": 3},
        {"databases": np.array([0, 1, 2, 9])},
        {"individuals": np.arange(12)},
        {"function": lambda rows, rng: rows["amount"].sum() - rng.normal()},
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path, change):
    path = tmp_path / "checkpoint"
    arguments = {"function": noisy_total, "draws": 2, "jobs": 1, "checkpoint": path, **random_tables(22).presence()}
    called(**arguments)
    before = path.read_bytes()
    with pytest.raises(InputError, match="`checkpoint` must be of this very run, got one of another"):
        called(**{**arguments, **change})
    assert path.read_bytes() == before


SCRIPT = """
import sys, time
import numpy as np
from empriv.collecting.function_runs import Presence, collect_calls
from empriv.collecting.function_calls import FunctionQuery

N_DATABASES, N_INDIVIDUALS = 3, 40
folder, jobs, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])


def fetch(database):
    codes = np.repeat(np.arange(N_INDIVIDUALS), 2)
    rng = np.random.default_rng(database)
    return {"who": codes, "database": np.full(len(codes), database), "amount": rng.normal(size=len(codes))}, codes


def logged(rows, rng):
    missing = sorted(set(range(N_INDIVIDUALS)) - set(rows["who"].tolist()))
    item = missing[0] + 1 if missing else 0
    with open(f"{folder}/log", "a") as file:
        file.write(f"{rows['database'][0]} {item}\\n")
    time.sleep(pause)
    return rows["amount"].sum() + rng.normal()


if __name__ == "__main__":
    there = Presence(
        np.arange(N_DATABASES),
        np.arange(N_INDIVIDUALS),
        np.arange(0, N_INDIVIDUALS * N_DATABASES + 1, N_DATABASES),
        np.tile(np.arange(N_DATABASES, dtype=np.int32), N_INDIVIDUALS),
    )
    results = collect_calls(
        FunctionQuery(logged, draws=2, seed=5), fetch, there, jobs=jobs, checkpoint=f"{folder}/checkpoint"
    )
    np.save(f"{folder}/results.npy", np.concatenate([results.q, results.entry_q]))
"""


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    """What the script finds if nothing comes between."""
    folder = tmp_path_factory.mktemp("whole")
    (folder / "script.py").write_text(SCRIPT)
    subprocess.run([sys.executable, folder / "script.py", folder, "1", "0"], check=True, timeout=120)
    return np.load(folder / "results.npy")


@pytest.mark.slow
@pytest.mark.parametrize(("blow", "jobs"), [(signal.SIGKILL, 2), (signal.SIGINT, 1), (signal.SIGINT, 2)])
def test_an_interrupted_run_goes_on_without_repeating_or_losing_work(tmp_path, blow, jobs, uninterrupted):
    script, path = tmp_path / "script.py", tmp_path / "checkpoint"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path), str(jobs), "0.01"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    try:
        # Everyone on three databases is 3 pieces; wait for some more.
        deadline = time.monotonic() + 120
        while pieces_seen(path) < 5 and time.monotonic() < deadline:
            assert process.poll() is None, "the run must still be going on when it is interrupted"
            time.sleep(0.005)
        if blow == signal.SIGINT:
            os.killpg(process.pid, blow)  # Ctrl-C reaches the workers as well
        else:
            process.kill()
        process.wait(timeout=60)
    finally:
        # What is left of the group that this test started: workers that outlived their parent.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)
    assert process.returncode != 0
    assert not (tmp_path / "results.npy").exists()
    done = finished_items(path)
    assert 3 < len(done) < 123
    assert len(set(done)) == len(done)

    subprocess.run(command, check=True, timeout=120)
    counts = Counter(tuple(map(int, line.split())) for line in (tmp_path / "log").read_text().splitlines())
    assert set(counts) == {(j, item) for j in range(3) for item in range(41)}
    assert {counts[item] for item in done} == {2}  # once for each of the two draws: never repeated
    assert sorted(finished_items(path)) == sorted(counts)
    np.testing.assert_array_equal(np.load(tmp_path / "results.npy"), uninterrupted)


@pytest.mark.slow
def test_stopping_early_is_not_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """joblib warns of results that nobody took; a run that ends at an error leaves some, and that is no news."""
    from empriv.collecting import function_runs as calls

    def slow(_query: object, _fetch: object, task: int) -> int:
        time.sleep(0.02 * task)
        return task

    monkeypatch.setattr(calls, "run_task", slow)
    chunks = calls._Workers(2)._run_parallel(None, None, list(range(8)))  # type: ignore[arg-type]
    next(chunks)
    time.sleep(0.3)  # results of the others arrive meanwhile
    chunks.close()


def make(threshold, helper=None):
    def query(rows):
        return (rows > threshold).sum() if helper is None else helper(rows)

    return query


class Query:
    def __init__(self, threshold):
        self.threshold = threshold

    def __call__(self, rows):
        return rows - self.threshold


def power(rows, exponent=2):
    return rows**exponent


def test_the_same_function_has_the_same_fingerprint():
    assert fingerprint(make(1), 5) == fingerprint(make(1), 5)
    assert fingerprint(Query(1)) == fingerprint(Query(1))
    assert fingerprint(functools.partial(power, exponent=3)) == fingerprint(functools.partial(power, exponent=3))


def test_functions_that_differ_have_different_fingerprints():
    functions = [
        make(1), make(2), make([1, 2]), make(np.array([1, 2])), make(np.array([1, 3])),
        make(1, helper=lambda rows: rows.sum()), make(1, helper=lambda rows: rows.mean()),
        Query(1), Query(2), Query(1).__call__,
        power, functools.partial(power, exponent=3), functools.partial(power, exponent=4),
        lambda rows: rows + 1, lambda rows: rows + 2, lambda rows: rows - 1,
        lambda rows: [row + 1 for row in rows], lambda rows: [row + 2 for row in rows],
        max, min,
    ]  # fmt: skip
    assert len({fingerprint(function) for function in functions}) == len(functions)


def test_facts_that_differ_have_different_fingerprints():
    facts = [
        (1,), (2,), (1, 2), (12,), ("1",), (np.array([1, 2]),), (np.array([[1, 2]]),), (np.array([1, 2], np.int32),),
        (np.array(["a", "b"]),), (np.array(["a", "b"], object),), (np.array(["ab", ""], object),),
    ]  # fmt: skip
    assert len({fingerprint(power, *these) for these in facts}) == len(facts)


SOURCE = """
from empriv.collecting.function_runs import fingerprint

CUT = 3
CACHE = {}

def helper(x):
    return x in {"a", "b", "c", "d"} and x > CUT

def query(rows, names=frozenset({"p", "q", "r"})):
    CACHE[1] = 2
    return [helper(x) for x in rows]

before = fingerprint(query)
query(["z"])
assert fingerprint(query) == before
print(before.hex())
"""


@pytest.mark.slow
def test_a_fingerprint_is_the_same_in_every_process_and_knows_helpers_and_constants(tmp_path, capsys):
    def elsewhere(hash_seed):
        environment = {"PYTHONHASHSEED": hash_seed, "PATH": "", "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, tmp_path / "script.py"]
        return subprocess.run(command, env=environment, check=True, capture_output=True, timeout=60).stdout.decode()

    def here(source):
        exec(source, {"__name__": "__main__"})
        return capsys.readouterr().out

    (tmp_path / "script.py").write_text(SOURCE)
    assert elsewhere("1") == elsewhere("2")
    changes = (("CUT = 3", "CUT = 4"), ("x > CUT", "x >= CUT"), ('"r"', '"s"'))
    assert len({here(SOURCE), *(here(SOURCE.replace(*change)) for change in changes)}) == 4
