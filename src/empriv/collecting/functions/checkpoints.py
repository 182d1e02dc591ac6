"""Finished stretches of work, kept in a file from which an interrupted run goes on.

The file is append-only: a magic line, a fingerprint of the run, then one record for each chunk, with its length and
a checksum. A record torn by a crash is dropped; a file of another run is refused. Nothing in it is pickled. It holds
query results without individuals, hence mode 0600. What a chunk means is for `calls`.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from os import PathLike
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np

from empriv.collecting.functions.chunks import Chunk
from empriv.errors import FileFormatError, InputError

if sys.platform != "win32":
    import fcntl

MAGIC = b"empriv calls 1\n"
_HASH_BYTES = 32
_LENGTHS = struct.Struct("<II")
_CHECKSUM_BYTES = 16
_SYNC_SECONDS = 0.25


class Checkpoint:
    """An open checkpoint: `finished` is what it held, `append` adds to it. Made by `open_checkpoint`."""

    def __init__(self, descriptor: int, finished: list[Chunk]) -> None:
        self._descriptor = descriptor
        self._synced = 0.0
        self.finished = finished

    def append(self, chunk: Chunk) -> None:
        """Write a record. It outlives this process at once, and the machine within a quarter of a second's records."""
        content = memoryview(_record(chunk))
        while content:
            content = content[os.write(self._descriptor, content) :]
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            os.fsync(self._descriptor)
            self._synced = time.monotonic()


