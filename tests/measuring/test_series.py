"""Publishing again: composition against dp-accounting, effect sizes against slow integrals, and the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import empriv
from empriv.measuring.series.composition import (
    certain_after,
    composed_delta,
    delta_of_effects,
    gaussian_delta,
    gaussian_size,
    losses_of,
)
from empriv.measuring.series.effect_size import l_moments, moments, near_edges, regular, upper_means
from empriv.measuring.series.repeated import previous_weights
from table_results import of_entries

EPSILONS = np.array([0.0, 0.1, 1.0])


def normal_masses(shift, cells=20001):
    from scipy.special import ndtr

    edges = np.concatenate(([-np.inf], np.linspace(-12.0, 12.0 + shift, cells), [np.inf]))
    return np.diff(ndtr(edges)), np.diff(ndtr(edges - shift))


def shifted(n=365, shift=0.1, people=1, seed=0, law="normal"):
    rng = np.random.default_rng(seed)
    q = {"normal": rng.normal(size=n), "gamma": rng.gamma(2.0, size=n) / np.sqrt(2.0)}[law]
    return empriv.measure(q, np.stack([q - shift] * people))


# Composition


@pytest.mark.parametrize("times", [1, 12, 365])
@pytest.mark.parametrize("shift", [0.02, 0.1, 1.0])
def test_normal_pairs_compose_to_the_gaussian_curve(shift, times):
    delta = composed_delta(*normal_masses(shift), times, EPSILONS)
    truth = gaussian_delta(shift * np.sqrt(times), EPSILONS)
    np.testing.assert_allclose(delta, truth, atol=1e-4)
    assert np.all(delta >= truth - 1e-9)  # dots are connected from above


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 3])
def test_composition_agrees_with_dp_accounting(times):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="pip install dp-accounting")
    rng = np.random.default_rng(times)
    p = rng.dirichlet(np.full(40, 3.0))
    q = p * np.exp(rng.normal(0.0, 0.2, 40))
    q /= q.sum()
    logs = [{k: float(np.log(mass)) for k, mass in enumerate(masses)} for masses in (p, q)]
    witness = pld.from_two_probability_mass_functions(*logs, value_discretization_interval=2e-5, symmetric=False)
    expected = witness.self_compose(times).get_delta_for_epsilon(EPSILONS)
    np.testing.assert_allclose(composed_delta(p, q, times, EPSILONS), expected, atol=1e-4)


@pytest.mark.slow
def test_laplace_noise_composes_as_dp_accounting_says():
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="pip install dp-accounting")
    edges = np.linspace(-40.0, 41.0, 81_001)

    def cdf(x):
        return np.where(x < 0, 0.5 * np.exp(-np.abs(x)), 1 - 0.5 * np.exp(-np.abs(x)))

    masses = [np.diff(np.concatenate(([0.0], cdf(edges - centre), [1.0]))) for centre in (0.0, 0.1)]
    witness = pld.from_laplace_mechanism(10.0, value_discretization_interval=1e-4, use_connect_dots=True)
    expected = witness.self_compose(52).get_delta_for_epsilon(EPSILONS)
    np.testing.assert_allclose(composed_delta(*masses, 52, EPSILONS), expected, atol=1e-4)


def test_a_share_that_tells_for_certain_adds_up():
    p, q = np.array([0.01, 0.99]), np.array([0.0, 1.0])
    delta = composed_delta(p, q, 52, np.array([0.0, 5.0]))
    np.testing.assert_allclose(delta, 1 - 0.99**52, rtol=1e-9)
    assert certain_after(1.0, 3) == 1.0
    assert certain_after(0.0, 3) == 0.0


def test_equal_laws_compose_to_nothing():
    p = np.full(10, 0.1)
    np.testing.assert_allclose(composed_delta(p, p, 1000, EPSILONS), 0.0, atol=1e-9)


def test_losses_keep_both_masses():
    p, q = normal_masses(0.3)
    losses = losses_of(p, q)
    assert np.isclose(losses.masses.sum(), 1.0)
    assert np.isclose((losses.masses * np.exp(-losses.losses)).sum(), 1.0)


# Effect sizes against slow integrals


def slow_moments(q, move, b, kind="laplace", cells=12):
    """H, F, U and the standard error of F by sums on a fine grid, with the whole matrix of pairs."""
    x = np.arange(q.min() - 25 * b, q.max() + move + 25 * b, b / cells)

    def kernels(centres):
        z = (x - centres[:, None]) / b
        return np.exp(-0.5 * z * z) / b / np.sqrt(2 * np.pi) if kind == "gaussian" else np.exp(-np.abs(z)) / (2 * b)

    def integral(y):
        return y.sum(axis=-1) * (x[1] - x[0])

    a, c = kernels(q), kernels(q + move)
    n, change, f, g = len(q), a - c, a.mean(axis=0), c.mean(axis=0)
    m, s = 0.5 * (f + g), f - g
    chi = integral(s * s / m)
    unbiased = n / (n - 1) * integral((s * s - (change**2).sum(axis=0) / n**2) / m)
    hellinger = -8 * np.log(integral(np.sqrt(f * g)) / np.sqrt(integral(f) * integral(g)))
    gram = (change / m) @ change.T * (x[1] - x[0])
    pairs = (gram**2).sum() - (np.diag(gram) ** 2).sum()
    influence = 2 * integral(change * s / m) - integral(0.5 * (a + c) * (s / m) ** 2) - chi
    return hellinger, chi, unbiased, np.sqrt((influence**2).sum() / n**2 + 2 * pairs / n**4)


@pytest.mark.parametrize("law", ["normal", "student", "gamma"])
@pytest.mark.parametrize(("move", "kind"), [(0.05, "laplace"), (0.3, "laplace"), (3.0, "laplace"), (0.3, "gaussian")])
def test_moments_agree_with_slow_integrals(law, move, kind):
    rng = np.random.default_rng(len(law))
    n, b = 60, 0.2
    q = {"normal": rng.normal(size=n), "student": rng.standard_t(3, n), "gamma": rng.gamma(2.0, size=n)}[law]
    fast = [float(column[0]) for column in moments(q, np.array([move]), b, kind=kind)]
    hellinger, chi, unbiased, error = slow_moments(q, move, b, kind)
    np.testing.assert_allclose(fast[:2], (hellinger, chi), rtol=0.06)
    np.testing.assert_allclose(fast[2], unbiased, rtol=0.03, atol=0.15 * error)
    np.testing.assert_allclose(fast[3], error, rtol=0.15)
    assert fast[0] <= hellinger * 1.001  # cells lose, and never add
    # a stated falsehood: four times the bandwidth gives another noise of the kernels
    wide = slow_moments(q, move, 4 * b, kind)
    assert not np.isclose(fast[1] - fast[2], wide[1] - wide[2], rtol=0.2)


def test_moments_across_an_empty_stretch_and_of_draws():
    rng = np.random.default_rng(2)
    q = rng.normal(size=60)
    apart = np.where(np.arange(60) < 30, q, q + 1e7)
    near = np.where(np.arange(60) < 30, q, q + 300.0)
    np.testing.assert_allclose(
        np.ravel(moments(apart, np.array([0.3]), 0.2)), np.ravel(moments(near, np.array([0.3]), 0.2)), rtol=1e-5
    )
    twice = moments(np.repeat(q, 2), np.array([0.3]), 0.2, draws=2)  # the same draw twice is no more than one
    np.testing.assert_allclose(np.ravel(twice)[:3], np.ravel(moments(q, np.array([0.3]), 0.2))[:3], rtol=1e-9)


def test_means_have_an_upper_limit_that_counts_seldom_days():
    rng = np.random.default_rng(3)
    n, share, runs = 100, 0.05, 400
    owner = np.nonzero(rng.random((runs, n)) < share)[0]
    limits = upper_means(np.ones(len(owner)), owner, runs, n, 0.95)
    assert 0.9 <= np.mean(limits >= share) <= 1.0
    assert np.mean(limits >= 3 * share) < 0.2
    always = upper_means(np.full(n, 0.3), np.zeros(n, int), 1, n, 0.95)
    np.testing.assert_allclose(always, 0.3, rtol=1e-9)


def test_gaussian_sizes_invert_their_curve():
    sizes = np.array([0.05, 1.0, 4.0])
    np.testing.assert_allclose(gaussian_size(gaussian_delta(sizes, 0.5), 0.5), sizes, rtol=1e-6)
    np.testing.assert_allclose(
        delta_of_effects(sizes**2, 0.1, 0.5), 1 - np.exp(-0.1) * (1 - gaussian_delta(sizes, 0.5))
    )
    assert gaussian_size(np.array([0.0, 1.0]), 0.5).tolist() == [0.0, np.inf]


# The risk after so many publications


def test_one_publication_is_the_risk_itself_and_more_never_tell_less():
    risk = shifted(n=120, people=2)
    assert risk.repeated(1) is risk
    curves = [risk.repeated(times).delta(EPSILONS) for times in (1, 2, 12, 52, 365, 5000)]
    assert np.all(np.diff(curves, axis=0) >= 0)
    assert risk.repeated(365).repeated(12).delta(1.0) == risk.repeated(12).delta(1.0)


@pytest.mark.slow
def test_the_estimate_is_near_the_truth_of_normal_laws():
    estimates = [shifted(seed=seed).repeated(52).delta(1.0) for seed in range(12)]
    truth = float(gaussian_delta(0.1 * np.sqrt(52), 1.0))
    assert abs(np.median(estimates) - truth) < 0.35 * truth
    assert abs(np.median(estimates) - 3 * truth) > 0.35 * truth


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "gamma"])
def test_the_upper_figure_covers_where_the_estimate_does_not(law):
    from scipy.special import gammainc

    if law == "normal":
        masses = normal_masses(0.1)
    else:
        edges = np.concatenate((np.linspace(-0.2, 40.0, 60_001), [np.inf])) * np.sqrt(2.0)
        cdf = [gammainc(2.0, np.maximum(edges + move, 0.0)) for move in (0.0, 0.1 * np.sqrt(2.0))]
        masses = [np.diff(np.concatenate(([0.0], values))) for values in cdf]
    truth = float(composed_delta(*masses, 52, np.array([1.0]))[0])
    runs = [shifted(seed=seed, law=law).repeated(52) for seed in range(20)]
    upper = np.array([risk.upper(np.array([1.0]), 0.95)[0, 0] for risk in runs])
    estimate = np.array([risk.delta(1.0) for risk in runs])
    assert np.mean(upper >= truth) >= 0.95
    assert np.mean(estimate >= truth) < 0.9
    assert np.median(upper) < 1


@pytest.mark.slow
def test_bounds_hold_the_estimate_and_those_of_one_publication():
    risk = shifted(people=3)
    year = risk.repeated(52)
    bounded, single = year.bounds([0.1, 1.0]), risk.bounds([0.1, 1.0])
    assert np.all(bounded.upper_i >= year.delta_i([0.1, 1.0]))
    assert np.all(bounded.upper_i >= single.upper_i)
    assert np.all(bounded.lower <= bounded.estimate)
    assert "52 publications" in " ".join(bounded.notes)


def test_few_databases_give_no_upper_figure_of_a_skewed_law():
    rng = np.random.default_rng(1)
    q = rng.gamma(2.0, size=60)
    year = empriv.measure(q, [q - 0.05]).repeated(52)
    bounded = year.bounds(1.0)
    assert bounded.upper == 1.0
    assert any("no upper figure" in note for note in bounded.notes)
    assert [message.severity for message in bounded.assumes if message.code == "no-repeated-bound"] == ["warning"]


def test_shapes_are_told_apart():
    rng = np.random.default_rng(2)
    normal, two = rng.normal(size=4000), rng.normal(size=4000) * 0.3 + rng.choice([-1.0, 1.0], 4000)
    assert regular(normal)
    assert not regular(two)
    assert not regular(rng.gamma(2.0, size=4000))
    np.testing.assert_allclose(l_moments(rng.random(20_000)), (0.0, 0.0), atol=0.02)
    np.testing.assert_allclose(l_moments(normal), (0.0, 0.1226), atol=0.02)
    assert np.isnan(l_moments(np.ones(20))).all()
    assert len(near_edges(rng.random(365), 0.07)) == 2
    assert near_edges(rng.normal(size=365), 0.1) == ()


def test_nobody_moves():
    q = np.random.default_rng(0).normal(size=80)
    risk = empriv.measure(q, [q, q]).repeated(365)
    assert risk.delta(0.0) == 0.0
    assert risk.upper(np.array([0.0]), 0.95).max() == 0.0
    assert risk.epsilon(0.01) == 0.0


def test_exact_leaks_stay_exact_leaks():
    q = np.random.default_rng(0).normal(size=80)
    constant = empriv.measure(q, [np.full(80, 3.0)]).repeated(12)
    assert constant.delta(10.0) == 1.0
    results = empriv.Results.from_arrays(q, [q])
    outcomes = np.zeros(80, np.int8)
    outcomes[:4] = empriv.Outcome.NULL  # in one of 20 databases the answer stops being a number
    risk = empriv.measure(replace(results, entry_q=np.where(outcomes == 0, q, np.nan), entry_outcomes=outcomes))
    assert np.isclose(risk.repeated(12).delta(10.0), 1 - 0.95**12, atol=1e-9)
    assert risk.repeated(12).bounds(10.0).upper > 1 - 0.95**12


def test_epsilon_is_where_delta_falls_to_the_target():
    year = shifted(people=2).repeated(52)
    epsilon = year.epsilon(0.05)
    assert year.delta(epsilon) <= 0.05 < year.delta(epsilon * 0.99)
    assert np.isinf(year.epsilon(0.0))
    assert not year.tells_epsilon(0.0)


@pytest.mark.parametrize("times", [0, -3, 1.5, True, "365", None, float("nan")])
def test_times_must_be_a_positive_whole_number(times):
    risk = shifted(n=40)
    with pytest.raises(empriv.InputError, match="`times` must be a whole number of 1 or more"):
        risk.repeated(times)


# Kinds of risk


def autocorrelated(rho, n=365, seed=0, shift=0.3):
    rng = np.random.default_rng(seed)
    q = np.zeros(n)
    errors = rng.normal(size=n)
    for k in range(n):
        q[k] = rho * q[k - 1] + errors[k] if k else errors[0] / np.sqrt(1 - rho**2)
    results = empriv.Results.from_arrays(q, [q - shift])
    return replace(results, databases=np.datetime64("2024-01-01") + np.arange(n))


def test_previous_answers_move_as_well():
    results = autocorrelated(0.6)
    from empriv.measuring.given.given_risk import measure_given

    risk = measure_given(results, empriv.Given("previous"))
    weights = previous_weights(risk.residuals)
    assert list(weights) == [1]
    assert abs(weights[1] - 0.6) < 0.12
    squared = risk.per_publication.estimate.squares[0]
    truth = (0.3 * 0.4) ** 2  # the innovation of variance 1 moves by d (1 - rho)
    assert 0.5 * truth < squared < 2.0 * truth
    assert squared < 0.5 * 0.3**2  # a stated falsehood: that it moves by d


def test_only_the_days_that_somebody_is_in_tell_of_them():
    rng = np.random.default_rng(5)
    others = rng.normal(size=365)
    there = rng.random(365) < 0.2
    q = others + np.where(there, 0.5, 0.0)
    risk = empriv.measure(q, [others])
    many = risk.repeated(100)
    truth = float(gaussian_delta(0.5 * np.sqrt(100 * there.mean()), 1.0))
    assert abs(many.delta(1.0) - truth) < 0.25 * truth
    assert many.upper(np.array([1.0]), 0.95)[0, 0] >= truth
    # stated falsehoods: that they are there every day, or that what counts is their mean influence
    assert many.delta(1.0) < 0.8 * float(gaussian_delta(0.5 * np.sqrt(100), 1.0))
    assert many.delta(1.0) > 2 * float(gaussian_delta(0.5 * there.mean() * np.sqrt(100), 1.0))


def test_people_in_few_databases_are_as_if_all_databases_listed_them():
    rng = np.random.default_rng(4)
    q = rng.normal(size=90)
    d = np.where(rng.random((5, 90)) < 0.2, 0.4, 0.0)
    listed = empriv.measure(q, q - d)
    rows = [np.flatnonzero(row) for row in d]
    at, starts = np.concatenate(rows), np.concatenate(([0], np.cumsum([len(row) for row in rows])))
    results = of_entries(q, at, q[at] - 0.4, starts)
    np.testing.assert_allclose(
        empriv.measure(results).repeated(30).delta_i(1.0), listed.repeated(30).delta_i(1.0), rtol=1e-9
    )


def test_several_numbers_have_an_estimate_and_no_upper_figure():
    rng = np.random.default_rng(6)
    first, second = rng.normal(size=(2, 200))
    parts = {
        "first": empriv.Results.from_arrays(first, [first - 0.2]),
        "second": empriv.Results.from_arrays(second, [second - 0.2]),
    }
    risk = empriv.measure(empriv.Results.stack(parts)).repeated(52)
    truth = float(gaussian_delta(0.2 * np.sqrt(2 * 52), 1.0))
    assert abs(risk.delta(1.0) - truth) < 0.25 * truth
    bounded = risk.bounds(1.0)
    assert bounded.upper == 1.0
    assert any("Several numbers" in note for note in bounded.notes)


def test_kinds_without_a_figure_say_so():
    rng = np.random.default_rng(7)
    q = rng.normal(size=60)
    results = empriv.Results.from_arrays(q, [q - 0.1])
    risk = empriv.measure(results, known=empriv.Buckets(rng.normal(size=60), 2))
    with pytest.raises(empriv.InputError, match="`repeated` must be asked of"):
        risk.repeated(12)


def test_draws_are_averaged_within_a_database():
    rng = np.random.default_rng(8)
    q = rng.normal(size=(120, 4))
    risk = empriv.measure(q, [q - 0.3])
    assert risk.results.draws == 4
    flat = shifted(n=120, shift=0.3, seed=8).repeated(12).delta(1.0)
    assert abs(risk.repeated(12).delta(1.0) - flat) < 0.15


def test_an_audit_of_so_many_publications_is_an_audit():
    rng = np.random.default_rng(9)
    q = rng.normal(size=120)
    audit = empriv.audit(empriv.Results.from_arrays(q, [q - 0.1]), epsilon=1.0)
    year = audit.repeated(365)
    assert year.delta(1.0) == audit.risk.repeated(365).delta(1.0)
    assert year.once is audit.risk
    assert year.repeated(1).delta(1.0) == audit.delta(1.0)
    judged = year.verdict(epsilon=1.0, delta=0.01)
    assert (judged, judged.by_estimate) == ("unresolved", "fail")  # no lower bound of many publications is known
    assert audit.verdict(epsilon=1.0, delta=0.01, basis="estimate") == "pass"
    assert judged.judged[-1].where == "day"
    assert "After 365 publications" in str(year)


def test_last_digits_tell_more_every_time():
    rng = np.random.default_rng(11)
    q = np.round(rng.normal(1000.0, 100.0, 200)) + 0.5 * (rng.random(200) < 0.7)  # without them: whole, or halves
    without = np.floor(q)
    risk = empriv.measure(q, [without])
    assert risk.delta(0.0) > 0.5
    assert risk.repeated(12).delta(1.0) > 0.99
    smooth = rng.normal(1000.0, 100.0, 200)
    assert empriv.measure(smooth, [smooth - 0.35]).repeated(12).delta(1.0) < 0.1
