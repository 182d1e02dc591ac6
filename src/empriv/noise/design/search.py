"""Screen, then cut: which rows of all individuals and resamples decide a design, and the least noise for them.

Individuals whose influence proves that they can do no harm are left out; the others are ranked by a quick look on
merged cells (`quick_look`). The worst become rows, the programme is solved on those, and a quick look under its noise
shows who has to join. It ends when nobody does. Sums over all individuals are limited on the worst of them and on a
sample of the others, on wider cells.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from empriv.noise.design.constrained_rows import ConstrainedRows, Needs, Parts, Totals
from empriv.noise.design.constraints import Cases
from empriv.noise.design.programme import calibrate, expected_error, ladder, limit, optimise, worst
from empriv.noise.design.quick_look import COARSE, scores
from empriv.results import FloatArray, IntArray

Label = tuple[int, int, int]
"""Aim, individual, weighting."""

_RESAMPLED = 256  # individuals whose resamples are evaluated
_FIRST, _MORE = 32, 24  # rows to begin with, and those that may join in a round
_NEAR = 0.95  # of the target: rows whose quick look reaches this are made exact
_ROUNDS = 12
_WORST, _STRATA = 64, 192  # individuals who represent all in a sum: the worst, and one of each stratum of the others
_WIDEST_CELL, _MOST_MERGED = 0.5, 16  # of a cell that sums are limited on: in bandwidths, and in cells of the others
_SUMS = 3  # weightings whose sums join in a round


@dataclass(frozen=True, eq=False)
class Aim:
    """Cases, and the epsilon that is to hold for them."""

    cases: Cases
    epsilon: float


class HopelessError(Exception):
    """No noise, however wide, keeps the target: outcomes that are not numbers reveal too much."""


def gather(aims: Sequence[Aim], labels: Sequence[Label]) -> ConstrainedRows:
    """The rows of these labels."""
    grouped: dict[tuple[int, int], list[int]] = {}
    for aim, individual, weighting in labels:
        grouped.setdefault((aim, individual), []).append(weighting)
    blocks = []
    for (aim, individual), weightings in grouped.items():
        cases, epsilon = aims[aim].cases, aims[aim].epsilon
        p, q = cases.rows(individual, np.array(weightings))
        blocks.append(
            ConstrainedRows(
                p=p,
                q=q,
                e=np.full(len(p), np.exp(epsilon)),
                labels=tuple((aim, individual, weighting) for weighting in weightings),
                numbers=cases.cells,
                cell=cases.cell,
            )
        )
    return ConstrainedRows.join(blocks)


def ranked(aim: Aim, parts: Parts, delta: float) -> IntArray:
    """Individuals of an aim not cleared by screening, worst first by a coarse look at the databases as they are."""
    subject = aim.cases.subject(aim.epsilon)
    score = scores(
        aim.cases,
        subject,
        parts=parts,
        epsilon=aim.epsilon,
        delta=delta,
        weights=aim.cases.weights[:1],
        merged=COARSE,
    )[:, 0]
    return np.asarray(subject[np.argsort(-score, kind="stable")])


def pool(aim: Aim, worst_first: IntArray) -> IntArray:
    """Individuals of an aim who may decide the design.

    An influence on few databases weighs more in some resamples: the most influential are kept as well.
    """
    most = worst_first[np.argsort(-aim.cases.influences[worst_first], kind="stable")[: _RESAMPLED // 4]]
    return np.unique(np.concatenate((worst_first[:_RESAMPLED], most)))


def near(aims: Sequence[Aim], pools: Sequence[IntArray], parts: Parts, delta: float) -> list[tuple[float, Label]]:
    """Rows by the share of their target that a quick look sees them reach under this noise, largest first."""
    shares: list[tuple[float, Label]] = []
    for k, (aim, individuals) in enumerate(zip(aims, pools, strict=True)):
        score = scores(aim.cases, individuals, parts=parts, epsilon=aim.epsilon, delta=delta)
        score = score / (delta if delta > 0 else aim.epsilon)
        flat = np.argsort(-score, axis=None, kind="stable")[: 4 * _FIRST]
        for place in flat:
            i, s = divmod(int(place), score.shape[1])
            shares.append((float(score[i, s]), (k, int(individuals[i]), s)))
    return sorted(shares, key=lambda entry: -entry[0])


def keeps(aims: Sequence[Aim], delta: float, parts: Parts) -> bool:
    """Whether this noise keeps every aim, by the exact rows of those nearest to their target in a quick look."""
    pools = [pool(aim, ranked(aim, parts, delta)) for aim in aims]
    labels = [label for _, label in near(aims, pools, parts, delta)]
    return not labels or worst(Needs(gather(aims, labels), delta), parts) <= 0.0


@dataclass(frozen=True, eq=False)
class _Sample:
    """Individuals who represent all of an aim in sums over individuals, and how many each represents."""

    individuals: IntArray
    share: FloatArray

    @staticmethod
    def of(worst_first: IntArray) -> _Sample:
        head, others = worst_first[:_WORST], worst_first[_WORST:]
        strata = np.array_split(others, min(_STRATA, len(others))) if len(others) else []
        return _Sample(
            individuals=np.concatenate((head, [stratum[len(stratum) // 2] for stratum in strata])).astype(np.int64),
            share=np.concatenate((np.ones(len(head)), [len(stratum) for stratum in strata])).astype(float),
        )

    def sums(self, aim: Aim, parts: Parts) -> FloatArray:
        """(weightings,) what the sum of -log(1 - delta_i) seems to reach."""
        delta_i = scores(aim.cases, self.individuals, parts=parts, epsilon=aim.epsilon, delta=1.0)
        return np.asarray(self.share @ -np.log1p(-np.minimum(delta_i, 1.0 - 1e-6)))


def _on_wider_cells(aims: Sequence[Aim]) -> list[Aim]:
    """The aims on cells of half a bandwidth at most: sums have a row for everybody, and the certificate sees the rest.

    It changes each delta_i a little; where the sum comes out too large, `least` lowers its limit.
    """
    widths = [width.min(initial=np.inf) for aim in aims for width in aim.cases.all_widths()]
    times = 1
    while 2 * times * aims[0].cases.cell <= _WIDEST_CELL * min(widths) and times < _MOST_MERGED:
        times *= 2
    return [replace(aim, cases=aim.cases.on_wider_cells(times)) for aim in aims]


@dataclass(frozen=True, eq=False)
class _Search:
    """The state of a search for the least noise: the needs so far, and the individuals who may still join."""

    aims: Sequence[Aim]
    pools: Sequence[IntArray]
    summed: Sequence[Aim]
    samples: Sequence[_Sample]
    needs: Needs

    @staticmethod
    def of(
        aims: Sequence[Aim], delta: float, guess: Parts, also: Sequence[Label], total: float | None
    ) -> _Search | None:
        """None where nobody needs noise."""
        orders = [ranked(aim, guess, delta) for aim in aims]
        pools = [pool(aim, order) for aim, order in zip(aims, orders, strict=True)]
        if not any(map(len, pools)) and not also:
            return None
        first = [label for _, label in near(aims, pools, guess, delta)[:_FIRST]]
        rows = gather(aims, list(dict.fromkeys([*also, *first])))
        if total is None:
            return _Search(aims, pools, (), (), Needs(rows, delta))
        summed, samples = _on_wider_cells(aims), [_Sample.of(order) for order in orders]
        wide = summed[0].cases
        nobody = np.empty((0, wide.cells + len(wide.categories)))
        empty = ConstrainedRows(nobody, nobody, np.empty(0), (), wide.cells, wide.cell)
        totals = Totals(empty, np.empty(0), np.empty(0, np.int64), total)
        search = _Search(aims, pools, summed, samples, Needs(rows, delta, totals))
        return search._with_sums(guess, least=-1.0) or search

    def joined(self, parts: Parts) -> _Search | None:
        """With the needs that this noise brings near their target; None where there are none."""
        present = set(self.needs.rows.labels)
        shares = near(self.aims, self.pools, parts, self.needs.delta)
        more = [label for share, label in shares if share > _NEAR and label not in present][:_MORE]
        search = self
        if more:
            rows = ConstrainedRows.join((self.needs.rows, gather(self.aims, more)))
            search = replace(self, needs=replace(self.needs, rows=rows))
        search = search._with_sums(parts, least=_NEAR) or search
        return None if search is self else search

    def _with_sums(self, parts: Parts, *, least: float) -> _Search | None:
        """With the largest sums that reach this share of their limit and were not there."""
        totals = self.needs.totals
        if totals is None:
            return None
        present = {(aim, weighting) for aim, _, weighting in totals.rows.labels}
        largest: list[tuple[float, int, int]] = []
        for k, (aim, sample) in enumerate(zip(self.aims, self.samples, strict=True)):
            if len(sample.individuals):
                largest += [(float(reached), k, s) for s, reached in enumerate(sample.sums(aim, parts))]
        largest = [entry for entry in largest if entry[0] > least * totals.most and entry[1:] not in present]
        largest = sorted(largest, key=lambda entry: -entry[0])[:_SUMS]
        if not largest:
            return None
        labels = [(k, int(i), s) for _, k, s in largest for i in self.samples[k].individuals]
        rows = ConstrainedRows.join((totals.rows, gather(self.summed, labels)))
        represented = [dict(zip(drawn.individuals.tolist(), drawn.share, strict=True)) for drawn in self.samples]
        groups: dict[tuple[int, int], int] = {}
        group = [groups.setdefault((aim, weighting), len(groups)) for aim, _, weighting in rows.labels]
        share = [represented[aim][individual] for aim, individual, _ in rows.labels]
        new = Totals(rows, np.array(share), np.array(group, np.int64), totals.most)
        return replace(self, needs=replace(self.needs, totals=new))


def least_noise(
    aims: Sequence[Aim],
    delta: float,
    *,
    mixed: bool,
    start: float,
    also: Sequence[Label] = (),
    total: float | None = None,
) -> list[tuple[float, float]]:
    """The least noise that keeps every aim: a single Laplace law, or with ``mixed`` the programme's mixture.

    ``start`` is a scale that is wide enough or nearly so; ``also`` are rows to be kept in any case; ``total`` is the
    limit of the sum of -log(1 - delta_i) over individuals.
    """
    none = [(1.0, 0.0)]
    search = _Search.of(aims, delta, [(1.0, 0.4 * start)], also, total)
    while search is not None and _possible(search) and worst(search.needs, none) <= 0.0:
        search = search.joined(none)
    if search is None:
        return none
    scale = start
    for _ in range(_ROUNDS):
        scale = _calibrated(search, scale)
        more = search.joined([(1.0, scale)])
        if more is None:
            break
        search = more
    if not mixed:
        return [(1.0, scale)]
    widths = [aim.cases.widths[aim.cases.widths > 0] for aim in aims]
    cell = search.needs.rows.cell
    narrowest = min((float(w.min()) / 4 for w in widths if len(w)), default=cell)
    scales = ladder(scale, max(narrowest, cell / 2), 2.0 * start)
    parts = [(1.0, scale)]
    for _ in range(_ROUNDS):
        parts = optimise(search.needs, scale, scales)
        more = search.joined(parts)
        if more is None:
            break
        search = more
        if worst(search.needs, [(1.0, scale)]) > 0.0:  # the calibrated law has to keep the new needs as well
            scale = _calibrated(search, scale)
            scales = np.unique(np.append(scales, scale))
    return parts if expected_error(parts, cell) <= expected_error([(1.0, scale)], cell) else [(1.0, scale)]


def _possible(search: _Search) -> bool:
    """True; raises where boundless noise would not do."""
    if limit(search.needs) > 0:
        raise HopelessError
    return True


def _calibrated(search: _Search, scale: float) -> float:
    calibrated = calibrate(search.needs, scale) if _possible(search) else None
    if calibrated is None:
        raise HopelessError
    return calibrated
