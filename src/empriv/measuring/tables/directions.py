"""Exact leaks of several numbers in words: a combination of cells that is fixed in one of the two worlds only.

A sum, and the same sum without one person: their difference is zero whenever that person is left out. No smoothing may
hide this. `leaks` finds combinations of any number of cells; here are atoms of the sum and the difference of two
numbers, which may hold in some of the databases only, and the words for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from empriv.measuring.line.atoms import Pairs, split
from empriv.results import FloatArray, IntArray, Results
from empriv.words.outcomes import OUTCOMES

MOST_PAIRED = 2  # numbers whose sum and difference are looked at
_MANY = 4  # cells that are counted rather than named


def combination(weights: Sequence[float] | FloatArray, names: Sequence[str]) -> str:
    """A weighted sum in words, such as "total less rest", or "total less 11 cells (a, b, ...)"."""
    weights = np.asarray(weights, float)
    if not np.abs(weights).max() > 0:
        return "nothing"
    used = np.flatnonzero(np.abs(weights) > 1e-6 * np.abs(weights).max())
    lead = used[0]
    alike = [used[weights[used] * sign > 0] for sign in (1.0, -1.0)]
    # a total less its cells is led by the total, wherever it stands
    lead = next((group[0] for group in alike if len(group) == 1 and len(used) > _MANY), lead)
    weights, others = weights / weights[lead], used[used != lead]
    if len(others) >= _MANY and np.ptp(weights[others]) < 1e-6 and abs(abs(weights[others[0]]) - 1) < 1e-6:
        sign = "less" if weights[others[0]] < 0 else "plus"
        every = "the other " if len(others) == len(weights) - 1 else ""
        return f"{names[lead]} {sign} {every}{len(others):,} cells ({names[others[0]]}, {names[others[1]]}, ...)"
    text = ""
    for place in (lead, *others):
        weight = weights[place]
        times = "" if abs(abs(weight) - 1) < 1e-6 else f"{abs(weight):.4g} "
        sign = "less" if weight < 0 else "plus"
        text += f" {sign} {times}{names[place]}" if text else f"{times}{names[place]}"
    return text


def simplest(flat: FloatArray, scale: FloatArray) -> FloatArray:
    """Weights, in the components' own units, of the simplest of the directions that ``flat`` (d, k) spans.

    A component, a sum or difference of two, or else the one with the most zeros by elimination.
    """
    d = len(scale)
    candidates = list(np.eye(d))
    for a in range(d):
        for b in range(a + 1, d):
            for sign in (-1.0, 1.0):
                pair = np.zeros(d)
                pair[a], pair[b] = 1.0, sign
                candidates.append(pair)
    for weights in candidates:
        standard = weights * scale  # v·q in standardised components
        standard = standard / np.linalg.norm(standard)
        if np.linalg.norm(standard - flat @ (flat.T @ standard)) < 1e-6:
            return weights
    first = flat[:, 0]
    for k in range(1, flat.shape[1]):  # clear the last components, one with each further direction
        further = flat[:, k]
        pivot = d - k
        if abs(further[pivot]) > 1e-9:
            first = first - further * (first[pivot] / further[pivot])
    return np.asarray(np.where(np.abs(first) > 1e-9 * np.abs(first).max(), first, 0.0) / scale)


@dataclass(frozen=True, eq=False)
class Leak:
    """A direction that gives individuals away for certain.

    Attributes
    ----------
    direction : a component or a weighted sum of several, in words
    what : what is so in one of the two worlds only, in words
    rows : individuals, by number
    shares : share of the databases in which each is given away
    """

    direction: str
    what: str
    rows: IntArray
    shares: FloatArray

    @property
    def n_individuals(self) -> int:
        return len(self.rows)

    @property
    def largest_share(self) -> float:
        return float(self.shares.max(initial=0.0))

    @property
    def name(self) -> str:
        return f"{self.direction} {self.what}"


def pair_leaks(results: Results) -> tuple[Leak, ...]:
    """Leaks by atoms of the sum and the difference of two numbers; none where there are more."""
    assert results.components is not None
    if len(results.components) > MOST_PAIRED:
        return ()
    leaks = []
    for a, b in combinations(results.components, 2):
        for sign in (-1.0, 1.0):
            pairs = split(_rounding_removed(results, a, b, sign), look=True)
            if not pairs.names and not pairs.own:
                continue
            direction = combination((1.0, sign), (a, b))
            for what, mass, without, rows in _atoms(pairs):
                share = certain(mass, without)
                given_away = share > 0
                if given_away.any():
                    leaks.append(Leak(direction, what, rows[given_away], share[given_away]))
    return tuple(leaks)


def merged(leaks: Sequence[Leak]) -> tuple[Leak, ...]:
    """One leak for each direction: the largest share of each individual, in the words that came first."""
    groups: dict[str, list[Leak]] = {}
    for leak in leaks:
        groups.setdefault(leak.direction, []).append(leak)
    out = []
    for direction, group in groups.items():
        rows, shares = np.concatenate([g.rows for g in group]), np.concatenate([g.shares for g in group])
        order = np.lexsort((-shares, rows))
        first = np.concatenate(([True], np.diff(rows[order]) > 0))
        out.append(Leak(direction, group[0].what, rows[order][first], shares[order][first]))
    return tuple(sorted(out, key=lambda leak: -leak.largest_share))


def certain(mass: float, without: FloatArray) -> FloatArray:
    """Share of the results that are seen in one of the two worlds only: the atom, or all that is not it."""
    share = np.maximum(np.where(without == 0, mass, 0.0), np.where(without == 1, 1.0 - mass, 0.0))
    share = np.maximum(share, np.where(mass == 0, without, np.where(mass == 1, 1.0 - without, 0.0)))
    return np.asarray(np.where(without == mass, 0.0, share))


def _rounding_removed(results: Results, a: str, b: str, sign: float) -> Results:
    """a + sign b, where values that differ only by the rounding of a and b are made equal.

    A difference of large numbers keeps their roundings, and would be split into several atoms.
    """
    summed = results.combined({a: 1.0, b: sign})
    size = [np.abs(x[np.isfinite(x)]).max(initial=0.0) for x in (results.select((a, b)).q, summed.entry_q)]
    flat = np.concatenate((summed.q.ravel(), summed.entry_q.ravel()))
    numbers = np.flatnonzero(np.isfinite(flat))
    order = numbers[np.argsort(flat[numbers], kind="stable")]
    apart = np.concatenate(([True], np.diff(flat[order]) > 16 * np.spacing(max(size)))) if len(order) else order
    flat[order] = flat[order][np.maximum.accumulate(np.where(apart, np.arange(len(order)), 0))]
    return replace(
        summed,
        q=flat[: summed.q.size].reshape(summed.q.shape),
        entry_q=flat[summed.q.size :].reshape(summed.entry_q.shape),
    )


def _atoms(pairs: Pairs) -> list[tuple[str, float, FloatArray, IntArray]]:
    everyone = np.arange(pairs.n_individuals)
    atoms = [(code, float(pairs.mass[k]), pairs.mass_without[:, k], everyone) for k, code in enumerate(pairs.names)]
    atoms += [
        (own_pairs.names[-1], float(own_pairs.mass[-1]), own_pairs.mass_without[:, -1], np.array([r]))
        for r, own_pairs in pairs.own
    ]
    return [(OUTCOMES[code], mass, without, rows) for code, mass, without, rows in atoms]
