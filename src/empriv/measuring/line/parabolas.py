"""The Epanechnikov kernel with one bandwidth, compiled: both densities are parabolas between ends of kernels.

Hockey sticks are in closed form (`_epanechnikov.c`). Whatever else is asked of the cells, `mixtures` answers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from empriv.measuring.densities.density import Mixture
from empriv.measuring.line import compiled
from empriv.measuring.line.quick import QuickBlock
from empriv.results import FloatArray

_FARTHEST = 1e6  # bandwidths from zero: there, ends of kernels are rounded by 1e-10 bandwidths, which costs its square


def serves(model: Mixture) -> bool:
    """Whether hockey sticks of this density are compiled."""
    one_width = model.refit is None and bool(np.isfinite(model.bandwidth))
    return compiled.epanechnikov is not None and model.kernel.name == "epanechnikov" and one_width


@dataclass(frozen=True, eq=False)
class ParabolaBlock(QuickBlock):
    """Points with everyone (N,) and without each (rows, N), and the one bandwidth."""

    points: FloatArray
    without: FloatArray
    bandwidth: float

    def sticks(self, e: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray] | None:
        """Of all e; None where the points are too many bandwidths apart."""
        scale = 0.5 ** float(np.floor(np.log2(self.bandwidth)))  # a power of two: nothing is rounded
        points, without = np.sort(self.points * scale), np.sort(self.without * scale, axis=1)
        for values in (points, without):
            if np.abs(values[np.isfinite(values)]).max(initial=0.0) > _FARTHEST:
                return None
        assert compiled.epanechnikov is not None, "`serves` said so"
        return compiled.epanechnikov(points, without, self.bandwidth * scale, np.ascontiguousarray(e))
