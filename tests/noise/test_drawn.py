"""Results with draws of noise, as they would be released."""

from __future__ import annotations

import numpy as np
import pytest

import empriv
from empriv.noise.drawing import with_noise
from empriv.noise.law import Law
from empriv.results import Outcome, Results

LAW = Law.of(0.25, [("laplace", 1.0, 2.0)])


def pairs() -> Results:
    rng = np.random.default_rng(1)
    q = rng.normal(10.0, 1.0, 30)
    return Results.from_arrays(q, q - rng.exponential(1.0, (3, 30)))


def test_both_sides_are_rounded_and_get_the_same_draws() -> None:
    results = pairs()
    noisy = with_noise(results, LAW, draws=50, rng=np.random.default_rng(0))
    assert noisy.q.shape == (30, 50)
    assert noisy.draws == 50
    np.testing.assert_array_equal(noisy.q % 0.25, 0.0)
    rounded = np.rint(results.q / 0.25) * 0.25
    added = noisy.q - rounded[:, None]
    without = np.rint(results.entry_q / 0.25) * 0.25
    np.testing.assert_allclose(noisy.entry_q - without[:, None], added[results.entry_database], atol=1e-12)
    assert np.abs(added).mean() == pytest.approx(LAW.expected_error, rel=0.1)
    assert np.abs(added).mean() != pytest.approx(1.3 * LAW.expected_error, rel=0.1)


def test_who_is_not_named_gets_none_and_what_is_no_number_stays() -> None:
    results = Results.stack({"a": pairs(), "b": pairs()})
    results.outcomes[2, 0] = Outcome.NULL
    results.q[2, 0] = np.nan
    noisy = with_noise(results, {"a": LAW}, draws=4, rng=np.random.default_rng(0))
    assert noisy.q.shape == (30, 4, 2)
    np.testing.assert_array_equal(noisy.q[..., 1], np.repeat(results.q[:, 1:], 4, axis=1))
    assert np.isnan(noisy.q[2, :, 0]).all()
    assert (noisy.outcomes[2, :, 0] == Outcome.NULL).all()


def test_draws_of_a_randomised_query_are_drawn_again() -> None:
    rng = np.random.default_rng(1)
    q = rng.normal(10.0, 1.0, (20, 3))
    results = Results.from_arrays(q, (q - 0.5)[None])
    noisy = with_noise(results, LAW, draws=2, rng=np.random.default_rng(0))
    assert noisy.draws == 6
    assert empriv.measure(noisy).delta(0.5) >= 0.0
