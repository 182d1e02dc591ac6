"""Blocks whose hockey sticks are compiled: cells in numpy are made only if something else is asked of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from empriv.measuring.line.hockeystick import Cells
from empriv.measuring.line.mixtures import MixtureBlock
from empriv.results import FloatArray


@dataclass(frozen=True, eq=False)
class QuickBlock(ABC):
    """A block of individuals; ``make`` makes its cells in numpy."""

    make: Callable[[], MixtureBlock]

    @cached_property
    def mixture(self) -> MixtureBlock:
        return self.make()

    def log_range(self) -> tuple[FloatArray, FloatArray]:
        """inf and sup of the log ratio of each row."""
        return self.mixture.log_range()

    def cells(self, direction: int, least: float) -> Cells:
        """Cells where p/p_i (direction 0) or p_i/p (direction 1) exceeds ``least`` somewhere."""
        return self.mixture.cells(direction, least)

    @abstractmethod
    def sticks(self, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Hockey sticks (rows, 2, len(e)) of both directions at ascending e, and the least and largest ratio p/p_i;
        None where that takes the cells."""
