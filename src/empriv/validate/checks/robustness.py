"""How far the estimate depends on choices and luck: the bandwidth, the kernel, the individuals at hand.

Figures only; `one_number` and `several_numbers` judge how grave they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from empriv.errors import InputError
from empriv.measuring.densities.density import Density, Kde, Mixture, VariableKde
from empriv.measuring.densities.kernels import kernel_named
from empriv.measuring.joint.joint_risk import JointRisk
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.blocks import largest_shifts
from empriv.measuring.line.risk import Risk, pairs_of, risk_of_pairs
from empriv.measuring.series.composition import gaussian_delta
from empriv.results import FloatArray, IntArray, Results

FAMILIES: dict[str, Density] = {
    "laplace kernel": Kde("laplace"),
    "gaussian kernel": Kde("gaussian"),
    "gaussian kernel, variable bandwidth": VariableKde("gaussian"),
}
_MOST = 20  # riskiest individuals measured again
MOST_VARIABLE = 600  # points
_EACH_CHOSEN = 2_000  # points up to which a Gaussian's bandwidth is chosen by itself
SCALES = {"half the bandwidth": 0.5, "double the bandwidth": 2.0}
_SPLITS = 200
_STAGES = (4, 64)  # individuals measured first: what they have shows who can be skipped


def subset(results: Results, rows: IntArray) -> Results:
    """The results of some individuals."""
    return results.of_individuals(rows)


def risk_of_rows(risk: Risk, rows: IntArray) -> Risk:
    """The risk of some individuals, with the same density."""
    pairs = risk.pairs
    starts, entry = _entries(pairs.starts, rows)
    place = {int(row): k for k, row in enumerate(rows)}
    their_pairs = replace(
        pairs,
        starts=starts,
        entry_database=pairs.entry_database[entry],
        entries=pairs.entries[entry],
        mass_without=pairs.mass_without[rows],
        own=tuple((place[row], own_pairs) for row, own_pairs in pairs.own if row in place),
        residues=tuple((place[row], steps) for row, steps in pairs.residues if row in place),
        sure_residues=tuple((place[row], steps) for row, steps in pairs.sure_residues if row in place),
        ratios=None if pairs.ratios is None else pairs.ratios[rows],
    )
    return Risk(subset(risk.results, rows), risk.density, their_pairs, risk.shifts[rows])


def _entries(starts: IntArray, rows: IntArray) -> tuple[IntArray, IntArray]:
    """Starts of these individuals among themselves, and where their entries are."""
    counts = starts[rows + 1] - starts[rows]
    begins = np.concatenate(([0], np.cumsum(counts)))
    return begins, np.arange(begins[-1]) + np.repeat(starts[rows] - begins[:-1], counts)


def riskiest(risk: Risk | JointRisk, epsilon: float, most: int = _MOST) -> IntArray:
    """Individuals of the largest delta_i, then of the largest shift."""
    return np.lexsort((-risk.shifts, -risk.delta_i(float(epsilon))))[:most]


def sensitivity(risk: Risk, epsilon: float) -> dict[str, float]:
    """delta at half and double the bandwidth over everyone, and with other densities over the riskiest."""
    deltas = {}
    if isinstance(risk.density, Mixture):
        for name, factor in SCALES.items():
            deltas[name] = largest_delta(scaled(risk, factor), epsilon)
    # a Gaussian takes time with the square of the points, for each individual
    most = max(3, min(_MOST, _MOST * _EACH_CHOSEN // max(1, len(risk.pairs.points))))
    alternatives = other_densities(risk, riskiest(risk, epsilon, most))
    return {**deltas, **{name: largest_delta(alternative, epsilon) for name, alternative in alternatives.items()}}


def largest_delta(risk: Risk, epsilon: float) -> float:
    """``risk.delta(epsilon)``, for which only people who may have the largest delta_i are measured."""
    highest = highest_deltas(risk, epsilon)
    rows = np.argsort(-highest, kind="stable")
    best, start = 0.0, 0
    for count in (*_STAGES, len(rows)):
        stage = rows[start:count]
        stage = stage[highest[stage] > best]
        start = count
        if not len(stage):
            break
        best = max(best, risk_of_rows(risk, stage).delta(float(epsilon)))
    return best


def highest_deltas(risk: Risk, epsilon: float) -> FloatArray:
    """(individuals,) what no delta_i exceeds; inf where that takes more than a look at each result.

    Both densities are averages of as many kernels, and the hockey stick is convex in both together: it is at most the
    average of what the kernels of each pair give.
    """
    pairs, model = risk.pairs, risk.density
    out = np.full(pairs.n_individuals, np.inf)
    if not isinstance(model, Mixture) or model.refit is not None or model.kernel.name not in _KERNEL_DELTAS:
        return out
    before = np.take(pairs.points.reshape(-1, pairs.draws), pairs.entry_database, axis=0)
    widths = np.take(model.bandwidths.reshape(-1, pairs.draws), pairs.entry_database, axis=0)
    with np.errstate(invalid="ignore"):  # an atom on both sides; who moves one has an infinite shift
        shifts = np.nan_to_num(np.abs(pairs.entries - before) / widths)
    apart = _KERNEL_DELTAS[model.kernel.name](shifts, float(epsilon)).sum(axis=1)
    who = np.repeat(np.arange(len(out)), np.diff(pairs.starts))
    total = np.bincount(who, apart, len(out)) / len(pairs.points)
    plain = np.isfinite(risk.shifts)
    if pairs.ratios is not None:
        plain &= pairs.ratios == 1  # others are measured at a bandwidth of their own
    out[plain] = total[plain] * (1 + 1e-9) + 1e-11  # figures are rounded up
    return out


def _laplace_delta(shifts: FloatArray, epsilon: float) -> FloatArray:
    """The hockey stick of two Laplace laws so many bandwidths apart."""
    return np.asarray(-np.expm1(np.minimum(0.5 * (epsilon - shifts), 0.0)))


_KERNEL_DELTAS = {"laplace": _laplace_delta, "gaussian": gaussian_delta}


def scaled(risk: Risk, factor: float) -> Risk:
    """The risk with a multiple of the bandwidth."""
    assert isinstance(risk.density, Mixture)
    model = replace(risk.density, bandwidths=factor * risk.density.bandwidths, refit=None)
    return Risk(risk.results, model, risk.pairs, largest_shifts(risk.pairs, model))


def other_densities(risk: Risk, rows: IntArray, *, most_variable: int = MOST_VARIABLE) -> dict[str, Risk]:
    """These individuals measured with other densities.

    A bandwidth for each point is tried for up to ``most_variable`` points, since choosing them takes time with the
    square of the points. For the same reason, with more than 2,000 points the Gaussian takes over the bandwidth of the
    Laplace kernel, in its own unit.
    """
    their_results = subset(risk.results, rows)
    pairs = pairs_of(their_results, look=True, people=risk.pairs.people)
    risks: dict[str, Risk] = {}
    for name, density in FAMILIES.items():
        many = len(pairs.points) > _EACH_CHOSEN
        if isinstance(density, VariableKde) and len(pairs.points) > most_variable:
            continue
        try:
            if many and isinstance(density, Kde) and density.kernel == "gaussian":
                risks[name] = _gaussian(risks["laplace kernel"])
            else:
                risks[name] = risk_of_pairs(their_results, pairs, density)
        except (InputError, KeyError):  # this family cannot be fitted to these results
            continue
    return risks


def _gaussian(risk: Risk) -> Risk:
    """The risk with Gaussian kernels that smooth as much as its Laplace kernels."""
    if not isinstance(risk.density, Mixture):
        return risk
    kernel = kernel_named("gaussian")
    widths = risk.density.bandwidths * kernel.canonical / risk.density.kernel.canonical
    model = Mixture(kernel, widths, "gaussian kernel")
    return Risk(risk.results, model, risk.pairs, largest_shifts(risk.pairs, model))


@dataclass(frozen=True)
class Halves:
    """The risk of a random half of the individuals, as a forecast of the other half's.

    ``ratio`` is the median, over splits, of the larger delta over the smaller (inf where one is 0).
    """

    n_individuals: int
    ratio: float


def halves(delta_i: FloatArray, rng: int = 0) -> Halves:
    """Split the individuals at random, many times."""
    n = len(delta_i)
    if n < 2 or delta_i.max() <= 0:
        return Halves(n, 1.0)
    generator = np.random.default_rng(rng)
    top = np.sort(delta_i)[::-1][: min(n, 64)]  # anyone further down is next to never a half's largest
    sides = generator.random((_SPLITS, len(top))) < 0.5
    first_half, second_half = np.where(sides, top, 0.0).max(axis=1), np.where(sides, 0.0, top).max(axis=1)
    low, high = np.minimum(first_half, second_half), np.maximum(first_half, second_half)
    with np.errstate(divide="ignore"):
        return Halves(n, float(np.median(np.where(low > 0, high / np.where(low > 0, low, 1.0), np.inf))))


def modes(sizes: FloatArray, factor: float = 3.0) -> list[int]:
    """How many individuals each mode of contribution has: groups of influences at least ``factor`` apart."""
    logs = np.sort(np.log(sizes[(sizes > 0) & np.isfinite(sizes)]))
    if not len(logs):
        return []
    cuts = np.flatnonzero(np.diff(logs) > np.log(factor))
    return [int(count) for count in np.diff(np.concatenate(([0], cuts + 1, [len(logs)])))]


def rare_share(delta_i: FloatArray, presence: IntArray, most: int = 2) -> float:
    """Share of the summed delta_i that belongs to individuals in at most ``most`` databases."""
    total = float(delta_i.sum())
    return float(delta_i[presence <= most].sum()) / total if total > 0 else 0.0


def tail_index(points: FloatArray) -> float:
    """Hill's estimate of the tail index about the median: 0 is a light tail, 0.5 an infinite variance; NaN if few."""
    distance = np.sort(np.abs(points - np.median(points)))[::-1]
    k = max(5, len(points) // 10)
    if len(points) < 20 or distance[k] <= 0:
        return float("nan")
    return float(np.log(distance[:k] / distance[k]).mean())


def togetherness(influence: FloatArray) -> float:
    """Variance of the sum of standardised influences (individuals, n) over what independence would make it."""
    deviation = influence.std(axis=1)
    varied = influence[deviation > 1e-12 * np.maximum(np.abs(influence).max(axis=1), 1e-300)]
    if len(varied) < 2:
        return 1.0
    z = (varied - varied.mean(axis=1, keepdims=True)) / varied.std(axis=1, keepdims=True)
    return float(z.sum(axis=0).var() / len(z))


def leaks(pairs: Pairs) -> dict[str, tuple[int, float]]:
    """Atoms that one of two worlds never shows, by code: how many individuals they give away, and in what share of
    results."""
    by_code: dict[str, tuple[int, float]] = {}
    parts = [(name, pairs.mass[k], pairs.mass_without[:, k]) for k, name in enumerate(pairs.names)]
    parts += [(own_pairs.names[-1], own_pairs.mass[-1], own_pairs.mass_without[:, -1]) for _, own_pairs in pairs.own]
    for name, mass, without in parts:
        # seen in one world only: the atom itself, or all that is not it
        share = np.maximum(np.where(without == 0, mass, 0.0), np.where(without == 1, 1.0 - mass, 0.0))
        share = np.maximum(share, np.where(mass == 0, without, np.where(mass == 1, 1.0 - without, 0.0)))
        share = np.where(without == mass, 0.0, share)
        count, most = by_code.get(name, (0, 0.0))
        by_code[name] = count + int(np.count_nonzero(share)), max(most, float(share.max(initial=0.0)))
    return {name: leak for name, leak in by_code.items() if leak[0]}
