"""What the paper's section on noise gets wrong, in numbers: docs/errata.md. Run: python examples/errata.py"""

from __future__ import annotations

import numpy as np

import empriv
from empriv.noise.deconvolution import hausdorff


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


def gaussian() -> None:
    """The quotient of transforms exp(s^2 w^2/2)/(1 + l^2 w^2), cut off at a frequency and inverted."""
    scale = 1.0
    print("\nGaussian kernel: noise h with k * h = Laplace(1), by Fourier division on [-20, 20], cut off where the")
    print("quotient is least. No density h exists: its characteristic function would have to exceed 1.")
    print("  sigma/lambda  |transform| exceeds 1 from  negative mass  E|noise| after clipping, over Laplace's")
    for sigma in (0.002, 0.1, 0.3):
        step = sigma / 32
        length = 2 * round(20 * scale / step)  # from -20 to 20: the ringing of a cut-off dies away slowly
        frequency = 2 * np.pi * np.fft.rfftfreq(length, step)
        cut = np.sqrt(2 / sigma**2 - 1 / scale**2)
        inside = frequency <= cut
        transform = np.zeros(len(frequency))
        transform[inside] = np.exp(0.5 * (sigma * frequency[inside]) ** 2) / (1 + (scale * frequency[inside]) ** 2)
        masses = np.fft.irfft(transform, length)
        x = step * np.minimum(np.arange(length), length - np.arange(length))
        negative = -masses[masses < 0].sum()
        clipped = np.maximum(masses, 0.0)
        clipped /= clipped.sum()
        # exp(s^2 w^2/2) = 1 + l^2 w^2 has one positive root; beyond it no characteristic function can be.
        low, high = np.sqrt(2.0) * scale / sigma * 0.5, 40.0 / sigma
        for _ in range(200):
            middle = 0.5 * (low + high)
            above = 0.5 * (sigma * middle) ** 2 > np.log1p((scale * middle) ** 2)
            low, high = (low, middle) if above else (middle, high)
        print(f"  {sigma:<12g}  {high:<26.4g}  {negative:<13.3g}  {(clipped * x).sum() / scale:.3f}")


if __name__ == "__main__":
    proposition()
    gaussian()
