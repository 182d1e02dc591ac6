"""How far the estimate depends on choices and luck: the bandwidth, the kernel, the individuals at hand.

Figures only; `one_number` judges how grave they are.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from empriv.errors import InputError
from empriv.measuring.densities.density import Density, Kde, Mixture, VariableKde
from empriv.measuring.densities.kernels import kernel_named
from empriv.measuring.line.atoms import Pairs
from empriv.measuring.line.blocks import largest_shifts
from empriv.measuring.line.risk import Risk, pairs_of, risk_of_pairs
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


def riskiest(risk: Risk, epsilon: float, most: int = _MOST) -> IntArray:
    """Individuals of the largest delta_i, then of the largest shift."""
    return np.lexsort((-risk.shifts, -risk.delta_i(float(epsilon))))[:most]


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


def modes(sizes: FloatArray, factor: float = 3.0) -> list[int]:
    """How many individuals each mode of contribution has: groups of influences at least ``factor`` apart."""
    logs = np.sort(np.log(sizes[(sizes > 0) & np.isfinite(sizes)]))
    if not len(logs):
        return []
    cuts = np.flatnonzero(np.diff(logs) > np.log(factor))
    return [int(count) for count in np.diff(np.concatenate(([0], cuts + 1, [len(logs)])))]


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
