"""Protocols: rounding, noise, functions; classical mechanisms against their closed forms."""

from __future__ import annotations

import math
from typing import Any

import dp_accounting
import mpmath
import numpy as np
import opendp.prelude as dp
import pandas as pd
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from scipy import stats

import empriv
from empriv import protocols
from empriv.judge.noise_kernels import classical
from empriv.results import Outcome, Results

RAW = "SELECT sum(amount) FROM data"


@pytest.fixture(scope="module")
def data() -> empriv.Databases:
    rng = np.random.default_rng(1)
    rows = pd.DataFrame(
        {"day": rng.integers(0, 40, 800), "who": rng.integers(0, 9, 800), "amount": rng.gamma(2.0, 20.0, 800)}
    )
    return empriv.databases(rows, database="day", individual="who")


@pytest.fixture(scope="module")
def raw(data: empriv.Databases) -> Results:
    return empriv.collect(data, RAW)


def test_plain_is_the_query(data: empriv.Databases, raw: Results) -> None:
    found = protocols.plain(RAW).collect(data, draws=7)
    np.testing.assert_array_equal(found.q, raw.q)
    np.testing.assert_array_equal(found.entry_q, raw.entry_q)
    assert found.draws is None
    protocol = protocols.rounded(RAW, to=2)
    assert protocols.plain(protocol) is protocol


def test_rounded(data: empriv.Databases, raw: Results) -> None:
    found = protocols.rounded(RAW, to=50).collect(data)
    np.testing.assert_array_equal(found.q, np.round(raw.q / 50) * 50)
    np.testing.assert_array_equal(found.entry_q, np.round(raw.entry_q / 50) * 50)
    assert np.abs(found.q - raw.q).max() <= 25
    assert np.abs(found.q - raw.q).max() > 20
    fine = protocols.rounded(RAW, to=1e-310).collect(data)  # of so many multiples an answer is one of them
    np.testing.assert_array_equal(fine.q, raw.q)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_noise_is_of_the_law_and_the_same_on_both_sides(data: empriv.Databases, raw: Results, law: str) -> None:
    if law == "laplace":
        protocol = protocols.laplace(RAW, sensitivity=10, epsilon=2)
        truth: Any = stats.laplace(scale=5)
        false: Any = stats.laplace(scale=10)
    else:
        protocol = protocols.gaussian(RAW, sensitivity=10, epsilon=1, delta=0.01)
        sigma = gaussian_scale(10, 1, 0.01)
        truth, false = stats.norm(scale=sigma), stats.norm(scale=2 * sigma)
    found = protocol.collect(data, draws=50, rng=3)
    added = found.q - raw.q[:, None]
    np.testing.assert_allclose(found.entry_q - raw.entry_q[:, None], added[raw.entry_database], atol=1e-9)
    assert stats.kstest(added.ravel(), truth.cdf).pvalue > 0.01
    assert stats.kstest(added.ravel(), false.cdf).pvalue < 0.01


def gaussian_scale(sensitivity: float, epsilon: float, delta: float) -> float:
    return classical(epsilon, delta, sensitivity, "gaussian").scale


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [(1e-6, 1e-12), (1e-3, 1e-9), (0.1, 1e-5), (0.1, 1e-300), (0.7, 0.03), (3.0, 1e-15), (50.0, 0.5), (0.01, 0.9)],
)
def test_the_gaussian_scale_is_the_least_that_suffices(epsilon: float, delta: float) -> None:
    with mpmath.workdps(60):
        for factor in (1.0, 1 - 1e-6):
            s = mpmath.mpf(gaussian_scale(1.0, epsilon, delta)) * factor
            e = mpmath.mpf(epsilon)
            exact = mpmath.ncdf(1 / (2 * s) - e * s) - mpmath.exp(e) * mpmath.ncdf(-1 / (2 * s) - e * s)
            assert (exact <= mpmath.mpf(delta)) == (factor == 1.0)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-5), (1.0, 1e-6), (5.0, 1e-3)])
