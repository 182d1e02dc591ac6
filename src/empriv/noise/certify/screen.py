"""Screening: individuals that a bound clears, so that only the others are convolved.

Pair j of individual i is one kernel at two places, d_ij apart, rounded and made noisy. Rounding is post-processing, and
so is adding noise; and two answers d apart, moved by the same amount and rounded, are at most ceil(d/g) cells apart.
So the largest log ratio of the pair under a part of the law is at most

    lambda = min(lip d/h, ceil(d/g) g/s)            lip: of log kernel; s: scale of a Laplace part, 0 for others.

No two laws within e^lambda of each other have a hockey stick above (e^lambda - e^eps)/(e^lambda + 1), that of
randomised response. By joint convexity, delta_i is at most the mean over pairs and the weighted mean over parts; by
the mediant inequality, the largest log ratio is at most the largest lambda. For Laplace kernels of one bandwidth all
parts together have a log-Lipschitz constant of their own (`_steepest`), often far below that of the narrowest part.
For kernels without such a constant (Gaussian, or of bounded reach), parts that are not Laplace are at most c times
those that are (`_beside`), so that all parts together are within (1 + c) e^lambda of the Laplace ones.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from empriv.measuring.densities.density import Mixture
from empriv.measuring.densities.kernels import Kernel
from empriv.measuring.line.risk import Risk
from empriv.noise.certify.convolve import compact_mass, compact_width, laplace_parts, noisy
from empriv.noise.law import Law
from empriv.results import FloatArray, Outcome

_LOOKED_AT = 100_000  # cells of noise
_SLOTS = 16  # of half a cell


@dataclass(frozen=True, eq=False)
class Screen:
    """Influences of all individuals in units of bandwidth and of granularity.

    Attributes
    ----------
    owner, pair : individual of each changed pair, and which of the pairs with everyone it is
    shift : change in bandwidths: inf for a pair that is not one kernel at two places
    cells : change in granularities, rounded up: inf where a result changes to or from a number
    total : pairs of each individual
    individuals : how many there are
    kernel : of the density, or None where pairs are not kernels
    bandwidth : in granularities, of kernels that all have the same; NaN for others
    blind : individuals for whom there is no bound
    """

    owner: npt.NDArray[np.int64]
    pair: npt.NDArray[np.int64]
    shift: FloatArray
    cells: FloatArray
    total: int
    individuals: int
    kernel: Kernel | None
    bandwidth: float
    blind: npt.NDArray[np.bool_]

    @staticmethod
    def of(risk: Risk, granularity: float) -> Screen:
        pairs, results, model = risk.pairs, risk.results, risk.density
        draws = pairs.draws
        entries = pairs.entries
        points = pairs.points.reshape(-1, draws)[pairs.entry_database]
        numbers = results.entry_q.reshape(entries.shape), results.q.reshape(-1, draws)[pairs.entry_database]
        codes = (
            results.entry_outcomes.reshape(entries.shape),
            results.outcomes.reshape(-1, draws)[pairs.entry_database],
        )
        both_numbers = (codes[0] == Outcome.NUMBER) & (codes[1] == Outcome.NUMBER)
        smooth, smooth_before = np.isfinite(entries), np.isfinite(points)
        with np.errstate(invalid="ignore"):
            change = np.abs(numbers[0] - numbers[1]) / granularity
            # atoms are rounded first, kernels are not: whole cells for the former, rounded up for the latter
            atoms = np.abs(np.rint(numbers[0] / granularity) - np.rint(numbers[1] / granularity))
            cells = np.where(smooth & smooth_before, np.ceil(change) + _rounded_down(*numbers, change), atoms)
        same = np.where(both_numbers, cells == 0, codes[0] == codes[1])
        cells = np.where(
            both_numbers & (smooth == smooth_before), cells, np.where(same & (smooth == smooth_before), 0.0, np.inf)
        )
        shift = np.where(cells == 0.0, 0.0, np.inf)
        kernel, bandwidth = None, float("nan")
        if isinstance(model, Mixture) and model.refit is None:
            bandwidth = float(model.bandwidth) / granularity
            kernel = model.kernel
            h = (model.bandwidths / granularity).reshape(-1, draws)[pairs.entry_database]
            shift = np.where(smooth & smooth_before, change / h, shift)
        owner = np.broadcast_to(
            np.repeat(np.arange(pairs.n_individuals), np.diff(pairs.starts))[:, None], entries.shape
        )
        pair = pairs.entry_database.astype(np.int64)[:, None] * draws + np.arange(draws)
        moved = (cells > 0) | (shift > 0)
        blind = np.zeros(pairs.n_individuals, bool)
        blind[[row for row, _ in pairs.own]] = True
        if kernel is None and model is not None:
            # a density of another kind: people who change nothing are cleared, nothing is known of the others
            blind[owner[moved]] = True
            if isinstance(model, Mixture):
                blind[:] = True
        return Screen(
            owner=np.asarray(owner[moved], np.int64),
            pair=pair[moved],
            shift=shift[moved],
            cells=cells[moved],
            total=len(pairs.points),
            individuals=pairs.n_individuals,
            kernel=kernel,
            bandwidth=bandwidth,
            blind=blind,
        )

    def largest(self, law: Law) -> FloatArray:
        """Upper bound of the largest log ratio of each individual; inf where there is none."""
        out = np.zeros(self.individuals)
        np.maximum.at(out, self.owner, self.log_ratios(law))
        out[self.blind] = np.inf
        return out * (1 + 1e-14)

    def log_ratios(self, law: Law) -> FloatArray:
        """Upper bound of the largest log ratio of each changed pair: lambda."""
        largest = np.zeros(len(self.owner))
        for _, narrow, scale in self._parts(law):
            largest = np.maximum(largest, self._lambda(narrow, scale))
        return np.minimum(largest, self._together(law))

    def deltas(self, law: Law, epsilon: float) -> FloatArray:
        """Upper bound of each individual's delta_i at ``epsilon``."""
        out = np.zeros(self.individuals)
        if len(self.owner):
            mean = np.zeros(len(self.owner))
            for share, narrow, scale in self._parts(law):
                stick = randomised_response(self._lambda(narrow, scale), epsilon)
                mean += share * np.minimum(stick, self._kernel(epsilon))
            mean = np.minimum(mean, randomised_response(self._together(law), epsilon))
            out = np.bincount(self.owner, mean, self.individuals) / self.total
        out[self.blind] = 1.0
        return np.minimum(out * (1 + 1e-12), 1.0)

    def _parts(self, law: Law) -> list[tuple[float, bool, float]]:
        """(weight, whether only the kernel protects, scale in granularities)."""
        return [(share, part.kind != "laplace", part.scale / law.granularity) for share, part in law.shares()]

    def _lambda(self, narrow: bool, scale: float) -> FloatArray:
        lipschitz = np.inf if self.kernel is None else self.kernel.log_lipschitz
        with np.errstate(invalid="ignore"):
            by_kernel = np.where(self.shift > 0, self.shift * lipschitz, 0.0)
        if narrow:
            return np.asarray(by_kernel)
        return np.minimum(by_kernel, self.cells / scale)

    def _together(self, law: Law) -> FloatArray:
        """The largest log ratio of each pair under all parts together; inf where it is not known."""
        nothing_known = np.full(len(self.shift), np.inf)
        if self.kernel is None or not math.isfinite(self.bandwidth):
            return nothing_known
        if math.isinf(self.kernel.log_lipschitz):
            scales = [part.scale / law.granularity for part in law.parts if part.kind == "laplace"]
            if not scales or len(scales) == len(law.parts):
                return nothing_known
            more = math.log1p(_beside(law, self.kernel, self.bandwidth))
            return np.where(np.isfinite(self.shift), more + self.cells / min(scales), np.inf)
        if self.kernel.name != "laplace" or any(part.kind not in ("point", "laplace") for part in law.parts):
            return nothing_known
        slope, step = _steepest(law, self.bandwidth)
        change = np.where(np.isfinite(self.shift), self.shift, 0.0) * self.bandwidth
        whole = np.floor(change)
        return np.where(np.isfinite(self.shift), whole * step + (change - whole) * slope, np.inf)

    def _kernel(self, epsilon: float) -> FloatArray:
        """Hockey stick of the kernel against itself, shifted: exact for the Gaussian, total variation for others."""
        if self.kernel is None:
            return np.ones(len(self.shift))
        if self.kernel.tail == "gaussian":
            from scipy.special import ndtr

            with np.errstate(divide="ignore", invalid="ignore"):
                turn = epsilon / self.shift
                stick = ndtr(0.5 * self.shift - turn) - np.exp(min(epsilon, 700.0)) * ndtr(-0.5 * self.shift - turn)
            return np.where(np.isfinite(self.shift), np.clip(stick, 0.0, 1.0) + 1e-15, 1.0)
        return np.minimum(1.0, self.shift * float(self.kernel.pdf(np.zeros(1))[0]))


