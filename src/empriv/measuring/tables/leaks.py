"""Exact leaks of a table: a combination of cells that is fixed in one of the two worlds, and not in the other.

A sum, and the same sum without one person: their difference is zero whenever that person is left out. No smoothing may
hide this. Cells that determine each other with everyone do so no longer without a person: their influence lies outside
of the span of the table. Or they determine each other without a person alone. A margin beside its cells is neither:
whoever is in a cell is in its margin. A cell without an answer counts as 0, as in `fit.Margins`: so whoever is alone
in a cell is compared in the databases where it is gone without them, too. Of two numbers, atoms of the sum and the
difference are found as well, which may hold in some of the databases only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from empriv.measuring.line.atoms import take_atoms_out
from empriv.measuring.tables.fit import CONSTANT, TableFit, zero_filled
from empriv.measuring.tables.influences import Influences
from empriv.results import FloatArray, IntArray, Results
from empriv.words.sentences import OUTCOMES

WITH_EVERYONE = "is the same in every database with everyone, and not without the individual"
WITHOUT = "is always the same unless the individual is in the data"
_MOST_SUSPECTS = 300  # people whose own table is searched, those who move it most
_CLOSE = 0.99  # of the size that a leak must have, for rounding
_LEAST_ANSWERS = 10  # databases in which a cell must have an answer
_SPARE = 5  # databases with an answer more than cells: with fewer, they determine each other by number alone
MOST_PAIRED = 2  # numbers whose sum and difference are searched
_MANY = 4  # cells that are counted rather than named


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


def table_leaks(fit: TableFit, influences: Influences) -> tuple[Leak, ...]:
    """Leaks, the largest share first; each with the individuals whom it gives away, and in which share of databases."""
    by_words: dict[tuple[str, str], dict[int, float]] = {}
    n = fit.n
    for cell in np.unique(influences.broken[:, 1]).tolist():
        entries = influences.broken[influences.broken[:, 1] == cell, 0]
        people, counts = np.unique(influences.owner[entries], return_counts=True)
        words = combination(*_relation(fit, cell))
        by_words.setdefault((words, WITH_EVERYONE), {}).update(zip(people.tolist(), (counts / n).tolist(), strict=True))
    for row in _suspects(influences).tolist():
        weights, cells, share = _own_relation(fit, influences, row)
        if share > 0:
            words = combination(weights, [fit.cells[cell] for cell in cells])
            by_words.setdefault((words, WITHOUT), {})[row] = share
    leaks = [
        Leak(words, what, np.array(sorted(people)), np.array([people[row] for row in sorted(people)]))
        for (words, what), people in by_words.items()
    ]
    return merged((*leaks, *pair_leaks(influences.results)))


def alone_in_cells(influences: Influences) -> FloatArray:
    """(individuals,) share of databases with an answer in a cell that has none, ever, without this individual.

    Such cells may be others each day: that one of them has an answer has this probability with the individual, and 0
    without.
    """
    results, d = influences.results, len(influences.begins) - 1
    n, count = results.n_databases, results.n_individuals
    answered = (results.outcomes == 0).reshape(n, -1, d).any(axis=1)
    entry, cell = influences.turns.T
    gone = (results.entry_outcomes.reshape(-1, influences.draws, d)[entry, :, cell] != 0).all(axis=1)
    gone &= answered[results.entry_database[entry], cell]
    entry, cell = entry[gone], cell[gone]
    pair, inverse, times = np.unique(influences.owner[entry] * d + cell, return_inverse=True, return_counts=True)
    theirs = (times == answered.sum(axis=0)[pair % d])[inverse]
    return np.bincount(influences.owner[np.unique(entry[theirs])], minlength=count) / n


def _relation(fit: TableFit, cell: int) -> tuple[FloatArray, list[str]]:
    """The weights of the cell less those of the cells that determine it, and their names."""
    cells, weights = fit.kept, -fit.relations[cell]
    size = np.abs(weights) * fit.spreads[fit.kept] > 1e-6 * max(float(fit.spreads[cell]), 1e-300)
    if cell in fit.margins.cells:
        cells, weights = fit.margins.parts, -fit.margins.weights[fit.margins.cells == cell][0]
        size = weights != 0
    cells, weights = np.append(cell, cells[size]), np.append(1.0, weights[size])
    if len(cells) == 2:  # a difference is said in the order of the table
        order = np.argsort(cells)
        cells, weights = cells[order], weights[order]
    return weights, [fit.cells[place] for place in cells]


def _suspects(influences: Influences) -> IntArray:
    """People without whom cells may determine each other.

    If ``v'y`` is constant without a person, their ``(v'D)²`` add up to at least the ``(v'y)²``, which are ``v'S v``. As
    ``(v'D)²`` is at most ``v'S v`` times ``D'S^-1 D``, these add up to 1 or more.
    """
    total = np.bincount(influences.owner, influences.as_sums, minlength=influences.results.n_individuals)
    rows = np.flatnonzero(total >= _CLOSE)
    return rows[np.argsort(-total[rows], kind="stable")][:_MOST_SUSPECTS]


def _own_relation(fit: TableFit, influences: Influences, row: int) -> tuple[FloatArray, IntArray, float]:
    """Weights of cells whose sum is constant without one individual, the cells, and the share of databases that
    differ."""
    results, margins, n, draws = influences.results, fit.margins, fit.n, influences.draws
    shape = (-1, draws, len(fit.cells))
    entries = slice(int(results.starts[row]), int(results.starts[row + 1]))
    databases = results.entry_database[entries]
    before = zero_filled(results.q, results.outcomes).reshape(shape)[..., margins.parts]
    after = before.copy()
    after[databases] = zero_filled(results.entry_q[entries], results.entry_outcomes[entries]).reshape(shape)[
        ..., margins.parts
    ]
    answers = (results.outcomes == 0).reshape(shape)[..., margins.parts].any(axis=1).sum(axis=0)
    # a cell that is nobody else's is counted alone
    answered = (answers >= min(_LEAST_ANSWERS, n / 2)) & (after != 0).any(axis=(0, 1))
    nothing = np.zeros(0), np.zeros(0, np.int64), 0.0
    if not answered.any():
        return nothing
    cells = margins.parts[answered]
    own = (before - after)[..., answered].reshape(-1, len(cells))
    scale = np.sqrt((margins.residuals[:, answered] ** 2).mean(axis=0))
    without = (margins.residuals[:, answered] - own + margins.basis @ (margins.basis.T @ own)) / scale
    axes = np.linalg.svd(without.T, full_matrices=False)[0]
    flat = axes[:, np.abs(without @ axes).max(axis=0) <= CONSTANT]
    inside = np.abs(flat).max(axis=1, initial=0.0) > CONSTANT
    active = (after[..., answered][..., inside] != 0).any(axis=(1, 2)).sum()
    if not flat.shape[1] or active < inside.sum() + _SPARE:
        return nothing
    off = np.abs((own / scale) @ flat).max(axis=1) > CONSTANT
    return simplest(flat, scale), cells, float(off.reshape(n, draws).any(axis=1).mean())


def combination(weights: Sequence[float] | FloatArray, names: Sequence[str]) -> str:
    """A weighted sum in words, such as "total minus rest", or "total minus 11 cells (a, b, ...)"."""
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
        sign = "minus" if weights[others[0]] < 0 else "plus"
        every = "the other " if len(others) == len(weights) - 1 else ""
        return f"{names[lead]} {sign} {every}{len(others):,} cells ({names[others[0]]}, {names[others[1]]}, ...)"
    text = ""
    for place in (lead, *others):
        weight = weights[place]
        times = "" if abs(abs(weight) - 1) < 1e-6 else f"{abs(weight):.4g} "
        sign = "minus" if weight < 0 else "plus"
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


def pair_leaks(results: Results) -> tuple[Leak, ...]:
    """Leaks by atoms of the sum and the difference of two numbers; none where there are more."""
    assert results.components is not None
    if len(results.components) > MOST_PAIRED:
        return ()
    leaks = []
    for a, b in combinations(results.components, 2):
        for sign in (-1.0, 1.0):
            pairs = take_atoms_out(_rounding_removed(results, a, b, sign), look=True)
            if not pairs.names and not pairs.own:
                continue
            direction = combination((1.0, sign), (a, b))
            for atom in pairs.outcomes:
                given_away = atom.certain > 0
                if given_away.any():
                    what = OUTCOMES[atom.code]
                    leaks.append(Leak(direction, what, atom.rows[given_away], atom.certain[given_away]))
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