def test_scales_against_dp_accounting_and_opendp(epsilon: float, delta: float) -> None:
    sigma = gaussian_scale(100, epsilon, delta)
    assert sigma == pytest.approx(100 * dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-3)
    assert sigma != pytest.approx(110 * dp_accounting.get_sigma_gaussian(epsilon, delta), rel=1e-3)
    # OpenDP gives the Gaussian mechanism in zero-concentrated privacy, rho = d²/2s², whose delta is a looser bound
    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T=float, nan=False))
    theirs = dp.m.make_gaussian(domain, dp.l2_distance(T=float), scale=sigma)
    assert theirs.map(100.0) == pytest.approx(0.5 * (100 / sigma) ** 2)
    converted = dp.c.make_zCDP_to_approxDP(theirs).map(100.0)
    assert converted.delta(epsilon) >= delta
    theirs = dp.m.make_laplace(domain, dp.l1_distance(T=float), scale=classical(epsilon, 0.0, 100).scale)
    assert theirs.map(100.0) == pytest.approx(epsilon)
    assert theirs.map(100.0) <= epsilon * (1 + 1e-12)


def fixed() -> empriv.Databases:
    """The same rows each time: all randomness is the protocol's."""
    rows = pd.DataFrame({"who": ["a", "b", "c"], "amount": [100.0, 20.0, 1000.0]})
    return empriv.repeats(rows, individual="who", count=1500)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["laplace", "gaussian"])
def test_measured_delta_is_that_of_the_closed_form(law: str) -> None:
    def protocol(sensitivity: float) -> protocols.Protocol:
        query = "sum(least(amount, 100))"
        if law == "laplace":
            return protocols.laplace(query, sensitivity=sensitivity, epsilon=1.0)
        return protocols.gaussian(query, sensitivity=sensitivity, epsilon=1.0, delta=0.05)

    if law == "laplace":
        accountant = pld.from_laplace_mechanism(100.0, sensitivity=100.0)
    else:
        accountant = pld.from_gaussian_mechanism(gaussian_scale(100, 1.0, 0.05), sensitivity=100.0)
    # stated at a quarter of what it is, the noise is a quarter of what it must be
    rows = fixed()
    found, wrong = (empriv.measure(protocol(stated).collect(rows, draws=1, rng=2)) for stated in (100.0, 25.0))
    for epsilon in (0.0, 0.5):
        truth = accountant.get_delta_for_epsilon(epsilon)
        right = found.bounds(epsilon)
        assert right.lower <= truth <= right.upper
        assert right.estimate == pytest.approx(truth, abs=0.05)
        assert wrong.bounds(epsilon).lower > truth


@pytest.mark.slow
def test_designed_noise(data: empriv.Databases, raw: Results) -> None:
    noise = empriv.design_noise(empriv.measure(raw), epsilon=1.0, delta=0.01, granularity=0.5)
    found = protocols.noised(RAW, noise).collect(data, draws=30)
    rounded = np.rint(raw.q / 0.5) * 0.5
    assert found.q.shape == (40, 30)
    assert np.abs(found.q - rounded[:, None]).mean() == pytest.approx(noise.expected_error, rel=0.15)
    with pytest.raises(empriv.QueryError, match="as many numbers"):
        protocols.noised("SELECT sum(amount), count(*) FROM data", noise).collect(data, draws=2)


@pytest.mark.slow
def test_noise_designed_for_several_numbers(data: empriv.Databases) -> None:
    query = "SELECT sum(amount) AS s, count(*) AS n FROM data"
    raw = empriv.collect(data, query)
    noise = empriv.design_noise(empriv.measure(raw), epsilon=1.0, delta=0.0, granularity=0.5)
    found = protocols.noised(query, noise).collect(data, draws=3)
    assert found.q.shape == (40, 3, 2)
    assert (found.q % 0.5 == 0).all()
    with pytest.raises(empriv.QueryError, match="got different ones"):
        protocols.noised("SELECT sum(amount) AS s, count(*) AS m FROM data", noise).collect(data, draws=3)


@pytest.mark.slow
def test_passed(data: empriv.Databases, raw: Results) -> None:
    doubled = protocols.passed(RAW, lambda answer: 2 * answer).collect(data)
    np.testing.assert_array_equal(doubled.q, 2 * raw.q)
    np.testing.assert_array_equal(doubled.entry_q, 2 * raw.entry_q)
    noisy = protocols.passed(RAW, lambda answer, rng: answer + rng.normal()).collect(data, draws=4)
    added = noisy.q - raw.q[:, None]
    assert len(np.unique(added.round(9))) == 160
    np.testing.assert_allclose(noisy.entry_q - raw.entry_q[:, None], added[raw.entry_database], atol=1e-9)


