"""Checkpoints: what is written is read back, also after a kill; the damaged is dropped; the foreign is refused."""

import sqlite3
import subprocess
import sys
from contextlib import closing, suppress

import numpy as np
import pytest

from empriv.base.storage import open_checkpoint
from empriv.collecting.function_calls import Chunk
from empriv.errors import FileFormatError, InputError


def chunk(database, names=("a", "ü")):
    width = max(len(names or ()), 1)
    return Chunk(
        database=database,
        first=4,
        names=names,
        values=np.random.default_rng(database).normal(size=(3, 2, width)),
        outcomes=np.arange(6 * width, dtype=np.int8).reshape(3, 2, width) % 6,
        failure="ValueError in line 3 of query.py",
        call_seconds=1.5,
    )


def opened(path):
    return open_checkpoint(path, bytes(range(32)), of="function")


def write(path, chunks):
    with opened(path) as checkpoint:
        for item in chunks:
            checkpoint.put(item.to_bytes())


def read(path):
    with opened(path) as checkpoint:
        return [Chunk.from_bytes(content) for content in checkpoint.pieces.values()]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "checkpoint"


def test_what_is_written_is_read_back(path):
    written = [chunk(0), chunk(1, names=()), chunk(2, names=None)]
    write(path, written)
    for found, expected in zip(read(path), written, strict=True):
        for name in ("database", "first", "names", "failure", "call_seconds", "stop"):
            assert getattr(found, name) == getattr(expected, name)
        np.testing.assert_array_equal(found.values, expected.values)
        np.testing.assert_array_equal(found.outcomes, expected.outcomes)


def test_pieces_are_added_or_take_the_place_of_others_and_only_the_owner_can_read_them(path):
    path.touch(0o644)
    write(path, [chunk(0)])
    assert path.stat().st_mode & 0o777 == 0o600
    write(path, [chunk(1)])
    assert [found.database for found in read(path)] == [0, 1]
    with opened(path) as checkpoint:
        checkpoint.put(chunk(2).to_bytes(), min(checkpoint.pieces))
    assert [found.database for found in read(path)] == [2, 1]


WRITER = """
import os, sys
from empriv.base.storage import open_checkpoint

with open_checkpoint(sys.argv[1], bytes(range(32)), of="function") as checkpoint:
    for number in range(10**6):
        checkpoint.put(number.to_bytes(4) * 5_000)
        os.write(1, number.to_bytes(4))
"""


@pytest.mark.slow
@pytest.mark.parametrize("after", [0, 400])
def test_a_killed_run_loses_no_piece_that_it_has_put(path, after):
    with subprocess.Popen([sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE) as writer:
        known = writer.stdout.read(4 * (after + 1))
        writer.kill()
        known += writer.stdout.read()
    with opened(path) as checkpoint:
        pieces = list(checkpoint.pieces.values())
        checkpoint.put(b"more")
    # The last one may have been put, but the writer killed before it said so.
    assert len(pieces) - len(known) // 4 in (0, 1)
    assert pieces == [number.to_bytes(4) * 5_000 for number in range(len(pieces))]
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    with opened(path) as checkpoint:
        assert list(checkpoint.pieces.values())[-1] == b"more"


def test_cut_anywhere_it_is_refused_and_left_alone_or_read_without_falsehood(path):
    write(path, [chunk(number) for number in range(40)])
    whole = path.read_bytes()
    refused = 0
    for length in range(1, len(whole), 1021):
        path.write_bytes(whole[:length])
        try:
            pieces = read(path)
        except FileFormatError:
            assert path.read_bytes() == whole[:length]
            refused += 1
            continue
        for piece in pieces:
            np.testing.assert_array_equal(piece.values, chunk(piece.database).values)
    assert refused > 10
    path.write_bytes(b"")
    assert read(path) == []


def test_bit_flips_give_one_sentence_or_whole_pieces(path):
    write(path, [chunk(number) for number in range(8)])
    whole = path.read_bytes()
    for seed in range(20):
        content, rng = bytearray(whole), np.random.default_rng(seed)
        for at in rng.integers(0, len(content), 1 + seed % 5):
            content[at] ^= 1 << int(rng.integers(8))
        path.write_bytes(content)
        with suppress(FileFormatError, InputError):
            for piece in read(path):
                np.testing.assert_array_equal(piece.values, chunk(piece.database).values)


@pytest.mark.parametrize("statement", [
    "CREATE TABLE mine (x)", "CREATE TRIGGER t AFTER INSERT ON piece BEGIN DELETE FROM piece; END",
])  # fmt: skip
def test_a_database_of_somebody_else_or_with_more_in_it_is_refused_and_left_alone(path, statement):
    if "TRIGGER" in statement:
        write(path, [chunk(0)])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute(statement)
        connection.commit()
    refused_and_left_alone(path)


@pytest.mark.parametrize("content", [b"PK\x03\x04 somebody's file", b"x", b"empriv calls 1\n" + bytes(100)])
def test_another_kind_of_file_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    path.chmod(0o640)
    refused_and_left_alone(path)
    assert path.stat().st_mode & 0o777 == 0o640


def refused_and_left_alone(path):
    before = path.read_bytes()
    with pytest.raises(FileFormatError, match="got another kind of file"):
        opened(path).__enter__()
    assert path.read_bytes() == before


def test_a_file_that_cannot_be_made_is_refused(tmp_path):
    for place in (tmp_path / "absent" / "checkpoint", "a\0b"):
        with pytest.raises(InputError, match="`checkpoint` must name a file that can be written, got"):
            opened(place).__enter__()


def test_two_runs_cannot_share_it(path):
    with opened(path) as first:
        with pytest.raises(InputError, match="must not be in use by another run"):
            opened(path).__enter__()
        first.put(b"still mine")
    with opened(path) as checkpoint:
        assert list(checkpoint.pieces.values()) == [b"still mine"]
    path.unlink()
    holder = WRITER.replace("10**6", "1") + "    sys.stdin.read()\n"
    with subprocess.Popen(
        [sys.executable, "-c", holder, path], stdout=subprocess.PIPE, stdin=subprocess.PIPE
    ) as process:
        process.stdout.read(4)
        with pytest.raises(InputError, match="must not be in use by another run"):
            opened(path).__enter__()
        process.stdin.close()
    with opened(path) as checkpoint:
        assert len(checkpoint.pieces) == 1
