"""`kernel_of`: the noise that somebody names, as the judge takes it."""

from __future__ import annotations

import math
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np

from empriv.errors import InputError
from empriv.judge.noise_kernels import KINDS, NoiseKernel


@runtime_checkable
class HasKernel(Protocol):
    """Noise of one kind, such as a `Noise`."""

    @property
    def kernel(self) -> str: ...

    @property
    def scale(self) -> float: ...


NoiseGiven: TypeAlias = float | HasKernel


def kernel_of(noise: NoiseGiven) -> tuple[NoiseKernel | None, float | None]:
    """The kernel, None for no noise; and the most that anybody may move the answer, where the noise declares it."""
    kind, step, reach = "laplace", 0.0, None
    if isinstance(noise, HasKernel):
        kind, scale = noise.kernel, float(noise.scale)
        step, reach = float(getattr(noise, "step", 0.0) or 0.0), getattr(noise, "bound", None)
    elif isinstance(noise, int | float | np.integer | np.floating) and not isinstance(noise, bool):
        scale = float(noise)
    else:
        raise InputError(f"`noise` must be a scale, noise with a kernel and a scale, or 0, got {type(noise).__name__}.")
    if not (math.isfinite(scale) and scale >= 0):
        raise InputError(f"`noise` must have a scale that is finite and not negative, got {scale:g}.")
    if kind not in KINDS:
        raise InputError(f"`noise` must have one of the kernels {', '.join(KINDS)}, got {kind!r}.")
    return (None if scale == 0 else NoiseKernel(kind, scale, step)), (None if reach is None else float(reach))