def test_whether_a_function_is_random_is_seen_or_said() -> None:
    assert not protocols.passed(RAW, round).randomised
    assert not protocols.passed(RAW, lambda answer, digits=2: round(answer, digits)).randomised
    assert protocols.passed(RAW, lambda answer, rng: answer + rng.normal()).randomised
    assert protocols.passed(RAW, lambda *given: given[0], randomised=True).randomised
    assert protocols.plain(lambda rows, rng: len(rows) + rng.normal()).randomised
    assert not protocols.plain(lambda rows, rng: len(rows) + rng, randomised=False).randomised


@pytest.mark.slow
def test_a_randomised_query_draws_anew_in_every_draw(data: empriv.Databases) -> None:
    alone = protocols.plain(lambda rows, rng: 0.0 * len(rows["amount"]) + rng.normal())
    found = alone.collect(data, draws=3, jobs=1)
    assert found.q.shape == (40, 3)
    assert len(np.unique(found.q)) == 120


@pytest.mark.slow
def test_what_a_function_may_give(data: empriv.Databases, raw: Results) -> None:
    middle = float(np.median(raw.q))

    def odd(answer: float) -> float | None:
        if answer < middle:
            return None
        if answer < 1.05 * middle:
            raise RuntimeError(f"the answer is {answer}")
        return math.inf if answer < 1.1 * middle else answer

    found = protocols.passed(RAW, odd).collect(data)
    expected = np.select(
        [raw.q < middle, raw.q < 1.05 * middle, raw.q < 1.1 * middle],
        [Outcome.NULL, Outcome.ERROR, Outcome.PLUS_INFINITY], Outcome.NUMBER,
    )  # fmt: skip
    np.testing.assert_array_equal(found.outcomes, expected)
    np.testing.assert_array_equal(np.isnan(found.q), expected != Outcome.NUMBER)
    again = protocols.passed(protocols.passed(RAW, odd), lambda answer: answer + 1).collect(data)
    np.testing.assert_array_equal(again.outcomes, expected)  # not called where there is no number

    def broken(answer: float) -> float:
        raise KeyError(answer)

    with pytest.raises(empriv.QueryError, match="exception on each: KeyError") as caught:
        protocols.passed(RAW, broken).collect(data)
    assert str(raw.q[0])[:6] not in str(caught.value)


@pytest.mark.slow
def test_functions_of_several_numbers(data: empriv.Databases) -> None:
    query = "SELECT sum(amount) AS s, count(*) AS n, max(amount) FILTER (WHERE amount > 90) AS m FROM data"
    raw = empriv.collect(data, query)
    found = protocols.passed(query, lambda answer: answer[::-1]).collect(data)
    here = (raw.outcomes[:, 0] == 0) & (raw.outcomes[:, 2] == 0)
    np.testing.assert_array_equal(found.q[here], raw.q[here][:, ::-1])
    assert (found.outcomes[~here, 2] == Outcome.NULL).all()  # what is no number stays
    assert (found.outcomes[~here, 0] == Outcome.NAN).all()
    with pytest.raises(empriv.QueryError, match="ValueError"):
        protocols.passed(query, lambda answer: answer[:2]).collect(data)
    silent = protocols.passed(query, lambda _: None).collect(data)
    assert (silent.outcomes == Outcome.NULL).all()
    rounded = protocols.rounded(protocols.laplace(query, sensitivity=5, epsilon=1), to=10).collect(data, draws=3)
    assert rounded.q.shape == (40, 3, 3)
    numbers = rounded.q[rounded.outcomes == 0]
    np.testing.assert_array_equal(numbers, np.rint(numbers / 10) * 10)


