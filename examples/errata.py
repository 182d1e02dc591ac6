"""What the paper's section on noise gets wrong, in numbers: docs/method.md. Run: python examples/errata.py"""

from __future__ import annotations

import numpy as np

import empriv
from empriv.noise.paper import hausdorff


def proposition() -> None:
    """Two sets at Hausdorff distance 0 whose Laplace densities differ by a factor of 9."""
    a = np.array([0.0] * 9 + [10.0])
    b = np.array([0.0] + [10.0] * 9)
    epsilon = 0.5
    print("Proposition: lambda >= d_H(A, B)/epsilon keeps epsilon.  A = {0 nine times, 10}, B = {0, 10 nine times}")
    print(f"  Hausdorff distance {hausdorff(a, b):g}, bottleneck distance {np.abs(np.sort(a) - np.sort(b)).max():g}")
    for scale in (0.1, 1.0):
        found = empriv.measure(a, b[None, :], density=empriv.Kde("laplace", scale)).epsilon()
        print(f"  Laplace densities of scale {scale:g}: epsilon {found:.3f} (e^epsilon = {np.exp(found):.2f})")
    scale = 10.0 / epsilon
    found = empriv.measure(a, b[None, :], density=empriv.Kde("laplace", scale)).epsilon()
    print(f"  Laplace densities of scale {scale:g} = bottleneck/{epsilon:g}: epsilon {found:.3f}")


def inverted(sigma: float, *, cut: float, window: float) -> tuple[float, float]:
    """Negative mass, and E|noise| after clipping it, of the quotient cut off at ``cut`` times its lowest point.

    The quotient exp(s^2 w^2/2)/(1 + w^2) is inverted on [-window, window]; lambda = 1.
    """
    step = sigma / 32
    length = 2 * round(window / step)
    frequency = 2 * np.pi * np.fft.rfftfreq(length, step)
    inside = frequency <= cut * np.sqrt(2 / sigma**2 - 1)
    transform = np.zeros(len(frequency))
    transform[inside] = np.exp(0.5 * (sigma * frequency[inside]) ** 2) / (1 + frequency[inside] ** 2)
    masses = np.fft.irfft(transform, length)
    x = step * np.minimum(np.arange(length), length - np.arange(length))
    clipped = np.maximum(masses, 0.0)
    return float(-masses[masses < 0].sum()), float((clipped * x).sum() / clipped.sum())


def gaussian() -> None:
    """The quotient of transforms, cut off at its lowest point and inverted."""
    print("\nGaussian kernel: noise h with k * h = Laplace(1), by Fourier division on [-20, 20], cut off where the")
    print("quotient is least. No density h exists: its characteristic function would have to exceed 1.")
    print("  sigma/lambda  |transform| exceeds 1 from  negative mass  E|noise| after clipping, over Laplace's")
    for sigma in (0.002, 0.1, 0.3):
        negative, error = inverted(sigma, cut=1.0, window=20.0)
        # exp(s^2 w^2/2) = 1 + w^2 has one positive root; beyond it no characteristic function can be.
        low, high = np.sqrt(2.0) / sigma * 0.5, 40.0 / sigma
        for _ in range(200):
            middle = 0.5 * (low + high)
            above = 0.5 * (sigma * middle) ** 2 > np.log1p(middle**2)
            low, high = (low, middle) if above else (middle, high)
        print(f"  {sigma:<12g}  {high:<26.4g}  {negative:<13.3g}  {error:.3f}")


def choices() -> None:
    """How much the clipped law depends on where the quotient is cut off, and on how long a window it is inverted."""
    windows = (20.0, 80.0, 320.0)
    print("\nE|noise| after clipping, over Laplace's, by cut-off (in places of the lowest point) and window")
    print("  sigma/lambda  cut-off  " + "".join(f"[-{w:g}, {w:g}]".ljust(14) for w in windows))
    for sigma in (0.1, 0.3):
        for cut in (0.5, 1.0, 1.5, 2.0, 3.0):
            found = [inverted(sigma, cut=cut, window=window)[1] for window in windows]
            print(f"  {sigma:<12g}  {cut:<7g}  " + "".join(f"{one:<14.3g}" for one in found))


if __name__ == "__main__":
    proposition()
    gaussian()
    choices()
