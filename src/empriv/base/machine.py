"""The machine: how many threads and how much memory there are, and where compiled code is found."""

from __future__ import annotations

import ctypes
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.ctypeslib import ndpointer


def workers(most: int | None = None) -> int:
    """As many as there are processors, or as ``OMP_NUM_THREADS`` says, which Spark sets to an executor's cores."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    threads = int(setting) if setting.isdigit() and int(setting) > 0 else os.cpu_count() or 1
    return threads if most is None else min(most, threads)


_MEMINFO = Path("/proc/meminfo")
_GROUP = Path("/sys/fs/cgroup")


def free_memory() -> int | None:
    """Bytes that a process may still take: what the machine has, or what its container allows, whichever is less."""
    amounts = [amount for amount in (_of_machine(), _of_container()) if amount is not None]
    return min(amounts, default=None)


def _of_machine() -> int | None:
    if sys.platform == "win32":
        return _of_windows()
    try:
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024 * int(line.split()[1])
    except (OSError, ValueError, IndexError):
        pass
    try:
        # Without a word on what is in use, as on macOS: half of what there is.
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (ValueError, OSError, AttributeError):
        return None


def _of_container() -> int | None:
    """What the control group of a container still allows, in either of its versions."""
    for most, used in (
        ("memory.max", "memory.current"),
        ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes"),
    ):
        try:
            return max(0, int((_GROUP / most).read_text()) - int((_GROUP / used).read_text()))
        except (OSError, ValueError):  # it has no such file, or no limit
            continue
    return None


def _of_windows() -> int | None:
    class Status(ctypes.Structure):
        _fields_ = [
            ("length", ctypes.c_ulong), ("load", ctypes.c_ulong), ("total", ctypes.c_ulonglong),
            ("available", ctypes.c_ulonglong), ("others", ctypes.c_ulonglong * 5),
        ]  # fmt: skip

    status = Status(length=ctypes.sizeof(Status))
    try:
        told = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))  # type: ignore[attr-defined]
    except (AttributeError, OSError):
        return None
    return int(status.available) if told else None


# Whole numbers, doubles, and contiguous arrays of just these types.
LONG, DOUBLE = ctypes.c_long, ctypes.c_double
DOUBLES, LONGS = (ndpointer(dtype, flags="C_CONTIGUOUS") for dtype in (np.float64, np.int64))


def library(module: str) -> ctypes.CDLL | None:
    """The compiled module of this full name, or None."""
    spec = find_spec(module)
    return None if spec is None or spec.origin is None else ctypes.CDLL(spec.origin)
