"""`Aside`: short work beside the server, such as a preview or a figure on a sample, in processes that are ready.

The server stays free to answer, and numerics are imported there, not here. Functions that are asked must be importable
by name, and give what can be pickled; whatever they raise comes back as it is.
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


class Aside:
    """Processes that answer questions."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._pool: ProcessPoolExecutor | None = None

    async def ask(self, function: Callable[..., T], *arguments: Any) -> T:
        """What a function gives, called in one of the processes."""
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                _PROCESSES, mp_context=multiprocessing.get_context("spawn"), initializer=_begin,
                initargs=(os.getpid(), self._folder),
            )  # fmt: skip
        try:
            return await asyncio.wait_for(asyncio.wrap_future(self._pool.submit(function, *arguments)), _SECONDS)
        except RecursionError:
            raise EmprivError("This must not be nested so deeply.") from None
        except BrokenProcessPool:
            self._pool = None
            raise EmprivError("This took more memory than there is. Hint: run it from the last step.") from None
        except TimeoutError:
            self.close()
            raise EmprivError(f"This took more than {_SECONDS:.0f} seconds, and was ended.") from None

    def close(self) -> None:
        """End the processes."""
        pool, self._pool = self._pool, None
        if pool is not None:
            processes = list((getattr(pool, "_processes", None) or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()


def warm_up() -> None:
    """Import what previews and counts need."""
    import empriv.collecting
    import empriv.collecting.looking  # noqa: F401


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
