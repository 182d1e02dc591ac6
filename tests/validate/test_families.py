"""Laws of benchmarks/families.py: what is drawn follows the law that its truth comes from."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from loading import benchmark

families = benchmark("families")

pytestmark = pytest.mark.slow

FAMILIES = {family.name: family for make in families.LISTS.values() for family in make()}
DRAWS = 8_000


def distance(drawn, x, density, places, masses):
    """Kolmogorov's distance between draws and a law, where the law's grid reaches."""
    inside = (drawn >= x[0]) & (drawn <= x[-1]) if density.any() else np.ones(len(drawn), bool)
    below = np.concatenate(([0.0], np.cumsum(np.diff(x) * 0.5 * (density[1:] + density[:-1]))))
    at = np.sort(drawn[inside])
    law = (
        np.interp(at, x, below)
        + np.concatenate(([0.0], np.cumsum(masses)))[np.searchsorted(places, at + 1e-9, side="right")]
    )
    # draws below the grid count as below; of ties the last is what the distribution function says
    seen = (np.count_nonzero(drawn < at[0]) + np.searchsorted(at, at + 1e-9, side="right")) / len(drawn)
    left_out = np.count_nonzero(drawn < at[0]) / len(drawn)
    return float(np.abs(law + left_out - seen).max())


@pytest.mark.parametrize("name", FAMILIES)
def test_draws_follow_the_laws_that_the_truth_comes_from(name):
    family = FAMILIES[name]
    laws = family.laws
    q, without = family.draw(np.random.default_rng(7), DRAWS)
    if family.given_presence:
        q = (without + np.max(q - without))[:DRAWS]
    limit = math.sqrt(-0.5 * math.log(1e-4 / 2) / DRAWS)  # exceeded once in ten thousand
    assert distance(q, laws.x, laws.p, laws.places, laws.masses) < limit
    assert distance(without, laws.x, laws.p_i, laws.places, laws.masses_i) < limit
    # a falsehood: shifted by half of the spread, the draws do not follow the law
    spread = np.subtract(*np.percentile(without, [75, 25]))
    assert distance(without + 0.5 * spread, laws.x, laws.p_i, laws.places, laws.masses_i) > limit


@pytest.mark.parametrize("name", FAMILIES)
def test_the_truth_is_what_draws_say_on_the_best_set(name):
    """P(A in E) - e P(B in E) on the set where one law exceeds e times the other, from draws that know the laws."""
    family, epsilon, count = FAMILIES[name], 0.1, 40_000
    laws = family.laws
    q, without = family.draw(np.random.default_rng(11), count)
    if family.given_presence:
        q = without + np.max(q - without)
    e, best = math.exp(epsilon), 0.0
    sides = ((laws.p, laws.p_i, laws.masses, laws.masses_i, q, without),)
    sides += ((laws.p_i, laws.p, laws.masses_i, laws.masses, without, q),)
    for a, b, atoms_a, atoms_b, drawn_a, drawn_b in sides:

        def member(at, a=a, b=b, atoms_a=atoms_a, atoms_b=atoms_b):
            # beyond the grid the laws with everyone may go on, where the other has nothing
            inside = np.interp(at, laws.x, (a > e * b).astype(float), left=0.0, right=0.0) > 0.5
            beyond = ((at < laws.x[0]) | (at > laws.x[-1])) & bool(a is laws.p) & bool(a.any())
            out = inside | beyond
            if len(laws.places):
                near = np.clip(np.searchsorted(laws.places, at - 1e-6), 0, len(laws.places) - 1)
                on = np.abs(laws.places[near] - at) < 1e-6
                out = np.where(on, (atoms_a > e * atoms_b)[near], out)
            return out

        best = max(best, float(member(drawn_a).mean() - e * member(drawn_b).mean()))
    assert family.truth(epsilon) == pytest.approx(best, abs=4 * 2 * math.sqrt(0.25 / count) + 1e-4)


def test_truths_with_a_closed_form():
    def normal_delta(shift, epsilon):
        return stats.norm.cdf(shift / 2 - epsilon / shift) - math.exp(epsilon) * stats.norm.cdf(
            -shift / 2 - epsilon / shift
        )

    for epsilon in (0.0, 0.1, 0.5, 1.0):
        assert FAMILIES["normal, shift 0.5 sd"].truth(epsilon) == pytest.approx(normal_delta(0.5, epsilon), abs=1e-6)
        assert FAMILIES["Laplace, shift 0.3"].truth(epsilon) == pytest.approx(
            max(0.0, -math.expm1(0.5 * (epsilon - 0.3))), abs=1e-5
        )
        assert FAMILIES["exponential, shift 0.05 (one hard edge)"].truth(epsilon) == pytest.approx(
            -math.expm1(-0.05), abs=1e-4
        )
        gap = stats.norm.cdf(1.6) - stats.norm.cdf(1.0)
        assert FAMILIES["gap: +0.6 only above 1"].truth(epsilon) == pytest.approx(gap, abs=1e-4)
        assert FAMILIES["whole euros on 80%"].truth(epsilon) == pytest.approx(0.8, abs=1e-4)
        # whole numbers: P(even without) - e P(even with)
        assert FAMILIES["even in 90%, plus 1"].truth(epsilon) == pytest.approx(0.9 - math.exp(epsilon) * 0.1, abs=1e-4)


def test_names_are_unique_and_every_list_is_long():
    lists = {name: make() for name, make in families.LISTS.items()}
    assert sum(map(len, lists.values())) == len(FAMILIES)
    assert min(map(len, lists.values())) >= 12
