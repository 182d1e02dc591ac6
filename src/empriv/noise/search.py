"""Screen, then cut: which rows of all individuals and resamples decide a design, and the least noise for them.

Individuals whose influence proves that they can do no harm are left out; the others are ranked by a quick look on
merged cells (`Cases.scores`), the worst become rows, the programme is solved on those, and the quick look under the
noise found tells who has to join. It ends when nobody does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from empriv.noise.constraints import Cases
from empriv.noise.programme import calibrate, expected_error, ladder, limit, optimise, worst
from empriv.noise.rows import Parts, Rows
from empriv.results import IntArray

Label = tuple[int, int, int]
"""Aim, individual, weighting."""

_LOOKED_AT = 12_000  # individuals in a quick look; the most influential, where there are more
_RESAMPLED = 384  # individuals whose resamples are looked at
_FIRST, _MORE = 32, 24  # rows to begin with, and those that may join in a round
_NEAR = 0.95  # of the target: rows whose quick look reaches this are made exact
_ROUNDS = 12


@dataclass(frozen=True, eq=False)
class Aim:
    """Cases, and the epsilon that is to hold for them."""

    cases: Cases
    epsilon: float


class HopelessError(Exception):
    """No noise, however wide, keeps the target: outcomes that are no numbers tell too much."""


def gather(aims: Sequence[Aim], labels: Sequence[Label]) -> Rows:
    """The rows of these labels."""
    grouped: dict[tuple[int, int], list[int]] = {}
    for aim, individual, weighting in labels:
        grouped.setdefault((aim, individual), []).append(weighting)
    blocks = []
    for (aim, individual), weightings in grouped.items():
        cases, epsilon = aims[aim].cases, aims[aim].epsilon
        p, q = cases.rows(individual, np.array(weightings))
        blocks.append(
            Rows(
                p=p,
                q=q,
                e=np.full(len(p), np.exp(epsilon)),
                labels=tuple((aim, individual, weighting) for weighting in weightings),
                numbers=cases.cells,
                cell=cases.cell,
            )
        )
    return Rows.join(blocks)


def pool(aim: Aim, parts: Parts, delta: float) -> IntArray:
    """Individuals of an aim who may decide the design, by the databases as they are."""
    cases = aim.cases
    subject = cases.subject(aim.epsilon)
    influence = cases.influences[subject]
    order = np.argsort(-influence, kind="stable")
    subject = subject[order[:_LOOKED_AT]]
    alone = replace(cases, weights=cases.weights[:1])
    score = alone.scores(subject, parts=parts, epsilon=aim.epsilon, delta=delta)[:, 0]
    worst_first = subject[np.argsort(-score, kind="stable")]
    # An influence on few databases weighs more in some resamples: the most influential are kept as well.
    return np.unique(np.concatenate((worst_first[:_RESAMPLED], subject[: _RESAMPLED // 4])))


def near(aims: Sequence[Aim], pools: Sequence[IntArray], parts: Parts, delta: float) -> list[tuple[float, Label]]:
    """Rows by the share of their target that a quick look sees them reach under this noise, largest first."""
    found: list[tuple[float, Label]] = []
    for k, (aim, individuals) in enumerate(zip(aims, pools, strict=True)):
        score = aim.cases.scores(individuals, parts=parts, epsilon=aim.epsilon, delta=delta)
        score = score / (delta if delta > 0 else aim.epsilon)
        flat = np.argsort(-score, axis=None, kind="stable")[: 4 * _FIRST]
        for place in flat:
            i, s = divmod(int(place), score.shape[1])
            found.append((float(score[i, s]), (k, int(individuals[i]), s)))
    return sorted(found, key=lambda one: -one[0])


def least_noise(
    aims: Sequence[Aim],
    delta: float,
    *,
    mixed: bool,
    start: float,
    also: Sequence[Label] = (),
) -> list[tuple[float, float]]:
    """The least noise that keeps every aim: a single Laplace law, or with ``mixed`` the programme's mixture.

    ``start`` is a scale that is wide enough or nearly so; ``also`` are rows to be kept in any case.
    """
    guess = [(1.0, 0.4 * start)]
    pools = [pool(aim, guess, delta) for aim in aims]
    if not any(map(len, pools)) and not also:
        return [(1.0, 0.0)]
    ranked = near(aims, pools, guess, delta)
    labels = list(dict.fromkeys([*also, *(label for _, label in ranked[:_FIRST])]))
    rows = gather(aims, labels)
    if limit(rows, delta) > 0:
        raise HopelessError
    known = set(labels)

    def join(parts: Parts) -> bool:
        """Whether rows joined."""
        nonlocal rows
        more = [label for share, label in near(aims, pools, parts, delta) if share > _NEAR and label not in known]
        more = more[:_MORE]
        if not more:
            return False
        known.update(more)
        new = gather(aims, more)
        if limit(new, delta) > 0:
            raise HopelessError
        rows = Rows.join((rows, new))
        return True

    none = [(1.0, 0.0)]
    while worst(rows, none, delta) <= 0.0:
        if not join(none):
            return none
    scale = start
    for _ in range(_ROUNDS):
        found = calibrate(rows, delta, scale)
        if found is None:
            raise HopelessError
        scale = found
        if not join([(1.0, scale)]):
            break
    parts = [(1.0, scale)]
    if not mixed:
        return parts
    widths = [aim.cases.widths[aim.cases.widths > 0] for aim in aims]
    narrowest = min((float(w.min()) / 4 for w in widths if len(w)), default=rows.cell)
    scales = ladder(scale, max(narrowest, rows.cell / 2), 2.0 * start)
    for _ in range(_ROUNDS):
        single = [(1.0, scale)]
        parts = optimise(rows, delta, scale, scales)
        if not join(parts):
            break
        if worst(rows, single, delta) > 0.0:  # the calibrated law has to keep the new rows as well
            wider = calibrate(rows, delta, scale)
            if wider is None:
                raise HopelessError
            scale = wider
            scales = np.unique(np.append(scales, scale))
    return parts if expected_error(parts, rows.cell) <= expected_error([(1.0, scale)], rows.cell) else [(1.0, scale)]
