"""Do the databases look independent and identically distributed? Four rank statistics, one p-value.

Of ranks r_1..r_n in the order of time:

    a trend               |Σ_{i<j} sign(r_j - r_i)|                         Mann (1945), Kendall
    serial dependence     |Σ (r_{i+1} - r_i)² / Σ (r_i - mean)² - 2|        Bartels (1982), rank von Neumann ratio
    a change point        max_k |Σ_{i<=k} (2 r_i - n - 1)|                  Pettitt (1979)
    a changing spread     |Σ i (s_i - mean)|, s ranks of |x - median|       Spearman

Databases are permuted, all series together; the smallest p of all is compared with its own permutation distribution
(Westfall and Young, 1993), so that testing many things costs no false alarms.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from empriv.results import FloatArray, IntArray

STATISTICS = (
    "a trend (Mann–Kendall)",
    "serial dependence (Bartels' rank von Neumann ratio)",
    "a change point (Pettitt)",
    "a changing spread (Spearman, distance from the median)",
)
PERMUTATIONS = 999

# Power at the 5% level on two series of which one departs, printed by `python benchmarks/iid_tests.py`:
# a trend of 1 sd from first to last database, AR(1) of 0.3, a shift of 1 sd half-way, a spread that doubles.
POWER_SIZES = (10, 20, 30, 41, 60, 100, 150, 200, 365)
POWER: dict[str, tuple[float, ...]] = {
    "trend": (0.14, 0.13, 0.12, 0.24, 0.34, 0.6, 0.78, 0.87, 1.0),
    "serial": (0.06, 0.15, 0.15, 0.24, 0.36, 0.5, 0.78, 0.9, 0.98),
    "shift": (0.18, 0.26, 0.35, 0.6, 0.75, 0.95, 1.0, 1.0, 1.0),
    "spread": (0.05, 0.09, 0.09, 0.12, 0.18, 0.3, 0.44, 0.64, 0.93),
}


@dataclass(frozen=True)
class IidTests:
    """What the tests found: the combined p, the strongest statistic, and in which series (by number) it was."""

    p: float
    statistic: str
    series: int


def iid_tests(series: FloatArray, *, permutations: int = PERMUTATIONS, rng: int = 0) -> IidTests:
    """Test series (k, n) or (n,) of numbers on the same databases, in their order."""
    series = np.atleast_2d(np.asarray(series, float))
    n = series.shape[1]
    if n > 400:  # pairs grow with the square
        permutations = max(199, min(permutations, 160_000_000 // (n * n)))
    generator = np.random.default_rng(rng)
    order = np.concatenate(
        (np.arange(n)[None, :], generator.permuted(np.tile(np.arange(n), (permutations, 1)), axis=1))
    )
    statistics = np.concatenate([_statistics(numbers, order) for numbers in series])  # (4k, 1 + permutations)
    # p of each statistic in each arrangement among all arrangements, ties counted against
    ranked = np.sort(statistics, axis=1)
    p = np.stack(
        [1.0 - np.searchsorted(r, f - 1e-9, side="left") / len(r) for r, f in zip(ranked, statistics, strict=True)]
    )
    # The smallest p. The mean of all p only separates the many arrangements in which it is the same.
    least = p.min(axis=0) + p.mean(axis=0) / (10 * len(order))
    strongest = int(np.argmin(p[:, 0]))
    return IidTests(
        p=float(np.mean(least <= least[0] + 1e-12)),
        statistic=STATISTICS[strongest % 4],
        series=strongest // 4,
    )


def same_within(series: FloatArray, tolerance: float) -> FloatArray:
    """The series with numbers within ``tolerance`` of each other made the same: rounding has no trend.

    Numbers that differ by more stay as they are, unless others fill the distance between them.
    """
    order = np.argsort(series, kind="stable")
    rising = series[order]
    first = np.concatenate(([True], np.diff(rising) > tolerance))
    out = np.empty_like(series)
    out[order] = rising[first][np.cumsum(first) - 1]
    return out


def power_at(n: int, departure: str = "trend") -> float:
    """Chance that the tests would see a departure of one standard deviation, interpolated from simulation."""
    return float(np.interp(np.log(n), np.log(POWER_SIZES), POWER[departure]))


def _ranks(x: FloatArray) -> FloatArray:
    """Mid-ranks from 1, ties to about a rounding."""
    _, place, counts = np.unique(np.round(x, 12), return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2.0)[place])


def _parts(size: int) -> int:
    """Into how many parts arrangements are cut, so that each stays in the processor's cache."""
    return max(1, size // 60_000)


def concordance(ranks: FloatArray, order: IntArray) -> FloatArray:
    """Σ_{i<j} sign(x_j - x_i) of each arrangement."""
    return np.concatenate([_concordance(ranks, part) for part in np.array_split(order, _parts(order.size))])


def _concordance(ranks: FloatArray, order: IntArray) -> FloatArray:
    """Σ_{i<j} sign(x_j - x_i) of each arrangement, in O(n log n).

    Two ranks differ first in some binary digit: the pairs that do so at each digit are counted among the numbers that
    agree in all digits before it. Those groups are as large in every arrangement, and lie in the same places once the
    numbers are sorted by the digits before, each group in the order of the arrangement.
    """
    values = np.unique(ranks, return_inverse=True)[1].astype(np.int32)
    arranged = values[order]
    sorted_values = np.sort(values)
    places = np.arange(len(values))
    total = np.zeros(len(order), np.int64)
    for digit in range(int(values.max()).bit_length() - 1, -1, -1):
        first = np.searchsorted(sorted_values >> (digit + 1), sorted_values >> (digit + 1))  # start of each's group
        ones = (arranged >> digit) & 1
        before = np.cumsum(ones, axis=1, dtype=np.int32) - ones
        before -= before[:, first]  # ones before it in its group
        zeros = (places - first).astype(np.int32) - before
        total += np.where(ones == 1, zeros, -before).sum(axis=1, dtype=np.int64)
        split = np.searchsorted(sorted_values >> digit, (sorted_values >> (digit + 1) << 1) + 1)  # where its ones start
        target = np.where(ones == 1, split + before, first + zeros)
        moved = np.empty_like(arranged)
        np.put_along_axis(moved, target, arranged, axis=1)
        arranged = moved
    return total.astype(float)


def _statistics(x: FloatArray, order: IntArray) -> FloatArray:
    """(4, arrangements): each statistic, larger where more suspicious."""
    n = len(x)
    size = float(np.ptp(x)) or 1.0
    scaled = (x - float(np.median(x))) / size
    ranks = _ranks(scaled)
    r = ranks[order]
    kendall = concordance(ranks, order)
    neumann = (np.diff(r, axis=1) ** 2).sum(axis=1) / max(float(((ranks - ranks.mean()) ** 2).sum()), 1e-300)
    walk = np.cumsum(2 * r - (n + 1), axis=1)
    spread = _ranks(np.abs(scaled))
    time = np.arange(n) - 0.5 * (n - 1)
    trend = (spread - spread.mean())[order] @ time
    constant = np.ptp(ranks) == 0
    return np.stack(
        (
            np.abs(kendall),
            np.zeros(len(order)) if constant else np.abs(neumann - 2.0),
            np.abs(walk).max(axis=1),
            np.abs(trend),
        )
    )
