"""Publishing again: composition against dp-accounting, effect sizes against slow integrals, and the truth."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import empriv
from empriv.measuring.given import compiled_blocks
from empriv.measuring.given.presence import presence_of
from empriv.measuring.series import RepeatedRisk
from empriv.measuring.series.composition import certain_after, composed_delta, gaussian_delta, losses_of
from empriv.measuring.series.effects import _cells, looks_of, moments
from empriv.measuring.series.of_kinds import looked_at, previous_weights
from empriv.measuring.series.sizes import l_moments, near_edges, regular, sizes_of

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
@pytest.mark.parametrize("times", [1, 12, 365])
def test_normal_pairs_compose_as_dp_accounting_says(times):
    pld = pytest.importorskip("dp_accounting.pld.privacy_loss_distribution", reason="pip install dp-accounting")
    witness = pld.from_gaussian_mechanism(10.0, value_discretization_interval=1e-3, use_connect_dots=True)
    expected = witness.self_compose(times).get_delta_for_epsilon(EPSILONS)
    np.testing.assert_allclose(composed_delta(*normal_masses(0.1), times, EPSILONS), expected, atol=1e-4)


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


@pytest.mark.skipif(
    compiled_blocks.compiled is None, reason="empriv was built without a C compiler: install one, and empriv anew"
)
@pytest.mark.parametrize("shape", [(4, 30, 5), (30, 3)], ids=["people", "everyone"])
def test_masses_in_cells_are_those_of_numpy(shape, monkeypatch):
    """With an empty stretch, an atom, and points on the edges of cells."""
    rng = np.random.default_rng(0)
    points, width = rng.normal(0, 3, shape), 0.37
    points[0, 0], points[1, 2] = 200.0, np.inf
    points[2] = np.round(points[2] / width) * width
    weights = rng.dirichlet(np.ones(5), 4) if len(shape) == 3 else None
    cells = _cells([points], width)
    fast = cells.cumulated(points, weights)
    monkeypatch.setattr(compiled_blocks, "compiled", None)
    slow = cells.cumulated(points, weights)
    assert np.allclose(fast, slow, rtol=0, atol=1e-13)
    assert not np.allclose(fast, np.roll(slow, 1, axis=-1), rtol=0, atol=1e-3)


def slow_moments(q, without, b, cells=12):
    """H, F, U and the standard error of F by sums on a fine grid, with the whole matrix of pairs."""
    x = np.arange(min(q.min(), without.min()) - 25 * b, max(q.max(), without.max()) + 25 * b, b / cells)

    def kernels(centres):
        return np.exp(-np.abs(x - centres[:, None]) / b) / (2 * b)

    def integral(y):
        return y.sum(axis=-1) * (x[1] - x[0])

    a, c = kernels(q), kernels(without)
    n, change, f, g = len(q), a - c, a.mean(axis=0), c.mean(axis=0)
    m, s = 0.5 * (f + g), f - g
    chi = integral(s * s / m)
    unbiased = n / (n - 1) * integral((s * s - (change**2).sum(axis=0) / n**2) / m)
    hellinger = -8 * np.log(integral(np.sqrt(f * g)) / np.sqrt(integral(f) * integral(g)))
    gram = (change / m) @ change.T * (x[1] - x[0])
    pairs = (gram**2).sum() - (np.diag(gram) ** 2).sum()
    influence = 2 * integral(change * s / m) - integral(0.5 * (a + c) * (s / m) ** 2) - chi
    return hellinger, chi, unbiased, np.sqrt((influence**2).sum() / n**2 + 2 * pairs / n**4)


@pytest.mark.slow
@pytest.mark.parametrize("law", ["normal", "student", "gamma"])
@pytest.mark.parametrize("influence", [0.3, 1.0, "varies", "seldom", "far"])
def test_moments_agree_with_slow_integrals(law, influence):
    rng = np.random.default_rng(len(law))
    n = 150
    q = {"normal": rng.normal(size=n), "student": rng.standard_t(3, n), "gamma": rng.gamma(2.0, size=n)}[law]
    d = {
        "varies": rng.exponential(0.3, n),
        "seldom": np.where(rng.random(n) < 0.1, rng.exponential(1.0, n), 0.0),
        "far": np.where(rng.random(n) < 0.5, 40.0, 0.2),
    }.get(influence, np.full(n, influence if isinstance(influence, float) else 0.0))
    risk = empriv.measure(q, [q - d])
    b = 0.5 * risk.density.bandwidth
    fast = moments(looks_of(risk.pairs, np.array([0])), b, errors=True)
    hellinger, chi, unbiased, error = slow_moments(q, q - d, b)
    assert np.isclose(fast.hellinger[0], hellinger, rtol=0.05)
    assert np.isclose(fast.chi[0], chi, rtol=0.05)
    assert np.isclose(fast.unbiased[0], unbiased, rtol=0.05, atol=0.15 * error)
    assert np.isclose(fast.error[0], error, rtol=0.15)
    assert fast.hellinger[0] <= hellinger * 1.001  # cells lose, and never add
    # a stated falsehood: four times the bandwidth gives another noise of the kernels
    wide = slow_moments(q, q - d, 4 * b)
    assert not np.isclose(fast.chi[0] - fast.unbiased[0], wide[1] - wide[2], rtol=0.2)


def test_what_is_said_of_one_person_does_not_depend_on_the_others():
    rng = np.random.default_rng(3)
    q = rng.standard_t(3, 120)
    d = rng.exponential(0.2, (40, 120)) * np.where(rng.random((40, 120)) < 0.3, rng.exponential(20.0, (40, 1)), 0.01)
    everyone = sizes_of(empriv.measure(q, q - d).pairs, empriv.measure(q, q - d).density)
    for row in (0, 7, 39):
        alone = empriv.measure(q, q - d[row : row + 1])
        sizes = sizes_of(alone.pairs, alone.density)
        for name in ("squared", "narrow", "error", "least", "slips"):
            np.testing.assert_allclose(getattr(sizes, name)[0], getattr(everyone, name)[row], rtol=1e-6, err_msg=name)


def test_people_in_few_databases_are_as_if_all_databases_listed_them():
    rng = np.random.default_rng(4)
    q = rng.normal(size=90)
    d = np.where(rng.random((5, 90)) < 0.2, 0.4, 0.0)
    listed = empriv.measure(q, q - d)
    rows = [np.flatnonzero(row) for row in d]
    results = empriv.Results(
        q=q,
        outcomes=np.zeros(90, np.int8),
        databases=np.arange(90),
        individuals=np.arange(5),
        starts=np.concatenate(([0], np.cumsum([len(row) for row in rows]))),
        entry_database=np.concatenate(rows).astype(np.int32),
        entry_q=np.concatenate([q[row] - 0.4 for row in rows]),
        entry_outcomes=np.zeros(sum(map(len, rows)), np.int8),
    )
    np.testing.assert_allclose(
        empriv.measure(results).repeated(30).delta_i(1.0), listed.repeated(30).delta_i(1.0), rtol=1e-9
    )


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
    codes = [check.code for check in empriv.checks(year, 1.0)]
    assert "repeated" in codes


def test_few_databases_give_no_upper_figure_of_a_skewed_law():
    rng = np.random.default_rng(1)
    q = rng.gamma(2.0, size=60)
    year = empriv.measure(q, [q - 0.05]).repeated(52)
    bounded = year.bounds(1.0)
    assert bounded.upper == 1.0
    assert any("no upper figure" in note for note in bounded.notes)
    assert [check.severity for check in empriv.checks(year, 1.0) if check.code == "repeated"] == ["warning"]


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
    weights = previous_weights(risk.left)
    assert list(weights) == [1]
    assert abs(weights[1] - 0.6) < 0.12
    squared = looked_at(risk).sizes.squared[0]
    truth = (0.3 * 0.4) ** 2  # the innovation of variance 1 moves by d (1 - rho)
    assert 0.5 * truth < squared < 2.0 * truth
    assert squared < 0.5 * 0.3**2  # a stated falsehood: that it moves by d


def test_given_presence_only_their_share_of_publications_is_looked_at():
    rng = np.random.default_rng(5)
    others = rng.normal(size=365)
    there = rng.random(365) < 0.2
    q = others + np.where(there, 0.5, 0.0)
    risk = empriv.measure(q, [others])
    present = presence_of(risk).repeated(100)
    assert isinstance(present, RepeatedRisk)
    assert np.isclose(present.looked_at.looks(100)[0], 100 * there.mean())
    truth = float(gaussian_delta(0.5 * np.sqrt(100 * there.mean()), 1.0))
    assert abs(present.delta(1.0) - truth) < 0.25 * truth
    assert present.upper(np.array([1.0]), 0.95)[0, 0] >= truth
    assert risk.repeated(100).delta(1.0) < 0.8 * present.delta(1.0)  # days unknown hide more
    assert risk.repeated(100).given_presence().delta(1.0) == present.delta(1.0)


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
    assert year.measured.given_presence().delta(1.0) > year.delta(1.0) - 1e-12  # their days, and not random ones
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
