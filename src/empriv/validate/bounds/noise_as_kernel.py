"""`kernel_of` and `kernels_of`: the noise that somebody names, of one number or of each cell, as the judge takes it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

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


@runtime_checkable
class HasCellNoise(Protocol):
    """Noise of several numbers, such as a `TableNoise`: one kernel for each by name, None where there is none."""

    @property
    def cell_kernels(self) -> Mapping[str, NoiseKernel | None]: ...


NoiseGiven: TypeAlias = float | HasKernel | HasCellNoise | Mapping[str, float]


def is_noise(noise: Any) -> bool:
    """Whether there is any."""
    return not (isinstance(noise, int | float | np.integer | np.floating) and float(noise) == 0)


def kernels_of(noise: NoiseGiven, names: Sequence[str]) -> tuple[NoiseKernel | None, ...] | None:
    """The kernel of each of several numbers; None where nothing is added to any of them."""
    if isinstance(noise, HasCellNoise):
        given: Mapping[str, Any] = noise.cell_kernels
    elif isinstance(noise, Mapping):
        given = {name: kernel_of(scale)[0] for name, scale in noise.items()}
    else:
        given = dict.fromkeys(names, kernel_of(noise)[0])
    if set(given) != set(names):
        raise InputError(f"`noise` must hold each of the {len(names)} numbers by name, and no other.")
    kernels = tuple(given[name] for name in names)
    return None if all(kernel is None for kernel in kernels) else kernels


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
