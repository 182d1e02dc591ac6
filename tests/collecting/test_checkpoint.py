"""Checkpoints: what is written is read back; the torn is dropped; the foreign is refused."""

import functools
import subprocess
import sys

import numpy as np
import pytest

from empriv.collecting.functions.checkpoints import MAGIC, fingerprint, open_checkpoint
from empriv.collecting.functions.chunks import Chunk
from empriv.errors import FileFormatError, InputError

MARK = bytes(range(32))


def chunk(database, names=("a", "ü")):
    width = max(len(names or ()), 1)
    return Chunk(
        database=database,
        first=4,
        names=names,
        values=np.random.default_rng(database).normal(size=(3, 2, width)),
        outcomes=np.arange(6 * width, dtype=np.int8).reshape(3, 2, width) % 6,
        failure="ValueError in line 3 of query.py",
        fetch_seconds=0.25,
        call_seconds=1.5,
    )


def write(path, chunks):
    with open_checkpoint(path, MARK) as checkpoint:
        for item in chunks:
            checkpoint.append(item)


def read(path):
    with open_checkpoint(path, MARK) as checkpoint:
        return checkpoint.finished


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


def test_what_is_written_is_read_back(path):
    written = [chunk(0), chunk(1, names=()), chunk(2, names=None)]
    write(path, written)
    for found, expected in zip(read(path), written, strict=True):
        for name in ("database", "first", "names", "failure", "fetch_seconds", "call_seconds", "stop"):
            assert getattr(found, name) == getattr(expected, name)
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_array_equal(found.outcomes, expected.outcomes)


def test_only_the_owner_can_read_it(path):
    path.touch(0o644)
    write(path, [chunk(0)])
    assert path.stat().st_mode & 0o777 == 0o600


def test_records_are_added_not_rewritten(path):
    write(path, [chunk(0)])
    before = path.read_bytes()
    write(path, [chunk(1)])
    assert path.read_bytes().startswith(before)
    assert [found.database for found in read(path)] == [0, 1]


@pytest.mark.slow
def test_cut_anywhere_it_keeps_the_records_before_the_cut_and_can_be_continued(path):
    write(path, [chunk(0)])
    one = path.stat().st_size
    write(path, [chunk(1)])
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        expected = 0 if length < one else 1
        assert len(read(path)) == expected
        if length % 37 == 0:
            write(path, [chunk(5)])
            assert [found.database for found in read(path)] == [*[0][:expected], 5]


def test_a_damaged_record_is_dropped(path):
    write(path, [chunk(0), chunk(1)])
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    assert [found.database for found in read(path)] == [0]


def test_another_run_is_refused_and_its_file_left_alone(path):
    write(path, [chunk(0)])
    before = path.read_bytes()
    with pytest.raises(InputError, match="of this very run, got one of another"):
        open_checkpoint(path, bytes(32)).__enter__()
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"PK\x03\x04 somebody's file", b"x", b"empriv calls 2\n" + bytes(100)])
def test_another_kind_of_file_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    path.chmod(0o640)
    with pytest.raises(FileFormatError, match="got another kind of file"):
        open_checkpoint(path, MARK).__enter__()
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_file_that_cannot_be_made_is_refused(tmp_path):
    with pytest.raises(InputError, match="`checkpoint` must name a file that can be written, got"):
        open_checkpoint(tmp_path / "absent" / "checkpoint", MARK).__enter__()


def test_two_runs_cannot_share_it(path):
    with (
        open_checkpoint(path, MARK),
        pytest.raises(InputError, match="must not be in use by another run"),
    ):
        open_checkpoint(path, MARK).__enter__()
    assert path.read_bytes() == MAGIC + MARK


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
        make(1),
        make(2),
        make(1, helper=lambda rows: rows.sum()),
        make(1, helper=lambda rows: rows.mean()),
        make([1, 2]),
        make(np.array([1, 2])),
        make(np.array([1, 3])),
        Query(1),
        Query(2),
        Query(1).__call__,
        power,
        functools.partial(power, exponent=3),
        functools.partial(power, exponent=4),
        lambda rows: rows + 1,
        lambda rows: rows + 2,
        lambda rows: rows - 1,
        lambda rows: [row + 1 for row in rows],
        lambda rows: [row + 2 for row in rows],
        max,
        min,
    ]
    assert len({fingerprint(function) for function in functions}) == len(functions)


def test_facts_that_differ_have_different_fingerprints():
    facts = [
        (1,),
        (2,),
        (1, 2),
        (12,),
        ("1",),
        (np.array([1, 2]),),
        (np.array([[1, 2]]),),
        (np.array([1, 2], np.int32),),
        (np.array(["a", "b"]),),
        (np.array(["a", "b"], object),),
        (np.array(["ab", ""], object),),
    ]
    assert len({fingerprint(power, *these) for these in facts}) == len(facts)


def fingerprint_elsewhere(tmp_path, source, hash_seed):
    script = tmp_path / "script.py"
    script.write_text(source)
    environment = {"PYTHONHASHSEED": hash_seed, "PATH": ""}
    ran = subprocess.run([sys.executable, script], env=environment, check=True, capture_output=True, timeout=60)
    return ran.stdout


SOURCE = """
from empriv.collecting.functions.checkpoints import fingerprint

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
def test_a_fingerprint_is_the_same_in_every_process_and_knows_helpers_and_constants(tmp_path):
    first = fingerprint_elsewhere(tmp_path, SOURCE, "1")
    assert fingerprint_elsewhere(tmp_path, SOURCE, "2") == first
    assert fingerprint_elsewhere(tmp_path, SOURCE.replace("CUT = 3", "CUT = 4"), "1") != first
    assert fingerprint_elsewhere(tmp_path, SOURCE.replace("x > CUT", "x >= CUT"), "1") != first
    assert fingerprint_elsewhere(tmp_path, SOURCE.replace('"r"', '"s"'), "1") != first