@contextmanager
def open_checkpoint(path: str | PathLike[str], fingerprint: bytes) -> Iterator[Checkpoint]:
    """Open or make the checkpoint of the run with this fingerprint; one process at a time may hold it."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o600)
    except OSError as error:
        raise InputError(
            f"`checkpoint` must name a file that can be written, got {os.fspath(path)!r}: {error.strerror}."
        ) from None
    try:
        _lock(descriptor)
        with open(descriptor, "rb", closefd=False) as file:
            content = file.read()
        finished, good = _read(content, fingerprint)
        if sys.platform != "win32":
            os.fchmod(descriptor, 0o600)
        # Whatever follows the last whole record was torn by a crash; new records must not follow it.
        os.ftruncate(descriptor, good)
        os.lseek(descriptor, 0, os.SEEK_END)
        if good == 0:
            os.write(descriptor, MAGIC + fingerprint)
        yield Checkpoint(descriptor, finished)
    finally:
        os.fsync(descriptor)
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError("`checkpoint` must not be in use by another run, got a file that is.") from None
        except OSError:
            return  # a file system without locks: two runs on one file are then the caller's to avoid


def _read(content: bytes, fingerprint: bytes) -> tuple[list[Chunk], int]:
    """Whole records, and the length of the file up to the last of them."""
    header = MAGIC + fingerprint
    if not (content.startswith(MAGIC) or MAGIC.startswith(content)):
        raise FileFormatError("`checkpoint` must name a checkpoint of empriv or a new file, got another kind of file.")
    if len(content) < len(header):
        return [], 0  # new, or torn while its header was written: nothing is lost
    if not content.startswith(header):
        raise InputError(
            "`checkpoint` must be of this very run, got one of another: the function, seed, draws, frame, databases or "
            "individuals differ. Hint: name another file, or delete this one."
        )
    chunks: list[Chunk] = []
    good = len(header)
    while (record := _read_record(content, good)) is not None:
        chunk, good = record
        chunks.append(chunk)
    return chunks, good


def _read_record(content: bytes, at: int) -> tuple[Chunk, int] | None:
    head = at + _LENGTHS.size + _CHECKSUM_BYTES
    if len(content) < head:
        return None
    n_facts, n_arrays = _LENGTHS.unpack_from(content, at)
    payload = content[head : head + n_facts + n_arrays]
    checksum = content[at + _LENGTHS.size : head]
    if len(payload) < n_facts + n_arrays or _checksum(payload) != checksum:
        return None
    facts = json.loads(payload[:n_facts])
    shape = tuple(facts.pop("shape"))
    names = facts.pop("names")
    n_values = 8 * int(np.prod(shape))
    values = np.frombuffer(payload[n_facts : n_facts + n_values], "<f8").reshape(shape)
    outcomes = np.frombuffer(payload[n_facts + n_values :], np.int8).reshape(shape)
    chunk = Chunk(names=None if names is None else tuple(names), values=values, outcomes=outcomes, **facts)
    return chunk, head + n_facts + n_arrays


def _record(chunk: Chunk) -> bytes:
    facts = json.dumps(
        {
            "database": chunk.database,
            "first": chunk.first,
            "names": chunk.names,
            "shape": chunk.values.shape,
            "failure": chunk.failure,
            "fetch_seconds": chunk.fetch_seconds,
            "call_seconds": chunk.call_seconds,
        }
    ).encode()
    arrays = chunk.values.astype("<f8").tobytes() + chunk.outcomes.astype(np.int8).tobytes()
    return _LENGTHS.pack(len(facts), len(arrays)) + _checksum(facts + arrays) + facts + arrays


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_CHECKSUM_BYTES).digest()


def fingerprint(function: Callable[..., Any], *facts: object) -> bytes:
    """Digest of a function and of facts (arrays, numbers, text): equal for the same run, whatever the process."""
    digest = hashlib.blake2b(digest_size=_HASH_BYTES)
    for part in (_identity(function, seen=set()), *map(_fact, facts)):
        digest.update(struct.pack("<Q", len(part)) + part)
    return digest.digest()


def _fact(fact: object) -> bytes:
    if isinstance(fact, np.ndarray):
        head = f"{fact.dtype.str} {fact.shape} ".encode()
        if fact.dtype == object:
            return head + repr([(type(item).__qualname__, repr(item)) for item in fact.tolist()]).encode()
        return head + np.ascontiguousarray(fact).tobytes()
    return repr(fact).encode()


def _identity(function: Any, *, seen: set[int]) -> bytes:
    """Name, bytecode and settings of a function, with those of the helpers of its own module that it calls."""
    if id(function) in seen:
        return b"again"
    seen.add(id(function))
    if isinstance(function, functools.partial):
        return b"partial" + _identity(function.func, seen=seen) + _plain([function.args, function.keywords], seen)
    if isinstance(function, MethodType):
        return _identity(function.__func__, seen=seen) + _plain(_attributes(function.__self__), seen)
    if isinstance(function, FunctionType):
        settings = [function.__defaults__, function.__kwdefaults__, _closed_over(function), _globals(function)]
        return function.__qualname__.encode() + _code(function.__code__) + _plain(settings, seen)
    kind = function if isinstance(function, type) else type(function)
    call = vars(kind).get("__call__")
    own = _identity(call, seen=seen) if isinstance(call, FunctionType) else b""
    name = getattr(function, "__qualname__", kind.__qualname__)
    return f"{kind.__module__}.{name}".encode() + own + _plain(_attributes(function), seen)


def _globals(function: FunctionType) -> dict[str, Any]:
    """Constants and helpers of its own module that a function uses.

    Lists and dicts are left out: as globals they are mostly caches, which change in the course of a run. Modules and
    what belongs to other packages are known by their names, which the bytecode holds.
    """
    found = {}
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        own = isinstance(value, FunctionType) and value.__module__ == function.__module__
        if own or isinstance(value, (bool, int, float, complex, str, bytes, tuple)):
            found[name] = value
    return found


def _names(code: CodeType) -> set[str]:
    inner = (_names(item) for item in code.co_consts if isinstance(item, CodeType))
    return set(code.co_names).union(*inner)


def _attributes(item: object) -> dict[str, Any]:
    return {} if isinstance(item, type) else dict(getattr(item, "__dict__", {}))


def _closed_over(function: FunctionType) -> list[Any]:
    found = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # how an empty cell says that it is
            found.append(cell.cell_contents)
    return found


def _code(code: CodeType) -> bytes:
    constants = [_code(item) if isinstance(item, CodeType) else _plain(item, set()) for item in code.co_consts]
    return code.co_code + repr((code.co_names, code.co_varnames)).encode() + b",".join(constants)


def _plain(value: Any, seen: set[int]) -> bytes:
    """Text of a plain value, the same in every process; of another, its type alone."""
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes)):
        return repr(value).encode()
    if isinstance(value, (list, tuple)):
        return b"[" + b",".join(_plain(item, seen) for item in value) + b"]"
    if isinstance(value, (set, frozenset)):
        return b"{" + b",".join(sorted(_plain(item, seen) for item in value)) + b"}"
    if isinstance(value, dict):
        return _plain([(key, value[key]) for key in sorted(value, key=repr)], seen)
    if isinstance(value, np.ndarray) and value.dtype != object:
        return _fact(value)
    if isinstance(value, (FunctionType, MethodType, functools.partial)):
        return _identity(value, seen=seen)
    return type(value).__qualname__.encode()
