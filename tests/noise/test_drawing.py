"""Noise that is drawn: exact rounding, the operating system's entropy, no precision attack; results with noise."""

from __future__ import annotations

import inspect
import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import empriv
from empriv.errors import InputError, MissingExtraError
from empriv.noise import drawing as module
from empriv.noise.drawing import LIMIT, cell_of, release, with_noise
from empriv.noise.law import Law
from empriv.noise.noise import Noise
from empriv.results import Outcome, Results

G = 0.125
DECIMALS = (0.01, 0.1, 0.05, 0.3, 2.5, 3.0, 1000.0, 1e-6)
NOISE = Law.of(0.25, [("laplace", 1.0, 2.0)])
LAW = Law.of(G, [("point", 0.2, 0.0), ("laplace", 0.5, 1.0), ("gaussian", 0.2, 1.0), ("table", 0.1, 0.0, (1, 2, 1))])


def test_no_seed_is_accepted() -> None:
    for function in (release, module.draw, Noise.release):
        names = set(inspect.signature(function).parameters)
        assert not names & {"rng", "seed", "random_state", "generator"}


def test_answers_of_neighbours_reach_the_same_outputs() -> None:
    # What can come out is every multiple of G, whatever the answer: here the cells next to it, all reached from both.
    law = Law.of(G, [("laplace", 1.0, 0.25)])
    answers = (0.3, 0.3 + 2**-30)
    # The rarest of these cells is missed by all 1,000 draws with a probability below 1e-7.
    seen = [{G * (cell_of(law, answer) + noise) for noise in module.draws(law, 1000)} for answer in answers]
    near = {cell * G for cell in range(-1, 6)}
    for outputs in seen:
        assert near <= outputs
        assert all(Fraction(one) % Fraction(G) == 0 for one in outputs)


def test_noise_of_doubles_would_fail_the_same_test() -> None:
    # The textbook way: the low bits of answer + noise tell two neighbouring answers apart.
    rng = np.random.default_rng(0)
    seen = [set((answer + rng.laplace(0, 0.25, 20_000)).tolist()) for answer in (0.3, 0.3 + 2**-30)]
    assert len(seen[0] & seen[1]) < 0.01 * len(seen[0])


FALSE_ALARM = 1e-7  # of each test of fit below, in either direction, as entropy has no seed
SIZE = 40_000


class Fit:
    """A chi-square test of a law, on some twenty groups of cells; those that expect fewer than 20 draws are one."""

    def __init__(self, law: Law) -> None:
        self.edge = int(np.ceil(law.quantile(1 - 1e-3) / law.granularity))
        self.k = np.arange(-self.edge, self.edge + 1)
        self.groups = np.arange(len(self.k)) // max(1, len(self.k) // 20)
        self.few = SIZE * self._grouped(self._masses(law)) < 20
        self.expected = SIZE * self._merged(self._masses(law))
        self.limit = float(stats.chi2.isf(FALSE_ALARM, len(self.expected) - 1))

    def accepts(self, drawn: list[int]) -> bool:
        counts = np.bincount(np.clip(drawn, -self.edge, self.edge) + self.edge, minlength=len(self.k))
        return float(((self._merged(counts) - self.expected) ** 2 / self.expected).sum()) <= self.limit

    def misses(self, truth: Law) -> float:
        """Probability that draws of another law are accepted."""
        apart = float(((SIZE * self._merged(self._masses(truth)) - self.expected) ** 2 / self.expected).sum())
        return float(stats.ncx2.cdf(self.limit, len(self.expected) - 1, apart))

    def _masses(self, law: Law) -> np.ndarray:
        masses = law.pmf(self.k)
        masses[0] = masses[-1] = float(law.tail(self.edge))
        return masses

    def _grouped(self, values: np.ndarray) -> np.ndarray:
        return np.bincount(self.groups, values)

    def _merged(self, values: np.ndarray) -> np.ndarray:
        grouped = self._grouped(values)
        return np.append(grouped[~self.few], grouped[self.few].sum()) if self.few.any() else grouped


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["laplace", "gaussian"])
@pytest.mark.parametrize("scale", [0.7, 40.0])
def test_draws_fit_their_law_and_not_a_scale_a_tenth_off(kind: str, scale: float) -> None:
    law, wider = (Law.of(1.0, [(kind, 1.0, factor * scale)]) for factor in (1.0, 1.1))
    assert Fit(wider).misses(law) < FALSE_ALARM
    drawn = module.draws(law, SIZE)
    assert Fit(law).accepts(drawn)
    assert not Fit(wider).accepts(drawn)


@pytest.mark.slow
def test_mixtures_fit_their_law_and_not_other_weights() -> None:
    weights = [("point", 0.25, 0.0), ("laplace", 0.45, 1.0), ("gaussian", 0.2, 1.0), ("table", 0.1, 0.0, (1, 2, 1))]
    other = Law.of(G, weights)
    assert Fit(other).misses(LAW) < FALSE_ALARM
    drawn = module.draws(LAW, SIZE)
    assert Fit(LAW).accepts(drawn)
    assert not Fit(other).accepts(drawn)


@pytest.mark.parametrize(
    ("bits", "wanted"), [(0, "point"), (2**62 - 1, "point"), (2**62, "table"), (2**64 - 1, "table")]
)
def test_parts_are_chosen_by_their_whole_weights(bits: int, wanted: str, monkeypatch: pytest.MonkeyPatch) -> None:
    law = Law.of(1.0, [("point", 0.25, 0.0), ("table", 0.75, 0.0, (1, 0, 1))])
    monkeypatch.setattr(module.secrets, "randbits", lambda _: bits)
    assert (module.draw(law) == 0) == (wanted == "point")


