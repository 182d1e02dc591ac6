"""Half-lines in groups, and smooth sets only where there are any."""

from __future__ import annotations

import numpy as np
import pytest

from empriv.results import FloatArray
from empriv.validate.bounds.analytic import _edges
from empriv.validate.bounds.moments import Merged, Smooth, edges, groups

E = np.exp(np.array([0.0, 0.1, 0.5, 2.0]))


@pytest.mark.parametrize("draws", [1, 4])
def test_who_has_an_empty_set_changes_nothing_for_the_others(draws: int) -> None:
    rng = np.random.default_rng(2)
    points = rng.normal(size=40)
    without = np.stack([points, points + (np.arange(40) < 8) * 2.0, points + (np.arange(40) < 4) * 0.01])
    together = Smooth.of(Merged.of(points, without, None), 0.3)
    filled = 0
    for e in E:
        for direction in (0, 1):
            w = together.values(direction, float(e), draws)
            for row in range(3):
                alone = Smooth.of(Merged.of(points, without[row : row + 1], None), 0.3).values(
                    direction, float(e), draws
                )
                np.testing.assert_allclose(w[row], alone[0], atol=1e-9)
                filled += bool(np.any(w[row] != 0))
    assert 0 < filled < 3 * 2 * len(E)  # some sets are empty, and some are not


def test_groups_hold_every_half_line_once_and_grow() -> None:
    for depth in range(40):
        together = groups(depth)
        assert [m for first, after in together for m in range(first, after)] == list(range(depth + 1))
        assert [after - first for first, after in together][:-1] == [1, 1, 2, 4, 8, 16][: len(together) - 1]


def _at_edges(others: FloatArray, influence: float, together: list[tuple[int, int]]) -> float:
    """The largest bound over half-lines at either end."""
    with_all, n = others + influence, len(others)
    pairs = ((with_all, others), (others, with_all), (-with_all, -others), (-others, -with_all))
    return max(float(edges(a, b, E[1:2], 1, together, 0.95)[0, 0]) for a, b in pairs) - 1 / n


@pytest.mark.slow
def test_an_edge_behind_stragglers_is_covered_and_chance_raises_the_bound_less() -> None:
    """2% of the results lie before the edge of an exponential law: no end run shows it, and no smooth set."""
    rng, n, influence = np.random.default_rng(3), 365, 0.05
    truth = 0.98 * -np.expm1(-influence) - float(E[1]) * 0.02 * influence / 3
    each = [(m, m + 1) for m in range(19)]
    covered, first_only, averaged, single = [], [], [], []
    for _ in range(100):
        others = np.where(rng.random(n) < 0.02, rng.uniform(-3, 0, n), rng.exponential(size=n))
        covered.append(_at_edges(others, influence, groups(18)) >= truth)
        first_only.append(_at_edges(others, influence, groups(1)) >= truth)
        small = rng.normal(size=n)
        averaged.append(_at_edges(small, 0.05, groups(18)))
        single.append(_at_edges(small, 0.05, each))
    assert np.mean(covered) >= 0.88  # alone; with smooth sets and fine structure it is 95%
    assert np.mean(first_only) < 0.5  # the two half-lines at the end do not see it
    assert np.median(averaged) < 0.8 * np.median(single)  # truth 0.0005: nothing to be seen but chance


@pytest.mark.parametrize("draws", [1, 4])
def test_people_who_change_nothing_near_an_end_have_the_ends_of_everybody(draws: int) -> None:
    rng = np.random.default_rng(8)
    points = np.round(rng.normal(size=60 * draws), 2)  # with ties
    without = np.repeat(points[None], 40, axis=0)
    for row in without[1:]:
        changed = rng.choice(60, 2, replace=False)
        row.reshape(60, draws)[changed] -= rng.exponential(0.5)
    together = groups(int(0.05 * len(points)))
    expected = np.zeros((40, len(E)))
    for x, y in ((points, without), (-points, -without)):
        for a, b in ((np.repeat(x[None], 40, axis=0), y), (y, np.repeat(x[None], 40, axis=0))):
            expected = np.maximum(expected, edges(a, b, E, draws, together, 0.95))
    expected -= 1 / 60
    np.testing.assert_allclose(_edges(points, without, E, draws, 0.95), expected, atol=1e-12)
    assert not np.allclose(expected, expected[0])
