"""Slow, obvious versions of what `empriv.measure` computes, and closed forms: the witnesses of the tests.

Written from the mathematics, not from the library. There are three ways to the hockey stick
``H_eps(a, b) = ∫ (a - e^eps b)_+`` of two mixtures of one kernel, and they are tested against one another:

* `LaplacePair`: one Laplace bandwidth, in mpmath with 60 digits; absolute error below 1e-50.
* `mixture_curve`: any kernel, any bandwidths, in doubles: signs on a fine mesh, near-tangencies looked at again, roots
  bisected to the last bit, then differences of distribution functions. An error in a root counts squared, so
  the absolute error is that of the sums, below 1e-15 e^eps, and of what lies beyond the mesh, below 1e-14.
* `hockey_stick_by_quadrature`: adaptive quadrature between all knots; absolute error about 1e-11 on moderate ranges.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import mpmath as mp
import numpy as np
import numpy.typing as npt
from scipy import integrate, optimize, special

Array = npt.NDArray[np.float64]

# --------------------------------------------------------------------------------------------------------- kernels

PDF: dict[str, Callable[[Array], Array]] = {
    "laplace": lambda z: 0.5 * np.exp(-np.abs(z)),
    "gaussian": lambda z: np.exp(-0.5 * z * z) / math.sqrt(2 * math.pi),
    "logistic": lambda z: np.exp(-np.abs(z)) / (1 + np.exp(-np.abs(z))) ** 2,
    "epanechnikov": lambda z: np.where(np.abs(z) < 1, 0.75 * (1 - z * z), 0.0),
    "student": lambda z: 0.375 * (1 + z * z / 4) ** -2.5,
}


def _student_cdf(z: Array) -> Array:
    # F(z) = 1/2 + 3/8 s (1 - s²/12), s = z / sqrt(1 + z²/4)
    s = z / np.sqrt(1 + z * z / 4)
    return 0.5 + 0.375 * s * (1 - s * s / 12)


def _epanechnikov_cdf(z: Array) -> Array:
    z = np.clip(z, -1, 1)
    return (2 + 3 * z - z**3) / 4


CDF: dict[str, Callable[[Array], Array]] = {
    "laplace": lambda z: np.where(z < 0, 0.5 * np.exp(-np.abs(z)), 1 - 0.5 * np.exp(-np.abs(z))),
    "gaussian": special.ndtr,
    "logistic": special.expit,
    "epanechnikov": _epanechnikov_cdf,
    "student": _student_cdf,
}

# Where to look, in bandwidths from a kernel's centre: fine near it, out to where less than 1e-15 of its mass is left.
MESH: dict[str, Array] = {
    "laplace": 0.5 * np.sinh(np.linspace(-5.2, 5.2, 401)),
    "gaussian": np.linspace(-9, 9, 361),
    "logistic": 0.5 * np.sinh(np.linspace(-5.2, 5.2, 401)),
    "epanechnikov": np.linspace(-1, 1, 101),
    "student": 0.5 * np.sinh(np.linspace(-10.7, 10.7, 601)),
}


def mixture_pdf(kernel: str, points: npt.ArrayLike, bandwidths: npt.ArrayLike, x: npt.ArrayLike) -> Array:
    """The mean over j of ``k((x - q_j)/h_j)/h_j``."""
    centres = np.ravel(np.asarray(points, float))
    h = np.broadcast_to(np.asarray(bandwidths, float), centres.shape)
    z = (np.asarray(x, float)[..., None] - centres) / h
    return (PDF[kernel](z) / h).mean(axis=-1)


# ----------------------------------------------------------------------- hockey sticks of any mixtures, in doubles


def mixture_curve(
    kernel: str, q: npt.ArrayLike, q_i: npt.ArrayLike, bandwidths: npt.ArrayLike
) -> Callable[[float], tuple[float, float]]:
    """A function from epsilon to ``H_eps(p, p_i), H_eps(p_i, p)``; the mesh is laid once for all epsilons."""
    a, b = np.ravel(np.asarray(q, float)), np.ravel(np.asarray(q_i, float))
    h = np.broadcast_to(np.asarray(bandwidths, float), a.shape)
    there = [_Stretch(kernel, a, b, h, anchor, mesh) for anchor, mesh in _meshes(kernel, a, b, h)]
    back = [_Stretch(kernel, b, a, h, part.anchor, part.mesh) for part in there]

    def curve(epsilon: float) -> tuple[float, float]:
        factor = math.exp(epsilon)
        return math.fsum(part.positive(factor) for part in there), math.fsum(part.positive(factor) for part in back)

    return curve


def delta_of(
    kernel: str, q: npt.ArrayLike, q_i: npt.ArrayLike, bandwidths: npt.ArrayLike, epsilons: Sequence[float]
) -> Array:
    """Theorem 1 at each epsilon: the larger of the two hockey sticks."""
    curve = mixture_curve(kernel, q, q_i, bandwidths)
    return np.array([max(curve(epsilon)) for epsilon in epsilons])


def epsilon_of(curve: Callable[[float], tuple[float, float]], delta: float, upper: float = 20.0) -> float:
    """The smallest epsilon with ``max(curve(epsilon)) <= delta`` by bisection; inf if there is none up to `upper`.

    Beyond 20 the rounding of `mixture_curve`, which grows with e^epsilon, is no longer small against likely deltas.
    """
    if max(curve(0.0)) <= delta:
        return 0.0
    if max(curve(upper)) > delta:
        return math.inf
    low, high = 0.0, upper
    for _ in range(36):  # to 3e-10
        middle = (low + high) / 2
        if max(curve(middle)) <= delta:
            high = middle
        else:
            low = middle
    return high


def largest_log_ratio(kernel: str, q: npt.ArrayLike, q_i: npt.ArrayLike, bandwidths: npt.ArrayLike) -> float:
    """``sup |log p/p_i|`` over the mesh, its best cells searched again.

    For data of moderate range, and kernels whose tails keep the ratio bounded.
    """
    a, b = np.ravel(np.asarray(q, float)), np.ravel(np.asarray(q_i, float))
    h = np.broadcast_to(np.asarray(bandwidths, float), a.shape)

    def ratio(x: npt.ArrayLike) -> Array:
        return np.abs(np.log(mixture_pdf(kernel, a, h, x) / mixture_pdf(kernel, b, h, x)))

    ((anchor, mesh),) = _meshes(kernel, a, b, h)
    values = ratio(anchor + mesh)
    best = float(values.max())
    for top in np.argsort(values)[-5:]:
        low, high = mesh[max(top - 1, 0)], mesh[min(top + 1, mesh.size - 1)]
        found = optimize.minimize_scalar(
            lambda x: -float(ratio(anchor + x)), bounds=(low, high), method="bounded", options={"xatol": 1e-12}
        )
        best = max(best, -float(found.fun))
    return best


def _meshes(kernel: str, a: Array, b: Array, h: Array) -> list[tuple[float, Array]]:
    """Clusters out of one another's reach, each as an anchor and a mesh of offsets from it.

    Offsets keep their digits however far from zero the data lie: ``anchor - q_j`` is rounded once, relative to itself.
    """
    mesh = MESH[kernel]
    points, widths = np.concatenate([a, b]), np.concatenate([h, h])
    order = np.argsort(points, kind="stable")
    points, widths = points[order], widths[order]
    cuts = np.flatnonzero(np.diff(points) > 2 * mesh[-1] * h.max()) + 1
    found = []
    for centres, scales in zip(np.split(points, cuts), np.split(widths, cuts), strict=True):
        anchor = float(centres[0])
        pairs = np.unique(np.stack([centres - anchor, scales]), axis=1)
        found.append((anchor, np.unique(pairs[0][:, None] + pairs[1][:, None] * mesh)))
    return found


class _Stretch:
    """``g = a - factor b`` near one cluster, pair by pair so that equal pairs cancel exactly."""

    def __init__(self, kernel: str, a: Array, b: Array, h: Array, anchor: float, mesh: Array) -> None:
        self.pdf, self.cdf, self.h, self.anchor, self.mesh = PDF[kernel], CDF[kernel], h, anchor, mesh
        self.a, self.b, self.same = anchor - a, anchor - b, a == b
        # Sums of the density over changed pairs of each side and over unchanged pairs, at every mesh point.
        parts = [self._sums(chunk) for chunk in np.array_split(mesh, max(1, mesh.size * a.size // 2_000_000))]
        self.on_mesh = tuple(np.concatenate(column) for column in zip(*parts, strict=True))

    def _sums(self, t: Array) -> tuple[Array, Array, Array]:
        changed, n = ~self.same, self.h.size
        h = self.h[changed]
        of_a = (self.pdf((t[:, None] + self.a[changed]) / h) / h).sum(axis=1) / n
        of_b = (self.pdf((t[:, None] + self.b[changed]) / h) / h).sum(axis=1) / n
        kept = self.h[self.same]
        of_both = (self.pdf((t[:, None] + self.a[self.same]) / kept) / kept).sum(axis=1) / n
        return of_a, of_b, of_both

    @staticmethod
    def _g(sums: tuple[Array, Array, Array], factor: float) -> Array:
        return sums[0] - factor * sums[1] + (1 - factor) * sums[2]

    def positive(self, factor: float) -> float:
        """Integral of the positive part of ``a - factor b``."""
        t, g = self.mesh, self._g(self.on_mesh, factor)
        t, g = self._with_hidden_extremes(t, g, factor)
        sign = g > 0
        turns = np.flatnonzero(sign[1:] != sign[:-1])
        roots = self._bisect(t[turns], t[turns + 1], sign[turns], factor)
        ends = np.concatenate([t[:1] if sign[0] else [], roots, t[-1:] if sign[-1] else []])
        if ends.size == 0:
            return 0.0
        mass = self._mass(ends, factor)
        return math.fsum(mass[1::2] - mass[::2])

    def _with_hidden_extremes(self, t: Array, g: Array, factor: float) -> tuple[Array, Array]:
        """Add the extremes at which g may touch or cross zero between two mesh points of the same sign."""
        inner, before, after = g[1:-1], g[:-2], g[2:]
        bend = np.abs(before - inner) + np.abs(after - inner)
        hidden_top = (inner <= 0) & (inner >= before) & (inner >= after) & (np.abs(inner) <= bend)
        hidden_dip = (inner > 0) & (inner <= before) & (inner <= after) & (np.abs(inner) <= bend)
        looked: list[float] = []
        for k in np.flatnonzero((hidden_top | hidden_dip) & (bend > 1e-14 * np.abs(g).max(initial=0.0))):
            turn = -1.0 if inner[k] <= 0 else 1.0

            def height(x: float, turn: float = turn) -> float:
                return turn * float(self._g(self._sums(np.array([x])), factor)[0])

            best = optimize.minimize_scalar(height, bounds=(t[k], t[k + 2]), method="bounded", options={"xatol": 1e-14})
            looked.append(float(best.x))
        if not looked:
            return t, g
        t = np.unique(np.concatenate([t, looked]))
        return t, self._g(self._sums(t), factor)

    def _bisect(self, low: Array, high: Array, starts_positive: npt.NDArray[np.bool_], factor: float) -> Array:
        for _ in range(70):
            middle = (low + high) / 2
            if np.all((middle == low) | (middle == high)):
                break
            stays = (self._g(self._sums(middle), factor) > 0) == starts_positive
            low, high = np.where(stays, middle, low), np.where(stays, high, middle)
        return (low + high) / 2

    def _mass(self, t: Array, factor: float) -> Array:
        changed, n = ~self.same, self.h.size
        of_a = self.cdf((t[:, None] + self.a[changed]) / self.h[changed]).sum(axis=1)
        of_b = self.cdf((t[:, None] + self.b[changed]) / self.h[changed]).sum(axis=1)
        of_both = self.cdf((t[:, None] + self.a[self.same]) / self.h[self.same]).sum(axis=1)
        return (of_a - factor * of_b + (1 - factor) * of_both) / n


def hockey_stick_by_quadrature(
    kernel: str, a: npt.ArrayLike, b: npt.ArrayLike, bandwidths: npt.ArrayLike, epsilon: float
) -> float:
    """``H_eps(a, b)`` by adaptive quadrature of the positive part, split at every knot and turn of sign."""
    left, right = np.ravel(np.asarray(a, float)), np.ravel(np.asarray(b, float))
    h = np.broadcast_to(np.asarray(bandwidths, float), left.shape)
    factor = math.exp(epsilon)

    def g(x: float) -> float:
        return float(mixture_pdf(kernel, left, h, x) - factor * mixture_pdf(kernel, right, h, x))

    reach = MESH[kernel][-1]
    offsets = np.array([-reach, -30, -10, -3, -1, 0, 1, 3, 10, 30, reach])
    offsets = offsets[np.abs(offsets) <= reach]
    knots = np.unique((np.concatenate([left, right])[:, None] + np.concatenate([h, h])[:, None] * offsets).ravel())
    look = np.unique(np.concatenate([np.linspace(x, y, 12) for x, y in itertools.pairwise(knots)]))
    values = [g(x) for x in look]
    turns = [
        optimize.brentq(g, x, y, xtol=1e-15, rtol=1e-15)
        for x, y, u, v in zip(look, look[1:], values, values[1:], strict=False)
        if u * v < 0
    ]
    pieces = np.unique(np.concatenate([knots, turns]))
    return math.fsum(
        integrate.quad(lambda x: max(g(x), 0.0), x, y, epsabs=1e-15, epsrel=1e-10, limit=50)[0]
        for x, y in itertools.pairwise(pieces)
        if max(g(x + (y - x) * s) for s in (0.02, 0.25, 0.5, 0.75, 0.98)) > 0
    )


# -------------------------------------------------------------------- one Laplace bandwidth, to the last of 60 digits


class LaplacePair:
    """Two Laplace mixtures of one bandwidth, in mpmath; every double is taken as the exact number that it is.

    Between knots each density is ``L t + R/t`` with ``t = exp(-x/h)``, so that their ratio is monotone there
    (a Möbius map of t²): the sign of ``a - e^eps b`` turns at most once between knots and never in the two tails.
    """

    def __init__(self, q: npt.ArrayLike, q_i: npt.ArrayLike, bandwidth: float, digits: int = 60) -> None:
        self.digits = digits
        with mp.workdps(digits):
            self.h = mp.mpf(float(bandwidth))
            self.sides = tuple([mp.mpf(float(x)) for x in np.ravel(np.asarray(side, float))] for side in (q, q_i))
            self.n = len(self.sides[0])
            self.knots = sorted(set(self.sides[0]) | set(self.sides[1]))
            self.rising, self.falling, self.density = [], [], []
            for x in self.knots:
                # Mass to the left of x (and at it), which falls as x grows, and to the right of x, which rises.
                falling = [sum(mp.exp((y - x) / self.h) for y in side if y <= x) for side in self.sides]
                rising = [sum(mp.exp((x - y) / self.h) for y in side if y > x) for side in self.sides]
                self.falling.append(falling)
                self.rising.append(rising)
                self.density.append([(f + r) / (2 * self.h * self.n) for f, r in zip(falling, rising, strict=True)])

    def hockey_stick(self, epsilon: float, first: int = 0) -> Any:
        """``H_eps`` of side `first` over the other, as an mpf."""
        other = 1 - first
        with mp.workdps(self.digits):
            factor = mp.exp(mp.mpf(float(epsilon)))
            g = [d[first] - factor * d[other] for d in self.density]
            total = self.h * (max(g[0], 0) + max(g[-1], 0))  # the tails: e^(x/h) and e^(-x/h)
            ends = [] if g[0] <= 0 else [self.knots[0]]
            for k in range(len(self.knots) - 1):
                if (g[k] > 0) != (g[k + 1] > 0):
                    ends.append(self._root(k, factor, first))
            if g[-1] > 0:
                ends.append(self.knots[-1])
            for low, high in zip(ends[::2], ends[1::2], strict=True):
                total += self._mass(high, factor, first) - self._mass(low, factor, first)
            return total

    def delta(self, epsilon: float) -> Any:
        """The larger of the two hockey sticks, as an mpf."""
        return max(self.hockey_stick(epsilon, 0), self.hockey_stick(epsilon, 1))

    def largest_log_ratio(self) -> Any:
        """``sup |log p/p_i|``, at the knots and, to be sure that no more is between them, at 4 points in each gap."""
        with mp.workdps(self.digits):
            at_knots = max(abs(mp.log(a / b)) for a, b in self.density)
            for low, high in zip(self.knots, self.knots[1:], strict=False):
                for step in range(1, 5):
                    a, b = self._densities(low + (high - low) * step / 5)
                    assert abs(mp.log(a / b)) <= at_knots * (1 + mp.mpf(10) ** -40)
            return at_knots

    def _densities(self, x: Any) -> list[Any]:
        return [sum(mp.exp(-abs(x - y) / self.h) for y in side) / (2 * self.h * self.n) for side in self.sides]

    def _root(self, k: int, factor: Any, first: int) -> Any:
        falling = self.falling[k][first] - factor * self.falling[k][1 - first]
        rising = self.rising[k][first] - factor * self.rising[k][1 - first]
        if falling == 0 or rising == 0:  # a zero at a knot itself
            return self.knots[k] if falling + rising <= 0 else self.knots[k + 1]
        # falling e^(-s/h) + rising e^(s/h) = 0
        root = self.knots[k] + self.h * mp.log(-falling / rising) / 2
        a, b = self._densities(root)[first], self._densities(root)[1 - first]
        assert abs(a - factor * b) <= mp.mpf(10) ** -45 * (a + factor * b)
        return min(max(root, self.knots[k]), self.knots[k + 1])

    def _mass(self, x: Any, factor: Any, first: int) -> Any:
        def below(side: list[Any]) -> Any:
            tails = (mp.exp(-abs(x - y) / self.h) / 2 for y in side)
            return sum(tail if x < y else 1 - tail for tail, y in zip(tails, side, strict=True)) / self.n

        return below(self.sides[first]) - factor * below(self.sides[1 - first])


# ------------------------------------------------------------------------------------------------------ closed forms


def gaussian_shift(shift: float, sd: float, epsilon: float) -> float:
    """delta of N(0, sd²) against N(shift, sd²): Φ(a/2 - ε/a) - e^ε Φ(-a/2 - ε/a), a = |shift|/sd."""
    a = abs(shift) / sd
    if a == 0:
        return 0.0
    return float(special.ndtr(a / 2 - epsilon / a) - math.exp(epsilon) * special.ndtr(-a / 2 - epsilon / a))


def laplace_shift(shift: float, scale: float, epsilon: float) -> float:
    """delta of Laplace(0, scale) against Laplace(shift, scale): 1 - exp((ε - |shift|/scale)/2) where positive."""
    return max(0.0, -math.expm1((epsilon - abs(shift) / scale) / 2))


def smoothed_laplace_shift(shift: float, scale: float, bandwidth: float, epsilon: float) -> float:
    """The same for Laplace(scale) data under a Laplace(bandwidth) kernel, scale ≠ bandwidth, shift > 0.

    ``L_s * L_h = (s² L_s - h² L_h)/(s² - h²)`` is log-concave, so the likelihood ratio of a shift is monotone and
    the best set is a half line, up to the point t with f(t) = e^ε f(t - shift).
    """
    u, v = scale**2 / (scale**2 - bandwidth**2), bandwidth**2 / (scale**2 - bandwidth**2)

    def log_f(x: float) -> float:
        # The wider of the two is taken out, so that the tails do not underflow.
        wide = max(scale, bandwidth)
        terms = u / scale * math.exp(abs(x) * (1 / wide - 1 / scale)) - v / bandwidth * math.exp(
            abs(x) * (1 / wide - 1 / bandwidth)
        )
        return math.log(terms / 2) - abs(x) / wide

    def below(x: float) -> float:
        return float(u * CDF["laplace"](np.float64(x / scale)) - v * CDF["laplace"](np.float64(x / bandwidth)))

    def excess(x: float) -> float:
        return log_f(x) - log_f(x - shift) - epsilon

    far = 60 * max(scale, bandwidth) + shift
    if excess(-far) <= 0:
        return 0.0
    turn = optimize.brentq(excess, -far, far, xtol=1e-14)
    return below(turn) - math.exp(epsilon) * below(turn - shift)


def counterexample(bandwidth: float, epsilon: float) -> tuple[float, float]:
    """delta and largest log ratio for A = nine 0 and one 10, B = one 0 and nine 10, Laplace kernel (Proposition 1).

    ``p - e^ε p_i = u L(x) - v L(x - 10)``, u = .9 - .1 e^ε, v = .9 e^ε - .1, positive up to x = (10 - h log(v/u))/2.
    """
    w = math.exp(-10 / bandwidth)
    largest = math.log((9 + w) / (1 + 9 * w))
    if epsilon >= largest:
        return 0.0, largest
    u, v = 0.9 - 0.1 * math.exp(epsilon), 0.9 * math.exp(epsilon) - 0.1
    turn = (10 - bandwidth * math.log(v / u)) / 2
    cdf = CDF["laplace"]
    return float(u * cdf(np.float64(turn / bandwidth)) - v * cdf(np.float64((turn - 10) / bandwidth))), largest


# --------------------------------------------------------------------------------------------------------- selection


def leave_one_out_terms(kernel: str, q: npt.ArrayLike, h: float) -> Array:
    """log of the density at each point from the points that differ from it: tied partners are left out of the sum."""
    values = np.asarray(q, float)
    density = []
    for x in values:
        others = values[values != x]
        density.append(np.sum(PDF[kernel]((x - others) / h) / h) / others.size)
    with np.errstate(divide="ignore"):  # no other result within reach: minus infinity
        return np.log(density)


def bandwidth_cap(q: npt.ArrayLike) -> float:
    """0.74·1.06·min(sd, IQR/1.349)·n^(-1/5), as VALIDITY.md has it for the Laplace kernel."""
    values = np.asarray(q, float)
    low, high = np.percentile(values, [25, 75])
    spread = min(float(values.std(ddof=1)), float(high - low) / 1.349)
    return 0.74 * 1.06 * spread * values.size ** (-1 / 5)


def bandwidth_grid(q: npt.ArrayLike) -> Array:
    """24 log-spaced bandwidths from 0.02 to 1 times the cap."""
    return bandwidth_cap(q) * np.geomspace(0.02, 1, 24)


def one_standard_error_bandwidth(q: npt.ArrayLike, kernel: str = "laplace") -> float:
    """The largest h of the grid whose leave-one-out likelihood is within one paired standard error of the best."""
    grid = bandwidth_grid(q)
    terms = np.array([leave_one_out_terms(kernel, q, h) for h in grid])
    totals = terms.sum(axis=1)
    best = int(np.argmax(totals))
    n = terms.shape[1]
    chosen = grid[best]
    for h, row, total in zip(grid, terms, totals, strict=True):
        if not np.isfinite(total):
            continue
        standard_error = math.sqrt(n) * float(np.std(terms[best] - row, ddof=1))
        if total >= totals[best] - standard_error:
            chosen = max(chosen, h)
    return float(chosen)


def neighbour_distances(q: npt.ArrayLike, neighbours: int) -> Array:
    """Distance from each point to its k-th nearest among the other values (each distinct value counted once)."""
    values = np.asarray(q, float)
    return np.array([np.sort(np.abs(np.unique(values[values != x]) - x))[neighbours - 1] for x in values])


def discrete_hockey_stick(a: npt.ArrayLike, b: npt.ArrayLike, epsilon: float) -> float:
    """The larger hockey stick of two discrete laws on the same outcomes."""
    p, r = np.asarray(a, float), np.asarray(b, float)
    factor = math.exp(epsilon)
    return float(max(np.maximum(p - factor * r, 0).sum(), np.maximum(r - factor * p, 0).sum()))
