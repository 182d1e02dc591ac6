"""`NoiseKernel`: noise as the judge sees it, and what it hides by itself, whatever the data are.

An answer x is published as x + Y. With a `step` it is rounded to a multiple of it and Y is drawn from the discrete law
on these multiples, as releases are: the bound is then about that law itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from empriv.base.arguments import one_of
from empriv.errors import InputError
from empriv.measuring.series.composition import gaussian_delta
from empriv.results import FloatArray

KINDS = ("laplace", "gaussian")
_REACH = 12.0  # standard deviations of discrete Gaussian noise that are added up
_WIDE = 4096  # steps: Gaussian noise of a larger scale is as good as continuous
_ROUNDING = 1e-9  # cells: a move of 3.0000000001 cells is one of 3


@dataclass(frozen=True)
class NoiseKernel:
    """Noise of one kind.

    Attributes
    ----------
    kind : "laplace" or "gaussian"
    scale : b of exp(-|y|/b), or the standard deviation, in the answer's units
    step : what released answers are multiples of; 0 for continuous noise
    """

    kind: str
    scale: float
    step: float = 0.0

    def __post_init__(self) -> None:
        one_of("kind", self.kind, KINDS)
        if not (math.isfinite(self.scale) and self.scale > 0):
            raise InputError(f"`scale` must be positive and finite, got {self.scale:g}.")

    def of_scale(self, scale: float) -> NoiseKernel:
        return replace(self, scale=scale)

    @property
    def error(self) -> float:
        """Mean absolute noise: b for Laplace, sqrt(2/pi) sd for Gaussian."""
        return self.scale if self.kind == "laplace" else self.scale * math.sqrt(2 / math.pi)

    def rounded(self, x: FloatArray) -> FloatArray:
        """Answers as they are before noise is added."""
        return np.asarray(np.rint(x / self.step) * self.step) if self.step else x


def alone(kernel: NoiseKernel, epsilons: npt.ArrayLike, move: npt.ArrayLike) -> FloatArray:
    """Hockey stick at epsilon of the noise and the noise moved: what it leaves of any law, given nothing but the move.

    Arguments are broadcast. Laplace: 1 - exp((epsilon - d/b)/2). Gaussian: `gaussian_delta` of d/s. On a lattice, sums
    over cells, d rounded up to them.
    """
    epsilon, move = np.broadcast_arrays(np.asarray(epsilons, float), np.abs(np.asarray(move, float)))
    if kernel.step and (kernel.kind == "laplace" or kernel.scale < _WIDE * kernel.step):
        return _alone_on_lattice(kernel, epsilon, move)
    if kernel.step:
        move = np.ceil(move / kernel.step - _ROUNDING) * kernel.step
    d = move / kernel.scale
    if kernel.kind == "laplace":
        return np.asarray(np.maximum(0.0, -np.expm1(np.minimum(0.0, (epsilon - d) / 2))))
    return gaussian_delta(d, epsilon)


def _alone_on_lattice(kernel: NoiseKernel, epsilon: FloatArray, move: FloatArray) -> FloatArray:
    """The ratio of the noise to itself m cells on falls in k, so that the best set is k <= last: sums up to there."""
    cells, unit = np.ceil(move / kernel.step - _ROUNDING), kernel.step / kernel.scale
    with np.errstate(divide="ignore", invalid="ignore"):
        if kernel.kind == "laplace":  # P(k)/P(k - m) = exp((m - 2k) unit) for 0 <= k <= m
            last = np.ceil((cells - epsilon / unit) / 2) - 1
        else:  # exp((m^2 - 2 k m) unit^2 / 2)
            last = np.ceil(cells / 2 - epsilon / (unit**2 * cells)) - 1
    last = np.where(cells > 0, last, -np.inf)
    if kernel.kind == "laplace":
        rest = np.exp(-unit * (np.maximum(last, 0) + 1)) + np.exp(epsilon - unit * (cells - np.maximum(last, 0)))
        stick = 1 - rest / (1 + math.exp(-unit))
        return np.asarray(np.where((cells * unit > epsilon) & (last >= 0), np.maximum(stick, 0.0), 0.0))
    far = math.ceil(_REACH / unit) + 2
    weights = np.exp(-0.5 * (np.arange(-far, far + 1) * unit) ** 2)
    sums = np.concatenate(([0.0], np.cumsum(weights / weights.sum())))

    def up_to(k: FloatArray) -> FloatArray:
        return np.asarray(sums[np.clip(np.nan_to_num(k, nan=-far - 1) + far + 1, 0, 2 * far + 1).astype(np.int64)])

    return np.asarray(np.maximum(0.0, up_to(last) - np.exp(epsilon) * up_to(last - cells)))


def classical(epsilon: float, delta: float, reach: float, kind: str = "laplace", step: float = 0.0) -> NoiseKernel:
    """The least noise that hides any move up to ``reach`` at (epsilon, delta), whatever the data are.

    ``reach`` is positive, and epsilon or delta is; Gaussian noise needs a delta.

    Laplace: b = reach/(epsilon - 2 log(1 - delta)), which is 1/epsilon for delta = 0; Gaussian: the analytic mechanism.
    With a step, of the discrete law. Continuous noise is a billionth wider: rounding must not make it too narrow.
    """

    def enough(scale: float) -> bool:
        return float(alone(NoiseKernel(kind, scale, step), epsilon, reach)) <= delta

    if kind == "laplace" and not step:
        return NoiseKernel(kind, reach / (epsilon - 2 * math.log1p(-delta)) * (1 + 1e-12))
    low, high = reach * 1e-3, reach
    while not enough(high):
        low, high = high, 2 * high
    for _ in range(60):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if enough(middle) else (middle, high)
    return NoiseKernel(kind, high if step else high * (1 + 1e-9), step)


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