def _steepest(law: Law, bandwidth: float) -> tuple[float, float]:
    """Most that the log density of a Laplace kernel with noise changes per granularity: anywhere, and over a whole one.

    The density before rounding is f(x) = sum_m law(m) exp(-|x - m|/h)/(2h), x in granularities. Between m and m + 1 it
    is proportional to ``F_m e^(-u/h) + R_m e^(u/h)``, u = x - m, F_m and R_m the sums over the noise up to and beyond
    m. So its log slope rises with u, and is largest at the ends; and f(x + 1)/f(x) is monotone there, so that it is
    largest at whole x. By symmetry m >= 0. Per part, with r = e^(-1/h),

        R_m = kappa a^m ar/(1 - ar),    F_m = kappa (r^m/(1 - ar) + a (a^m - r^m)/(a - r)).

    Beyond the last m computed, the slowest part has its own slope and step, and the rest only fades against it.
    """
    fast = 1.0 / bandwidth
    parts = laplace_parts(law)
    if not parts or parts[-1][0] > 0.99 * fast:
        return fast, fast  # as steep as the kernel, or next to it
    slowest = parts[0][0]
    gap = min(fast, *(speed for speed, _, _ in parts[1:])) - slowest if len(parts) > 1 else fast - slowest
    m = np.arange(math.ceil(min(_LOOKED_AT, 40.0 / gap)) + 2.0)
    if slowest * m[-1] > 600.0:
        return fast, fast  # parts so close to each other or to the kernel fade only where all rounds to 0
    r, r_m = math.exp(-fast), np.exp(-fast * m)
    point = math.fsum(share for share, part in law.shares() if part.kind == "point")
    before, after = point * r_m, np.zeros(len(m))
    slow_before, slow_after, rest = 0.0, 0.0, point * float(r_m[-1])  # at the last m: the slowest part, and all else
    for speed, kappa, share in parts:
        a_m = np.exp(-speed * m)
        series = 1.0 / -math.expm1(-(speed + fast))  # 1/(1 - ar)
        partial = 1.0 / -math.expm1(speed - fast)  # a/(a - r)
        before += kappa * share * (r_m * series + partial * (a_m - r_m))
        after += kappa * share * math.exp(-(speed + fast)) * series * a_m
        far_mass = kappa * share * float(a_m[-1])
        rest += kappa * share * float(r_m[-1]) * (series + partial)
        if speed == slowest:
            slow_before += far_mass * partial
            slow_after += far_mass * math.exp(-(speed + fast)) * series
        else:
            rest += far_mass * (partial + series)
    slope = np.abs(np.append(before - after, r * before - after / r)) / np.append(
        before + after, r * before + after / r
    )
    step = np.abs(np.diff(np.log(before + after)))
    ratio = (slow_before + rest) / slow_after
    far = (ratio - 1.0) / (ratio + 1.0)
    far_step = slowest + math.log1p(rest / (slow_before + slow_after))
    # 1e-9 of each covers rounding: positive terms, and exponents of up to 40 times their ratio
    most = max(float(slope.max()), far) * fast * (1 + 1e-9)
    return min(most, fast), min(max(float(step.max()), far_step) * (1 + 1e-9), most, fast)


