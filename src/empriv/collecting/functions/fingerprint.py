"""`fingerprint`: by which a checkpoint knows a function again, and so does not go on with another one's work."""

from __future__ import annotations

import functools
import hashlib
import struct
from collections.abc import Callable
from contextlib import suppress
from types import CodeType, FunctionType, MethodType
from typing import Any

import numpy as np


def fingerprint(function: Callable[..., Any], *facts: object) -> bytes:
    """Digest of a function and of facts (arrays, numbers, text): equal for the same run, whatever the process."""
    digest = hashlib.blake2b(digest_size=32)
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

    Lists and dicts are left out: as globals they are mostly caches, which change during a run. Modules, and
    objects of other packages, are identified by their names, which the bytecode holds.
    """
    used = {}
    for name in _names(function.__code__):
        value = function.__globals__.get(name)
        own = isinstance(value, FunctionType) and value.__module__ == function.__module__
        if own or isinstance(value, (bool, int, float, complex, str, bytes, tuple)):
            used[name] = value
    return used


def _names(code: CodeType) -> set[str]:
    inner = (_names(item) for item in code.co_consts if isinstance(item, CodeType))
    return set(code.co_names).union(*inner)


def _attributes(item: object) -> dict[str, Any]:
    return {} if isinstance(item, type) else dict(getattr(item, "__dict__", {}))


def _closed_over(function: FunctionType) -> list[Any]:
    values = []
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # the cell is empty
            values.append(cell.cell_contents)
    return values


def _code(code: CodeType) -> bytes:
    constants = [_code(item) if isinstance(item, CodeType) else _plain(item, set()) for item in code.co_consts]
    return code.co_code + repr((code.co_names, code.co_varnames)).encode() + b",".join(constants)


def _plain(value: Any, seen: set[int]) -> bytes:
    """Text of a plain value, the same in every process; of any other value, only its type."""
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
