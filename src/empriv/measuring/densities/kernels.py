"""Kernels: the shapes that densities are mixed from.

A kernel is a value in `KERNELS`; adding one there is all it takes, and the tests are parametrised over the table.
Every function is of the standardised ``z = (x - centre) / bandwidth``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from empriv.errors import InputError
from empriv.results import FloatArray

Function = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Kernel:
    """One symmetric probability density, and what the measuring needs to know of it.

    One of `empriv.KERNELS`; densities take them by name.

    Attributes
    ----------
    pdf, cdf : functions of z
        Density and distribution function.
    slope : function of z and of the density there
        Derivative of the density.
    log_lipschitz : float
        sup |d log pdf / dz|: by the mediant inequality, shifts of at most epsilon / log_lipschitz bandwidths
        keep every ratio of densities within e^epsilon. inf where there is no such bound.
    kinks : tuple of float
        Where the density or its slope jumps. The density is smooth between them.
    nodes : tuple of float
        Places (z >= 0, mirrored) dense enough that a ratio of mixtures turns at most once between neighbours.
    reach : float
        Beyond |z| = reach the kernel holds less than 1e-14 of its mass.
    canonical : float
        Bandwidth that smooths as much as a Gaussian of bandwidth 1 (Marron and Nolan, 1988): the ratio of
        ``(∫ k² / (∫ z² k)²)^(1/5)``.
    tail : str
        How log pdf falls far out: "bounded" (support ends), "gaussian", "exponential" (slope log_lipschitz),
        or "power". It decides the limit of the log ratio, hence epsilon at delta = 0.

    Examples
    --------
    >>> sorted(empriv.KERNELS)
    ['epanechnikov', 'gaussian', 'laplace', 'logistic', 'student']
    >>> kernel = empriv.KERNELS["laplace"]
    >>> float(kernel.cdf(np.array(0.0)))
    0.5
    """

    name: str
    pdf: Function
    slope: Callable[[FloatArray, FloatArray], FloatArray]
    cdf: Function
    log_lipschitz: float
    kinks: tuple[float, ...]
    nodes: tuple[float, ...]
    reach: float
    canonical: float
    tail: str

    def __reduce_ex__(self, protocol: Any) -> Any:
        # One of the table is sent by its name, and is the same one there.
        return (kernel_named, (self.name,)) if KERNELS.get(self.name) is self else super().__reduce_ex__(protocol)


def _laplace_pdf(z: FloatArray) -> FloatArray:
    return 0.5 * np.exp(-np.abs(z))


def _laplace_slope(z: FloatArray, pdf: FloatArray) -> FloatArray:
    return -np.sign(z) * pdf


def _laplace_cdf(z: FloatArray) -> FloatArray:
    half = 0.5 * np.exp(-np.abs(z))
    return np.where(z < 0, half, 1.0 - half)


_ROOT_TAU = float(np.sqrt(2 * np.pi))


def _gaussian_pdf(z: FloatArray) -> FloatArray:
    return np.exp(-0.5 * z * z) / _ROOT_TAU


def _gaussian_slope(z: FloatArray, pdf: FloatArray) -> FloatArray:
    return -z * pdf


def _gaussian_cdf(z: FloatArray) -> FloatArray:
    from scipy.special import ndtr

    return np.asarray(ndtr(z))


def _logistic_pdf(z: FloatArray) -> FloatArray:
    # sech^2(z/2)/4, written so that nothing overflows
    t = np.exp(-np.abs(z))
    return t / (1.0 + t) ** 2


def _logistic_slope(z: FloatArray, pdf: FloatArray) -> FloatArray:
    return -np.tanh(0.5 * z) * pdf


def _logistic_cdf(z: FloatArray) -> FloatArray:
    t = np.exp(-np.abs(z))
    return np.where(z < 0, t, 1.0) / (1.0 + t)


def _epanechnikov_pdf(z: FloatArray) -> FloatArray:
    return np.maximum(0.75 * (1.0 - z * z), 0.0)


def _epanechnikov_slope(z: FloatArray, pdf: FloatArray) -> FloatArray:
    return np.where(pdf > 0, -1.5 * z, 0.0)


def _epanechnikov_cdf(z: FloatArray) -> FloatArray:
    z = np.clip(z, -1.0, 1.0)
    return 0.25 * (2.0 - z) * (1.0 + z) ** 2


# Student's t with 4 degrees of freedom: 3/8 (1 + z^2/4)^(-5/2), cdf in closed form.
def _student_pdf(z: FloatArray) -> FloatArray:
    s = 1.0 + 0.25 * z * z
    return 0.375 / (s * s * np.sqrt(s))


def _student_slope(z: FloatArray, pdf: FloatArray) -> FloatArray:
    return -5.0 * z / (4.0 + z * z) * pdf


def _student_cdf(z: FloatArray) -> FloatArray:
    # With y = z/sqrt(4 + z^2): 1/2 + y(3 - y^2)/4 = (1 + y)^2 (2 - y)/4. The left tail 1 + y cancels: use 1 - y^2.
    root = np.sqrt(4.0 + z * z)
    y = np.abs(z) / root
    upper = (4.0 / (4.0 + z * z)) / (1.0 + y)  # 1 - |y|
    tail = 0.25 * upper * upper * (2.0 + y)
    return np.where(z < 0, tail, 1.0 - tail)


KERNELS: dict[str, Kernel] = {
    kernel.name: kernel
    for kernel in (
        Kernel(
            name="laplace",
            pdf=_laplace_pdf,
            slope=_laplace_slope,
            cdf=_laplace_cdf,
            log_lipschitz=1.0,
            kinks=(0.0,),
            nodes=(0.0, 1.0, 2.5, 5.0, 10.0),
            reach=33.0,
            canonical=0.74,
            tail="exponential",
        ),
        Kernel(
            name="gaussian",
            pdf=_gaussian_pdf,
            slope=_gaussian_slope,
            cdf=_gaussian_cdf,
            log_lipschitz=np.inf,
            kinks=(),
            nodes=(0.0, 0.4, 0.8, 1.2, 1.7, 2.3, 3.0, 4.0, 5.5),
            reach=7.9,
            canonical=1.0,
            tail="gaussian",
        ),
        Kernel(
            name="logistic",
            pdf=_logistic_pdf,
            slope=_logistic_slope,
            cdf=_logistic_cdf,
            log_lipschitz=1.0,
            kinks=(),
            nodes=(0.0, 0.6, 1.2, 1.8, 2.6, 3.5, 5.0, 8.0, 14.0),
            reach=33.0,
            canonical=0.559010,
            tail="exponential",
        ),
        Kernel(
            name="epanechnikov",
            pdf=_epanechnikov_pdf,
            slope=_epanechnikov_slope,
            cdf=_epanechnikov_cdf,
            log_lipschitz=np.inf,
            kinks=(-1.0, 1.0),
            nodes=(0.0, 0.5, 1.0),
            reach=1.0,
            canonical=2.213804,
            tail="bounded",
        ),
        Kernel(
            name="student",
            pdf=_student_pdf,
            slope=_student_slope,
            cdf=_student_cdf,
            log_lipschitz=1.25,  # (nu + 1) / (2 sqrt(nu)), at z = sqrt(nu)
            kinks=(),
            nodes=(0.0, 0.4, 0.8, 1.2, 1.7, 2.3, 3.2, 4.5, 7.0, 12.0, 25.0, 60.0, 200.0, 700.0),
            reach=3000.0,
            canonical=0.734732,
            tail="power",
        ),
    )
}


def kernel_named(name: str) -> Kernel:
    """The kernel of this name."""
    if name not in KERNELS:
        raise InputError(f"`kernel` must be one of {', '.join(KERNELS)}, got {name!r}.")
    return KERNELS[name]
