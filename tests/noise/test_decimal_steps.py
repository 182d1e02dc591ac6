"""Granularities in people's own terms: released answers are exact multiples of a decimal, by the law certified."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import empriv
from empriv.errors import InputError
from empriv.noise.design import offered_granularity
from empriv.noise.drawing import cell_of, release, with_noise
from empriv.noise.law import (
    Law,
    check_granularity,
    decimal_at_most,
    exact_step,
    multiples,
    own_rounding,
)

DECIMALS = (0.01, 0.1, 0.05, 0.3, 2.5, 3.0, 1000.0, 1e-6)


@pytest.mark.parametrize("step", DECIMALS)
def test_a_released_answer_is_a_multiple_as_people_write_it(step: float) -> None:
    """No 0.30000000000000004: the double is the one that the decimal reads as."""
    law = Law.of(step, [("laplace", 1.0, 40 * step)])
    for value in (0.3, 12.345, -7.0, 1e4):
        released = release(law, value)
        assert Decimal(repr(released)) % Decimal(repr(step)) == 0


@given(st.integers(-(10**9), 10**9), st.sampled_from(DECIMALS))
def test_multiples_are_the_doubles_nearest_to_them(cells: int, step: float) -> None:
    assert float(multiples(cells, step)) == float(cells * exact_step(step))


@given(st.floats(-1e6, 1e6), st.sampled_from((*DECIMALS, 0.25)))
def test_what_is_released_is_the_cell_that_was_certified(value: float, step: float) -> None:
    """Halves of a cell too: the certificate and the release divide in the same way."""
    law = Law.of(step, [("point", 1.0, 0.0)])
    assert cell_of(law, value) == int(np.rint(value / step))
    half = round(value) * step / 2
    assert cell_of(law, half) == int(np.rint(half / step))


def test_draws_on_results_are_multiples_too() -> None:
    q = np.round(np.random.default_rng(0).normal(100.0, 5.0, 30), 2)
    noisy = with_noise(
        empriv.Results.from_arrays(q, [q - 0.1]), Law.of(0.01, [("laplace", 1.0, 3.0)]), draws=4,
        rng=np.random.default_rng(1),
    )  # fmt: skip
    assert all(Fraction(repr(answer)) % Fraction("0.01") == 0 for answer in noisy.q.ravel().tolist())


def test_noise_in_cents_keeps_its_promise_and_is_saved(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    q = np.round(rng.normal(100.0, 10.0, 60), 2)
    risk = empriv.measure(q, np.round(q - rng.exponential(2.0, (3, 60)), 2))
    noise = empriv.design_noise(risk, epsilon=0.1, delta=0.05, granularity=0.01)
    coarse = empriv.design_noise(risk, epsilon=0.1, delta=0.05, granularity=2.0**-6)
    assert noise.holds
    assert noise.expected_error == pytest.approx(coarse.expected_error, rel=0.02)
    noise.save(tmp_path / "noise.empriv")
    again = empriv.load(tmp_path / "noise.empriv")
    assert isinstance(again, empriv.Noise)
    assert again.law.to_json() == noise.law.to_json()
    assert Decimal(repr(again.release(99.999))) % Decimal("0.01") == 0
    bounded = empriv.design_noise(risk, epsilon=0.1, delta=0.0, bound=50.0, method="classical", granularity=0.01)
    assert bounded.law.parts[0].scale == pytest.approx(50.0 / 0.1, rel=1e-6)


def test_what_the_answers_show_is_offered() -> None:
    assert own_rounding(np.array([1.25, 3.5, 0.01])) == 0.01
    assert own_rounding(np.array([100.0, 2500.0])) == 100.0
    assert own_rounding(np.array([math.pi])) is None
    assert own_rounding(np.array([0.0, np.nan])) is None
    assert [decimal_at_most(size) for size in (1.0, 0.99, 4.9, 5.0, 0.015625, 70.0)] == [1, 0.5, 2, 5, 0.01, 50]
    rng = np.random.default_rng(0)
    counts = rng.poisson(400.0, 60).astype(float)
    assert offered_granularity(empriv.measure(counts, [counts - 1.0])) == 1.0
    means = rng.normal(37.0, 4.0, 60)
    offered = offered_granularity(empriv.measure(means, [means - 0.1]))
    assert offered in (0.01, 0.02, 0.05, 0.1)


def test_granularities_may_be_decimals() -> None:
    assert check_granularity(Decimal("0.01")) == 0.01
    assert check_granularity(3) == 3.0
    with pytest.raises(InputError, match=r"Hint: 0\.2"):
        check_granularity(1 / 3)
