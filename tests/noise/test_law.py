"""The law on the lattice: probabilities, tails, weights, files; granularities in people's own terms."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import empriv
from empriv.errors import FileFormatError, InputError
from empriv.noise.design import offered_granularity
from empriv.noise.law import (
    WHOLE,
    Law,
    Part,
    check_granularity,
    decimal_at_most,
    exact_step,
    multiples,
    own_rounding,
    suggested_granularity,
)

PARTS = [("point", 0.3, 0.0), ("laplace", 0.5, 1.7), ("gaussian", 0.15, 3.0), ("table", 0.05, 0.0, (1, 2, 5, 2, 1))]
LAW = Law.of(0.25, PARTS)
K = np.arange(-600, 601)
DECIMALS = (0.01, 0.1, 0.05, 0.3, 2.5, 3.0, 1000.0, 1e-6)


def test_probabilities_are_those_of_mpmath() -> None:
    """Written as the definition says."""
    parts = [("point", 0.3, 0.0), ("laplace", 0.5, 1.7), ("gaussian", 0.2, 3.0)]
    law, reach = Law.of(0.25, parts), 300
    with mp.workdps(40):
        point, laplace, gaussian = (mp.mpf(part.weight) / mp.mpf(2) ** 64 for part in law.parts)
        a, variance = mp.exp(-0.25 / mp.mpf(1.7)), mp.mpf(3 / 0.25) ** 2
        total = sum(mp.exp(-k * k / (2 * variance)) for k in range(-2000, 2001))
        wanted = [
            (point if k == 0 else 0)
            + laplace * (1 - a) / (1 + a) * a ** abs(k)
            + gaussian * mp.exp(-k * k / (2 * variance)) / total
            for k in range(-reach, reach + 1)
        ]
    assert law.pmf(np.arange(-reach, reach + 1)) == pytest.approx(np.array(wanted, float), rel=1e-12)


def test_probabilities_sum_to_one_and_agree_with_each_other() -> None:
    pmf = LAW.pmf(K)
    assert pmf.sum() == pytest.approx(1.0, abs=1e-14)
    assert np.array_equal(pmf, pmf[::-1])
    assert LAW.cdf(K) == pytest.approx(np.cumsum(pmf), abs=1e-14)
    assert LAW.tail(K) == pytest.approx(np.cumsum(pmf[::-1])[::-1], abs=1e-14)
    assert LAW.expected_error == pytest.approx(np.abs(K * 0.25) @ pmf, rel=1e-12)


@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
def test_far_tails_are_right_relative_to_themselves(kind: str) -> None:
    law = Law.of(1.0, [(kind, 1.0, 5.0)])
    far = np.arange(100, 2000)
    assert law.tail(100) == pytest.approx(law.pmf(far).sum(), rel=1e-10)
    assert 0 < law.tail(100) < 1e-8


def test_wide_gaussian_laws_agree_with_summed_ones() -> None:
    for sigma in (4095.0, 4097.0):  # summed, and by Euler and Maclaurin
        law = Law.of(1.0, [("gaussian", 1.0, sigma)])
        k = np.arange(0, 160_000)
        pmf = law.pmf(k)
        assert law.tail(1) == pytest.approx(pmf[1:].sum(), rel=1e-11)
        assert law.tail(20_000) == pytest.approx(pmf[20_000:].sum(), rel=1e-9)
        assert law.expected_error == pytest.approx(2 * (k @ pmf), rel=1e-11)


@pytest.mark.parametrize("p", [1e-9, 0.05, 0.3, 0.5, 0.7, 0.95, 1 - 1e-9])
def test_quantiles_invert_the_cdf(p: float) -> None:
    k = round(LAW.quantile(p) / 0.25)
    assert LAW.cdf(k) >= p - 1e-15
    assert LAW.cdf(k - 1) < p + 1e-15


def test_draws_follow_the_law_and_not_one_of_another_scale() -> None:
    # 100,000 draws: a scale 10% off moves the mean of |noise| by about 16 standard errors
    for kind, scale in (("laplace", 2.0), ("gaussian", 2.0)):
        law = Law.of(0.25, [(kind, 1.0, scale)])
        drawn = np.abs(law.sample(100_000, rng=7))
        error = drawn.std() / math.sqrt(len(drawn))
        assert abs(drawn.mean() - law.expected_error) < 4 * error
        wrong = Law.of(0.25, [(kind, 1.0, 1.1 * scale)])
        assert abs(drawn.mean() - wrong.expected_error) > 8 * error
    counts = (LAW.sample(50_000, rng=1) == 0).mean()
    assert counts == pytest.approx(float(LAW.pmf(0)), abs=0.01)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1e-12, 1.0), min_size=1, max_size=6))
def test_weights_are_whole_and_the_remainder_is_the_widest_parts(weights: list[float]) -> None:
    total = math.fsum(weights)
    law = Law.of(1.0, [("laplace", w / total, 1.0 + k) for k, w in enumerate(weights)])
    assert sum(part.weight for part in law.parts) == WHOLE
    by_scale = {part.scale: part.weight for part in law.parts}
    for k, w in enumerate(weights[:-1]):  # rounded down, to within the normalisation
        assert by_scale.get(1.0 + k, 0) <= w / total * 2.0**64 * (1 + 1e-14) + 1


def test_json_loses_nothing() -> None:
    law = Law.of(2.0**-7, [("point", 0.1, 0.0), ("laplace", 0.9, math.pi)])
    again = Law.from_json(law.to_json())
    assert again.to_json() == law.to_json()
    assert [part.weight for part in again.parts] == [part.weight for part in law.parts]


@pytest.mark.parametrize("wrong", [None, {}, {"granularity": "0x1p-2", "parts": 3}, {"granularity": 1, "parts": []}])
def test_damaged_json_is_refused(wrong: Any) -> None:
    with pytest.raises(FileFormatError):
        Law.from_json(wrong)


@pytest.mark.parametrize("wrong", [1 / 3, 0.0, -1.0, math.inf, math.nan, True, "1", 0.1 + 0.2, 2.0**-1000])
def test_granularity_must_be_a_power_of_two_or_a_decimal(wrong: Any) -> None:
    with pytest.raises(InputError, match=r"Hint: 0\.2" if wrong == 1 / 3 else "granularity"):
        check_granularity(wrong)
    assert (check_granularity(Decimal("0.01")), check_granularity(3)) == (0.01, 3.0)


@given(st.integers(-(10**9), 10**9), st.sampled_from(DECIMALS))
def test_multiples_are_the_doubles_nearest_to_them(cells: int, step: float) -> None:
    assert float(multiples(cells, step)) == float(cells * exact_step(step))


def test_granularities_are_suggested_and_offered() -> None:
    assert (suggested_granularity(16.0), suggested_granularity(15.9)) == (1.0, 0.5)
    with pytest.raises(InputError):
        suggested_granularity(0.0)
    assert [own_rounding(np.array(values)) for values in ([1.25, 3.5, 0.01], [100.0, 2500.0])] == [0.01, 100.0]
    assert own_rounding(np.array([math.pi])) is own_rounding(np.array([0.0, np.nan])) is None
    assert [decimal_at_most(size) for size in (1.0, 0.99, 4.9, 5.0, 0.015625, 70.0)] == [1, 0.5, 2, 5, 0.01, 50]
    rng = np.random.default_rng(0)
    counts, means = rng.poisson(400.0, 60).astype(float), rng.normal(37.0, 4.0, 60)
    assert offered_granularity(empriv.measure(counts, [counts - 1.0])) == 1.0
    assert offered_granularity(empriv.measure(means, [means - 0.1])) in (0.01, 0.02, 0.05, 0.1)


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("laplace", 0.5, 1.0)],
        [("laplace", 1.0, -1.0)],
        [("laplace", 1.0, math.nan)],
        [("laplace", 1.0, 1e20)],
        [("laplace", 1.0, 1e-9)],
        [("cauchy", 1.0, 1.0)],
        [("laplace", math.nan, 1.0)],
        [("table", 1.0, 0.0, (1, 2))],
        [("table", 1.0, 0.0, (1, 2, 3))],
        [("point", 1.0, 1.0)],
    ],
)
def test_laws_that_are_none_are_refused(parts: Any) -> None:
    with pytest.raises(InputError):
        Law.of(1.0, parts)


def test_weights_must_sum_to_the_whole() -> None:
    with pytest.raises(InputError, match=r"2\^64"):
        Law(1.0, (Part("point", 5),))


def test_words() -> None:
    assert LAW.words.startswith("None with probability 0.3;")
    assert "multiples of 0.25" in LAW.words