@pytest.mark.parametrize(
    ("value", "cell"), [(0.5, 0), (1.5, 2), (2.5, 2), (-0.5, 0), (-1.5, -2), (0.49999999999999994, 0), (3, 3)]
)
def test_ties_are_rounded_to_even(value: float, cell: int) -> None:
    law = Law.of(1.0, [("point", 1.0, 0.0)])
    assert cell_of(law, value) == cell
    assert release(law, value) == cell


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None, "1", True, 1 + 2j, 1e300, -1e300])
def test_what_is_no_answer_is_refused_before_anything_is_drawn(value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "draw", lambda _: pytest.fail("noise was drawn"))
    with pytest.raises(InputError, match="value") as caught:
        release(LAW, value)
    assert "1e+300" not in str(caught.value)


def test_extremes_saturate_at_a_bound_that_the_data_do_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    law = Law.of(1.0, [("laplace", 1.0, 2.0**40)])
    monkeypatch.setattr(module, "draw", lambda _: 2**60)
    assert release(law, 0.0) == release(law, 12.0) == float(LIMIT)
    monkeypatch.setattr(module, "draw", lambda _: -(2**60))
    assert release(law, float(LIMIT)) == -float(LIMIT)


def test_wide_noise_does_not_saturate_at_32_bits() -> None:
    law = Law.of(1.0, [("laplace", 1.0, 2.0**40)])
    # all 40 below with a probability of (2^32/2^40)^40
    assert max(abs(noise) for noise in module.draws(law, 40)) > 2**32


def test_tiny_and_huge_granularities_are_exact() -> None:
    for exponent in (-200, 200):
        g = 2.0**exponent
        assert release(Law.of(g, [("point", 1.0, 0.0)]), 5 * g) == 5 * g


def test_without_opendp_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    module._sampler.cache_clear()
    monkeypatch.setitem(sys.modules, "opendp.prelude", None)
    with pytest.raises(MissingExtraError, match=r"empriv\[release\]"):
        release(LAW, 1.0)


@pytest.mark.parametrize("step", DECIMALS)
def test_a_released_answer_is_a_multiple_as_people_write_it(step: float) -> None:
    """No 0.30000000000000004: the double is the one that the decimal reads as."""
    law = Law.of(step, [("laplace", 1.0, 40 * step)])
    for value in (0.3, 12.345, -7.0, 1e4):
        released = release(law, value)
        assert Decimal(repr(released)) % Decimal(repr(step)) == 0


@given(st.floats(-1e6, 1e6), st.sampled_from((*DECIMALS, 0.25)))
def test_what_is_released_is_the_cell_that_was_certified(value: float, step: float) -> None:
    """Halves of a cell too: the certificate and the release divide in the same way."""
    law = Law.of(step, [("point", 1.0, 0.0)])
    assert cell_of(law, value) == int(np.rint(value / step))
    half = round(value) * step / 2
    assert cell_of(law, half) == int(np.rint(half / step))


def pairs() -> Results:
    rng = np.random.default_rng(1)
    q = rng.normal(10.0, 1.0, 30)
    return Results.from_arrays(q, q - rng.exponential(1.0, (3, 30)))


def test_both_sides_are_rounded_and_get_the_same_draws() -> None:
    results = pairs()
    noisy = with_noise(results, NOISE, draws=50, rng=np.random.default_rng(0))
    assert noisy.q.shape == (30, 50)
    assert noisy.draws == 50
    np.testing.assert_array_equal(noisy.q % 0.25, 0.0)
    rounded = np.rint(results.q / 0.25) * 0.25
    added = noisy.q - rounded[:, None]
    without = np.rint(results.entry_q / 0.25) * 0.25
    np.testing.assert_allclose(noisy.entry_q - without[:, None], added[results.entry_database], atol=1e-12)
    assert np.abs(added).mean() == pytest.approx(NOISE.expected_error, rel=0.1)
    assert np.abs(added).mean() != pytest.approx(1.3 * NOISE.expected_error, rel=0.1)
    cents = with_noise(results, Law.of(0.01, [("laplace", 1.0, 3.0)]), draws=4, rng=np.random.default_rng(1))
    assert all(Fraction(repr(answer)) % Fraction("0.01") == 0 for answer in cents.q.ravel().tolist())


def test_who_is_not_named_gets_none_and_what_is_no_number_stays() -> None:
    results = Results.stack({"a": pairs(), "b": pairs()})
    results.outcomes[2, 0] = Outcome.NULL
    results.q[2, 0] = np.nan
    noisy = with_noise(results, {"a": NOISE}, draws=4, rng=np.random.default_rng(0))
    assert noisy.q.shape == (30, 4, 2)
    np.testing.assert_array_equal(noisy.q[..., 1], np.repeat(results.q[:, 1:], 4, axis=1))
    assert np.isnan(noisy.q[2, :, 0]).all()
    assert (noisy.outcomes[2, :, 0] == Outcome.NULL).all()


def test_draws_of_a_randomised_query_are_drawn_again() -> None:
    rng = np.random.default_rng(1)
    q = rng.normal(10.0, 1.0, (20, 3))
    results = Results.from_arrays(q, (q - 0.5)[None])
    noisy = with_noise(results, NOISE, draws=2, rng=np.random.default_rng(0))
    assert noisy.draws == 6
    assert empriv.measure(noisy).delta(0.5) >= 0.0
