"""The process in which a sandboxed DuckDB runs: takes statements, gives values and arrays. `sandbox` starts it.

Run as a file, so that it loads nothing but DuckDB and NumPy. It has no handles but two pipes, no more address space
than its memory limit asks for, and it ends at once when the pipe it reads is closed, however busy DuckDB is.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import sys
import threading
from typing import Any, BinaryIO

MiB = 2**20
# Measured: to sort and group 40 million rows under 500 MB, DuckDB's allocator held up to twice as much address space.
TIMES_LIMIT, SLACK, PER_THREAD = 2, 512 * MiB, 64 * MiB
_LONGEST = 4096  # characters of an error that are passed on
_UNITS = {"bytes": 1, "byte": 1, "KiB": 2**10, "MiB": MiB, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50}


def main() -> None:
    """Open DuckDB as the first request says, then run statements until nobody asks any more."""
    requests, replies = _pipes()
    sys.path[:] = json.loads(sys.argv[1])
    incoming: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests, incoming), daemon=True).start()
    import duckdb
    import numpy as np  # noqa: F401 — before the limit is set, so that it is part of what the process needs anyway

    connections: list[Any] = []
    while True:
        how, number, *arguments = incoming.get()
        try:
            answer = None
            if how == "open":
                connections.append(duckdb.connect(":memory:", config=arguments[0]))
                if number == 0:
                    _limit_memory(connections[0])
            elif how == "register":
                connections[number].register(*arguments)
            elif how == "hand":
                name, other, statement = arguments
                connections[number].register(name, Sent(connections[other], statement))
            elif how == "unregister":
                connections[number].unregister(*arguments)
            else:
                found = connections[number].execute(*arguments)
                answer = found.fetchall() if how == "rows" else found.fetchnumpy()
            header, arrays = packed(answer)
        except Exception as error:
            header, arrays = {"error": type(error).__name__, "text": str(error)[:_LONGEST]}, []
        _send(replies, header, arrays)


class Sent:
    """The rows of a statement, read by Arrow from another connection."""

    def __init__(self, connection: Any, sql: str) -> None:
        self.connection, self.sql = connection, sql

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self.connection.sql(self.sql).__arrow_c_stream__(requested_schema)


def _pipes() -> tuple[BinaryIO, BinaryIO]:
    """Where requests come from and replies go to; whatever else prints reaches nobody."""
    requests, replies = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    os.close(nothing)
    return os.fdopen(requests, "rb"), os.fdopen(replies, "wb")


def _listen(requests: BinaryIO, incoming: queue.SimpleQueue[Any]) -> None:
    try:
        while size := requests.read(8):
            incoming.put(pickle.loads(requests.read(int.from_bytes(size, "little"))))
    finally:
        os._exit(0)


def _limit_memory(connection: Any) -> None:
    """Have the system refuse address space beyond what DuckDB's limit asks for; a crash leaves no copy of memory."""
    import resource

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not sys.platform.startswith("linux"):
        return  # other systems take the limit, and do not keep to it
    ((threads, limit),) = connection.execute(
        "SELECT current_setting('threads'), current_setting('memory_limit')"
    ).fetchall()
    number, unit = limit.split()
    allowed = int(TIMES_LIMIT * float(number) * _UNITS[unit]) + SLACK + PER_THREAD * int(threads)
    # Nor more than the machine has.
    allowed = min(allowed, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123 — before the imports of pathlib
        own = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    wanted = own + allowed
    if most == resource.RLIM_INFINITY or wanted < most:
        resource.setrlimit(resource.RLIMIT_AS, (wanted, wanted))


def packed(answer: Any) -> tuple[dict[str, Any], list[Any]]:
    """An answer as what JSON holds, and the bytes of its arrays: nothing that is run when it is read."""
    if not isinstance(answer, dict):
        return {"rows": packed_value(answer)}, []
    import numpy as np

    columns, arrays = [], []
    for name, values in answer.items():
        null = np.ma.getmaskarray(values)
        plain = np.ma.getdata(values)
        if plain.dtype.kind == "O":
            texts = [None if missing else packed_value(value) for value, missing in zip(plain, null, strict=True)]
            columns.append([name, None, len(plain), texts])
        else:
            columns.append([name, plain.dtype.str, len(plain), None])
            arrays.append(_as_bytes(plain))
        arrays.append(_as_bytes(null))
    return {"columns": columns, "sizes": [len(array) for array in arrays]}, arrays


def _as_bytes(array: Any) -> Any:
    """The bytes of an array, without a copy."""
    import numpy as np

    return np.ascontiguousarray(array).view(np.uint8)


def packed_value(value: Any) -> Any:
    """A value as JSON holds it: an object is a type and what makes a value of it, and so lists stay lists."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [packed_value(item) for item in value]
    if isinstance(value, tuple):
        return {"tuple": [packed_value(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[packed_value(key), packed_value(item)] for key, item in value.items()]}
    kind = type(value).__name__
    if kind == "timedelta":
        return {kind: [value.days, value.seconds, value.microseconds]}
    if kind in ("date", "datetime", "time"):
        return {kind: value.isoformat()}
    if kind == "bytes":
        return {kind: value.hex()}
    if kind in ("float64", "float32", "int64", "int32", "bool_"):
        return value.item()
    return {"Decimal" if kind == "Decimal" else "UUID" if kind == "UUID" else "str": str(value)}


def _send(replies: BinaryIO, header: dict[str, Any], arrays: list[Any]) -> None:
    try:
        text = json.dumps(header).encode()
        replies.write(len(text).to_bytes(8, "little"))
        replies.write(text)
        for array in arrays:
            replies.write(memoryview(array))
        replies.flush()
    except BaseException:
        os._exit(1)  # too little memory to say so, or nobody listens


if __name__ == "__main__":
    main()