@pytest.mark.slow
def test_the_same_seed_the_same_numbers_in_every_protocol(data: empriv.Databases, raw: Results) -> None:
    one = protocols.laplace(RAW, sensitivity=10, epsilon=1).collect(data, draws=5, rng=1)
    again = protocols.laplace(RAW, sensitivity=10, epsilon=1).collect(data, draws=5, rng=1)
    other = protocols.laplace(RAW, sensitivity=10, epsilon=1).collect(data, draws=5, rng=2)
    np.testing.assert_array_equal(one.q, again.q)
    assert (one.q != other.q).all()
    wider = protocols.laplace(protocols.rounded(RAW, to=1), sensitivity=20, epsilon=1).collect(data, draws=5, rng=1)
    np.testing.assert_allclose(wider.q - np.rint(raw.q)[:, None], 2 * (one.q - raw.q[:, None]), atol=1e-9)
    twice = protocols.laplace(protocols.laplace(RAW, sensitivity=10, epsilon=1), sensitivity=10, epsilon=1)
    second = twice.collect(data, draws=5, rng=1).q - one.q
    assert abs(stats.pearsonr(second.ravel(), (one.q - raw.q[:, None]).ravel()).statistic) < 0.3


def test_descriptions_are_of_one_line() -> None:
    protocol = protocols.cap_people("SELECT\n  sum(amount) FROM data", at=500)
    protocol = protocols.gaussian(
        protocols.laplace(protocol, sensitivity=100, epsilon=0.1), sensitivity=1, epsilon=1, delta=0.1
    )
    assert protocol.randomised
    assert protocols.passed(protocols.rounded(protocol, to=10), math.floor).describe() == (
        "SELECT sum(amount) FROM data; each person adds at most 500; "
        "Laplace noise of scale 1000 (epsilon 0.1 for sensitivity 100); "
        "Gaussian noise of standard deviation 1.08588 (epsilon 1 and delta 0.1 for sensitivity 1); "
        "rounded to 10; passed through floor"
    )
    assert not protocols.rounded(RAW, to=5).randomised


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: protocols.rounded(RAW, to=0), "`to` must be above 0, got 0"),
        (lambda: protocols.rounded(RAW, to=math.inf), "`to` must be a finite number"),
        (lambda: protocols.cap_people(protocols.rounded(RAW, to=5), at=3), "before anything is done to its answer"),
        (lambda: protocols.laplace(RAW, sensitivity=0, epsilon=1), "`sensitivity` must be above 0, got 0"),
        (lambda: protocols.laplace(RAW, sensitivity=-3, epsilon=1), "`sensitivity` must be above 0, got -3"),
        (lambda: protocols.laplace(RAW, sensitivity=1, epsilon=0), "`epsilon` must be above 0"),
        (lambda: protocols.gaussian(RAW, sensitivity=1, epsilon=1, delta=1), "`delta` must be between 0 and 1"),
        (lambda: protocols.noised(RAW, 3), "`noise` must come from"),  # type: ignore[arg-type]
        (lambda: protocols.passed(RAW, 3), "`function` must be a function"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_refused_in_one_sentence(make: Any, match: str) -> None:
    with pytest.raises(empriv.InputError, match=match):
        make()


def test_what_is_no_query_or_no_data_is_refused(data: empriv.Databases) -> None:
    with pytest.raises(empriv.QueryError, match="must be SQL text or a function"):
        protocols.rounded(3, to=1)  # type: ignore[arg-type]
    with pytest.raises(empriv.QueryError, match="must be a Python function"):
        protocols.plain(RAW, randomised=True)
    with pytest.raises(empriv.QueryError, match="at least one query"):
        protocols.plain([])
    with pytest.raises(empriv.QueryError, match="must be alone"):
        protocols.plain([RAW, lambda rows, rng: len(rows) + rng.normal()])
    with pytest.raises(empriv.InputError, match="`draws` must be a whole number of 1 or more, or None, got 0"):
        protocols.laplace(RAW, sensitivity=1, epsilon=1).collect(data, draws=0)
    with pytest.raises(empriv.InputError, match="`rng` must be a whole number of 0 or more, got -1"):
        protocols.laplace(RAW, sensitivity=1, epsilon=1).collect(data, rng=-1)
    with pytest.raises(empriv.InputError, match="`data` must come from"):
        protocols.plain(RAW).collect([1.0])  # type: ignore[arg-type]
