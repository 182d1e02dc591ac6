"""The Epanechnikov kernel with one bandwidth, compiled: both densities are parabolas between ends of kernels.

Hockey sticks are in closed form (`_epanechnikov.c`). Whatever else is asked of the cells, `mixtures` answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from empriv.measuring.densities.density import Mixture
from empriv.measuring.line import compiled
from empriv.measuring.line.hockeystick import Cells
from empriv.measuring.line.mixtures import MixtureBlock
from empriv.results import FloatArray

_FARTHEST = 1e6  # bandwidths from zero: there, ends of kernels are rounded by 1e-10 bandwidths, which costs its square


def serves(model: Mixture) -> bool:
    """Whether hockey sticks of this density are compiled."""
    one_width = model.refit is None and bool(np.isfinite(model.bandwidth))
    return compiled.epanechnikov is not None and model.kernel.name == "epanechnikov" and one_width


@dataclass(frozen=True, eq=False)
class ParabolaBlock:
    """A block of individuals: points with everyone (N,) and without each (rows, N), the one bandwidth, and the function
    that makes cells in numpy."""

    points: FloatArray
    without: FloatArray
    bandwidth: float
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

    def sticks(self, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Hockey sticks (rows, 2, len(e)) of both directions at ascending e, and the least and largest ratio p/p_i;
        None where the points are too many bandwidths apart."""
        scale = 0.5 ** float(np.floor(np.log2(self.bandwidth)))  # a power of two: nothing is rounded
        points, without = np.sort(self.points * scale), np.sort(self.without * scale, axis=1)
        for values in (points, without):
            if np.abs(values[np.isfinite(values)]).max(initial=0.0) > _FARTHEST:
                return None
        assert compiled.epanechnikov is not None, "`serves` said so"
        return compiled.epanechnikov(points, without, self.bandwidth * scale, np.ascontiguousarray(e))
