"""Spark's jobs while they run: known by a tag, so that they can be ended, and counted, so that progress can be shown.

A classic session tells how many tasks are done when asked; one of Spark Connect tells it unasked.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from empriv.base.progress import Advance

_SECONDS = 0.3
Counts = dict[int, tuple[int, int]]


@contextmanager
def cancellable(spark: Any, tag: str) -> Iterator[None]:
    """Mark the jobs of the body, and end those that still run when it is left by an exception."""
    add, remove, end = _tagging(spark)
    add(tag)
    try:
        yield
    except BaseException:
        with suppress(Exception):
            end(tag)
        raise
    finally:
        with suppress(Exception):
            remove(tag)


def _tagging(spark: Any) -> tuple[Callable[[str], Any], Callable[[str], Any], Callable[[str], Any]]:
    context = _context(spark)
    if context is None:
        return spark.addTag, spark.removeTag, spark.interruptTag
    return context.addJobTag, context.removeJobTag, context.cancelJobsWithTag


@contextmanager
def watched(spark: Any, tell: Callable[[int, int], None]) -> Iterator[None]:
    """Call ``tell(done, known)`` with tasks of the body's jobs, from another thread, while the body runs.

    More tasks become known as jobs are planned, so that the share done is a guess.
    """
    seen: Counts = {}
    context = _context(spark)
    if context is None:
        if not hasattr(spark, "registerProgressHandler"):
            yield
            return

        def handler(stages: Any, **_: Any) -> None:
            for stage in stages or ():
                seen[stage.stage_id] = (stage.num_completed_tasks, stage.num_tasks)
            tell(*_sums(seen))

        spark.registerProgressHandler(handler)
        try:
            yield
        finally:
            spark.removeProgressHandler(handler)
        return
    over = threading.Event()
    tracker = context.statusTracker()

    def look() -> None:
        while not over.wait(_SECONDS):
            with suppress(Exception):
                for stage in tracker.getActiveStageIds():
                    info = tracker.getStageInfo(stage)
                    if info is not None:
                        seen[stage] = (info.numCompletedTasks, info.numTasks)
                for stage in seen.keys() - set(tracker.getActiveStageIds()):
                    seen[stage] = (seen[stage][1], seen[stage][1])
                tell(*_sums(seen))

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class Percent:
    """Progress in per cent, over the steps of some work; ``expected`` is how many tasks a step has at least."""

    def __init__(self, spark: Any, advance: Advance, expected: int) -> None:
        self._spark, self._advance, self._expected, self._at = spark, advance, expected, 0

    @contextmanager
    def up_to(self, last: int) -> Iterator[None]:
        """The body is the step after which so much is done."""
        first = self._at

        def tell(done: int, known: int) -> None:
            # Tasks that are not known yet: at least one more round of them.
            self._move(first + (last - first) * done // (known + self._expected))

        with watched(self._spark, tell):
            yield
        self._move(last)

    def _move(self, to: int) -> None:
        if to > self._at:
            self._advance(to - self._at)
            self._at = to


def _sums(seen: Counts) -> tuple[int, int]:
    return sum(done for done, _ in seen.values()), sum(known for _, known in seen.values())


def _context(spark: Any) -> Any:
    """The context of a classic session; None with Spark Connect, which has none."""
    return None if ".connect." in type(spark).__module__ else spark.sparkContext