def _beside(law: Law, kernel: Kernel, bandwidth: float) -> float:
    """Most that the parts of a law that are not Laplace are of those that are, on a kernel, wherever its centre lies.

    The centre lies somewhere in a slot of its cell: then each cell has at most the mass of one that is wider by the
    slot, and at least that of one that is narrower. By symmetry slots of half a cell suffice. The kernel is followed to
    where it ends, or is below the least double and falls faster than the noise.
    """
    reach = 1.0 if kernel.tail == "bounded" else 41.0
    speeds = [speed for speed, _, _ in laplace_parts(law)]
    half = math.ceil(reach * bandwidth) + compact_width(law) + 2
    falls = kernel.tail == "bounded" or (kernel.tail == "gaussian" and max(speeds) * bandwidth < 0.5 * reach)
    followed = falls and all(part.kind != "gaussian" for part in law.parts)
    if not followed or half > _LOOKED_AT or min(speeds) * half > 600.0:
        return math.inf
    slot = 0.5 / _SLOTS
    begin = (slot * np.arange(_SLOTS))[:, None]
    k = np.arange(-half, half + 1.0)
    widened = _mass(kernel, (k - 0.5 - begin - slot) / bandwidth, (k + 0.5 - begin) / bandwidth)
    narrowed = _mass(kernel, (k - 0.5 - begin) / bandwidth, (k + 0.5 - begin - slot) / bandwidth)
    most = compact_mass(law, widened, None)
    least = noisy(law, narrowed, None).mass - compact_mass(law, narrowed, None)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(most > 0, most / least, 0.0)
    # a difference that lost its digits proves nothing; 1e-6 covers rounding where it kept them
    largest = float(ratio.max()) * (1 + 1e-6)
    return largest if least.min() > 0 and largest < 1e6 else math.inf


def _mass(kernel: Kernel, low: FloatArray, high: FloatArray) -> FloatArray:
    """Mass of the standardised kernel between two places, accurate far out on both sides."""
    near, far = kernel.cdf(-np.abs(low)), kernel.cdf(-np.abs(high))
    return np.where((low < 0) & (high > 0), 1.0 - near - far, np.abs(near - far))


def _rounded_down(a: FloatArray, b: FloatArray, change: FloatArray) -> npt.NDArray[np.bool_]:
    """Where |a - b|/g came out whole only because the difference was rounded down: a - b = s + rest exactly."""
    s = a - b
    t = s - a
    rest = (a - (s - t)) - (b + t)
    return np.asarray((change == np.ceil(change)) & (rest * np.sign(s) > 0))


def randomised_response(largest: FloatArray, epsilon: float) -> FloatArray:
    """(e^l - e^eps)_+/(e^l + 1) written so that nothing overflows."""
    return np.maximum(-np.expm1(np.minimum(epsilon - largest, 0.0)), 0.0) / (1.0 + np.exp(-largest))
