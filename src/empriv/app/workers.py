"""`WorkerPool`: worker processes that answer short questions, such as a preview, so that the server stays free.

Numerics are imported there, not in the server. Functions must be importable by name, and give what can be pickled;
whatever they raise comes back as it is.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from typing import Any, TypeVar

from empriv.base.scratch import work_for
from empriv.errors import EmprivError

T = TypeVar("T")
_PROCESSES = 2
_SECONDS = 120.0


class WorkerPool:
    """Processes that answer questions, one at a time each."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._pools: dict[int, ProcessPoolExecutor] = {}
        self._free: asyncio.LifoQueue[int] = asyncio.LifoQueue()  # the last one that answered remembers most
        for number in reversed(range(_PROCESSES)):
            self._free.put_nowait(number)

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """What a function gives, called in one of the processes; whatever becomes of it, the others go on."""
        number = await self._free.get()
        try:
            return await asyncio.wait_for(
                asyncio.wrap_future(self._pool(number).submit(function, *arguments)), _SECONDS
            )
        except RecursionError:
            raise EmprivError("This must not be nested so deeply.") from None
        except BrokenProcessPool:
            self._end(number)
            raise EmprivError("This took more memory than there is. Hint: run it from the last step.") from None
        except TimeoutError:
            self._end(number)
            raise EmprivError(f"This took more than {_SECONDS:.0f} seconds, and was ended.") from None
        finally:
            self._free.put_nowait(number)

    def close(self) -> None:
        """End the processes."""
        for number in list(self._pools):
            self._end(number)

    def _pool(self, number: int) -> ProcessPoolExecutor:
        if number not in self._pools:
            self._pools[number] = ProcessPoolExecutor(
                1, mp_context=multiprocessing.get_context("spawn"), initializer=_begin,
                initargs=(os.getpid(), self._folder),
            )  # fmt: skip
        return self._pools[number]

    def _end(self, number: int) -> None:
        pool = self._pools.pop(number, None)
        if pool is not None:
            processes = list((getattr(pool, "_processes", None) or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.kill()  # it may not answer


def warm_up() -> None:
    """Import what previews and counts need."""
    import empriv.collecting
    import empriv.collecting.profile  # noqa: F401


@contextmanager
def engine_beside(**limits: Any) -> Iterator[Any]:
    """An engine for what nobody was asked to trust yet: views of DuckDB files, which can read any file, are refused."""
    from empriv.cli.running import engine_of

    with engine_of({**limits, "views": False}) as engine:
        yield engine


def _begin(parent: int, folder: str) -> None:
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the server, which ends these
    os.chdir(folder)  # settings name files from there
    work_for(parent, lambda: None)
